# SPDX-License-Identifier: Apache-2.0

import gc
import subprocess
import sys
from contextlib import contextmanager

import pytest
from flask import Flask

from laas_service import garbage
from laas_service.cmd.api import collect_between_requests

REQUESTS = """\
import gc, threading, weakref
from laas_service import garbage

young, middle, old = gc.get_threshold()
MANY = 3 * young * middle * old

collector = garbage.Collector()
{settle}
in_request = False
inside, outside = [], threading.Event()

def note(phase, info):
    if phase == "start" and info["generation"] == 2:
        inside.append(1) if in_request else outside.set()

gc.callbacks.append(note)

class Ring:
    def __init__(self):
        self.ring = self

def request(kept):
    global in_request
    with collector.busy():
        in_request = True
        kept += [Ring() for _ in range(MANY)]
        in_request = False

kept = []
request(kept)
dead = threading.Event()
weakref.finalize(kept[0], dead.set)
kept.clear()
print(len(inside))
{after}
"""
"""Makes more objects in one request than a full collection waits for by default."""


def full_collections(settle, after):
    code = REQUESTS.format(settle=settle, after=after)
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300
    )
    return int(done.stdout)


def test_no_full_collection_falls_into_a_request():
    assert full_collections("", "") > 0
    assert full_collections("collector.settle()", "") == 0


def test_old_rings_are_collected_after_a_request():
    after = "assert outside.wait(200); assert dead.wait(200)"
    assert full_collections("collector.settle()", after) == 0


def test_a_process_that_is_never_quiet_collects_when_it_is_overdue():
    after = """\
garbage.OVERDUE = 0
with collector.busy():
    request([])
    assert dead.wait(200)
"""
    assert full_collections("collector.settle()", after) == 0


def test_a_sleeping_request_does_not_delay_a_collection():
    after = """\
import time
with collector.busy():
    request([])
    while not dead.is_set():
        collector.sleep(0.1)
"""
    assert full_collections("collector.settle()", after) == 0


@pytest.fixture
def thawed():
    """The tests' process has settled; here it has not."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_thresholds_return_after_the_block(thawed):
    before = gc.get_threshold()
    with garbage.settled():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[2] > 1_000_000
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_what_a_process_settled_stays_exempt_after_the_block(thawed):
    kept: list[list[int]] = [[] for _ in range(1000)]
    gc.freeze()
    with garbage.settled():
        pass
    assert not {id(each) for each in kept} & {id(each) for each in gc.get_objects()}


class Recorder(garbage.Collector):
    inside = False

    @contextmanager
    def busy(self):
        self.inside = True
        yield
        self.inside = False


def test_the_collector_knows_of_each_request():
    app, collector = Flask("app"), Recorder()
    app.add_url_rule("/", view_func=lambda: str(collector.inside))
    collect_between_requests(app, collector)
    assert app.test_client().get("/").text == "True"
    assert not collector.inside
