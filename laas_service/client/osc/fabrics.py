# SPDX-License-Identifier: Apache-2.0

"""``openstack isolated network fabric``: fabrics, utilization, agents, leaf switches."""

from laas_service.client import calls, options
from laas_service.client.osc.base import ListCommand, ShowCommand


class List(ListCommand):
    """List fabrics"""

    call = staticmethod(calls.fabric_list)
    listed = "fabrics"


class Show(ShowCommand):
    """Show a fabric's shape and counts"""

    call = staticmethod(calls.fabric_show)
    arguments = options.FABRIC


class Utilization(ShowCommand):
    """Show how much of a fabric is in use"""

    call = staticmethod(calls.fabric_part)
    arguments = (*options.FABRIC, options.verb("utilization"))


class Routing(ShowCommand):
    """Show the desired generation of the routes, and the one the switches run"""

    call = staticmethod(calls.fabric_part)
    arguments = (*options.FABRIC, options.verb("routing"))


class Agents(ListCommand):
    """List the OpenSM agents, and what each reported last"""

    call = staticmethod(calls.fabric_agents)
    listed = "agents"
    arguments = options.FABRIC


class Fit(ShowCommand):
    """Show whether a number of hosts fits now"""

    call = staticmethod(calls.fabric_fit)
    arguments = (
        *options.FABRIC,
        options.argument("--hosts", type=int, required=True, help="number of hosts"),
        *options.FIT,
    )


class Observation(ShowCommand):
    """Show observed faults, choose what observation may change, or acknowledge its alarm"""

    call = staticmethod(calls.fabric_observation)
    arguments = options.OBSERVATION


class ShowSwitch(ShowCommand):
    """Show a switch, and the isolated networks that hold hosts or links there"""

    call = staticmethod(calls.leaf_show)
    arguments = options.SWITCH


class DrainSwitch(ShowCommand):
    """Drain a leaf switch: its free hosts get no new owner; owners keep their hosts"""

    call = staticmethod(calls.leaf_state)
    arguments = (*options.SWITCH, options.verb("drain"))


class MaintainSwitch(ShowCommand):
    """Put a switch under maintenance: nobody new gets its links, owners move away if they can"""

    call = staticmethod(calls.leaf_state)
    arguments = (*options.SWITCH, options.verb("maintain"))


class FailSwitch(ShowCommand):
    """Mark a switch failed, with its links and, for a leaf, its hosts"""

    call = staticmethod(calls.leaf_state)
    arguments = (*options.SWITCH, options.verb("fail"))


class RepairSwitch(ShowCommand):
    """Take back a fail or a maintenance of the switch; else the drain of a leaf"""

    call = staticmethod(calls.leaf_state)
    arguments = (*options.SWITCH, options.verb("repair"))
