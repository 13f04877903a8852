# SPDX-License-Identifier: Apache-2.0

"""Units that stand by, for one tenant or for all on a line, and what happens when one fails.

Section 3.6: the units of a star are interchangeable, so any other unit of its line may
take the place of one that failed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from laas_service.domain.stars.cube import Cube
from laas_service.domain.stars.plan import Move
from laas_service.domain.stars.units import Unit


class Backup(enum.Enum):
    """Where a substitute came from."""

    DEDICATED = "a spare of the tenant's own"
    SHARED = "a unit kept for all stars whose lines pass through it"
    FREE = "a unit that happened to be free"


class Substitute(NamedTuple):
    """What takes the place of a failed unit; None for a spare that failed itself."""

    unit: Unit | None
    backup: Backup


def reserve_shared(cube: Cube) -> list[Unit]:
    """Keep free units as shared backups, so that one is on every line that has a free unit.

    On a cube of which nothing is taken or missing these are as few as can be: the product of
    the two larger sizes, 2/k of a k-ary fat-tree (figure 3.8).
    """
    kept: list[Unit] = []
    for unit in (*_diagonal(cube), *cube.units()):
        lines = (_line(cube, unit, axis) for axis in range(3))
        if cube.is_free(unit) and not all(cube.reserved.intersection(line) for line in lines):
            cube.reserve(unit)
            kept.append(unit)
    return kept


def _diagonal(cube: Cube) -> Iterator[Unit]:
    """A unit on every line of a full cube, no two on one along the shortest axis."""
    short = min(range(3), key=cube.sizes.__getitem__)
    a, b = (axis for axis in range(3) if axis != short)
    for at_a, at_b in product(range(cube.sizes[a]), range(cube.sizes[b])):
        yield Unit(0, 0, 0).at(a, at_a).at(b, at_b).at(short, (at_a + at_b) % cube.sizes[short])


def _line(cube: Cube, unit: Unit, axis: int) -> list[Unit]:
    return [unit.at(axis, index) for index in range(cube.sizes[axis])]


def _on_its_lines(cube: Cube, tenant: str, unit: Unit) -> Iterator[Unit]:
    """Units on which the tenant stays a star without ``unit``."""
    for axis in cube.star(tenant).kind.value:
        yield from _line(cube, unit, axis)


def fail_over(cube: Cube, failed: Unit) -> Substitute | None:
    """A tenant's unit has failed: another takes its place, and it is missing from now on.

    Its own spare comes first, then a shared backup, then any free unit of its line. None if
    there is nothing, and nothing has changed then.

    Raises:
        KeyError: nobody owns the unit; ``Cube.lose`` is for such.
    """
    tenant = cube.owner[failed]
    star = cube.star(tenant)
    if failed in star.spares or star.spares:
        substitute = None if failed in star.spares else min(star.spares)
        if substitute is not None:
            star.spares.remove(substitute)
        cube.shrink(tenant, [failed])
        cube.lose(failed)
        return Substitute(substitute, Backup.DEDICATED)
    for backup in (Backup.SHARED, Backup.FREE):
        for unit in _on_its_lines(cube, tenant, failed):
            if unit in cube.reserved if backup is Backup.SHARED else cube.is_free(unit):
                if backup is Backup.SHARED:
                    cube.unreserve(unit)
                cube.move(Move(tenant, failed, unit))
                cube.lose(failed)
                return Substitute(unit, backup)
    return None


def unprotected(cube: Cube) -> list[str]:
    """Tenants of whom some unit has neither a spare nor a shared backup on its line."""
    return [
        tenant
        for tenant, star in sorted(cube.stars.items())
        if not star.spares
        and not cube.reserved.intersection(_on_its_lines(cube, tenant, min(star.units)))
    ]
