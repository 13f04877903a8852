# SPDX-License-Identifier: Apache-2.0

"""The entries that the pairs of a partition use, and whether they need no sweep; pure.

An entry stands if the switch has it now, and no set that OpenSM may still write has another one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from laas_service.domain.inventory import CableEnds, PortRef
from laas_service.domain.routing.default_tables import NO_ROUTE
from opensm_writer.blocks import Block
from opensm_writer.desired import BLOCK

Rows = Mapping[int, bytes]
"""Switch GUID -> ports by LID."""

Entries = Mapping[int, frozenset[int]]
"""Switch GUID -> LIDs."""

LONGEST = 8
"""More switches than a path through three levels has."""


class Ways:
    """Ways through the tables of a set; ``lids`` are those of ports, by GUID."""

    def __init__(self, rows: Rows, lids: Mapping[int, int], cables: Iterable[CableEnds]) -> None:
        self._rows, self._lids = rows, lids
        self._ahead = {near: far for ends in cables for near, far in (ends, ends[::-1])}
        self._leaves = {
            near.guid: far.guid for near, far in self._ahead.items() if near.guid not in rows
        }

    def entries_between(self, ports: Collection[int]) -> Entries | None:
        """The entries on the ways of all ordered pairs of ports (GUIDs).

        None if one of them does not arrive.
        """
        leaves = {self._leaves[port] for port in ports if port in self._leaves}
        used: dict[int, set[int]] = {}
        for port in ports:
            lid = self._lids.get(port)
            if lid is None or port not in self._leaves:
                return None
            for leaf in leaves:
                if not self._follow(leaf, port, lid, used):
                    return None
        return {switch: frozenset(lids) for switch, lids in used.items()}

    def _follow(self, switch: int, port: int, lid: int, used: dict[int, set[int]]) -> bool:
        """Add the entries on the way from a switch; whether it arrives at the port."""
        for _ in range(LONGEST):
            known = used.setdefault(switch, set())
            if lid in known:
                return True
            known.add(lid)
            leaves_by = port_at(self._rows.get(switch, b""), lid)
            far = self._ahead.get(PortRef(switch, leaves_by))
            if leaves_by == NO_ROUTE or far is None:
                return False
            if far.guid == port:
                return True
            switch = far.guid
        return False


def port_at(row: bytes, lid: int) -> int:
    """The port of a row towards a LID."""
    return row[lid] if lid < len(row) else NO_ROUTE


def agree(entries: Entries, rows: Rows, others: Sequence[Rows]) -> bool:
    """Whether all these tables have the same entries."""
    return all(
        port_at(other.get(switch, b""), lid) == port_at(rows[switch], lid)
        for other in others
        for switch, lids in entries.items()
        for lid in lids
    )


def blocks_of(entries: Entries, lid_of: Mapping[int, int]) -> set[Block]:
    """The blocks that have these entries; ``lid_of`` has the LIDs of switches."""
    return {Block(lid_of[switch], lid // BLOCK) for switch, lids in entries.items() for lid in lids}


def were_read(
    entries: Entries,
    rows: Rows,
    read: Mapping[int, Mapping[Block, bytes]],
    lid_of: Mapping[int, int],
) -> bool:
    """Whether blocks that were read, by GUID of the switch that answered, have these entries."""
    return all(
        (block := read.get(switch, {}).get(Block(lid_of[switch], lid // BLOCK))) is not None
        and block[lid % BLOCK] == port_at(rows[switch], lid)
        for switch, lids in entries.items()
        for lid in lids
    )
