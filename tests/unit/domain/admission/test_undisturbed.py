# SPDX-License-Identifier: Apache-2.0

"""Nobody's packets have to cross links of an allocation that requires it; walked packets judge."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.domain.admission.admit import admit, explain, largest_fit, propose_in_scope
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.constraints import Constraints, Undisturbed
from laas_service.domain.crossed_links import tables_of
from laas_service.domain.errors import InvalidInput
from laas_service.domain.faults.repair import repair
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.bridge import bridge
from laas_service.domain.moves.mend import Joined, mended
from laas_service.domain.moves.replacement import replacement
from laas_service.domain.moves.resize import resize
from laas_service.domain.moves.sparing import sparing_bridge, sparing_mend, sparing_repair
from laas_service.domain.policies import POLICIES
from laas_service.domain.verification import physical_tables
from tests.crossings import Judge

MADE = generate(Description(xgft="3;3,3,3;1,3,3", subnet_managers=1, storage_hosts=2))
REQUIRE = Constraints(undisturbed=Undisturbed.REQUIRE)
PREFER = Constraints(undisturbed=Undisturbed.PREFER)
JIGSAW = POLICIES["jigsaw"]()


def empty() -> Ledger:
    fabric = Ledger(MADE.topology)
    fabric.inventory = MADE.inventory
    return fabric


def crossing(fabric: Ledger) -> Counter[str]:
    """By owner, the ordered pairs whose packets cross its links, of those that may talk."""
    inventory, topology = MADE.inventory, fabric.topology
    tables = tables_of(fabric, inventory)
    rows = physical_tables(tables.rows, tables.index)
    judge = Judge(topology, inventory, [], fabric.failed_links)
    hosts = {h: a.id for a in fabric.everybody() for h in a.hosts(topology)}
    links = {x: a.id for a in fabric.everybody() for x in a.links(topology)}
    found: Counter[str] = Counter()
    for one in inventory.endpoints:
        for other in inventory.endpoints:
            owners = {hosts.get(e.host, "") for e in (one, other) if e.host is not None}
            both = one.host is not None and other.host is not None
            if one is other or (both and owners != {""}):
                continue
            path = judge.walk(rows, one.at.guid, other)
            passed = {links.get(cable.link) for cable in path or () if cable.link is not None}
            found.update(owner for owner in passed - owners if owner is not None)
    return found


def random_states(
    seed: int, wishes: tuple[Constraints | None, ...] = (REQUIRE, None, PREFER)
) -> list[tuple[Ledger, Request, Allocation | NoFit, Ledger]]:
    """A history: each state, what is asked there, the answer, and the state after it."""
    fabric, rng, history = empty(), Random(seed), []
    for number in range(14):
        if fabric.allocations and rng.random() < 0.3:
            fabric.release(rng.choice(sorted(fabric.allocations)))
        request = Request(f"t{number}", rng.randint(2, 7), constraints=rng.choice(wishes))
        before = fabric.copy()
        history.append((before, request, admit(JIGSAW, fabric, request), fabric.copy()))
    return history


@pytest.mark.parametrize("seed", range(6))
def test_nobody_that_requires_it_is_crossed_by_more_packets_after_an_admission(seed):
    for before, request, answer, after in random_states(seed):
        if isinstance(answer, NoFit):
            continue
        earlier, now = crossing(before), crossing(after)
        if request.constraints == REQUIRE:
            assert not now[request.id]
            assert request.id in after.undisturbed
        for id in before.undisturbed:
            assert now[id] <= earlier[id]


def test_the_histories_have_placements_that_would_be_crossed_or_would_harm():
    """Without the judgement some of these placements break the promise, so the test above tells."""
    own = harmed = 0
    for seed in range(6):
        for before, request, _, _ in random_states(seed):
            plain = before.copy()
            plain.undisturbed = frozenset()
            if isinstance(admit(JIGSAW, plain, Request(request.id, request.hosts)), NoFit):
                continue
            earlier, now = crossing(before), crossing(plain)
            own += request.constraints == REQUIRE and now[request.id] > 0
            harmed += any(now[id] > earlier[id] for id in before.undisturbed)
    assert own
    assert harmed


def test_a_preference_takes_a_placement_that_is_crossed_less_and_refuses_nothing():
    better = 0
    for seed in range(12):
        for before, request, _, _ in random_states(seed, (None,)):
            usual, liked = before.copy(), before.copy()
            plain = admit(JIGSAW, usual, Request("new", request.hosts))
            wanted = admit(JIGSAW, liked, Request("new", request.hosts, constraints=PREFER))
            assert isinstance(plain, NoFit) == isinstance(wanted, NoFit)
            if isinstance(plain, Allocation):
                crossed = crossing(usual)["new"], crossing(liked)["new"]
                assert crossed[1] <= crossed[0]
                better += crossed[1] < crossed[0]
    assert better


def refusals(wishes: tuple[Constraints | None, ...]) -> list[tuple[Ledger, Request, NoFit]]:
    """Refusals of placements for which there would be room."""
    found = []
    for seed in range(30):
        for before, request, answer, _ in random_states(seed, wishes):
            plain = before.copy()
            plain.undisturbed = frozenset()
            fits = propose_in_scope(JIGSAW, plain, Request("plain", request.hosts))
            if isinstance(answer, NoFit) and isinstance(fits, Allocation):
                found.append((before, request, explain(JIGSAW, before, request, answer)))
    return found


def test_a_refusal_names_the_reason_and_its_largest_fit_is_admitted():
    reasons = set()
    for before, request, refusal in refusals((REQUIRE, None)):
        reasons.add(refusal.reason)
        if refusal.reason is Refusal.DISTURBS:
            assert "requires to be undisturbed" in refusal.detail
        else:
            assert "without constraint undisturbed (require)" in refusal.detail
        if refusal.largest_fit:
            smaller = Request("smaller", refusal.largest_fit, constraints=request.constraints)
            assert isinstance(admit(JIGSAW, before.copy(), smaller), Allocation)
    assert reasons == {Refusal.DISTURBS, Refusal.CONSTRAINT}


def test_growth_in_place_that_would_harm_is_refused():
    refused = 0
    for seed in range(30):
        for _, request, answer, after in random_states(seed):
            if isinstance(answer, NoFit):
                continue
            grown = resize(after, answer, request.hosts + 2)
            if isinstance(grown, NoFit):
                refused += grown.reason is Refusal.DISTURBS
                continue
            changed = after.copy()
            changed.change(grown)
            earlier, now = crossing(after), crossing(changed)
            assert all(now[id] <= earlier[id] for id in after.undisturbed)
    assert refused


def harmed(fabric: Ledger, held: Allocation) -> bool:
    """Whether more packets cross whoever forbids it, once a tenant of the ledger holds this."""
    changed = fabric.copy()
    changed.change(held)
    earlier, now = crossing(fabric), crossing(changed)
    return any(now[id] > earlier[id] for id in fabric.undisturbed)


def with_a_fault(seed: int) -> list[tuple[Ledger, Allocation]]:
    """States in which a link of a tenant has failed."""
    found = []
    for _, _, answer, after in random_states(seed):
        rng = Random(seed)
        for id in sorted(after.allocations):
            placed = after.allocations[id]
            links = list(placed.links(after.topology))
            if links and isinstance(answer, Allocation) and after.undisturbed:
                broken = after.copy()
                broken.fail_link(rng.choice(links))
                found.append((broken, placed))
    return found


def test_a_repair_takes_links_that_spare_whoever_forbids_it():
    """Where none of the repairs that are tried spares them, the first one is made nevertheless."""
    better = without = 0
    for seed in range(54):
        for fabric, placed in with_a_fault(seed):
            usual = repair(fabric.flattened(), placed)
            spared = sparing_repair(fabric, placed)
            assert isinstance(usual, Allocation) == isinstance(spared, Allocation)
            if isinstance(usual, Allocation) and isinstance(spared, Allocation):
                was, is_now = (harmed(fabric, one.joined(placed)) for one in (usual, spared))
                assert was or spared == usual
                assert not is_now or spared == usual
                better += was and not is_now
                without += is_now
    assert better
    assert without


def moved(seed: int) -> list[tuple[Ledger, Allocation, Allocation]]:
    """States in which a tenant may take other hosts."""
    found = []
    for before, _, _, _ in random_states(seed):
        for id in sorted(before.allocations):
            placed = before.allocations[id]
            leave = Random(seed).sample(sorted(placed.hosts(before.topology)), 1)
            to = replacement(before.copy(), placed, placed.requested, frozenset(leave))
            if before.undisturbed and to is not None:
                found.append((before.copy(), placed, to.allocation))
    return found


def test_a_bridge_takes_links_that_spare_whoever_forbids_it():
    better = 0
    for seed in range(12):
        for fabric, old, new in moved(seed):
            usual, spared = bridge(fabric, old, new), sparing_bridge(fabric, old, new)
            if usual is None or spared is None:
                assert usual == spared
                continue
            was, is_now = (harmed(fabric, new.joined(old).joined(one)) for one in (usual, spared))
            assert was or spared == usual
            assert not is_now or spared == usual
            better += was and not is_now
    assert better


def test_links_that_fail_during_a_move_are_replaced_by_some_that_spare_whoever_forbids_it():
    better = 0
    for seed in range(20):
        for fabric, old, new in moved(seed):
            present = Joined(old, new, bridge(fabric, old, new))
            fabric.change(present.held)
            links = [*present.held.links(fabric.topology)]
            if links:
                fabric.fail_link(Random(seed).choice(links))
            usual, spared = mended(fabric.flattened(), present), sparing_mend(fabric, present)
            if not isinstance(usual, Joined) or not isinstance(spared, Joined):
                assert usual == spared
                continue
            was, is_now = (harmed(fabric, one.held.joined(present.held)) for one in (usual, spared))
            assert was or spared == usual
            assert not is_now or spared == usual
            better += was and not is_now
    assert better


def test_who_is_released_forbids_nothing_any_more():
    fabric = empty()
    admit(JIGSAW, fabric, Request("t", 4, constraints=REQUIRE))
    assert fabric.undisturbed == {"t"}
    fabric.release("t")
    assert not fabric.undisturbed
    assert largest_fit(JIGSAW, fabric, 100) == fabric.free_host_count


def test_it_is_asked_of_a_container_and_of_a_policy_that_owns_links():
    fabric = empty()
    admit(JIGSAW, fabric, Request("c", 6, container=True))
    with pytest.raises(InvalidInput, match="ask it of the container"):
        admit(JIGSAW, fabric, Request("t", 2, parent="c", constraints=REQUIRE))
    inside = POLICIES["baseline"]()
    answer = admit(inside, fabric, Request("t", 3, constraints=REQUIRE))
    assert isinstance(answer, Allocation)
    assert len(answer.groups) == 1  # without links it is alone only within a leaf
