# SPDX-License-Identifier: Apache-2.0

"""The papers' evaluations in small: reproducible figures, in the order the papers claim."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from laas_research.experiments import EXPERIMENTS, figures, svc

SMALL = {
    "adaptive-fit": 0.12,
    "chosen-routes": 0.02,
    "kraken": 0.0015,
    "kraken-routed": 0.0015,
    "starcube": 0.17,
    "svc-routed": 0.02,
}
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


def test_where_links_are_summed_the_service_plans_as_kraken_does():
    for figure in small("kraken-routed").values():
        if figure.name != "Time":
            assert figure.curves["paper's tree"] == figure.curves["summed links"]
            assert figure.curves["paper's tree"] != figure.curves["routed links"]


@pytest.mark.parametrize("ground", ["summed links", "routed links"])
def test_the_rates_of_flows_on_routed_hosts_exceed_no_link(ground):
    """Each flow crosses its two machines' links and two links for each level that it climbs."""
    tree = svc.network(0.2, 2)
    hosts = svc.RoutedHosts(tree, "mean-VC", ground)
    pairs = [(s, t) for s in range(0, tree.machines, 7) for t in range(0, tree.machines, 11)]
    source, target = np.array(pairs).T
    links = hosts.crossed(source, target)
    crossed = (links != 0).sum(axis=1)
    racks, pods = source // 4 != target // 4, source // 40 != target // 40
    assert (crossed == np.where(source == target, 0, 2 + 2 * racks + 2 * pods)).all()
    rates = svc.granted(hosts.capacity, np.full(len(pairs), 500.0), links)
    for link in np.unique(links[links != 0]):
        assert rates[(links == link).any(axis=1)].sum() <= hosts.capacity[link] * (1 + 1e-9)
    ups = {"summed links": 1, "routed links": 2}[ground]
    switches = hosts.capacity[np.unique(links[:, 2:][links[:, 2:] != 0])]
    assert set(np.round(switches)) == {2000 // ups, 20_000 // ups // (10 if ups > 1 else 1)}


def test_routed_links_take_no_more_than_their_sum():
    refused, alone = {}, {}
    for ground in ("summed links", "routed links"):
        tenants = svc.Tenants("7", "SVC (0.05)", 1, size=0.1, load=0.2, ground=ground)
        refused[ground] = tenants.run()["rejected"]
        alone[ground] = svc.Alone(tenants).run()["alone"]
    assert refused["summed links"] < refused["routed links"]
    assert all(0 < alone[ground] <= refused[ground] for ground in refused)
