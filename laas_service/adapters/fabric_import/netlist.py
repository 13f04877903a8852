# SPDX-License-Identifier: Apache-2.0

"""Netlist of a fabric for the simulator ``ibsim``, on which the real tools run.

The simulator numbers the port GUIDs of an adapter upwards from its node GUID, so the node GUID
written for an adapter is just below that of its port. The inventory knows only ports, so every
port becomes an adapter of its own.
"""

from collections import defaultdict
from collections.abc import Iterator

from laas_service.adapters.fabric_import.ibnetdiscover import MAX_PORTS
from laas_service.domain.errors import LimitExceeded
from laas_service.domain.inventory import Endpoint, Inventory

_LONGEST_NAME = 63
"""Bytes of a node description, without its terminating zero."""


def netlist(inventory: Inventory) -> str:
    """The inventory as a netlist: all switches, all endpoints, LIDs as pinned.

    Raises:
        LimitExceeded: a switch has more ports than InfiniBand allows.
    """
    return "\n".join(_blocks(inventory))


def node_id(inventory: Inventory, endpoint: Endpoint) -> str:
    """The name of an endpoint's node in the netlist."""
    return f"H-{_adapters(inventory)[endpoint][0]:016x}"


def _blocks(inventory: Inventory) -> Iterator[str]:
    ports: dict[int, dict[int, str]] = defaultdict(dict)
    for near, (far, _) in inventory.far_ends.items():
        ports[near.guid][near.port] = f'"S-{far.guid:016x}"[{far.port}]'
    adapters = _adapters(inventory)
    for end in inventory.endpoints:
        node, port = adapters[end]
        ports[end.at.guid][end.at.port] = f'"H-{node:016x}"[{port}]'
    for switch in inventory.switches:
        if switch.ports > MAX_PORTS:
            raise LimitExceeded(f"{switch.name} has {switch.ports} ports; at most {MAX_PORTS}")
        yield (
            f"switchguid={switch.guid:#x}\n"
            f'Switch {switch.ports} "S-{switch.guid:016x}" # "{_description(switch.name)}" '
            f"enhanced port 0 lid {inventory.lids.get(switch.guid, 0)} lmc 0"
        )
        yield from (f"[{port}] {far}" for port, far in sorted(ports[switch.guid].items()))
        yield ""
    for end in inventory.endpoints:
        node, port = adapters[end]
        yield (
            f"caguid={node:#x}\n"
            f'Ca {port} "H-{node:016x}" # "{_description(end.name)}"\n'
            f'[{port}] "S-{end.at.guid:016x}"[{end.at.port}] '
            f"# lid {inventory.lids.get(end.guid, 0)} lmc 0\n"
        )


def _adapters(inventory: Inventory) -> dict[Endpoint, tuple[int, int]]:
    """Node GUID and port number of each endpoint: port 1 unless the GUID below is taken."""
    taken = {switch.guid for switch in inventory.switches}
    adapters: dict[Endpoint, tuple[int, int]] = {}
    for end in inventory.endpoints:
        port = next(n for n in range(1, MAX_PORTS) if end.guid - n not in taken)
        taken.add(end.guid - port)
        adapters[end] = end.guid - port, port
    return adapters


def _description(name: str) -> str:
    """A description that fits into the netlist's line and quotes."""
    return name.replace('"', "'").encode()[:_LONGEST_NAME].decode(errors="ignore")
