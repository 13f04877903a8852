# SPDX-License-Identifier: Apache-2.0

"""Faults between a client and the stand-in."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from dataclasses import dataclass
from http.client import responses
from typing import Any
from urllib.parse import urlencode

STATUSES = (429, 500, 502, 503)

KINDS = ("refused", "lost", "late", "half", "garbage", "slow", *STATUSES)
"""What can go wrong with a request:

* ``refused``: closed before anything is done.
* ``lost``: done, and closed without an answer.
* ``late``: closed without an answer, and done after ``LATE`` further requests.
* ``half``: done, and half of the answer is sent.
* ``garbage``: done, and answered with the login page and 200.
* ``slow``: done at once, answered when the client has given up.
* a status: not done. 429 names a time to wait.
"""

LATE = 4


@dataclass(frozen=True)
class Redirect:
    """Answers with this status, and sends the client to another address; nothing is done."""

    status: int
    location: str


@dataclass
class Fault:
    """Spoils ``times`` requests; only those of ``method`` if that is given."""

    kind: str | int | Redirect
    times: int = 1
    method: str | None = None


class Faults:
    """A WSGI layer that spoils requests: those that tests name, and others by ``chance``.

    ``chance`` returns the kind of a fault, or None; it is asked for each request.
    """

    def __init__(self, app, tick=lambda: None, chance=lambda method: None):
        self.app, self.tick, self.chance = app, tick, chance
        self.planned: list[Fault] = []
        self.happened: list[str | int | Redirect] = []
        self.lock = threading.Lock()
        self.late: list[tuple[int, dict[str, Any]]] = []
        self.given_up = threading.Event()

    def plan(self, kind, times=1, method=None):
        with self.lock:
            self.planned.append(Fault(kind, times, method))

    def _next(self, method):
        with self.lock:
            for fault in self.planned:
                if fault.times and fault.method in (None, method):
                    fault.times -= 1
                    self.happened.append(fault.kind)
                    return fault.kind
        kind = self.chance(method)
        if kind is not None:
            self.happened.append(kind)
        return kind

    def __call__(self, environ, start_response):
        self._carry_out_late()
        kind = self._next(environ["REQUEST_METHOD"])
        if kind is None:
            return self.app(environ, start_response)
        if isinstance(kind, Redirect):
            self._drain(environ)
            status = f"{kind.status} {responses[kind.status]}"
            start_response(status, [("Location", kind.location), ("Content-Length", "0")])
            return [b""]
        if isinstance(kind, int):
            headers = [("Content-Type", "text/plain"), ("Content-Length", "5")]
            if kind == 429:
                headers.append(("Retry-After", "1"))
            self._drain(environ)
            start_response(f"{kind} {responses[kind]}", headers)
            return [b"later"]
        if kind == "late":
            with self.lock:
                self.late.append((LATE, self._copy(environ)))
        elif kind != "refused":
            body = self._run(environ)
            if kind == "slow":
                self.given_up.wait(60)
            elif kind == "half":
                start_response("200 OK", [("Content-Length", str(len(body) + 1000))])
                return _then_close(body[: len(body) // 2], environ)
            elif kind == "garbage":
                page = b"<html>log in</html>"
                start_response("200 OK", [("Content-Length", str(len(page)))])
                return [page]
        _close(environ)
        start_response("200 OK", [("Content-Length", "0")])
        return [b""]

    def carry_out_all(self):
        """Do all that is late."""
        with self.lock:
            late, self.late = self.late, []
        for _, environ in late:
            self._run(environ)

    def _carry_out_late(self):
        with self.lock:
            self.late = [(left - 1, environ) for left, environ in self.late]
            due = [environ for left, environ in self.late if left < 0]
            self.late = [entry for entry in self.late if entry[0] >= 0]
        for environ in due:
            self._run(environ)

    def _copy(self, environ):
        body = self._drain(environ)
        return {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}

    def _drain(self, environ):
        length = int(environ.get("CONTENT_LENGTH") or 0)
        return environ["wsgi.input"].read(length) if length else b""

    def _run(self, environ):
        """Do a request, without an answer; the body that it would have."""
        return b"".join(self.app(environ, lambda *answer: None))


def _close(environ):
    with contextlib.suppress(OSError):  # the client was faster
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)


def _then_close(body, environ):
    yield body
    _close(environ)


def login_form(user, password):
    """The body of ``POST /dologin`` [guide]."""
    return urlencode({"httpd_username": user, "httpd_password": password})
