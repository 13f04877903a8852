# SPDX-License-Identifier: Apache-2.0

"""``laas-manage``: operator's command for the database, fabrics, hosts and quotas.

Uses the database directly and needs no running service. Exit status 0: done.
1: refused, or violations found. 2: the command line was wrong, or ``fabric verify`` or
``db check`` could not run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from laas_service.cmd.manage import database, fabrics, hosts, plane, quotas, reimport, verify
from laas_service.domain.errors import LaasError

_GROUPS = {
    "db": ("upgrade, back up, restore and check the database", [database]),
    "fabric": ("import, export and verify fabrics", [fabrics, reimport, plane, verify]),
    "host": ("set traits and cost of hosts", [hosts]),
    "quota": ("show and set quotas of projects", [quotas]),
}

AUDITS = (verify.verify, database.check)
"""Commands whose exit status 1 means findings; they exit with 2 after any error."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    args = parser().parse_args(argv)
    try:
        command: Callable[[argparse.Namespace], int] = args.command
        return command(args)
    except LaasError as error:
        print(f"laas-manage: {error}", file=sys.stderr)
        return 2 if args.command in AUDITS else 1
    except Exception as error:
        if args.command not in AUDITS:
            raise
        print(f"laas-manage: unexpected {type(error).__name__}: {error}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="laas-manage", description=__doc__)
    top.add_argument(
        "--config-file", action="append", metavar="PATH", help="configuration file; may be repeated"
    )
    top.add_argument(
        "--config-dir",
        action="append",
        metavar="PATH",
        help="directory of configuration files; may be repeated",
    )
    groups = top.add_subparsers(required=True, metavar="|".join(_GROUPS))
    for name, (help, modules) in _GROUPS.items():
        commands = groups.add_parser(name, help=help).add_subparsers(required=True)
        for module in modules:
            module.add(commands)
    return top
