# SPDX-License-Identifier: Apache-2.0

"""``openstack isolated network fabric``, ``switch``, ``host``, ``link``: for operators."""

import argparse

from laas_service.client import calls, options
from laas_service.client.osc.base import ListCommand, RestCommand, ShowCommand


class List(ListCommand):
    """List fabrics"""

    call = staticmethod(calls.fabric_list)
    listed = "fabrics"


class Show(ShowCommand):
    """Show a fabric's shape and counts"""

    call = staticmethod(calls.fabric_show)
    arguments = options.FABRIC


class Delete(ShowCommand):
    """Stop managing a fabric; refused while isolated networks live there"""

    call = staticmethod(calls.fabric_delete)
    arguments = (options.argument("fabric", help="id of the fabric"),)


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


class Idle(ShowCommand):
    """Show links and switches that may be powered down"""

    call = staticmethod(calls.fabric_idle)
    arguments = options.FABRIC


class Plane(ShowCommand):
    """Show or change the links withheld from tenants for shared traffic"""

    call = staticmethod(calls.fabric_plane)
    arguments = (*options.PLANE, *options.FABRIC_OPTION)


class Hosts(ListCommand):
    """List the hosts of a fabric with state and owner"""

    call = staticmethod(calls.fabric_inventory)
    listed = "hosts"
    arguments = (*options.HOSTS, options.verb("hosts"))


class Links(ListCommand):
    """List the links of a fabric with state and owner"""

    call = staticmethod(calls.fabric_inventory)
    listed = "links"
    arguments = (*options.LINKS, options.verb("links"))


class Switches(ListCommand):
    """List the switches of a fabric and their positions"""

    call = staticmethod(calls.fabric_inventory)
    listed = "switches"
    arguments = (*options.SWITCHES, options.verb("switches"))


class Fit(ShowCommand):
    """Show whether a number of hosts fits now"""

    call = staticmethod(calls.fabric_fit)
    arguments = (
        *options.FABRIC,
        options.argument("--hosts", type=int, required=True, help="number of hosts"),
        *options.FIT,
    )


class Map(ShowCommand):
    """Write a page that shows the fabric: who owns which cable, the queue, faults"""

    call = staticmethod(calls.fabric_map)
    arguments = (*options.FABRIC, *options.MAP)


class View(RestCommand):
    """Serve the page of a fabric on this machine, until interrupted"""

    call = staticmethod(calls.view)
    arguments = options.VIEW

    def take_action(self, args: argparse.Namespace) -> None:
        self.answer(args)


class MakeRoom(ShowCommand):
    """Move tenants who consent so that a number of hosts fits"""

    call = staticmethod(calls.fabric_make_room)
    arguments = (
        *options.FABRIC,
        options.argument("--hosts", type=int, required=True, help="number of hosts"),
        *options.MAKE_ROOM,
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
    """Drain a leaf switch: its free hosts get no new owner; owners stay, or move with --move"""

    call = staticmethod(calls.leaf_drain)
    arguments = (*options.SWITCH, *options.EVACUATE, options.verb("drain"))


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


class ConfirmEmpty(ShowCommand):
    """Say that a host in quarantine runs no server"""

    call = staticmethod(calls.host_confirm_empty)
    arguments = options.CONFIRM_EMPTY


class DrainHost(ShowCommand):
    """Give a host to no new owner; an owner keeps it"""

    call = staticmethod(calls.host_state)
    arguments = (*options.HOST, options.verb("drain", "host"))


class FailHost(ShowCommand):
    """Mark a host failed; an owner keeps it"""

    call = staticmethod(calls.host_state)
    arguments = (*options.HOST, options.verb("fail", "host"))


class RepairHost(ShowCommand):
    """Mark a host usable"""

    call = staticmethod(calls.host_state)
    arguments = (*options.HOST, options.verb("repair", "host"))


class SetHost(ShowCommand):
    """Set traits and cost of a host; options left out change nothing"""

    call = staticmethod(calls.host_set)
    arguments = options.HOST_SET


class ShowLink(ShowCommand):
    """Show a link with its state and owner"""

    call = staticmethod(calls.link_show)
    arguments = options.LINK


class FailLink(ShowCommand):
    """Mark a link failed; an owner keeps it"""

    call = staticmethod(calls.host_state)
    arguments = (*options.LINK, options.verb("fail", "link"))


class RepairLink(ShowCommand):
    """Mark a link usable"""

    call = staticmethod(calls.host_state)
    arguments = (*options.LINK, options.verb("repair", "link"))
