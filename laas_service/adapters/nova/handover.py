# SPDX-License-Identifier: Apache-2.0

"""How hosts are handed over in Nova: they join the aggregate of an allocation, or it is fenced.

The order of the calls follows from how Nova's schedulers learn of aggregates
(doc/source/install/nova.rst).
"""

from collections.abc import Collection, Mapping

from laas_service.adapters.nova.aggregates import Aggregate, Aggregates
from laas_service.adapters.nova.hosts import Hosts
from laas_service.adapters.nova.hypervisors import Hypervisor
from laas_service.adapters.nova.keys import OwnKeys, aggregate_name
from laas_service.adapters.nova.members import Members
from laas_service.adapters.nova.nodes import NodeCare
from laas_service.adapters.nova.pool import PoolAggregates
from laas_service.adapters.nova.shares import SlotChanges
from laas_service.adapters.nova.strangers import StrangerSearch
from laas_service.app.ports.compute import Handover
from laas_service.domain.compute_hosts import UNKNOWN, HostView
from laas_service.domain.errors import Conflict, HostsBusy, NotFound, Unavailable
from laas_service.domain.wording import listed


class HandingOver:
    """Makes the aggregate of an allocation hold exactly its hosts, for its project."""

    def __init__(
        self,
        keys: OwnKeys,
        aggregates: Aggregates,
        hosts: Hosts,
        members: Members,
        pool: PoolAggregates,
        strangers: StrangerSearch,
        slots: SlotChanges,
        nodes: NodeCare,
    ) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._hosts = hosts
        self._members = members
        self._pool = pool
        self._strangers = strangers
        self._slots = slots
        self._nodes = nodes

    def hand_over(self, handover: Handover, ready: Collection[str] = ()) -> None:
        """See ``Compute.hand_over``. Repeating it changes nothing, but refreshes all schedulers.

        An existing aggregate is corrected before any check, so that it admits no wrong
        project even after an error. The hosts join the pool before the aggregate, so that
        they never accept other projects. If another project's server appears between the
        first and the last check, the aggregate is closed again.
        """
        desired = self._keys.desired(handover)
        name, hosts = aggregate_name(handover.allocation_id), set(handover.hosts)
        present = self._aggregates.get(name)
        in_place = present and present.hosts == hosts and present.isolates_as(desired)
        if present and in_place and self._aggregates.comparing:
            self._confirm(present, handover, desired)
            return
        if present:
            self._set_right(present, hosts, desired)
        hypervisors = self._hosts.known(hosts)
        _check_ready(hosts.intersection(ready), hypervisors)
        _check_known(hosts, hypervisors)
        self._strangers.check(handover, hypervisors)
        self._nodes.admit(self._members.lacking(present, hosts), hypervisors)
        self._pool.join(hosts)
        self._slots.ensure(handover, hypervisors)
        aggregate = self._members.ensured(name, desired)
        aggregate = self._members.add(aggregate, self._members.lacking(aggregate, hosts))
        aggregate = self._members.ensure_mirrored(aggregate, handover, hypervisors)
        aggregate = self._members.write(aggregate, desired)
        self._aggregates.forget()  # somebody may have changed some meanwhile
        _check_written(self._aggregates.get(name), handover, desired)
        try:
            self._strangers.check(handover, hypervisors, within=aggregate)
        except Conflict:
            if not in_place:
                self._members.fence(aggregate)
            raise

    def _set_right(
        self, present: Aggregate, hosts: Collection[str], desired: Mapping[str, str]
    ) -> None:
        """Have an aggregate admit no wrong project to these hosts, and have no other hosts.

        Raises:
            HostsBusy: nodes that leave may not be free yet; they stay in the aggregate.
        """
        leaving = present.hosts.difference(hosts)
        dirty = self._nodes.leaving(present, leaving)
        self._slots.close(present, leaving)
        self._correct(present, {*hosts, *dirty}, desired)
        if dirty:
            raise HostsBusy(f"hosts cannot be taken back: {listed(dirty.values())}")

    def _correct(
        self, aggregate: Aggregate, hosts: Collection[str], desired: Mapping[str, str]
    ) -> None:
        """Make an aggregate admit only the desired project, and only to these hosts.

        A closed aggregate stays closed, because another project may have servers there. Stray
        hosts leave before the metadata admit the desired project.
        """
        stray = aggregate.hosts.difference(hosts)
        closed = aggregate.isolates_as(self._keys.fenced)
        if stray and not aggregate.isolates_as(desired):
            self._members.fence(aggregate)
        elif not closed:
            self._members.write(aggregate, desired)
        if stray:
            self._pool.join(stray & self._hosts.known(stray).keys())
            self._members.leave(aggregate, stray)
            if not closed:
                self._members.ensured(aggregate.name, desired)

    def _confirm(
        self, aggregate: Aggregate, handover: Handover, desired: Mapping[str, str]
    ) -> None:
        """Touch an aggregate that is in place; look closer at hosts that seem to have strangers."""
        written = self._members.write(aggregate, desired)
        _check_written(written, handover, desired)
        self._pool.join(handover.hosts)
        hypervisors = self._hosts.shared()
        if missing := set(handover.hosts) - hypervisors.keys():
            hypervisors = {**hypervisors, **self._hosts.known(missing)}
        _check_known(handover.hosts, hypervisors)
        self._members.ensure_mirrored(written, handover, hypervisors)
        self._slots.ensure(handover, hypervisors)
        suspects = self._strangers.suspects(handover, hypervisors)
        self._strangers.check(handover, self._hosts.known(suspects), suspects)

    def fence(self, allocation_id: str) -> None:
        """See ``Compute.fence``."""
        present = self._aggregates.get(aggregate_name(allocation_id))
        if present is not None:
            self._members.fence(present)


def _check_ready(hosts: Collection[str], hypervisors: Mapping[str, Hypervisor]) -> None:
    """Raise Unavailable if one of these hosts, as they are now, could start no server."""
    problems = []
    for host in sorted(hosts):
        seen = hypervisors.get(host)
        why = HostView(seen.up, seen.enabled, seen.reason).problem if seen else UNKNOWN
        problems += [f"{host} is {why}"] if why else []
    if problems:
        raise Unavailable(f"hosts cannot be handed over now: {listed(problems)}")


def _check_known(hosts: Collection[str], hypervisors: Mapping[str, Hypervisor]) -> None:
    """Raise NotFound if Nova does not know one of these hosts."""
    if unknown := set(hosts) - hypervisors.keys():
        raise NotFound("compute host", listed(sorted(unknown)))


def _check_written(
    written: Aggregate | None, handover: Handover, desired: Mapping[str, str]
) -> None:
    """Raise Unavailable if an aggregate is not as it was written."""
    if written is None or written.hosts != set(handover.hosts) or not written.isolates_as(desired):
        name = aggregate_name(handover.allocation_id)
        raise Unavailable(f"aggregate {name} is not as it was written: somebody changes it")
