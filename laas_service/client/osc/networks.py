# SPDX-License-Identifier: Apache-2.0

"""``openstack isolated network``: create, list, change and delete isolated networks; quotas."""

import argparse

from osc_lib import exceptions

from laas_service.client import calls, options
from laas_service.client.options import argument
from laas_service.client.osc.base import (
    WAIT,
    ListCommand,
    RestCommand,
    ShowCommand,
    command_errors,
    wait_seconds,
)

_NETWORK = argument("allocation", metavar="<isolated-network>", help="Name or ID")


class Create(ShowCommand):
    """Create an isolated network: hosts, and links reserved for them"""

    call = staticmethod(calls.allocation_create)
    arguments = (
        argument("name", metavar="<name>", help="Name of the isolated network"),
        argument("--project", metavar="<project>", help="Owner (project name or ID; admin only)"),
        *options.CREATE,
        *WAIT,
    )


class List(ListCommand):
    """List isolated networks"""

    call = staticmethod(calls.allocation_list)
    listed = "allocations"
    arguments = (
        *options.LISTING,
        argument(
            "--project",
            metavar="<project>",
            help="List those of this project only (name or ID; admin only)",
        ),
    )


class Show(ShowCommand):
    """Show an isolated network with its hosts, links and latest history"""

    call = staticmethod(calls.allocation_show)
    arguments = (_NETWORK,)


class Draw(ShowCommand):
    """Write a drawing of an isolated network's own tree"""

    call = staticmethod(calls.allocation_draw)
    arguments = (_NETWORK, *options.DRAW)


class History(ListCommand):
    """List the history of an isolated network, oldest entry first"""

    call = staticmethod(calls.allocation_history)
    listed = "history"
    arguments = (_NETWORK,)


class Ranks(RestCommand):
    """Print the order of hosts that the tables are made for, as a file for MPI or NCCL"""

    call = staticmethod(calls.allocation_ranks)
    arguments = (_NETWORK, *options.RANKS)

    def take_action(self, args: argparse.Namespace) -> None:
        self.app.stdout.write(self.answer(args))


class Consent(ShowCommand):
    """Say whether an isolated network may move to make room for others"""

    call = staticmethod(calls.allocation_consent)
    arguments = (_NETWORK, *options.CONSENT)


class Resize(ShowCommand):
    """Change the number of hosts of an isolated network where it is"""

    call = staticmethod(calls.allocation_resize)
    arguments = (_NETWORK, *options.RESIZE, *WAIT)


class ReplaceHosts(ShowCommand):
    """Give an isolated network other hosts in place of those that have failed"""

    call = staticmethod(calls.allocation_replace_hosts)
    arguments = (_NETWORK, *options.REPLACE_HOSTS, *WAIT)


class Repair(ShowCommand):
    """Replace the failed links of an isolated network by free ones"""

    call = staticmethod(calls.allocation_step)
    arguments = (_NETWORK, *WAIT, options.verb("repair"))


class Retry(ShowCommand):
    """Retry the next step of an isolated network now, even if it is in error"""

    call = staticmethod(calls.allocation_step)
    arguments = (_NETWORK, *WAIT, options.verb("retry"))


class ShowQuota(ShowCommand):
    """Show the quota of a project, and how much of it is in use"""

    call = staticmethod(calls.quota_show)
    arguments = (
        argument(
            "--project",
            metavar="<project>",
            help="Project other than your own (name or ID; admin only)",
        ),
    )


class Set(RestCommand):
    """Rename an isolated network"""

    call = staticmethod(calls.allocation_rename)
    arguments = (
        _NETWORK,
        argument("--name", metavar="<name>", required=True, help="New name"),
    )

    def take_action(self, args: argparse.Namespace) -> None:
        self.answer(args)


class Delete(RestCommand):
    """Delete isolated networks and free their hosts and links"""

    call = staticmethod(calls.allocation_delete)
    arguments = (
        argument(
            "networks",
            metavar="<isolated-network>",
            nargs="+",
            help="Name or ID; several may be given",
        ),
        *options.DELETE,
        *WAIT,
    )

    def take_action(self, args: argparse.Namespace) -> None:
        """Delete every network given; with ``--wait``, wait for all of them together.

        Raises:
            CommandError: some were not deleted; each of them has been logged.
        """
        seconds, args.wait = wait_seconds(args), False  # each is deleted before any is waited for
        failed = set()
        releasing = []
        for named in args.networks:
            args.allocation = named
            try:
                releasing.append((named, self.answer(args)))
            except exceptions.CommandError as error:
                self.log.error("Cannot delete %s: %s", named, error)
                failed.add(named)
        if seconds is not None:
            for named, network in releasing:
                try:
                    with command_errors():
                        self.rest.settled(network, seconds)
                except exceptions.CommandError as error:
                    self.log.error("Cannot delete %s: %s", named, error)
                    failed.add(named)
        if failed:
            raise exceptions.CommandError(f"{len(failed)} of {len(args.networks)} not deleted")
