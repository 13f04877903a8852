# SPDX-License-Identifier: Apache-2.0

"""``openstack isolated network``: create, list, change and delete isolated networks; quotas."""

from __future__ import annotations

import argparse
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from laas_service.client import calls, options
from laas_service.client.osc.base import (
    ListCommand,
    RestCommand,
    ShowCommand,
    add_wait_options,
    command_errors,
    with_wait_seconds,
)


class Create(ShowCommand):
    """Create an isolated network: hosts, and links reserved for them"""

    call = staticmethod(calls.allocation_create)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="<name>", help="Name of the isolated network")
        parser.add_argument(
            "--project", metavar="<project>", help="Owner (project name or ID; admin only)"
        )
        options.create(parser)
        add_wait_options(parser)
        return parser

    def take_action(self, args: argparse.Namespace) -> Any:
        args.project_id = self.project_id(args.project)
        return super().take_action(with_wait_seconds(args))


class List(ListCommand):
    """List isolated networks"""

    call = staticmethod(calls.allocation_list)
    listed = "allocations"

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        options.listing(parser)
        parser.add_argument(
            "--project",
            metavar="<project>",
            help="List those of this project only (name or ID; admin only)",
        )
        return parser

    def take_action(self, args: argparse.Namespace) -> Any:
        args.project_id = self.project_id(args.project)
        return super().take_action(args)


class Show(ShowCommand):
    """Show an isolated network with its hosts, links and latest history"""

    call = staticmethod(calls.allocation_show)

    def get_parser(self, prog_name: str) -> Any:
        return _named(super().get_parser(prog_name))


class History(ListCommand):
    """List the history of an isolated network, oldest entry first"""

    call = staticmethod(calls.allocation_history)
    listed = "history"

    def get_parser(self, prog_name: str) -> Any:
        return _named(super().get_parser(prog_name))


class Repair(ShowCommand):
    """Replace the failed links of an isolated network by free ones"""

    call = staticmethod(calls.allocation_repair)

    def get_parser(self, prog_name: str) -> Any:
        parser = _named(super().get_parser(prog_name))
        add_wait_options(parser)
        return parser

    def take_action(self, args: argparse.Namespace) -> Any:
        return super().take_action(with_wait_seconds(args))


class Retry(Repair):
    """Retry the next step of an isolated network now, even if it is in error"""

    call = staticmethod(calls.allocation_retry)


class ShowQuota(ShowCommand):
    """Show the quota of a project, and how much of it is in use"""

    call = staticmethod(calls.quota_show)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--project",
            metavar="<project>",
            help="Project other than your own (name or ID; admin only)",
        )
        return parser

    def take_action(self, args: argparse.Namespace) -> Any:
        args.project_id = self.project_id(args.project)
        return super().take_action(args)


class Set(RestCommand, command.Command):
    """Rename an isolated network"""

    call = staticmethod(calls.allocation_rename)

    def get_parser(self, prog_name: str) -> Any:
        parser = _named(super().get_parser(prog_name))
        parser.add_argument("--name", metavar="<name>", required=True, help="New name")
        return parser

    def take_action(self, args: argparse.Namespace) -> None:
        self.answer(args)


class Delete(RestCommand, command.Command):
    """Delete isolated networks and free their hosts and links"""

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
        add_wait_options(parser)
        return parser

    def take_action(self, args: argparse.Namespace) -> None:
        """Delete every network given; with ``--wait``, wait for all of them together.

        Raises:
            CommandError: some were not deleted; each of them has been logged.
        """
        args = with_wait_seconds(args)
        wait_seconds, args.wait = args.wait, None
        failed = set()
        releasing = []
        for named in args.networks:
            args.allocation = named
            try:
                releasing.append((named, self.answer(args)))
            except exceptions.CommandError as error:
                self.log.error("Cannot delete %s: %s", named, error)
                failed.add(named)
        for named, network in releasing if wait_seconds is not None else []:
            try:
                with command_errors():
                    self.rest.settled(network, wait_seconds)
            except exceptions.CommandError as error:
                self.log.error("Cannot delete %s: %s", named, error)
                failed.add(named)
        if failed:
            raise exceptions.CommandError(f"{len(failed)} of {len(args.networks)} not deleted")


def _named(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("allocation", metavar="<isolated-network>", help="Name or ID")
    return parser
