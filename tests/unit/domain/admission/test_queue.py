# SPDX-License-Identifier: Apache-2.0

"""Queue disciplines: small examples, and properties that hold for every queue."""

from __future__ import annotations

import math
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit
from laas_service.domain.admission.queue import (
    Discipline,
    EasyQueue,
    Order,
    Reservation,
    Shadow,
    make_queue,
)
from laas_service.domain.allocation import (
    Allocation,
    ColumnShare,
    GroupShare,
    NoFit,
    Refusal,
    Request,
)
from laas_service.domain.errors import InvalidInput, NotFound
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Topology, Xgft

SMALL = Xgft((4, 2, 2), (1, 4, 2))  # 16 hosts, 4 leaves in 2 pods
FIFO = Discipline("fifo")
STRICT = Discipline(shadow=Shadow.END_BEFORE_SHADOW)
WHAT_IF = Discipline(shadow=Shadow.WHAT_IF)


def queue_of(rules, jobs, policy="baseline", tree=SMALL, ends=None, fabric=None):
    """A queue with jobs (hosts, duration) named a, b, c..."""
    queue = make_queue(fabric or Ledger(Topology(tree)), POLICIES[policy](), rules, ends)
    for name, (hosts, duration) in zip("abcdefghij", jobs, strict=False):
        queue.submit(Request(name, hosts), duration)
    return queue


def started(queue, now):
    return "".join(allocation.id for allocation in queue.step(now))


def waiting(queue):
    return "".join(waiting.request.id for waiting in queue)


def test_fifo_stops_at_the_first_that_does_not_fit():
    queue = queue_of(FIFO, [(10, 5), (8, 5), (1, 1)])
    assert started(queue, 0) == "a"
    assert waiting(queue) == "bc"
    queue.finish("a", 5)
    assert started(queue, 5) == "bc"
    assert len(queue) == 0


def test_easy_lets_a_short_request_overtake_and_keeps_the_reservation():
    queue = queue_of(STRICT, [(10, 10), (16, 5), (6, 10), (6, 11)])
    assert started(queue, 0) == "ac"  # c ends together with a, d would end later
    assert queue.reservation.time == 10
    queue.finish("a", 10)
    queue.finish("c", 10)
    assert started(queue, 10) == "b"


@pytest.mark.parametrize(("rules", "expected"), [(STRICT, "a"), (WHAT_IF, "ac")])
def test_only_what_if_lets_a_long_request_take_hosts_that_the_head_does_not_need(rules, expected):
    queue = queue_of(rules, [(10, 10), (12, 5), (4, 100)])
    assert started(queue, 0) == expected  # at 10 the head leaves 4 of 16 hosts


def test_what_if_counts_all_requests_that_run_past_the_shadow_time():
    queue = queue_of(WHAT_IF, [(10, 10), (12, 5), (3, 100), (2, 100), (1, 100)])
    assert started(queue, 0) == "ace"  # 4 hosts are spare at 10: c and e take 3 + 1


@pytest.mark.parametrize(("policy", "expected"), [("baseline", "long"), ("jigsaw", "short")])
def test_what_if_asks_for_a_legal_placement_not_for_a_number_of_hosts(policy, expected):
    """At 10 all of pod 0 is free, except its last host if "long" runs there, and pod 1 has
    one free host. Nine hosts are enough for eight and one, but the eight must be in one pod."""
    fabric = Ledger(Topology(Xgft((2, 4, 2), (1, 2, 4))))
    pod_0 = [GroupShare(0, 3, 0), GroupShare(1, 3, 0), GroupShare(2, 3, 0), GroupShare(3, 1, 0)]
    pod_1 = [GroupShare(4, 3, 0), GroupShare(5, 3, 0), GroupShare(6, 3, 0), GroupShare(7, 1, 0)]
    for id, shares in (("a", pod_0), ("b", pod_1), ("c", [GroupShare(7, 2, 0)])):
        fabric.claim(Allocation(id, 1, "by hand", tuple(shares)))
    queue = queue_of(WHAT_IF, [(8, 5)], policy, fabric=fabric, ends={"a": 10, "b": 100, "c": 10})
    queue.submit(Request("long", 1), 50)
    queue.submit(Request("short", 1), 10)
    assert started(queue, 0) == expected
    assert queue.reservation.time == 10


def test_the_window_limits_how_many_requests_behind_the_head_are_tried():
    jobs = [(15, 10), (16, 1), (2, 1), (1, 1)]
    assert started(queue_of(Discipline(window=1), jobs), 0) == "a"
    assert started(queue_of(Discipline(window=2), jobs), 0) == "ad"
    assert started(queue_of(Discipline(window=0), jobs), 0) == "a"


def test_big_first_tries_larger_requests_first():
    jobs = [(10, 10), (16, 1), (2, 5), (6, 5)]
    assert started(queue_of(WHAT_IF, jobs), 0) == "ac"
    assert started(queue_of(Discipline(order=Order.BIG_FIRST), jobs), 0) == "ad"


@pytest.mark.parametrize(("packing", "neighbour"), [(False, "early"), (True, "late")])
def test_packing_puts_requests_that_end_together_on_one_leaf(packing, neighbour):
    queue = queue_of(Discipline(packing=packing), [], "jigsaw")
    for id, hosts, duration in (("early", 3, 5), ("late", 2, 90), ("x", 1, 100)):
        queue.submit(Request(id, hosts), duration)
        queue.step(0)
    groups = {id: a.groups[0].group for id, a in queue.fabric.allocations.items()}
    assert groups["early"] != groups["late"]
    assert groups["x"] == groups[neighbour]


def test_no_request_overtakes_while_the_end_of_a_running_one_is_unknown():
    queue = queue_of(WHAT_IF, [(10, math.inf), (16, 5), (1, 1)])
    assert started(queue, 0) == "a"
    assert queue.reservation == Reservation(math.inf, None)
    queue.finish("a", 3)
    assert started(queue, 3) == "b"


def test_after_an_early_end_the_head_starts_earlier():
    queue = queue_of(WHAT_IF, [(10, 10), (6, 20), (16, 5), (1, 1)])
    assert started(queue, 0) == "ab"
    queue.finish("b", 2)
    assert started(queue, 2) == "d"
    assert queue.reservation.time == 10
    queue.finish("a", 3)
    queue.finish("d", 3)
    assert started(queue, 3) == "c"


def test_the_end_of_an_allocation_that_runs_longer_than_expected_is_unknown():
    queue = queue_of(WHAT_IF, [(10, 10), (16, 5), (1, 1)])
    assert started(queue, 0) == "ac"
    queue.finish("c", 1)
    queue.submit(Request("late", 1), 1)
    assert started(queue, 11) == ""
    assert queue.reservation.time == math.inf
    queue.finish("a", 12)
    assert started(queue, 12) == "b"


def test_a_new_queue_knows_the_ends_of_running_allocations():
    fabric = Ledger(Topology(SMALL))
    admit(POLICIES["baseline"](), fabric, Request("old", 10))
    queue = queue_of(STRICT, [(16, 5), (6, 7), (6, 8)], fabric=fabric, ends={"old": 7})
    assert started(queue, 0) == "b"
    assert queue.reservation.time == 7


def test_after_the_head_is_cancelled_the_next_request_has_its_own_reservation():
    queue = queue_of(WHAT_IF, [(10, 10), (4, 20), (16, 5), (12, 1), (1, 1)])
    assert started(queue, 0) == "abe"
    assert queue.reservation.time == 20
    queue.finish("e", 1)
    queue.cancel("c")
    queue.submit(Request("x", 1), 1)
    assert waiting(queue) == "dx"
    assert started(queue, 1) == "x"
    assert queue.reservation.time == 10
    with pytest.raises(NotFound):
        queue.cancel("c")


def test_a_negative_window_is_refused():
    with pytest.raises(InvalidInput, match="window"):
        Discipline(window=-1)


class Exhausted:
    """A policy that exhausts its search budget for one size only."""

    name: ClassVar[str] = "exhausted"
    isolating: ClassVar[bool] = False
    monotone: ClassVar[bool] = True

    def propose(self, fabric, request):
        if request.hosts == 3:
            return NoFit(Refusal.BUDGET, "the search budget is exhausted")
        return POLICIES["baseline"]().propose(fabric, request)


def test_an_exhausted_search_does_not_rule_out_larger_sizes():
    fabric = Ledger(Topology(SMALL))
    queue = EasyQueue(fabric, Exhausted(), Discipline())
    for name, hosts in (("a", 10), ("b", 12), ("c", 3), ("d", 4)):
        queue.submit(Request(name, hosts), 10)
    assert started(queue, 0) == "ad"


# -- for every queue ----------------------------------------------------------

JOBS = st.lists(
    st.tuples(st.integers(1, 16), st.integers(1, 20), st.integers(0, 30)), min_size=1, max_size=30
)
RULES = st.builds(
    Discipline,
    window=st.integers(0, 8),
    shadow=st.sampled_from(Shadow),
    order=st.sampled_from(Order),
    packing=st.booleans(),
)


class OtherSpine:
    """Places "late" on a spine of the head while "a" runs, and on another spine afterwards.

    The head needs hosts that are free when "b" has ended, and one of the two spines.
    """

    name: ClassVar[str] = "jigsaw"
    isolating: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    head = (GroupShare(0, 3, 1),), (ColumnShare(0, 0, 1),)

    def propose(self, fabric, request):
        if request.id == "head":
            groups, columns = self.head
            fits = "b" not in fabric.allocations and fabric.free_spines[0] & 1
        else:
            groups = (GroupShare(1, 1, 1),)
            columns = (ColumnShare(0, 0, 1 if "a" in fabric.allocations else 2),)
            fits = True
        if not fits:
            return NoFit(Refusal.NO_LEGAL_SHAPE, "not now")
        return Allocation(request.id, request.hosts, self.name, groups, columns)


def test_a_veto_of_one_spine_is_no_veto_of_another():
    """The placement that would delay the head and the later one differ in a spine alone."""
    fabric = Ledger(Topology(SMALL))
    fabric.claim(Allocation("a", 1, "jigsaw", (GroupShare(2, 1, 0),)))
    fabric.claim(Allocation("b", 2, "jigsaw", (GroupShare(0, 3, 1),)))
    queue = make_queue(fabric, OtherSpine(), WHAT_IF, {"a": 5, "b": 10})
    queue.submit(Request("head", 2), 5)
    queue.submit(Request("late", 1), 50)
    assert started(queue, 0) == ""
    queue.finish("a", 5)
    assert started(queue, 5) == "late"
    queue.finish("b", 10)
    assert started(queue, 10) == "head"


def replay(queue, jobs, look):
    """Run jobs (hosts, duration, arrival) to their end; calls ``look`` after each step."""
    arrivals = sorted((arrival, number) for number, (_, _, arrival) in enumerate(jobs))
    ends: dict[str, int] = {}
    starts: dict[str, int] = {}
    now = 0
    while arrivals or ends or len(queue):
        for id in [id for id, end in ends.items() if end == now]:
            queue.finish(id, now)
            del ends[id]
        while arrivals and arrivals[0][0] <= now:
            number = arrivals.pop(0)[1]
            queue.submit(Request(str(number), jobs[number][0]), jobs[number][1])
        for allocation in queue.step(now):
            assert allocation.size >= jobs[int(allocation.id)][0]
            starts[allocation.id] = now
            ends[allocation.id] = now + jobs[int(allocation.id)][1]
        look(now, queue, ends, starts)
        now += 1
        assert now < 2000, "the queue never drains"
    return starts


@pytest.mark.parametrize("policy", ["baseline", "laas", "jigsaw"])
@settings(max_examples=60, deadline=None)
@given(jobs=JOBS, rules=RULES)
def test_the_head_never_starts_after_its_first_reservation(policy, jobs, rules):
    promised: dict[str, float] = {}

    def look(now, queue, ends, starts):
        if queue.reservation is not None:
            head = next(iter(queue)).request.id
            promised.setdefault(head, queue.reservation.time)
            assert queue.reservation.time <= promised[head]

    starts = replay(queue_of(rules, [], policy), jobs, look)
    assert all(starts[id] <= time for id, time in promised.items())


@settings(max_examples=40, deadline=None)
@given(jobs=JOBS, rules=RULES)
def test_a_reservation_is_the_earliest_end_at_which_the_head_fits(jobs, rules):
    """Compared with a simple search: copy the fabric, end one allocation after another, try."""

    def look(now, queue, ends, starts):
        if queue.reservation is None:
            return
        fabric, head = queue.fabric.copy(), next(iter(queue)).request
        for id, end in sorted(ends.items(), key=lambda item: item[1]):
            assert end <= queue.reservation.time or isinstance(
                queue.policy.propose(fabric, head), Allocation
            )
            fabric.release(id)
            if end < queue.reservation.time:
                assert isinstance(queue.policy.propose(fabric, head), NoFit)

    replay(queue_of(rules, [], "jigsaw"), jobs, look)


def plain_easy(jobs, hosts, rules):
    """EASY by counting hosts, as in textbooks; start times by job number."""
    waiting: list[int] = []
    running: list[tuple[int, int]] = []
    starts: dict[str, int] = {}
    arrivals = sorted((arrival, number) for number, (_, _, arrival) in enumerate(jobs))
    free, now = hosts, 0

    def start(number):
        nonlocal free
        free -= jobs[number][0]
        running.append((now + jobs[number][1], number))
        starts[str(number)] = now

    while arrivals or waiting or running:
        for end, number in [x for x in running if x[0] == now]:
            running.remove((end, number))
            free += jobs[number][0]
        while arrivals and arrivals[0][0] <= now:
            waiting.append(arrivals.pop(0)[1])
        while waiting and jobs[waiting[0]][0] <= free:
            start(waiting.pop(0))
        if waiting:
            at_shadow, shadow = free, now
            for end, number in sorted(running):
                if at_shadow >= jobs[waiting[0]][0] and end > shadow:
                    break
                at_shadow, shadow = at_shadow + jobs[number][0], end
            extra = at_shadow - jobs[waiting[0]][0]
            window = waiting[1 : 1 + rules.window]
            if rules.order is Order.BIG_FIRST:
                window.sort(key=lambda number: -jobs[number][0])
            for number in window:
                size, run, _ = jobs[number]
                passes = now + run > shadow
                spare = rules.shadow is Shadow.WHAT_IF and size <= extra
                if size <= free and (not passes or spare):
                    extra -= size if passes else 0
                    waiting.remove(number)
                    start(number)
        now += 1
    return starts


@settings(max_examples=100, deadline=None)
@given(jobs=JOBS, rules=RULES)
def test_without_placement_rules_the_queue_is_textbook_easy(jobs, rules):
    ours = replay(queue_of(rules, []), jobs, lambda *seen: None)
    assert ours == plain_easy(jobs, 16, rules)


PODS = Xgft((3, 3, 6), (1, 3, 3))  # 54 hosts, 6 pods of 3 leaves


def remembering_nothing(ledger, without=(), beside=()):
    """A new ledger with the allocations of another, or some of them, and further ones."""
    new = Ledger(ledger.topology)
    for allocation in (*ledger.allocations.values(), *beside):
        if allocation.id not in without:
            new.claim(allocation)
    return new


def what_if_easy(jobs, tree, policy, rules):
    """EASY with legal placements that asks everything anew; allocations by job number."""
    ledger, answers, ends, now = Ledger(Topology(tree)), {}, {}, 0
    arrivals = sorted((arrival, number) for number, (_, _, arrival) in enumerate(jobs))
    waiting: list[int] = []

    def placed(number, *, fabric):
        answer = policy.propose(remembering_nothing(fabric), Request(str(number), jobs[number][0]))
        return answer if isinstance(answer, Allocation) else None

    def start(allocation):
        ledger.claim(allocation)
        answers[allocation.id] = now, allocation
        ends[allocation.id] = now + jobs[int(allocation.id)][1]

    def shadow_of(head):
        for end in sorted(set(ends.values())):
            gone = [id for id in ends if ends[id] <= end]
            if placed(head, fabric=remembering_nothing(ledger, gone)):
                return end
        raise AssertionError("the head fits nowhere")

    while arrivals or waiting or ends:
        for id in [id for id, end in ends.items() if end == now]:
            ledger.release(id)
            del ends[id]
        while arrivals and arrivals[0][0] <= now:
            waiting.append(arrivals.pop(0)[1])
        while waiting and (head := placed(waiting[0], fabric=ledger)):
            waiting.pop(0)
            start(head)
        window = waiting[1 : 1 + rules.window]
        shadow = shadow_of(waiting[0]) if window else now
        if rules.order is Order.BIG_FIRST:
            window.sort(key=lambda number: -jobs[number][0])
        for number in window:
            candidate = placed(number, fabric=ledger)
            if candidate is None:
                continue
            if now + jobs[number][1] > shadow:
                gone = [id for id in ends if ends[id] <= shadow]
                then = remembering_nothing(ledger, gone, [candidate])
                if rules.shadow is Shadow.END_BEFORE_SHADOW or not placed(waiting[0], fabric=then):
                    continue
            waiting.remove(number)
            start(candidate)
        now += 1
    return answers


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shadow", Shadow)
@pytest.mark.parametrize("policy", ["laas", "jigsaw"])
def test_what_the_queue_remembers_changes_no_placement(policy, shadow, seed):
    rng, answers = Random(seed), dict[str, tuple[int, Allocation]]()
    sizes = [min(54, 1 + int(rng.expovariate(1 / 6))) for _ in range(100)]
    jobs = [(hosts, rng.randint(1, 40), rng.randint(0, 99)) for hosts in sizes]
    rules = Discipline(window=40, shadow=shadow, order=rng.choice([*Order]))

    def look(now, queue, ends, starts):
        for allocation in queue.fabric.allocations.values():
            answers.setdefault(allocation.id, (now, allocation))

    replay(queue_of(rules, [], policy, PODS), jobs, look)
    assert answers == what_if_easy(jobs, PODS, POLICIES[policy](), rules)
