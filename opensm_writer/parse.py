# SPDX-License-Identifier: Apache-2.0

"""Reads the subnet manager's files back: strictly what we write, leniently what tools print.

Strict means: every byte is accounted for, or ``InvalidFile`` names the line. A file
that OpenSM would half understand must never be published.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import add
from pathlib import Path

from laas_service.domain.errors import InvalidFile
from laas_service.domain.routing.default_tables import NO_ROUTE
from opensm_writer.desired import (
    BLOCK,
    MAX_LID,
    MAX_RULE,
    Partition,
    PortGroup,
    Step,
    SubTopology,
    picker,
)
from opensm_writer.render import ENTRY_SIZE, PORT_COLUMNS

_HEADER = re.compile(
    rb"Unicast lids \[0-\d+\] of switch Lid (\d+) guid 0x([0-9a-f]{16}) \('[ -&(-~]*'\):\n"
)
_ENTRY = re.compile(rb"0x([0-9a-f]{4}) \d{3} # portguid 0x([0-9a-f]{16}):\n")
_TRAILER = re.compile(rb"(\d+) lids dumped\n")

_CUT = b"\nUnicast"

_DIGITS = b"0123456789"
_HUNDREDS = bytes.maketrans(_DIGITS, bytes(min(100 * digit, NO_ROUTE) for digit in range(10)))
_TENS = bytes.maketrans(_DIGITS, bytes(range(0, 100, 10)))
_UNITS = bytes.maketrans(_DIGITS, bytes(range(10)))

_ANY_HEADER = re.compile(r"Unicast lids .*? guid 0x([0-9A-Fa-f]+)\b")
_ANY_ENTRY = re.compile(r"\s*0x([0-9A-Fa-f]+)\s+(\d+)\b")


@dataclass(frozen=True, slots=True)
class SwitchTable:
    """One switch as a file has it: ports by LID, and the GUID that stands beside each LID.

    ``row[lid]`` is the port, ``NO_ROUTE`` where there is no entry; it ends at the last entry.
    ``size`` and ``digest`` (sha256) are those of the bytes it was read from.
    """

    guid: int
    lid: int
    row: bytes
    guids: Mapping[int, int]
    size: int
    digest: bytes


def switch_tables(
    pieces: Iterable[bytes], source: str, known: Mapping[bytes, SwitchTable] | None = None
) -> Iterator[SwitchTable]:
    """The switches of an ``lfts`` file of ours, one after the other.

    ``pieces`` are its lines, or parts of any other size. ``known`` are tables by digest:
    what was read before is not read again while its bytes are the same.

    Raises:
        InvalidFile: anything is not exactly as we write it, or the end is missing.
    """
    first, frame = 1, None
    guids: Mapping[int, int] = {}
    for block in _tables(pieces):
        digest = hashlib.sha256(block).digest()
        table = known.get(digest) if known else None
        if table is None:
            head, entries = _parts(block, source, first)
            ports = _ports(entries, source, first)
            lines = _without_ports(entries)
            if frame is None or frame.lines != lines:
                frame = _Frame(lines, source, first)
                guids = _shared(frame.guids, known)
            row = frame.row(ports)
            own, guid = int(head[1]), int(head[2], 16)
            if not own < len(row) or row[own] != 0:
                raise InvalidFile(
                    source, first, f"switch {guid:#018x} has no entry for its own LID"
                )
            table = SwitchTable(guid, own, row, guids, len(block), digest)
        yield table
        first += len(table.guids) + 2


def _shared(
    guids: Mapping[int, int], known: Mapping[bytes, SwitchTable] | None
) -> Mapping[int, int]:
    """The same mapping as read before: tables that stay known would keep one for each reading."""
    each = {id(table.guids): table.guids for table in known.values()} if known else {}
    return next((one for one in each.values() if one == guids), guids)


def file_pieces(path: Path) -> Iterator[bytes]:
    """The contents of a file in parts of 1 MiB."""
    with path.open("rb") as file:
        yield from iter(lambda: file.read(1 << 20), b"")


def _tables(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """A text cut before every line that begins with ``Unicast``."""
    rest = b""
    for piece in pieces:
        at = max(0, len(rest) - len(_CUT))  # the first piece of a line may be in the rest
        rest += piece
        while (at := rest.find(_CUT[1], at + 1)) > 0:  # one byte is found much faster
            if rest.startswith(_CUT, at - 1):
                yield rest[:at]
                rest, at = rest[at:], 0
    yield rest


def _parts(block: bytes, source: str, first: int) -> tuple[re.Match[bytes], bytes]:
    """The head of a switch's table, and its entries, as many as its last line says."""
    head = _HEADER.match(block)
    if head is None:
        raise InvalidFile(source, first, "this is not the head of a switch's table")
    end = block.rfind(b"\n", 0, -1) + 1
    trailer = _TRAILER.fullmatch(block, end)
    entries = block[head.end() : end]
    if trailer is None or int(trailer[1]) * ENTRY_SIZE != len(entries):
        _check_entries(entries, source, first + 1)
        last = first + block.count(b"\n", 0, -1)
        raise InvalidFile(source, last, "the table ends without the count of its entries")
    return head, entries


def _ports(entries: bytes, source: str, first: int) -> bytes:
    """The port of each entry, from its three digits."""
    hundreds, tens, units = (entries[column::ENTRY_SIZE] for column in PORT_COLUMNS)
    if any(column.strip(_DIGITS) for column in (hundreds, tens, units)):
        _check_entries(entries, source, first + 1)
    below = map(add, tens.translate(_TENS), units.translate(_UNITS))
    values = list(map(add, hundreds.translate(_HUNDREDS), below))
    if max(values, default=0) >= NO_ROUTE:
        line = first + 1 + next(n for n, port in enumerate(values) if port >= NO_ROUTE)
        raise InvalidFile(source, line, "ports are 0..254")
    return bytes(values)


def _without_ports(entries: bytes) -> bytes:
    lines = bytearray(entries)
    for column in PORT_COLUMNS:
        lines[column::ENTRY_SIZE] = b"0" * (len(lines) // ENTRY_SIZE)
    return bytes(lines)


class _Frame:
    """Entries without their ports: the LIDs and GUIDs, the same for most switches of a file."""

    def __init__(self, lines: bytes, source: str, first: int) -> None:
        self.lines = lines
        found = _ENTRY.findall(lines)
        if len(found) * ENTRY_SIZE != len(lines):
            _check_entries(lines, source, first + 1)
        lids = [int(lid, 16) for lid, _ in found]
        for line, (low, high) in enumerate(pairwise(lids), first + 2):
            if low >= high:
                raise InvalidFile(source, line, f"LID {high:#06x} is not above {low:#06x}")
        self.guids = {lid: int(guid, 16) for lid, (_, guid) in zip(lids, found, strict=True)}
        places = [-1] * (max(lids, default=0) + 1)
        for place, lid in enumerate(lids):
            places[lid] = place
        self._pick = picker(places)

    def row(self, ports: bytes) -> bytes:
        """Ports in the order of the entries, as a row by LID."""
        return self._pick(ports + bytes([NO_ROUTE])).rstrip(bytes([NO_ROUTE]))


def row_by_lid(lids: Sequence[int], ports: Sequence[int]) -> bytes:
    """Ports by LID, ``NO_ROUTE`` in between, up to the last LID that has a port."""
    row = bytearray([NO_ROUTE]) * (max(lids, default=0) + 1)
    for lid, port in zip(lids, ports, strict=True):
        row[lid] = port
    return bytes(row).rstrip(bytes([NO_ROUTE]))


def _check_entries(lines: bytes, source: str, first: int) -> None:
    """Say which of the lines is no entry."""
    for number, line in enumerate(lines.splitlines(keepends=True), first):
        if not _ENTRY.fullmatch(line):
            text = line.decode("latin-1").strip()
            raise InvalidFile(source, number, f"{text!r} is no entry")


def dumped_tables(lines: Iterable[str]) -> dict[int, bytes]:
    """Switch GUID -> ports by LID, from ``dump_lfts``, ``ibroute`` or ``opensm-lfts.dump``.

    Rows are as in ``SwitchTable``. Reads the GUID of the header, the LID and the port,
    and nothing else. ``dump_lfts`` does not print the highest LID if that is a
    multiple of 64.
    """
    tables: dict[int, dict[int, int]] = {}
    rows: dict[int, bytes] = {}
    table: dict[int, int] = {}
    for line in lines:
        if entry := _ANY_ENTRY.match(line):
            lid, port = int(entry[1], 16), int(entry[2])
            if lid <= MAX_LID and port < NO_ROUTE:
                table[lid] = port
        elif header := _ANY_HEADER.match(line):
            rows |= {guid: row_by_lid([*t], [*t.values()]) for guid, t in tables.items()}
            table = {}
            tables = {int(header[1], 16): table}
    return rows | {guid: row_by_lid([*t], [*t.values()]) for guid, t in tables.items()}


class Dumps:
    """Reads dumps as ``dumped_tables`` does, one after the other.

    The lines of a switch that are those of the dump before (sha256) are not read again.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, dict[int, bytes]] = {}

    def read(self, pieces: Iterable[bytes]) -> dict[int, bytes]:
        """``pieces`` of any size, in the order of the dump."""
        known: dict[bytes, dict[int, bytes]] = {}
        rows: dict[int, bytes] = {}
        for block in _tables(pieces):
            digest = hashlib.sha256(block).digest()
            found = self._known.get(digest)
            if found is None:
                found = dumped_tables(block.decode(errors="replace").split("\n"))
            known[digest] = found
            rows |= found
        self._known = known
        return rows


def guid2lid(text: str, source: str) -> dict[int, int]:
    """GUID -> LID, from records that are each followed by an empty line.

    Raises:
        InvalidFile: a record OpenSM would drop, or a LID or GUID that comes twice.
    """
    record = re.compile(r"0x([0-9a-f]{16}) 0x([0-9a-f]{4}) 0x([0-9a-f]{4})")
    lines = text.split("\n")
    if lines.pop() or len(lines) % 2:
        raise InvalidFile(source, len(lines), "the last record has no empty line after it")
    lids: dict[int, int] = {}
    for number in range(0, len(lines), 2):
        found = record.fullmatch(lines[number])
        if found is None or found[2] != found[3] or lines[number + 1]:
            raise InvalidFile(source, number + 1, "records are 0xGUID 0xLID 0xLID, then empty")
        guid, lid = int(found[1], 16), int(found[2], 16)
        if guid in lids:
            raise InvalidFile(source, number + 1, f"GUID {guid:#018x} comes twice")
        lids[guid] = lid
    if len(set(lids.values())) != len(lids):
        raise InvalidFile(source, 1, "a LID comes twice")
    if lids and max(lids.values()) % BLOCK == 0:
        raise InvalidFile(source, 1, f"the highest LID is a multiple of {BLOCK}")
    return lids


_MAX_LINE = 4000
_PARTITION = re.compile(r"([^=,:\s]+)=0x([0-9a-f]{4})((?:, ?[a-z]+(?:=\w+)?)*) :\n([^;:]*) ;\n")
_DEFAULT = re.compile(r"Default=0x7fff : ALL=limited, ALL_SWITCHES=full, SELF=full([^;:]*) ;\n")


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """``partitions.conf`` as read: the services of the default rule, then the tenants."""

    services: tuple[int, ...]
    multicast: bool
    partitions: tuple[Partition, ...]


def partitions(text: str, source: str) -> PartitionFile:
    """The partitions of a file of ours.

    Raises:
        InvalidFile: a line OpenSM might not parse (it would then make every port a full
            member of everything), or no default rule at the start.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > _MAX_LINE:
            raise InvalidFile(source, number, f"the line is longer than {_MAX_LINE} bytes")
    default = _DEFAULT.match(text)
    if default is None:
        raise InvalidFile(source, 1, "the first rule is not the default partition's")
    services = _members(default[1].removeprefix(","), "=full", source, 1) if default[1] else ()
    found, multicast, at = [], False, default.end()
    while at < len(text):
        first = text.count("\n", 0, at) + 1
        rule = _PARTITION.match(text, at)
        if rule is None or not rule[3].endswith("defmember=full"):
            raise InvalidFile(source, first, "this is no partition rule")
        multicast = multicast or "ipoib" in rule[3]
        members = _members(rule[4], "", source, first + 1)
        found.append(Partition(rule[1], int(rule[2], 16), members))
        at = rule.end()
    return PartitionFile(services, multicast, tuple(found))


def _members(text: str, suffix: str, source: str, first: int) -> tuple[int, ...]:
    member = re.compile(rf"0x([0-9a-f]{{16}}){suffix}")
    guids: list[int] = []
    for number, part in enumerate(text.split(",")):
        found = member.fullmatch(part.strip())
        if found is None:
            raise InvalidFile(source, first + number, f"{part.strip()!r} is no member")
        guids.append(int(found[1], 16))
    return tuple(guids)


Block = tuple[int, list[tuple[str, str]]]
"""The line a block starts at, and its ``key: value`` lines."""


def _blocks(text: str, kind: str, source: str) -> Iterator[Block]:
    """The blocks between ``kind`` and ``end-kind`` lines; nothing may stand outside."""
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
    """The groups of ``port_groups.conf``, without those that became parts of a union.

    Raises:
        InvalidFile: a name is missing, taken or reserved, or a rule is wrong or too long.
    """
    groups: dict[str, PortGroup] = {}
    names: set[str] = set()
    for line, pairs in _blocks(text, "port-group", source):
        (key, name), *rules = pairs or [("", "")]
        if key != "name" or name.upper().startswith("ALL") or name in names:
            raise InvalidFile(source, line, f"group {name!r}: names come first, once, not ALL...")
        names.add(name)
        ports: dict[int, tuple[int, ...]] = {}
        for number, (rule, value) in enumerate(rules, line + 2):
            if len(f"{rule}: {value}") >= MAX_RULE:
                raise InvalidFile(source, number, "rules stay under 250 bytes")
            for guid, some in _ports_of_rule(rule, value, groups, source, number):
                if guid in ports and (not some or set(some) & set(ports[guid])):
                    raise InvalidFile(source, number, f"{guid:#018x} comes twice")
                ports[guid] = ports.get(guid, ()) + some
        if not ports:
            raise InvalidFile(source, line, f"group {name!r} has no rule")
        groups[name] = PortGroup(name, tuple(ports.items()))
    return tuple(groups.values())


def _ports_of_rule(
    rule: str, value: str, groups: dict[str, PortGroup], source: str, line: int
) -> list[tuple[int, tuple[int, ...]]]:
    """The ports of a rule by GUID; a union takes its two groups out of ``groups``."""
    parts = value.split(", ")
    if rule == "port-guid":
        return [_port(part, source, line) for part in parts]
    if rule != "union-rule" or len(parts) != 2 or not groups.keys() >= set(parts):
        raise InvalidFile(source, line, "rules are port-guid, or union-rule of two groups above")
    return [port for part in dict.fromkeys(parts) for port in groups.pop(part).ports]


def _port(text: str, source: str, line: int) -> tuple[int, tuple[int, ...]]:
    found = re.fullmatch(r"0x([0-9a-f]{16})(?:@(\d+(?:/\d+)*))?", text)
    if found is None:
        raise InvalidFile(source, line, f"{text!r} is no GUID with ports")
    return int(found[1], 16), tuple(map(int, found[2].split("/"))) if found[2] else ()


def topologies(text: str, source: str) -> tuple[SubTopology, ...]:
    """The topologies of ``topologies.conf``. Raises ``InvalidFile``."""
    found = []
    for line, pairs in _blocks(text, "topology", source):
        if [key for key, _ in pairs] != ["id", "sw-grp", "hca-grp"]:
            raise InvalidFile(source, line, "a topology has id, sw-grp and hca-grp")
        found.append(SubTopology(_number(pairs[0][1], source, line + 1), pairs[1][1], pairs[2][1]))
    _ascending([topology.id for topology in found], source)
    return tuple(found)


def chain(text: str, source: str, directory: str) -> tuple[Step, ...]:
    """The steps of ``chains.conf``; their engine files must lie in ``directory``.

    Raises:
        InvalidFile: also if the first step is not for the whole fabric.
    """
    found = []
    for line, pairs in _blocks(text, "unicast-step", source):
        values = dict(pairs)
        if [key for key, _ in pairs] != ["id", "engine", "topology", "config"]:
            raise InvalidFile(source, line, "a step has id, engine, topology and config")
        if not values["config"].startswith(f"{directory}/"):
            raise InvalidFile(source, line + 4, f"the engine file is not in {directory}")
        found.append(
            Step(
                _number(values["id"], source, line + 1),
                values["engine"],
                _number(values["topology"], source, line + 3),
                values["config"].removeprefix(f"{directory}/"),
            )
        )
    _ascending([step.id for step in found], source)
    if not found or found[0].topology != 0:
        raise InvalidFile(source, 1, "the first step must be for the whole fabric (topology 0)")
    return tuple(found)


def _number(text: str, source: str, line: int) -> int:
    if not text.isdecimal():
        raise InvalidFile(source, line, f"{text!r} is no number")
    return int(text)


def _ascending(ids: list[int], source: str) -> None:
    if any(low >= high for low, high in pairwise([0, *ids])):
        raise InvalidFile(source, 1, "ids must be positive and ascend")


def guid_list(text: str, source: str) -> tuple[int, ...]:
    """The GUIDs of a root or compute-node list. Raises ``InvalidFile``."""
    if text and not text.endswith("\n"):
        raise InvalidFile(source, len(text.splitlines()), "the end of the line is missing")
    guids = []
    for number, line in enumerate(text.splitlines(), 1):
        if not re.fullmatch(r"0x[0-9a-f]{16}", line):
            raise InvalidFile(source, number, f"{line!r} is no GUID")
        guids.append(int(line, 16))
    return tuple(guids)
