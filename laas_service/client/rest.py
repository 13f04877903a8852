# SPDX-License-Identifier: Apache-2.0

"""REST client: requests, paging, waiting for an outcome, error texts."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

from laas_service.client.formatting import SHORTEST_ID, brief, shortened

if TYPE_CHECKING:
    from keystoneauth1.adapter import Adapter

SERVICE_TYPE = "isolated-network"
"""Service type in Keystone's catalog."""

VERSION = "1.3"
"""The newest microversion that this client knows."""

CHANGING = ("queued", "allocating", "releasing")
"""States that the service leaves without a further request."""

POLL_INTERVAL = 0.5
"""Seconds between two GETs of an allocation that ``settled`` waits for."""

LOG = logging.getLogger(__name__)
LOG.addFilter(lambda record: record.levelno < logging.WARNING)
"""Requests, for ``--debug``; no warning of each attempt to connect, which the error says once."""

Row = Mapping[str, Any]


class Refused(Exception):
    """The service refused a request or could not be reached; the text says why.

    ``status`` is the one of the answer, None without one. ``document`` is the problem as REST
    has it, or with ``code`` and ``detail`` alone.
    """

    code = "error"

    def __init__(
        self, text: str, status: int | None = None, document: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.document = {"code": self.code, "detail": text, **(document or {})}

    @property
    def exit_status(self) -> int:
        """That of a command which ends with this."""
        return EXITS.get(self.status or 0, 1)


EXITS = {409: 3, 404: 4, 401: 7, 403: 7}
"""Exit statuses of commands, by the status of the answer."""


class WaitEnded(Refused):
    """The change that was waited for is not complete; ``document`` has the ``id``."""

    code = "wait_ended"
    exit_status = 5


class Unreachable(Refused):
    """Nothing answered that is this service."""

    code = "unreachable"
    exit_status = 6


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while the service works on something; the text says on what."""


class Rest:
    """The service's resources. Every method raises ``Refused`` on a problem document.

    ``version`` is the microversion that every request asks for.
    """

    def __init__(self, adapter: Adapter, version: str = VERSION) -> None:
        self._adapter = adapter
        self._version = {"OpenStack-API-Version": f"{SERVICE_TYPE} {version}"}

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        return self._asked(method, path, query, body, headers).json()

    def versioned(self, path: str) -> tuple[Any, str]:
        """What is there, and its entity tag for ``If-Match``."""
        answer = self._asked("GET", path)
        return answer.json(), answer.headers["ETag"]

    def _asked(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The answer to a request. Raises: Refused, Interrupted."""
        from keystoneauth1.exceptions import ClientException  # takes longer than ``--help``

        params = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        try:
            answer = self._adapter.request(
                path,
                method,
                params=params,
                json=body,
                headers={**self._version, **(headers or {})},
                raise_exc=False,
                connect_retries=2,
                logger=LOG,
            )
        except ClientException as error:
            raise Unreachable(f"cannot reach the service: {_cause(error)}") from error
        except KeyboardInterrupt as error:
            if method == "GET":
                raise
            raise Interrupted(
                f"interrupted; the service may still carry out {method} {path}"
            ) from error
        try:
            document = answer.json()
        except ValueError:
            raise Unreachable(
                f"{answer.url} answered {answer.status_code} {answer.reason}, but no JSON as this "
                "service does; give its address as endpoint"
            ) from None
        if answer.status_code >= 400:
            raise _refused(answer, document)
        return answer

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, query)

    def listed(self, path: str, key: str, **query: Any) -> Iterator[Any]:
        """The items of a list, from all its pages."""
        while True:
            page = self.get(path, **query)
            if key not in page or "next" not in page:
                raise Unreachable(f"{path} there is not of this service; check the endpoint")
            yield from page[key]
            if page["next"] is None:
                return
            query = dict(parse_qsl(urlsplit(page["next"]).query))

    def fabric(self, named: str | None) -> str:
        """The path of the fabric of this id, or of the service's default if none is given.

        Raises:
            Refused: no id is given, and the service has no default.
        """
        if named is None:
            page = self.get("/v1/fabrics")
            ids = [fabric["id"] for fabric in page["fabrics"]]
            named = page.get("default", ids[0] if len(ids) == 1 else None)
            if named is None:
                raise Refused(f"name one of these with --fabric: {', '.join(ids) or 'none'}")
        return f"/v1/fabrics/{quote(named, safe='')}"

    def project(self, named: str) -> str:
        """The id of the project of this name or id; ``named`` if the caller may not look it up.

        Raises:
            Refused: several domains have a project of this name.
        """
        from keystoneauth1.adapter import Adapter
        from keystoneauth1.exceptions import ClientException

        keystone = Adapter(
            self._adapter.session,
            auth=self._adapter.auth,
            service_type="identity",
            interface=self._adapter.interface,
            region_name=self._adapter.region_name,
            min_version="3",
            max_version="3.latest",
        )
        try:
            answer = keystone.get("/projects", params={"name": named})
            ids = [project["id"] for project in answer.json()["projects"]]
        except (ClientException, ValueError, KeyError):
            ids = []
        if len(ids) > 1:
            raise Refused(f"several projects are called {named}; use an id: {', '.join(ids)}")
        return str(ids[0]) if ids else named

    def allocation(self, named: str, fabric: str | None = None) -> Any:
        """The allocation of this id, or else the only live allocation of this name.

        ``fabric`` leaves out names and ids of other fabrics.

        Names of the own project count before those of other projects, which administrators see.
        The first characters of the id of a live allocation, as tables print them, will do.

        Raises:
            Refused: there is none, or several have this name or such an id.
        """
        live = list(self.listed("/v1/allocations", "allocations", fabric=fabric))
        namesakes = [allocation for allocation in live if allocation["name"] == named]
        if not namesakes and len(named) >= SHORTEST_ID:
            alike = [allocation for allocation in live if allocation["id"].startswith(named)]
            if len(alike) == 1:
                named = alike[0]["id"]
        if any(allocation["id"] == named for allocation in live) or not namesakes:
            try:
                return self.get(f"/v1/allocations/{quote(named, safe='')}")
            except Refused as refusal:
                namesakes = self._elsewhere(named) if refusal.status == HTTPStatus.NOT_FOUND else []
                if not namesakes:
                    raise
        if len(namesakes) > 1:
            ids = shortened([allocation["id"] for allocation in namesakes])
            places = {allocation["fabric"] for allocation in namesakes}
            fabrics = f"; or give --fabric: {', '.join(sorted(places))}" if len(places) > 1 else ""
            raise Refused(
                f"several allocations are called {named}; name one by the beginning of its id: "
                f"{', '.join(ids)}{fabrics}"
            )
        return self.get(f"/v1/allocations/{namesakes[0]['id']}")

    def _elsewhere(self, named: str) -> list[Any]:
        """The live allocations of this name in all projects; none unless the caller sees all."""
        try:
            live = self.listed("/v1/allocations", "allocations", all_projects=True)
            return [allocation for allocation in live if allocation["name"] == named]
        except Refused:
            return []

    def settled(self, allocation: Any, seconds: float) -> Any:
        """Poll an allocation until it no longer changes, and return it.

        Raises:
            Refused: the allocation ended in error.
            WaitEnded: it still changes after ``seconds``.
            Interrupted: Ctrl-C; the text says what the service goes on with.
        """
        deadline = time.monotonic() + seconds
        while changing(allocation):
            state = "changing" if allocation.get("changing") else allocation["state"]
            left = f"allocation {allocation['id']} is still {state}"
            if time.monotonic() >= deadline:
                raise WaitEnded(
                    f"{left} after {seconds:g} s{_reason(allocation)}; the service continues",
                    document={"id": allocation["id"], "state": allocation["state"]},
                )
            try:
                time.sleep(POLL_INTERVAL)
                allocation = self.get(f"/v1/allocations/{allocation['id']}")
            except KeyboardInterrupt as error:
                left = f"interrupted; {left}{_reason(allocation)}; the service continues"
                raise Interrupted(left) from error
        if allocation["state"] == "error":
            raise Refused(f"allocation {allocation['id']} failed{_reason(allocation)}")
        return allocation


def changing(allocation: Row) -> bool:
    """Whether the service leaves the state of an allocation without a further request."""
    return allocation["state"] in CHANGING or bool(allocation.get("changing"))


def _cause(error: BaseException) -> str:
    """The address, and what the operating system said, in place of the texts of all layers."""
    text = str(error)
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    address = re.sub(
        r": (HTTP|\(|Sock|No conn).*", "", re.sub(".*?(?=https?://)", "", text), count=1
    )
    if "ProxyError" in text or "Unable to connect to proxy" in text:
        host = urlsplit(address).hostname
        return f"{address}: the proxy of https_proxy or http_proxy refuses; set no_proxy={host}"
    if re.search("WRONG_VERSION|UNEXPECTED_EOF|RECORD_LAYER|CERTIFICATE_VERIFY", text):
        if "CERTIFICATE_VERIFY" in text:
            return (
                f"{address}: its certificate is not trusted; set OS_CACERT to that of its authority"
            )
        return f"{address}: the server there speaks http; write http:// in the endpoint"
    if "/auth/tokens" in address and isinstance(error, OSError) and error.strerror:
        return f"Keystone at {address}: {error.strerror}; check OS_AUTH_URL"
    if isinstance(error, ConnectionRefusedError):
        return f"{address}: {error.strerror}; start laas-api there, or give another endpoint"
    if isinstance(error, OSError) and error.strerror:
        return f"{address}: {error.strerror}"
    return text


def _reason(allocation: Row) -> str:
    waits_for = allocation.get("waits_for")
    reason = allocation.get("error") or (waits_for and waits_for["detail"])
    return f": {reason}" if reason else ""


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refused(answer: Any, problem: Any) -> Refused:
    """The refusal in a problem document; URL and status if the body is none."""
    try:
        text = f"{problem['detail']} ({problem['code']})"
    except (KeyError, TypeError):
        return Unreachable(
            f"{answer.url} answered {answer.status_code} {answer.reason}", answer.status_code
        )
    if problem.get("largest_fit"):
        text += f"; the largest that would fit now is {problem['largest_fit']}"
    room = problem.get("room") or {"releases": (), "undrain": ()}
    if room["releases"]:
        text += f"; room would be made by releasing {', '.join(room['releases'])}"
    if moving := problem.get("by_moving"):
        text += f"; it would fit if {brief(moving['moves'])} of its hosts were exchanged for others"
    if room["undrain"]:
        text += f"; room would be made by repairing drained hosts {brief(room['undrain'])}"
    return Refused(text, answer.status_code, problem)
