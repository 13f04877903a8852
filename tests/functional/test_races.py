# SPDX-License-Identifier: Apache-2.0

"""Concurrent searches on one database: none holds a lock, and every request is decided."""

import multiprocessing
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event

from laas_service.adapters.db.concurrency.arrival_order import ProcessOrder, ThreadOrder
from laas_service.adapters.db.concurrency.decider import LOSSES
from laas_service.adapters.db.concurrency.priority_locks import PriorityLocks
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import State
from laas_service.app.ports.snapshots import Draft, Snapshot
from laas_service.app.records import (
    AllocationRecord,
    HostState,
    Limits,
    LinkState,
    NewPlacement,
    QueueWait,
)
from laas_service.app.requests import AllocationRequest
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, GroupShare, NoFit, Refusal, Request
from laas_service.domain.errors import InvalidInput, QuotaExceeded
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.policies.baseline import Baseline
from laas_service.domain.topology import SpineLink, Topology, Xgft
from tests.drafts import on_ledger
from tests.waiting import eventually

TOPOLOGY = Topology(Xgft((4, 4, 4), (1, 4, 4)))  # 64 hosts
NOBODY = Inventory((), (), (), (), (), (), ())
NAMED_HOSTS = replace(NOBODY, host_names=tuple(f"h{n}" for n in range(TOPOLOGY.hosts)))
ELSEWHERE = SpineLink(3, 3, 3)
ENOUGH = 4 * LOSSES
"""Number of searches after which a request counts as starved."""


@pytest.fixture
def rivals(database):
    """Two stores on one database, as of two processes."""
    stores = [SqlStore(connect(database)) for _ in range(2)]
    stores[0].fabrics.add("f", TOPOLOGY, NAMED_HOSTS)
    yield stores
    for store in stores:
        store._engine.dispose()


def new(id: str, hosts: int = 2, fabric: str = "f", **changes) -> AllocationRequest:
    values = {"name": id, "id": id, "project_id": "blue", "policy": "baseline"} | changes
    return AllocationRequest(hosts=hosts, fabric=fabric, **values)


def placed(id: str, ledger: Ledger) -> Allocation | NoFit:
    return admit(Baseline(), ledger, Request(id, 2))


def ask(store: SqlStore, id: str, fabric: str = "f"):
    return store.admissions.admit(new(id, fabric=fabric), on_ledger(partial(placed, id)))


# -- no search delays others --------------------------------------------------------


def test_two_fabrics_of_one_process_do_not_wait_for_each_other(rivals):
    store, _ = rivals
    store.fabrics.add("g", TOPOLOGY, NOBODY)
    with ThreadPoolExecutor(1) as threads:

        def slow(ledger: Ledger) -> Allocation | NoFit:
            assert threads.submit(ask, store, "quick", "g").result(timeout=60).id == "quick"
            return placed("slow", ledger)

        assert store.admissions.admit(new("slow"), on_ledger(slow)).id == "slow"
    assert store.fabrics.ledger("g")[0].allocations.keys() == {"quick"}


@pytest.mark.parametrize("number", [0, 1], ids=["in this process", "in another"])
def test_a_slow_search_does_not_delay_other_admissions(rivals, number):
    store, quick = rivals[0], rivals[number]
    calls: list[int] = []
    with ThreadPoolExecutor(1) as threads:

        def slow(ledger: Ledger) -> Allocation | NoFit:
            calls.append(len(ledger.allocations))
            if len(calls) < LOSSES:
                id = f"quick-{len(calls)}"
                assert threads.submit(ask, quick, id).result(timeout=60).id == id
            return placed("slow", ledger)

        assert store.admissions.admit(new("slow"), on_ledger(slow)).id == "slow"
    assert calls == list(range(LOSSES))
    assert set(store.fabrics.ledger("f")[0].allocations) == {"slow", "quick-1", "quick-2"}


# -- threads of one process decide in order -------------------------------------------


def test_threads_of_one_process_lose_no_races_against_each_other(rivals):
    store = rivals[0]
    steps: list[str] = []
    store._decider.threads = ThreadOrder(patience=600)
    store._transactions.at = steps.append
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(partial(ask, store), map(str, range(32))))
    assert {answer.state for answer in answers} == {State.ALLOCATING}
    assert "after commit: admit" in steps
    assert "lost race: admit" not in steps


# -- new requests that wait are committed together ------------------------------------


@pytest.fixture
def together(rivals):
    """Ask for several allocations that wait for the same slow one; returns what they get."""
    store = rivals[0]
    store._decider.threads = ThreadOrder(patience=600)

    def asked(*requests) -> list[Any]:
        """``requests`` are pairs of a request and what proposes its placement."""
        line = store.admissions.group._lines
        with ThreadPoolExecutor(len(requests) + 1) as threads:

            def slow(ledger: Ledger) -> Allocation | NoFit:
                for number, (request, propose) in enumerate(requests, 1):
                    search = on_ledger(propose)
                    futures.append(threads.submit(store.admissions.admit, request, search))
                    eventually(partial(_has_length, line, number), "the request waits")
                return placed("slow", ledger)

            futures: list[Any] = []
            assert store.admissions.admit(new("slow"), on_ledger(slow)).id == "slow"
            return [future.exception() or future.result() for future in futures]

    return asked


def _has_length(lines: Mapping[str, Sequence[object]], length: int) -> bool:
    return len(lines["f"]) == length


def asks(id: str, **changes):
    return new(id, **changes), partial(placed, id)


def test_requests_that_wait_are_committed_together(rivals, together):
    """And as if each had come alone, in their order."""
    store, other = rivals
    steps: list[str] = []
    store._transactions.at = steps.append
    records = together(*(asks(str(number)) for number in range(7)))
    assert steps.count("after commit: admit") == 2, "of the slow one, and of the others"
    first = records[0].generation
    assert [record.generation for record in records] == list(range(first, first + 7))
    assert len({record.pkey for record in records}) == 7
    alone = Ledger(TOPOLOGY)
    for id in ("slow", *map(str, range(7))):
        placed(id, alone)
    for ledger in (store.fabrics.ledger("f")[0], other.fabrics.ledger("f")[0]):
        assert ledger.allocations == alone.allocations
    assert [other.allocations.get(record.id).state for record in records] == [State.ALLOCATING] * 7


def test_a_quota_counts_those_that_wait(rivals, together):
    project = {"project_id": "green", "limits": Limits(allocations=2)}
    *fit, third = together(*(asks(str(number), **project) for number in range(3)), asks("blue"))[:3]
    assert [record.state for record in fit] == [State.ALLOCATING] * 2
    assert isinstance(third, QuotaExceeded)
    assert set(rivals[1].fabrics.ledger("f")[0].allocations) == {"slow", "0", "1", "blue"}


def test_a_key_that_waits_twice_gives_one_allocation(rivals, together):
    records = together(*(asks(id, idempotency_key="key", name="n") for id in "ab"), asks("c"))
    assert records[0] == records[1] != records[2]
    assert len(rivals[1].fabrics.ledger("f")[0].allocations) == 3


def test_an_error_of_one_that_waits_is_its_own(rivals, together):
    def broken(ledger: Ledger) -> Allocation:
        raise InvalidInput("hosts", 0, "ask for more")

    records = together(asks("a"), (new("b"), broken), asks("c"))
    assert [type(record) for record in records] == [
        AllocationRecord,
        InvalidInput,
        AllocationRecord,
    ]
    assert set(rivals[1].fabrics.ledger("f")[0].allocations) == {"slow", "a", "c"}


def test_those_behind_one_that_joins_the_queue_see_it_there(rivals, together):
    store = rivals[0]
    seen = []

    def queued(ledger: Ledger) -> QueueWait:
        return QueueWait(NoFit(Refusal.TOO_FEW_HOSTS, "none is free"))

    def behind(ledger: Ledger) -> Allocation | NoFit:
        waiting = store.allocations.page(fabric="f", states={State.QUEUED})
        seen.append([record.id for record in waiting])
        return placed("behind", ledger)

    records = together(asks("a"), (new("waits", wait=True), queued), (new("behind"), behind))
    assert [record.state for record in records] == [
        State.ALLOCATING,
        State.QUEUED,
        State.ALLOCATING,
    ]
    assert seen == [["waits"]]


def test_threads_decide_in_the_order_of_their_arrival():
    order = ThreadOrder(patience=600)
    decided: list[int] = []

    def decide(number: int) -> None:
        with order.after_previous("f"):
            decided.append(number)

    with ThreadPoolExecutor(4) as threads, order.after_previous("f"):
        for number in range(4):
            last = order._last["f"]
            threads.submit(decide, number)
            eventually(partial(_has_moved_on, order, last), "the thread arrives")
        with order.after_previous("g"):
            assert decided == []
    assert decided == [0, 1, 2, 3]


def _has_moved_on(order: ThreadOrder, last: object) -> bool:
    return order._last["f"] is not last


def test_a_slow_thread_is_waited_for_no_longer_than_patience():
    order, inside, leave = ThreadOrder(patience=0.1), threading.Event(), threading.Event()

    def slow() -> None:
        with order.after_previous("f"):
            inside.set()
            assert leave.wait(timeout=600)

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(slow)
        assert inside.wait(timeout=600)
        for _ in range(2):
            with order.after_previous("f"):
                assert not done.done()
        leave.set()
        done.result(timeout=600)


# -- processes that lost a race decide in order -----------------------------------------


def test_slow_decisions_delay_a_newcomer_once():
    """However many are before it: it waits for all of them together no longer than patience."""
    order, over, entered = ThreadOrder(patience=1.0), threading.Event(), threading.Event()

    def decide(end: threading.Event, begun: threading.Event) -> None:
        with order.after_previous("fabric"):
            begun.set()
            assert end.wait(60)

    slow = [threading.Thread(target=decide, args=(over, threading.Event())) for _ in range(30)]
    newcomer = threading.Thread(target=decide, args=(over, entered))
    for thread in (*slow, newcomer):
        thread.start()
    assert entered.wait(15), "it waited for them one after the other"
    over.set()
    for thread in (*slow, newcomer):
        thread.join(60)


def test_a_process_that_lost_a_race_waits_for_the_others(rivals):
    """Until each has lost one, they race; on SQLite they always do."""
    first, second = (ProcessOrder(store._engine, patience=600) for store in rivals)
    with first.after_previous("f"), second.after_previous("f"):
        pass
    for order in (first, second):
        order.lost("f")
    if rivals[0]._engine.dialect.name == "sqlite":
        with first.after_previous("f"), second.after_previous("f"):
            return
    decided, waits = [], threading.Event()

    def decide() -> None:
        waits.set()
        with second.after_previous("f"):
            decided.append("second")

    for _ in range(2):  # the second time on connections that were kept
        waits.clear()
        with ThreadPoolExecutor(1) as threads:
            with first.after_previous("f"):
                done = threads.submit(decide)
                assert waits.wait(timeout=600)
                with second.after_previous("g"):  # nobody lost a race for it
                    assert not done.done()
                decided.append("first")
            done.result(timeout=600)
    assert decided == ["first", "second"] * 2


def test_a_slow_process_is_waited_for_no_longer_than_patience(rivals):
    first, second = (ProcessOrder(store._engine, patience=0.1) for store in rivals)
    for order in (first, second):
        order.lost("f")
    with first.after_previous("f"):
        for _ in range(2):
            with second.after_previous("f"):
                pass


def test_processes_go_on_without_an_order(rivals):
    """The connections of the order end with the server's patience; nothing is lost but order."""
    store = rivals[0]
    order = store._decider.processes
    order.lost("f")
    with order.after_previous("f"):
        pass
    for connection in order._idle:
        connection.connection.dbapi_connection.close()
    for id in ("a", "b"):
        order.lost("f")
        assert ask(store, id).id == id


# -- no request starves ---------------------------------------------------------


def stream(url: str, progress, committed, gave_way, stop) -> None:
    """Admit in a loop, and release what was admitted before; count commits and lost races.

    The newest is there, so that its claim is seen by all who searched without it.
    """

    def at(step: str) -> None:
        count = {"after commit: admit": committed, "lost race: admit": gave_way}.get(step)
        if count is not None:
            with progress:
                count.value += 1
                progress.notify_all()

    store, number, before = SqlStore(connect(url), at=at), 0, None
    while not stop.is_set():
        number += 1
        record = ask(store, f"quick-{number}")
        if isinstance(record, AllocationRecord):
            if before is not None:
                before = store.allocations.transition(before, State.RELEASING, "asked")
                store.allocations.free(store.allocations.hand_back(before), "gone")
            before = record
    store._engine.dispose()


@pytest.mark.parametrize("process", [False, True], ids=["threads", "processes"])
def test_a_slow_search_is_decided_before_a_stream_of_newcomers(rivals, database, process):
    context = multiprocessing.get_context("spawn")
    progress, stop = context.Condition(), context.Event()
    committed, gave_way = (context.Value("i", 0, lock=False) for _ in range(2))
    calls: list[int] = []
    gave_way_before = 0

    def at(step: str) -> None:
        """Note how often newcomers had given way before this store takes priority."""
        nonlocal gave_way_before
        if len(calls) <= LOSSES:  # afterwards those that give way wait for it
            gave_way_before = gave_way.value

    def slow(ledger: Ledger) -> Allocation | NoFit:
        """Search until two newcomers have been admitted or one has given way."""
        calls.append(committed.value)
        assert len(calls) <= ENOUGH, "it starves"
        with progress:
            admitted = committed.value

            def overtaken_or_first() -> bool:
                return bool(committed.value >= admitted + 2 or gave_way.value > gave_way_before)

            assert progress.wait_for(overtaken_or_first, timeout=600)
        return placed("slow", ledger)

    rivals[0]._transactions.at = at
    start = context.Process if process else threading.Thread
    newcomers = start(target=stream, args=(database, progress, committed, gave_way, stop))
    newcomers.start()
    try:
        assert rivals[0].admissions.admit(new("slow"), on_ledger(slow)).id == "slow"
    finally:
        stop.set()
        newcomers.join(timeout=600)
    assert LOSSES < len(calls) <= LOSSES + 2
    assert gave_way.value >= 1


def begin(store: SqlStore, kind: str) -> Callable[[Callable[[Ledger], Allocation]], object]:
    """Prepare allocation ``a`` and return the function that decides about it, given a search."""
    if kind == "admit":
        return lambda search: store.admissions.admit(new("a", 1), on_ledger(search))
    if kind == "queue":
        store.admissions.admit(
            new("a", 1, wait=True), lambda _: QueueWait(NoFit(Refusal.TOO_FEW_HOSTS, "full"))
        )
        return lambda search: store.admissions.admit_waiting("f", lambda ledger: [search(ledger)])
    store.admissions.admit(new("a", 1), lambda _: on_leaf("a", 15))
    record = store.allocations.transition(store.allocations.get("a"), State.ACTIVE, "handed over")
    return lambda search: store.placement_changes.begin(
        record, lambda ledger: NewPlacement(search(ledger), "elsewhere")
    )


def on_leaf(id: str, leaf: int) -> Allocation:
    return Allocation(id, 1, "baseline", (GroupShare(leaf, 1, 1),))


KINDS = pytest.mark.parametrize("kind", ["admit", "queue", "move"])


@KINDS
def test_what_was_found_is_kept_when_something_else_changes(rivals, kind):
    """During the search a link elsewhere fails."""
    store, other = rivals
    decide, calls = begin(store, kind), []

    def search(ledger: Ledger) -> Allocation:
        calls.append(ELSEWHERE in ledger.failed_links)
        other.components.set_link_state("f", ELSEWHERE, LinkState.FAILED)
        return on_leaf("a", 0)

    decide(search)
    assert calls == [False]
    assert ELSEWHERE in store.fabrics.ledger("f")[0].failed_links
    assert store.allocations.get("a").placed == on_leaf("a", 0)
    for seen in rivals:
        assert (
            seen.fabrics.ledger("f")[0].state()
            == SqlStore(store._engine).fabrics.ledger("f")[0].state()
        )


@KINDS
def test_what_was_found_is_searched_anew_when_it_is_no_longer_free(rivals, kind):
    """The host that a search finds fails before the commit."""
    store, other = rivals
    decide, calls = begin(store, kind), []

    def search(ledger: Ledger) -> Allocation:
        calls.append(len(ledger.failed_hosts))
        leaf = len(calls)
        if leaf < ENOUGH:
            other.components.set_host_state("f", 4 * leaf, HostState.FAILED)
        return on_leaf("a", leaf)

    decide(search)
    assert calls == list(range(ENOUGH))
    assert store.allocations.get("a").placed == on_leaf("a", ENOUGH)


def test_what_was_found_is_searched_anew_after_another_claim(rivals):
    """Another request overruns the priority and claims hosts elsewhere."""
    store, other = rivals
    other._decider.priority = PriorityLocks(other._engine, patience=0)
    calls: list[int] = []

    def search(ledger: Ledger) -> Allocation:
        calls.append(len(ledger.allocations))
        if len(calls) <= LOSSES + 1:
            rival = f"other-{len(calls)}"
            other.admissions.admit(new(rival, 1), lambda _: on_leaf(rival, len(calls)))
        return on_leaf("a", 0)

    store.admissions.admit(new("a", 1), on_ledger(search))
    assert calls == list(range(LOSSES + 2))


@pytest.mark.parametrize("queued", [False, True], ids=["placed", "queued"])
def test_a_key_that_was_answered_meanwhile_is_answered_first(rivals, queued):
    store, other = rivals
    calls: list[int] = []

    def search(ledger: Ledger) -> Allocation | NoFit:
        calls.append(1)
        first = new("first", idempotency_key="key", wait=queued)
        full = NoFit(Refusal.TOO_FEW_HOSTS, "full")
        other.admissions.admit(
            first, lambda draft: QueueWait(full) if queued else placed("first", draft.ledger)
        )
        return placed("again", ledger)

    again = new("again", name="first", idempotency_key="key", wait=queued)
    assert store.admissions.admit(again, on_ledger(search)).id == "first"
    assert len(calls) == 1


# -- the snapshot of a request ----------------------------------------------------------


def read(store: SqlStore, request: AllocationRequest) -> Snapshot:
    return store.snapshot(request, request.project_id, None, request.limits)


def test_the_first_search_is_on_the_snapshot(rivals):
    store, _ = rivals
    snapshot = read(store, new("a"))
    statements: list[str] = []
    event.listen(store._engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    ledgers: list[LedgerView] = []

    def search(draft: Draft) -> Allocation | NoFit:
        ledgers.append(draft.ledger)
        assert not statements, "nothing is read between the snapshot and the search"
        return placed("a", draft.ledger)

    assert store.admissions.admit(new("a"), search, snapshot).id == "a"
    assert len(ledgers) == 1
    assert not snapshot.possible["f"].ledger.allocations, "it is read only"


@pytest.mark.parametrize("number", [0, 1], ids=["by this process", "by another"])
def test_claims_after_the_snapshot_are_seen(rivals, number):
    store, other = rivals[0], rivals[number]
    snapshot = read(store, new("a"))
    ask(other, "b")
    calls: list[set[str]] = []

    def search(draft: Draft) -> Allocation | NoFit:
        calls.append(set(draft.ledger.allocations))
        return placed("a", draft.ledger)

    assert store.admissions.admit(new("a"), search, snapshot).id == "a"
    assert calls == ([{"b"}] if number == 0 else [set(), {"b"}])


def test_requests_that_other_threads_queue_after_the_snapshot_are_not_overtaken(rivals):
    store, _ = rivals
    snapshot = read(store, new("a"))
    full = NoFit(Refusal.TOO_FEW_HOSTS, "full")
    store.admissions.admit(new("first", wait=True), lambda _: QueueWait(full))

    def search(draft: Draft) -> Allocation | NoFit:
        if waiting := draft.queue.waiting:
            return NoFit(Refusal.OTHERS_WAIT, waiting[0].id)
        return placed("a", draft.ledger)

    answer = store.admissions.admit(new("a"), search, snapshot)
    assert answer == NoFit(Refusal.OTHERS_WAIT, "first")


def test_a_quota_counts_what_was_claimed_after_the_snapshot(rivals):
    store, other = rivals
    wish = new("a", limits=Limits(hosts=3))
    snapshot = read(store, wish)
    ask(other, "b")
    with pytest.raises(QuotaExceeded):
        store.admissions.admit(wish, pytest.fail, snapshot)


# -- priority ---------------------------------------------------------------------


def test_one_decision_has_priority_until_it_ends(rivals):
    first, second = (PriorityLocks(store._engine, patience=600) for store in rivals)
    order, taken, asked = [], threading.Event(), threading.Event()

    def holder() -> None:
        with first.held("f"):
            taken.set()
            assert asked.wait(timeout=600)
            assert not PriorityLocks(first._engine, patience=0).wait_until_free("f")
            assert PriorityLocks(first._engine, patience=0).wait_until_free("g")
            order.append("first")

    def applicant() -> None:
        assert taken.wait(timeout=600)
        asked.set()
        with second.held("f"):
            order.append("second")

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(holder), threads.submit(applicant)]:
            done.result(timeout=600)
    assert order == ["first", "second"]
    assert first.wait_until_free("f")
    assert second.wait_until_free("f")


def test_a_stuck_holder_of_priority_is_overrun(rivals):
    store, other = rivals
    other._decider.priority = PriorityLocks(other._engine, patience=0.1)
    with store._decider.priority.held("f"):
        assert ask(other, "newcomer").id == "newcomer"
        with other._decider.priority.held("f"):
            assert ask(other, "starved").id == "starved"
