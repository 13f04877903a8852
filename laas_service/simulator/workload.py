# SPDX-License-Identifier: Apache-2.0

"""Job workloads: read from trace files (SWF, CSV), drawn at random, rescaled and sped up.

A reader records a line that is not a job in ``Workload.malformed``, with its number and
the reason, and reads on.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from random import Random
from typing import IO, Any, NamedTuple, TypeVar, overload

from laas_service.domain.errors import InvalidFile, InvalidInput

SWF_FIELDS = 18
T = TypeVar("T")

STATUS_CANCELLED = 5
"""Status field of a cancelled job in the Standard Workload Format."""


class Job(NamedTuple):
    """A tenant of a simulation, with an arrival and a run time."""

    id: str
    arrival: float
    """Seconds from the start of the trace."""
    hosts: int
    run: float | None
    """Run time in seconds; None if it is not known."""
    bandwidth: int | None = None
    """Parts per million of each link that the job needs, where links are shared."""
    domains: int | None = None
    """The number of whole domains that have these hosts; None if any hosts will do."""


class Malformed(NamedTuple):
    """A line of a trace that is not a job."""

    line: int
    """Counted from 1."""
    why: str


class Jobs(Sequence[Job]):
    """Jobs in columns, which take about a fifth of the memory of ``Job`` objects.

    An item is made when it is asked for. Columns are not changed after the object is made.
    """

    __slots__ = ("arrivals", "bandwidths", "domains", "hosts", "ids", "runs")

    def __init__(
        self,
        ids: Sequence[str | int],
        arrivals: Iterable[float],
        hosts: Iterable[int],
        runs: Iterable[float | None],
        bandwidths: Iterable[int | None] | None = None,
        domains: Iterable[int | None] | None = None,
    ) -> None:
        self.ids = ids
        """The ids of the jobs, or numbers that become ids."""

        self.arrivals: Sequence[float] = _packed(arrivals)
        self.hosts: Sequence[int] = _packed(hosts)
        self.runs: Sequence[float | None] = _packed(runs)

        self.bandwidths: Sequence[int | None] | None = (
            None if bandwidths is None else _packed(bandwidths)
        )
        """None if no job has a bandwidth."""

        self.domains: Sequence[int | None] | None = None if domains is None else _packed(domains)
        """None if no job asks for whole domains."""

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> Jobs:
        """The same jobs in columns."""
        jobs = list(jobs)
        return cls(
            [job.id for job in jobs],
            [job.arrival for job in jobs],
            [job.hosts for job in jobs],
            [job.run for job in jobs],
            [job.bandwidth for job in jobs],
            [job.domains for job in jobs] if any(job.domains for job in jobs) else None,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | Sequence[Job]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        return Job(
            str(self.ids[index]),
            self.arrivals[index],
            self.hosts[index],
            self.runs[index],
            None if self.bandwidths is None else self.bandwidths[index],
            None if self.domains is None else self.domains[index],
        )

    def __eq__(self, other: object) -> bool:
        """Whether the other sequence has the same jobs in the same order."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def of_sizes(self, sizes: Collection[int]) -> Jobs:
        """The jobs whose number of hosts is one of ``sizes``."""
        return self.at([index for index, hosts in enumerate(self.hosts) if hosts in sizes])

    def by_arrival(self) -> Jobs:
        """The jobs sorted by arrival; jobs that arrive at the same time keep their order."""
        arrivals = self.arrivals
        if all(arrivals[i] <= arrivals[i + 1] for i in range(len(arrivals) - 1)):
            return self
        return self.at(sorted(range(len(arrivals)), key=arrivals.__getitem__))

    def having(
        self,
        *,
        arrivals: Iterable[float] | None = None,
        runs: Iterable[float | None] | None = None,
        bandwidths: Iterable[int | None] | None = None,
    ) -> Jobs:
        """The same jobs with other columns in place of those given."""
        return Jobs(
            self.ids,
            self.arrivals if arrivals is None else arrivals,
            self.hosts,
            self.runs if runs is None else runs,
            self.bandwidths if bandwidths is None else bandwidths,
            self.domains,
        )

    def at(self, indices: Sequence[int]) -> Jobs:
        """The jobs at these indices, in this order."""
        return Jobs(
            _items(self.ids, indices),
            _items(self.arrivals, indices),
            _items(self.hosts, indices),
            _items(self.runs, indices),
            None if self.bandwidths is None else _items(self.bandwidths, indices),
            None if self.domains is None else _items(self.domains, indices),
        )


def _items(column: Sequence[T], indices: Sequence[int]) -> Sequence[T]:
    return [column[index] for index in indices]


def _packed(values: Iterable[T]) -> Sequence[T]:
    """The values in eight bytes each if all are ints or all are floats, else as they are."""
    if isinstance(values, array):
        return values
    values = list(values)
    codes = {frozenset({int}): "q", frozenset({float}): "d"}
    code = codes.get(frozenset(map(type, values)))
    packed: Any = values
    if code is not None:
        with suppress(OverflowError):  # an int of more than 64 bits
            packed = array(code, packed)
    column: Sequence[T] = packed
    return column


class ProcessorsPerHost(NamedTuple):
    """By how many processors a trace's sizes are divided, and what says so."""

    processors: int
    source: str


@dataclass
class Workload:
    """The jobs of a source in its order, and the records that were left out."""

    jobs: Jobs = field(default_factory=lambda: Jobs.of(()))
    malformed: list[Malformed] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why well-formed records are no jobs here -> their number."""
    per_host: ProcessorsPerHost | None = None
    """None if the jobs are not of a trace."""

    @property
    def left_out(self) -> int:
        """Number of well-formed records that are no usable job, or that a filter dropped."""
        return self.reasons.total()


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
        opened: Callable[..., IO[str]] = gzip.open if packed else open
        with opened(path, "rt", encoding="utf-8", errors="replace") as text:
            yield text
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput("trace", path, f"cannot be read: {error}") from error


class _TraceReader:
    """Collects the jobs of a trace in columns."""

    def __init__(self) -> None:
        self.reasons = Counter[str]()
        self._malformed: list[Malformed] = []
        self._uses: dict[str, int] = {}
        self._arrivals: list[float] = []
        self._hosts: list[int] = []
        self._runs: list[float | None] = []

    def add(self, id: str, arrival: float, hosts: int, run: float | None) -> None:
        """Append a job; if its id was used before, it gets a suffix, as ids are unique."""
        uses = self._uses[id] = self._uses.get(id, 0) + 1
        if uses > 1:
            while f"{id}.{uses}" in self._uses:
                uses += 1
            self._uses[f"{id}.{uses}"] = 1
        self._arrivals.append(arrival)
        self._hosts.append(hosts)
        self._runs.append(run)

    def reject(self, line: int, why: str) -> None:
        """Record a line that is not a job."""
        self._malformed.append(Malformed(line, why))

    def workload(self, per_host: ProcessorsPerHost | None = None) -> Workload:
        """All that was read; the reader is not used afterwards."""
        ids = list(self._uses)
        self._uses.clear()
        jobs = Jobs(ids, self._arrivals, self._hosts, self._runs)
        return Workload(jobs, self._malformed, self.reasons, per_host)


class _SwfHeader:
    """The fields MaxNodes and MaxProcs in the comments before the first record of a trace."""

    def __init__(self) -> None:
        self._fields: dict[str, int] = {}

    def read(self, line: str) -> None:
        """Take the field of a line such as ``; MaxNodes: 338 (batch partition)``."""
        found = re.match(r";\s*(MaxNodes|MaxProcs)\s*:\s*(\d{1,12})(?![\d.])", line, re.ASCII)
        if found is not None:
            self._fields.setdefault(found[1], int(found[2]))

    def per_host(self) -> ProcessorsPerHost:
        """MaxProcs / MaxNodes where that is whole, else 1."""
        nodes, processors = self._fields.get("MaxNodes"), self._fields.get("MaxProcs")
        if not nodes or not processors:
            missing = [name for name in ("MaxProcs", "MaxNodes") if not self._fields.get(name)]
            return ProcessorsPerHost(1, f"the header has no {' and no '.join(missing)}")
        ratio = f"MaxProcs {processors} / MaxNodes {nodes}"
        if processors % nodes:
            return ProcessorsPerHost(1, f"{ratio} of the header is not whole")
        return ProcessorsPerHost(processors // nodes, f"{ratio} of the header")


def read_swf(
    lines: Iterable[str], *, procs_per_node: int | None = None, clean: bool = False
) -> Workload:
    """Read jobs in the Standard Workload Format, version 2.2.

    A job has as many hosts as its allocated processors (field 5) need at
    ``procs_per_node`` each, rounded up; where field 5 is not known, the requested
    processors (field 8) count. Without ``procs_per_node`` the header's MaxProcs / MaxNodes
    counts if it is whole, else 1. Records without a positive size and run time are left out.
    ``clean`` also leaves out cancelled jobs (status 5).

    Raises:
        InvalidInput: ``procs_per_node`` is below 1.
    """
    if procs_per_node is not None and procs_per_node < 1:
        raise InvalidInput("procs_per_node", procs_per_node, "give at least 1 processor")
    header, reader = _SwfHeader(), _TraceReader()
    per_host = None
    if procs_per_node is not None:
        per_host = ProcessorsPerHost(procs_per_node, "--procs-per-node")
    for number, line in enumerate(lines, 1):
        text = line.split(";", 1)[0].split()
        if not text:
            header.read(line.strip())
            continue
        if len(text) != SWF_FIELDS:
            reader.reject(number, f"{len(text)} fields, {SWF_FIELDS} expected")
            continue
        try:
            values = [float(x) for x in text]
        except ValueError as error:
            reader.reject(number, str(error))
            continue
        if not all(map(math.isfinite, values)):
            reader.reject(number, "a field is not finite")
            continue
        job, submit, _, run, allocated, _, _, requested, _, _, status = values[:11]
        procs = allocated if allocated > 0 else requested
        if clean and status == STATUS_CANCELLED:
            reader.reasons[CANCELLED] += 1
        elif reason := _unusable(procs, submit, run):
            reader.reasons[reason] += 1
        else:
            per_host = per_host or header.per_host()
            hosts = math.ceil(procs / per_host.processors)
            reader.add(f"{job:.0f}", _plain(submit), hosts, _plain(run))
    return reader.workload(per_host or header.per_host())


CANCELLED = "cancelled (status 5)"


def _unusable(size: float, arrival: float, run: float | None) -> str:
    """Why a record is no usable job; empty if it is one."""
    if size <= 0:
        return "no size"
    if run is not None and run <= 0:
        return "no run time"
    return "arrival below 0" if arrival < 0 else ""


def read_csv(lines: Iterable[str]) -> Workload:
    """Read jobs in the format of the LaaS (ANCS'16) simulator, one a line.

    A line has id, hosts, arrival and run time (seconds), separated by commas or blanks. A
    first line that is no job is a heading. The run time may be missing; ``with_random_run``
    then draws one.
    """
    reader = _TraceReader()
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
                reader.reject(number, str(error))
            continue
        if reason := _unusable(hosts, arrival, run):
            reader.reasons[reason] += 1
            continue
        reader.add(text[0], _plain(arrival), hosts, None if run is None else _plain(run))
    return reader.workload(ProcessorsPerHost(1, "the file counts hosts"))


def read_trace(
    path: str, form: str = "swf", *, procs_per_node: int | None = None, clean: bool = False
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
        rate, sizes = 1 / self.mean, array("q")
        while len(sizes) < self.jobs:
            hosts = max(1, math.ceil(rng.expovariate(rate)))
            if hosts <= limit:
                sizes.append(hosts)
        numbers = range(1, self.jobs + 1)
        return Workload(
            Jobs(numbers, array("q", bytes(8 * self.jobs)), sizes, repeat(None, self.jobs))
        )


# -- changes ------------------------------------------------------------------


def with_random_run(jobs: Jobs, low: int, high: int, rng: Random) -> Jobs:
    """The jobs with run times drawn uniformly from the whole seconds low..high."""
    return jobs.having(runs=array("q", (rng.randint(low, high) for _ in jobs.hosts)))


def with_arrivals(jobs: Jobs, factor: float) -> Jobs:
    """The jobs sorted by arrival; arrivals count from the first one, times ``factor``."""
    ordered = jobs.by_arrival()
    first = ordered.arrivals[0] if ordered else 0
    return ordered.having(arrivals=[(arrival - first) * factor for arrival in ordered.arrivals])


RUNTIME = (20, 3000)
"""Run times of synthetic jobs, seconds. LaaS (ANCS'16) 4.1 says 20 and 10; Jigsaw 20."""

SHARES = (100_000, 200_000, 300_000, 400_000)
"""Bandwidth classes in ppm of a link: 0.5, 1, 1.5 and 2 of 5 GB/s. Source: Jigsaw, 5.4.2."""


def with_bandwidth(jobs: Jobs, rng: Random) -> Jobs:
    """The jobs, each with a bandwidth class of ``SHARES`` at random."""
    return jobs.having(bandwidths=array("q", (rng.choice(SHARES) for _ in jobs.hosts)))


MOST_DOMAINS = 8
"""A job that asks for whole domains asks for 1 to so many."""

KIND = "block"
"""The kind of the domains of a simulated fabric."""


class WholeDomains(NamedTuple):
    """Domains of a simulated fabric, and the jobs that ask for whole ones."""

    size: int
    """So many hosts in a row are a domain, 1 or more."""
    share: float = 0.5
    """The share of the jobs, drawn at random, that ask for whole domains instead of their hosts."""
    as_hosts: bool = False
    """Whether these jobs ask for as many hosts anywhere instead, to compare with."""

    @classmethod
    def parse(cls, text: str, *, as_hosts: bool = False) -> WholeDomains:
        """Parse ``SIZE`` or ``SIZE:SHARE``. Raises: InvalidInput."""
        size, colon, share = text.partition(":")
        try:
            parsed = cls(int(size), float(share) if colon else 0.5, as_hosts)
        except ValueError:
            parsed = cls(0)
        if parsed.size < 1 or not 0 <= parsed.share <= 1:
            fix = "use SIZE or SIZE:SHARE, for example 18 or 18:0.5"
            raise InvalidInput("domains", text, fix)
        return parsed

    def changed(self, jobs: Jobs, hosts: int, rng: Random) -> Jobs:
        """The jobs, of which a share asks for 1 to ``MOST_DOMAINS`` domains of a fabric."""
        most = min(MOST_DOMAINS, hosts // self.size)
        if not most:
            fix = f"give at most {hosts}, the hosts of the fabric"
            raise InvalidInput("domains", self.size, fix)
        drawn = [rng.randint(1, most) if rng.random() < self.share else None for _ in jobs.hosts]
        sizes = (
            count * self.size if count else size
            for count, size in zip(drawn, jobs.hosts, strict=True)
        )
        domains = None if self.as_hosts else drawn
        return Jobs(jobs.ids, jobs.arrivals, sizes, jobs.runs, jobs.bandwidths, domains)


def _by_percent(percent: int) -> Callable[[int, int, Random], float]:
    return lambda hosts, largest, rng: percent / 100 if hosts > 4 else 0.0


def _v2(hosts: int, largest: int, rng: Random) -> float:
    ceiling = rng.choice((0.0, 0.1, 0.2, 0.3))
    return ceiling * (hosts - 4) / max(1, largest - 4) if hosts > 4 else 0.0


def _random(hosts: int, largest: int, rng: Random) -> float:
    gain = rng.choice((0.0, 0.05, 0.15, 0.3))
    return gain if hosts > 64 else 0.0


SPEEDUPS: dict[str, Callable[[int, int, Random], float]] = {
    "none": lambda hosts, largest, rng: 0.0,
    "5": _by_percent(5),
    "10": _by_percent(10),
    "20": _by_percent(20),
    "v2": _v2,
    "random": _random,
}
"""Scenario -> (hosts of the job, hosts of the largest job, random stream) -> share of the run
time (0..1) that an isolated job saves. Source: Jigsaw (HPDC'21) 5.4.1.

``5``, ``10``, ``20``: that many percent for every job of more than 4 hosts. ``v2``: a maximum
of 0, 10, 20 or 30 percent at random, and up to it linear in the job's hosts. ``random``: 0, 5,
15 or 30 percent at random, for jobs of more than 64 hosts."""


NEAREST = 5
"""Among so many measured tenants of about its size a job draws the one that it runs like."""


def with_interference(jobs: Jobs, measured: Sequence[tuple[int, float]], rng: Random) -> Jobs:
    """The jobs with the run times that they have among others.

    ``measured`` are tenants: their hosts, and their time over that in a cluster of their own. The
    times of a job are those of one of the ``NEAREST`` tenants by the ratio of hosts, drawn; a job
    of one host sends nothing, and keeps its run time.
    """
    near = {
        hosts: sorted(measured, key=lambda tenant: abs(math.log(tenant[0] / hosts)))[:NEAREST]
        for hosts in set(jobs.hosts)
    }
    return jobs.having(
        runs=[
            run if run is None or hosts == 1 else run * rng.choice(near[hosts])[1]
            for hosts, run in zip(jobs.hosts, jobs.runs, strict=True)
        ]
    )


def with_speedup(jobs: Jobs, scenario: str, rng: Random) -> Jobs:
    """The jobs with the run times that they have when isolated.

    Raises:
        InvalidInput: there is no such scenario.
    """
    if scenario not in SPEEDUPS:
        raise InvalidInput("speedup", scenario, f"use one of {', '.join(SPEEDUPS)}")
    largest = max(jobs.hosts, default=0)
    saved = SPEEDUPS[scenario]
    return jobs.having(
        runs=[
            None if run is None else run * (1 - saved(hosts, largest, rng))
            for hosts, run in zip(jobs.hosts, jobs.runs, strict=True)
        ]
    )
