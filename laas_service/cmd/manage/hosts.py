# SPDX-License-Identifier: Apache-2.0

"""laas-manage host: set traits and cost of hosts."""

import argparse
import fnmatch
import re

from laas_service.app.records import FabricRecord
from laas_service.client.options import Command, argument
from laas_service.cmd.manage.shared import fabric_of, parts_of
from laas_service.domain.errors import InvalidInput
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
)
