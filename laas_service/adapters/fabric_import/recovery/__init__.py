# SPDX-License-Identifier: Apache-2.0

"""Recovery of a fat-tree from cabling: levels, pods, indices, bundles, rails, and a report.

Only the cables determine the shape; names order equal switches and identify hosts. Hosts and
links that the regular tree has and the fabric lacks are absent in the topology. Cables and ports
that have no place in the tree stay in the inventory without a link or host number. The report
lists every irregularity.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import networkx as nx

from laas_service.adapters.fabric_import import lids
from laas_service.adapters.fabric_import.ibnetdiscover import DumpContent, End, Kind, end_name
from laas_service.adapters.fabric_import.recovery.hosts import (
    Adapter,
    Selection,
    TenantHosts,
    tenant_hosts,
)
from laas_service.adapters.fabric_import.recovery.kept_out import (
    NO_CABLE,
    NO_PORT,
    kept_out,
    unwired,
)
from laas_service.adapters.fabric_import.recovery.levels import Levels, levels, natural
from laas_service.adapters.fabric_import.recovery.machines import Machines, other_ports
from laas_service.adapters.fabric_import.recovery.places import Pair, Wiring, places, wiring
from laas_service.adapters.fabric_import.recovery.report import (
    ImportReport,
    Irregularity,
    KeptOut,
)
from laas_service.adapters.fabric_import.refusal import ImportRefusal, RefusedCabling
from laas_service.domain.errors import InvalidFile
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Endpoint, Inventory, PortRef, Switch
from laas_service.domain.topology import Port, Topology, Xgft

__all__ = ["ImportReport", "Imported", "Irregularity", "Selection", "recover"]


@dataclass(frozen=True)
class Imported:
    """An imported fabric: the tree, its inventory, and the report."""

    topology: Topology
    inventory: Inventory
    report: ImportReport
    services: frozenset[int]
    """Port GUIDs of the adapters of hosts that the operator named as not for tenants."""

    other_ports: Mapping[int, int]
    """See ``machines.other_ports``."""


def recover(cabling: DumpContent, selection: Selection | None = None) -> Imported:
    """Recover the fabric from its cabling.

    Raises:
        InvalidFile: there is no switch, or no switch with a host.
    """
    return _Recovery(cabling, selection or Selection()).imported()


class _Recovery:
    """One import, step by step; later steps use the results of earlier ones."""

    def __init__(self, cabling: DumpContent, selection: Selection) -> None:
        self.cabling = cabling
        self.selection = selection
        self.switch_wires = [w for w in cabling.wires if self._is_switch(w.a, w.b)]
        self.machines = Machines.among(cabling.nodes.values())
        self.adapters = list(self._adapters())
        self.leaf_of: dict[int, tuple[int, int]] = {}
        self.beside_managers: list[str] = []
        if not any(node.kind is Kind.SWITCH for node in cabling.nodes.values()):
            raise InvalidFile(
                cabling.source, 1, "this fabric has no switch", ImportRefusal.NO_SWITCH
            )
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
        self.describe = {
            a.guid: (self._end(*a.at), end_name(a.name, PortRef(a.guid, a.port)))
            for a in self.adapters
        }
        self.tenants = self._tenants()
        self.beside_managers = self._hosts_beside_managers()
        self._keep_out_beside_managers()

    def imported(self) -> Imported:
        ports, absent_hosts, m1 = self._host_ports()
        tree = self.places.tree(m1)
        wired = wiring(self.places, tree, self.bundles)
        topology = Topology(
            tree,
            rails=self.tenants.rails,
            host_ports=ports if self.tenants.rails > 1 else (),
            absent_hosts=absent_hosts,
            absent_links=frozenset(wired.absent),
        )
        inventory = self._inventory(topology, wired, ports)
        services = (a for a in self.adapters if a.host and self.selection.excludes(a.host))
        named = frozenset(adapter.guid for adapter in services)
        report = self._report(topology, wired)
        return Imported(topology, inventory, report, named, other_ports(self.cabling))

    # -- reading the cabling ----------------------------------------------------

    def _is_switch(self, *ends: End) -> bool:
        return all(self.cabling.nodes[end.guid].kind is Kind.SWITCH for end in ends)

    def _adapters(self) -> Iterable[Adapter]:
        nodes = self.cabling.nodes
        for wire in self.cabling.wires:
            for near, far in ((wire.a, wire.b), (wire.b, wire.a)):
                node = nodes[near.guid]
                if node.kind is not Kind.SWITCH and nodes[far.guid].kind is Kind.SWITCH:
                    at = PortRef(far.guid, far.port)
                    guid, known = near.port_guid, self.machines.of[near.guid]
                    yield Adapter(guid, near.port, node.kind, node.name, at, node.line, known)

    def _levels(self) -> Levels:
        graph: nx.Graph[int] = nx.Graph()
        nodes = self.cabling.nodes.values()
        graph.add_nodes_from(sorted(n.guid for n in nodes if n.kind is Kind.SWITCH))
        pairs = (sorted((w.a.guid, w.b.guid)) for w in self.switch_wires)
        for (a, b), count in Counter((a, b) for a, b in pairs if a != b).items():
            graph.add_edge(a, b, cables=count)
        bearing = [a for a in self.adapters if a.of_a_machine]
        hosts = Counter(a.at.guid for a in bearing if not self.selection.manages(a.host))
        leaves = set(hosts)
        for adapter in bearing:  # a manager makes no leaf of a switch above leaves with hosts
            switch = adapter.at.guid
            if self.selection.manages(adapter.host) and leaves.isdisjoint(graph[switch]):
                hosts[switch] += 1
        if not hosts:
            raise self._no_host("no host is connected to a switch of this fabric")
        services = hosts.keys() - {
            a.at.guid for a in bearing if not (a.host and self.selection.excludes(a.host))
        }
        return levels(graph, hosts, self._key, services)

    def _key(self, guid: int) -> tuple[object, ...]:
        return natural(self.cabling.nodes[guid].name), guid

    def _bundles(self) -> Mapping[Pair, list[tuple[PortRef, PortRef]]]:
        ends = (
            sorted((self.level[e.guid], PortRef(e.guid, e.port)) for e in (wire.a, wire.b))
            for wire in self.switch_wires
        )
        cables = sorted((lower, upper) for (_, lower), (_, upper) in ends)
        return dict(grouped(((lower.guid, upper.guid), (lower, upper)) for lower, upper in cables))

    def _tenants(self) -> TenantHosts:
        hosts = tenant_hosts(self.adapters, self.leaf_of, self.describe, self.selection)
        if hosts is None:
            what = "no leaf of this fabric has a named host for tenants"
            called = Counter(a.name for a in self.adapters if a.of_a_machine and not a.host)
            if called:
                name, count = called.most_common(1)[0]
                what += (
                    f": {called.total()} adapters name no machine, {count} of them are called "
                    f"{name!r}; give the machines host names, then restart rdma-ndd there"
                )
            raise self._no_host(what)
        return hosts

    def _hosts_beside_managers(self) -> list[str]:
        """Hosts on a leaf with a subnet manager, if their rails are planes of their own.

        Such a leaf needs a route to every port. So its tenants' rails cannot be kept apart there.
        """
        managed = {
            self.leaf_of[adapter.at.guid]
            for adapter in self.adapters
            if self.selection.manages(adapter.host) and adapter.at.guid in self.leaf_of
        }
        return [
            host[0].host
            for host in self.tenants.hosts
            for leaves in [[self.leaf_of[adapter.at.guid] for adapter in host]]
            if len({pod for pod, _ in leaves}) > 1 and not managed.isdisjoint(leaves)
        ]

    def _keep_out_beside_managers(self) -> None:
        kept_out = [h for h in self.beside_managers if not self.selection.includes(h)]
        if kept_out:
            exclude = (*self.selection.exclude, *kept_out)
            self.selection = replace(self.selection, exclude=exclude)
            self.tenants = self._tenants()

    # -- making the fabric --------------------------------------------------------

    def _host_ports(self) -> tuple[tuple[tuple[Port, ...], ...], frozenset[int], int]:
        """The ports of each tenant host, the positions without a host (if one rail), and m1."""
        adapters = (adapter for host in self.tenants.hosts for adapter in host)
        on_leaf = grouped((self.leaf_of[adapter.at.guid], adapter.at) for adapter in adapters)
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
            places = range(len(self.places.leaf_guids) * m2 * m1)
            absent = set(places) - {(p.pod * m2 + p.leaf) * m1 + p.k for (p,) in ports}
        return ports, frozenset(absent), m1

    def _inventory(
        self, topology: Topology, wired: Wiring, ports: Iterable[tuple[Port, ...]]
    ) -> Inventory:
        tree, nodes = topology.tree, self.cabling.nodes
        at_rail: dict[PortRef, tuple[int, int]] = {}
        names = [""] * topology.hosts
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
        by_number = sorted(wired.absent, key=topology.tree.link_id)
        missing = [wired.absent[link] for link in by_number if all(wired.absent[link])]
        irregularities = [*self._odd_switches(), *self._odd_cables(wired)]
        irregularities += [*self._absent(topology.tree, missing), *self._slow()]
        irregularities += [*self._back_to_back(), *tenants.irregularities]
        irregularities += [*self._beside_managers(), *self.machines.odd, *self._several_lids()]
        irregularities += self._ports()
        group_sizes = Counter(
            tuple(self.leaf_of[adapter.at.guid] for adapter in host) for host in tenants.hosts
        )
        named = {a.host for a in self.adapters} - {""}
        excluded = [a for a in self.adapters if a.host and self.selection.excludes(a.host)]
        return ImportReport(
            source=self.cabling.source,
            switches=tuple(counted[level] for level in range(1, max(counted) + 1)),
            pods=tuple((len(pod.leaves), len(pod.l2s)) for pod in self.levels.pods),
            topology=topology,
            leaf_groups=tuple(group_sizes[leaves] for leaves in tenants.groups),
            other_groups=tenants.other_groups,
            hosts=len(tenants.hosts),
            named_hosts=len(named),
            host_ports=sum(not a.aggregation for a in self.adapters),
            aggregation_nodes=sum(a.aggregation for a in self.adapters),
            excluded_ports=len(excluded),
            cables=len(wired.cables),
            irregular_cables=sum(cable.link is None for cable in wired.cables),
            absent_cables=len(missing),
            irregularities=tuple(irregularities),
            skipped=self.cabling.skipped,
            kept_out=self._kept_out({host[0].host for host in tenants.hosts}),
        )

    def _kept_out(self, offered: Collection[str]) -> tuple[KeptOut, ...]:
        """What allocation does not use, if ``offered`` are the tenants' hosts."""
        beside = self.beside_managers
        kept = kept_out(self.adapters, self.leaf_of, self.selection, beside, offered)
        loose, odd = self._without_a_cable(), self._at_impossible_ports()
        return (*kept, *unwired(loose, NO_CABLE), *unwired(odd, NO_PORT))

    def _no_host(self, why: str) -> RefusedCabling:
        """The refusal of a fabric without a host for tenants, with what is kept out instead."""
        recognised = {
            "hosts_named": len({adapter.host for adapter in self.adapters} - {""}),
            "cables": len(self.switch_wires),
            "kept_out": [kept.document() for kept in self._kept_out(())],
        }
        return RefusedCabling(self.cabling.source, why, ImportRefusal.NO_HOST, recognised)

    def _without_a_cable(self) -> Iterable[tuple[int, str]]:
        """Port GUIDs (or node GUIDs, where no port has a cable) that are on no switch."""
        wired = {adapter.guid for adapter in self.adapters}
        named = {adapter.host for adapter in self.adapters}  # a machine is told once
        ends = [e for wire in self.cabling.wires for e in (wire.a, wire.b) if e.port_guid]
        loose = [(e.port_guid, e.guid) for e in ends if e.port_guid not in wired]
        beyond = [end for wire in self.cabling.beyond for end in (wire.a, wire.b)]
        cabled = {end.guid for end in (*ends, *beyond)}
        loose += [(guid, guid) for guid in self.machines.of if guid not in cabled]
        for port, guid in loose:
            host = self.machines.of[guid].host
            yield (
                port,
                host if host and host not in named else self.cabling.nodes[guid].name,
            )

    def _at_impossible_ports(self) -> Iterable[tuple[int, str]]:
        """Port GUIDs of adapters whose cables do not count; see ``DumpContent.beyond``."""
        for wire in self.cabling.beyond:
            for end in (wire.a, wire.b):
                if end.port_guid:
                    name = self.cabling.nodes[end.guid].name
                    yield end.port_guid, self.machines.of[end.guid].host or name

    def _ports(self) -> Iterable[Irregularity]:
        """Switches and cables with ports above the number that the switch's line gives."""
        for guid, given in self.cabling.split.items():
            detail = (
                f"{self._switch(guid)} has cables up to port {self.cabling.nodes[guid].ports}, and "
                f"its line gives {given} ports; taken as split ports or cages with two"
            )
            yield Irregularity("ports above the count", detail)
        for wire in self.cabling.beyond:
            ends = (self._wire_end(wire.a), self._wire_end(wire.b))
            yield Irregularity("cable at an impossible port", "not part of the fabric", (ends,))

    def _several_lids(self) -> Iterable[Irregularity]:
        if lmc := self.cabling.lmc:
            guid = min(lmc)
            detail = (
                f"{len(lmc)} nodes have an LMC above 0, as {self._switch(guid)} with {lmc[guid]}; "
                "set lmc 0 for the subnet manager and restart it, or it gives ports other LIDs "
                "than the published ones and no tables are confirmed"
            )
            yield Irregularity("several LIDs", detail)

    def _end(self, guid: int, port: int) -> str:
        return end_name(self.cabling.nodes[guid].name, PortRef(guid, port))

    def _switch(self, guid: int) -> str:
        return f"{self.cabling.nodes[guid].name}[{guid:#018x}]"

    def _odd_switches(self) -> Iterable[Irregularity]:
        for guid, level in self.levels.beyond.items():
            detail = f"{self._switch(guid)} is outside the tree of three levels (level {level})"
            yield Irregularity("switch outside the tree", detail)
        for guid in self.levels.edges:
            detail = (
                f"{self._switch(guid)} is cabled into several pods, past the L2 switches or to a "
                "leaf, so its hosts are kept out; cable it to L2 switches of one pod to offer them"
            )
            yield Irregularity("leaf outside the pods", detail)
        bearing = {a.at.guid for a in self.adapters if not a.aggregation}
        for leaf in sorted(self.leaf_of, key=self.leaf_of.__getitem__):
            if leaf not in bearing:
                yield Irregularity("leaf without hosts", self._switch(leaf))

    def _odd_cables(self, wired: Wiring) -> Iterable[Irregularity]:
        pod_of = {s: n for n, pod in enumerate(self.levels.pods) for s in (*pod.leaves, *pod.l2s)}
        edges = set(self.levels.edges)
        for cable in wired.cables:
            if cable.link is not None or not edges.isdisjoint((cable.lower.guid, cable.upper.guid)):
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

    def _absent(self, tree: Xgft, missing: Iterable[Pair]) -> Iterable[Irregularity]:
        for lower, upper in dict.fromkeys(missing):
            usual = tree.cables[self.level[lower] - 1]
            present = len(self.bundles.get((lower, upper), ()))
            ends = (self._switch(lower), self._switch(upper))
            yield Irregularity("missing cable", f"{present} of {usual} cables", (ends,))

    def _slow(self) -> Iterable[Irregularity]:
        """Cables slower than most cables between the same two levels, or to hosts."""
        by_kind = grouped(
            (tuple(sorted(self.level.get(e.guid, 0) for e in (wire.a, wire.b))), wire)
            for wire in self.cabling.wires
            if wire.speed
        )
        for _, wires in sorted(by_kind.items()):
            speeds = Counter(wire.speed for wire in wires)
            usual = speeds.most_common(1)[0][0]
            slow = {speed for speed in speeds if _rate(speed) < _rate(usual)}
            for wire in wires:
                if wire.speed in slow:
                    ends = (self._wire_end(wire.a), self._wire_end(wire.b))
                    detail = f"{wire.speed} where most run {usual}; allocated nevertheless"
                    yield Irregularity("slow cable", detail, (ends,))

    def _beside_managers(self) -> Iterable[Irregularity]:
        for host in self.beside_managers:
            detail = beside_a_manager(host, self.selection.includes(host))
            ports = [self.describe[a.guid] for a in self.adapters if a.host == host]
            yield Irregularity("host beside a subnet manager", detail, tuple(ports))

    def _back_to_back(self) -> Iterable[Irregularity]:
        for wire in self.cabling.wires:
            if not self._is_switch(wire.a) and not self._is_switch(wire.b):
                ends = (self._wire_end(wire.a), self._wire_end(wire.b))
                yield Irregularity("cable between adapters", "not part of the fabric", (ends,))

    def _wire_end(self, end: End) -> str:
        name = self.cabling.nodes[end.guid].name
        return end_name(name, PortRef(end.port_guid or end.guid, end.port))


def beside_a_manager(host: str, offered: bool) -> str:
    """Says what becomes of a host on a leaf with a subnet manager, whose rails are apart."""
    if offered:
        return (
            f"{host} is offered, because --include names it: packets between its rails may cross "
            "links of others"
        )
    return (
        f"{host} kept out: a leaf with a subnet manager has routes between all rails; "
        "--include offers it nevertheless"
    )


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
