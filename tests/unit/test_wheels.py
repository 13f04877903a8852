"""The wheels that the tree is split into; nothing is built here."""

import ast
import re
import sys
from collections import defaultdict
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
sys.path.append(str(TREE / "packaging"))
wheels = import_module("wheels")

FOUND = {one.name: one for one in wheels.distributions()}
OWNERS = {module: wheels.owner(module, [*FOUND.values()]).name for module, _ in wheels.modules()}
FILES: dict[str, dict[str, Path]] = defaultdict(dict)
for module, path in wheels.modules():
    FILES[OWNERS[module]][module] = path

OPTIONAL = {
    "laas-client": {"osc_lib", "watcher", "networkx", "oslo_log", "oslo_config"},
    "laas-opensm-agent": {"oslo_db"},
    "laas-service": {
        "distributed",
        "matplotlib",
        "pymysql",
        "psycopg",
        "pydantic_core",
        "werkzeug",
    },
    "nova-laas-filters": {"nova", "sqlalchemy"},
}
"""Imports that an installation may do without, or that the neighbour brings."""

BROUGHT = {"pydantic_core": "pydantic", "werkzeug": "flask"}
"""Packages that come with a requirement."""


def needed(name):
    """A distribution, and those of ours that it is installed with."""
    return {name}.union(*(needed(one) for one in FOUND[name].requires if one in FOUND))


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def plain(name):
    return re.sub(r"[-_.]+", "-", re.split(r"[\[>=<]", name)[0]).lower()


@pytest.mark.parametrize("name", FOUND)
def test_a_wheel_has_all_that_its_modules_import(name):
    allowed = {plain(one) for part in needed(name) for one in FOUND[part].requires}
    of_import, lacking = packages_distributions(), set()
    for module, path in FILES[name].items():
        for other in imports(path):
            top = other.partition(".")[0]
            if other in OWNERS:
                if OWNERS[other] not in needed(name):
                    lacking.add(f"{module} imports {other} of {OWNERS[other]}")
            elif top not in wheels.PACKAGES and top not in sys.stdlib_module_names:
                brought = {plain(one) for one in of_import.get(top, ())}
                if top not in OPTIONAL.get(name, ()) and not brought & allowed:
                    lacking.add(f"{module} imports {top}")
    assert sorted(lacking) == []


def test_each_requirement_belongs_to_a_wheel():
    lines = (TREE / "requirements.txt").read_text().splitlines()
    wanted = {plain(name) for one in FOUND.values() for name in one.requires}
    assert {plain(line) for line in lines if line} - wanted == {"pbr"}


def test_each_sample_belongs_to_one_wheel():
    samples = [path for one in FOUND.values() for path in wheels.sampled(one)]
    assert len(samples) == len(set(samples))
    shipped = {path for path in (TREE / "etc").rglob("*") if path.is_file()} - set(samples)
    assert {path.name for path in shipped} == {"config-generator.conf", "policy-generator.conf"}


def test_a_module_of_nobody_is_named():
    with pytest.raises(LookupError, match=r"other_package.module belongs to no distribution"):
        wheels.owner("other_package.module", wheels.distributions())
