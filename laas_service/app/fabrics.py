# SPDX-License-Identifier: Apache-2.0

"""The use cases of fabrics: what they are made of, their use, what would fit, their states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from laas_service.app.base import Base, with_room
from laas_service.app.ports.subnet_manager import Switches
from laas_service.app.records import Caller, FabricRecord, HostState, LinkState
from laas_service.app.requests import AllocationRequest, Fit, Routing, Watched
from laas_service.app.views import inventory
from laas_service.app.views import leaf as leaf_view
from laas_service.app.views.utilization import Utilization, utilization
from laas_service.domain import shared_plane_cost
from laas_service.domain.admission.admit import largest_fit
from laas_service.domain.admission.constrained import blamed, propose
from laas_service.domain.allocation import NoFit, Request
from laas_service.domain.errors import InvalidInput, NotFound, Unavailable
from laas_service.domain.features import HostChange
from laas_service.domain.idle_links import Idle, idle
from laas_service.domain.policies.base import BudgetedPolicy
from laas_service.domain.shared_plane import SharedPlane
from laas_service.domain.topology import Link
from laas_service.messages import Applied


class Fabrics(Base):
    """What is asked of fabrics, and done to their hosts and links."""

    def ready(self) -> None:
        """Return if requests can be served. Raises: Unavailable."""
        self._store.check()

    def fabrics(self) -> list[FabricRecord]:
        """All fabrics by id."""
        return self._store.fabrics()

    def fabric(self, id: str) -> FabricRecord:
        """Raises: NotFound."""
        return self._store.fabric(id)

    def hosts(self, fabric_id: str) -> Iterator[inventory.HostEntry]:
        """Raises: NotFound."""
        return inventory.hosts(*self._with_ledger(fabric_id))

    def links(self, fabric_id: str) -> Iterator[inventory.LinkEntry]:
        """Raises: NotFound."""
        return inventory.links(*self._with_ledger(fabric_id))

    def switches(self, fabric_id: str) -> Iterator[inventory.SwitchEntry]:
        """Raises: NotFound."""
        return inventory.switches(self._store.fabric(fabric_id))

    def idle(self, fabric_id: str) -> tuple[FabricRecord, Idle]:
        """Links and switches that may be turned down, at one generation. Raises: NotFound."""
        fabric, ledger = self._with_ledger(fabric_id)
        return fabric, idle(ledger, fabric.inventory)

    def shared_plane(self, fabric_id: str) -> tuple[FabricRecord, shared_plane_cost.Reach]:
        """What is withheld for shared traffic, and where that does not reach. NotFound."""
        fabric, ledger = self._with_ledger(fabric_id)
        return fabric, shared_plane_cost.reach(ledger, fabric.inventory, ledger.shared_plane)

    def set_shared_plane(
        self, fabric_id: str, l2: tuple[int, ...], spines: tuple[int, ...]
    ) -> None:
        """Withhold these links instead of those before; without any, give all back.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: an index is not there, or nothing would be left for tenants.
            Conflict: a tenant has one of the links.
        """
        tree = self._store.fabric(fabric_id).topology.tree
        self._store.set_shared_plane(fabric_id, SharedPlane.of(tree, l2, spines))
        self._wake()

    def plane_cost(
        self, fabric_id: str, l2: tuple[int, ...], spines: tuple[int, ...]
    ) -> tuple[
        FabricRecord,
        shared_plane_cost.Reach,
        list[tuple[shared_plane_cost.Cost, shared_plane_cost.Cost]],
    ]:
        """Where a plane would reach, and what it would cost each policy: now, and then.

        Raises:
            NotFound, InvalidInput: as ``set_shared_plane``.
        """
        fabric, ledger = self._with_ledger(fabric_id)
        plane = SharedPlane.of(fabric.topology.tree, l2, spines)
        policies, work = self._rules.policies.values(), self._rules.search_budget
        costs = shared_plane_cost.costs(ledger, plane, list(policies), work)
        return fabric, shared_plane_cost.reach(ledger, fabric.inventory, plane), costs

    def set_host_state(
        self, caller: Caller, fabric_id: str, name: str, state: HostState
    ) -> inventory.HostEntry:
        """Drain, fail or repair a host; its present owner, if any, keeps it.

        Raises:
            NotFound: there is no such fabric or host.
        """
        number = self._host(fabric_id, name)
        self._store.set_host_state(fabric_id, number, state, by=caller.initiator)
        self._wake()
        return next(host for host in self.hosts(fabric_id) if host.index == number)

    def leaf(self, fabric_id: str, named: str) -> leaf_view.LeafEntry:
        """A leaf by GUID or name, and the allocations with hosts there.

        Raises:
            NotFound: there is no such fabric or switch.
            InvalidInput: the switch is no leaf, or several have the name.
        """
        fabric, ledger = self._with_ledger(fabric_id)
        switch = leaf_view.find(fabric, named)
        numbers = frozenset(leaf_view.hosts_on(fabric, switch.guid))
        hosts = tuple(host for host in inventory.hosts(fabric, ledger) if host.index in numbers)
        found = leaf_view.holders(fabric, ledger, numbers)
        tenants = (leaf_view.Tenant(self._store.allocation(id), held) for id, held in found.items())
        return leaf_view.LeafEntry(switch, hosts, tuple(tenants))

    def set_leaf_state(
        self, caller: Caller, fabric_id: str, named: str, state: HostState
    ) -> leaf_view.LeafEntry:
        """Drain the hosts of a leaf that are up, or undrain those that only this drained.

        Their owners, if any, keep them.

        Raises:
            NotFound, InvalidInput: as ``leaf``.
        """
        switch = leaf_view.find(self._store.fabric(fabric_id), named)
        self._store.set_leaf_state(fabric_id, switch.guid, state, by=caller.initiator)
        self._wake()
        return self.leaf(fabric_id, named)

    def describe_host(self, fabric_id: str, name: str, change: HostChange) -> inventory.HostEntry:
        """Record what a host is like; its owner, if any, keeps it.

        Raises:
            NotFound: there is no such fabric or host.
        """
        number = self._host(fabric_id, name)
        self._store.describe_hosts(fabric_id, {number: change})
        self._wake()
        return next(host for host in self.hosts(fabric_id) if host.index == number)

    def _host(self, fabric_id: str, name: str) -> int:
        number = self._store.fabric(fabric_id).inventory.host_numbers.get(name)
        if number is None:
            raise NotFound("host", name)
        return number

    def set_link_state(
        self, caller: Caller, fabric_id: str, link: Link, state: LinkState
    ) -> inventory.LinkEntry:
        """Fail or repair a link; its present owner, if any, keeps it.

        Raises:
            NotFound: there is no such fabric or link.
        """
        self._store.set_link_state(fabric_id, link, state, by=caller.initiator)
        self._wake()
        return next(entry for entry in self.links(fabric_id) if entry.link == link)

    def utilization(self, fabric_id: str) -> Utilization:
        """Raises: NotFound."""
        fabric, ledger = self._with_ledger(fabric_id)
        records = list(self._all_live(fabric=fabric_id))
        return replace(
            utilization(fabric, ledger, Counter(record.state for record in records)),
            degraded=sum(record.faults is not None for record in records),
            changing=sum(record.phase is not None for record in records),
        )

    def fit(self, caller: Caller, fabric_id: str, ask: AllocationRequest) -> Fit:
        """Would ``ask.hosts`` fit now, what is the largest size that would, who is in the way?

        With ``parent`` inside a container.

        Raises:
            NotFound: there is no such fabric, or no container that the caller may see.
            InvalidInput: the policy is not offered, ``hosts`` is below 1, or the fabric
                has nothing of what the constraints say.
        """
        meter = self._meter()
        policy = BudgetedPolicy(self._policy(ask.policy), meter)
        if ask.hosts < 1:
            raise InvalidInput("hosts", ask.hosts, "ask for at least 1 host")
        if ask.parent is not None:
            self._container(caller, ask.parent, fabric_id)
        ledger = self._store.ledger(fabric_id)[0].ledger(ask.parent)
        request = Request("", ask.hosts, constraints=self._constraints(fabric_id, ask))
        answer = propose(policy, ledger, request)
        if isinstance(answer, NoFit):
            answer = blamed(policy, ledger, request, answer)
            answer = with_room(policy, ledger, request, answer, caller.admin)
        most = largest_fit(policy, ledger, ledger.free_host_count + 1, request.constraints)
        return Fit(answer, most, meter.cut)

    def routing(self, fabric_id: str) -> Routing:
        """Raises: NotFound."""
        wanted = self._store.fabric(fabric_id).routes_generation
        return Routing(
            wanted,
            {name: _applied(sm, fabric_id) for name, sm in sorted(self._subnet_managers.items())},
            self._store.holding(fabric_id),
        )

    def watched(self, fabric_id: str) -> Watched:
        """What the worker that converges the fabric has seen. Raises: NotFound."""
        wanted = self._store.fabric(fabric_id).routes_generation
        holding = self._store.holding(fabric_id)
        drift, repaired = self._store.drift(fabric_id), self._store.repaired(fabric_id)
        return Watched(holding.applied == wanted, drift, repaired, holding)


def _applied(subnet_manager: Switches, fabric_id: str) -> Applied:
    try:
        return subnet_manager.applied(fabric_id)
    except Unavailable as error:
        return Applied(None, str(error))
