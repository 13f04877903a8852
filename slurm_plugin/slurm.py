# SPDX-License-Identifier: Apache-2.0

"""Slurm by its own commands: ``squeue`` and ``sinfo`` to read, ``scontrol`` to change.

Newer releases write numbers as ``{"set", "infinite", "number"}`` and states as lists; both forms
are read.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from slurm_plugin.world import GATE, OVER, PASSING, Job, Mark, Node

PATIENCE = 120.0
"""Seconds that a command of Slurm may take; ``slurmctld`` has timeouts of its own."""

SHARES = 64
"""Most tasks of one array that a round splits off."""

_WORKING = frozenset({"allocated", "completing", "idle", "mixed"})
_CLOSED = frozenset(
    [
        "drain",
        "draining",
        "drained",
        "fail",
        "failing",
        "invalid_reg",
        "maintenance",
        "not_responding",
        "reboot_issued",
        "reboot_requested",
        "reserved",
    ]
)


class SlurmFailed(Exception):
    """A command of Slurm failed; the text is its own."""


def run(*command: str, **environment: str) -> str:
    """The output of a command, with these variables added. Raises: SlurmFailed."""
    try:
        done = subprocess.run(
            command,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmFailed(f"{command[0]}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise SlurmFailed(f"{' '.join(command)}: {said}")
    return done.stdout


@functools.lru_cache(maxsize=65536)
def expanded(expression: str) -> tuple[str, ...]:
    """The names of a host list expression of Slurm. Raises: SlurmFailed."""
    if not expression or expression == "(null)":
        return ()
    if "[" not in expression:
        return tuple(expression.split(","))
    return tuple(run("scontrol", "show", "hostnames", expression).split())


def read_jobs(partition: str) -> tuple[list[Job], frozenset[str]]:
    """All jobs of a partition, and the nodes on which those of others run. Raises: SlurmFailed."""
    jobs, foreign = [], set[str]()
    for shown in _read("squeue", "--json", "--all")["jobs"]:
        if partition in shown["partition"].split(","):
            jobs.append(job_of(shown))
        elif _state(shown["job_state"]) not in ("PENDING", *OVER):
            foreign.update(expanded(shown["nodes"]))
    return jobs, frozenset(foreign)


def read_nodes(partition: str) -> list[Node]:
    """The nodes of a partition. Raises: SlurmFailed."""
    shown = _read("sinfo", "--json", "--all")["nodes"]
    return [node_of(node) for node in shown if partition in node["partitions"]]


def steps(node: str) -> frozenset[int]:
    """The jobs of which a node's own slurmd runs a step. Raises: SlurmFailed, if it is silent."""
    shown = run("scontrol", "show", "slurmd", node, SLURMD_NODENAME=node)
    found = re.search(r"^Active Steps\s*=\s*(.*)$", shown, re.MULTILINE)
    if found is None:
        raise SlurmFailed(f"scontrol show slurmd {node} does not name its steps: {shown.strip()}")
    return frozenset(int(job) for job in re.findall(r"(?:^|[ ,=])(\d+)", found[1]))


def job_of(shown: Any) -> Job:
    """A job as ``squeue --json`` shows it. Raises: SlurmFailed."""
    state = _state(shown["job_state"])
    minutes = _number(shown["time_limit"])
    left = tasks(shown["array_task_string"])
    task = _number(shown["array_task_id"]) if left == () else left[0]
    last = len(left) < 2 and _number(shown["array_job_id"]) == _number(shown["job_id"])
    return Job(
        id=_number(shown["job_id"]) or 0,
        state=state,
        reason=shown["state_reason"],
        priority=_number(shown["priority"]) or 0,
        nodes=_number(shown["node_count"]) or 1,
        seconds=minutes * 60 if minutes else None,
        licenses=tuple(word for word in shown["licenses"].split(",") if word),
        required=expanded(shown["required_nodes"]),
        excluded=expanded(shown["excluded_nodes"]),
        features=shown["features"],
        allocated=expanded(shown["nodes"]) if state not in ("PENDING", *OVER) else (),
        left=expanded(shown["nodes"]) if state in OVER else (),
        ended=_number(shown["end_time"]) or 0,
        mark=Mark.of(shown["admin_comment"]),
        tasks=() if last else left,
        batch=bool(shown["batch_flag"]),
        task=task if last else None,
    )


def node_of(shown: Any) -> Node:
    state = shown["state"]
    words = [state] if isinstance(state, str) else list(state)
    flags = {word.lower() for word in (*words[1:], *shown.get("state_flags", ()))}
    features = shown["features"]
    names = features.split(",") if isinstance(features, str) else features
    return Node(
        name=shown["name"],
        down=words[0].lower() == "down",
        usable=words[0].lower() in _WORKING and not flags & _CLOSED,
        features=frozenset(name for name in names if name),
    )


def tasks(expression: str) -> tuple[int, ...]:
    """The first tasks of an array that ``1,3,5-9:2%4`` names."""
    found: list[int] = []
    for part in expression.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        if not low.isdigit() or (high and not high.isdigit()):
            continue  # Slurm cuts long texts off with "..."
        found += range(int(low), int(high or low) + 1, int(step) if step.isdigit() else 1)
    return tuple(found[:SHARES])


def keep_gate() -> None:
    """Make sure that the gate is shut: a reservation holds its licence. Raises: SlurmFailed."""
    name = f"ReservationName={GATE}"
    try:
        run("scontrol", "show", "reservation", GATE)
    except SlurmFailed:
        what = ("Users=root", "StartTime=now", "Duration=UNLIMITED", f"Licenses={GATE}:1")
        run("scontrol", "create", "reservation", name, *what, "NodeCnt=0", "Flags=ANY_NODES")


def update(job: str, *changes: str) -> None:
    """Change a job. Raises: SlurmFailed."""
    run("scontrol", "update", f"JobId={job}", *changes)


def opened(job: Job, hosts: Sequence[str], mark: Mark) -> None:
    """Lift the gate for these hosts alone, in one request. Raises: SlurmFailed."""
    size = f"NumNodes={len(hosts)}-{len(hosts)}"
    where = f"ReqNodeList={','.join(hosts)}"
    update(job.address, size, where, _licenses(job.own_licenses), _comment(mark))


def gated(job: Job, mark: Mark) -> None:
    """Put the gate before a pending job. Raises: SlurmFailed."""
    licenses = _licenses((*job.own_licenses, f"{GATE}:1"))
    update(job.address, licenses, "ReqNodeList=", _comment(mark))


def freed(job: Job) -> None:
    """Lift the gate, for any hosts. Raises: SlurmFailed."""
    update(job.address, "ReqNodeList=", _licenses(job.own_licenses), "AdminComment=")


def released(job: Job) -> None:
    """End the hold of a job. Raises: SlurmFailed."""
    run("scontrol", "release", job.address)


def commented(job: str, mark: Mark) -> None:
    update(job, _comment(mark))


def stopped(job: Job, mark: Mark) -> None:
    """End the run of a job; Slurm requeues a batch job if it may. Raises: SlurmFailed."""
    commented(job.address, mark)
    if job.batch:
        with suppress(SlurmFailed):  # a job may be submitted with --no-requeue
            run("scontrol", "requeue", job.address)
            return
    run("scancel", job.address)


def _licenses(words: Iterable[str]) -> str:
    return f"Licenses={','.join(words)}"


def _comment(mark: Mark) -> str:
    return f"AdminComment={' '.join(str(mark).split())[:1000]}"


def _read(*command: str) -> Any:
    try:
        return json.loads(run(*command))
    except ValueError as error:
        raise SlurmFailed(f"{' '.join(command)} wrote no JSON: {error}") from error


def _state(shown: str | list[str]) -> str:
    """The state; a state between two others counts more than the one that it is added to."""
    words = [shown] if isinstance(shown, str) else shown
    return next((word for word in words if word in PASSING), words[0])


def _number(shown: Any) -> int | None:
    if isinstance(shown, dict):
        return int(shown["number"]) if shown.get("set") and not shown.get("infinite") else None
    return shown if shown is None else int(shown)
