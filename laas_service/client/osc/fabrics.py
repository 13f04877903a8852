# SPDX-License-Identifier: Apache-2.0

"""``openstack isolated network fabric``: fabrics, utilization, agents, leaf switches."""

from __future__ import annotations

from typing import Any

from laas_service.client import calls, options
from laas_service.client.osc.base import ListCommand, ShowCommand


class List(ListCommand):
    """List fabrics"""

    call = staticmethod(calls.fabric_list)
    listed = "fabrics"


class _Named(ShowCommand):
    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        options.fabric(parser)
        return parser


class Show(_Named):
    """Show a fabric's shape and counts"""

    call = staticmethod(calls.fabric_show)


class Utilization(_Named):
    """Show how much of a fabric is in use"""

    call = staticmethod(calls.fabric_utilization)


class Routing(_Named):
    """Show the desired generation of the routes, and the one the switches run"""

    call = staticmethod(calls.fabric_routing)


class Agents(ListCommand):
    """List the OpenSM agents, and what each reported last"""

    call = staticmethod(calls.fabric_agents)
    listed = "agents"

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        options.fabric(parser)
        return parser


class Fit(_Named):
    """Show whether a number of hosts fits now"""

    call = staticmethod(calls.fabric_fit)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument("--hosts", type=int, required=True, help="number of hosts")
        options.fit(parser)
        return parser


class ShowSwitch(ShowCommand):
    """Show the states of a leaf switch's hosts, and the isolated networks on them"""

    call = staticmethod(calls.leaf_show)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        options.leaf(parser)
        return parser


class DrainSwitch(ShowSwitch):
    """Drain a leaf switch: its free hosts get no new owner; owners keep their hosts"""

    call = staticmethod(calls.leaf_state)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.set_defaults(verb="drain")
        return parser


class RepairSwitch(ShowSwitch):
    """Undrain the hosts that draining the leaf switch drained"""

    call = staticmethod(calls.leaf_state)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.set_defaults(verb="repair")
        return parser
