# SPDX-License-Identifier: Apache-2.0

"""The use cases of components: hosts, links and switches, their states and descriptions."""

from collections.abc import Callable, Iterator, Sequence

from laas_service.app.ports.store import Store
from laas_service.app.records import Caller, FabricRecord, HostState, LinkState, SwitchState
from laas_service.app.views import inventory
from laas_service.app.views import leaf as leaf_view
from laas_service.app.views.switch import find_switch
from laas_service.domain.errors import InvalidInput, NotFound
from laas_service.domain.features import HostChange
from laas_service.domain.ledger import LedgerView
from laas_service.domain.wording import alike


class ComponentUseCases:
    """Hosts, links and switches of fabrics, and what operators say of them."""

    def __init__(self, store: Store, *, wake: Callable[[], None]) -> None:
        self._store = store
        self._wake = wake

    def hosts(self, fabric_id: str) -> Iterator[inventory.HostEntry]:
        """Raises: NotFound."""
        return inventory.hosts(*self._with_ledger(fabric_id), self._said(fabric_id))

    def links(self, fabric_id: str) -> Iterator[inventory.LinkEntry]:
        """Raises: NotFound."""
        return inventory.links(*self._with_ledger(fabric_id), self._said(fabric_id))

    def switches(self, fabric_id: str) -> Iterator[inventory.SwitchEntry]:
        """Raises: NotFound."""
        return inventory.switches(self._store.fabrics.get(fabric_id), self._said(fabric_id))

    def link(self, fabric_id: str, named: str) -> inventory.LinkEntry:
        """A link, ``named`` as for ``inventory.find_link``.

        Raises:
            NotFound: there is no such fabric or link.
            InvalidInput: the name has another form, or several switches have it.
        """
        fabric, ledger = self._with_ledger(fabric_id)
        found = inventory.find_link(fabric, named)
        return inventory.link(fabric, ledger, found, self._said(fabric_id))

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

    def set_host_state(
        self, caller: Caller, fabric_id: str, name: str, state: HostState, reason: str | None = None
    ) -> inventory.HostEntry:
        """Drain, fail or repair a host; the allocation that holds it, if any, keeps it.

        Raises:
            NotFound: there is no such fabric or host.
        """
        number = self._host_number(fabric_id, name)
        self._store.components.set_host_state(
            fabric_id, number, state, by=caller.initiator, reason=reason
        )
        self._wake()
        return self._host(fabric_id, number)

    def confirm_empty(self, caller: Caller, fabric_id: str, name: str) -> inventory.HostEntry:
        """Record that a host in quarantine runs no server.

        Raises:
            NotFound: there is no such fabric or host.
            Conflict: the host is not in quarantine.
        """
        number = self._host_number(fabric_id, name)
        self._store.faults.release_quarantine(fabric_id, name, by=caller.initiator)
        self._wake()
        return self._host(fabric_id, number)

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

    def set_link_state(
        self,
        caller: Caller,
        fabric_id: str,
        named: str,
        state: LinkState,
        reason: str | None = None,
    ) -> inventory.LinkEntry:
        """Fail or repair a link; the allocation that holds it, if any, keeps it.

        ``named`` is as for ``inventory.find_link``.

        Raises:
            NotFound: there is no such fabric or link.
            InvalidInput: the name has another form, or several switches have it.
        """
        link = inventory.find_link(self._store.fabrics.get(fabric_id), named)
        self._store.components.set_link_state(
            fabric_id, link, state, by=caller.initiator, reason=reason
        )
        self._wake()
        return inventory.link(*self._with_ledger(fabric_id), link, self._said(fabric_id))

    def set_leaf_state(
        self,
        caller: Caller,
        fabric_id: str,
        named: str,
        state: HostState,
        reason: str | None = None,
    ) -> leaf_view.LeafEntry:
        """Drain the hosts of a leaf that are up, or undrain those that only such drains keep down.

        The allocations that hold them, if any, keep them.

        Raises:
            NotFound, InvalidInput: as ``leaf``.
        """
        switch = leaf_view.find(self._store.fabrics.get(fabric_id), named)
        self._store.components.set_leaf_state(
            fabric_id, switch.guid, state, by=caller.initiator, reason=reason
        )
        self._wake()
        return self.leaf(fabric_id, named)

    def set_switch_state(
        self,
        caller: Caller,
        fabric_id: str,
        named: str,
        state: SwitchState,
        reason: str | None = None,
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
        self._store.components.set_switch_state(
            fabric_id, switch.guid, state, by=caller.initiator, reason=reason
        )
        self._wake()
        return self.leaf(fabric_id, named)

    def _host(self, fabric_id: str, number: int) -> inventory.HostEntry:
        return inventory.host(*self._with_ledger(fabric_id), number, self._said(fabric_id))

    def _with_ledger(self, fabric_id: str) -> tuple[FabricRecord, LedgerView]:
        return self._store.fabrics.with_ledger(fabric_id)

    def _said(self, fabric_id: str) -> inventory.Said:
        return what_is_said(self._store, fabric_id)

    def _host_number(self, fabric_id: str, name: str) -> int:
        numbers = self._store.fabrics.get(fabric_id).inventory.host_numbers
        number = numbers.get(name)
        if number is None:
            raise NotFound("host", name, alike(name, numbers, f"fabric {fabric_id}"))
        return number


def what_is_said(store: Store, fabric_id: str) -> inventory.Said:
    """The words of operators and of observation about a fabric."""
    words, observation = store.components.words(fabric_id), store.faults.observation(fabric_id)
    names = store.faults.host_memory(fabric_id).names
    return inventory.Said(words, observation, store.components.virtual_ports(fabric_id), names)
