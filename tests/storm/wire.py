# SPDX-License-Identifier: Apache-2.0

"""One request over HTTP, with a complete answer or LostError."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

PATIENCE = 300
"""Seconds to wait for an answer, enough for a slow machine."""


class LostError(Exception):
    """No complete answer came: the request may have taken effect or not."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    retry_after: str | None
    document: Any
    """None if the body is not JSON."""

    @property
    def code(self) -> str:
        """The code of a problem document, or an empty string."""
        known = self.document if isinstance(self.document, dict) else {}
        return str(known.get("code", "")) if self.status >= 400 else ""


def ask(
    port: int,
    method: str,
    path: str,
    body: object = None,
    key: str | None = None,
    *,
    project: str | None = None,
) -> Answer:
    """Send a request over a connection of its own. Raises: LostError."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if project is not None:
        headers["X-Project-Id"] = project
    if key is not None:
        headers["Idempotency-Key"] = key
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, headers)
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise LostError(repr(error)) from error
    finally:
        connection.close()
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    return Answer(response.status, response.headers["Retry-After"], document)
