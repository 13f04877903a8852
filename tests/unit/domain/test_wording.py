# SPDX-License-Identifier: Apache-2.0

import pytest

from laas_service.domain.wording import listed, printable


@pytest.mark.parametrize(
    ("names", "shown", "text"),
    [
        ([], 5, ""),
        (["a"], 5, "a"),
        (["b", "a"], 5, "b, a"),
        ("abcde", 5, "a, b, c, d, e"),
        ("abcdef", 5, "a, b, c, d, e and 1 more"),
        (range(10), 3, "0, 1, 2 and 7 more"),
    ],
)
def test_a_list_names_the_first_few_and_counts_the_rest(names, shown, text):
    assert listed(names, shown) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("MF0;leaf-1:MQM8700/U1 Zürich", "MF0;leaf-1:MQM8700/U1 Zürich"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\0\n\x7f\x9b", r"a\x00\n\x7f\x9b"),
        ("\u2028x\u202egnp", r"\u2028x\u202egnp"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert printable(text) == shown
