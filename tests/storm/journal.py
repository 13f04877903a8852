# SPDX-License-Identifier: Apache-2.0

"""What clients were told, to be held against what is recorded; and how long it took."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Told:
    """One allocation as its client knows it; ``live`` until its release was acknowledged."""

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
    """Of one client, who alone writes it; others read it while the client rests.

    ``refused`` are the keys whose last answer was no. ``down`` has the state of hosts and links
    that this client has set last, by fabric, kind and name.
    """

    told: dict[str, Told] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    down: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def live(self) -> list[Told]:
        return [told for told in self.told.values() if told.live]


class Complaints:
    """What must not be, in the order in which it was noticed; each once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._said: dict[str, None] = {}

    def add(self, *sentences: str) -> None:
        with self._lock:
            for sentence in sentences:
                if sentence not in self._said:
                    self._said[sentence] = None
                    after = time.monotonic() - self._began
                    print(f"!! after {after:.0f} s: {sentence}", flush=True)

    def __iter__(self) -> Any:
        return iter(list(self._said))

    def __len__(self) -> int:
        return len(self._said)


class Figures:
    """Outcomes by kind of operation, and the seconds until each answer by verb."""

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
    """The value that this part of them does not exceed; ``values`` ascend."""
    return values[min(len(values) - 1, int(part * len(values)))]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """For a page of the documentation."""
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
