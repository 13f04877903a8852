# SPDX-License-Identifier: Apache-2.0

"""Forwarding tables: each tenant on its own links, everything else by default D-mod-k.

A switch has one entry per destination, whoever sends, so isolation is a matter
of which link each switch uses towards each destination:

* towards a port of a tenant, the switches of the tenant's partition use the
  tenant's links: D-mod-k on the compacted partition, the digit taken modulo what
  is really there on remainder leaves and pods (Jigsaw, HPDC'21, section 4);
* everything else (idle hosts, subnet manager, storage, every switch's own LID,
  and the switches outside the partition on the way to a tenant) follows D-mod-k
  on the physical tree (Zahavi, CCIT report 776).

Where a *shared plane* is withheld from tenants, the default step uses its links alone as
far as they reach: nothing but the owner's packets is then on an owned link. What they
do not reach, because a cable of the plane is missing or has failed, is reached
over whatever else leads there; so is a switch outside the plane, by its own LID.

Every path of a tenant, and nearly every other, goes up, then down, so there is
neither a loop nor a credit loop. Where no such path exists (between two spines, or
past a missing cable), the way leads over one chosen leaf, the *pivot*, or a switch
above it, where alone paths may turn up again. From below the pivot's own switches
no path comes back to it, so no cycle of dependencies closes. Where spines stand
above several L2 switches of every leaf (directors) that would not hold, and such
pairs, which only management traffic between switches needs, have no route.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Generic, NamedTuple, TypeVar

from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import NotFound
from laas_service.domain.inventory import Inventory
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing.default_tables import NO_ROUTE, DefaultRoutes
from laas_service.domain.shared_plane import NO_PLANE, SharedPlane
from laas_service.domain.topology import LeafLink, Link, Topology, bits, link_name

N = TypeVar("N")
"""How switches and ports are named: by GUID and number, or by index as text."""


class _Patch(NamedTuple):
    """Entries of one switch towards a tenant's ports on one leaf."""

    places: Sequence[int]
    ports: Sequence[int]


@dataclass(frozen=True)
class ForwardingTables:
    """The out port of every switch towards every destination.

    ``destinations`` are port GUIDs of channel adapters and node GUIDs of switches,
    in a fixed order: switch by switch, what hangs on it and then the switch.
    ``rows[guid][i]`` is the port (0: the switch itself) of switch ``guid`` towards
    ``destinations[i]``, or ``NO_ROUTE``. ``parts`` is what they were put together from.
    """

    destinations: tuple[int, ...]
    rows: dict[int, bytes]
    parts: _Parts | None = field(default=None, repr=False, compare=False)

    @cached_property
    def index(self) -> dict[int, int]:
        """GUID -> its place in ``destinations``."""
        return {guid: i for i, guid in enumerate(self.destinations)}

    def port(self, switch: int, destination: int) -> int | None:
        """The out port of a switch towards a GUID; None where there is no route."""
        port = self.rows[switch][self.index[destination]]
        return None if port == NO_ROUTE else port


def forwarding_tables(
    topology: Topology,
    inventory: Inventory,
    allocations: Iterable[Allocation],
    failed_links: Collection[Link] = (),
    before: ForwardingTables | None = None,
    plane: SharedPlane = NO_PLANE,
) -> ForwardingTables:
    """Tables for the whole fabric; the same input gives the same tables.

    The default step prefers the links of ``plane`` to all others.

    Failed links are used only where nothing else leads on: the default step then
    prefers any other cable, and a tenant any other link of its own (never anybody
    else's: a tenant cut off by a fault stays cut off until it is placed anew).
    The entries towards one tenant's ports depend on that tenant and the faults,
    not on the other tenants. Rails that the links of an isolated tenant do not join
    (planes that meet above its partition) have no route to each other from its
    leaves, as that would lead over links of others; a leaf with a subnet manager is
    the exception, and a tenant of one host, which has nobody to talk to.

    Where two allocations are placements of one tenant, the entries of the later one
    stand, and those of the earlier one where the later has none.

    ``before`` only saves time: tables of an earlier state of the fabric. While hardware
    and faults are the same, entries are worked out for new tenants only, and a row that
    stays is the very same object.

    Raises:
        NotFound: an allocation holds a link or a host that the inventory lacks.
    """
    failed = frozenset(failed_links)
    parts = before.parts if before is not None else None
    if (
        before is None
        or parts is None
        or not parts.ground.is_of(topology, inventory, failed, plane)
    ):
        ground = _Ground(topology, inventory, failed, plane)
        parts, rows = _Parts(ground, {}, {}), {}
    else:
        ground, rows = parts.ground, before.rows
    overlays = {a: parts.overlays.get(a) or ground.overlay(a) for a in allocations}
    patches: dict[int, list[_Patch]] = {guid: [] for guid in ground.rows}
    for overlay in overlays.values():
        for switch, patch in overlay:
            patches[switch].append(patch)
    rows = {
        guid: rows[guid] if some == parts.patches.get(guid) else _patched(ground.rows[guid], some)
        for guid, some in patches.items()
    }
    return ForwardingTables(ground.destinations, rows, _Parts(ground, overlays, patches))


def _patched(row: bytes, patches: Iterable[_Patch]) -> bytes:
    patched = bytearray(row)
    for patch in patches:
        for place, port in zip(patch.places, patch.ports, strict=True):
            patched[place] = port
    return bytes(patched)


class _Ground:
    """Hardware, faults and shared plane, and all that follows from them: the default entries."""

    def __init__(
        self,
        topology: Topology,
        inventory: Inventory,
        failed: frozenset[Link],
        plane: SharedPlane,
    ) -> None:
        self._topology = topology
        self._inventory = inventory
        self._failed = failed
        self._plane = plane
        default = DefaultRoutes(inventory, failed, topology.tree, plane)
        self.destinations = default.destinations
        self.rows = default.rows()
        self._index = {guid: i for i, guid in enumerate(default.destinations)}
        self._open_leaves = _open_leaves(inventory)

    def is_of(
        self,
        topology: Topology,
        inventory: Inventory,
        failed: frozenset[Link],
        plane: SharedPlane,
    ) -> bool:
        now = (self._topology, self._inventory, self._failed, self._plane)
        return (topology, inventory, failed, plane) == now

    def overlay(self, allocation: Allocation) -> list[tuple[int, _Patch]]:
        """What differs from the default for the ports of a tenant: by switch.

        Entries that lead nowhere are left out at a switch where a manager hangs, above
        the tenant's leaves: the default finds a way round the fault.
        """
        partition = _Partition(self._topology, allocation, self._hop, self._failed)
        on_leaves = list(_tenant_ports(self._topology, allocation))
        apart = _keeps_rails_apart(allocation)
        leaves = {self._inventory.leaf_guids[leaf] for leaf, _, _ in on_leaves}
        found = []
        for leaf, rail, hosts in on_leaves:
            places = [self._index[_endpoint(self._inventory, host, rail)] for host in hosts]
            here = self._inventory.leaf_guids[leaf]
            joined = {here}
            for switch, out, leads_on in partition.entries(here, len(hosts)):
                joined.add(switch)
                if leads_on or switch in leaves or switch not in self._open_leaves:
                    found.append((switch, _Patch(places, out)))
            for other, other_rail, _ in on_leaves if apart else ():
                switch = self._inventory.leaf_guids[other]
                if other_rail != rail and switch not in joined | self._open_leaves:
                    found.append((switch, _Patch(places, [NO_ROUTE] * len(places))))
        return found

    def _hop(self, link: Link) -> _Hop[int]:
        cable = self._inventory.cable_of_link.get(link)
        if cable is None:
            raise NotFound("cable", link_name(link))
        return _Hop(link, cable.lower.guid, cable.upper.guid, cable.lower.port, cable.upper.port)


@dataclass(frozen=True)
class _Parts:
    """What tables were put together from: the ground, then tenant by tenant, switch by switch."""

    ground: _Ground
    overlays: Mapping[Allocation, list[tuple[int, _Patch]]]
    patches: Mapping[int, list[_Patch]]


def as_routed(allocations: Iterable[Allocation]) -> list[Allocation]:
    """What ``forwarding_tables`` is to be given, of all that hold hosts: by id.

    Containers are not routed: hosts that nobody inside has are idle. A child without links
    of its own, as its policy takes none, is routed over its container's links, and so never
    meets anybody outside; who else is inside, it may.
    """
    by_id = {allocation.id: allocation for allocation in allocations}
    return [_carried(by_id[id], by_id) for id in sorted(by_id) if not by_id[id].container]


def _carried(allocation: Allocation, by_id: Mapping[str, Allocation]) -> Allocation:
    policy = POLICIES.get(allocation.policy)
    if policy is None or policy.isolating:
        return allocation
    carrier, parent = allocation, allocation.parent
    while parent is not None and not any(share.uplinks for share in carrier.groups):
        carrier = by_id[parent]
        parent = carrier.parent
    return allocation.over(carrier) if carrier.container else allocation


def tenant_tables(
    topology: Topology, allocation: Allocation, failed_links: Collection[Link] = ()
) -> dict[str, dict[str, str]]:
    """The entries for a tenant's destinations on its own partition, by index.

    The form is the snapshot's (``tables``): switches are ``leaf:POD:LEAF``,
    ``l2:POD:L2`` and ``spine:L2:SPINE``; destinations are ``HOST``, on more than one
    rail ``HOST/RAIL``; an entry is ``host``, ``up:UPLINK`` (the ``up`` of the link
    taken, which counts cables) or ``down:LEAF`` (on a spine ``down:POD``), with
    ``/CABLE`` behind it where that level has parallel cables. Switches whose
    traffic the tenant's links do not carry have no entry; a tenant without links
    has only its ``host`` entries.
    """
    tree = topology.tree
    tables: dict[str, dict[str, str]] = defaultdict(dict)

    def down(child: int, up: int, cables: int) -> str:
        return f"down:{child}/{up % cables}" if cables > 1 else f"down:{child}"

    def hop(link: Link) -> _Hop[str]:
        pod, lower, up = link
        if isinstance(link, LeafLink):
            l2, cables = f"l2:{pod}:{up // tree.cables[0]}", tree.cables[0]
            return _Hop(link, f"leaf:{pod}:{lower}", l2, f"up:{up}", down(lower, up, cables))
        spine, cables = f"spine:{lower}:{up // tree.cables[1]}", tree.cables[1]
        return _Hop(link, f"l2:{pod}:{lower}", spine, f"up:{up}", down(pod, up, cables))

    partition = _Partition(topology, allocation, hop, frozenset(failed_links))
    for leaf, rail, hosts in _tenant_ports(topology, allocation):
        pod, local = divmod(leaf, tree.m[1])
        name = f"leaf:{pod}:{local}"
        names = [f"{host}/{rail}" if topology.rails > 1 else f"{host}" for host in hosts]
        tables[name].update(dict.fromkeys(names, "host"))
        for switch, out, _ in partition.entries(name, len(hosts)):
            tables[switch].update(zip(names, out, strict=True))
    return dict(sorted(tables.items()))


def _tenant_ports(
    topology: Topology, allocation: Allocation
) -> Iterator[tuple[int, int, list[int]]]:
    """Leaf id, rail, and the tenant's hosts there in order of slots."""
    for group, slots, _ in allocation.groups:
        found = (topology.host_at(group, slot) for slot in bits(slots))
        hosts = [host for host in found if host is not None]
        for rail, leaf in enumerate(topology.leaves_of_group(group)):
            yield leaf, rail, hosts


def _keeps_rails_apart(allocation: Allocation) -> bool:
    """Whether its hosts must not use links of others from one rail to another."""
    policy = POLICIES.get(allocation.policy)
    return allocation.size > 1 and (policy is None or policy.isolating)


def _open_leaves(inventory: Inventory) -> set[int]:
    """Leaves whose entries others than tenants rely on, because a subnet manager is there.

    Subnet managers have the LIDs above all switches'; where none is known it may be any
    adapter that is not for tenants, except the aggregation nodes inside switches.
    """
    lids = inventory.lids
    services = inventory.service_endpoints
    above = max((lids.get(switch.guid, 0) for switch in inventory.switches), default=0)
    managers = [e for e in services if lids.get(e.guid, 0) > above]
    return {endpoint.at.guid for endpoint in managers or services}


def _endpoint(inventory: Inventory, host: int, rail: int) -> int:
    endpoint = inventory.endpoint_of_port.get((host, rail))
    if endpoint is None:
        raise NotFound("port of host", f"{host}/{rail}")
    return endpoint.guid


@lru_cache(maxsize=1 << 16)
def _digits(choices: int, start: int, period: int, count: int) -> tuple[int, ...]:
    """Which of ``choices`` each of ``count`` destinations takes: (start + k % period), wrapped."""
    return tuple((start + k % period) % choices for k in range(count))


def _spread(choices: Sequence[N], start: int, period: int, count: int) -> Sequence[N]:
    """``_digits`` of a sequence; ``start`` may be any number of at least 0."""
    if len(choices) == 1:
        return [choices[0]] * count
    digits = _digits(len(choices), start % len(choices), period, count)
    return [choices[digit] for digit in digits]


class _Hop(NamedTuple, Generic[N]):
    """A link, its two switches, and the entry that takes it up and down."""

    link: Link
    lower: N
    upper: N
    up: N
    down: N


class _Partition(Generic[N]):
    """The switches and links of one allocation: its compacted tree.

    D-mod-k digits of destination k on the leaf of rank r in its pod: up at a leaf
    k; up at an L2 switch r (with parallel cables r * width + k % width); down it
    comes the same way. The digit counts only the links that lead on, which is the
    wraparound on remainder leaves and pods.
    """

    def __init__(
        self,
        topology: Topology,
        allocation: Allocation,
        hop: Callable[[Link], _Hop[N]],
        failed: frozenset[Link],
    ) -> None:
        leaf_hops = [hop(link) for link in sorted(allocation.leaf_links(topology))]
        hops = leaf_hops + [hop(link) for link in sorted(allocation.spine_links(topology))]
        self._pod_of_leaf: dict[N, int] = {h.lower: h.link.pod for h in leaf_hops}
        self._pod_of_l2: dict[N, int] = {h.upper: h.link.pod for h in leaf_hops}
        self._rank: dict[N, int] = {}
        ranks: dict[int, int] = defaultdict(int)
        for leaf, pod in self._pod_of_leaf.items():
            self._rank[leaf] = ranks[pod]
            ranks[pod] += 1
        self._tiers: list[dict[N, list[_Hop[N]]]] = [
            _by_lower(h for h in hops if h.link not in failed)
        ]
        if any(h.link in failed for h in hops):
            self._tiers.append(_by_lower(hops))
        bundles = Counter((h.lower, h.upper) for h in leaf_hops)
        self._width: int = max(bundles.values(), default=1)

    def entries(self, leaf: N, count: int) -> Iterator[tuple[N, Sequence[N], bool]]:
        """Switches of the partition, their entries for ``count`` ports on a leaf, and
        whether these lead on.

        Later tiers (failed links) only fill in for switches that earlier ones left out:
        such entries lead nowhere, but not onto links of others either. So which switches
        have entries does not depend on faults, and a packet that meets tables of before
        and after a fault stays on the tenant's links.
        """
        if leaf not in self._pod_of_leaf:
            return
        down: dict[N, list[_Hop[N]]] = {}
        up: dict[N, list[_Hop[N]]] = {}
        own: list[_Hop[N]] = []
        alive: set[N] = set()
        for number, tier in enumerate(self._tiers):
            self._climb(leaf, tier, down, up)
            if number == 0:
                alive = down.keys() | up.keys()
            own = own or [hop for hops in down.values() for hop in hops if hop.lower == leaf]
        own.sort(key=lambda hop: hop.link)
        start = self._rank[leaf] * self._width
        for switch, hops in up.items():
            period = (0, count) if switch in self._pod_of_leaf else (start, self._width)
            yield switch, _spread([hop.up for hop in hops], *period, count), switch in alive
        for switch, hops in down.items():
            if switch in self._pod_of_l2:
                yield (
                    switch,
                    _spread([hop.down for hop in hops], 0, len(own), count),
                    switch in alive,
                )
            else:
                yield switch, self._down_from_spine(hops, own, start, count), switch in alive

    def _climb(
        self,
        leaf: N,
        tier: dict[N, list[_Hop[N]]],
        down: dict[N, list[_Hop[N]]],
        up: dict[N, list[_Hop[N]]],
    ) -> None:
        """Add ways to ``leaf`` over the links of a tier: what stands above it, then the rest.

        An L2 switch of the leaf's own pod never goes up: whatever comes down to it
        from outside the partition would turn round there.
        """
        pod = self._pod_of_leaf[leaf]
        known = down.keys() | up.keys()

        def lift(lower: N) -> None:
            for hop in tier.get(lower, ()):
                if hop.upper not in known:
                    down.setdefault(hop.upper, []).append(hop)

        lift(leaf)
        for l2 in self._pod_of_l2:
            if l2 in down:
                lift(l2)
        outside: list[N] = [l2 for l2, of in self._pod_of_l2.items() if of != pod]
        for switch in [*outside, *self._pod_of_leaf]:
            if switch != leaf and switch not in known:
                hops = [h for h in tier.get(switch, ()) if h.upper in down or h.upper in up]
                if hops:
                    up[switch] = hops

    def _down_from_spine(
        self, hops: list[_Hop[N]], own: list[_Hop[N]], start: int, count: int
    ) -> list[N]:
        """Down from a spine with several links: to the L2 switch a destination prefers.

        Parallel cables make several links, and so does a physical switch that is the
        spine of several L2 indices.
        """
        if len(hops) == 1:
            return [hops[0].down] * count
        found = []
        for k in range(count):
            preferred = own[k % len(own)].upper
            choices = [hop for hop in hops if hop.lower == preferred] or hops
            found.append(choices[(start + k % self._width) % len(choices)].down)
        return found


def _by_lower(hops: Iterable[_Hop[N]]) -> dict[N, list[_Hop[N]]]:
    found: dict[N, list[_Hop[N]]] = defaultdict(list)
    for hop in hops:
        found[hop.lower].append(hop)
    return found
