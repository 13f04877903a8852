# SPDX-License-Identifier: Apache-2.0

"""Cost of requests in streams of jobs: ``python -m tests.bench.streams [--jobs N] [--row NAME]``.

A row is a full tree of K-port switches and a list of jobs that all arrive at time 0: sizes of
exponential distribution with run times of 20 to 3,000 seconds, or a trace of a real machine. A
discipline decides which job is tried next:

* ``fifo``: the head of the queue is tried again at each time at which jobs end, until it fits.
* ``easy``: the service's queue with EASY backfilling and a window of 50 jobs. Its searches for
  a reservation, on the ledger of a later time, are counted as well.
* ``random``: after each refusal the job is given up and a random tenant leaves.

The time of a call includes the policy's search and, if it finds a placement, the ledger's claim
(``easy``: the search alone). Times are microseconds of processor time; they are reported, never
asserted. With ``--rounds`` each call counts with its least time of several rounds.

The traces are read from the folder ``traces`` in the folder that ``LAAS_SHARED`` names.

The original LaaS program in C++ was measured on another machine, beside commit 9c1a326 of this
project. ``--scale-by FILE`` names the figures that ``--json`` wrote on this machine with that
commit. Then each mean is also printed as multiple of its mean in that file, and, scaled so that
the file's first row reads as it did beside the C++ program, as multiple of the C++ figure.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from laas_service import garbage
from laas_service.domain.admission.admit import admit
from laas_service.domain.admission.queue import Discipline, make_queue
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.moves.nearest import Nearest
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.base import Policy
from laas_service.domain.topology import Topology, Xgft
from laas_service.simulator.engine import Simulation
from laas_service.simulator.scenario import Scenario, Trace
from laas_service.simulator.workload import Exponential, Job, Jobs

POLICY_NAMES = ("laas", "jigsaw", "lc")
RUN_SECONDS = (20, 3000)
EASY_WINDOW = 50
ANSWERS = ("admitted", "refused")


@dataclass(frozen=True, slots=True)
class Row:
    """A fabric and the source of its jobs."""

    radix: int
    """Ports of a switch: radix ** 3 / 4 hosts."""
    mean: float | None = None
    """Mean size in hosts of jobs drawn at random; None for a trace."""
    trace: str = ""
    """File name in the folder of traces."""
    procs_per_node: int = 1
    max_hosts: int | None = None
    """Jobs of more hosts are left out."""
    original_us: tuple[float, float] | None = None
    """Mean of an admission and of a refusal of the C++ program, under ``fifo``."""

    def tree(self) -> Xgft:
        half = self.radix // 2
        return Xgft((half, half, self.radix), (1, half, half))

    def source(self, jobs: int) -> Exponential | Trace:
        """As the simulator's experiments read it.

        Raises:
            FileNotFoundError: the trace is not in the folder of traces.
        """
        if self.mean is not None:
            return Exponential(self.mean, jobs)
        path = Path(os.environ.get("LAAS_SHARED", "shared"), "traces", self.trace)
        if not path.is_file():
            raise FileNotFoundError(path)
        return Trace(str(path), "swf", self.procs_per_node, clean=True)

    def jobs(self, number: int, seed: int) -> Sequence[Job]:
        """The first ``number`` jobs, all with arrival 0 and a run time.

        Raises:
            FileNotFoundError: as ``source``.
        """
        source = self.source(number)
        runtime = RUN_SECONDS if isinstance(source, Exponential) else None
        scenario = Scenario(
            "laas", self.tree(), source, self.max_hosts, runtime, scale_arrivals=0, seed=seed
        )
        return scenario.load().jobs[:number]


ROWS = {
    "exp36-11664": Row(36, mean=36, original_us=(39, 100)),
    "exp28-5488": Row(28, mean=28, original_us=(23, 53)),
    "exp16-11664": Row(36, mean=16, original_us=(51, 102)),
    "thunder-11664": Row(
        36,
        trace="LLNL-Thunder-2007-1.1-cln.swf.gz",
        procs_per_node=4,
        original_us=(29, 2675),
    ),
    "atlas-11664": Row(
        36,
        trace="LLNL-Atlas-2006-2.1-cln.swf.gz",
        procs_per_node=8,
        max_hosts=1024,
        original_us=(70, 8850),
    ),
    "exp64-65536": Row(64, mean=64),
}
"""Rows by name. The first one is the one that ``--scale-by`` scales by."""

FIRST_ROW = next(iter(ROWS))
BESIDE_ORIGINAL = {"laas": (86.0, 106.0), "jigsaw": (348.0, 745.0)}
"""Means of commit 9c1a326 on the first row under ``fifo``, measured beside the C++ program."""


@dataclass(slots=True)
class Calls:
    """Microseconds of the calls of one stream, in order, and how they ended."""

    admitted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    cut_offs: int = 0
    """Refusals because the search budget was exhausted."""

    def add(self, answer: Allocation | NoFit, elapsed: float) -> None:
        if isinstance(answer, Allocation):
            self.admitted.append(elapsed)
            return
        self.refused.append(elapsed)
        self.cut_offs += answer.reason is Refusal.BUDGET

    def least(self, other: Calls) -> Calls:
        """The smaller time of each call of two runs of one stream."""
        return Calls(
            [min(pair) for pair in zip(self.admitted, other.admitted, strict=True)],
            [min(pair) for pair in zip(self.refused, other.refused, strict=True)],
            self.cut_offs,
        )


class CalledPolicy:
    """Wraps ``policy`` and records each call."""

    def __init__(self, policy: Policy, calls: Calls) -> None:
        self.name = policy.name
        self.isolating = policy.isolating
        self.monotone = policy.monotone
        self._policy = policy
        self._calls = calls

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        start = time.thread_time_ns()
        answer = self._policy.propose(fabric, request)
        self._calls.add(answer, (time.thread_time_ns() - start) / 1000)
        return answer


class _NoObserver:
    """Ignores the events of a simulation."""

    def started(self, now: float, job: Job, allocation: Allocation) -> None:
        pass

    def finished(self, now: float, job: Job, allocation: Allocation) -> None:
        pass

    def moved(self, now: float, move: Nearest, seconds_lost: float) -> None:
        pass

    def settled(self, now: float, waiting: int) -> None:
        pass


def _admitted(policy: Policy, fabric: Ledger, job: Job, calls: Calls) -> bool:
    request = Request(job.id, job.hosts)
    start = time.thread_time_ns()
    answer = admit(policy, fabric, request)
    calls.add(answer, (time.thread_time_ns() - start) / 1000)
    return isinstance(answer, Allocation)


def fifo(policy: Policy, fabric: Ledger, jobs: Sequence[Job], calls: Calls) -> None:
    """Start all jobs in order; a job that does not fit is tried again whenever jobs end."""
    now: float = 0
    ends: list[tuple[float, str]] = []
    for job in jobs:
        while not _admitted(policy, fabric, job, calls):
            now = ends[0][0]
            while ends and ends[0][0] == now:
                fabric.release(heapq.heappop(ends)[1])
        assert job.run is not None
        heapq.heappush(ends, (now + job.run, job.id))


def easy(policy: Policy, fabric: Ledger, jobs: Sequence[Job], calls: Calls) -> None:
    """Start all jobs as the service's queue does with EASY backfilling."""
    queue = make_queue(fabric, CalledPolicy(policy, calls), Discipline("easy", EASY_WINDOW))
    Simulation(queue, Jobs.of(jobs), _NoObserver()).run()


def random(policy: Policy, fabric: Ledger, jobs: Sequence[Job], calls: Calls) -> None:
    """Try each job once; after a refusal a random tenant leaves."""
    rng = Random(1)
    live: list[str] = []
    for job in jobs:
        if _admitted(policy, fabric, job, calls):
            live.append(job.id)
        elif live:
            victim = rng.randrange(len(live))
            live[victim], live[-1] = live[-1], live[victim]
            fabric.release(live.pop())


DISCIPLINES: Mapping[str, Callable[[Policy, Ledger, Sequence[Job], Calls], None]] = {
    "fifo": fifo,
    "easy": easy,
    "random": random,
}


def run(policy_name: str, discipline: str, tree: Xgft, jobs: Sequence[Job], rounds: int) -> Calls:
    """The calls of one stream; each with its least time of ``rounds`` runs."""
    measured: Calls | None = None
    for _ in range(rounds):
        calls, fabric = Calls(), Ledger(Topology(tree))
        with garbage.settled():  # as in the service
            DISCIPLINES[discipline](POLICIES[policy_name](), fabric, jobs, calls)
        measured = calls if measured is None else measured.least(calls)
    assert measured is not None
    return measured


def figures(times: Sequence[float]) -> dict[str, float]:
    """Number, mean, 99th percentile and maximum; 0 without times."""
    ordered = sorted(times)
    if not ordered:
        return {"number": 0, "mean": 0.0, "p99": 0.0, "max": 0.0}
    return {
        "number": len(ordered),
        "mean": sum(ordered) / len(ordered),
        "p99": ordered[int(0.99 * (len(ordered) - 1))],
        "max": ordered[-1],
    }


class Scale:
    """Compares means with those of commit 9c1a326 on this machine, and with the C++ program's."""

    def __init__(self, measured: Sequence[Mapping[str, Any]]) -> None:
        self._means = {
            tuple(line[key] for key in ("row", "discipline", "policy", "answer")): line["mean"]
            for line in measured
        }
        self._factors = {
            (policy, answer): mean / self._means[FIRST_ROW, "fifo", policy, answer]
            for policy, means in BESIDE_ORIGINAL.items()
            for answer, mean in zip(ANSWERS, means, strict=True)
        }

    def ratios(self, line: Mapping[str, Any]) -> dict[str, float]:
        """``scaled``: the mean as if measured beside the C++ program, in microseconds.

        ``to_original``: that as multiple of the C++ figure, where there is one.
        ``to_before``: the mean as multiple of the mean of commit 9c1a326.
        A policy that was not measured beside the C++ program is scaled by the geometric mean of
        the factors of the others.
        """
        factor = self._factors.get((line["policy"], line["answer"]))
        if factor is None:
            factor = math.prod(self._factors.values()) ** (1 / len(self._factors))
        ratios = {"scaled": line["mean"] * factor}
        original = ROWS[line["row"]].original_us
        if original is not None and line["discipline"] == "fifo":
            ratios["to_original"] = ratios["scaled"] / original[ANSWERS.index(line["answer"])]
        before = self._means.get(
            tuple(line[key] for key in ("row", "discipline", "policy", "answer"))
        )
        if before:
            ratios["to_before"] = line["mean"] / before
        return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--row", choices=ROWS, action="append")
    parser.add_argument("--policy", choices=POLICIES, action="append")
    parser.add_argument("--discipline", choices=DISCIPLINES, action="append")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="write the figures, also for --scale-by")
    parser.add_argument("--scale-by", metavar="FILE", help="figures of commit 9c1a326 from --json")
    options = parser.parse_args()
    scale = Scale(json.loads(Path(options.scale_by).read_text())) if options.scale_by else None
    heads = "".join(f"{head:>9}" for head in ("number", "mean", "p99", "max", "cut-offs"))
    compared = f"{'scaled':>9}{'to C++':>9}{'to 9c1a326':>11}" if scale else ""
    print(f"{'row':14}{'queue':7}{'policy':7}{'answer':9}{heads}{compared}   microseconds")
    lines: list[dict[str, Any]] = []
    for row in options.row or ROWS:
        try:
            jobs = ROWS[row].jobs(options.jobs, options.seed)
        except FileNotFoundError as error:
            print(f"{row:14}is skipped, because there is no trace {error}", flush=True)
            continue
        for discipline in options.discipline or DISCIPLINES:
            for policy in options.policy or POLICY_NAMES:
                calls = run(policy, discipline, ROWS[row].tree(), jobs, options.rounds)
                for answer, times in zip(ANSWERS, (calls.admitted, calls.refused), strict=True):
                    line: dict[str, Any] = {
                        "row": row,
                        "discipline": discipline,
                        "policy": policy,
                        "answer": answer,
                        **figures(times),
                        "cut_offs": calls.cut_offs if answer == "refused" else 0,
                    }
                    lines.append(line)
                    ratios = scale.ratios(line) if scale else {}
                    print(_text(line) + _ratios_text(ratios), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(lines, indent=1) + "\n")


def _text(line: Mapping[str, Any]) -> str:
    names = f"{line['row']:14}{line['discipline']:7}{line['policy']:7}{line['answer']:9}"
    times = "".join(f"{line[key]:9.0f}" for key in ("number", "mean", "p99", "max", "cut_offs"))
    return names + times


def _ratios_text(ratios: Mapping[str, float]) -> str:
    if not ratios:
        return ""
    to_original = f"{ratios['to_original']:9.2f}" if "to_original" in ratios else " " * 9
    to_before = f"{ratios['to_before']:11.2f}" if "to_before" in ratios else ""
    return f"{ratios['scaled']:9.0f}{to_original}{to_before}"


if __name__ == "__main__":
    main()
