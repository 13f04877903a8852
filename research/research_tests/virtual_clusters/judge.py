# SPDX-License-Identifier: Apache-2.0

"""Judge of the promises on links, one link at a time, by numeric integration."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from math import exp, pi, sqrt
from statistics import NormalDist

cdf = NormalDist().cdf


@cache
def smaller(one, other, steps=800):
    """Mean and variance of the smaller of two normals (mean, variance), by integration."""
    (a, va), (b, vb) = one, other
    if not va and not vb:
        return min(a, b), 0.0
    if not va:
        return smaller(other, one)
    sa, sb = sqrt(va), sqrt(vb)
    low, high = min(a - 9 * sa, b - 9 * sb), max(a + 9 * sa, b + 9 * sb)
    width = (high - low) / steps
    first = second = 0.0
    for i in range(steps):
        x = low + (i + 0.5) * width
        p = (x - a) / sa
        density = exp(-p * p / 2) / sa
        if vb:
            q = (x - b) / sb
            density = density * (1 - cdf(q)) + exp(-q * q / 2) / sb * (1 - cdf(p))
        else:
            x = min(x, b)
        density *= width / sqrt(2 * pi)
        first += x * density
        second += x * x * density
    return first, max(second - first * first, 0.0)


def sides(tree, embedding, level, vertex):
    """The cluster's virtual machines below a link, and all its others."""
    inside = [vm for m, vms in embedding.items() for vm in vms if m // tree.below[level] == vertex]
    outside = [vm for vms in embedding.values() for vm in vms if vm not in inside]
    return inside, outside


def asked(tree, cluster, embedding, level, vertex):
    """(mean, variance) of a cluster's demand on a link."""
    parts = sides(tree, embedding, level, vertex)
    if not all(parts):
        return 0.0, 0.0
    sums = [
        tuple(round(sum(cluster.demands[vm][k] for vm in part), 9) for k in (0, 1))
        for part in parts
    ]
    return smaller(*sorted(sums))


def occupancy(tree, risk, placed, level, vertex):
    """Occupancy of a link under (cluster, embedding) pairs; infinity if it breaks a promise."""
    found = [asked(tree, cluster, embedding, level, vertex) for cluster, embedding in placed]
    certain = sum(mean for mean, variance in found if not variance)
    mean = sum(mean for mean, variance in found if variance)
    variance = sum(variance for _, variance in found)
    used = certain + mean + NormalDist().inv_cdf(1 - risk) * sqrt(variance)
    share = used / tree.capacity[level]
    fits = share < 1 if variance else share <= 1
    return share if fits else float("inf")


def links_below(tree, level, vertex):
    """Links of the subtree of a vertex, its own uplink not among them."""
    for lower in range(level):
        width = tree.below[level] // tree.below[lower]
        for below in range(vertex * width, (vertex + 1) * width):
            yield lower, below


def embeddings(tree, free, size, level, vertex) -> Iterator[dict[int, tuple[int, ...]]]:
    """Every assignment of machines 0..size-1 to slots below a vertex."""
    width = tree.below[level]
    machines = range(vertex * width, (vertex + 1) * width)
    for chosen in product(machines, repeat=size):
        if all(chosen.count(machine) <= free[machine] for machine in set(chosen)):
            yield {m: tuple(vm for vm, at in enumerate(chosen) if at == m) for m in set(chosen)}


def best(tree, risk, free, others, cluster):
    """(level, vertex, least worst occupancy) of the lowest, first subtree that has room."""
    for level in range(tree.top + 1):
        for vertex in range(tree.vertices(level)):
            values = [
                max(
                    (
                        occupancy(tree, risk, [*others, (cluster, embedding)], *link)
                        for link in links_below(tree, level, vertex)
                    ),
                    default=0.0,
                )
                for embedding in embeddings(tree, free, len(cluster.demands), level, vertex)
            ]
            if values and min(values) < float("inf"):
                return level, vertex, min(values)
    return None


def found(tree, risk, others, cluster, embedding):
    """(level, vertex, worst occupancy) of the subtree that holds this embedding."""
    level = next(
        level
        for level in range(tree.top + 1)
        if len({machine // tree.below[level] for machine in embedding}) == 1
    )
    vertex = next(iter(embedding)) // tree.below[level]
    worst = [
        occupancy(tree, risk, [*others, (cluster, embedding)], *link)
        for link in links_below(tree, level, vertex)
    ]
    return level, vertex, max(worst, default=0.0)
