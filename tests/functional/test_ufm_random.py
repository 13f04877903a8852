# SPDX-License-Identifier: Apache-2.0

"""Random changes of tenants through a UFM that loses, delays, spoils and refuses requests.

The judge keeps its own books: which port belongs to which key. It reads the stand-in's state, and
uses nothing of the port. ``LAAS_UFM`` is the number of operations (``tox -e ufm``).
"""

from __future__ import annotations

import contextlib
import os
import random
from datetime import UTC, datetime, timedelta

import pytest

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.domain.allocation import Allocation, GroupShare
from laas_service.domain.errors import LaasError
from laas_service.messages import FabricState, TenantRoute
from tests.ufm.faults import KINDS
from tests.ufm.manager import Record, manager, remembering
from tests.ufm.server import standing_in
from tests.ufm.state import Ufm

OPERATIONS = int(os.environ.get("LAAS_UFM") or 200)
KEYS = range(0x100, 0x110)
MADE = generate(Description(xgft="2;4,8;1,4"))
HOSTS = range(MADE.topology.hosts)
GUIDS = {e.host: e.guid for e in MADE.inventory.endpoints if e.host is not None}
STRANGERS = (0xDEAD0001, 0xDEAD0002)
SPOILED = 0.15
"""The share of requests that are spoiled; 'slow' needs real time and is tried elsewhere."""

JOB_TIMEOUT = 12
"""Seconds; longer than a request is late, and its job then runs."""

EPOCH, SECOND = datetime(2026, 1, 1, tzinfo=UTC), timedelta(seconds=1)

SPOILS = tuple(kind for kind in KINDS if kind != "slow")


class Books:
    """The judge's: hosts by key, and the other writer's partitions."""

    def __init__(self) -> None:
        self.tenants: dict[int, set[int]] = {}
        self.before: dict[int, set[int]] = {}
        self.others: dict[int, set[int]] = {}

    def owner(self, host: int) -> int | None:
        return next((key for key, hosts in self.tenants.items() if host in hosts), None)

    def free(self) -> list[int]:
        return [host for host in HOSTS if self.owner(host) is None]

    def expected(self) -> dict[int, set[int]]:
        ours = {key: {GUIDS[host] for host in hosts} for key, hosts in self.tenants.items()}
        return {**ours, **self.others}

    def foreign(self, present: dict[int, set[int]]) -> set[tuple[int, int]]:
        """Ports of ours in a partition that is not their owner's, with its key."""
        host_of = {guid: host for host, guid in GUIDS.items()}
        return {
            (key, guid)
            for key, guids in present.items()
            if key in KEYS
            for guid in guids
            if guid in host_of and self.owner(host_of[guid]) != key
        }


def routed(books: Books, generation: int) -> FabricState:
    tenants = []
    for key, hosts in sorted(books.tenants.items()):
        groups: dict[int, int] = {}
        for host in hosts:
            groups[host // 4] = groups.get(host // 4, 0) | 1 << host % 4
        placed = tuple(GroupShare(leaf, mask, 0) for leaf, mask in sorted(groups.items()))
        tenants.append(TenantRoute(Allocation(f"t{key:x}", len(hosts), "baseline", placed), key))
    return FabricState("f", generation, MADE.topology, MADE.inventory, tuple(tenants))


def change(books: Books, rng: random.Random) -> None:
    """One operation of the service: a tenant comes, goes, grows, shrinks or moves, or the last
    operation is undone."""
    before, books.before = books.before, {key: set(h) for key, h in books.tenants.items()}
    if rng.random() < 0.25:
        books.tenants = before
        return
    free, unused = books.free(), [key for key in KEYS if key not in books.tenants]
    verb = rng.choice(("come", "come", "go", "grow", "shrink", "move"))
    tenant = rng.choice(sorted(books.tenants)) if books.tenants else None
    if verb == "come" and free and unused:
        count = rng.randint(1, min(8, len(free)))
        books.tenants[rng.choice(unused)] = set(rng.sample(free, count))
    elif tenant is None:
        return
    elif verb == "go":
        del books.tenants[tenant]
    elif verb == "grow" and free:
        books.tenants[tenant].add(rng.choice(free))
    elif verb == "shrink" and len(books.tenants[tenant]) > 1:
        books.tenants[tenant].discard(rng.choice(sorted(books.tenants[tenant])))
    elif verb == "move" and free:
        books.tenants[tenant].discard(rng.choice(sorted(books.tenants[tenant])))
        books.tenants[tenant].add(rng.choice(free))


def meddle(site, books: Books, rng: random.Random) -> None:
    """Another writer: in our range, where it has no business, or in its own."""
    ufm = site.ufm
    if rng.random() < 0.5:
        key = rng.choice((0x50, 0x7000))
        guids = {rng.choice(STRANGERS)}
        books.others.setdefault(key, set()).update(guids)
    else:
        key = rng.choice(KEYS)
        guids = {rng.choice((*GUIDS.values(), *STRANGERS))}
    with ufm.lock:
        was, ufm.asynchronous = ufm.asynchronous, False
        texts = [f"{guid:016x}" for guid in sorted(guids)]
        membership = rng.choice(("full", "limited"))
        ufm.add({"pkey": f"{key:#x}", "guids": texts, "membership": membership})
        ufm.asynchronous = was


@pytest.mark.parametrize("asynchronous", [False, True], ids=["at once", "by jobs"])
def test_no_port_is_lost_left_behind_or_in_a_foreign_partition(tmp_path, asynchronous):
    seed = 24 + asynchronous
    rng, books = random.Random(seed), Books()
    chance = random.Random(seed + 1000)
    record, spoiling = Record(routed(books, 1)), True
    with standing_in(Ufm(asynchronous=asynchronous)) as site:
        site.faults.chance = lambda method: (
            chance.choice(SPOILS) if spoiling and chance.random() < SPOILED else None
        )
        generation, stale = 1, record.state
        # a second passes with each request; UFM carries out what is late within JOB_TIMEOUT
        memory = remembering("f", clock=lambda session: EPOCH + SECOND * len(site.ufm.calls))

        def worker():
            return manager(site, tmp_path, record, memory=memory, job_timeout=JOB_TIMEOUT)

        def confirmed():
            with contextlib.suppress(LaasError):  # such as of a job that came too late
                port.publish(record.state)
                return port.applied("f").generation == generation
            return False

        port = worker()
        left: set[tuple[int, int]] = set()  # foreign after the last round, and nothing is late
        for number in range(OPERATIONS // 2):
            where = f"seed {seed}, operation {number}"
            if rng.random() < 0.1:
                meddle(site, books, rng)
            else:
                change(books, rng)
                generation += 1
                if rng.random() < 0.2:
                    stale = record.state
                record.state = routed(books, generation)
            if rng.random() < 0.05:
                port = worker()  # it starts anew
            if rng.random() < 0.1 and stale.generation < generation:
                before = [c for c in site.ufm.changes if c[0] == "add"]
                with pytest.raises(LaasError):
                    port.publish(stale)
                assert [c for c in site.ufm.changes if c[0] == "add"] == before, where
            try:
                port.publish(record.state)
                through = True
            except LaasError:
                through = False
            seen = None
            with contextlib.suppress(LaasError):
                seen = port.applied("f").generation
            if seen == generation:
                assert site.ufm.members() == books.expected(), where
                if rng.random() < 0.5:
                    site.faults.carry_out_all()
                    site.ufm.finish_jobs()
                    assert site.ufm.members() == books.expected(), f"{where}: came late"
            if rng.random() < 0.1 or number == OPERATIONS // 2 - 1:
                # nothing more is spoiled; what is under way may undo nothing that is confirmed
                spoiling = False
                assert any(confirmed() for _ in range(3 * JOB_TIMEOUT)), where
                site.faults.carry_out_all()
                site.ufm.finish_jobs()
                assert site.ufm.members() == books.expected(), where
                spoiling = True
            foreign = books.foreign(site.ufm.members())
            assert not (through and foreign & left), f"{where}: longer than a round"
            left = set() if site.faults.late or asynchronous else foreign
        assert set(site.faults.happened) == set(SPOILS)
