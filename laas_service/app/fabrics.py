# SPDX-License-Identifier: Apache-2.0

"""The use cases of fabrics: inventory, utilization, fit, routing, states of hosts and links."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from laas_service.app import lifecycle
from laas_service.app.lifecycle import LIVE
from laas_service.app.lookup import Lookup
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.store import Store
from laas_service.app.ports.subnet_manager import Switches
from laas_service.app.records import Caller, FabricRecord, HostState, LinkState, SwitchState
from laas_service.app.refusals import with_room
from laas_service.app.requests import (
    AllocationRequest,
    Fit,
    Observed,
    Routing,
    Watched,
    check_demand,
)
from laas_service.app.views import inventory
from laas_service.app.views import leaf as leaf_view
from laas_service.app.views.promises import PromiseEntry, promises
from laas_service.app.views.slot_fit import slot_fit
from laas_service.app.views.switch import find_switch
from laas_service.app.views.traffic import TenantTraffic, tenant_traffic
from laas_service.app.views.utilization import Utilization, utilization
from laas_service.domain import shared_plane_cost
from laas_service.domain.admission.admit import largest_fit
from laas_service.domain.admission.constrained import explain_constraints, propose
from laas_service.domain.allocation import NoFit, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import InvalidInput, NotFound, Unavailable
from laas_service.domain.faults.counters import Findings
from laas_service.domain.faults.observation import Mode
from laas_service.domain.features import HostChange
from laas_service.domain.idle_links import IdleComponents, idle_components
from laas_service.domain.ledger import LedgerView
from laas_service.domain.policies.base import BudgetedPolicy, Policy
from laas_service.domain.routing.contention import contention
from laas_service.domain.shared_plane import SharedPlane
from laas_service.domain.tenancy import Slots
from laas_service.domain.virtual_clusters.shared_slots import SharedSlots
from laas_service.messages import Applied


class Fabrics:
    """The use cases of fabrics.

    ``policies`` are those offered; ``subnet_managers`` are by name. ``search_budget`` bounds the
    searches for one request together. ``slots`` places virtual machines on shared hosts.
    ``fault_mode`` is the configured mode of observation. ``wake`` wakes a worker.
    """

    def __init__(
        self,
        store: Store,
        subnet_managers: Mapping[str, Switches],
        lookup: Lookup,
        policies: Collection[Policy],
        *,
        search_budget: int,
        slots: SharedSlots,
        fault_mode: Mode,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._subnet_managers = subnet_managers
        self._lookup = lookup
        self._policies = policies
        self._search_budget = search_budget
        self._slots = slots
        self._fault_mode = fault_mode
        self._wake = wake

    def ready(self) -> None:
        """Return if the database answers and has this release's tables. Raises: Unavailable."""
        self._store.check()

    def healthy(self) -> None:
        """Return if the database is ready and takes writes. Raises: Unavailable."""
        self._store.check()
        self._store.check_writes()

    def fabrics(self) -> list[FabricRecord]:
        """All fabrics by id."""
        return self._store.fabrics.all()

    def default(self) -> str | None:
        """The id of the fabric that is meant if none is named; see ``Lookup.default_fabric``."""
        return self._lookup.default_fabric(self._store.fabrics.ids())

    def fabric(self, id: str) -> FabricRecord:
        """Raises: NotFound."""
        return self._store.fabrics.get(id)

    def delete(self, id: str) -> FabricRecord:
        """Forget a fabric and all that is recorded of it; returns it as it was.

        What OpenSM and Nova have of it stays as it is.

        Raises:
            NotFound: there is no such fabric.
            Conflict: an allocation holds hosts or waits for some.
        """
        return self._store.fabrics.delete(id)

    def hosts(self, fabric_id: str) -> Iterator[inventory.HostEntry]:
        """Raises: NotFound."""
        return inventory.hosts(*self._with_ledger(fabric_id), self._said(fabric_id))

    def links(self, fabric_id: str) -> Iterator[inventory.LinkEntry]:
        """Raises: NotFound."""
        return inventory.links(*self._with_ledger(fabric_id), self._said(fabric_id))

    def switches(self, fabric_id: str) -> Iterator[inventory.SwitchEntry]:
        """Raises: NotFound."""
        return inventory.switches(self._store.fabrics.get(fabric_id), self._said(fabric_id))

    def idle(self, fabric_id: str) -> tuple[FabricRecord, IdleComponents]:
        """The fabric, and its links and switches that carry nothing and may be turned down.

        Raises: NotFound.
        """
        fabric, ledger = self._with_ledger(fabric_id)
        return fabric, idle_components(ledger, fabric.inventory)

    def shared_plane(self, fabric_id: str) -> tuple[FabricRecord, shared_plane_cost.Reach]:
        """The fabric, and what its shared plane reaches. Raises: NotFound."""
        fabric, ledger = self._with_ledger(fabric_id)
        return fabric, shared_plane_cost.reach(ledger, fabric.inventory, ledger.shared_plane)

    def set_shared_plane(
        self, fabric_id: str, l2: tuple[int, ...], spines: tuple[int, ...]
    ) -> None:
        """Withhold these links instead of those before; empty tuples withhold none.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: there is no such index, or nothing would be left for tenants.
            Conflict: a tenant has one of the links.
        """
        tree = self._store.fabrics.get(fabric_id).topology.tree
        self._store.components.set_shared_plane(fabric_id, SharedPlane.of(tree, l2, spines))
        self._wake()

    def plane_cost(
        self, fabric_id: str, l2: tuple[int, ...], spines: tuple[int, ...]
    ) -> tuple[
        FabricRecord,
        shared_plane_cost.Reach,
        list[tuple[shared_plane_cost.Cost, shared_plane_cost.Cost]],
    ]:
        """What a plane would reach, and the cost to each policy without and with it.

        Raises:
            NotFound, InvalidInput: as ``set_shared_plane``.
        """
        fabric, ledger = self._with_ledger(fabric_id)
        plane = SharedPlane.of(fabric.topology.tree, l2, spines)
        costs = shared_plane_cost.costs(ledger, plane, [*self._policies], self._search_budget)
        return fabric, shared_plane_cost.reach(ledger, fabric.inventory, plane), costs

    def set_host_state(
        self, caller: Caller, fabric_id: str, name: str, state: HostState
    ) -> inventory.HostEntry:
        """Drain, fail or repair a host; the allocation that holds it, if any, keeps it.

        Raises:
            NotFound: there is no such fabric or host.
        """
        number = self._host_number(fabric_id, name)
        self._store.components.set_host_state(fabric_id, number, state, by=caller.initiator)
        self._wake()
        return self._host(fabric_id, number)

    def confirm_empty(self, caller: Caller, fabric_id: str, name: str) -> inventory.HostEntry:
        """Record that a host in quarantine runs no server.

        Raises:
            NotFound: there is no such fabric or host.
            Conflict: the host is not in quarantine.
        """
        number = self._host_number(fabric_id, name)
        self._store.compute_hosts.release_quarantine(fabric_id, name, by=caller.initiator)
        self._wake()
        return self._host(fabric_id, number)

    def leaf(self, fabric_id: str, named: str) -> leaf_view.LeafEntry:
        """A switch by GUID or name, its hosts, and the allocations that hold them or its links.

        Raises:
            NotFound: there is no such fabric or switch.
            InvalidInput: several switches have the name.
        """
        fabric, ledger = self._with_ledger(fabric_id)
        switch, said = find_switch(fabric, named), self._said(fabric_id)
        numbers = leaf_view.hosts_on(fabric, switch.guid)
        hosts = inventory.hosts(fabric, ledger, said, numbers)
        links = leaf_view.links_on(fabric, switch)
        holders = leaf_view.holders(fabric, ledger, numbers, links)
        tenants = (
            leaf_view.Tenant(self._store.allocations.get(id), on, over)
            for id, (on, over) in holders.items()
        )
        word = inventory.switch_word(switch.guid, said)
        return leaf_view.LeafEntry(switch, tuple(hosts), tuple(tenants), word)

    def set_leaf_state(
        self, caller: Caller, fabric_id: str, named: str, state: HostState
    ) -> leaf_view.LeafEntry:
        """Drain the hosts of a leaf that are up, or undrain those that only such drains keep down.

        The allocations that hold them, if any, keep them.

        Raises:
            NotFound, InvalidInput: as ``leaf``.
        """
        switch = leaf_view.find(self._store.fabrics.get(fabric_id), named)
        self._store.components.set_leaf_state(fabric_id, switch.guid, state, by=caller.initiator)
        self._wake()
        return self.leaf(fabric_id, named)

    def set_switch_state(
        self, caller: Caller, fabric_id: str, named: str, state: SwitchState
    ) -> leaf_view.LeafEntry:
        """Fail a switch or put it under maintenance; or take that back.

        ``UP`` takes back one thing: a fail or maintenance, or if neither was said, the drain of a
        leaf. The switch is usable again once its tables are confirmed.

        Raises:
            NotFound, InvalidInput: as ``leaf``.
        """
        fabric = self._store.fabrics.get(fabric_id)
        switch = find_switch(fabric, named)
        taken_back = self._store.faults.observation(fabric_id).repaired
        said = switch.guid in self._store.components.words(fabric_id).switches.keys() - taken_back
        if state is SwitchState.UP and not said and switch.guid in fabric.inventory.leaf_guids:
            return self.set_leaf_state(caller, fabric_id, named, HostState.UP)
        self._store.components.set_switch_state(fabric_id, switch.guid, state, by=caller.initiator)
        self._wake()
        return self.leaf(fabric_id, named)

    def observation(self, fabric_id: str) -> Observed:
        """What is observed of a fabric's links, hosts and switches. Raises: NotFound."""
        fabric, seen = self._store.fabrics.get(fabric_id), self._store.faults.observation(fabric_id)
        counters = self._counters(fabric)
        return Observed(fabric, seen, seen.mode or self._fault_mode, counters)

    def set_observation(
        self,
        caller: Caller,
        fabric_id: str,
        *,
        mode: Mode | None,
        configured: bool,
        acknowledge: bool,
    ) -> Observed:
        """Choose the mode of observation (``configured``: the configured one), or accept an alarm.

        Raises:
            NotFound: there is no such fabric.
        """
        self._store.fabrics.get(fabric_id)
        if mode is not None or configured:
            self._store.faults.set_mode(fabric_id, mode, by=caller.initiator)
        if acknowledge:
            self._store.faults.acknowledge_alarm(fabric_id, by=caller.initiator)
        self._wake()
        return self.observation(fabric_id)

    def describe_host(self, fabric_id: str, name: str, change: HostChange) -> inventory.HostEntry:
        """Record a host's traits and cost; the allocation that holds it, if any, keeps it.

        Raises:
            NotFound: there is no such fabric or host.
        """
        number = self._host_number(fabric_id, name)
        self._store.components.describe_hosts(fabric_id, {number: change})
        self._wake()
        return self._host(fabric_id, number)

    def set_virtual_ports(
        self, fabric_id: str, name: str, rails: Sequence[Sequence[int]]
    ) -> inventory.HostEntry:
        """Record the GUIDs of a host's virtual ports by rail, instead of those before.

        Raises:
            NotFound: there is no such fabric or host.
            InvalidInput: the host has another number of ports, or a GUID cannot be one.
            Conflict: another port has a GUID.
        """
        number = self._host_number(fabric_id, name)
        fabric = self._store.fabrics.get(fabric_id)
        ports = [
            fabric.inventory.endpoint_of_port[number, rail].guid
            for rail in range(fabric.topology.rails)
        ]
        if len(rails) != len(ports):
            fix = f"give a list for each of {len(ports)} rails"
            raise InvalidInput("virtual_guids", len(rails), fix)
        self._store.components.set_virtual_ports(fabric_id, dict(zip(ports, rails, strict=True)))
        self._wake()
        return self._host(fabric_id, number)

    def _host(self, fabric_id: str, number: int) -> inventory.HostEntry:
        return inventory.host(*self._with_ledger(fabric_id), number, self._said(fabric_id))

    def _said(self, fabric_id: str) -> inventory.Said:
        """What operators and observation say of the fabric."""
        store = self._store
        words, observation = store.components.words(fabric_id), store.faults.observation(fabric_id)
        names = store.compute_hosts.memory(fabric_id).names
        return inventory.Said(words, observation, store.components.virtual_ports(fabric_id), names)

    def hosts_alarm(self, fabric_id: str) -> str | None:
        """Why so many hosts seem away that none is withheld, or how many were never known."""
        return self._store.compute_hosts.memory(fabric_id).alarm

    def _host_number(self, fabric_id: str, name: str) -> int:
        number = self._store.fabrics.get(fabric_id).inventory.host_numbers.get(name)
        if number is None:
            raise NotFound("host", name)
        return number

    def link(self, fabric_id: str, named: str) -> inventory.LinkEntry:
        """A link, ``named`` as for ``inventory.find_link``.

        Raises:
            NotFound: there is no such fabric or link.
            InvalidInput: the name has another form, or several switches have it.
        """
        fabric, ledger = self._with_ledger(fabric_id)
        found = inventory.find_link(fabric, named)
        return inventory.link(fabric, ledger, found, self._said(fabric_id))

    def set_link_state(
        self, caller: Caller, fabric_id: str, named: str, state: LinkState
    ) -> inventory.LinkEntry:
        """Fail or repair a link; the allocation that holds it, if any, keeps it.

        ``named`` is as for ``inventory.find_link``.

        Raises:
            NotFound: there is no such fabric or link.
            InvalidInput: the name has another form, or several switches have it.
        """
        link = inventory.find_link(self._store.fabrics.get(fabric_id), named)
        self._store.components.set_link_state(fabric_id, link, state, by=caller.initiator)
        self._wake()
        return inventory.link(*self._with_ledger(fabric_id), link, self._said(fabric_id))

    def utilization(self, fabric_id: str) -> Utilization:
        """Raises: NotFound."""
        fabric, ledger = self._with_ledger(fabric_id)
        records = list(every_allocation(self._store.allocations, fabric=fabric_id, states=LIVE))
        return replace(
            utilization(fabric, ledger, Counter(record.state for record in records)),
            degraded=sum(lifecycle.is_degraded(record) for record in records),
            changing=sum(record.change is not None for record in records),
            confirmed=Counter(record.confirmed_by for record in records if record.confirmed_by),
        )

    def fit(
        self,
        caller: Caller,
        fabric_id: str,
        asked: AllocationRequest,
        risks: Sequence[float] = (),
    ) -> Fit:
        """Whether ``asked.hosts`` would fit now, the largest size that would, how to make room.

        With ``parent``, inside that container. With ``slots``, whether these fit on shared hosts,
        and with ``risks`` how many such tenants would fit at these risks.

        Raises:
            NotFound: there is no such fabric, or no container that the caller may see.
            InvalidInput: the policy is not offered, ``hosts`` is below 1, the fabric has nothing
                of what the constraints say, or as ``Lookup.part`` and ``slot_fit``.
        """
        budget = RequestBudget(self._search_budget)
        if isinstance(kind := asked.kind, Slots):
            check_demand(kind.demand)
            part = self._lookup.part(caller, replace(asked, fabric=fabric_id))
            ledger = self._store.fabrics.ledger(part.fabric)[0].ledger(part.id)
            return slot_fit(self._slots, ledger, kind.demand, budget, risks)
        policy = BudgetedPolicy(self._lookup.policy(asked.policy), budget)
        if asked.hosts < 1:
            raise InvalidInput("hosts", asked.hosts, "ask for at least 1 host")
        if asked.parent is not None:
            self._lookup.container(caller, asked.parent, fabric_id)
        ledger = self._store.fabrics.ledger(fabric_id)[0].ledger(asked.parent)
        constraints = self._lookup.constraints(fabric_id, asked)
        request = Request("", asked.hosts, constraints=constraints)
        answer = propose(policy, ledger, request)
        if isinstance(answer, NoFit):
            answer = explain_constraints(policy, ledger, request, answer)
            words = self._store.components.words(fabric_id)
            answer = with_room(policy, ledger, request, answer, caller.admin, words, budget)
        largest = largest_fit(policy, ledger, ledger.free_host_count + 1, constraints)
        reached = None if isinstance(answer, NoFit) else contention(ledger.topology, answer)
        return Fit(answer, largest, budget.cut, reached)

    def routing(self, fabric_id: str) -> Routing:
        """Raises: NotFound."""
        wanted = self._store.fabrics.get(fabric_id).routes_generation
        return Routing(
            wanted,
            {name: _applied(sm, fabric_id) for name, sm in sorted(self._subnet_managers.items())},
            self._store.observations.holding(fabric_id),
        )

    def watched(self, fabric_id: str) -> Watched:
        """What the worker that converges the fabric saw last. Raises: NotFound."""
        fabric = self._store.fabrics.get(fabric_id)
        wanted = fabric.routes_generation
        holding = self._store.observations.holding(fabric_id)
        drift, repaired = (
            self._store.observations.drift(fabric_id),
            self._store.observations.repaired(fabric_id),
        )
        said = self._said(fabric_id)
        links = Counter((word.state, word.source) for word, *_ in said.words.links.values())
        current = holding.applied == wanted
        counters = self._counters(fabric)
        memory = self._store.compute_hosts.memory(fabric_id)
        withheld = {cause: len(names) for cause, names in memory.withheld_by_cause().items()}
        return Watched(
            current, drift, repaired, holding, links, said.observation, counters, withheld
        )

    def _counters(self, fabric: FabricRecord) -> tuple[Findings, ...]:
        """What the counters of the fabric's switches show."""
        known = fabric.inventory.switch_of_guid
        found = self._store.port_counters.findings(fabric.id)
        return tuple(findings for findings in found if findings.guid in known)

    def promises(self, fabric_id: str) -> Iterator[PromiseEntry]:
        """The promises of links to those who share hosts, with the traffic measured there.

        Raises: NotFound.
        """
        fabric, ledger = self._with_ledger(fabric_id)
        return promises(fabric, ledger, self._slots, self._counters(fabric))

    def traffic(self, fabric_id: str) -> list[TenantTraffic]:
        """The data of live allocations, in order of creation. Raises: NotFound."""
        found = self._store.port_counters.findings(fabric_id)
        records = every_allocation(self._store.allocations, fabric=fabric_id, states=LIVE)
        return tenant_traffic(found, records)

    def _with_ledger(self, fabric_id: str) -> tuple[FabricRecord, LedgerView]:
        """The fabric and its ledger at the same generation."""
        while True:
            fabric = self._store.fabrics.get(fabric_id)
            ledger, generation = self._store.fabrics.ledger(fabric_id)
            if ledger.topology is fabric.topology:  # else a re-import came in between
                return replace(fabric, generation=generation), ledger


def _applied(subnet_manager: Switches, fabric_id: str) -> Applied:
    try:
        return subnet_manager.applied(fabric_id)
    except Unavailable as error:
        return Applied(None, str(error))
