# SPDX-License-Identifier: Apache-2.0

"""Cost of serving agents: ``python -m tests.bench.serving [--hosts H] [--tenants N]``.

The fabric is filled as in ``tests.bench.rendering``. An API process that has just started
renders its set of files and serves the set over HTTP on loopback: first the whole set to an
agent without files, then, with one more tenant, the parts that differ from the set before.
Elapsed seconds, bytes and memory are reported, never asserted.
"""

from __future__ import annotations

import argparse
import os
import resource
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import requests
from oslo_config import cfg
from waitress.server import create_server

from laas_service.adapters.db.transactions import utc_now
from laas_service.adapters.fabric_import import generator
from laas_service.api.app import create_app
from laas_service.api.auth import middleware
from laas_service.app.agent_registry import AgentRegistry
from laas_service.conf import register_opts
from laas_service.messages import FabricState, TenantRoute
from opensm_writer import render
from opensm_writer.serve import ServedSets
from tests.bench.policies import RADIX
from tests.bench.rendering import HOSTS, tenants


def serve(directory: Path, routed: Callable[[str], FabricState]) -> str:
    """Serve sets on a free port of loopback; returns the URL of the fabric's set."""
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf([], project="laas", default_config_files=[], default_config_dirs=[])
    store: Any = SimpleNamespace(fabric=lambda id: SimpleNamespace(id=id))
    sets = ServedSets(
        directory, routed, lambda fabric: render.Settings(f"/opensm/{fabric}/current")
    )
    registry = AgentRegistry(
        store, cast("Any", None), sets, seconds=15, wake=lambda: None, now=utc_now
    )
    fabrics = SimpleNamespace(fabrics=list)
    use_cases: Any = SimpleNamespace(agents=registry, fabrics=fabrics, exhausted=dict)
    app = create_app(use_cases, conf, middleware("none", "127.0.0.1", conf))
    server = create_server(app, host="127.0.0.1", port=0, threads=2)
    threading.Thread(target=server.run, daemon=True).start()
    return f"http://127.0.0.1:{server.effective_port}/v1/fabrics/bench/file-set"


class Fetcher:
    """Fetches a set like an agent, adjacent parts in one request, and discards it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._had: set[str] = set()

    def fetch(self) -> tuple[int, int]:
        """Fetch the missing parts; returns the number of bytes and of requests."""
        answer = requests.get(self._url, timeout=3600)
        answer.raise_for_status()
        found, fetched, asked = answer.json(), len(answer.content), 1
        generation = found["manifest"]["generation"]
        for name, digest in found["manifest"]["files"].items():
            for span in self._missing(digest, found["sizes"][name], found["parts"].get(name)):
                fetched += self._get(f"{self._url}/{generation}/{name}", *span)
                asked += 1
        return fetched, asked

    def _missing(
        self, digest: str, size: int, parts: list[tuple[int, str]] | None
    ) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        if digest not in self._had:
            start = 0
            for length, part in parts or [(size, digest)]:
                if part not in self._had and spans and spans[-1][1] == start:
                    spans[-1] = (spans[-1][0], start + length)
                elif part not in self._had:
                    spans.append((start, start + length))
                self._had.add(part)
                start += length
        self._had.add(digest)
        return spans

    def _get(self, url: str, start: int, end: int) -> int:
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        with requests.get(url, headers=headers, stream=True, timeout=3600) as answer:
            answer.raise_for_status()
            return sum(len(piece) for piece in answer.iter_content(2**20))


def measure(hosts: int, count: int) -> None:
    half = RADIX[hosts] // 2
    made = generator.generate(
        generator.Description(xgft=f"3;{half},{half},{2 * half};1,{half},{half}", subnet_managers=1)
    )
    placed = tenants(made.topology, count + 1)
    routes = tuple(TenantRoute(a, key) for key, a in enumerate(placed, 1))
    states = [
        FabricState("bench", generation, made.topology, made.inventory, routes[:live])
        for generation, live in ((1, len(routes) - 1), (2, len(routes)))
    ]
    wanted = [states[0]]

    def told(what: str, act: Callable[[], Any]) -> None:
        clock = time.perf_counter()
        fetched, asked = act() or (0, 0)
        clock = time.perf_counter() - clock
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        line = f"{hosts:6} {what:34}{clock:8.1f}{fetched / 1e6:10.1f}{asked:9}{peak:8}"
        print(f"{line}{os.getloadavg()[0]:6.1f}", flush=True)

    def rendered() -> None:
        requests.get(url, timeout=3600).raise_for_status()

    with TemporaryDirectory() as directory:
        url = serve(Path(directory), lambda fabric: wanted[0])
        agent, standby = Fetcher(url), Fetcher(url)
        told("rendered from nothing", rendered)
        told("fetched whole", agent.fetch)
        told("fetched whole by another", standby.fetch)
        wanted[0] = states[1]
        told("one tenant more, rendered", rendered)
        told("one tenant more, fetched", agent.fetch)
        told("looked at again", agent.fetch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, choices=RADIX, action="append")
    parser.add_argument("--tenants", type=int, default=400)
    options = parser.parse_args()
    print(" hosts what                               seconds        MB requests MiB max  load")
    for hosts in options.hosts or HOSTS:
        process = get_context("spawn").Process(target=measure, args=(hosts, options.tenants))
        process.start()  # a process for each size, as peak memory is by process
        process.join()


if __name__ == "__main__":
    main()
