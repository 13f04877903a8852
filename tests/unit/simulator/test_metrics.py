# SPDX-License-Identifier: Apache-2.0

"""Metrics of schedules that are small enough to calculate by hand."""

from __future__ import annotations

from itertools import count

import pytest

from laas_service.domain.admission.queue import Discipline, make_queue
from laas_service.domain.allocation import Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Topology, Xgft
from laas_service.simulator import metrics
from laas_service.simulator.engine import Simulation
from laas_service.simulator.metrics import Metrics, TimedPolicy
from laas_service.simulator.workload import Job, Jobs

TEN = Xgft((10, 1, 1), (1, 0, 0))


def summary(jobs, rules=None, tree=TEN, policy="baseline", **options):
    fabric = Ledger(Topology(tree))
    metrics = Metrics(fabric.topology.hosts, len(jobs), **options)
    queue = make_queue(fabric, POLICIES[policy](), rules or Discipline("fifo"))
    Simulation(queue, Jobs.of(jobs), metrics).run()
    return metrics.summary()


FIVE = [
    Job("a", 0, 6, 10),  # runs 0..10
    Job("b", 2, 4, 4),  # 2..6
    Job("c", 4, 5, 10),  # waits from 4, runs 10..20
    Job("d", 5, 2, 5),  # FIFO: 10..15
    Job("e", 12, 3, 8),  # 12..20
]


def test_five_jobs_first_come_first_served():
    figures = summary(FIVE)
    # c waits from 4, e starts last at 12: 4..6 ten busy, 6..10 six, 10..12 seven
    assert figures["utilization"] == pytest.approx(100 * (20 + 24 + 14) / (8 * 10))
    assert figures["makespan"] == 20
    assert figures["turnaround_mean"] == pytest.approx((10 + 4 + 16 + 10 + 8) / 5)
    assert figures["wait_mean"] == pytest.approx((0 + 0 + 6 + 5 + 0) / 5)
    assert figures["turnaround_mean_large"] is None
    assert figures["queue"] == {"mean": pytest.approx((1 + 2 * 5) / 8), "max": 2}


def test_five_jobs_with_backfilling():
    figures = summary(FIVE, Discipline())
    # d overtakes c at 6: it ends at 11, and at 10 the head has 8 free hosts for its 5
    assert figures["wait_mean"] == pytest.approx((0 + 0 + 6 + 1 + 0) / 5)
    assert figures["utilization"] == pytest.approx(
        100 * (2 * 10 + 4 * 8 + 1 * 7 + 1 * 5) / (8 * 10)
    )


def test_samples_are_taken_at_every_start_and_end_of_the_steady_state():
    shares = summary(FIVE)["instantaneous"]
    # b ends: 6; a ends: 0; c starts: 5; d: 7; e: 10
    assert list(shares) == [">=98", "95-97", "90-95", "80-90", "60-80", "<=60"]
    assert shares == {
        ">=98": 0.2, "95-97": 0, "90-95": 0, "80-90": 0, "60-80": 0.2, "<=60": 0.6
    }  # fmt: skip


def test_a_run_in_which_nobody_waits_is_measured_whole():
    figures = summary([Job("a", 0, 5, 10), Job("b", 10, 10, 10)])
    assert figures["utilization"] == 75
    assert sum(figures["instantaneous"].values()) == 0


def test_large_jobs_have_more_than_a_hundred_hosts():
    tree = Xgft((200, 1, 1), (1, 0, 0))
    figures = summary([Job("a", 0, 100, 7), Job("b", 0, 101, 9)], tree=tree)
    assert figures["turnaround_mean_large"] == 16


def test_hosts_rounded_up_count_as_allocated_only():
    tree = Xgft((4, 4, 2), (1, 4, 4))
    jobs = [Job("a", 0, 18, 10), Job("b", 0, 18, 10)]
    figures = summary(jobs, tree=tree, policy="laas")
    assert figures["utilization"] == pytest.approx(100 * 18 / 32, abs=1e-3)
    assert figures["utilization_allocated"] == pytest.approx(100 * 20 / 32, abs=1e-3)


def test_fragments_are_free_hosts_beyond_the_largest_fit():
    answers = iter([3, 4])
    figures = summary(FIVE, largest_fit=lambda: next(answers), fragments=2)
    assert figures["fragmentation"]["samples"] == 2


def test_the_series_is_thinned_out_but_spans_the_run():
    jobs = [Job(str(n), 0, 6, 1) for n in range(3000)]
    points = summary(jobs)["series"]["points"]
    assert 200 <= len(points) <= 401
    assert points[0][0] == 0
    assert points[-1][0] > 2900


def test_calls_are_timed_and_exhausted_searches_counted():
    ticks = iter(range(0, 100_000, 5_000))
    timed = TimedPolicy(POLICIES["jigsaw"](), lambda: next(ticks))
    assert (timed.name, timed.isolating, timed.monotone) == ("jigsaw", True, True)
    fabric = Ledger(Topology(TEN))
    timed.propose(fabric, Request("a", 2))
    timed.propose(fabric, Request("b", 20))
    assert timed.call_us() == {"mean": 5.0, "p50": 5.0, "p99": 5.0, "max": 5.0}
    assert timed.budget_hits == 0


def test_a_long_run_times_every_sixteenth_call(monkeypatch):
    monkeypatch.setattr(metrics, "ALL_TIMED", 10)
    read = count(0, 5_000)
    timed = TimedPolicy(POLICIES["jigsaw"](), lambda: next(read))
    fabric = Ledger(Topology(TEN))
    for _ in range(64):
        timed.propose(fabric, Request("a", 2))
    assert timed.calls == 64
    assert next(read) == 2 * 5_000 * (10 + 4)  # the first ten, then 16, 32, 48 and 64
    assert timed.call_us() == {"mean": 5.0, "p50": 5.0, "p99": 5.0, "max": 5.0}
