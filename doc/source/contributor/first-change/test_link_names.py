# SPDX-License-Identifier: Apache-2.0

"""Names of links as operators type them."""

from __future__ import annotations

from laas_service.domain.topology import LeafLink, parse_link


def test_capital_letters_name_the_same_link():
    assert parse_link("Leaf-0-2-1") == LeafLink(0, 2, 1)
