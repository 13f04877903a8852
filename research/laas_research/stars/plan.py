# SPDX-License-Identifier: Apache-2.0

"""Requests for stars, and plans: moves in at most two time slots, and the units freed by them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from laas_research.stars.units import Kind, Unit
from laas_service.domain.errors import InvalidInput


class Move(NamedTuple):
    """An atomic reallocation (Definition 3.14): a tenant gives ``source`` up for ``target``.

    Both lie on one line along ``axis``. The tenant holds both while its server moves over
    the links of these two units, so moves of disjoint units may run at the same time.
    """

    tenant: str
    source: Unit
    target: Unit

    @property
    def axis(self) -> int:
        """The index in which source and target differ."""
        return next(axis for axis in range(3) if self.source[axis] != self.target[axis])

    @property
    def migrates(self) -> bool:
        """Whether a server moves; a move along a leaf changes only the uplink."""
        return self.axis != Kind.E.axis


@dataclass(frozen=True, slots=True)
class Plan:
    """The units for a star, and the moves that free them."""

    tenant: str
    kind: Kind
    units: tuple[Unit, ...]
    """Free after all moves."""
    slots: tuple[tuple[Move, ...], ...] = ()
    """Up to two time slots. The moves of one slot may run at the same time or in any order; a
    slot begins after the slot before it has ended."""

    @property
    def moves(self) -> Iterator[Move]:
        """All moves in an order in which they may also run one by one."""
        return (move for slot in self.slots for move in slot)


@dataclass(frozen=True, slots=True)
class StarRequest:
    """A request for a star of one tenant.

    Raises:
        InvalidInput: the size is below 1, or the kind is S for more than one unit.
    """

    tenant: str
    size: int
    """Units."""
    kind: Kind
    """E or A as the tenant prefers, C for units of different pods, S only for one unit."""
    across: bool = False
    """Accept units of different pods (kind C) if no pod has room."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidInput("size", self.size, "ask for at least 1 unit")
        if self.kind is Kind.S and self.size > 1:
            raise InvalidInput("kind", "S", "a star of several units is of kind E, A or C")
