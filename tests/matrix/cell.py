# SPDX-License-Identifier: Apache-2.0

"""One cell of the matrix: run a scenario, inject a fault at a step, judge the outcome."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

import requests

from tests.matrix import judge, process
from tests.matrix.faults import HASTE, Fault
from tests.matrix.judge import Seen, leaf_of
from tests.matrix.running import FORKS, Running
from tests.matrix.scenarios import Request, Scenario
from tests.matrix.site import Site, World

PATIENCE = 900.0
"""Seconds that a cell may take, on a slow machine."""

PAUSE = 0.1
"""Seconds between two rounds of a worker that waits for a retry."""

DUMPS = 20
"""Reads of the forwarding tables of the switches until they equal the published tables."""


class Failed(Exception):
    """A promise is broken; the text says which one, and at which step."""


@dataclass
class Outcome:
    """Effects of a cell that are visible from outside."""

    steps: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)  # the client's answers, in order
    story: list[str] = field(default_factory=list)  # kinds of trouble in the history
    unrecorded: int = 0  # rounds that failed and could not record the failure
    struck: str = ""  # how the process, or its connection, recovered

    def text(self) -> str:
        """Text of the cell in the table; empty if the fault had no visible effect."""
        parts = []
        if self.answers[:-1]:
            parts.append(f"client: {self.answers[0]}, repeats")
        if self.story:
            parts.append(f"shown: {', '.join(self.story)}; tried again")
        elif self.unrecorded:
            parts.append("tried again")
        if not parts and self.struck:
            parts.append(self.struck)
        return "; ".join(parts)


class Cell:
    """Runs a scenario, and injects ``fault``, if there is one, at each of ``steps``."""

    def __init__(
        self,
        world: World,
        scenario: Scenario,
        fault: Fault | None = None,
        steps: Collection[str] = (),
        verified: bool = True,
    ) -> None:
        self.world = world
        self.scenario = scenario
        self.fault = fault
        self.verified = verified
        self._to_strike = set(steps)
        self._since = ""
        self.outcome = Outcome()
        self._counts: Counter[str] = Counter()
        self._armed = False
        self._struck = False
        self._lasting = False
        self._failures = 0
        self._client_done = threading.Event()
        self._postponed = 0
        self._client_failures = 0
        self._up = threading.Event()
        self._heard = threading.Event()
        self._serving = False
        self._acknowledged: list[Any] = []
        self._deadline = time.monotonic() + PATIENCE

    # -- the run ----------------------------------------------------------------

    def run(self, site: Site) -> Outcome:
        """Raises: Failed, RuntimeError, AssertionError."""
        self.site = site
        site.configure(repair_links=self.scenario.repair_links)
        if self.scenario.apart:
            site.part(leaf_of(Seen(site), "a"))
        self.api, self.worker = Running("api", site), Running("worker", site)
        try:
            self._settle()  # finish the work of a start before the faults begin
            self.scenario.prepare(site, Seen(site))
            before = Seen(site)
            self._armed = True
            self._request = self.scenario.ask(before)
            client = threading.Thread(target=self._ask, daemon=True)
            client.start()
            while not self._done():
                self._turn()
            if self._to_strike and not (self.fault and self.fault.lasts):
                raise Failed(f"not reached: {self._to_strike}; steps: {self.outcome.steps}")
            self._end_fault()
            self._settle()
            client.join()
            self._judge_end(before)
        finally:
            self._clean_up()
        return self.outcome

    def _done(self) -> bool:
        asked = self._client_done.is_set() and not self._serving
        return asked and self.worker.resting and self._calm(Seen(self.site))

    def _calm(self, seen: Seen) -> bool:
        """Whether no work is left, apart from a repair that nobody has requested."""
        return seen.settled and (not seen.hurt or self.scenario.name == "hurt")

    def _settle(self) -> None:
        """Let the worker run rounds until the cloud and the fabric match the record."""
        while not (self.api.port and self.worker.rounds and self.worker.resting and self._quiet()):
            self._turn(settling=True)

    def _quiet(self) -> bool:
        try:
            seen = Seen(self.site)
        except FileNotFoundError:
            return False
        told = not self.site.ground.broker or seen.untold == 0
        return told and (seen.settled or not seen.allocations)

    # -- events -----------------------------------------------------------------

    def _turn(self, *, settling: bool = False) -> None:
        """Answer the processes that wait at a step; start a round if the worker rests."""
        if time.monotonic() > self._deadline:
            raise Failed(f"not done after {PATIENCE} s: {self._logs()}")
        asked = self._client_done.is_set() and not self._serving
        if self.worker.resting and (settling or asked):
            if self._struck or settling:
                time.sleep(PAUSE)
            self.worker.resting = False
            self.worker.tell(self._haste())
        pipes: dict[Any, Running] = {one.pipe: one for one in (self.api, self.worker)}
        for ready in wait(list(pipes), PAUSE):
            self._hear(pipes[ready])
        failures = max(self._failures, self._postponed, self._client_failures)
        if self._cut() or (self._waits_for_failures() and failures >= 2):
            self._end_fault()

    def _waits_for_failures(self) -> bool:
        """Whether the present fault ends only after it has caused two failures."""
        lasts = self.fault is not None and self.fault.lasts
        return self._lasting and not lasts and not self._cut()

    def _cut(self) -> bool:
        """Whether the proxy has cut the connection to the database (it does so once)."""
        proxy = self.site.database_proxy
        return proxy is not None and proxy.cuts > 0

    def _hear(self, who: Running) -> None:
        try:
            what, word = who.pipe.recv()
        except EOFError:
            raise Failed(f"the {who.kind} ended by itself: {self._logs()}") from None
        if what == "ready":
            who.port, who.resting = word, who.kind == "worker"
            if who.kind == "api":
                self._up.set()
        elif what == "rested":
            who.resting = True
            who.rounds += 1
            self._failures += self._waits_for_failures()
        else:
            self._at(who, word)

    def _at(self, who: Running, point: str) -> None:
        """Handle a step of ``who``: count it, and inject the fault if it is due."""
        when, _, name = point.partition(" ")
        if not self._armed:
            return self._go(who)
        self._follow_answer(point)
        if point == "after commit: postpone" and self._waits_for_failures():
            self._postponed += 1
        if when == "before":
            self._counts[name] += 1
        label = name if self._counts[name] == 1 else f"{name} ({self._counts[name]})"
        if when == "before" and not self._struck:
            self.outcome.steps.append(label)
        if self.fault is None:
            self._check_standing(point)
        elif self._lasting:
            if (when, label) == ("after", self._since) and not self.fault.lasts:
                self._end_fault()
            self._to_strike.discard(label)  # a step inside the faulty step meets the same fault
        elif when == self.fault.when and label in self._to_strike:
            return self._strike(who, label, self.fault)
        return self._go(who)

    def _follow_answer(self, point: str) -> None:
        """Hold the worker back until the client has received the answer."""
        if point == "before request":
            self._serving = True
            self._heard.clear()
        elif point == "after answer":
            self._heard.wait(PATIENCE)
            self._serving = False

    def _go(self, who: Running, verdict: str = process.GO) -> None:
        who.tell(verdict, self._haste())

    def _haste(self) -> float:
        hurried = self._lasting and self.fault is not None and self.fault.haste
        return HASTE if hurried else process.UNHURRIED

    # -- the fault --------------------------------------------------------------

    def _strike(self, who: Running, step: str, fault: Fault) -> None:
        self._to_strike.discard(step)
        self._struck, self._since = True, step
        if fault.kills:
            self._up.clear()
            who.kill()
            self.outcome.struck = "taken up after the restart"
            self._check_standing("after the crash")
            self._restart(who)
        elif fault.fails:
            self.outcome.struck = "goes on"
            self._go(who, process.FAIL)
        else:
            fault.begin(self.site)
            self._lasting = True
            self._check_standing("at the fault")
            self._go(who)

    def _restart(self, who: Running) -> None:
        again = Running(who.kind, self.site)
        if who is self.api:
            self.api = again
        else:
            self.worker = again
            self._up.set()

    def _end_fault(self) -> None:
        if self._lasting and self.fault:
            self._check_standing("during the fault")
            if self.fault.lasts:
                self.outcome.struck = "done without it; sent later"
            elif self._cut():
                self.outcome.struck = "goes on"
            self._lasting = False
            self.fault.end(self.site)

    # -- the client -------------------------------------------------------------

    def _ask(self) -> None:
        """Repeat the request until an answer is below 500, as a real client does."""
        while not self._client_done.is_set():
            self._up.wait(PATIENCE)
            answer = self._once(self._request)
            self._heard.set()
            self.outcome.answers.append(str(answer if isinstance(answer, str) else answer[0]))
            if isinstance(answer, str) or answer[0] >= 500:
                self._client_failures += self._waits_for_failures()
                time.sleep(PAUSE)
                continue
            self._acknowledged.append(answer)
            self._client_done.set()

    def _once(self, ask: Request) -> str | tuple[int, Any]:
        url = f"http://127.0.0.1:{self.api.port}{ask.path}"
        try:
            answer = requests.request(
                ask.method, url, json=ask.body, headers=ask.headers, timeout=PATIENCE
            )
        except requests.RequestException:
            return "no answer"
        is_json = "json" in answer.headers.get("Content-Type", "")
        return answer.status_code, answer.json() if is_json else answer.text

    # -- judgement --------------------------------------------------------------

    def _check_standing(self, when: str) -> None:
        self._report(judge.standing(Seen(self.site)), when)

    def _judge_end(self, before: Seen) -> None:
        seen = Seen(self.site)
        switches = self._switches(seen) if self.site.ground.opensm else None
        wrong = judge.final(seen, switches)
        if self.verified:
            wrong += self._verified()
        ((status, body),) = self._acknowledged
        if not 200 <= status < 300:
            wrong.append(f"refused with {status}: {body}")
        name = "b" if self.scenario.base is None else "a"
        states = [(row["id"], row["state"]) for row in seen.named(name)]
        if len(states) != 1 or states[0][1] != self.scenario.state:
            wrong.append(f"{name} is {states}, not once {self.scenario.state}")
        if "allocations" in self._request.path and body.get("id") != states[0][0]:
            wrong.append(f"acknowledged was {body.get('id')}")
        for row in before.named("b"):
            if seen.allocations[row["id"]] != row:
                wrong.append("the neighbour noticed")
        self._report(wrong, "in the end")
        self.outcome.story = [kind for kind in TROUBLE.values() if kind in troubles(seen, name)]
        self.outcome.unrecorded = self._failures

    def _switches(self, seen: Seen) -> str:
        """Forwarding tables of the switches; read again if a switch did not answer in time."""
        for _ in range(DUMPS):
            dump = self.site.dump()
            if judge.same_tables(dump, seen.lfts):
                break
            time.sleep(PAUSE)
        return dump

    def _verified(self) -> list[str]:
        """Problems that ``laas-manage fabric verify`` reports for the published tables."""
        said = self.world.directory / "verify.log"
        tables = self.site.published / "lfts"
        verifier = FORKS.Process(target=process.verify, args=(self.site.config, tables, said))
        verifier.start()
        verifier.join(PATIENCE)
        return [] if verifier.exitcode == 0 else [f"verify: {said.read_text()}"]

    def _report(self, wrong: list[str], when: str) -> None:
        if wrong:
            name = self.fault.name if self.fault else "nothing"
            where = f"{self.scenario.name}, {self._since or 'clean'}, {name}, {when}"
            raise Failed(f"{where}: {'; '.join(wrong)}\n{self._logs()}")

    def _logs(self) -> str:
        logs = sorted(self.world.directory.glob("*.log"))
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in logs)

    def _clean_up(self) -> None:
        self._client_done.set()
        self._up.set()
        self.api.kill()
        self.worker.kill()
        if self._lasting and self.fault:
            self.fault.end(self.site)
        for log in self.world.directory.glob("*.log"):
            log.unlink()


TROUBLE = {
    r"unexpected Injected": "exception",
    r"the database failed": "database",
    r"OpenSM does not run": "OpenSM",
    r"No space left|File too large": "disk full",
    r"^cannot |is not closed|HTTP": "Nova",
}
"""Kinds of trouble by a pattern in a line of the history."""


def troubles(seen: Seen, name: str) -> set[str]:
    """Kinds of trouble in the histories of all allocations of that name."""
    lines = [line for row in seen.named(name) for line in seen.story(row["id"])]
    return {kind for line in lines for words, kind in TROUBLE.items() if re.search(words, line)}
