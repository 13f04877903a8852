# SPDX-License-Identifier: Apache-2.0

"""The page of the architecture names every package, and every module of the searches."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "doc/source/contributor/architecture.rst"
ROOTS = (
    *("laas_doctor", "laas_service", "laas_verify_certificate", "opensm_writer", "nova_filters"),
    *("slurm_plugin", "watcher_plugin"),
)
"""``laas-research`` has one line, as it is a distribution of its own."""

CALLED = re.compile(r"``([\w/.]+)``")


def section(title: str) -> str:
    """The text below a title, up to the next one."""
    _, _, text = PAGE.read_text("utf-8").partition(f"\n{title}\n{'=' * len(title)}\n")
    return re.split(r"\n[^\n]+\n={3,}\n\n", text)[0]


def lines_of_packages() -> list[str]:
    """The first column of the table: the paths of each line."""
    return [line[:41] for line in section("Packages").splitlines() if line.startswith("``")]


def test_every_package_has_its_line():
    files = [file for root in ROOTS for file in (ROOT / root).rglob("__init__.py")]
    packages = {file.parent.relative_to(ROOT).as_posix() for file in files} - {
        "laas_service",
        "laas_service/adapters/db/migrations/versions",
    }
    first = [CALLED.findall(line)[0] for line in lines_of_packages()]
    named = [path.removesuffix("/") for path in first if path.endswith("/")]
    whole = [path if (ROOT / path).is_dir() else f"laas_service/{path}" for path in named]
    assert sorted(whole) == sorted({*packages, "research/laas_research"})


def test_every_path_of_a_line_exists():
    for line in lines_of_packages():
        first, *others = CALLED.findall(line)
        place = ROOT / first if (ROOT / first).exists() else ROOT / "laas_service" / first
        assert place.exists(), first
        for other in others:
            assert (place.parent / other).exists(), other


def test_every_module_of_the_searches_has_its_place():
    named = [
        path
        for path in CALLED.findall(section("Reading the searches"))
        if path.endswith(".py") and "/" not in path
    ]
    files = (ROOT / "laas_service/domain/search").glob("*.py")
    assert sorted(named) == sorted(file.name for file in files if file.name != "__init__.py")
