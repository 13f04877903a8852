# SPDX-License-Identifier: Apache-2.0

"""Recovery of a fat-tree from cabling: levels, pods, indices, bundles, rails, and a report.

Only the cables determine the shape; names order equal switches and identify hosts. Hosts and
links that the regular tree has and the fabric lacks are absent in the topology. Cables and ports
that have no place in the tree stay in the inventory without a link or host number. The report
lists every irregularity.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from laas_service.adapters.fabric_import import lids
from laas_service.adapters.fabric_import.ibnetdiscover import Cabling, End, Kind, Wire, end_name
from laas_service.adapters.fabric_import.recovery.hosts import (
    Adapter,
    Leaf,
    Selection,
    TenantHosts,
    tenant_hosts,
)
from laas_service.adapters.fabric_import.recovery.levels import Levels, levels, natural
from laas_service.adapters.fabric_import.recovery.places import Pair, Wiring, places, wiring
from laas_service.adapters.fabric_import.recovery.report import ImportReport, Irregularity
from laas_service.domain.errors import InvalidFile
from laas_service.domain.inventory import Endpoint, Inventory, PortRef, Switch
from laas_service.domain.topology import LeafLink, Port, Topology

__all__ = ["ImportReport", "Imported", "Irregularity", "Selection", "recover"]


@dataclass(frozen=True)
class Imported:
    """An imported fabric: the tree, its inventory, and the report."""

    topology: Topology
    inventory: Inventory
    report: ImportReport


def recover(cabling: Cabling, selection: Selection | None = None) -> Imported:
    """Recover the fabric from its cabling.

    Raises:
        InvalidFile: there is no switch, or no switch with a host.
    """
    return _Recovery(cabling, selection or Selection()).imported()


class _Recovery:
    """One import, step by step; later steps use the results of earlier ones."""

    def __init__(self, cabling: Cabling, selection: Selection) -> None:
        self.cabling = cabling
        self.selection = selection
        self.switch_wires = [w for w in cabling.wires if self._is_switch(w.a, w.b)]
        self.adapters = list(self._adapters())
        if not any(node.kind is Kind.SWITCH for node in cabling.nodes.values()):
            raise InvalidFile(cabling.source, 1, "this fabric has no switch")
        self.levels = self._levels()
        self.level = self.levels.level_of()
        self.bundles = self._bundles()
        self.places = places(self.levels, self.bundles, self._key)
        self.leaf_of = {
            guid: (pod, leaf)
            for pod, row in enumerate(self.places.leaf_guids)
            for leaf, guid in enumerate(row)
            if guid
        }
        self.describe = {a.guid: (self._end(*a.at), self._adapter_end(a)) for a in self.adapters}
        self.tenants = self._tenants()

    def imported(self) -> Imported:
        ports, absent_hosts, m1 = self._host_ports()
        tree = self.places.tree(m1)
        wired = wiring(self.places, tree, self.bundles)
        topology = Topology(
            tree,
            rails=self.tenants.rails,
            host_ports=ports if self.tenants.rails > 1 else (),
            absent_hosts=absent_hosts,
            absent_links=wired.absent,
        )
        inventory = self._inventory(topology, wired)
        return Imported(topology, inventory, self._report(topology, wired))

    # -- reading the cabling ----------------------------------------------------

    def _is_switch(self, *ends: End) -> bool:
        return all(self.cabling.nodes[end.guid].kind is Kind.SWITCH for end in ends)

    def _adapters(self) -> Iterable[Adapter]:
        for wire in self.cabling.wires:
            for near, far in ((wire.a, wire.b), (wire.b, wire.a)):
                if self._is_switch(far) and not self._is_switch(near):
                    node = self.cabling.nodes[near.guid]
                    at = PortRef(far.guid, far.port)
                    yield Adapter(near.port_guid, near.port, node.kind, node.name, at)

    def _levels(self) -> Levels:
        graph: nx.Graph[int] = nx.Graph()
        nodes = self.cabling.nodes.values()
        graph.add_nodes_from(sorted(n.guid for n in nodes if n.kind is Kind.SWITCH))
        cables = Counter((w.a.guid, w.b.guid) for w in self.switch_wires if w.a.guid != w.b.guid)
        for (a, b), count in cables.items():
            counted = graph.edges[a, b]["cables"] if graph.has_edge(a, b) else 0
            graph.add_edge(a, b, cables=counted + count)
        hosts = Counter(
            a.at.guid for a in self.adapters if a.kind is Kind.ADAPTER and not a.aggregation
        )
        if not hosts:
            raise InvalidFile(
                self.cabling.source, 1, "no host is connected to a switch of this fabric"
            )
        return levels(graph, hosts, self._key)

    def _key(self, guid: int) -> tuple[object, ...]:
        return natural(self.cabling.nodes[guid].name), guid

    def _bundles(self) -> Mapping[Pair, list[tuple[PortRef, PortRef]]]:
        bundles: dict[Pair, list[tuple[PortRef, PortRef]]] = defaultdict(list)
        for wire in self.switch_wires:
            ends = sorted((self.level[e.guid], e.guid, e.port) for e in (wire.a, wire.b))
            lower, upper = (PortRef(*end[1:]) for end in ends)
            bundles[lower.guid, upper.guid].append((lower, upper))
        for ends_ in bundles.values():
            ends_.sort()
        return dict(bundles)

    def _tenants(self) -> TenantHosts:
        hosts = tenant_hosts(self.adapters, self.leaf_of, self.describe, self.selection)
        if hosts is None:
            raise InvalidFile(
                self.cabling.source, 1, "no leaf of this fabric has a named host for tenants"
            )
        return hosts

    # -- making the fabric --------------------------------------------------------

    def _host_ports(self) -> tuple[tuple[tuple[Port, ...], ...], frozenset[int], int]:
        """The ports of each tenant host, the slots without a host (if one rail), and m1."""
        on_leaf: dict[Leaf, list[PortRef]] = defaultdict(list)
        for host in self.tenants.hosts:
            for adapter in host:
                on_leaf[self.leaf_of[adapter.at.guid]].append(adapter.at)
        place = {
            at: Port(*leaf, k)
            for leaf, refs in on_leaf.items()
            for k, at in enumerate(sorted(refs))
        }
        m1 = max(map(len, on_leaf.values()))
        ports = tuple(tuple(place[a.at] for a in host) for host in self.tenants.hosts)
        absent: set[int] = set()
        if self.tenants.rails == 1:
            m2 = len(self.places.leaf_guids[0])
            slots = range(len(self.places.leaf_guids) * m2 * m1)
            absent = set(slots) - {(p.pod * m2 + p.leaf) * m1 + p.k for (p,) in ports}
        return ports, frozenset(absent), m1

    def _inventory(self, topology: Topology, wired: Wiring) -> Inventory:
        tree, nodes = topology.tree, self.cabling.nodes
        at_rail: dict[PortRef, tuple[int, int]] = {}
        names = [""] * topology.hosts
        ports, _, _ = self._host_ports()
        for number, (host, places_) in enumerate(zip(self.tenants.hosts, ports, strict=True)):
            if topology.rails == 1:
                pod, leaf, k = places_[0]
                number = tree.leaf_id(pod, leaf) * tree.m[0] + k
            names[number] = host[0].host
            at_rail |= {adapter.at: (number, rail) for rail, adapter in enumerate(host)}
        endpoints = tuple(
            Endpoint(a.guid, a.name, a.at, *at_rail.get(a.at, (None, 0)))
            for a in sorted(self.adapters, key=lambda a: a.at)
        )
        switches = tuple(
            Switch(guid, nodes[guid].name, self.level[guid], nodes[guid].ports)
            for guid in sorted(self.level, key=lambda guid: (self.level[guid], guid))
        )
        managers = [a.guid for a in self.adapters if self.selection.manages(a.host)]
        return Inventory(
            host_names=tuple(names),
            switches=switches,
            cables=wired.cables,
            endpoints=endpoints,
            leaf_guids=_flat(self.places.leaf_guids),
            l2_guids=_flat(self.places.l2_guids),
            spine_guids=_flat(self.places.spine_guids),
            lids=lids.pinned(endpoints, switches, managers),
        )

    # -- the report ---------------------------------------------------------------

    def _report(self, topology: Topology, wired: Wiring) -> ImportReport:
        tenants, counted = self.tenants, Counter(self.level.values())
        irregularities = [*self._odd_switches(), *self._odd_cables(wired), *self._absent(topology)]
        irregularities += [*self._slow(), *self._back_to_back(), *tenants.irregularities]
        group_sizes = Counter(
            tuple(self.leaf_of[adapter.at.guid] for adapter in host) for host in tenants.hosts
        )
        words = (a.name.partition(" ")[0] for a in self.adapters if not a.aggregation)
        named = set(filter(None, words))
        excluded = [a for a in self.adapters if a.host and self.selection.excludes(a.host)]
        return ImportReport(
            source=self.cabling.source,
            switches=tuple(counted[level] for level in range(1, max(counted) + 1)),
            pods=tuple((len(pod.leaves), len(pod.l2s)) for pod in self.levels.pods),
            m=topology.tree.m,
            w=topology.tree.w,
            bundles=topology.tree.cables,
            taper=topology.tree.taper,
            rails=topology.rails,
            planes=topology.planes,
            leaf_groups=tuple(group_sizes[leaves] for leaves in tenants.groups),
            other_groups=tenants.other_groups,
            hosts=len(tenants.hosts),
            named_hosts=len(named),
            host_ports=sum(not a.aggregation for a in self.adapters),
            aggregation_nodes=sum(a.aggregation for a in self.adapters),
            excluded_ports=len(excluded),
            cables=len(wired.cables),
            irregular_cables=sum(cable.link is None for cable in wired.cables),
            absent_cables=len(list(self._absent_links(topology))),
            irregularities=tuple(irregularities),
            skipped=self.cabling.skipped,
        )

    def _end(self, guid: int, port: int) -> str:
        return end_name(self.cabling.nodes[guid].name, PortRef(guid, port))

    def _switch(self, guid: int) -> str:
        return f"{self.cabling.nodes[guid].name}[{guid:#018x}]"

    def _adapter_end(self, adapter: Adapter) -> str:
        return end_name(adapter.name, PortRef(adapter.guid, adapter.port))

    def _odd_switches(self) -> Iterable[Irregularity]:
        for guid, level in self.levels.beyond.items():
            detail = f"{self._switch(guid)} is outside the tree of three levels (level {level})"
            yield Irregularity("switch outside the tree", detail)
        bearing = {a.at.guid for a in self.adapters if not a.aggregation}
        for leaf in sorted(self.leaf_of, key=self.leaf_of.__getitem__):
            if leaf not in bearing:
                yield Irregularity("leaf without hosts", self._switch(leaf))

    def _odd_cables(self, wired: Wiring) -> Iterable[Irregularity]:
        pod_of = {s: n for n, pod in enumerate(self.levels.pods) for s in (*pod.leaves, *pod.l2s)}
        for cable in wired.cables:
            if cable.link is not None:
                continue
            a, b = cable.lower.guid, cable.upper.guid
            levels_ = self.level[a], self.level[b]
            if levels_[0] == levels_[1]:
                kind = "cable inside a level"
            elif levels_[1] - levels_[0] > 1:
                kind = "cable past a level"
            elif levels_ == (1, 2) and pod_of[a] != pod_of[b]:
                kind = "cable between pods"
            elif levels_[1] > 3 or not self._same_group(a, b):
                kind = "cable to a foreign spine"
            else:
                kind = "extra parallel cable"
            ends = (self._end(*cable.lower), self._end(*cable.upper))
            yield Irregularity(kind, "not allocated", (ends,))

    def _same_group(self, lower: int, upper: int) -> bool:
        if self.level[lower] == 1:
            return True
        index = next(row.index(lower) for row in self.places.l2_guids if lower in row)
        return upper in self.places.spine_guids[index]

    def _absent_links(self, topology: Topology) -> Iterable[tuple[int, int]]:
        """The switches of each absent link, if both of them exist."""
        p2, p3 = topology.tree.cables
        for link in sorted(topology.absent_links, key=topology.tree.link_id):
            row = self.places.l2_guids[link.pod]
            if isinstance(link, LeafLink):
                lower = self.places.leaf_guids[link.pod][link.leaf]
                upper = row[link.up // p2] if link.up // p2 < len(row) else 0
            else:
                lower, group = row[link.l2], self.places.spine_guids[link.l2]
                upper = group[link.up // p3] if link.up // p3 < len(group) else 0
            if lower and upper:
                yield lower, upper

    def _absent(self, topology: Topology) -> Iterable[Irregularity]:
        missing = Counter(self._absent_links(topology))
        for (lower, upper), count in missing.items():
            usual = topology.tree.cables[self.level[lower] - 1]
            present = len(self.bundles.get((lower, upper), ()))
            ends = (self._switch(lower), self._switch(upper))
            detail = f"{present} of {usual} cables" if count else ""
            yield Irregularity("missing cable", detail, (ends,))

    def _slow(self) -> Iterable[Irregularity]:
        """Cables slower than most cables between the same two levels, or to hosts."""
        by_kind: dict[tuple[int, ...], list[Wire]] = defaultdict(list)
        for wire in self.cabling.wires:
            if wire.speed:
                kind = tuple(sorted(self.level.get(e.guid, 0) for e in (wire.a, wire.b)))
                by_kind[kind].append(wire)
        for _, wires in sorted(by_kind.items()):
            usual = Counter(w.speed for w in wires).most_common(1)[0][0]
            for wire in wires:
                if _rate(wire.speed) < _rate(usual):
                    ends = (self._wire_end(wire.a), self._wire_end(wire.b))
                    detail = f"{wire.speed} where most run {usual}; allocated nevertheless"
                    yield Irregularity("slow cable", detail, (ends,))

    def _back_to_back(self) -> Iterable[Irregularity]:
        for wire in self.cabling.wires:
            if not self._is_switch(wire.a) and not self._is_switch(wire.b):
                ends = (self._wire_end(wire.a), self._wire_end(wire.b))
                yield Irregularity("cable between adapters", "not part of the fabric", (ends,))

    def _wire_end(self, end: End) -> str:
        name = self.cabling.nodes[end.guid].name
        return end_name(name, PortRef(end.port_guid or end.guid, end.port))


def _flat(rows: Iterable[Iterable[int]]) -> tuple[int, ...]:
    return tuple(guid for row in rows for guid in row)


_GENERATIONS = {
    "SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10.3, "FDR": 14, "EDR": 25,
    "HDR": 50, "NDR": 100, "XDR": 200,
}  # fmt: skip


def _rate(speed: str) -> float:
    """Gigabits a second of a width and generation such as ``4xHDR``: lanes times lane rate."""
    width, _, generation = speed.partition("x")
    return int(width) * _GENERATIONS.get(generation, 0)
