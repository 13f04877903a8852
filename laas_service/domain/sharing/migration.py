# SPDX-License-Identifier: Apache-2.0

"""Plan of a changed embedding: compute units that move, and units that are added or removed."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from laas_service.domain.grouping import grouped
from laas_service.domain.sharing.cluster import Cluster, Embedding
from laas_service.domain.sharing.tree import SlotTree


class MachineMove(NamedTuple):
    """A compute unit moves to a slot of another machine that is free before all moves."""

    unit: int
    source: int
    target: int


class UnitMigration(NamedTuple):
    """A cluster, its new embedding, and the changes that lead to it.

    ``moves`` and ``removed`` have the old numbers of units, ``added`` and ``embedding`` the
    new ones. If units are removed, the others keep their order and are numbered from 0
    again. Every target is free before the first move, so the moves may run in any order.
    """

    cluster: Cluster
    embedding: Embedding
    moves: tuple[MachineMove, ...] = ()
    added: tuple[tuple[int, int], ...] = ()
    """(unit, machine)"""
    removed: tuple[tuple[int, int], ...] = ()
    """(unit, machine)"""


def planned(
    tree: SlotTree, cluster: Cluster, held: Embedding, counts: Mapping[int, int]
) -> UnitMigration:
    """The plan with the fewest moves to an embedding with ``counts[machine]`` units on each.

    ``held`` is the current embedding. Moves are as short as possible. Units that have no
    place any more are ``removed``; places without a unit are ``added``.
    """
    at, leaving = {}, []
    for machine, units in sorted(held.items()):
        stay = counts.get(machine, 0)
        at.update(dict.fromkeys(units[:stay], machine))
        leaving += [(unit, machine) for unit in units[stay:]]
    kept = Counter(at.values())
    places = [m for m in sorted(counts) for _ in range(counts[m] - kept[m])]
    moves, leaving, places = _nearest(tree, leaving, places)
    at |= {unit: target for unit, _, target in moves}
    machines = [at[unit] for unit in sorted(at)]
    added = tuple(enumerate(places, len(machines)))
    on = grouped((machine, unit) for unit, machine in enumerate(machines + places))
    embedding = {machine: tuple(units) for machine, units in on.items()}
    return UnitMigration(cluster, embedding, tuple(moves), added, tuple(leaving))


def _nearest(
    tree: SlotTree, leaving: list[tuple[int, int]], places: list[int]
) -> tuple[list[MachineMove], list[tuple[int, int]], list[int]]:
    """Moves within a rack first, then within a pod, and so on; then the units and places left."""
    moves: list[MachineMove] = []
    for level in range(1, tree.top + 1):
        if not leaving or not places:
            break
        free = grouped((tree.above(place, level), place) for place in places)
        rest = []
        for unit, source in leaving:
            near = free[tree.above(source, level)]
            if near:
                moves.append(MachineMove(unit, source, near.pop(0)))
            else:
                rest.append((unit, source))
        leaving, places = rest, sorted(place for machines in free.values() for place in machines)
    return moves, leaving, places
