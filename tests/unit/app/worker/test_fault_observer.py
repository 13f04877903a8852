# SPDX-License-Identifier: Apache-2.0

"""Observed faults: from a reading to other links for the tenants, in one round of a worker."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import permutations
from random import Random

import pytest

from laas_service.adapters.db import soundness
from laas_service.adapters.db.engine import consistent_read
from laas_service.adapters.db.leases import SqlLeases
from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import State
from laas_service.app.records import AllocationRecord, LinkState, Source, SwitchState
from laas_service.app.requests import AllocationRequest
from laas_service.app.worker.port_events import PortEvents
from laas_service.app.worker.round import Pace
from laas_service.domain.allocation import Request
from laas_service.domain.errors import LeaseLost, Unavailable
from laas_service.domain.faults.interpretation import UnreadSwitch as ObservedState
from laas_service.domain.faults.observation import UNDECIDED, Mode, Rules
from laas_service.domain.inventory import PortRef
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.topology import LeafLink, Link, SpineLink
from laas_service.messages import FabricState
from opensm_writer.desired import subnet_configuration
from tests.convergers import Convergers
from tests.fakes import FakeCompute, FakeSubnetManager
from tests.unit.domain.faults.model import FaultyFabric

RULES = Rules(hold_down=2.0, breaker_share=0.2, breaker_window=10.0, reading_lifetime=30.0)


@dataclass
class Site:
    """A fabric with faults, a subnet manager that reads its ports, and the worker."""

    store: SqlStore
    rules: Rules = RULES
    fabric: FaultyFabric = field(default_factory=lambda: FaultyFabric.of(xgft="3;2,2,2;1,4,4"))
    compute: FakeCompute = field(default_factory=FakeCompute)
    switches: FakeSubnetManager = field(default_factory=FakeSubnetManager)
    now: float = 1_800_000_000.0
    pace: Pace = field(default_factory=lambda: Pace(0.1, 0.1))
    options: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        generated = self.fabric.generated
        self.store.fabrics.add("f", generated.topology, generated.inventory)
        self.converger = self.restarted()

    def restarted(self, store: SqlStore | None = None) -> Convergers:
        """A new worker, that remembers nothing."""
        self.again: list[float] = []
        self.converger = Convergers(
            store or self.store,
            self.compute,
            self.switches,
            now=lambda: datetime.fromtimestamp(self.now, UTC),
            chance=Random(1),
            pace=self.pace,
            again=self.again.append,
            faults=self.rules,
            **self.options,
        )
        return self.converger

    def round(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.switches.readings["f"] = self.fabric.read(self.now)
        self.converger.run_once()

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.round()

    def ask(self, hosts: int, id: str = "t") -> None:
        new = AllocationRequest(
            id=id, fabric="f", name=id, project_id="blue", policy="jigsaw", hosts=hosts
        )
        self.store.admissions.admit(
            new, lambda draft: Jigsaw().propose(draft.ledger, Request(id, hosts))
        )

    def state(self, id: str = "t") -> State:
        return self.store.allocations.get(id).state

    def tenant(self, hosts: int = 6) -> set[Link]:
        """An active tenant on two pods; its links."""
        self.ask(hosts)
        self.round()
        assert self.record.state is State.ACTIVE
        return self.links

    @property
    def record(self) -> AllocationRecord:
        return self.store.allocations.get("t")

    @property
    def links(self) -> set[Link]:
        placed = self.record.placed
        assert placed is not None
        return set(placed.links(self.fabric.generated.topology))

    @property
    def failed(self) -> set[Link]:
        return set(self.store.fabrics.ledger("f")[0].failed_links)

    @property
    def published(self) -> int:
        return self.switches.published["f"].generation

    def cut(self, *links: Link) -> None:
        self.fabric.cut |= {self.fabric.cable(link) for link in links}

    def mend(self, *links: Link) -> None:
        self.fabric.cut -= {self.fabric.cable(link) for link in links}

    def spine_of(self, link: Link) -> int:
        return self.fabric.cable(link).upper.guid


@pytest.fixture
def site(store):
    yield Site(store)
    with consistent_read(store._engine) as connection:
        assert soundness.findings(connection) == []


def spine_link(links: set[Link]) -> SpineLink:
    return min(link for link in links if isinstance(link, SpineLink))


def test_a_tenant_gets_other_links_for_a_cut_one_without_an_operators_word(site):
    cut = spine_link(site.tenant())
    site.cut(cut)
    site.rounds(2)
    assert cut in site.links
    site.round()
    record = site.record
    assert (record.state, record.faults, record.change) == (State.ACTIVE, None, None)
    assert cut not in site.links
    assert site.published == site.store.fabrics.get("f").routes_generation
    assert site.switches.running["f"].failed_links == (cut,)
    assert any("failed: link" in event.reason for event in record.history)
    site.mend(cut)
    site.round()
    assert site.failed == set()


def test_a_restart_of_the_worker_in_the_hold_down_keeps_the_time(site):
    cut = spine_link(site.tenant())
    site.cut(cut)
    site.round()
    site.restarted()
    site.round()
    assert site.failed == set()
    site.round()
    assert site.failed == {cut}


def test_a_dead_spine_is_one_generation_and_a_new_tenant_gets_no_link_of_it(site):
    dead = site.spine_of(spine_link(site.tenant()))
    site.fabric.dead.add(dead)
    site.rounds(3)
    cables = site.fabric.generated.inventory.cable_of_link.items()
    assert site.failed == {x for x, cable in cables if dead in (cable.lower.guid, cable.upper.guid)}
    assert not site.failed & site.links


def test_no_packet_of_a_tenant_crosses_exchanged_cables(site):
    """They are out of use at the first reading, without a hold-down, until they are back."""
    links = site.tenant()
    mine = spine_link(links)
    other = next(
        link
        for link in sorted(site.fabric.generated.inventory.cable_of_link)
        if isinstance(link, SpineLink) and link not in links and link[:2] == mine[:2]
    )
    site.fabric.exchange(mine, other)
    site.round()
    assert site.failed == {mine, other}
    [word] = site.store.components.words("f").links[mine]
    assert word.source is Source.OBSERVED
    assert "is linked to" in word.evidence
    assert mine not in site.links
    running = site.switches.running["f"]
    assert set(running.moved_links) == {mine, other}
    assert crossings(site.fabric, running) == []
    assert len(site.store.faults.observation("f").news) == 4
    before = site.published
    site.round()
    assert site.published == before
    site.fabric.exchanged.clear()
    site.round()
    assert site.failed == set()
    assert site.switches.running["f"].moved_links == ()


def test_a_tenant_without_other_links_sends_nothing_over_exchanged_cables(site):
    links = site.tenant(8)
    inventory = site.fabric.generated.inventory
    mine, other = sorted(link for link in links if isinstance(link, LeafLink))[:2]
    for link in sorted(inventory.cable_of_link):
        if isinstance(link, LeafLink) and link not in links:
            site.store.components.set_link_state("f", link, LinkState.FAILED)
    site.fabric.exchange(mine, other)
    site.rounds(2)
    assert site.record.faults.links
    running = site.switches.running["f"]
    assert set(running.moved_links) == {mine, other}
    assert crossings(site.fabric, running) == []
    assert crossings(site.fabric, replace(running, moved_links=()))


def test_a_failed_link_that_is_moved_later_is_closed(site):
    cut, other = sorted(link for link in site.tenant() if isinstance(link, SpineLink))[:2]
    site.cut(cut)
    site.rounds(3)
    before = site.store.fabrics.get("f")
    assert site.switches.running["f"].moved_links == ()
    site.mend(cut)
    site.fabric.exchange(cut, other)
    site.round()
    after = site.store.fabrics.get("f")
    assert cut in site.switches.running["f"].moved_links
    assert after.routes_generation > before.routes_generation


def test_a_moved_link_is_recorded_as_closed_only_if_observation_may_act(site):
    cut, other = sorted(link for link in site.tenant() if isinstance(link, SpineLink))[:2]
    site.cut(cut)
    site.rounds(3)
    site.store.faults.set_mode("f", Mode.OBSERVE)
    before = site.store.fabrics.get("f").generation
    site.mend(cut)
    site.fabric.exchange(cut, other)
    site.rounds(2)
    assert site.store.fabrics.get("f").generation == before


def crossings(fabric: FaultyFabric, state: FabricState) -> list[str]:
    """Every packet between hosts of a tenant that crosses a cable which is not plugged as
    recorded: follows the published tables over the cables as they are."""
    tables = subnet_configuration(state).tables
    inventory = state.inventory
    there: dict[PortRef, PortRef] = {}
    for cable in inventory.cables:
        there |= {cable.lower: cable.upper, cable.upper: cable.lower}
    there |= fabric.exchanged
    found = []
    for tenant in state.tenants:
        hosts = list(tenant.allocation.hosts(state.topology))
        ports = [inventory.endpoint_of_port[host, 0] for host in hosts]
        for source, target in permutations(ports, 2):
            switch, hops = source.at.guid, 0
            while (port := tables.port(switch, target.guid)) is not None and hops < 10:
                here = PortRef(switch, port)
                if here not in there:
                    break
                if here in fabric.exchanged:
                    found.append(f"{source.name} to {target.name} over {here}")
                switch, hops = there[here].guid, hops + 1
    return found


def test_an_alarm_marks_and_publishes_nothing_until_it_is_acknowledged(site):
    links = sorted(link for link in site.tenant() if isinstance(link, SpineLink))
    dead = {site.spine_of(links[0]), site.spine_of(links[-1])}
    assert len(dead) == 2
    before = site.published
    site.fabric.dead |= dead
    site.rounds(5)
    assert site.failed == set()
    assert site.published == before
    assert "2 of" in site.store.faults.observation("f").memory.alarm.text
    site.store.faults.acknowledge_alarm("f")
    site.rounds(2)
    assert site.failed
    assert not site.failed & site.links


def test_an_operators_failed_stays_when_the_cable_is_up(site):
    link = spine_link(site.tenant())
    site.store.components.set_link_state("f", link, LinkState.FAILED)
    site.cut(link)
    site.rounds(3)
    site.mend(link)
    site.rounds(3)
    assert site.failed == {link}
    site.store.components.set_link_state("f", link, LinkState.UP)
    site.round()
    assert site.failed == set()


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.FROZEN])
def test_nothing_is_changed_by_observation_in_the_other_modes(site, mode):
    links = site.tenant()
    site.store.faults.set_mode("f", mode)
    before = site.store.fabrics.get("f").generation
    site.cut(spine_link(links))
    site.rounds(4)
    assert (site.store.fabrics.get("f").generation, site.links) == (before, links)


def test_a_frozen_fabric_keeps_its_routes_until_it_is_released(site):
    links = site.tenant()
    site.store.faults.set_mode("f", Mode.FROZEN)
    before = site.published
    failed = spine_link(links)
    site.store.components.set_link_state("f", failed, LinkState.FAILED)
    site.rounds(2)
    assert (site.published, site.links) == (before, links)
    site.store.faults.set_mode("f", Mode.ACT)
    site.round()
    assert failed not in site.links
    assert site.published == site.store.fabrics.get("f").routes_generation


@pytest.mark.parametrize("restart", [False, True], ids=["same worker", "new worker"])
def test_nothing_is_published_while_frozen_and_all_at_once_afterwards(site, restart):
    """Whatever waits is due at the release, not after its pause; no reconcile is needed."""
    site.pace = Pace(3600.0, 3600.0, apply_timeout=3600.0)
    site.restarted()
    links = site.tenant()
    site.store.faults.set_mode("f", Mode.FROZEN)
    before = site.published
    site.ask(2, "u")
    site.store.components.set_link_state("f", spine_link(links), LinkState.FAILED)
    site.rounds(2)
    if restart:
        site.restarted()
        site.rounds(2)
        site.converger.reconcile()
        site.converger.check_drift()
    site.rounds(2)
    assert (site.published, site.state("u")) == (before, State.ALLOCATING)
    site.store.faults.set_mode("f", Mode.ACT)
    site.round()
    assert site.published == site.store.fabrics.get("f").routes_generation > before
    assert site.state("u") is State.ACTIVE
    assert spine_link(links) not in site.links


def test_an_operators_word_during_a_freeze_is_published_by_a_new_worker_at_once(site):
    """No allocation waits for it."""
    site.tenant(2)
    site.store.faults.set_mode("f", Mode.FROZEN)
    before = site.published
    free = next(iter(site.fabric.generated.inventory.cable_of_link))
    site.store.components.set_link_state("f", free, LinkState.FAILED)
    site.restarted()
    site.rounds(2)
    assert site.published == before
    site.store.faults.set_mode("f", Mode.OBSERVE)
    site.round()
    assert site.published == site.store.fabrics.get("f").routes_generation > before


def silence(site: Site, mode: Mode = Mode.ACT) -> int:
    """A silent spine that the tenant uses."""
    spine = site.spine_of(spine_link(site.links))
    site.store.faults.set_mode("f", mode)
    site.fabric.silent.add(spine)
    site.switches.unconfirmed = (spine,)
    site.rounds(4)
    return spine


def test_nobody_new_gets_links_through_a_silent_switch_and_the_rest_goes_on(site):
    links = site.tenant()
    spine = silence(site)
    assert (site.state(), site.links, site.record.faults) == (State.ACTIVE, links, None)
    site.ask(2, "u")
    site.round()
    assert site.state("u") is State.ACTIVE
    site.store.faults.set_mode("f", Mode.ACT)
    placed = site.store.allocations.get("u").placed
    mine = set(placed.links(site.fabric.generated.topology))
    assert not mine & links_of(site, spine)


@pytest.mark.parametrize("mode", [Mode.ACT, Mode.OBSERVE])
def test_released_links_behind_a_silent_switch_go_to_nobody_until_it_is_compared(site, mode):
    """Observation withholds them; where it may not, the release waits with its claims."""
    theirs = site.tenant()
    spine = silence(site, mode)
    site.store.allocations.transition(site.record, State.RELEASING, "enough")
    site.rounds(3)
    behind = links_of(site, spine)
    ledger = site.store.fabrics.ledger("f")[0]
    if mode is Mode.ACT:
        assert site.state() is State.RELEASED
        assert behind <= ledger.drained_links
    else:
        assert site.state() is State.RELEASING
        assert theirs & behind <= ledger.owners_of_links().keys()
        assert "may forward by old tables" in site.record.error
    site.fabric.silent.clear()
    site.rounds(2)
    ledger = site.store.fabrics.ledger("f")[0]
    assert theirs & behind <= ledger.drained_links | ledger.owners_of_links().keys()
    site.switches.unconfirmed = ()
    site.rounds(2)
    ledger = site.store.fabrics.ledger("f")[0]
    assert site.state() is State.RELEASED
    assert not theirs & (ledger.drained_links | ledger.owners_of_links().keys())


def test_a_tenant_placed_through_a_silent_switch_is_not_active_before_it_is_compared(site):
    """It asked before observation could know, or observation may not withhold links."""
    site.store.faults.set_mode("f", Mode.OBSERVE)
    site.ask(6)
    spine = site.spine_of(spine_link(site.links))
    site.fabric.silent.add(spine)
    site.switches.unconfirmed = (spine,)
    site.rounds(3)
    assert site.state() is State.ALLOCATING
    name = site.fabric.generated.inventory.switch_of_guid[spine].name
    assert f"waiting for {name}, which may forward by old tables" in site.record.error
    site.store.components.set_switch_state("f", spine, SwitchState.FAILED)
    site.rounds(4)
    assert site.state() is State.ACTIVE
    assert not site.links & links_of(site, spine)


def test_a_worker_that_lost_its_lease_records_nothing(site):
    leases = SqlLeases(site.store._engine)
    lease = leases.take("f", "one", 60.0)
    assert lease is not None
    site.restarted(site.store.under(lease))
    cut = spine_link(site.tenant())
    site.cut(cut)
    site.rounds(2)
    assert lease is not None
    leases.give_back(lease)
    leases.take("f", "two", 60.0)
    with pytest.raises(LeaseLost):
        site.round()
    assert site.failed == set()


def test_steps_are_taken_if_the_ports_cannot_be_read(site, monkeypatch):
    def reading(fabric: str) -> None:
        raise Unavailable("iblinkinfo does not answer")

    monkeypatch.setattr(site.switches, "reading", reading)
    assert site.tenant()


def test_tenants_leave_a_switch_under_maintenance_where_they_can(site):
    link = spine_link(site.tenant())
    spine = site.spine_of(link)
    site.store.components.set_switch_state("f", spine, SwitchState.MAINTENANCE)
    site.round()
    assert link not in site.links
    assert (site.record.faults, site.record.error) == (None, None)


def links_of(site: Site, switch: int) -> set[Link]:
    cables = site.fabric.generated.inventory.cable_of_link.items()
    return {x for x, cable in cables if switch in (cable.lower.guid, cable.upper.guid)}


def test_a_switch_that_comes_back_is_compared_before_its_links_are_used(site):
    spine = site.spine_of(spine_link(site.tenant()))
    site.fabric.dead.add(spine)
    site.switches.without = (spine,)
    site.rounds(3)
    links = links_of(site, spine)
    assert site.failed == links
    site.fabric.dead.clear()
    site.switches.without, site.switches.differing = (), {spine}
    before = site.published
    site.rounds(10)
    assert site.failed == links
    assert site.published == before
    [word] = site.store.components.words("f").links[min(links)]
    assert word.evidence == "its switch answers again, and its tables are not compared yet"
    assert (
        site.store.faults.observation("f").memory.switches[spine].state is ObservedState.RETURNING
    )
    site.restarted()
    site.rounds(2)
    assert site.failed == links
    site.switches.differing = set()
    site.rounds(2)
    assert site.failed == set()
    assert site.store.faults.observation("f").memory.switches == {}
    assert site.published == site.store.fabrics.get("f").routes_generation > before


def test_a_silent_switch_that_answers_is_compared_before_its_links_are_given_away(site):
    spine = site.fabric.generated.inventory.spine_guids[0]
    site.fabric.silent.add(spine)
    site.switches.unconfirmed = (spine,)
    site.rounds(4)
    drained = set(site.store.fabrics.ledger("f")[0].drained_links)
    assert drained == links_of(site, spine)
    site.fabric.silent.clear()
    site.rounds(4)  # the ports are read, but the tables of the switch were not
    assert set(site.store.fabrics.ledger("f")[0].drained_links) == drained
    site.switches.unconfirmed = ()
    site.rounds(2)
    assert set(site.store.fabrics.ledger("f")[0].drained_links) == set()


def test_a_returning_switch_that_dies_again_is_a_new_loss(site):
    spine = site.fabric.generated.inventory.spine_guids[0]
    site.tenant()
    site.fabric.dead.add(spine)
    site.switches.without = (spine,)
    site.rounds(3)
    site.fabric.dead.clear()
    site.rounds(2)
    site.fabric.dead.add(spine)
    site.rounds(3)
    assert site.store.faults.observation("f").memory.switches[spine].state is ObservedState.DEAD
    assert site.failed == links_of(site, spine)


def test_a_repaired_switch_is_usable_once_a_new_generation_is_confirmed(site):
    """Also if nobody noticed that it was rebooted."""
    spine = site.spine_of(spine_link(site.tenant()))
    site.store.components.set_switch_state("f", spine, SwitchState.MAINTENANCE)
    site.round()
    site.switches.differing = {spine}
    site.store.components.set_switch_state("f", spine, SwitchState.UP)
    site.rounds(3)
    assert set(site.store.fabrics.ledger("f")[0].drained_links) == links_of(site, spine)
    site.switches.differing, site.switches.unconfirmed = set(), (spine,)
    site.rounds(2)
    assert set(site.store.fabrics.ledger("f")[0].drained_links) == links_of(site, spine)
    site.switches.unconfirmed = ()
    site.rounds(2)
    assert set(site.store.fabrics.ledger("f")[0].drained_links) == set()


def test_a_switch_that_is_repaired_while_it_is_dead_returns_when_it_is_back(site):
    spine = site.spine_of(spine_link(site.tenant()))
    site.store.components.set_switch_state("f", spine, SwitchState.FAILED)
    site.fabric.dead.add(spine)
    site.switches.without = (spine,)
    site.rounds(3)
    site.store.components.set_switch_state("f", spine, SwitchState.UP)
    site.rounds(3)
    assert site.store.components.words("f").switches[spine].state == "returning"
    assert site.failed == links_of(site, spine)
    site.fabric.dead.clear()
    site.switches.without = ()
    site.rounds(4)
    assert site.failed == set()
    assert site.store.components.words("f").switches == {}


def test_tenants_that_cannot_leave_keep_their_links_and_say_so(site):
    links = site.tenant()
    for switch in site.fabric.generated.inventory.switches:
        if switch.level == 3:
            site.store.components.set_switch_state("f", switch.guid, SwitchState.MAINTENANCE)
    site.round()
    assert (site.record.state, site.links) == (State.ACTIVE, links)
    assert "not moved before maintenance" in site.record.error


def test_the_fabric_is_observed_again_when_a_hold_down_ends(site):
    cut = spine_link(site.tenant())
    assert site.again == []
    site.cut(cut)
    site.round()
    assert site.again == [RULES.hold_down]
    site.round(0.5)
    assert site.again == [RULES.hold_down, RULES.hold_down - 0.5]
    site.round(RULES.hold_down - 0.5)
    assert cut in site.failed
    assert len(site.again) == 2


def test_the_fabric_is_observed_again_if_the_reading_is_older_than_the_hold_down(site):
    """The reading took longer than the hold-down; nothing else may wake the worker."""
    cut = spine_link(site.tenant())
    site.cut(cut)
    site.switches.readings["f"] = site.fabric.read(site.now)
    site.now += 2 * RULES.hold_down
    site.converger.run_once()
    assert cut not in site.failed
    assert site.again == [UNDECIDED]
    site.round()
    assert cut in site.failed
    assert site.again == [UNDECIDED]


def test_switches_are_not_read_for_drift_during_a_hold_down(site):
    """Reading all tables of a large fabric takes seconds, and the fault would wait for it."""

    def readings() -> int:
        before = len(site.switches.faults.calls)
        site.converger.check_drift()
        return [call[0] for call in site.switches.faults.calls[before:]].count("applied")

    cut = spine_link(site.tenant())
    site.round()
    assert readings() == 1
    site.cut(cut)
    site.round()
    assert readings() == 0
    site.round(RULES.hold_down)
    assert cut in site.failed
    assert readings() == 1


def test_no_reading_of_all_tables_begins_during_a_hold_down(site):
    site.switches.prepares = False
    site.round()
    assert not site.converger.prepared()
    site.cut(spine_link(site.tenant()))
    site.round()
    assert site.converger.prepared()  # nothing is asked for, and nothing is compared
    site.round(RULES.hold_down)
    assert not site.converger.prepared()


def test_without_a_hold_down_the_first_reading_decides(store):
    site = Site(store, replace(RULES, hold_down=0.0))
    cut = spine_link(site.tenant())
    site.cut(cut)
    site.round()
    assert cut in site.failed


def test_an_event_wakes_the_worker():
    woken, events = threading.Event(), iter([False, True])
    watch = PortEvents(lambda: next(events, False), woken.set, interval=0.01)
    watch.start()
    assert woken.wait(60)
    watch.stop(60)
