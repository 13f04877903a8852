# SPDX-License-Identifier: Apache-2.0

"""laas-manage host: set traits, cost and virtual ports of hosts."""

import argparse
import fnmatch
import re
import sys
from pathlib import Path

from laas_service.app.records import FabricRecord
from laas_service.client.options import Command, argument
from laas_service.cmd.manage.shared import fabric_of, parts_of
from laas_service.domain.errors import InvalidFile, InvalidInput
from laas_service.domain.features import DEAREST, TRAIT, HostChange


def _trait(text: str) -> str:
    if not re.fullmatch(TRAIT, text):
        raise argparse.ArgumentTypeError(f"{text!r}: use letters, digits and _ . : -")
    return text


def _cost(text: str) -> int:
    if not text.isdecimal() or int(text) > DEAREST:
        raise argparse.ArgumentTypeError(f"{text!r}: give 0 to {DEAREST}")
    return int(text)


def set_hosts(args: argparse.Namespace) -> int:
    """Record traits and cost of hosts, for all of them or for none."""
    traits = [] if args.no_traits else args.trait
    if traits is None and args.cost is None:
        raise InvalidInput("--trait", None, "say what to change: --trait, --no-traits or --cost")
    store = (parts := parts_of(args)).store
    record = fabric_of(parts, args.fabric)
    change = HostChange(None if traits is None else frozenset(traits), args.cost)
    hosts = _named(record, args.names)
    store.describe_hosts(record.id, dict.fromkeys(hosts, change))
    print(f"{record.id}: {len(hosts)} hosts described")
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
    store.set_virtual_ports(record.id, ports)
    total = sum(map(len, ports.values()))
    print(f"{record.id}: {total} virtual ports of {len(ports)} ports recorded")
    return 0


def _listed_ports(source: str) -> dict[int, tuple[int, ...]]:
    """Port GUID -> GUIDs, from lines of GUIDs; ``#`` begins a comment.

    Raises: InvalidInput, InvalidFile.
    """
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
    except (OSError, ValueError) as error:
        raise InvalidInput("--file", source, "give a text file that can be read") from error
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


def _rule(text: str) -> tuple[int, int]:
    if match := re.fullmatch(r"(0x[0-9a-fA-F]{1,16}):(\d{1,3})", text):
        return int(match[1], 16), int(match[2])
    raise argparse.ArgumentTypeError(f"{text!r}: give STEP:COUNT, such as 0x100000000:16")


def _ports(parser: argparse.ArgumentParser) -> None:
    ports = parser.add_mutually_exclusive_group(required=True)
    ports.add_argument(
        "--file",
        metavar="FILE",
        help="lines of GUIDs: a port's, then those of all its virtual ports; - for stdin",
    )
    ports.add_argument(
        "--rule",
        type=_rule,
        metavar="STEP:COUNT",
        help="each port of the named hosts has COUNT virtual ports: its own GUID plus STEP, plus "
        "twice STEP, and so on",
    )
    ports.add_argument("--none", action="store_true", help="the named hosts have no virtual ports")


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


def _traits(parser: argparse.ArgumentParser) -> None:
    traits = parser.add_mutually_exclusive_group()
    text = "trait of the hosts, replacing all others; may be repeated"
    traits.add_argument("--trait", action="append", type=_trait, help=text)
    traits.add_argument("--no-traits", action="store_true", help="remove all traits")


COMMANDS = (
    Command(
        "set",
        set_hosts,
        "set traits and cost of hosts; options left out change nothing",
        (
            argument(
                "names", nargs="+", metavar="NAME", help="host name, or a pattern such as gpu[0-9]"
            ),
            argument(
                "--fabric",
                metavar="ID",
                help="id of the fabric; may be left out if there is only one",
            ),
            _traits,
            argument("--cost", type=_cost, help="cost of each host, a whole number in any unit"),
        ),
    ),
    Command(
        "virtual-ports",
        set_virtual_ports,
        "record the GUIDs of the virtual ports of hosts, instead of those before",
        (
            argument(
                "names", nargs="*", metavar="NAME", help="host name, or a pattern such as gpu[0-9]"
            ),
            argument(
                "--fabric",
                metavar="ID",
                help="id of the fabric; may be left out if there is only one",
            ),
            _ports,
        ),
    ),
)
