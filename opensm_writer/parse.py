# SPDX-License-Identifier: Apache-2.0

"""Parses the subnet manager's files strictly, and the output of diagnostic tools leniently.

A strict parser accepts exactly the bytes that ``render`` writes, else ``InvalidFile`` names the
line: a file that OpenSM would read only in part is never published.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from laas_service.domain.errors import InvalidFile
from laas_service.domain.inventory import ADAPTER_PORT, CableEnds, PortRef
from laas_service.domain.routing.default_tables import NO_ROUTE
from opensm_writer.desired import (
    BLOCK,
    MAX_LID,
    MAX_PORT,
    MAX_RULE,
    Partition,
    PortGroup,
    RoutingStep,
    SubTopology,
    picker,
)
from opensm_writer.render import BARE_ENTRY_SIZE, NAMED_ENTRY_SIZE, PORT_COLUMNS

_HEADER = re.compile(
    rb"Unicast lids \[0-\d+\] of switch Lid (\d+) guid 0x([0-9a-f]{16}) \('[ -&(-~]*'\):\n"
)
_ENTRIES = {
    BARE_ENTRY_SIZE: re.compile(rb"0x([0-9a-f]{4}) \d{3}()\n"),
    NAMED_ENTRY_SIZE: re.compile(rb"0x([0-9a-f]{4}) \d{3} # portguid 0x([0-9a-f]{16}):\n"),
}
"""LID and port GUID of an entry, by the size of the entries of a table."""
_TRAILER = re.compile(rb"(\d+) lids dumped\n")

_CUT = b"\nUnicast"

_WEIGHTS = np.array([100, 10, 1], np.uint16)
"""Of the three digits of a port."""

_ANY_HEADER = re.compile(r"Unicast lids .*? guid 0x([0-9A-Fa-f]+)\b")
_ANY_ENTRY = re.compile(r"\s*0x([0-9A-Fa-f]+)\s+(\d+)\b")


@dataclass(frozen=True, slots=True)
class SwitchTable:
    """The forwarding table of one switch in a file."""

    guid: int
    lid: int
    row: bytes  # port by LID, NO_ROUTE without an entry, up to the last entry
    guids: Mapping[int, int | None]  # LID -> GUID as the entry names it, None in a bare entry
    size: int  # of the text, in bytes
    digest: bytes  # sha256 of the text

    @property
    def bare(self) -> bool:
        """Whether the entries name LIDs alone."""
        return next(iter(self.guids.values())) is None


def switch_tables(
    pieces: Iterable[bytes], source: str, known: Mapping[bytes, SwitchTable] | None = None
) -> Iterator[SwitchTable]:
    """The switches of an ``lfts`` file, in the order of the file.

    ``pieces`` are the bytes of the file in pieces of any size. ``known`` are tables that were
    parsed before, by digest; a table with the same bytes is not parsed again.

    Raises:
        InvalidFile: a byte differs from what ``render`` writes, or the end is missing.
    """
    parser = TableParser(source, known)
    for block in blocks(pieces):
        yield parser.table(block)


class TableParser:
    """Parses the tables of an ``lfts`` file one after the other; see ``switch_tables``."""

    def __init__(self, source: str, known: Mapping[bytes, SwitchTable] | None = None) -> None:
        self._source, self._known = source, known or {}
        self._line = 1
        self._frame: _Frame | None = None
        self._guids: Mapping[int, int | None] = {}

    def table(self, block: bytes) -> SwitchTable:
        """The table in the next block. Raises: InvalidFile."""
        digest = hashlib.sha256(block).digest()
        table = self._known.get(digest) or self._parsed(block, digest)
        self._line += len(table.guids) + 2
        return table

    def _parsed(self, block: bytes, digest: bytes) -> SwitchTable:
        source, first = self._source, self._line
        head, entries, size = _head_and_entries(block, source, first)
        ports = _ports(entries, size, source, first)
        lines = _without_ports(entries, size)
        if self._frame is None or self._frame.lines != lines:
            self._frame = _Frame(lines, size, source, first)
            self._guids = _shared_mapping(self._frame.guids, self._known)
        row = self._frame.row(ports)
        own, guid = int(head[1]), int(head[2], 16)
        if not own < len(row) or row[own] != 0:
            raise InvalidFile(source, first, f"switch {guid:#018x} has no entry for its own LID")
        return SwitchTable(guid, own, row, self._guids, len(block), digest)


def _shared_mapping(
    guids: Mapping[int, int | None], known: Mapping[bytes, SwitchTable]
) -> Mapping[int, int | None]:
    """An equal mapping of a known table if there is one, so that only one stays in memory."""
    mappings = {id(table.guids): table.guids for table in known.values()}
    return next((mapping for mapping in mappings.values() if mapping == guids), guids)


def file_pieces(path: Path) -> Iterator[bytes]:
    """The contents of a file in pieces of 1 MiB."""
    with path.open("rb") as file:
        yield from iter(lambda: file.read(1 << 20), b"")


def blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a file, split before each line that begins with ``Unicast``."""
    rest = b""
    for piece in pieces:
        at = max(0, len(rest) - len(_CUT))  # the beginning of the line may be in the rest
        rest += piece
        while (at := rest.find(_CUT[1], at + 1)) > 0:  # searching for one byte is much faster
            if rest.startswith(_CUT, at - 1):
                yield rest[:at]
                rest, at = rest[at:], 0
    yield rest


def _head_and_entries(block: bytes, source: str, first: int) -> tuple[re.Match[bytes], bytes, int]:
    """The head of a switch's table, its entries, whose number its last line gives, and their size.

    The first entry tells which of the two forms all of them have.
    """
    head = _HEADER.match(block)
    if head is None:
        raise InvalidFile(source, first, "this is not the head of a switch's table")
    end = block.rfind(b"\n", 0, -1) + 1
    trailer = _TRAILER.fullmatch(block, end)
    entries = block[head.end() : end]
    bare = entries[BARE_ENTRY_SIZE - 1 : BARE_ENTRY_SIZE] == b"\n"
    size = BARE_ENTRY_SIZE if bare else NAMED_ENTRY_SIZE
    if trailer is None or int(trailer[1]) * size != len(entries):
        _check_entries(entries, size, source, first + 1)
        last = first + block.count(b"\n", 0, -1)
        raise InvalidFile(source, last, "the table ends without the count of its entries")
    return head, entries, size


def _ports(entries: bytes, size: int, source: str, first: int) -> bytes:
    """The port of each entry, from its three digits."""
    digits = np.frombuffer(entries, np.uint8).reshape(-1, size)[:, PORT_COLUMNS] - ord("0")
    if (digits > 9).any():
        _check_entries(entries, size, source, first + 1)
    ports = digits @ _WEIGHTS
    (wrong,) = (ports >= NO_ROUTE).nonzero()
    if len(wrong):
        raise InvalidFile(source, first + 1 + int(wrong[0]), "ports are 0..254")
    return ports.astype(np.uint8).tobytes()


def _without_ports(entries: bytes, size: int) -> bytes:
    lines = np.frombuffer(entries, np.uint8).reshape(-1, size).copy()
    lines[:, PORT_COLUMNS] = ord("0")
    return lines.tobytes()


class _Frame:
    """LIDs and GUIDs of entries without their ports; most switches of a file share them."""

    def __init__(self, lines: bytes, size: int, source: str, first: int) -> None:
        self.lines = lines
        entries = _ENTRIES[size].findall(lines)
        if len(entries) * size != len(lines):
            _check_entries(lines, size, source, first + 1)
        lids = [int(lid, 16) for lid, _ in entries]
        for line, (low, high) in enumerate(pairwise(lids), first + 2):
            if low >= high:
                raise InvalidFile(source, line, f"LID {high:#06x} is not above {low:#06x}")
        self.guids = {
            lid: int(guid, 16) if guid else None
            for lid, (_, guid) in zip(lids, entries, strict=True)
        }
        places = [-1] * (max(lids, default=0) + 1)
        for place, lid in enumerate(lids):
            places[lid] = place
        self._pick = picker(places)

    def row(self, ports: bytes) -> bytes:
        """A row by LID, from ports in the order of the entries."""
        return self._pick(ports + bytes([NO_ROUTE])).rstrip(bytes([NO_ROUTE]))


def by_guid(
    several: Iterable[SwitchTable], lids: Mapping[int, int], source: str
) -> dict[int, SwitchTable]:
    """Tables by GUID of the switch, in their order.

    Raises:
        InvalidFile: two tables are of one switch, the LID of a switch or an entry is not one that
            ``lids`` has for its GUID, or some tables have bare entries and others named ones.
    """
    names = {lid: guid for guid, lid in lids.items()}
    tables: dict[int, SwitchTable] = {}
    checked: Mapping[int, int | None] = {}
    form: bool | None = None
    for table in several:
        if table.guids is not checked and _are_pinned(table.guids, names):
            checked = table.guids
        if table.guids is not checked or table.guid in tables or lids.get(table.guid) != table.lid:
            raise InvalidFile(source, 1, f"switch {table.guid:#018x} contradicts guid2lid")
        if form not in (None, table.bare):
            raise InvalidFile(source, 1, "some tables have port GUIDs and others have none")
        form = table.bare
        tables[table.guid] = table
    return tables


def _are_pinned(guids: Mapping[int, int | None], names: Mapping[int, int]) -> bool:
    """Whether entries have LIDs of ``names`` (LID -> GUID), and no other GUIDs than those."""
    return guids.keys() <= names.keys() and all(
        guid is None or names[lid] == guid for lid, guid in guids.items()
    )


def row_by_lid(ports: Mapping[int, int]) -> bytes:
    """Ports by LID, ``NO_ROUTE`` for none, up to the last LID that has a port."""
    row = bytearray([NO_ROUTE]) * (max(ports, default=0) + 1)
    for lid, port in ports.items():
        row[lid] = port
    return bytes(row).rstrip(bytes([NO_ROUTE]))


def _check_entries(lines: bytes, size: int, source: str, first: int) -> None:
    """Raise ``InvalidFile`` for the first line that is not an entry of this size."""
    for number, line in enumerate(lines.splitlines(keepends=True), first):
        if not _ENTRIES[size].fullmatch(line):
            text = line.decode("latin-1").strip()
            raise InvalidFile(source, number, f"{text!r} is not an entry")


def dumped_tables(lines: Iterable[str]) -> dict[int, bytes]:
    """Switch GUID -> ports by LID, from ``dump_lfts``, ``ibroute`` or ``opensm-lfts.dump``.

    Rows are as in ``SwitchTable``. Reads only the GUID of each header, and the LID and port of
    each entry. ``dump_lfts`` does not print the highest LID if that is a multiple of 64.
    """
    tables: dict[int, dict[int, int]] = {}
    table: dict[int, int] = {}
    for line in lines:
        if entry := _ANY_ENTRY.match(line):
            lid, port = int(entry[1], 16), int(entry[2])
            if lid <= MAX_LID and port < NO_ROUTE:
                table[lid] = port
        elif header := _ANY_HEADER.match(line):
            table = tables[int(header[1], 16)] = {}
    return {guid: row_by_lid(ports) for guid, ports in tables.items()}


class Dumps:
    """Parses successive dumps, as ``dumped_tables`` does.

    Does not parse the lines of a switch again if they equal (sha256) those in the last dump.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, dict[int, bytes]] = {}

    def read(self, pieces: Iterable[bytes]) -> dict[int, bytes]:
        """Switch GUID -> ports by LID. ``pieces`` are the bytes of a dump, of any size."""
        known: dict[bytes, dict[int, bytes]] = {}
        rows: dict[int, bytes] = {}
        for block in blocks(pieces):
            digest = hashlib.sha256(block).digest()
            tables = self._known.get(digest)
            if tables is None:
                tables = dumped_tables(block.decode(errors="replace").split("\n"))
            known[digest] = tables
            rows |= tables
        self._known = known
        return rows


def guid2lid(text: str, source: str) -> dict[int, int]:
    """GUID -> LID, from records with an empty line after each.

    Raises:
        InvalidFile: OpenSM would drop a record, or a LID or GUID occurs twice.
    """
    record = re.compile(r"0x([0-9a-f]{16}) 0x([0-9a-f]{4}) 0x([0-9a-f]{4})")
    lines = text.split("\n")
    if lines.pop() or len(lines) % 2:
        raise InvalidFile(source, len(lines), "no empty line follows the last record")
    lids: dict[int, int] = {}
    for number in range(0, len(lines), 2):
        match = record.fullmatch(lines[number])
        if match is None or match[2] != match[3] or lines[number + 1]:
            raise InvalidFile(source, number + 1, "records are 0xGUID 0xLID 0xLID, then empty")
        guid, lid = int(match[1], 16), int(match[2], 16)
        if guid in lids:
            raise InvalidFile(source, number + 1, f"GUID {guid:#018x} occurs twice")
        lids[guid] = lid
    if len(set(lids.values())) != len(lids):
        raise InvalidFile(source, 1, "a LID occurs twice")
    if lids and max(lids.values()) % BLOCK == 0:
        raise InvalidFile(source, 1, f"the highest LID is a multiple of {BLOCK}")
    return lids


_CABLE = re.compile(
    r"0x([0-9a-f]{16}) ([1-9]\d{0,2}) 0x([0-9a-f]{16}) (0|[1-9]\d{0,2})\n", re.ASCII
)


@lru_cache(maxsize=2)
def cabling(text: str, source: str) -> tuple[CableEnds, ...]:
    """The recorded cables; see ``Inventory.cable_ends``. Cached, because they change rarely.

    Raises:
        InvalidFile: a line is no cable, the lines do not ascend, or an end occurs twice.
    """
    cables: list[CableEnds] = []
    ends: set[PortRef] = set()
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        match = _CABLE.fullmatch(line)
        if match is None:
            raise InvalidFile(source, number, "this is not the line of a cable")
        first = PortRef(int(match[1], 16), int(match[2]))
        second = PortRef(int(match[3], 16), int(match[4]))
        if max(first.port, second.port) > MAX_PORT:
            raise InvalidFile(source, number, f"ports are 0..{MAX_PORT}")
        if cables and (first, second) <= cables[-1]:
            raise InvalidFile(source, number, "the lines do not ascend")
        if second.port != ADAPTER_PORT and second <= first:
            raise InvalidFile(source, number, "the smaller end is not first")
        if first in ends or second in ends:
            raise InvalidFile(source, number, "an end has two cables")
        ends |= {first, second}
        cables.append((first, second))
    return tuple(cables)


_MAX_LINE = 4000
_PARTITION = re.compile(
    r"([^=,:\s]+)=0x([0-9a-f]{4})(, indx0)?(, ipoib, rate=2)?(?:, sl=([1-7]))?, defmember=full :\n"
    r"([^;:]*) ;\n"
)
_DEFAULT = re.compile(r"Default=0x7fff : ALL=limited, ALL_SWITCHES=full, SELF=full([^;:]*) ;\n")


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """Contents of ``partitions.conf``."""

    services: tuple[int, ...]  # port GUIDs, full members of the default partition
    multicast: bool  # whether a tenant has a broadcast group
    partitions: tuple[Partition, ...]
    at_index_0: bool = True  # whether a tenant's key stands at index 0 of its ports
    level: int = 0  # service level of shared hosts; 0: none has one


def partitions(text: str, source: str) -> PartitionFile:
    """The contents of a ``partitions.conf``.

    Raises:
        InvalidFile: OpenSM might not parse a line (it would then make every port a full member
            of everything), or the file does not begin with the default rule.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > _MAX_LINE:
            raise InvalidFile(source, number, f"the line is longer than {_MAX_LINE} bytes")
    default = _DEFAULT.match(text)
    if default is None:
        raise InvalidFile(source, 1, "the first rule is not the default partition's")
    services = _members(default[1].removeprefix(","), "=full", source, 1) if default[1] else ()
    result, multicast, at_index_0, level, at = [], False, True, 0, default.end()
    while at < len(text):
        first = text.count("\n", 0, at) + 1
        rule = _PARTITION.match(text, at)
        if rule is None:
            raise InvalidFile(source, first, "this is not a partition rule")
        at_index_0 = at_index_0 and rule[3] is not None
        multicast = multicast or rule[4] is not None
        level = max(level, int(rule[5] or 0))
        members = _members(rule[6], "", source, first + 1)
        result.append(Partition(rule[1], int(rule[2], 16), members, rule[5] is not None))
        at = rule.end()
    return PartitionFile(services, multicast, tuple(result), at_index_0, level)


def _members(text: str, suffix: str, source: str, first: int) -> tuple[int, ...]:
    member = re.compile(rf"0x([0-9a-f]{{16}}){suffix}")
    guids: list[int] = []
    for number, part in enumerate(text.split(",")):
        match = member.fullmatch(part.strip())
        if match is None:
            raise InvalidFile(source, first + number, f"{part.strip()!r} is not a member")
        guids.append(int(match[1], 16))
    return tuple(guids)


Block = tuple[int, list[tuple[str, str]]]
"""The line that a block starts at, and its ``key: value`` lines."""


def _blocks(text: str, kind: str, source: str) -> Iterator[Block]:
    """The blocks between ``kind`` and ``end-kind`` lines; refuses lines outside of them."""
    block: Block | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if block is None:
            if line != kind:
                raise InvalidFile(source, number, f"expected {kind!r}")
            block = (number, [])
        elif line == f"end-{kind}":
            yield block
            block = None
        else:
            key, colon, value = line.partition(": ")
            if not colon or ":" in value or not value:
                raise InvalidFile(source, number, f"{line!r} is not 'key: value'")
            block[1].append((key, value))
    if block is not None or (text and not text.endswith("\n")):
        raise InvalidFile(source, text.count("\n") + 1, f"the file ends before 'end-{kind}'")


def port_groups(text: str, source: str) -> tuple[PortGroup, ...]:
    """The groups of ``port_groups.conf``, without those that are part of a union.

    Raises:
        InvalidFile: a name is missing, reserved or used twice, or a rule is wrong or too long.
    """
    groups: dict[str, PortGroup] = {}
    names: set[str] = set()
    for line, pairs in _blocks(text, "port-group", source):
        (key, name), *rules = pairs or [("", "")]
        if key != "name" or name.upper().startswith("ALL") or name in names:
            raise InvalidFile(
                source, line, f"group {name!r}: each name is first, unique, and not ALL..."
            )
        names.add(name)
        ports: dict[int, tuple[int, ...]] = {}
        for number, (rule, value) in enumerate(rules, line + 2):
            if len(f"{rule}: {value}") >= MAX_RULE:
                raise InvalidFile(source, number, "rules stay under 250 bytes")
            for guid, numbers in _ports_of_rule(rule, value, groups, source, number):
                if guid in ports and (not numbers or set(numbers) & set(ports[guid])):
                    raise InvalidFile(source, number, f"{guid:#018x} occurs twice")
                ports[guid] = ports.get(guid, ()) + numbers
        if not ports:
            raise InvalidFile(source, line, f"group {name!r} has no rule")
        groups[name] = PortGroup(name, tuple(ports.items()))
    return tuple(groups.values())


def _ports_of_rule(
    rule: str, value: str, groups: dict[str, PortGroup], source: str, line: int
) -> list[tuple[int, tuple[int, ...]]]:
    """The ports of a rule by GUID; a union removes its two groups from ``groups``."""
    parts = value.split(", ")
    if rule == "port-guid":
        return [_port(part, source, line) for part in parts]
    if rule != "union-rule" or len(parts) != 2 or not groups.keys() >= set(parts):
        raise InvalidFile(source, line, "rules are port-guid, or union-rule of two groups above")
    return [port for part in dict.fromkeys(parts) for port in groups.pop(part).ports]


def _port(text: str, source: str, line: int) -> tuple[int, tuple[int, ...]]:
    match = re.fullmatch(r"0x([0-9a-f]{16})(?:@(\d+(?:/\d+)*))?", text)
    if match is None:
        raise InvalidFile(source, line, f"{text!r} is not a GUID with ports")
    return int(match[1], 16), tuple(map(int, match[2].split("/"))) if match[2] else ()


def topologies(text: str, source: str) -> tuple[SubTopology, ...]:
    """The topologies of ``topologies.conf``. Raises ``InvalidFile``."""
    result = []
    for line, pairs in _blocks(text, "topology", source):
        if [key for key, _ in pairs] != ["id", "sw-grp", "hca-grp"]:
            raise InvalidFile(source, line, "a topology has id, sw-grp and hca-grp")
        result.append(SubTopology(_number(pairs[0][1], source, line + 1), pairs[1][1], pairs[2][1]))
    _check_ascending([topology.id for topology in result], source)
    return tuple(result)


def chain(text: str, source: str, directory: str) -> tuple[RoutingStep, ...]:
    """The steps of ``chains.conf``.

    Raises:
        InvalidFile: also if the first step is not for the whole fabric, or an engine file is
            not in ``directory``.
    """
    result = []
    for line, pairs in _blocks(text, "unicast-step", source):
        values = dict(pairs)
        if [key for key, _ in pairs] != ["id", "engine", "topology", "config"]:
            raise InvalidFile(source, line, "a step has id, engine, topology and config")
        if not values["config"].startswith(f"{directory}/"):
            raise InvalidFile(source, line + 4, f"the engine file is not in {directory}")
        result.append(
            RoutingStep(
                _number(values["id"], source, line + 1),
                values["engine"],
                _number(values["topology"], source, line + 3),
                values["config"].removeprefix(f"{directory}/"),
            )
        )
    _check_ascending([step.id for step in result], source)
    if not result or result[0].topology != 0:
        raise InvalidFile(source, 1, "the first step must be for the whole fabric (topology 0)")
    return tuple(result)


def _number(text: str, source: str, line: int) -> int:
    if not text.isdecimal():
        raise InvalidFile(source, line, f"{text!r} is not a number")
    return int(text)


def _check_ascending(ids: list[int], source: str) -> None:
    if any(low >= high for low, high in pairwise([0, *ids])):
        raise InvalidFile(source, 1, "ids must be positive and ascend")


def guid_list(text: str, source: str) -> tuple[int, ...]:
    """The GUIDs of a root or compute-node list. Raises ``InvalidFile``."""
    if text and not text.endswith("\n"):
        raise InvalidFile(source, len(text.splitlines()), "the end of the line is missing")
    guids = []
    for number, line in enumerate(text.splitlines(), 1):
        if not re.fullmatch(r"0x[0-9a-f]{16}", line):
            raise InvalidFile(source, number, f"{line!r} is not a GUID")
        guids.append(int(line, 16))
    return tuple(guids)
