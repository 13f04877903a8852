# SPDX-License-Identifier: Apache-2.0

"""``laas-manage``: the operator's tool for the database and the fabrics.

Works on the database itself, so it needs no running service. Exit status 0: done.
1: refused, or violations found. 2: the command line was wrong, or ``fabric verify`` or
``db check`` could not look.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from laas_service.cmd.manage import database, fabrics, hosts, plane, quotas, reimport, verify
from laas_service.domain.errors import LaasError

_GROUPS = {
    "db": ("the database", [database]),
    "fabric": ("the fabrics", [fabrics, reimport, plane, verify]),
    "host": ("what hosts are like", [hosts]),
    "quota": ("of projects", [quotas]),
}

AUDITS = (verify.verify, database.check)
"""Commands whose exit status 1 means findings, and nothing else."""


def main(argv: list[str] | None = None) -> int:
    """Carry out one command."""
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
    top.add_argument("--config-file", action="append", metavar="PATH", help="may be repeated")
    top.add_argument("--config-dir", action="append", metavar="PATH", help="may be repeated")
    groups = top.add_subparsers(required=True, metavar="|".join(_GROUPS))
    for name, (what, parts) in _GROUPS.items():
        commands = groups.add_parser(name, help=what).add_subparsers(required=True)
        for part in parts:
            part.add(commands)
    return top
