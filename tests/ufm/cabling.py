# SPDX-License-Identifier: Apache-2.0

"""Systems, ports and links as UFM shows them, for the fabric of a dump."""

from __future__ import annotations

from dataclasses import dataclass, field

from laas_service.adapters.fabric_import.ibnetdiscover import DumpContent, DumpNode, End, Kind


def text(guid: int) -> str:
    """A GUID as UFM writes it: 16 digits, without ``0x`` and colons [nico, fork]."""
    return f"{guid:016x}"


@dataclass
class Fabric:
    """The nodes and cables that UFM has discovered; tests change what is down."""

    cabling: DumpContent
    down: set[tuple[int, int]] = field(default_factory=set)  # node GUID and port, of one end
    disabled: set[tuple[int, int]] = field(default_factory=set)  # the same, switched off
    silent: set[int] = field(default_factory=set)  # nodes that UFM does not see any more
    isolated: set[tuple[int, int]] = field(default_factory=set)  # kept out by the subnet manager
    omits_down: bool = False  # lists no ports without a link

    def __post_init__(self):
        self.far: dict[tuple[int, int], tuple[End, End, str]] = {}
        for wire in self.cabling.wires:
            self.far[wire.a[:2]] = wire.a, wire.b, wire.speed
            self.far[wire.b[:2]] = wire.b, wire.a, wire.speed
        self.adapter_ports = {
            (end.guid, end.port): end.port_guid
            for wire in self.cabling.wires
            for end in (wire.a, wire.b)
            if end.port_guid
        }

    def hosts(self, names):
        """Port GUIDs of the named systems, as text."""
        return [
            text(port_guid)
            for (guid, _), port_guid in self.adapter_ports.items()
            if _system_name(self.cabling.nodes[guid]) in names
        ]

    def _seen(self):
        return [node for node in self.cabling.nodes.values() if node.guid not in self.silent]

    def is_up(self, guid, port):
        """Whether the port is linked to its peer, and UFM sees both."""
        if (guid, port) not in self.far:
            return False
        near, there, _ = self.far[guid, port]
        ends = {near[:2], there[:2]}
        off = self.down | self.disabled
        return not ends & off and not {near.guid, there.guid} & self.silent

    def is_routed(self, guid, port):
        """Whether the port is linked, and the subnet manager uses the link."""
        near, there, _ = self.far.get((guid, port), (None, None, ""))
        ends = {near[:2], there[:2]} if near and there else set()
        return self.is_up(guid, port) and not ends & self.isolated

    def systems(self, kind=None):
        """``GET /resources/systems[?type=switch]`` [guide]."""
        return [
            {
                "system_guid": text(node.guid),
                "guid": text(node.guid),
                "system_name": _system_name(node),
                "name": text(node.guid),
                "type": _type(node),
                "description": node.name,
                "technology": "",
                "state": "active",
                "ports": [],
            }
            for node in self._seen()
            if kind in (None, _type(node))
        ]

    def ports(self, sys_type=None, active=None, show_disabled=False):
        """``GET /resources/ports[?sys_type=Computer][?active=true]`` [guide, nico].

        A switch shows all its ports, an adapter those that have a cable [chosen]; those that are
        disabled only if ``show_disabled`` [sdk]. The guid of a switch's port is that of the
        switch, the one of an adapter's port is its own [nico]. Whether ports without a link are
        listed no source says, so ``omits_down`` leaves them out [chosen].
        """
        rows = []
        for node in self._seen():
            if sys_type == "Computer" and node.kind is Kind.SWITCH:
                continue
            if sys_type == "Switch" and node.kind is not Kind.SWITCH:
                continue
            for number in range(1, node.ports + 1):
                place = node.guid, number
                if place in self.disabled and not show_disabled:
                    continue
                if self.omits_down and place not in self.disabled and not self.is_up(*place):
                    continue
                if node.kind is Kind.SWITCH or place in self.far:
                    row = self._port(node, number)
                    if not active or row["logical_state"] == "Active":
                        rows.append(row)
        return rows

    def _port(self, node: DumpNode, number):
        """A port that the subnet manager isolates has a physical link and no peer [chosen]."""
        up, routed = self.is_up(node.guid, number), self.is_routed(node.guid, number)
        disabled = (node.guid, number) in self.disabled
        row = {
            "guid": text(self.adapter_ports.get((node.guid, number), node.guid)),
            "name": self.port_name(node, number),
            "number": number,
            "external_number": number,
            "dname": str(number) if node.kind is Kind.SWITCH else f"HCA-1/{number}",
            "description": "Switch IB Port" if node.kind is Kind.SWITCH else "Computer IB Port",
            "systemID": text(node.guid),
            "system_name": _system_name(node),
            "node_description": _description(node, number),
            "lid": 0,
            "tier": 1,
            "physical_state": "Link Up" if up else "Disabled" if disabled else "Polling",
            "logical_state": "Active" if routed else "Initialize" if up else "Down",
            "severity": "Info",
            "active_width": "",
            "active_speed": "",
        }
        if routed:
            _, far, speed = self.far[node.guid, number]
            peer = self.cabling.nodes[far.guid]
            width, _, generation = speed.partition("x")
            row |= {
                "peer": self.port_name(peer, far.port),
                "peer_guid": text(self.adapter_ports.get(far[:2], far.guid)),
                "peer_node_guid": text(far.guid),
                "peer_node_name": _system_name(peer),
                "peer_port_dname": str(far.port),
                "peer_node_description": _description(peer, far.port),
                "active_width": f"{width}x" if generation else "",
                "active_speed": generation,
            }
        return row

    def port_name(self, node: DumpNode, number):
        """``<guid>_<number>`` [guide]: of an adapter's port with the port's own GUID."""
        guid = self.adapter_ports.get((node.guid, number), node.guid)
        return f"{text(guid)}_{number}"

    def name_of(self, guid):
        """The name of a node's system; "Unknown" if there is none [guide]."""
        node = self.cabling.nodes.get(guid)
        return "Unknown" if node is None else _system_name(node)

    def links(self):
        """``GET /resources/links`` [guide 6.11.1]: each cable once; ports are text."""
        rows = []
        for wire in self.cabling.wires:
            if self.is_up(*wire.a[:2]):
                a, b = (self.cabling.nodes[end.guid] for end in (wire.a, wire.b))
                first, second = self.port_name(a, wire.a.port), self.port_name(b, wire.b.port)
                rows.append(
                    {
                        "source_guid": text(wire.a.guid),
                        "source_port": str(wire.a.port),
                        "source_port_dname": str(wire.a.port),
                        "source_port_node_description": _description(a, wire.a.port),
                        "destination_guid": text(wire.b.guid),
                        "destination_port": str(wire.b.port),
                        "destination_port_dname": str(wire.b.port),
                        "destination_port_node_description": _description(b, wire.b.port),
                        "width": "IB_4x",
                        "severity": "Info",
                        "name": f"{first}:{second}",
                        "capabilities": [],
                    }
                )
        return rows

    def comparison(self):
        """``GET /reports/last_report/Topology_Compare`` [guide 6.9 to 6.21]: against the dump."""
        missing = [wire for wire in self.cabling.wires if not self.is_up(*wire.a[:2])]
        links = []
        for wire in missing:
            a, b = (self.cabling.nodes[end.guid] for end in (wire.a, wire.b))
            links.append(
                {
                    "source_guid": text(wire.a.guid),
                    "destination_guid": text(wire.b.guid),
                    "name": f"{self.port_name(a, wire.a.port)}:{self.port_name(b, wire.b.port)}",
                }
            )
        nodes = [
            {
                "guid": text(guid),
                "system_name": _system_name(self.cabling.nodes[guid]),
                "ip": "0.0.0.0",
                "type": _type(self.cabling.nodes[guid]),
            }
            for guid in sorted(self.silent)
        ]
        return {
            "added": {"nodes": [], "links": []},
            "removed": {"nodes": nodes, "links": links},
        }


def _type(node: DumpNode) -> str:
    return {"S": "switch", "H": "host", "R": "router"}[node.kind.value]


def _system_name(node: DumpNode) -> str:
    """A host's name is the first word of its description, a switch's is the whole [guide]."""
    return node.name if node.kind is Kind.SWITCH else node.name.partition(" ")[0]


def _description(node: DumpNode, number: int) -> str:
    """A switch's port has its number behind the description, an adapter's has not [guide]."""
    return f"{node.name}:{number}" if node.kind is Kind.SWITCH else node.name
