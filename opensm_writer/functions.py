# SPDX-License-Identifier: Apache-2.0

"""Partition keys as the kernels of hosts and guests show them for their own functions; pure.

On Linux the port of a function, physical or virtual, is a directory of
``/sys/class/infiniband`` (Documentation/ABI/stable/sysfs-class-infiniband): ``gids/0`` ends with
its GUID, and ``pkeys/N`` is the key at index N. ``grep -H .`` prints a line for each file::

    /sys/class/infiniband/mlx5_2/ports/1/gids/0:fe80:0000:0000:0000:0002:c904:0000:0001
    /sys/class/infiniband/mlx5_2/ports/1/pkeys/0:0x8162

A parallel shell may put the name of the machine and a colon before each line.
"""

import re
from collections.abc import Iterable, Mapping

from laas_service.domain.errors import InvalidFile

_PORTS = "/sys/class/infiniband/*/ports/*"

COMMAND = f"grep -H . {_PORTS}/gids/0 {_PORTS}/pkeys/*"
"""Prints what ``tables_of`` reads."""

_LINE = re.compile(
    r"(?P<port>(?:\S+: ?)?/sys/class/infiniband/[\w.-]+/ports/\d{1,3})/"
    r"(?:gids/0:\s*(?P<gid>[0-9a-f]{4}(?::[0-9a-f]{4}){7})"
    r"|pkeys/(?P<index>\d{1,5}):\s*0x(?P<key>[0-9a-f]{4}))",
    re.ASCII,
)


def tables_of(lines: Iterable[str], source: str) -> Mapping[int, tuple[int, ...]]:
    """Keys by index, 0 where there is none, of the port with each GUID.

    Ports without a GUID, which have no link yet, are left out; empty lines are passed over.

    Raises:
        InvalidFile: a line has another form, a port has no GUID line or an index twice, or two
            ports have one GUID.
    """
    gids: dict[str, str] = {}
    keys: dict[str, dict[int, int]] = {}
    number = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise InvalidFile(source, number, f"{line.strip()[:100]!r} is no line of {COMMAND!r}")
        port = match["port"]
        if match["gid"]:
            gids[port] = match["gid"]
        elif (index := int(match["index"])) in keys.setdefault(port, {}):
            raise InvalidFile(source, number, f"index {index} of {port} occurs twice")
        else:
            keys[port][index] = int(match["key"], 16)
    tables: dict[int, tuple[int, ...]] = {}
    for port, by_index in keys.items():
        if port not in gids:
            raise InvalidFile(source, number, f"{port} has no line of gids/0")
        guid = int("".join(gids[port].split(":")[4:]), 16)
        if guid in tables:
            raise InvalidFile(source, number, f"two ports have GUID {guid:#018x}")
        if guid:
            tables[guid] = tuple(by_index.get(index, 0) for index in range(max(by_index) + 1))
    return tables
