# SPDX-License-Identifier: Apache-2.0

"""Ledger of the units of a cube: owners, free and missing units, and masks of movable units."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product

from laas_research.stars.plan import Move, Plan
from laas_research.stars.units import Kind, Unit, kind_of
from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound

Lines = list[list[list[int]]]
"""[orientation][pod][line] -> mask of units. In orientation 0 lines are leaves and bits are L2
switches; in orientation 1 lines are L2 switches and bits are leaves (the book's transposed
matrix)."""


@dataclass(slots=True)
class Star:
    """The star that a tenant holds."""

    kind: Kind
    units: set[Unit]
    """All units, spares included."""
    spares: set[Unit] = field(default_factory=set)
    """Units that stand by for failed ones."""


class Cube:
    """The ledger of a cube of units.

    A trimmed fat-tree is a smaller cube, an incomplete one has missing units (StarCube,
    section 3.5). After every change the units of every tenant form a star; a change that
    would break this raises an error and changes nothing. ``sizes`` are the L2 switches of a
    pod, the leaves of a pod, and the pods, each at least 1; ``missing`` are units that the
    fabric lacks.

    Raises:
        InvalidInput: ``sizes`` are out of range, or a missing unit is outside them.
    """

    def __init__(self, sizes: tuple[int, int, int], missing: Iterable[Unit] = ()) -> None:
        if len(sizes) != 3 or min(sizes) < 1:
            raise InvalidInput(
                "sizes", sizes, "give three of at least 1: L2 switches, leaves, pods"
            )
        self.sizes = sizes
        self.stars: dict[str, Star] = {}
        """Tenant -> its star."""
        self.owner: dict[Unit, str] = {}
        """Unit -> its tenant."""
        self.missing: set[Unit] = set()
        """Absent or failed units."""
        self.reserved: set[Unit] = set()
        """Shared backups, which are not free."""
        pods, lengths = sizes[2], (sizes[0], sizes[1])

        def lines(full: bool) -> Lines:
            return [
                [
                    [(1 << lengths[t]) - 1 if full else 0 for _ in range(lengths[1 - t])]
                    for _ in range(pods)
                ]
                for t in (0, 1)
            ]

        self.free = lines(full=True)
        """Free units."""
        self.free_pods = [[(1 << pods) - 1] * sizes[1] for _ in range(sizes[0])]
        """[i][j] -> mask of the pods in which unit (i, j) is free: the book's MirrorUnits."""
        self.free_in_some_pod = [
            [(1 << size) - 1] * count for size, count in (lengths, lengths[::-1])
        ]
        """[orientation][line] -> mask of the places that are free in at least one pod."""
        self.mobile = [lines(full=False) for _ in range(3)]
        """[axis] -> units that their tenants may move along the axis."""
        self.room = [sizes[0] * sizes[1]] * pods
        """[pod] -> number of free units."""
        for unit in set(missing):
            self.lose(unit)

    def __contains__(self, unit: Unit) -> bool:
        return all(0 <= x < size for x, size in zip(unit, self.sizes, strict=True))

    def units(self) -> Iterable[Unit]:
        """All units, missing ones included, pod by pod."""
        i, j, k = map(range, self.sizes)
        return (Unit(a, b, c) for c, b, a in product(k, j, i))

    def is_free(self, unit: Unit) -> bool:
        """Whether a unit is inside the cube, and neither owned, reserved nor missing."""
        return unit in self and bool(self.free[0][unit.k][unit.j] >> unit.i & 1)

    def copy(self) -> Cube:
        """An independent ledger in the same state."""
        return deepcopy(self)

    # -- tenants --------------------------------------------------------------

    def claim(
        self,
        tenant: str,
        units: Collection[Unit],
        spares: Collection[Unit] = (),
        kind: Kind | None = None,
    ) -> None:
        """Give a new tenant a star of free units; ``spares`` are those of them that stand by.

        Raises:
            InvalidInput: the units form no star of ``kind`` (of any kind for None), or the
                spares are not some of them.
            DoubleClaim: the tenant has a star, or a unit is not free.
        """
        formed = kind_of(units)
        if formed is None or len(set(units)) != len(units) or kind not in (None, formed):
            raise InvalidInput(
                "units", sorted(units), "give different units on one line of the cube"
            )
        if not set(spares) < set(units):
            raise InvalidInput("spares", sorted(spares), "give some of the star's units, not all")
        if tenant in self.stars:
            raise DoubleClaim(f"tenant {tenant} has a star already")
        for unit in units:
            self._must_be_free(unit)
        self.stars[tenant] = Star(formed, set(units), set(spares))
        for unit in units:
            self._take(unit)
            self._own(tenant, unit)

    def release(self, tenant: str) -> None:
        """Free all units of a tenant.

        Raises:
            NotFound: the tenant has no star.
        """
        self.shrink(tenant, set(self.star(tenant).units))

    def shrink(self, tenant: str, units: Collection[Unit]) -> None:
        """Take units from a tenant.

        A single unit that is left is a star of kind S; a tenant without units is removed.

        Raises:
            NotFound: the tenant has no star, or does not own one of the units.
        """
        star = self.star(tenant)
        for unit in units:
            if unit not in star.units:
                raise NotFound("unit", tuple(unit), f"tenant {tenant} has {len(star.units)} others")
        for unit in set(units):
            self._disown(tenant, unit)
            self._free(unit)
        if not star.units:
            del self.stars[tenant]
        elif len(star.units) == 1 and star.kind is not Kind.S:
            (unit,) = star.units
            self._toggle_mobile(star.kind, unit)
            star.kind = Kind.S
            self._toggle_mobile(star.kind, unit)

    def star(self, tenant: str) -> Star:
        """The star of a tenant.

        Raises:
            NotFound: the tenant has no star.
        """
        star = self.stars.get(tenant)
        if star is None:
            raise NotFound("tenant", tenant)
        return star

    # -- moves ----------------------------------------------------------------

    def begin(self, move: Move) -> None:
        """Begin a move: the tenant owns both the source and the target.

        Raises:
            InvalidInput: the tenant's units would form no star, or it does not own the source.
            DoubleClaim: the target is not free.
        """
        star = self.star(move.tenant)
        held = star.units | {move.target}
        kinds = tuple(Kind) if star.kind is Kind.S else (star.kind,)  # while it holds both
        if move.source not in star.units or kind_of(held) not in kinds:
            raise InvalidInput("move", move, f"{move.tenant} is a star of kind {star.kind.name}")
        self._must_be_free(move.target)
        self._take(move.target)
        self._own(move.tenant, move.target)

    def finish(self, move: Move) -> None:
        """Finish a move: the source is free. If the source was a spare, the target is one."""
        star = self.star(move.tenant)
        if move.source in star.spares:
            star.spares.add(move.target)
        self._disown(move.tenant, move.source)
        self._free(move.source)

    def move(self, move: Move) -> None:
        """Begin and finish a move.

        Raises:
            InvalidInput, DoubleClaim: as ``begin``.
        """
        self.begin(move)
        self.finish(move)

    def admit(self, plan: Plan) -> None:
        """Make the moves of a plan that was made for this state, and claim its star."""
        for move in plan.moves:
            self.move(move)
        self.claim(plan.tenant, plan.units)

    # -- units without an owner -----------------------------------------------

    def reserve(self, unit: Unit) -> None:
        """Reserve a free unit as a backup that several tenants share.

        Raises:
            DoubleClaim: the unit is not free.
        """
        self._must_be_free(unit)
        self._take(unit)
        self.reserved.add(unit)

    def unreserve(self, unit: Unit) -> None:
        """Make a reserved unit free."""
        self.reserved.remove(unit)
        self._free(unit)

    def lose(self, unit: Unit) -> None:
        """Mark a unit without an owner as missing.

        Raises:
            DoubleClaim: the unit has an owner, or is missing already; ``backups.fail_over``
                replaces an owned one first.
        """
        if unit in self.reserved:
            self.unreserve(unit)
        self._must_be_free(unit)
        self._take(unit)
        self.missing.add(unit)

    def regain(self, unit: Unit) -> None:
        """Make a missing unit free again."""
        self.missing.remove(unit)
        self._free(unit)

    # -- masks ----------------------------------------------------------------

    def _must_be_free(self, unit: Unit) -> None:
        if unit not in self:
            raise InvalidInput("unit", tuple(unit), f"units lie within {self.sizes}")
        if not self.is_free(unit):
            raise DoubleClaim(f"unit {tuple(unit)} is not free")

    def _take(self, unit: Unit) -> None:
        i, j, k = unit
        self.free[0][k][j] &= ~(1 << i)
        self.free[1][k][i] &= ~(1 << j)
        self.free_pods[i][j] &= ~(1 << k)
        if not self.free_pods[i][j]:
            self.free_in_some_pod[0][j] &= ~(1 << i)
            self.free_in_some_pod[1][i] &= ~(1 << j)
        self.room[k] -= 1

    def _free(self, unit: Unit) -> None:
        i, j, k = unit
        self.free[0][k][j] |= 1 << i
        self.free[1][k][i] |= 1 << j
        self.free_pods[i][j] |= 1 << k
        self.free_in_some_pod[0][j] |= 1 << i
        self.free_in_some_pod[1][i] |= 1 << j
        self.room[k] += 1

    def _own(self, tenant: str, unit: Unit) -> None:
        star = self.stars[tenant]
        star.units.add(unit)
        self.owner[unit] = tenant
        self._toggle_mobile(star.kind, unit)

    def _disown(self, tenant: str, unit: Unit) -> None:
        star = self.stars[tenant]
        star.units.remove(unit)
        star.spares.discard(unit)
        del self.owner[unit]
        self._toggle_mobile(star.kind, unit)

    def _toggle_mobile(self, kind: Kind, unit: Unit) -> None:
        """Set the bits of a unit that a star of ``kind`` gets, or clear those of one it loses."""
        i, j, k = unit
        for axis in kind.value:
            self.mobile[axis][0][k][j] ^= 1 << i
            self.mobile[axis][1][k][i] ^= 1 << j
