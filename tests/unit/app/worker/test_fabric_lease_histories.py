# SPDX-License-Identifier: Apache-2.0

"""Random histories of several workers that pause, are killed and resume at any step.

A worker that pauses stops at a step while time passes and another worker runs. Then the
paused worker goes on with that step.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import State
from laas_service.app.worker.fabric_leases import FabricLeases
from laas_service.domain.errors import Unavailable
from tests import databases
from tests.unit.app.worker.test_fabric_leases import LEASE, Site

WORKERS = 3
HOSTS = 4  # hosts used of each fabric

workers = st.integers(0, WORKERS - 1)
fabrics = st.sampled_from("fg")
far = st.integers(1, 12)
"""The number of the step at which a worker is disturbed."""

PAUSES = ("pauses", "pauses, then Nova is away")


class Killed(BaseException):
    """The worker's process is killed."""


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.database = databases.fresh()
        self.site = Site(SqlStore(self.database.__enter__()), "fg")
        self.count = 0
        self.born = 0
        self.committed: list[tuple[str, int]] = []
        self.overtaken: list[str] = []
        self.fate: dict[int, tuple[int, str, int]] = {}  # worker: steps left, event, next worker
        self.living = {number: self.hired(number) for number in range(WORKERS)}
        self.held: dict[int, str] = {}

    def teardown(self) -> None:
        try:
            self.all_is_well_in_the_end()
        finally:
            self.database.__exit__(None, None, None)

    # -- events at a step --------------------------------------------------------

    def hired(self, number: int) -> FabricLeases:
        self.born += 1
        return self.site.worker(f"w{number}-{self.born}", at=lambda step: self.at(number, step))

    def at(self, number: int, step: str) -> None:
        if step.startswith("after commit"):
            self.note(number)
        elif step.startswith("before ") and not step.startswith("before commit"):
            self.begins(number, step)
        left, what, other = self.fate.get(number, (0, "", 0))
        if not what:
            return
        if left > 1 or (what.startswith("pauses") and step.startswith("before commit")):
            self.fate[number] = (left - 1, what, other)  # other writers wait for the database here
            return
        del self.fate[number]
        if what == "is killed":
            raise Killed
        self.site.later(LEASE)
        self.work(other)
        if what == "pauses, then Nova is away":
            for verb in ("hand_over", "fence", "take_back"):
                self.site.compute.faults.before[verb] = Unavailable("Nova is away")

    def note(self, number: int) -> None:
        """Record the fencing token under which the worker has committed."""
        post = self.living[number]._held.get(self.held.get(number, ""))
        if post is not None:
            self.committed.append((post.lease.fabric, post.lease.token))

    def begins(self, number: int, step: str) -> None:
        """A call to Nova or OpenSM begins; no other worker may hold the fabric by then."""
        post = self.living[number]._held.get(self.held.get(number, ""))
        if post is not None:
            newest = self.site.store.observations.holding(post.lease.fabric).taken
            if newest != post.lease.token:
                self.overtaken.append(f"{step} under token {post.lease.token} of {newest}")

    def work(self, number: int) -> None:
        if number in self.held:
            return  # the paused worker cannot run meanwhile
        leases = self.living[number]
        each = leases._on

        def one(fabric, post, act):
            self.held[number] = fabric
            return each(fabric, post, act)

        leases._on = one  # type: ignore[method-assign]
        try:
            leases.run_once()
            leases.reconcile()
        except Killed:
            self.living[number] = self.hired(number)
        finally:
            self.held.pop(number, None)
            del leases._on

    # -- rules --------------------------------------------------------------------

    @rule(number=workers)
    def round(self, number):
        self.work(number)

    @rule(number=workers, steps=far, other=workers, what=st.sampled_from(PAUSES))
    def pause(self, number, steps, other, what):
        """The worker pauses longer than its lease, another one works, then the first goes on."""
        self.fate[number] = (steps, what, other)
        self.work(number)
        self.site.compute.faults.before.clear()

    @rule(number=workers, steps=far)
    def kill(self, number, steps):
        self.fate[number] = (steps, "is killed", 0)
        self.work(number)

    @rule(number=workers)
    def renew(self, number):
        self.living[number].renew()

    @rule(number=workers)
    def end(self, number):
        """The worker is stopped and started again."""
        self.living[number].leave()
        self.living[number] = self.hired(number)

    @rule(seconds=st.sampled_from([1, LEASE / 2, LEASE, 400]))
    def later(self, seconds):
        self.site.later(seconds)

    @rule(fabric=fabrics, position=st.integers(0, HOSTS - 1))
    def allocate(self, fabric, position):
        taken = self.site.store.fabrics.ledger(fabric)[0].owners_of_hosts()
        if position not in taken:
            self.count += 1
            self.site.allocate(f"{fabric}{self.count}", position, fabric=fabric)

    @rule(choice=st.integers(0, 10), force=st.booleans())
    def release(self, choice, force):
        states = (State.ALLOCATING, State.ACTIVE)
        records = self.site.store.allocations.page(states=states)
        if records:
            record = records[choice % len(records)]
            self.site.store.allocations.transition(record, State.RELEASING, "asked", force=force)

    # -- promises -----------------------------------------------------------------

    @invariant()
    def nobody_writes_after_its_successor(self):
        for fabric in "fg":
            tokens = [token for id, token in self.committed if id == fabric]
            assert tokens == sorted(tokens)

    @invariant()
    def nobody_acts_outside_after_its_successor(self):
        assert self.overtaken == []

    def all_is_well_in_the_end(self) -> None:
        """One undisturbed worker converges everything; database, Nova and switches agree."""
        self.fate.clear()
        self.site.compute.faults.before.clear()  # of a pause that began in a later round
        site, last = self.site, self.hired(0)
        for _ in range(4):
            site.later(400)
            while last.run_once():
                pass
            last.reconcile()
        assert last.fabrics == ["f", "g"]
        records = site.store.allocations.page()
        assert len(records) == self.count
        assert {r.state for r in records} <= {State.ACTIVE, State.RELEASED}
        active = {r.id: r for r in records if r.state is State.ACTIVE}
        assert set(site.compute.aggregates) == set(active)
        assert not site.compute.fenced
        for id, handover in site.compute.aggregates.items():
            placed = active[id].placed
            assert placed is not None
            numbers = placed.hosts(site.store.fabrics.get(active[id].fabric).topology)
            assert handover.hosts == tuple(f"{active[id].fabric}-{n}" for n in numbers)
        for fabric in "fg":
            mine = {id for id, record in active.items() if record.fabric == fabric}
            assert site.switches.tenants(fabric) == mine
            assert set(site.store.fabrics.ledger(fabric)[0].allocations) == mine
        for host in {host for one in site.compute.aggregates.values() for host in one.hosts}:
            assert len(site.compute.accepts(host)) == 1


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    deadline=None,
    max_examples=10,
    stateful_step_count=16,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
