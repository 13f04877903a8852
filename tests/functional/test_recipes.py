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


def run(copy: Path, words: list[str], text: str = "") -> None:
    """Run a command in a copy; its output explains a failure."""
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
    assert done.returncode == 0, f"{done.stdout[-5000:]}\n{done.stderr[-5000:]}"


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
