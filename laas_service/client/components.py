# SPDX-License-Identifier: Apache-2.0

"""Commands about single hosts, switches and links, for operators."""

from __future__ import annotations

import argparse
from typing import Any, ClassVar
from urllib.parse import quote

from laas_service.client.command import ShowCommand
from laas_service.client.options import FABRIC_OPTION, MOVING, argument, dry_run, given
from laas_service.client.rest import Refused, Rest
from laas_service.client.usage import domain

HOST = (argument("name", metavar="HOST", help="name of the host"), FABRIC_OPTION)

SWITCH = (argument("name", metavar="SWITCH", help="name or GUID of the switch"), FABRIC_OPTION)

LINK = (
    argument("name", metavar="LINK", help="id of the link, or GUID/port or name/port of an end"),
    FABRIC_OPTION,
)

EVACUATE = (
    argument("--move", action="store_true", help="also move the tenants there who consent"),
    *MOVING,
    dry_run("show who would move"),
)
"""Options of a drain."""


class Component(ShowCommand):
    """Base class; ``kind`` is the list in REST, ``change`` what a PATCH sends, None for a GET"""

    kind: ClassVar[str]
    change: ClassVar[dict[str, Any] | None] = None

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        path = self.path(rest, args)
        return rest.get(path) if self.change is None else rest.call("PATCH", path, body=self.change)

    def path(self, rest: Rest, args: argparse.Namespace) -> str:
        return f"{rest.fabric(args.fabric)}/{self.kind}/{quote(args.name, safe='')}"


class Drain(Component):
    """Base class of drains, with which tenants may move"""

    change = {"state": "drained"}

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        if not args.move:
            if args.override or args.dry_run or args.max_cost is not None:
                raise Refused("--override, --max-cost and --dry-run are for --move")
            return super().answer(rest, args)
        body = given(
            max_cost=args.max_cost, override=args.override or None, dry_run=args.dry_run or None
        )
        what = {"hosts": [args.name]} if self.kind == "hosts" else {"switch": args.name}
        return rest.call("POST", f"{rest.fabric(args.fabric)}/evacuate", body={**what, **body})


class DrainHost(Drain):
    """Give a host to no new owner; an owner keeps it, or moves with --move"""

    kind = "hosts"
    arguments = (*HOST, *EVACUATE)


class FailHost(Component):
    """Mark a host failed; an owner keeps it"""

    kind = "hosts"
    arguments = HOST
    change = {"state": "failed"}


class RepairHost(Component):
    """Mark a host usable"""

    kind = "hosts"
    arguments = HOST
    change = {"state": "up"}


def _traits(parser: argparse.ArgumentParser) -> None:
    """Options that set the traits of a host."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--trait", action="append", help="trait of the host, replacing all others; may be repeated"
    )
    group.add_argument("--no-traits", action="store_true", help="remove all traits")


class SetHost(Component):
    """Set traits, cost and domains of a host; options left out change nothing"""

    kind = "hosts"
    arguments = (
        *HOST,
        _traits,
        argument("--cost", type=int, help="cost of the host, a number in any unit"),
        argument(
            "--domain",
            action="append",
            type=domain,
            metavar="KIND=NAME",
            help="domain of the host, replacing all others; may be repeated",
        ),
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        body = given(traits=[] if args.no_traits else args.trait, cost=args.cost)
        if args.domain is not None:
            body["domains"] = dict(args.domain)
        return rest.call("PATCH", self.path(rest, args), body=body)


class ConfirmEmpty(Component):
    """Say that a host in quarantine runs no server"""

    kind = "hosts"
    arguments = HOST
    change = {"confirm_empty": True}


class ShowSwitch(Component):
    """Show a switch and the allocations that hold hosts or links there"""

    kind = "switches"
    arguments = SWITCH


class DrainSwitch(Drain):
    """Drain a leaf: its free hosts get no new owner; owners keep theirs, or move with --move"""

    kind = "switches"
    arguments = (*SWITCH, *EVACUATE)


class MaintainSwitch(Component):
    """Put a switch under maintenance: nobody new gets its links, owners move away if they can"""

    kind = "switches"
    arguments = SWITCH
    change = {"state": "maintenance"}


class FailSwitch(Component):
    """Mark a switch failed, with its links and, for a leaf, its hosts"""

    kind = "switches"
    arguments = SWITCH
    change = {"state": "failed"}


class RepairSwitch(Component):
    """Take back a fail or a maintenance of a switch; else the drain of a leaf"""

    kind = "switches"
    arguments = SWITCH
    change = {"state": "up"}


class ShowLink(Component):
    """Show a link with its state and owner"""

    kind = "links"
    arguments = LINK


class FailLink(Component):
    """Mark a link failed; an owner keeps it"""

    kind = "links"
    arguments = LINK
    change = {"state": "failed"}


class RepairLink(Component):
    """Mark a link usable"""

    kind = "links"
    arguments = LINK
    change = {"state": "up"}
