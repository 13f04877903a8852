# SPDX-License-Identifier: Apache-2.0

"""SIGHUP: a process takes over the options that may change, and loses no request meanwhile."""

import json
import re
import signal
import threading
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
import requests
from oslo_config import cfg, generator

from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.queue_moves import RoomMode
from laas_service.cmd import reloading
from laas_service.cmd.api import application
from laas_service.conf import register_opts
from laas_service.wiring.composition import Composition
from tests.functional.api.test_process import command
from tests.servers.leash import spawn
from tests.waiting import PATIENCE, eventually

BASE = """\
[DEFAULT]
state_dir = {directory}
{default}
[database]
connection = sqlite:///{directory}/laas.db
[api]
bind_port = 0
{api}
[limits]
{limits}
[queue]
{queue}
[worker]
{worker}
"""


def write(directory, **groups):
    """Write the configuration file, with given lines in some groups; return its path."""
    lines = dict.fromkeys(("default", "api", "limits", "queue", "worker"), "") | groups
    path = directory / "laas.conf"
    path.write_text(BASE.format(directory=directory, **lines))
    return str(path)


class Log:
    """The standard error of a process."""

    def __init__(self, path):
        self.path = path

    def until(self, pattern, times=1):
        """Wait until the pattern has matched ``times`` times; return the last match."""

        def look():
            found = list(re.finditer(pattern, self.path.read_text()))
            return found if len(found) >= times else None

        return eventually(look, lambda: f"{pattern}: {self.path.read_text()[-3000:]}")[-1]


@contextmanager
def running(directory, module, *words):
    """Run a process and yield it with its log; it must end with 0 on SIGTERM."""
    path = directory / f"{module}.log"
    with path.open("wb") as log:
        process = spawn(
            command(module, *words, "--config-file", str(directory / "laas.conf")), stderr=log
        )
    try:
        yield process, Log(path)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, path.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def post(url):
    body = json.dumps({"name": "blue", "hosts": 1})
    headers = {"Content-Type": "application/json"}
    return requests.post(f"{url}/v1/allocations", body, headers=headers, timeout=PATIENCE)


def test_a_running_api_takes_over_what_may_change_and_loses_no_request(deployment, tmp_path):
    write(tmp_path)
    answers, stop = [], threading.Event()
    with running(tmp_path, "api", "--all-in-one") as (process, log):
        url = log.until(r"Listening on (http://\S+)").group(1)

        def ask():
            while not stop.wait(0.05):
                answers.append(requests.get(f"{url}/v1/fabrics", timeout=PATIENCE).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            assert post(url).ok

            write(
                tmp_path,
                default="debug = true",
                api="threads = 5",
                limits="allocations = 1",
                worker="poll_interval = 0.5",
            )
            process.send_signal(signal.SIGHUP)
            log.until("configuration was read again, 3 options have changed")
            log.until("Ignoring change to immutable option api.threads")
            refused = post(url)
            assert refused.status_code == 403
            assert refused.json()["code"] == "quota_exceeded"

            write(tmp_path, limits="allocations = many", worker="poll_interval = 7")
            process.send_signal(signal.SIGHUP)
            log.until(r"stays as it was: \[limits\] allocations: ")
            refused = post(url)
            assert refused.status_code == 403, "nothing of a wrong file is taken over"

            (tmp_path / "laas.conf").write_text("not a configuration\n")
            process.send_signal(signal.SIGHUP)
            log.until("stays as it was: ", times=2)

            write(tmp_path)
            process.send_signal(signal.SIGHUP)
            log.until("configuration was read again", times=2)
            assert post(url).ok
        finally:
            stop.set()
            asking.join()
    assert set(answers) == {200}


def test_a_running_worker_takes_over_what_may_change(deployment, tmp_path):
    write(tmp_path)
    with running(tmp_path, "worker") as (process, log):
        log.until("fabric main: held by")
        write(tmp_path, worker="reconcile_interval = 9\nlease_seconds = 30")
        process.send_signal(signal.SIGHUP)
        log.until("configuration was read again, 1 options have changed")
        log.until("Ignoring change to immutable option worker.lease_seconds")


@pytest.fixture
def parts(deployment, tmp_path):
    """The parts of a process, and a function that reloads its configuration files."""
    args = ["--config-file", write(tmp_path)]
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf(args, project="laas")
    parts = Composition(conf)
    yield parts, lambda: reloading._reload(conf, args, parts.reload, ())
    parts.database.engine.dispose()


def test_every_part_takes_over_its_options(parts, tmp_path):
    made, reload = parts
    use_cases = made.use_cases(lambda: None)
    worker, leases, queue = made.worker, made.fabric_leases, made.admission_queue
    moves = made.queue_moves
    leases.run_once()
    before = leases._held["main"].converger
    write(
        tmp_path,
        queue="discipline = fifo\nmake_room = on\nmake_room_window = 22:00-04:00",
        worker="repair = false\nretry_last = 7\npoll_interval = 3\nreconcile_interval = 99",
        limits="hosts = 5\nmoves = 2\nunmoved_projects = red, blue",
    )
    reload()
    assert moves._rules.mode is RoomMode.ON
    assert moves._rules.opens(datetime(2026, 1, 1, 23, tzinfo=UTC))
    assert not moves._rules.opens(datetime(2026, 1, 1, 4, tzinfo=UTC))
    for quotas in (moves._quotas, use_cases.quotas):
        assert (quotas.limits.moves, set(quotas.unmoved)) == (2, {"red", "blue"})
    assert worker._interval == 3
    for each in (queue, use_cases._queue):
        assert isinstance(each, AdmissionQueue)
        assert each._discipline.kind == "fifo"
    assert use_cases.quotas.limits.hosts == 5
    leases.run_once()
    after = leases._held["main"].converger
    assert after is not before
    assert (after._rules.pace.last, after._rules.repair) == (7, False)
    assert leases._intervals.reconcile == 99


def test_the_api_counts_requests_by_the_new_rate(parts, tmp_path):
    made, reload = parts
    client = application(made._conf, made.use_cases(lambda: None)).test_client()
    write(tmp_path, limits="rate = 0.001\nburst = 2")
    reload()
    answers = [client.get("/v1/fabrics").status_code for _ in range(4)]
    assert answers == [200, 200, 429, 429]


def test_every_option_says_whether_it_may_change(capsys):
    """The generated sample marks each option that a reload may change."""
    generator.main(["--namespace", "laas_service", "--namespace", "oslo.log"])
    sample = capsys.readouterr().out
    for name in ("poll_interval", "discipline", "rate", "max_wait", "debug"):
        text = sample[: sample.index(f"\n#{name} = ")].rpartition("\n\n")[2]
        assert "can be changed without restarting" in text, name
    for name in ("lease_seconds", "bind_port", "threads"):
        text = sample[: sample.index(f"\n#{name} = ")].rpartition("\n\n")[2]
        assert "can be changed without restarting" not in text, name
