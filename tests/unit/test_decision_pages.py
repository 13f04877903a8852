# SPDX-License-Identifier: Apache-2.0

"""Each decision of the contributor's guide is a short file of one form, and listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parents[2] / "doc/source/contributor"
DECISIONS = sorted((PAGES / "decisions").glob("*.rst"))
LONGEST = 90
"""Words."""


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_context_choice_and_consequence(path):
    text = path.read_text("utf-8")
    assert re.findall(r"^:(\w+): ", text, re.MULTILINE) == ["Context", "Choice", "Consequence"]
    assert len(text.split()) <= LONGEST


def test_each_decision_is_listed_once():
    listed = re.findall(
        r"^   decisions/(\S+)$", (PAGES / "decisions.rst").read_text(), re.MULTILINE
    )
    assert sorted(listed) == [path.stem for path in DECISIONS]
    assert len(DECISIONS) > 40
