# SPDX-License-Identifier: Apache-2.0

"""Compute hosts: their states, and servers that may not be on them; pure.

A server of another project on a host of an allocation, or any server on a free host, is counted
and told once, until it is gone. Where drift is repaired, the hosts of allocations that have one
accept no new server meanwhile; servers on them run on.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from laas_service.app import lifecycle
from laas_service.app.handovers import host_names, managed_hosts
from laas_service.app.lifecycle import HANDED_OVER, HOLDING, State
from laas_service.app.ports.compute import ComputeHost, Occupant
from laas_service.app.records import AllocationRecord, Drift, FabricRecord
from laas_service.app.wording import reasons
from laas_service.app.worker import instructions as do
from laas_service.app.worker.instructions import ActFor, Log, Steps
from laas_service.app.worker.memory import HostsMemory
from laas_service.app.worker.round import Round
from laas_service.domain.compute_hosts import HostMemory, HostView, judge
from laas_service.domain.errors import ConcurrentUpdate, LaasError
from laas_service.domain.wording import listed


def observe(round: Round, memory: HostsMemory) -> Steps[HostsMemory]:
    """Look at the hosts if it is time; errors are logged."""
    if memory.next_look is not None and round.now < memory.next_look:
        return memory
    begun = yield from do.time()
    try:
        memory = yield from look(round, memory)
    except LaasError as error:
        yield Log(f"the hosts of fabric {round.fabric.id} are not observed: {error}")
    ended = yield from do.time()
    pause = max(timedelta(seconds=round.rules.looks.interval), ended - begun)
    return replace(memory, next_look=ended + pause)


def look(round: Round, memory: HostsMemory) -> Steps[HostsMemory]:
    """Look at the hosts now. Raises: LaasError."""
    begun, before = (yield from do.time()), (yield from _owners(round))
    seen = yield from do.look(managed_hosts(round.fabric))
    if seen is None:
        return memory
    after = yield from _owners(round)
    settled = {
        host: state
        for host, state in seen.items()
        if _ids(before.get(host, ())) == _ids(after.get(host, ()))
    }
    yield from _judge(round, after, seen)
    memory = replace(memory, looked=begun)
    observed = yield from do.aggregates()
    found = strangers(after, settled, observed.pooled)
    return (yield from _check_servers(round, memory, found, observed.closed))


def look_after(round: Round, memory: HostsMemory, moment: datetime) -> Steps[HostsMemory]:
    """Look at the hosts, unless a look began after ``moment``. Raises: LaasError.

    Hosts that an allocation leaves get no new owner before such a look: what vanished from
    them while compute was away puts them in quarantine.
    """
    if memory.looked is None or memory.looked <= moment:
        return (yield from look(round, memory))
    return memory


def unusable(
    fabric: FabricRecord, withheld: Mapping[str, tuple[float, str]], record: AllocationRecord
) -> str:
    """Withheld hosts of those that are not handed over yet, with reasons; or empty."""
    awaited = lifecycle.awaited_hosts(record)
    if awaited is None or not withheld:
        return ""
    hosts = host_names(fabric, awaited)
    return listed(f"{host} ({withheld[host][1]})" for host in hosts if host in withheld)


def _judge(
    round: Round,
    owners: Mapping[str, Sequence[AllocationRecord]],
    seen: Mapping[str, ComputeHost],
) -> Steps[None]:
    """Record what follows for the hosts from a look."""
    views = {host: _view(state, owners.get(host, ())) for host, state in seen.items()}
    names, now = managed_hosts(round.fabric), (yield from do.time()).timestamp()
    left = [host for host, records in owners.items() if all(map(_is_leaving, records))]
    near = yield from do.nearest(tuple(sorted(names - views.keys())))

    def judged(memory: HostMemory) -> HostMemory:
        return judge(memory, names, views, now, round.rules.looks.withholding, left, near)

    before, memory = yield from do.judge_hosts(judged)
    for host, (_, why) in sorted(memory.withheld().items()):
        if host not in before.withheld():
            yield Log(f"fabric {round.fabric.id}: host {host} gets no new owner: {why}")
    if memory.alarm and not before.alarm:
        yield Log(f"fabric {round.fabric.id}: {memory.alarm}", logging.ERROR)


def _owners(round: Round) -> Steps[dict[str, list[AllocationRecord]]]:
    """The allocations that hold hosts or slots of them, by Nova's name of the host."""
    owners: dict[str, list[AllocationRecord]] = {}
    records = yield from do.allocations(HOLDING)
    for record in records:
        if round.hands_over(record):
            for host in host_names(round.fabric, record.held):
                owners.setdefault(host, []).append(record)
    return owners


# -- servers ------------------------------------------------------------------------------


def _check_servers(
    round: Round, memory: HostsMemory, found: Collection["Strangers"], closed: Collection[str]
) -> Steps[HostsMemory]:
    """Act on servers that may not be where they are; ``closed`` as in ``ObservedAggregates``."""
    known = {group.owner: group.text for group in found}
    for group in found:
        if memory.strangers.get(group.owner) != group.text:
            yield from _tell(round, group)
    for owner in memory.strangers.keys() - known.keys():
        text = f"gone: {memory.strangers[owner]}"
        yield from do.note_repaired(round.fabric.id, Drift.STRANGERS, text)
        yield Log(f"fabric {round.fabric.id}: {text}", logging.INFO)
    memory = replace(memory, strangers=known)
    if not round.rules.repair:
        return memory
    servers = [server for group in found if group.record for server in group.servers]
    ours, hosts = managed_hosts(round.fabric), frozenset(server.host for server in servers)
    if ours.intersection(closed) != hosts:
        yield from do.close(ours, hosts)
    if round.rules.looks.stop_strangers:
        for server in servers:
            try:
                yield from do.stop(server.consumer)
            except LaasError as error:
                yield Log(f"server {server.consumer} on host {server.host}: {error}")
    return memory


def _tell(round: Round, group: "Strangers") -> Steps[None]:
    """Count a finding, and record it in the history of the allocation."""
    yield Log(f"fabric {round.fabric.id}: {group.text}", logging.ERROR)
    yield from do.note_drift(round.fabric.id, Drift.STRANGERS, group.text)
    record = group.record
    if record is None or record.state not in HANDED_OVER:
        return
    yield ActFor(record.initiator)
    reason = reasons.strangers_reason(group.servers_text, closed=round.rules.repair)
    try:
        yield from do.transition(record, record.state, reason, error=record.error)
    except ConcurrentUpdate:
        text = f"allocation {record.id} changed meanwhile; its history lacks this"
        yield Log(text, logging.INFO)
    yield ActFor(None)


@dataclass(frozen=True, slots=True)
class Strangers:
    """Servers that may not be on the hosts of ``record``, or on free hosts if it is None."""

    record: AllocationRecord | None
    servers: tuple[Occupant, ...]

    @property
    def owner(self) -> str:
        return _id(self.record) or "free hosts"

    @property
    def servers_text(self) -> str:
        return listed(
            f"{server.host} runs {server.consumer} of "
            + (f"project {server.project_id}" if server.project_id else "an unknown project")
            for server in self.servers
        )

    @property
    def text(self) -> str:
        """The sentence that is told."""
        whose = f"hosts of allocation {self.record.id}" if self.record else "free hosts"
        return f"servers that may not be on {whose}: {self.servers_text}"


def strangers(
    owners: Mapping[str, Sequence[AllocationRecord]],
    seen: Mapping[str, ComputeHost],
    pooled: Collection[str],
) -> list[Strangers]:
    """Servers on hosts that do not belong to their project, by owner of the hosts.

    ``owners`` are the allocations that hold hosts or slots of them, by host; servers on a shared
    host that belong to none are told to the first. Free hosts count if they are in the pool; until
    then they may run servers of anybody.
    """
    found: dict[str, list[Occupant]] = {}
    for host in sorted(seen):
        records = owners.get(host, ())
        if not records and host not in pooled:
            continue
        projects = {record.project_id for record in records}
        servers = [o for o in seen[host].servers if o.project_id not in projects]
        if servers:
            found.setdefault(_id(records[0] if records else None), []).extend(servers)
    every = {record.id: record for records in owners.values() for record in records}
    return [Strangers(every.get(id), tuple(found[id])) for id in sorted(found)]


def _view(state: ComputeHost, owners: Sequence[AllocationRecord]) -> HostView:
    """What counts of a host. Servers of others matter until it is handed over."""
    settled = any(owner.state is not State.ALLOCATING for owner in owners)
    projects = {owner.project_id for owner in owners}
    strangers = [
        f"server {server.consumer} runs there"
        for server in state.servers
        if not settled and server.project_id not in projects
    ]
    servers = frozenset(server.consumer for server in state.servers)
    return HostView(
        state.up,
        state.enabled,
        state.reason,
        servers,
        listed(strangers),
        state.unfit,
        state.name,
    )


def _is_leaving(record: AllocationRecord) -> bool:
    """Whether an owner has left its hosts, which are not free yet."""
    return record.state is State.RELEASING and bool(record.handed_back)


def _ids(records: Sequence[AllocationRecord]) -> set[str]:
    return {record.id for record in records}


def _id(record: AllocationRecord | None) -> str:
    return record.id if record else ""
