# SPDX-License-Identifier: Apache-2.0

"""Random histories of tenants who own hosts and tenants who share some, on one fabric.

After every step the judges look at the records and at the tables that would be published: no host,
link or slot has two owners, and every tenant is promised on each link what it can put there. The
process may die before or after any commit. At the end all is given back.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.adapters.db import models, soundness
from laas_service.adapters.db.engine import connect, consistent_read
from laas_service.adapters.db.store import SqlStore
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.lifecycle import State
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.projects import Projects
from laas_service.app.records import AllocationRecord, Caller, HostState
from laas_service.app.requests import AllocationRequest, Runtime, ServicePolicy
from laas_service.app.room_planner import Permission
from laas_service.app.sharing.slot_changes import SlotsRequest
from laas_service.app.sharing.use_cases import ConsolidationRequest
from laas_service.app.use_cases import UseCases, every_policy
from laas_service.domain.admission.queue import Discipline
from laas_service.domain.allocation import Amounts, Sharing, SlotDemand
from laas_service.domain.errors import Conflict, InvalidInput
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.domain.topology import Topology, Xgft
from laas_service.domain.verification import (
    isolation_violations,
    physical_tables,
    shape_violations,
    slot_violations,
)
from tests.convergers import Convergers
from tests.fakes import FakeCompute, FakeSubnetManager
from tests.unit.domain.verification.sound import inventory_of

OPERATOR = Caller("blue", "operator", admin=True, request_id="test")
TREES = {
    "three levels": Topology(Xgft((2, 2, 4), (1, 2, 2))),
    "two levels": Topology(Xgft((3, 5, 1), (1, 3, 0))),
}
CHOICE = st.integers(0, 1 << 12)
STEPS = st.tuples(
    st.sampled_from(
        ["share"] * 6
        + ["change"] * 6
        + ["consolidate"] * 2
        + ["own", "own", "set aside", "release", "release", "drain", "mend"]
        + ["serve", "converge", "converge", "restart", "lost cache"]
    ),
    CHOICE,
    st.integers(0, 8),
)
"""What happens, a choice, and at which commit the process dies (0: at none)."""


def different(slots: int, choice: int) -> tuple[float, ...]:
    """A list of demands."""
    return tuple((0.25, 0.5, 2.0)[(choice + unit) % 3] for unit in range(slots))


class Killed(BaseException):
    """Nothing catches it, as nothing survives the end of a process."""


class Site:
    """A service on SQLite, with fakes of Nova and OpenSM."""

    def __init__(self, path: Path, topology: Topology) -> None:
        self.topology, self.inventory = topology, inventory_of(topology)
        self.engine = connect(f"sqlite:///{path}")
        self.numbers = iter(range(1000))
        self.compute, self.switches = FakeCompute(), FakeSubnetManager()
        self.begin()
        self.store.fabrics.add("f", topology, self.inventory)
        self.set_aside(2)

    def begin(self) -> None:
        """A process without a memory."""
        self.left = 0
        self.store = SqlStore(self.engine)
        self.store._transactions.at = self.at
        policies = {name: POLICIES[name]() for name in ("jigsaw", "laas")}
        use_cases = UseCases(
            self.store,
            self.compute,
            {"local": self.switches.applied},
            ServicePolicy(policies=policies, default_policy="jigsaw"),
            Runtime(
                clock=self.now,
                sleep=lambda seconds: None,
                wake=lambda: None,
                new_id=lambda: f"t{next(self.numbers)}",
            ),
            registry=None,
            projects=Projects(),
        )
        self.allocations, self.moves = use_cases.allocations, use_cases.moves
        self.changes, self.sharing = use_cases.changes, use_cases.sharing
        self.queue = AdmissionQueue(
            self.store, every_policy(SharedSlots()), Discipline(), clock=self.now
        )
        self.worker = Convergers(
            self.store,
            self.compute,
            self.switches,
            now=self.now,
            chance=Random(1),
        )

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    # -- steps ------------------------------------------------------------------

    def at(self, step: str) -> None:
        """Before or after a commit: die there, if it is time."""
        if self.left:
            self.left -= 1
            if not self.left:
                raise Killed(step)

    def take(self, step: str, choice: int, dies: int = 0) -> None:
        self.left = dies
        try:
            with suppress(Conflict, InvalidInput):
                getattr(self, step.replace(" ", "_"))(choice)
        except Killed:
            self.begin()
        self.left = 0

    def ask(self, request: AllocationRequest) -> None:
        self.allocations.allocate(OPERATOR, request)

    def set_aside(self, choice: int) -> None:
        hosts = 5 + choice % 4
        sharing = Sharing(1 + choice % 3, (4.0, 10.0)[choice % 2], (0.05, 0.2)[choice % 2])
        self.ask(AllocationRequest(name="part", hosts=hosts, sharing=sharing))

    def own(self, choice: int) -> None:
        policy = ("jigsaw", "laas")[choice % 2]
        hosts, wait = 1 + choice // 2 % 4, choice % 5 == 0
        self.ask(AllocationRequest(name="own", hosts=hosts, policy=policy, wait=wait))

    def share(self, choice: int) -> None:
        parts = [record.id for record in self.live() if record.sharing is not None]
        if not parts:
            return
        slots, deviation = 1 + choice % 7, (0.0, 0.0, 0.4)[choice // 21 % 3]
        demand = SlotDemand(slots, (0.5, 1.0, 3.0)[choice // 7 % 3], deviation)
        if choice % 5 == 0:
            demand = demand._replace(bandwidth=different(slots, choice))
        parent, wait = parts[choice // 63 % len(parts)], choice % 4 == 0
        self.ask(AllocationRequest(name="share", hosts=0, slots=demand, parent=parent, wait=wait))

    def change(self, choice: int) -> None:
        held = [record for record in self.live() if record.slots is not None]
        if held:
            slots = (None, 1 + choice // 4 % 9)[choice % 2]
            bandwidth: Amounts | None = (None, 0.3, 1.5, 4.0)[choice // 8 % 4]
            if slots is not None and choice % 3 == 0:
                bandwidth = different(slots, choice)
            asked = SlotsRequest(slots=slots, bandwidth=bandwidth)
            self.sharing.change_slots(OPERATOR, held[choice % len(held)].id, asked)

    def consolidate(self, choice: int) -> None:
        parts = [record.id for record in self.live() if record.sharing is not None]
        if parts:
            limits = Permission(1 + choice % 9, override=True)
            wanted = ConsolidationRequest(parts[choice % len(parts)], 4.0, limits)
            self.sharing.consolidate(OPERATOR, "f", wanted)

    def release(self, choice: int) -> None:
        if live := self.live():
            self.allocations.release(OPERATOR, live[choice % len(live)].id)

    def drain(self, choice: int) -> None:
        self.store.components.set_host_state("f", choice % self.topology.hosts, HostState.DRAINED)

    def mend(self, choice: int) -> None:
        self.store.components.set_host_state("f", choice % self.topology.hosts, HostState.UP)

    def serve(self, choice: int) -> None:
        self.queue.serve("f")

    def converge(self, choice: int) -> None:
        for _ in range(20):
            self.worker.run_once()

    def restart(self, choice: int) -> None:
        self.begin()

    def lost_cache(self, choice: int) -> None:
        self.store._ledgers.forget("f")

    # -- judging ----------------------------------------------------------------

    def live(self) -> list[AllocationRecord]:
        return list(every_allocation(self.store.allocations, states=set(State) - {State.RELEASED}))

    def judge(self) -> None:
        ledger, _ = self.store.fabrics.ledger("f")
        held, sharers = list(ledger.everybody()), list(ledger.sharers())
        routed = forwarding_tables(self.topology, self.inventory, held)
        tables = physical_tables(routed.rows, routed.index)
        changes = {record.id: record.change for record in self.live() if record.slots is not None}
        places = {
            id: [place.slots for place in (change.old, change.new) if place.slots is not None]
            for id, change in changes.items()
            if change is not None
        }
        said = isolation_violations(self.topology, held)
        said += [text for one in held for text in shape_violations(self.topology, one)]
        said += slot_violations(self.topology, self.inventory, held, sharers, tables, places)
        with consistent_read(self.engine) as connection:
            said += soundness.findings(connection)
        assert said == []

    def give_all_back(self) -> None:
        for _ in range(4):
            for record in self.live()[::-1]:
                with suppress(Conflict):
                    self.allocations.release(OPERATOR, record.id)
            self.converge(0)
        assert self.live() == []
        ledger, _ = self.store.fabrics.ledger("f")
        assert not [*ledger.everybody(), *ledger.sharers()]
        with self.engine.connect() as connection:
            for table in (
                models.SlotClaimRow,
                models.LinkLoadRow,
                models.SharedHostRow,
                models.SharedLinkRow,
            ):
                assert connection.execute(sa.select(table)).all() == []


@pytest.mark.parametrize("tree", TREES)
@settings(max_examples=20, deadline=None)
@given(steps=st.lists(STEPS, max_size=30))
def test_no_promise_is_broken_and_all_is_given_back(tree, empty_database, steps):
    with TemporaryDirectory(prefix="laas-") as directory:
        path = Path(shutil.copy(empty_database, Path(directory) / "laas.sqlite"))
        site = Site(path, TREES[tree])
        for step, choice, dies in steps:
            site.take(step, choice, dies)
            site.judge()
        site.give_all_back()
        site.judge()
        site.engine.dispose()


def test_histories_reach_what_they_are_about(empty_database, tmp_path):
    """Changes with moves, refusals, queues and two shared parts do occur in such histories."""
    path = Path(shutil.copy(empty_database, tmp_path / "laas.sqlite"))
    site, rng = Site(path, TREES["two levels"]), Random(3)
    reached: set[str] = set()
    steps = ["share"] * 3 + ["change"] * 8 + ["converge"] * 4 + ["release", "set aside", "serve"]
    steps += ["consolidate"]
    for _ in range(300):
        site.take(rng.choice(steps), rng.randrange(1 << 12))
        site.judge()
        live = site.live()
        reached |= {"two parts"} if sum(r.sharing is not None for r in live) > 1 else set()
        reached |= {"queued"} if any(r.state is State.QUEUED for r in live) else set()
        reached |= {"moving"} if any(r.change and r.slots for r in live) else set()
        reached |= {"announced"} if any(r.announced and r.slots for r in live) else set()
        reached |= {"stochastic"} if any(r.slots and r.slots.deviation for r in live) else set()
        reached |= {"list"} if any(r.slots and not r.slots.alike for r in live) else set()
        if len(reached) == 6:
            break
    else:
        raise AssertionError(f"only {reached}")
    site.give_all_back()
    site.engine.dispose()
