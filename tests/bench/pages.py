# SPDX-License-Identifier: Apache-2.0

"""Load of open fabric pages: ``python -m tests.bench.pages [--pages N]``.

A fabric of 11,664 hosts with tenants by chance; the tokens are checked by the real middleware with
a stand-in for Keystone, whose answers it remembers. Each page asks with its session whether the map
has changed. Processor time of such a question is set beside that of the cheapest requests with a
token, then the first page after a change is measured, and the next one, which gets the same map.
Figures are reported, never asserted.
"""

from __future__ import annotations

import argparse
import re
import threading
import time
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from importlib.resources import files
from math import prod
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from flask.testing import FlaskClient

from laas_service.adapters.db import schema
from laas_service.adapters.db.engine import connect
from laas_service.api.auth import middleware
from laas_service.api.session_cookies import HEADER
from laas_service.domain.topology import Topology, Xgft
from tests.functional.api.conftest import Deployment
from tests.functional.api.keystone import Keystone

TREE = Xgft((18, 18, 36), (1, 18, 18))
CHEAPEST = 40
"""Requests with a token a second that open pages may cost at most."""

TENANTS = 90

CONFIGURATION = """
[keystone_authtoken]
auth_type = password
auth_url = {url}
www_authenticate_uri = {url}
username = laas
password = secret
project_name = service
user_domain_id = default
project_domain_id = default
"""


def milliseconds(act: Callable[[], Any], times: int) -> float:
    """Processor time of one call, of all threads of this process."""
    begun = time.process_time()
    for _ in range(times):
        act()
    return 1000 * (time.process_time() - begun) / times


def every() -> float:
    """Seconds between two questions of a page."""
    script = files("laas_service.page").joinpath("live.js").read_text(encoding="utf-8")
    found = re.search(r"EVERY = (\d+)", script)
    assert found
    return int(found[1]) / 1000


def filled(directory: Path, url: str) -> Any:
    path = directory / "laas.db"
    engine = connect(f"sqlite:///{path}")
    schema.upgrade(engine)
    engine.dispose()
    made = Deployment(path).add_fabric(topology=Topology(TREE))
    local, random = made.client(), Random(1)
    for number in range(TENANTS):
        body = {"name": f"t{number}", "hosts": random.choice([3, 8, 40, 64, 170, 300])}
        local.post("/v1/allocations?wait=5", json=body)
    file = directory / "laas.conf"
    file.write_text(CONFIGURATION.format(url=url))
    made.conf(["--config-file", str(file)], project="laas")
    return made


def measure(deployment: Any, pages: int) -> None:
    app = deployment.client(middleware("keystone", "0.0.0.0", deployment.conf)).application
    client = FlaskClient(app, app.response_class, use_cookies=False)
    token = {"X-Auth-Token": "root-token"}
    headers = {"Origin": "http://localhost"}
    session: Any = client.post("/v1/session", json={"token": "root-token"}, headers=headers)
    cookie = session.headers["Set-Cookie"].partition(";")[0]
    page = {"Cookie": cookie, HEADER: session.json["secret"], "Accept-Encoding": "gzip"}
    path = "/v1/fabrics/main/map"

    def asked(**more: str) -> Any:
        answer = client.get(path, headers={**page, **more})
        assert answer.status_code in (200, 304), answer.text
        return answer

    first = asked()
    known = {"If-None-Match": first.headers["ETag"]}
    assert asked(**known).status_code == 304
    question = milliseconds(lambda: asked(**known), 1000)
    cheapest = {
        one: milliseconds(lambda one=one: client.get(one, headers=token), 500)  # type: ignore[misc]
        for one in ("/v1/quota", "/v1/fabrics", "/v1/fabrics/main/utilization")
    }
    name, least = min(cheapest.items(), key=lambda item: item[1])
    second = pages / every()
    print(f"{prod(TREE.m)} hosts, {TENANTS} tenants; {pages} pages ask every {every():g} s")
    print(
        f"question of a page (304): {question:.2f} ms; cheapest with a token, {name}: {least:.2f}"
    )
    mine, theirs = second * question, CHEAPEST * least
    print(f"a second: {mine:.0f} ms for all pages; {theirs:.0f} for {CHEAPEST} of the cheapest")
    deployment.client().post("/v1/allocations?wait=5", json={"name": "new", "hosts": 3})
    made = milliseconds(lambda: asked(**known), 1)
    shared = milliseconds(lambda: asked(**known), 20)
    answer = asked(**known)
    plain = client.get(path, headers={**page, "Accept-Encoding": "identity"})
    print(f"after a change: {made:.0f} ms for the first page, {shared:.1f} for each further one;")
    print(f"{len(answer.data) / 1e6:.2f} MB, {len(plain.data) / 1e6:.2f} without compression")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=200)
    options = parser.parse_args([] if arguments is None else arguments)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Keystone)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with TemporaryDirectory() as directory:
        deployment = filled(Path(directory), f"http://127.0.0.1:{server.server_port}")
        try:
            measure(deployment, options.pages)
        finally:
            deployment.engine.dispose()
            server.shutdown()
            server.server_close()


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
