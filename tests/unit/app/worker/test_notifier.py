# SPDX-License-Identifier: Apache-2.0

"""The notifier sends everything in order despite broker failures, and stops on request."""

from datetime import UTC, datetime, timedelta

from laas_service.app.worker.notifier import Notifier
from laas_service.domain.errors import Unavailable
from laas_service.messages import Notification

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def note(number):
    return Notification(
        str(number), "a.b.c", "", "f", None, None, f"host-{number}", None, None, "up", "", None
    )


class Memory:
    """An outbox and a publisher in memory; ``before`` is called before each publication."""

    def __init__(self, count):
        self.now = NOW
        self.waiting = {number: note(number) for number in range(count)}
        self.taken_until = NOW
        self.told: list[str] = []
        self.before = lambda notification: None

    def take(self, now, until, limit=100):
        if self.taken_until > now:
            return []
        if self.waiting:
            self.taken_until = until
        return list(self.waiting.items())[:limit]

    def done(self, number):
        self.waiting.pop(number, None)
        if not self.waiting:
            self.taken_until = NOW

    def put_back(self, numbers):
        self.taken_until = NOW

    def publish(self, notification):
        self.before(notification)
        self.told.append(notification.id)

    def relay(self):
        return Notifier(self, self.publish, clock=lambda: self.now, interval=0.01, lease=60)


def test_everything_is_told_once_in_order():
    memory = Memory(5)
    memory.relay().round()
    assert memory.told == list("01234")
    assert not memory.waiting


def test_what_the_broker_refuses_is_kept_and_tried_again():
    memory, refusals = Memory(3), [2, 1]

    def refuse(notification):
        if notification.id == "1" and refusals:
            refusals.pop()
            raise Unavailable("no such exchange")

    memory.before = refuse
    relay = memory.relay()
    relay.start()
    for _ in range(6000):
        if not memory.waiting:
            break
        relay._stopping.wait(0.01)
    relay.stop(10)
    assert memory.told == list("012")


def test_told_to_end_it_puts_back_what_it_has_not_told():
    memory = Memory(3)
    relay = memory.relay()
    memory.before = lambda notification: relay.stop()
    relay.round()
    assert memory.told == ["0"]
    assert list(memory.waiting) == [1, 2]
    assert memory.taken_until == NOW


def test_after_its_time_it_leaves_the_rest_to_whoever_has_it_now():
    """The broker was silent for so long that another notifier may send the same batch."""
    memory = Memory(3)

    def take_long(notification):
        memory.now += timedelta(seconds=61)

    memory.before = take_long
    relay = memory.relay()
    relay._send_batch()
    assert memory.told == ["0"]
    assert memory.taken_until == NOW + timedelta(seconds=60)
