# SPDX-License-Identifier: Apache-2.0

"""Options and arguments that ``laas`` and the ``openstack`` plugin share; ``calls`` reads them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

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
}
"""The option of each constraint, by its name in REST, and the arguments of ``add_argument``."""


def fabric(parser: argparse.ArgumentParser, option: bool = False) -> None:
    help = "id of the fabric; required if the service manages several"
    if option:
        parser.add_argument("--fabric", help=help)
    else:
        parser.add_argument("fabric", nargs="?", help=help)


def leaf(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("switch", metavar="LEAF", help="name or GUID of the leaf switch")
    fabric(parser, option=True)


def constraints(parser: argparse.ArgumentParser) -> None:
    """Options that restrict which hosts an allocation may get."""
    group = parser.add_argument_group("constraints")
    for name, (option, settings) in CONSTRAINTS.items():
        group.add_argument(option, dest=name, **settings)


def fit(parser: argparse.ArgumentParser) -> None:
    """Options of a fit question; each command adds the number of hosts itself."""
    parser.add_argument("--policy", help="allocation policy; default: the policy of the site")
    parser.add_argument(
        "--parent", metavar="ALLOCATION", help="look for hosts inside this container"
    )
    constraints(parser)


def plane(parser: argparse.ArgumentParser) -> None:
    """Options that choose the links to withhold for shared traffic."""
    parser.add_argument(
        "--l2",
        type=int,
        action="append",
        default=[],
        metavar="INDEX",
        help="L2 index to withhold in every pod; may be repeated",
    )
    parser.add_argument(
        "--spines",
        type=int,
        action="append",
        default=[],
        metavar="INDEX",
        help="spine to withhold in every group; may be repeated",
    )
    parser.add_argument("--none", action="store_true", help="withhold no links")
    parser.add_argument("--dry-run", action="store_true", help="show the cost and change nothing")


def create(parser: argparse.ArgumentParser) -> None:
    """Options of a new allocation; each command adds name, project and ``--wait`` itself."""
    parser.add_argument("--hosts", type=int, required=True, help="number of hosts")
    parser.add_argument("--policy", help="allocation policy; default: the policy of the site")
    parser.add_argument("--fabric", help="fabric to use; default: the fabric of the site")
    constraints(parser)
    parser.add_argument(
        "--cheapest",
        action="store_true",
        default=None,
        help="choose the placement with the lowest total host cost",
    )
    parser.add_argument(
        "--container", action="store_true", help="reserve hosts and links for allocations inside it"
    )
    parser.add_argument(
        "--parent", metavar="ALLOCATION", help="place the allocation inside this container"
    )
    parser.add_argument(
        "--queue", action="store_true", help="wait in the queue if the hosts do not fit now"
    )
    parser.add_argument(
        "--duration", type=float, metavar="SECONDS", help="expected lifetime of the allocation"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show the placement and change nothing"
    )
    parser.add_argument("--key", help="idempotency key; default: a new one")


def listing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", help="list this state only; default: all but released")
    parser.add_argument("--fabric", help="list this fabric only; default: all")


def delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="delete even if servers still run on the hosts"
    )
