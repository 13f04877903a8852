# SPDX-License-Identifier: Apache-2.0

"""The drawings of the documentation: each can be drawn, read aloud, and seen whole."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "doc/ext/drawings"
PICTURES = re.findall(r'^    "([\w-]+)": Picture\(', (PACKAGE / "__init__.py").read_text(), re.M)
FILES = {"owners": ROOT / "doc/source/images/owners.svg"}
"""Pictures that are stored as files, for pages that the build does not make."""
USED = re.compile(r"^ *\.\. drawing:: (\S+)$", re.MULTILINE)


@pytest.fixture
def drawings(monkeypatch):
    """The package, as Sphinx imports it."""
    monkeypatch.syspath_prepend(PACKAGE.parent)
    return importlib.import_module("drawings")


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_described_and_has_no_text_beyond_its_edge(name, drawings):
    """A letter of 12 units is about 6.4 wide."""
    svg = ElementTree.fromstring(drawings.svg(name))
    width, height = (float(svg.attrib[side]) for side in ("width", "height"))
    assert len(svg.attrib["aria-label"]) > 40
    for text in svg.iter("{http://www.w3.org/2000/svg}text"):
        words, at = text.text or "", text.attrib["text-anchor"]
        long = len(words) * float(text.attrib["font-size"]) * 0.53
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        left = x - {"start": 0, "middle": long / 2, "end": long}[at]
        assert left >= -2, words
        assert left + long <= width + 2, words
        assert y <= height - 2, words


@pytest.mark.parametrize("name", FILES)
def test_a_stored_picture_is_the_one_that_the_code_draws(name, drawings):
    """Else: ``PYTHONPATH=doc/ext:. python -m drawings NAME > FILE``."""
    assert FILES[name].read_text("utf-8") == f"{drawings.svg(name, alone=True)}\n"


WITHOUT = {"user/index", "install/index", "admin/index", "admin/access", "admin/audit"}
"""Lists and tables."""


def test_pages_of_tasks_have_pictures_and_a_third_of_the_others():
    """The page of the ``openstack`` command only lists commands."""
    shown = re.compile(r"^ *\.\. (drawing|image|sequence)::", re.MULTILINE)
    guides: dict[str, list[bool]] = {}
    bare = set()
    for page in (ROOT / "doc/source").glob("*/*.rst"):
        guide = page.parent.name
        guides.setdefault(guide, []).append(bool(shown.search(page.read_text("utf-8"))))
        if guide in ("user", "install", "admin") and not guides[guide][-1]:
            bare.add(f"{guide}/{page.stem}")
    assert bare <= {*WITHOUT, "user/openstack-client"}
    assert 3 * sum(guides["contributor"]) >= len(guides["contributor"])


def test_pages_show_pictures_that_exist():
    pages = [*(ROOT / "doc/source").rglob("*.rst")]
    assert {name for page in pages for name in USED.findall(page.read_text("utf-8"))} <= {*PICTURES}
    assert len(PICTURES) > 15
