# SPDX-License-Identifier: Apache-2.0

"""StarCube, checked by an independent judge: each tenant is a star after every step."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_research.stars.backups import Backup, fail_over, reserve_shared, unprotected
from laas_research.stars.cube import Cube
from laas_research.stars.plan import Move, Plan, StarRequest
from laas_research.stars.scap import Method, propose
from laas_research.stars.units import Kind, Unit, kind_of
from laas_service.domain.allocation import NoFit, Refusal
from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound
from research_tests.stars import judge

SIZES = [(3, 3, 4), (4, 4, 1), (2, 3, 3), (4, 2, 5), (1, 3, 2)]
seeds = given(st.integers(0, 10**6))
histories = settings(deadline=None, max_examples=25)


def room(cube, request, method=Method.ACROSS_PODS):
    return propose(cube, request, method)


def closed(cube):
    return cube.missing | cube.reserved


def holdings(cube):
    return {tenant: set(map(tuple, star.units)) for tenant, star in cube.stars.items()}


def judged(cube):
    """The judge finds no violation, and the masks agree with the owners."""
    assert judge.wrong(cube.sizes, holdings(cube), closed(cube)) == []
    for unit in cube.units():
        i, j, k = unit
        free = unit not in cube.owner and unit not in closed(cube)
        masks = cube.free[0][k][j] >> i, cube.free[1][k][i] >> j, cube.free_pods[i][j] >> k
        assert [mask & 1 for mask in masks] == [free] * 3
        owner = cube.owner.get(unit)
        may = cube.stars[owner].kind.value if owner else ()
        assert owner is None or unit in cube.stars[owner].units
        for axis in range(3):
            by_leaf, by_l2 = cube.mobile[axis][0][k][j] >> i, cube.mobile[axis][1][k][i] >> j
            assert by_leaf & 1 == by_l2 & 1 == (axis in may)
    for k, room in enumerate(cube.room):
        assert room == sum(mask.bit_count() for mask in cube.free[0][k])
    for star in cube.stars.values():
        assert star.kind is kind_of(star.units)
        assert star.spares < star.units


def random_request(rng, cube, name):
    kind = rng.choice((Kind.E, Kind.A, Kind.A, Kind.E, Kind.C))
    size = rng.randint(1, cube.sizes[kind.axis])
    return StarRequest(name, size, Kind.S if size == 1 else kind, rng.random() < 0.7)


def carried_out(cube, request, plan, rng):
    """Judge the state after every step of a plan, in random order, then admit the plan."""
    before = holdings(cube)
    state = dict(before)
    assert len(plan.slots) <= 2
    assert len(list(plan.moves)) <= 2 * request.size
    for said in judge.steps(plan.slots, state, rng):
        assert not said
        assert judge.wrong(cube.sizes, state, closed(cube)) == []
    for tenant, units in state.items():
        hubs = [set.intersection(*map(judge.switches, x)) for x in (before[tenant], units)]
        assert len(units) == len(before[tenant])
        assert len(units) == 1 or hubs[0] == hubs[1]
    cube.admit(plan)
    assert {t: u for t, u in holdings(cube).items() if t != request.tenant} == state
    assert len(cube.star(request.tenant).units) == request.size
    assert cube.star(request.tenant).kind in ((plan.kind,) if request.size > 1 else (Kind.S,))
    assert plan.kind in ((request.kind, Kind.C) if request.across else (request.kind, Kind.S))


def some_change(cube, rng, number):
    what = rng.choice(["ask"] * 8 + ["release", "shrink", "lose", "regain", "reserve", "fail"])
    tenants = sorted(cube.stars)
    if what == "ask":
        request = random_request(rng, cube, f"t{number}")
        before = holdings(cube)
        answer = room(cube, request, rng.choice(list(Method)))
        assert holdings(cube) == before
        if isinstance(answer, Plan):
            carried_out(cube, request, answer, rng)
    elif what == "release" and tenants:
        cube.release(rng.choice(tenants))
    elif what == "shrink" and tenants:
        tenant = rng.choice(tenants)
        units = sorted(cube.star(tenant).units)
        cube.shrink(tenant, rng.sample(units, rng.randint(1, len(units))))
    elif what == "fail" and cube.owner:
        failed = rng.choice(sorted(cube.owner))
        tenant, size = cube.owner[failed], len(cube.star(cube.owner[failed]).units)
        substitute = fail_over(cube, failed)
        if substitute is None:
            assert failed in cube.owner
        else:
            assert failed in cube.missing
            assert len(cube.star(tenant).units) == size - (substitute.backup is Backup.DEDICATED)
    elif what == "regain" and cube.missing:
        cube.regain(rng.choice(sorted(cube.missing)))
    elif what in ("lose", "reserve"):
        unit = rng.choice(list(cube.units()))
        if cube.is_free(unit):
            (cube.lose if what == "lose" else cube.reserve)(unit)


@pytest.mark.parametrize("sizes", SIZES)
@histories
@seeds
def test_every_tenant_is_a_star_of_its_own_after_every_step_of_every_plan(sizes, seed):
    rng = Random(seed)
    cube = Cube(sizes, [unit for unit in Cube(sizes).units() if rng.random() < 0.1])
    for number in range(40):
        some_change(cube, rng, number)
        judged(cube)


def some_full(sizes, rng, free):
    """A cube filled with random stars; then random units are freed until ``free`` are free."""
    cube = Cube(sizes)
    for number in range(60):
        answer = room(cube, random_request(rng, cube, f"t{number}"), Method.EVERY_POD)
        if isinstance(answer, Plan):
            cube.admit(answer)
    while sum(cube.room) < free:
        unit = rng.choice(sorted(cube.owner))
        cube.shrink(cube.owner[unit], [unit])
    return cube


def found_and_possible(sizes, methods, kinds, allowed, states=40):
    """In random states, the number of requests that each method places, and the number that
    have room after two slots of moves along the axes ``allowed``."""
    rng, found, possible = Random(1), [0] * len(methods), 0
    for _ in range(states):
        cube = some_full(sizes, rng, rng.randint(2, 4))
        for kind in kinds:
            most = judge.roomiest(sizes, holdings(cube), set(), kind.axis, allowed)
            for size in range(2, cube.sizes[kind.axis] + 1):
                request = StarRequest("new", size, kind)
                fits = [isinstance(propose(cube, request, method), Plan) for method in methods]
                assert size <= most or not any(fits)
                found = [n + fit for n, fit in zip(found, fits, strict=True)]
                possible += size <= most
    return [*found, possible]


@pytest.mark.parametrize("sizes", [(3, 3, 1), (4, 3, 1), (3, 5, 1)])
def test_within_a_pod_no_plan_of_two_slots_is_missed(sizes):
    found, possible = found_and_possible(sizes, [Method.WITHIN_POD], (Kind.E, Kind.A), (0, 1))
    assert found == possible > 100


@pytest.mark.parametrize(
    ("methods", "kinds", "counts"),
    [
        ([Method.WITHIN_POD], [Kind.E, Kind.A], [111, 114]),
        ([Method.ACROSS_PODS, Method.EVERY_POD], [Kind.E, Kind.A, Kind.C], [182, 248, 289]),
    ],
    ids=["moves within pods", "all moves"],
)
def test_across_pods_as_many_are_missed_as_the_documentation_says(methods, kinds, counts):
    axes = [kind.axis for kind in kinds]
    found = [found_and_possible(sizes, methods, kinds, axes) for sizes in ((3, 3, 2), (2, 2, 4))]
    assert list(map(sum, zip(*found, strict=True))) == counts


def whole(cube, tenant, kind, *places):
    units = [Unit(*place) for place in places]
    cube.claim(tenant, units, kind=kind)
    return units


def test_two_moves_the_one_in_the_way_first():
    """Figure 4.1: a star of type E makes room in its leaf, then one of type A moves there."""
    cube = Cube((3, 2, 1))
    whole(cube, "a", Kind.A, (0, 0, 0), (0, 1, 0))
    cube.shrink("a", [Unit(0, 1, 0)])
    whole(cube, "e", Kind.E, (0, 1, 0), (1, 1, 0))
    plan = room(cube, StarRequest("new", 3, Kind.E), Method.WITHIN_POD)
    assert plan.slots == (
        (Move("e", Unit(0, 1, 0), Unit(2, 1, 0)),),
        (Move("a", Unit(0, 0, 0), Unit(0, 1, 0)),),
    )
    assert [move.migrates for move in plan.moves] == [False, True]


def test_the_first_method_moves_nobody_and_the_third_may_lie_across_pods():
    cube = Cube((2, 2, 3))
    for k in range(3):
        whole(cube, f"e{k}", Kind.E, (0, 0, k), (1, 0, k))
    request = StarRequest("new", 3, Kind.E, across=True)
    assert isinstance(room(cube, request, Method.FIRST_FIT), NoFit)
    assert isinstance(room(cube, request, Method.WITHIN_POD), NoFit)
    plan = room(cube, request, Method.ACROSS_PODS)
    assert plan.kind is Kind.C
    assert isinstance(room(cube, StarRequest("new", 3, Kind.E), Method.ACROSS_PODS), NoFit)


def test_exactly_as_many_pods_as_asked_are_enough():
    """Table A.3 prints Num(i, j) > n, which would refuse this request."""
    plan = room(Cube((2, 2, 4)), StarRequest("new", 4, Kind.C))
    assert len({unit.k for unit in plan.units}) == 4


def test_no_says_which_limit_was_hit():
    cube = Cube((2, 2, 1))
    assert room(cube, StarRequest("new", 3, Kind.E)).reason is Refusal.NO_LEGAL_SHAPE
    cube.claim("a", [Unit(0, 0, 0)])
    cube.claim("b", [Unit(1, 1, 0)])
    assert room(cube, StarRequest("new", 3, Kind.E)).reason is Refusal.TOO_FEW_HOSTS


@pytest.mark.parametrize(
    ("sizes", "kept"), [((4, 4, 8), 32), ((3, 4, 7), 28), ((4, 3, 2), 12), ((5, 5, 1), 25)]
)
def test_shared_backups_are_on_every_line_and_no_more_than_needed(sizes, kept):
    cube = Cube(sizes)
    units = set(map(tuple, reserve_shared(cube)))
    assert len(units) == kept == sizes[0] * sizes[1] * sizes[2] // min(sizes)
    assert all(line & units for axis in range(3) for line in judge.lines(sizes, axis))


def test_a_spare_comes_first_then_a_shared_backup_then_any_free_unit():
    cube = Cube((4, 2, 2))
    units = whole(cube, "e", Kind.E, (0, 0, 0), (1, 0, 0))
    cube.release("e")
    cube.claim("e", units, spares=units[1:])
    cube.reserve(Unit(3, 0, 0))
    other = whole(cube, "c", Kind.C, (0, 1, 0), (0, 1, 1))
    assert unprotected(cube) == ["c"]
    assert fail_over(cube, units[0]) == (units[1], Backup.DEDICATED)
    assert fail_over(cube, units[1]) == (Unit(3, 0, 0), Backup.SHARED)
    assert fail_over(cube, Unit(3, 0, 0)) == (Unit(2, 0, 0), Backup.FREE)
    assert fail_over(cube, other[0]) is None
    assert cube.owner[other[0]] == "c"
    assert cube.missing == {*units, Unit(3, 0, 0)}
    judged(cube)


def test_a_spare_that_moves_remains_one_and_a_spare_that_fails_needs_no_other():
    cube = Cube((4, 1, 1))
    units = whole(cube, "e", Kind.E, (0, 0, 0), (1, 0, 0), (2, 0, 0))
    cube.release("e")
    cube.claim("e", units, spares=units[2:])
    cube.move(Move("e", units[2], Unit(3, 0, 0)))
    assert cube.star("e").spares == {Unit(3, 0, 0)}
    assert fail_over(cube, Unit(3, 0, 0)) == (None, Backup.DEDICATED)
    assert cube.star("e").units == set(units[:2])


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (InvalidInput, lambda cube: Cube((2, 0, 1))),
        (InvalidInput, lambda cube: StarRequest("a", 0, Kind.E)),
        (InvalidInput, lambda cube: StarRequest("a", 2, Kind.S)),
        (InvalidInput, lambda cube: cube.claim("b", [Unit(0, 0, 1), Unit(1, 1, 1)])),
        (InvalidInput, lambda cube: cube.claim("b", [Unit(0, 0, 2)])),
        (InvalidInput, lambda cube: cube.claim("b", [Unit(0, 1, 1)], spares=[Unit(0, 1, 1)])),
        (DoubleClaim, lambda cube: cube.claim("b", [Unit(0, 0, 0)])),
        (DoubleClaim, lambda cube: cube.claim("a", [Unit(0, 1, 1)])),
        (DoubleClaim, lambda cube: cube.move(Move("c", Unit(0, 1, 0), Unit(0, 0, 0)))),
        (InvalidInput, lambda cube: cube.move(Move("a", Unit(0, 0, 0), Unit(0, 0, 1)))),
        (InvalidInput, lambda cube: cube.move(Move("a", Unit(0, 0, 1), Unit(2, 0, 0)))),
        (DoubleClaim, lambda cube: cube.lose(Unit(0, 0, 0))),
        (NotFound, lambda cube: cube.release("b")),
        (NotFound, lambda cube: cube.shrink("a", [Unit(0, 1, 1)])),
    ],
)
def test_wrong_changes_are_refused_and_change_nothing(error, wrong):
    cube = Cube((3, 2, 2))
    whole(cube, "a", Kind.E, (0, 0, 0), (1, 0, 0))
    whole(cube, "c", Kind.S, (0, 1, 0))
    before = holdings(cube), list(cube.room)
    with pytest.raises(error):
        wrong(cube)
    assert (holdings(cube), cube.room) == before
    judged(cube)


def test_the_judge_sees_what_is_no_star_and_what_has_two_owners():
    bent = {(0, 0, 0), (1, 0, 0), (1, 1, 0)}
    assert judge.wrong((2, 2, 2), {"a": bent}) != []
    assert judge.wrong((2, 2, 2), {"a": {(0, 0, 0)}, "b": {(0, 0, 0)}}) != []
    assert judge.wrong((2, 2, 2), {"a": {(0, 0, 0)}}, closed=[(0, 0, 0)]) != []
    assert judge.wrong((2, 2, 2), {"a": {(0, 0, 2)}}) != []
