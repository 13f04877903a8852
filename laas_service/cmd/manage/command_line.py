# SPDX-License-Identifier: Apache-2.0

"""The command line of ``laas-manage``; a command's module is imported when the command runs.

The modules of the commands import the database, Nova and OpenSM, which takes seconds. The
command line is there within a fraction of one, also for ``--help`` and for a wrong option.
"""

import argparse
import importlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from laas_service.client.options import (
    FABRIC,
    FABRIC_OPTION,
    Argument,
    argument,
    named_fabric,
)
from laas_service.domain.features import DEAREST, TRAIT
from laas_service.garbage import collected_later

FORMATS = ("ibnetdiscover", "netlist", "slurm", "snapshot")
"""Formats in which fabrics are written."""


class Command(NamedTuple):
    """One command, such as ``laas-manage fabric list``."""

    name: str
    run: Callable[[argparse.Namespace], int]
    help: str
    arguments: Sequence[Argument] = ()


def _later(function: str) -> Callable[[argparse.Namespace], int]:
    """A function of a module beside this one, as MODULE.NAME; imported when it is called."""

    def run(args: argparse.Namespace) -> int:
        status: int = implementation(function)(args)
        return status

    run.__qualname__ = function
    return run


def implementation(function: str) -> Callable[[argparse.Namespace], int]:
    """The function of this name, MODULE.NAME; imports its module."""
    module, _, name = function.partition(".")
    with collected_later():
        imported = importlib.import_module(f"laas_service.cmd.manage.{module}")
    found: Callable[[argparse.Namespace], int] = getattr(imported, name)
    return found


def _generation(text: str) -> int:
    """A generation on the command line. Raises: ArgumentTypeError."""
    if not (text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r}: give 0 to 999999999")
    return int(text)


def _days(text: str) -> int:
    """A number of days on the command line. Raises: ArgumentTypeError."""
    if not (text.isdecimal() and len(text) < 6 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 to 99999")
    return int(text)


_RELEASED_DAYS = argument(
    "--released-days",
    type=_days,
    metavar="DAYS",
    help="those that were released so many days ago; default: [retention] released_days",
)


_DATABASE = (
    Command("upgrade", _later("database.upgrade"), "upgrade the schema to this release"),
    Command(
        "version",
        _later("database.version"),
        "show the revision of the schema, and the one this release needs",
    ),
    Command(
        "backup",
        _later("database.backup"),
        "back up the database into a file; the service may keep running",
        (
            argument(
                "file", type=Path, metavar="FILE", help="file to write; an existing one is replaced"
            ),
        ),
    ),
    Command(
        "restore",
        _later("database.restore"),
        "restore a backup into an empty database",
        (
            argument("file", type=Path, metavar="FILE", help="backup to read"),
            argument(
                "--above",
                type=_generation,
                default=0,
                metavar="GENERATION",
                help="highest generation in published files that are not on this machine",
            ),
        ),
    ),
    Command("check", _later("database.check"), "check that the tables are consistent"),
    Command(
        "archive",
        _later("database.archive"),
        "move allocations that were released long ago into a file",
        (
            argument(
                "file", type=Path, metavar="FILE", help="file to which lines of JSON are appended"
            ),
            _RELEASED_DAYS,
        ),
    ),
    Command(
        "purge",
        _later("database.purge"),
        "delete allocations that were released long ago",
        (_RELEASED_DAYS,),
    ),
)


NO_FAT_TREE = "no-fat-tree"
"""What ``--accept`` takes."""


def _source(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="ibnetdiscover dump, snapshot or description, also packed (gzip, bzip2, xz, zip); "
        "- for stdin, ufm: for [ufm]",
    )
    source.add_argument(
        "--live", action="store_true", help="run ibnetdiscover on this machine; instead of FILE"
    )


_IMPORTED = (
    _source,
    *(
        argument(
            f"--{option}",
            action="append",
            default=[],
            metavar="GLOB",
            help=f"{meaning}; host name pattern, may be repeated",
        )
        for option, meaning in (
            ("exclude", "hosts that are not for tenants"),
            ("include", "hosts that are for tenants although --exclude matches them"),
            (
                "subnet-manager",
                "hosts that run a subnet manager; not for tenants, they get the highest LIDs",
            ),
        )
    ),
    argument(
        "--accept",
        action="append",
        default=[],
        choices=(NO_FAT_TREE,),
        help="take a cabling that is no fat-tree: most of it may be kept out, and pairs of hosts "
        "may have no route",
    ),
    argument(
        "--accept-no-fat-tree",
        dest="accept",
        action="append_const",
        const=NO_FAT_TREE,
        help="the same as --accept no-fat-tree",
    ),
)
"""Arguments of a file to import, and of the hosts in it that are for tenants."""


def _written(default: str) -> tuple[Argument, ...]:
    """Options of the format and the file to write."""
    return (
        argument("--format", choices=FORMATS, default=default, help="format to write"),
        argument("--output", metavar="PATH", help="file to write; default: standard output"),
    )


_FABRIC = (
    Command(
        "import",
        _later("fabrics.import_fabric"),
        "import a fabric, to manage it",
        (
            *_IMPORTED,
            argument(
                "--id",
                help="id of the fabric; default: the name of the file without its ending, "
                "'fabric' for stdin, or [ufm] fabric",
            ),
            argument(
                "--dry-run",
                action="store_true",
                help="report what is recognised and record nothing",
            ),
            argument(
                "--all", action="store_true", help="report every irregularity, not one a kind"
            ),
            argument("--json", action="store_true", help="print one JSON document"),
        ),
    ),
    Command(
        "export",
        _later("fabrics.export"),
        "write a managed fabric to a file",
        (
            *FABRIC,
            *_written("snapshot"),
        ),
    ),
    Command("list", _later("fabrics.show"), "list the managed fabrics"),
    Command(
        "generate",
        _later("fabrics.generate"),
        "generate a fabric from its dimensions",
        (
            argument("description", help='JSON file, or dimensions such as "3;18,18,36;1,18,18"'),
            *_written("ibnetdiscover"),
        ),
    ),
)


def _trait(text: str) -> str:
    if not re.fullmatch(TRAIT, text):
        raise argparse.ArgumentTypeError(f"{text!r}: use letters, digits and _ . : -")
    return text


def _cost(text: str) -> int:
    if not text.isdecimal() or int(text) > DEAREST:
        raise argparse.ArgumentTypeError(f"{text!r}: give 0 to {DEAREST}")
    return int(text)


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


def _traits(parser: argparse.ArgumentParser) -> None:
    traits = parser.add_mutually_exclusive_group()
    text = "trait of the hosts, replacing all others; may be repeated"
    traits.add_argument("--trait", action="append", type=_trait, help=text)
    traits.add_argument("--no-traits", action="store_true", help="remove all traits")


_HOST = (
    Command(
        "set",
        _later("hosts.set_hosts"),
        "set traits and cost of hosts; options left out change nothing",
        (
            argument(
                "names", nargs="+", metavar="NAME", help="host name, or a pattern such as gpu[0-9]"
            ),
            FABRIC_OPTION,
            _traits,
            argument("--cost", type=_cost, help="cost of each host, a whole number in any unit"),
        ),
    ),
    Command(
        "domains",
        _later("hosts.set_domains"),
        "record domains of hosts from a file, instead of those of the same kinds",
        (
            argument(
                "file",
                metavar="FILE",
                help="JSON, blocks of Slurm (topology.yaml, topology.conf) such as topograph "
                "writes, or aggregates of Nova in JSON; - is the standard input",
            ),
            FABRIC_OPTION,
            argument(
                "--kind", default="nvlink", help="kind of blocks and aggregates; default: nvlink"
            ),
        ),
    ),
    Command(
        "virtual-ports",
        _later("hosts.set_virtual_ports"),
        "record the GUIDs of the virtual ports of hosts, instead of those before",
        (
            argument(
                "names", nargs="*", metavar="NAME", help="host name, or a pattern such as gpu[0-9]"
            ),
            FABRIC_OPTION,
            _ports,
        ),
    ),
)


_PLANE = (
    Command(
        "plane",
        _later("plane.plane"),
        "show or change the links withheld from tenants for shared traffic",
        (
            *FABRIC,
            argument(
                "--l2",
                type=int,
                action="append",
                default=[],
                metavar="INDEX",
                help="L2 index to withhold in every pod",
            ),
            argument(
                "--spines",
                type=int,
                action="append",
                default=[],
                metavar="INDEX",
                help="spine to withhold in every group; default: all spines above the L2 indices",
            ),
            argument("--none", action="store_true", help="withhold no links"),
            argument("--dry-run", action="store_true", help="show the cost and change nothing"),
            argument(
                "--jobs",
                type=int,
                metavar="N",
                help="number of synthetic tenants in a dry run, for each policy; 0: none",
            ),
            argument("--seed", type=int, default=1, help="random seed of the synthetic tenants"),
        ),
    ),
)


def _limit(text: str) -> int:
    if text != "-1" and not (text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r}: give -1, or 0 to 999999999")
    return int(text)


_PROJECT = argument("project", help="id of the project")

_QUOTA = (
    Command("list", _later("quotas.show_quotas"), "list quotas and their use"),
    Command(
        "set",
        _later("quotas.set_quota"),
        "set the quota of a project, in place of [limits]",
        (
            _PROJECT,
            *(
                argument(
                    f"--{noun}",
                    type=_limit,
                    metavar="NUMBER",
                    help=f"limit on {noun} at one time; -1: unlimited; default: the limit in "
                    "[limits]",
                )
                for noun in ("hosts", "allocations", "slots")
            ),
            argument(
                "--moves",
                type=_limit,
                metavar="NUMBER",
                help="limit on moves to other hosts, for others, in 24 hours; 0: never; -1: "
                "unlimited; default: the limit in [limits]",
            ),
        ),
    ),
    Command(
        "unset",
        _later("quotas.unset_quota"),
        "remove the quota of a project; [limits] applies again",
        (_PROJECT,),
    ),
)


_REIMPORT = (
    Command(
        "reimport",
        _later("reimport.reimport"),
        "record re-cabled, added or replaced hardware; without --apply only review it",
        (
            *_IMPORTED,
            FABRIC_OPTION,
            argument("--id", dest="fabric", metavar="ID", help="the same as --fabric"),
            argument(
                "--apply",
                metavar="TOKEN",
                help="record the reviewed changes, by the token printed; fails if anything "
                "changed since",
            ),
        ),
    ),
)


def _guid(text: str) -> int:
    """A GUID in hexadecimal on the command line. Raises: ValueError."""
    return int(text, 16)


_VERIFY = (
    Command(
        "verify",
        _later("verify.verify"),
        "check that every allocation is isolated and reachable",
        (
            *named_fabric("all fabrics"),
            argument("--json", action="store_true", help="print one JSON document"),
            argument(
                "--lfts",
                metavar="FILE",
                help="also check these tables: output of dump_lfts, or opensm-lfts.dump; - for "
                "stdin",
            ),
            argument(
                "--keys",
                metavar="FILE",
                help="also check these partition keys: output of laas-opensm-keys; - for stdin",
            ),
            argument(
                "--functions",
                metavar="FILE",
                help="also check the partition keys of functions of hosts, virtual ones included: "
                "what grep -H shows of /sys/class/infiniband there; - for stdin; needs one fabric",
            ),
            argument(
                "--partitions",
                metavar="FILE",
                help="also check this published partitions.conf, with virtual ports if [opensm] "
                "virtual_ports is set; - for stdin; needs one fabric",
            ),
            argument(
                "--chains",
                metavar="DIRECTORY",
                help="also check the routing chains of this published set: that every switch port "
                "in a tenant's topology is the tenant's; needs one fabric",
            ),
            argument(
                "--subnet-manager",
                action="append",
                default=[],
                type=_guid,
                metavar="GUID",
                help="port GUID of a subnet manager, which must reach every host, and may be the "
                "master; may be repeated",
            ),
            argument(
                "--permutations",
                type=int,
                default=3,
                metavar="N",
                help="number of random permutations to route for each allocation, besides "
                "adversarial ones",
            ),
        ),
    ),
)


GROUPS = {
    "db": ("upgrade, back up, restore, check and purge the database", _DATABASE),
    "fabric": ("import, export and verify fabrics", (*_FABRIC, *_REIMPORT, *_PLANE, *_VERIFY)),
    "host": ("set traits and cost of hosts", _HOST),
    "quota": ("show and set quotas of projects", _QUOTA),
}
"""All commands by group, and what each group's commands do."""
