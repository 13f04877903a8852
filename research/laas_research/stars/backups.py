# SPDX-License-Identifier: Apache-2.0

"""Backup units of stars, dedicated or shared, and the fail-over of a unit to one of them.

Source: StarCube (Springer 2016), section 3.6. The units of a star are interchangeable, so any
other unit of its line may replace a failed one.
"""

import enum
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from laas_research.stars.cube import Cube
from laas_research.stars.plan import Move
from laas_research.stars.units import Unit


class Backup(enum.Enum):
    """The kind of unit that replaces a failed one."""

    DEDICATED = "a spare of the tenant's own"
    SHARED = "a unit kept for all stars whose lines pass through it"
    FREE = "a unit that happened to be free"


class Substitute(NamedTuple):
    """The replacement of a failed unit."""

    unit: Unit | None
    """None if the failed unit was a spare, which is not replaced."""
    backup: Backup


def reserve_shared(cube: Cube) -> list[Unit]:
    """Reserve free units as shared backups, one on every line that has a free unit.

    Returns the units reserved. On an empty cube without missing units their number is the
    least possible: the product of the two larger sizes, 2/k of a k-ary fat-tree (figure 3.8).
    """
    reserved: list[Unit] = []
    for unit in (*_diagonal(cube), *cube.units()):
        lines = (_line(cube, unit, axis) for axis in range(3))
        if cube.is_free(unit) and not all(cube.reserved.intersection(line) for line in lines):
            cube.reserve(unit)
            reserved.append(unit)
    return reserved


def _diagonal(cube: Cube) -> Iterator[Unit]:
    """A unit on every line of a full cube; lines along the shortest axis have only one."""
    short = min(range(3), key=cube.sizes.__getitem__)
    a, b = (axis for axis in range(3) if axis != short)
    for at_a, at_b in product(range(cube.sizes[a]), range(cube.sizes[b])):
        yield Unit(0, 0, 0).at(a, at_a).at(b, at_b).at(short, (at_a + at_b) % cube.sizes[short])


def _line(cube: Cube, unit: Unit, axis: int) -> list[Unit]:
    return [unit.at(axis, index) for index in range(cube.sizes[axis])]


def _on_its_lines(cube: Cube, tenant: str, unit: Unit) -> Iterator[Unit]:
    """The units of a tenant's line, any of which can replace ``unit``."""
    for axis in cube.star(tenant).kind.value:
        yield from _line(cube, unit, axis)


def fail_over(cube: Cube, failed: Unit) -> Substitute | None:
    """Replace a tenant's failed unit by another, and mark it as missing.

    The tenant's own spare is taken first, then a shared backup, then any free unit of the
    line. Returns None, and changes nothing, if there is no replacement.

    Raises:
        KeyError: the unit has no owner; use ``Cube.lose``.
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
    """Tenants without a spare that also have no shared backup on their line, sorted."""
    return [
        tenant
        for tenant, star in sorted(cube.stars.items())
        if not star.spares
        and not cube.reserved.intersection(_on_its_lines(cube, tenant, min(star.units)))
    ]
