# SPDX-License-Identifier: Apache-2.0

"""An interrupted simulation goes on from its checkpoint as if nothing had happened."""

from __future__ import annotations

import io
import json
import os
import pickle
from dataclasses import replace
from random import Random

import pytest

from laas_service.domain.admission.queue import Discipline, Order, Shadow
from laas_service.domain.errors import InvalidInput
from laas_service.domain.policies import PLANNING
from laas_service.simulator import checkpoints
from laas_service.simulator.checkpoints import Checkpoint, Results
from laas_service.simulator.scenario import TIMES, Scenario, Trace, full_tree, kept_run, run
from laas_service.simulator.workload import Exponential

SMALL = Scenario("laas", full_tree(4), Exponential(4, 120), runtime=(20, 3000))
DISCIPLINES = (
    Discipline("fifo"),
    Discipline(),
    Discipline(shadow=Shadow.END_BEFORE_SHADOW, window=5, order=Order.BIG_FIRST, packing=True),
)


class Killed(BaseException):
    """The process ends here."""


def without_times(result):
    return json.dumps({key: value for key, value in result.items() if key not in TIMES})


def run_with_kills(scenario, path, rng):
    """The result of a run that is killed again and again, and the number of kills."""
    kills = 0
    while True:
        steps = rng.randint(1, 60)

        def progress(done, total):
            nonlocal steps
            steps -= 1
            if not steps:
                raise Killed

        every = rng.choice((0, 0, 1e-3))
        try:
            return run(scenario, progress=progress, checkpoint=Checkpoint(path, every)), kills
        except Killed:
            kills += 1


@pytest.mark.parametrize("policy", sorted(PLANNING))
@pytest.mark.parametrize("discipline", DISCIPLINES, ids=["fifo", "easy", "packing"])
def test_a_run_that_is_killed_gives_the_results_of_one_that_is_not(policy, discipline, tmp_path):
    scenario = replace(SMALL, policy=policy, discipline=discipline, speedup="random")
    result, kills = run_with_kills(scenario, tmp_path / "state", Random(policy))
    assert kills > 1
    assert without_times(result) == without_times(run(scenario))


def interrupted(path, scenario=SMALL, done=40):
    """Save checkpoints until ``done`` jobs have ended, and end there."""

    def progress(finished, total):
        if finished >= done:
            raise Killed

    with pytest.raises(Killed):
        run(scenario, progress=progress, checkpoint=Checkpoint(path, 0))


def test_a_run_goes_on_where_it_was_and_adds_its_times(tmp_path):
    path = tmp_path / "state"
    interrupted(path)
    seen = []
    run(SMALL, progress=lambda *at: seen.append(at), checkpoint=Checkpoint(path, 0))
    assert seen[0][0] >= 39
    assert seen[-1] == (120, 120)


class Functions:
    """A cache of a reader of the ledger; functions cannot be saved."""

    def __init__(self):
        self.known = [lambda: 1]

    def copy(self):
        return self


def test_a_cache_of_functions_is_left_out_of_a_checkpoint(tmp_path):
    def watch(started, fabric):
        fabric.reader_cache(Functions)

    def progress(finished, total):
        if finished >= 40:
            raise Killed

    path = tmp_path / "state"
    with pytest.raises(Killed):
        run(SMALL, progress=progress, watch=watch, checkpoint=Checkpoint(path, 0))
    result = run(SMALL, checkpoint=Checkpoint(path))
    assert without_times(result) == without_times(run(SMALL))


def test_a_checkpoint_is_due_after_its_interval(tmp_path):
    now = 100.0
    checkpoint = Checkpoint(tmp_path / "state", 60, lambda: now)
    now = 159.0
    assert not checkpoint.due()
    now = 160.0
    assert checkpoint.due()
    checkpoint.save({}, "state", {})
    assert not checkpoint.due()
    assert Checkpoint(tmp_path / "state").load({}, str, {}) == "state"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 2}, "seed 1, not 2"),
        ({"policy": "jigsaw"}, "policy 'laas', not 'jigsaw'"),
        ({"discipline": Discipline("fifo")}, "scenario"),
        ({"source": Exponential(4, 121)}, "source"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(change, named, tmp_path):
    path = tmp_path / "state"
    interrupted(path)
    with pytest.raises(InvalidInput, match=f"belongs to another run: .*{named}"):
        run(replace(SMALL, **change), checkpoint=Checkpoint(path))
    assert path.exists()


def test_the_checkpoint_of_another_release_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "state"
    interrupted(path)
    monkeypatch.setattr(checkpoints, "VERSION", "99.0")
    with pytest.raises(InvalidInput, match=r"release .* not '99\.0'"):
        run(SMALL, checkpoint=Checkpoint(path))


def test_a_trace_that_has_changed_is_another_run(tmp_path):
    path, trace = tmp_path / "state", tmp_path / "jobs.csv"
    trace.write_text("".join(f"{n},3,0,{10 + n}\n" for n in range(90)))
    scenario = replace(SMALL, source=Trace(str(trace), "csv"), runtime=None)
    interrupted(path, scenario)
    trace.write_text(trace.read_text() + "91,3,0,5\n")
    with pytest.raises(InvalidInput, match="trace_sha256"):
        run(scenario, checkpoint=Checkpoint(path))


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "state"
    interrupted(path)
    whole = path.read_bytes()
    rng = Random(3)
    flipped = bytearray(whole)
    flipped[-20] ^= 1
    cuts = [whole[: rng.randrange(len(whole))] for _ in range(20)]
    for content in (b"", b"{}\n", b"[]\n", b"\xff\n", whole + b"x", bytes(flipped), *cuts):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=r"is damaged|is no checkpoint") as error:
            run(SMALL, checkpoint=Checkpoint(path))
        assert str(path) in str(error.value)


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_checkpoint_that_is_not_written_leaves_the_previous_one(name, tmp_path, monkeypatch):
    path = tmp_path / "state"
    interrupted(path)
    before = path.read_bytes()

    def killed(*_):
        raise Killed

    monkeypatch.setattr(os, name, killed)
    with pytest.raises(Killed):
        Checkpoint(path).save({}, "state", {})
    monkeypatch.undo()
    assert path.read_bytes() == before
    result = run(SMALL, checkpoint=Checkpoint(path))
    assert without_times(result) == without_times(run(SMALL))


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_a_checkpoint_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint = Checkpoint(tmp_path / "state")
    checkpoint.save({}, Evil(), {})
    with pytest.raises(InvalidInput, match=r"cannot be restored: .* is no class of a state"):
        checkpoint.load({}, object, {})
    assert not (tmp_path / "evil").exists()


def test_a_checkpoint_reaches_no_other_module_through_this_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = pickle.dumps(Evil(), 4).replace(
        pickle.dumps("posix", 4)[11:-2], pickle.dumps(checkpoints.__name__, 4)[11:-2]
    )
    code = code.replace(pickle.dumps("mkdir", 4)[11:-2], pickle.dumps("os.mkdir", 4)[11:-2])
    with pytest.raises(pickle.UnpicklingError, match=r"os\.mkdir is no class of a state"):
        checkpoints._Unpickler(io.BytesIO(b"\x80\x04" + code[11:]), {}).load()
    assert not (tmp_path / "evil").exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be written"):
        Checkpoint(tmp_path / "file" / "state").save({}, "state", {})


# -- several runs -------------------------------------------------------------


def test_a_finished_run_is_not_repeated(tmp_path, monkeypatch):
    first = kept_run(SMALL, Results(tmp_path))
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]
    monkeypatch.setattr(Scenario, "load", None)
    assert kept_run(SMALL, Results(tmp_path)) == first
    with pytest.raises(TypeError):
        kept_run(replace(SMALL, seed=2), Results(tmp_path))


def test_an_unfinished_run_of_several_goes_on(tmp_path, monkeypatch):
    def killed(*_):
        raise Killed

    def interrupted_run(scenario, checkpoint):
        interrupted(checkpoint.path, scenario)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("laas_service.simulator.scenario.run", interrupted_run)
        with pytest.raises(Killed):
            kept_run(SMALL, Results(tmp_path))
    assert [path.suffix for path in tmp_path.iterdir()] == [".checkpoint"]
    with monkeypatch.context() as patch:
        patch.setattr("laas_service.simulator.scenario.make_queue", killed)
        with pytest.raises(Killed):
            kept_run(replace(SMALL, seed=2), Results(tmp_path))
        result = kept_run(SMALL, Results(tmp_path))
    assert without_times(result) == without_times(run(SMALL))
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


@pytest.mark.parametrize("content", ["", "[]", '{"belongs_to": {}}'])
def test_a_file_that_is_no_result_is_refused(content, tmp_path):
    kept_run(SMALL, Results(tmp_path))
    (path,) = tmp_path.iterdir()
    path.write_text(content)
    with pytest.raises(InvalidInput, match="is no result"):
        kept_run(SMALL, Results(tmp_path))


def test_the_result_of_another_run_is_refused(tmp_path):
    kept_run(SMALL, Results(tmp_path))
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace('"seed": 1', '"seed": 3', 1))
    with pytest.raises(InvalidInput, match="seed 3, not 1"):
        kept_run(SMALL, Results(tmp_path))
