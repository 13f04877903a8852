# SPDX-License-Identifier: Apache-2.0

"""laas-manage host: set traits, cost, domains and virtual ports of hosts."""

import argparse
import fnmatch
import re
import sys
from pathlib import Path

from laas_service.adapters.documents import domains_of_hosts
from laas_service.adapters.fabric_import.domains_file import read_domains
from laas_service.app.records import FabricRecord
from laas_service.cmd.manage.shared import fabric_of, parts_of
from laas_service.domain.errors import InvalidFile, InvalidInput
from laas_service.domain.features import HostChange
from laas_service.domain.wording import listed


def set_hosts(args: argparse.Namespace) -> int:
    """Record traits and cost of hosts, for all of them or for none."""
    traits = [] if args.no_traits else args.trait
    if traits is None and args.cost is None:
        raise InvalidInput("--trait", None, "say what to change: --trait, --no-traits or --cost")
    store = (parts := parts_of(args)).store
    record = fabric_of(parts, args.fabric)
    change = HostChange(None if traits is None else frozenset(traits), args.cost)
    hosts = _named(record, args.names)
    store.components.describe_hosts(record.id, dict.fromkeys(hosts, change))
    print(f"{record.id}: {len(hosts)} hosts described")
    return 0


def set_domains(args: argparse.Namespace) -> int:
    """Record the domains of hosts from a file, instead of those of the same kinds."""
    store = (parts := parts_of(args)).store
    record = fabric_of(parts, args.fabric)
    found = read_domains(_text(args.file), args.file, args.kind)
    numbers = record.inventory.host_numbers
    unknown = sorted(
        {name for named in found.values() for hosts in named.values() for name in hosts}
        - numbers.keys()
    )
    if unknown:
        fix = f"fabric {record.id} has no host of this name"
        raise InvalidInput("FILE", listed(unknown), fix)
    by_number = {
        kind: {name: [numbers[host] for host in hosts] for name, hosts in named.items()}
        for kind, named in found.items()
    }
    of = domains_of_hosts(by_number, record.topology.hosts)
    ledger, _ = store.fabrics.ledger(record.id)
    changes = {}
    for host in set(of) | set(ledger.features.hosts):
        if host not in record.topology.absent_hosts:
            kept = [one for one in ledger.features.of(host).domains if one[0] not in found]
            changes[host] = HostChange(domains=tuple(sorted([*kept, *of.get(host, ())])))
    store.components.describe_hosts(record.id, changes)
    for kind, named in sorted(found.items()):
        print(f"{record.id}: {len(named)} domains of kind {kind}")
    return 0


def set_virtual_ports(args: argparse.Namespace) -> int:
    """Record the virtual ports of ports, for all of them or for none."""
    store = (parts := parts_of(args)).store
    record = fabric_of(parts, args.fabric)
    if args.file:
        if args.names:
            raise InvalidInput("NAME", args.names[0], "a file names the ports itself")
        ports = _listed_ports(args.file)
    else:
        hosts = {*_named(record, args.names)}
        step, count = args.rule or (0, 0)
        ports = {
            end.guid: tuple(end.guid + step * number for number in range(1, count + 1))
            for end in record.inventory.endpoints
            if end.host in hosts
        }
    store.components.set_virtual_ports(record.id, ports)
    total = sum(map(len, ports.values()))
    print(f"{record.id}: {total} virtual ports of {len(ports)} ports recorded")
    return 0


def _listed_ports(source: str) -> dict[int, tuple[int, ...]]:
    """Port GUID -> GUIDs, from lines of GUIDs; ``#`` begins a comment.

    Raises: InvalidInput, InvalidFile.
    """
    text = _text(source)
    ports: dict[int, tuple[int, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not all(re.fullmatch("0x[0-9a-fA-F]{1,16}", word) for word in words):
            raise InvalidFile(source, number, "a line has GUIDs such as 0x1b: a port, then its own")
        if words:
            port, *guids = (int(word, 16) for word in words)
            if port in ports:
                raise InvalidFile(source, number, f"port {port:#018x} has a line already")
            ports[port] = tuple(guids)
    return ports


def _text(source: str) -> str:
    """The text of a file, or of the standard input for ``-``. Raises: InvalidInput."""
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text()
    except (OSError, ValueError) as error:
        raise InvalidInput("--file", source, "give a text file that can be read") from error


def _named(record: FabricRecord, patterns: list[str]) -> list[int]:
    """The hosts whose names are given or match a pattern; sorted, without absent ones.

    Raises:
        InvalidInput: a name or pattern matches no host.
    """
    numbers, absent = record.inventory.host_numbers, record.topology.absent_hosts
    hosts: set[int] = set()
    for pattern in patterns:
        names = [pattern] if pattern in numbers else fnmatch.filter(numbers, pattern)
        if not names:
            fix = f"fabric {record.id} has no host of this name or pattern"
            raise InvalidInput("NAME", pattern, fix)
        hosts.update(numbers[name] for name in names)
    return sorted(hosts - absent)
