# SPDX-License-Identifier: Apache-2.0

"""Notifications over a real broker match their documentation, and none is lost."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import requests
from kombu.entity import Exchange, Queue

from laas_service import messages
from laas_service.adapters import messaging
from laas_service.adapters.db.transactions import utc_now
from laas_service.domain.errors import Unavailable
from tests.functional.conftest import PRIORITIES, channel_of
from tests.functional.test_bus import OFTEN, Site
from tests.marks import needs_rabbitmq
from tests.waiting import PATIENCE, eventually

pytestmark = needs_rabbitmq

REFERENCE = Path(__file__).parents[2] / "doc" / "source" / "reference"
SCHEMA = json.loads((REFERENCE / "notification.schema.json").read_text())
LIFE = ["create.start", "create.end", "release.start", "update", "release.end"]


@pytest.fixture
def site(tmp_path, broker):
    site = Site(tmp_path, broker.url, poll=OFTEN, driver="messagingv2")
    yield site
    site.close()


class Listener:
    """Collects notifications of all priorities, in the order of their queues."""

    def __init__(self, broker):
        self.broker = broker
        self.payloads = []

    def fetch(self):
        with channel_of(self.broker) as channel:
            for priority in PRIORITIES:
                queue = Queue(f"notifications.{priority}", channel=channel, durable=False)
                queue.queue_declare()
                while message := queue.get(no_ack=True):
                    self.payloads.append(opened(message.body, priority))

    def until(self, expected):
        """Fetch until all expected notifications have arrived; duplicates are allowed."""

        def told():
            self.fetch()
            return not expected - set(map(facts, self.payloads))

        eventually(told, lambda: f"{expected} in {self.payloads}")
        return self.payloads

    def life(self, id):
        """Event types of an allocation in the order of arrival, without duplicates."""
        seen: dict[str, str] = {}
        for payload in self.payloads:
            if payload["allocation"] and payload["allocation"]["id"] == id:
                seen.setdefault(payload["id"], payload["event_type"].split(".", 2)[2])
        return list(seen.values())


def opened(body, priority):
    """Unwrap the payload from both envelopes and check it against the documented schema."""
    inner = json.loads(json.loads(body)["oslo.message"])
    assert inner["priority"].lower() == priority
    assert inner["publisher_id"].startswith("isolated_network.")
    jsonschema.validate(inner["payload"], SCHEMA)
    read = messages.read(messages.Notification, inner["payload"])
    assert read.event_type == inner["event_type"]
    return inner["payload"]


def facts(payload):
    about = payload["allocation"]["id"] if payload["allocation"] else payload["host"]
    return about, payload["event_type"].removeprefix("isolated_network.")


def whole(*ids):
    return {(id, f"allocation.{kind}") for id in ids for kind in LIFE}


def lived(site):
    """Create and release an allocation; return its id and the ids of both requests."""
    asked = requests.post(site.api(), json={"name": "blue", "hosts": 4}, timeout=PATIENCE)
    id = asked.json()["id"]
    site.becomes("active", id)
    released = requests.delete(f"{site.api()}/{id}", timeout=PATIENCE)
    site.becomes("released", id)
    return id, [answer.headers["x-openstack-request-id"] for answer in (asked, released)]


def test_a_life_is_told_as_documented_with_the_requests_that_asked_for_it(site, broker):
    site.serve()
    id, (asked, released) = lived(site)
    listener = Listener(broker)
    told = listener.until(whole(id))
    assert listener.life(id) == LIFE
    about = (payload for payload in told if payload["allocation"])  # not of the fabric
    told = list({payload["id"]: payload for payload in about}.values())
    requested = [payload["initiator"]["request_id"] for payload in told]
    assert requested == [asked, asked, released, released, released]
    assert [(payload["old_state"], payload["new_state"]) for payload in told] == [
        (None, "allocating"),
        ("allocating", "active"),
        ("active", "releasing"),
        ("releasing", "releasing"),
        ("releasing", "released"),
    ]
    host = site.parts.store.fabrics.get("main").inventory.host_names[7]
    url = site.api().replace("allocations", f"fabrics/main/hosts/{host}")
    requests.patch(url, json={"state": "drained"}, timeout=PATIENCE).raise_for_status()
    listener.until({(host, "host.update")})
    site.end("worker")
    site.end("api")


def test_a_broker_that_is_killed_and_a_worker_that_is_killed_lose_nothing(site, broker):
    site.serve()
    before, _ = lived(site)
    listener = Listener(broker)
    listener.until(whole(before))
    broker.kill()
    during, _ = lived(site)
    site.processes["worker"].kill()  # while it waits for the broker
    site.processes["worker"].wait()
    site.start("worker")
    last, _ = lived(site)
    broker.start()
    listener.until(whole(during, last))
    assert [listener.life(id) for id in (during, last)] == [LIFE, LIFE]


def test_a_broker_that_comes_last_is_told_everything(site, broker):
    broker.stop()
    site.serve()
    id, _ = lived(site)
    broker.start()
    listener = Listener(broker)
    listener.until(whole(id))
    assert listener.life(id) == LIFE


def test_what_the_broker_refuses_is_not_taken_for_sent(site, broker):
    """The exchange has another type; oslo.messaging alone would only log the refusal."""
    with channel_of(broker) as channel:
        exchange = Exchange("laas", type="fanout", durable=True, channel=channel)
        exchange.declare()
        publisher = messaging.publisher(site.parts._conf)
        site.start("api")
        asked = requests.post(site.api(), json={"name": "blue", "hosts": 4}, timeout=PATIENCE)
        relay = site.parts.notifier
        assert relay is not None
        relay._publish = publisher.publish
        with pytest.raises(Unavailable, match=r"refuses notifications: .*PRECONDITION_FAILED"):
            relay.round()
        [(_, kept)] = relay._outbox.take(utc_now(), utc_now())
        with pytest.raises(Unavailable, match="refuses notifications"):
            publisher.publish(kept)
        exchange.delete()
    publisher._transport.cleanup()  # or it logs broker errors in later tests
    site.start("worker")
    listener = Listener(broker)
    listener.until({(asked.json()["id"], "allocation.create.end")})
    assert listener.life(asked.json()["id"]) == LIFE[:2]
