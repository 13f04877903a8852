# SPDX-License-Identifier: Apache-2.0

"""A service for browsers: a fabric with tenants, faults and a queue, on a free port."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from waitress import wasyncore
from waitress.server import create_server

from laas_service.adapters.db import schema
from laas_service.adapters.db.engine import connect
from laas_service.domain.topology import Topology, Xgft
from tests.functional.api.conftest import Deployment

HOSTS_32 = Topology(Xgft((4, 4, 2), (1, 4, 4)))

HOSTS_1024 = Topology(Xgft((16, 8, 8), (1, 16, 8)))
"""1,024 hosts on 64 leaves in 8 pods; two hosts for each uplink of an L2 switch."""


class Site:
    """A deployment with one fabric, its REST client, and its address."""

    def __init__(self, directory: Path, topology: Topology) -> None:
        path = directory / "laas.db"
        engine = connect(f"sqlite:///{path}")
        schema.upgrade(engine)
        engine.dispose()
        self.deployment = Deployment(path).add_fabric(topology=topology)
        self.client = self.deployment.client()
        self.url = ""

    def get(self, path: str) -> Any:
        return self.client.get(path).json

    def allocate(self, name: str, hosts: int, **more: Any) -> Any:
        body = {"name": name, "hosts": hosts, **more}
        return self.client.post("/v1/allocations?wait=5", json=body)

    def fill(self, tenants: int, seed: int = 1) -> None:
        """Tenants of two projects by chance, then a link and hosts that fail or are drained."""
        random = Random(seed)
        for number in range(tenants):
            size = random.choice([3, 6, 12, 17, 24, 40, 64])
            project = "blue" if number % 4 == 0 else "red"
            self.allocate(f"{project}-{number:02}", size, project_id=project, duration=7200)
        fabric = "/v1/fabrics/main"
        for link in ("leaf-0-1-3", "spine-2-4-1"):
            self.client.patch(f"{fabric}/links/{link}", json={"state": "failed"})
        names = [host["name"] for host in self.get(f"{fabric}/hosts?free=true")["hosts"]]
        for name, state in zip(names, ("failed", "drained", "drained"), strict=False):
            self.client.patch(f"{fabric}/hosts/{name}", json={"state": state})


@contextmanager
def served(site: Site, authenticate: Any = None) -> Iterator[str]:
    """Serve the deployment on a free port; yields the address."""
    app = site.deployment.client(authenticate).application
    listening = create_server(app, host="127.0.0.1", port=0, threads=4)
    thread = threading.Thread(target=listening.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.effective_port}"
    finally:
        with suppress(OSError):  # the server may have closed the trigger already
            close = lambda: wasyncore.close_all(listening._map, ignore_all=True)  # noqa: E731
            listening.trigger.pull_trigger(close)
        thread.join(5)
        site.deployment.engine.dispose()
