# SPDX-License-Identifier: Apache-2.0

"""Adaptive Fit: the book's example decision by decision, and properties of any packing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_research.consolidation import Epoch, Why, adaptive_fit, first_fit_decreasing
from laas_service.domain.errors import InvalidInput

# Tables 2.1 and 2.2, in hundredths of a server; servers 1 to 4 are 0 to 3.
DEMANDS = {4: 49, 8: 48, 3: 47, 2: 43, 5: 35, 10: 34, 1: 15, 7: 15, 6: 13, 9: 7}
LAST = {1: 0, 9: 0, 6: 1, 8: 1, 5: 2, 10: 2, 2: 3, 3: 3, 4: 3, 7: 3}
TABLE_2_2 = [
    (4, 4, "L"),
    (8, 2, "L"),
    (3, 4, "L"),
    (2, 1, "X"),
    (5, 1, "A"),
    (10, 2, "A"),
    (1, 1, "L"),
    (7, 2, "A"),
    (6, 3, "N"),
    (9, 1, "L"),
]


def epoch(demands, last=None, servers=None, capacity=(100,)):
    some = {vm: d if isinstance(d, tuple) else (d,) for vm, d in demands.items()}
    return Epoch(servers or len(some), capacity, some, last or {})


def test_the_book_s_example_decision_by_decision():
    chosen = adaptive_fit(epoch(DEMANDS, LAST, servers=4), saturation=1)
    found = [(vm, choice.server + 1, choice.why.value) for vm, choice in chosen.items()]
    assert found == TABLE_2_2


def test_a_lower_threshold_keeps_more_machines_where_they_are():
    def stay(saturation):
        chosen = adaptive_fit(epoch(DEMANDS, LAST, servers=10), saturation)
        return sum(choice.server == LAST[vm] for vm, choice in chosen.items())

    assert [stay(u) for u in (1, 0.7, 0)] == [5, 8, 8]


def test_first_fit_decreasing_forgets_the_past():
    packed = first_fit_decreasing(epoch({"a": 60, "b": 50, "c": 40, "d": 50}, {"a": 3}))
    assert packed == {"a": 0, "b": 1, "d": 1, "c": 0}


def test_every_resource_counts():
    demands = {"big": (90, 10), "wide": (10, 95), "small": (10, 5)}
    chosen = adaptive_fit(epoch(demands, capacity=(100, 100)), saturation=1)
    assert chosen["wide"].server != chosen["big"].server
    assert {vm: choice.why for vm, choice in chosen.items()} == {
        "wide": Why.NO_ROOM,
        "big": Why.NO_ROOM,
        "small": Why.WORST_FIT,
    }


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (lambda: epoch({"a": 101}), "demand of a"),
        (lambda: epoch({"a": -1}), "demand of a"),
        (lambda: epoch({"a": (1, 1)}), "demand of a"),
        (lambda: epoch({"a": 1}, {"a": 1}, servers=1), "last of a"),
        (lambda: epoch({"a": 0}, capacity=(0,)), "capacity"),
        (lambda: adaptive_fit(epoch({"a": 1}), 1.5), "saturation"),
        (lambda: adaptive_fit(epoch({"a": 60, "b": 60}, servers=1), 1), "servers"),
        (lambda: first_fit_decreasing(epoch({"a": 60, "b": 60}, servers=1)), "servers"),
    ],
)
def test_mistakes_are_named(wrong, field):
    with pytest.raises(InvalidInput, match=field):
        wrong()


@st.composite
def epochs(draw):
    resources = draw(st.integers(1, 3))
    amounts = st.tuples(*[st.integers(0, 20)] * resources)
    demands = dict(enumerate(draw(st.lists(amounts, max_size=12))))
    servers = max(len(demands), 1) + 3
    known = draw(st.sets(st.sampled_from(sorted(demands)))) if demands else set()
    last = {vm: draw(st.integers(0, servers - 1)) for vm in known}
    return Epoch(servers, (20,) * resources, demands, last)


def overfull(epoch, placed):
    """Servers that hold more of something than they have."""
    return [
        server
        for server in set(placed.values())
        for resource, capacity in enumerate(epoch.capacity)
        if sum(epoch.demands[vm][resource] for vm, s in placed.items() if s == server) > capacity
    ]


@given(epochs(), st.sampled_from((0, 0.5, 0.9, 1)))
def test_everybody_has_room_and_nobody_moves_without_need(epoch, saturation):
    chosen = adaptive_fit(epoch, saturation)
    placed = {vm: choice.server for vm, choice in chosen.items()}
    assert placed.keys() == epoch.demands.keys()
    assert not overfull(epoch, placed)
    for vm, choice in chosen.items():
        assert (choice.why is Why.LAST) == (choice.server == epoch.last.get(vm))
        if vm in epoch.last and choice.why is Why.LAST:
            continue
        before = list(chosen)[: list(chosen).index(vm)]
        then = {other: placed[other] for other in before}
        on, last = set(then.values()), epoch.last.get(vm)
        if last in on:
            assert overfull(epoch, {**then, vm: last})
        if choice.why is Why.NO_ROOM:
            assert all(overfull(epoch, {**then, vm: server}) for server in on)
    assert not overfull(epoch, first_fit_decreasing(epoch))


@given(epochs())
def test_unsaturated_servers_are_never_joined_by_another_while_there_is_room(epoch):
    """At u = 1 a server is switched on despite room elsewhere only if all in use are needed."""
    chosen = adaptive_fit(epoch, 1)
    total = max(
        (sum(d[r] for d in epoch.demands.values()) / c for r, c in enumerate(epoch.capacity)),
        default=0,
    )
    on = set[int]()
    for choice in chosen.values():
        if choice.why is Why.SATURATED:
            assert len(on) + 1 < total
        on.add(choice.server)
