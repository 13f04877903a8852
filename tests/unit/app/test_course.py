# SPDX-License-Identifier: Apache-2.0

"""The course of the hosts that allocations hold."""

from datetime import UTC, datetime, timedelta

from laas_service.app.lifecycle import State
from laas_service.app.records import SizeEvent
from laas_service.app.views.utilization import course
from laas_service.app.wording import reasons

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(minutes):
    return START + timedelta(minutes=minutes)


def event(minutes, id, state, hosts, reason=""):
    return SizeEvent(id, at(minutes), state, reason, hosts)


def resized(minutes, id, old, new, present):
    reason = f"{reasons.RESIZE_REASON}{old} to {new} hosts asked for by me: links"
    return event(minutes, id, State.ACTIVE, present, reason)


def test_claims_releases_and_returns_to_the_queue():
    events = [
        event(0, "a", State.QUEUED, 6),
        event(1, "b", State.ALLOCATING, 4),
        event(2, "a", State.ALLOCATING, 6),
        event(3, "a", State.QUEUED, 6),
        event(4, "b", State.RELEASED, 4),
        event(5, "a", State.ALLOCATING, 6),
    ]
    assert course(events, 6, at(9)) == [
        (at(0), 0), (at(1), 4), (at(2), 10), (at(3), 4), (at(4), 0), (at(5), 6), (at(9), 6),
    ]  # fmt: skip


def test_each_resize_changes_the_number_from_its_beginning_on():
    events = [
        event(0, "a", State.ALLOCATING, 3),
        resized(1, "a", 6, 9, 3),
        resized(2, "a", 9, 3, 3),
    ]
    assert [hosts for _, hosts in course(events, 3, at(3))] == [6, 9, 3, 3]
    assert reasons.resized_from("renamed from 'resize from 3'") is None


def test_what_was_before_the_first_event_given_is_kept():
    """Of a long history only the newest events are given; 20 hosts were claimed earlier."""
    events = [resized(1, "old", 10, 12, 12), event(2, "gone", State.RELEASED, 8)]
    assert [hosts for _, hosts in course(events, 12, at(3))] == [20, 12, 12]
    assert course([], 12, at(3)) == []
