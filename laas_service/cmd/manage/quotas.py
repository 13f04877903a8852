# SPDX-License-Identifier: Apache-2.0

"""laas-manage quota: list, set and remove quotas of projects."""

import argparse
import re

from laas_service.app.records import PROJECT
from laas_service.cmd.manage.shared import parts_of
from laas_service.domain.errors import InvalidInput


def show_quotas(args: argparse.Namespace) -> int:
    """Print the quotas of projects, and how much is in use."""
    parts = parts_of(args)
    for quota in parts.database.quotas.all():
        print(
            f"{quota.project_id}: {quota.used_hosts} of {_most(quota.hosts)} hosts, "
            f"{quota.used_allocations} of {_most(quota.allocations)} allocations, "
            f"{quota.used_moves} of {_most(quota.moves)} moves, "
            f"{quota.used_slots} of {_most(quota.slots)} slots"
        )
    return 0


def _most(number: int | None) -> str:
    return {None: "the default", -1: "any"}.get(number, str(number))


def set_quota(args: argparse.Namespace) -> int:
    """Record the quota of a project; existing allocations stay."""
    limits = (args.hosts, args.allocations, args.moves, args.slots)
    if all(limit is None for limit in limits):
        fix = "give --hosts, --allocations, --moves or --slots, or use unset"
        raise InvalidInput("quota", None, fix)
    if not re.fullmatch(PROJECT, args.project):
        raise InvalidInput("project", args.project, "give the id of a project")
    parts_of(args).database.quotas.set(args.project, *limits)
    return 0


def unset_quota(args: argparse.Namespace) -> int:
    """Remove the quota of a project."""
    parts_of(args).database.quotas.unset(args.project)
    return 0
