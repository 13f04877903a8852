# SPDX-License-Identifier: Apache-2.0

"""Repair, compared with every link set on the same hosts and with the policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.domain.allocation import Allocation, GroupShare, Request, Shape
from laas_service.domain.errors import DoubleClaim
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.faults.repair import NestedSets, nested, repair
from laas_service.domain.lanes import side_by_side
from laas_service.domain.ledger import Ledger, Masks
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.base import Policy
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, bits
from laas_service.domain.verification import (
    adversarial_permutations,
    isolation_violations,
    permutation_violations,
    shape_violations,
)
from tests.unit.domain.policies.states import break_things, lopsided_fabric, noisy_fabric
from tests.unit.domain.policies.test_brute_force import TREES
from tests.unit.domain.verification.sound import FULL, build

ISOLATING: dict[str, Policy] = {
    name: policy() for name, policy in POLICIES.items() if policy.isolating
} | {"two pods": Jigsaw(two_pods=True)}


def degraded(topology: Topology, rng: Random) -> tuple[Ledger, Allocation, Policy] | None:
    """A ledger with a tenant that has failed links; None if no tenant fits."""
    fabric = noisy_fabric(topology, rng)
    policy = ISOLATING[rng.choice(sorted(ISOLATING))]
    hosts = max(1, fabric.free_host_count)
    answer = policy.propose(fabric, Request("t", rng.randint(2, max(2, hosts))))
    if not isinstance(answer, Allocation) or not any(answer.links(topology)):
        return None
    return (*damaged(fabric, answer, rng), policy)


def extended(topology: Topology, rng: Random) -> tuple[Ledger, Allocation] | None:
    """The same with a tenant in two pods whose remainder pod is the larger one."""
    fabric = lopsided_fabric(topology, rng)
    for hosts in range(fabric.free_host_count, 2, -1):
        answer = ISOLATING["two pods"].propose(fabric, Request("t", hosts))
        if isinstance(answer, Allocation) and answer.shape and answer.shape.extended:
            return damaged(fabric, answer, rng)
    return None


def damaged(fabric: Ledger, answer: Allocation, rng: Random) -> tuple[Ledger, Allocation]:
    """The ledger with the tenant, some of whose links have failed, if it holds links."""
    topology = fabric.topology
    links = sorted(answer.links(topology), key=topology.tree.link_id)
    fabric.claim(answer)
    if rng.random() < 0.5:
        fabric.release("noise")
    break_things(fabric, rng, rng.choice((0, 0, 1)))
    for link in rng.sample(links, min(len(links), rng.choice((1, 1, 2, 3)))):
        fabric.fail_link(link)
    return fabric, answer


class EveryLinkSet:
    """Enumerates all legal link sets on the hosts of an allocation, by the formal conditions."""

    def __init__(self, fabric: Ledger, allocation: Allocation) -> None:
        topology = self.topology = fabric.topology
        self.allocation = allocation
        owners = fabric.owners_of_links()
        self.usable = {
            link
            for link in map(
                topology.tree.link_at, range(topology.tree.leaf_links + topology.tree.spine_links)
            )
            if link not in topology.absent_links
            and link not in fabric.failed_links
            and owners.get(link, allocation.id) == allocation.id
        }
        self.old = set(allocation.links(topology))

    def best(self) -> int | None:
        """The most present cables that a legal link set keeps; None or -1 without such a set."""
        return max((self._value(*leaves) for leaves in self._leaf_links()), default=None)

    def _width(self, hosts: int, plane: int) -> int:
        if len(self.allocation.groups) == 1:
            return int(hosts > 1 and self.topology.rails_in_plane(plane) > 1)
        return -(-hosts // self.topology.tree.taper[0])

    def _leaf_links(self) -> Iterator[tuple[dict[int, set[int]], list[Link]]]:
        """Choices of usable uplinks (group -> bits of all planes), and their cables."""
        topology, most = self.topology, max(s.hosts.bit_count() for s in self.allocation.groups)
        w2 = topology.tree.w[1]

        def subsets(of: Iterable[int], hosts: int) -> Iterator[set[int]]:
            of = list(of)
            planes = [
                combinations([x for x in of if x // w2 == plane], self._width(hosts, plane))
                for plane in range(topology.planes)
            ]
            for parts in product(*planes):
                yield {x for part in parts for x in part}

        rests = [s for s in self.allocation.groups if s.hosts.bit_count() < most]
        for common in subsets(range(w2 * topology.planes), most):
            smaller = subsets(sorted(common), rests[0].hosts.bit_count()) if rests else [set()]
            for small in smaller:
                groups = {s.group: small if s in rests else common for s in self.allocation.groups}
                links = self._cables(groups)
                if self.usable.issuperset(links):
                    yield groups, links

    def _cables(self, groups: dict[int, set[int]]) -> list[Link]:
        masks = tuple(GroupShare(g, 0, sum(1 << x for x in ups)) for g, ups in groups.items())
        return list(Allocation("", 0, "", masks).links(self.topology))

    def _value(self, groups: dict[int, set[int]], links: list[Link]) -> int:
        """Cables kept with these leaf links and the best spine links; -1 if none are legal."""
        kept = len(self.old & set(links))
        topology = self.topology
        pods = sorted({group // topology.groups_per_pod for group in groups})
        if len(pods) == 1:
            return kept
        for column in topology.columns:
            values = [
                sum(len(self.old & spines) for spines in choice)
                for choice in self._spines(column.number, pods, groups)
            ]
            if not values:
                return -1
            kept += max(values)
        return kept

    def _spines(
        self, number: int, pods: list[int], groups: dict[int, set[int]]
    ) -> Iterator[list[set[Link]]]:
        """Choices of spine links for each pod; the spines of smaller pods are a subset."""
        topology, width = self.topology, self.topology.groups_per_pod
        column = topology.columns[number]
        needs = []
        for pod in pods:
            flows = column.rails * sum(
                (column.bundle >> x & 1)
                for g, ups in groups.items()
                if g // width == pod
                for x in ups
            )
            needs.append(-(-flows // topology.tree.taper[1]))
        if self.allocation.shape is not None and self.allocation.shape.extended:
            needs = [min(needs)] * len(needs)

        def links(pod: int, spines: Iterable[int]) -> set[Link]:
            return {SpineLink(*topology.l2_of_column(pod, number), up) for up in spines}

        for largest in combinations(range(topology.tree.w[2]), max(needs)):
            smaller = combinations(largest, min(needs))
            for least in smaller:
                choice = [
                    links(pod, largest if need == max(needs) else least)
                    for pod, need in zip(pods, needs, strict=True)
                ]
                if all(self.usable.issuperset(spines) for spines in choice):
                    yield choice


def legal(fabric: Ledger, allocation: Allocation) -> None:
    """Verification finds no violation, and no link of it is down or held by another owner."""
    others = [a for a in fabric.allocations.values() if a.id not in ("noise", allocation.id)]
    topology = fabric.topology
    assert isolation_violations(topology, [allocation, *others], (), fabric.failed_links) == []
    assert shape_violations(topology, allocation) == []
    owners = fabric.owners_of_links()
    assert {owners.get(x, "t") for x in allocation.links(topology)} <= {"t"}
    tried = adversarial_permutations(topology, allocation)
    assert permutation_violations(topology, allocation, tried) == []


@pytest.mark.parametrize("tree", TREES)
def test_a_repair_is_legal_keeps_the_most_cables_and_is_found_if_there_is_one(tree):
    rng, repaired, refused = Random(f"repair {tree}"), 0, 0
    for number in range(400):
        made = (extended if number % 3 == 0 else degraded)(TREES[tree], rng)
        if made is None or max(repaired, refused) > 60:
            continue
        fabric, allocation = made[:2]
        before, where = fabric.state(), f"state {number}: {allocation}"
        best = EveryLinkSet(fabric, allocation).best()
        best = None if best is not None and best < 0 else best
        answer = repair(fabric, allocation)
        assert fabric.state() == before
        if isinstance(answer, Degraded):
            assert best is None, where
            refused += 1
            continue
        repaired += 1
        assert answer.hosts(fabric.topology) == allocation.hosts(fabric.topology)
        same = ("id", "policy", "requested", "shape")
        assert [getattr(answer, x) for x in same] == [getattr(allocation, x) for x in same]
        legal(fabric, answer)
        kept = set(answer.links(fabric.topology)) & set(allocation.links(fabric.topology))
        assert len(kept) == best, where
        fabric.change(answer)
        assert repair(fabric, answer) is answer
    assert min(repaired, refused) > 0  # both outcomes were tested


@pytest.mark.parametrize("tree", TREES)
@given(seed=st.integers(0, 10**6))
def test_a_repair_is_found_where_the_policy_places_the_same_hosts(tree, seed):
    """The policy searches a fabric of these hosts only; the hosts are up and have all links."""
    made = degraded(TREES[tree], Random(seed))
    if made is None:
        return
    fabric, allocation, policy = made
    if isinstance(policy, Jigsaw) and allocation.shape and not allocation.shape.extended:
        policy = Jigsaw()  # A repair keeps the shape.
    answer = repair(fabric, allocation)
    view = fabric.copy()
    view.release("t")
    hosts = allocation.hosts(fabric.topology)
    for host in hosts:
        view.repair_host(host)
    view = view.within(
        replace(Masks.whole(fabric.topology), hosts=fabric.topology.positions_of(hosts))
    )
    placed = policy.propose(view, Request("t", allocation.requested))
    assert isinstance(answer, Allocation) == isinstance(placed, Allocation)


masks = st.integers(0, 0b11111)


@given(masks, masks, masks, masks, st.integers(0, 5), st.integers(0, 5))
def test_nested_sets_keep_the_most_old_bits_of_both(
    outer_free, inner_free, outer_old, inner_old, a, b
):
    inner_old &= outer_old
    outer, inner = max(a, b), min(a, b)
    old = NestedSets(outer_old, inner_old)
    sets = nested(NestedSets(outer_free, inner_free), old, outer, inner)

    def chosen(mask: int, size: int) -> Iterator[int]:
        for subset in combinations(bits(mask), size):
            yield sum(1 << bit for bit in subset)

    kept = [
        ((large & outer_old).bit_count(), (small & inner_old).bit_count())
        for large in chosen(outer_free, outer)
        for small in chosen(large & inner_free, inner)
    ]
    if sets is None:
        assert kept == []
        return
    assert sets.inner & ~(sets.outer & inner_free) == sets.outer & ~outer_free == 0
    assert (sets.outer.bit_count(), sets.inner.bit_count()) == (outer, inner)
    assert sets.kept(old) == (max(x for x, _ in kept), max(y for _, y in kept))


# -- stories ----------------------------------------------------------------------


def two_pods(fabric: Ledger) -> Allocation:
    """Two pods of two full leaves each, with the two lowest spines at each L2 index."""
    mine = build(FULL, Shape(2, 2, 3), "t")
    fabric.claim(mine)
    return mine


def test_a_spine_link_is_replaced_by_the_same_one_above_each_pod_and_nothing_else_changes():
    fabric = Ledger(FULL)
    mine = two_pods(fabric)
    failed = SpineLink(0, 1, 1)
    assert failed in set(mine.links(FULL))
    fabric.fail_link(failed)
    answer = repair(fabric, mine)
    assert isinstance(answer, Allocation)
    new, old = set(answer.links(FULL)), set(mine.links(FULL))
    assert old - new == {SpineLink(0, 1, 1), SpineLink(1, 1, 1)}
    assert new - old == {SpineLink(0, 1, 2), SpineLink(1, 1, 2)}


def test_a_leaf_link_that_every_leaf_needs_cannot_be_replaced():
    fabric = Ledger(FULL)
    mine = two_pods(fabric)
    fabric.fail_link(LeafLink(0, 1, 2))
    answer = repair(fabric, mine)
    assert isinstance(answer, Degraded)
    assert str(answer) == (
        "link leaf-0-1-2 has failed; leaf 0/1 has 2 of 3 uplinks: up to 2 flows may meet on one"
        " of them; there is no other set of links for these hosts: its 4 leaves need 3 free"
        " uplinks in common and have 2"
    )
    assert answer.apart == ()


def test_leaves_that_cannot_reach_each_other_are_named():
    fabric = Ledger(FULL)
    mine = two_pods(fabric)
    for up in range(3):
        fabric.fail_link(LeafLink(0, 1, up))
    answer = repair(fabric, mine)
    assert isinstance(answer, Degraded)
    assert {(x.first, x.second) for x in answer.apart} == {
        ((0, 0), (0, 1)),
        ((0, 1), (1, 0)),
        ((0, 1), (1, 1)),
    }
    assert "no path over its working links is left between leaf 0/0 and leaf 0/1" in str(answer)
    assert "leaf 0/1 has 0 of 3 uplinks;" in str(answer)


def test_failed_hosts_stay_and_are_reported():
    fabric = Ledger(FULL)
    mine = two_pods(fabric)
    fabric.fail_host(mine.hosts(FULL)[0])
    assert repair(fabric, mine) is mine
    fabric.fail_link(SpineLink(0, 1, 1))
    answer = repair(fabric, mine)
    assert isinstance(answer, Allocation)
    assert answer.hosts(FULL) == mine.hosts(FULL)
    fabric.fail_link(LeafLink(0, 1, 2))
    answer = repair(fabric, mine)
    assert isinstance(answer, Degraded)
    assert answer.hosts == mine.hosts(FULL)[:1]


def test_links_withheld_from_tenants_are_no_replacement():
    fabric = Ledger(FULL)
    mine = two_pods(fabric)
    fabric.fail_link(SpineLink(0, 1, 1))
    whole = Masks.whole(FULL)
    two_spines = side_by_side([0b011] * FULL.columns_per_pod, FULL.lane)
    lanes = tuple(mask & two_spines for mask in whole.lanes)
    assert isinstance(repair(fabric.within(replace(whole, lanes=lanes)), mine), Degraded)


def test_a_tenant_that_owns_no_links_has_nothing_to_repair():
    fabric = Ledger(FULL)
    mine = Allocation("t", 2, "baseline", (GroupShare(0, 1, 0), GroupShare(4, 1, 0)))
    fabric.claim(mine)
    fabric.fail_link(LeafLink(0, 0, 0))
    assert repair(fabric, mine) is mine


def test_drained_links_are_left_only_if_that_is_asked_and_possible():
    fabric = Ledger(FULL)
    mine = two_pods(fabric)
    drained = SpineLink(0, 1, 1)
    fabric.drain_link(drained)
    assert repair(fabric, mine) is mine
    answer = repair(fabric, mine, [drained])
    assert isinstance(answer, Allocation)
    assert drained not in set(answer.links(FULL))
    every_spine = [SpineLink(0, 1, up) for up in range(FULL.tree.w[2])]
    for link in every_spine:
        fabric.drain_link(link)
    assert isinstance(repair(fabric, mine, every_spine), Degraded)


def test_a_repair_keeps_working_drained_links_if_there_are_no_others():
    fabric = Ledger(FULL)
    mine = two_pods(fabric)
    for up in range(FULL.tree.w[2]):
        fabric.drain_link(SpineLink(0, 1, up))
    failed = SpineLink(0, 0, 1)
    assert failed in set(mine.links(FULL))
    fabric.fail_link(failed)
    answer = repair(fabric, mine, [SpineLink(0, 1, 1)])
    assert isinstance(answer, Allocation)
    assert {failed, SpineLink(0, 1, 1)} & set(answer.links(FULL)) == {SpineLink(0, 1, 1)}


def test_drained_links_get_no_new_owner_and_keep_their_old_one():
    fabric = Ledger(FULL)
    mine = two_pods(fabric)
    link = SpineLink(0, 1, 1)
    fabric.drain_link(link)
    assert fabric.owners_of_links()[link] == mine.id
    fabric.release(mine.id)
    with pytest.raises(DoubleClaim):
        fabric.claim(mine)
    fabric.repair_link(link)
    fabric.claim(mine)
