# SPDX-License-Identifier: Apache-2.0

"""Those who press on the service, and those who must not starve beside them.

``Pressure`` asks the most expensive questions, and keeps connections whose answers nobody reads.
``Small`` asks small questions all the time; it counts them apart while the others press.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle

from tests.slow_readers import SlowReader
from tests.storm.clients import STARVED
from tests.storm.evidence import WIDE
from tests.storm.journal import Complaints, Figures
from tests.storm.site import ASKER, Site
from tests.storm.wire import LostError, ask
from tests.worst_questions import Question, small_question, worst_questions

ASKERS = 2
"""Threads of the project that asks the expensive questions."""

UNREAD = 16
"""Connections to each API process whose answers nobody reads."""

PAUSE = 0.1
"""Seconds between two small questions, and between two looks at the unread connections."""

WIDE_HOSTS = 512


class _Thread:
    """Repeats a step until ``end``, while it is not paused."""

    def __init__(self, name: str, step: Callable[[], None], complaints: Complaints) -> None:
        self._step, self._name, self._complaints = step, name, complaints
        self._go, self._over = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        self._go.set()

    def pause(self) -> None:
        """Return at once; a step that has begun goes on."""
        self._go.clear()

    def end(self) -> None:
        self._over = True
        self._go.set()
        self._thread.join(STARVED)

    def _run(self) -> None:
        while self._go.wait() and not self._over:
            try:
                self._step()
            except Exception as error:
                self._complaints.add(f"{self._name}: {error!r}")


class Pressure:
    """All who press: threads with expensive questions, and connections that are not read."""

    def __init__(self, site: Site, figures: Figures, complaints: Complaints) -> None:
        self._site, self._figures, self._complaints = site, figures, complaints
        self._readers: dict[int, list[SlowReader]] = {}
        self._on = False
        found = worst_questions(WIDE, WIDE_HOSTS, site.pool)
        ports = [server.port for server in site.servers if server.port is not None]
        self._ports = ports
        self._threads = [
            _Thread(
                f"asker-{number}", self._asking(found, ports[number:] + ports[:number]), complaints
            )
            for number in range(ASKERS)
        ]
        self._threads.append(_Thread("unread", self._keep_unread, complaints))

    @property
    def on(self) -> bool:
        return self._on

    def resume(self) -> None:
        self._on = True
        for thread in self._threads:
            thread.resume()

    def pause(self) -> None:
        self._on = False
        for thread in self._threads:
            thread.pause()
        time.sleep(2 * PAUSE)  # the step of the unread connections has ended
        for port in list(self._readers):
            self._close(port)

    def end(self) -> None:
        self.pause()
        for thread in self._threads:
            thread.end()

    def _asking(self, questions: list[Question], ports: list[int]) -> Callable[[], None]:
        asked, at = cycle(questions), cycle(ports)

        def step() -> None:
            question, began = next(asked), time.perf_counter()
            try:
                answer = ask(next(at), question.method, question.path, question.body, project=ASKER)
            except LostError:
                self._figures.count("expensive questions", "lost")
                time.sleep(PAUSE)
                return
            self._figures.count("expensive questions", f"{answer.status} {answer.code}".strip())
            self._figures.took("expensive", time.perf_counter() - began)
            if answer.status not in (200, 409, 429, 503):
                said = (answer.document or {}).get("detail")
                self._complaints.add(f"{question.name} was answered {answer.status}: {said}")

        return step

    def _keep_unread(self) -> None:
        """Renew connections that the service ended, or that ended with their process."""
        for port in self._ports:
            readers = self._readers.setdefault(port, [])
            for reader in [one for one in readers if one.ended()]:
                readers.remove(reader)
                reader.close()
                self._figures.count("connections with unread answers", "ended")
            with suppress(OSError):
                while len(readers) < UNREAD and self._on:
                    readers.append(SlowReader(port))
                    self._figures.count("connections with unread answers", "opened")
        time.sleep(PAUSE)

    def _close(self, port: int) -> None:
        for reader in self._readers.pop(port, []):
            reader.close()


class Small:
    """Asks small questions, one at a time, of each API process in turn."""

    def __init__(
        self, site: Site, pressure: Pressure, figures: Figures, complaints: Complaints
    ) -> None:
        self._pressure, self._figures, self._complaints = pressure, figures, complaints
        get = Question("small GET", "GET", "/v1/fabrics/f")
        questions = [small_question("f"), small_question(WIDE, site.pool), get]
        self._threads = [
            _Thread(server.name, self._asking(questions, server.port), complaints)
            for server in site.servers
            if server.port is not None
        ]

    def resume(self) -> None:
        for thread in self._threads:
            thread.resume()

    def pause(self) -> None:
        for thread in self._threads:
            thread.pause()

    def end(self) -> None:
        for thread in self._threads:
            thread.end()

    def _asking(self, questions: list[Question], port: int) -> Callable[[], None]:
        asked = cycle(questions)

        def step() -> None:
            question, began, beside = next(asked), time.perf_counter(), self._pressure.on
            project = ASKER if question.body and "parent" in question.body else None
            kind = f"{question.name}, {'beside the worst' if beside else 'alone'}"
            try:
                answer = ask(port, question.method, question.path, question.body, project=project)
            except LostError:
                self._figures.count(kind, "lost")
            else:
                self._figures.count(kind, f"{answer.status} {answer.code}".strip())
                if answer.status < 300:
                    self._figures.took(kind, time.perf_counter() - began)
            waited = time.perf_counter() - began
            if waited > STARVED:
                self._complaints.add_found(f"starved: {kind} waited {waited:.0f} s")
            time.sleep(PAUSE)

        return step
