# SPDX-License-Identifier: Apache-2.0

"""Default entries keep off owned cables: as few are crossed as on any path, in any state."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, Xgft
from laas_service.domain.verification import physical_tables
from laas_service.messages import TenantRoute
from opensm_writer.mixtures import between
from tests.crossings import Judge, Rows
from tests.managers import PLACES, eight_rails, imported
from tests.partitions import tenant
from tests.recabling import replugged
from tests.unit.domain.policies.states import break_things
from tests.unit.domain.verification.sound import TOPOLOGIES, inventory_of

MOVING = "moving"
"""The id of the second placement of a tenant."""

STATES = 12 if os.environ.get("LAAS_ROUTES") != "full" else 300
"""Random states of each fabric; in full 3,900 altogether."""

ALLOCATIONS = 30 if os.environ.get("LAAS_ROUTES") != "full" else 2000
"""Admitted in the long history."""

FABRICS = {
    (name, directors): (topology, inventory_of(topology, directors))
    for name, topology in TOPOLOGIES.items()
    for directors in (False, True)
    if topology.tree.w[2] or not directors
}
every_fabric = pytest.mark.parametrize(
    "fabric", FABRICS, ids=[f"{name}-{'directors' if d else 'spines'}" for name, d in FABRICS]
)


def physical(tables: ForwardingTables) -> Rows:
    return physical_tables(tables.rows, tables.index)


class History:
    """Tenants of all policies come and go, under a few faults and perhaps beside a plane."""

    def __init__(self, fabric: tuple[str, bool], seed: int) -> None:
        self.rng = Random(seed)
        self.topology, self.inventory = FABRICS[fabric]
        self.directors = fabric[1]
        self.ledger = Ledger(self.topology)
        tree = self.topology.tree
        self.plane = NO_PLANE
        if self.rng.random() < 0.2 and tree.l2_per_pod > 1:
            self.plane = CommonPlane.of(tree, (self.rng.randrange(tree.l2_per_pod),))
            self.ledger.withhold(self.plane)
        break_things(self.ledger, self.rng, self.rng.choice((0, 0, 1, 2)))
        self._number = self.admitted = 0
        self._moves = ""
        for _ in range(self.rng.randint(1, 6)):
            self.go_on()

    @property
    def allocations(self) -> list[Allocation]:
        """All placements. The tenant with two of them has both, and first all that it holds."""
        held = self.ledger.allocations
        if MOVING not in held:
            return list(held.values())
        there = replace(held[MOVING], id=self._moves)
        route = TenantRoute(there, 1, held[self._moves])
        others = [a for id, a in held.items() if id not in (MOVING, self._moves)]
        return [*others, *route.placements]

    def go_on(self) -> None:
        """A tenant comes or goes, or begins or ends to move."""
        ledger, rng = self.ledger, self.rng
        event = rng.random() if ledger.allocations else 1
        if MOVING in ledger.allocations and event < 0.4:
            ledger.release(MOVING)
        elif event < 0.2 and MOVING not in ledger.allocations:
            self._moves = rng.choice(sorted(ledger.allocations))
            size = max(1, ledger.allocations[self._moves].size + rng.randint(-1, 1))
            admit(POLICIES["jigsaw"](), ledger, Request(MOVING, size))
        elif event < 0.4:
            left = sorted(ledger.allocations.keys() - {MOVING, self._moves})
            if left:
                ledger.release(rng.choice(left))
        else:
            policy = POLICIES[rng.choice(["jigsaw", "jigsaw", "laas", "baseline"])]()
            size = rng.randint(1, max(2, self.topology.hosts // 3))
            answer = admit(policy, ledger, Request(f"t{self._number}", size))
            self.admitted += isinstance(answer, Allocation)
            self._number += 1

    def tables(self, previous: ForwardingTables | None = None) -> ForwardingTables:
        return forwarding_tables(
            self.topology,
            self.inventory,
            self.allocations,
            self.ledger.failed_links,
            previous,
            self.plane,
        )

    def unowned(self) -> ForwardingTables:
        """The tables of the same fabric, with the same faults, before anybody owned a cable."""
        failed = self.ledger.failed_links
        return forwarding_tables(self.topology, self.inventory, [], failed, plane=self.plane)

    def judge(self) -> Judge:
        return Judge(self.topology, self.inventory, self.allocations, self.ledger.failed_links)


def histories(fabric: tuple[str, bool], first: int = 0) -> Iterator[History]:
    return (History(fabric, seed) for seed in range(first, first + STATES))


@every_fabric
def test_every_source_crosses_as_few_owned_cables_as_any_path(fabric):
    """Above directors: as any path that goes down as soon as it can."""
    crossing = 0
    for seed, history in enumerate(histories(fabric)):
        found = history.judge().found(physical(history.tables()))
        assert (found.wrong, found.lost) == ([], 0), f"seed {seed}"
        assert found.above == 0 or history.directors, f"seed {seed}"
        crossing += found.crossing
    assert crossing > 0  # else the states show nothing


@pytest.mark.parametrize("xgft", ["2;4,4;1,4", "3;3,3,3;1,3,3"])
def test_packets_of_aggregation_nodes_cross_as_few_owned_cables_as_any_path(xgft):
    """Each switch has one, so those on L2 switches and spines send too, to hosts and each other."""
    made = generate(Description(xgft=xgft, aggregation_nodes=True, subnet_managers=1))
    topology, inventory = made.topology, made.inventory
    nodes = {e.guid for e in inventory.endpoints if e.host is None} - {
        endpoint.guid for endpoint in inventory.managers
    }
    assert len(nodes) == len(inventory.switches)
    kept_off = 0
    for seed in range(STATES // 6):
        ledger, rng = Ledger(topology), Random(seed)
        for number in range(rng.randint(1, 4)):
            admit(POLICIES["jigsaw"](), ledger, Request(f"t{number}", rng.randint(2, 6)))
        break_things(ledger, rng, rng.choice((0, 1)))
        placed, failed = list(ledger.allocations.values()), ledger.failed_links
        judge = Judge(topology, inventory, placed, failed)
        usual, tables = (
            physical(forwarding_tables(topology, inventory, owners, failed))
            for owners in ([], placed)
        )
        found = judge.found(tables)
        assert (found.wrong, found.lost, found.above) == ([], 0, 0), f"seed {seed}"
        for node in (endpoint for endpoint in inventory.endpoints if endpoint.guid in nodes):
            for target in inventory.endpoints:
                paths = [judge.walk(rows, node.at.guid, target) for rows in (usual, tables)]
                crossed = [
                    any(judge.is_foreign(cable, judge.owner_of(target)) for cable in path or ())
                    for path in paths
                ]
                kept_off += crossed == [True, False]
    assert kept_off > 0


@every_fabric
def test_no_mixture_of_two_sets_loops_or_deadlocks(fabric):
    for seed, history in enumerate(histories(fabric, 10_000)):
        judge, last = history.judge(), history.tables()
        for _ in range(3):
            history.go_on()
            following = history.tables(last)
            assert following == history.tables(), f"seed {seed}"
            both = physical(last), physical(following)
            assert judge.loops(*both) == [], f"seed {seed}"
            assert not judge.deadlocks(*both), f"seed {seed}"
            last = following


@pytest.mark.parametrize("name", ["full", "two-level", "tapered", "rails"])
def test_an_entry_changes_only_if_its_port_is_or_was_dearer_than_another(name):
    """So no other function of hardware and owners changes fewer entries between two states."""
    changed = 0
    for history in histories((name, False), 30_000):
        if history.plane != NO_PLANE:
            continue
        before, old = history.judge(), history.tables()
        history.go_on()
        after, new = history.judge(), history.tables(old)
        for target in history.inventory.endpoints:
            if {after.owner_of(target), before.owner_of(target)} != {None}:
                continue  # tenants' own entries
            for start in {*history.inventory.leaf_guids} - {target.at.guid}:
                was, is_now = old.port(start, target.guid), new.port(start, target.guid)
                if was != is_now:
                    changed += 1
                    forced = was not in after.cheapest(start, target)
                    assert forced or is_now not in before.cheapest(start, target)
    assert changed > 0


def by_lid(tables: ForwardingTables, inventory: Inventory) -> dict[int, bytes]:
    """Rows as switches have them."""
    lids = [inventory.lids[guid] for guid in tables.destinations]
    rows = {}
    for guid, row in tables.rows.items():
        made = bytearray([NO_ROUTE]) * (max(lids) + 1)
        for lid, port in zip(lids, row, strict=True):
            made[lid] = port
        rows[guid] = bytes(made)
    return rows


class Mixing:
    """Follows sets of tables as a fabric gets them, and judges every mixture on the way."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._last: dict[int, bytes] = {}
        self.at_once = self.in_two_steps = 0
        """Mixtures that loop, by destination: without the rows in between, and with them."""
        self.interrupted = 0
        """Pairs of a switch and a port that arrive before and afterwards, and not in between."""

    def follow(self, tables: ForwardingTables, judge: Judge) -> None:
        last, new = self._last, by_lid(tables, self._inventory)
        self._last = new
        if not last:
            self.in_two_steps += len(judge.loops(physical_tables(new, self._inventory.lids)))
            return
        made = {**new, **between([last], new, self._inventory.cable_ends)}
        before, meanwhile, after = (
            physical_tables(rows, self._inventory.lids) for rows in (last, made, new)
        )
        changed = {
            target
            for guid in new
            for rows in (meanwhile, after)
            for target, _ in before[guid].items() ^ rows[guid].items()
        }
        # Towards other destinations the mixture is the set before, which was judged.
        old, between_both, young = (
            {guid: {t: row[t] for t in changed & row.keys()} for guid, row in rows.items()}
            for rows in (before, meanwhile, after)
        )
        self.at_once += len(judge.loops(old, young))
        self.in_two_steps += len(judge.loops(old, between_both) + judge.loops(between_both, young))
        differ = {
            target
            for target in self._inventory.endpoints
            for guid in new
            if meanwhile[guid].get(target.guid) != after[guid].get(target.guid)
        }
        for target in differ:
            for start in {e.at.guid for e in self._inventory.endpoints}:
                found = [judge.walk(r, start, target) for r in (before, meanwhile, after)]
                self.interrupted += [path is None for path in found] == [False, True, False]


@every_fabric
def test_with_tables_in_between_no_mixture_loops_across_faults_that_begin_or_end(fabric):
    at_once = interrupted = 0
    for seed, history in enumerate(histories(fabric, 20_000)):
        mixing = Mixing(history.inventory)
        mixing.follow(history.tables(), history.judge())
        for _ in range(3):
            failed = sorted(history.ledger.failed_links, key=str)
            if failed and history.rng.random() < 0.5:
                history.ledger.repair_link(history.rng.choice(failed))
            else:
                break_things(history.ledger, history.rng, 1)
            history.go_on()
            mixing.follow(history.tables(), history.judge())
        assert mixing.in_two_steps == 0, f"seed {seed}"
        at_once += mixing.at_once
        interrupted += mixing.interrupted
    parallel = FABRICS[fabric][0].tree.cables[0] > 1
    assert at_once > 0 or parallel  # else the states show nothing
    assert interrupted <= (at_once if fabric[1] else at_once / 20)


@pytest.mark.timeout(7200)  # in full about half an hour
def test_no_mixture_loops_in_a_long_history_with_faults():
    history = History(("full", False), 3)
    mixing = Mixing(history.inventory)
    for states in count():
        if history.admitted >= ALLOCATIONS:
            break
        failed = sorted(history.ledger.failed_links, key=str)
        if len(failed) > 2:
            history.ledger.repair_link(history.rng.choice(failed))
        elif history.rng.random() < 0.2:
            break_things(history.ledger, history.rng, 1)
        history.go_on()
        judge, tables = history.judge(), history.tables()
        mixing.follow(tables, judge)
        assert mixing.in_two_steps == 0
        if states % 10 == 0:
            found = judge.found(physical(tables))
            assert (found.wrong, found.lost, found.above) == ([], 0, 0)
    assert mixing.at_once > 0
    assert mixing.interrupted <= mixing.at_once / 20


@pytest.mark.parametrize("place", PLACES)
def test_with_tables_in_between_no_mixture_loops_beside_a_manager_anywhere(place):
    fabric = eight_rails(place)
    tree, rng, mixing = fabric.topology.tree, Random(place), Mixing(fabric.inventory)
    links: list[Link] = [LeafLink(pod, 0, 0) for pod in range(tree.m[2])]
    links += [SpineLink(pod, 0, spine) for pod in range(tree.m[2]) for spine in range(tree.w[2])]
    failed: set[Link] = set()
    for _ in range(8):
        tables = forwarding_tables(fabric.topology, fabric.inventory, [], failed)
        mixing.follow(tables, Judge(fabric.topology, fabric.inventory, [], failed))
        failed ^= {rng.choice(links)}
    assert mixing.at_once > 0
    assert (mixing.in_two_steps, mixing.interrupted) == (0, 0)


def test_turns_that_serve_a_manager_on_a_director_stay_whoever_owns_cables():
    """They close no cycle together; others might. The last pod has no cable to that director."""
    topology = Topology(Xgft((2, 4, 3), (1, 4, 4)))
    made = inventory_of(topology, directors=True)
    director, far = made.spine_guids[1], made.l2_guids[-topology.tree.l2_per_pod :]
    kept = [c for c in made.cables if not (c.upper.guid == director and c.lower.guid in far)]
    manager = made.endpoints[-1].guid
    fabric = imported(replugged(replace(made, cables=tuple(kept)), manager, director))
    judge = Judge(fabric.topology, fabric.inventory, [])
    turns = judge.turns(physical(forwarding_tables(fabric.topology, fabric.inventory, [])))
    assert {target for *_, target in turns} & {e.guid for e in fabric.inventory.endpoints}
    for cable in fabric.inventory.cables:
        if cable.upper.guid in fabric.inventory.spine_guids and cable.link is not None:
            tables = forwarding_tables(
                fabric.topology, fabric.inventory, [], reserved_links=[cable.link]
            )
            assert judge.turns(physical(tables)) == turns
            assert not judge.deadlocks(physical(tables))


@pytest.mark.parametrize("place", PLACES)
def test_routes_to_a_manager_anywhere_close_no_cycle_beside_any_owners(place):
    """Turns from down to up stay as they are, whoever comes; everything that arrived still does."""
    fabric = eight_rails(place)
    ledger, rng = Ledger(fabric.topology), Random(place)
    judge = Judge(fabric.topology, fabric.inventory, [])
    last = empty = forwarding_tables(fabric.topology, fabric.inventory, [])
    for number in range(5):
        if ledger.allocations and rng.random() < 0.4:
            ledger.release(rng.choice(sorted(ledger.allocations)))
        else:
            admit(POLICIES["jigsaw"](), ledger, Request(f"t{number}", rng.randint(1, 12)))
        placed = list(ledger.allocations.values())
        following = forwarding_tables(fabric.topology, fabric.inventory, placed, (), last)
        both = physical(last), physical(following)
        assert judge.loops(*both) == []
        assert not judge.deadlocks(physical(empty), *both)
        for manager in fabric.inventory.managers:
            for switch in fabric.inventory.switches:
                arrives = following.port(switch.guid, manager.guid) is not None
                assert arrives == (empty.port(switch.guid, manager.guid) is not None)
        last = following


def test_cables_of_a_container_are_kept_clear_although_it_has_no_tables():
    topology, inventory = FABRICS["full", False]
    held = [LeafLink(0, leaf, 1) for leaf in range(3)]
    tables = forwarding_tables(topology, inventory, [], reserved_links=held)
    judge = Judge(topology, inventory, [])
    for start in inventory.leaf_guids[:3]:
        for target in inventory.endpoints:
            path = judge.walk(physical(tables), start, target)
            assert path is not None
            assert not {cable.link for cable in path} & set(held)


def test_irregular_cables_stay_the_last_resort_beside_owners():
    made = generate(Description(xgft="3;3,3,3;1,3,3", missing_cables=3, extra_cables=4, seed=2))
    topology, inventory = made.topology, made.inventory
    ledger = Ledger(topology)
    for number, size in enumerate((5, 4, 3, 6)):
        admit(POLICIES["jigsaw"](), ledger, Request(f"t{number}", size))
    placed = list(ledger.allocations.values())
    tables = forwarding_tables(topology, inventory, placed)
    judge = Judge(topology, inventory, placed)
    found = judge.found(physical(tables))
    assert (found.wrong, found.lost, found.above) == ([], 0, 0)
    assert not judge.deadlocks(
        physical(forwarding_tables(topology, inventory, [])), physical(tables)
    )


def test_an_entry_keeps_its_port_while_that_is_among_the_cheapest_and_others_are_spread():
    topology = Topology(Xgft((4, 4, 2), (1, 4, 4)))
    inventory = inventory_of(topology)
    pair = tenant("pair", [(0, 0b0001, 0b0010), (1, 0b0001, 0b0010)])
    before = forwarding_tables(topology, inventory, [])
    after = forwarding_tables(topology, inventory, [pair])
    held = inventory.cable_of_link[LeafLink(0, 0, 1)].lower
    moved = []
    for target in inventory.endpoints:
        if target.host is not None and target.at.guid not in inventory.leaf_guids[:2]:
            old, new = (tables.port(held.guid, target.guid) for tables in (before, after))
            assert (old == new) == (old != held.port)
            moved += [new] if old != new else []
    assert len(moved) == 6
    assert len(set(moved)) == 3, "they are spread over all ports that are left"


def test_a_common_plane_comes_first_among_ways_that_cross_nothing():
    """Packets that leave an owned uplink take the other L2 switch that still reaches the plane."""
    topology, inventory = FABRICS["full", False]
    plane, failed = CommonPlane.of(topology.tree, (), (0,)), SpineLink(0, 1, 0)
    pair = tenant("pair", [(0, 0b001, 0b001), (3, 0b001, 0b001)], [(0, 0, 0b010), (1, 0, 0b010)])
    without, tables = (
        physical(forwarding_tables(topology, inventory, placed, [failed], plane=plane))
        for placed in ([], [pair])
    )
    judge = Judge(topology, inventory, [pair], [failed])
    assert judge.found(tables).crossing == 0
    leaf, *_, owned = inventory.leaf_guids[0], inventory.cable_of_link[LeafLink(0, 0, 0)].lower.port
    moved = [e for e in inventory.endpoints if without[leaf].get(e.guid) == owned]
    own = pair.hosts(topology)
    moved = [e for e in moved if e.at.guid not in inventory.leaf_guids[:3] and e.host not in own]
    assert moved
    for target in moved:
        path = judge.walk(tables, leaf, target)
        assert path is not None
        spines = [cable.link for cable in path if isinstance(cable.link, SpineLink)]
        assert spines
        assert all(plane.carries(topology.tree, link) for link in spines)
