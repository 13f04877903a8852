# SPDX-License-Identifier: Apache-2.0

"""The ledger of a cube: who owns which unit, kept so that what may move is found by masks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product

from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound
from laas_service.domain.stars.plan import Move, Plan
from laas_service.domain.stars.units import Kind, Unit, kind_of

Lines = list[list[list[int]]]
"""[orientation][pod][line] -> mask: along orientation 0 lines are leaves and bits L2 switches,
along orientation 1 the other way round (the book's transposed matrix)."""


@dataclass(slots=True)
class Star:
    """What a tenant holds. ``spares`` are those of its units that stand by."""

    kind: Kind
    units: set[Unit]
    spares: set[Unit] = field(default_factory=set)


class Cube:
    """``sizes``: L2 switches of a pod, leaves of a pod, pods. ``missing`` units are not there.

    Trimmed fat-trees are smaller cubes, incomplete ones have missing units (section 3.5).
    Every change leaves every tenant a star; one that would not is refused as a whole.
    """

    def __init__(self, sizes: tuple[int, int, int], missing: Iterable[Unit] = ()) -> None:
        if len(sizes) != 3 or min(sizes) < 1:
            raise InvalidInput(
                "sizes", sizes, "give three of at least 1: L2 switches, leaves, pods"
            )
        self.sizes = sizes
        self.stars: dict[str, Star] = {}
        self.owner: dict[Unit, str] = {}
        self.missing: set[Unit] = set()
        self.reserved: set[Unit] = set()
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
        self.free_pods = [[(1 << pods) - 1] * sizes[1] for _ in range(sizes[0])]
        """[i][j] -> mask of the pods in which that unit is free: the book's MirrorUnits."""
        self.somewhere = [[(1 << size) - 1] * other for size, other in (lengths, lengths[::-1])]
        """[orientation][line] -> the places that are free in some pod."""
        self.mobile = [lines(full=False) for _ in range(3)]
        """[axis] -> the units that their tenants may move along that axis."""
        self.room = [sizes[0] * sizes[1]] * pods
        """Free units of each pod."""
        for unit in set(missing):
            self.lose(unit)

    def __contains__(self, unit: Unit) -> bool:
        return all(0 <= x < size for x, size in zip(unit, self.sizes, strict=True))

    def units(self) -> Iterable[Unit]:
        """All units, missing ones included, pod by pod."""
        i, j, k = map(range, self.sizes)
        return (Unit(a, b, c) for c, b, a in product(k, j, i))

    def is_free(self, unit: Unit) -> bool:
        return unit in self and bool(self.free[0][unit.k][unit.j] >> unit.i & 1)

    def copy(self) -> Cube:
        """Another ledger in the same state."""
        other = Cube(self.sizes)
        other.stars = {
            tenant: Star(star.kind, set(star.units), set(star.spares))
            for tenant, star in self.stars.items()
        }
        other.owner = dict(self.owner)
        other.missing, other.reserved = set(self.missing), set(self.reserved)
        other.free = _copied(self.free)
        other.free_pods = [list(row) for row in self.free_pods]
        other.somewhere = [list(masks) for masks in self.somewhere]
        other.mobile = [_copied(lines) for lines in self.mobile]
        other.room = list(self.room)
        return other

    # -- tenants --------------------------------------------------------------

    def claim(
        self,
        tenant: str,
        units: Collection[Unit],
        spares: Collection[Unit] = (),
        kind: Kind | None = None,
    ) -> None:
        """Give a new tenant a star of free units, some of which (``spares``) only stand by.

        Raises:
            InvalidInput: the units form no star (of that kind), or spares are not among them.
            DoubleClaim: the tenant has a star, or a unit is not free.
        """
        found = kind_of(units)
        if found is None or len(set(units)) != len(units) or kind not in (None, found):
            raise InvalidInput(
                "units", sorted(units), "give different units on one line of the cube"
            )
        if not set(spares) < set(units):
            raise InvalidInput("spares", sorted(spares), "give some of the star's units, not all")
        if tenant in self.stars:
            raise DoubleClaim(f"tenant {tenant} has a star already")
        for unit in units:
            self._must_be_free(unit)
        self.stars[tenant] = Star(found, set(units), set(spares))
        for unit in units:
            self._take(unit)
            self._own(tenant, unit)

    def release(self, tenant: str) -> None:
        """Raises: NotFound: the tenant has no star."""
        self.shrink(tenant, set(self.star(tenant).units))

    def shrink(self, tenant: str, units: Collection[Unit]) -> None:
        """Take units from a tenant. One left is of kind S; with none left the tenant is gone.

        Raises:
            NotFound: the tenant has no star, or not these units.
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
            self._mark(star, False)
            star.kind = Kind.S
            self._mark(star, True)

    def star(self, tenant: str) -> Star:
        """Raises: NotFound: the tenant has no star."""
        found = self.stars.get(tenant)
        if found is None:
            raise NotFound("tenant", tenant)
        return found

    # -- moves ----------------------------------------------------------------

    def begin(self, move: Move) -> None:
        """Let the tenant hold the target beside the source.

        Raises:
            InvalidInput: the tenant would be no star, or does not hold the source.
            DoubleClaim: the target is not free.
        """
        star = self.star(move.tenant)
        after = star.units | {move.target}
        if move.source not in star.units or kind_of(after) not in (star.kind, *_OTHERS[star.kind]):
            raise InvalidInput("move", move, f"{move.tenant} is a star of kind {star.kind.name}")
        self._must_be_free(move.target)
        self._take(move.target)
        self._own(move.tenant, move.target)

    def finish(self, move: Move) -> None:
        """Free the source; a spare moves as one."""
        star = self.star(move.tenant)
        if move.source in star.spares:
            star.spares.add(move.target)
        self._disown(move.tenant, move.source)
        self._free(move.source)

    def move(self, move: Move) -> None:
        """Raises: as ``begin``."""
        self.begin(move)
        self.finish(move)

    def admit(self, plan: Plan) -> None:
        """Make the moves of a plan that was made for this state, and the claim."""
        for move in plan.moves:
            self.move(move)
        self.claim(plan.tenant, plan.units)

    # -- what nobody owns -----------------------------------------------------

    def reserve(self, unit: Unit) -> None:
        """Keep a free unit as a backup that several tenants share.

        Raises:
            DoubleClaim: it is not free.
        """
        self._must_be_free(unit)
        self._take(unit)
        self.reserved.add(unit)

    def unreserve(self, unit: Unit) -> None:
        self.reserved.remove(unit)
        self._free(unit)

    def lose(self, unit: Unit) -> None:
        """A unit that nobody owns is missing from now on.

        Raises:
            DoubleClaim: it has an owner, who must leave it first (``backups.fail_over``).
        """
        if unit in self.reserved:
            self.unreserve(unit)
        self._must_be_free(unit)
        self._take(unit)
        self.missing.add(unit)

    def regain(self, unit: Unit) -> None:
        """A missing unit is back."""
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
            self.somewhere[0][j] &= ~(1 << i)
            self.somewhere[1][i] &= ~(1 << j)
        self.room[k] -= 1

    def _free(self, unit: Unit) -> None:
        i, j, k = unit
        self.free[0][k][j] |= 1 << i
        self.free[1][k][i] |= 1 << j
        self.free_pods[i][j] |= 1 << k
        self.somewhere[0][j] |= 1 << i
        self.somewhere[1][i] |= 1 << j
        self.room[k] += 1

    def _own(self, tenant: str, unit: Unit) -> None:
        star = self.stars[tenant]
        star.units.add(unit)
        self.owner[unit] = tenant
        self._set_mobile(star.kind, unit, True)

    def _disown(self, tenant: str, unit: Unit) -> None:
        star = self.stars[tenant]
        star.units.remove(unit)
        star.spares.discard(unit)
        del self.owner[unit]
        self._set_mobile(star.kind, unit, False)

    def _mark(self, star: Star, on: bool) -> None:
        for unit in star.units:
            self._set_mobile(star.kind, unit, on)

    def _set_mobile(self, kind: Kind, unit: Unit, on: bool) -> None:
        i, j, k = unit
        for axis in kind.value:
            by_leaf, by_l2 = self.mobile[axis][0][k], self.mobile[axis][1][k]
            if on:
                by_leaf[j] |= 1 << i
                by_l2[i] |= 1 << j
            else:
                by_leaf[j] &= ~(1 << i)
                by_l2[i] &= ~(1 << j)


def _copied(lines: Lines) -> Lines:
    return [[list(masks) for masks in pods] for pods in lines]


_OTHERS: Mapping[Kind, tuple[Kind, ...]] = {
    Kind.E: (),
    Kind.A: (),
    Kind.C: (),
    Kind.S: (Kind.E, Kind.A, Kind.C),
}
"""What a star may look like while it holds source and target."""
