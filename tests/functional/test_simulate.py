# SPDX-License-Identifier: Apache-2.0

"""``laas-simulate`` as a command: options, files and exit status."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

import pytest

from laas_service.adapters.snapshot import fabric_from_snapshot
from laas_service.cmd import simulate as laas_simulate
from laas_service.cmd.simulate import RESEARCH, main
from laas_service.domain.verification import violations
from laas_service.simulator.scenario import TIMES
from tests.shared import SHARED, needs_shared
from tests.terminal import on_a_terminal

CONTRACT = {
    "policy", "hosts", "jobs", "seed", "utilization", "utilization_allocated", "makespan",
    "turnaround_mean", "turnaround_mean_large", "wait_mean", "calls", "call_us", "wall_s",
    "instantaneous",
}  # fmt: skip


def simulate(*options, status=0):
    command = [sys.executable, "-m", "laas_service.cmd.simulate", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


SYNTHETIC = ("run", "--policy", "jigsaw", "--radix", 8, "--synthetic", "exp:10:400")


def test_run_writes_the_figures_of_the_contract_and_a_snapshot(tmp_path):
    figures, state = tmp_path / "figures.json", tmp_path / "state.json"
    shown = simulate(*SYNTHETIC, "--json", figures, "--snapshot-at", f"200:{state}").stdout
    result = json.loads(figures.read_text())
    assert set(result) >= CONTRACT
    assert (result["hosts"], result["jobs"], result["policy"]) == (128, 400, "jigsaw")
    assert 85 < result["utilization"] <= 100
    assert set(result["call_us"]) == {"mean", "p50", "p99", "max"}
    assert f"{result['utilization']:.2f} %" in shown
    snapshot = json.loads(state.read_text())
    fabric = fabric_from_snapshot(snapshot)
    assert not violations(fabric.topology, fabric.allocations.values(), Random(1))
    owners = [host for allocation in snapshot["allocations"] for host in allocation["hosts"]]
    assert len(owners) == len(set(owners)) > 64
    links = [tuple(x) for a in snapshot["allocations"] for x in a["leaf_links"]]
    assert len(links) == len(set(links)) > 0


def test_a_snapshot_may_be_a_page(tmp_path):
    path = tmp_path / "state.html"
    simulate(*SYNTHETIC, "--snapshot-at", f"200:{path}")
    data = path.read_text().partition('id="data">')[2].partition("</script>")[0]
    shown = json.loads(data)["map"]
    assert shown["fabric"].endswith("after 200 jobs")
    assert shown["counts"]["hosts"]["allocated"] == sum(t["hosts"] for t in shown["tenants"]) > 0


def at_a_terminal(*options):
    """The exit status of laas-simulate, and what it writes on a terminal."""
    return on_a_terminal([sys.executable, "-m", "laas_service.cmd.simulate", *options])


@pytest.mark.parametrize("jobs", [1, 50, 2000])
def test_a_run_on_a_terminal_shows_a_bar_and_ends_with_the_figures(jobs):
    """The run with one job ends before the progress bar has computed a speed."""
    status, written = at_a_terminal(
        "run", "--policy", "jigsaw", "--radix", 4, "--synthetic", f"exp:3:{jobs}"
    )
    assert status == 0, written
    assert "Traceback" not in written
    assert f"{jobs}/{jobs}" in written
    assert "utilization" in written
    assert "100 % |" in written
    assert all(len(line) <= 100 for line in written.rpartition("over time")[2].splitlines())


HEADER = "; MaxNodes: 4\n; MaxProcs: 32\n"
RECORDS = (
    "1 0 -1 10 16 -1 -1 16 -1 -1 1 1 1 1 1 1 -1 -1\n2 0 -1 -1 16 -1 -1 16 -1 -1 1 1 1 1 1 1 -1 -1\n"
)


@pytest.mark.parametrize(
    ("header", "options", "processors", "said"),
    [
        (HEADER, (), 8, "8 a host (MaxProcs 32 / MaxNodes 4 of the header)"),
        (HEADER, ("--procs-per-node", 4), 4, "4 a host (--procs-per-node)"),
        ("", (), 1, "1 a host (the header has no MaxProcs and no MaxNodes)"),
    ],
)
def test_a_run_says_how_many_processors_a_host_has(tmp_path, header, options, processors, said):
    trace, figures = tmp_path / "t.swf", tmp_path / "figures.json"
    trace.write_text(header + RECORDS)
    words = ("run", "--policy", "baseline", "--radix", 8, "--swf", trace, "--json", figures)
    shown = simulate(*words, *options).stdout
    assert said in shown
    assert "1: no run time" in shown
    result = json.loads(figures.read_text())
    assert result["scenario"]["procs_per_node"] == processors
    assert (result["left_out"], result["left_out_reasons"]) == (1, {"no run time": 1})


def test_a_sweep_compares_with_the_baseline_beside_its_lines(tmp_path):
    words = ("sweep", "--radix", 4, "--policy", "baseline", "laas", "--synthetic", "exp:3:60",
             "--seed", 1, 2, "--workers", 1)  # fmt: skip
    done = simulate(*words)
    assert [json.loads(line)["policy"] for line in done.stdout.splitlines()] == [
        "baseline", "baseline", "laas", "laas",
    ]  # fmt: skip
    heading, base, laas = done.stderr.splitlines()[:3]
    assert heading.split()[:3] == ["workload", "policy", "seeds"]
    assert base.split()[:3] == ["exp:3:60", "baseline", "2"]
    assert "(" not in base
    assert laas.count("(") == 4
    assert simulate(*words, "--json", tmp_path / "x").stdout == done.stderr


def test_a_report_is_written_opened_on_a_terminal_and_explains_its_words(tmp_path, monkeypatch):
    browser, opened, page = tmp_path / "browser", tmp_path / "opened", tmp_path / "page.html"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    sweep = ("sweep", "--radix", 4, "--policy", "baseline", "laas", "--synthetic", "exp:3:50",
             "--workers", 1, "--html", page)  # fmt: skip
    simulate(*sweep)
    assert not opened.exists()
    status, written = at_a_terminal(*sweep, "--json", tmp_path / "lines")
    assert status == 0, written
    assert opened.read_text() == f"file://{page}\n"
    text = page.read_text()
    explained = {word.partition("</dt>")[0] for word in text.split("<dt>")[1:]}
    assert explained >= {"utilization", "makespan", "turnaround", "wait", "policy", "seed"}
    assert "Policies beside the baseline" in text
    simulate(*SYNTHETIC, "--html", page)
    assert "jigsaw" in page.read_text()
    assert "does not exist" in simulate(*SYNTHETIC, "--html", "/no/x.html", status=2).stderr


def test_many_runs_on_a_terminal_show_a_bar(tmp_path):
    options = ("sweep", "--radix", 4, "--policy", "laas", "ta", "--synthetic", "exp:3:50")
    status, written = at_a_terminal(*options, "--checkpoint", tmp_path, "--workers", 1)
    assert status == 0, written
    assert "Traceback" not in written
    assert "2/2" in written
    assert list(tmp_path.glob("*.json"))


def test_a_run_that_goes_on_shows_a_bar_from_there(tmp_path):
    state = tmp_path / "state"
    command = [sys.executable, "-m", "laas_service.cmd.simulate", *map(str, LONG)]
    command += ["--checkpoint", str(state), "--checkpoint-every", "0"]
    killed_when_saved(command, state)
    status, written = at_a_terminal(*LONG, "--checkpoint", state)
    assert status == 0, written
    assert "Traceback" not in written
    assert "300/300" in written
    assert not state.exists()


def test_malformed_lines_are_named_and_the_run_goes_on(tmp_path):
    trace = tmp_path / "t.swf"
    trace.write_text("; header\n1 2 3\n1 0 -1 10 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1\n")
    done = simulate("run", "--policy", "laas", "--radix", 8, "--swf", trace, "--json", "-")
    assert "line 2: 3 fields, 18 expected" in done.stderr
    assert json.loads(done.stdout)["malformed"]["count"] == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("run", "--policy", "jigsaw", "--radix", 7, "--synthetic", "exp:4:9"), "radix: 7"),
        (("run", "--policy", "jigsaw", "--radix", 8, "--synthetic", "4:9"), "exp:16:10000"),
        (("run", "--policy", "jigsaw", "--radix", 8, "--swf", "/no/file"), "/no/file"),
        (("run", "--policy", "jigsaw", "--xgft", "3;4", "--swf", "/no/file"), "xgft"),
        (("run", "--policy", "magic", "--radix", 8, "--swf", "x"), "invalid choice"),
        (("run", "--policy", "laas", "--radix", 8, "--synthetic", "exp:4:9",
          "--runtime", "9:1"), "LOW:HIGH"),
        (("run", "--policy", "laas", "--radix", 8, "--synthetic", "exp:4:9",
          "--snapshot-at", "10:/dev/null"), "only 9 jobs start"),
        (("run", "--policy", "laas", "--radix", 8, "--synthetic", "exp:4:9",
          "--checkpoint", "x", "--checkpoint-every", "-1"), "0 or more"),
        (("run", "--policy", "laas", "--radix", 8, "--synthetic", "exp:4:9",
          "--checkpoint", "/dev/null"), "is no checkpoint"),
        (("sweep", "--suite", "papers"), "traces"),
        (("run", "--policy", "laas", "--radix", 8, "--synthetic", "exp:4:9",
          "--interference", "/no/file"), "interference: '/no/file'"),
        (("report", "/no/file"), "/no/file"),
        (("report", "/dev/null"), "no result"),
    ],
)  # fmt: skip
def test_mistakes_are_answered_with_the_field_and_the_fix(options, why, capsys):
    status: object
    try:
        status = main([str(option) for option in options])
    except SystemExit as stopped:  # argparse
        status = stopped.code
    assert status == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *(([name, "--seed", "1"], "install it with pip install ./research") for name in RESEARCH),
        (["sweep", "--suite", "papers", "--traces", "."], "suite: 'papers'"),
    ],
)
def test_commands_and_suites_of_the_research_say_where_they_are(words, said, monkeypatch, capsys):
    monkeypatch.setattr(laas_simulate, "extensions", list)
    assert main(words) == 2
    assert said in capsys.readouterr().err


SWEEP = (
    "sweep", "--radix", 8, "--policy", "baseline", "jigsaw", "--synthetic", "exp:10:200",
    "exp:20:100", "--seed", 1, 2, "--json",
)  # fmt: skip


def lines_without_times(path):
    results = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in x.items() if key not in TIMES} for x in results]


def test_sweep_covers_every_combination_and_report_shows_it(tmp_path):
    results, page = tmp_path / "results.jsonl", tmp_path / "report.html"
    simulate(*SWEEP, results, "--workers", 2)
    seen = {
        (x["policy"], x["scenario"]["synthetic"], x["seed"]) for x in lines_without_times(results)
    }
    assert len(seen) == 8
    simulate("report", results, "--output", page)
    text = page.read_text()
    drawn = text.split("<h2>exp:")[1:]
    assert [part.partition(":")[0] for part in drawn] == ["10", "20"]
    for part in drawn:
        over_time, waiting, bands = part.split("<svg")[1:]
        for name in ("baseline, seed 1", "baseline, seed 2", "jigsaw, seed 1", "jigsaw, seed 2"):
            assert all(f">{name}</text>" in chart for chart in (over_time, waiting, bands))
        assert "hours since the start" in over_time
    assert "<details" not in text


def test_sweep_on_dask_gives_the_same_results(tmp_path):
    from distributed import LocalCluster

    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        simulate(*SWEEP, there, "--dask", cluster.scheduler_address)
    simulate(*SWEEP, here, "--workers", 1)
    assert lines_without_times(here) == lines_without_times(there)


def killed_again_and_again(command, checkpoints, rng):
    """Kill a command three times, each time when it has saved some checkpoints; then let it end."""
    for _ in range(3):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        saves = rng.randint(1, 40)
        seen: set[int] = set()
        while len(seen) < saves:
            with suppress(FileNotFoundError):
                seen |= {path.stat().st_mtime_ns for path in checkpoints()}
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.005)
                break
        process.kill()
        errors = process.communicate()[1].decode()
        assert process.returncode == -signal.SIGKILL, errors
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def killed_when_saved(command, state):
    """Kill a command as soon as it has saved a checkpoint."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while not state.exists():
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.005)
                break
        process.kill()
    assert process.returncode == -signal.SIGKILL


LONG = ("run", "--policy", "laas", "--radix", 8, "--synthetic", "exp:10:300", "--queue", "easy")


def test_a_run_that_is_killed_goes_on_from_its_checkpoint(tmp_path):
    whole, pieces, state = tmp_path / "whole.json", tmp_path / "pieces.json", tmp_path / "state"
    simulate(*LONG, "--json", whole)
    command = [*LONG, "--json", pieces, "--checkpoint", state, "--checkpoint-every", 0]
    killed_again_and_again(
        [sys.executable, "-m", "laas_service.cmd.simulate", *map(str, command)],
        lambda: [state],
        Random(11),
    )
    first, second = (json.loads(path.read_text()) for path in (whole, pieces))
    assert list(first) == list(second)
    for name in set(TIMES) - {"plan_us"}:  # which only a run with moves has
        assert first.pop(name) is not None is not second.pop(name)
    assert json.dumps(first) == json.dumps(second)
    assert not list(tmp_path.glob("*state*"))


def test_the_checkpoint_of_another_run_is_refused_with_what_differs(tmp_path):
    state = tmp_path / "state"
    command = [sys.executable, "-m", "laas_service.cmd.simulate", *map(str, LONG)]
    command += ["--checkpoint", str(state), "--checkpoint-every", "0"]
    killed_when_saved(command, state)
    done = simulate(*LONG, "--seed", 2, "--checkpoint", state, status=2)
    assert "belongs to another run: seed 1, not 2" in done.stderr
    late = simulate(*LONG, "--checkpoint", state, "--snapshot-at", f"1:{tmp_path}/1", status=2)
    assert "the checkpoint is of a later moment" in late.stderr
    state.write_bytes(state.read_bytes()[:-1])
    assert "is damaged" in simulate(*LONG, "--checkpoint", state, status=2).stderr


def test_a_sweep_that_is_killed_repeats_no_finished_run(tmp_path):
    whole, pieces, kept = tmp_path / "whole.jsonl", tmp_path / "pieces.jsonl", tmp_path / "kept"
    simulate(*SWEEP, whole, "--workers", 1)
    command = [*SWEEP, pieces, "--workers", 1, "--checkpoint", kept, "--checkpoint-every", 0]
    killed_again_and_again(
        [sys.executable, "-m", "laas_service.cmd.simulate", *map(str, command)],
        lambda: list(kept.glob("*.checkpoint")),
        Random(12),
    )
    assert lines_without_times(whole) == lines_without_times(pieces)
    times = [json.loads(line)["wall_s"] for line in pieces.read_text().splitlines()]
    simulate(*SWEEP, pieces, "--checkpoint", kept)
    assert [json.loads(line)["wall_s"] for line in pieces.read_text().splitlines()] == times
    assert len(list(kept.iterdir())) == 8


@needs_shared
def test_a_real_trace_under_every_discipline(tmp_path):
    """NASA's iPSC (P. Worley; Parallel Workloads Archive): 18,066 jobs, here on 128 hosts."""
    trace = SHARED / "traces" / "NASA-iPSC-1993-3.1-cln.swf.gz"

    def figures(*options):
        done = simulate(
            "run", "--radix", 8, "--swf", trace, "--arrivals", "zero", "--json", "-", *options
        )
        return json.loads(done.stdout)

    with ThreadPoolExecutor(2) as pool:
        fifo, easy, jigsaw = pool.map(
            lambda options: figures(*options),
            (
                ("--policy", "baseline", "--queue", "fifo"),
                ("--policy", "baseline"),
                ("--policy", "jigsaw"),
            ),
        )
    assert fifo["jobs"] == easy["jobs"] == jigsaw["jobs"] == 18_066
    assert fifo["utilization"] < jigsaw["utilization"] < easy["utilization"]
    assert easy["utilization"] > 95
