# SPDX-License-Identifier: Apache-2.0

"""Cost of serving agents: ``python -m tests.bench.serving [--hosts H] [--named]``.

The fabric is filled as in ``tests.bench.rendering``. An API process that has just started renders
its set of files and serves it over HTTP on loopback. An agent's process without files fetches the
whole set, then the parts that differ with one more tenant and with a failed cable of a spine. It
checks each set, assembles the one file of tables, and reads the set as it does in each round.
With ``--named`` nobody reads LIDs, and the agent adds port GUIDs to the tables.
Seconds of the clock, processor seconds of both processes, bytes and memory are reported, never
asserted.
"""

from __future__ import annotations

import argparse
import os
import resource
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from keystoneauth1.adapter import Adapter
from keystoneauth1.noauth import NoAuth
from keystoneauth1.session import Session
from oslo_config import cfg
from waitress.server import create_server

from laas_service.adapters.db.transactions import utc_now
from laas_service.adapters.fabric_import import generator
from laas_service.adapters.service_rest import ServiceRest
from laas_service.api.app import create_app
from laas_service.api.auth import middleware
from laas_service.app.agent_registry import AgentRegistry
from laas_service.conf import register_opts
from laas_service.domain.faults.observation import Mode
from laas_service.domain.inventory import CableEnds
from laas_service.messages import FabricState, TenantRoute
from opensm_writer import fetch, render
from opensm_writer.serve import ServedSets
from opensm_writer.set_reader import SetReader
from tests.bench.policies import RADIX
from tests.bench.rendering import HOSTS, tenants

FABRIC = "bench"


def serve(directory: Path, opensm: Path, routed: Callable[[str], FabricState]) -> str:
    """Serve sets on a free port of loopback; returns its URL."""
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf([], project="laas", default_config_files=[], default_config_dirs=[])
    store: Any = SimpleNamespace(
        fabric=lambda id: SimpleNamespace(id=id),
        observation_mode=lambda id: Mode.ACT,
    )
    sets = ServedSets(
        directory, routed, lambda fabric: render.Settings(f"{opensm}/{fabric}/current")
    )
    registry = AgentRegistry(
        store, cast("Any", None), sets, seconds=15, wake=lambda: None, now=utc_now
    )
    fabrics = SimpleNamespace(fabrics=list, ready=lambda: None)
    use_cases: Any = SimpleNamespace(agents=registry, fabrics=fabrics, exhausted=dict)
    app = create_app(use_cases, conf, middleware("none", "127.0.0.1", conf))
    server = create_server(app, host="127.0.0.1", port=0, threads=2)
    threading.Thread(target=server.run, daemon=True).start()
    return f"http://127.0.0.1:{server.effective_port}"


def states(hosts: int, count: int) -> list[FabricState]:
    """With all tenants but one, with one more, and with a failed cable of a spine."""
    half = RADIX[hosts] // 2
    made = generator.generate(
        generator.Description(xgft=f"3;{half},{half},{2 * half};1,{half},{half}", subnet_managers=1)
    )
    placed = tenants(made.topology, count + 1)
    routes = tuple(TenantRoute(a, key) for key, a in enumerate(placed, 1))
    tree = made.topology.tree
    failed = tree.link_at(tree.leaf_links + tree.spine_links - 1)
    return [
        FabricState(FABRIC, number, made.topology, made.inventory, routes[:live], links)
        for number, live, links in (
            (1, len(routes) - 1, ()),
            (2, len(routes), ()),
            (3, len(routes), (failed,)),
        )
    ]


def api(there: Connection, hosts: int, count: int, directory: Path, opensm: Path) -> None:
    """The API's process: answers each message with its processor time and memory.

    The message True is for the next state.
    """
    wanted = states(hosts, count)
    there.send(serve(directory, opensm, lambda fabric: wanted[0]))
    for following in iter(there.recv, None):
        if following:
            del wanted[0]
        there.send((time.process_time(), peak()))


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


class Counted:
    """``fetch.SetSource`` that counts bytes and requests."""

    def __init__(self, source: fetch.SetSource) -> None:
        self._source, self.size, self.requests = source, 0, 0

    def described(self) -> Mapping[str, Any]:
        self.requests += 1
        document = self._source.described()
        self.size += len(repr(document))
        return document

    def contents(self, generation: int, name: str, start: int, size: int) -> Iterable[bytes]:
        self.requests += 1
        for piece in self._source.contents(generation, name, start, size):
            self.size += len(piece)
            yield piece


def right(pinned: Mapping[int, int], cables: tuple[CableEnds, ...]) -> None:
    """See ``fetch.WrongLids``: all ports have the LIDs of their tables."""


def measure(hosts: int, count: int, named: bool) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory) / "opensm"
        context = get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(
            target=api,
            args=(there, hosts, count, Path(directory) / "served", root),
            daemon=True,
        )
        process.start()
        adapter = Adapter(Session(NoAuth()), endpoint_override=here.recv())
        rest = ServiceRest(adapter, "bench", FABRIC)
        sets = SetReader(root / FABRIC)

        def told(what: str, act: Callable[[fetch.SetSource], Any]) -> None:
            here.send(False)
            begun, (api_begun, _) = (time.perf_counter(), time.process_time()), here.recv()
            source = Counted(rest)
            act(source)
            clock, own = time.perf_counter() - begun[0], time.process_time() - begun[1]
            here.send(False)
            api_ended, api_peak = here.recv()
            line = f"{hosts:6} {what:22}{clock:8.1f}{api_ended - api_begun:6.1f}{own:7.1f}"
            line += f"{source.size / 1e6:9.1f}{source.requests:9}{api_peak:9}{peak():11}"
            print(f"{line}{os.getloadavg()[0]:6.1f}", flush=True)

        def fetched(source: fetch.SetSource) -> None:
            wrong_lids = fetch.never_read if named else right
            fetch.fetch_set(source, root, FABRIC, 1, sets.known_tables(), wrong_lids=wrong_lids)
            current = sets.current()
            if current is None or current.damage:
                raise SystemExit(f"the set was not fetched: {current}")

        for number, what in enumerate(("from nothing", "one more", "spine cable")):
            if number:
                here.send(True)
                here.recv()
            told(f"{what}, rendered", lambda source: source.described())
            told(f"{what}, fetched", fetched)
        here.send(None)
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, choices=RADIX, action="append")
    parser.add_argument("--tenants", type=int, default=400)
    parser.add_argument("--named", action="store_true")
    options = parser.parse_args()
    print(" hosts what                     clock   api  agent       MB requests", end="")
    print("  api MiB  agent MiB  load")
    for hosts in options.hosts or HOSTS:
        arguments = (hosts, options.tenants, options.named)
        process = get_context("spawn").Process(target=measure, args=arguments)
        process.start()  # a process for each size, as peak memory is by process
        process.join()


if __name__ == "__main__":
    main()
