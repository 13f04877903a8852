# SPDX-License-Identifier: Apache-2.0

"""The papers' evaluations in small: reproducible figures, in the order the papers claim."""

from __future__ import annotations

from functools import cache

import pytest

from laas_service.simulator.experiments import EXPERIMENTS, figures, svc

SMALL = {"adaptive-fit": 0.12, "kraken": 0.0015, "starcube": 0.17}
every_experiment = pytest.mark.parametrize("name", SMALL)


@cache
def small(name):
    experiment = EXPERIMENTS[name]
    trials = experiment.trials(1, 1, SMALL[name])
    return {figure.name: figure for figure in experiment.figures([trial.run() for trial in trials])}


def curve(figure, name):
    return {point.x: point.ours for point in figure.curves[name]}


@every_experiment
def test_every_form_shows_every_figure(name):
    made = list(small(name).values())
    forms = figures.text(made), figures.rst(made), figures.html(name, made)
    for figure in made:
        assert all(figure.title in form for form in forms)
    assert [one["name"] for one in figures.data(made)] == [figure.name for figure in made]


@every_experiment
def test_the_same_seed_draws_the_same(name):
    first, again, other = (
        {of: value for of, value in trial.run().items() if not of.endswith("_ms")}
        for trial in (EXPERIMENTS[name].trials(seed, 1, SMALL[name])[0] for seed in (1, 1, 2))
    )
    assert first == again != other


def test_adaptive_fit_moves_less_the_lower_its_threshold_and_fills_servers_less():
    made = small("adaptive-fit")
    methods = ("AF, u = 0.9", "AF, u = 0.95", "AF, u = 1", "FFD")
    moved = [curve(made["Figure 5.1"], method)["mean"] for method in methods]
    filled = [curve(made["Figure 5.2"], method)["mean"] for method in methods]
    assert moved == sorted(moved)
    assert moved[0] < 0.5 * moved[-1]
    assert filled == sorted(filled)
    totals = made["Figure 5.3"]
    assert curve(totals, "AF, u = 0.9")[32] < curve(totals, "FFD")[32]


def test_starcube_fills_more_the_more_it_may_move_and_moves_less_the_more_leaves():
    made = small("starcube")
    for figure in ("Figure 5.4", "Figure 5.6"):
        means = [
            sum(point.ours for point in points) / len(points)
            for points in made[figure].curves.values()
        ]
        assert means[0] < means[1] <= means[2]
        assert means[2] > 90
    moved = curve(made["Figure 5.8"], "Method 2, normal")
    assert sum(moved[x] for x in (10, 20, 30)) > sum(moved[x] for x in (70, 80, 90))


def test_svc_stands_between_reserving_the_mean_and_reserving_the_percentile():
    results = [
        svc.Tenants("5", method, 1, size=0.2, taper=4).run()
        for method in ("mean-VC", "SVC (0.05)", "percentile-VC")
    ]
    completion = [result["completion"] for result in results]
    assert completion == sorted(completion)
    assert len(set(completion)) > 1


def test_kraken_moves_least_and_the_more_is_asked_the_less_is_had_for_nothing():
    made = small("kraken")
    for name in ("Figure 6 at 0", "Figure 6 at 1"):
        ours, oktopus = (curve(made[name], engine) for engine in ("Kraken", "Oktopus"))
        better = [ours[kind] > oktopus[kind] for kind in ("size", "bandwidth", "joint")]
        assert better == [name == "Figure 6 at 0"] * 3
    for kind in ("size", "bandwidth", "joint"):
        free = curve(made[f"Figure 7, {kind}"], "without migration")
        assert free[1.1] > free[2.0]
