# SPDX-License-Identifier: Apache-2.0

"""The bus: real processes, and a real broker that is killed, paused and restarted.

Except where a test sets ``poll=OFTEN``, the worker polls so rarely that only a wake-up makes
it act within the time limits.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from operator import contains

import pytest
import requests

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.wiring.composition import Composition
from tests.marks import needs_rabbitmq
from tests.options import options_from
from tests.servers.leash import spawn
from tests.waiting import PATIENCE, eventually

pytestmark = needs_rabbitmq

SELDOM, OFTEN = 36_000, 0.2
"""Seconds between two polls of the worker."""

CONFIGURATION = """\
[DEFAULT]
state_dir = {directory}
transport_url = {url}
[api]
bind_port = 0
[worker]
poll_interval = {poll}
[oslo_messaging_notifications]
driver = {driver}
[oslo_messaging_rabbit]
heartbeat_timeout_threshold = {heartbeat}
"""


class Site:
    """A database with a fabric of 16 hosts, and the processes that share it."""

    def __init__(self, directory, url, **settings):
        self.directory, self.url = directory, url
        self.processes = {}
        self.configure(**settings)
        conf = options_from(self.config)
        self.parts = Composition(conf)
        self.connected = [self.parts]
        self.parts.database.upgrade()
        made = generate(Description(xgft="2;4,4;1,4"))
        self.parts.store.fabrics.add("main", made.topology, made.inventory)

    @property
    def config(self):
        return str(self.directory / "laas.conf")

    def configure(self, poll=SELDOM, heartbeat=60, driver="noop"):
        values = {"poll": poll, "heartbeat": heartbeat, "driver": driver}
        text = CONFIGURATION.format(directory=self.directory, url=self.url, **values)
        (self.directory / "laas.conf").write_text(text)

    def start(self, name):
        """Start laas-api or laas-worker."""
        with (self.directory / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", f"laas_service.cmd.{name}"]
            self.processes[name] = spawn(
                [*command, "--config-file", self.config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )

    def log(self, name):
        return (self.directory / f"{name}.log").read_text()

    def said(self, name, pattern, times=1):
        """Wait until the pattern has matched ``times`` times in a log; return the last match."""

        def look():
            ended = self.processes[name].poll() is not None
            found = re.findall(pattern, self.log(name))
            if len(found) >= times:
                return found
            assert not ended, self.log(name)
            return None

        return eventually(look, lambda: f"{pattern}: {self.log(name)}")[-1]

    def serve(self):
        """Start API and worker, and wait for the API; return the URL of the allocations."""
        self.start("api")
        self.start("worker")
        return self.api()

    def api(self):
        return self.said("api", r"Listening on (http://\S+)") + "/v1/allocations"

    def listening(self):
        self.said("worker", "Listening on the bus")

    def ask(self, hosts=4, wait=None):
        """Create an allocation; the API has to answer even while the broker is down or paused."""
        answer = requests.post(
            self.api(),
            params={"wait": wait} if wait else {},
            json={"name": "blue", "hosts": hosts},
            timeout=PATIENCE,
        )
        assert answer.status_code == 202, answer.text
        return answer.json()

    def becomes(self, state, id, meanwhile=lambda: None):
        def became():
            if self.state(id) == state:
                return True
            meanwhile()
            return False

        eventually(became, lambda: f"{state}, not {self.state(id)}\n{self.log('worker')}")

    def nudge(self):
        """Send a request that wakes the worker and changes nothing else.

        A process declares its queue again only after it has reconnected. Wake-ups sent
        before that are lost, and the sender gets no error.
        """
        host = self.parts.store.fabrics.get("main").inventory.host_names[0]
        url = self.api().replace("allocations", f"fabrics/main/hosts/{host}")
        requests.patch(url, json={"state": "up"}, timeout=PATIENCE).raise_for_status()
        time.sleep(1)  # between two requests of a caller that repeats them until it sees the effect

    def state(self, id):
        return requests.get(f"{self.api()}/{id}", timeout=PATIENCE).json()["state"]

    def end(self, name):
        """Send SIGTERM; the process must end with 0 in every state of the broker."""
        self.processes[name].send_signal(signal.SIGTERM)
        assert self.processes[name].wait(PATIENCE) == 0, self.log(name)

    def bus(self):
        """A further connection of this process to the broker."""
        self.connected.append(Composition(self.parts._conf))
        bus = self.connected[-1].bus
        assert bus is not None
        return bus

    def close(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        for parts in self.connected:  # or their threads log broker errors in later tests
            if bus := vars(parts).get("bus"):
                bus._transport.cleanup()


@pytest.fixture
def site(tmp_path, broker, request):
    site = Site(tmp_path, broker.url, **getattr(request, "param", {}))
    yield site
    site.close()


def test_a_cast_wakes_the_worker(site):
    site.serve()
    site.listening()
    made = site.ask()
    site.becomes("active", made["id"])
    requests.delete(f"{site.api()}/{made['id']}", timeout=PATIENCE).raise_for_status()
    site.becomes("released", made["id"])
    site.end("worker")
    site.end("api")


def test_two_workers_are_both_woken(site):
    """Each wake-up goes to all workers, because one of them may be busy for long."""
    heard = []
    listeners = [site.parts.bus.listener(lambda name=name: heard.append(name)) for name in "ab"]
    for listener in listeners:
        listener.start()
    eventually(lambda: all(listener.listening for listener in listeners), "both listen")
    site.parts.waker()
    eventually(lambda: len(heard) == 2, lambda: f"both hear: {heard}")
    assert set(heard) == {"a", "b"}
    for listener in listeners:
        listener.stop(timeout=10)


@pytest.mark.parametrize("site", [{"heartbeat": 36_000}], indirect=True)
def test_a_wake_up_is_sent_again_where_the_connection_died_unnoticed(site, broker):
    """One cast before the broker is killed and one after; each reaches the current listener.

    The heartbeat interval is so long that only the cast can find the dead connection.
    """
    heard: list[str] = []
    for when in ("before", "after"):
        listener = site.bus().listener(partial(heard.append, when))
        listener.start()
        eventually(partial(getattr, listener, "listening"), "the listener listens")
        site.parts.waker()
        eventually(partial(contains, heard, when), f"it is heard {when}")
        listener.stop(timeout=10)
        if when == "before":
            broker.kill()
            broker.start()


def test_a_dead_broker_loses_nothing_and_holds_up_nobody(site, broker):
    site.configure(poll=OFTEN)
    site.serve()
    site.listening()
    broker.kill()
    during = [site.ask(), site.ask()]
    for made in during:
        site.becomes("active", made["id"])  # found by polling
    broker.start()
    made = site.ask()
    site.becomes("active", made["id"])
    assert [site.state(made["id"]) for made in during] == ["active", "active"]


def test_the_worker_is_woken_again_after_the_broker_was_killed(site, broker):
    site.serve()
    site.listening()
    site.becomes("active", site.ask()["id"])
    broker.kill()
    site.said("worker", "AMQP server on .* is unreachable")
    lost = site.ask()
    broker.start()
    site.said("worker", "Reconnected to AMQP server")
    made = site.ask()
    site.becomes("active", made["id"], site.nudge)
    site.becomes("active", lost["id"], site.nudge)


def test_a_silent_broker_holds_up_nobody_and_is_found_out(site, broker):
    """The broker is paused: connections stay open and nothing is answered."""
    site.configure(heartbeat=20)  # long enough that a slow process keeps its connection
    site.serve()
    site.listening()
    site.becomes("active", site.ask()["id"])
    broker.pause()
    try:
        made = site.ask()
        assert made["state"] == "allocating"
        site.said("worker", "(?i)heartbeat")
    finally:
        broker.resume()
    site.said("worker", "Reconnected to AMQP server")
    last = site.ask()
    site.becomes("active", last["id"], site.nudge)
    site.becomes("active", made["id"], site.nudge)


def test_a_broker_that_comes_last(site, broker):
    """API and worker start and work without the broker, and use it once it is there."""
    broker.kill()
    site.start("api")
    made = site.ask()
    site.start("worker")
    site.becomes("active", made["id"])  # found by the first poll
    broker.start()
    site.listening()
    site.becomes("active", site.ask()["id"])


def test_processes_end_while_the_broker_is_dead(site, broker):
    """The worker ends whether it had listened before the broker died or never did."""
    site.serve()
    site.listening()
    site.becomes("active", site.ask()["id"])
    broker.kill()
    site.said("worker", "AMQP server on .* is unreachable")
    made = site.ask()
    site.end("worker")
    site.start("worker")
    site.becomes("active", made["id"])
    site.end("worker")
    site.end("api")


def test_a_broker_that_refuses_the_worker_is_asked_again(site, broker):
    """The virtual host and its permissions are created after the worker has started."""
    site.url = f"{broker.url}late"
    site.configure()
    site.start("worker")
    site.said("worker", "this worker cannot receive wake-ups")
    broker.control("add_vhost", "late")
    broker.control("set_permissions", "-p", "late", "guest", ".*", ".*", ".*")
    site.listening()
    site.start("api")
    site.becomes("active", site.ask()["id"])


def test_an_address_that_is_none_is_refused_without_its_password(site):
    site.url = "carrot://laas:secret@127.0.0.1/"
    site.configure()
    for name in ("api", "worker"):
        site.start(name)
        assert site.processes[name].wait(PATIENCE) == 1
        assert "[DEFAULT] transport_url" in site.log(name)
        assert "secret" not in site.log(name)
        assert "Traceback" not in site.log(name)
