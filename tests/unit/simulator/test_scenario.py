# SPDX-License-Identifier: Apache-2.0

"""Whole simulations are reproducible, and every state is legal."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import ClassVar

import pytest

from laas_service.domain.admission.queue import Discipline, Order, Shadow
from laas_service.domain.allocation import NoFit, Refusal
from laas_service.domain.errors import InvalidInput
from laas_service.domain.policies import PLANNING
from laas_service.domain.policies.baseline import Baseline
from laas_service.domain.topology import Xgft
from laas_service.domain.verification import violations
from laas_service.simulator import report
from laas_service.simulator.scenario import TIMES, Scenario, Trace, full_tree, run
from laas_service.simulator.workload import Exponential, WholeDomains

BASE = Scenario("jigsaw", full_tree(8), Exponential(10, 300), runtime=(20, 3000))


WHOLE = Scenario(
    "jigsaw",
    Xgft((8, 4, 4), (1, 8, 1)),
    Exponential(3, 300),
    runtime=(20, 3000),
    rails=4,
    domains=WholeDomains(4),
)


@pytest.mark.parametrize("policy", ["baseline", "jigsaw", "lc"])
def test_half_of_the_jobs_ask_for_whole_domains_on_rails(policy):
    seen: set[int | None] = set()

    def watch(started, fabric):
        assert fabric.topology.rails == 4
        for id, placed in fabric.allocations.items():
            if job := asked.get(id):
                hosts = placed.hosts(fabric.topology)
                domains = {fabric.features.of(host).domains for host in hosts}
                assert (len(hosts), len(domains)) == (job.hosts, job.domains)
                seen.add(job.domains)

    scenario = replace(WHOLE, policy=policy)
    asked = {job.id: job for job in scenario.load().jobs if job.domains}
    assert 100 < len(asked) < 200
    result = run(scenario, watch=watch)
    assert (result["hosts"], result["jobs"]) == (32, 300)
    assert seen == set(range(1, 9))


def test_the_same_jobs_ask_for_as_many_hosts():
    domains = WHOLE.load().jobs
    hosts = replace(WHOLE, domains=WholeDomains(4, as_hosts=True)).load().jobs
    assert list(hosts) == [job._replace(domains=None) for job in domains]


@pytest.mark.parametrize("text", ["0", "x", "4:2", "4:", "4:x"])
def test_domains_that_are_none_are_refused(text):
    with pytest.raises(InvalidInput, match="use SIZE or SIZE:SHARE"):
        WholeDomains.parse(text)


def test_fabrics_that_have_no_such_rails_or_domains_are_refused():
    with pytest.raises(InvalidInput, match="give a divisor of the 4 pods"):
        replace(WHOLE, rails=3).load()
    with pytest.raises(InvalidInput, match="give at most 32"):
        replace(WHOLE, domains=WholeDomains(33)).load()


def without_times(result):
    return json.dumps({key: value for key, value in result.items() if key not in TIMES})


@pytest.mark.parametrize("policy", sorted(PLANNING))
def test_the_same_seed_gives_the_same_bytes(policy):
    scenario = replace(
        BASE, policy=policy, speedup="random", discipline=Discipline(order=Order.BIG_FIRST)
    )
    first = without_times(run(scenario))
    assert without_times(run(scenario)) == first
    assert without_times(run(replace(scenario, seed=2))) != first


@pytest.mark.parametrize("shadow", Shadow)
@pytest.mark.parametrize("order", Order)
def test_every_job_runs_whatever_the_rules(shadow, order):
    result = run(replace(BASE, discipline=Discipline(shadow=shadow, order=order)))
    assert result["jobs"] == 300
    assert result["turnaround_mean"] is not None
    assert sum(result["instantaneous"].values()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("policy", ["laas", "jigsaw", "lc-s"])
def test_every_state_on_the_way_is_legal(policy, packing):
    def watch(started, fabric):
        if started % 50 == 0:
            assert not violations(fabric.topology, fabric.allocations.values(), Random(1))

    run(replace(BASE, policy=policy, discipline=Discipline(packing=packing)), watch=watch)


def test_jobs_need_one_of_four_shares_where_links_are_shared():
    jobs = replace(BASE, policy="lc-s").load().jobs
    assert {job.bandwidth for job in jobs} == {100_000, 200_000, 300_000, 400_000}
    assert jobs == replace(BASE, policy="lc-s").load().jobs
    others = BASE.load().jobs
    assert [job.hosts for job in jobs] == [job.hosts for job in others]
    assert {job.bandwidth for job in others} == {None}


def test_two_pods_is_an_option_of_jigsaw_alone():
    def watch(started, fabric):
        if started % 50 == 0:
            assert not violations(fabric.topology, fabric.allocations.values(), Random(1))

    scenario = replace(BASE, policy="jigsaw", two_pods=True)
    more, less = run(scenario, watch=watch), run(replace(scenario, two_pods=False))
    assert without_times(more) != without_times(less)
    assert more["scenario"]["two_pods"]
    with pytest.raises(InvalidInput, match="option of jigsaw"):
        run(replace(scenario, policy="laas"))


class Picky(Baseline):
    """A policy that never places more than five hosts."""

    name: ClassVar[str] = "picky"

    def propose(self, fabric, request):
        if request.hosts > 5:
            return NoFit(Refusal.NO_LEGAL_SHAPE, "too large for this taste")
        return super().propose(fabric, request)


def test_jobs_that_would_wait_for_ever_are_set_aside_and_counted(tmp_path, monkeypatch):
    monkeypatch.setitem(PLANNING, "picky", Picky)
    trace = tmp_path / "jobs.csv"
    trace.write_text("1,5,0,10\n2,200,0,10\n3,6,0,10\n4,5,0,10\n")
    result = run(Scenario("picky", Xgft((8, 1, 1), (1, 0, 0)), Trace(str(trace), "csv")))
    assert (result["jobs"], result["left_out"], result["unplaceable"]) == (2, 1, 1)
    assert result["left_out_reasons"] == {"more hosts than the fabric's 8": 1}
    assert result["makespan"] == 20


def test_isolated_jobs_run_faster_and_others_do_not(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("1,8,0,1000\n")
    for policy, makespan in (("baseline", 1000), ("jigsaw", 800)):
        scenario = Scenario(policy, full_tree(8), Trace(str(trace), "csv"), speedup="20")
        assert run(scenario)["makespan"] == pytest.approx(makespan)


def test_jobs_without_run_times_are_refused(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("1,8,0\n")
    scenario = Scenario("jigsaw", full_tree(8), Trace(str(trace), "csv"))
    with pytest.raises(InvalidInput, match="runtime"):
        run(scenario)
    assert run(replace(scenario, runtime=(5, 5)))["makespan"] == 5


def run_of(policy, seed, utilization, **scenario):
    figures = {"turnaround_mean": 10.0, "wait_mean": 0.0, "makespan": None}
    return {"policy": policy, "seed": seed, "utilization": utilization, **figures,
            "scenario": {"label": "w", **scenario}}  # fmt: skip


def test_policies_are_compared_with_the_baseline_seed_by_seed():
    """Differences of -2 and -4: mean -3, interval 12.706 * 1.414 / 1.414 = 12.71."""
    results = [run_of("baseline", 1, 90.0), run_of("baseline", 2, 80.0)]
    results += [run_of("laas", 1, 88.0), run_of("laas", 2, 76.0), run_of("laas", 3, 10.0)]
    heading, base, laas = report.comparison(results)
    assert heading[:4] == ("workload", "policy", "seeds", "utilization %")
    assert base[2:4] == ("2", "85.00 ±63.53")
    assert laas[2] == "3"
    assert laas[3].startswith("58.00 ±")
    assert laas[3].endswith("(-3.00 ±12.71)")
    assert laas[-1] == "-"


def test_settings_are_compared_apart_and_told_apart():
    results = [run_of(p, 1, u, window=w) for p, u, w in
               [("baseline", 90.0, 0), ("baseline", 70.0, 50), ("laas", 80.0, 50)]]  # fmt: skip
    heading, *rows = report.comparison(results)
    assert heading[2] == "window"
    assert [row[1:5] for row in rows] == [
        ("baseline", "0", "1", "90.00"),
        ("baseline", "50", "1", "70.00"),
        ("laas", "50", "1", "80.00 (+10.00)"),
    ]
    assert "--seed 1 2 3" in report.comparison_text(results)
    assert "--policy baseline" in report.comparison_text(results[2:])


def test_the_course_of_a_run_is_drawn_as_means_over_time():
    """Utilization 100 for the first half, and 50 for a quarter: full, half and empty columns."""
    points = [[10, 100.0, 3], [50, 50.0, 0], [70, 0.0, 0], [90, 0.0, 0]]
    lines = report.drawing({"series": {"points": points}}, 27, height=4).splitlines()
    full, half = 10 * "█", 5 * "█"
    assert lines[1] == "utilization over time"
    assert lines[2:6] == [f"100 % |{full}", f"      |{full}", f"      |{full}{half}",
                          f"  0 % |{full}{half}"]  # fmt: skip
    assert lines[6].endswith("80.0 seconds")
    assert len(lines[6]) == 27
    assert report.drawing({"series": {"points": points[:1]}}, 80) == ""
