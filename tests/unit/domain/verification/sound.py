# SPDX-License-Identifier: Apache-2.0

"""Sound allocations made by hand, which tests then break, and small named topologies."""

from __future__ import annotations

from collections import Counter

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare, Shape
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef, Switch
from laas_service.domain.topology import LeafLink, Link, Port, Topology, Xgft

FULL = Topology(Xgft((3, 3, 3), (1, 3, 3)))
TWO_LEVEL = Topology(Xgft((4, 6, 1), (1, 4, 0)))
TAPERED = Topology(Xgft((6, 4, 3), (1, 3, 2)))
"""Two flows a leaf uplink, two a spine uplink's share of L2 flows."""
CABLES = Topology(Xgft((4, 4, 3), (1, 4, 8), (2, 2)))
"""Two cables from each leaf to each L2 switch, and from each of those to each spine."""


def railed(tree: Xgft, pods_of_rails: int) -> Topology:
    """Two rails: both in one pod (1), or each in pods of its own (2)."""
    ports = []
    if pods_of_rails == 1:
        groups = [(pod, 2 * g, pod, 2 * g + 1) for pod in range(tree.m[2]) for g in range(2)]
    else:
        groups = [
            (2 * pod, leaf, 2 * pod + 1, leaf)
            for pod in range(tree.m[2] // 2)
            for leaf in range(tree.m[1])
        ]
    for a_pod, a_leaf, b_pod, b_leaf in groups:
        ports += [(Port(a_pod, a_leaf, k), Port(b_pod, b_leaf, k)) for k in range(tree.m[0])]
    return Topology(tree, rails=2, host_ports=tuple(ports))


RAILS = railed(Xgft((3, 4, 3), (1, 3, 4)), 1)
PLANES = railed(Xgft((3, 3, 4), (1, 3, 3)), 2)
TAPERED_RAILS = railed(Xgft((4, 4, 3), (1, 2, 2)), 1)

TOPOLOGIES = {
    "full": FULL,
    "two-level": TWO_LEVEL,
    "tapered": TAPERED,
    "cables": CABLES,
    "rails": RAILS,
    "planes": PLANES,
    "tapered-rails": TAPERED_RAILS,
}


def build(
    topology: Topology, shape: Shape, id: str = "t1", policy: str = "jigsaw", pod: int = 0
) -> Allocation:
    """An allocation of a shape that meets every condition: lowest pods, leaves, links."""
    tree = topology.tree
    leaf_taper, l2_taper = tree.taper
    one_pod = shape.pods == 1 and not shape.remainder_leaves
    groups, columns = [], []

    def uplinks(hosts: int) -> int:
        """The lowest uplinks for so many hosts of a leaf, in one plane."""
        return (1 << -(-hosts // leaf_taper)) - 1

    def take(pod: int, counts: list[int]) -> None:
        for group, count in enumerate(counts, pod * topology.groups_per_pod):
            mask = 0
            for plane in range(topology.planes):
                taken = uplinks(count)
                if one_pod and len(counts) == 1:
                    taken = 1 if count > 1 and topology.rails_in_plane(plane) > 1 else 0
                mask |= taken << plane * tree.w[1]
            groups.append(GroupShare(group, (1 << count) - 1, mask))
        if one_pod:
            return
        for column in range(topology.columns_per_pod):
            plane, l2 = divmod(column, tree.l2_per_pod)
            bundle = (1 << tree.cables[0]) - 1 << l2 * tree.cables[0]
            flows = topology.rails_in_plane(plane) * sum(
                (uplinks(count) & bundle).bit_count() for count in counts
            )
            if flows:
                columns.append(ColumnShare(pod, column, (1 << -(-flows // l2_taper)) - 1))

    rest = [shape.remainder_hosts] if shape.remainder_hosts else []
    full = [shape.hosts] * shape.leaves
    if one_pod:
        take(pod, full + rest)
    else:
        for number in range(shape.pods):
            take(pod + number, full)
        if shape.remainder_leaves or rest:
            take(pod + shape.pods, [shape.hosts] * shape.remainder_leaves + rest)
    return Allocation(id, shape.size, policy, tuple(groups), tuple(columns), shape)


def inventory_of(topology: Topology, directors: bool = False) -> Inventory:
    """The fabric with a manager on its first leaf; ``directors`` merges the spine groups."""
    tree = topology.tree
    leaves = [0x100000 + n for n in range(tree.leaves)]
    l2s = [0x200000 + n for n in range(tree.m[2] * tree.l2_per_pod)]
    spines = [
        0x300000 + (j if directors else i * tree.spines_per_group + j)
        for i in range(tree.l2_per_pod)
        for j in range(tree.spines_per_group)
    ]
    used: Counter[int] = Counter()

    def plug(guid: int) -> PortRef:
        used[guid] += 1
        return PortRef(guid, used[guid])

    endpoints = [
        Endpoint(0x10000 + host * topology.rails + rail, f"h{host}", plug(leaf), host, rail)
        for host in range(topology.hosts)
        if host not in topology.absent_hosts
        for rail, port in enumerate(topology.ports_of(host))
        for leaf in [leaves[tree.leaf_id(port.pod, port.leaf)]]
    ]
    endpoints.append(Endpoint(0xFF0000, "sm", plug(leaves[0])))
    cables = [
        _cable(tree, link, leaves, l2s, spines, plug)
        for link in map(tree.link_at, range(tree.leaf_links + tree.spine_links))
        if link not in topology.absent_links
    ]
    switches = [
        Switch(guid, f"s{guid:x}", level, used[guid])
        for level, guids in ((1, leaves), (2, l2s), (3, sorted(set(spines))))
        for guid in guids
    ]
    ports = [e.guid for e in endpoints] + [s.guid for s in switches]
    return Inventory(
        tuple(f"h{host}" for host in range(topology.hosts)),
        tuple(switches),
        tuple(cables),
        tuple(endpoints),
        tuple(leaves),
        tuple(l2s),
        tuple(spines),
        {guid: lid for lid, guid in enumerate(ports, 1)},
    )


def _cable(tree: Xgft, link: Link, leaves, l2s, spines, plug) -> Cable:
    if isinstance(link, LeafLink):
        lower = leaves[tree.leaf_id(link.pod, link.leaf)]
        upper = l2s[tree.l2_id(link.pod, link.up // tree.cables[0])]
    else:
        lower = l2s[tree.l2_id(link.pod, link.l2)]
        upper = spines[link.l2 * tree.spines_per_group + link.up // tree.cables[1]]
    return Cable(plug(lower), plug(upper), link)
