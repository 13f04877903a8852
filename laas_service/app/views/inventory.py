# SPDX-License-Identifier: Apache-2.0

"""The inventory as it is shown: every host, link and switch with its state and its owner."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from laas_service.app.records import (
    FabricRecord,
    HostState,
    LinkState,
    Observation,
    Source,
    Word,
    Words,
)
from laas_service.app.views.switch import find_switch
from laas_service.domain.errors import NotFound
from laas_service.domain.faults.memory import LinkCondition
from laas_service.domain.features import PLAIN, HostFeatures
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Endpoint, PortRef, Switch
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import Link, Port, link_name, parse_link


class Said(NamedTuple):
    """The words of operators and of observation about a fabric."""

    words: Words
    observation: Observation
    virtual_ports: Mapping[int, tuple[int, ...]]
    """GUIDs of the virtual ports of each port that has any."""
    compute_names: Mapping[str, str] = {}
    """By name, the hosts that have another name in compute."""


NOTHING_SAID = Said(Words({}, {}, {}), Observation(), {})


@dataclass(frozen=True, slots=True)
class HostEntry:
    """One host; ``owner`` is an allocation's id. ``endpoints`` come in rail order.

    ``word`` decides about its state, None if it is up. ``absent_since``: no port of it has had a
    link since then, as while it reboots. ``virtual_ports`` is by the GUID of the endpoint.
    ``compute_name`` is its name in compute, if that was matched and is another one.
    """

    index: int
    name: str
    state: HostState
    owner: str | None
    ports: tuple[Port, ...]
    endpoints: tuple[Endpoint, ...]
    features: HostFeatures = PLAIN
    word: Word | None = None
    absent_since: datetime | None = None
    virtual_ports: Mapping[int, tuple[int, ...]] = field(default_factory=dict, hash=False)
    compute_name: str | None = None


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """One cable of the tree; ``withheld``: it belongs to the common plane.

    ``word`` decides about its state, None if it is up. ``condition`` is what observation
    remembers of it, None if it is up and did not go down recently.
    ``lower`` and ``upper`` are the switch ports at its ends, None if unknown.
    """

    link: Link
    state: LinkState
    owner: str | None
    lower: PortRef | None
    upper: PortRef | None
    withheld: bool = False
    word: Word | None = None
    condition: LinkCondition | None = None

    @property
    def free(self) -> bool:
        """Whether a tenant could get it now."""
        return self.state is LinkState.UP and self.owner is None and not self.withheld


@dataclass(frozen=True, slots=True)
class SwitchEntry:
    """One switch and its position; ``pod`` is None for spines, ``positions`` count locally.

    A physical spine that serves several L2 indices has several positions, each
    ``(l2, spine)``; leaves and L2 switches have one, ``(pod, leaf)`` or ``(pod, l2)``.

    ``word`` is what operators say of it, else what observation says; None if it is up.
    """

    switch: Switch
    lid: int | None
    positions: tuple[tuple[int, int], ...]
    word: Word | None = None


def host_state(ledger: LedgerView, host: int) -> HostState:
    if host in ledger.failed_hosts:
        return HostState.FAILED
    return HostState.DRAINED if host in ledger.drained_hosts else HostState.UP


def hosts(
    fabric: FabricRecord,
    ledger: LedgerView,
    said: Said = NOTHING_SAID,
    numbers: Collection[int] | None = None,
) -> Iterator[HostEntry]:
    """Hosts for tenants that exist, by number; of these numbers only, if given."""
    owners = ledger.owners_of_hosts()
    names = fabric.inventory.host_names
    for number in range(len(names)) if numbers is None else sorted(numbers):
        if names[number] and number not in fabric.topology.absent_hosts:
            yield _host_entry(fabric, ledger, said, owners, number)


def host(
    fabric: FabricRecord, ledger: LedgerView, number: int, said: Said = NOTHING_SAID
) -> HostEntry:
    """One host that exists."""
    return _host_entry(fabric, ledger, said, ledger.owners_of_hosts(), number)


def _host_entry(
    fabric: FabricRecord, ledger: LedgerView, said: Said, owners: Mapping[int, str], number: int
) -> HostEntry:
    topology, inventory = fabric.topology, fabric.inventory
    rails = ((number, rail) for rail in range(topology.rails))
    endpoints = (inventory.endpoint_of_port.get(rail) for rail in rails)
    name, state = inventory.host_names[number], host_state(ledger, number)
    absent_since = said.observation.memory.hosts.get(name)
    return HostEntry(
        number,
        name,
        state,
        owners.get(number),
        topology.ports_of(number),
        tuple(endpoint for endpoint in endpoints if endpoint is not None),
        ledger.features.of(number),
        _word(said.words.hosts.get(number, ()), state),
        _moment(absent_since),
        said.virtual_ports,
        said.compute_names.get(name),
    )


def _word(words: Sequence[Word], state: HostState | LinkState) -> Word | None:
    """The word that decides about this state; operators' states of old records have none."""
    if state.value == HostState.UP.value:
        return None
    for word in words:
        if word.state == state.value:
            return word
    return Word(Source.OPERATOR, state.value, None)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def links(
    fabric: FabricRecord, ledger: LedgerView, said: Said = NOTHING_SAID
) -> Iterator[LinkEntry]:
    """Every cable of the regular tree that exists: leaf links first, then spine links."""
    tree, absent = fabric.topology.tree, fabric.topology.absent_links
    owners = ledger.owners_of_links()
    for number in range(tree.leaf_links + tree.spine_links):
        link = tree.link_at(number)
        if link not in absent:
            yield _link_entry(fabric, ledger, said, owners, link)


def link(
    fabric: FabricRecord, ledger: LedgerView, link: Link, said: Said = NOTHING_SAID
) -> LinkEntry:
    """One link that exists."""
    return _link_entry(fabric, ledger, said, ledger.owners_of_links(), link)


def link_state(ledger: LedgerView, link: Link) -> LinkState:
    if link in ledger.failed_links:
        return LinkState.FAILED
    return LinkState.DRAINED if link in ledger.drained_links else LinkState.UP


def _link_entry(
    fabric: FabricRecord, ledger: LedgerView, said: Said, owners: Mapping[Link, str], link: Link
) -> LinkEntry:
    cable, state = fabric.inventory.cable_of_link.get(link), link_state(ledger, link)
    remembered = said.observation.memory.links.get(link)
    return LinkEntry(
        link,
        state,
        owners.get(link),
        cable.lower if cable else None,
        cable.upper if cable else None,
        ledger.shared_plane.withholds(fabric.topology.tree, link),
        _word(said.words.links.get(link, ()), state),
        None if remembered is None else remembered.condition,
    )


def find_link(fabric: FabricRecord, named: str) -> Link:
    """The link of this name, or of ``GUID/port`` or ``name/port`` of a switch at either end.

    Raises:
        NotFound: there is no such link.
        InvalidInput: the name has another form, or several switches have it.
    """
    name, slash, port = named.rpartition("/")
    if not slash:
        link = parse_link(named)
        if link_name(link) != named or link not in fabric.inventory.cable_of_link:
            exists = fabric.topology.tree.has_link(link) and link_name(link) == named
            if not exists or link in fabric.topology.absent_links:
                raise _no_link(fabric, named)
        return link
    end = PortRef(find_switch(fabric, name).guid, int(port) if port.isdecimal() else 0)
    for link, cable in fabric.inventory.cable_of_link.items():
        if end in (cable.lower, cable.upper):
            return link
    raise _no_link(fabric, named)


def _no_link(fabric: FabricRecord, named: str) -> NotFound:
    names = [link_name(link) for link in fabric.inventory.cable_of_link]
    return NotFound("link", named, f"fabric {fabric.id} has {names[0]} to {names[-1]}")


def switch_word(guid: int, said: Said) -> Word | None:
    """What operators say of a switch, else what observation says; None if it is up."""
    word = said.words.switches.get(guid)
    seen = said.observation.memory.switches.get(guid)
    if word is not None or seen is None:
        return word
    return Word(Source.OBSERVED, seen.state.value, _moment(seen.since))


def switches(fabric: FabricRecord, said: Said = NOTHING_SAID) -> Iterator[SwitchEntry]:
    """Every switch, in the inventory's order."""
    tree, inventory = fabric.topology.tree, fabric.inventory
    levels = (
        (inventory.leaf_guids, tree.m[1]),
        (inventory.l2_guids, tree.l2_per_pod),
        (inventory.spine_guids, tree.spines_per_group),
    )
    positions = grouped(
        (guid, divmod(number, width))
        for guids, width in levels
        for number, guid in enumerate(guids)
    )
    for switch in inventory.switches:
        yield SwitchEntry(
            switch,
            inventory.lids.get(switch.guid),
            tuple(positions.get(switch.guid, ())),
            switch_word(switch.guid, said),
        )
