# SPDX-License-Identifier: Apache-2.0

"""``laas-manage``: operator's command for the database, fabrics, hosts and quotas.

Uses the database directly and needs no running service. Exit status 0: done.
1: refused, or violations found. 2: the command line was wrong, or ``fabric verify`` or
``db check`` could not run. 130: interrupted.
"""

import argparse
import sys
from collections.abc import Callable

from laas_service.client.usage import Parser
from laas_service.cmd.manage.command_line import GROUPS
from laas_service.domain.errors import LaasError
from laas_service.domain.wording import printable
from laas_service.version import ShowVersion

AUDITS = (("fabric", "verify"), ("db", "check"))
"""Commands whose exit status 1 means findings; they exit with 2 after any error."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    args = parser().parse_args(argv)
    try:
        command: Callable[[argparse.Namespace], int] = args.command
        return command(args)
    except KeyboardInterrupt:
        return 130
    except LaasError as error:
        print(f"laas-manage: {printable(str(error))}", file=sys.stderr)
        return 2 if args.audits else 1
    except Exception as error:
        if not args.audits:
            raise
        print(
            f"laas-manage: unexpected {type(error).__name__}: {printable(str(error))}",
            file=sys.stderr,
        )
        return 2


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="laas-manage", description=__doc__)
    top.add_argument("--version", action=ShowVersion)
    top.add_argument(
        "--config-file", action="append", metavar="PATH", help="configuration file; may be repeated"
    )
    top.add_argument(
        "--config-dir",
        action="append",
        metavar="PATH",
        help="directory of configuration files; may be repeated",
    )
    groups = top.add_subparsers(required=True, metavar="|".join(GROUPS))
    for group, (purpose, commands) in GROUPS.items():
        subparsers = groups.add_parser(group, help=purpose).add_subparsers(required=True)
        for command in commands:
            parser = subparsers.add_parser(command.name, help=command.help)
            audits = (group, command.name) in AUDITS
            parser.set_defaults(command=command.run, audits=audits)
            for add in command.arguments:
                add(parser)
    return top
