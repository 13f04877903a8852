# SPDX-License-Identifier: Apache-2.0

"""Port counters in the worker: from a reading to a proposal, a quarantine, data by allocation."""

from __future__ import annotations

import pytest

from laas_service.adapters.db.store import SqlStore
from laas_service.app.records import LinkState
from laas_service.app.views.traffic import tenant_traffic
from laas_service.app.worker.round import CounterMode
from laas_service.domain.faults.counters import (
    CounterRules,
    PortReading,
    SwitchCounters,
    Tolerance,
)
from laas_service.domain.faults.memory import LinkCondition
from laas_service.domain.faults.observation import Rules
from tests.convergers import Convergers
from tests.unit.app.worker.test_fault_observer import Site as ObservedSite

RULES = Rules(hold_down=2.0, breaker_share=0.2, quarantine=5.0, reading_lifetime=30.0)
COUNTER_RULES = CounterRules(tolerance=Tolerance(0.0, 0.0))


class Site(ObservedSite):
    """The worker's site, with counters of all ports that a test sets."""

    mode = CounterMode.MARK

    def restarted(self, store: SqlStore | None = None) -> Convergers:
        self.options = {"counters": self.mode, "counter_rules": COUNTER_RULES}
        self.rules = RULES
        super().restarted(store)
        if not hasattr(self, "values"):
            self.values = {
                (switch.guid, port): {"PortXmitData": 0, "PortRcvData": 0, "PortRcvErrors": 0}
                for switch in self.fabric.generated.inventory.switches
                for port in range(1, switch.ports + 1)
            }
        return self.converger

    def grow(self, end, **words):
        for name, more in words.items():
            self.values[end.guid, end.port][name] += more

    def counters(self):
        """A reading of every switch now."""
        ports: dict[int, dict[int, PortReading]] = {}
        for (guid, port), values in self.values.items():
            ports.setdefault(guid, {})[port] = PortReading(dict(values))
        return [SwitchCounters(guid, self.now, of_switch) for guid, of_switch in ports.items()]

    def read(self, seconds: float = 2.0) -> None:
        """A round in which the counters of all switches are read."""
        self.now += seconds
        self.switches.fresh_counters = self.counters()
        self.round(0.0)

    def errors(self):
        found = self.store.faults.counter_findings("f", errors_only=True)
        return [error.text for findings in found for error in findings.errors]

    def traffic(self):
        found = self.store.faults.counter_findings("f")
        return {t.id: t.bytes for t in tenant_traffic(found, [self.record])}

    def state_of(self, link):
        words = self.store.components.words("f").links.get(link)
        return words[0].state if words else "up"


@pytest.fixture
def site(store):
    return Site(store)


class Proposing(Site):
    mode = CounterMode.PROPOSE


class Off(Site):
    mode = CounterMode.OFF


def errors_at(site, link, count=50):
    site.read()
    site.grow(site.fabric.cable(link).upper, PortRcvErrors=count)
    site.read()


def test_a_link_with_errors_is_quarantined_and_replaced(site):
    link = min(site.tenant(), key=str)
    errors_at(site, link)
    assert site.state_of(link) == "failed"
    [word] = site.store.components.words("f").links[link]
    assert "PortRcvErrors grew by 50 in 2 s, allowed are 10 in 3600 s" in (word.evidence or "")
    assert (
        site.store.faults.observation("f").memory.links[link].condition is LinkCondition.QUARANTINED
    )
    site.rounds(3)
    assert link not in site.links


def test_a_quarantine_ends_after_the_errors_and_the_time(site):
    link = min(site.tenant(), key=str)
    errors_at(site, link)
    site.rounds(10)
    assert site.state_of(link) == "failed"
    site.read(3600.0)
    for _ in range(3):
        site.round(1.0)
    assert site.state_of(link) == "failed"
    for _ in range(4):
        site.round(1.0)
    assert site.state_of(link) == "up"


def test_an_operators_repair_ends_it_until_there_are_new_errors(site):
    link = min(site.tenant(), key=str)
    errors_at(site, link)
    site.store.components.set_link_state("f", link, LinkState.UP)
    site.round()
    assert (site.state_of(link), site.errors()) == ("up", [])
    errors_at(site, link, 5)
    assert site.state_of(link) == "up"
    errors_at(site, link, 20)
    assert site.state_of(link) == "failed"


def test_many_links_with_errors_open_the_circuit_breaker(site):
    site.tenant()
    site.read()
    for cable in site.fabric.generated.inventory.cable_of_link.values():
        site.grow(cable.lower, PortRcvErrors=50)
    site.read()
    assert site.failed == set()
    alarm = site.store.faults.observation("f").memory.alarm
    assert alarm is not None
    assert "links" in alarm.text


def test_proposing_tells_and_marks_nothing(store):
    site = Proposing(store)
    link = min(site.tenant(), key=str)
    errors_at(site, link)
    assert site.failed == set()
    assert site.errors() == ["PortRcvErrors grew by 50 in 2 s, allowed are 10 in 3600 s"]


def test_off_accounts_nothing(store):
    site = Off(store)
    errors_at(site, min(site.tenant(), key=str))
    assert site.store.faults.counter_findings("f") == []


# -- data, crashes, duplicates --------------------------------------------------------


def leaf_port(site):
    """The switch port of the tenant's first host."""
    host = min(site.record.placed.hosts(site.fabric.generated.topology))
    return next(e.at for e in site.fabric.generated.inventory.endpoints if e.host == host)


def test_data_of_a_tenant_adds_up_once(site):
    site.tenant()
    end = leaf_port(site)
    site.read()
    for _ in range(3):
        site.grow(end, PortRcvData=100, PortXmitData=10)
        site.read()
        late = site.counters()
        site.switches.fresh_counters = late  # the report comes twice
        site.round(0.0)
    assert site.traffic()["t"]["injected"] == 4 * 300
    assert site.traffic()["t"]["delivered"] == 4 * 30
    again: list[object] = []
    site.store.faults.account_counters("f", lambda *reading: again.append(reading))
    assert again == []  # every reading is accounted


class Killed(BaseException):
    """kill -9 of the worker."""


@pytest.mark.parametrize(
    "step",
    [
        "before commit: record counters",
        "after commit: record counters",
        "before commit: account counters",
        "after commit: account counters",
    ],
)
def test_a_killed_worker_loses_and_doubles_nothing(site, step):
    site.tenant()
    end = leaf_port(site)
    site.read()
    site.grow(end, PortRcvData=100)
    site.grow(end, PortRcvErrors=50)
    transactions = site.store._transactions

    def kill(name):
        if name == step:
            raise Killed(name)

    transactions.at, before = kill, transactions.at
    with pytest.raises(Killed):
        site.read()
    transactions.at = before
    site.restarted()
    site.read()
    assert site.traffic()["t"]["injected"] == 400
    assert len(site.errors()) == 1
    site.read()
    assert site.traffic()["t"]["injected"] == 400


def test_data_stays_when_links_are_replaced_and_ends_with_the_tenant(site):
    """What a tenant's data adds up to never falls, which Prometheus would take for a reset."""
    link = min(site.tenant(), key=str)
    cable = site.fabric.cable(link)
    site.read()
    site.grow(cable.lower, PortXmitData=100)
    site.grow(cable.upper, PortRcvData=100)
    site.read()
    before = site.traffic()["t"]
    assert sum(before.values()) > 0
    site.store.components.set_link_state("f", link, LinkState.FAILED)
    site.rounds(3)
    assert link not in site.links
    for _ in range(3):
        site.read()
        assert all(site.traffic()["t"][place] >= count for place, count in before.items())


def test_foreign_data_is_found_and_told(store):
    site = Site(SqlStore(store._engine, announce=True))
    link = min(site.tenant(), key=str)
    cable = site.fabric.cable(link)
    site.read()
    for _ in range(4):
        site.grow(cable.lower, PortXmitData=1000)
        site.grow(cable.upper, PortRcvData=1000)
        site.read()
    found = [f for findings in site.store.faults.counter_findings("f") for f in findings.foreign]
    assert [(f.owner, f.direction) for f in found] == [("t", "up")]
    assert found[0].sent - found[0].received >= 4000
    with store._engine.connect() as connection:
        events = [
            row.document for row in connection.exec_driver_sql("select document from notification")
        ]
    told = [event for event in map(str, events) if "observation.counters" in event]
    assert len(told) == 1


def test_unknown_switches_are_left_out(site):
    site.tenant()
    site.switches.fresh_counters = [SwitchCounters(0xDEAD, site.now, {1: PortReading({})})]
    site.round()
    assert site.store.faults.counter_findings("f") == []
