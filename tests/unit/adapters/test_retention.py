# SPDX-License-Identifier: Apache-2.0

"""What the store deletes by itself, and what it keeps; ``test_databases`` repeats it on servers."""

import json
from datetime import timedelta

import pytest

from laas_service.adapters.db.retention import archive_file
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.db.transactions import SURPLUS, utc_now
from laas_service.app.lifecycle import State
from laas_service.domain.allocation import Allocation, GroupShare
from laas_service.domain.errors import InvalidInput, NotFound
from laas_service.messages import Initiator
from tests.unit.adapters.test_store import HOSTS, SMALL, admit, claims, new, release

KEPT = 100
DAY = timedelta(days=1)


@pytest.fixture
def forgetful(store):
    store.fabrics.add("f", SMALL, HOSTS)
    return SqlStore(store._engine, keep_events=KEPT)


def rename(store: SqlStore, times: int) -> None:
    for number in range(times):
        store.allocations.rename(store.allocations.get("a"), f"n{number}")


def history(store: SqlStore) -> list[tuple[int, str]]:
    """Every event of allocation a with its number, read in pages of 30."""
    told: list[tuple[int, str]] = []
    after = 0
    while True:
        first, events = store.allocations.events("a", after, 30)
        if not events:
            return told
        told += enumerate((event.reason for event in events), first)
        after = told[-1][0]


def test_a_history_keeps_its_newest_events_under_their_numbers(forgetful):
    admit(forgetful, "a")
    rename(forgetful, KEPT + SURPLUS - 2)
    whole = history(forgetful)
    assert [number for number, _ in whole] == [*range(1, KEPT + SURPLUS)]
    rename(forgetful, 1)
    kept = history(forgetful)
    assert kept[:-1] == whole[SURPLUS:]
    assert len(kept) == KEPT
    record = forgetful.allocations.get("a")
    assert [*enumerate((event.reason for event in record.history), record.first_event)] == kept
    rename(forgetful, 3 * SURPLUS)
    assert [number for number, _ in history(forgetful)] == [
        *range(4 * SURPLUS + 1, 5 * SURPLUS + 1)
    ]
    assert forgetful.allocations.events("a", 4 * SURPLUS + 50, 1)[0] == 4 * SURPLUS + 51


def test_the_initiator_of_a_long_history_is_known(forgetful):
    admit(forgetful, "a")
    by = Initiator("req-1", "u", "p")
    forgetful.allocations.transition(
        forgetful.allocations.get("a"), State.RELEASING, "asked", by=by
    )
    for number in range(KEPT + 2 * SURPLUS):
        forgetful.allocations.postpone("a", utc_now(), f"problem {number}")
    assert forgetful.allocations.get("a").first_event > KEPT
    assert forgetful.allocations.get("a").initiator == by


def test_released_allocations_go_with_all_that_belongs_to_them(forgetful):
    admit(forgetful, "a", 0, key="k")
    admit(forgetful, "b", 1, key="l")
    release(forgetful, "a")
    assert forgetful.allocations.forget(DAY, 10) == 0
    assert forgetful.allocations.get("a").state is State.RELEASED
    held = claims(forgetful)
    assert forgetful.allocations.forget(timedelta(0), 10) == 1
    with pytest.raises(NotFound):
        forgetful.allocations.get("a")
    assert forgetful.allocations.events("a", 0, 10)[1] == []
    assert forgetful.allocations.get("b").state is State.ALLOCATING
    assert claims(forgetful) == held
    assert admit(forgetful, "c", 0, key="k").id == "c"  # the key stands for a new request
    assert admit(forgetful, "b", 1, key="l").id == "b"
    assert forgetful.allocations.forget(timedelta(0), 10) == 0


def test_one_call_deletes_a_bounded_number(forgetful):
    for id in "abc":
        admit(forgetful, id)
        release(forgetful, id)
    assert [forgetful.allocations.forget(timedelta(0), 2) for _ in range(3)] == [2, 1, 0]


def test_a_container_goes_after_what_was_inside(forgetful):
    forgetful.admissions.admit(
        new("box", container=True, hosts=4), lambda _: part("box", 0b1111, container=True)
    )
    forgetful.allocations.transition(forgetful.allocations.get("box"), State.ACTIVE, "ready")
    forgetful.admissions.admit(
        new("in", parent="box", hosts=2), lambda _: part("in", 0b11, parent="box")
    )
    release(forgetful, "in")
    release(forgetful, "box")
    forgotten = [
        forgetful.allocations.forget(timedelta(0), 1),
        forgetful.allocations.forget(timedelta(0), 1),
    ]
    assert forgotten == [1, 1]
    assert forgetful.allocations.page() == []


def part(id: str, mask: int, **more) -> Allocation:
    return Allocation(id, mask.bit_count(), "test", (GroupShare(0, mask, 0),), (), **more)


def test_the_archive_has_every_document_before_it_is_deleted(forgetful, tmp_path):
    for id in "ab":
        admit(forgetful, id, key=f"key-{id}")
        release(forgetful, id)
    path = tmp_path / "archive"
    path.write_text('{"torn": ')
    with archive_file(path) as archive:
        assert forgetful.allocations.forget(timedelta(0), 1, archive) == 1
        assert forgetful.allocations.forget(timedelta(0), 10, archive) == 1
    torn, *lines = path.read_text().splitlines()
    assert torn == '{"torn": '
    documents = [json.loads(line) for line in lines]
    assert [one["allocation"]["id"] for one in documents] == ["a", "b"]
    assert [one["idempotency"][0]["key"] for one in documents] == ["key-a", "key-b"]
    assert documents[0]["event"][-1]["state"] == "released"


def test_what_cannot_be_archived_stays(forgetful, tmp_path):
    admit(forgetful, "a")
    release(forgetful, "a")
    with pytest.raises(InvalidInput, match="FILE"), archive_file(tmp_path / "no" / "such"):
        pass

    def full(documents):
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        forgetful.allocations.forget(timedelta(0), 10, full)
    assert forgetful.allocations.get("a").state is State.RELEASED
