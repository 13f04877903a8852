# SPDX-License-Identifier: Apache-2.0

"""Servers that the tests of one process share; each starts at its first use."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import cache

import pytest
from kombu.connection import Connection
from kombu.entity import Exchange, Queue

from tests.servers.rabbitmq import RabbitMQ

PRIORITIES = ("info", "warn", "error")


@pytest.fixture(scope="session")
def servers():
    """The running server of a class, e.g. ``servers(PostgreSql)``; tests do not stop it."""
    with ExitStack() as running:
        yield cache(lambda kind: running.enter_context(kind()))


@contextmanager
def channel_of(broker):
    url = broker.url.replace("rabbit://", "amqp://")
    with Connection(url) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
def broker(servers):
    """A broker that answers, without the exchange and queues of other tests; a test may kill it."""
    running = servers(RabbitMQ)
    if not running.answers():
        running.start()
    with channel_of(running) as channel:
        Exchange("laas", channel=channel).delete()
        for priority in PRIORITIES:
            Queue(f"notifications.{priority}", channel=channel).delete()
    return running
