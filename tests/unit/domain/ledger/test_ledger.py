# SPDX-License-Identifier: Apache-2.0

"""``Ledger.change``: the placement of an owner changes; columns one by one and packed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.domain.allocation import Allocation, ColumnShare, PackedColumns
from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound
from laas_service.domain.ledger import Ledger
from tests.unit.domain.policies.states import noisy_fabric, some_holding
from tests.unit.domain.policies.test_brute_force import TREES

every_tree = pytest.mark.parametrize("tree", TREES)


@every_tree
@given(seed=st.integers(0, 10**6))
def test_changing_is_releasing_and_claiming_what_is_new(tree, seed):
    """This holds with failed hosts and links, and the free counts equal those of a new ledger."""
    rng = Random(seed)
    fabric = noisy_fabric(TREES[tree], rng)
    old = some_holding(fabric, rng, "t")
    fabric.claim(old)
    for link in list(old.links(fabric.topology))[: rng.randrange(3)]:
        fabric.fail_link(link)
    for host in old.hosts(fabric.topology)[: rng.randrange(2)]:
        fabric.fail_host(host)
    new = some_holding(fabric, rng, "t").joined(old.beyond(some_holding(fabric, rng, "t")))
    both = fabric.copy()
    assert both.change(new.joined(old)) == old
    assert both.change(new) == new.joined(old)
    assert fabric.change(new) == old
    anew = Ledger(fabric.topology)
    for allocation in fabric.allocations.values():
        anew.claim(allocation)
    for host in sorted(fabric.failed_hosts):
        anew.fail_host(host)
    for link in fabric.failed_links:
        anew.fail_link(link)
    for name in ("free_host_count", "pod_free_hosts", "groups_by_free", "lost_host_count"):
        assert getattr(fabric, name) == getattr(both, name) == getattr(anew, name)
    assert fabric.state() == both.state() == anew.state()
    fabric.change(old.beyond(new).beyond(old).joined(new))
    assert fabric.state() == both.state()


@every_tree
@given(seed=st.integers(0, 10**6))
def test_nobody_claims_a_host_or_a_link_that_has_an_owner(tree, seed):
    """Not even one beside others that are free; a refused claim changes nothing."""
    rng = Random(seed)
    fabric = noisy_fabric(TREES[tree], rng)
    free = some_holding(fabric, rng, "t")
    theirs = fabric.copy()
    theirs.claim(some_holding(fabric, rng, "u"))
    owners = [a for a in theirs.allocations.values() if a.id != "t"]
    hosts = {host for a in owners for host in a.hosts(fabric.topology)}
    links = {link for a in owners for link in a.links(fabric.topology)}
    taken = hosts & set(free.hosts(fabric.topology)) or links & set(free.links(fabric.topology))
    before = theirs.state()
    if taken:
        with pytest.raises(DoubleClaim):
            theirs.claim(free)
        assert theirs.state() == before
    for owned in owners:
        if owned.groups or owned.columns:
            with pytest.raises(DoubleClaim):
                theirs.claim(replace(owned, id="v"))
            assert theirs.state() == before


def test_a_change_happens_entirely_or_not_at_all():
    fabric = noisy_fabric(TREES["three levels"], Random(1))
    rng = Random(2)
    mine = some_holding(fabric, rng, "t")
    fabric.claim(mine)
    initial_state = fabric.state()
    theirs = fabric.allocations["noise"]
    stolen = Allocation("t", 1, "test", theirs.groups, theirs.columns)
    with pytest.raises(DoubleClaim):
        fabric.change(stolen)
    with pytest.raises(NotFound):
        fabric.change(some_holding(fabric, rng, "nobody"))
    assert fabric.state() == initial_state


def test_a_share_that_is_both_old_and_new_is_counted_once():
    fabric = noisy_fabric(TREES["three levels"], Random(1))
    old, new = (some_holding(fabric, Random(seed), "t") for seed in (3, 4))
    links = [set(a.links(fabric.topology)) for a in (old, new, old.joined(new))]
    assert links[2] == links[0] | links[1]
    assert set(old.beyond(new).links(fabric.topology)) == links[0] - links[1]
    hosts = [set(a.hosts(fabric.topology)) for a in (old, new, old.joined(new))]
    assert hosts[2] == hosts[0] | hosts[1]
    assert set(old.beyond(new).hosts(fabric.topology)) == hosts[0] - hosts[1]
    assert old.joined(new) == new.joined(old)


@every_tree
@given(seed=st.integers(0, 10**6))
def test_packed_columns_are_the_same_as_their_shares(tree, seed):
    fabric = noisy_fabric(TREES[tree], Random(seed))
    single = some_holding(fabric, Random(seed), "t")
    pods = single.spines_by_pod(fabric.topology)
    packed = replace(single, columns=PackedColumns(tuple(pods), fabric.topology.lane))
    assert (packed, hash(packed)) == (single, hash(single))
    for read in (list, len, bool, lambda columns: columns[1:]):
        assert read(packed.columns) == read(single.columns)
    other = fabric.copy()
    fabric.claim(single)
    other.claim(packed)
    assert fabric.state() == other.state()
    width = fabric.topology.columns_per_pod
    for pod, column, uplinks in single.columns:
        assert not fabric.free_spines[pod * width + column] & uplinks
    fabric.release("t")
    other.release("t")
    assert fabric.state() == other.state()


def test_a_mask_wider_than_a_lane_is_no_mask_of_the_next_column():
    fabric = Ledger(TREES["three levels"])
    initial_state = fabric.state()
    wide = ColumnShare(0, 0, 1 << fabric.topology.lane)
    with pytest.raises(InvalidInput, match="columns"):
        fabric.claim(Allocation("t", 1, "test", (), (wide,)))
    assert fabric.state() == initial_state
