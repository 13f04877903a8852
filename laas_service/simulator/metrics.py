# SPDX-License-Identifier: Apache-2.0

"""Metrics of a simulation: utilization, turnaround, waits, fragmentation, search times.

Sources: LaaS (ANCS'16) section 4, Jigsaw (HPDC'21) section 6; fragmentation and queue
length are additions of this project.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.moves.nearest import Nearest
from laas_service.domain.policies.base import Policy
from laas_service.simulator.moves import MoveCounts
from laas_service.simulator.workload import Job

LARGE = 100
"""Jobs of more hosts than this are the large ones. Source: Jigsaw (HPDC'21) 6.2."""

BANDS = ("<=60", "60-80", "80-90", "90-95", "95-97", ">=98")
"""Bands of instantaneous utilization, percent of hosts. Source: Jigsaw (HPDC'21) Table 2."""
_EDGES = (80, 90, 95, 98)
"""Lower edges of all bands but the first two."""
SERIES_POINTS = 200
"""A time series keeps between this many points and twice as many; older ones are thinned out."""


ALL_TIMED = 100_000
"""The first calls of a policy are timed all, and of later ones every ``TIMED_OF``-th."""
TIMED_OF = 16

_DIGITS = 11
"""Binary digits kept of a time, so that times take the same memory however many there are."""


class TimedPolicy:
    """Wraps ``policy``; measures the time of calls and counts exhausted search budgets.

    ``clock`` returns nanoseconds. The processor time of the thread is the best choice, as
    other processes of a busy machine do not change it. It takes a system call, which is why
    not all calls of a long run are timed.
    """

    def __init__(self, policy: Policy, clock: Callable[[], int]) -> None:
        self.name = policy.name
        self.isolating = policy.isolating
        self.monotone = policy.monotone
        self._policy = policy
        self._clock = clock
        self.budget_hits = 0
        """Calls that ended because the search budget was exhausted."""
        self.calls = 0
        """Number of calls."""
        self._timed = 0
        self._total_ns = 0
        self._longest_ns = 0
        self._counts: dict[int, int] = {}
        """Timed calls by their nanoseconds, of which ``_DIGITS`` binary digits are kept."""

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        self.calls += 1
        if self.calls > ALL_TIMED and self.calls % TIMED_OF:
            answer = self._policy.propose(fabric, request)
        else:
            start = self._clock()
            answer = self._policy.propose(fabric, request)
            self._record(self._clock() - start)
        if isinstance(answer, NoFit) and answer.reason.unproven:
            self.budget_hits += 1
        return answer

    def _record(self, elapsed_ns: int) -> None:
        self._timed += 1
        self._total_ns += elapsed_ns
        if elapsed_ns > self._longest_ns:
            self._longest_ns = elapsed_ns
        dropped = max(0, elapsed_ns.bit_length() - _DIGITS)
        kept = elapsed_ns >> dropped << dropped
        self._counts[kept] = self._counts.get(kept, 0) + 1

    def call_us(self) -> dict[str, float]:
        """Microseconds per timed call: mean, median, 99th percentile and maximum; 0 without calls.

        Median and percentile are accurate to a thousandth of their value.
        """
        if not self.calls:
            return {"mean": 0.0, "p50": 0.0, "p99": 0.0, "max": 0.0}
        statistics = {
            "mean": self._total_ns / self._timed,
            "p50": self._quantile(0.5),
            "p99": self._quantile(0.99),
            "max": self._longest_ns,
        }
        return {name: round(value / 1000, 3) for name, value in statistics.items()}

    def _quantile(self, share: float) -> int:
        """The nanoseconds below which ``share`` (0..1) of the calls lie."""
        values = sorted(self._counts)
        calls_up_to = list(accumulate(self._counts[value] for value in values))
        return values[bisect_right(calls_up_to, min(self._timed - 1, int(share * self._timed)))]


@dataclass(slots=True)
class _Mean:
    """The sum and the number of values, for their mean."""

    total: float = 0
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1

    def value(self) -> float | None:
        return _rounded(self.total / self.count) if self.count else None


class _Area(NamedTuple):
    """Integrals over time: host-seconds, and seconds of queued jobs."""

    span: float
    """Seconds that the integrals cover."""
    requested: float
    """Host-seconds that running jobs requested."""
    allocated: float
    """Host-seconds that running jobs held, which policies may round up."""
    queued: float
    """Job-seconds spent in the queue."""


@dataclass(slots=True)
class _Areas:
    """The same, growing with the time."""

    span: float = 0
    requested: float = 0
    allocated: float = 0
    queued: float = 0

    def add(self, span: float, requested: int, allocated: int, queued: int) -> None:
        self.span += span
        self.requested += span * requested
        self.allocated += span * allocated
        self.queued += span * queued

    def now(self) -> _Area:
        return _Area(self.span, self.requested, self.allocated, self.queued)


class Metrics:
    """Observes a simulation; ``summary`` returns the metrics.

    Utilization counts the hosts that jobs requested, in percent of ``hosts``, over the
    steady state: from the time at which the first job waits until the last job starts.
    If no job ever waits, or the steady state has no length, it covers the whole run.

    ``largest_fit`` returns the size in hosts of the largest request that would fit now. It
    is called about ``fragments`` times, while jobs wait.
    """

    def __init__(
        self,
        hosts: int,
        jobs: int,
        largest_fit: Callable[[], int] | None = None,
        fragments: int = 200,
    ) -> None:
        self._hosts = hosts
        self._largest_fit = largest_fit
        self._starts_per_fragment = max(1, jobs // fragments)
        self._fragments: list[tuple[int, int]] = []
        self._first_event: float | None = None
        self._now: float = 0
        self._requested = 0
        self._allocated = 0
        self._queued = 0
        self._longest_queue = 0
        self._whole = _Areas()
        self._steady: _Areas | None = None
        self._until_last_start = _Areas().now()
        self._bands = [0] * len(BANDS)
        self._bands_until_last_start = [0] * len(BANDS)
        self._starts = 0
        self._waits: float = 0
        self._turnarounds = _Mean()
        self._large_turnarounds = _Mean()
        self._lost = 0.0
        """Host-seconds that moved jobs lost, those of moves in the steady state."""
        self._lost_until_last_start = 0.0
        self._moves = MoveCounts()
        self._series: list[tuple[float, float, int]] = []
        self._stride = 1
        self._moments = 0

    # -- events ---------------------------------------------------------------

    def started(self, now: float, job: Job, allocation: Allocation) -> None:
        if now != self._now or self._first_event is None:
            self._pass_time(now)
        self._requested += job.hosts
        self._allocated += allocation.size
        self._waits += now - job.arrival
        self._starts += 1
        self._moves.placed += job.hosts
        if self._steady is not None:
            self._sample_band()
            self._lost_until_last_start = self._lost
            self._until_last_start = self._steady.now()
            self._bands_until_last_start = self._bands.copy()

    def finished(self, now: float, job: Job, allocation: Allocation) -> None:
        self._pass_time(now)
        self._requested -= job.hosts
        self._allocated -= allocation.size
        self._moves.finished(job)
        self._turnarounds.add(now - job.arrival)
        if job.hosts > LARGE:
            self._large_turnarounds.add(now - job.arrival)
        if self._steady is not None:
            self._sample_band()

    def moved(self, now: float, move: Nearest, seconds_lost: float) -> None:
        self._pass_time(now)
        self._moves.moved(move, seconds_lost)
        if self._steady is not None:
            self._lost += seconds_lost * move.allocation.size

    def settled(self, now: float, waiting: int) -> None:
        if now != self._now or self._first_event is None:
            self._pass_time(now)
        self._queued = waiting
        if waiting > self._longest_queue:
            self._longest_queue = waiting
        if waiting and self._steady is None:
            self._steady = _Areas()
        if waiting and self._starts >= len(self._fragments) * self._starts_per_fragment:
            self._sample_fragments()
        if self._moments % self._stride == 0:
            self._sample_series(now)
        self._moments += 1

    def _pass_time(self, now: float) -> None:
        if self._first_event is None:
            self._first_event = self._now = now
        if now != self._now:
            span = now - self._now
            self._whole.add(span, self._requested, self._allocated, self._queued)
            if self._steady is not None:
                self._steady.add(span, self._requested, self._allocated, self._queued)
            self._now = now

    def _sample_band(self) -> None:
        percent = 100 * self._requested / self._hosts
        band = 0 if percent <= 60 else 1 + bisect_right(_EDGES, percent)
        self._bands[band] += 1

    def _sample_fragments(self) -> None:
        if self._largest_fit is not None:
            self._fragments.append((self._hosts - self._allocated, self._largest_fit()))

    def _sample_series(self, now: float) -> None:
        utilization = round(100 * self._requested / self._hosts, 2)
        self._series.append((now, utilization, self._queued))
        if len(self._series) > 2 * SERIES_POINTS:
            del self._series[1::2]
            self._stride *= 2

    # -- results --------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """The metrics by their names in JSON.

        Utilization and fragmentation are in percent of the hosts, times in seconds,
        ``instantaneous`` in shares of the samples (0..1). A metric without data is None.
        """
        steady = self._until_last_start if self._until_last_start.span else self._whole.now()
        bands = self._bands_until_last_start
        samples = max(1, sum(bands))
        return {
            "utilization": self._percent(steady.requested, steady.span),
            "utilization_allocated": self._percent(steady.allocated, steady.span),
            "makespan": _rounded(self._now - (self._first_event or 0)),
            "turnaround_mean": self._turnarounds.value(),
            "turnaround_mean_large": self._large_turnarounds.value(),
            "wait_mean": _rounded(self._waits / self._starts) if self._starts else None,
            "instantaneous": {
                name: round(count / samples, 6)
                for name, count in zip(reversed(BANDS), reversed(bands), strict=True)
            },
            "queue": {
                "mean": _rounded(steady.queued / steady.span if steady.span else 0),
                "max": self._longest_queue,
            },
            "fragmentation": self._fragmentation(),
            "series": {
                "columns": ["time", "utilization", "waiting"],
                "points": [[_rounded(t), u, w] for t, u, w in self._series],
            },
        }

    def summary_of_moves(self) -> dict[str, Any]:
        """What was moved, and the utilization without the time that moved jobs lost."""
        steady, lost = self._whole.now(), self._lost
        if self._until_last_start.span:
            steady, lost = self._until_last_start, self._lost_until_last_start
        net = self._percent(steady.requested - lost, steady.span)
        return {**self._moves.summary(), "utilization_net": net}

    def _percent(self, area: float, span: float) -> float | None:
        return round(100 * area / (span * self._hosts), 4) if span else None

    def _fragmentation(self) -> dict[str, Any]:
        """Means in percent of the hosts: free ones, and those above the largest fitting request."""
        count = len(self._fragments)
        free = sum(free for free, _ in self._fragments)
        unusable = sum(free - fit for free, fit in self._fragments)
        return {
            "samples": count,
            "free": self._percent(free, count),
            "unusable": self._percent(unusable, count),
        }


def _rounded(value: float) -> float:
    return round(value, 3)
