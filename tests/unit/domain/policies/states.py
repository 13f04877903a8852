# SPDX-License-Identifier: Apache-2.0

"""Random ledgers: fabrics after a history of owners and faults."""

from __future__ import annotations

from random import Random

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare
from laas_service.domain.ledger import Ledger
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, bits


def some_bits(rng: Random, mask: int, share: float) -> int:
    """Each bit of ``mask`` with probability ``share``."""
    return sum(1 << bit for bit in bits(mask) if rng.random() < share)


def noisy_fabric(topology: Topology, rng: Random) -> Ledger:
    """A fabric whose hosts and links are owned at random, with a few faults.

    Such states have crowns and odd spine columns, which histories of policies rarely reach.
    """
    fabric = Ledger(topology)
    hosts, links, spines = (rng.choice((0, 0.1, 0.3, 0.5)) for _ in range(3))
    groups = [
        GroupShare(group, taken, some_bits(rng, fabric.free_uplinks[group], links))
        for group, free in enumerate(fabric.free_hosts)
        if (taken := some_bits(rng, free, hosts))
    ]
    columns = [
        ColumnShare(*divmod(index, topology.columns_per_pod), taken)
        for index, free in enumerate(fabric.free_spines)
        if (taken := some_bits(rng, free, spines))
    ]
    fabric.claim(Allocation("noise", 1, "baseline", tuple(groups), tuple(columns)))
    break_things(fabric, rng, rng.choice((0, 0, 1, 3, 6)))
    return fabric


def lopsided_fabric(topology: Topology, rng: Random) -> Ledger:
    """A fabric with free, partly used and full leaves; their proportions differ by pod."""
    fabric = Ledger(topology)
    shares = []
    for pod in range(topology.pods):
        whole = rng.random()
        for group in range(pod * topology.groups_per_pod, (pod + 1) * topology.groups_per_pod):
            taken = some_bits(rng, fabric.free_hosts[group], rng.choice((0.3, 0.6, 1)))
            if taken and rng.random() > whole:
                shares.append(GroupShare(group, taken, 0))
    fabric.claim(Allocation("noise", 1, "baseline", tuple(shares)))
    break_things(fabric, rng, rng.choice((0, 0, 1)))
    return fabric


def some_holding(fabric: Ledger, rng: Random, id: str) -> Allocation:
    """An allocation of random free hosts and links."""
    width = fabric.topology.columns_per_pod
    groups = (
        GroupShare(group, some_bits(rng, fabric.free_hosts[group], 0.4), some_bits(rng, free, 0.4))
        for group, free in enumerate(fabric.free_uplinks)
    )
    columns = (
        ColumnShare(*divmod(index, width), some_bits(rng, free, 0.4))
        for index, free in enumerate(fabric.free_spines)
    )
    return Allocation(
        id,
        1,
        "test",
        tuple(share for share in groups if share.hosts or share.uplinks),
        tuple(share for share in columns if share.uplinks),
    )


def break_things(fabric: Ledger, rng: Random, count: int) -> None:
    """Fail up to ``count`` hosts and as many links of each level."""
    topology, tree = fabric.topology, fabric.topology.tree
    for _ in range(count):
        host = rng.randrange(topology.hosts)
        if host not in topology.absent_hosts:
            fabric.fail_host(host)
        links: list[Link] = [
            LeafLink(rng.randrange(tree.m[2]), rng.randrange(tree.m[1]), rng.randrange(tree.w[1]))
        ]
        if tree.w[2]:
            pod, l2 = rng.randrange(tree.m[2]), rng.randrange(tree.l2_per_pod)
            links.append(SpineLink(pod, l2, rng.randrange(tree.w[2])))
        for link in links:
            if link not in topology.absent_links:
                fabric.fail_link(link)
