# SPDX-License-Identifier: Apache-2.0

"""Each option of the service has a test that sets it, and a help that says when to change it."""

import re
from pathlib import Path

import pytest

from laas_service import conf

TESTS = Path(__file__).parents[2]

SET = "\n".join(
    path.read_text()
    for path in sorted(TESTS.rglob("*"))
    if path.suffix in (".py", ".yaml", ".conf", ".sh") and path != Path(__file__)
)

OWN = [
    (group, option)
    for group, options in conf.list_opts()
    if group not in conf.logins.GROUPS
    for option in options
]

WHEN = re.compile(
    r"(?:^|[.:;,] )(?:(?:and|so|or|then) )?"
    r"(?:add|change|choose|enable|give|keep|leave|lower|narrow|raise|set|start|switch|use)\b",
    re.IGNORECASE,
)
"""A sentence, or a part of one, that tells operators to do something with the option."""

SETS = r"""(?:^|\\n|[^\w-]){name}["']?(?: ?[=:,] ?|\] ?= ?)"""
"""A line of a configuration, an override, or an item of a document."""


def test_there_are_no_more_options_than_a_person_reads():
    assert len(OWN) <= 110


@pytest.mark.parametrize(("group", "option"), OWN, ids=lambda value: getattr(value, "dest", value))
def test_a_test_sets_the_option_and_its_help_says_when_to(group, option):
    assert re.search(SETS.format(name=option.dest), SET, re.MULTILINE), "no test sets it"
    assert WHEN.search(" ".join(option.help.split())), "its help does not say when to change it"
