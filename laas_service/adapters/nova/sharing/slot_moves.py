# SPDX-License-Identifier: Apache-2.0

"""The next step of the servers that are beyond the slots of an allocation on a host.

As in ``server_moves`` nothing is remembered between two calls. One server moves at a time, from the
first host of the plan that has too many to the first of its targets with a free slot. A server
that is migrated cold has a slot on both hosts until it is confirmed.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from laas_service.adapters.nova.server_moves import Server, Servers, Work
from laas_service.app.ports.compute import MoveProgress, ServerMoves, SlotMoves


@dataclass(frozen=True, slots=True)
class _OfSlots:
    """The calls to Nova, with the servers that hold slots of the allocation only."""

    nova: Servers
    holders: Mapping[str, Collection[str]]

    def servers_on(self, host: str) -> dict[str, Server]:
        held = self.holders.get(host, ())
        return {id: one for id, one in self.nova.servers_on(host).items() if id in held}


@dataclass
class _Pass:
    """One call of ``settle``."""

    nova: Servers
    moves: SlotMoves
    holders: Mapping[str, Collection[str]]
    shared_disks: bool
    servers: dict[str, dict[str, Server]] = field(default_factory=dict)
    arrived: list[str] = field(default_factory=list)
    under_way: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)

    def on(self, host: str) -> dict[str, Server]:
        """The servers of the allocation on a host; read once in a pass."""
        if host not in self.servers:
            self.servers[host] = _OfSlots(self.nova, self.holders).servers_on(host)
        return self.servers[host]

    def excess(self, host: str) -> int:
        """How many servers on a host are beyond its slots."""
        return max(0, len(self.on(host)) - self.moves.kept.get(host, 0))

    def crowded(self) -> list[str]:
        """The hosts with more consumers than slots."""
        return sorted(
            host for host, held in self.holders.items() if len(held) > self.moves.kept.get(host, 0)
        )

    def has_room(self, host: str) -> bool:
        return len(self.holders.get(host, ())) < self.moves.kept.get(host, 0)

    def work(self, source: str, target: str) -> Work:
        """One pair of hosts, as ``server_moves`` moves servers between them."""
        handover = self.moves.handover
        pair = ServerMoves(
            handover.allocation_id, handover.project_id, {source: target}, self.moves.live
        )
        return Work(self.nova, pair, self.shared_disks)

    def take_over(self, work: Work) -> None:
        self.arrived += work.arrived
        self.under_way += work.under_way
        self.stuck += work.stuck

    def confirm(self) -> None:
        """Confirm the servers that came from a host with too many; wait for those that move."""
        for source, target in self.pairs():
            work = self.work(source, target)
            for _, server in sorted(self.on(target).items()):
                work.look_at_target(target, server)
            self.take_over(work)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The hosts of the plan in order, then other hosts with too many and those with room."""
        yield from dict.fromkeys(self.moves.planned)
        if self.moves.planned:
            return
        for source in self.crowded():
            for target in sorted(self.moves.kept):
                if target != source and self.moves.kept[target]:
                    yield source, target

    def start(self) -> None:
        """Migrate one server, from the first host that has too many to one with a free slot."""
        for source, target in self.pairs():
            if not self.excess(source) or not self.has_room(target):
                continue
            work = self.work(source, target)
            waiting = [
                server
                for _, server in sorted(self.on(source).items())
                if not work.is_under_way_or_stuck(source, server)
            ]
            if work.under_way:
                self.under_way += work.under_way
                return
            work.start_one(source, waiting)
            self.take_over(work)
            if work.under_way:
                return


def settle(
    nova: Servers,
    moves: SlotMoves,
    holders: Mapping[str, Collection[str]],
    *,
    shared_disks: bool = False,
) -> MoveProgress:
    """See ``Compute.settle_slots``. ``holders`` are the consumers with slots, by host.

    Without consent what is beyond the slots is stuck until its owner takes it away.
    """
    work = _Pass(nova, moves, holders, shared_disks)
    if moves.consents:
        work.confirm()
        if not (work.arrived or work.under_way):
            work.start()
    if not (work.arrived or work.under_way or work.stuck):
        work.stuck += [_beyond(work, host) for host in work.crowded()]
    return MoveProgress(tuple(work.arrived), tuple(work.under_way), tuple(work.stuck))


def _beyond(work: _Pass, host: str) -> str:
    kept, held = work.moves.kept.get(host, 0), len(work.holders[host])
    more = held - kept
    return (
        f"{host} has {held} servers of the allocation, and it keeps {kept} "
        f"{'slot' if kept == 1 else 'slots'} there: delete or move {more}"
    )
