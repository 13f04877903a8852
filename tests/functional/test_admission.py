# SPDX-License-Identifier: Apache-2.0

"""Several processes admit concurrently on one database: no host is given to two allocations."""

import contextlib
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import sqlalchemy as sa

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.db.transactions import utc_now
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.lifecycle import State
from laas_service.app.records import AllocationRecord, Limits, QueueWait
from laas_service.app.requests import AllocationRequest
from laas_service.domain.admission.admit import admit
from laas_service.domain.admission.queue import Discipline
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.errors import ConcurrentUpdate, Conflict, QuotaExceeded
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.baseline import Baseline
from laas_service.domain.topology import Topology, Xgft
from tests.drafts import on_ledger

TOPOLOGY = Topology(Xgft((4, 4, 4), (1, 4, 4)))  # 64 hosts
PROCESSES = 3
ASKED = 10  # requests of each process; all of them fit


def ask(url: str, name: str, start, answers) -> None:
    """Ask for two hosts again and again, and give every fourth allocation back."""
    store = SqlStore(connect(url))
    start.wait()
    kept = []
    for number in range(ASKED):
        request = Request(f"{name}-{number}", 2)
        new = AllocationRequest(
            id=request.id, fabric="f", name=request.id, project_id=name, policy="baseline", hosts=2
        )
        answer = store.admissions.admit(new, on_ledger(partial(admit, Baseline(), request=request)))
        assert isinstance(answer, AllocationRecord)
        if number % 4 == 3:
            record = store.allocations.transition(answer, State.RELEASING, "asked")
            store.allocations.free(store.allocations.hand_back(record), "gone")
        else:
            kept.append(answer.id)
    answers.put(kept)


@pytest.mark.road
def test_processes_admitting_at_once_share_nothing(database):
    store = SqlStore(connect(database))
    store.fabrics.add("f", TOPOLOGY, Inventory((), (), (), (), (), (), ()))
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(target=ask, args=(database, f"p{n}", start, answers))
        for n in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    acknowledged = {id for _ in processes for id in answers.get(timeout=6000)}
    for process in processes:
        process.join(timeout=600)
        assert process.exitcode == 0
    fabric, generation = store.fabrics.ledger("f")
    assert set(fabric.allocations) == acknowledged
    assert generation == store.fabrics.get("f").generation
    with store._engine.connect() as connection:
        owners = connection.execute(sa.text("select host, allocation from host_claim")).all()
    assert len(owners) == 2 * len(acknowledged) == 2 * PROCESSES * (ASKED - ASKED // 4)
    assert {owner for _, owner in owners} == acknowledged
    assert fabric.state() == SqlStore(store._engine).fabrics.ledger("f")[0].state()


@pytest.mark.road
@pytest.mark.parametrize("fabrics", [("f", "f"), ("f", "g")], ids=["one fabric", "two"])
def test_two_at_one_time_do_not_pass_a_quota_together(database, fabrics):
    """Both searches end before either result is written, on one fabric or on two."""
    stores = [SqlStore(connect(database)) for _ in fabrics]
    for fabric in sorted(set(fabrics)):
        stores[0].fabrics.add(fabric, TOPOLOGY, Inventory((), (), (), (), (), (), ()))
    looked = threading.Barrier(2)

    def one(number: int) -> object:
        request = Request(f"a{number}", 5)
        first = iter([True])

        def propose(ledger: Ledger) -> Allocation | NoFit:
            answer = admit(Baseline(), ledger, request)
            if next(first, False):
                looked.wait(timeout=600)
            return answer

        limits = Limits(hosts=8)
        new = AllocationRequest(
            id=request.id,
            fabric=fabrics[number],
            name="x",
            project_id="blue",
            policy="baseline",
            hosts=5,
            limits=limits,
        )
        try:
            return stores[number].admissions.admit(new, on_ledger(propose))
        except QuotaExceeded as error:
            return error

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(one, range(2)))
    assert [error.value for error in answers if isinstance(error, QuotaExceeded)] == [10]
    assert len(stores[0].allocations.page(project_id="blue")) == 1
    for store in stores:
        store._engine.dispose()


@pytest.mark.road
@pytest.mark.parametrize("fabrics", [("f", "f"), ("f", "g")], ids=["one fabric", "two"])
def test_a_project_that_may_have_one_allocation_gets_one(database, fabrics):
    """Two threads of one process ask at the same time, on one fabric or on two."""
    store = SqlStore(connect(database))
    for fabric in sorted(set(fabrics)):
        store.fabrics.add(fabric, TOPOLOGY, Inventory((), (), (), (), (), (), ()))
    looked = threading.Barrier(2)

    def one(number: int) -> object:
        request = Request(f"a{number}", 5)
        first = iter([True])

        def propose(ledger: Ledger) -> Allocation | NoFit:
            if store.allocations.page(project_id="blue"):
                return NoFit(Refusal.QUOTA, "it has one")
            answer = admit(Baseline(), ledger, request)
            if next(first, False):
                looked.wait(timeout=600)
            return answer

        new = AllocationRequest(
            id=request.id,
            fabric=fabrics[number],
            name="x",
            project_id="blue",
            policy="baseline",
            hosts=5,
            alone=True,
        )
        return store.admissions.admit(new, on_ledger(propose))

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(one, range(2)))
    assert sum(isinstance(answer, AllocationRecord) for answer in answers) == 1
    assert NoFit(Refusal.QUOTA, "it has one") in answers
    assert len(store.allocations.page(project_id="blue")) == 1
    store._engine.dispose()


def serve(url: str, start, answers) -> None:
    """Act as a worker: serve the queue until it is empty."""
    store = SqlStore(connect(url))
    queue = AdmissionQueue(store, {"baseline": Baseline()}, Discipline("fifo"), clock=utc_now)
    start.wait()
    admitted = 0
    while store.allocations.page(states=[State.QUEUED]):
        admitted += queue.serve("f")
        for record in store.allocations.page(states=[State.ALLOCATING], limit=1):
            with contextlib.suppress(ConcurrentUpdate, Conflict):
                leaving = store.allocations.transition(record, State.RELEASING, "asked")
                store.allocations.free(store.allocations.hand_back(leaving), "gone")
    answers.put(admitted)


@pytest.mark.road
def test_workers_serving_one_queue_admit_everybody_once_and_in_order(database):
    store = SqlStore(connect(database))
    store.fabrics.add("f", TOPOLOGY, Inventory((), (), (), (), (), (), ()))
    no_room = QueueWait(NoFit(Refusal.TOO_FEW_HOSTS, "nothing is free"))
    ids = [f"w{number:02}" for number in range(12)]
    for number, id in enumerate(ids):
        new = AllocationRequest(
            id=id,
            fabric="f",
            name=id,
            project_id=id,
            policy="baseline",
            hosts=(20, 40, 60)[number % 3],
            wait=True,
        )
        answer = store.admissions.admit(new, lambda fabric: no_room)
        assert isinstance(answer, AllocationRecord)
        assert answer.state is State.QUEUED
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(2), context.Queue()
    processes = [context.Process(target=serve, args=(database, start, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    admitted = [answers.get(timeout=6000) for _ in processes]
    for process in processes:
        process.join(timeout=600)
        assert process.exitcode == 0
    assert sum(admitted) == len(ids)
    records = [store.allocations.get(id) for id in ids]
    for record in records:
        assert [e.state for e in record.history].count(State.ALLOCATING) == 1
    with store._engine.connect() as connection:
        changes = connection.execute(
            sa.select(models.DeltaRow.change).order_by(models.DeltaRow.generation)
        )
        order = [change["claim"]["id"] for (change,) in changes if "claim" in change]
    assert order == ids
