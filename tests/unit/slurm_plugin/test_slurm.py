# SPDX-License-Identifier: Apache-2.0

"""Jobs and nodes as old and new releases of Slurm write them in JSON."""

from __future__ import annotations

import pytest

from slurm_plugin import slurm
from slurm_plugin.slurm import SlurmFailed, job_of, node_of, tasks
from slurm_plugin.world import Job, Mark, Node

OLD = {
    "job_id": 7,
    "job_state": "PENDING",
    "state_reason": "Licenses",
    "priority": 12,
    "node_count": 3,
    "time_limit": 10,
    "licenses": "other:2,laas_gate:1",
    "required_nodes": "",
    "excluded_nodes": "n1,n2",
    "features": "even",
    "nodes": "",
    "admin_comment": "laas new - 0: submitted",
    "array_job_id": 0,
    "array_task_id": None,
    "array_task_string": "",
    "batch_flag": True,
    "end_time": 0,
}
NEW = OLD | {
    "job_state": ["PENDING"],
    "priority": {"set": True, "infinite": False, "number": 12},
    "node_count": {"set": True, "infinite": False, "number": 3},
    "time_limit": {"set": True, "infinite": False, "number": 10},
    "array_job_id": {"set": True, "infinite": False, "number": 0},
    "array_task_id": {"set": False, "infinite": False, "number": 0},
}
READ = Job(
    7,
    "PENDING",
    "Licenses",
    12,
    3,
    600,
    ("other:2", "laas_gate:1"),
    (),
    ("n1", "n2"),
    "even",
    mark=Mark("new", words="submitted"),
)


@pytest.mark.parametrize("shown", [OLD, NEW], ids=["22.05", "newer"])
def test_a_job(shown):
    job = job_of(shown)
    assert job == READ
    assert job.gated
    assert job.own_licenses == ("other:2",)


def test_a_job_without_a_limit_or_that_is_completing():
    unlimited = {"set": False, "infinite": True, "number": 0}
    job = job_of(NEW | {"time_limit": unlimited, "job_state": ["COMPLETED", "COMPLETING"]})
    assert (job.seconds, job.state, job.over) == (None, "COMPLETING", False)


@pytest.mark.parametrize(
    ("array", "address", "left"),
    [
        ({"job_id": 7, "array_job_id": 7, "array_task_string": "1-3"}, "7", (1, 2, 3)),
        ({"job_id": 7, "array_job_id": 7, "array_task_string": "5"}, "7_5", ()),
        ({"job_id": 7, "array_job_id": 7, "array_task_id": 5}, "7_5", ()),
        ({"job_id": 8, "array_job_id": 7, "array_task_id": 2}, "8", ()),
    ],
)
def test_tasks_of_an_array_never_speak_for_the_others(array, address, left):
    job = job_of(OLD | array)
    assert (job.address, job.tasks) == (address, left)


def test_expressions_of_tasks():
    assert tasks("1,3,5-9:2%4") == (1, 3, 5, 7, 9)
    assert tasks("1-2,...") == (1, 2)
    assert len(tasks("0-9999")) == 64


@pytest.mark.parametrize(
    ("state", "flags", "usable"),
    [
        ("idle", [], True),
        ("allocated", [], True),
        ("idle", ["DRAIN"], False),
        ("down", [], False),
        ("idle", ["NOT_RESPONDING"], False),
        (["IDLE", "RESERVED"], [], False),
        (["MIXED"], [], True),
    ],
)
def test_a_node(state, flags, usable):
    shown = {"name": "n0", "state": state, "state_flags": flags, "features": "a,b"}
    down = state in ("down", ["DOWN"])
    assert node_of(shown) == Node("n0", usable, frozenset("ab"), down)


@pytest.mark.parametrize(
    ("said", "jobs"),
    [("NONE", ()), ("7", (7,)), ("7.0, 12.batch", (7, 12)), ("StepId=7.batch,StepId=8.0", (7, 8))],
)
def test_steps_of_a_node(monkeypatch, said, jobs):
    shown = f"Active Steps             = {said}\nActual CPUs = 2\nHostname                 = n0\n"
    monkeypatch.setattr(slurm, "run", lambda *words, **environment: shown)
    assert slurm.steps("n0") == frozenset(jobs)


def test_a_node_that_names_no_steps_is_silent(monkeypatch):
    monkeypatch.setattr(slurm, "run", lambda *words, **environment: "")
    with pytest.raises(SlurmFailed, match="n0 does not name its steps"):
        slurm.steps("n0")
