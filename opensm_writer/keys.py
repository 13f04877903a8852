# SPDX-License-Identifier: Apache-2.0

"""Partition keys in the ports of a fabric, compared with those of a set of files; pure.

``laas-opensm-keys`` prints a reading as lines, the last of which counts the ports::

    self 0x0002c90380000001
    master 0x0002c90380000001 lid 0x0150 priority 14 state 3
    port 0x0002c90300000001 0 - 8162,7fff
    port 0x0002c90201000000 1 on 8162,7fff
    ports 2

A port is a port GUID with 0, or the node GUID of a switch with a port number, 0 for the
switch's own port. ``lmc 1`` at the end of the first line is the LMC of that port, if it is above
0. Keys stand in the order of their indices. With an M_Key, ``m_key 2`` at the end
of a line says that the port has this M_Key, and its protection level; -1 that it has another one.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from laas_service.domain.errors import InvalidFile
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import ADAPTER_PORT, CableEnds, PortRef
from laas_service.messages import PKEYS, Master
from opensm_writer.parse import PartitionFile

BLOCK = 32
"""Keys in one block of a port's table, which is written as a whole."""

DEFAULT = 0x7FFF
FULL = 0x8000
"""The bit of a full member; a key without it is a limited member's."""


MASTER = 3
"""``Manager.state`` of the master."""


class Enforcement(StrEnum):
    """Whether a switch port drops packets with a key that is not in its table."""

    ON = "on"  # in both directions
    OFF = "off"
    NONE = "-"  # the switch cannot, or the port is no external port of a switch


@dataclass(frozen=True, slots=True)
class Manager:
    """A subnet manager, as it describes itself. ``priority`` is 0..15, ``state`` 3 the master."""

    guid: int
    lid: int
    priority: int
    state: int

    @property
    def master(self) -> Master | None:
        """The master that it is; None if it is none."""
        return Master(self.guid, self.lid, self.priority) if self.state == MASTER else None


@dataclass(frozen=True, slots=True)
class PortKeys:
    """The keys of one port by index, 0 where there is none.

    ``protection`` is the protection level (0..3) of a port that has the M_Key of the reader, -1 of
    one that has another M_Key; None if it was not read.
    """

    port: PortRef
    enforcement: Enforcement
    keys: tuple[int, ...]
    protection: int | None = None

    @property
    def first_block(self) -> "PortKeys":
        """The same without the keys beyond the first block."""
        return replace(self, keys=self.keys[:BLOCK])

    def open_to(self, level: int) -> bool:
        """Whether the port is known to lack our M_Key at this protection level."""
        return self.protection not in (None, level)


@dataclass(frozen=True, slots=True)
class KeyReading:
    """One look at the keys.

    ``own`` is the GUID of the port through which they were read; ``lmc`` (0..7) is its LMC: the
    master gave it 2 to the power of the LMC LIDs.
    """

    own: int
    master: Manager | None
    ports: Mapping[PortRef, PortKeys]
    lmc: int = 0

    @property
    def several_lids(self) -> str | None:
        """Why no tables fit: the subnet manager gives ports several LIDs; None: it gives one."""
        if not self.lmc:
            return None
        return (
            f"OpenSM runs with lmc {self.lmc}, which gives each port {1 << self.lmc} LIDs; tables "
            "are published for one: set lmc 0 and restart it"
        )


def lines(reading: KeyReading) -> Iterator[str]:
    """The text of a reading."""
    lmc = f" lmc {reading.lmc}" if reading.lmc else ""
    yield f"self {reading.own:#018x}{lmc}\n"
    if master := reading.master:
        yield (
            f"master {master.guid:#018x} lid {master.lid:#06x} "
            f"priority {master.priority} state {master.state}\n"
        )
    for port in reading.ports.values():
        keys = ",".join(f"{key:04x}" for key in port.keys) or "none"
        guard = "" if port.protection is None else f" m_key {port.protection}"
        yield f"port {port.port.guid:#018x} {port.port.port} {port.enforcement} {keys}{guard}\n"
    yield f"ports {len(reading.ports)}\n"


_PORT = re.compile(
    r"port 0x([0-9a-f]{16}) (\d{1,3}) (on|off|-) (none|[0-9a-f]{4}(?:,[0-9a-f]{4})*)"
    r"(?: m_key (-1|[0-3]))?",
    re.ASCII,
)
_SELF = re.compile(r"self 0x([0-9a-f]{16})(?: lmc ([1-7]))?", re.ASCII)
_MASTER = re.compile(
    r"master 0x([0-9a-f]{16}) lid 0x([0-9a-f]{4}) priority (\d{1,2}) state (\d{1,2})", re.ASCII
)


def reading_of(text: str, source: str) -> KeyReading:
    """The reading in what ``laas-opensm-keys`` printed.

    Raises:
        InvalidFile: a line has another form, a port occurs twice, or the end is missing.
    """
    own, master, count, lmc = 0, None, None, 0
    ports: dict[PortRef, PortKeys] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if match := _PORT.fullmatch(line):
            port = PortRef(int(match[1], 16), int(match[2]))
            if port in ports:
                raise InvalidFile(source, number, "the port occurs twice")
            keys = () if match[4] == "none" else tuple(int(key, 16) for key in match[4].split(","))
            guard = int(match[5]) if match[5] else None
            ports[port] = PortKeys(port, Enforcement(match[3]), keys, guard)
        elif match := _SELF.fullmatch(line):
            own, lmc = int(match[1], 16), int(match[2] or 0)
        elif match := _MASTER.fullmatch(line):
            guid, lid, priority, state = match.groups()
            master = Manager(int(guid, 16), int(lid, 16), int(priority), int(state))
        elif line == f"ports {len(ports)}":
            count = len(ports)
        else:
            raise InvalidFile(source, number, f"{line[:100]!r} is no line of laas-opensm-keys")
    if count != len(ports):
        raise InvalidFile(source, len(text.splitlines()), "the number of ports is missing")
    return KeyReading(own, master, ports, lmc)


@dataclass(frozen=True, slots=True)
class WrongKeys:
    """The ports whose keys differ, and the first of them in a sentence."""

    ports: tuple[PortRef, ...]
    detail: str
    in_first_block: tuple[PortRef, ...] = ()
    """Those of ``ports`` that differ in the first ``BLOCK`` keys; OpenSM writes no others."""


@dataclass(frozen=True)
class DesiredKeys:
    """The keys that a set of files gives the ports of a fabric with the recorded ``cables``.

    Keys outside of ``pkeys`` that no partition of the set has belong to somebody else.
    """

    partitions: PartitionFile
    cables: tuple[CableEnds, ...]
    pkeys: range = PKEYS

    def wrong(self, reading: KeyReading, unreached: Collection[int] = ()) -> WrongKeys | None:
        """The ports that have other keys; None if there is none.

        Each recorded switch has to be read, except those in ``unreached`` (GUIDs). A port that
        is not active is not read. An adapter that does not answer is passed over if its switch
        port drops packets with foreign keys.
        """
        wrong = {
            port: text
            for port, adapter in self._judged(reading)
            if (text := self._difference(reading, port, adapter))
        }
        for guid in self._switches - set(unreached):
            port = PortRef(guid, ADAPTER_PORT)
            if port not in reading.ports:
                wrong[port] = "was not read"
        if not wrong:
            return None
        blocks = {port: entry.first_block for port, entry in reading.ports.items()}
        first = replace(reading, ports=blocks)
        repairable = [
            port
            for port, adapter in self._judged(reading)
            if port in wrong and self._difference(first, port, adapter)
        ]
        return replace(_first(wrong, self._switches), in_first_block=tuple(repairable))

    def _judged(self, reading: KeyReading) -> Iterator[tuple[PortRef, int | None]]:
        """Each port, and the adapter whose keys it has to have; None for a switch's own port."""
        recorded = set()
        for at, adapter in self.cables:
            if adapter.port == ADAPTER_PORT:
                recorded |= {at, adapter}
                yield at, adapter.guid
                yield adapter, adapter.guid
        for guid in self._switches:
            yield PortRef(guid, ADAPTER_PORT), None
        for port in reading.ports.keys() - recorded:
            if port.guid not in self._switches:  # an adapter in the place of a recorded one
                yield port, port.guid

    def _difference(self, reading: KeyReading, port: PortRef, adapter: int | None) -> str | None:
        found = reading.ports.get(port)
        if found is None:
            at = self._place.get(port)
            leaf = reading.ports.get(at) if at is not None else None
            silent = leaf is not None and leaf.enforcement is not Enforcement.ON
            return "does not answer" if silent else None
        own = self._keys_of.get(adapter, ()) if adapter is not None else ()
        everything = adapter is None or adapter in self._reachable(reading)
        desired = {DEFAULT | (FULL if everything else 0), *(key | FULL for key in own)}
        judged = {key for key in found.keys if key and self._is_ours(key)}
        if judged != desired:
            return f"has {_hex(judged)}, not {_hex(desired)}"
        first = own[0] | FULL if own and self.partitions.at_index_0 else found.keys[0]
        if port.port == ADAPTER_PORT and found.keys[0] != first:
            return f"has {found.keys[0]:#06x} at index 0, not {first:#06x}"
        if found.enforcement is Enforcement.OFF:
            return "does not drop packets with foreign keys"
        return None

    def _is_ours(self, key: int) -> bool:
        number = key & ~FULL
        return number == DEFAULT or number in self.pkeys or number in self._numbers

    def _reachable(self, reading: KeyReading) -> set[int]:
        """GUIDs of the full members of the default partition: services and the master."""
        master = reading.master.guid if reading.master is not None else reading.own
        return {*self.partitions.services, master}

    @cached_property
    def _numbers(self) -> frozenset[int]:
        return frozenset(partition.pkey for partition in self.partitions.partitions)

    @cached_property
    def _keys_of(self) -> Mapping[int, Sequence[int]]:
        """Adapter's GUID -> keys of its partitions."""
        return grouped(
            (guid, partition.pkey)
            for partition in self.partitions.partitions
            for guid in partition.members
        )

    @cached_property
    def _place(self) -> Mapping[PortRef, PortRef]:
        """The switch port of each adapter."""
        return {second: first for first, second in self.cables if second.port == ADAPTER_PORT}

    @cached_property
    def _switches(self) -> frozenset[int]:
        ends = (end for cable in self.cables for end in cable)
        return frozenset(end.guid for end in ends if end.port != ADAPTER_PORT)


def _first(wrong: Mapping[PortRef, str], switches: Collection[int]) -> WrongKeys:
    ports = sorted(wrong, key=lambda port: (port.guid in switches, port))
    first = ports[0]
    where = f"port {first.port} of switch" if first.port else "port"
    text = f"{where} {first.guid:#018x} {wrong[first]}"
    return WrongKeys(tuple(ports), f"{len(ports)} ports have wrong partition keys: {text}")


def _hex(keys: Collection[int]) -> str:
    return ", ".join(f"{key:#06x}" for key in sorted(keys)) or "none"


def members_of(ports: Collection[PortRef], cables: Collection[CableEnds]) -> tuple[int, ...]:
    """GUIDs, ascending: the adapter of each port of a switch, else the GUID of the port itself."""
    adapters = {first: second.guid for first, second in cables if second.port == ADAPTER_PORT}
    return tuple(sorted({adapters.get(port, port.guid) for port in ports}))
