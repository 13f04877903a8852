# SPDX-License-Identifier: Apache-2.0

"""Real workers on one PostgreSQL; one is killed, one is stopped for longer than its lease."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.app.lifecycle import State
from laas_service.app.records import Caller
from laas_service.app.requests import AllocationRequest, AllocationView
from laas_service.wiring.composition import Composition
from opensm_writer import fileset
from tests.options import options_from
from tests.servers import postgresql
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.skipif(
    not postgresql.AVAILABLE, reason="needs the Debian package postgresql"
)

OPERATOR = Caller("blue", "operator", admin=True, request_id="test")
CONFIGURATION = """\
[DEFAULT]
state_dir = {directory}
[database]
connection = {url}
[worker]
poll_interval = 0.5
lease_seconds = 30
"""


class Site:
    """A database with a fabric of 16 hosts, and workers that share it."""

    def __init__(self, directory, url):
        self.directory = directory
        self.config = str(directory / "laas.conf")
        (directory / "laas.conf").write_text(CONFIGURATION.format(directory=directory, url=url))
        conf = options_from(self.config)
        self.parts = Composition(conf)
        self.parts.database.upgrade()
        made = generate(Description(xgft="2;4,4;1,4"))
        self.parts.store.fabrics.add("main", made.topology, made.inventory)
        self.allocations = self.parts.use_cases(wake=lambda: None).allocations
        self.workers = {}
        self.started = 0

    def start(self):
        """Start a further worker."""
        self.started += 1
        with (self.directory / f"worker-{self.started}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "laas_service.cmd.worker", "--config-file", self.config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.workers[process.pid] = process

    def ask(self, name, hosts=3):
        made = self.allocations.allocate(OPERATOR, AllocationRequest(name=name, hosts=hosts))
        assert isinstance(made, AllocationView)
        return made.record.id

    def holder(self):
        """The process id of the worker that holds the fabric's lease; None if there is none."""
        name = self.parts.store.observations.holding("main").worker
        return name and int(name.split("/")[2].partition("-")[0])

    def until(self, look, what):
        return eventually(look, lambda: f"{what}: {self.said()}")

    def becomes(self, state, id):
        self.until(lambda: self.parts.store.allocations.get(id).state is state, f"{id} {state}")

    def said(self):
        return "\n".join(path.read_text() for path in sorted(self.directory.glob("*.log")))

    def close(self):
        for process in self.workers.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        self.parts.database.engine.dispose()


@pytest.fixture
def site(servers, tmp_path):
    site = Site(tmp_path, servers(postgresql.PostgreSql).database())
    yield site
    site.close()


def test_a_worker_takes_over_from_one_that_is_killed_and_one_that_stands_still(site):
    site.start()
    site.start()
    first = site.ask("a")
    site.becomes(State.ACTIVE, first)

    killed = site.until(site.holder, "somebody has the fabric")
    os.kill(killed, signal.SIGKILL)
    site.workers.pop(killed).wait()
    second = site.ask("b")
    site.allocations.release(OPERATOR, first)
    site.becomes(State.ACTIVE, second)
    site.becomes(State.RELEASED, first)
    assert site.holder() in site.workers

    site.start()
    still = site.holder()
    os.kill(still, signal.SIGSTOP)
    third = site.ask("c")
    site.becomes(State.ACTIVE, third)
    awake = site.holder()
    assert awake != still
    os.kill(still, signal.SIGCONT)
    site.until(lambda: "was taken over from" in site.said(), "it notices")
    fourth = site.ask("d")
    site.becomes(State.ACTIVE, fourth)
    assert site.holder() == awake

    for process in site.workers.values():
        process.send_signal(signal.SIGTERM)
    assert [process.wait(PATIENCE) for process in site.workers.values()] == [0, 0], site.said()
    assert site.holder() is None, site.said()
    active = {second, third, fourth}
    records = site.parts.store.allocations.page(states=[State.ACTIVE])
    assert {record.id for record in records} == active
    assert set(site.parts.compute.handed_over()) == active
    manifest = fileset.current(site.directory / "opensm", "main")
    assert manifest is not None
    assert set(manifest.tenants) == active
    assert set(site.parts.store.fabrics.ledger("main")[0].allocations) == active
