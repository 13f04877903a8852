# SPDX-License-Identifier: Apache-2.0

"""``openstack isolated network fabric``: what is managed, what is used, what would fit."""

from __future__ import annotations

from typing import Any

from laas_service.client import calls, options
from laas_service.client.osc.base import One, Several


class List(Several):
    """List fabrics"""

    call = staticmethod(calls.fabric_list)
    listed = "fabrics"


class _Named(One):
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
    """Show which generation of the routing is wanted, and which the switches have"""

    call = staticmethod(calls.fabric_routing)


class Agents(Several):
    """List the agents beside OpenSM, and what each saw last"""

    call = staticmethod(calls.fabric_agents)
    listed = "agents"

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        options.fabric(parser)
        return parser


class Fit(_Named):
    """Say whether so many hosts would fit now"""

    call = staticmethod(calls.fabric_fit)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.add_argument("--hosts", type=int, required=True, help="how many")
        options.fit(parser)
        return parser


class ShowSwitch(One):
    """Show how the hosts of a leaf switch stand, and which isolated networks are still there"""

    call = staticmethod(calls.leaf_show)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        options.leaf(parser)
        return parser


class DrainSwitch(ShowSwitch):
    """Hand out no host of a leaf switch any more; owners keep what they have"""

    call = staticmethod(calls.leaf_state)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.set_defaults(verb="drain")
        return parser


class RepairSwitch(ShowSwitch):
    """Hand out the hosts again that draining the leaf switch kept back"""

    call = staticmethod(calls.leaf_state)

    def get_parser(self, prog_name: str) -> Any:
        parser = super().get_parser(prog_name)
        parser.set_defaults(verb="repair")
        return parser
