# SPDX-License-Identifier: Apache-2.0

"""What a reading says of links, switches and hosts, by the recorded cabling.

A link is *down* if both its ends say so, or if one end says so and the switch at the other end
is dead. It is *moved*, and down as well, if an end is linked to another port than the recorded one:
a packet sent over it would arrive at a foreign port. A link of which the reading proves neither
that it is up nor that it is down is *unsure*: its ends disagree, or one of them was not read. All
other links are up.

A switch is *dead* if it was not read and no neighbour that was read has a link to it. It is
*silent* if it was not read and a neighbour's port towards it is physically up: it may still forward
packets by old tables.

A host whose switch port is down is absent: it may be rebooting. That is no fault.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from laas_service.domain.faults.reading import EndReading, FabricReading, PortState
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef
from laas_service.domain.topology import Link
from laas_service.domain.wording import listed

DOWN, OTHER, SILENT, UNREAD, UP = (
    PortState.DOWN,
    PortState.OTHER,
    PortState.SILENT,
    PortState.UNREAD,
    PortState.UP,
)


class UnreadSwitch(StrEnum):
    """The state of a switch that was not read, or was not until a moment ago."""

    DEAD = "dead"  # no neighbour that was read has a link to the switch
    SILENT = "silent"  # a neighbour's port towards the switch is physically up
    UNREAD = "unread"  # the neighbours do not tell
    RETURNING = "returning"  # it answers again, and its tables are not compared yet


class Cabling:
    """The recorded cables of a fabric by their ends. Build it once for an inventory.

    Cables outside the tree count as neighbours of their switches; they are no links. The fabric
    may record several cables between two switches, and switches that are several spines of the
    tree: each cable is looked up by its own two ports.
    """

    def __init__(self, inventory: Inventory) -> None:
        self.links: dict[Link, Cable] = inventory.cable_of_link
        """The cable of each link of the tree."""
        self.switch_names = {switch.guid: switch.name for switch in inventory.switches}
        self.host_names = inventory.host_names
        self.cable_at: dict[PortRef, Cable] = {}
        """The cable of each switch port that has one."""
        self.endpoint_at: dict[PortRef, Endpoint] = {}
        """The channel adapter's port at each switch port that has one."""
        self.endpoint_of_guid = {endpoint.guid: endpoint for endpoint in inventory.endpoints}
        self.cables_of_switch: dict[int, list[Cable]] = defaultdict(list)
        """The cables of each switch to other switches."""
        for cable in inventory.cables:
            for end in (cable.lower, cable.upper):
                self.cable_at[end] = cable
                self.cables_of_switch[end.guid].append(cable)
        self.ports_of_host: dict[int, list[PortRef]] = defaultdict(list)
        """The switch ports of each host."""
        self.hosts_of_switch: dict[int, set[int]] = defaultdict(set)
        for endpoint in inventory.endpoints:
            self.endpoint_at[endpoint.at] = endpoint
            if endpoint.host is not None:
                self.ports_of_host[endpoint.host].append(endpoint.at)
                self.hosts_of_switch[endpoint.at.guid].add(endpoint.host)

    def switch_name(self, guid: int) -> str:
        return self.switch_names.get(guid) or f"{guid:#018x}"

    def port_name(self, port: PortRef) -> str:
        """A port as people know it: the switch's or adapter's name and the port number."""
        endpoint = self.endpoint_of_guid.get(port.guid)
        name = self.switch_name(port.guid) if endpoint is None else endpoint.name
        return f"{name} port {port.port}"


@dataclass(frozen=True, slots=True)
class Interpretation:
    """What a reading says. Links in neither ``down`` nor ``unsure`` are up, and so are switches
    that are not in ``switches``."""

    at: float
    """The time of the reading, seconds since the epoch."""
    cabling: Cabling = field(repr=False, compare=False)
    observer_problem: str = ""
    """Why the observer cannot be believed: it has no way to the fabric; "" if it can be."""
    reads_nothing: bool = False
    """Whether no switch was read, or links are left out; then the reading says nothing else."""
    down: Mapping[Link, str] = field(default_factory=dict)
    """The evidence for each link that is down."""
    down_by_switch: Mapping[Link, int] = field(default_factory=dict)
    """For those of them that are down because a switch is dead, its GUID."""
    moved: frozenset[Link] = frozenset()
    """Those of them that have an end which is linked to another port."""
    unsure: Mapping[Link, str] = field(default_factory=dict)
    """The reason for each link that the reading proves neither up nor down."""
    switches: Mapping[int, UnreadSwitch] = field(default_factory=dict)
    """The state of each switch that was not read, by GUID."""
    absent_hosts: frozenset[int] = frozenset()
    """Hosts with all ports down."""
    unread_hosts: frozenset[int] = frozenset()
    """Hosts with a port at a switch that was not read."""
    moved_hosts: Mapping[int, str] = field(default_factory=dict)
    """The evidence for each host with another adapter at one of its ports."""
    absent_ports: tuple[Endpoint, ...] = ()
    """Ports of hosts and services whose switch port is down, in the reading's order."""
    news: tuple[str, ...] = ()
    """What the cabling does not record, as sentences: new and moved cables, unknown switches,
    hosts on other ports. Nothing follows from it but a re-import."""
    erroneous: Mapping[Link, str] = field(default_factory=dict)
    """The evidence for each link that is up and not fit for use: an end has too many errors, by
    the counters of its ports, or the subnet manager holds it unhealthy."""


def interpret(cabling: Cabling, reading: FabricReading) -> Interpretation:
    """What the reading says of the recorded links, switches and hosts.

    Takes time in proportion to the ends that are not up. Ends that are not recorded are news.
    """
    return _Interpreter(cabling, reading).interpretation()


class _Interpreter:
    """One reading against the cabling."""

    def __init__(self, cabling: Cabling, reading: FabricReading) -> None:
        self._cabling = cabling
        self._reading = reading
        self._ends: dict[PortRef, EndReading] = {end.end: end for end in reading.ends}

    def interpretation(self) -> Interpretation:
        cabling, reading = self._cabling, self._reading
        if not reading.switches_read or self._leaves_links_out():
            problem = self._observer_problem()
            return Interpretation(reading.at, cabling, problem, reads_nothing=True)
        switches = dict(self._switches())
        down: dict[Link, str] = {}
        down_by_switch: dict[Link, int] = {}
        moved: set[Link] = set()
        unsure: dict[Link, str] = {}
        for link, cable in self._touched_links():
            dead = [
                guid
                for guid in (cable.lower.guid, cable.upper.guid)
                if switches.get(guid) is UnreadSwitch.DEAD
            ]
            is_down, text = self._verdict(cable, dead)
            (down if is_down else unsure)[link] = text
            if OTHER in (self._state(cable.lower), self._state(cable.upper)):
                moved.add(link)
            if is_down and dead:
                down_by_switch[link] = dead[0]
        ports = tuple(
            cabling.endpoint_at[end.end]
            for end in reading.ends
            if end.state is DOWN and end.end in cabling.endpoint_at
        )
        hosts = {endpoint.host for endpoint in ports if endpoint.host is not None}
        return Interpretation(
            reading.at,
            cabling,
            self._observer_problem(),
            False,
            down,
            down_by_switch,
            frozenset(moved),
            unsure,
            switches,
            frozenset(
                host
                for host in hosts
                if all(self._state(port) is DOWN for port in cabling.ports_of_host[host])
            ),
            frozenset(host for guid in switches for host in cabling.hosts_of_switch.get(guid, ())),
            dict(self._moved_hosts()),
            ports,
            tuple(self._news()),
            dict(self._unhealthy_links()),
        )

    def _leaves_links_out(self) -> bool:
        """Whether ends between switches may be left out; those towards adapters come last."""
        ends, towards_adapters = self._reading.ends, self._cabling.endpoint_at
        return bool(self._reading.ends_left_out) and not any(
            end.end in towards_adapters for end in ends
        )

    def _state(self, end: PortRef) -> PortState:
        reading = self._ends.get(end)
        return UP if reading is None else reading.state

    def _touched_links(self) -> Iterator[tuple[Link, Cable]]:
        """The links with an end that is not up, each once."""
        touched: dict[Link, Cable] = {}
        for end in self._ends:
            cable = self._cabling.cable_at.get(end)
            if cable is not None and cable.link is not None:
                touched[cable.link] = cable
        return iter(touched.items())

    # -- switches -------------------------------------------------------------

    def _switches(self) -> Iterator[tuple[int, UnreadSwitch]]:
        """The switches that were not read: every cable to another switch is unread there.

        Ports towards channel adapters do not count; an observer may leave some of them out.
        """
        unread: dict[int, int] = defaultdict(int)
        for end, reading in self._ends.items():
            if reading.state is UNREAD and end in self._cabling.cable_at:
                unread[end.guid] += 1
        for guid, ends in unread.items():
            if ends == len(self._cabling.cables_of_switch[guid]):
                yield guid, self._state_by_neighbours(guid)

    def _recorded(self, end: PortRef) -> bool:
        return end in self._cabling.cable_at or end in self._cabling.endpoint_at

    def _state_by_neighbours(self, guid: int) -> UnreadSwitch:
        said = {
            self._state(cable.upper if cable.lower.guid == guid else cable.lower)
            for cable in self._cabling.cables_of_switch[guid]
        } - {UNREAD}
        if said and said <= {DOWN, OTHER}:  # an end that is linked elsewhere does not lead there
            return UnreadSwitch.DEAD
        return UnreadSwitch.SILENT if said & {SILENT, UP} else UnreadSwitch.UNREAD

    # -- links ----------------------------------------------------------------

    def _verdict(self, cable: Cable, dead: Sequence[int]) -> tuple[bool, str]:
        """Whether a link is down; and the evidence, or else why the reading does not tell.

        ``dead`` are the dead switches at its ends.

        One end that is linked elsewhere proves that the recorded link is gone.
        """
        lower, upper = self._state(cable.lower), self._state(cable.upper)
        said = {lower, upper}
        if OTHER in said:
            moved = [x for x in (cable.lower, cable.upper) if self._state(x) is OTHER]
            return True, " and ".join(map(self._linked, moved))
        if said == {DOWN}:
            return True, "both ends are down"
        if dead and DOWN in said:
            switch = self._cabling.switch_name(dead[0])
            return True, f"{self._seen_down(cable, lower)} is down and switch {switch} is dead"
        ends = ((cable.lower, lower), (cable.upper, upper))
        return False, " and ".join(f"{self._cabling.port_name(e)} is {state}" for e, state in ends)

    def _linked(self, end: PortRef) -> str:
        """The port that an end is linked to, in words."""
        other = self._ends[end].other
        linked = "another port" if other is None else self._cabling.port_name(other)
        return f"{self._cabling.port_name(end)} is linked to {linked}"

    def _unhealthy_links(self) -> Iterator[tuple[Link, str]]:
        for end, condition in self._reading.unhealthy:
            cable = self._cabling.cable_at.get(end)
            if cable is not None and cable.link is not None:
                name = self._cabling.port_name(end)
                yield cable.link, f"the subnet manager holds {name} unhealthy ({condition})"

    def _moved_hosts(self) -> Iterator[tuple[int, str]]:
        for end, state, _ in self._reading.ends:
            endpoint = self._cabling.endpoint_at.get(end)
            if state is OTHER and endpoint is not None and endpoint.host is not None:
                yield endpoint.host, self._linked(end)

    def _seen_down(self, cable: Cable, lower: PortState) -> str:
        return self._cabling.port_name(cable.lower if lower is DOWN else cable.upper)

    # -- the observer and news ---------------------------------------------------

    def _observer_problem(self) -> str:
        reading = self._reading
        if not reading.switches_read:
            return "the observer reads no switch"
        if self._leaves_links_out():
            return f"the observer leaves out {reading.ends_left_out} ends that are not up"
        if reading.observer is None:
            return ""
        endpoint = self._cabling.endpoint_of_guid.get(reading.observer.guid)
        for port in (reading.observer, *(() if endpoint is None else (endpoint.at,))):
            state = self._state(port)
            if state in (DOWN, UNREAD):
                return f"{self._cabling.port_name(port)}, the observer's way, is {state}"
        return ""

    def _news(self) -> Iterator[str]:
        cabling = self._cabling
        for switch in self._reading.unknown_switches:
            yield f"switch {switch.guid:#018x} {switch.name!r} is not recorded"
        for cable in self._reading.unknown_cables:
            first, second = map(cabling.port_name, cable)
            yield f"the cable from {first} to {second} is not recorded"
        strange = []
        for end, state, other in self._reading.ends:
            if not self._recorded(end) and end.guid not in cabling.endpoint_of_guid:
                if end != self._reading.observer:
                    strange.append(cabling.port_name(end))
            elif state is OTHER:
                yield self._moved(end, other)
        if strange:
            yield f"the observer reports ports without a recorded cable: {listed(strange)}"

    def _moved(self, end: PortRef, other: PortRef | None) -> str:
        cabling = self._cabling
        moved = None if other is None else cabling.endpoint_of_guid.get(other.guid)
        if moved is not None:
            return (
                f"{moved.name} is connected to {cabling.port_name(end)}; "
                f"recorded is {cabling.port_name(moved.at)}"
            )
        return f"{self._linked(end)}; recorded is {self._peer(end)}"

    def _peer(self, end: PortRef) -> str:
        """The recorded other end."""
        cabling = self._cabling
        if end in cabling.endpoint_at:
            return cabling.endpoint_at[end].name
        cable = cabling.cable_at.get(end)
        if cable is None:
            return cabling.port_name(cabling.endpoint_of_guid[end.guid].at)
        return cabling.port_name(cable.upper if cable.lower == end else cable.lower)
