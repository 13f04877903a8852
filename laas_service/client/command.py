# SPDX-License-Identifier: Apache-2.0

"""Base classes of all commands, which ``laas`` and ``openstack isolated network`` share.

A command has its arguments, and ``answer``, which makes its calls. Each command line has an
application of cliff whose ``client_manager.isolated_network`` is the client of the service.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from cliff.command import Command
from cliff.lister import Lister
from cliff.show import ShowOne

from laas_service.client.formatting import BULKY, COLUMNS, printable
from laas_service.client.options import Argument, argument
from laas_service.client.rest import Interrupted, Refused, Rest
from laas_service.client.tables import Table

DEFAULT_TIMEOUT = 600.0
"""Seconds that ``--wait`` of ``openstack`` waits unless ``--timeout`` says otherwise."""

WAIT = (
    argument("--wait", action="store_true", help="wait until the change is complete"),
    argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        default=DEFAULT_TIMEOUT,
        help=(
            f"longest time that --wait waits, default={DEFAULT_TIMEOUT:g}; "
            "the service continues after it"
        ),
    ),
)
"""Options of commands that can wait, unless the application has a ``WAIT`` of its own."""


class RestCommand(Command):
    """A command that calls the service and prints nothing but with ``--json``."""

    app: Any  # that of ``laas`` or of ``openstack``
    arguments: Sequence[Argument] = ()
    waits = False
    """Whether the command can wait until a change is complete."""

    def answer(self, rest: Rest, args: argparse.Namespace) -> Any:
        """What the service answers, as in REST.

        ``args.wait`` is the number of seconds to wait, None for not at all.

        Raises:
            Refused: the service refused or could not be reached.
        """
        raise NotImplementedError

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        self.parser = super().get_parser(prog_name)
        for add in (*self.arguments, *(getattr(self.app, "WAIT", WAIT) if self.waits else ())):
            add(self.parser)
        return self.parser

    def get_epilog(self) -> str:
        """Nothing: cliff reads the metadata of all packages to name the one of a command."""
        return ""

    def usage_error(self, text: str) -> NoReturn:
        """Ends the command as a wrong command line does."""
        self.parser.error(text)

    def answered(self, args: argparse.Namespace) -> Any:
        """The answer to the arguments as this command line has them."""
        if "timeout" in args:
            args.wait = args.timeout if args.wait else None
        try:
            rest: Rest = self.app.client_manager.isolated_network
            if getattr(args, "project", None) is not None:
                args.project_id = rest.project(args.project)
            return self.answer(rest, args)
        except Refused as refusal:
            raise Refused(printable(str(refusal)), refusal.status) from refusal
        except Interrupted as interrupted:
            if sys.stderr.isatty():
                print(file=sys.stderr)  # ends the line on which the terminal shows ^C
            self.app.LOG.warning(printable(str(interrupted)))
            raise

    def run(self, parsed_args: argparse.Namespace) -> int:
        if not getattr(self.app_args, "json", False):
            return super().run(parsed_args)
        json.dump(self.answered(parsed_args), self.app.stdout, indent=2)
        self.app.stdout.write("\n")
        return 0

    def take_action(self, args: argparse.Namespace) -> Any:
        self.answered(args)


class DisplayCommand(RestCommand):
    """A command whose tables fit the terminal."""

    def _load_formatter_plugins(self) -> Any:
        plugins = super()._load_formatter_plugins()  # type: ignore[misc]  # of the other base
        plugins["table"].obj = Table()
        return plugins


class ShowCommand(DisplayCommand, ShowOne):
    """Shows one resource, field by field."""

    def take_action(self, args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        shown: Mapping[str, Any] = self.answered(args)
        if args.formatter == "table" and not args.columns and "links" in shown:
            shown = {name: value for name, value in shown.items() if name not in BULKY}
        return list(shown), list(shown.values())


class ListCommand(DisplayCommand, Lister):
    """Shows a list with the columns that ``COLUMNS`` has for ``listed``."""

    listed: str

    def take_action(self, args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        columns = COLUMNS[self.listed]
        rows = [[item.get(column) for column in columns] for item in self.answered(args)]
        return [_heading(column) for column in columns], rows


def _heading(column: str) -> str:
    words = column.replace("_", " ").title().split()
    return " ".join("ID" if word == "Id" else word for word in words)
