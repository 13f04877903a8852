# SPDX-License-Identifier: Apache-2.0

"""The bus: processes of their own, and a real broker that is killed, silenced and restarted.

The worker polls so seldom that it does nothing in time unless it is woken, except where a
test says that it polls.
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
from oslo_config import cfg

from laas_service import conf as options
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.wiring import Parts
from tests.marks import needs_rabbitmq
from tests.servers.leash import spawn
from tests.servers.rabbitmq import RabbitMQ
from tests.waiting import PATIENCE, eventually

pytestmark = needs_rabbitmq

SELDOM, OFTEN = 36_000, 0.2
"""Seconds between two looks of the worker."""

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
        conf = cfg.ConfigOpts()
        options.register_opts(conf)
        conf([], project="laas", default_config_files=[self.config], default_config_dirs=[])
        self.parts = Parts(conf)
        self.connected = [self.parts]
        self.parts.upgrade_database()
        made = generate(Description(xgft="2;4,4;1,4"))
        self.parts.store.add_fabric("main", made.topology, made.inventory)

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
        """What a process has written that many times by now, or shortly."""

        def look():
            ended = self.processes[name].poll() is not None
            found = re.findall(pattern, self.log(name))
            if len(found) >= times:
                return found
            assert not ended, self.log(name)
            return None

        return eventually(look, lambda: f"{pattern}: {self.log(name)}")[-1]

    def serve(self):
        """Both processes, ready; the worker has found nothing to do."""
        self.start("api")
        self.start("worker")
        return self.api()

    def api(self):
        return self.said("api", r"Listening on (http://\S+)") + "/v1/allocations"

    def listening(self):
        self.said("worker", "Listening on the bus")

    def ask(self, hosts=4, wait=None):
        """The answer to a POST: it comes while the broker is dead or silent."""
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
        """A request that changes nothing but wakes the worker.

        A process that has reconnected makes its queue anew only then: what is sent
        between is lost, and who sends cannot know.
        """
        host = self.parts.store.fabric("main").inventory.host_names[0]
        url = self.api().replace("allocations", f"fabrics/main/hosts/{host}")
        requests.patch(url, json={"state": "up"}, timeout=PATIENCE).raise_for_status()
        time.sleep(1)

    def state(self, id):
        return requests.get(f"{self.api()}/{id}", timeout=PATIENCE).json()["state"]

    def end(self, name):
        """SIGTERM; it ends well, whatever the broker does."""
        self.processes[name].send_signal(signal.SIGTERM)
        assert self.processes[name].wait(PATIENCE) == 0, self.log(name)

    def bus(self):
        """Another connection of this process."""
        self.connected.append(Parts(self.parts._conf))
        bus = self.connected[-1].bus
        assert bus is not None
        return bus

    def close(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        for parts in self.connected:  # or their threads complain of the broker in later tests
            if bus := vars(parts).get("bus"):
                bus._transport.cleanup()


@pytest.fixture(scope="module")
def only_broker():
    with RabbitMQ() as broker:
        yield broker


@pytest.fixture
def broker(only_broker):
    """A broker that answers, whatever the last test did to it."""
    if not only_broker.answers():
        only_broker.start()
    return only_broker


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
    """One of them may be busy for long, so nobody decides who is told."""
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
    """One cast before the broker was killed and one after; each is heard by who listens then.

    Nobody looks whether a connection lives.
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
    """Stopped in its tracks: connections stay open, and nobody answers on them."""
    site.configure(heartbeat=20)  # not so short that a process held up loses its connection
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
    """API and worker start, work and end without it, and use it once it is there."""
    broker.kill()
    site.start("api")
    made = site.ask()
    site.start("worker")
    site.becomes("active", made["id"])  # found by the first look
    broker.start()
    site.listening()
    site.becomes("active", site.ask()["id"])


def test_processes_end_while_the_broker_is_dead(site, broker):
    """Whether they were listening when it died, or never could."""
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
    """The virtual host (or user, or permission) is made after the worker was started."""
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
