# SPDX-License-Identifier: Apache-2.0

"""Thresholds of port counters, data by allocation, and the audit of a tenant's links."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.adapters.memories import COUNTER_MEMORY
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.errors import InvalidInput
from laas_service.domain.faults.counters import (
    BAD_KEYS,
    CounterMemory,
    CounterRules,
    Data,
    Increase,
    Owners,
    PortReading,
    SwitchCounters,
    Tolerance,
    accounted,
    dismissed,
    excessive,
    findings,
    increase,
    thresholds_from,
)
from laas_service.domain.faults.interpretation import Cabling
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import LeafLink, SpineLink
from tests.unit.domain.faults.model import FaultyFabric

LINK = LeafLink(1, 0, 1)
TOP = (1 << 64) - 1
RULES = CounterRules()
STRICT = replace(RULES, tolerance=Tolerance(0.0, 0.0))
HOUR, DAY = 3600.0, 86400.0


def counters(rate: float | None = None, **values: int) -> PortReading:
    return PortReading(values, rate)


@pytest.mark.parametrize(
    ("name", "before", "after", "grown"),
    [
        ("SymbolErrorCounter", 3, 10, Increase(7)),
        ("SymbolErrorCounter", 10, 3, Increase(3, exact=False)),  # it was reset
        ("SymbolErrorCounter", 10, 0xFFFF, Increase(0xFFF5, exact=False)),  # it stands still
        ("SymbolErrorCounter", 10, 0x10000, Increase(0xFFF6)),  # a port with 64 bits
        ("LinkDownedCounter", 255, 255, Increase(0, exact=False)),
        ("PortXmitData", TOP - 1, 5, Increase(7)),
        ("PortXmitData", 1000, 5, Increase(5, exact=False)),
        ("PortXmitData", 1 << 40, 1 << 41, Increase(1 << 40)),
    ],
)
def test_increases(name, before, after, grown):
    assert increase(name, counters(**{name: before}), counters(**{name: after})) == grown


def test_a_counter_that_a_reading_lacks_has_no_increase():
    assert increase("PortRcvErrors", counters(), counters(PortRcvErrors=1)) is None


# -- thresholds -------------------------------------------------------------------


class Port:
    """One port of a leaf, towards an L2 switch, whose counters a test sets."""

    def __init__(self, rules: CounterRules = RULES) -> None:
        fabric = FaultyFabric.of(xgft="3;4,2,2;1,2,2")
        self.cabling, self.rules = Cabling(fabric.generated.inventory), rules
        self.end = fabric.cable(LINK).lower
        self.memory: CounterMemory | None = None

    def read(self, at: float, rate: float | None = None, **values: int) -> list[str]:
        """What is told of the link after this reading."""
        reading = SwitchCounters(self.end.guid, at, {self.end.port: counters(rate, **values)})
        owners = Owners({}, {})
        self.memory = accounted(self.memory, reading, self.cabling, owners, self.rules)
        self.memory = through_documents(self.memory)
        found = findings(self.memory, self.cabling, self.rules)
        telling = excessive(found.errors, self.cabling)
        assert set(telling) <= {LINK}
        return list(telling.values())


def through_documents(memory: CounterMemory) -> CounterMemory:
    document = json.loads(json.dumps(COUNTER_MEMORY.write(memory)))
    assert COUNTER_MEMORY.read(document) == memory
    return COUNTER_MEMORY.read(document)


def test_a_link_beyond_a_threshold_is_told_until_the_period_is_over():
    port = Port()
    assert not port.read(0, PortRcvErrors=2)
    assert not port.read(60, PortRcvErrors=12)
    assert port.read(120, PortRcvErrors=13) == [
        "leaf-1-0 port 6: PortRcvErrors grew by 11 in 120 s, allowed are 10 in 3600 s"
    ]
    assert port.read(120 + HOUR - 1, PortRcvErrors=13)
    assert not port.read(120 + HOUR, PortRcvErrors=13)


def test_slow_growth_is_not_added_up_beyond_the_period():
    port = Port()
    for hour in range(30):
        assert not port.read(hour * 0.9 * HOUR, PortRcvErrors=5 * hour)


def test_readings_far_apart_allow_more():
    port = Port()
    port.read(0, PortRcvErrors=0)
    assert not port.read(10 * HOUR, PortRcvErrors=100)
    assert port.read(20 * HOUR, PortRcvErrors=201)


def test_downed_links_are_counted_by_day():
    port = Port()
    for hour in range(11):
        assert not port.read(hour * HOUR, LinkDownedCounter=hour)
    assert (
        "11 in 39600 s, allowed are 10 in 86400 s" in port.read(11 * HOUR, LinkDownedCounter=11)[0]
    )


def test_a_reset_counts_what_came_after_it_and_says_so():
    port = Port()
    port.read(0, PortRcvErrors=60000)
    assert not port.read(9, PortRcvErrors=4)
    assert "at least 50" in port.read(18, PortRcvErrors=50)[0]


def test_a_counter_at_its_limit_grows_no_more():
    port = Port()
    port.read(0, SymbolErrorCounter=0xFFFF)
    assert not port.read(9, SymbolErrorCounter=0xFFFF)


def test_waiting_is_no_fault_unless_configured():
    def told(rules: CounterRules, ticks: int) -> list[str]:
        port = Port(rules)
        port.read(0, PortXmitWait=0)
        return port.read(HOUR, PortXmitWait=ticks)

    assert not told(RULES, 10**9)
    strict = replace(RULES, thresholds=thresholds_from({"PortXmitWait": "1000/hour"}))
    assert not told(strict, 1000)
    assert "allowed are 1000 in 3600 s" in told(strict, 1001)[0]


@pytest.mark.parametrize("values", [{"FECModeActive": 1}, {"rate": 1e-15}])
def test_symbol_errors_do_not_count_where_errors_are_corrected(values):
    port = Port()
    port.read(0, SymbolErrorCounter=0)
    assert port.read(60, SymbolErrorCounter=5000)
    port = Port()
    port.read(0, SymbolErrorCounter=0, **values)
    assert not port.read(60, SymbolErrorCounter=5000, **values)
    assert not port.read(120, SymbolErrorCounter=9000)  # this reading lacks the mode
    port.read(180, PortFECUncorrectableBlockCtr=0, **values)
    assert port.read(240, PortFECUncorrectableBlockCtr=2, **values)


def test_a_bit_error_rate_counts_while_it_is_too_high():
    port = Port()
    assert port.read(0, rate=1e-9) == [
        "leaf-1-0 port 6: bit error rate 1.0e-09, allowed are 1.0e-12"
    ]
    assert not port.read(60, rate=1e-13)


def test_a_replaced_cable_begins_anew():
    port = Port()
    port.read(0, PortRcvErrors=0)
    assert port.memory is not None
    use = port.memory.uses[port.end.port]
    port.memory = replace(port.memory, uses={port.end.port: use._replace(peer="0x1 1")})
    assert not port.read(60, PortRcvErrors=5000)


def test_an_operators_word_forgets_the_errors():
    port = Port()
    port.read(0, PortRcvErrors=0)
    assert port.read(60, PortRcvErrors=50)
    assert port.memory is not None
    port.memory = dismissed(port.memory, port.end.port)
    assert not port.read(120, PortRcvErrors=50)
    assert port.read(180, PortRcvErrors=61)


def test_the_same_reading_again_and_an_older_one_change_nothing():
    port = Port()
    port.read(100, PortRcvErrors=0)
    port.read(160, PortRcvErrors=9)
    before = port.memory
    port.read(160.2, PortRcvErrors=9)
    port.read(130, PortRcvErrors=5)
    assert port.memory == before


@pytest.mark.parametrize(
    "configured",
    [
        {"PortRcvErors": "10/hour"},
        {"PortXmitConstraintErrors": "10/hour"},
        {"PortRcvErrors": "10"},
        {"PortXmitWait": "10%"},
    ],
)
def test_a_wrong_threshold_is_refused(configured):
    with pytest.raises(InvalidInput, match=r"\[faults\] error_thresholds"):
        thresholds_from(configured)


# -- data and the audit -------------------------------------------------------------


class Tenants:
    """A fabric with two tenants over two pods, and the words that cross its ports.

    The model carries each packet hop by hop; it knows nothing of owners.
    """

    def __init__(self) -> None:
        made = FaultyFabric.of(xgft="3;2,2,4;1,2,2").generated
        self.topology, self.inventory = made.topology, made.inventory
        self.cabling, ledger = Cabling(made.inventory), Ledger(made.topology)
        self.tenants = []
        for name in ("blue", "red"):
            answer = POLICIES["laas"]().propose(ledger, Request(name, 8))
            assert isinstance(answer, Allocation)
            ledger.claim(answer)
            self.tenants.append(answer)
        self.owners = Owners(ledger.owners_of_links(), ledger.owners_of_hosts())
        self.words = {
            switch.guid: {n: [0, 0, 0] for n in range(1, switch.ports + 1)}
            for switch in made.inventory.switches
        }
        self.memories: dict[int, CounterMemory] = {}
        self.at = 0.0
        self.rules = STRICT

    def cross(self, end, sent, words):
        self.words[end.guid][end.port][0 if sent else 1] += words

    def send(self, source, destination, links, words):
        """Words from host to host over links, in the order of the path; up first, then down."""
        self.cross(self.port(source), False, words)
        place = self.port(source).guid
        for link in links:
            cable = self.inventory.cable_of_link[link]
            near, far = cable.lower, cable.upper
            if near.guid != place:
                near, far = far, near
            self.cross(near, True, words)
            self.cross(far, False, words)
            place = far.guid
        assert place == self.port(destination).guid
        self.cross(self.port(destination), True, words)

    def port(self, host):
        return self.cabling.ports_of_host[host][0]

    def path(self, allocation, source, destination):
        """A path over the allocation's links."""
        leaves = list(allocation.leaf_links(self.topology))
        spines = list(allocation.spine_links(self.topology))
        first, last = (self.topology.ports_of(h)[0] for h in (source, destination))
        if (first.pod, first.leaf) == (last.pod, last.leaf):
            return []
        for up in leaves:
            if (up.pod, up.leaf) != (first.pod, first.leaf):
                continue
            down = LeafLink(last.pod, last.leaf, up.up)
            if down not in leaves:
                continue
            if first.pod == last.pod:
                return [up, down]
            for spine in spines:
                other = SpineLink(last.pod, spine.l2, spine.up)
                if (spine.pod, spine.l2) == (first.pod, up.up) and other in spines:
                    return [up, spine, other, down]
        raise AssertionError((source, destination))

    def read(self, guids=None, after=60.0, between=lambda: None):
        """Read switches, all by default, and account for them; ``between`` reading two ports."""
        self.at += after
        for guid in guids or self.words:
            ports = {}
            for number, of_port in self.words[guid].items():
                out, into, copies = of_port
                ports[number] = counters(
                    PortXmitData=out, PortRcvData=into, PortMulticastXmitPkts=copies
                )
                between()
            reading = SwitchCounters(guid, self.at, ports)
            self.memories[guid] = through_documents(
                accounted(self.memories.get(guid), reading, self.cabling, self.owners, self.rules)
            )

    def foreign(self):
        """(switch, owner, direction, bytes too many)."""
        return [
            (guid, f.owner, f.direction, f.sent - f.received)
            for guid, memory in self.memories.items()
            for f in findings(memory, self.cabling, self.rules).foreign
        ]

    def data(self, owner, leaf):
        found = [findings(m, self.cabling, self.rules) for m in self.memories.values()]
        levels = {switch.guid: switch.level for switch in self.inventory.switches}
        some = [f.data[owner] for f in found if owner in f.data and (levels[f.guid] == 1) == leaf]
        return Data(*map(sum, zip(*some, strict=True)))


def test_rates_of_shared_hosts_and_their_links_are_those_of_the_last_interval():
    """Red shares its hosts, blue does not; what crossed before the last reading is forgotten."""
    tenants = Tenants()
    tenants.owners = replace(tenants.owners, sharing=frozenset({"red"}))
    tenants.read()
    for source, destination, links in pairs(tenants, tenants.tenants[1]):
        tenants.send(source, destination, links, 999)
    tenants.read()
    before = {guid: {n: list(w) for n, w in at.items()} for guid, at in tenants.words.items()}
    for number, allocation in enumerate(tenants.tenants):
        for source, destination, links in pairs(tenants, allocation):
            tenants.send(source, destination, links, 30 + number)
    tenants.read(after=20.0)
    hosts = set(tenants.tenants[1].hosts(tenants.topology))
    ends = {(e.at.guid, e.at.port) for e in tenants.inventory.endpoints if e.host in hosts}
    for link in tenants.tenants[1].links(tenants.topology):
        cable = tenants.inventory.cable_of_link[link]
        ends |= {(end.guid, end.port) for end in (cable.lower, cable.upper)}
    shown = set()
    for guid, memory in tenants.memories.items():
        rates = findings(memory, tenants.cabling, tenants.rules).rates
        shown |= {(guid, port) for port in rates}
        for port, rate in rates.items():
            grown = [
                n - o for n, o in zip(tenants.words[guid][port], before[guid][port], strict=True)
            ]
            assert rate == (20.0, 4 * grown[0] / 20.0, 4 * grown[1] / 20.0)
    assert shown == ends
    assert any(rate.sent for m in tenants.memories.values() for rate in m.rates.values())
    guid, port = min(ends)
    tenants.words[guid][port][0] = 0  # somebody reset the counters
    tenants.read()
    assert port not in tenants.memories[guid].rates


def test_documents_of_earlier_releases_have_no_rates():
    tenants = Tenants()
    tenants.read()
    memory = next(iter(tenants.memories.values()))
    document = COUNTER_MEMORY.write(memory)
    del document["rates"]
    assert COUNTER_MEMORY.read(document) == memory


def pairs(tenants, allocation):
    hosts = list(allocation.hosts(tenants.topology))
    return [(a, b, tenants.path(allocation, a, b)) for a, b in pairwise([*hosts, hosts[0]])]


def test_a_tenants_own_data_is_no_excess_whenever_ports_are_read():
    """Data flows only while ports are read, more than ever before."""
    site = Tenants()
    crossing = [pair for allocation in site.tenants for pair in pairs(site, allocation)]
    words = 1

    def send():
        nonlocal words
        for a, b, path in crossing:
            site.send(a, b, path, words)
        words *= 2

    for _ in range(5):
        site.read(between=send)
        assert site.foreign() == []


def test_data_by_allocation_adds_up():
    site = Tenants()
    blue = site.tenants[0]
    site.read()
    crossing = pairs(site, blue)
    for a, b, path in crossing:
        site.send(a, b, path, 100)
    site.read()
    leaf = sum(bool(path) for _, _, path in crossing)
    spine = sum(len(path) == 4 for _, _, path in crossing)
    assert spine
    hosts = 400 * len(crossing)
    assert site.data("blue", leaf=True) == (hosts, hosts, 400 * leaf, 400 * leaf)
    assert site.data("blue", leaf=False).up == 400 * spine
    assert site.data("red", leaf=True) == (0, 0, 0, 0)


@pytest.mark.parametrize("hop", range(4))
def test_a_strangers_data_on_a_tenants_link_is_an_excess_where_it_enters(hop):
    """A host of red sends over a link of blue instead of one of its own."""
    site = Tenants()
    blue, red = site.tenants
    path = next(path for _, _, path in pairs(site, red) if len(path) == 4)
    own = {*blue.leaf_links(site.topology), *blue.spine_links(site.topology)}
    link = next(x for x in sorted(own, key=str) if isinstance(x, type(path[hop])))
    site.read()
    site.read()
    cable = site.inventory.cable_of_link[link]
    upwards = hop < 2
    entering = cable.lower if upwards else cable.upper
    leaving = cable.upper if upwards else cable.lower
    for _ in range(4):
        site.cross(entering, True, 1000)
        site.cross(leaving, False, 1000)
        site.read()
    found = site.foreign()
    assert [(guid, owner) for guid, owner, _, _ in found][:1] == [(entering.guid, "blue")]
    assert {direction for _, _, direction, _ in found} == {"up" if upwards else "down"}
    site.rules = replace(RULES, tolerance=Tolerance(bytes_per_second=100.0, share=0.0))
    assert site.foreign() == []  # 3000 words in 300 s on each link are tolerated


def test_multicast_is_tolerated():
    site = Tenants()
    link = next(iter(site.tenants[0].leaf_links(site.topology)))
    end = site.inventory.cable_of_link[link].lower
    site.read()
    site.read()
    for _ in range(4):
        site.words[end.guid][end.port][0] += 2 * 1056
        site.words[end.guid][end.port][2] += 2
        site.read()
    assert site.foreign() == []


@given(st.integers(2, 5), st.sampled_from(["reset", "one port", "gone"]))
def test_resets_make_no_excess_and_no_data(when, what):
    """The reset comes right after most of the data."""
    site = Tenants()
    crossing = pairs(site, site.tenants[0])
    leaf = site.port(crossing[0][0]).guid
    sent = 0
    for number in range(8):
        words = 10**9 if number == when else 1
        for a, b, path in crossing:
            site.send(a, b, path, words)
            sent += 4 * words
        if number == when:
            if what == "reset":
                site.words[leaf] = {n: [0, 0, 0] for n in site.words[leaf]}
            elif what == "one port":
                for host in (a for a, _, _ in crossing):
                    site.words[site.port(host).guid][site.port(host).port] = [0, 0, 0]
            else:
                site.memories.pop(leaf, None)
        site.read()
        assert site.foreign() == []
    assert site.data("blue", leaf=True).injected <= sent


def test_data_before_a_port_was_owned_is_not_counted():
    site = Tenants()
    a, b, path = next(pair for pair in pairs(site, site.tenants[0]) if pair[2])
    owners = site.owners
    site.owners = Owners(owners.links, {h: o for h, o in owners.hosts.items() if h != a})
    site.read()
    site.send(a, b, path, 1000)
    site.owners = owners
    site.read()
    assert site.data("blue", leaf=True).injected == 0
    site.send(a, b, path, 10)
    site.read()
    assert site.data("blue", leaf=True).injected == 40


def test_data_stays_until_the_allocation_is_released():
    """An allocation that leaves a switch keeps what it sent there; the sum never falls."""
    site = Tenants()
    a, b, path = next(pair for pair in pairs(site, site.tenants[0]) if len(pair[2]) == 4)
    site.read()
    site.send(a, b, path, 1000)
    site.read()
    before, owners = site.data("blue", leaf=True), site.owners
    assert before.injected == 4000
    kept = min(host for host, owner in owners.hosts.items() if owner == "blue")
    site.owners = Owners({}, {kept: "blue"})
    site.read()
    site.read()
    assert site.data("blue", leaf=True) == before
    site.owners = Owners({}, {})
    site.read()
    assert not any(memory.traffic for memory in site.memories.values())


def test_data_of_an_earlier_owner_is_nobodys():
    site = Tenants()
    for _ in range(3):
        for a, b, path in pairs(site, site.tenants[0]):
            site.send(a, b, path, 10**6)
        site.read()
    owners = site.owners
    site.owners = Owners(
        {link: "green" for link, owner in owners.links.items() if owner == "blue"},
        {host: "green" for host, owner in owners.hosts.items() if owner == "blue"},
    )
    site.read()
    assert site.data("green", leaf=True) == (0, 0, 0, 0)
    assert not any("blue" in memory.traffic for memory in site.memories.values())


def test_packets_with_a_foreign_key_are_told_of_their_owner():
    site = Tenants()
    end = site.port(site.tenants[0].hosts(site.topology)[0])
    memory = None
    for at, count in ((0.0, 3), (60.0, 4)):
        values = {"PortRcvConstraintErrors": 2 * count, BAD_KEYS: count}
        reading = SwitchCounters(end.guid, at, {end.port: counters(**values)})
        memory = accounted(memory, reading, site.cabling, site.owners, RULES)
    assert memory is not None
    errors = findings(memory, site.cabling, RULES).errors
    assert [(e.counter, e.owner, e.text) for e in errors] == [
        (BAD_KEYS, "blue", "BadKeyTraps grew by 1 in 60 s"),
        ("PortRcvConstraintErrors", "blue", "PortRcvConstraintErrors grew by 2 in 60 s"),
    ]
    assert excessive(errors, site.cabling) == {}
