# SPDX-License-Identifier: Apache-2.0

"""Commands about fabrics and their lists of hosts, links, switches and agents."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from laas_service.client.allocations import written
from laas_service.client.command import ListCommand, RestCommand, ShowCommand
from laas_service.client.formatting import brief
from laas_service.client.options import (
    FABRIC,
    FABRIC_OPTION,
    MOVING,
    PARENT,
    POLICY,
    RISKS,
    SLOTS,
    Argument,
    argument,
    constrained,
    constraints,
    dry_run,
    given,
)
from laas_service.client.rest import Refused, Rest, changing
from laas_service.client.usage import count


class List(ListCommand):
    """List fabrics"""

    example = "-f json"
    listed = "fabrics"

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return list(rest.listed("/v1/fabrics", "fabrics"))


class Show(ShowCommand):
    """Show a fabric's shape and counts of hosts and links"""

    example = "main"
    arguments = FABRIC

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return rest.get(rest.fabric(args.fabric))


class Delete(ShowCommand):
    """Stop managing a fabric; refused while allocations live there"""

    example = "spare"
    arguments = (argument("fabric", help="id of the fabric"),)

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return rest.call("DELETE", rest.fabric(args.fabric))


class Utilization(ShowCommand):
    """Show how much of a fabric is in use"""

    example = "main"
    arguments = FABRIC

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return rest.get(f"{rest.fabric(args.fabric)}/utilization")


class Status(ShowCommand):
    """Show on one screen what is free, who waits, and what needs a person"""

    example = "-f json"

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        fabrics, needs = [], []
        for fabric in rest.listed("/v1/fabrics", "fabrics"):
            path = rest.fabric(fabric["id"])
            used, routing = (rest.get(f"{path}/{name}") for name in ("utilization", "routing"))
            fabrics.append(
                {"id": fabric["id"], **used["hosts"], "allocations": used["allocations"]}
            )
            for manager in routing["subnet_managers"]:
                if manager["problem"]:
                    needs.append(f"{fabric['id']}, {manager['name']}: {manager['problem']}")
            with suppress(Refused):  # for administrators
                alarm = rest.get(f"{path}/observation")["alarm"]
                needs += [f"{fabric['id']}: {brief(alarm)}"] if alarm else []
        live = list(rest.listed("/v1/allocations", "allocations"))
        for one in live:
            if wrong := one.get("error") or one.get("degraded"):
                needs.append(f"{one['name']} ({one['state']}): {brief(wrong)}")
        waiting = [one for one in live if one["state"] == "queued"]
        waiting.sort(key=lambda one: (one["fabric"], one.get("position") or 0))
        return {
            "needs_attention": needs,
            "fabrics": fabrics,
            "waiting": [
                f"{one.get('position')}. {one['name']}: {one['requested']} hosts" for one in waiting
            ],
            "changing": [f"{one['name']}: {one['state']}" for one in live if changing(one)],
        }


class Routing(ShowCommand):
    """Show the desired generation of the routes, and the one that is confirmed, and by what"""

    example = "main"
    arguments = FABRIC

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return rest.get(f"{rest.fabric(args.fabric)}/routing")


class Agents(ListCommand):
    """List OpenSM agents and their last reports"""

    example = "--fabric main"
    listed = "agents"
    arguments = FABRIC

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return list(rest.listed(f"{rest.fabric(args.fabric)}/agents", "agents"))


class OldAgents(Agents):
    """The same as manager list; an old name of it"""

    deprecated = True


class ForgetManager(ShowCommand):
    """Forget an OpenSM that is gone for good, so that nothing is held for it"""

    example = "gone --fabric main"
    arguments = (
        argument("name", metavar="NAME", help="its agent, as 'laas manager list' names it"),
        *FABRIC,
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return rest.call("DELETE", f"{rest.fabric(args.fabric)}/agents/{quote(args.name, safe='')}")


class Idle(ShowCommand):
    """Show links and switches that may be powered down"""

    example = "main"
    arguments = FABRIC

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        path = f"{rest.fabric(args.fabric)}/idle"
        first_page = rest.get(path)
        links = list(rest.listed(path, "links"))
        return {**first_page, "links": links, "next": None}


class Plane(ShowCommand):
    """Show or change the links withheld from tenants for shared traffic"""

    example = "--l2 3 --dry-run"
    arguments = (
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
        dry_run("show the cost"),
        FABRIC_OPTION,
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        path = f"{rest.fabric(args.fabric)}/plane"
        if not (args.l2 or args.spines or args.none):
            return rest.get(path)
        if args.none and (args.l2 or args.spines):
            raise Refused("give --none, or indices, not both")
        body = {"l2": args.l2, "spines": args.spines, "dry_run": args.dry_run}
        return rest.call("PUT", path, body=body)


class Inventory(ListCommand):
    """Base class of lists of a fabric's parts; ``listed`` is also the last part of the path"""

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        names = ("state", "owner", "free", "trait", "kind", "level")
        query = {name: getattr(args, name, None) for name in names}
        if query["owner"] is not None:
            query["owner"] = rest.allocation(args.owner)["id"]
        return list(rest.listed(f"{rest.fabric(args.fabric)}/{self.listed}", self.listed, **query))


def _owned(name: str) -> tuple[Argument, ...]:
    """Options that choose hosts or links."""
    states = ("up", "drained", "failed")
    owner = f"list {name} of this allocation only (name or id)"
    return (
        argument("--state", choices=states, help=f"list {name} in this state only"),
        argument("--owner", metavar="ALLOCATION", help=owner),
        argument("--free", action="store_true", default=None, help=f"list free {name} only"),
        *FABRIC,
    )


class Hosts(Inventory):
    """List the hosts of a fabric with state and owner"""

    example = "--state failed"
    listed = "hosts"
    arguments = (*_owned("hosts"), argument("--trait", help="list hosts with this trait only"))


class Links(Inventory):
    """List the links of a fabric with state and owner"""

    example = "--owner blue"
    listed = "links"
    arguments = (
        *_owned("links"),
        argument("--kind", choices=("leaf", "spine"), help="list links of this level only"),
        argument(
            "--crossed",
            action="store_true",
            help="list owned links that packets of others have to cross, how many do, and why",
        ),
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        listed = super().answer(rest, args)
        if not args.crossed:
            return listed
        crossed = {
            link["id"]: {"crossed_by": link["crossed_by"], "why": link["why"]}
            for link in rest.listed(f"{rest.fabric(args.fabric)}/crossed", "links")
        }
        chosen = (link for link in listed if link["id"] in crossed)
        return [{**link, **crossed[link["id"]]} for link in chosen]


class Switches(Inventory):
    """List the switches of a fabric and their positions"""

    example = "--level 1"
    listed = "switches"
    arguments = (
        argument("--level", type=int, choices=(1, 2, 3), help="list switches of this level only"),
        *FABRIC,
    )


class HostsCommand(ShowCommand):
    """Base class of questions about a number of hosts: HOSTS [FABRIC], or [FABRIC] --hosts HOSTS"""

    arguments: Sequence[Argument] = (
        argument("--hosts", type=count, help="number of hosts"),
        argument("first", metavar="HOSTS", nargs="?", help="the same as --hosts"),
        *FABRIC,
        POLICY,
        constraints,
    )

    hosts_required = True

    def path(self, rest: Rest, args: argparse.Namespace) -> str:
        """The path of the fabric; moves what is given without an option to its place."""
        if args.hosts is None and args.first is not None and args.first.isdecimal():
            args.hosts = int(args.first)
        elif args.hosts is None and self.hosts_required and args.domains is None:
            if args.first is None:
                self.usage_error("the following arguments are required: hosts")
            self.usage_error(f"argument hosts: invalid int value: {args.first!r}")
        elif args.first is not None:
            if args.fabric is not None:
                self.usage_error(f"unrecognized arguments: {args.first}")
            args.fabric = args.first
        return rest.fabric(args.fabric)


def _listed(value: Any) -> Any:
    """A list as a query has it."""
    return ",".join(map(str, value)) if isinstance(value, list) else value


class Fit(HostsCommand):
    """Show whether a number of hosts, or of slots of shared hosts, fits now"""

    example = "12 --within pod"
    arguments = (*HostsCommand.arguments, PARENT, *SLOTS, RISKS)

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        self.hosts_required = args.slots is None
        path = self.path(rest, args)
        query = {name: _listed(value) for name, value in constrained(args).items()}
        if isinstance(over := query.get("spread"), dict):
            query |= {"spread": over["least"], "spread_kind": over["kind"]}
        if args.parent is not None:
            query["parent"] = rest.allocation(args.parent)["id"]
        for name in ("slots", "bandwidth", "deviation", "risks"):
            query[name] = _listed(getattr(args, name))
        return rest.get(f"{path}/fit", hosts=args.hosts, policy=args.policy, **query)


class MakeRoom(HostsCommand):
    """Move tenants who consent so that a number of hosts fits, or show the plan for the queue"""

    example = "3 --dry-run"
    hosts_required = False
    arguments = (
        *HostsCommand.arguments,
        argument("--moves", type=count, metavar="TENANTS", help="move at most so many; default: 1"),
        *MOVING,
        dry_run("show the plan, tell nobody"),
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        path = self.path(rest, args)
        if args.hosts is None and args.domains is None:
            return rest.get(f"{path}/make-room")
        body = given(
            hosts=args.hosts,
            policy=args.policy,
            constraints=constrained(args) or None,
            moves=args.moves,
            max_cost=args.max_cost,
            override=args.override or None,
            dry_run=args.dry_run or None,
        )
        return rest.call("POST", f"{path}/make-room", body=body)


class Sleep(ShowCommand):
    """Move tenants who consent so that more switches can sleep"""

    example = "--moves 2 --dry-run"
    arguments = (
        argument("--moves", type=count, metavar="TENANTS", help="move at most so many; default: 1"),
        *MOVING,
        dry_run("show the plan, tell nobody"),
        *FABRIC,
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        body = given(
            moves=args.moves,
            max_cost=args.max_cost,
            override=args.override or None,
            dry_run=args.dry_run or None,
        )
        return rest.call("POST", f"{rest.fabric(args.fabric)}/sleep", body=body)


class Map(ShowCommand):
    """Write a page that shows the fabric: who owns which cable, the queue, faults"""

    example = "--html map.html --hosts 12"
    arguments = (
        argument("--html", metavar="FILE", required=True, help="write the page into this file"),
        argument("--hosts", type=count, help="show whether so many fit, and what is in the way"),
        POLICY,
        *FABRIC,
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        """What the page shows, in numbers."""
        from laas_service import page

        shown = rest.get(f"{rest.fabric(args.fabric)}/map", hosts=args.hosts, policy=args.policy)
        written(args.html, page.page(shown))
        question = shown["question"]
        return {
            "fabric": shown["fabric"],
            "generation": shown["generation"],
            "tenants": len(shown["tenants"]),
            "waiting": len(shown["queue"]),
            "faults": len(shown["faults"]),
            **({} if question is None else {"fits": question["fits"]}),
            "file": args.html,
        }


class View(RestCommand):
    """Serve the page of a fabric on this machine, until interrupted"""

    example = "--port 8790"
    arguments = (
        argument(
            "--port", type=int, default=0, help="port on loopback to listen on; default: a free one"
        ),
        FABRIC_OPTION,
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> None:
        from laas_service.client.view import ViewServer

        try:
            server = ViewServer(rest, rest.fabric(args.fabric), args.port)
        except OSError as error:
            raise Refused(f"cannot listen on port {args.port}: {error.strerror}") from error
        with server, suppress(KeyboardInterrupt):
            print(server.url, flush=True)
            print("End with Ctrl-C. Whoever knows the address sees this page.", file=sys.stderr)
            server.serve_forever()


class Observation(ShowCommand):
    """Show observed faults; choose what observation may change; acknowledge its alarm"""

    example = "--mode observe"
    arguments = (
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

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        path = f"{rest.fabric(args.fabric)}/observation"
        body = given(mode=args.mode, acknowledge=args.acknowledge or None)
        return rest.call("PATCH", path, body=body) if body else rest.get(path)
