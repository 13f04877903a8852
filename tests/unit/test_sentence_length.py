# SPDX-License-Identifier: Apache-2.0

"""The check of sentences in the documentation counts what a reader reads."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

EXTENSIONS = Path(__file__).resolve().parents[2] / "doc/ext"


@pytest.fixture
def check(monkeypatch):
    """The extension, as Sphinx imports it."""
    monkeypatch.syspath_prepend(EXTENSIONS)
    return importlib.import_module("sentence_length")


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("One two. Three four five!", [2, 3]),
        ("Run ``laas fabric hosts --state failed`` now.", [3]),
        ("First: second; third (see `there <http://x.org>`_).", [1, 1, 3]),
        ("Version 25.0.0 of e.g. Nova.", [4, 1]),
        ("A *marked* word and\nthe next line", [7]),
    ],
)
def test_words_are_counted_by_sentence(check, text, lengths):
    document = importlib.import_module("docutils.core").publish_doctree(text)
    [paragraph] = document.children
    assert [check.words(one) for one in check.sentences(paragraph)] == lengths
