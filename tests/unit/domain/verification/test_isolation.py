# SPDX-License-Identifier: Apache-2.0

"""Each violation of ownership names the host or link, its owner and the reason."""

from dataclasses import replace

from laas_service.domain.allocation import ColumnShare, GroupShare, Shape
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft
from laas_service.domain.verification import isolation_violations
from tests.unit.domain.verification.sound import FULL, RAILS, build

RED = build(FULL, Shape(1, 2, 2), "red")
BLUE = build(FULL, Shape(1, 2, 3, 1, 1), "blue", pod=1)


def test_tenants_side_by_side_are_isolated():
    assert isolation_violations(FULL, [RED, BLUE]) == []


def test_a_host_with_two_owners():
    other = replace(RED, id="other", groups=(GroupShare(0, 0b110, 0),))
    assert isolation_violations(FULL, [RED, BLUE, other]) == [
        "isolation: host 1 is owned by red and by other"
    ]


def test_a_leaf_link_with_two_owners():
    other = replace(RED, id="other", groups=(GroupShare(0, 0b100, 0b010),))
    assert isolation_violations(FULL, [RED, other]) == [
        "isolation: link leaf-0-0-1 is owned by red and by other"
    ]


def test_a_spine_link_with_two_owners():
    other = replace(RED, id="other", groups=(), columns=(ColumnShare(1, 2, 0b10),))
    assert isolation_violations(FULL, [BLUE, other]) == [
        "isolation: link spine-1-2-1 is owned by blue and by other"
    ]


def test_one_uplink_index_of_two_rails_is_two_links():
    red = build(RAILS, Shape(1, 1, 2), "red")
    assert isolation_violations(RAILS, [red, replace(red, id="other")]) == [
        "isolation: host 0 is owned by red and by other",
        "isolation: host 1 is owned by red and by other",
        "isolation: link leaf-0-0-0 is owned by red and by other",
        "isolation: link leaf-0-1-0 is owned by red and by other",
    ]


def test_everything_wrong_is_reported_at_once():
    other = replace(BLUE, id="red", groups=(GroupShare(0, 0b1, 0b1), GroupShare(77, 1, 1)))
    found = isolation_violations(FULL, [RED, other])
    assert len(found) == 4
    assert "isolation: two allocations are called red" in found
    assert "isolation: red holds leaf group 77; there are 9" in found


def test_addresses_that_do_not_exist():
    bad = replace(
        RED,
        groups=(GroupShare(0, 0b1001, 0b1001),),
        columns=(ColumnShare(0, 0, 0b1000), ColumnShare(9, 0, 1)),
    )
    assert isolation_violations(FULL, [bad]) == [
        "isolation: red holds position 3 of leaf group 0, which is absent",
        "isolation: red holds uplinks of leaf group 0 beyond its 3",
        "isolation: red holds uplinks of L2 column 0/0 beyond its 3",
        "isolation: red holds uplinks of L2 column 9/0, which is absent",
    ]


def test_absent_hosts_and_links():
    holes = Topology(
        Xgft((3, 3, 3), (1, 3, 3)),
        absent_hosts=frozenset({1}),
        absent_links=frozenset({LeafLink(0, 1, 0), SpineLink(1, 0, 2)}),
    )
    assert isolation_violations(holes, [RED, BLUE]) == [
        "isolation: red holds host 1, which is absent",
        "isolation: red holds link leaf-0-1-0, which is absent",
    ]


def test_what_has_failed_is_reported_only_if_asked():
    assert isolation_violations(FULL, [RED], {1}, {LeafLink(0, 0, 1)}) == [
        "fault: host 1 of red has failed",
        "fault: link leaf-0-0-1 of red has failed",
    ]
