# SPDX-License-Identifier: Apache-2.0

"""Judge of stars by the switches that they touch; exhaustive search of plans of two slots.

This module shares no code with the engine. A unit is a triple of numbers; a holding is a set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, product
from random import Random

Place = tuple[int, int, int]


def switches(unit):
    i, j, k = unit
    return {("leaf", j, k), ("L2", i, k), ("spine", i, j)}


def is_star(units) -> bool:
    """Whether all units touch one switch, and no two of them another one (Definition 3.3)."""
    if len(units) < 2:
        return len(units) == 1
    hubs = set.intersection(*map(switches, units))
    return len(hubs) == 1 and all(
        switches(a) & switches(b) == hubs for a, b in combinations(units, 2)
    )


def wrong(
    sizes: Place, holdings: Mapping[str, set[Place]], closed: Iterable[Place] = ()
) -> list[str]:
    """Violations: tenants that are no stars, units with two owners, closed or unknown units."""
    found, owners = [], dict.fromkeys(closed, "nobody")
    for tenant, units in holdings.items():
        if not is_star(units):
            found.append(f"{tenant} is no star: {sorted(units)}")
        for unit in units:
            if not all(0 <= x < size for x, size in zip(unit, sizes, strict=True)):
                found.append(f"{tenant} has {unit}, outside {sizes}")
            if unit in owners:
                found.append(f"{unit} belongs to {owners[unit]} and {tenant}")
            owners[unit] = tenant
    return found


def steps(slots, holdings: dict[str, set[Place]], rng: Random) -> Iterator[str]:
    """Make the moves of a plan; those of a slot overlap, in random order. Yields after each
    step, with a message if the step is wrong, so that the caller can judge the state."""
    for slot in slots:
        todo = {number: [move, "begin"] for number, move in enumerate(slot)}
        while todo:
            number = rng.choice(sorted(todo))
            (tenant, source, target), what = todo[number]
            if what == "begin":
                if source not in holdings[tenant]:
                    yield f"{tenant} does not hold {source}"
                holdings[tenant] = holdings[tenant] | {tuple(target)}
                todo[number][1] = "end"
            else:
                holdings[tenant] = holdings[tenant] - {tuple(source)}
                del todo[number]
            yield ""


def axes(units: set[Place]) -> list[int]:
    """Axes along which a tenant may move its units."""
    varying = [axis for axis in range(3) if len({unit[axis] for unit in units}) > 1]
    return varying or [0, 1, 2]


def same_line(a: Place, b: Place, axis: int) -> bool:
    return a != b and all(a[other] == b[other] for other in range(3) if other != axis)


def movers(holdings, target: Place, axes_allowed) -> list[tuple[str, Place]]:
    """Units that may move to a free place."""
    return [
        (tenant, unit)
        for tenant, units in holdings.items()
        for axis in axes(units)
        if axis in axes_allowed
        for unit in units
        if same_line(unit, target, axis)
    ]


def lines(sizes: Place, axis: int) -> Iterator[set[Place]]:
    others = [range(size) if n != axis else range(1) for n, size in enumerate(sizes)]
    for start in product(*others):
        yield {
            (*start[:axis], index, *start[axis + 1 :])  # type: ignore[misc]
            for index in range(sizes[axis])
        }


def roomiest(sizes, holdings, closed, axis, allowed=(0, 1, 2), slots=2) -> int:
    """The most units of one line along ``axis`` that can be free after ``slots`` slots: all
    choices of moves for the first slots, and a maximum matching for the last one."""
    every = set(product(*map(range, sizes)))
    free = every - set(closed) - set().union(*holdings.values())
    best = max(
        (_after_one_slot(line, holdings, free, allowed) for line in lines(sizes, axis)), default=0
    )
    if slots < 2:
        return best
    for after in _slots(holdings, sorted(free), allowed):
        free_after = every - set(closed) - set().union(*after.values())
        for line in lines(sizes, axis):
            best = max(best, _after_one_slot(line, after, free_after, allowed))
    return best


def _slots(holdings, free, allowed) -> Iterator[dict[str, set[Place]]]:
    """The states after every set of moves that one slot allows: each free unit takes at most
    one mover."""
    choices = [[None, *movers(holdings, target, allowed)] for target in free]
    for chosen in product(*choices):
        made = [(mover, target) for mover, target in zip(chosen, free, strict=True) if mover]
        if not made or len({mover for mover, _ in made}) < len(made):
            continue
        after = {tenant: set(units) for tenant, units in holdings.items()}
        during = {tenant: set(units) for tenant, units in holdings.items()}
        for (tenant, source), target in made:
            after[tenant] -= {source}
            after[tenant] |= {target}
            during[tenant] |= {target}
        moved = {tenant for (tenant, _), _ in made}
        if all(is_star(during[tenant]) for tenant in moved):
            yield after


def _after_one_slot(line, holdings, free, allowed) -> int:
    """Free units of the line after the largest set of moves out of it, a maximum matching."""
    outside = sorted(free - line)
    leaving = {
        unit: [
            target
            for target in outside
            if any(same_line(unit, target, axis) for axis in axes(units) if axis in allowed)
        ]
        for units in holdings.values()
        for unit in units & line
    }
    taken: dict[Place, Place] = {}

    def place(unit, seen) -> bool:
        for target in leaving[unit]:
            if target not in seen:
                seen.add(target)
                if target not in taken or place(taken[target], seen):
                    taken[target] = unit
                    return True
        return False

    return len(free & line) + sum(place(unit, set()) for unit in leaving)
