# SPDX-License-Identifier: Apache-2.0

"""Commands and arguments as values; the arguments that ``laas`` and the plugin share."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

CONSTRAINTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "traits": (
        "--trait",
        {
            "action": "append",
            "metavar": "TRAIT",
            "help": "trait that every host must have; may be repeated",
        },
    ),
    "avoid_hosts": (
        "--avoid-host",
        {
            "action": "append",
            "metavar": "NAME",
            "help": "host to leave out (administrators only); may be repeated",
        },
    ),
    "avoid_pods": (
        "--avoid-pod",
        {
            "action": "append",
            "type": int,
            "metavar": "POD",
            "help": "pod to leave out (administrators only); may be repeated",
        },
    ),
    "within": (
        "--within",
        {"choices": ("leaf", "pod"), "help": "place all hosts in one leaf or in one pod"},
    ),
    "spread": (
        "--spread",
        {"type": int, "metavar": "PODS", "help": "place hosts in at least PODS pods"},
    ),
    "max_host_cost": (
        "--max-host-cost",
        {"type": int, "metavar": "COST", "help": "use no host that costs more than COST"},
    ),
    "contention_free": (
        "--contention-free",
        {
            "choices": ("require", "prefer"),
            "help": "take a shape in which no shift of the hosts puts two flows on a link",
        },
    ),
}
"""The option of each constraint, by its name in REST, and the arguments of ``add_argument``."""


Argument = Callable[[argparse.ArgumentParser], object]
"""Adds an argument, or some that belong together, to the parser of a command."""


def argument(*names: str, **settings: Any) -> Argument:
    """One argument; names and settings as for ``add_argument``."""
    return lambda parser: parser.add_argument(*names, **settings)


def verb(name: str, noun: str = "") -> Argument:
    """The verb, and if need be the noun, of a command whose call serves several."""
    return lambda parser: parser.set_defaults(verb=name, noun=noun)


class Command(NamedTuple):
    """One command of a command line, such as ``laas fabric list``."""

    name: str
    run: Callable[..., Any]
    help: str
    arguments: Sequence[Argument] = ()
    listed: str = ""
    """The columns of its table, a key of ``COLUMNS``, if it answers a list."""


def constraints(parser: argparse.ArgumentParser) -> None:
    """Options that restrict which hosts an allocation may get."""
    group = parser.add_argument_group("constraints")
    for name, (option, settings) in CONSTRAINTS.items():
        group.add_argument(option, dest=name, **settings)


RESIZE = (
    argument("hosts", type=int, metavar="HOSTS", help="new number of hosts"),
    argument(
        "--give-back",
        action="append",
        metavar="NAME",
        help="host that a smaller allocation may lose, instead of any without servers; may be "
        "repeated",
    ),
    argument(
        "--dry-run", action="store_true", help="show what the new size would give, change nothing"
    ),
)

REPLACE_HOSTS = (
    argument(
        "--host",
        action="append",
        metavar="NAME",
        help="host to leave, instead of those that have failed; may be repeated",
    ),
    argument(
        "--turn-back", action="store_true", help="turn back a change of hosts that is under way"
    ),
    argument("--dry-run", action="store_true", help="show the other hosts, change nothing"),
)

_FABRIC = "id of the fabric; required if the service manages several"

FABRIC_OPTION = (argument("--fabric", help=_FABRIC),)

FABRIC = (
    *FABRIC_OPTION,
    argument("fabric", nargs="?", default=argparse.SUPPRESS, help="the same as --fabric"),
)
"""A fabric with or without ``--fabric``, for commands about fabrics themselves."""

SWITCH = (
    argument("switch", metavar="SWITCH", help="name or GUID of the switch"),
    *FABRIC_OPTION,
)

LINK = (
    argument("name", metavar="LINK", help="id of the link, or GUID/port or name/port of an end"),
    *FABRIC_OPTION,
)

HOST = (argument("name", metavar="HOST", help="name of the host"), *FABRIC_OPTION)


def traits(parser: argparse.ArgumentParser) -> None:
    """Options that set the traits of a host."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--trait", action="append", help="trait of the host, replacing all others; may be repeated"
    )
    group.add_argument("--no-traits", action="store_true", help="remove all traits")


HOST_SET = (
    *HOST,
    traits,
    argument("--cost", type=int, help="cost of the host, a number in any unit"),
)


def _inventory(name: str) -> tuple[Argument, ...]:
    """Options that choose hosts or links."""
    states = ("up", "drained", "failed")
    return (
        argument("--state", choices=states, help=f"list {name} in this state only"),
        argument("--owner", metavar="ALLOCATION", help=f"list {name} of this allocation only (id)"),
        argument("--free", action="store_true", default=None, help=f"list free {name} only"),
        *FABRIC,
    )


HOSTS = (*_inventory("hosts"), argument("--trait", help="list hosts with this trait only"))

LINKS = (
    *_inventory("links"),
    argument("--kind", choices=("leaf", "spine"), help="list links of this level only"),
)

SWITCHES = (
    argument("--level", type=int, choices=(1, 2, 3), help="list switches of this level only"),
    *FABRIC,
)

OBSERVATION = (
    argument(
        "--mode",
        choices=("act", "observe", "frozen", "configured"),
        help="choose what observation may change; configured: the mode of the configuration",
    ),
    argument(
        "--acknowledge",
        action="store_true",
        help="accept what raised the alarm, so that it is recorded",
    ),
    *FABRIC,
)
"""Options that change the observation of a fabric; without them it is shown."""


def _positive(text: str) -> int:
    if not (text.isdecimal() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number of at least 1")
    return int(text)


FIT = (
    argument("--policy", help="allocation policy; default: the policy of the site"),
    argument("--parent", metavar="ALLOCATION", help="look for hosts inside this container"),
    constraints,
)
"""Options of a fit question; each command adds the number of hosts itself."""

CONSENT = (
    argument(
        "--movable",
        choices=("never", "restart", "live"),
        help="whether the allocation may move to make room; restart: its servers may stop",
    ),
    argument("--notice", type=float, metavar="SECONDS", help="time from announcement to move"),
    argument("--move-cost", type=float, metavar="COST", help="what each moved host costs"),
)

MAKE_ROOM = (
    argument("--policy", help="allocation policy; default: the policy of the site"),
    constraints,
    argument("--moves", type=int, metavar="TENANTS", help="move at most so many; default: 1"),
    argument("--max-cost", type=float, metavar="COST", help="move nobody with a higher move cost"),
    argument(
        "--override", action="store_true", help="also move tenants who do not consent, with notice"
    ),
    argument("--dry-run", action="store_true", help="show the plan, tell nobody"),
)

EVACUATE = (
    argument("--move", action="store_true", help="also move the tenants there who consent"),
    argument("--max-cost", type=float, metavar="COST", help="move nobody with a higher move cost"),
    argument(
        "--override", action="store_true", help="also move tenants who do not consent, with notice"
    ),
    argument("--dry-run", action="store_true", help="show who would move, change nothing"),
)
"""Options of a drain."""

PLANE = (
    argument(
        "--l2",
        type=int,
        action="append",
        default=[],
        metavar="INDEX",
        help="L2 index to withhold in every pod; may be repeated",
    ),
    argument(
        "--spines",
        type=int,
        action="append",
        default=[],
        metavar="INDEX",
        help="spine to withhold in every group; may be repeated",
    ),
    argument("--none", action="store_true", help="withhold no links"),
    argument("--dry-run", action="store_true", help="show the cost and change nothing"),
)
"""Options that choose the links to withhold for shared traffic."""

CREATE = (
    argument("--hosts", type=int, required=True, help="number of hosts"),
    argument("--policy", help="allocation policy; default: the policy of the site"),
    argument("--fabric", help="fabric to use; default: the fabric of the site"),
    constraints,
    argument(
        "--cheapest",
        action="store_true",
        default=None,
        help="choose the placement with the lowest total host cost",
    ),
    *CONSENT,
    argument(
        "--container", action="store_true", help="reserve hosts and links for allocations inside it"
    ),
    argument("--parent", metavar="ALLOCATION", help="place the allocation inside this container"),
    argument("--queue", action="store_true", help="wait in the queue if the hosts do not fit now"),
    argument(
        "--duration", type=float, metavar="SECONDS", help="expected lifetime of the allocation"
    ),
    argument("--dry-run", action="store_true", help="show the placement and change nothing"),
    argument("--key", help="idempotency key; default: a new one"),
)
"""Options of a new allocation; each command adds name, project and ``--wait`` itself."""

MAP = (
    argument("--html", metavar="FILE", required=True, help="write the page into this file"),
    argument("--hosts", type=int, help="show whether so many hosts fit, and what is in the way"),
    argument("--policy", help="allocation policy of --hosts; default: the policy of the site"),
)
"""Options of a map; each command adds the fabric itself."""

VIEW = (
    argument(
        "--port", type=int, default=0, help="port on loopback to listen on; default: a free one"
    ),
    *FABRIC_OPTION,
)

DRAW = (argument("--svg", metavar="FILE", required=True, help="write the drawing into this file"),)

CONFIRM_EMPTY = (
    argument("name", help="host that was inspected or powered off"),
    *FABRIC_OPTION,
)

RANKS = (
    argument(
        "--format",
        choices=("openmpi", "hostfile", "nccl"),
        default="hostfile",
        help="rank file or host file of Open MPI, or environment of NCCL (hostfile)",
    ),
    argument("--slots", type=_positive, default=1, help="ranks on each host (1)"),
)
"""Options of the file with the order of hosts."""

LISTING = (
    argument("--state", help="list this state only; default: all but released"),
    argument("--fabric", help="list this fabric only; default: all"),
    argument(
        "--all-projects",
        action="store_true",
        help="list the allocations of all projects (administrators only)",
    ),
)

DELETE = (
    argument("--force", action="store_true", help="delete even if servers still run on the hosts"),
)
