# SPDX-License-Identifier: Apache-2.0

"""Changes of an aggregate in Nova: its keys, its compute hosts, and Ironic's nodes in placement.

Each change may be repeated at any time, even after a lost answer. None relies on the answer to a
single write: after a refusal the state is read again.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from laas_service.adapters.nova.aggregates import Aggregate, AggregateCalls, Aggregates
from laas_service.adapters.nova.hosts import Hosts
from laas_service.adapters.nova.hypervisors import Hypervisor
from laas_service.adapters.nova.keys import NODE, OwnKeys
from laas_service.adapters.nova.placement import PlacementCalls
from laas_service.app.ports.compute import Handover
from laas_service.domain.errors import Conflict, LaasError, NotFound, Unavailable
from laas_service.domain.wording import listed

LOG = logging.getLogger(__name__)


class Members:
    """Writes aggregates. Errors of all methods: ``Conflict`` for what Nova or placement refuses."""

    def __init__(
        self,
        calls: AggregateCalls,
        placement: PlacementCalls,
        aggregates: Aggregates,
        hosts: Hosts,
        keys: OwnKeys,
    ) -> None:
        self._calls = calls
        self._placement = placement
        self._aggregates = aggregates
        self._hosts = hosts
        self._keys = keys

    # -- keys ---------------------------------------------------------------------

    def ensured(self, name: str, desired: Mapping[str, str]) -> Aggregate:
        """The aggregate of this name, created and corrected if necessary."""
        present = self._aggregates.get(name)
        if present is None:
            made = self._changed(lambda: self._calls.create(name))
            present = self._aggregates.get(name)
            if present is None:
                raise Conflict(f"aggregate {name} cannot be created: {made or 'it vanished'}")
        return present if present.isolates_as(desired) else self.write(present, desired)

    def write(self, aggregate: Aggregate, desired: Mapping[str, str]) -> Aggregate:
        """Write the metadata even if unchanged, as that makes every scheduler read them again."""
        keys = {**aggregate.corrections(desired), **desired}
        written = self._changed(lambda: self._calls.set_metadata(aggregate, keys))
        if isinstance(written, str):
            raise Conflict(f"cannot set the metadata of aggregate {aggregate.name}: {written}")
        return written

    def fence(self, aggregate: Aggregate) -> Aggregate:
        """Have an aggregate admit no project. Raises: Unavailable, if somebody changes it."""
        written = self.write(aggregate, self._keys.fenced)
        if not written.isolates_as(self._keys.fenced):
            raise Unavailable(f"aggregate {aggregate.name} is not closed: somebody changes it")
        return written

    def delete(self, aggregate: Aggregate) -> None:
        """Have no such aggregate."""
        for node in sorted(aggregate.nodes):
            self._withdraw(aggregate, node)
        aggregate = self.leave(aggregate, aggregate.hosts - {*aggregate.nodes.values()})
        refusal = self._calls.delete(aggregate)
        self._aggregates.forget()
        if refusal and self._aggregates.get(aggregate.name) is not None:
            raise Conflict(f"aggregate {aggregate.name} is not deleted: {refusal}")

    def _changed(self, write: Callable[[], Aggregate | str]) -> Aggregate | str:
        """Carry out a write, and remember the aggregate that it left."""
        try:
            written = write()
        except LaasError:
            self._aggregates.forget()
            raise
        if isinstance(written, str):
            self._aggregates.forget()
        else:
            self._aggregates.note(written)
        return written

    # -- hosts --------------------------------------------------------------------

    def lacking(self, aggregate: Aggregate | None, hosts: Collection[str]) -> list[str]:
        """Those of these hosts that the aggregate does not have, or has as another node."""
        if aggregate is None:
            return sorted(hosts)
        node_of = self._hosts.node_of
        return sorted(
            host
            for host in hosts
            if host not in aggregate.hosts
            or (host in node_of and aggregate.nodes.get(node_of[host]) != host)
        )

    def add(self, aggregate: Aggregate, hosts: Collection[str]) -> Aggregate:
        """Add hosts; nodes together."""
        if bare := self._hosts.node_of.keys() & set(hosts):
            aggregate = self.ensure_nodes(aggregate, bare)
        for host in sorted(set(hosts) - bare):
            aggregate = self.add_host(aggregate, host)
        return aggregate

    def add_host(self, aggregate: Aggregate, host: str) -> Aggregate:
        """Add a host that was no node when hosts were listed. Raises: NotFound."""
        written = self._changed(lambda: self._calls.add_host(aggregate, host))
        if not isinstance(written, str):
            return written
        present = self._aggregates.get(aggregate.name)
        if present and host in present.hosts:
            return present
        if host not in self._hosts.listed():
            raise NotFound("compute host", host)
        if host in self._hosts.node_of:
            return self.ensure_nodes(aggregate, {host})
        raise Conflict(f"host {host} cannot join aggregate {aggregate.name}: {written}")

    def leave(self, aggregate: Aggregate, hosts: Iterable[str]) -> Aggregate:
        """Remove hosts."""
        for host in sorted(hosts):
            aggregate = self._remove(aggregate, host)
        return aggregate

    def _remove(self, aggregate: Aggregate, host: str) -> Aggregate:
        if uuids := sorted(uuid for uuid, name in aggregate.nodes.items() if name == host):
            for uuid in uuids:
                self._withdraw(aggregate, uuid)
            keys = {f"{NODE}{uuid}": None for uuid in uuids}
            unnamed = self._changed(lambda: self._calls.set_metadata(aggregate, keys))
            if isinstance(unnamed, str):
                raise Conflict(f"node {host} cannot leave aggregate {aggregate.name}: {unnamed}")
            return unnamed
        written = self._changed(lambda: self._calls.remove_host(aggregate, host))
        if not isinstance(written, str):
            return written
        present = self._aggregates.get(aggregate.name)
        if present and host in present.hosts:
            raise Conflict(f"host {host} cannot leave aggregate {aggregate.name}: {written}")
        return present or replace(aggregate, hosts=aggregate.hosts - {host})

    # -- placement ----------------------------------------------------------------

    def ensure_nodes(self, aggregate: Aggregate, hosts: Collection[str]) -> Aggregate:
        """Make those of these hosts that are nodes members of the aggregate, in Nova and placement.

        Other nodes that are members in placement alone leave, and so do those that were the hosts
        before.
        """
        node_of = self._hosts.node_of
        wanted = {node_of[host]: host for host in hosts if host in node_of}
        before = {uuid: h for uuid, h in aggregate.nodes.items() if h in wanted.values()}
        keys: dict[str, str | None] = {f"{NODE}{uuid}": None for uuid in before.keys() - wanted}
        keys |= {f"{NODE}{uuid}": h for uuid, h in wanted.items() if before.get(uuid) != h}
        if keys:
            written = self._changed(lambda: self._calls.set_metadata(aggregate, keys))
            if isinstance(written, str):
                raise Conflict(f"nodes cannot join aggregate {aggregate.name}: {written}")
            aggregate = written
        members = self._placement.members(aggregate)
        for uuid in sorted(wanted.keys() - members):
            LOG.info("node %s joins aggregate %s in placement", wanted[uuid], aggregate.name)
            if refusal := self._placement.set_member(aggregate, uuid, member=True):
                raise Conflict(
                    f"node {wanted[uuid]} cannot join aggregate {aggregate.name}: {refusal}"
                )
        known = {*node_of.values(), *before}
        for uuid in sorted((members & known) - aggregate.nodes.keys()):
            LOG.warning("node %s leaves aggregate %s in placement", uuid, aggregate.name)
            self._withdraw(aggregate, uuid)
        return aggregate

    def _withdraw(self, aggregate: Aggregate, node: str) -> None:
        if refusal := self._placement.set_member(aggregate, node, member=False):
            raise Conflict(f"node {node} cannot leave aggregate {aggregate.name}: {refusal}")

    def ensure_mirrored(
        self, aggregate: Aggregate, handover: Handover, hypervisors: Mapping[str, Hypervisor]
    ) -> Aggregate:
        """Add hosts again that placement lacks, as Nova answers 200 even if updating it failed."""
        if aggregate.nodes:
            aggregate = self.ensure_nodes(aggregate, handover.hosts)
        if not (lacking := self._unmirrored(aggregate, handover, hypervisors)):
            return aggregate
        for host in lacking:
            LOG.warning(
                "placement does not show host %s in aggregate %s; adding it again",
                host,
                aggregate.name,
            )
            aggregate = self.add(self._remove(aggregate, host), [host])
        if lacking := self._unmirrored(aggregate, handover, hypervisors):
            raise Unavailable(
                f"placement does not show host {listed(lacking)} in aggregate {aggregate.name}; "
                "if this persists, run nova-manage placement sync_aggregates"
            )
        return aggregate

    def _unmirrored(
        self, aggregate: Aggregate, handover: Handover, hypervisors: Mapping[str, Hypervisor]
    ) -> list[str]:
        members = self._placement.members(aggregate)
        return sorted(h for h in handover.hosts if not members.issuperset(hypervisors[h].providers))
