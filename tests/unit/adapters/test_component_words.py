# SPDX-License-Identifier: Apache-2.0

"""What operators and observation say of links, hosts and switches, side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest
import sqlalchemy as sa

from laas_service.adapters.db import models, soundness
from laas_service.adapters.db.engine import consistent_read
from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import AllocationFaults
from laas_service.app.records import HostState, LinkState, Observation, Source, SwitchState
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.errors import NotFound
from laas_service.domain.faults.interpretation import Cabling, interpret
from laas_service.domain.faults.memory import LinkCondition
from laas_service.domain.faults.observation import Mode, ReadingOutcome, Rules, judge
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.topology import LeafLink, Link, SpineLink
from laas_service.messages import Initiator
from tests.unit.domain.faults.model import FaultyFabric

A, B, C = LeafLink(1, 0, 1), LeafLink(1, 1, 0), SpineLink(1, 1, 0)
RULES = Rules(hold_down=2.0, breaker_share=0.2, breaker_window=10.0)


@dataclass
class Site:
    """A store with one fabric, whose readings are judged and recorded."""

    store: SqlStore
    fabric: FaultyFabric
    rules: Rules = RULES
    now: float = 1_800_000_000.0

    def __post_init__(self) -> None:
        generated = self.fabric.generated
        self.cabling = Cabling(generated.inventory)
        self.store.fabrics.add("f", generated.topology, generated.inventory)

    def look(self, after: float = 1.0, seconds: float = 10.0) -> ReadingOutcome:
        self.now += after
        reading = self.fabric.read(self.now)

        def judgement(seen: Observation) -> ReadingOutcome:
            rules = replace(self.rules, mode=seen.mode or self.rules.mode)
            interpretation = interpret(self.cabling, reading)
            return judge(seen.memory, interpretation, rules, self.now, seen.operator)

        return self.store.faults.judged("f", reading, judgement, seconds)

    def cut(self, *links: Link) -> None:
        """Cut cables, and look until the hold-down is over."""
        self.fabric.cut |= {self.fabric.cable(link) for link in links}
        for _ in range(4):
            self.look()

    def mend(self, *links: Link) -> None:
        self.fabric.cut -= {self.fabric.cable(link) for link in links}
        self.look()

    def said(self, link: Link) -> list[tuple[Source, str]]:
        words = self.store.components.words("f").links.get(link, ())
        return [(word.source, word.state) for word in words]

    @property
    def failed(self) -> set[Link]:
        return set(self.store.fabrics.ledger("f")[0].failed_links)

    @property
    def generation(self) -> int:
        return self.store.fabrics.get("f").generation

    def guid(self, level: int, at: int = 0) -> int:
        switches = self.fabric.generated.inventory.switches
        return [switch.guid for switch in switches if switch.level == level][at]

    def links_of(self, guid: int) -> set[Link]:
        cables = self.fabric.generated.inventory.cable_of_link.items()
        return {x for x, cable in cables if guid in (cable.lower.guid, cable.upper.guid)}

    def tenant(self, hosts: int) -> Allocation:
        new = AllocationRequest(
            id="t", fabric="f", name="t", project_id="blue", policy="jigsaw", hosts=hosts
        )
        self.store.admissions.admit(
            new, lambda draft: Jigsaw().propose(draft.ledger, Request("t", hosts))
        )
        placed = self.store.allocations.get("t").placed
        assert placed is not None
        return placed


@pytest.fixture
def site(store):
    yield Site(store, FaultyFabric.of(xgft="3;4,2,2;1,2,2"))
    with consistent_read(store._engine) as connection:
        assert soundness.findings(connection) == []


OBSERVED, OPERATOR = (Source.OBSERVED, "failed"), (Source.OPERATOR, "failed")


def test_links_that_fail_in_one_judgement_are_one_generation(site):
    site.look()
    before = site.store.fabrics.get("f")
    site.cut(A, B, C)
    after = site.store.fabrics.get("f")
    assert site.failed == {A, B, C}
    assert after.generation == after.routes_generation == before.generation + 1
    [word] = site.store.components.words("f").links[A]
    assert word.source is Source.OBSERVED
    assert word.since is not None
    assert word.since.timestamp() == pytest.approx(site.now - 3)
    assert word.evidence == "both ends are down"
    assert site.store.fabrics.routed("f").failed_links == (A, B, C)


def test_an_observed_fault_ends_when_the_cable_is_up(site):
    site.cut(A)
    site.mend(A)
    assert site.failed == set()
    assert site.said(A) == []
    with site.store._engine.connect() as connection:
        assert connection.execute(sa.select(models.LinkStateRow)).all() == []


def test_operator_and_observation_speak_side_by_side(site):
    site.cut(A)
    generation = site.generation
    site.store.components.set_link_state("f", A, LinkState.FAILED)
    assert site.said(A) == [OPERATOR, OBSERVED]
    site.mend(A)
    assert site.said(A) == [OPERATOR]
    site.cut(A)
    assert site.said(A) == [OPERATOR, OBSERVED]
    site.store.components.set_link_state("f", A, LinkState.UP)
    assert site.said(A) == [OBSERVED]
    assert site.failed == {A}
    assert site.generation == generation
    site.mend(A)
    assert site.failed == set()


def test_an_operator_ends_a_quarantine(site):
    site.rules = replace(RULES, flaps=2, quarantine=1000.0)
    for _ in range(2):
        site.fabric.cut.add(site.fabric.cable(A))
        site.look()
        site.mend(A)
    for _ in range(3):
        site.look()
    memory = site.store.faults.observation("f").memory
    assert memory.links[A].condition is LinkCondition.QUARANTINED
    assert site.failed == {A}
    site.store.components.set_link_state("f", A, LinkState.UP)
    site.look()
    assert site.failed == set()


def test_nothing_is_marked_by_an_observer_that_only_observes(site):
    site.store.faults.set_mode("f", Mode.OBSERVE)
    site.cut(A)
    assert site.failed == set()
    assert site.store.faults.observation("f").memory.links[A].condition is LinkCondition.FAILED
    site.store.faults.set_mode("f", None)
    site.look()
    assert site.failed == {A}


def test_an_alarm_stands_until_an_operator_acknowledges_it(site):
    lost = sorted(site.links_of(site.guid(1, 1)) | site.links_of(site.guid(1, 2)))
    site.cut(*lost)
    assert site.store.faults.observation("f").memory.alarm is not None
    assert site.failed == set()
    site.store.faults.acknowledge_alarm("f")
    for _ in range(3):
        site.look()
    assert site.store.faults.observation("f").memory.alarm is None
    assert site.failed == set(lost)


def test_readings_that_say_nothing_new_are_written_at_intervals(site):
    site.look()
    first = site.store.faults.observation("f").read_at
    site.look(after=1.0)
    assert site.store.faults.observation("f").read_at == first
    site.look(after=10.0)
    assert site.store.faults.observation("f").read_at > first
    assert site.generation == 1


def test_another_process_applies_all_changes_of_a_judgement(site):
    other = SqlStore(site.store._engine)
    other.fabrics.ledger("f")
    site.cut(A, B)
    caught_up, fresh = (
        other.fabrics.ledger("f")[0],
        SqlStore(site.store._engine).fabrics.ledger("f")[0],
    )
    assert caught_up.state() == fresh.state() == site.store.fabrics.ledger("f")[0].state()


def test_links_through_a_silent_switch_go_to_nobody_new_and_stay_with_their_owners(site):
    placed = site.tenant(16)
    spine = site.guid(3)
    theirs = site.links_of(spine) & set(placed.links(site.fabric.generated.topology))
    assert theirs
    site.fabric.silent.add(spine)
    for _ in range(6):
        site.look()
    assert site.failed == set()
    assert site.store.allocations.get("t").faults is None
    drained = set(site.store.fabrics.ledger("f")[0].drained_links)
    assert drained == site.links_of(spine)
    assert site.said(min(drained)) == [(Source.OBSERVED, "drained")]
    assert site.store.fabrics.routed("f").failed_links == ()
    site.fabric.silent.clear()
    site.look()
    assert set(site.store.fabrics.ledger("f")[0].drained_links) == set()


def test_a_failed_switch_fails_its_links_and_repair_undoes_that_alone(site):
    spine = site.guid(3)
    links = site.links_of(spine)
    own = min(links)
    site.store.components.set_link_state("f", own, LinkState.FAILED)
    generation = site.generation
    assert site.store.components.set_switch_state("f", spine, SwitchState.FAILED) == generation + 1
    assert site.failed == links
    name = site.fabric.generated.inventory.switch_of_guid[spine].name
    assert (
        site.store.components.words("f").links[max(links)][0].evidence
        == f"switch {name} has failed"
    )
    assert site.store.components.set_switch_state("f", spine, SwitchState.FAILED) == generation + 1
    site.store.components.set_link_state("f", max(links), LinkState.UP)
    assert site.failed == links
    before = site.store.fabrics.get("f").routes_generation
    site.store.components.set_switch_state("f", spine, SwitchState.UP)
    assert site.failed == links
    assert site.store.fabrics.get("f").routes_generation == before + 1
    assert site.store.components.words("f").switches[spine].state == "returning"
    site.store.components.return_switches("f", [spine])
    assert site.failed == {own}
    assert spine not in site.store.components.words("f").switches
    with pytest.raises(NotFound):
        site.store.components.set_switch_state("f", 1, SwitchState.FAILED)


def test_a_failed_leaf_fails_its_hosts_and_a_drain_outlives_the_repair(site):
    leaf = site.guid(1)
    site.store.components.set_leaf_state("f", leaf, HostState.DRAINED)
    site.store.components.set_switch_state("f", leaf, SwitchState.FAILED)
    ledger = site.store.fabrics.ledger("f")[0]
    assert set(ledger.failed_hosts) == {0, 1, 2, 3}
    assert site.failed == site.links_of(leaf)
    site.store.components.set_switch_state("f", leaf, SwitchState.UP)
    assert set(site.store.fabrics.ledger("f")[0].failed_hosts) == {0, 1, 2, 3}
    site.store.components.return_switches("f", [leaf])
    ledger = site.store.fabrics.ledger("f")[0]
    assert (set(ledger.failed_hosts), set(ledger.drained_hosts)) == (set(), {0, 1, 2, 3})
    site.store.components.set_leaf_state("f", leaf, HostState.UP)
    assert set(site.store.fabrics.ledger("f")[0].drained_hosts) == set()


def test_maintenance_of_a_switch_is_told_to_the_owners_of_its_links(site):
    placed = site.tenant(12)
    spine = site.guid(3)
    theirs = site.links_of(spine) & set(placed.links(site.fabric.generated.topology))
    assert theirs
    routes = site.store.fabrics.get("f").routes_generation
    site.store.components.set_switch_state("f", spine, SwitchState.MAINTENANCE)
    assert site.store.fabrics.get("f").routes_generation == routes
    record = site.store.allocations.get("t")
    tree = site.fabric.generated.topology.tree
    assert record.faults == AllocationFaults(drained=tuple(sorted(theirs, key=tree.link_id)))
    assert "under maintenance" in record.history[-1].reason
    assert set(site.store.fabrics.ledger("f")[0].drained_links) == site.links_of(spine)
    site.store.components.set_switch_state("f", spine, SwitchState.UP)
    assert site.store.allocations.get("t").faults is None
    assert set(site.store.fabrics.ledger("f")[0].drained_links) == site.links_of(spine)
    site.store.components.return_switches("f", [spine])
    assert set(site.store.fabrics.ledger("f")[0].drained_links) == set()


def test_a_switch_that_is_not_repaired_does_not_return(site):
    spine = site.guid(3)
    site.store.components.set_switch_state("f", spine, SwitchState.FAILED)
    site.store.components.return_switches("f", [spine])
    assert site.failed == site.links_of(spine)
    site.store.components.set_switch_state("f", spine, SwitchState.UP)
    generation = site.generation
    assert site.store.components.set_switch_state("f", spine, SwitchState.UP) == generation
    site.store.components.set_switch_state("f", spine, SwitchState.MAINTENANCE)
    site.store.components.return_switches("f", [spine])
    assert set(site.store.fabrics.ledger("f")[0].drained_links) == site.links_of(spine)
    assert site.failed == set()


def test_operators_and_observation_at_the_same_time_leave_both_words(site):
    """A word of an operator between the reading of the memory and its writing is not lost."""
    other, links = SqlStore(site.store._engine), sorted(site.links_of(site.guid(3)))
    site.fabric.cut |= {site.fabric.cable(link) for link in links}
    with ThreadPoolExecutor() as threads:
        readings = threads.submit(lambda: [site.look() for _ in range(6)])
        for link in links:
            other.components.set_link_state("f", link, LinkState.FAILED)
        readings.result()
    assert site.failed == set(links)
    assert all(set(site.said(link)) == {OPERATOR, OBSERVED} for link in links)
    fresh = SqlStore(site.store._engine)
    assert site.store.fabrics.ledger("f")[0].state() == fresh.fabrics.ledger("f")[0].state()


def test_hosts_of_a_dead_leaf_go_to_nobody_until_it_is_back(site):
    leaf = site.guid(1, 3)
    site.fabric.dead.add(leaf)
    for _ in range(4):
        site.look()
    ledger = site.store.fabrics.ledger("f")[0]
    assert set(ledger.failed_hosts) == {12, 13, 14, 15}
    [word] = site.store.components.words("f").hosts[13]
    assert (word.source, word.state, word.by) == (Source.OBSERVED, "failed", None)
    assert word.evidence == "its switch leaf-1-1 is dead"
    assert word.since.timestamp() == pytest.approx(site.now - 3)
    refused = site.store.admissions.admit(
        AllocationRequest(
            id="t", fabric="f", name="t", project_id="blue", policy="jigsaw", hosts=16
        ),
        lambda draft: Jigsaw().propose(draft.ledger, Request("t", 16)),
    )
    assert isinstance(refused, NoFit)
    assert "4 more are failed or drained" in refused.detail
    site.store.components.set_host_state("f", 12, HostState.DRAINED)
    site.fabric.dead.clear()
    site.look()
    site.look()
    ledger = site.store.fabrics.ledger("f")[0]
    assert (set(ledger.failed_hosts), set(ledger.drained_hosts)) == (set(), {12})
    fresh = SqlStore(site.store._engine).fabrics.ledger("f")[0]
    assert fresh.state() == ledger.state()


def test_hosts_of_a_silent_leaf_stay_with_their_owners_and_go_to_nobody_new(site):
    placed = site.tenant(16)
    leaf = site.guid(1, 3)
    site.fabric.silent.add(leaf)
    for _ in range(4):
        site.look()
    ledger = site.store.fabrics.ledger("f")[0]
    assert (set(ledger.failed_hosts), set(ledger.drained_hosts)) == (set(), {12, 13, 14, 15})
    assert site.store.allocations.get("t").faults is None
    assert site.store.allocations.get("t").placed == placed
    [word] = site.store.components.words("f").hosts[12]
    assert (word.state, word.evidence) == ("drained", "its switch leaf-1-1 does not answer")


def test_hosts_stay_as_they_are_during_an_alarm_and_for_an_observer_that_only_observes(site):
    site.store.faults.set_mode("f", Mode.OBSERVE)
    site.fabric.dead.add(site.guid(1, 3))
    for _ in range(4):
        site.look()
    assert set(site.store.fabrics.ledger("f")[0].failed_hosts) == set()
    site.store.faults.set_mode("f", Mode.ACT)
    site.fabric.dead.add(site.guid(1, 2))
    site.look()
    for _ in range(4):
        site.look()
    assert site.store.faults.observation("f").memory.alarm is not None
    assert set(site.store.fabrics.ledger("f")[0].failed_hosts) <= {12, 13, 14, 15}


BY = Initiator("req-1", "olga", "admins")


def test_every_word_of_an_operator_has_a_name(site):
    store, spine, leaf = site.store, site.guid(3), site.guid(1, 1)
    store.components.set_link_state("f", A, LinkState.FAILED, by=BY)
    store.components.set_host_state("f", 0, HostState.FAILED, by=BY)
    store.components.set_leaf_state("f", leaf, HostState.DRAINED, by=BY)
    store.components.set_switch_state("f", spine, SwitchState.FAILED, by=BY)
    store.faults.set_mode("f", Mode.ACT, by=BY)
    words = store.components.words("f")
    said = [words.links[A], words.hosts[0], words.hosts[4], words.links[min(site.links_of(spine))]]
    assert [word.by for [word] in said] == [BY] * 4
    assert words.switches[spine].by == BY
    assert store.faults.observation("f").mode_by == BY
    other = replace(BY, user_id="otto")
    store.components.set_link_state("f", A, LinkState.FAILED, by=other)
    assert store.components.words("f").links[A][0].by == BY
    store.components.set_host_state("f", 0, HostState.DRAINED, by=other)
    assert store.components.words("f").hosts[0][0].by == other
    store.components.set_link_state("f", A, LinkState.UP, by=other)
    store.components.set_leaf_state("f", leaf, HostState.UP, by=other)
    assert A not in store.components.words("f").links
    assert 4 not in store.components.words("f").hosts


def test_who_accepted_an_alarm_is_recorded(site):
    site.store.faults.acknowledge_alarm("f", by=BY)
    assert site.store.faults.observation("f").acknowledged is None
    site.cut(*site.links_of(site.guid(1, 1)), *site.links_of(site.guid(1, 2)))
    alarm = site.store.faults.observation("f").memory.alarm
    site.store.faults.acknowledge_alarm("f", by=BY)
    accepted = site.store.faults.observation("f").acknowledged
    assert (accepted.text, accepted.by) == (alarm.text, BY)


def test_what_earlier_releases_recorded_is_the_operators_word(site):
    site.store.components.set_link_state("f", A, LinkState.FAILED)
    with site.store._engine.begin() as connection:
        connection.execute(sa.update(models.LinkStateRow).values(operator_since=None))
    [word] = site.store.components.words("f").links[A]
    assert (word.source, word.state, word.since) == (Source.OPERATOR, "failed", None)
