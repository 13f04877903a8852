# SPDX-License-Identifier: Apache-2.0

"""Job workloads: read from trace files (SWF, CSV), drawn at random, rescaled and sped up.

A reader records a line that is not a job in ``Workload.malformed``, with its number and
the reason, and reads on.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import IO, NamedTuple

from laas_service.domain.errors import InvalidFile, InvalidInput

SWF_FIELDS = 18
STATUS_CANCELLED = 5
"""Status field of a cancelled job in the Standard Workload Format."""


@dataclass(frozen=True, slots=True)
class Job:
    """A tenant of a simulation, with an arrival and a run time."""

    id: str
    arrival: float
    """Seconds from the start of the trace."""
    hosts: int
    run: float | None
    """Run time in seconds; None if it is not known."""
    bandwidth: int | None = None
    """Parts per million of each link that the job needs, where links are shared."""


class Malformed(NamedTuple):
    """A line of a trace that is not a job."""

    line: int
    """Counted from 1."""
    why: str


@dataclass
class Workload:
    """The jobs of a source in its order, and the records that were left out."""

    jobs: list[Job] = field(default_factory=list)
    malformed: list[Malformed] = field(default_factory=list)
    left_out: int = 0
    """Number of well-formed records that are no usable job, or that a filter dropped."""
    _uses: dict[str, int] = field(default_factory=dict, repr=False)

    def add(self, job: Job) -> None:
        """Append a job; if its id was used before, it gets a suffix, as ids are unique."""
        uses = self._uses[job.id] = self._uses.get(job.id, 0) + 1
        self.jobs.append(job if uses == 1 else replace(job, id=f"{job.id}.{uses}"))


# -- traces -------------------------------------------------------------------


@contextmanager
def open_trace(path: str) -> Iterator[IO[str]]:
    """Open a text file, also one packed with gzip; invalid UTF-8 is replaced.

    Raises:
        InvalidInput: the file does not exist, or it cannot be read.
    """
    try:
        with Path(path).open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        if packed:
            with gzip.open(path, "rt", encoding="utf-8", errors="replace") as text:
                yield text
        else:
            with Path(path).open(encoding="utf-8", errors="replace") as text:
                yield text
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput("trace", path, f"cannot be read: {error}") from error


def read_swf(lines: Iterable[str], *, procs_per_node: int = 1, clean: bool = False) -> Workload:
    """Read jobs in the Standard Workload Format, version 2.2.

    A job has as many hosts as its allocated processors (field 5) need at
    ``procs_per_node`` each, rounded up; where field 5 is not known, the requested
    processors (field 8) count. Records without a positive size and run time are left out.
    ``clean`` also leaves out cancelled jobs (status 5).

    Raises:
        InvalidInput: ``procs_per_node`` is below 1.
    """
    if procs_per_node < 1:
        raise InvalidInput("procs_per_node", procs_per_node, "give at least 1 processor")
    workload = Workload()
    for number, line in enumerate(lines, 1):
        text = line.split(";", 1)[0].split()
        if not text:
            continue
        if len(text) != SWF_FIELDS:
            workload.malformed.append(
                Malformed(number, f"{len(text)} fields, {SWF_FIELDS} expected")
            )
            continue
        try:
            values = [float(x) for x in text]
        except ValueError as error:
            workload.malformed.append(Malformed(number, str(error)))
            continue
        if not all(map(math.isfinite, values)):
            workload.malformed.append(Malformed(number, "a field is not finite"))
            continue
        job, submit, _, run, allocated, _, _, requested, _, _, status = values[:11]
        procs = allocated if allocated > 0 else requested
        if run <= 0 or procs <= 0 or submit < 0 or (clean and status == STATUS_CANCELLED):
            workload.left_out += 1
            continue
        hosts = math.ceil(procs / procs_per_node)
        workload.add(Job(f"{job:.0f}", _plain(submit), hosts, _plain(run)))
    return workload


def read_csv(lines: Iterable[str]) -> Workload:
    """Read jobs in the format of the LaaS (ANCS'16) simulator, one a line.

    A line has id, hosts, arrival and run time (seconds), separated by commas or blanks. A
    first line that is no job is a heading. The run time may be missing; ``with_random_run``
    then draws one.
    """
    workload = Workload()
    for number, line in enumerate(lines, 1):
        text = line.replace(",", " ").split()
        if not text or text[0].startswith("#"):
            continue
        try:
            if len(text) not in (3, 4):
                raise ValueError(f"{len(text)} fields, 4 expected: id, hosts, arrival, run time")
            hosts, arrival = int(text[1]), float(text[2])
            run = float(text[3]) if len(text) == 4 else None
            if not math.isfinite(arrival) or not math.isfinite(run or 0):
                raise ValueError("a field is not finite")
        except ValueError as error:
            if number > 1:
                workload.malformed.append(Malformed(number, str(error)))
            continue
        if hosts <= 0 or arrival < 0 or (run is not None and run <= 0):
            workload.left_out += 1
            continue
        workload.add(Job(text[0], _plain(arrival), hosts, None if run is None else _plain(run)))
    return workload


def read_trace(
    path: str, form: str = "swf", *, procs_per_node: int = 1, clean: bool = False
) -> Workload:
    """Read a trace file; ``form`` is ``swf`` or ``csv``, and the file may be packed with gzip.

    Raises:
        InvalidInput: the file cannot be read.
        InvalidFile: the file holds no job.
    """
    with open_trace(path) as lines:
        if form == "csv":
            workload = read_csv(lines)
        else:
            workload = read_swf(lines, procs_per_node=procs_per_node, clean=clean)
    if not workload.jobs:
        first = workload.malformed[0] if workload.malformed else Malformed(1, "no usable record")
        raise InvalidFile(path, first.line, f"holds no job; {first.why}")
    return workload


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value


# -- synthetic ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exponential:
    """Synthetic jobs that arrive at time 0 and have exponentially distributed sizes.

    Sizes are rounded up to whole hosts; a size above the limit is drawn again.
    Source: LaaS (ANCS'16) 4.1, Jigsaw (HPDC'21) 5.1.
    """

    mean: float
    """Mean size in hosts, before sizes are rounded and limited."""
    jobs: int
    """Number of jobs."""

    @classmethod
    def parse(cls, text: str) -> Exponential:
        """Parse ``exp:MEAN:JOBS``.

        Raises:
            InvalidInput: the text has another form, or a number is out of range.
        """
        kind, _, rest = text.partition(":")
        mean, _, jobs = rest.partition(":")
        try:
            parsed = cls(float(mean), int(jobs))
        except ValueError:
            kind = ""
        if kind != "exp" or not 0 < parsed.mean < math.inf or parsed.jobs < 1:
            raise InvalidInput("synthetic", text, "use exp:MEAN:JOBS, for example exp:16:10000")
        return parsed

    def draw(self, limit: int, rng: Random) -> Workload:
        """Draw the jobs, without run times; sizes are 1..limit hosts."""
        drawn: list[Job] = []
        while len(drawn) < self.jobs:
            hosts = max(1, math.ceil(rng.expovariate(1 / self.mean)))
            if hosts <= limit:
                drawn.append(Job(str(len(drawn) + 1), 0, hosts, None))
        return Workload(drawn)


# -- changes ------------------------------------------------------------------


def with_random_run(jobs: Iterable[Job], low: int, high: int, rng: Random) -> list[Job]:
    """The jobs with run times drawn uniformly from the whole seconds low..high."""
    return [replace(job, run=rng.randint(low, high)) for job in jobs]


def with_arrivals(jobs: Iterable[Job], factor: float) -> list[Job]:
    """The jobs sorted by arrival; arrivals count from the first one, times ``factor``."""
    ordered = sorted(jobs, key=lambda job: job.arrival)
    first = ordered[0].arrival if ordered else 0
    return [replace(job, arrival=(job.arrival - first) * factor) for job in ordered]


SHARES = (100_000, 200_000, 300_000, 400_000)
"""Bandwidth classes in ppm of a link: 0.5, 1, 1.5 and 2 of 5 GB/s. Source: Jigsaw, 5.4.2."""


def with_bandwidth(jobs: Iterable[Job], rng: Random) -> list[Job]:
    """The jobs, each with a bandwidth class of ``SHARES`` at random."""
    return [replace(job, bandwidth=rng.choice(SHARES)) for job in jobs]


def _by_percent(percent: int) -> Callable[[Job, int, Random], float]:
    return lambda job, largest, rng: percent / 100 if job.hosts > 4 else 0.0


def _v2(job: Job, largest: int, rng: Random) -> float:
    ceiling = rng.choice((0.0, 0.1, 0.2, 0.3))
    return ceiling * (job.hosts - 4) / max(1, largest - 4) if job.hosts > 4 else 0.0


def _random(job: Job, largest: int, rng: Random) -> float:
    gain = rng.choice((0.0, 0.05, 0.15, 0.3))
    return gain if job.hosts > 64 else 0.0


SPEEDUPS: dict[str, Callable[[Job, int, Random], float]] = {
    "none": lambda job, largest, rng: 0.0,
    "5": _by_percent(5),
    "10": _by_percent(10),
    "20": _by_percent(20),
    "v2": _v2,
    "random": _random,
}
"""Scenario -> (job, hosts of the largest job, random stream) -> share of the run time (0..1)
that an isolated job saves. Source: Jigsaw (HPDC'21) 5.4.1.

``5``, ``10``, ``20``: that many percent for every job of more than 4 hosts. ``v2``: a maximum
of 0, 10, 20 or 30 percent at random, and up to it linear in the job's hosts. ``random``: 0, 5,
15 or 30 percent at random, for jobs of more than 64 hosts."""


def with_speedup(jobs: Iterable[Job], scenario: str, rng: Random) -> list[Job]:
    """The jobs with the run times that they have when isolated.

    Raises:
        InvalidInput: there is no such scenario.
    """
    if scenario not in SPEEDUPS:
        raise InvalidInput("speedup", scenario, f"use one of {', '.join(SPEEDUPS)}")
    jobs = list(jobs)
    largest = max((job.hosts for job in jobs), default=0)
    saved = SPEEDUPS[scenario]
    return [
        replace(job, run=None if job.run is None else job.run * (1 - saved(job, largest, rng)))
        for job in jobs
    ]
