# SPDX-License-Identifier: Apache-2.0

"""A process of the service that stops at every step until the test lets it go on.

The test holds the other end of a pipe. The hook of the service sends the name of each step;
the answer tells the process to continue or to fail there. The test starts the worker's rounds
over the same pipe, so that the worker does nothing on its own.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg
from waitress.server import create_server

from laas_service.adapters import openstack_calls
from laas_service.cmd.api import application
from laas_service.cmd.manage import main as manage
from laas_service.wiring.composition import Composition
from tests.options import options_from

GO, FAIL = "go", "fail"
UNHURRIED = 120.0
"""Timeout of requests to Nova, in seconds, while Nova is not made silent."""


class Injected(Exception):
    """An exception that no handler of the service expects."""


class Link:
    """This process's end of the pipe. ``sessions`` are the HTTP sessions with Nova."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self.sessions: list[Any] = []

    def at(self, step: str) -> None:
        """Hook of the service: report a step and wait for the verdict. Raises: Injected."""
        with self._lock:
            self._pipe.send(("at", step))
            verdict, timeout = self._pipe.recv()
        self.hurry(timeout)
        if verdict == FAIL:
            raise Injected(f"injected {step}")

    def hurry(self, timeout: float) -> None:
        for session in self.sessions:
            session.timeout = timeout

    def say(self, *words: object) -> None:
        with self._lock:
            self._pipe.send(words)

    def hear(self) -> Any:
        return self._pipe.recv()


def run(kind: str, config: Path, pipe: Connection, log: Path) -> None:
    """Run ``api`` or ``worker`` (``kind``) until the parent process ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(filename=log, level=logging.INFO, force=True)
    logging.raiseExceptions = False  # the log cannot be written while the disk is full
    link = Link(pipe)
    _note_sessions(link.sessions)
    conf = options_from(config)
    parts = Composition(conf, at=link.at)
    {"api": _api, "worker": _worker}[kind](conf, parts, link)


def verify(config: Path, tables: Path, said: Path) -> None:
    """Run ``laas-manage fabric verify`` and exit with its status."""
    with said.open("w") as out, redirect_stdout(out), redirect_stderr(out):
        words = ["fabric", "verify", "f", "--lfts", str(tables)]
        status = manage(["--config-file", str(config), *words])
    raise SystemExit(status)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _note_sessions(sessions: list[Any]) -> None:
    """Record the HTTP sessions that the Nova adapter makes, and remove its pauses."""
    load = loading.load_session_from_conf_options
    openstack_calls.READ_PAUSE = 0.0

    def noted(*args: Any, **kwargs: Any) -> Any:
        sessions.append(load(*args, **kwargs))
        sessions[-1].timeout = UNHURRIED
        return sessions[-1]

    loading.load_session_from_conf_options = noted


def _api(conf: cfg.ConfigOpts, parts: Composition, link: Link) -> None:
    app = Around(application(conf, parts.use_cases(parts.waker)), link.at)
    server = create_server(app, host="127.0.0.1", port=0, threads=1)
    link.say("ready", server.effective_port)
    server.run()


def _worker(conf: cfg.ConfigOpts, parts: Composition, link: Link) -> None:
    """Run a round for each message; log an exception as the worker's own loop does."""
    if parts.notifier:
        parts.notifier.start()
    if parts.bus:
        parts.bus.listener(lambda: None).start()
    link.say("ready", 0)
    while True:
        link.hurry(link.hear())
        try:
            parts.worker.round()
        except Exception as error:
            logging.getLogger(__name__).exception("the round ended early")
            link.say("rested", str(error))
        else:
            link.say("rested", "")


class Around:
    """A WSGI application with steps around the request and around its answer."""

    def __init__(self, app: Callable[..., Iterable[bytes]], at: Callable[[str], None]) -> None:
        self._app = app
        self._at = at

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Answer:
        self._at("before request")
        body = b"".join(self._app(environ, start_response))
        self._at("after request")
        self._at("before answer")
        return Answer(body, self._at)


class Answer:
    """The body as one piece; ``close`` is called after the server has sent it."""

    def __init__(self, body: bytes, at: Callable[[str], None]) -> None:
        self._pieces = iter([body])
        self._at = at

    def __iter__(self) -> Answer:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        self._at("after answer")
