# SPDX-License-Identifier: Apache-2.0

"""What the database remembers of a UFM."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from laas_service.adapters.db import ufm_memory
from laas_service.adapters.db.ufm_memory import SqlUfmMemory
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.ufm.memory import Membership, PartitionRequest, UnderWay
from laas_service.domain.errors import Conflict
from laas_service.domain.inventory import PortRef
from tests.recabling import apart

ADD = PartitionRequest("f", 0x7FFE, True, frozenset({1, 2**64 - 1}), 7)
REMOVE = ADD._replace(adds=False, generation=8)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ufm_memory_of(store, **options):
    made = generate(Description(xgft="2;2,2;1,2"))
    for number, fabric in enumerate(("f", "g")):
        store.fabrics.add(fabric, made.topology, apart(made.inventory, number))
    return SqlUfmMemory(store._engine, **options)


def test_a_request_is_under_way_until_it_ends(store):
    now = [NOON]
    memory = ufm_memory_of(store, clock=lambda session: now[0])
    first = memory.begin(ADD)
    now[0] += timedelta(seconds=2.5)
    second = memory.begin(REMOVE)
    memory.note_job(second, "j" * 300)
    other = memory.begin(ADD._replace(fabric="g"))
    assert memory.under_way("f") == [
        UnderWay(first, ADD, None, 2.5),
        UnderWay(second, REMOVE, "j" * 255, 0.0),
    ]
    memory.end([first, second])
    memory.end([first])
    assert memory.under_way("f") == []
    assert [entry.id for entry in memory.under_way("g")] == [other]


def test_a_late_generation_does_not_add_what_a_newer_one_withdrew(store):
    """The record alone does not tell, as after a restored backup."""
    memory = ufm_memory_of(store)
    memory.begin(ADD)
    memory.begin(REMOVE._replace(guids=frozenset({2**64 - 1})))
    with pytest.raises(Conflict, match="generation 8 withdrew"):
        memory.begin(ADD)
    assert len(memory.under_way("f")) == 2, "nothing is noted of what is refused"
    memory.begin(ADD._replace(guids=frozenset({1})))
    memory.begin(ADD._replace(fabric="g"))
    memory.begin(ADD._replace(generation=8))
    assert memory.withdrawn("f", [ADD.pkey]) == {}


def test_what_was_withdrawn_is_told_by_key(store):
    memory = ufm_memory_of(store)
    memory.begin(REMOVE)
    memory.begin(REMOVE._replace(pkey=1, generation=9))
    memory.begin(REMOVE._replace(guids=frozenset({1}), generation=10))
    memory.begin(REMOVE._replace(fabric="g"))
    assert memory.withdrawn("f", [REMOVE.pkey]) == {
        Membership(REMOVE.pkey, 1): 10,
        Membership(REMOVE.pkey, 2**64 - 1): 8,
    }
    assert set(memory.withdrawn("f", [1, 2, REMOVE.pkey]).values()) == {8, 9, 10}
    assert memory.withdrawn("f", []) == {}


def test_the_oldest_withdrawals_are_forgotten_first(store, monkeypatch):
    monkeypatch.setattr(ufm_memory, "MOST_WITHDRAWN", 5)
    memory = ufm_memory_of(store)
    memory.begin(REMOVE._replace(fabric="g"))
    for generation in (1, 2, 3):
        guids = frozenset(range(10 * generation, 10 * generation + 2))
        memory.begin(REMOVE._replace(guids=guids, generation=generation))
    assert set(memory.withdrawn("f", [REMOVE.pkey]).values()) == {2, 3}
    assert len(memory.withdrawn("g", [REMOVE.pkey])) == 2


def test_marked_ports(store):
    memory = ufm_memory_of(store)
    ports = {PortRef(2**64 - 1, 1), PortRef(2**64 - 1, 2), PortRef(3, 1)}
    memory.mark("f", ports)
    memory.mark("g", [PortRef(3, 1)])
    memory.mark("f", [])
    assert memory.marked("f") == ports
    memory.unmark("f", {PortRef(3, 1), PortRef(2**64 - 1, 2), PortRef(5, 5)})
    memory.unmark("f", [])
    assert memory.marked("f") == {PortRef(2**64 - 1, 1)}
    assert memory.marked("g") == {PortRef(3, 1)}
