# SPDX-License-Identifier: Apache-2.0

"""The recipes of the page of everyday changes: each patch, on a copy, with the tests it names."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.functional.test_docs import examples

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "doc/source/contributor/everyday-changes.rst"
PATCHES = PAGE.parent / "recipes"
COPIED = (
    *("laas_service", "opensm_writer", "nova_filters", "watcher_plugin", "tests", "doc", "etc"),
    *("devstack", "releasenotes", "setup.cfg", "setup.py", "pyproject.toml", "tox.ini"),
)
SHOWN = re.compile(r"^\.\. literalinclude:: recipes/(\S+)\.patch$", re.MULTILINE)
RECIPE = re.compile(
    SHOWN.pattern + r"\n(?:   :.*\n)*\n::\n\n   pytest (.+)$",
    re.MULTILINE,
)
HEAD = "a000_head"
"""In a patch: the newest migration, whichever that is."""

LONGEST = 900
"""Seconds for the tests of one recipe."""


class Recipe(NamedTuple):
    name: str
    tests: str
    """Arguments of pytest, as the page shows them."""


RECIPES = [Recipe(*found) for found in RECIPE.findall(PAGE.read_text("utf-8"))]


def test_the_page_shows_every_patch_and_the_tests_of_each():
    shown = SHOWN.findall(PAGE.read_text("utf-8"))
    assert sorted(shown) == sorted(path.stem for path in PATCHES.glob("*.patch"))
    assert [recipe.name for recipe in RECIPES] == shown
    assert len(shown) > 6


@pytest.fixture
def copy(tmp_path):
    """A copy of this project, as far as tests need it."""
    for name in COPIED:
        source, target = ROOT / name, tmp_path / "copy" / name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target)
    return tmp_path / "copy"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_is_true(copy, recipe):
    """Its patch fits the present code, and the tests that its page names pass with it."""
    patch = (PATCHES / f"{recipe.name}.patch").read_text("utf-8").replace(HEAD, newest(copy))
    run(copy, ["git", "apply", "-C1", "--verbose", "-"], patch)
    install(copy)
    tests = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    run(copy, [*tests, *shlex.split(recipe.tests)])


def test_the_first_change_is_made_as_its_page_says(copy):
    """Every command of the page, in a repository of its own."""
    author = ["-c", "user.name=N", "-c", "user.email=n@example.org"]
    run(copy, ["git", "init", "-q"])
    run(copy, ["git", "add", "-A"])
    run(copy, ["git", *author, "commit", "-q", "-m", "The clone"])
    install(copy)
    found = examples("contributor/first-change.rst")
    assert len(found) > 6
    for command, expected in found:
        words = shlex.split(command)
        if words[0] == "git":
            words[1:1] = author
        elif words[0] == "python":
            words[:1] = [sys.executable]
        said = re.search(r"exit status (\d+)", expected)
        printed = run(copy, words, status=int(said[1]) if said else 0)
        shown = re.sub(r"\.\.\.|exit status \d+", "", expected).strip()
        assert shown in printed, f"$ {command}\n{printed}"


def run(copy: Path, words: list[str], text: str = "", status: int = 0) -> str:
    """The output of a command in a copy, whose status has to be this one."""
    settings = {"PYTHONPATH": str(copy), "GIT_CEILING_DIRECTORIES": str(copy.parent)}
    done = subprocess.run(
        words,
        cwd=copy,
        env=os.environ | settings,
        input=text,
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    assert done.returncode == status, f"{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout


def newest(copy: Path) -> str:
    """The newest migration."""
    versions = copy / "laas_service/adapters/db/migrations/versions"
    texts = "".join(path.read_text("utf-8") for path in versions.glob("*.py"))
    found, below = (
        set(re.findall(rf'^{which} = "(.+)"$', texts, re.MULTILINE))
        for which in ("revision", "down_revision")
    )
    head: str
    [head] = found - below
    return head


def install(copy: Path) -> None:
    """Give the copy the entry points of its ``setup.cfg``, beside its packages."""
    setup = configparser.ConfigParser(delimiters=("=",))
    setup.optionxform = str  # type: ignore[assignment,method-assign]
    setup.read(copy / "setup.cfg", "utf-8")
    metadata = copy / "laas_service-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: laas-service\nVersion: 0\n")
    groups = (f"[{name}]{text}\n" for name, text in setup["options.entry_points"].items())
    (metadata / "entry_points.txt").write_text("".join(groups))
