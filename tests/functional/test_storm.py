# SPDX-License-Identifier: Apache-2.0

"""A short storm test: concurrent clients, faults, a failover with lost commits.

``tox -e storm`` runs the long ones, on every database.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from tests.servers import postgresql
from tests.storm.site import LEASE, Site
from tests.storm.storm import Plan, run
from tests.storm.wire import ask
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(
    not postgresql.AVAILABLE, reason="needs the Debian package postgresql"
)


def test_what_was_acknowledged_is_recorded_and_everybody_owns_what_he_has():
    disasters = ("failover",)
    plan = Plan(
        *("postgresql", 8, 8),
        clients=4,
        apis=2,
        workers=2,
        pause=(0.2, 1.5),
        disasters=disasters,
    )
    outcome = run(plan)
    assert list(outcome.complaints) == []
    assert outcome.figures.total
    assert {f"disasters: {kind}" for kind in disasters} < set(outcome.broken)
    assert outcome.judged


@pytest.mark.parametrize("without", ["", "fencing"])
def test_a_worker_that_writes_after_it_lost_its_lease_is_noticed(tmp_path, without):
    """Stopped between its last check and its effect; another one takes its fabric over."""
    with Site("postgresql", tmp_path, apis=1, workers=2, without=without) as site:
        worker = site.servers[1]
        asked, stopped = (tmp_path / f"{word}-{worker.name}" for word in ("pause", "paused"))
        asked.touch()
        done = threading.Event()
        asking = threading.Thread(target=partial(_ask, site.ports[0], done))
        asking.start()
        try:
            eventually(stopped.exists, "the worker is stopped")
            time.sleep(LEASE)  # nobody may take over before the lease of the stopped worker ends
            other = site.servers[2].log
            eventually(
                lambda: _held(other.read_text()) == {"f", "g"},
                lambda: f"another worker takes over\n{_ends(worker.log, other)}",
            )
            worker.send(signal.SIGCONT)
            if without:
                eventually((tmp_path / "unfenced").exists, "a write without the lease is noticed")
            else:
                text = "was taken over from"
                eventually(lambda: text in worker.log.read_text(), "the worker gives up")
                assert not (tmp_path / "unfenced").exists()
        finally:
            worker.send(signal.SIGCONT)
            done.set()
            asking.join()


def _held(log: str) -> set[str]:
    """The fabrics that a worker holds, by its log."""
    last = dict(re.findall(r"fabric (\w): (held|given back) by", log))
    return {fabric for fabric, what in last.items() if what == "held"}


def _ends(*logs: Path) -> str:
    """The last lines of some logs."""
    return "\n".join(f"{log.name}:\n{log.read_text()[-4000:]}" for log in logs)


def _ask(port: int, done: threading.Event) -> None:
    """Allocate and release, in turn on both fabrics, until ``done``."""
    while not done.wait(0.1):
        for fabric in "fg":
            wish = {"name": "a", "hosts": 2, "fabric": fabric}
            answer = ask(port, "POST", "/v1/allocations", wish)
            if answer.status == 202:
                ask(port, "DELETE", f"/v1/allocations/{answer.document['id']}")
