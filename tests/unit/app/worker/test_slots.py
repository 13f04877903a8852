# SPDX-License-Identifier: Apache-2.0

"""Slots of shared hosts that compute claims, and limits of what their servers send."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar

import pytest

from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import HostPart
from laas_service.app.ports.rate_limits import Limited
from laas_service.app.records import Drift, NewPlacement
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import (
    Allocation,
    GroupShare,
    Request,
    Sharing,
    SlotDemand,
)
from laas_service.domain.errors import HostsBusy, Unavailable
from laas_service.domain.moves.consent import Consent, Movable
from laas_service.domain.sharing.policy import SharedSlots
from tests.fakes import FakeCompute
from tests.unit.app.worker.test_converger import World


class Claiming(FakeCompute):
    """Compute that keeps servers to their slots."""

    claims_slots: ClassVar[bool] = True


class FakeRateLimits:
    name: ClassVar[str] = "neutron"

    def __init__(self) -> None:
        self.limits: dict[str, tuple[float, frozenset[str]]] = {}
        self.found = Limited()
        self.down = False

    def limit(
        self, id: str, project_id: str, bandwidth: float, servers: Collection[str]
    ) -> Limited:
        if self.down:
            raise Unavailable("Neutron does not answer")
        self.limits[id] = bandwidth, frozenset(servers)
        return self.found

    def forget_limits(self, id: str) -> None:
        self.limits.pop(id, None)


class Sharers(World):
    """Two hosts with two slots each, shared by x (3 slots) and y (1)."""

    def __init__(self, store: SqlStore, movable: Movable = Movable.NEVER) -> None:
        super().__init__(store)
        self.consent = Consent(movable)
        self.compute = Claiming()
        self.rate_limits = FakeRateLimits()
        self.converger = self.restarted(rate_limits=self.rate_limits)
        self.policy = SharedSlots()
        sharing = Sharing(2, 10.0)
        held = Allocation("p", 2, "test", (GroupShare(0, 0b11, 0),), sharing=sharing)
        self.asked = AllocationRequest(
            id="p", fabric="f", name="p", project_id="p", policy="test", hosts=2, sharing=sharing
        )
        store.admissions.admit(self.asked, lambda f: held)
        for id, slots in (("x", 3), ("y", 1)):
            self.ask(id, slots)
        self.converger.run_once()

    def ask(self, id: str, slots: int, bandwidth: float = 1.0, deviation: float = 0.0):
        demand = SlotDemand(slots, bandwidth, deviation)
        new = replace(
            self.asked,
            id=id,
            name=id,
            project_id=id,
            hosts=0,
            sharing=None,
            slots=demand,
            parent="p",
            consent=self.consent,
        )
        request = Request(id, 1, slots=demand)
        return self.store.admissions.admit(
            new, lambda draft: self.policy.propose(draft.ledger.ledger("p"), request)
        )

    def change(self, id: str, demand: SlotDemand):
        record = self.store.allocations.get(id)

        def choose(fabric):
            inner = fabric.ledger("p")
            answer = self.policy.change(inner, inner.allocations[id], demand)
            return (
                NewPlacement(answer, "asked", settles=True)
                if isinstance(answer, Allocation)
                else answer
            )

        return self.store.placement_changes.begin(record, choose)

    def handed(self, id: str):
        share = self.compute.aggregates[id].share
        assert not isinstance(share, HostPart)
        return dict(share)

    def told(self, id: str):
        return [event.reason for event in self.store.allocations.get(id).history]


@pytest.fixture
def sharers(store):
    return Sharers(store)


def test_slots_are_handed_over_and_taken_back(sharers):
    assert {sharers.state(id) for id in "pxy"} == {State.ACTIVE}
    assert sum(sharers.handed("x").values()) == 3
    assert sum(sharers.handed("y").values()) == 1
    assert "p" not in sharers.compute.aggregates
    assert any("slots set in placement" in reason for reason in sharers.told("x"))
    assert sharers.restarted(rate_limits=sharers.rate_limits).reconcile() == []
    sharers.release("x")
    sharers.converger.run_once()
    assert sharers.state("x") is State.RELEASED
    assert set(sharers.compute.aggregates) == {"y"}


def test_a_downgrade_gives_nothing_away_while_a_server_is_beyond_the_slots(sharers):
    sharers.compute.slots["x"] = sharers.handed("x")
    sharers.change("x", SlotDemand(1, 1.0))
    sharers.compute.slots["x"] = dict.fromkeys(sharers.compute.slots["x"], 2)
    sharers.converger.run_once()
    assert sum(sharers.handed("x").values()) == 1, "no further server starts"
    assert "beyond the slots" in sharers.error("x")
    refused = sharers.ask("z", 2)
    assert not hasattr(refused, "state") or refused.state is not State.ALLOCATING
    kept = sharers.handed("x")
    sharers.compute.slots["x"] = dict(kept)
    sharers.later()
    sharers.converger.run_once()
    assert sharers.store.allocations.get("x").change is None
    assert sharers.ask("z", 2).state is State.ALLOCATING


def test_a_server_goes_with_a_move_that_its_owner_consents_to(store):
    """The plan is carried out by compute, and its end frees the old slot."""
    sharers = Sharers(store, Movable.RESTART)
    record = sharers.store.allocations.get("x")
    (busy,) = [host for host, units in sharers.handed("x").items() if units == 2]
    sharers.compute.slots["x"] = sharers.handed("x")
    sharers.release("y")
    sharers.converger.run_once()
    placed = record.placed
    assert placed is not None
    held = placed.slots
    assert held is not None
    (full,) = [host for host, units in held.units if len(units) == 2]
    (other,) = [host for host, units in held.units if len(units) == 1]
    unit = dict(held.units)[full][0]
    units = {full: dict(held.units)[full][1:], other: (*dict(held.units)[other], unit)}
    moved = replace(held, units=tuple(sorted(units.items())), moves=((unit, full, other),))
    sharers.store.placement_changes.begin(
        record, lambda f: NewPlacement(replace(placed, slots=moved), "asked")
    )
    sharers.converger.run_once()
    assert sharers.store.allocations.get("x").change is None, sharers.error("x")
    assert sharers.compute.slots["x"][busy] == 1
    assert sharers.handed("x") == sharers.compute.slots["x"]


def test_less_bandwidth_is_limited_before_others_get_it(sharers):
    sharers.compute.slots["x"] = sharers.handed("x")
    sharers.change("x", SlotDemand(3, 0.5))
    sharers.rate_limits.down = True
    sharers.converger.run_once()
    promised = {p.link: p.certain for p in sharers.store.allocations.get("x").held.slots.promised}
    assert sharers.store.allocations.get("x").change is not None
    sharers.rate_limits.down = False
    sharers.later()
    sharers.converger.run_once()
    assert sharers.store.allocations.get("x").change is None
    assert sharers.rate_limits.limits["x"][0] == 0.5
    now = {p.link: p.certain for p in sharers.store.allocations.get("x").held.slots.promised}
    assert all(now[link] * 2 == promised[link] for link in now)


def test_servers_that_come_are_limited_and_a_release_forgets(sharers):
    record = sharers.store.allocations.get("x")
    assert record.limited_by == "neutron"
    assert sharers.rate_limits.limits["x"] == (1.0, frozenset())
    sharers.compute.slots["x"] = {"node-0": 1}
    sharers.later()
    sharers.converger.run_once()
    assert sharers.rate_limits.limits["x"][1] == {"server-0-on-node-0"}
    sharers.compute.slots["x"] = {}
    sharers.release("x")
    sharers.converger.run_once()
    assert "x" not in sharers.rate_limits.limits


def test_limits_that_others_changed_are_drift(sharers):
    sharers.rate_limits.found = Limited(("port q had no policy",))
    sharers.later()
    sharers.converger.run_once()
    sharers.rate_limits.found = Limited()
    found = sharers.store.observations.drift("f")
    assert found[Drift.RATES] == 2  # one for each allocation


def test_a_stochastic_demand_has_no_limit(sharers):
    sharers.release("x")
    sharers.converger.run_once()
    sharers.ask("z", 2, 1.0, 0.5)
    sharers.converger.run_once()
    assert sharers.state("z") is State.ACTIVE
    assert sharers.store.allocations.get("z").limited_by is None
    assert "z" not in sharers.rate_limits.limits


def test_slots_that_differ_are_drift_and_are_set_again(sharers):
    before = sharers.compute.aggregates["x"]
    sharers.compute.aggregates["x"] = replace(before, share=dict.fromkeys(before.hosts, 7))
    (finding,) = sharers.converger.reconcile()
    assert "slots differ" in finding
    assert sharers.compute.aggregates["x"] == before


def test_shared_hosts_whose_slots_were_not_read_are_no_drift(sharers):
    """The list of aggregates tells that slots are handed over, and not how many."""
    assert {one.share for one in sharers.compute.observed().handed_over.values()} == {
        HostPart.UNREAD
    }
    sharers.later(60)
    assert sharers.converger.check_drift() == []


def test_slots_handed_over_as_whole_hosts_are_found_by_one_look(sharers):
    before = sharers.compute.aggregates["x"]
    sharers.compute.aggregates["x"] = replace(before, share=HostPart.WHOLE)
    (finding,) = sharers.converger.check_drift()
    assert "whole hosts are handed over instead of slots" in finding
    assert sharers.compute.aggregates["x"] == before


def test_a_release_waits_for_the_servers_in_its_slots(sharers):
    def refuse(handover, *, force=False):
        raise HostsBusy("a server holds a slot")

    sharers.compute.take_back = refuse
    sharers.release("x")
    sharers.converger.run_once()
    assert sharers.state("x") is State.RELEASING
    assert "holds a slot" in sharers.error("x")
