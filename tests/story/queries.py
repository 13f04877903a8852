# SPDX-License-Identifier: Apache-2.0

"""LID-routed queries between simulated hosts, again and again while tables change.

A query goes over the forwarding tables as any packet does, and is sent once. ``Queries`` runs this
module as a program on a simulated host, which asks the LIDs of its command line in turn.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice, product
from pathlib import Path

from opensm_writer.smp import NODE_INFO, Query, SmpPort
from tests.ibsim import Simulator

IN_A_RUN = 60
"""Queries of one run of the program."""

REST = 0.01
"""Seconds between two of them."""

LATE = 3.0
"""Seconds after which a query counts as lost. ibsim returns at once what it cannot deliver."""

AT_ONCE = 2
"""Programs that run at the same time; ibsim serves ten clients, OpenSM and readers among them."""

Ways = Mapping[str, Collection[str]]
"""Host -> hosts that its packets have to reach."""


@dataclass
class Counts:
    sent: int = 0
    lost: int = 0
    pairs: frozenset[tuple[str, str]] = frozenset()
    """Hosts between which queries went."""
    longest: float = 0.0
    """Seconds of the longest time without an answer between two hosts, if a query was lost."""
    examples: list[str] = field(default_factory=list)


class Queries:
    """Queries between hosts until the block ends.

    The host with the pair that was asked longest ago is the next source, so that pairs which a
    change of a placement adds come first.
    ``ways`` tells which hosts have to reach which now. A query counts if it had to arrive when its
    run began and when it ended. ``nodes`` and ``lids`` are by the name of a host.
    """

    def __init__(
        self,
        simulator: Simulator,
        nodes: Mapping[str, str],
        lids: Mapping[str, int],
        ways: Callable[[], Ways],
    ) -> None:
        self._simulator, self._nodes, self._lids, self._ways = simulator, nodes, lids, ways
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._runs = 0
        self._asked_in: dict[tuple[str, str], int] = {}
        """The number of the run in which a query went between two hosts for the last time."""
        self._answered: dict[tuple[str, str], float] = {}
        """When a query between two hosts was last answered."""
        self._gaps: dict[tuple[str, str], float] = {}
        """Since when none has been."""
        self._error: BaseException | None = None
        self._counts = Counts()
        self._pairs: set[tuple[str, str]] = set()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(AT_ONCE)]

    def __enter__(self) -> Queries:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def taken(self) -> Counts:
        """The counts since they were last taken. Raises: what broke the queries."""
        with self._lock:
            if self._error is not None:
                raise self._error
            counts, self._counts = self._counts, Counts()
            counts.pairs = frozenset(self._pairs)
            self._pairs = set()
            return counts

    def reaches(self, source: str, target: str) -> bool:
        """Whether one query gets from a host to another now."""
        answers = self._asked(source, {self._lids[target]: target})
        return all(answered for _, _, answered in answers)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._one_source()
        except BaseException as error:
            with self._lock:
                self._error = error

    def _one_source(self) -> None:
        before = self._ways()
        sources = sorted(source for source, targets in before.items() if targets)
        if not sources:
            self._stop.wait(0.1)
            return
        with self._lock:
            source = min(sources, key=lambda one: self._last_run(one, before[one]))
            self._runs += 1
            self._asked_in |= dict.fromkeys(product((source,), before[source]), self._runs)
        targets = {self._lids[target]: target for target in before[source]}
        answers = self._asked(source, targets)
        still = self._ways().get(source, ())
        with self._lock:
            for at, target, answered in answers:
                if target in still:
                    self._count((source, target), at, answered)

    def _last_run(self, source: str, targets: Collection[str]) -> int:
        return min(self._asked_in.get((source, target), 0) for target in targets)

    def _asked(self, source: str, targets: Mapping[int, str]) -> list[tuple[float, str, bool]]:
        """(time, target, whether it was answered) of each query."""
        program = (sys.executable, "-m", "tests.story.queries", *map(str, targets))
        here = ("env", f"PYTHONPATH={Path(__file__).parents[2]}")
        done = self._simulator.run(*here, *program, host=self._nodes[source])
        return [
            (float(at), targets[lid], answered)
            for at, lid, answered in map(json.loads, done.stdout.splitlines())
        ]

    def _count(self, pair: tuple[str, str], at: float, answered: bool) -> None:
        counts = self._counts
        counts.sent += 1
        self._pairs.add(pair)
        if answered:
            since = self._gaps.pop(pair, None)
            if since is not None:
                counts.longest = max(counts.longest, at - since)
            self._answered[pair] = at
            return
        counts.lost += 1
        since = self._gaps.setdefault(pair, self._answered.get(pair, at))
        counts.longest = max(counts.longest, at - since)
        if len(counts.examples) < 5:
            counts.examples.append(f"{pair[0]} to {pair[1]}")


def ask(lids: list[int]) -> None:
    """Ask the LIDs in turn; print (time, LID, whether it answered) of each query as JSON."""
    port = SmpPort(timeout=LATE, tries=1, limit=float("inf"))
    try:
        for lid in islice(cycle(lids), IN_A_RUN):
            port._unanswered.clear()  # a lost query does not end the others
            answered = bool(port.all_answers([Query(lid, NODE_INFO)]))
            print(json.dumps((time.time(), lid, answered)))
            time.sleep(REST)
    finally:
        port.close()


if __name__ == "__main__":
    ask([int(word) for word in sys.argv[1:]])
