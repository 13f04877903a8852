# SPDX-License-Identifier: Apache-2.0

"""A cloud as its users reach it: our service by REST, Nova through novaclient."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from novaclient.exceptions import Conflict, NotFound

from tests.story.judge import Held, Server, Subnet

PATIENCE = 300.0
"""Seconds until something that should happen is given up."""


class Rest:
    """Our service; ``headers`` are for a project, such as its token."""

    def __init__(
        self, url: str, headers: Callable[[str], Mapping[str, str]] = lambda project: {}
    ) -> None:
        self.url = url
        self.headers = headers

    def call(
        self, method: str, path: str, project: str = "", body: object = None
    ) -> tuple[int, Any]:
        """Status and document of an answer; AssertionError for what is neither 2xx nor 409."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **self.headers(project)},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        assert status == 409, f"{method} {path}: {status} {text}"
        return status, json.loads(text)

    def settled(self, project: str, document: dict[str, Any], state: str) -> dict[str, Any]:
        """The allocation once it is in the state."""
        path = f"/v1/allocations/{document['id']}"
        until = time.monotonic() + PATIENCE
        while document["state"] != state:
            assert time.monotonic() < until, f"{document['id']} does not become {state}: {document}"
            time.sleep(0.1)
            document = self.call("GET", path, project)[1]
        return document


class OpenStackSite:
    """``Site`` over our REST interface and novaclient.

    ``nova`` gives a client that acts for a project, ``admin`` sees everything.
    ``boot_options`` are for every ``servers.create``: image, flavor, networks.
    """

    def __init__(
        self,
        rest: Rest,
        nova: Callable[[str], Any],
        admin: Any,
        boot_options: Mapping[str, Any],
        subnet: Subnet | None = None,
    ) -> None:
        self._rest = rest
        self._nova = nova
        self.admin = admin
        self._boot_options = dict(boot_options)
        self._subnet = subnet

    def allocate(self, project: str, hosts: int) -> Held | None:
        body = {"name": f"story-{project[-4:]}", "hosts": hosts, "project_id": project}
        status, document = self._rest.call("POST", "/v1/allocations", project, body)
        if status == 409:
            return None
        active = self._rest.settled(project, document, "active")
        return Held(active["id"], project, frozenset(host["name"] for host in active["hosts"]))

    def release(self, held: Held) -> None:
        _, document = self._rest.call("DELETE", f"/v1/allocations/{held.id}", held.project)
        self._rest.settled(held.project, document, "released")

    def boot(self, project: str, count: int) -> int:
        return boot(self._nova(project), self.admin, project, count, self._boot_options)

    def delete(self, project: str) -> None:
        delete(self.admin, project)

    def servers(self) -> list[Server]:
        return [
            Server(s.id, s.tenant_id, getattr(s, _HOST))
            for s in self.admin.servers.list(search_opts={"all_tenants": 1})
        ]

    def let_in(self) -> dict[str, set[str]]:
        return let_in(self.admin)

    def subnet(self) -> Subnet | None:
        return self._subnet


_HOST = "OS-EXT-SRV-ATTR:host"


def boot(nova: Any, admin: Any, project: str, count: int, options: Mapping[str, Any]) -> int:
    """As ``Site.boot``."""
    reservation = nova.servers.create(
        f"server-{project[-4:]}",
        min_count=count,
        max_count=count,
        reservation_id=True,
        **options,
    )
    mine = {"all_tenants": 1, "project_id": project, "reservation_id": reservation}
    _wait_until_none(admin, mine | {"status": "BUILD"}, f"servers of {project} stay in BUILD")
    lost = {server.id for server in admin.servers.list(search_opts=mine | {"status": "ERROR"})}
    for id in lost:
        landed(admin, id)
    return count - len(lost)


def eventually(look: Callable[[], object], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < until, f"waited in vain: {what}"
        time.sleep(0.1)


def landed(admin: Any, id: str) -> str | None:
    """The host of a server once it is built. None: there was no host for it, and it is deleted."""
    until = time.monotonic() + PATIENCE
    while (server := admin.servers.get(id)).status != "ACTIVE":
        fault = getattr(server, "fault", None)  # written a moment after the status
        if server.status == "ERROR" and fault:
            assert "No valid host" in fault["message"], fault
            _delete_one(admin, id)
            return None
        assert time.monotonic() < until, f"server {id} stays in {server.status}"
        time.sleep(0.1)
    return str(getattr(server, _HOST))


def delete(admin: Any, project: str) -> None:
    """As ``Site.delete``."""
    delete_all(admin, {"project_id": project})


def delete_all(admin: Any, search: Mapping[str, Any]) -> set[str]:
    """The servers that were deleted, once none is found any more."""
    until = time.monotonic() + PATIENCE
    asked: set[str] = set()
    while found := _found(admin, search):
        assert time.monotonic() < until, f"servers stay: {found}"
        asked |= {id for id in found - asked if _ask_to_delete(admin, id)}
        time.sleep(0.2)
    return asked


def _delete_one(admin: Any, id: str) -> None:
    until = time.monotonic() + PATIENCE
    with suppress(NotFound):
        while admin.servers.get(id):
            assert time.monotonic() < until, f"server {id} stays"
            _ask_to_delete(admin, id)
            time.sleep(0.2)


def _ask_to_delete(admin: Any, id: str) -> bool:
    """Whether that has to be done no more; a server may be gone already."""
    try:
        admin.servers.delete(id)
    except Conflict:  # in the middle of something
        return False
    except NotFound:
        pass
    return True


def _wait_until_none(admin: Any, search: Mapping[str, Any], otherwise: str) -> None:
    """Until no server is found any more; asks seldom, as asking costs Nova a good deal."""
    until = time.monotonic() + PATIENCE
    while _found(admin, search):
        assert time.monotonic() < until, otherwise
        time.sleep(1)


def _found(admin: Any, search: Mapping[str, Any]) -> set[str]:
    options = {"all_tenants": 1, **search}
    return {server.id for server in admin.servers.list(detailed=False, search_opts=options)}


def let_in(admin: Any) -> dict[str, set[str]]:
    """As ``Site.let_in``."""
    found: dict[str, set[str]] = {
        service.host: set() for service in admin.services.list(binary="nova-compute")
    }
    for aggregate in admin.aggregates.list():
        values = {v for k, v in aggregate.metadata.items() if k.startswith("filter_tenant_id")}
        projects = {project.strip() for value in values for project in value.split(",")}
        for host in aggregate.hosts:
            found.setdefault(host, set()).update(projects)
    return found
