# SPDX-License-Identifier: Apache-2.0

"""Cost of slots of shared hosts: ``python -m tests.bench.sharing [--hosts H] [--requests N]``.

All hosts of a fabric are shared, with 16 slots each and links of 100 Gb/s. The application answers
requests in this process, without an HTTP server, on SQLite: POST of new slots and PATCH of those
that are there, with a certain demand and with a stochastic one, first on empty hosts and then once
four fifths of the slots are taken. Operators then ask what links promise, a page of 1,000, how many
further tenants would fit at three risks, and which hosts few moves empty. Processor time in
milliseconds by kind and answer is reported, never asserted.

With ``--worst N`` it asks the dearest questions of a tenant instead: each alone, then small ones
beside N threads that ask them all the time.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from laas_service.app.lifecycle import State
from laas_service.app.use_cases import READ_AHEAD
from laas_service.cmd.api import SWITCH
from tests.bench.policies import RADIX
from tests.bench.posting import Posting
from tests.storm.journal import share, table
from tests.worst_questions import Question, small_question, worst_questions

SLOTS, LINK, MEAN, FULL = 16, 100.0, 49.0, 0.8
"""Slots of a host, Gb/s of a link, slots of a request (SVC and Kraken), share that is taken."""

LOOKED = 10
"""Times that each question is asked, in each phase."""

BANDWIDTHS = (1.0, 2.0, 3.0, 4.0, 5.0)
"""Gb/s of a slot."""


LOOKS: dict[str, dict[str, Any]] = {
    "promises": {},
    "fit": {"slots": int(MEAN), "deviation": 1.0, "risks": "0.01,0.2"},
}
"""Questions of operators, and what they say; 0.05 is the risk of the links."""

LIGHT = 0.1
"""Share of the slots that is taken while the dearest questions are asked: much is left to try."""

SMALL = 20
"""Small requests of each kind beside the dearest questions."""

MOVES = (8, 64)
"""Virtual machines that plans may move to empty hosts."""


class Sharing:
    """An application whose hosts are all shared."""

    def __init__(self, directory: Path, hosts: int, rng: Random) -> None:
        posting = Posting(directory, hosts)
        self._client, self._store, self._rng = posting.client, posting.parts.store, rng
        self._new_client = posting.client.application.test_client
        self.capacity, self.used = hosts * SLOTS, 0
        self.slots: dict[str, int] = {}
        """By id of an active allocation."""
        sharing = {"slots": SLOTS, "bandwidth": LINK}
        answer = self._client.post(
            "/v1/allocations", json={"name": "all", "hosts": hosts, "sharing": sharing}
        )
        made: Any = answer.json
        self.part: str = made["id"]
        self._store.allocations.transition(
            self._store.allocations.get(self.part), State.ACTIVE, "bench"
        )
        while reading := [x for x in threading.enumerate() if x.name == READ_AHEAD]:
            reading[0].join()
        self.post()  # makes the site of hosts that are not empty, from the same tables

    def size(self) -> int:
        return 1 + int(self._rng.expovariate(1 / MEAN))

    def demand(self) -> dict[str, Any]:
        bandwidth = self._rng.choice(BANDWIDTHS)
        deviation = self._rng.choice((0.0, bandwidth / 2))
        return {"bandwidth": bandwidth, "deviation": deviation}

    def post(self) -> tuple[str, int, float]:
        body = {"name": "load", "class": "shared", "slots": self.size(), **self.demand()}
        began = time.process_time()
        answer = self._client.post("/v1/allocations", json=body)
        spent = time.process_time() - began
        if answer.status_code == 202:
            made: Any = answer.json
            id = made["id"]
            self._store.allocations.transition(
                self._store.allocations.get(id), State.ACTIVE, "bench"
            )
            self.slots[id] = body["slots"]
            self.used += body["slots"]
        return "POST", answer.status_code, 1000 * spent

    def patch(self) -> tuple[str, int, float]:
        id = self._rng.choice(list(self.slots))
        slots = max(1, round(self.slots[id] * self._rng.uniform(0.5, 1.5)))
        body = {"slots": slots, "bandwidth": self._rng.choice(BANDWIDTHS)}
        began = time.process_time()
        answer = self._client.patch(f"/v1/allocations/{id}", json=body)
        spent = time.process_time() - began
        if answer.status_code in (200, 202):
            self.used += slots - self.slots[id]
            self.slots[id] = slots
        if answer.status_code == 202:
            self._store.placement_changes.proceed(self._store.allocations.get(id), "bench")
        return "PATCH", answer.status_code, 1000 * spent

    def look(self, what: str) -> tuple[str, int, float]:
        """An operator's question, by the last part of its path."""
        query = {**LOOKS[what], "bandwidth": self._rng.choice(BANDWIDTHS)} if LOOKS[what] else {}
        began = time.process_time()
        answer = self._client.get(f"/v1/fabrics/bench/{what}", query_string=query)
        return f"GET {what}", answer.status_code, 1000 * (time.process_time() - began)

    def consolidate(self, moves: int) -> tuple[str, int, float]:
        """Plan to empty hosts by so many moves of virtual machines; nobody moves."""
        body = {"dry_run": True, "override": True, "moves": moves}
        began = time.process_time()
        answer = self._client.post("/v1/fabrics/bench/consolidate", json=body)
        return f"consolidate {moves}", answer.status_code, 1000 * (time.process_time() - began)

    def ask(self, question: Question) -> tuple[int, float, float]:
        """The status of the answer; seconds of this thread's processor time, and in all."""
        began, spent = time.perf_counter(), time.thread_time()
        answer = self._new_client().open(question.path, method=question.method, json=question.body)
        return answer.status_code, time.thread_time() - spent, time.perf_counter() - began

    def release(self) -> None:
        id = self._rng.choice(list(self.slots))
        record = self._store.allocations.transition(
            self._store.allocations.get(id), State.RELEASING, "bench"
        )
        self._store.allocations.free(self._store.allocations.hand_back(record), "bench")
        self.used -= self.slots.pop(id)


def measure(hosts: int, requests: int) -> str:
    rows, rng = [], Random(1)
    with TemporaryDirectory(prefix="laas-sharing-") as name:
        site = Sharing(Path(name), hosts, rng)
        for phase in ("empty", "four fifths"):
            while phase != "empty" and site.used < FULL * site.capacity:
                site.post()
            seen = defaultdict(list)
            for number in range(requests + 20):
                while site.used > FULL * site.capacity:
                    site.release()
                ask = site.patch if number % 2 and site.slots else site.post
                kind, status, spent = ask()
                if number >= 20:  # the first ones fill caches
                    seen[kind, status].append(spent)
                    seen[kind, 0].append(spent)
            questions = [partial(site.look, one) for one in LOOKS]
            questions += [partial(site.consolidate, moves) for moves in MOVES]
            for question in [one for one in questions for _ in range(LOOKED)]:
                kind, status, spent = question()
                seen[kind, status].append(spent)
            for (kind, status), times in sorted(seen.items()):
                times.sort()
                figures = (sum(times) / len(times), share(times, 0.5), share(times, 0.99))
                what = (phase, kind, str(status or "all"), str(len(times)))
                rows.append((*what, *(f"{x:.1f}" for x in (*figures, times[-1]))))
    return table(("hosts", "request", "answer", "number", "mean ms", "p50", "p99", "most"), rows)


def worst(hosts: int, threads: int) -> str:
    """The dearest questions alone, and small requests beside ``threads`` that ask them."""
    rows: list[tuple[str, ...]] = []
    with TemporaryDirectory(prefix="laas-sharing-") as name:
        site = Sharing(Path(name), hosts, Random(1))
        while site.used < LIGHT * site.capacity:
            site.post()
        questions = worst_questions("bench", hosts, site.part)
        for question in questions:
            status, processor, seconds = min(site.ask(question) for _ in range(2))
            rows.append((question.name, str(status), f"{processor:.2f}", f"{seconds:.2f}"))
        dry = small_question("bench", site.part)
        post = dry._replace(name="small POST", body={**(dry.body or {}), "dry_run": False})
        sys.setswitchinterval(SWITCH)
        for beside in (0, threads):
            rows += _small(site, (dry, post), questions, beside)
    return table(("question", "answer", "processor s / p50 s", "in all s / p99 s"), rows)


def _small(
    site: Sharing, small: Sequence[Question], questions: Sequence[Question], beside: int
) -> list[tuple[str, ...]]:
    """Times of small requests beside threads that ask the questions, each beginning at another."""
    over = threading.Event()

    def ask(first: int) -> None:
        while not over.is_set():
            site.ask(questions[first % len(questions)])
            first += 1

    others = [threading.Thread(target=ask, args=(-1 - number,)) for number in range(beside)]
    for thread in others:
        thread.start()
    times = defaultdict(list)
    for question in [question for _ in range(SMALL) for question in small]:
        status, _, seconds = site.ask(question)
        times[question.name, status].append(seconds)
    over.set()
    for thread in others:
        thread.join()
    return [
        (f"{name} beside {beside}", str(status), f"{share(x, 0.5):.3f}", f"{share(x, 0.99):.3f}")
        for (name, status), x in ((kind, sorted(found)) for kind, found in times.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sharing", description=__doc__)
    parser.add_argument("--hosts", type=int, choices=RADIX, default=11664)
    parser.add_argument("--requests", type=int, default=400, help="in each phase (%(default)s)")
    parser.add_argument("--worst", type=int, metavar="N", help="threads with dear questions")
    options = parser.parse_args()
    load = os.getloadavg()[1]
    print(
        f"{options.hosts:,} shared hosts of {SLOTS} slots, SQLite, {os.cpu_count()} cores, "
        f"load {load:.1f}:\n"
    )
    if options.worst is None:
        print(measure(options.hosts, options.requests))
    else:
        print(worst(options.hosts, options.worst))


if __name__ == "__main__":
    main()
