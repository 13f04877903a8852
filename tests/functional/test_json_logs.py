"""Logs of the processes as JSON, and the request id in their lines."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.wiring.composition import Composition
from tests.options import options_from
from tests.servers.leash import spawn
from tests.waiting import PATIENCE

CONFIGURATION = """\
[DEFAULT]
state_dir = {directory}
use_json = true
[database]
connection = sqlite:///{directory}/laas.db
[api]
bind_port = 0
[compute]
directory = {directory}/file
[worker]
poll_interval = 0.2
retry_first = 0.2
"""


@pytest.fixture
def config(tmp_path) -> str:
    """A configuration that makes each handover fail, so that the worker logs an error."""
    (tmp_path / "laas.conf").write_text(CONFIGURATION.format(directory=tmp_path))
    (tmp_path / "file").write_text("in the way")
    conf = options_from(tmp_path / "laas.conf")
    parts = Composition(conf)
    parts.database.upgrade()
    made = generate(Description(xgft="2;4,4;1,4"))
    parts.store.fabrics.add("main", made.topology, made.inventory)
    parts.database.engine.dispose()
    return str(tmp_path / "laas.conf")


class Said:
    """The log lines of a process, each a JSON document."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        assert process.stderr is not None
        lines = process.stderr
        threading.Thread(target=lambda: [*map(self._lines.put, lines)], daemon=True).start()

    def until(self, what: str) -> dict[str, Any]:
        """The next line whose message contains the text; the lines before it must be JSON, too."""
        end = time.monotonic() + PATIENCE
        while True:
            line = self._lines.get(timeout=max(0.1, end - time.monotonic()))
            found: dict[str, Any] = json.loads(line)
            if what in found["message"]:
                return found


@contextmanager
def running(name: str, config: str) -> Iterator[Said]:
    process = spawn(
        [sys.executable, "-m", f"laas_service.cmd.{name}", "--config-file", config],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Said(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


def test_the_workers_lines_have_the_id_of_the_request_that_the_api_logged(config):
    with running("api", config) as api, running("worker", config) as worker:
        url = api.until("Listening on ")["message"].rpartition(" ")[2]
        body = json.dumps({"name": "blue", "hosts": 3}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/allocations", body, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            id, asked = json.load(answer)["id"], answer.headers["X-Openstack-Request-Id"]
        audited = api.until('"action": "create"')
        assert audited["context"]["request_id"] == asked
        assert json.loads(audited["message"])["target"]["id"] == id
        line = worker.until(f"allocation {id} (allocating): compute directory")
        assert line["context"]["request_id"] == asked
