# SPDX-License-Identifier: Apache-2.0

"""Routes that stand already are confirmed without a sweep, and none but these.

The judge reads the tables of all switches and walks all pairs of a tenant.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from random import Random

import pytest

from laas_service.adapters.db import schema
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import State
from laas_service.app.requests import AllocationRequest
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.messages import ConfirmedBy
from opensm_writer.local import LocalSubnetManager
from tests.convergers import Convergers
from tests.drafts import on_ledger
from tests.fakes import FakeCompute
from tests.functional.test_opensm import ROOT, TENANTS, Site, site, tree_site
from tests.functional.test_opensm_keys import converged, write_entries
from tests.marks import needs_ibsim
from tests.walks import Walks

NOW = datetime(2027, 1, 1, tzinfo=UTC)
TREE = tree_site()

pytestmark = [needs_ibsim, pytest.mark.road]


@contextmanager
def reading_blocks() -> Iterator[Site]:
    """A site whose manager reads blocks of tables."""
    topology, inventory, sm = tree_site()
    with site(topology, inventory, sm) as here:
        command = (*here.dump[:-2], f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1")
        reader = (*command, sys.executable, "-m", "opensm_writer.table_reader")
        here.opensm = replace(here.opensm, blocks_command=reader)
        files = here.sim.directory / "files"
        here.manager = LocalSubnetManager(files, here.opensm, patience=300)
        yield here


@contextmanager
def stopped(here: Site) -> Iterator[None]:
    """OpenSM writes nothing meanwhile."""
    opensm = int((here.sim.directory / "opensm.pid").read_text())
    os.kill(opensm, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(opensm, signal.SIGCONT)


def standing(here: Site) -> frozenset[str]:
    """The tenants whose routes need no sweep, by their ids of one letter."""
    found = here.manager.standing("site")
    assert found is not None
    assert (found.generation, found.by) == (here.generation, ConfirmedBy.SWITCHES)
    return frozenset(chr(key - 0x100) for key in found.keys)


def leaving(here: Site, tenants: Iterable[Allocation]) -> set[str]:
    """The tenants of which a pair leaves their links, by the tables in the switches."""
    walks = Walks.over_rows(here.inventory, here.rows())
    found = set()
    for tenant in tenants:
        try:
            walks.assert_isolated(here.topology, tenant)
        except AssertionError:
            found.add(tenant.id)
    return found


@contextmanager
def attacked(here: Site, tenant: Allocation, random: Random) -> Iterator[None]:
    """Another manager sends packets to a host of the tenant elsewhere, at a leaf of the tenant."""
    ends = [here.inventory.endpoint_of_port[host, 0] for host in tenant.hosts(here.topology)]
    leaf, target = random.choice(ends).at.guid, random.choice(ends)
    lid, first = here.inventory.lids[target.guid], here.inventory.lids[target.guid] // 64 * 64
    ours = here.rows()[leaf].ljust(first + 64, b"\xff")[first : first + 64]
    theirs = bytearray(ours)
    theirs[lid - first] = ours[lid - first] % 8 + 1
    for ports in (bytes(theirs), ours):
        write_entries(here, here.inventory.lids[leaf], ports, first // 64)
        if ports != ours:
            yield


def test_hosts_of_one_leaf_reach_each_other_before_any_sweep():
    with reading_blocks() as here:
        here.boot([])
        with stopped(here):
            here.manager.publish(here.state(TENANTS))
            wrong = leaving(here, TENANTS)
            found = standing(here)
        assert TENANTS[0].id in found
        assert wrong
        assert not wrong & found
        here.confirm()
        assert leaving(here, TENANTS) == set()
        assert standing(here) == frozenset(), "nothing is new any more"


def test_an_entry_that_a_set_on_its_way_changes_does_not_stand():
    """It is right in the switches and in the newest set, and OpenSM will write it twice."""
    ledger = Ledger(TREE[0])
    first, second = (admit(Jigsaw(), ledger, Request(id, 18)) for id in "ab")
    assert isinstance(first, Allocation)
    assert isinstance(second, Allocation)
    with reading_blocks() as here:
        here.boot([first])
        with stopped(here):
            here.manager.publish(here.state([]))
            here.manager.publish(here.state([replace(first, id="c")]))
            assert leaving(here, [first]) == set()
            assert standing(here) == frozenset()
        here.confirm()


def test_no_tenant_whose_pairs_leave_its_links_is_said_to_stand():
    """Random histories, with another manager between the publication and the reading."""
    random, ledger, found = Random(5), Ledger(TREE[0]), Counter[str]()
    names = iter("abcdefghijklmnopqrstuvwxyz")
    with reading_blocks() as here:
        here.boot([])
        for turn in range(6):
            for id in random.sample(sorted(ledger.allocations), len(ledger.allocations) // 3):
                ledger.release(id)
            asked = [admit(Jigsaw(), ledger, Request(next(names), n)) for n in (3, 9, 7)]
            new = [each for each in asked if isinstance(each, Allocation)]
            with stopped(here):
                here.manager.publish(here.state(ledger.allocations.values()))
                rival = attacked(here, random.choice(new), random) if turn % 2 else nullcontext()
                with rival:
                    stand, wrong = standing(here), leaving(here, new)
            assert not stand & wrong
            found += Counter(stand=len(stand), wrong=len(wrong))
            here.confirm()
    assert found["stand"] > 0
    assert found["wrong"] > 0


def test_a_worker_records_routes_that_stand_before_the_keys(tmp_path):
    engine = connect(f"sqlite:///{tmp_path}/laas.sqlite")
    schema.upgrade(engine)
    store = SqlStore(engine)
    with reading_blocks() as here:
        store.fabrics.add("site", here.topology, here.inventory)
        converged(here, store)
        worker = Convergers(store, FakeCompute(), here.manager, now=lambda: NOW, chance=Random(1))
        worker.run_once()
        for id, hosts in (("inside", 3), ("across", 9)):
            new = AllocationRequest(
                id=id, fabric="site", name=id, project_id="p", policy="jigsaw", hosts=hosts
            )
            policy = partial(admit, Jigsaw(), request=Request(id, hosts))
            store.admissions.admit(new, on_ledger(policy))
        worker.run_once()
        inside = store.allocations.get("inside")
        said = [event.reason for event in inside.history]
        assert any("routes stand already, confirmed in the switches" in reason for reason in said)
        routes, keys = inside.routes_confirmed, inside.keys_confirmed
        assert routes is not None
        assert keys is not None
        assert (routes.by, routes.generation) == (ConfirmedBy.SWITCHES, keys.generation)
        assert (inside.state, store.allocations.get("across").state) == (State.ACTIVE,) * 2
        placed = [each.placed for each in store.allocations.page() if each.placed is not None]
        assert leaving(here, placed) == set()


def test_a_set_with_the_same_files_needs_no_sweep():
    """The switches are read afresh: tables that another manager wrote meanwhile are found."""
    with reading_blocks() as here:
        here.boot(TENANTS[:2])
        log = here.sim.directory / "osm.log"
        sweeps = log.read_text().count("SUBNET UP")
        here.change(TENANTS[:2])
        assert log.read_text().count("SUBNET UP") == sweeps
        with attacked(here, TENANTS[1], Random(3)):
            here.manager = LocalSubnetManager(here.sim.directory / "files", here.opensm, patience=1)
            assert "differ" in str(here.manager.applied("site").problem)
        here.manager = LocalSubnetManager(here.sim.directory / "files", here.opensm, patience=300)
        here.confirm()
        with attacked(here, TENANTS[1], Random(3)):
            here.manager.publish(here.state(TENANTS[:2]))
            assert leaving(here, TENANTS[:2]) == {TENANTS[1].id}
            driver = here.manager._driver("site")
            assert driver.observe(driver.note.mark).matches is None
        here.confirm()
        here.change(TENANTS)
        assert log.read_text().count("SUBNET UP") > sweeps
