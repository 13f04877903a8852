# SPDX-License-Identifier: Apache-2.0

"""A process of the service that stops at every step until the test lets it go on.

The test holds the other end of a pipe. The service's own hook tells it each step by name;
the answer says whether to go on or to fail there. The worker's rounds are asked for over
the same pipe, so that nothing happens that the test has not asked for.
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

from laas_service import conf as options
from laas_service.adapters import nova
from laas_service.cmd.api import application
from laas_service.cmd.manage import main as manage
from laas_service.wiring import Parts

GO, FAIL = "go", "fail"
UNHURRIED = 120.0
"""Seconds that Nova has to answer while nobody plays dead."""


class Injected(Exception):
    """The exception that nobody foresaw."""


class Link:
    """This process's end of the pipe. ``sessions`` are those with Nova."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self.sessions: list[Any] = []

    def at(self, step: str) -> None:
        """The service's hook."""
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
    """``kind`` is ``api`` or ``worker``; ends when the process that started it does."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(filename=log, level=logging.INFO, force=True)
    logging.raiseExceptions = False  # on a full disk the log has no room either
    link = Link(pipe)
    _note_sessions(link.sessions)
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf(["--config-file", str(config)], project="laas")
    parts = Parts(conf, at=link.at)
    {"api": _api, "worker": _worker}[kind](conf, parts, link)


def verify(config: Path, tables: Path, said: Path) -> None:
    """``laas-manage fabric verify``; ends with its status."""
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
    """Remember the HTTP sessions that the Nova adapter makes, and take pauses out of it."""
    load = loading.load_session_from_conf_options
    nova.READ_PAUSE = 0.0

    def noted(*args: Any, **kwargs: Any) -> Any:
        sessions.append(load(*args, **kwargs))
        sessions[-1].timeout = UNHURRIED
        return sessions[-1]

    loading.load_session_from_conf_options = noted


def _api(conf: cfg.ConfigOpts, parts: Parts, link: Link) -> None:
    app = Around(application(conf, parts.use_cases(parts.waker)), link.at)
    server = create_server(app, host="127.0.0.1", port=0, threads=1)
    link.say("ready", server.effective_port)
    server.run()


def _worker(conf: cfg.ConfigOpts, parts: Parts, link: Link) -> None:
    """A round when it is asked for, ended as the worker's own loop ends one."""
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
    """The body, sent as one piece; closed when it has been."""

    def __init__(self, body: bytes, at: Callable[[str], None]) -> None:
        self._pieces = iter([body])
        self._at = at

    def __iter__(self) -> Answer:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        self._at("after answer")
