# SPDX-License-Identifier: Apache-2.0

"""The worker beside the real OpenSM reads the ports, and confirms without a dead switch."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest

from laas_service.adapters.db.transactions import utc_now
from laas_service.adapters.fabric_import import generator
from laas_service.app.requests import AllocationRequest
from laas_service.app.worker.round import CounterMode
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Request
from laas_service.domain.faults.counters import CounterRules, SwitchCounters, Tolerance
from laas_service.domain.faults.observation import Rules
from laas_service.domain.faults.reading import PortState
from laas_service.domain.inventory import PortRef
from laas_service.domain.policies.jigsaw import Jigsaw
from opensm_writer import parse
from opensm_writer.local import LocalSubnetManager
from tests.convergers import Observing
from tests.drafts import on_ledger
from tests.functional.test_opensm import TENANTS, site, top_guid, tree_site
from tests.marks import needs_ibsim
from tests.waiting import eventually

pytestmark = needs_ibsim


@pytest.fixture
def here():
    topology, inventory, sm = tree_site(aggregation_nodes=False)
    with site(topology, inventory, sm) as made:
        command = (*made.dump[:-2], "iblinkinfo", "-l", "-o", "16", "-t", "200")
        made.opensm = replace(made.opensm, links_command=command, links_interval=3600)
        made.manager = LocalSubnetManager(made.sim.directory / "files", made.opensm, patience=60)
        made.start = ("-f", "osm.log", "-s", "2", "-D", "0x43", "--dump_files_dir", ".")
        made.boot(TENANTS[:2])
        yield made


def states(here):
    reading = here.manager.reading("site")
    return {end: state for end, state, _ in reading.ends} if reading else None


def until(here, expected, what):
    eventually(lambda: states(here) == expected, lambda: f"{what}: {states(here)}")


def cables_of(here, guid):
    """Its own end, the other end."""
    return [
        (end, other)
        for pair in here.inventory.cable_ends
        for end, other in (pair, pair[::-1])
        if end.guid == guid
    ]


def test_a_cut_cable_is_read_after_the_trap(here):
    """The interval is an hour: only OpenSM's log makes the worker look again."""
    until(here, {}, "all is up")
    reading = here.manager.reading("site")
    assert reading.switches_read == len(here.inventory.switches)
    assert reading.observer is not None
    assert reading.observer.guid == here.sm
    first, second = next(
        cable for cable in here.inventory.cable_ends if cable[1].port and cable[0].guid
    )
    here.sim.console(f'Unlink "S-{first.guid:016x}"[{first.port}]')
    until(here, {first: PortState.DOWN, second: PortState.DOWN}, "the cable is down")
    here.sim.console(
        f'Link "S-{first.guid:016x}"[{first.port}] "S-{second.guid:016x}"[{second.port}]'
    )
    until(here, {}, "all is up again")


def test_a_dead_spine_is_left_out_until_it_returns(here):
    until(here, {}, "all is up")
    spine = here.inventory.spine_guids[0]
    here.sim.console(f'Unlink "S-{spine:016x}"')
    expected: dict[PortRef, PortState] = {}
    for end, other in cables_of(here, spine):
        expected |= {end: PortState.UNREAD, other: PortState.DOWN}
    until(here, expected, "the spine is dead")
    here.change(TENANTS[:3])
    eventually(
        lambda: (
            (a := here.manager.applied("site")).generation == here.generation
            and a.without == (spine,)
        ),
        lambda: f"the dead switch is left out: {here.manager.applied('site')}",
    )
    for end, other in cables_of(here, spine):
        here.sim.console(
            f'Link "S-{end.guid:016x}"[{end.port}] "S-{other.guid:016x}"[{other.port}]'
        )
    until(here, {}, "all is up again")
    eventually(
        lambda: (a := here.manager.applied("site")).generation == here.generation and not a.without,
        lambda: f"the returned switch is compared: {here.manager.applied('site')}",
    )
    assert spine in here.rows()


def test_a_silent_spine_is_unconfirmed(here):
    until(here, {}, "all is up")
    spine = here.inventory.spine_guids[1]
    here.sim.console(f'Error "S-{spine:016x}" 100')
    expected: dict[PortRef, PortState] = {}
    for end, other in cables_of(here, spine):
        expected |= {end: PortState.UNREAD, other: PortState.SILENT}
    until(here, expected, "the spine is silent")
    here.change(TENANTS[:3])

    def is_told():
        applied = here.manager.applied("site")
        confirmed = applied.generation == here.generation
        return confirmed and (applied.without, applied.unconfirmed) == ((), (spine,))

    eventually(is_told, lambda: f"not told: {here.manager.applied('site')}")


@pytest.fixture
def small():
    """XGFT(3; 2,2,2; 1,2,2) whose counters are read with ``perfquery``."""
    made = generator.generate(generator.Description(xgft="3;2,2,2;1,2,2", subnet_managers=1))
    with site(made.topology, made.inventory, top_guid(made.inventory)) as here:
        command = (*here.dump[:-2], "perfquery", "-t", "1000")
        here.opensm = replace(here.opensm, counters_command=command, counters_rate=1e6)
        here.manager = LocalSubnetManager(here.sim.directory / "files", here.opensm, patience=60)
        here.boot([])
        yield here


def test_counters_are_read_with_perfquery(small):
    """What is read lies between two runs of the tool for one port."""
    table = {t.guid: t.lid for t in parse_tables(small)}
    switch = small.inventory.switches[0].guid
    before = words(small, table[switch])
    seen: dict[int, SwitchCounters] = {}

    def read():
        small.manager.reading("site")
        seen.update((reading.guid, reading) for reading in small.manager.counters("site"))
        return seen.keys() == {s.guid for s in small.inventory.switches}

    eventually(read, "every switch is read")
    counted = seen[switch].ports[1].values
    assert before <= counted["PortXmitData"] <= words(small, table[switch])
    assert (counted["PortRcvErrors"], counted["PortXmitConstraintErrors"]) == (0, 0)


def test_the_audit_needs_its_tolerance(small, store):
    """Management packets cross the tenant's links; ibsim counts them. No tenant sends data."""
    store.fabrics.add("site", small.topology, small.inventory)
    new = AllocationRequest(
        id="a", fabric="site", name="a", project_id="blue", policy="jigsaw", hosts=8
    )
    store.admissions.admit(new, on_ledger(partial(admit, Jigsaw(), request=Request("a", 8))))
    rules = CounterRules(tolerance=Tolerance(0.0, 0.0))
    judged = Rules(reading_lifetime=3600.0)
    strict = Observing(
        *(store, small.manager, "site", utc_now),
        faults=judged,
        counters=CounterMode.PROPOSE,
        counter_rules=rules,
    )

    def read():
        strict.round()
        return [foreign for f in store.faults.counter_findings("site") for foreign in f.foreign]

    excesses = eventually(read, "management packets are seen")
    tolerated = CounterRules().tolerance.bytes_per_second
    for foreign in excesses:
        assert foreign.owner == "a"
        assert 0 < foreign.sent - foreign.received < tolerated * foreign.seconds
    assert not any(found.errors for found in store.faults.counter_findings("site"))
    data = [f.data["a"] for f in store.faults.counter_findings("site") if "a" in f.data]
    assert sum(on_links.up + on_links.down for on_links in data) > 0


def parse_tables(here):
    pieces = parse.file_pieces(here.current / "lfts")
    return list(parse.switch_tables(pieces, "lfts"))


def words(here, lid):
    """``PortXmitData`` of a switch's first port."""
    text = here.sim.read("perfquery", "-x", str(lid), "1")
    found = re.search(r"^PortXmitData:\.+(\d+)$", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1])
