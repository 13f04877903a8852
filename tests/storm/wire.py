# SPDX-License-Identifier: Apache-2.0

"""One request over HTTP: a whole answer, or nothing that could be relied on."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

PATIENCE = 300
"""Seconds for an answer, from the slowest of machines."""


class LostError(Exception):
    """No whole answer came: nobody knows whether anything was done."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    retry_after: str | None
    document: Any
    """None where the body is no JSON."""

    @property
    def code(self) -> str:
        """The code of a problem document, or nothing."""
        known = self.document if isinstance(self.document, dict) else {}
        return str(known.get("code", "")) if self.status >= 400 else ""


def ask(port: int, method: str, path: str, body: object = None, key: str | None = None) -> Answer:
    """Over a connection of its own. Raises: LostError."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
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
