# SPDX-License-Identifier: Apache-2.0

"""Tables of one tenant by index, as the snapshot has them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.routing.tenant_tables import joined_rails, tenant_tables
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft
from tests.partitions import tenant
from tests.unit.domain.routing.test_fabric_tables import (
    PLANES,
    RAILS,
    SMALL,
    SPREAD,
)
from tests.unit.domain.verification.sound import inventory_of


def test_tables_are_by_index_and_hold_the_partition_only():
    two_leaves = tenant("t", [(0, 0b011, 0b110), (1, 0b001, 0b100)])
    assert tenant_tables(SMALL, two_leaves) == {
        "l2:0:1": {"0": "down:0", "1": "down:0"},
        "l2:0:2": {"0": "down:0", "1": "down:0", "3": "down:1"},
        "leaf:0:0": {"0": "host", "1": "host", "3": "up:2"},
        "leaf:0:1": {"0": "up:2", "1": "up:2", "3": "host"},
    }
    assert tenant_tables(SMALL, tenant("t", [(0, 0b011, 0)])) == {
        "leaf:0:0": {"0": "host", "1": "host"}
    }


def test_tables_by_index_equal_the_tables_by_guid():
    inventory = inventory_of(SMALL)
    tables = forwarding_tables(SMALL, inventory, [SPREAD])
    cables = {c.link: c for c in inventory.cables if c.link in set(SPREAD.links(SMALL))}
    for name, entries in tenant_tables(SMALL, SPREAD).items():
        kind, first, second = name.split(":")
        a, b = int(first), int(second)
        guid = {
            "leaf": inventory.leaf_guids,
            "l2": inventory.l2_guids,
            "spine": inventory.spine_guids,
        }[kind][a * 3 + b]
        for host, entry in entries.items():
            endpoint = inventory.endpoint_of_port[int(host), 0]
            port = tables.port(guid, endpoint.guid)
            action, _, number = entry.partition(":")
            match kind, action:
                case "leaf", "host":
                    assert (guid, port) == endpoint.at
                case "leaf", "up":
                    assert (guid, port) == cables[LeafLink(a, b, int(number))].lower
                case "l2", "down":
                    assert (guid, port) == cables[LeafLink(a, int(number), b)].upper
                case "l2", "up":
                    assert (guid, port) == cables[SpineLink(a, b, int(number))].lower
                case "spine", "down":
                    assert (guid, port) == cables[SpineLink(int(number), a, b)].upper
                case _:
                    pytest.fail(f"{name} has {entry}")


def test_tables_by_index_name_rails_and_cables():
    narrow = tenant("narrow", [(3, 0b11, 0b10)])
    assert tenant_tables(RAILS, narrow) == {
        "l2:1:1": {"6/0": "down:2", "7/0": "down:2", "6/1": "down:3", "7/1": "down:3"},
        "leaf:1:2": {"6/0": "host", "7/0": "host", "6/1": "up:1", "7/1": "up:1"},
        "leaf:1:3": {"6/0": "up:1", "7/0": "up:1", "6/1": "host", "7/1": "host"},
    }
    doubled = Topology(Xgft((2, 2, 1), (1, 4, 0), (2, 1)))
    both = tenant("both", [(0, 0b11, 0b1100), (1, 0b01, 0b1000)])
    assert tenant_tables(doubled, both)["l2:0:1"] == {
        "0": "down:0/0",
        "1": "down:0/1",
        "2": "down:1/1",
    }


def test_a_leaf_link_is_never_taken_for_a_spine_link_of_the_same_numbers():
    assert LeafLink(0, 1, 2) != SpineLink(0, 1, 2)
    assert len({LeafLink(0, 1, 2), SpineLink(0, 1, 2), LeafLink(0, 1, 2)}) == 2


ACROSS = [(0, 0b1, 0b0101), (2, 0b1, 0b0101)]
"""A host in each grouped pod of PLANES, with the first uplink of both planes."""


@pytest.mark.parametrize(
    ("groups", "columns", "expected"),
    [
        ([(0, 0b01, 0)], [], (0, 1)),
        ([(0, 0b11, 0b0101)], [], (0, 1)),
        ([(0, 0b1, 0b0101), (1, 0b1, 0b0101)], [], (0, 1)),
        (ACROSS, [(0, 0, 1), (0, 2, 1), (1, 0, 1), (1, 2, 1)], (0, 0)),
        (ACROSS, [(0, 0, 1), (0, 2, 2), (1, 0, 1), (1, 2, 2)], (0, 1)),
        (ACROSS, [(0, 0, 3), (0, 2, 2), (1, 0, 1), (1, 2, 2)], (0, 1)),  # joined on one side
    ],
)
def test_planes_are_joined_where_all_their_leaves_lead_to_a_common_spine(groups, columns, expected):
    assert joined_rails(PLANES, inventory_of(PLANES), tenant("t", groups, columns)) == expected


def test_rails_of_one_plane_and_of_a_policy_without_links_are_never_apart():
    assert joined_rails(RAILS, inventory_of(RAILS), tenant("t", [(0, 0b1, 0)])) == (0, 0)
    shared = replace(tenant("t", [(0, 0b11, 0)]), policy="baseline")
    assert joined_rails(PLANES, inventory_of(PLANES), shared) == (0, 0)
