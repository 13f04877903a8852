# SPDX-License-Identifier: Apache-2.0

"""Judge of contention inside a tenant: walks every shift of its hosts over its forwarding tables.

In the shift by s, host i of the given order sends to host i + s modulo their number, on all
rails at once. The walks read nothing but the tables.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laas_service.domain.topology import Topology

Ints = NDArray[np.int64]

NO_LINK = -1
FLOWS_AT_ONCE = 1 << 21
"""So many flows are counted together, which bounds the memory."""


def shift_loads(
    topology: Topology, tables: Mapping[str, Mapping[str, str]], hosts: Sequence[int]
) -> NDArray[Any]:
    """For each shift, 0 to N - 1, the most flows on one direction of any link.

    ``tables`` have the form of ``tenant_tables``; ``hosts`` are in the order of the shifts.

    Raises:
        ValueError: an entry is missing, or a path is not up and then down to its host.
    """
    routes = [_paths(topology, tables, hosts, rail) for rail in range(topology.rails)]
    count, links = len(hosts), 2 + max(int(paths.max(initial=NO_LINK)) for _, paths in routes)
    worst = np.zeros(count, dtype=np.int64)
    step = max(1, FLOWS_AT_ONCE // max(count, links))
    sources = np.arange(count)
    for first in range(0, count, step):
        shifts = np.arange(first, min(first + step, count))
        targets = (sources[None, :] + shifts[:, None]) % count
        loads = np.zeros(len(shifts) * links, dtype=np.int64)
        for leaf_of, paths in routes:
            taken = paths[:, leaf_of[None, :], targets]
            keys = taken + (np.arange(len(shifts)) * links)[None, :, None]
            loads += np.bincount(keys[taken != NO_LINK], minlength=len(loads))
        worst[shifts] = loads.reshape(len(shifts), links).max(axis=1)
    return worst


def _paths(
    topology: Topology, tables: Mapping[str, Mapping[str, str]], hosts: Sequence[int], rail: int
) -> tuple[Ints, Ints]:
    """By host, its leaf on a rail; by hop, leaf and target host, the directed link, or none."""
    tree = topology.tree
    places = [topology.ports_of(host)[rail][:2] for host in hosts]
    leaves = sorted(set(places))
    leaf_of = np.array([leaves.index(place) for place in places])
    paths = np.full((4, len(leaves), len(hosts)), NO_LINK)
    names = [f"{host}/{rail}" if topology.rails > 1 else f"{host}" for host in hosts]
    for row, source in enumerate(leaves):
        for column, (name, target) in enumerate(zip(names, places, strict=True)):
            if target != source:
                hops = list(_hops(tables, name, source, target, tree.cables))
                for hop, (down, level, a, b, up) in enumerate(hops):
                    lower = max(tree.m[1], tree.l2_per_pod)
                    number = ((level * tree.m[2] + a) * lower + b) * max(tree.w) + up
                    paths[hop, row, column] = 2 * number + down
    return leaf_of, paths


def _hops(
    tables: Mapping[str, Mapping[str, str]],
    name: str,
    source: tuple[int, int],
    target: tuple[int, int],
    cables: tuple[int, int],
) -> Iterator[tuple[int, int, int, int, int]]:
    """The links of a path: 1 if down, the level, and the three numbers of the link."""

    def entry(switch: str) -> tuple[str, int, int]:
        out = tables.get(switch, {}).get(name)
        if out is None:
            raise ValueError(f"{switch} has no entry for {name}")
        action, _, where = out.partition(":")
        port, _, cable = where.partition("/")
        return action, int(port), int(cable or 0)

    pod, leaf = source
    action, up, _ = entry(f"leaf:{pod}:{leaf}")
    if action != "up":
        raise ValueError(f"leaf:{pod}:{leaf} does not lead up to {name}")
    yield 0, 0, pod, leaf, up
    l2 = up // cables[0]
    action, port, cable = entry(f"l2:{pod}:{l2}")
    if action == "up":
        yield 0, 1, pod, l2, port
        spine = port // cables[1]
        action, pod, cable = entry(f"spine:{l2}:{spine}")
        yield 1, 1, pod, l2, spine * cables[1] + cable
        action, port, cable = entry(f"l2:{pod}:{l2}")
    if action != "down" or (pod, port) != target:
        raise ValueError(f"l2:{pod}:{l2} leads {action} {port} to {name}")
    yield 1, 0, pod, port, l2 * cables[0] + cable
