# SPDX-License-Identifier: Apache-2.0

"""Builds the wheels of ``distributions.toml``: ``python packaging/wheels.py [DIRECTORY]``.

Nova's virtual environment gets the filter alone, a machine with OpenSM the agent without a
database. Each file of the tree is in one wheel. The wheels go to DIRECTORY (``dist/wheels``).
"""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

TREE = Path(__file__).resolve().parents[1]
PACKAGES = (
    "laas_doctor",
    "laas_service",
    "laas_verify_certificate",
    "nova_filters",
    "opensm_writer",
    "slurm_plugin",
    "watcher_plugin",
)
SAMPLES = "share/{}"
"""Where a wheel installs its samples, below the prefix of an environment."""


@dataclass(frozen=True)
class Distribution:
    """One wheel: its modules by pattern, what it requires, and samples of the tree."""

    name: str
    summary: str
    modules: list[str]
    requires: list[str] = field(default_factory=list)
    extras: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)


def distributions() -> list[Distribution]:
    table = tomllib.loads(Path(__file__).with_name("distributions.toml").read_text())
    return [Distribution(name, **fields) for name, fields in table.items()]


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the tree, with its file."""
    for package in PACKAGES:
        for path in sorted((TREE / package).rglob("*.py")):
            words = path.relative_to(TREE).with_suffix("").parts
            yield ".".join(words[:-1] if words[-1] == "__init__" else words), path


def owner(module: str, found: list[Distribution]) -> Distribution:
    """The distribution of a module. Raises: LookupError, if no pattern is of it."""
    matching = [
        (len(pattern.removesuffix(".*")), pattern == module, number)
        for number, one in enumerate(found)
        for pattern in one.modules
        if pattern == module or (pattern[-2:] == ".*" and f"{module}.".startswith(pattern[:-1]))
    ]
    if not matching:
        raise LookupError(f"{module} belongs to no distribution of distributions.toml")
    return found[max(matching)[2]]


def version() -> str:
    text = (TREE / "laas_service" / "version.py").read_text()
    found = re.search(r'^VERSION = "(.+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def pinned(names: list[str]) -> list[str]:
    """Requirements with their versions; our own distributions have that of the tree."""
    lines = (TREE / "requirements.txt").read_text().splitlines()
    known = {re.split(r"[\[>=<]", line)[0].lower(): line for line in lines}
    return [
        f"{name}=={version()}" if name.startswith("laas-") else known[name.lower()]
        for name in names
    ]


def metadata(one: Distribution, files: dict[str, Path]) -> str:
    """The project's file of a distribution with these modules."""
    parser = configparser.ConfigParser(delimiters=("=",), strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(TREE / "setup.cfg")
    lines = [
        "[build-system]",
        'requires = ["setuptools>=64"]',
        'build-backend = "setuptools.build_meta"',
        "[project]",
        f"name = {json.dumps(one.name)}",
        f"version = {json.dumps(version())}",
        f"description = {json.dumps(one.summary)}",
        f"requires-python = {json.dumps(parser['options']['python_requires'])}",
        'license = { text = "Apache-2.0" }',
        f"dependencies = {json.dumps(pinned(one.requires))}",
        "[project.optional-dependencies]",
    ]
    for extra in one.extras:
        wanted = parser["options.extras_require"][extra].split()
        lines.append(f"{extra} = {json.dumps(wanted)}")
    for group, text in parser["options.entry_points"].items():
        points = [line.split(" = ") for line in text.strip().splitlines()]
        own = [point for point in points if point[1].split(":")[0] in files]
        if own:
            kind = "scripts" if group == "console_scripts" else f'entry-points."{group}"'
            lines.append(f"[project.{kind}]")
            lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in own]
    folders = {path.parent.relative_to(TREE) for path in files.values()}
    packages = sorted(str(folder).replace("/", ".") for folder in folders)
    lines += ["[tool.setuptools]", f"packages = {json.dumps(packages)}", "zip-safe = false"]
    lines += ["[tool.setuptools.package-data]", '"*" = ["*"]', "[tool.setuptools.data-files]"]
    samples: dict[str, list[str]] = {}
    for path in sampled(one):
        folder = path.parent.relative_to(TREE).as_posix().removeprefix("etc/")
        samples.setdefault(f"share/{one.name}/{folder}", []).append(str(path.relative_to(TREE)))
    lines += [f"{json.dumps(place)} = {json.dumps(names)}" for place, names in samples.items()]
    return "\n".join(lines) + "\n"


def sampled(one: Distribution) -> Iterator[Path]:
    """The samples of a distribution; those that ``tox -e wheel`` generates, where they are."""
    for pattern in one.data:
        for path in sorted(TREE.glob(pattern)):
            yield from sorted(path.iterdir()) if path.is_dir() else [path]


def build(one: Distribution, files: dict[str, Path], target: Path) -> None:
    """Copy the files of one distribution, and make its wheel. Raises: CalledProcessError."""
    with TemporaryDirectory(prefix=f"{one.name}-") as name:
        place = Path(name)
        folders = {path.parent for path in files.values()}
        beside = (
            path
            for folder in folders
            if folder / "__init__.py" in files.values()
            for path in folder.iterdir()
            if path.is_file() and path.suffix not in (".py", ".pyc")
        )
        for path in (*files.values(), *beside, *sampled(one)):
            copy = place / path.relative_to(TREE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        (place / "pyproject.toml").write_text(metadata(one, files))
        words = (
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-cache-dir",
            "--wheel-dir",
            str(target),
            name,
        )
        subprocess.run([sys.executable, "-m", "pip", *words], check=True)


def main(words: list[str]) -> int:
    target = Path(words[0]) if words else TREE / "dist" / "wheels"
    found = distributions()
    files: dict[str, dict[str, Path]] = {one.name: {} for one in found}
    for module, path in modules():
        files[owner(module, found).name][module] = path
    for one in found:
        build(one, files[one.name], target.absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
