# SPDX-License-Identifier: Apache-2.0

"""Observes compute hosts: their states, and servers that may not be on them."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from laas_service.app import lifecycle
from laas_service.app.handovers import host_names, is_in_compute
from laas_service.app.lifecycle import HANDED_OVER, HOLDING, State
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.compute import Compute, ComputeHost, Occupant
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord, Drift, FabricRecord
from laas_service.app.wording import reasons
from laas_service.app.worker.drift import managed
from laas_service.app.worker.route_publisher import ActingFor, Effect
from laas_service.domain.compute_hosts import HostMemory, HostRules, HostView, judge
from laas_service.domain.errors import ConcurrentUpdate, LaasError, LeaseLost
from laas_service.domain.wording import listed

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LookRules:
    """How hosts are observed.

    Looks are ``interval`` seconds apart or more. With ``stop_strangers`` servers that may not be
    on a host of an allocation are stopped. ``withholding``: which hosts no new owner gets.
    """

    interval: float = 60.0
    stop_strangers: bool = False
    withholding: HostRules = field(default_factory=HostRules)


USUAL = LookRules()


class HostObserver:
    """Observes the compute hosts of fabrics.

    A server of another project on a host of an allocation, or any server on a free host, is
    counted and told once, until it is gone. With ``repair`` the hosts of allocations that have
    one accept no new server meanwhile; servers on them run on.
    """

    def __init__(
        self,
        store: Store,
        compute: Compute,
        rules: LookRules,
        *,
        repair: bool,
        now: Callable[[], datetime],
        effect: Effect,
        acting_for: ActingFor,
    ) -> None:
        self._store = store
        self._compute = compute
        self._rules = rules
        self._repair = repair
        self._now = now
        self._effect = effect
        self._acting_for = acting_for
        self._next: dict[str, datetime] = {}
        self._looked: dict[str, datetime] = {}  # when the last look at a fabric began
        self._told: dict[str, dict[str, str]] = {}  # by fabric: strangers, by owner of the hosts

    def observe(self, fabric: FabricRecord) -> None:
        """Look at the hosts of a fabric if it is time; errors are logged. Raises: LeaseLost."""
        begun = self._now()
        if begun < self._next.get(fabric.id, begun):
            return
        try:
            self.look(fabric)
        except LeaseLost:
            raise
        except LaasError as error:
            LOG.warning("the hosts of fabric %s are not observed: %s", fabric.id, error)
        ended = self._now()
        pause = max(timedelta(seconds=self._rules.interval), ended - begun)
        self._next[fabric.id] = ended + pause

    def look(self, fabric: FabricRecord) -> None:
        """Look at the hosts of a fabric now. Raises: LaasError."""
        begun, before = self._now(), self._owners(fabric)
        seen = self._compute.look(managed(fabric))
        if seen is None:
            return
        after = self._owners(fabric)
        settled = {
            host: state
            for host, state in seen.items()
            if _ids(before.get(host, ())) == _ids(after.get(host, ()))
        }
        self._record(fabric, after, seen)
        self._looked[fabric.id] = begun
        observed = self._compute.observed()
        self._check_servers(fabric, strangers(after, settled, observed.pooled), observed.closed)

    def look_after(self, fabric_id: str, moment: datetime) -> None:
        """Look at the hosts of a fabric, unless a look began after ``moment``. Raises: LaasError.

        Hosts that an allocation leaves get no new owner before such a look: what vanished from
        them while compute was away puts them in quarantine.
        """
        looked = self._looked.get(fabric_id)
        if looked is None or looked <= moment:
            self.look(self._store.fabrics.get(fabric_id))

    def unusable(self, record: AllocationRecord) -> str:
        """Withheld hosts of those that are not handed over yet, with reasons; or empty."""
        awaited = lifecycle.awaited_hosts(record)
        if awaited is None:
            return ""
        withheld = self._store.compute_hosts.memory(record.fabric).withheld()
        if not withheld:
            return ""
        hosts = host_names(self._store.fabrics.get(record.fabric), awaited)
        return listed(f"{host} ({withheld[host][1]})" for host in hosts if host in withheld)

    def _record(
        self,
        fabric: FabricRecord,
        owners: Mapping[str, Sequence[AllocationRecord]],
        seen: Mapping[str, ComputeHost],
    ) -> None:
        """Record what follows for the hosts from a look."""
        views = {host: _view(state, owners.get(host, ())) for host, state in seen.items()}
        names, now = managed(fabric), self._now().timestamp()
        left = [host for host, records in owners.items() if all(map(_is_leaving, records))]
        near = self._compute.nearest(sorted(names - views.keys()))

        def judged(memory: HostMemory) -> HostMemory:
            return judge(memory, names, views, now, self._rules.withholding, left, near)

        before = self._store.compute_hosts.memory(fabric.id)
        if judged(before) == before:
            return
        memory = self._store.compute_hosts.judged(fabric.id, judged)
        for host, (_, why) in sorted(memory.withheld().items()):
            if host not in before.withheld():
                LOG.warning("fabric %s: host %s gets no new owner: %s", fabric.id, host, why)
        if memory.alarm and not before.alarm:
            LOG.error("fabric %s: %s", fabric.id, memory.alarm)

    def _owners(self, fabric: FabricRecord) -> dict[str, list[AllocationRecord]]:
        """The allocations that hold hosts or slots of them, by Nova's name of the host."""
        owners: dict[str, list[AllocationRecord]] = {}
        for record in every_allocation(self._store.allocations, fabric=fabric.id, states=HOLDING):
            if is_in_compute(record, self._compute):
                for host in host_names(fabric, record.held):
                    owners.setdefault(host, []).append(record)
        return owners

    # -- servers ------------------------------------------------------------------------

    def _check_servers(
        self, fabric: FabricRecord, found: Collection["Strangers"], closed: Collection[str]
    ) -> None:
        """Act on servers that may not be where they are; ``closed`` as in ``Observed``."""
        told, known = self._told.get(fabric.id, {}), {}
        for group in found:
            known[group.owner] = group.text
            if told.get(group.owner) != group.text:
                self._tell(fabric, group)
        for owner in told.keys() - known.keys():
            text = f"gone: {told[owner]}"
            self._store.observations.note_repaired(fabric.id, Drift.STRANGERS, text)
            LOG.info("fabric %s: %s", fabric.id, text)
        self._told[fabric.id] = known
        if not self._repair:
            return
        servers = [server for group in found if group.record for server in group.servers]
        ours, hosts = managed(fabric), {server.host for server in servers}
        if ours.intersection(closed) != hosts:
            self._effect("close", lambda: self._compute.close(ours, hosts))
        if self._rules.stop_strangers:
            for server in servers:
                self._stop(server)

    def _tell(self, fabric: FabricRecord, group: "Strangers") -> None:
        """Count a finding, and record it in the history of the allocation."""
        LOG.error("fabric %s: %s", fabric.id, group.text)
        self._store.observations.note_drift(fabric.id, Drift.STRANGERS, group.text)
        record = group.record
        if record is None or record.state not in HANDED_OVER:
            return
        with self._acting_for(record.initiator):
            reason = reasons.strangers_reason(group.servers_text, closed=self._repair)
            try:
                self._store.allocations.transition(record, record.state, reason, error=record.error)
            except ConcurrentUpdate:
                LOG.info("allocation %s changed meanwhile; its history lacks this", record.id)

    def _stop(self, server: Occupant) -> None:
        try:
            self._effect("stop", lambda: self._compute.stop(server.consumer))
        except LeaseLost:
            raise
        except LaasError as error:
            LOG.warning("server %s on host %s: %s", server.consumer, server.host, error)


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
