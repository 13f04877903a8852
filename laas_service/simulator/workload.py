# SPDX-License-Identifier: Apache-2.0

"""Jobs: read from traces, drawn from distributions, and changed as the papers do.

A reader takes lines and yields jobs; a line that is not a job is kept in
``Workload.malformed`` with its number and reason, and reading goes on.
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


@dataclass(frozen=True, slots=True)
class Job:
    """A tenant with an arrival and a run time, in seconds; ``run`` is None if not known."""

    id: str
    arrival: float
    hosts: int
    run: float | None
    bandwidth: int | None = None
    """Parts per million of each link that its flows need, where links are shared."""


class Malformed(NamedTuple):
    """A line that is not a job; ``line`` counts from 1."""

    line: int
    why: str


@dataclass
class Workload:
    """Jobs in the order of their source, and what was left out of it."""

    jobs: list[Job] = field(default_factory=list)
    malformed: list[Malformed] = field(default_factory=list)
    left_out: int = 0
    """Records that are well formed and no usable job, or that a filter dropped."""
    _seen: dict[str, int] = field(default_factory=dict, repr=False)

    def add(self, job: Job) -> None:
        """Take a job in; a number used before gets a suffix, as ids are unique."""
        used = self._seen[job.id] = self._seen.get(job.id, 0) + 1
        self.jobs.append(job if used == 1 else replace(job, id=f"{job.id}.{used}"))


# -- traces -------------------------------------------------------------------


@contextmanager
def open_trace(path: str) -> Iterator[IO[str]]:
    """The lines of a file, unpacked if it is packed with gzip; bad bytes are replaced.

    Raises:
        InvalidInput: there is no such file, or it cannot be read.
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
    """Jobs of the Standard Workload Format, version 2.2.

    A job's hosts are the processors allocated (field 5), or requested (8) where
    that is not known, over the processors of a node, rounded up. Records without
    a positive size and run time are left out; ``clean`` leaves out cancelled ones
    (status 5) too.

    Raises:
        InvalidInput: a node of less than one processor.
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
    """Jobs as the LaaS simulator takes them: id, hosts, arrival, run time a line.

    Separated by commas or blanks; a first line that is no job is a heading; the
    run time may be missing (``with_random_run`` then draws one).
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
    """The jobs of a file in one of the two forms, ``swf`` or ``csv``, packed or not.

    Raises:
        InvalidInput: the file cannot be read.
        InvalidFile: it holds no job at all.
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
    """``jobs`` jobs, all at time 0, of exponential sizes with about this mean.

    The sizes are rounded up to whole hosts and truncated: one above the limit is
    drawn anew. Source: LaaS (ANCS'16) 4.1, Jigsaw (HPDC'21) 5.1.
    """

    mean: float
    jobs: int

    @classmethod
    def parse(cls, text: str) -> Exponential:
        """``exp:MEAN:JOBS``.

        Raises:
            InvalidInput: another form, or a number out of range.
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
        """The jobs, without run times; sizes are 1..limit."""
        drawn: list[Job] = []
        while len(drawn) < self.jobs:
            hosts = max(1, math.ceil(rng.expovariate(1 / self.mean)))
            if hosts <= limit:
                drawn.append(Job(str(len(drawn) + 1), 0, hosts, None))
        return Workload(drawn)


# -- changes ------------------------------------------------------------------


def with_random_run(jobs: Iterable[Job], low: int, high: int, rng: Random) -> list[Job]:
    """The jobs with run times drawn uniformly from low..high seconds, whole ones."""
    return [replace(job, run=rng.randint(low, high)) for job in jobs]


def with_arrivals(jobs: Iterable[Job], factor: float) -> list[Job]:
    """The jobs, arrivals counted from the first one and scaled; sorted by arrival."""
    ordered = sorted(jobs, key=lambda job: job.arrival)
    first = ordered[0].arrival if ordered else 0
    return [replace(job, arrival=(job.arrival - first) * factor) for job in ordered]


SHARES = (100_000, 200_000, 300_000, 400_000)
"""What jobs need of a link, ppm: four classes from 0.5 to 2 of 5 GB/s. Jigsaw, 5.4.2."""


def with_bandwidth(jobs: Iterable[Job], rng: Random) -> list[Job]:
    """The jobs, each of one of the four classes at random."""
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
"""Share of its run time that a job saves when nobody disturbs it: scenarios of
Jigsaw (HPDC'21) 5.4.1. 5, 10 and 20 percent: every job of more than 4 hosts. V2: a
bucket of at most 0, 10, 20 or 30 percent at random, linear in the job's hosts
within it. Random: 0, 5, 15 or 30 percent at random, more than 64 hosts only."""


def with_speedup(jobs: Iterable[Job], scenario: str, rng: Random) -> list[Job]:
    """The jobs with the run times they have when isolated.

    Raises:
        InvalidInput: there is no such scenario.
    """
    if scenario not in SPEEDUPS:
        raise InvalidInput("speedup", scenario, f"use one of {', '.join(SPEEDUPS)}")
    listed = list(jobs)
    largest = max((job.hosts for job in listed), default=0)
    saved = SPEEDUPS[scenario]
    return [
        replace(job, run=None if job.run is None else job.run * (1 - saved(job, largest, rng)))
        for job in listed
    ]
