# SPDX-License-Identifier: Apache-2.0

"""A cloud by its interfaces for users: our REST interface, and Nova through novaclient."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from novaclient.exceptions import Conflict, NotFound

from tests.story.judge import Held, Server, Subnet
from tests.waiting import PATIENCE, PAUSE, eventually


class Rest:
    """Client of our REST interface; ``headers`` gives those of a project, such as its token."""

    def __init__(
        self, url: str, headers: Callable[[str], Mapping[str, str]] = lambda project: {}
    ) -> None:
        self.url = url
        self.headers = headers

    def call(
        self, method: str, path: str, project: str = "", body: object = None
    ) -> tuple[int, Any]:
        """Status and document of an answer. Raises: AssertionError: neither 2xx nor 409."""
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
        """Wait until the allocation has the state; returns it."""
        path = f"/v1/allocations/{document['id']}"
        latest = document

        def became() -> bool:
            nonlocal latest
            if latest["state"] != state:
                latest = self.call("GET", path, project)[1]
            return bool(latest["state"] == state)

        eventually(became, lambda: f"{document['id']} becomes {state}: {latest}")
        return latest


class OpenStackSite:
    """``Site`` over our REST interface and novaclient.

    ``nova`` returns a client for a project; ``admin`` is an administrator's client.
    ``boot_options`` are the options of every ``servers.create``: image, flavor, networks.
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
    building = mine | {"status": "BUILD"}
    # A long pause, because this query is expensive for Nova.
    eventually(lambda: not _found(admin, building), f"servers of {project} are built", pause=1)
    lost = {server.id for server in admin.servers.list(search_opts=mine | {"status": "ERROR"})}
    for id in lost:
        landed(admin, id)
    return count - len(lost)


def landed(admin: Any, id: str, pause: float = PAUSE) -> str | None:
    """Wait for a server; returns its host. If Nova found none, delete the server: None.

    ``pause`` as in ``eventually``: each look takes Nova as long as a part of the building.
    """

    def built() -> Any:
        server = admin.servers.get(id)
        fault = getattr(server, "fault", None)  # Nova writes it a moment after the status
        return server if server.status == "ACTIVE" or (server.status == "ERROR" and fault) else None

    said = f"server {id} is built"
    server = eventually(built, lambda: f"{said}: {admin.servers.get(id).status}", pause=pause)
    if server.status == "ACTIVE":
        return str(getattr(server, _HOST))
    assert "No valid host" in server.fault["message"], server.fault
    _delete_one(admin, id)
    return None


def delete(admin: Any, project: str) -> None:
    """As ``Site.delete``."""
    delete_all(admin, {"project_id": project})


def delete_all(admin: Any, search: Mapping[str, Any]) -> set[str]:
    """Delete the servers that match; returns their ids when none is left."""
    asked: set[str] = set()

    def gone() -> bool:
        nonlocal asked
        found = _found(admin, search)
        asked |= {id for id in found - asked if _ask_to_delete(admin, id)}
        return not found

    eventually(gone, lambda: f"servers are gone: {_found(admin, search)}", pause=0.2)
    return asked


def _delete_one(admin: Any, id: str) -> None:

    def gone() -> bool:
        admin.servers.get(id)
        _ask_to_delete(admin, id)
        return False

    with suppress(NotFound):
        eventually(gone, f"server {id} is gone", pause=0.2)


def _ask_to_delete(admin: Any, id: str) -> bool:
    """Delete a server; False if Nova refuses now, and the call has to be repeated."""
    try:
        admin.servers.delete(id)
    except Conflict:  # another action on the server runs
        return False
    except NotFound:
        pass
    return True


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
