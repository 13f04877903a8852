# SPDX-License-Identifier: Apache-2.0

"""Commands about allocations, which ``openstack`` calls isolated networks, and about quotas."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from laas_service.client.command import YES, ListCommand, RestCommand, ShowCommand
from laas_service.client.formatting import printable
from laas_service.client.options import (
    CONSENT,
    DEFAULT_TIMEOUT,
    FABRIC_OPTION,
    PARENT,
    POLICY,
    SLOTS,
    argument,
    constrained,
    constraints,
    dry_run,
    fabric,
    given,
    project,
)
from laas_service.client.rest import Refused, Rest
from laas_service.client.usage import bandwidth, count, duration

NAMED = "name, id, or the first 8 characters of the id"
ON_FABRIC = argument(
    "--fabric", metavar="ID", help="fabric of the allocation, if several have one of this name"
)


def _allocation(parser: argparse.ArgumentParser) -> None:
    """One allocation, and the fabric that tells it from namesakes."""
    parser.add_argument("allocation", metavar="ALLOCATION", help=NAMED)
    ON_FABRIC(parser)


ALLOCATION = _allocation


def path_of(rest: Rest, args: argparse.Namespace) -> str:
    """The path of the allocation that is named."""
    return f"/v1/allocations/{_named(rest, args)['id']}"


def _named(rest: Rest, args: argparse.Namespace) -> Any:
    """The allocation that is named."""
    return rest.allocation(args.allocation, args.fabric)


def changed(
    rest: Rest,
    args: argparse.Namespace,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """The answer to a change; with ``--wait`` the allocation once it no longer changes."""
    if getattr(args, "dry_run", False):
        return rest.call(method, path, body=body)
    allocation = rest.call(method, path, {"wait": args.wait}, body, headers)
    return allocation if args.wait is None else rest.settled(allocation, args.wait)


DUPLICATE = argument(
    "--allow-duplicate-name",
    action="store_true",
    default=None,
    help="even if another live allocation of the project has this name",
)


def _name(parser: argparse.ArgumentParser) -> None:
    """The name of something new, with or without ``--name``."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--name", help="name of the allocation")
    group.add_argument("name", nargs="?", default=argparse.SUPPRESS, help="the same as --name")


def _parent(rest: Rest, args: argparse.Namespace) -> str | None:
    """The id of the container; shared hosts of another project can be named by their id alone."""
    if args.parent is None:
        return None
    try:
        return str(rest.allocation(args.parent)["id"])
    except Refused:
        if args.slots is None:
            raise
        return str(args.parent)


def _sharing(args: argparse.Namespace) -> dict[str, Any] | None:
    """How the hosts of a new allocation are to be shared."""
    shared = given(
        slots=args.share_slots,
        bandwidth=args.share_bandwidth,
        risk=args.share_risk,
        open=args.share_open or None,
    )
    return shared or None


def _size(parser: argparse.ArgumentParser) -> None:
    """How many hosts, or slots of shared hosts; ``--domains`` says how many hosts, too."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--hosts", type=count, help="number of hosts")
    group.add_argument("--slots", type=count, help="number of virtual machines on shared hosts")


class Create(ShowCommand):
    """Create an allocation of hosts and links"""

    example = "--name red --hosts 5 --wait 10m"
    arguments = (
        _name,
        DUPLICATE,
        project("owner"),
        _size,
        *SLOTS[1:],
        argument("--risk", type=float, help="highest probability of too little that is accepted"),
        argument("--share-slots", type=count, help="share its hosts: virtual machines on each"),
        argument("--share-bandwidth", type=bandwidth, metavar="GBPS", help="of each of its links"),
        argument("--share-risk", type=float, help="highest probability of too little on a link"),
        argument("--share-open", action="store_true", help="let other projects have slots"),
        POLICY,
        FABRIC_OPTION,
        constraints,
        argument(
            "--cheapest",
            action="store_true",
            default=None,
            help="choose the placement with the lowest total host cost",
        ),
        *CONSENT,
        argument(
            "--container",
            action="store_true",
            help="reserve hosts and links for allocations inside it",
        ),
        PARENT,
        argument("--queue", action="store_true", help="wait in the queue if it does not fit now"),
        argument(
            "--duration", type=duration, metavar="TIME", help="expected lifetime of the allocation"
        ),
        dry_run("show the placement"),
        argument("--key", help="idempotency key; default: a new one"),
    )
    waits = True

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        if args.hosts is None and args.slots is None and args.domains is None:
            self.usage_error("one of the arguments --hosts --slots --domains is required")
        body = given(
            name=args.name,
            allow_duplicate_name=args.allow_duplicate_name,
            hosts=args.hosts,
            slots=args.slots,
            bandwidth=args.bandwidth,
            deviation=args.deviation,
            risk=args.risk,
            sharing=_sharing(args),
            policy=args.policy,
            fabric=args.fabric,
            project_id=args.project_id,
            duration=args.duration,
            constraints=constrained(args) or None,
            wait=args.queue or None,
            container=args.container or None,
            movable=args.movable,
            notice=args.notice,
            move_cost=args.move_cost,
            parent=_parent(rest, args),
            dry_run=args.dry_run or None,
            **{"class": None if args.slots is None else "shared"},
        )
        key = {"Idempotency-Key": args.key or str(uuid.uuid4())}
        return changed(rest, args, "POST", "/v1/allocations", body, key)


class List(ListCommand):
    """List allocations"""

    example = "--state active"
    listed = "allocations"
    arguments = (
        argument("--state", help="list this state only; default: all but released"),
        fabric("all"),
        argument(
            "--all-projects",
            action="store_true",
            help="list the allocations of all projects (administrators only)",
        ),
        project("list those of this project only"),
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        query = {
            "state": args.state,
            "fabric": args.fabric,
            "project_id": args.project_id,
            "all_projects": args.all_projects or None,
        }
        return list(rest.listed("/v1/allocations", "allocations", **query))


class Show(ShowCommand):
    """Show an allocation with its hosts, links and latest history"""

    example = "blue"
    arguments = (ALLOCATION,)

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return _named(rest, args)


class Draw(ShowCommand):
    """Write a drawing of an allocation's own tree"""

    example = "blue --svg blue.svg"
    arguments = (
        ALLOCATION,
        argument("--svg", metavar="FILE", required=True, help="write the drawing into this file"),
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        allocation = _named(rest, args)
        shown = rest.get(f"/v1/fabrics/{quote(allocation['fabric'], safe='')}/map")
        for tenant in shown["tenants"]:
            if tenant["id"] == allocation["id"]:
                written(args.svg, tenant["drawing"] + "\n")
                return {
                    **{name: tenant[name] for name in ("id", "name", "hosts")},
                    "links": tenant["leaf_links"] + tenant["spine_links"],
                    "file": args.svg,
                }
        raise Refused(f"allocation {args.allocation} is {allocation['state']} and holds no hosts")


def written(path: str, text: str) -> None:
    """Write a file for the caller. Raises: Refused."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from error


class History(ListCommand):
    """List the history of an allocation, oldest entry first"""

    example = "blue"
    listed = "history"
    arguments = (ALLOCATION,)

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return list(rest.listed(f"{path_of(rest, args)}/history", "history"))


class Certify(RestCommand):
    """Print the certificate of an allocation's isolation, for laas-verify-certificate"""

    example = "blue --output blue.json"
    arguments = (
        ALLOCATION,
        argument("--output", metavar="FILE", help="write the certificate into this file"),
        argument("--nonce", metavar="TEXT", help="a text that the certificate is to repeat"),
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        signed = rest.get(f"{path_of(rest, args)}/certificate", nonce=args.nonce)
        if args.output is not None:
            written(args.output, json.dumps(signed, indent=2) + "\n")
        return signed

    def carry_out(self, args: argparse.Namespace) -> int:
        signed = self.answered(args)
        if args.output is None or self.for_programs:
            self.app.stdout.write(json.dumps(signed, indent=2) + "\n")
        return 0


class Ranks(RestCommand):
    """Print the order of hosts that the tables are made for, as a file for MPI or NCCL"""

    example = "blue --format openmpi --slots 4"
    arguments = (
        ALLOCATION,
        argument(
            "--format",
            choices=("openmpi", "hostfile", "nccl"),
            default="hostfile",
            help="rank file or host file of Open MPI, or environment of NCCL (hostfile)",
        ),
        argument("--slots", type=count, default=1, help="ranks on each host (1)"),
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> str:
        allocation = _named(rest, args)
        hosts = sorted(allocation["hosts"], key=lambda host: host["rank"])
        if not hosts:
            raise Refused(f"{allocation['name']} has no hosts; it is {allocation['state']}")
        names = [host["name"] for host in hosts]
        return _rank_file(args.format, names, args.slots, bool(allocation.get("rails_joined")))

    def carry_out(self, args: argparse.Namespace) -> int:
        self.app.stdout.write(printable(self.answered(args)))
        return 0


def _rank_file(form: str, names: Sequence[str], slots: int, rails_joined: bool) -> str:
    """A rank file or host file of Open MPI, or the environment of NCCL, as text.

    Each of ``names`` runs ``slots`` consecutive ranks.
    """
    if form == "openmpi":
        places = ((name, slot) for name in names for slot in range(slots))
        lines = [f"rank {rank}={name} slot={slot}" for rank, (name, slot) in enumerate(places)]
    elif form == "hostfile":
        lines = [f"{name} slots={slots}" for name in names]
    else:
        hosts = ",".join(f"{name}:{slots}" for name in names)
        lines = [f"NCCL_CROSS_NIC={2 if rails_joined else 0}", f"# mpirun --host {hosts}"]
    return "\n".join(lines) + "\n"


class Rename(ShowCommand):
    """The same as set --name; an old name of it"""

    deprecated = True

    example = "old new"
    arguments = (ALLOCATION, argument("name", metavar="NAME", help="new name"), DUPLICATE)

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        words = f"{shlex.quote(args.allocation)} --name {shlex.quote(args.name)}"
        renamed = _renamed(rest, args)
        self.say(f"this is an old name of '{self.command_line('set')} {words}'")
        return renamed


class Set(RestCommand):
    """Rename an allocation"""

    example = "older --name newer"
    arguments = (ALLOCATION, argument("--name", required=True, help="new name"), DUPLICATE)

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return _renamed(rest, args)


def _renamed(rest: Rest, args: argparse.Namespace) -> Any:
    body = given(name=args.name, allow_duplicate_name=args.allow_duplicate_name)
    return rest.call("PATCH", path_of(rest, args), body=body)


class Consent(ShowCommand):
    """Say whether an allocation may move to make room for others"""

    example = "blue --movable live --notice 1h"
    arguments = (ALLOCATION, *CONSENT)

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        body = given(movable=args.movable, notice=args.notice, move_cost=args.move_cost)
        if not body:
            self.usage_error("give --movable, --notice or --move-cost")
        return rest.call("PATCH", path_of(rest, args), body=body)


def _new_size(text: str) -> tuple[str, int]:
    """A sign, or an empty text, and the number after it."""
    found = re.fullmatch(r"([+-]?)([0-9]{1,9})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hosts such as 12, +4 or -4")
    return found[1], int(found[2])


class Resize(ShowCommand):
    """Change the number of hosts of an allocation where it is"""

    example = "blue +1 --dry-run"
    arguments = (
        ALLOCATION,
        argument(
            "hosts",
            type=_new_size,
            metavar="HOSTS",
            help="new number of hosts; +N for N more hosts than now, -N for fewer",
        ),
        argument(
            "--give-back",
            action="append",
            metavar="NAME",
            help="host that a smaller allocation may lose, instead of any without servers; may be "
            "repeated",
        ),
        YES,
        dry_run("show what the new size would give"),
    )
    waits = True

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        path, agreed = path_of(rest, args), None
        for left in reversed(range(TRIES)):
            present, tag = rest.versioned(path)
            had, wanted = present["requested"], _resized(present["requested"], *args.hosts)
            if wanted < 1:
                raise Refused(f"{present['name']} has {had} hosts, so {wanted} would be left")
            more = f"{abs(wanted - had)} host{'s' * (abs(wanted - had) != 1)}"
            change = f"{had} -> {wanted}: {more} {'more' if wanted >= had else 'fewer'}"
            if wanted < had and not (args.dry_run or agreed == (had, wanted)):
                self.confirm(args, f"shrink {present['name']}: {change}")
                agreed = had, wanted
            body = given(hosts=wanted, give_back=args.give_back, dry_run=args.dry_run or None)
            try:
                resized = changed(rest, args, "PATCH", path, body, {"If-Match": tag})
                self.say(change)
                return resized
            except Refused as refusal:
                if refusal.status != HTTPStatus.PRECONDITION_FAILED or not left:
                    raise
        raise AssertionError("the last attempt returns or raises")


TRIES = 5
"""Attempts at a change of what somebody else changes meanwhile."""


def _resized(present: int, sign: str, number: int) -> int:
    return {"": number, "+": present + number, "-": present - number}[sign]


class ReplaceHosts(ShowCommand):
    """Give an allocation other hosts in place of those that have failed"""

    example = "blue --host node00 --dry-run"
    arguments = (
        ALLOCATION,
        argument(
            "--host",
            action="append",
            metavar="NAME",
            help="host to leave, instead of those that have failed; may be repeated",
        ),
        argument(
            "--turn-back", action="store_true", help="turn back a change of hosts that is under way"
        ),
        dry_run("show the other hosts"),
    )
    waits = True

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        body = given(
            hosts=args.host, turn_back=args.turn_back or None, dry_run=args.dry_run or None
        )
        return changed(rest, args, "POST", f"{path_of(rest, args)}/replace-hosts", body)


class Repair(ShowCommand):
    """Replace the failed links of an allocation by free ones"""

    example = "blue"
    arguments = (ALLOCATION,)
    waits = True

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return changed(rest, args, "POST", f"{path_of(rest, args)}/repair")


class Retry(ShowCommand):
    """Retry the next step of an allocation now, even after an error"""

    example = "blue"
    arguments = (ALLOCATION,)
    waits = True

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return changed(rest, args, "POST", f"{path_of(rest, args)}/retry")


class Wait(ListCommand):
    """Wait until allocations no longer change, and list them"""

    example = "blue --timeout 10m"
    listed = "allocations"
    arguments = (
        argument("allocations", metavar="ALLOCATION", nargs="+", help=NAMED),
        ON_FABRIC,
        argument(
            "--timeout",
            type=duration,
            metavar="TIME",
            default=DEFAULT_TIMEOUT,
            help=f"longest time to wait, such as 90 or 10m; default={DEFAULT_TIMEOUT:g} s",
        ),
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        end = time.monotonic() + args.timeout
        found = [rest.allocation(named, args.fabric) for named in args.allocations]
        return [rest.settled(one, max(0.0, end - time.monotonic())) for one in found]


class Delete(RestCommand):
    """Delete allocations and free their hosts and links"""

    example = "gone --wait 10m"
    arguments = (
        argument("allocations", metavar="ALLOCATION", nargs="+", help=NAMED),
        ON_FABRIC,
        argument(
            "--force", action="store_true", help="delete even if servers still run on the hosts"
        ),
        YES,
    )
    waits = True

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        """The allocation, or all of them in a list if several are named.

        Each is deleted before any is waited for.

        Raises:
            Refused: some were not deleted; each of several has been logged.
        """
        several = len(args.allocations) > 1
        if several or args.force:
            servers = " although servers may run there" if args.force else ""
            self.confirm(args, f"free all hosts of {', '.join(args.allocations)}{servers}")
        query = {"force": args.force or None, "wait": None if several else args.wait}
        gone: dict[str, Any] = {}
        failed = set()

        def attempt(named: str, act: Any) -> None:
            try:
                gone[named] = act()
            except Refused as refusal:
                if not several:
                    raise
                self.app.LOG.error("Cannot delete %s: %s", named, printable(str(refusal)))
                failed.add(named)

        def delete(named: str) -> Any:
            path = f"/v1/allocations/{rest.allocation(named, args.fabric)['id']}"
            return rest.call("DELETE", path, query)

        for named in args.allocations:
            attempt(named, partial(delete, named))
        if args.wait is not None:
            for named, allocation in list(gone.items()):
                attempt(named, partial(rest.settled, allocation, args.wait))
        if failed:
            raise Refused(f"{len(failed)} of {len(args.allocations)} not deleted")
        return list(gone.values()) if several else gone[args.allocations[0]]


class ShowQuota(ShowCommand):
    """Show the limits of a project, and how much of them is in use"""

    example = "-f json"
    arguments = (project("another project than your own"),)

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        return rest.get("/v1/quota", project_id=args.project_id)
