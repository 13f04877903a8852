# SPDX-License-Identifier: Apache-2.0

"""``openstack isolated network``: a tenant's hosts and links."""

from __future__ import annotations

import argparse
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from laas_service.client import calls, options
from laas_service.client.osc.base import Asking, One, Several, patient, sentences, waiting


class Create(One):
    """Ask for hosts, and links of their own between them"""

    call = staticmethod(calls.allocation_create)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="<name>", help="What to call it")
        parser.add_argument(
            "--project", metavar="<project>", help="Whose it is (name or ID; admin only)"
        )
        options.create(parser)
        waiting(parser)
        return parser

    def take_action(self, args: argparse.Namespace) -> Any:
        args.project_id = self.project_id(args.project)
        return super().take_action(patient(args))


class List(Several):
    """List isolated networks"""

    call = staticmethod(calls.allocation_list)
    listed = "allocations"

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        options.listing(parser)
        parser.add_argument(
            "--project", metavar="<project>", help="Only this one's (name or ID; admin only)"
        )
        return parser

    def take_action(self, args: argparse.Namespace) -> Any:
        args.project_id = self.project_id(args.project)
        return super().take_action(args)


class Show(One):
    """Show an isolated network with its hosts, links and newest history"""

    call = staticmethod(calls.allocation_show)

    def get_parser(self, prog_name: str) -> Any:
        return _named(super().get_parser(prog_name))


class History(Several):
    """List what happened to an isolated network, from the beginning"""

    call = staticmethod(calls.allocation_history)
    listed = "history"

    def get_parser(self, prog_name: str) -> Any:
        return _named(super().get_parser(prog_name))


class Repair(One):
    """Replace an isolated network's failed links by others"""

    call = staticmethod(calls.allocation_repair)

    def get_parser(self, prog_name: str) -> Any:
        parser = _named(super().get_parser(prog_name))
        waiting(parser)
        return parser

    def take_action(self, args: argparse.Namespace) -> Any:
        return super().take_action(patient(args))


class Retry(Repair):
    """Take an isolated network's next step now, also if it is in error"""

    call = staticmethod(calls.allocation_retry)


class ShowQuota(One):
    """Show how many hosts and isolated networks a project may have and has"""

    call = staticmethod(calls.quota_show)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--project", metavar="<project>", help="Another one (name or ID; admin only)"
        )
        return parser

    def take_action(self, args: argparse.Namespace) -> Any:
        args.project_id = self.project_id(args.project)
        return super().take_action(args)


class Set(Asking, command.Command):
    """Change an isolated network"""

    call = staticmethod(calls.allocation_rename)

    def get_parser(self, prog_name: str) -> Any:
        parser = _named(super().get_parser(prog_name))
        parser.add_argument("--name", metavar="<name>", required=True, help="Another name")
        return parser

    def take_action(self, args: argparse.Namespace) -> None:
        self.asked(args)


class Delete(Asking, command.Command):
    """Give hosts and links back"""

    call = staticmethod(calls.allocation_delete)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "networks",
            metavar="<isolated-network>",
            nargs="+",
            help="Name or ID; several may be given",
        )
        options.delete(parser)
        waiting(parser)
        return parser

    def take_action(self, args: argparse.Namespace) -> None:
        """All are tried; with --wait they go at the same time.

        Raises:
            CommandError: says how many of them stay, after each was named.
        """
        given = patient(args)
        patience, given.wait = given.wait, None
        failed = set()
        going = []
        for named in args.networks:
            given.allocation = named
            try:
                going.append((named, self.asked(given)))
            except exceptions.CommandError as error:
                self.log.error("Cannot delete %s: %s", named, error)
                failed.add(named)
        for named, network in going if patience is not None else []:
            try:
                with sentences():
                    self.rest.settled(network, patience)
            except exceptions.CommandError as error:
                self.log.error("Cannot delete %s: %s", named, error)
                failed.add(named)
        if failed:
            raise exceptions.CommandError(f"{len(failed)} of {len(args.networks)} not deleted")


def _named(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("allocation", metavar="<isolated-network>", help="Name or ID")
    return parser
