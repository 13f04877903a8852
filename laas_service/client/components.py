# SPDX-License-Identifier: Apache-2.0

"""Commands about single hosts, switches and links, for operators."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from laas_service.client.command import YES, ShowCommand
from laas_service.client.formatting import printable
from laas_service.client.host_lists import chosen
from laas_service.client.options import (
    FABRIC_OPTION,
    MOVING,
    Argument,
    argument,
    dry_run,
    given,
)
from laas_service.client.rest import Refused, Rest
from laas_service.client.usage import domain

HOSTS = (
    argument(
        "names",
        metavar="HOST",
        nargs="+",
        help="host, or several: a list such as node[001-064], a glob such as 'node1*', or a leaf",
    ),
    YES,
    FABRIC_OPTION,
)

SWITCH = (argument("name", metavar="SWITCH", help="name or GUID of the switch"), FABRIC_OPTION)

LINK = (
    argument("name", metavar="LINK", help="id of the link, or GUID/port or name/port of an end"),
    FABRIC_OPTION,
)

REASON = argument(
    "--reason", metavar="TEXT", help="why, for those who see it in lists and in the page"
)

EVACUATE = (
    REASON,
    argument("--move", action="store_true", help="also move the tenants there who consent"),
    *MOVING,
    dry_run("show who would move"),
)
"""Options of a drain."""


def reasoned(args: argparse.Namespace, change: Mapping[str, Any]) -> dict[str, Any]:
    """What a PATCH sends, with the reason that is given."""
    return {**change, **given(reason=getattr(args, "reason", None))}


class Component(ShowCommand):
    """Base class; ``kind`` is the list in REST, ``change`` what a PATCH sends, None for a GET"""

    kind: ClassVar[str]
    change: ClassVar[dict[str, Any] | None] = None

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        path = self.path(rest, args)
        if self.change is None:
            return rest.get(path)
        return rest.call("PATCH", path, body=reasoned(args, self.change))

    def path(self, rest: Rest, args: argparse.Namespace) -> str:
        return f"{rest.fabric(args.fabric)}/{self.kind}/{quote(args.name, safe='')}"


class ChangeHosts(ShowCommand):
    """Base class; ``change`` is what a PATCH of each host sends, ``verb`` says what it does"""

    change: ClassVar[dict[str, Any]] = {}
    verb: ClassVar[str] = ""
    asks = False
    """Whether a change of several hosts wants the consent of a person."""
    arguments: Sequence[Argument] = HOSTS

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return self.changed(rest, args, reasoned(args, self.change))

    def hosts(self, rest: Rest, args: argparse.Namespace) -> list[str]:
        """The hosts that are named. Raises: Refused."""
        names = chosen(rest, rest.fabric(args.fabric), args.names)
        if self.asks and len(names) > 1:
            self.confirm(args, f"{self.verb} {len(names)} hosts: {', '.join(names)}")
        return names

    def changed(self, rest: Rest, args: argparse.Namespace, change: Mapping[str, Any]) -> Any:
        """The host, or all in a list if several are named.

        Raises:
            Refused: some were not changed; each of several has been logged.
        """
        fabric, names = rest.fabric(args.fabric), self.hosts(rest, args)
        answers, failed = [], 0
        for name in names:
            try:
                path = f"{fabric}/hosts/{quote(name, safe='')}"
                answers.append(rest.call("PATCH", path, body=change))
            except Refused as refusal:
                if len(names) == 1:
                    raise
                self.app.LOG.error("Cannot %s %s: %s", self.verb, name, printable(str(refusal)))
                failed += 1
        if failed:
            raise Refused(f"{failed} of {len(names)} hosts not changed")
        return answers if len(names) > 1 else answers[0]

    def take_action(self, args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        answer = self.answered(args)
        if isinstance(answer, list):
            answer = {one["name"]: one["state"] for one in answer}
        return self.shown(args, answer)


class DrainHost(ChangeHosts):
    """Give hosts to no new owner; an owner keeps them, or moves with --move"""

    example = "'node[28-30]' --yes"
    change = {"state": "drained"}
    verb = "drain"
    asks = True
    arguments = (*HOSTS, *EVACUATE)

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        if not _moves(args):
            return super().answer(rest, args)
        return _evacuated(rest, args, {"hosts": self.hosts(rest, args)})


class FailHost(ChangeHosts):
    """Mark hosts failed; an owner keeps them"""

    example = "node29"
    change = {"state": "failed"}
    arguments = (*HOSTS, REASON)
    verb = "fail"
    asks = True


class RepairHost(ChangeHosts):
    """Mark hosts usable"""

    example = "'node[28-31]'"
    change = {"state": "up"}
    verb = "repair"


def _moves(args: argparse.Namespace) -> bool:
    """Whether a drain moves tenants. Raises: Refused."""
    if not args.move and (args.override or args.dry_run or args.max_cost is not None):
        raise Refused("--override, --max-cost and --dry-run are for --move")
    return bool(args.move)


def _evacuated(rest: Rest, args: argparse.Namespace, what: Mapping[str, Any]) -> Any:
    """The answer to a drain with moves of tenants."""
    body = given(
        reason=args.reason,
        max_cost=args.max_cost,
        override=args.override or None,
        dry_run=args.dry_run or None,
    )
    return rest.call("POST", f"{rest.fabric(args.fabric)}/evacuate", body={**what, **body})


def _traits(parser: argparse.ArgumentParser) -> None:
    """Options that set the traits of a host."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--trait", action="append", help="trait of the host, replacing all others; may be repeated"
    )
    group.add_argument("--no-traits", action="store_true", help="remove all traits")


class SetHost(ChangeHosts):
    """Set traits, cost and domains of hosts; options left out change nothing"""

    example = "node28 --trait gpu --cost 3"
    verb = "set"
    arguments = (
        *HOSTS,
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
        return self.changed(rest, args, body)


class ConfirmEmpty(ChangeHosts):
    """Say that hosts in quarantine run no server"""

    example = "node31"
    change = {"confirm_empty": True}
    verb = "confirm"


class ShowSwitch(Component):
    """Show a switch and the allocations that hold hosts or links there"""

    example = "leaf-0-0"
    kind = "switches"
    arguments = SWITCH


class DrainSwitch(Component):
    """Drain a leaf: its free hosts get no new owner; owners keep theirs, or move with --move"""

    kind = "switches"
    arguments = (*SWITCH, YES, *EVACUATE)
    change = {"state": "drained"}
    example = "leaf-1-2 --yes"

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        moves = _moves(args)
        if not args.dry_run:
            hosts = rest.get(self.path(rest, args))["hosts"]["total"]
            if hosts:  # else the service says that it is no leaf
                self.confirm(args, f"drain leaf {args.name} with its {hosts} hosts")
        if not moves:
            return super().answer(rest, args)
        return _evacuated(rest, args, {"switch": args.name})


class MaintainSwitch(Component):
    """Put a switch under maintenance: nobody new gets its links, owners move away if they can"""

    example = "leaf-1-1"
    kind = "switches"
    arguments = (*SWITCH, REASON)
    change = {"state": "maintenance"}


class FailSwitch(Component):
    """Mark a switch failed, with its links and, for a leaf, its hosts"""

    example = "leaf-1-3"
    kind = "switches"
    arguments = (*SWITCH, REASON)
    change = {"state": "failed"}


class RepairSwitch(Component):
    """Take back a fail or a maintenance of a switch; else the drain of a leaf"""

    example = "leaf-1-3"
    kind = "switches"
    arguments = SWITCH
    change = {"state": "up"}


class ShowLink(Component):
    """Show a link with its state and owner"""

    example = "leaf-0-0-0"
    kind = "links"
    arguments = LINK


class FailLink(Component):
    """Mark a link failed; an owner keeps it"""

    example = "leaf-1-3-3"
    kind = "links"
    arguments = (*LINK, REASON)
    change = {"state": "failed"}


class RepairLink(Component):
    """Mark a link usable"""

    example = "leaf-1-3-3"
    kind = "links"
    arguments = LINK
    change = {"state": "up"}
