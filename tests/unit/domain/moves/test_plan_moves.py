# SPDX-License-Identifier: Apache-2.0

"""Moves that make room: against all sequences of moves, against CP-SAT, and their promises."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import combinations, product
from random import Random

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, GroupShare, NoFit, Refusal, Request, Shape
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves import plan_moves as planner
from laas_service.domain.moves.pairs import helpful_pairs
from laas_service.domain.moves.plan_moves import MovesToFit, plan_moves
from laas_service.domain.moves.repack import repack
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import LeafLink, Topology, Xgft
from laas_service.domain.verification import isolation_violations, shape_violations
from tests.unit.domain.moves.naive import Counts, Free, Links, Naive
from tests.unit.domain.moves.plan_model import PlanModel
from tests.unit.domain.policies.states import break_things

JIGSAW = POLICIES["jigsaw"]()

STATES = int(os.environ.get("LAAS_MOVES_STATES", "12"))

SEED = os.environ.get("LAAS_MOVES_SEED", "model")

TREES = {
    "two levels": Topology(Xgft((3, 4, 1), (1, 3, 0))),
    "three levels": Topology(Xgft((2, 2, 3), (1, 2, 2))),
    "wide leaves": Topology(Xgft((3, 2, 2), (1, 3, 2))),
    "tapered leaves": Topology(Xgft((4, 3, 1), (1, 2, 0))),
    "sixteen hosts": Topology(Xgft((4, 4, 1), (1, 4, 0))),
    "eighteen hosts": Topology(Xgft((2, 3, 3), (1, 2, 3))),
}


Held = dict[str, tuple[int, Counts, Links]]
"""By id: hosts asked for, hosts on each leaf, links."""


class AllPlans:
    """The least cost of at most K moves after which a size fits, by trying all of them."""

    def __init__(self, topology: Topology, fabric: Ledger, policy: str, hosts: int) -> None:
        self.naive = Naive(topology)
        self.policy, self.hosts = policy, hosts
        self.known: dict[str, bool] = {}
        self.start = self.naive.free(fabric)
        self.held = {
            a.id: (a.requested, *self.naive.held(a))
            for a in fabric.allocations.values()
            if a.policy in POLICIES and a.id != "noise"
        }
        self.best: tuple[int, int] | None = None

    def least(self, most_moves: int) -> tuple[int, int] | None:
        """(new hosts, tenants moved); None if there is no plan."""
        for moves in range(most_moves + 1):
            self._search(self.start, dict(self.held), moves, (0, 0))
        return self.best

    def _fits(self, free: Free) -> bool:
        key = repr((free.hosts, sorted(free.up.items()), sorted(free.spines.items())))
        if key not in self.known:
            self.known[key] = self.naive.fits(self.policy, self.hosts, free)
        return self.known[key]

    def _search(self, free: Free, left: Held, moves: int, cost: tuple[int, int]) -> None:
        if self.best is not None and cost >= self.best:
            return
        if not moves:
            if self._fits(free):
                self.best = cost
            return
        for id, (requested, counts, links) in left.items():
            without = free.plus(counts, links)
            others = {name: held for name, held in left.items() if name != id}
            if not self._fits_without(without, others, moves - 1):
                continue
            for new in self.naive.counts(self.policy, requested, {}, without.hosts):
                price = sum(max(0, n - counts.get(leaf, 0)) for leaf, n in new.items())
                total = (cost[0] + price, cost[1] + 1)
                if self.best is not None and total >= self.best:
                    continue
                for chosen in self.naive.links(without, new):
                    self._search(without.without(new, chosen), others, moves - 1, total)

    def _fits_without(self, free: Free, others: Held, moves: int) -> bool:
        """Whether it would fit without this tenant and some others; cuts hopeless branches."""
        if moves == 0:
            return self._fits(free)
        return any(
            self._fits_without(
                free.plus(counts, links),
                {name: held for name, held in others.items() if name != id},
                moves - 1,
            )
            for id, (_, counts, links) in others.items()
        )


def busy_fabric(topology: Topology, policy: str, rng: Random) -> Ledger:
    """A fabric with a few faults after tenants have come and gone, nearly full."""
    fabric = Ledger(topology)
    break_things(fabric, rng, rng.choice((0, 0, 1, 2)))
    sizes = range(1, topology.hosts // 2 + 1)
    for number in range(14):
        admit(POLICIES[policy](), fabric, Request(f"t{number}", rng.choice(sizes)))
        if rng.random() < 0.35 and fabric.allocations:
            fabric.release(rng.choice(list(fabric.allocations)))
    return fabric


def checked(fabric: Ledger, plan: MovesToFit, policy: str, hosts: int) -> tuple[int, int]:
    """The price of a plan, after all its steps were taken and judged."""
    topology, after, price = fabric.topology, fabric.copy(), 0
    assert len({move.allocation.id for move in plan.moves}) == len(plan.moves)
    for move in plan.moves:
        old = after.allocations[move.allocation.id]
        new = set(move.allocation.hosts(topology)) - set(old.hosts(topology))
        assert len(new) == move.new_hosts
        assert move.allocation.requested == old.requested
        price += len(new)
        after.change(move.allocation)
        assert not shape_violations(topology, move.allocation)
        assert not isolation_violations(topology, after.everybody())
    assert price == plan.new_hosts
    assert isinstance(admit(POLICIES[policy](), after, Request("new", hosts)), Allocation)
    return price, len(plan.moves)


@pytest.mark.parametrize(
    ("name", "most_moves"), [(name, moves) for name in TREES for moves in (1, 2)][:-1]
)
def test_the_price_against_all_sequences_of_moves(name, most_moves):
    topology, rng = TREES[name], Random(f"{name} {most_moves}")
    compared = dearer = optimum = paid = 0
    while compared < STATES // most_moves:
        policy = rng.choice(["laas", "jigsaw", "lc"])
        fabric = busy_fabric(topology, policy, rng)
        free = fabric.free_host_count
        for hosts in range(2, free + 1):
            if isinstance(POLICIES[policy]().propose(fabric, Request("", hosts)), Allocation):
                continue
            least = AllPlans(topology, fabric, policy, hosts).least(most_moves)
            before = fabric.state()
            plan = plan_moves(POLICIES[policy](), fabric, Request("new", hosts), most_moves)
            assert fabric.state() == before
            if least is None:
                assert isinstance(plan, NoFit), plan
                continue
            assert isinstance(plan, MovesToFit), (fabric.allocations, hosts, least, plan)
            price = checked(fabric, plan, policy, hosts)
            assert price >= least
            compared += 1
            dearer += price > least
            optimum, paid = optimum + least[0], paid + price[0]
    assert paid <= 1.1 * optimum
    assert dearer <= compared // 20


LARGER_TREES = {
    "27 hosts": Topology(Xgft((3, 3, 3), (1, 3, 3))),
    "32 hosts": Topology(Xgft((4, 2, 4), (1, 4, 2))),
    "64 hosts": Topology(Xgft((4, 4, 4), (1, 4, 4))),
}


@pytest.mark.parametrize(
    ("name", "most_moves"), [(name, moves) for name in LARGER_TREES for moves in (1, 2)]
)
def test_the_price_against_a_model_in_cp_sat(name, most_moves):
    topology, rng = LARGER_TREES[name], Random(f"{SEED} {name} {most_moves}")
    compared = dearer = optimum = paid = 0
    states = STATES // most_moves**2 if topology.hosts < 64 else -(-STATES // 3 // most_moves**2)
    while compared < states:
        policy = rng.choice(["laas", "jigsaw", "lc"])
        fabric = busy_fabric(topology, policy, rng)
        for hosts in range(2, fabric.free_host_count + 1):
            if isinstance(POLICIES[policy]().propose(fabric, Request("", hosts)), Allocation):
                continue
            least = PlanModel(fabric, policy, hosts).least(most_moves)
            plan = plan_moves(POLICIES[policy](), fabric, Request("new", hosts), most_moves)
            if least is None:
                assert isinstance(plan, NoFit), plan
                continue
            compared += 1
            if isinstance(plan, NoFit):
                assert plan.cut_off, (fabric.allocations, hosts, least)
                dearer += 1
                continue
            price = checked(fabric, plan, policy, hosts)
            assert price >= least
            assert price == least or plan.cut_off
            dearer += price > least
            optimum, paid = optimum + least[0], paid + price[0]
    assert paid <= 1.1 * optimum
    assert dearer <= max(1, compared // 20)


LEAVES = Topology(Xgft((4, 4, 1), (1, 4, 0)))


def pairs_on_leaves(container: bool = False) -> Ledger:
    """Four leaves without links: two hosts of a tenant on each, and two free."""
    fabric = Ledger(LEAVES)
    for leaf in range(4):
        for up in range(4):
            fabric.fail_link(LeafLink(0, leaf, up))
    for leaf in range(4):
        share = (GroupShare(leaf, 0b11, 0),)
        shape = Shape(1, 1, 2)
        fabric.claim(Allocation(f"t{leaf}", 2, "jigsaw", share, (), shape, container=container))
    return fabric


def plan(fabric: Ledger, hosts: int, moves: int = 1, **options) -> MovesToFit | NoFit:
    return plan_moves(POLICIES["jigsaw"](), fabric, Request("new", hosts), moves, **options)


def test_a_request_that_fits_takes_no_move():
    answer = plan(pairs_on_leaves(), 2)
    assert isinstance(answer, MovesToFit)
    assert (answer.moves, answer.new_hosts, answer.placement.size) == ((), 0, 2)


def test_links_alone_are_exchanged_for_nothing():
    """The request needs the first uplink on the first leaf; its tenant can do with the other."""
    fabric = Ledger(Topology(Xgft((2, 3, 1), (1, 2, 0))))
    shares = GroupShare(0, 0b01, 0b01), GroupShare(1, 0b01, 0b01)
    fabric.claim(Allocation("a", 2, "jigsaw", shares, (), Shape(1, 2, 1)))
    fabric.fail_host(3)
    fabric.fail_host(5)
    fabric.fail_link(LeafLink(0, 2, 1))
    answer = plan(fabric, 2)
    assert isinstance(answer, MovesToFit)
    (move,) = answer.moves
    assert move.new_hosts == 0
    assert [share.uplinks for share in move.allocation.groups] == [0b10, 0b10]
    assert checked(fabric, answer, "jigsaw", 2) == (0, 1)


def test_tenants_that_must_not_move_stay():
    fabric = pairs_on_leaves()
    for chosen in fabric.allocations:
        answer = plan(fabric, 4, movable=lambda a, chosen=chosen: a.id == chosen)
        assert isinstance(answer, MovesToFit)
        assert [(m.allocation.id, m.new_hosts) for m in answer.moves] == [(chosen, 2)]
    assert isinstance(plan(fabric, 4, movable=lambda a: False), NoFit)
    assert isinstance(plan(pairs_on_leaves(container=True), 4), NoFit)


def test_no_more_tenants_move_than_allowed():
    """Leaves that only their own tenants can leave: each move frees one host for the request."""
    fabric = Ledger(Topology(Xgft((4, 4, 1), (1, 4, 0))))
    for leaf, up in product(range(4), range(4)):
        fabric.fail_link(LeafLink(0, leaf, up))
    for number, (leaf, hosts) in enumerate(((0, 0b01), (0, 0b10), (1, 0b11), (2, 0b11))):
        share = (GroupShare(leaf, hosts, 0),)
        shape = Shape(1, 1, hosts.bit_count())
        fabric.claim(Allocation(f"t{number}", shape.hosts, "jigsaw", share, (), shape))
    fabric.fail_host(12)
    fabric.fail_host(4)
    fabric.fail_host(5)
    fabric.fail_host(8)
    fabric.fail_host(9)
    assert isinstance(plan(fabric, 4, 1), NoFit)
    answer = plan(fabric, 4, 2)
    assert isinstance(answer, MovesToFit)
    assert checked(fabric, answer, "jigsaw", 4) == (2, 2)


def test_a_search_that_was_cut_off_says_so():
    answer = plan(pairs_on_leaves(), 4, work=300)
    assert isinstance(answer, NoFit)
    assert (answer.reason, answer.cut_off) == (Refusal.BUDGET, True)


def test_moves_make_no_hosts():
    answer = plan(pairs_on_leaves(), 9)
    assert isinstance(answer, NoFit)
    assert answer.reason is Refusal.TOO_FEW_HOSTS


def refused_requests(topology: Topology, count: int, seed: str):
    """Jigsaw's fabrics, each with a size that does not fit though as many hosts are free."""
    rng = Random(seed)
    while count:
        fabric = busy_fabric(topology, "jigsaw", rng)
        while topology.hosts > 64 and fabric.free_host_count > 16:
            hosts = min(1 + int(rng.expovariate(1 / 6)), fabric.free_host_count)
            admit(JIGSAW, fabric, Request(f"j{rng.random()}", hosts))
        for hosts in range(2, fabric.free_host_count + 1):
            if isinstance(JIGSAW.propose(fabric, Request("", hosts)), NoFit):
                yield fabric, hosts
                count -= 1
                break
        if not count:
            return


def test_two_quick_moves_are_looked_for_where_they_may_help(monkeypatch):
    """The pairs looked at are few, and of the plans of all pairs nearly none is missed."""
    topology = Topology(Xgft((4, 4, 8), (1, 4, 4)))
    monkeypatch.setattr(planner, "MOST_QUICK_SETS", 1 << 30)
    among_all = among_few = pairs = few = 0
    for fabric, hosts in refused_requests(topology, 90, "quick pairs"):
        if isinstance(plan(fabric, hosts, 1, thorough=False), MovesToFit):
            continue
        answer = plan(fabric, hosts, 2, thorough=False)
        if isinstance(answer, MovesToFit):
            checked(fabric, answer, "jigsaw", hosts)
            among_few += 1
        tenants = [a for a in fabric.allocations.values() if a.policy == "jigsaw"]
        pairs += len(list(combinations(tenants, 2)))
        few += len(helpful_pairs(fabric, tenants, hosts))
        with monkeypatch.context() as patch:
            patch.setattr(planner, "helpful_pairs", lambda f, ts, n: [*combinations(ts, 2)])
            among_all += isinstance(plan(fabric, hosts, 2, thorough=False), MovesToFit)
    assert among_all >= 10
    assert among_few >= 0.9 * among_all
    assert few <= 0.8 * pairs


def test_links_only_leaves_everybody_the_hosts():
    """Whatever is found: hosts stay, each step is legal, and the request fits afterwards."""
    found = 0
    for fabric, hosts in refused_requests(TREES["eighteen hosts"], 80, "links"):
        answer = plan(fabric, hosts, 2, links_only=True)
        if isinstance(answer, MovesToFit):
            found += 1
            assert checked(fabric, answer, "jigsaw", hosts)[0] == 0
            for move in answer.moves:
                old = fabric.allocations[move.allocation.id]
                assert set(move.allocation.hosts(fabric.topology)) == set(
                    old.hosts(fabric.topology)
                )
    assert found
    assert isinstance(plan(pairs_on_leaves(), 4, 2, links_only=True), NoFit)


def all_but(id: str) -> Callable[[Allocation], bool]:
    return lambda allocation: allocation.id != id


def test_a_repack_places_everybody_who_may_move_again():
    """All moves at once are sound, others stay, and it finds what two moves find."""
    found = 0
    for fabric, hosts in refused_requests(LARGER_TREES["64 hosts"], 40, "repack"):
        stays = min(fabric.allocations)
        answer = repack(JIGSAW, fabric, Request("new", hosts), all_but(stays))
        if isinstance(answer, NoFit):
            continue
        found += 1
        assert answer.at_once
        assert stays not in {move.allocation.id for move in answer.moves}
        after = fabric.copy()
        old = {move.allocation.id: after.release(move.allocation.id) for move in answer.moves}
        for move in answer.moves:
            after.claim(move.allocation)
            assert not shape_violations(fabric.topology, move.allocation)
            before = old[move.allocation.id]
            assert move.allocation.requested == before.requested
            new = {*move.allocation.hosts(fabric.topology)} - {*before.hosts(fabric.topology)}
            assert len(new) == move.new_hosts
        after.claim(answer.placement)
        assert not isolation_violations(fabric.topology, after.everybody())
    assert found >= 20
    assert isinstance(repack(JIGSAW, pairs_on_leaves(), Request("new", 4), lambda _: False), NoFit)
    fits = repack(JIGSAW, pairs_on_leaves(), Request("new", 2))
    assert isinstance(fits, MovesToFit)
    assert fits.moves == ()


@pytest.mark.parametrize("thorough", [True, False])
def test_the_second_move_goes_where_the_first_has_left(thorough):
    """Two time slots, as in StarCube: a leaf has room for three once its tenant of one is gone."""
    fabric = Ledger(LEAVES)
    for leaf, up in product(range(4), range(4)):
        fabric.fail_link(LeafLink(0, leaf, up))
    for id, leaf, hosts in (("a", 0, 0b0111), ("b", 1, 0b0001), ("c", 1, 0b0010), ("d", 2, 0b0111)):
        share = (GroupShare(leaf, hosts, 0),)
        shape = Shape(1, 1, hosts.bit_count())
        fabric.claim(Allocation(id, shape.hosts, "jigsaw", share, (), shape))
    for host in range(12, 16):
        fabric.fail_host(host)
    assert isinstance(plan(fabric, 4, 1, thorough=thorough), NoFit)
    answer = plan(fabric, 4, 2, movable=lambda a: a.id in ("a", "b"), thorough=thorough)
    assert isinstance(answer, MovesToFit)
    assert [move.allocation.id for move in answer.moves] == ["b", "a"]
    assert checked(fabric, answer, "jigsaw", 4) == (4, 2)
    left = set(fabric.allocations["b"].hosts(LEAVES))
    assert left <= set(answer.moves[1].allocation.hosts(LEAVES))
