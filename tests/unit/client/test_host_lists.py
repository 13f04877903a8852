# SPDX-License-Identifier: Apache-2.0

"""Host lists as Slurm and ClusterShell write them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.client.host_lists import expanded
from laas_service.client.rest import Refused


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ["node1"]),
        ("node[001-003]", ["node001", "node002", "node003"]),
        ("node[9-11]", ["node9", "node10", "node11"]),
        ("node[1-2,007],login", ["node1", "node2", "node007", "login"]),
        ("rack[1-2]n[1-2]", ["rack1n1", "rack1n2", "rack2n1", "rack2n2"]),
        ("a[1]-ib", ["a1-ib"]),
        ("n.example.org", ["n.example.org"]),
    ],
)
def test_a_list_names_its_hosts(text, names):
    assert expanded(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("node[001-", "write it such as node[001-064]"),
        ("node001]", "write it such as node[001-064]"),
        ("node[]", "'' is no range; write it such as 001-064"),
        ("node[3-1]", "'3-1' is no range"),
        ("node[a-c]", "'a-c' is no range"),
        ("node1,,node2", "'' is no host list"),
        ("node[1-999999]", "more than 65536 hosts; write shorter ranges"),
        ("[1-999][1-999][1-999]", "more than 65536 hosts"),
    ],
)
def test_what_is_no_list_is_told_with_the_form(text, why):
    with pytest.raises(Refused) as refused:
        expanded(text)
    assert why in str(refused.value)
    assert text in str(refused.value)


@given(st.text(alphabet="a0-9,[]1 ", max_size=30))
def test_no_text_breaks_it(text):
    with suppress(Refused):
        assert all(expanded(text))
