# SPDX-License-Identifier: Apache-2.0

"""laas-manage db: upgrade, back up, restore, check and purge the database."""

import argparse

from laas_service.cmd.manage.shared import parts_of
from laas_service.wiring.composition import Composition


def upgrade(args: argparse.Namespace) -> int:
    """Upgrade the schema to this release; safe to repeat."""
    parts = parts_of(args)
    parts.database.upgrade()
    print(f"the database is at revision {parts.database.revisions()[0]}")
    return 0


def version(args: argparse.Namespace) -> int:
    """Print the revisions; 1 if the schema is not at the one this release needs."""
    current, head = parts_of(args).database.revisions()
    print(f"the database is at revision {current or 'none'}, this release needs {head}")
    return 0 if current == head else 1


def backup(args: argparse.Namespace) -> int:
    """Write a backup of the database; 1 if it failed."""
    rows = parts_of(args).database.back_up(args.file)
    print(f"{args.file}: {rows} rows")
    return 0


def restore(args: argparse.Namespace) -> int:
    """Restore a backup and check the database; 1 if refused, or after findings."""
    parts = parts_of(args)
    header = parts.database.restore(args.file, args.above)
    print(f"{header.rows} rows of {header.made:%Y-%m-%d %H:%M:%S} UTC are restored")
    return _report(parts)


def purge(args: argparse.Namespace) -> int:
    """Delete allocations that were released long ago; 1 if refused."""
    forgotten = parts_of(args).database.forget_allocations(args.released_days)
    print(f"{forgotten} released allocations are deleted")
    return 0


def archive(args: argparse.Namespace) -> int:
    """Move allocations that were released long ago into a file; 1 if refused."""
    forgotten = parts_of(args).database.forget_allocations(args.released_days, args.file)
    print(f"{args.file}: {forgotten} released allocations")
    return 0


def check(args: argparse.Namespace) -> int:
    """Print inconsistencies; 0 none, 1 some, 2 (from ``main``) the check could not run."""
    return _report(parts_of(args))


def _report(parts: Composition) -> int:
    findings = parts.database.findings()
    for finding in findings:
        print(finding)
    print(f"{len(findings) or 'no'} findings")
    return 1 if findings else 0
