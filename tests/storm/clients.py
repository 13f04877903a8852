# SPDX-License-Identifier: Apache-2.0

"""A client of the storm: makes all kinds of requests, repeats lost ones, and keeps a journal.

Each client fails and drains only hosts and links of its own, so that it knows their states.
Allocations of all clients share the same fabrics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from tests.storm import judge
from tests.storm.evidence import Tables
from tests.storm.journal import Complaints, Figures, Journal, Told
from tests.storm.judge import Fabrics
from tests.storm.linear import LOST, History
from tests.storm.wire import PATIENCE, Answer, LostError, ask

RACES = {"concurrent_update", "double_claim", "conflict_retry"}
"""Codes of lost races, which the service has to resolve without telling its clients."""

SIZES = (1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 13)
STARVED = 120.0
"""Seconds after which somebody who waits for an answer starves, whatever happens meanwhile.

A worker that is paused in the middle of a transaction keeps its locks for 30 s; faults follow each
other.
"""

MOST = 9
"""Live allocations of a client; with this many it releases one instead of asking."""


class Client:
    """Makes random requests in a thread of its own, one after the other, unless it rests.

    ``ports`` are the ports of the API processes. ``places`` are the hosts and links of this
    client, each as fabric, kind and name.
    """

    def __init__(
        self,
        number: int,
        seed: int,
        ports: Sequence[int],
        places: Sequence[tuple[str, str, str]],
        figures: Figures,
        complaints: Complaints,
        history: History,
    ) -> None:
        self._history = history
        self.name = f"client-{number}"
        self.journal = Journal()
        self.ended = False
        self._rng = Random(f"{seed}/{number}")
        self._ports = ports
        self._places = places
        self._fabrics = sorted({fabric for fabric, _, _ in places})
        self._figures = figures
        self._complaints = complaints
        self._asked = 0
        self._go, self._idle = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    # -- control --------------------------------------------------------------

    def resume(self) -> None:
        self._idle.clear()
        self._go.set()

    def rest(self) -> None:
        """Stop making requests; return when the last one has been answered."""
        self._go.clear()
        self._idle.wait()

    def end(self) -> None:
        self.ended = True
        self._go.set()
        self._thread.join()

    def _run(self) -> None:
        acts: dict[Callable[[], None], int] = {
            self.allocate: 26,
            self.release: 16,
            self.rename: 8,
            self.show: 14,
            self.list: 3,
            self.look: 6,
            self.change_place: 14,
            self.repair: 8,
            self.retry: 3,
        }
        self._idle.set()
        while True:
            self._go.wait()
            if self.ended:
                return
            self._idle.clear()
            while self._go.is_set() and not self.ended:
                (act,) = self._rng.choices(list(acts), list(acts.values()))
                try:
                    act()
                except Exception as error:
                    self._complaints.add_found(f"{self.name}: {act.__name__}: {error!r}")
            self._idle.set()

    def rebase(self, seen: Tables, fabrics: Fabrics) -> None:
        """Take what the database has for what was acknowledged: it went back. Call at rest."""
        known = {told.key: told for told in self.journal.told.values()}
        mine = {row["allocation"]: row["key"] for row in seen.keys}
        told = []
        for id, row in seen.allocations.items():
            if (key := mine.get(id, "")).rpartition("-")[0] == self.name:
                waits = known[key].waits if key in known else row["duration"] is not None
                live = row["state"] not in ("releasing", "released")
                asked = row["fabric"], row["name"], row["hosts"], bool(row["container"])
                told.append(Told(id, key, *asked, row["parent"], waits, live))
        states = judge.recorded_places(seen, fabrics)
        down = {place: states[place] for place in self._places if place in states}
        self.journal.replace(told, down)

    # -- actions ------------------------------------------------------------------

    def allocate(self) -> None:
        live = self.journal.live()
        if len(live) >= MOST:
            return self.release()
        self._asked += 1
        key = f"{self.name}-{self._asked}"
        body = self._wish(key, live)
        told = Told(
            "",
            key,
            body["fabric"],
            body["name"],
            body["hosts"],
            container=body.get("container", False),
            parent=body.get("parent"),
            waits=body.get("wait", False),
        )
        kind = (
            "allocate inside"
            if told.parent
            else "allocate container"
            if told.container
            else ("allocate or queue" if told.waits else "allocate")
        )
        if self._rng.random() < 0.1:
            self._at_once(kind, body, told)
        else:
            self._note(self._created(kind, body, key), told)
        if told.id and self._rng.random() < 0.15:
            again = self._created("allocate again", body, key)
            self._expect(again, told, "asked again with its key")
        return None

    def _created(self, kind: str, body: dict[str, Any], key: str) -> Answer:
        noted = key, "create", body["name"]
        return self._until_answered(kind, "POST", "/v1/allocations", body, key, noted)

    def _wish(self, key: str, live: Sequence[Told]) -> dict[str, Any]:
        rng = self._rng
        body: dict[str, Any] = {"name": f"{key}/0", "hosts": rng.choice(SIZES)}
        containers = [told for told in live if told.container and not told.waits]
        if containers and rng.random() < 0.4:
            outer = rng.choice(containers)
            size = rng.randint(1, max(1, outer.hosts // 2))
            return {**body, "hosts": size, "parent": outer.id, "fabric": outer.fabric}
        body["fabric"] = rng.choice(self._fabrics)
        if rng.random() < 0.12:
            return {**body, "hosts": rng.choice((6, 9, 12)), "container": True}
        if rng.random() < 0.3:
            body["policy"] = "laas"
        if rng.random() < 0.2:
            body |= {"wait": True, "duration": float(rng.randint(1, 60))}
        return body

    def _at_once(self, kind: str, body: dict[str, Any], told: Told) -> None:
        """Send a request twice in parallel with one key; both answers must name one allocation."""
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(self._created, f"{kind}, twice", body, told.key) for _ in range(2)]
            answers = [one.result() for one in asked]
        for answer in sorted(answers, key=lambda answer: answer.status):
            if told.id and answer.status < 300:
                self._expect(answer, told, "asked twice at one time")
            elif not told.id:
                self._note(answer, told)

    def _note(self, answer: Answer, told: Told) -> None:
        if answer.status == 202:
            told.id = answer.document["id"]
            self.journal.refused.discard(told.key)
            self.journal.told[told.id] = told
            self._as_asked(answer.document, told)
        else:
            self.journal.refused.add(told.key)

    def _expect(self, answer: Answer, told: Told, why: str) -> None:
        got = answer.document.get("id") if answer.status == 202 else answer.status
        if got != told.id:
            self._complaints.add_found(f"{told.key} was {told.id}, and {got} when {why}")

    def _as_asked(self, document: dict[str, Any], told: Told) -> None:
        seen = tuple(document[name] for name in ("name", "fabric", "requested"))
        if seen != (told.name, told.fabric, told.hosts):
            self._complaints.add_found(
                f"{told.id} is {seen}, which is not what {told.key} asked for"
            )

    def release(self) -> None:
        told = self._one(lambda one: not self._inside(one))
        if told is None:
            return
        force = "?force=true" if self._rng.random() < 0.1 else ""
        kind = "cancel or release" if told.waits else "release"
        path = f"/v1/allocations/{told.id}{force}"
        noted = told.key, "release", ""
        if self._until_answered(kind, "DELETE", path, noted=noted).status == 202:
            told.live = False

    def rename(self) -> None:
        """Rename an allocation, or rename it twice and show it at one time."""
        told = self._one()
        if told is None:
            return
        at_once = 2 if self._rng.random() < 0.4 else 1
        with ThreadPoolExecutor(3) as pool:
            for _ in range(at_once):
                name = f"{told.key}/{self._rng.randrange(1000)}"
                pool.submit(self._rename, told, name)
            if at_once > 1:
                pool.submit(self._shown, told)
        answer = self._shown(told)
        if answer.status == 200:
            told.name = answer.document["name"]

    def _rename(self, told: Told, name: str) -> None:
        path, noted = f"/v1/allocations/{told.id}", (told.key, "rename", name)
        self._until_answered("rename", "PATCH", path, {"name": name}, noted=noted)

    def _shown(self, told: Told) -> Answer:
        path = f"/v1/allocations/{told.id}"
        return self._until_answered("show", "GET", path, noted=(told.key, "show", ""))

    def show(self) -> None:
        told = self._one()
        if told is None:
            return
        answer = self._shown(told)
        if answer.status != 200:
            self._complaints.add_found(f"{told.id} was acknowledged; asked for, {answer.status}")
            return
        self._as_asked(answer.document, told)
        state = answer.document["state"]
        if state not in ("active", "allocating") and not (told.waits and state == "queued"):
            self._complaints.add_found(
                f"{told.id} of {told.key}: {state}, {answer.document['error']}"
            )

    def list(self) -> None:
        """List all pages; every live allocation of this client must be in them."""
        known, seen = {told.id for told in self.journal.live()}, set()
        path = "/v1/allocations?limit=50"
        while path:
            answer = self._until_answered("list", "GET", path)
            if answer.status != 200:
                return
            seen |= {one["id"] for one in answer.document["allocations"]}
            following = answer.document["next"] or ""
            path = following[following.find("/v1/") :] if following else ""
        for id in sorted(known - seen):
            self._complaints.add_found(f"{id} was acknowledged, and is in no list")

    def look(self) -> None:
        fabric = self._rng.choice(self._fabrics)
        what = self._rng.choice(("", "/utilization", "/fit?hosts=7", "/hosts?limit=20"))
        self._until_answered("look", "GET", f"/v1/fabrics/{fabric}{what}")

    def change_place(self) -> None:
        """Fail, drain or repair a host or link; repair more often than fail."""
        down = [place for place, state in self.journal.down.items() if state != "up"]
        if down and (len(down) > 1 or self._rng.random() < 0.6):
            return self._set(self._rng.choice(down), "up")
        place = self._rng.choice(self._places)
        states = ("failed", "drained") if place[1] == "hosts" else ("failed",)
        return self._set(place, self._rng.choice(states))

    def _set(self, place: tuple[str, str, str], state: str) -> None:
        fabric, kind, name = place
        verb = {"up": "repair", "failed": "fail", "drained": "drain"}[state]
        path = f"/v1/fabrics/{fabric}/{kind}/{name}"
        answer = self._until_answered(f"{verb} a {kind[:-1]}", "PATCH", path, {"state": state})
        if answer.status == 200:
            self.journal.down[place] = state

    def repair(self) -> None:
        if told := self._one():
            self._until_answered("repair links", "POST", f"/v1/allocations/{told.id}/repair")

    def retry(self) -> None:
        if told := self._one():
            self._until_answered("retry", "POST", f"/v1/allocations/{told.id}/retry")

    def mend(self) -> None:
        """Set all hosts and links of this client up again."""
        for place, state in list(self.journal.down.items()):
            if state != "up":
                self._set(place, "up")

    def give_back(self) -> None:
        """Release all allocations of this client, children before their containers."""
        for told in sorted(self.journal.live(), key=lambda one: one.parent is None):
            path = f"/v1/allocations/{told.id}"
            answer = self._until_answered("give back", "DELETE", path)
            while answer.code == "conflict":  # a child is still being released
                time.sleep(0.2)  # as a client that repeats its request
                answer = self._until_answered("give back", "DELETE", path)
            if answer.status == 202:
                told.live = False

    def _one(self, which: Callable[[Told], bool] = lambda told: True) -> Told | None:
        live = [told for told in self.journal.live() if which(told)]
        return self._rng.choice(live) if live else None

    def _inside(self, outer: Told) -> bool:
        return any(told.parent == outer.id for told in self.journal.live())

    # -- requests -------------------------------------------------------------------

    def _until_answered(
        self,
        kind: str,
        method: str,
        path: str,
        body: object = None,
        key: str | None = None,
        noted: tuple[str, str, str] | None = None,
    ) -> Answer:
        """Repeat a request at random processes until an answer is neither lost nor a 503.

        ``noted`` is the subject, kind and value of the operation in the history.
        """
        first = time.monotonic()
        until = first + PATIENCE
        while True:
            started, asked = time.perf_counter(), time.monotonic()
            try:
                answer = ask(self._rng.choice(self._ports), method, path, body, key)
            except LostError:
                self._figures.count(kind, "lost")
                if noted is not None:
                    self._history.add(*noted, LOST, asked)
                time.sleep(0.1)  # as a client that repeats its request
                continue
            if noted is not None:
                self._tell(noted, _told(noted[1], answer), asked)
            self._figures.took(method, time.perf_counter() - started)
            outcome = f"{answer.status} {answer.code}".strip()
            self._figures.count(kind, outcome)
            if answer.status == 503 and answer.retry_after and time.monotonic() < until:
                time.sleep(0.1)  # as a client that repeats its request
                continue
            if (waited := time.monotonic() - first) > STARVED:
                self._complaints.add_found(f"starved: {self.name} waited {waited:.0f} s to {kind}")
            if answer.status >= 500 or answer.code in RACES or answer.status in (400, 404, 405):
                said = (answer.document or {}).get("detail")
                self._complaints.add_found(
                    f"{kind}: {method} {path} was answered {outcome}: {said}"
                )
            return answer

    def _tell(self, noted: tuple[str, str, str], told: str, asked: float) -> None:
        """Add an operation to the history.

        The answer to a rename shows the newest state, also one that another rename made meanwhile.
        """
        subject, kind, value = noted
        if kind == "rename" and told not in (value, "gone", LOST):
            self._history.add(subject, kind, value, value, asked)
            self._history.add(subject, "show", "", told, asked)
        else:
            self._history.add(*noted, told, asked)


def _told(kind: str, answer: Answer) -> str:
    """The answer in the words of the history."""
    match kind, answer.status:
        case "create", 202:
            return str(answer.document["name"])
        case "create", 409:
            return "refused"
        case "show" | "rename", 200:
            over = answer.document["state"] in ("releasing", "released")
            return "gone" if over else str(answer.document["name"])
        case "release", 202:
            return "gone"
        case "rename", 409:
            return "gone"
    return LOST
