# SPDX-License-Identifier: Apache-2.0

"""``laas-research`` as a command, and what it adds to ``laas-simulate``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from laas_research import command
from laas_research.experiments import EXPERIMENTS
from laas_research.experiments.figures import kept_run as kept_trial
from laas_service.cmd.simulate import RESEARCH
from laas_service.simulator.checkpoints import Results
from tests.functional.test_simulate import SYNTHETIC, at_a_terminal, simulate


def research(*options):
    words = [sys.executable, "-m", "laas_research.command", *map(str, options)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_product_names_every_command_of_the_research():
    assert {*EXPERIMENTS, "interference"} == set(RESEARCH)


def test_both_commands_give_the_same_figures():
    small = ("adaptive-fit", "--size", 0.02, "--runs", 1, "--format", "json", "--workers", 1)
    assert research(*small) == simulate(*small).stdout


def test_an_unknown_suite_is_answered_with_those_that_exist(tmp_path):
    done = simulate("sweep", "--suite", "paper", "--traces", tmp_path, status=2)
    assert "suite: 'paper'" in done.stderr
    assert ", ".join(command.SUITES) in done.stderr


def test_many_trials_at_a_terminal_show_a_bar(tmp_path):
    options = ("adaptive-fit", "--size", 0.02, "--runs", 1)
    status, written = at_a_terminal(*options, "--checkpoint", tmp_path, "--workers", 1)
    assert status == 0, written
    assert "Traceback" not in written
    assert "48/48" in written
    assert list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("name", ["adaptive-fit", "kraken", "starcube"])
def test_a_finished_trial_is_not_repeated(name, tmp_path):
    size = {"adaptive-fit": 0.12, "kraken": 0.0015, "starcube": 0.17}[name]
    trial, other = EXPERIMENTS[name].trials(1, 2, size)[:2]
    first = kept_trial(trial, Results(tmp_path))
    assert kept_trial(trial, Results(tmp_path)) == first
    kept_trial(other, Results(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_jobs_take_as_long_as_the_tenants_that_were_measured(tmp_path):
    """Those of a policy with links of its own end earlier than on hosts among others."""
    measured = tmp_path / "measured.json"
    options = ("--radix", 8, "--policy", "baseline", "jigsaw")
    routings = ("--routing", "own", "d-mod-k", "--messages", 65536)
    simulate("interference", *options, *routings, "--format", "json", "--output", measured)
    slower = {r["policy"]: r["to_private"] for r in json.loads(measured.read_text())}
    assert slower["baseline"] > slower["jigsaw"] >= 1

    def makespans(*more):
        out = tmp_path / "out.jsonl"
        simulate("sweep", *options, "--synthetic", "exp:10:200", *more, "--json", out)
        results = map(json.loads, out.read_text().splitlines())
        return {r["policy"]: r["makespan"] for r in results}

    alone, among_others = makespans(), makespans("--interference", measured)
    grown = {policy: among_others[policy] / alone[policy] for policy in alone}
    assert grown["baseline"] > grown["jigsaw"] >= 1
    done = simulate(*SYNTHETIC, "--interference", measured, "--speedup", "10", status=2)
    assert "speedup: '10'" in done.stderr
    done = simulate("run", "--policy", "laas", *SYNTHETIC[3:], "--interference", measured, status=2)
    assert "measure laas with routing own" in done.stderr
