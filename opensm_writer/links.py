# SPDX-License-Identifier: Apache-2.0

"""The ports of a fabric, as ``iblinkinfo -l`` prints them, compared with the recorded cables."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from laas_service.domain.faults.reading import (
    EndReading,
    FabricReading,
    PortState,
    UnknownCable,
    UnknownSwitch,
)
from laas_service.domain.inventory import ADAPTER_PORT, CableEnds, PortRef

MAX_ENDS = 2000
"""The most ends that a reading lists."""
MAX_UNKNOWN = 100
"""The most unknown switches, and the most unknown cables, that a reading lists."""
MAX_NAME = 64
"""Characters of a node description."""

_LINE = re.compile(
    # The description of a host may contain anything printable. The one of this node ends where
    # the first port number follows it, so that the description of the other node, which comes
    # later, cannot replace the state of this port.
    r'^0x([0-9a-f]{16}) "([^\n]*?)" +(\d{1,5}) +([1-9]\d{0,2})\[[ \d]*\] '
    r"==\([^/\n]*?([A-Za-z]+)/ *([A-Za-z]+)\)==> +"
    r'(?:0x([0-9a-f]{16}) +\d+ +(\d{1,3})\[[ \d]*\] "[^\n]*|\[ *\] ""[^\n]*|"Port not available")$',
    re.MULTILINE | re.ASCII,
)


class _LocalPort(NamedTuple):
    """The local side of one line."""

    port: PortRef
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The ports of all nodes that answered.

    ``ports`` has for each port the port that it is linked to, else ``DOWN`` or ``SILENT``. The
    GUID is that of the port; all ports of a switch have one GUID.
    """

    ports: Mapping[PortRef, PortRef | PortState]
    names: Mapping[int, str]
    """The node description by GUID."""
    start: PortRef | None
    """The port through which the ports were read; None if that was a switch."""
    skipped: int
    """Lines that do not describe a port."""
    lids: Mapping[int, int] = field(default_factory=dict)
    """By GUID; 0 is none."""

    @property
    def switches(self) -> set[int]:
        """GUIDs with more than one port."""
        first: dict[int, int] = {}
        return {port.guid for port in self.ports if first.setdefault(*port) != port.port}


def parsed(text: str) -> NodePorts:
    """The ports in the output of ``iblinkinfo -l``; lines of another form are skipped.

    The tool prints the nodes in the reverse order of their discovery, so the last one is the
    node on which it ran (measured with infiniband-diags 44.0).
    """
    ports: dict[PortRef, PortRef | PortState] = {}
    names: dict[int, str] = {}
    lids: dict[int, int] = {}
    last: list[_LocalPort] = []
    found = 0
    for match in _LINE.finditer(text):
        guid, name, lid, number, state, _, other, other_number = match.groups()
        port = PortRef(int(guid, 16), int(number))
        lids[port.guid] = int(lid)
        found += 1
        if other is not None:
            ports[port] = PortRef(int(other, 16), int(other_number))
        else:
            ports[port] = PortState.DOWN if state == "Down" else PortState.SILENT
        if not last or last[-1].name != name or last[-1].port.port >= port.port:
            last = []
            names[port.guid] = name.strip()
        names.setdefault(port.guid, name.strip())
        last.append(_LocalPort(port, name, state))
    lines = sum(1 for line in text.splitlines() if line.strip())
    return NodePorts(ports, names, _start(last), lines - found, lids)


def _start(lines: Sequence[_LocalPort]) -> PortRef | None:
    """The port of an adapter that the tools use: the first active one, else the first one up."""
    if not lines or len({line.port.guid for line in lines}) < len(lines):
        return None
    active = [line.port for line in lines if line.state == "Active"]
    up = [line.port for line in lines if line.state != "Down"]
    return (active or up or [line.port for line in lines])[0]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The ports of a fabric against the recorded cables.

    Switches by GUID: the ports of ``dead`` ones are physically down, or they are behind dead
    switches; ``silent`` ones do not answer although a port towards them is up.
    """

    reading: FabricReading
    dead: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    lids: Mapping[int, int] = field(default_factory=dict)  # by GUID, of all that were read


def compared(cables: Iterable[CableEnds], links: NodePorts, at: float) -> Comparison:
    """Compare ports with the recorded cables; ``at`` is the time of the reading.

    Ends at adapters are not listed, except for the port of the observer itself if it is not up.
    Ends between switches come before those towards adapters.
    """
    cables = tuple(cables)
    ends: list[EndReading] = []
    recorded: set[PortRef] = set()
    for first, second in sorted(cables, key=lambda cable: cable[1].port == ADAPTER_PORT):
        recorded.add(first)
        _add(ends, first, second, links)
        if second.port != ADAPTER_PORT:
            recorded.add(second)
            _add(ends, second, first, links)
    observed = {guid for guid, _ in links.ports}
    known = {end.guid for end in recorded}
    if links.start is not None and isinstance(state := links.ports[links.start], PortState):
        ends.insert(0, EndReading(links.start, state))
    switches = links.switches
    unknown = sorted(switches - known)
    dead, silent = _unreached(cables, links, known)
    reading = FabricReading(
        at,
        tuple(ends[:MAX_ENDS]),
        links.start,
        nodes_read=len(observed),
        switches_read=len((known | switches) & observed),
        unknown_switches=tuple(
            UnknownSwitch(guid, links.names.get(guid, "")[:MAX_NAME])
            for guid in unknown[:MAX_UNKNOWN]
        ),
        unknown_cables=_unknown_cables(links, recorded, known | switches),
        ends_left_out=max(0, len(ends) - MAX_ENDS),
    )
    return Comparison(reading, dead, silent, links.lids)


def wrong_lids(pinned: Mapping[int, int], read: Mapping[int, int]) -> str | None:
    """Why tables for the LIDs ``pinned`` may not be loaded, if ports have those in ``read``.

    None if no port has another LID than its own, and most ports have theirs already. Ports that
    are not pinned do not count: no table leads to them. Both are by GUID; LID 0 is none.
    """
    known = pinned.keys() & read.keys()
    other = sorted(guid for guid in known if read[guid] not in (0, pinned[guid]))
    if other:
        first = other[0]
        return (
            f"{len(other)} of {len(known)} ports have other LIDs than their tables: "
            f"{first:#018x} has {read[first]:#06x}, not {pinned[first]:#06x}"
        )
    have = sum(1 for guid in known if read[guid])
    if 2 * have <= len(known):
        return f"{have} of {len(known)} ports have a LID"
    return None


def _add(ends: list[EndReading], end: PortRef, other: PortRef, links: NodePorts) -> None:
    """Add the end of a recorded cable, unless it is linked to the recorded other end."""
    linked = links.ports.get(end, PortState.UNREAD)
    if isinstance(linked, PortState):
        ends.append(EndReading(end, linked))
    elif linked != other and (other.port != ADAPTER_PORT or linked.guid != other.guid):
        ends.append(EndReading(end, PortState.OTHER, linked))


def _unknown_cables(
    links: NodePorts, recorded: set[PortRef], switches: set[int]
) -> tuple[UnknownCable, ...]:
    """Cables at ports of switches that have no recorded cable, and that no end of one names."""
    pairs = {
        (min(port, linked), max(port, linked))
        for port, linked in links.ports.items()
        if port.guid in switches and port not in recorded and not isinstance(linked, PortState)
    }
    cables = [pair for pair in sorted(pairs) if not recorded & set(pair)]
    return tuple(UnknownCable(*pair) for pair in cables[:MAX_UNKNOWN])


def _unreached(
    cables: Iterable[CableEnds], links: NodePorts, switches: set[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """The dead and the silent ones of the recorded switches that were not read.

    Both are empty unless most switches were read: else the observer is the one that is cut off.
    """
    read = {port.guid for port in links.ports}
    unread = switches - read
    if 2 * len(unread) >= len(switches):
        return frozenset(), frozenset()
    of_adapters = {port.guid: linked for port, linked in links.ports.items()}
    states_of: dict[int, set[object]] = {guid: set() for guid in unread}
    beside: dict[int, set[int]] = {guid: set() for guid in unread}
    for first, second in cables:
        for end, other in ((first, second), (second, first)):
            if end.guid not in unread:
                continue
            if other.guid in unread:
                beside[end.guid].add(other.guid)
            elif other.port == ADAPTER_PORT and other.guid in read:
                states_of[end.guid].add(of_adapters[other.guid])
            elif other.port != ADAPTER_PORT:
                linked = links.ports.get(other)
                moved = isinstance(linked, PortRef) and linked.guid != end.guid
                states_of[end.guid].add(PortState.DOWN if moved else linked)
    dead = {guid for guid, states in states_of.items() if states == {PortState.DOWN}}
    silent = {guid for guid, states in states_of.items() if PortState.SILENT in states}
    behind = {guid for guid, states in states_of.items() if not states and beside[guid]}
    while reached := {guid for guid in behind if beside[guid] <= dead | silent}:
        silent |= {guid for guid in reached if beside[guid] & silent}
        dead |= reached - silent
        behind -= reached
    return frozenset(dead), frozenset(silent)
