# SPDX-License-Identifier: Apache-2.0

"""In-memory implementations of the ports; they can be told to fail."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import ClassVar

from laas_service.app.ports.compute import (
    ComputeHost,
    Handover,
    HostPart,
    MoveProgress,
    MoveStage,
    ObservedAggregates,
    Occupant,
    ServerLoad,
    ServerMoves,
    SlotMoves,
)
from laas_service.domain.compute_hosts import UNKNOWN, HostView
from laas_service.domain.errors import Conflict, HostsBusy, LaasError, Unavailable
from laas_service.domain.faults.counters import SwitchCounters
from laas_service.domain.faults.reading import FabricReading
from laas_service.domain.inventory import PortRef
from laas_service.messages import Applied, ConfirmedBy, FabricState, Span, Standing


class Faults:
    """Errors to raise ``before`` a method takes effect, or ``after`` it did (a lost answer).

    The keys are names of methods; an error is raised at each call until the test removes it.
    """

    def __init__(self) -> None:
        self.before: dict[str, LaasError] = {}
        self.after: dict[str, LaasError] = {}
        self.calls: list[tuple[str, object]] = []

    def begin(self, verb: str, about: object) -> None:
        self.calls.append((verb, about))
        if verb in self.before:
            raise self.before[verb]

    def end(self, verb: str) -> None:
        if verb in self.after:
            raise self.after[verb]


class FakeCompute:
    """Nova in memory: a pool, an aggregate for each allocation, servers on hosts."""

    scripted: ClassVar[bool] = False
    claims_slots: ClassVar[bool] = False

    def __init__(self) -> None:
        self.faults = Faults()
        self.pooled: set[str] = set()
        self.aggregates: dict[str, Handover] = {}
        self.fenced: set[str] = set()
        self.opened: dict[str, str] = {}  # host -> foreign aggregate
        self.servers: dict[str, str] = {}  # host -> project
        self.moving: dict[str, str] = {}  # host of a server that migrates -> where it goes
        self.slow = False  # migrations begin, and do not end
        self.halted: set[str] = set()  # hosts whose server was stopped for a move
        self.idle: set[str] = set()  # hosts whose server its owner has stopped
        self.broken: set[str] = set()  # hosts whose servers cannot be migrated
        self.limits: dict[str, int] = {}  # project -> servers it may run
        self.hosts: dict[str, ComputeHost] | None = None  # what ``look`` shows; None: nothing
        self.near: dict[str, str] = {}  # names that nearly match hosts that it does not know
        self.closed: set[str] = set()
        self.disk_gb = 20  # of each server
        self.stopped: list[str] = []
        self.slots: dict[str, dict[str, int]] = {}  # allocation -> servers in its slots, by host

    def accepts(self, host: str) -> set[str]:
        """The projects whose servers could start on the host now."""
        return {
            aggregate.project_id
            for aggregate in self.aggregates.values()
            if host in aggregate.hosts and aggregate.allocation_id not in self.fenced
        }

    def comparison(self) -> AbstractContextManager[None]:
        return nullcontext()

    def pool(self, hosts: Collection[str]) -> None:
        self.faults.begin("pool", tuple(hosts))
        busy = {host for host in hosts if host in self.servers and host not in self.pooled}
        self.pooled |= set(hosts) - busy
        self.faults.end("pool")
        if busy:
            raise HostsBusy(f"servers run on {', '.join(sorted(busy))}")

    def occupants(self, hosts: Collection[str]) -> Sequence[Occupant]:
        self.faults.begin("occupants", tuple(hosts))
        rooms = {to: self.servers[host] for host, to in self.moving.items()}
        rooms |= self.servers
        return [
            Occupant(host, f"server-on-{host}", rooms[host])
            for host in sorted(hosts)
            if host in rooms
        ]

    def move_servers(self, moves: ServerMoves) -> MoveProgress:
        """A server goes in two calls: it migrates, then it is confirmed."""
        self.faults.begin("move_servers", moves)
        arrived, under_way, stuck = list[str](), list[str](), list[str]()
        if moves.stage is not MoveStage.MOVE:
            return self._at_stage(moves)
        for host, target in sorted(moves.targets.items()):
            if self.moving.get(target) == host:
                del self.moving[target]  # the change has turned back
            elif host not in self.servers:
                continue
            elif self.slow and host in self.moving:
                under_way.append(f"{host} to {self.moving[host]}")
            elif self.moving.get(host) == target:
                del self.moving[host]
                self.servers[target] = self.servers.pop(host)
                for still in (self.halted, self.idle):
                    if host in still:
                        still.symmetric_difference_update({host, target})
                arrived.append(f"{host} to {target}")
            elif host in self.broken or target in {*self.servers, *self.moving.values()}:
                stuck.append(f"server on {host}")
            elif moves.project_id not in self.accepts(target):
                stuck.append(f"server on {host}: no valid host")
            else:
                self.moving[host] = target
                under_way.append(f"{host} to {target}")
        self.faults.end("move_servers")
        return MoveProgress(tuple(arrived), tuple(under_way), tuple(stuck))

    def running(self, moves: ServerMoves) -> MoveProgress:
        self.faults.begin("running", moves)
        shown = moves.targets.keys() & self.servers.keys()
        busy = sorted(shown - self.halted - self.idle)
        self.faults.end("running")
        return MoveProgress(stuck=tuple(f"server on {host}" for host in busy))

    def _at_stage(self, moves: ServerMoves) -> MoveProgress:
        """A server stops, or starts again, in two calls: it is asked for, then it is done."""
        under_way, stuck = list[str](), list[str]()
        start = moves.stage is MoveStage.START
        hosts = {*moves.targets, *moves.targets.values()} if start else {*moves.targets}
        if moves.stage is MoveStage.UNLOCK:
            unlocked = self.halted & {*hosts, *moves.targets.values()}
            self.halted -= unlocked
            self.idle |= unlocked & self.servers.keys()
            hosts = set()
        for host in sorted(hosts & self.servers.keys()):
            if start and host in self.halted:
                self.halted.remove(host)
                under_way.append(f"server on {host}")
            elif not start and host not in self.halted | self.idle:
                if host in self.broken:
                    stuck.append(f"server on {host}")
                    continue
                (self.halted if moves.locks else self.idle).add(host)
                under_way.append(f"server on {host}")
        self.faults.end("move_servers")
        return MoveProgress(under_way=tuple(under_way), stuck=tuple(stuck))

    def hand_over(self, handover: Handover, ready: Collection[str] = ()) -> None:
        self.faults.begin("hand_over", handover.allocation_id)
        views = {h: HostView(s.up, s.enabled, s.reason) for h, s in (self.hosts or {}).items()}
        shown = ready if self.hosts is not None else ()
        problems = {h: views[h].problem if h in views else UNKNOWN for h in shown}
        if texts := [f"{host} is {why}" for host, why in problems.items() if why]:
            raise Unavailable(f"hosts cannot be handed over now: {', '.join(texts)}")
        for host in handover.hosts:
            if self.servers.get(host, handover.project_id) != handover.project_id:
                raise HostsBusy(f"project {self.servers[host]} has a server on {host}")
        self.aggregates[handover.allocation_id] = handover
        self.fenced.discard(handover.allocation_id)
        self.faults.end("hand_over")

    def settle_slots(self, moves: SlotMoves) -> MoveProgress:
        """A server of a slot that is given up goes to the target of the plan at once."""
        self.faults.begin("settle_slots", moves)
        id, stuck = moves.handover.allocation_id, list[str]()
        held = self.slots.setdefault(id, {})
        for source, target in moves.planned if moves.consents else ():
            if held.get(source, 0) > moves.kept.get(source, 0):
                held[source] -= 1
                held[target] = held.get(target, 0) + 1
        for host in sorted(held):
            if held[host] > moves.kept.get(host, 0):
                stuck.append(f"{held[host]} servers on {host}")
        self.faults.end("settle_slots")
        return MoveProgress(stuck=tuple(stuck))

    def slot_holders(self, handover: Handover) -> Sequence[Occupant]:
        self.faults.begin("slot_holders", handover.allocation_id)
        return [
            Occupant(host, f"server-{number}-on-{host}", handover.project_id)
            for host, servers in sorted(self.slots.get(handover.allocation_id, {}).items())
            for number in range(servers)
        ]

    def fence(self, allocation_id: str) -> None:
        self.faults.begin("fence", allocation_id)
        if allocation_id in self.aggregates:
            self.fenced.add(allocation_id)
        self.faults.end("fence")

    def take_back(self, handover: Handover, *, force: bool = False) -> None:
        self.faults.begin("take_back", handover.allocation_id)
        busy = [host for host in handover.hosts if host in self.servers]
        if busy:
            raise HostsBusy(f"servers still run on {', '.join(busy)}")
        self.aggregates.pop(handover.allocation_id, None)
        self.fenced.discard(handover.allocation_id)
        self.faults.end("take_back")

    def handed_over(self) -> Mapping[str, Handover]:
        self.faults.begin("handed_over", None)
        return dict(self.aggregates)

    def observed(self) -> ObservedAggregates:
        self.faults.begin("observed", None)
        return ObservedAggregates(
            {
                id: replace(found, share=HostPart.UNREAD) if found.shared else found
                for id, found in self.aggregates.items()
            },
            frozenset(self.pooled),
            dict(self.opened),
            frozenset(self.closed),
            frozenset(self.fenced),
        )

    def look(self, hosts: Collection[str]) -> Mapping[str, ComputeHost] | None:
        self.faults.begin("look", tuple(hosts))
        if self.hosts is None:
            return None
        return {host: seen for host, seen in self.hosts.items() if host in hosts}

    def nearest(self, hosts: Collection[str]) -> Mapping[str, str]:
        return {host: name for host, name in self.near.items() if host in hosts}

    def load(self, hosts: Collection[str]) -> ServerLoad | None:
        self.faults.begin("load", tuple(hosts))
        servers = sum(host in self.servers for host in hosts)
        return ServerLoad(servers, servers * self.disk_gb)

    def close(self, hosts: Collection[str], closed: Collection[str]) -> None:
        self.faults.begin("close", tuple(closed))
        self.closed = self.closed - set(hosts) | set(closed)
        self.faults.end("close")

    def stop(self, server: str) -> None:
        self.faults.begin("stop", server)
        self.stopped.append(server)

    def server_limit(self, project_id: str) -> int | None:
        self.faults.begin("server_limit", project_id)
        return self.limits.get(project_id)


class FakeSubnetManager:
    """A subnet manager that applies published tables at once, or when ``apply`` is called."""

    def __init__(self, *, at_once: bool = True, by: ConfirmedBy = ConfirmedBy.SWITCHES) -> None:
        self.by = by
        self.faults = Faults()
        self.at_once = at_once
        self.published: dict[str, FabricState] = {}
        self.running: dict[str, FabricState] = {}
        self.readings: dict[str, FabricReading] = {}
        self.fresh_counters: list[SwitchCounters] = []
        self.without: tuple[int, ...] = ()
        self.unconfirmed: tuple[int, ...] = ()
        self.differing: set[int] = set()
        """Switches (GUIDs) that answer and have other tables than the published ones."""
        self.prepares = True
        """Whether all tables are read at once; else a comparison has to wait."""
        self.spent: dict[Span, float] = {}
        """Seconds that each publication takes."""
        self.lost: Applied | None = None
        """What is read back instead, until routes are published."""

    def apply(self) -> None:
        """Make the switches run the tables published last."""
        self.running.update(self.published)

    def tenants(self, fabric: str) -> set[str]:
        """Ids of the allocations that the switches route."""
        state = self.running.get(fabric)
        return {tenant.allocation.id for tenant in state.tenants} if state else set()

    def publish(self, state: FabricState) -> Mapping[Span, float]:
        """Like ``opensm_writer``, refuses a generation older than the published one."""
        self.faults.begin("publish", state.generation)
        before = self.published.get(state.fabric)
        if before is not None and before.generation > state.generation:
            raise Conflict(f"generation {before.generation} is published")
        self.published[state.fabric] = state
        self.lost = None
        if self.at_once:
            self.apply()
        self.faults.end("publish")
        return self.spent

    def prepared(self, fabric: str) -> bool:
        return self.prepares

    def applied(self, fabric: str) -> Applied:
        self.faults.begin("applied", fabric)
        if fabric not in self.running:
            return Applied(None, "nothing was published yet")
        if self.lost is not None:
            return self.lost
        if self.differing:
            return Applied(None, f"{len(self.differing)} switches differ", by=self.by)
        running = self.running[fabric]
        return Applied(
            running.generation,
            without=self.without,
            unconfirmed=self.unconfirmed,
            by=self.by,
            stamp=running.stamp,
        )

    def standing(self, fabric: str) -> Standing | None:
        return None

    def on_disk(self, fabric: str) -> tuple[int, str] | None:
        state = self.published.get(fabric)
        return (state.generation, state.stamp) if state is not None else None

    def reading(self, fabric: str) -> FabricReading | None:
        return self.readings.get(fabric)

    def counters(self, fabric: str) -> tuple[SwitchCounters, ...]:
        fresh, self.fresh_counters = self.fresh_counters, []
        return tuple(fresh)

    def marks_differ(self, fabric: str, wanted: frozenset[PortRef]) -> bool:
        return False

    def mark_ports(self, fabric: str, wanted: frozenset[PortRef]) -> None:
        raise AssertionError("no port is isolated")
