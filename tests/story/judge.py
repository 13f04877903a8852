# SPDX-License-Identifier: Apache-2.0

"""Judge of the story: compares the owners of hosts as promised, in Nova and in the switches.

The judge shares no code with the service. Its evidence is the answers of Nova's API and the
output of ``ibnetdiscover -p``, ``dump_lfts -n`` and ``smpquery pkeys``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations

EVERYBODY = 0x7FFF
"""Key of the default partition, without the bit of full membership."""

LONGEST = 12
"""Largest number of switches on a path; a longer path is a loop."""


@dataclass(frozen=True)
class Held:
    """An allocation and its hosts, as promised to a project."""

    id: str
    project: str
    hosts: frozenset[str]


@dataclass(frozen=True)
class Server:
    """A server as Nova lists it; ``host`` is None if the server has no host."""

    id: str
    project: str
    host: str | None


Port = tuple[int, int]
"""GUID of a switch, and the number of one of its ports."""


@dataclass(frozen=True)
class Subnet:
    """Reads the fabric by its tools; ``run`` returns the output of a tool."""

    run: Callable[..., str]

    def seen(self) -> Wires:
        wires = Wires()
        for line in self.run("ibnetdiscover", "-p").splitlines():
            wires.add_link(line)
        guid = 0
        for line in self.run("dump_lfts", "-n").splitlines():
            if found := _SWITCH.search(line):
                guid = int(found[1], 16)
            elif found := _ENTRY.match(line):
                wires.tables[guid][int(found[1], 16)] = int(found[2])
        for lids in wires.lids.values():
            for lid in lids:
                printed = self.run("smpquery", "pkeys", str(lid))
                keys = {int(key, 16) & EVERYBODY for key in _KEY.findall(printed)}
                wires.keys[lid] = keys - {0, EVERYBODY}
        return wires


_LINK = re.compile(
    r"(CA|SW)\s+(\d+)\s+(\d+) (0x[0-9a-f]+) .* - (CA|SW)\s+(\d+)\s+(\d+) (0x[0-9a-f]+) "
    r"\( '(\S+).*' - '(\S+).*' \)"
)
_SWITCH = re.compile(r"of switch .* guid (0x[0-9a-f]+)")
_ENTRY = re.compile(r"(0x[0-9a-f]{4}) (\d{3})")
_KEY = re.compile(r"\b0x([0-9a-f]{4})\b")


@dataclass
class Wires:
    """Cables, forwarding tables and partition keys of a fabric, as read.

    ``lids`` has the LIDs of a host by its name, the first word of the adapter's description.
    ``leaves`` has the switch port of an adapter by its LID. ``ends`` has the port at the other
    end of a cable between switches.
    """

    lids: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    leaves: dict[int, Port] = field(default_factory=dict)
    ends: dict[Port, Port] = field(default_factory=dict)
    tables: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    keys: dict[int, set[int]] = field(default_factory=dict)

    def add_link(self, line: str) -> None:
        found = _LINK.match(line)
        if found is None:
            return
        near, far = (int(found[4], 16), int(found[3])), (int(found[8], 16), int(found[7]))
        if found[1] == found[5] == "SW":
            self.ends[near], self.ends[far] = far, near
        elif found[1] == "CA" and found[5] == "SW":
            self.lids[found[9]].append(int(found[2]))
            self.leaves[int(found[2])] = far

    def path(self, source: int, target: int) -> Iterator[frozenset[Port]]:
        """Cables between switches from one LID to another. Raises: ValueError: no such path."""
        switch = self.leaves[source][0]
        for _ in range(LONGEST):
            port = self.tables[switch].get(target)
            if port is None:
                raise ValueError(f"switch {switch:#x} knows no way to LID {target}")
            here = (switch, port)
            if here == self.leaves[target]:
                return
            if here not in self.ends:
                raise ValueError(f"switch {switch:#x} sends LID {target} to port {port}")
            yield frozenset((here, self.ends[here]))
            switch = self.ends[here][0]
        raise ValueError(f"a loop on the way from LID {source} to LID {target}")


def problems(
    told: Collection[Held],
    servers: Iterable[Server],
    let_in: Mapping[str, Collection[str]],
    projects: Collection[str],
    subnet: Wires | None = None,
) -> list[str]:
    """Every difference from the promises; empty if all agree.

    ``let_in`` has, by host, the projects that the host's aggregates admit. ``projects`` are
    all projects of the story, with and without an allocation.
    """
    owners: dict[str, str] = {}
    found = []
    for held in told:
        found += [f"{host} was given twice" for host in sorted(held.hosts & owners.keys())]
        owners |= dict.fromkeys(held.hosts, held.project)
    found += _server_problems(servers, owners)
    found += _door_problems(let_in, owners, set(projects))
    if subnet is not None:
        found += _key_problems(subnet, told)
        found += _path_problems(subnet, told)
    return found


def _server_problems(servers: Iterable[Server], owners: Mapping[str, str]) -> list[str]:
    return [
        f"server {s.id} of {s.project} runs on {s.host} of {owners.get(s.host, 'nobody')}"
        for s in servers
        if s.host is not None and owners.get(s.host) != s.project
    ]


def _door_problems(
    let_in: Mapping[str, Collection[str]], owners: Mapping[str, str], projects: set[str]
) -> list[str]:
    found = []
    for host in sorted(let_in.keys() | owners.keys()):
        values = set(let_in.get(host, ()))
        wanted = {owners[host]} if host in owners else set()
        if not values:
            found.append(f"{host} is open to everybody")
        elif values & projects != wanted:
            found.append(f"{host} lets in {sorted(values & projects)}, not {sorted(wanted)}")
    return found


def _key_problems(subnet: Wires, told: Collection[Held]) -> list[str]:
    """Owned hosts without exactly one key, or with a key that other hosts have too."""
    found = []
    owners = {host: held for held in told for host in held.hosts}
    holders: dict[int, set[str]] = defaultdict(set)
    for host, lids in sorted(subnet.lids.items()):
        for lid in lids:
            keys = subnet.keys[lid]
            if len(keys) != (host in owners):
                found.append(f"port {lid} of {host} has the keys {sorted(map(hex, keys))}")
            for key in keys:
                holders[key].add(owners[host].id if host in owners else "nobody")
    for held in told:
        shared = [subnet.keys[lid] for host in held.hosts for lid in subnet.lids[host]]
        if len(set().union(*shared)) > 1:
            found.append(f"the hosts of {held.project} have different keys")
        found += [f"{host} is not in the fabric" for host in held.hosts - subnet.lids.keys()]
    found += [
        f"key {key:#x} is shared by {sorted(ids)}" for key, ids in holders.items() if len(ids) > 1
    ]
    return found


def _path_problems(subnet: Wires, told: Collection[Held]) -> list[str]:
    """Hosts of an owner without a path, and cables that serve several owners."""
    found = []
    users: dict[frozenset[Port], set[str]] = defaultdict(set)
    for held in told:
        ports = [subnet.lids[host] for host in held.hosts]
        for sources, targets in permutations(ports, 2):
            for source, target in zip(sources, targets, strict=True):
                try:
                    for cable in subnet.path(source, target):
                        users[cable].add(held.project)
                except ValueError as error:
                    found.append(f"{held.project}: {error}")
    found += [
        f"cable {sorted((hex(guid), port) for guid, port in cable)} serves {sorted(projects)}"
        for cable, projects in users.items()
        if len(projects) > 1
    ]
    return found
