# SPDX-License-Identifier: Apache-2.0

"""Random histories of faults, operators and time: what the record says, and never says.

The model keeps its own record from the lists of the judgements, and the truth of the fabric. It
knows nothing of the memory but the alarm.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from laas_service.adapters.memories import FAULT_MEMORY
from laas_service.domain.faults.memory import (
    acknowledge,
    release,
)
from laas_service.domain.faults.observation import Mode, OperatorStates
from laas_service.domain.topology import Link
from tests.unit.domain.faults.model import FaultyFabric
from tests.unit.domain.faults.test_observation import RULES, Bench, effective

FABRICS: tuple[dict[str, object], ...] = (
    {"xgft": "3;4,2,2;1,2,2"},
    {"xgft": "3;2,4,2;1,2,2", "rails": 2, "cables": (2, 1)},
    {"xgft": "2;3,4;1,3", "extra_cables": 2, "aggregation_nodes": True},
)
numbers = st.integers(0, 1000)
"""Chooses a link, a switch or a host."""


class Histories(RuleBasedStateMachine):
    fabric: dict[str, object] = FABRICS[0]

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(FaultyFabric.of(**self.fabric))
        self.truth = self.bench.fabric
        inventory = self.truth.generated.inventory
        self.links: list[Link] = sorted(inventory.cable_of_link, key=lambda x: (str(type(x)), x))
        observers = inventory.endpoints[0].at.guid
        self.switches = [s.guid for s in inventory.switches if s.guid != observers]
        self.failed: set[Link] = set()
        """By an operator."""
        self.drained: set[Link] = set()
        self.recorded: set[Link] = set()
        """As failed, by observation."""
        self.worked: dict[Link, float] = {}
        """When each link worked last, by the readings' times."""
        self.outages: dict[Link, list[float]] = defaultdict(list)
        self.lost_switch: dict[Link, int] = {}
        """The one switch whose loss began the present outage of a link."""
        self.behind: set[Link] = set()
        """Links with a switch out of reach at one end at any time of the present outage."""
        self.accepted: set[Link] = set()
        """Links that were broken, or had been, when an operator last acknowledged an alarm."""
        self.tick(1)

    # -- time -------------------------------------------------------------------

    def tick(self, seconds: float) -> None:
        """A reading after some seconds, its judgement, and what always holds."""
        truth, bench, before = self.truth, self.bench, self.bench.memory
        was_working = {link for link in self.links if self.worked.get(link) == bench.now}
        judgement = bench.look(seconds)
        reached = truth.reached()
        for link in self.links:
            if truth.works(link):
                self.worked[link] = bench.now
                self.lost_switch.pop(link, None)
                self.behind.discard(link)
                continue
            cable = truth.cable(link)
            ends = {cable.lower.guid, cable.upper.guid}
            if ends - reached:
                self.behind.add(link)
            if link in was_working:
                self.outages[link].append(bench.now)
                if len(ends & truth.dead) == 1:
                    self.lost_switch[link] = min(ends & truth.dead)
        self.check_breaker([fault.link for fault in judgement.fail])
        for fault in judgement.fail:
            self.check_mark(fault.link, fault.since)
            self.recorded.add(fault.link)
        for link in judgement.restore:
            assert link in self.recorded, "restored twice"
            cable = truth.cable(link)
            assert truth.works(link)
            assert {cable.lower.guid, cable.upper.guid} <= reached
            self.recorded.remove(link)
        still = truth.observer_cut or bench.memory.alarm or bench.rules.mode is not Mode.ACT
        assert not (still and judgement.changes)
        if before.alarm is not None:
            assert judgement.cleared or not judgement.raised, "one alarm"
        assert self.recorded == bench.memory.marked
        assert FAULT_MEMORY.read(FAULT_MEMORY.write(bench.memory)) == bench.memory

    def check_mark(self, link: Link, since: float) -> None:
        now, rules = self.bench.now, RULES
        assert link not in self.recorded, "failed twice"
        outages = [at for at in self.outages[link] if 0 <= since - at < rules.flap_window]
        flaps = len(outages) >= rules.flaps
        long = now - self.worked.get(link, 0.0) >= rules.hold_down
        assert flaps or (long and not self.truth.works(link)), "a link that works was failed"

    def check_breaker(self, marked: list[Link]) -> None:
        """Of what was lost at one time, no more is marked than the breaker allows."""
        together: dict[float, list[Link]] = defaultdict(list)
        for link in marked:
            if link not in self.failed | self.drained | self.accepted and self.outages[link]:
                together[self.outages[link][-1]].append(link)
        allowed = max(1, int(RULES.breaker_share * len(self.links)))
        for links in together.values():
            switches = {self.lost_switch[link] for link in links if link in self.lost_switch}
            assert len(switches) <= RULES.breaker_switches
            assert len([link for link in links if link not in self.behind]) <= allowed

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds):
        for _ in range(seconds):
            self.tick(1)

    @rule(seconds=st.sampled_from([0.5, 3, 9, 40]))
    def gap(self, seconds):
        self.tick(seconds)

    # -- faults -----------------------------------------------------------------

    @rule(number=numbers)
    def cut(self, number):
        self.truth.cut.add(self.truth.cable(self.links[number % len(self.links)]))

    @rule(number=numbers, after=st.integers(0, 3))
    def mend(self, number, after):
        if self.truth.cut:
            cables = sorted(self.truth.cut, key=lambda cable: cable.lower)
            self.truth.cut.remove(cables[number % len(cables)])
        for _ in range(after):
            self.tick(1)

    @rule(number=numbers, times=st.integers(1, 4))
    def flap(self, number, times):
        cable = self.truth.cable(self.links[number % len(self.links)])
        for _ in range(times):
            self.truth.cut.add(cable)
            self.tick(1)
            self.truth.cut.remove(cable)
            self.tick(1)

    @rule(number=numbers, silent=st.booleans())
    def lose_switch(self, number, silent):
        switch = self.switches[number % len(self.switches)]
        (self.truth.silent if silent else self.truth.dead).add(switch)

    @rule(number=numbers)
    def switch_returns(self, number):
        lost = sorted(self.truth.dead | self.truth.silent)
        if lost:
            self.truth.dead.discard(lost[number % len(lost)])
            self.truth.silent.discard(lost[number % len(lost)])

    @rule(number=numbers)
    def toggle_host(self, number):
        self.truth.hosts_off ^= {1 + number % (self.truth.generated.topology.hosts - 1)}

    @rule()
    def toggle_observer(self):
        self.truth.observer_cut = not self.truth.observer_cut

    # -- operators ----------------------------------------------------------------

    def set_words(self) -> None:
        self.bench.operator = OperatorStates(frozenset(self.failed | self.drained))

    @rule(number=numbers, drain=st.booleans())
    def fail(self, number, drain):
        (self.drained if drain else self.failed).add(self.links[number % len(self.links)])
        self.set_words()

    @rule(number=numbers)
    def repair(self, number):
        link = self.links[number % len(self.links)]
        self.failed.discard(link)
        self.drained.discard(link)
        self.set_words()
        self.bench.memory = release(self.bench.memory, [link])
        assert self.bench.memory.marked == self.recorded

    @rule()
    def acknowledge(self):
        if self.bench.memory.alarm is not None:
            broken = {link for link in self.links if self.worked.get(link) != self.bench.now}
            self.accepted = broken | self.outages.keys()
        self.bench.memory = acknowledge(self.bench.memory)

    @rule(mode=st.sampled_from(Mode))
    def set_mode(self, mode):
        self.bench.rules = replace(RULES, mode=mode)

    # -- the end ------------------------------------------------------------------

    def teardown(self) -> None:
        """After a quiet period the record says what operators said, else what can be seen."""
        self.truth.observer_cut = False
        self.bench.rules = RULES
        for _ in range(60):
            self.acknowledge()
            self.tick(1)
        truth, reached = self.truth, self.truth.reached()
        operators = self.failed | self.drained
        out = effective(operators, self.bench.memory, owned=frozenset(self.links))
        for link in self.links:
            cable = truth.cable(link)
            ends = {cable.lower.guid, cable.upper.guid}
            if link in operators:
                assert link in out
            elif ends <= reached:
                assert (link in out) == (cable in truth.cut)
            elif ends & reached and not ends & truth.silent:
                assert link in out
        withheld = effective(frozenset(), self.bench.memory)
        for silent in truth.silent:
            cables = [truth.cable(link) for link in self.links]
            links = [c for c in cables if silent in (c.lower.guid, c.upper.guid)]
            ends = {end.guid for c in links if c not in truth.cut for end in (c.lower, c.upper)}
            if ends & reached:
                assert {c.link for c in links} <= withheld
        quiet = self.bench.memory
        self.tick(1)
        assert self.bench.memory.marked == quiet.marked


class RailsHistories(Histories):
    fabric = FABRICS[1]


class TwoLevelHistories(Histories):
    fabric = FABRICS[2]


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestRailsHistories = RailsHistories.TestCase
TestRailsHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTwoLevelHistories = TwoLevelHistories.TestCase
TestTwoLevelHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
