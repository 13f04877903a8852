# SPDX-License-Identifier: Apache-2.0

"""Arguments as values, and those that several commands take."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from laas_service.client.usage import amounts, count, duration, spread

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
        {
            "metavar": "PLACE",
            "help": "place all hosts in one leaf, in one pod, or in one domain of a kind",
        },
    ),
    "spread": (
        "--spread",
        {
            "type": spread,
            "metavar": "PODS|KIND:DOMAINS",
            "help": "place hosts in at least so many pods, or so many domains of a kind",
        },
    ),
    "domains": (
        "--domains",
        {"type": count, "help": "take so many whole domains of a kind (--kind)"},
    ),
    "per_domain": (
        "--per-domain",
        {"type": count, "metavar": "HOSTS", "help": "take exactly so many hosts in each domain"},
    ),
    "kind": ("--kind", {"help": "kind of the domains, such as nvlink"}),
    "exclusive": (
        "--exclusive",
        {
            "action": "store_true",
            "default": None,
            "help": "share no domain with other allocations",
        },
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
    "undisturbed": (
        "--undisturbed",
        {
            "choices": ("require", "prefer"),
            "help": "take a placement whose links no packet of others has to cross",
        },
    ),
}
"""The option of each constraint, by its name in REST, and the arguments of ``add_argument``."""


Argument = Callable[[argparse.ArgumentParser], object]
"""Adds an argument, or some that belong together, to the parser of a command."""


def argument(*names: str, **settings: Any) -> Argument:
    """One argument; names and settings as for ``add_argument``."""
    return lambda parser: parser.add_argument(*names, **settings)


def constraints(parser: argparse.ArgumentParser) -> None:
    """Options that restrict which hosts an allocation may get."""
    group = parser.add_argument_group("constraints")
    for name, (option, settings) in CONSTRAINTS.items():
        group.add_argument(option, dest=name, **settings)


def constrained(args: argparse.Namespace) -> dict[str, Any]:
    """The constraints that the arguments give, under their names in REST."""
    names = (*CONSTRAINTS, "cheapest")
    return given(**{name: getattr(args, name, None) for name in names})


def given(**values: Any) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


_DEFAULT_FABRIC = "[api] default_fabric of the service, or else its only one"


def fabric(default: str = _DEFAULT_FABRIC) -> Argument:
    """``--fabric``; ``default`` says which fabric is meant without it."""
    return argument("--fabric", metavar="ID", help=f"id of the fabric; default: {default}")


def named_fabric(default: str = _DEFAULT_FABRIC) -> tuple[Argument, Argument]:
    """A fabric with or without ``--fabric``, for commands about fabrics themselves."""
    bare = argument("fabric", nargs="?", default=argparse.SUPPRESS, help="the same as --fabric")
    return fabric(default), bare


FABRIC_OPTION = fabric()
FABRIC = named_fabric()

DEFAULT_TIMEOUT = 600.0
"""Seconds that ``--wait`` waits unless the caller says otherwise."""

POLICY = argument("--policy", help="allocation policy; default: the policy of the site")

PARENT = argument(
    "--parent", metavar="ALLOCATION", help="look for hosts inside this container (name or id)"
)

CONSENT = (
    argument(
        "--movable",
        choices=("never", "restart", "live"),
        help="whether the allocation may move to make room; restart: its servers may stop",
    ),
    argument("--notice", type=duration, metavar="TIME", help="time from announcement to move"),
    argument("--move-cost", type=float, metavar="COST", help="what each moved host costs"),
)


RISKS = argument(
    "--risks",
    metavar="RISK[,RISK...]",
    help="show how many further tenants with these slots would fit if links had these risks",
)

SLOTS = (
    argument("--slots", type=count, help="number of virtual machines on shared hosts"),
    argument(
        "--bandwidth",
        type=amounts,
        metavar="GBPS[,GBPS...]",
        help="of each virtual machine, in Gb/s; a list has a number for each",
    ),
    argument(
        "--deviation",
        type=amounts,
        metavar="GBPS[,GBPS...]",
        help="standard deviation of the demand, of which the bandwidth is the mean",
    ),
)

MOVING = (
    argument("--max-cost", type=float, metavar="COST", help="move nobody with a higher move cost"),
    argument(
        "--override", action="store_true", help="also move tenants who do not consent, with notice"
    ),
)
"""Options that say whom an operator moves."""


def dry_run(shows: str) -> Argument:
    """``--dry-run``, and what it shows."""
    return argument("--dry-run", action="store_true", help=f"{shows}, change nothing")


def project(help: str) -> Argument:
    """``--project NAME_OR_ID`` or ``--project-id ID``; the latter asks Keystone nothing."""

    def add(parser: argparse.ArgumentParser) -> None:
        group = parser.add_mutually_exclusive_group()
        group.add_argument("--project", help=f"{help} (name or id; administrators only)")
        group.add_argument("--project-id", metavar="ID", help="the same by id")

    return add
