# SPDX-License-Identifier: Apache-2.0

"""Journals of the clients, which the judge compares with the record; figures and complaints."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Told:
    """An allocation as its client knows it; ``live`` until its release is acknowledged."""

    id: str
    key: str
    fabric: str
    name: str
    hosts: int
    container: bool = False
    parent: str | None = None
    waits: bool = False
    live: bool = True


@dataclass
class Journal:
    """Journal of one client. Only the client writes it; others read it while the client rests.

    ``refused`` has the idempotency keys whose last answer was a refusal. ``down`` has the
    states of hosts and links that the client has set last, by fabric, kind and name.
    """

    told: dict[str, Told] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    down: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def live(self) -> list[Told]:
        return [told for told in self.told.values() if told.live]

    def replace(self, told: Iterable[Told], down: Mapping[tuple[str, str, str], str]) -> None:
        """Know what the database knows: it went back."""
        self.told = {one.id: one for one in told}
        self.refused, self.down = set(), dict(down)


class Complaints:
    """Broken promises in the order of their discovery, each once.

    While ``excused`` is set, the database goes back: what clients find then (``add_found``)
    is that.
    """

    def __init__(self) -> None:
        self.excused = False
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._said: dict[str, None] = {}
        self._first: float | None = None

    def add(self, *sentences: str) -> None:
        with self._lock:
            for sentence in sentences:
                if sentence not in self._said:
                    self._said[sentence] = None
                    after = time.monotonic() - self._began
                    self._first = after if self._first is None else self._first
                    print(f"!! after {after:.0f} s: {sentence}", flush=True)

    def add_found(self, sentence: str) -> None:
        """Add what a client found, unless the database goes back."""
        if not self.excused:
            self.add(sentence)

    @property
    def first(self) -> float | None:
        """Seconds to the first of them."""
        return self._first

    def __iter__(self) -> Any:
        return iter(list(self._said))

    def __len__(self) -> int:
        return len(self._said)


class Figures:
    """Number of outcomes by kind of operation, and seconds of each answer by HTTP method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def count(self, kind: str, outcome: str) -> None:
        with self._lock:
            self.outcomes[kind][outcome] += 1

    def took(self, verb: str, seconds: float) -> None:
        with self._lock:
            self.seconds[verb].append(seconds)

    @property
    def total(self) -> int:
        with self._lock:
            return sum(counter.total() for counter in self.outcomes.values())


def share(values: Sequence[float], part: float) -> float:
    """Quantile of ``values``, which ascend; ``part`` is from 0 to 1."""
    return values[min(len(values) - 1, int(part * len(values)))]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of reStructuredText, for a page of the documentation."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(header))]
    rule = " ".join("=" * width for width in widths)
    said = [
        " ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([rule, said[0], rule, *said[1:], rule])


def report(figures: Figures) -> str:
    kinds = [
        (
            kind,
            f"{counter.total():,}",
            ", ".join(f"{n:,} {what}" for what, n in sorted(counter.items())),
        )
        for kind, counter in sorted(figures.outcomes.items())
    ]
    times = []
    for verb, values in sorted(figures.seconds.items()):
        values = sorted(values)
        each = (share(values, 0.5), share(values, 0.99), values[-1])
        times.append((verb, f"{len(values):,}", *(f"{1000 * one:,.0f}" for one in each)))
    return "\n\n".join(
        (
            table(("operation", "times", "outcomes"), kinds),
            table(("verb", "answers", "p50 ms", "p99 ms", "max ms"), times),
        )
    )
