# SPDX-License-Identifier: Apache-2.0

"""A notification is committed with its change, and one notifier at a time takes it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest

from laas_service.adapters.db.outbox import SqlOutbox
from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import SUCCESSORS, State
from laas_service.app.notifications import allocation_event, priority
from laas_service.app.records import HostState, LinkState, QueueWait
from laas_service.domain.allocation import NoFit, Refusal
from laas_service.domain.errors import Unavailable
from laas_service.domain.topology import LeafLink
from laas_service.messages import Initiator
from tests.unit.adapters.test_store import HOSTS, SMALL, across_pods, new
from tests.waiting import at_once

NOW = datetime(2026, 5, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=60)
ALICE = Initiator("req-1", "alice", "blue")
BOB = Initiator("req-2", "bob", "operators")


@pytest.fixture
def telling(store):
    """A store that records notifications."""
    telling = SqlStore(store._engine, announce=True)
    telling.fabrics.add("f", SMALL, HOSTS)
    return telling


@pytest.fixture
def outbox(telling):
    return SqlOutbox(telling._engine)


def admit(store, id="a", position=0):
    wish = replace(new(id), by=ALICE)
    return store.admissions.admit(wish, lambda fabric: across_pods(id, position))


def live(store):
    """The whole life of an allocation: created for Alice, released by Bob."""
    record = store.allocations.transition(admit(store), State.ACTIVE, "handed over")
    record = store.allocations.transition(record, State.RELEASING, "asked", by=BOB)
    return store.allocations.free(store.allocations.hand_back(record), "gone")


def told(outbox, now=NOW):
    return [notification for _, notification in outbox.take(now, now)]


# -- notifications ---------------------------------------------------------------


def test_a_life_is_told_in_order_with_states_and_who_asked(telling, outbox):
    live(telling)
    found = told(outbox)
    allocation = "isolated_network.allocation"
    assert [(n.event_type, n.old_state, n.new_state, n.initiator) for n in found] == [
        (f"{allocation}.create.start", None, "allocating", ALICE),
        (f"{allocation}.create.end", "allocating", "active", ALICE),
        (f"{allocation}.release.start", "active", "releasing", BOB),
        (f"{allocation}.update", "releasing", "releasing", BOB),
        (f"{allocation}.release.end", "releasing", "released", BOB),
    ]
    for notification in found:
        assert notification.fabric == "f"
        assert notification.allocation is not None
        assert notification.allocation.id == "a"
        assert notification.allocation.project_id == "blue"
        assert notification.error is None
    assert len({notification.id for notification in found}) == len(found)


def test_who_waits_is_told_of_and_admitted_later(telling, outbox):
    wish = replace(new("q", wait=True), by=ALICE)
    telling.admissions.admit(
        wish, lambda fabric: QueueWait(NoFit(Refusal.TOO_FEW_HOSTS, "none free"))
    )
    telling.admissions.admit_waiting("f", lambda fabric: [across_pods("q")])
    assert [(n.event_type, n.old_state, n.new_state, n.initiator) for n in told(outbox)] == [
        ("isolated_network.allocation.create.start", None, "queued", ALICE),
        ("isolated_network.allocation.update", "queued", "allocating", ALICE),
    ]


def test_a_step_that_fails_is_told_with_its_reason(telling, outbox):
    admit(telling)
    telling.allocations.postpone("a", LATER, "Nova does not answer")
    telling.allocations.postpone("a", LATER, "Nova does not answer")
    record = telling.allocations.transition(
        telling.allocations.get("a"), State.ERROR, "gave up", error="no Nova"
    )
    telling.allocations.rename(record, "other", by=BOB)
    _, waits, failed, renamed = told(outbox)
    assert (waits.event_type, priority(waits)) == ("isolated_network.allocation.update", "warn")
    assert waits.error == waits.reason == "Nova does not answer"
    assert failed.event_type == "isolated_network.allocation.create.error"
    assert (failed.error, priority(failed)) == ("no Nova", "error")
    assert renamed.allocation is not None
    assert (renamed.allocation.name, renamed.initiator) == ("other", BOB)


def test_hosts_and_links_are_told_of_when_their_state_changes(telling, outbox):
    telling.components.set_host_state("f", 3, HostState.DRAINED, by=BOB)
    telling.components.set_host_state("f", 3, HostState.DRAINED, by=BOB)
    telling.components.set_host_state("f", 3, HostState.UP)
    telling.components.set_link_state("f", LeafLink(0, 1, 2), LinkState.FAILED, by=BOB)
    assert [(n.event_type, n.host, n.link, n.old_state, n.new_state) for n in told(outbox)] == [
        ("isolated_network.host.update", "node-3", None, "up", "drained"),
        ("isolated_network.host.update", "node-3", None, "drained", "up"),
        ("isolated_network.link.update", None, "leaf-0-1-2", "up", "failed"),
    ]
    assert [n.initiator for n in told(outbox)] == [BOB, None, BOB]


def test_the_owner_of_what_has_failed_is_told_of(telling, outbox):
    telling.allocations.transition(admit(telling), State.ACTIVE, "handed over")
    telling.components.set_host_state("f", 0, HostState.FAILED, by=BOB)
    *_, failed, owner = told(outbox)
    assert (failed.host, failed.new_state) == ("node-0", "failed")
    assert owner.event_type == "isolated_network.allocation.update"
    assert owner.allocation is not None
    assert (owner.allocation.id, owner.reason) == ("a", "failed: host 0")
    assert owner.initiator == BOB


@pytest.mark.parametrize("old", [None, *State])
@pytest.mark.parametrize("new", State)
def test_every_change_of_state_has_a_name_and_each_start_an_end(old, new):
    if old is not None and new not in SUCCESSORS[old]:
        return
    kind = allocation_event(old, new).removeprefix("isolated_network.allocation.")
    assert kind in {
        *("create.start", "create.end", "create.error", "update", "update.error"),
        *("release.start", "release.end", "release.error"),
    }
    assert kind.endswith(".error") == (new is State.ERROR and old not in (None, State.ERROR))
    assert (kind == "release.end") == (new is State.RELEASED and old is not None)


# -- one transaction with the change --------------------------------------------


def test_what_did_not_happen_is_not_told(telling, outbox):
    def fail(step):
        if step.startswith("before commit"):
            raise Unavailable("power cut")

    broken = SqlStore(telling._engine, announce=True, at=fail)
    with pytest.raises(Unavailable):
        admit(broken)
    with pytest.raises(Unavailable):
        broken.components.set_host_state("f", 3, HostState.FAILED)
    assert told(outbox) == []


def test_nothing_is_kept_where_nobody_is_told(store):
    store.fabrics.add("f", SMALL, HOSTS)
    live(store)
    store.components.set_host_state("f", 3, HostState.FAILED)
    assert told(SqlOutbox(store._engine)) == []


# -- taking ------------------------------------------------------------------------


def test_what_is_taken_nobody_else_takes_before_its_time(telling, outbox):
    live(telling)
    other = SqlOutbox(telling._engine)
    first = outbox.take(NOW, LATER, limit=2)
    assert len(first) == 2
    assert other.take(NOW, LATER) == []
    assert [n.event_type for _, n in other.take(LATER, LATER)][:2] == [
        n.event_type for _, n in first
    ]


def test_what_is_done_is_gone_and_what_is_put_back_comes_first_again(telling, outbox):
    live(telling)
    (one, _), (two, second), *_ = outbox.take(NOW, LATER)
    outbox.done(one)
    outbox.done(one)
    outbox.put_back([number for number, _ in outbox.take(LATER, LATER)])
    number, again = outbox.take(NOW, LATER)[0]
    assert (number, again) == (two, second)


def test_of_many_relays_one_gets_all(telling):
    live(telling)
    gate, shares = Barrier(6), []

    def take():
        outbox = SqlOutbox(telling._engine)
        gate.wait()
        shares.append(len(outbox.take(NOW, LATER)))

    at_once(*[take] * 6)
    assert sorted(shares) == [0, 0, 0, 0, 0, 5]


def test_what_is_taken_is_not_parked_by_a_clock_that_is_set_back(telling, outbox):
    """Nobody takes notifications for more than the lease of a notifier."""
    admit(telling)
    lease = timedelta(seconds=15)
    assert outbox.take(NOW, NOW + lease)
    assert not outbox.take(NOW + lease / 2, NOW + lease / 2 + lease)
    before = NOW - timedelta(days=1)
    assert outbox.take(before, before + lease)
    assert not outbox.take(before, before + lease), "they are taken anew"
    assert outbox.take(NOW, NOW + lease), "and again after a jump forward"
