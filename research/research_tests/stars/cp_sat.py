# SPDX-License-Identifier: Apache-2.0

"""CP-SAT model: the most free units on a line after any plan of a few time slots.

The model has no moves, only the holdings between the slots. During a slot a tenant holds its
old and its new units, and together these must be a star that no other tenant touches. So
the moves of the slot can be made in any order. This module shares no code with the engine or
with the exhaustive search in ``judge``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations, product
from typing import NamedTuple

from ortools.sat.python import cp_model

Place = tuple[int, int, int]
Holdings = Mapping[str, Collection[Place]]


class Best(NamedTuple):
    """``room`` units of one line are free after the last of ``states``; the first state is the
    initial one."""

    room: int
    states: list[dict[str, set[Place]]]


def differing(a: Place, b: Place) -> list[int]:
    """The axes along which two places differ; on one line that is one axis."""
    return [axis for axis in range(3) if a[axis] != b[axis]]


class Question:
    """The model of a cube, its holdings, and the axes along which units may move."""

    def __init__(
        self,
        sizes: Place,
        holdings: Holdings,
        closed: Collection[Place],
        allowed: Collection[int],
        slots: int,
    ) -> None:
        self.model = cp_model.CpModel()
        self.slots = slots
        self.allowed = allowed
        i, j, k = map(range, sizes)
        self.open: list[Place] = [place for place in product(i, j, k) if place not in closed]
        self.holds = {
            (slot, tenant, place): self.model.new_bool_var(f"{tenant} {place} after {slot}")
            for slot in range(slots + 1)
            for tenant in holdings
            for place in self.open
        }
        for tenant, units in holdings.items():
            for place in self.open:
                self.model.add(self.holds[0, tenant, place] == int(place in units))
        for slot in range(slots):
            self._one_slot(slot, holdings)

    def move_once(self, tenant: str) -> None:
        """Let the holding of a tenant change in at most one slot."""
        stays = [self.model.new_bool_var(f"{tenant} stays in {n}") for n in range(self.slots)]
        self.model.add(sum(stays) >= self.slots - 1)
        for slot, place in product(range(self.slots), self.open):
            before, after = (self.holds[when, tenant, place] for when in (slot, slot + 1))
            self.model.add(before == after).only_enforce_if(stays[slot])

    def _one_slot(self, slot: int, holdings: Holdings) -> None:
        during = {
            (tenant, place): self.model.new_bool_var(f"{tenant} {place} in {slot}")
            for tenant in holdings
            for place in self.open
        }
        for (tenant, place), held in during.items():
            before, after = (self.holds[when, tenant, place] for when in (slot, slot + 1))
            self.model.add_max_equality(held, [before, after])
        for place in self.open:
            self.model.add_at_most_one(during[tenant, place] for tenant in holdings)
        for tenant, units in holdings.items():
            kept = [self.holds[slot + 1, tenant, place] for place in self.open]
            self.model.add(sum(kept) == len(units))
            for a, b in combinations(self.open, 2):
                self._pair(slot, tenant, during, a, b)

    def _pair(self, slot, tenant, during, a: Place, b: Place) -> None:
        """Two units of a star are on one line. If moves along that line are not allowed, the
        tenant cannot exchange one for the other."""
        axes = differing(a, b)
        if len(axes) > 1:
            self.model.add_at_most_one(during[tenant, a], during[tenant, b])
        elif axes[0] not in self.allowed:
            for x, y in ((a, b), (b, a)):
                left = [self.holds[slot, tenant, x], ~self.holds[slot + 1, tenant, x]]
                got = [~self.holds[slot, tenant, y], self.holds[slot + 1, tenant, y]]
                self.model.add_bool_or(~literal for literal in (*left, *got))

    def best(self, axis: int) -> Best:
        """The line along ``axis`` with the most free units at the end."""
        lines: dict[tuple[int, ...], list[Place]] = {}
        for place in self.open:
            lines.setdefault((*place[:axis], *place[axis + 1 :]), []).append(place)
        most = max(map(len, lines.values()), default=0)
        room = self.model.new_int_var(0, most, "room")
        chosen = []
        for line, places in lines.items():
            chosen.append(self.model.new_bool_var(f"line {line}"))
            taken = sum(
                held
                for (slot, _, place), held in self.holds.items()
                if slot == self.slots and place in places
            )
            self.model.add(room + taken <= len(places)).only_enforce_if(chosen[-1])
        self.model.add_exactly_one(chosen)
        self.model.maximize(room)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        assert solver.solve(self.model) == cp_model.OPTIMAL
        states: list[dict[str, set[Place]]] = [{} for _ in range(self.slots + 1)]
        for (slot, tenant, place), held in self.holds.items():
            states[slot].setdefault(tenant, set())
            if solver.value(held):
                states[slot][tenant].add(place)
        return Best(solver.value(room), states)


def roomiest(
    sizes: Place,
    holdings: Holdings,
    closed: Collection[Place],
    axis: int,
    allowed: Collection[int] = (0, 1, 2),
    slots: int = 2,
    once: bool = False,
) -> Best:
    """The most units of one line along ``axis`` that are free after at most ``slots`` slots of
    moves along the axes ``allowed``, with the holdings after each slot.

    ``once``: tenants of one unit move in one slot at most.
    """
    question = Question(sizes, holdings, closed, allowed, slots)
    for tenant, units in holdings.items():
        if once and len(units) == 1:
            question.move_once(tenant)
    return question.best(axis)
