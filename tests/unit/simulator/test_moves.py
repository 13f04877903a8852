# SPDX-License-Identifier: Apache-2.0

"""Simulations that move running jobs: what is gained, what it costs, and what is reported."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from laas_service.cmd.simulate import main
from laas_service.domain.admission.queue import Discipline
from laas_service.domain.allocation import Allocation
from laas_service.simulator import report
from laas_service.simulator.moves import MovePlanner, MoveSettings
from laas_service.simulator.scenario import TIMES, Scenario, full_tree, run
from laas_service.simulator.workload import Exponential

BASE = Scenario(
    policy="jigsaw",
    tree=full_tree(6),
    source=Exponential(6, 120),
    runtime=(20, 300),
    discipline=Discipline(window=20),
)


def simulated(**settings):
    return run(replace(BASE, moves=MoveSettings(**settings)))


def test_moves_raise_utilization_and_are_counted():
    without, moved = run(BASE), simulated(most=1)
    assert moved["utilization"] > without["utilization"]
    assert 0 < moved["moves"] <= moved["jobs"]
    assert moved["moves_of_links_only"] <= moved["moves"]
    assert moved["moved_hosts"] > 0
    placed = moved["moved_hosts"] / moved["hosts_moved_per_host_placed"]
    assert placed == pytest.approx(120 * 6, rel=0.5)
    assert moved["utilization_net"] == moved["utilization"]
    assert moved["moved_slowdown"] == 1
    assert "moves" not in without


def test_reports_show_moves():
    without, moved = run(BASE), simulated(most=1, movable=0.5, cost=10)
    placed, slowdown = moved["hosts_moved_per_host_placed"], moved["moved_slowdown"]
    text = report.text(moved)
    assert f"  hosts moved     {placed} for each host placed\n" in text
    assert f"  jobs moved      {moved['moved_jobs']}, they took {slowdown:.2f} times" in text
    assert f"  net of losses   {moved['utilization_net']:.2f} % of hosts\n" in text
    page = report.html([without, moved])
    (row,) = page.partition("Moves of running jobs")[2].partition("</table>")[0].split("<tr>")[2:]
    cells = re.findall("<td>(.*?)</td>", row)
    assert cells[2:5] == ["1", "0.5", "10"]
    assert cells[5:7] == [f"{moved[key]:.2f}" for key in ("utilization", "utilization_net")]
    assert cells[7] == str(moved["moves"])
    assert cells[9:12] == [f"{placed:.2f}", str(moved["moved_jobs"]), f"{slowdown:.2f}"]
    assert "hosts moved" not in report.text(without)
    assert "Moves of running jobs" not in report.html([without])


def test_the_same_seed_moves_the_same_jobs():
    first, second = simulated(most=1, movable=0.5), simulated(most=1, movable=0.5)
    assert {k: v for k, v in first.items() if k not in TIMES} == {
        k: v for k, v in second.items() if k not in TIMES
    }


def test_moved_jobs_end_later_and_the_net_is_without_what_they_lose():
    moved = simulated(most=1, cost=10)
    assert moved["moves"]
    assert moved["moved_slowdown"] > 1
    assert moved["utilization_net"] < moved["utilization"]


def test_only_movable_jobs_move():
    assert simulated(most=1, movable=0)["moves"] == 0
    planner = MovePlanner(None, MoveSettings(1, 0.3), 1, lambda: 0)  # type: ignore[arg-type]
    jobs = [Allocation(f"j{n}", 1, "jigsaw", ()) for n in range(1000)]
    assert 250 < sum(planner.may_move(job, 1) for job in jobs) < 350


@pytest.mark.parametrize(
    ("option", "value"),
    [("--moves", "-1"), ("--moves", "x"), ("--movable", "2"), ("--move-cost", "-5")],
)
def test_a_wrong_option_is_named(option, value, capsys):
    with pytest.raises(SystemExit):
        main(["run", "--policy", "jigsaw", "--radix", "4", "--synthetic", "exp:2:5", option, value])
    assert f"argument {option}: '{value}'" in capsys.readouterr().err


def test_jobs_that_exchange_links_alone_keep_their_hosts():
    """Links alone are short where leaves are shared; nobody loses time by a change of them."""
    linked = simulated(most=2, cost=100, links_only=True)
    assert 0 < linked["moves"] == linked["moves_of_links_only"]
    assert (linked["moved_hosts"], linked["moved_jobs"]) == (0, 0)
    assert linked["utilization_net"] == linked["utilization"]


def test_a_full_repack_moves_as_many_jobs_as_it_takes():
    one, everybody = simulated(most=1), simulated(most=None)
    assert everybody["utilization"] > one["utilization"]
    assert everybody["hosts_moved_per_host_placed"] > one["hosts_moved_per_host_placed"]
    assert everybody["scenario"]["moves"]["most"] is None
    assert simulated(most=None, movable=0)["moves"] == 0


def test_links_alone_of_nobody_is_no_scenario(capsys):
    for moves in ([], ["--moves", "all"]):
        arguments = ["run", "--policy", "jigsaw", "--radix", "4", "--synthetic", "exp:2:5"]
        assert main([*arguments, "--links-only", *moves]) == 2
        assert "links-only" in capsys.readouterr().err
