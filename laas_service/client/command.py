# SPDX-License-Identifier: Apache-2.0

"""Base classes of all commands, which ``laas`` and ``openstack isolated network`` share.

A command has its arguments, and ``answer``, which makes its calls. Each command line has an
application of cliff whose ``client_manager.isolated_network`` is the client of the service.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from cliff.command import Command
from cliff.lister import Lister
from cliff.show import ShowOne

from laas_service.client.formatting import BULKY, COLUMNS, grouped, lines, marked, printable
from laas_service.client.options import DEFAULT_TIMEOUT, Argument, argument
from laas_service.client.rest import Interrupted, Refused, Rest, WaitEnded
from laas_service.client.tables import Table
from laas_service.client.usage import advice, did_you_mean, duration

WAIT = (
    argument("--wait", action="store_true", help="wait until the change is complete"),
    argument(
        "--timeout",
        type=duration,
        metavar="TIME",
        default=DEFAULT_TIMEOUT,
        help=(
            f"longest time that --wait waits, default={DEFAULT_TIMEOUT:g}; "
            "the service continues after it"
        ),
    ),
)
"""Options of commands that can wait, unless the application has a ``WAIT`` of its own."""

WIDE = argument("--wide", action="store_true", help="show every column, however wide")

WATCH = argument(
    "--watch",
    type=duration,
    nargs="?",
    const=2.0,
    metavar="TIME",
    help="show it again every 2 s, or so often, until Ctrl-C",
)

CLEAR = "\x1b[H\x1b[2J"
"""Clears a terminal."""

YES = argument("--yes", action="store_true", help="do not ask before hosts or links are given back")
"""The option of commands that ask before they shrink or free something."""


class RestCommand(Command):
    """A command that calls the service and prints nothing but with ``--json``."""

    app: Any  # that of ``laas`` or of ``openstack``
    arguments: Sequence[Argument] = ()
    waits = False
    """Whether the command can wait until a change is complete."""
    example = ""
    """Arguments that its help shows."""
    formatter_name = ""
    """What ``-f`` says."""

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
        self.parser.epilog = f"example: {prog_name} {self.example}"
        self.parser.error = self.usage_error  # type: ignore[method-assign, assignment]
        return self.parser

    def get_epilog(self) -> str:
        """Nothing: cliff reads the metadata of all packages to name the one of a command."""
        return ""

    def usage_error(self, text: str) -> NoReturn:
        """Ends the command as a wrong command line does, with status 2."""
        said = advice(self.parser, text)
        if getattr(self.app_args, "json", False):
            self._print({"code": "usage", "detail": said.partition("\n")[0]})
        self.parser.exit(2, said)

    def confirm(self, args: argparse.Namespace, what: str) -> None:
        """Return if ``--yes`` is given or the person at the terminal agrees.

        Without a terminal the command line is wrong.

        Raises:
            Refused: the person does not agree.
        """
        if args.yes:
            return
        if not sys.stdin.isatty():
            self.usage_error(f"this would {what}: give --yes to do it")
        print(printable(f"This would {what}. Go on? [y/N] "), end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Refused("nothing was changed")

    def say(self, text: str) -> None:
        """A sentence about what happens, for a person; ``--json`` does without."""
        if not self.for_programs:
            print(printable(text), file=sys.stderr)

    def command_line(self, verb: str) -> str:
        """The command about allocations with this verb, as this application has it."""
        noun = "allocation" if self.app.NAME == "laas" else "isolated network"
        return f"{self.app.NAME} {noun} {verb}"

    def answered(self, args: argparse.Namespace) -> Any:
        """The answer to the arguments as this command line has them."""
        if self.waits and "timeout" in args:
            args.wait = args.timeout if args.wait else None
        try:
            rest: Rest = self.app.client_manager.isolated_network
            if getattr(args, "project", None) is not None:
                args.project_id = rest.project(args.project)
            return self.answer(rest, args)
        except Interrupted as interrupted:
            if sys.stderr.isatty():
                print(file=sys.stderr)  # ends the line on which the terminal shows ^C
            text = str(interrupted)
            subject = getattr(args, "allocation", None) or getattr(args, "name", None)
            if self.waits and subject:
                text += "".join(
                    f"; {what} with '{self.command_line(verb)} {shlex.quote(subject)}'"
                    for what, verb in (("see it", "show"), ("end it", "delete"))
                )
            self.app.LOG.warning(printable(text))
            raise

    @property
    def for_programs(self) -> bool:
        """Whether the answer, also a refusal, is printed as REST has it."""
        return getattr(self.app_args, "json", False) or self.formatter_name == "json"

    def run(self, parsed_args: argparse.Namespace) -> int:
        self.formatter_name = getattr(parsed_args, "formatter", "")
        try:
            return self.carry_out(parsed_args)
        except Refused as refusal:
            if self.for_programs:
                self._print(refusal.document)
            elif isinstance(refusal, WaitEnded):
                self.app.stdout.write(f"{refusal.document['id']}\n")
            self.app.LOG.error(
                printable(self._as_option(refusal)), exc_info=getattr(self.app_args, "debug", False)
            )
            return refusal.exit_status

    def _as_option(self, refusal: Refused) -> str:
        """The text of a refusal with the options in place of REST's fields."""
        text = str(refusal)
        options = {
            action.dest: action.option_strings[-1]
            for action in self.parser._actions
            if action.option_strings
        }
        for error in refusal.document.get("errors") or ():
            field = error["field"]
            if option := options.get(field.rpartition(".")[2]):
                text = text.replace(f"{field}: ", f"{option}: ", 1)
        for field, option in options.items():
            text = text.replace(f" set {field}", f" give {option}")
        return text

    def carry_out(self, args: argparse.Namespace) -> int:
        """Print the answer; the exit status. Raises: Refused."""
        if not self.for_programs or getattr(args, "columns", None):
            return super().run(args)
        self._print(self.answered(args))
        return 0

    def _print(self, document: Any) -> None:
        json.dump(document, self.app.stdout, indent=2)
        self.app.stdout.write("\n")

    def take_action(self, args: argparse.Namespace) -> Any:
        self.answered(args)


class DisplayCommand(RestCommand):
    """A command whose tables fit the terminal.

    Other formats have REST's names, and lists in them as names.
    """

    def _load_formatter_plugins(self) -> Any:
        plugins = super()._load_formatter_plugins()  # type: ignore[misc]  # of the other base
        plugins["table"].obj = Table()
        return plugins

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        for add in WIDE, WATCH:
            add(parser)
        return parser

    def carry_out(self, args: argparse.Namespace) -> int:
        status = super().carry_out(args)
        with suppress(KeyboardInterrupt):
            while args.watch is not None:
                time.sleep(args.watch)
                if self.app.stdout.isatty():
                    self.app.stdout.write(CLEAR)
                status = super().carry_out(args)
                self.app.stdout.flush()
        return status

    def named(self, args: argparse.Namespace, columns: Sequence[str]) -> list[str]:
        """The columns as this format names them; ends the command if one asked for is unknown."""
        if args.wide:
            args.max_width = 0
        for option in ("columns", "sort_columns"):
            for asked in getattr(args, option, ()):
                if _field(asked) not in columns:
                    self.usage_error(
                        f"argument --{option.removesuffix('s').replace('_', '-')}: there is no "
                        f"{asked!r}{did_you_mean(_field(asked), columns)}; choose from "
                        f"{', '.join(columns)}"
                    )
        return [_heading(column) if args.formatter == "table" else column for column in columns]


class ShowCommand(DisplayCommand, ShowOne):
    """Shows one resource, field by field."""

    def take_action(self, args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return self.shown(args, self.answered(args))

    def shown(
        self, args: argparse.Namespace, shown: Mapping[str, Any]
    ) -> tuple[Sequence[str], Iterable[Any]]:
        """The fields of a resource as the format of the output has them."""
        if args.formatter == "table" and not (args.columns or args.wide):
            if "links" in shown:
                shown = {name: value for name, value in shown.items() if name not in BULKY}
            if "history" in shown:
                shown = grouped(marked(dict(shown)))
            else:
                shown = {name: value for name, value in shown.items() if value is not None}
        self.named(args, list(shown))
        plain = args.formatter in ("csv", "value", "shell")
        values = [lines(value) if plain else value for value in shown.values()]
        return list(shown), values


class ListCommand(DisplayCommand, Lister):
    """Shows a list with the columns that ``COLUMNS`` has for ``listed``."""

    listed: str

    def take_action(self, args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        items = self.answered(args)
        columns = list(
            dict.fromkeys([*COLUMNS[self.listed], *(items[0] if args.columns and items else ())])
        )
        plain = args.formatter in ("csv", "value")
        if args.formatter == "table":
            items = [marked(item) for item in items]
        rows = [[item.get(column) for column in columns] for item in items]
        if plain:
            rows = [[" ".join(lines(value).split("\n")) for value in row] for row in rows]
        return self.named(args, columns), rows


def _field(name: str) -> str:
    """The name in REST of a column, as people write it."""
    return name.strip().lower().replace(" ", "_")


def _heading(column: str) -> str:
    words = column.replace("_", " ").title().split()
    return " ".join("ID" if word == "Id" else word for word in words)
