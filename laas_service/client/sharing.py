# SPDX-License-Identifier: Apache-2.0

"""Commands that only shared hosts have: other slots, promises of links, hosts that become empty."""

from __future__ import annotations

import argparse
from typing import Any

from laas_service.client.allocations import ALLOCATION, changed, path_of
from laas_service.client.command import ListCommand, ShowCommand
from laas_service.client.options import FABRIC, MOVING, SLOTS, argument, dry_run, given
from laas_service.client.rest import Rest
from laas_service.client.usage import count


class ChangeSlots(ShowCommand):
    """Change the slots of an allocation on shared hosts, or their bandwidth"""

    example = "web --slots 3 --dry-run"
    arguments = (ALLOCATION, *SLOTS, dry_run("show the virtual machines that would move"))
    waits = True

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        body = given(
            slots=args.slots,
            bandwidth=args.bandwidth,
            deviation=args.deviation,
            dry_run=args.dry_run or None,
        )
        return changed(rest, args, "PATCH", path_of(rest, args), body)


class Promises(ListCommand):
    """List what links promise to those who share hosts, and the traffic measured there, in Gb/s"""

    example = "--kind host"
    listed = "promises"
    arguments = (
        argument("--allocation", help="on hosts that this allocation shares only (name or id)"),
        argument("--kind", choices=("host", "leaf", "spine"), help="list links of this kind only"),
        *FABRIC,
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        part = args.allocation and rest.allocation(args.allocation)["id"]
        path = f"{rest.fabric(args.fabric)}/promises"
        return list(rest.listed(path, "promises", allocation=part, kind=args.kind))


class Consolidate(ShowCommand):
    """Move virtual machines of tenants who consent so that shared hosts are empty"""

    example = "--parent pool --max-moves 2 --dry-run"
    arguments = (
        argument(
            "--parent",
            metavar="ALLOCATION",
            help="empty hosts that this allocation shares (name or id); default: the only one",
        ),
        argument(
            "--max-moves",
            type=count,
            metavar="N",
            help="move at most N virtual machines; default: 8",
        ),
        argument(
            "--max-moves-per-host",
            type=float,
            metavar="X",
            help="leave hosts alone that cost more moves than X; default: 4",
        ),
        *MOVING,
        dry_run("show the plan, tell nobody"),
        *FABRIC,
    )

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        path = f"{rest.fabric(args.fabric)}/consolidate"
        body = given(
            parent=None if args.parent is None else rest.allocation(args.parent)["id"],
            moves=args.max_moves,
            moves_per_host=args.max_moves_per_host,
            max_cost=args.max_cost,
            override=args.override or None,
            dry_run=args.dry_run or None,
        )
        return rest.call("POST", path, body=body)
