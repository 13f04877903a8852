# SPDX-License-Identifier: Apache-2.0

"""The published tables are those that the present code makes, as far as minutes can tell.

``python -m research_tests.published`` makes all of them again.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from laas_research import papers
from laas_research.command import sections
from laas_research.experiments import EXPERIMENTS, adaptive_fit, figures
from laas_service.domain.policies import PLANNING
from laas_service.simulator import report
from laas_service.simulator.metrics import BANDS
from laas_service.simulator.scenario import Scenario, describe, full_tree, run
from laas_service.simulator.workload import RUNTIME, Exponential
from research_tests.published import PUBLISHED, ROOT

SMALL = {
    "adaptive-fit": 0.12,
    "chosen-routes": 0.02,
    "kraken": 0.0015,
    "kraken-routed": 0.0015,
    "starcube": 0.17,
    "svc": 0.02,
    "svc-routed": 0.02,
}
"""Sizes of experiments that take seconds."""


class Table:
    """A list-table: its title, heading and rows, and the paragraph after it."""

    def __init__(self, text):
        title, _, rest = text.partition("\n   :header-rows: 1\n")
        rows = re.findall(r"^   \* -.*(?:\n     -.*)*", rest, re.MULTILINE)
        cells = [[x.strip() for x in re.findall(r" -(.*)", row)] for row in rows]
        self.title = title.strip()
        self.heading, *self.rows = map(tuple, cells)
        self.reason = rest.rpartition("\n     -")[2].partition("\n")[2].strip()


def tables(text):
    return [Table(part) for part in text.split(".. list-table::")[1:]]


def without_numbers(text):
    return re.sub(r"[0-9]+", "N", text)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_page_names_the_commands_and_includes_the_tables(name):
    published = PUBLISHED[name]
    page = (ROOT / published.page).read_text()
    assert all(f"   {command}\n" in page for command in published.commands)
    assert f".. include:: {published.path.name}\n" in page


def test_every_file_of_results_can_be_made_again():
    places = (ROOT / "doc" / "source", ROOT / "research" / "doc")
    included = {path.relative_to(ROOT) for at in places for path in at.rglob("*-results.inc")}
    assert included == {Path(published.file) for published in PUBLISHED.values()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_tables_of_an_experiment_have_the_texts_of_its_code(name):
    """A small run has the same figures, curves, remarks and values of the paper."""
    experiment = EXPERIMENTS[name]
    results = [trial.run() for trial in experiment.trials(1, 1, SMALL[name])]
    made = tables(figures.rst(experiment.figures(results)))
    published = tables(PUBLISHED[name].path.read_text())
    assert [without_numbers(x.title) for x in published] == [without_numbers(x.title) for x in made]
    for shown, ours in zip(published, made, strict=True):
        assert (shown.heading, shown.reason) == (ours.heading, ours.reason)
        assert list(dict.fromkeys(row[1] for row in shown.rows)) == list(
            dict.fromkeys(row[1] for row in ours.rows)
        )
        paper = {row[:2]: row[2] for row in ours.rows}
        assert all(row[2] == paper.get(row[:2], row[2]) for row in shown.rows)


def test_a_point_of_adaptive_fit_has_its_published_value():
    machines = min(adaptive_fit.SIZES)
    trials = EXPERIMENTS["adaptive-fit"].trials(1, EXPERIMENTS["adaptive-fit"].runs, 1.0)
    results = [
        trial.run()
        for trial in trials
        if isinstance(trial, adaptive_fit.Consolidation) and trial.machines == machines
    ]
    published = tables(PUBLISHED["adaptive-fit"].path.read_text())
    for title, of in (("Figure 5.1", "migration"), ("Figure 5.2", "hosting")):
        (table,) = (x for x in published if x.title.startswith(f"{title}:"))
        for method in adaptive_fit.METHODS:
            values = [result[of] for result in results if result["method"] == method]
            mean = sum(values) / len(values)
            percent = 100 * mean if of == "migration" else 100 / mean
            (shown,) = (row[3] for row in table.rows if row[:2] == (str(machines), method))
            assert shown == f"{percent:.1f}"


# -- the figures of LaaS and Jigsaw -------------------------------------------


def results_without_runs():
    """A result for every scenario of the suite, whose measures are all 1."""
    scenarios = [x for section in papers.suite("papers", Path()) for x in section.scenarios()]
    measures = ("utilization", "makespan", "turnaround_mean", "turnaround_mean_large")
    return [
        {
            "policy": scenario.policy,
            "scenario": describe(scenario),
            **dict.fromkeys(measures, 1.0),
            "call_us": {"mean": 1.0},
            "calls": 1,
            "jobs": 1,
            "instantaneous": dict.fromkeys(BANDS, 1.0),
        }
        for scenario in scenarios
    ]


def test_the_tables_of_the_papers_have_the_rows_of_their_code():
    made = tables(report.rst(results_without_runs(), sections()))
    published = tables(PUBLISHED["papers"].path.read_text())
    assert [(x.title, x.heading) for x in published] == [(x.title, x.heading) for x in made]
    for shown, ours in zip(published, made, strict=True):
        assert [row[:3] for row in shown.rows] == [row[:3] for row in ours.rows]
        assert all(row[3] for row in shown.rows)


@pytest.mark.parametrize("policy", ["baseline", "simple", "laas"])
def test_a_run_of_the_papers_has_its_published_utilization(policy):
    label = "Figure 9: mean 20"
    (scenario,) = (
        scenario
        for scenario in papers.figure_9(Path()).scenarios()
        if (scenario.label, scenario.policy) == (label, policy)
    )
    (table,) = (
        table
        for table in tables(PUBLISHED["papers"].path.read_text())
        if table.title.startswith("Utilization, FIFO")
    )
    (shown,) = (row[3] for row in table.rows if row[:2] == ("mean 20", policy))
    assert shown == f"{run(scenario)['utilization']:.1f}"


@pytest.mark.parametrize("name", papers.SUITES)
def test_the_suites_are_runnable_scenarios(name, tmp_path):
    scenarios = [x for section in papers.suite(name, tmp_path) for x in section.scenarios()]
    assert scenarios
    assert len({(x.label, x.policy) for x in scenarios}) == len(scenarios)
    assert all(x.policy in PLANNING for x in scenarios)


def test_reports_compare_with_what_the_papers_print():
    result = run(Scenario("jigsaw", full_tree(8), Exponential(10, 300), runtime=RUNTIME))
    shown = [
        {**result, "policy": policy, "scenario": {**result["scenario"], "label": label}}
        for policy in ("baseline", "jigsaw")
        for label in ("Figure 6: Thunder", "Figure 8: Thunder, none", "Figure 8: Thunder, 5")
        if (policy, label) != ("baseline", "Figure 8: Thunder, 5")
    ]
    shown[-1] = {**shown[-1], "makespan": 0.9 * result["makespan"]}
    table = report.rst(shown, sections())
    assert "95 to 96" in table.replace(".0", "")
    assert "   * - Thunder, 5\n     - jigsaw\n     -\n     - 0.90\n" in table
    page = report.html(shown, sections())
    assert page.count("<svg") == page.count("</svg>") > 3
    assert "http" not in re.sub(r"xmlns(:xlink)?=\"[^\"]*\"", "", page)
    assert report.text(result).startswith("policy")
