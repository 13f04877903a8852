# SPDX-License-Identifier: Apache-2.0

"""laas-manage db: the tables."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from laas_service.cmd.manage.shared import parts_of
from laas_service.wiring import Parts

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add(commands: Commands) -> None:
    add = commands.add_parser("upgrade", help="bring the tables up to this release")
    add.set_defaults(command=upgrade)
    add = commands.add_parser("version", help="where the tables are, and should be")
    add.set_defaults(command=version)
    add = commands.add_parser("backup", help="copy everything into a file, while all runs")
    add.add_argument("file", type=Path, metavar="FILE", help="an older one is replaced")
    add.set_defaults(command=backup)
    add = commands.add_parser("restore", help="make an empty database of a backup")
    add.add_argument("file", type=Path, metavar="FILE")
    text = "highest generation seen in files that are not on this machine"
    add.add_argument("--above", type=generation, default=0, metavar="GENERATION", help=text)
    add.set_defaults(command=restore)
    add = commands.add_parser("check", help="whether the tables agree with each other")
    add.set_defaults(command=check)


def generation(text: str) -> int:
    if not (text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r}: give 0 to 999999999")
    return int(text)


def upgrade(args: argparse.Namespace) -> int:
    """Bring the tables up to what this release needs; safe to repeat."""
    parts = parts_of(args)
    parts.upgrade_database()
    print(f"the database is at revision {parts.database_revisions()[0]}")
    return 0


def version(args: argparse.Namespace) -> int:
    """Print the revisions; 1 if the tables are not where this release needs them."""
    current, head = parts_of(args).database_revisions()
    print(f"the database is at revision {current or 'none'}, this release needs {head}")
    return 0 if current == head else 1


def backup(args: argparse.Namespace) -> int:
    """Copy what has to outlive the database; 1 if it could not be done."""
    rows = parts_of(args).back_up_database(args.file)
    print(f"{args.file}: {rows} rows")
    return 0


def restore(args: argparse.Namespace) -> int:
    """Make a backup the database, and check it; 1 refused, or findings."""
    parts = parts_of(args)
    header = parts.restore_database(args.file, args.above)
    print(f"{header.rows} rows of {header.made:%Y-%m-%d %H:%M:%S} UTC are restored")
    return _report(parts)


def check(args: argparse.Namespace) -> int:
    """Print what does not agree; 0 nothing, 1 something, 2 (by ``main``) could not look."""
    return _report(parts_of(args))


def _report(parts: Parts) -> int:
    found = parts.database_findings()
    for finding in found:
        print(finding)
    print(f"{len(found) or 'no'} findings")
    return 1 if found else 0
