# SPDX-License-Identifier: Apache-2.0

"""Which pods are chosen for the full pods of a shape."""

from __future__ import annotations

import pytest

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Topology, Xgft

TREE = Topology(Xgft((2, 2, 3), (1, 2, 3)))  # 12 hosts: 3 pods of 2 leaves of 2
LEAF, HOST = 0b11, 0b01


def fabric_with(spines_of_pod_0: tuple[int, int], spines_of_pod_1: tuple[int, int]) -> Ledger:
    """A fabric of 5 free hosts: a leaf in pods 0 and 1, a host in pod 2.

    The free spine uplinks of pods 0 and 1 are given by column. Those of pod 2 are all free.
    """
    taken = tuple(
        ColumnShare(pod, column, 0b111 & ~free)
        for pod, spines in enumerate((spines_of_pod_0, spines_of_pod_1))
        for column, free in enumerate(spines)
    )
    fabric = Ledger(TREE)
    hosts = {0: LEAF, 2: LEAF, 4: LEAF, 5: HOST}
    groups = tuple(GroupShare(group, mask, 0) for group, mask in hosts.items())
    fabric.claim(Allocation("others", 7, "baseline", groups, taken))
    return fabric


@pytest.mark.parametrize("policy", ["jigsaw", "lc"])
@pytest.mark.parametrize(
    ("spines_of_pod_0", "spines_of_pod_1", "full_leaf"),
    [
        ((0b001, 0b010), (0b001, 0b001), 3),
        ((0b001, 0b010), (0b100, 0b110), 3),
        ((0b001, 0b010), (0b010, 0b001), 1),
        ((0b010, 0b010), (0b001, 0b001), 1),
    ],
)
def test_a_pod_whose_free_spines_are_alike_above_all_l2_switches_is_the_full_pod(
    policy, spines_of_pod_0, spines_of_pod_1, full_leaf
):
    fabric = fabric_with(spines_of_pod_0, spines_of_pod_1)
    answer = POLICIES[policy]().propose(fabric, Request("t", 3))
    assert isinstance(answer, Allocation)
    assert [share.group for share in answer.groups if share.hosts == LEAF] == [full_leaf]
