# SPDX-License-Identifier: Apache-2.0

"""Isolation by routing chains (promise 1): which ports the steps of the vendor's OpenSM may use.

Derives from the published files which cables each step can route over, and compares them with the
cabling and the owners in the record. A step's engine sends packets only over cables of its
topology, whose ends are both in the topology's groups. So if all of these cables are the tenant's,
each engine stays on the tenant's links, also one that chooses among several ports (adaptive
routing). An entry that a step does not write stays as an earlier step wrote it, over anybody's
links. So the topology also has to join the tenant's ports, up and then down.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from laas_service.domain.allocation import Allocation
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef
from laas_service.domain.topology import Link, Topology, link_name
from laas_service.domain.verification import chain_files
from laas_service.domain.verification.chain_files import ADAPTIVE, ChainFiles, ChainStep, Group
from laas_service.domain.verification.isolation import addressable
from laas_service.domain.verification.nest import Nest
from laas_service.domain.verification.partition import WHOLE_LINKS

NO_PLACEMENTS: Mapping[str, Sequence[Allocation]] = {}


@dataclass(frozen=True, slots=True)
class OddLinks:
    """Links that are not as the tree has them."""

    plane: CommonPlane = NO_PLANE
    """Links that no allocation gets. If all of them have failed, the plane needs no step."""
    moved: frozenset[Link] = frozenset()
    """Links with an end at another port than the recorded one: no step may use the recorded
    ports."""
    failed: frozenset[Link] = frozenset()


NO_ODD_LINKS = OddLinks()


@dataclass
class ChainVerdict:
    """What the chains of a set promise."""

    violations: list[str] = field(default_factory=list)
    ports: int = 0
    """Switch ports that were checked, over all topologies."""
    apart: int = 0
    """Ordered pairs of ports of a tenant's hosts that its links do not join (rails that meet only
    above its links): their packets follow the base step, over links of anybody."""
    engines: dict[str, str] = field(default_factory=dict)
    """Allocation id -> the engine of its step; ``ADAPTIVE`` ones choose among its own ports."""

    @property
    def adaptive(self) -> list[str]:
        """Ids of the allocations whose switches choose among several ports of their own."""
        return sorted(id for id, engine in self.engines.items() if engine in ADAPTIVE)


@dataclass(frozen=True, slots=True)
class _Owner:
    """An allocation whose packets a step may route."""

    id: str
    placements: tuple[tuple[frozenset[int], frozenset[Link]], ...]
    """Hosts, and links that its packets may use, of each of its placements; its topology has those
    of one of them."""
    isolated: bool
    """Whether its packets may use no other links."""

    @property
    def links(self) -> frozenset[Link]:
        """The links of all placements."""
        return frozenset().union(*(links for _, links in self.placements))


def chain_verdict(
    topology: Topology,
    inventory: Inventory,
    allocations: Iterable[Allocation],
    files: Mapping[str, str],
    links: OddLinks = NO_ODD_LINKS,
    placements: Mapping[str, Sequence[Allocation]] = NO_PLACEMENTS,
    *,
    one_rule: bool = False,
) -> ChainVerdict:
    """Judge the routing chains in ``files``, the text of each file of a set by name.

    ``placements`` are, by id, the placements of tenants that hold several at a time. ``one_rule``
    is described at ``chain_files.read``.
    """
    read = chain_files.read(files, one_rule=one_rule)
    judge = _ChainJudge(topology, inventory, links, read)
    return judge.verdict(list(allocations), placements)


class _ChainJudge:
    def __init__(
        self,
        topology: Topology,
        inventory: Inventory,
        odd: OddLinks,
        read: ChainFiles,
    ) -> None:
        self._topology, self._inventory, self._plane = topology, inventory, odd.plane
        self._moved, self._failed, self._read = odd.moved, odd.failed, read
        self._result = ChainVerdict(read.violations)
        self._endpoints = {e.guid: e for e in inventory.endpoints}
        self._endpoint_at = {e.at: e for e in inventory.endpoints}
        self._steps: dict[int, ChainStep] = {}

    def _wrong(self, text: str) -> None:
        self._result.violations.append(f"chains: {text}")

    def verdict(
        self, allocations: list[Allocation], placements: Mapping[str, Sequence[Allocation]]
    ) -> ChainVerdict:
        owners = list(self._owners(allocations, placements))
        owner_of_host = {host: o for o in owners for hosts, _ in o.placements for host in hosts}
        self._check_index()
        self._check_steps()
        routed: dict[str, int] = {}
        last_shared = 0
        for id, part in sorted(self._read.topologies.items()):
            step = self._steps.get(id)
            ports = self._ports(id, part.switches)
            adapters = self._adapters(id, part.adapters)
            cables = self._cables(id, ports)
            self._result.ports += len(ports)
            if step is not None:
                self._check_lists(step, part.adapters, cables)
            if cables and all(self._is_withheld(cable) for cable in cables):
                self._check_shared(id, ports, adapters, cables)
                last_shared = max(last_shared, step.id if step else 0)
                continue
            ids = {owner_of_host[e.host].id for e in adapters if e.host in owner_of_host}
            strangers = [e.name for e in adapters if e.host not in owner_of_host]
            if len(ids) != 1 or strangers:
                names = ", ".join([*sorted(ids), *strangers[:3]]) or "nobody"
                self._wrong(f"topology {id} has adapters of {names}, not of one tenant")
                continue
            owner = next(o for o in owners if o.id in ids)
            if routed.setdefault(owner.id, id) != id:
                self._wrong(f"{owner.id} has topologies {routed[owner.id]} and {id}")
            self._check_tenant(id, owner, ports, adapters, cables)
            if step is not None:
                self._result.engines[owner.id] = step.engine
        for owner in owners:
            step = self._steps.get(routed.get(owner.id, 0))
            if step is not None and step.id < last_shared:
                self._wrong(
                    f"step {last_shared} of the common plane comes after step {step.id} of "
                    f"{owner.id} and overwrites its entries"
                )
            if owner.id in routed:
                continue
            linkless = [hosts for hosts, links in owner.placements if not links]
            if not linkless:
                self._wrong(f"{owner.id} has links and no topology: the base step routes it")
            elif owner.isolated:
                held = [e for e in self._inventory.endpoints if e.host in linkless[0]]
                self._result.apart += sum(pairs for _, _, pairs in _pairs(held))
        if self._plane.l2 and not last_shared and self._has_plane():
            self._wrong("the common plane has no topology: the base step routes shared traffic")
        return self._result

    def _owners(
        self, allocations: list[Allocation], placements: Mapping[str, Sequence[Allocation]]
    ) -> Iterator[_Owner]:
        nest = Nest([addressable(self._topology, allocation) for allocation in allocations])
        for allocation in nest.outermost_first:
            if allocation.container:
                continue
            carrier = nest.carrier(allocation)
            beside: frozenset[Link] = frozenset()
            if allocation.policy not in WHOLE_LINKS and carrier is not None:
                beside = frozenset(carrier.links(self._topology))
            yield _Owner(
                allocation.id,
                tuple(
                    (
                        frozenset(placement.hosts(self._topology)),
                        frozenset(placement.links(self._topology)) | beside,
                    )
                    for placement in placements.get(allocation.id, (allocation,))
                ),
                allocation.policy in WHOLE_LINKS,
            )

    # -- the files alone ------------------------------------------------------------

    def _check_index(self) -> None:
        recorded = {place: e.guid for place, e in self._inventory.endpoint_of_port.items()}
        if recorded != self._read.hosts:
            self._wrong("guid_index.json has other ports of hosts than the record")
        if self._read.levels.keys() - self._inventory.switch_of_guid.keys():
            self._wrong("guid_index.json has switches that the record lacks")

    def _check_steps(self) -> None:
        steps = self._read.steps
        if not steps or steps[0].topology != 0 or steps[0].fallback_to is not None:
            self._wrong("the first step does not route the whole fabric")
        by_id = {step.id: step for step in steps}
        for step in steps[1:]:
            main = by_id.get(step.fallback_to or 0)
            if step.fallback_to is not None:
                if main is None or main.fallback_to is not None or main.topology != step.topology:
                    self._wrong(f"step {step.id} falls back into another topology")
            elif step.topology not in self._read.topologies:
                what = "the whole fabric again" if step.topology == 0 else "no topology of the set"
                self._wrong(f"step {step.id} routes {what}")
            elif step.topology in self._steps:
                self._wrong(f"step {step.id} routes topology {step.topology} a second time")
            else:
                self._steps[step.topology] = step
        for id in sorted(self._read.topologies.keys() - self._steps.keys()):
            self._wrong(f"no step routes topology {id}: the base step does")

    def _check_lists(self, step: ChainStep, adapters: Group, cables: Sequence[Cable]) -> None:
        """The roots are the topology's highest switches, and the end nodes its adapters."""
        levels = self._read.levels
        switches = {end.guid for cable in cables for end in (cable.lower, cable.upper)}
        top = max((levels.get(guid, 0) for guid in switches), default=0)
        highest = {guid for guid in switches if levels.get(guid, 0) == top}
        if step.roots is not None and not highest <= step.roots <= switches:
            self._wrong(f"step {step.id}: its roots are not the highest switches of its topology")
        if step.adapters is not None and step.adapters != adapters.keys():
            self._wrong(f"step {step.id}: its end nodes are not the adapters of its topology")
        if step.engine == "ftree" and (step.roots is None or step.adapters is None):
            self._wrong(f"step {step.id}: ftree needs its roots and its end nodes")

    # -- the files and the cabling ----------------------------------------------------

    def _ports(self, id: int, group: Group) -> set[PortRef]:
        """The switch ports of a group; management ports (0) have no cable and do not count."""
        ports: set[PortRef] = set()
        for guid, numbers in group.items():
            switch = self._inventory.switch_of_guid.get(guid)
            if switch is None or guid not in self._read.levels:
                self._wrong(f"topology {id} has switch {guid:#018x}, which the fabric lacks")
                continue
            named = range(1, switch.ports + 1) if numbers is None else numbers
            ports.update(PortRef(guid, number) for number in named if number)
        return ports

    def _adapters(self, id: int, group: Group) -> list[Endpoint]:
        adapters = []
        for guid, numbers in group.items():
            if guid not in self._endpoints or numbers is not None:
                self._wrong(f"topology {id} has adapter {guid:#018x}, which the fabric lacks")
            else:
                adapters.append(self._endpoints[guid])
        return adapters

    def _cables(self, id: int, ports: Collection[PortRef]) -> list[Cable]:
        """The cables with both ends in a topology: those that its engine can route over."""
        cables = {}
        for port in sorted(ports):
            if port not in self._inventory.far_ends:
                continue
            far, cable = self._inventory.far_ends[port]
            if far in ports:
                cables[cable.lower] = cable
            else:
                self._wrong(f"topology {id} has one end of a cable: {self._named(port)}")
        return list(cables.values())

    def _is_withheld(self, cable: Cable) -> bool:
        return cable.link is not None and self._plane.withholds(self._topology.tree, cable.link)

    def _has_plane(self) -> bool:
        """Whether a switch with adapters has a working link of the plane."""
        attached = {endpoint.at.guid for endpoint in self._inventory.endpoints}
        return any(
            self._is_withheld(cable)
            and cable.link not in self._failed
            and not attached.isdisjoint((cable.lower.guid, cable.upper.guid))
            for cable in self._inventory.cables
        )

    # -- one topology and its owner -----------------------------------------------------

    def _check_shared(
        self,
        id: int,
        ports: Collection[PortRef],
        adapters: Sequence[Endpoint],
        cables: Sequence[Cable],
    ) -> None:
        """A topology of withheld links alone: every adapter on its switches is in it."""
        for port in sorted(ports):
            if port not in self._inventory.far_ends and port not in self._endpoint_at:
                self._wrong(f"topology {id} has {self._named(port)}, which has no cable")
        switches = {end.guid for cable in cables for end in (cable.lower, cable.upper)}
        given = {e.guid for e in adapters}
        for endpoint in self._inventory.endpoints:
            if endpoint.at.guid in switches and not (
                endpoint.guid in given and endpoint.at in ports
            ):
                self._wrong(f"topology {id} of the common plane lacks {endpoint.name}")

    def _check_tenant(
        self,
        id: int,
        owner: _Owner,
        ports: Collection[PortRef],
        adapters: Sequence[Endpoint],
        cables: Sequence[Cable],
    ) -> None:
        """Every port is the tenant's, every adapter is there, and the topology joins them."""
        held = {(e.host, e.rail) for e in adapters}
        rails = range(self._topology.rails)
        ways = [
            links - self._moved
            for hosts, links in owner.placements
            if held == {(host, rail) for host in hosts for rail in rails}
        ]
        if not ways:
            self._wrong(f"topology {id} does not have the adapters of {owner.id}, all of them")
        own = {e.at for e in adapters}
        for endpoint in adapters:
            if endpoint.at not in ports:
                self._wrong(f"topology {id} of {owner.id} lacks the port of {endpoint.name}")
        for link in owner.links - self._moved:
            cable = self._inventory.cable_of_link.get(link)
            if cable is not None:
                own |= {cable.lower, cable.upper}
        for port in sorted(set(ports) - own):
            self._wrong(f"topology {id} of {owner.id} has {self._named(port)}, not its own")
        self._check_joined(id, owner, ways, adapters, cables)

    def _check_joined(
        self,
        id: int,
        owner: _Owner,
        ways: Sequence[Collection[Link]],
        adapters: Sequence[Endpoint],
        cables: Sequence[Cable],
    ) -> None:
        """The topology joins the ports that the tenant's links join; others are counted.

        ``ways`` are the links of each placement that the topology may have.
        """
        index = self._inventory.cable_of_link
        by_links = [self._above(index[link] for link in way if link in index) for way in ways]
        by_files = self._above(cables)
        for source, leaf, pairs in _pairs(adapters):
            if not by_files[source] & by_files[leaf]:
                if ways and all(above[source] & above[leaf] for above in by_links):
                    self._wrong(
                        f"topology {id} of {owner.id} does not join switches {source:#018x} and "
                        f"{leaf:#018x}: the base step routes between them"
                    )
                else:
                    self._result.apart += pairs

    def _above(self, cables: Iterable[Cable]) -> dict[int, set[int]]:
        """Switch -> the switches that these cables lead up to from it, by the published levels."""
        levels = self._read.levels
        ups: dict[int, set[int]] = defaultdict(set)
        for cable in cables:
            low, high = cable.lower.guid, cable.upper.guid
            if levels.get(low, 0) < levels.get(high, 0):
                ups[low].add(high)
        above: dict[int, set[int]] = defaultdict(set)
        for guid in sorted(ups, key=lambda guid: -levels[guid]):
            for upper in ups[guid]:
                above[guid] |= {upper, *above[upper]}
        return above

    def _named(self, port: PortRef) -> str:
        """A switch port with what is at the end of its cable."""
        text = f"port {port.port} of switch {port.guid:#018x}"
        if port in self._endpoint_at:
            return f"{text} ({self._endpoint_at[port].name})"
        if port in self._inventory.far_ends:
            link = self._inventory.far_ends[port][1].link
            return f"{text} (link {link_name(link)})" if link is not None else text
        return text


def _pairs(adapters: Iterable[Endpoint]) -> Iterator[tuple[int, int, int]]:
    """Two switches, and how many ordered pairs of ports of different hosts they have."""
    hosts: dict[int, set[int | None]] = defaultdict(set)
    for endpoint in adapters:
        hosts[endpoint.at.guid].add(endpoint.host)
    for source, senders in hosts.items():
        for leaf, targets in hosts.items():
            if source != leaf:
                yield source, leaf, len(senders) * len(targets) - len(senders & targets)
