# SPDX-License-Identifier: Apache-2.0

"""What an answer consists of: moves in at most two time slots, and the units then free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from laas_service.domain.errors import InvalidInput
from laas_service.domain.stars.units import Kind, Unit


class Move(NamedTuple):
    """An atomic reallocation (Definition 3.14): a tenant gives ``source`` up for ``target``.

    Both lie on one line along ``axis``. The tenant holds both while its server moves, over
    links of these two units alone, so moves of disjoint units may run at once.
    """

    tenant: str
    source: Unit
    target: Unit

    @property
    def axis(self) -> int:
        return next(axis for axis in range(3) if self.source[axis] != self.target[axis])

    @property
    def migrates(self) -> bool:
        """Whether a server moves: not where the leaf stays, which only changes the way up."""
        return self.axis != Kind.E.axis


@dataclass(frozen=True, slots=True)
class Plan:
    """Room for a star of ``kind`` at ``units`` after ``slots`` of moves.

    The moves of a slot are independent: they may run at once or in any order. A slot is
    begun when the one before it has ended.
    """

    tenant: str
    kind: Kind
    units: tuple[Unit, ...]
    slots: tuple[tuple[Move, ...], ...] = ()

    @property
    def moves(self) -> Iterator[Move]:
        """All moves in an order in which they may also run one by one."""
        return (move for slot in self.slots for move in slot)


@dataclass(frozen=True, slots=True)
class StarRequest:
    """A star of ``size`` units wanted for one tenant.

    ``kind`` E or A is what the tenant prefers, S only for one unit, C asks for units of
    different pods. ``across``: rather in different pods (then of kind C) than refused.

    Raises:
        InvalidInput: a size below 1, or kind S for more than one unit.
    """

    tenant: str
    size: int
    kind: Kind
    across: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidInput("size", self.size, "ask for at least 1 unit")
        if self.kind is Kind.S and self.size > 1:
            raise InvalidInput("kind", "S", "a star of several units is of kind E, A or C")
