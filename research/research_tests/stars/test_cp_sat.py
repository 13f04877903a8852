# SPDX-License-Identifier: Apache-2.0

"""CP-SAT agrees with the exhaustive search, and finds the plans that StarCube misses."""

from __future__ import annotations

from random import Random

import pytest

from laas_research.stars.cube import Cube
from laas_research.stars.plan import Plan, StarRequest
from laas_research.stars.scap import Method, propose
from laas_research.stars.units import Kind, Unit
from research_tests.stars import cp_sat, judge
from research_tests.stars.test_stars import holdings, some_full

WITHIN, EVERYWHERE = (Kind.E, Kind.A), (Kind.E, Kind.A, Kind.C)


def states(sizes, seed, count, free):
    """Random cubes that are nearly full, some with units that are missing."""
    rng = Random(seed)
    for _ in range(count):
        cube = some_full(sizes, rng, rng.randint(*free))
        for unit in sorted(set(cube.units()) - set(cube.owner)):
            if rng.random() < 0.15:
                cube.lose(unit)
        yield cube


def carried_out(cube, best, axis, allowed):
    """The plan of CP-SAT can be made move by move in any order, and frees as many units."""
    slots = []
    for before, after in zip(best.states, best.states[1:], strict=False):
        slots.append(
            [
                (tenant, source, target)
                for tenant in before
                for source, target in zip(
                    sorted(before[tenant] - after[tenant]),
                    sorted(after[tenant] - before[tenant]),
                    strict=True,
                )
            ]
        )
    assert all(
        any(judge.same_line(source, target, axis) for axis in allowed)
        for slot in slots
        for _, source, target in slot
    )
    held = holdings(cube)
    assert best.states[0] == held
    for said in judge.steps(slots, held, Random(1)):
        assert not said
        assert judge.wrong(cube.sizes, held, cube.missing) == []
    gone = cube.missing.union(*held.values())
    assert best.room == max(len(line - gone) for line in judge.lines(cube.sizes, axis))


def fits(cube, kind, method):
    """The sizes of stars that the engine can place."""
    return [
        size
        for size in range(2, cube.sizes[kind.axis] + 1)
        if isinstance(propose(cube, StarRequest("new", size, kind), method), Plan)
    ]


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize(
    ("sizes", "kinds"),
    [
        ((3, 3, 1), WITHIN),
        ((4, 3, 1), WITHIN),
        ((3, 5, 1), WITHIN),
        ((3, 3, 2), WITHIN),
        ((3, 3, 2), EVERYWHERE),
        ((2, 2, 4), EVERYWHERE),
    ],
)
def test_cp_sat_says_what_trying_every_plan_says(sizes, kinds, slots):
    allowed = [kind.axis for kind in kinds]
    for cube in states(sizes, 2, 6, (2, 4)):
        for axis in allowed:
            question = (sizes, holdings(cube), cube.missing, axis, allowed, slots)
            best = cp_sat.roomiest(*question)
            assert best.room == judge.roomiest(*question)
            carried_out(cube, best, axis, allowed)


@pytest.mark.parametrize("sizes", [(3, 5, 1), (4, 4, 1), (5, 5, 1), (6, 6, 1), (7, 5, 1)])
def test_within_a_pod_what_is_possible_is_found_unless_a_unit_has_to_move_twice(sizes):
    for cube in states(sizes, 3, 6, (2, 10)):
        for kind in WITHIN:
            question = (sizes, holdings(cube), cube.missing, kind.axis, (0, 1))
            best, once = cp_sat.roomiest(*question), cp_sat.roomiest(*question, once=True)
            for each in (best, once):
                carried_out(cube, each, kind.axis, (0, 1))
            found = fits(cube, kind, Method.WITHIN_POD)
            assert set(range(2, once.room + 1)) <= set(found) <= set(range(2, best.room + 1))


def test_a_unit_that_would_step_along_the_line_asked_for_and_then_out_of_it_is_not_moved():
    """The smallest case in which a plan is missed: one unit is alone and another missing."""
    cube = Cube((2, 2, 1), [Unit(0, 1, 0)])
    cube.claim("alone", [Unit(0, 0, 0)], kind=Kind.S)
    question = (cube.sizes, holdings(cube), cube.missing, Kind.E.axis, (0, 1))
    best = cp_sat.roomiest(*question)
    assert best.room == judge.roomiest(*question) == 2
    assert best.states[1:] == [{"alone": {(1, 0, 0)}}, {"alone": {(1, 1, 0)}}]
    assert cp_sat.roomiest(*question, once=True).room == 1
    assert fits(cube, Kind.E, Method.EVERY_POD) == []


@pytest.mark.parametrize("sizes", [(3, 3, 3), (4, 4, 2)])
@pytest.mark.parametrize("method", [Method.ACROSS_PODS, Method.EVERY_POD])
def test_across_pods_nothing_is_found_that_is_impossible(sizes, method):
    for cube in states(sizes, 4, 3, (3, 8)):
        for kind in EVERYWHERE:
            best = cp_sat.roomiest(sizes, holdings(cube), cube.missing, kind.axis)
            assert max(fits(cube, kind, method), default=0) <= max(best.room, 1)
