# SPDX-License-Identifier: Apache-2.0

"""Blocks of forwarding tables: which differ, and what ``laas-opensm-tables`` reads and prints.

Block N of a switch has its ports towards the LIDs from 64 N on. The command reads lines
``LID BLOCK``, with the LID of the switch, and prints ``GUID LID BLOCK PORTS`` for each block that
is answered, with the GUID of the switch that answered and the ports as 128 hexadecimal digits.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from laas_service.domain.errors import InvalidFile
from laas_service.domain.routing.default_tables import NO_ROUTE
from opensm_writer.desired import BLOCK

_READ = re.compile(r"0x([0-9a-f]{16}) (\d{1,5}) (\d{1,3}) ([0-9a-f]{128})")


class Block(NamedTuple):
    """A block of the table of the switch with a LID."""

    lid: int
    number: int


def differing(row: bytes, desired: bytes) -> list[int]:
    """The blocks in which two rows differ; rows are ports by LID."""
    count = -(-max(len(row), len(desired)) // BLOCK) if row != desired else 0
    return [n for n in range(count) if _block(row, n) != _block(desired, n)]


def patched(row: bytes, blocks: Mapping[int, bytes]) -> bytes:
    """A row with the ports of these blocks, up to the last LID that has a port."""
    count = max([-(-len(row) // BLOCK), *(number + 1 for number in blocks)])
    new = b"".join(blocks.get(number, _block(row, number)) for number in range(count))
    return new.rstrip(bytes([NO_ROUTE]))


def _block(row: bytes, number: int) -> bytes:
    return row[number * BLOCK : (number + 1) * BLOCK].ljust(BLOCK, bytes([NO_ROUTE]))


def question(wanted: Iterable[Block]) -> bytes:
    """What the command reads."""
    return "".join(f"{lid} {number}\n" for lid, number in wanted).encode()


def answer(text: str, source: str) -> dict[int, dict[Block, bytes]]:
    """What the command printed, by GUID of the switch. Raises: InvalidFile."""
    read: dict[int, dict[Block, bytes]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _READ.fullmatch(line)
        if match is None:
            raise InvalidFile(source, number, f"{line[:100]!r} is no line of laas-opensm-tables")
        block = Block(int(match[2]), int(match[3]))
        read.setdefault(int(match[1], 16), {})[block] = bytes.fromhex(match[4])
    return read
