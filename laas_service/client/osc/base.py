# SPDX-License-Identifier: Apache-2.0

"""Base classes of the plugin's commands: errors, columns, ``--wait``, projects."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from cliff.columns import FormattableColumn
from keystoneauth1.exceptions import ClientException
from openstack.exceptions import ForbiddenException
from osc_lib import exceptions
from osc_lib.command import command

from laas_service.client.formatting import COLUMNS, brief, printable
from laas_service.client.options import Argument, argument
from laas_service.client.rest import Refused, Rest

DEFAULT_TIMEOUT = 600.0
"""Seconds that ``--wait`` waits unless ``--timeout`` says otherwise."""


class Value(FormattableColumn):
    """A value of an answer: a short text in tables, the full value in JSON and YAML."""

    def human_readable(self) -> str:
        return brief(self._value)


@contextmanager
def command_errors() -> Iterator[None]:
    """Turn refusals into errors that the ``openstack`` command prints."""
    try:
        yield
    except (Refused, ClientException) as error:
        raise exceptions.CommandError(printable(str(error))) from error


class RestCommand(command.Command):
    """A command that makes one of the ``calls``."""

    call: staticmethod[[Rest, argparse.Namespace], Any]
    arguments: Sequence[Argument] = ()

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        for add in self.arguments:
            add(parser)
        return parser

    @property
    def rest(self) -> Rest:
        client: Rest = self.app.client_manager.isolated_network
        return client

    def answer(self, args: argparse.Namespace) -> Any:
        """The answer of the service; ``calls`` get the project's id, and the seconds to wait."""
        if "project" in args:
            args.project_id = self.project_id(args.project)
        if "timeout" in args:
            args.wait = wait_seconds(args)
        with command_errors():
            return self.call(self.rest, args)

    def project_id(self, named: str | None) -> str | None:
        """The id of a project by name or id; without permission to list, ``named`` is the id."""
        if named is None:
            return None
        try:
            project = self.app.client_manager.sdk_connection.identity.find_project(named)
        except ForbiddenException:
            project = None
        return str(project.id) if project else named


class ShowCommand(RestCommand, command.ShowOne):
    """Shows one resource, field by field."""

    def take_action(self, args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return fields(self.answer(args))


class ListCommand(RestCommand, command.Lister):
    """Shows a list with the columns that ``COLUMNS`` has for ``listed``."""

    listed: str

    def take_action(self, args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        columns = COLUMNS[self.listed]
        rows = [[_cell(item.get(column)) for column in columns] for item in self.answer(args)]
        return [_heading(column) for column in columns], rows


def fields(resource: Mapping[str, Any]) -> tuple[Sequence[str], Iterable[Any]]:
    return list(resource), [_cell(value) for value in resource.values()]


def _cell(value: Any) -> Any:
    plain = value.isprintable() if isinstance(value, str) else isinstance(value, int | float)
    return value if plain else Value(value)


def _heading(column: str) -> str:
    words = column.replace("_", " ").title().split()
    return " ".join("ID" if word == "Id" else word for word in words)


WAIT = (
    argument("--wait", action="store_true", help="Wait until the change is complete"),
    argument(
        "--timeout",
        type=float,
        metavar="<seconds>",
        default=DEFAULT_TIMEOUT,
        help=(
            f"Longest time that --wait waits, default={DEFAULT_TIMEOUT:g}; "
            "the service continues after it"
        ),
    ),
)


def wait_seconds(args: argparse.Namespace) -> float | None:
    """How long to wait by the options of ``WAIT``; None: not at all."""
    return args.timeout if args.wait else None
