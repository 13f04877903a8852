# SPDX-License-Identifier: Apache-2.0

"""What the commands of the plugin share: errors, columns, waiting, projects."""

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

from laas_service.client.rest import Refused, Rest
from laas_service.client.shown import COLUMNS, brief

PATIENCE = 600.0
"""Seconds that ``--wait`` waits by default."""


class Value(FormattableColumn):
    """A few words for a person, everything for a program."""

    def human_readable(self) -> str:
        return brief(self._value)


@contextmanager
def sentences() -> Iterator[None]:
    """What the service refuses becomes what the ``openstack`` command prints."""
    try:
        yield
    except (Refused, ClientException) as error:
        raise exceptions.CommandError(str(error)) from error


class Asking(command.Command):
    """A command that asks the service by one of ``calls``."""

    call: staticmethod[[Rest, argparse.Namespace], Any]

    @property
    def rest(self) -> Rest:
        found: Rest = self.app.client_manager.isolated_network
        return found

    def asked(self, args: argparse.Namespace) -> Any:
        with sentences():
            return self.call(self.rest, args)

    def project_id(self, named: str | None) -> str | None:
        """The id of a project by name or id; who may not look names the id."""
        if named is None:
            return None
        try:
            found = self.app.client_manager.sdk_connection.identity.find_project(named)
        except ForbiddenException:
            found = None
        return str(found.id) if found else named


class One(Asking, command.ShowOne):
    """Shows one thing, field by field."""

    def take_action(self, args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return fields(self.asked(args))


class Several(Asking, command.Lister):
    """Shows a list; its columns are those of ``listed``."""

    listed: str

    def take_action(self, args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        columns = COLUMNS[self.listed]
        rows = [[_cell(item.get(column)) for column in columns] for item in self.asked(args)]
        return [_heading(column) for column in columns], rows


def fields(thing: Mapping[str, Any]) -> tuple[Sequence[str], Iterable[Any]]:
    return list(thing), [_cell(value) for value in thing.values()]


def _cell(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else Value(value)


def _heading(column: str) -> str:
    words = column.replace("_", " ").title().split()
    return " ".join("ID" if word == "Id" else word for word in words)


def waiting(parser: argparse.ArgumentParser) -> None:
    """``--wait`` as other plugins have it; see ``patient``."""
    parser.add_argument("--wait", action="store_true", help="Wait until it is done")
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="<seconds>",
        default=PATIENCE,
        help=f"How long --wait waits at most, default={PATIENCE:g}; it goes on without you",
    )


def patient(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments with ``wait`` in seconds, or None, as ``calls`` wants it."""
    args.wait = args.timeout if args.wait else None
    return args
