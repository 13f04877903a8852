# SPDX-License-Identifier: Apache-2.0

"""The next step of each server that has to go to another host: migrate, confirm, revert, evacuate.

Nothing is remembered between two calls of ``advance``: servers and migrations are read from Nova.
A cold migration ends when somebody confirms it (Nova's ``resize_confirm_window`` is 0 by default);
until then the source holds a copy of the server, and room for it in placement.

A server whose compute host is dead is evacuated: Nova makes it anew on the target. Nova itself only
asks that no report comes from the host, so that a server may then run twice. Here an administrator
has to say that the host is off: by forcing its compute service down.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from laas_service.app.ports.compute import MoveProgress, MoveStage, ServerMoves

COLD = "migration"
"""The type of a cold migration; a resize of the server's owner has another one."""

EVACUATION = "evacuation"
"""The type of the migration of a server whose host is dead."""

FINISHED = "finished"
"""The status of a cold migration that waits to be confirmed or reverted."""

FAILED = ("error", "failed")
"""The status of a migration that failed."""

TO_VERIFY = "VERIFY_RESIZE"
"""The status of a server whose cold migration or resize waits to be confirmed or reverted."""

AT_REST = ("SHUTOFF", "SHELVED", "SHELVED_OFFLOADED")
"""The status of servers that do not run."""

LOCKED = "stopped for the move of allocation"
"""The beginning of the reason of a lock."""

COLD_FROM = ("ACTIVE", "SHUTOFF")
LIVE_FROM = ("ACTIVE", "PAUSED")
"""The status of servers that Nova migrates."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server as Nova shows it. ``task`` is what Nova does with it now, None: nothing.

    ``disk_gb`` is the size of its local disks, by its flavor: those that are not volumes. ``lock``
    is the reason of its lock, None: it is not locked.
    """

    id: str
    project_id: str
    status: str
    task: str | None = None
    fault: str = ""
    disk_gb: int = 0
    lock: str | None = None


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration or resize of a server; ``target`` is None until the scheduler has chosen it."""

    kind: str
    status: str
    source: str
    target: str | None


@dataclass(frozen=True, slots=True)
class ComputeService:
    """The compute service of a host. ``forced_down``: an administrator says that it is off."""

    up: bool = True
    forced_down: bool = False


class Servers(Protocol):
    """The calls to Nova, with the errors of ``adapters.nova.servers.ServerCalls``.

    Those that change something return the text of a refusal.
    """

    def servers_on(self, host: str) -> Mapping[str, Server]: ...

    def compute_service(self, host: str) -> ComputeService: ...

    def migrations(self, server: str) -> Sequence[Migration]: ...

    def migrate(self, server: str, host: str, *, live: bool) -> str | None: ...

    def evacuate(self, server: str, host: str) -> str | None: ...

    def confirm(self, server: str) -> str | None: ...

    def revert(self, server: str) -> str | None: ...

    def stop(self, server: str) -> str | None: ...

    def start(self, server: str) -> str | None: ...

    def lock(self, server: str, reason: str) -> str | None: ...

    def unlock(self, server: str) -> str | None: ...


def advance(nova: Servers, moves: ServerMoves, *, shared_disks: bool = False) -> MoveProgress:
    """See ``Compute.move_servers``; with ``shared_disks`` local disks outlive their host.

    Of each host one server moves at a time, so that it stops as short as possible; those of
    several hosts, and all those of a dead host, move at the same time.
    """
    work = Work(nova, moves, shared_disks)
    if moves.stage is MoveStage.START:
        return work.of_locked(work.start_again)
    if moves.stage is MoveStage.UNLOCK:
        return work.of_locked(work.unlock)
    if moves.stage is not MoveStage.MOVE:
        return work.at_rest(work.stop)
    joining = sorted(set(moves.targets.values()))
    seen = {host: nova.servers_on(host) for host in [*sorted(moves.targets), *joining]}
    for host in joining:
        for _, server in sorted(seen[host].items()):
            work.look_at_target(host, server)
    for host in sorted(moves.targets):
        waiting = [
            server
            for _, server in sorted(seen[host].items())
            if not work.is_under_way_or_stuck(host, server)
        ]
        work.start_one(host, waiting)
    return MoveProgress(tuple(work.arrived), tuple(work.under_way), tuple(work.stuck))


def running(nova: Servers, moves: ServerMoves) -> MoveProgress:
    """See ``Compute.running``."""
    work = Work(nova, moves, shared_disks=False)
    return work.at_rest(work.ask_to_stop)


@dataclass
class Work:
    """One call of ``advance``, or a part of one of ``slot_moves.settle``.

    ``moving`` are the hosts of which a server moves already.
    """

    nova: Servers
    moves: ServerMoves
    shared_disks: bool
    arrived: list[str] = field(default_factory=list)
    under_way: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    moving: set[str] = field(default_factory=set)
    services: dict[str, ComputeService] = field(default_factory=dict)

    def at_rest(self, act: Callable[[str, Server], None]) -> MoveProgress:
        """``act`` on each server that runs on a host to be emptied, given its name in sentences."""
        for host in sorted(self.moves.targets):
            for _, server in sorted(self.nova.servers_on(host).items()):
                if self._service(host).forced_down or server.status in AT_REST:
                    continue
                name = f"server {server.id} on {host}"
                if not self._stops_or_cannot(name, server):
                    act(name, server)
        return MoveProgress(under_way=tuple(self.under_way), stuck=tuple(self.stuck))

    def _stops_or_cannot(self, name: str, server: Server) -> bool:
        """Whether a server that runs stops or moves now, or cannot be stopped; noted then."""
        if server.project_id != self.moves.project_id:
            self.stuck.append(f"{name} belongs to another project")
        elif server.task is not None:
            self.under_way.append(name)
        elif server.status != "ACTIVE":
            self.stuck.append(f"{name} is {server.status}; stop or delete it")
        else:
            return False
        return True

    def ask_to_stop(self, name: str, server: Server) -> None:
        self.stuck.append(f"{name} runs; stop it")

    def stop(self, name: str, server: Server) -> None:
        """Stop a server; with ``locks`` it is locked before."""
        ours = server.lock == self._reason
        if not self.moves.locks:
            self._note(name, self.nova.stop(server.id))
        elif server.lock is not None and not ours:
            self.stuck.append(f"{name} is locked; stop it, or unlock it")
        else:
            refusal = None if ours else self.nova.lock(server.id, self._reason)
            self._note(name, refusal or self.nova.stop(server.id))

    def of_locked(self, act: Callable[[Server], str | None]) -> MoveProgress:
        """One call of a stage for the servers that ``STOP`` has locked."""
        for host in sorted({*self.moves.targets, *self.moves.targets.values()}):
            for _, server in sorted(self.nova.servers_on(host).items()):
                if server.lock == self._reason:
                    self._note(f"server {server.id} on {host}", act(server))
        return MoveProgress(under_way=tuple(self.under_way), stuck=tuple(self.stuck))

    def start_again(self, server: Server) -> str | None:
        """Start a server that is stopped; unlock it once it runs, or cannot be started."""
        if server.task is not None:
            return None
        return self.nova.start(server.id) if server.status == "SHUTOFF" else self.unlock(server)

    def unlock(self, server: Server) -> str | None:
        return self.nova.unlock(server.id)

    def _note(self, name: str, refusal: str | None) -> None:
        """Note a server as under way, or why it is stuck."""
        (self.stuck if refusal else self.under_way).append(f"{name}{_because(refusal or '')}")

    @property
    def _reason(self) -> str:
        """The reason of the lock of servers that were stopped."""
        return f"{LOCKED} {self.moves.allocation_id}"

    def look_at_target(self, host: str, server: Server) -> None:
        """Confirm a server that came from a host to be emptied; wait for one that moves."""
        settled = server.status not in (TO_VERIFY, "ERROR") and server.task is None
        if settled or server.project_id != self.moves.project_id:
            return
        newest = next(iter(self.nova.migrations(server.id)), None)
        if newest is None or self.moves.targets.keys().isdisjoint((newest.source, newest.target)):
            return
        if server.status == "ERROR" and newest.source not in self.moves.targets:
            return  # it is where it stays; the change has turned back
        way = f"server {server.id} from {newest.source} to {newest.target}"
        self.moving.add(newest.source)
        if server.status == "ERROR":
            self.stuck.append(f"{way} is in error{_because(server.fault)}")
        elif server.status != TO_VERIFY or newest.status != FINISHED:
            self.under_way.append(way)
        elif newest.kind != COLD:
            self.stuck.append(f"{way}: its owner has to confirm or revert its resize")
        elif refusal := self.nova.confirm(server.id):
            self.stuck.append(f"{way} is not confirmed: {refusal}")
        else:
            self.arrived.append(way)

    def is_under_way_or_stuck(self, host: str, server: Server) -> bool:
        """Whether a server on a host to be emptied cannot be migrated now."""
        name = f"server {server.id} on {host}"
        if server.project_id != self.moves.project_id:
            self.stuck.append(f"{name} belongs to another project")
        elif server.status == "ERROR" and not self._was_not_evacuated(host, server):
            self.stuck.append(f"{name} is in error{_because(server.fault)}")
        elif server.task is not None:
            self.moving.add(host)
            self.under_way.append(self._with_failure(name, host, server))
        elif server.status == TO_VERIFY:
            self._send_back(name, host, server)
        elif not self._migrates_live(server) and server.status not in (*COLD_FROM, "ERROR"):
            self.stuck.append(f"{name} is {server.status}; start or stop it")
        else:
            return False
        return True

    def start_one(self, host: str, waiting: Sequence[Server]) -> None:
        """Migrate the first of these servers that Nova lets go, unless one moves already.

        Those of a dead host have stopped: all of them are evacuated.
        """
        for server in waiting:
            name = f"server {server.id} on {host}"
            if host in self.moving and self._service(host).up:
                self.under_way.append(f"{name} is next")
                return
            text = self._with_failure(name, host, server)
            if refusal := self._start(host, server):
                self.stuck.append(f"{name}: {refusal}")
                continue
            self.moving.add(host)
            self.under_way.append(text)

    def _start(self, host: str, server: Server) -> str | None:
        """Ask Nova to move a server; returns why it stays."""
        target, service = self.moves.targets[host], self._service(host)
        if service.up:
            return self.nova.migrate(server.id, target, live=self._migrates_live(server))
        if not service.forced_down:
            return (
                f"nova-compute on {host} is down; start it, or switch the host off and then tell "
                f"Nova so: openstack compute service set --down {host} nova-compute"
            )
        if server.disk_gb and not self.shared_disks:
            return (
                f"an evacuation would lose its {server.disk_gb} GB of local disks on {host}; "
                f"delete it, start {host} again, or evacuate it to {target} by hand"
            )
        return self.nova.evacuate(server.id, target)

    def _service(self, host: str) -> ComputeService:
        """The compute service of a host; read once in a pass."""
        if host not in self.services:
            self.services[host] = self.nova.compute_service(host)
        return self.services[host]

    def _was_not_evacuated(self, host: str, server: Server) -> bool:
        """Whether an evacuation of the server off this host has failed, and may be tried again."""
        newest = next(iter(self.nova.migrations(server.id)), None)
        if newest is None or newest.kind != EVACUATION:
            return False
        return newest.source == host and newest.status in FAILED

    def _send_back(self, name: str, host: str, server: Server) -> None:
        """Revert a migration that came from a target (the change has turned back)."""
        newest = next(iter(self.nova.migrations(server.id)), None)
        ours = newest is not None and newest.kind == COLD and newest.target == host
        if newest is None or not ours or newest.source not in self.moves.targets.values():
            self.stuck.append(f"{name}: its migration or resize has to be confirmed or reverted")
            return
        self.moving.add(host)
        refusal = self.nova.revert(server.id) if newest.status == FINISHED else None
        if refusal:
            self.stuck.append(f"{name} is not sent back: {refusal}")
        else:
            self.under_way.append(name)

    def _migrates_live(self, server: Server) -> bool:
        return self.moves.live and server.status in LIVE_FROM

    def _with_failure(self, name: str, host: str, server: Server) -> str:
        """The name, with a remark if the last migration that ended was to failed."""
        target = self.moves.targets[host]
        failed = [m for m in self.nova.migrations(server.id) if m.status in FAILED]
        if any(m.source == host and m.target in (None, target) for m in failed):
            return f"{name}, whose last migration to {target} failed (see its events in Nova)"
        return name


def _because(fault: str) -> str:
    return f": {fault}" if fault else ""
