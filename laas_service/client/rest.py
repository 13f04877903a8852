# SPDX-License-Identifier: Apache-2.0

"""The service over REST, for every client of ours; problems become sentences."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException

from laas_service.client.shown import brief

SERVICE_TYPE = "isolated-network"
"""What the service is called in Keystone's catalog."""

MOVING = ("queued", "allocating", "releasing")
"""States that change by themselves."""

LOOK = 0.5
"""Seconds between two looks at an allocation that is waited for."""

Row = Mapping[str, Any]


class Refused(Exception):
    """The service said no, in a sentence."""


class Rest:
    """The service's resources; every answer that is a problem becomes ``Refused``."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        try:
            answer = self._adapter.request(
                path,
                method,
                params=given,
                json=body,
                headers=dict(headers or {}),
                raise_exc=False,
                connect_retries=2,
            )
        except ClientException as error:
            raise Refused(f"the service could not be asked: {error}") from error
        if answer.status_code >= 400:
            raise Refused(_sentence(answer))
        return answer.json()

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, query)

    def listed(self, path: str, key: str, **query: Any) -> Iterator[Any]:
        """The items of all pages."""
        while True:
            page = self.get(path, **query)
            yield from page[key]
            if page["next"] is None:
                return
            query = dict(parse_qsl(urlsplit(page["next"]).query))

    def fabric(self, named: str | None) -> str:
        """The path of the fabric named, or of the only one."""
        if named is None:
            known = [fabric["id"] for fabric in self.listed("/v1/fabrics", "fabrics")]
            if len(known) != 1:
                raise Refused(f"name one of these with --fabric: {', '.join(known) or 'none'}")
            (named,) = known
        return f"/v1/fabrics/{quote(named, safe='')}"

    def allocation(self, named: str) -> Any:
        """The allocation of this id, or else the only live one of this name."""
        known = list(self.listed("/v1/allocations", "allocations"))
        found = [one for one in known if one["name"] == named]
        if any(one["id"] == named for one in known) or not found:
            return self.get(f"/v1/allocations/{quote(named, safe='')}")
        if len(found) > 1:
            ids = ", ".join(one["id"] for one in found)
            raise Refused(f"several allocations are called {named}; use an id: {ids}")
        return self.get(f"/v1/allocations/{found[0]['id']}")

    def settled(self, allocation: Any, seconds: float) -> Any:
        """The allocation when it has stopped changing.

        Raises:
            Refused: it ended in error, or is not done after ``seconds``.
        """
        until = time.monotonic() + seconds
        while allocation["state"] in MOVING or allocation["changing"]:
            if time.monotonic() >= until:
                doing = "changing" if allocation["changing"] else allocation["state"]
                raise Refused(
                    f"allocation {allocation['id']} is still {doing} after "
                    f"{seconds:g} s{_because(allocation)}; it goes on without you"
                )
            time.sleep(LOOK)
            allocation = self.get(f"/v1/allocations/{allocation['id']}")
        if allocation["state"] == "error":
            raise Refused(f"allocation {allocation['id']} failed{_because(allocation)}")
        return allocation


def _because(allocation: Row) -> str:
    waits = allocation["waits_for"]
    why = allocation["error"] or (waits and waits["detail"])
    return f": {why}" if why else ""


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sentence(answer: Any) -> str:
    """A problem document as one sentence, or what else came back."""
    try:
        problem = answer.json()
        text = f"{problem['detail']} ({problem['code']})"
    except (ValueError, KeyError, TypeError):
        return f"{answer.url} answered {answer.status_code} {answer.reason}"
    if problem.get("largest_fit"):
        text += f"; the largest that would fit now is {problem['largest_fit']}"
    room = problem.get("room") or {"releases": (), "undrain": ()}
    if room["releases"]:
        text += f"; room would be made by releasing {', '.join(room['releases'])}"
    if room["undrain"]:
        text += f"; room would be made by repairing drained hosts {brief(room['undrain'])}"
    return text
