# SPDX-License-Identifier: Apache-2.0

"""Output of ``ibnetdiscover``: a strict reader, and a writer of the same format.

The reader yields cabling: nodes, and the wires between their ports. It accepts what real dumps
contain: a byte-order mark, shell prompts and warnings between the lines (skipped and reported),
sections of ``-g``, ``[port](lane)`` and ``[ext N]`` columns, any description. The quoted id
holds a node's GUID, the parentheses an adapter port's GUID. If the two ends of a wire disagree,
the file is truncated or edited, and is refused.
"""

import enum
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from laas_service.domain.errors import InvalidFile
from laas_service.domain.inventory import Inventory, PortRef
from laas_service.domain.wording import printable

MAX_PORTS = 254
"""Highest port number of an InfiniBand switch."""


MOST_SKIPPED = 10_000
"""Lines that do not belong to a dump, such as prompts and warnings, before it is refused."""

_SHOWN = 400
"""Characters of such a line that a report shows."""

LONGEST = 10_000
"""Characters of a line of a dump at most; those of adapters have less than 200."""


class Kind(enum.Enum):
    SWITCH = "S"
    ADAPTER = "H"
    ROUTER = "R"


@dataclass(frozen=True, slots=True)
class DumpNode:
    """A switch, adapter or router, and the line that describes it."""

    guid: int
    kind: Kind
    name: str
    """Without control characters: the reader escapes them."""
    ports: int
    line: int
    system_image: int = 0
    """System image GUID: equal for all nodes of one card; 0 if the file has none."""


class End(NamedTuple):
    """One end of a wire; ``port_guid`` is set for adapters and routers, else 0."""

    guid: int
    port: int
    port_guid: int = 0


class Wire(NamedTuple):
    """A cable; ``speed`` is width and generation such as ``4xNDR``, "" if unknown."""

    a: End
    b: End
    speed: str


@dataclass(frozen=True)
class DumpContent:
    """The content of a dump."""

    source: str
    """Name of the file, for errors and reports."""

    nodes: dict[int, DumpNode]
    """Switches, adapters and routers by GUID."""

    wires: tuple[Wire, ...]
    """The cables, each once."""

    lmc: Mapping[int, int] = field(default_factory=dict)
    """By node GUID the LMC of nodes that have several LIDs (2 to the power of the LMC) a port."""

    skipped: tuple[tuple[int, str], ...] = ()
    """Number and text of the lines that do not belong to a dump."""

    split: Mapping[int, int] = field(default_factory=dict)
    """By GUID of a switch with cables at higher ports, the number of ports that its line gives.

    The line may count cages with two ports each, or ports before they were split in two. The node
    has as many ports as are needed.
    """

    beyond: tuple[Wire, ...] = ()
    """Cables at ports that no split explains; ``wires`` lacks them."""


_GUID_LINE = re.compile(r"(?:vendid|devid|(sysimgguid)|switchguid|caguid|rtguid)=", re.I)
_GUID_VALUE = re.compile(r"[^=]*=\s*(?:0x)?([0-9a-f]{1,16})\b", re.I)
_NODE = re.compile(
    r'(?P<kind>Switch|Ca|Hca|Rt)\s+(?P<ports>[0-9]{1,5})\s+"(?P<id>[^"]*)"(?:\s*#\s*"(?P<name>.*)")?'
)
_NODE_START = re.compile(r"(?:Switch|Ca|Hca|Rt)\s")
_SECTION = re.compile(r"Chassis\s|Non-Chassis Nodes|Hostname:|Spine\s|Line\s|#|$", re.I)
_PORT_START = re.compile(r"\[\d+\]")
_PORT = re.compile(
    r"\[([0-9]{1,5})\](?:\[ext\s*\d+\])?(?:\(([0-9a-fA-Fx]*)\))?\s*"
    r'"([SHR])-([0-9a-fA-F]{1,16})"\s*\[([0-9]{1,5})\](?:\[ext\s*\d+\])?(?:\(([0-9a-fA-Fx]*)\))?'
    r'(?:.*\blid\s+\d+\s+([0-9]{1,4}x[A-Z0-9]+)[^"]*$)?'
)
"""Groups: port, its GUID, kind and GUID of the far node, far port, its GUID, speed."""

_ID = re.compile(r"([SHR])-([0-9a-fA-F]{1,16})")
_LMC = re.compile(r"[^#]*#\s*lid\s+\d+\s+lmc\s+([1-7])\b")
_SWITCH_LMC = re.compile(r".*\blid\s+\d+\s+lmc\s+([1-7])$")
_KINDS = {"Switch": "S", "Ca": "H", "Hca": "H", "Rt": "R"}
_KIND_OF = {kind.value: kind for kind in Kind}


class _PortLine(NamedTuple):
    """One port line: a node's own port, and the port at the far end of its cable."""

    line: int
    near: End
    far: End
    far_kind: Kind
    speed: str


@dataclass
class _DumpParser:
    """Parser of a dump, line by line; ``current`` is the node whose ports follow."""

    source: str
    nodes: dict[int, DumpNode] = field(default_factory=dict)
    ports: dict[tuple[int, int], _PortLine] = field(default_factory=dict)
    skipped: list[tuple[int, str]] = field(default_factory=list)
    lmc: dict[int, int] = field(default_factory=dict)
    above: dict[int, int] = field(default_factory=dict)
    """The highest port of switches with ports above the number that their lines give."""
    current: DumpNode | None = None
    system_image: int = 0

    def refuse(self, line: int, reason: str) -> InvalidFile:
        return InvalidFile(self.source, line, reason)

    def read(self, number: int, text: str) -> None:
        if len(text) > LONGEST and not text.startswith("#"):
            raise self.refuse(number, f"a line of {len(text):,} characters; a dump has none")
        if text[:1] == "[" and _PORT_START.match(text):  # most lines are ports
            self.port(number, text)
        elif _NODE_START.match(text):
            self.node(number, text)
        elif line := _GUID_LINE.match(text):
            self.current = None
            if line[1] and (value := _GUID_VALUE.match(text)):
                self.system_image = int(value[1], 16)
        elif not _SECTION.match(text):
            if len(self.skipped) == MOST_SKIPPED:
                why = f"{MOST_SKIPPED} lines before this one belong to no dump; delete them"
                raise self.refuse(number, why)
            self.skipped.append((number, printable(text[:_SHOWN])))

    def node(self, number: int, text: str) -> None:
        match = _NODE.match(text)
        id = match and _ID.fullmatch(match["id"])
        if not match or not id or id[1] != _KINDS[match["kind"]]:
            raise self.refuse(number, "the description of a node is truncated or malformed")
        guid, ports = int(id[2], 16), int(match["ports"])
        if guid in self.nodes:
            first = self.nodes[guid].line
            raise self.refuse(number, f"{match['id']} was described before, at line {first}")
        if not 1 <= ports <= MAX_PORTS:
            raise self.refuse(number, f"{ports} ports; a node has 1 to {MAX_PORTS}")
        name = printable((match["name"] or "").strip())
        self.current = DumpNode(guid, Kind(id[1]), name, ports, number, self.system_image)
        self.nodes[guid], self.system_image = self.current, 0
        if lmc := _SWITCH_LMC.match(text, match.end()):
            self.lmc[guid] = int(lmc[1])

    def port(self, number: int, text: str) -> None:
        node, match = self.current, _PORT.match(text)
        if not match:
            raise self.refuse(number, "the description of a cable is truncated or malformed")
        if node is None:
            raise self.refuse(number, "a cable without a node above it")
        near, own, letter, far_id, far, far_own, speed = match.groups()
        port, kind = int(near), _KIND_OF[letter]
        if not 1 <= port <= node.ports:
            if node.kind is not Kind.SWITCH or not 1 <= port <= MAX_PORTS:
                raise self.refuse(number, f"port {port} of a node with {node.ports} ports")
            self.above[node.guid] = max(port, self.above.get(node.guid, 0))
        place = node.guid, port
        if place in self.ports:
            first = self.ports[place].line
            raise self.refuse(number, f"port {port} was described before, at line {first}")
        near_guid = far_guid = 0
        if node.kind is not Kind.SWITCH:
            near_guid = self.guid(number, own)
            if lmc := _LMC.match(text):
                self.lmc[node.guid] = max(int(lmc[1]), self.lmc.get(node.guid, 0))
        if kind is not Kind.SWITCH:
            far_guid = self.guid(number, far_own)
        self.ports[place] = _PortLine(
            number,
            End(node.guid, port, near_guid),
            End(int(far_id, 16), int(far), far_guid),
            kind,
            speed or "",
        )

    def guid(self, number: int, text: str | None) -> int:
        """A port GUID in parentheses; 0 if the line has none."""
        try:
            guid = int(text or "0", 16)
        except ValueError:
            guid = 1 << 64
        if guid >= 1 << 64:
            raise self.refuse(number, f"({text}) is no port GUID")
        return guid

    def wires(self) -> Iterator[Wire]:
        """Each wire once, after a comparison of its two descriptions."""
        for (guid, port), here in self.ports.items():
            there = self.ports.get((here.far.guid, here.far.port))
            self.compare(here, there)
            assert there is not None
            if (guid, port) <= (here.far.guid, here.far.port):
                a = self.end(here, there)
                yield Wire(a, self.end(there, here), here.speed or there.speed)

    def compare(self, here: _PortLine, there: _PortLine | None) -> None:
        far = self.nodes.get(here.far.guid)
        if there is not None and far is not None:
            agree = there.far.guid == here.near.guid and there.far.port == here.near.port
            if agree and far.kind is here.far_kind:
                return
        name = f"{here.far_kind.value}-{here.far.guid:016x}"
        if far is None or far.kind is not here.far_kind:
            raise self.refuse(
                here.line, f"the cable leads to {name}, which the file does not describe"
            )
        if there is None:
            raise self.refuse(
                here.line,
                f"the cable leads to port {here.far.port} of {name} (line {far.line}), "
                "where the file shows no cable",
            )
        raise self.refuse(
            here.line,
            f"the two ends of the cable disagree: port {here.far.port} of {name} "
            f"leads to another port (line {there.line})",
        )

    def end(self, near: _PortLine, far: _PortLine) -> End:
        """The near end, with its port GUID from either description."""
        near_guid, far_guid = near.near.port_guid, far.far.port_guid
        if self.nodes[near.near.guid].kind is Kind.SWITCH:
            return near.near
        if near_guid and far_guid and near_guid != far_guid:
            raise self.refuse(
                near.line, f"port GUID {near_guid:x} is {far_guid:x} in line {far.line}"
            )
        if not (near_guid or far_guid):
            raise self.refuse(near.line, "the port GUID in parentheses is missing")
        return near.near._replace(port_guid=near_guid or far_guid)


def parse(text: str, source: str = "fabric") -> DumpContent:
    """The cabling that a dump describes.

    Raises:
        InvalidFile: this is no dump, or it is truncated; names the line and the reason.
    """
    reader = _DumpParser(source)
    for number, line in enumerate(io.StringIO(text.removeprefix("\ufeff"), newline="\n"), 1):
        reader.read(number, line.strip())
    if not reader.nodes:
        raise reader.refuse(1, "no switch is described; give the output of ibnetdiscover")
    wires = tuple(reader.wires())
    end_of: dict[int, End] = {}
    for wire in wires:
        for end in (wire.a, wire.b):
            if end.port_guid and end_of.setdefault(end.port_guid, end) != end:
                line_number = reader.ports[end.guid, end.port].line
                raise reader.refuse(line_number, f"port GUID {end.port_guid:x} occurs twice")
    cabling = DumpContent(source, reader.nodes, wires, reader.lmc, tuple(reader.skipped))
    return _with_split_ports(cabling, reader.above) if reader.above else cabling


def _with_split_ports(cabling: DumpContent, highest: Mapping[int, int]) -> DumpContent:
    """Count the ports that cables show, and set cables apart that are at impossible ones.

    ``highest`` are the highest ports of switches. A split makes two of each port, and a switch has
    one more, for its aggregation node.
    """
    nodes = cabling.nodes
    most = {guid: min(2 * nodes[guid].ports + 1, MAX_PORTS) for guid in highest}
    kept: list[Wire] = []
    beyond: list[Wire] = []
    for wire in cabling.wires:
        ends = (wire.a, wire.b)
        possible = all(end.port <= most.get(end.guid, MAX_PORTS) for end in ends)
        (kept if possible else beyond).append(wire)
    ports = dict(highest)
    if beyond:
        used = [end for wire in kept for end in (wire.a, wire.b) if end.guid in highest]
        ports = {end.guid: 0 for end in used}
        for end in used:
            ports[end.guid] = max(ports[end.guid], end.port)
    split = {guid: nodes[guid].ports for guid in ports if ports[guid] > nodes[guid].ports}
    counted = {guid: replace(nodes[guid], ports=ports[guid]) for guid in split}
    return replace(
        cabling, nodes=nodes | counted, wires=tuple(kept), split=split, beyond=tuple(beyond)
    )


# -- writing ------------------------------------------------------------------


def render(inventory: Inventory, speed: str = "4xHDR") -> str:
    """The inventory in the format of ``ibnetdiscover``; every adapter has one port."""
    names = {switch.guid: switch.name for switch in inventory.switches}
    lids = inventory.lids
    ports: dict[int, dict[int, str]] = defaultdict(dict)
    for near, (far, _) in inventory.far_ends.items():
        ports[near.guid][near.port] = (
            f'"S-{far.guid:016x}"[{far.port}]\t\t# "{names[far.guid]}" '
            f"lid {lids.get(far.guid, 0)} {speed}"
        )
    for end in inventory.endpoints:
        ports[end.at.guid][end.at.port] = (
            f'"H-{end.guid:016x}"[1]({end.guid:x}) \t\t# "{end.name}" '
            f"lid {lids.get(end.guid, 0)} {speed}"
        )
    blocks = ["#\n# Topology file: generated\n#"]
    blocks += [
        _block(
            "switch",
            switch.guid,
            f'Switch\t{switch.ports} "S-{switch.guid:016x}"\t\t# "{switch.name}" '
            f"enhanced port 0 lid {lids.get(switch.guid, 0)} lmc 0",
            (f"[{port}]\t{text}" for port, text in sorted(ports[switch.guid].items())),
        )
        for switch in inventory.switches
    ]
    blocks += [
        _block(
            "ca",
            end.guid,
            f'Ca\t1 "H-{end.guid:016x}"\t\t# "{end.name}"',
            [
                f'[1]({end.guid:x}) \t"S-{end.at.guid:016x}"[{end.at.port}]\t\t'
                f'# lid {lids.get(end.guid, 0)} lmc 0 "{names[end.at.guid]}" '
                f"lid {lids.get(end.at.guid, 0)} {speed}"
            ],
        )
        for end in inventory.endpoints
    ]
    return "\n\n".join(blocks) + "\n"


def _block(kind: str, guid: int, header: str, lines: Iterable[str]) -> str:
    value = f"0x{guid:x}({guid:x})" if kind == "switch" else f"0x{guid:x}"
    head = f"vendid=0x0\ndevid=0x0\nsysimgguid=0x{guid:x}\n{kind}guid={value}\n{header}"
    return "\n".join([head, *lines])


def end_name(name: str, end: PortRef | End) -> str:
    """One end of a cable as text: ``name[guid] port N``."""
    return f"{name}[{end.guid:#018x}] port {end.port}"
