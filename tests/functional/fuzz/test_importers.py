# SPDX-License-Identifier: Apache-2.0

"""Mutated and random texts cause neither a traceback nor a partial import.

``LAAS_FUZZ=100000 pytest tests/functional/fuzz`` tries that many of each kind. The default
is a few hundred, the same in every run.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.functional.fuzz.inputs import SEEDS, spoiled
from tests.functional.fuzz.long import EXAMPLES, LONG, Tally
from tests.functional.fuzz.targets import TARGETS, taken

fuzzed = settings(
    max_examples=EXAMPLES,
    derandomize=not LONG,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_valid_is_taken(target):
    for text in SEEDS[target]:
        assert taken(target, text), text


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("snapshot", '{"topology": ' + "9" * 5000 + "}"),
        ("description", '{"xgft": "3;2,2,2;1,2,2", "\\n": 1}'),
        ("description", '{"a":' * 5000),
        ("description", "3;2,2,2;\x1c2,2,2"),
        ("description", '{"xgft": "3;2,2,2;1,2,2", "hosts": {"' + "9" * 5000 + '": {}}}'),
    ],
    ids=[
        "a long number",
        "a line end in a key",
        "very deep",
        "a blank that int() refuses",
        "a host of many digits",
    ],
)
def test_what_was_found_before_is_refused(target, text):
    assert not taken(target, text)


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_cable_of_any_number_of_lanes_is_a_cable(digits):
    dump = SEEDS["dump"][0]
    assert " 4xHDR" in dump
    assert taken("dump", dump.replace(" 4xHDR", f" {'9' * digits}xHDR", 1))


@pytest.fixture(scope="module")
def tried():
    tallies = {target: Tally(target) for target in TARGETS}
    yield tallies
    for tally in tallies.values():
        tally.say()


@pytest.mark.parametrize("target", TARGETS)
@fuzzed
@given(number=st.integers(0, 2**64))
def test_spoiled_texts(tried, target, number):
    tried[target].count("taken" if taken(target, spoiled(SEEDS[target], number)) else "refused")


@pytest.mark.parametrize("target", TARGETS)
@settings(fuzzed, max_examples=EXAMPLES // 10)
@given(text=st.text(max_size=300))
def test_any_text(tried, target, text):
    tried[target].count("taken" if taken(target, text) else "refused")
