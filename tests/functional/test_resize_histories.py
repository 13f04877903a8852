# SPDX-License-Identifier: Apache-2.0

"""Random histories of resize, moves, faults, repair and release, interrupted at any step.

After every step of the worker the judge walks the tables: those published, and every mixture of
them with the tables before. Servers run on hosts at random.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.adapters.db import soundness
from laas_service.adapters.db.engine import connect, consistent_read
from laas_service.adapters.db.store import SqlStore
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.lifecycle import Change, Phase, State
from laas_service.app.moves import EvacuationRequest, RoomRequest
from laas_service.app.ports.compute import MoveProgress, ServerMoves
from laas_service.app.ports.projects import Projects
from laas_service.app.queue_moves import QueueMoves, RoomMode, RoomRules
from laas_service.app.records import AllocationRecord, Caller, HostState, LinkState
from laas_service.app.requests import (
    AllocationRequest,
    ReplaceRequest,
    ResizeRequest,
    Runtime,
    ServicePolicy,
)
from laas_service.app.room_planner import Permission
from laas_service.app.use_cases import UseCases
from laas_service.domain.admission.queue import Discipline
from laas_service.domain.errors import Conflict, HostsBusy, InvalidInput, Unavailable
from laas_service.domain.moves.consent import Consent, Movable
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from laas_service.domain.topology import Topology, Xgft
from laas_service.domain.verification import isolation_violations, shape_violations
from laas_service.messages import FabricState, Span
from tests.convergers import Convergers
from tests.fakes import FakeCompute, FakeSubnetManager
from tests.unit.domain.verification.sound import inventory_of
from tests.walks import Mixed, Walks

OPERATOR = Caller("blue", "operator", admin=True, request_id="test")
TREES = {
    "three levels": Topology(Xgft((2, 2, 4), (1, 2, 2))),
    "two levels": Topology(Xgft((3, 5, 1), (1, 3, 0))),
    "wide": Topology(Xgft((3, 3, 3), (1, 3, 3))),
}
CHOICE = st.integers(0, 1 << 12)
STEPS = st.tuples(
    st.sampled_from(
        ["allocate"]
        + ["resize"] * 4
        + ["move"] * 2
        + ["replace", "evacuate"] * 2
        + ["turn back", "serve", "serve", "fail link", "fail host", "mend", "release", "converge"]
        + ["break server", "consent", "stop server", "stop server", "cut off", "force"]
    ),
    CHOICE,
    st.integers(0, 30),
)
"""What happens, a choice, and after how many steps the worker dies (0: it does not)."""


MOVABLE = Consent(Movable.RESTART)


class Killed(BaseException):
    pass


class Watched(FakeCompute):
    """Nova in memory; no server sets out for a host that has no routes."""

    def __init__(self, routed: Callable[[], set[str]]) -> None:
        super().__init__()
        self._routed = routed

    def move_servers(self, moves: ServerMoves) -> MoveProgress:
        before = dict(self.moving)
        progress = super().move_servers(moves)
        routed = self._routed()
        for host, target in self.moving.items() - before.items():
            assert {host, target} <= routed, "a server sets out without routes"
        return progress


class Site:
    """A service on SQLite with fakes of Nova and OpenSM, and a judge of every publication."""

    def __init__(self, path: Path, topology: Topology) -> None:
        self.topology, self.inventory = topology, inventory_of(topology)
        self.engine = connect(f"sqlite:///{path}")
        self.store = SqlStore(self.engine)
        self.store.fabrics.add("f", topology, self.inventory)
        self.switches = Judged(self)
        self.compute = Watched(self.switches.routed_hosts)
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.left = 0  # steps until the worker dies; 0: it lives
        self.restarted: dict[str, Change | None] = {}  # hosts of servers that owners started again
        self.noted: list[str] = []
        self.numbers = iter(range(1000))
        policies = {name: POLICIES[name]() for name in ("jigsaw", "laas", "lc", "baseline")}
        use_cases = UseCases(
            self.store,
            self.compute,
            {"local": self.switches.applied},
            ServicePolicy(policies=policies, default_policy="jigsaw"),
            Runtime(
                clock=lambda: self.time,
                sleep=lambda seconds: None,
                wake=lambda: None,
                new_id=lambda: f"t{next(self.numbers)}",
            ),
            registry=None,
            projects=Projects(),
        )
        self.allocations, self.moves = use_cases.allocations, use_cases.moves
        self.changes = use_cases.changes
        self.queue = AdmissionQueue(self.store, policies, Discipline(), clock=lambda: self.time)
        rules = RoomRules(RoomMode.ON, Permission(moves=2))
        self.queue_moves = QueueMoves(
            self.store,
            self.queue,
            use_cases.quotas,
            rules,
            policies["jigsaw"],
            clock=lambda: self.time,
        )
        self.worker = self.started()

    def started(self) -> Convergers:
        """A worker that knows nothing, as after a restart."""
        return Convergers(
            self.store,
            self.compute,
            self.switches,
            now=lambda: self.time,
            chance=Random(1),
            at=self.at,
        )

    def watch(self, steps: list[str]) -> None:
        """Note every step, also the commits, and let the worker die at them."""
        self.noted = steps
        self.store._transactions.at = self.at

    def at(self, step: str) -> None:
        self.noted.append(step)
        if self.left:
            self.left -= 1
            if not self.left:
                raise Killed(step)

    def records(self) -> list[AllocationRecord]:
        return [r for r in self.store.allocations.page() if r.state is not State.RELEASED]

    def chosen(self, choice: int) -> AllocationRecord | None:
        records = self.records()
        return records[choice % len(records)] if records else None

    # -- what happens ---------------------------------------------------------------

    def take(self, what: str, choice: int) -> None:
        record = self.chosen(choice)
        if what == "allocate":
            policy = ["jigsaw", "laas", "lc", "baseline"][choice % 4]
            consent = Consent(Movable.RESTART if choice % 3 else Movable.NEVER, notice=400.0)
            asked = AllocationRequest(
                name="x",
                hosts=1 + choice // 4 % 9,
                policy=policy,
                consent=consent,
                wait=choice % 5 == 0,
            )
            self.allocations.allocate(OPERATOR, replace(asked, project_id=f"p{choice % 3}"))
        elif what == "fail link":
            tree = self.topology.tree
            link = tree.link_at(choice % (tree.leaf_links + tree.spine_links))
            self.store.components.set_link_state("f", link, LinkState.FAILED)
        elif what == "fail host":
            self.store.components.set_host_state(
                "f", choice % self.topology.hosts, HostState.FAILED
            )
        elif what == "mend":
            ledger, _ = self.store.fabrics.ledger("f")
            for link in sorted(ledger.failed_links, key=self.topology.tree.link_id):
                self.store.components.set_link_state("f", link, LinkState.UP)
            for host in sorted(ledger.failed_hosts | ledger.drained_hosts):
                self.store.components.set_host_state("f", host, HostState.UP)
        elif what == "serve":
            self.serve(choice)
        elif what == "move":
            room = AllocationRequest(name="", hosts=1 + choice % 9)
            self.moves.make_room(OPERATOR, "f", RoomRequest(room, Permission(2, override=True)))
        elif what == "evacuate":
            self.evacuate(choice)
        elif what == "cut off":
            self.cut_off(choice)
        elif what == "stop server":
            self.stop_or_start(self.host(choice))
        elif what == "break server":
            self.compute.broken ^= {self.host(choice)}
        elif record is None or what == "converge":
            return
        elif what == "resize":
            with suppress(Conflict, HostsBusy, InvalidInput):
                asked_size = ResizeRequest(hosts=1 + choice // 8 % 10)
                self.changes.resize(OPERATOR, record.id, asked_size)
        elif what == "replace":
            self.replace(record, choice // 8)
        elif what == "consent":
            movable = MOVABLE if choice // 8 % 2 else Consent()
            self.allocations.consent(OPERATOR, record.id, lambda consent: movable)
        elif what == "turn back" and record.change is not None:
            with suppress(Conflict):
                self.changes.turn_back(OPERATOR, record.id)
            with suppress(Conflict):
                size = ResizeRequest(hosts=record.change.old.requested)
                self.changes.resize(OPERATOR, record.id, size)
        elif what in ("release", "force"):
            with suppress(Conflict, HostsBusy):
                self.allocations.release(OPERATOR, record.id, force=what == "force")

    def stop_or_start(self, host: str) -> None:
        """What the owner of a server does that is not locked."""
        if host in self.compute.servers.keys() - self.compute.halted:
            if host in self.compute.idle:
                self.restarted[host] = self.change_off(host)
            self.compute.idle ^= {host}

    def change_off(self, host: str) -> Change | None:
        """The change under way that a host leaves, which no links join to the new ones."""
        for change in (record.change for record in self.records()):
            if change is not None and change.parted:
                freed = change.freed.hosts(self.topology)
                if host in {self.inventory.host_names[number] for number in freed}:
                    return change
        return None

    def host(self, choice: int) -> str:
        return self.inventory.host_names[choice % self.topology.hosts]

    def replace(self, record: AllocationRecord, choice: int) -> None:
        """Ask for another host in place of one that it has."""
        own = record.placed.hosts(self.topology) if record.placed else ()
        if own:
            name = self.inventory.host_names[own[choice % len(own)]]
            with suppress(Conflict, InvalidInput):
                self.changes.replace_hosts(OPERATOR, record.id, ReplaceRequest(hosts=(name,)))

    def evacuate(self, choice: int) -> None:
        """Drain a host, or a leaf, and have its tenants moved."""
        where = EvacuationRequest((self.host(choice),))
        if choice // 64 % 2:
            leaves = [s.name for s in self.inventory.switches if s.level == 1]
            where = EvacuationRequest(switch=leaves[choice % len(leaves)])
        with suppress(Conflict):
            override = bool(choice // 128 % 2)
            self.moves.evacuate(
                OPERATOR, "f", replace(where, permission=Permission(override=override))
            )

    def cut_off(self, choice: int | None = None) -> None:
        """Fail the free links of a leaf or L2 switch, or all: nothing joins later placements."""
        ledger, _ = self.store.fabrics.ledger("f")
        tree, owned = self.topology.tree, ledger.owners_of_links()
        for link in map(tree.link_at, range(tree.leaf_links + tree.spine_links)):
            at = link[0] * 3 + link[1]
            if link not in owned and choice in (None, at):
                self.store.components.set_link_state("f", link, LinkState.FAILED)

    def serve(self, choice: int) -> None:
        """Boot or delete a server, where Nova would let its project."""
        name = self.host(choice)
        if name in self.compute.servers:
            if name in self.compute.halted:
                return  # it is locked
            del self.compute.servers[name]
            self.compute.idle.discard(name)
            self.compute.moving.pop(name, None)
        elif name in self.compute.moving.values():
            return  # Nova keeps its room for the server that comes
        elif projects := self.compute.accepts(name):
            self.compute.servers[name] = min(projects)

    def converge(self, dies_after: int = 0) -> None:
        """Let the worker act until it has no step, or dies."""
        self.left = dies_after
        with suppress(Killed):
            for _ in range(40):
                self.time += timedelta(minutes=5)
                if not self.worker.run_once() and not self.serve_queue():
                    break
        if dies_after and not self.left:
            self.worker = self.started()
        self.left = 0

    def serve_queue(self) -> int:
        return self.queue.serve_all() + self.queue_moves.serve_all()

    # -- the judge ------------------------------------------------------------------

    def check(self) -> None:
        records = self.records()
        held = [record.held for record in records if record.held is not None]
        assert isolation_violations(self.topology, held) == []
        placed = [record.placed for record in records if record.placed is not None]
        assert [text for a in placed for text in shape_violations(self.topology, a)] == []
        with consistent_read(self.engine) as connection:
            assert soundness.findings(connection) == []
        owners = {
            self.inventory.host_names[host]: record
            for record in records
            for host in (record.held.hosts(self.topology) if record.held else ())
        }
        running = self.compute.servers.keys() - self.compute.halted - self.compute.idle
        for host in self.restarted.keys() - running:
            del self.restarted[host]
        for host, change in self.restarted.items():
            between = change and change.phase in (Phase.PREPARE, Phase.SWITCH, Phase.ENTER)
            if between and owners[host].state is State.ACTIVE:
                now = self.change_off(host)
                assert now in (change, None), "routes change under a server that was started again"
        running -= self.restarted.keys()
        for record in records:
            if record.change is not None and record.change.parted and not record.handed_back:
                change = record.change
                left, joined = (
                    running
                    & {self.inventory.host_names[host] for host in part.hosts(self.topology)}
                    for part in (change.freed, change.claimed)
                )
                assert not (left and joined), "servers run that do not reach each other"
                changes = change.phase in (Phase.PREPARE, Phase.SWITCH, Phase.ENTER)
                assert not (left and changes), "routes change under servers"
        for host in self.compute.halted & self.compute.servers.keys():
            moving = owners[host].change
            assert moving is not None, "locked after its move"
            assert moving.parted, "locked without need"
        routed = self.switches.routed_hosts()
        for host in self.inventory.host_names[: self.topology.hosts]:
            for project in self.compute.accepts(host):
                assert owners[host].project_id == project, "open to others than its owner"
                assert host in routed, "open without routes"
        servers = self.compute.servers
        rooms = {target: servers[host] for host, target in self.compute.moving.items()}
        for host, project in (*servers.items(), *rooms.items()):
            assert host in owners, "freed under a server"
            assert owners[host].project_id == project
            cut = owners[host].force and owners[host].handed_back
            assert cut or host in routed, "a server without routes"

    def end(self) -> None:
        """Delete all servers, mend everything, and let the worker end all changes.

        Requests that still wait are cancelled, which ends a plan that makes room for them.
        """
        for record in self.records():
            if record.state is State.QUEUED:
                self.allocations.release(OPERATOR, record.id)
        for gone in (self.compute.servers, self.compute.moving, self.compute.halted):
            gone.clear()
        self.compute.idle.clear()
        self.take("mend", 0)
        self.worker = self.started()
        self.converge()
        self.check()
        for record in self.records():
            assert record.change is None, record.error
            assert record.state is State.ACTIVE, record.error
            assert record.placed is not None
            assert record.hosts == record.placed.requested
            names = {self.inventory.host_names[h] for h in record.placed.hosts(self.topology)}
            assert set(self.compute.aggregates[record.id].hosts) == names
        assert self.worker.reconcile() == []


class Judged(FakeSubnetManager):
    """A subnet manager that walks what it is given, alone and mixed with what runs."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site
        self._tables: ForwardingTables | None = None

    def routed_hosts(self) -> set[str]:
        names, topology = self._site.inventory.host_names, self._site.topology
        state = self.running.get("f")
        tenants = state.tenants if state else ()
        return {names[host] for tenant in tenants for host in tenant.held.hosts(topology)}

    def publish(self, state: FabricState) -> Mapping[Span, float]:
        tables = forwarding_tables(
            state.topology,
            state.inventory,
            [placement for tenant in state.tenants for placement in tenant.placements],
            state.failed_links,
            self._tables,
        )
        before = self.running.get("f")
        for tenant in state.tenants if not state.failed_links else ():
            if not tenant.allocation.isolated:
                continue
            for part in (tenant.allocation, tenant.beside):
                if part is not None:
                    self.walk(tenant.held, [tables], part.hosts(state.topology))
            parted = tenant.beside is not None and tenant.bridge is None
            self.walk(tenant.held, [tables], tenant.held.hosts(state.topology), parted=parted)
            earlier = (
                next((t for t in before.tenants if t.allocation.id == tenant.allocation.id), None)
                if before and not before.failed_links
                else None
            )
            if earlier is not None and self._tables is not None:
                both = set(tenant.held.hosts(state.topology))
                both &= set(earlier.held.hosts(state.topology))
                links = tenant.held.joined(earlier.held)
                bridged = tenant.bridge is not None and tenant.bridge == earlier.bridge
                self.walk(links, [self._tables, tables], both, parted=not bridged)
                for part in (tenant.allocation, tenant.beside):
                    if part is not None:
                        there = both & set(part.hosts(state.topology))
                        self.walk(links, [self._tables, tables], there)
        self._tables = tables
        return super().publish(state)

    def walk(self, links, tables, hosts, parted=False) -> None:
        """Judge all paths between hosts; with ``parted`` some packets may be lost on the way.

        Those between old and new hosts of a tenant, where its links do not join them.
        """
        topology, inventory = self._site.topology, self._site.inventory
        if parted:  # the leaf of the subnet manager has routes to all ports
            hosts = set(hosts) - set(range(topology.tree.m[0]))
        slots = topology.positions_of(hosts)
        groups = [share._replace(hosts=slots[share.group]) for share in links.groups]
        walked = replace(links, groups=tuple(groups))
        walks = [Walks.over(inventory, one) for one in tables]
        mixed = Mixed(topology, walks, walked)
        assert mixed.foreign == set()
        assert parted or mixed.lost == set()


@pytest.mark.parametrize("name", TREES)
@settings(max_examples=3)
@given(steps=st.lists(STEPS, min_size=3, max_size=14))
def test_no_history_of_resizes_breaks_a_promise(name, steps, empty_database):
    with TemporaryDirectory() as directory:
        file = Path(directory) / "laas.sqlite"
        shutil.copy(empty_database, file)
        site = Site(file, TREES[name])
        try:
            for first in (3, 17, 30):
                site.take("allocate", first)
            site.converge()
            for what, choice, dies_after in steps:
                site.take(what, choice)
                site.check()
                site.converge(dies_after)
                site.check()
            site.end()
        finally:
            site.engine.dispose()


# -- every step crossed with every fault ------------------------------------------------


CHANGES = {"grow": (2, 5), "shrink": (7, 2), "move": (3, 3), "stopped move": (3, 3)}
"""Hosts before and after; "move" empties a host whose server the service moves. In a "stopped move"
no links join old and new hosts, so that the server stops."""

FULL = os.environ.get("LAAS_CRASH") == "full"

LOST = Unavailable("no answer")
FAULTS = {
    "compute refuses": ("compute", "before", "hand_over"),
    "compute's answer is lost": ("compute", "after", "hand_over"),
    "compute cannot tell who is there": ("compute", "before", "occupants"),
    "a migration is refused": ("compute", "before", "move_servers"),
    "the answer about migrations is lost": ("compute", "after", "move_servers"),
    "OpenSM's files cannot be written": ("switches", "before", "publish"),
    "the answer to a publication is lost": ("switches", "after", "publish"),
    "switches cannot be read": ("switches", "before", "applied"),
}


def resized(directory: Path, empty: Path, change: str) -> tuple[Site, str]:
    """A site with a change of size begun, and its tenant's id."""
    old, new = CHANGES[change]
    file = directory / "laas.sqlite"
    shutil.copy(empty, file)
    site = Site(file, TREES["wide"])
    neighbour = AllocationRequest(name="b", hosts=4, project_id="red")
    asked = AllocationRequest(name="a", hosts=old, project_id="blue")
    for request in (neighbour, asked):
        site.allocations.allocate(OPERATOR, request)
    site.converge()
    (record,) = [r for r in site.records() if r.name == "a"]
    if change.endswith("move"):
        site.allocations.consent(OPERATOR, record.id, lambda consent: MOVABLE)
        assert record.placed is not None
        leaving = site.inventory.host_names[record.placed.hosts(site.topology)[0]]
        site.compute.servers[leaving] = "blue"
        if change == "stopped move":
            site.cut_off()
        asked_hosts = ReplaceRequest(hosts=(leaving,))
        begun = site.changes.replace_hosts(OPERATOR, record.id, asked_hosts)
    else:
        begun = site.changes.resize(OPERATOR, record.id, ResizeRequest(hosts=new))
    assert isinstance(begun, AllocationRecord)
    assert begun.change is not None
    assert begun.change.parted == (change == "stopped move")
    return site, record.id


def ended(site: Site, id: str, hosts: int) -> None:
    if site.compute.servers:  # it is moved, or stays if the change has turned back
        site.converge()
        assert list(site.compute.servers.values()) == ["blue"]
        assert site.compute.moving == {}
        assert site.compute.halted == set(), "it runs again"
        placed = site.store.allocations.get(id).placed
        assert placed is not None
        names = {site.inventory.host_names[host] for host in placed.hosts(site.topology)}
        assert site.compute.servers.keys() <= names
        assert site.store.allocations.get(id).change is None
    site.end()
    record = site.store.allocations.get(id)
    assert record.placed is not None
    assert record.placed.requested == record.hosts == hosts
    free = site.store.fabrics.ledger("f")[0].free_host_count
    assert free == site.topology.hosts - 4 - record.placed.size


@pytest.mark.parametrize("change", CHANGES)
def test_a_worker_that_dies_at_any_step_ends_in_the_new_placement(change, empty_database, tmp_path):
    """Then the same with a change that is called off after the death: it ends in the old one.

    Of the many steps of a stopped move every third; all of them with LAAS_CRASH=full.
    """
    seen = set()
    stride = 3 if change == "stopped move" and not FULL else 1
    for called_off in (False, True):
        for dies_after in range(1, 100, 2 * stride if called_off else stride):
            with TemporaryDirectory(dir=tmp_path) as directory:
                site, id = resized(Path(directory), empty_database, change)
                steps: list[str] = []
                site.watch(steps)
                site.converge(dies_after)
                site.store._transactions.at = lambda step: None
                seen.update(steps)
                site.check()
                over = site.store.allocations.get(id).change is None
                hosts = CHANGES[change][1]
                if called_off and not over:
                    old = ResizeRequest(hosts=CHANGES[change][0])
                    with suppress(Conflict):
                        if change.endswith("move"):
                            site.changes.turn_back(OPERATOR, id)
                        else:
                            site.changes.resize(OPERATOR, id, old)
                        hosts = CHANGES[change][0]
                site.check()
                ended(site, id, hosts)
                site.engine.dispose()
                if over:
                    break
    moved = "enter" if CHANGES[change][0] < CHANGES[change][1] else "leave"
    if change == "stopped move":
        assert "after commit: prepare" in seen
    if change.endswith("move"):
        assert {"before move servers", "after move servers"} <= seen
    assert {f"after commit: {name}" for name in ("switch", moved, "withdraw", "settle")} <= seen
    assert {"before hand over", "after hand over", "before publish", "after publish"} <= seen


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (change, fault)
        for change in CHANGES
        for fault, (_, _, verb) in FAULTS.items()
        if change.endswith("move") or verb != "move_servers"
    ],
)
def test_a_fault_at_any_step_delays_a_change_and_breaks_nothing(
    change, fault, empty_database, tmp_path
):
    where, when, verb = FAULTS[fault]
    for begins in (0, 2, 4):
        with TemporaryDirectory(dir=tmp_path) as directory:
            site, id = resized(Path(directory), empty_database, change)
            port = site.compute if where == "compute" else site.switches
            for _ in range(begins):
                site.converge(2)
            errors = getattr(port.faults, when)
            errors[verb] = LOST
            site.converge()
            site.check()
            del errors[verb]
            ended(site, id, CHANGES[change][1])
            site.engine.dispose()
