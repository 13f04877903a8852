# SPDX-License-Identifier: Apache-2.0

"""laas-manage db: upgrade, back up, restore, check and purge the database."""

import argparse
from pathlib import Path

from laas_service.client.options import Command, argument
from laas_service.cmd.manage.shared import parts_of
from laas_service.wiring import Parts


def generation(text: str) -> int:
    """A generation on the command line. Raises: ArgumentTypeError."""
    if not (text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r}: give 0 to 999999999")
    return int(text)


def days(text: str) -> int:
    """A number of days on the command line. Raises: ArgumentTypeError."""
    if not (text.isdecimal() and len(text) < 6 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 to 99999")
    return int(text)


def upgrade(args: argparse.Namespace) -> int:
    """Upgrade the schema to this release; safe to repeat."""
    parts = parts_of(args)
    parts.upgrade_database()
    print(f"the database is at revision {parts.database_revisions()[0]}")
    return 0


def version(args: argparse.Namespace) -> int:
    """Print the revisions; 1 if the schema is not at the one this release needs."""
    current, head = parts_of(args).database_revisions()
    print(f"the database is at revision {current or 'none'}, this release needs {head}")
    return 0 if current == head else 1


def backup(args: argparse.Namespace) -> int:
    """Write a backup of the database; 1 if it failed."""
    rows = parts_of(args).back_up_database(args.file)
    print(f"{args.file}: {rows} rows")
    return 0


def restore(args: argparse.Namespace) -> int:
    """Restore a backup and check the database; 1 if refused, or after findings."""
    parts = parts_of(args)
    header = parts.restore_database(args.file, args.above)
    print(f"{header.rows} rows of {header.made:%Y-%m-%d %H:%M:%S} UTC are restored")
    return _report(parts)


def purge(args: argparse.Namespace) -> int:
    """Delete allocations that were released long ago; 1 if refused."""
    forgotten = parts_of(args).forget_allocations(args.released_days)
    print(f"{forgotten} released allocations are deleted")
    return 0


def archive(args: argparse.Namespace) -> int:
    """Move allocations that were released long ago into a file; 1 if refused."""
    forgotten = parts_of(args).forget_allocations(args.released_days, args.file)
    print(f"{args.file}: {forgotten} released allocations")
    return 0


def check(args: argparse.Namespace) -> int:
    """Print inconsistencies; 0 none, 1 some, 2 (from ``main``) the check could not run."""
    return _report(parts_of(args))


def _report(parts: Parts) -> int:
    findings = parts.database_findings()
    for finding in findings:
        print(finding)
    print(f"{len(findings) or 'no'} findings")
    return 1 if findings else 0


_RELEASED_DAYS = argument(
    "--released-days",
    type=days,
    metavar="DAYS",
    help="those that were released so many days ago; default: [retention] released_days",
)


COMMANDS = (
    Command("upgrade", upgrade, "upgrade the schema to this release"),
    Command("version", version, "show the revision of the schema, and the one this release needs"),
    Command(
        "backup",
        backup,
        "back up the database into a file; the service may keep running",
        (
            argument(
                "file", type=Path, metavar="FILE", help="file to write; an existing one is replaced"
            ),
        ),
    ),
    Command(
        "restore",
        restore,
        "restore a backup into an empty database",
        (
            argument("file", type=Path, metavar="FILE", help="backup to read"),
            argument(
                "--above",
                type=generation,
                default=0,
                metavar="GENERATION",
                help="highest generation in published files that are not on this machine",
            ),
        ),
    ),
    Command("check", check, "check that the tables are consistent"),
    Command(
        "archive",
        archive,
        "move allocations that were released long ago into a file",
        (
            argument(
                "file", type=Path, metavar="FILE", help="file to which lines of JSON are appended"
            ),
            _RELEASED_DAYS,
        ),
    ),
    Command("purge", purge, "delete allocations that were released long ago", (_RELEASED_DAYS,)),
)
