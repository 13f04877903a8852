# SPDX-License-Identifier: Apache-2.0

"""The bus without a broker: refused messages, and notifications that do not wait."""

import json
import os
import re
import threading
from pathlib import Path

import jsonschema
import pytest
from oslo_config import cfg
from pydantic import TypeAdapter

from laas_service import messages
from laas_service.adapters import messaging
from laas_service.app.notifications import ALLOCATION_EVENTS, allocation_event
from laas_service.domain.errors import InvalidInput


def conf(**values):
    made = cfg.ConfigOpts()
    made([], project="laas", default_config_files=[], default_config_dirs=[])
    messaging.configure(made)
    for name, value in values.items():
        made.set_override(name, value)
    return made


DOCS = Path(__file__).parents[3] / "doc" / "source" / "reference"
SCHEMA = TypeAdapter(messages.Notification).json_schema(mode="serialization")


class Client:
    """A client whose casts wait for ``let_go`` and then fail."""

    def __init__(self):
        self.casts = []
        self.begun, self.let_go = threading.Semaphore(0), threading.Semaphore(0)

    def cast(self, context, method, **message):
        self.casts.append((method, message))
        self.begun.release()
        self.let_go.acquire(timeout=60)
        raise OSError("no broker")


def test_without_an_address_there_is_no_bus():
    assert messaging.connect(conf()) is None
    assert messaging.connect(conf(transport_url="fake://")) is None


@pytest.mark.parametrize("url", ["carrot://u:secret@h/", "h:5672", "rabbit://u:secret@h:port/"])
def test_what_is_no_address_is_refused_without_its_password(url):
    with pytest.raises(InvalidInput, match=r"\[DEFAULT\] transport_url") as refused:
        messaging.connect(conf(transport_url=url))
    assert "secret" not in str(refused.value)


def test_an_address_is_not_connected_to_before_it_is_used():
    bus = messaging.connect(conf(transport_url="rabbit://u:p@127.0.0.1:9/"))
    assert bus is not None
    bus.waker()


def test_waking_never_waits_nor_fails_and_many_calls_become_one():
    client = Client()
    waker = messaging.Waker(client)
    waker()
    assert client.begun.acquire(timeout=60)  # the broker does not answer from here on
    for _ in range(1000):
        waker()
    client.let_go.release(2)
    assert client.begun.acquire(timeout=60)
    assert len(client.casts) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the process forks with threads
def test_waking_works_after_a_fork():
    client = Client()
    waker = messaging.Waker(client)
    waker()
    assert client.begun.acquire(timeout=60)
    child = os.fork()
    if child == 0:
        waker()
        os._exit(0 if client.begun.acquire(timeout=60) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(("version", "times"), [("1.0", 1), ("1.7", 1), ("2.0", 0)])
def test_a_wake_up_of_another_major_version_is_left_alone(version, times):
    woken = []
    endpoint = messaging._Endpoint(lambda: woken.append(1))
    endpoint.wake({}, {"version": version})
    assert len(woken) == times


def test_the_documented_schema_is_the_one_that_is_sent():
    """To update the file, write json.dumps(SCHEMA, indent=2) into it."""
    documented = json.loads((DOCS / "notification.schema.json").read_text())
    assert documented == SCHEMA


def test_the_documented_example_is_one():
    page = (DOCS / "notifications.rst").read_text()
    [block] = re.findall(r"code-block:: json\n\n((?:   .*\n)+)", page)
    example = json.loads(block)
    jsonschema.validate(example, SCHEMA)
    assert messages.document(messages.read(messages.Notification, example)) == example


@pytest.mark.parametrize("change", sorted(ALLOCATION_EVENTS, key=str))
def test_every_event_type_is_documented(change):
    assert f"``{allocation_event(*change)}``" in (DOCS / "notifications.rst").read_text()


@pytest.mark.parametrize(
    ("drivers", "expected"),
    [([], False), (["noop"], False), (["messagingv2"], True), (["noop", "log"], True)],
)
def test_others_are_told_where_a_driver_is_named(drivers, expected):
    made = conf()
    made.set_override("driver", drivers, group="oslo_messaging_notifications")
    assert messaging.announces(made) is expected
