# SPDX-License-Identifier: Apache-2.0

"""What is marked and restored as readings follow each other: one test for each rule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from laas_service.adapters.memories import FAULT_MEMORY
from laas_service.domain.errors import InvalidInput
from laas_service.domain.faults.interpretation import Cabling, interpret
from laas_service.domain.faults.memory import (
    NOTHING_SEEN,
    FaultMemory,
    LinkCondition,
    acknowledge,
    release,
)
from laas_service.domain.faults.observation import (
    NO_WORDS,
    Mode,
    OperatorStates,
    ReadingOutcome,
    Rules,
    judge,
)
from laas_service.domain.faults.reading import EndReading, PortState, UnknownSwitch
from laas_service.domain.inventory import PortRef
from laas_service.domain.topology import LeafLink, Link, SpineLink
from tests.unit.domain.faults.model import FaultyFabric

A, B, C = LeafLink(1, 0, 1), LeafLink(1, 1, 0), SpineLink(1, 1, 0)
RULES = Rules(
    hold_down=2.0,
    flaps=3,
    flap_window=60.0,
    quarantine=20.0,
    breaker_share=0.15,
    breaker_window=10.0,
    reading_lifetime=8.0,
)
"""Of the 16 links of the small fabric, two may be lost in a window."""


def effective(
    operator_failed: Set[Link], memory: FaultMemory, owned: Set[Link] = frozenset()
) -> frozenset[Link]:
    """The links that nobody new can get and no new route may use.

    An operator's *failed* always counts, and so does what is observed. ``owned`` are the links
    that allocations hold: behind a silent switch they keep forwarding and are not failed. Once
    their owner releases them, they are withheld as the others are.
    """
    return frozenset(operator_failed | memory.marked | (memory.withheld - owned))


@dataclass
class Bench:
    """A fabric whose readings are judged one after the other; ``now`` is the time."""

    fabric: FaultyFabric = field(default_factory=lambda: FaultyFabric.of(xgft="3;4,2,2;1,2,2"))
    rules: Rules = RULES
    memory: FaultMemory = NOTHING_SEEN
    operator: OperatorStates = NO_WORDS
    now: float = 100.0
    log: list[ReadingOutcome] = field(default_factory=list)
    """The judgements that changed the record."""

    def __post_init__(self) -> None:
        self.cabling = Cabling(self.fabric.generated.inventory)

    def look(self, after: float = 1.0, *ends: EndReading, **values: Any) -> ReadingOutcome:
        """Judge a reading taken some seconds later."""
        self.now += after
        reading = self.fabric.read(self.now)
        reading = replace(reading, ends=(*reading.ends, *ends), **values)
        seen = interpret(self.cabling, reading)
        judgement = judge(self.memory, seen, self.rules, self.now, self.operator)
        self.memory = judgement.memory
        if judgement.changes:
            self.log.append(judgement)
        return judgement

    def wait(self, seconds: float) -> list[ReadingOutcome]:
        """Judge a reading each second; the judgements that changed the record."""
        before = len(self.log)
        for _ in range(round(seconds)):
            self.look()
        return self.log[before:]

    def cut(self, *links: Link) -> None:
        self.fabric.cut |= {self.fabric.cable(link) for link in links}

    def mend(self, *links: Link) -> None:
        self.fabric.cut -= {self.fabric.cable(link) for link in links}

    def links_of(self, *guids: int) -> set[Link]:
        return {
            link
            for link, cable in self.cabling.links.items()
            if {cable.lower.guid, cable.upper.guid} & set(guids)
        }


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.look()
    return bench


def failed(judgement: ReadingOutcome) -> list[Link]:
    return [fault.link for fault in judgement.fail]


# -- hold-down, restoring ---------------------------------------------------------


def test_a_cut_cable_fails_after_the_hold_down_and_is_restored_when_up(bench):
    bench.cut(A)
    assert not bench.look().changes
    assert bench.memory.links[A].condition is LinkCondition.SUSPECTED
    assert not bench.look().changes
    fault = bench.look().fail[0]
    assert (fault.link, fault.since, fault.evidence) == (A, 102.0, "both ends are down")
    assert bench.memory.marked == {A}
    assert not bench.wait(30)
    bench.mend(A)
    assert bench.look().restore == (A,)
    assert not bench.wait(100)
    assert bench.memory == replace(NOTHING_SEEN, at=bench.now)


def test_a_short_outage_marks_nothing(bench):
    bench.cut(A)
    bench.look()
    bench.mend(A)
    assert not bench.wait(10)
    bench.cut(A)
    bench.look()
    bench.look()
    assert bench.look().fail[0].since == bench.now - 2


def test_a_hold_down_begins_again_after_a_reading_that_does_not_tell(bench):
    bench.cut(A)
    bench.look()
    bench.look()
    bench.mend(A)
    lower = bench.fabric.cable(A).lower
    bench.look(1, EndReading(lower, PortState.DOWN))
    bench.cut(A)
    assert not bench.look().changes
    assert not bench.look().changes
    assert failed(bench.look()) == [A]
    assert bench.memory.links[A].downs == (102.0,)  # one outage


def test_a_failed_link_stays_failed_while_its_ends_disagree(bench):
    bench.cut(A)
    bench.wait(4)
    bench.mend(A)
    lower = bench.fabric.cable(A).lower
    assert not bench.look(1, EndReading(lower, PortState.DOWN)).changes
    assert bench.memory.marked == {A}
    assert bench.look().restore == (A,)


def test_changes_that_begin_together_are_one_generation(bench):
    bench.cut(A)
    bench.look()
    bench.cut(C)
    changes = bench.wait(5)
    assert [failed(judgement) for judgement in changes] == [[A, C]]


def test_a_change_waits_for_others_no_longer_than_two_hold_downs(bench):
    bench.cut(A)
    bench.look()
    bench.look(1.5)
    bench.cut(C)
    bench.look(1)
    bench.mend(C)
    bench.cut(B)
    assert not bench.look(1).changes
    assert failed(bench.look(0.5)) == [A]


# -- flapping ---------------------------------------------------------------------


def flap(bench: Bench, times: int = 3) -> None:
    for _ in range(times):
        bench.cut(A)
        bench.look()
        bench.mend(A)
        bench.look()


def test_a_flapping_link_is_quarantined_until_it_stayed_up(bench):
    flap(bench)
    assert [failed(judgement) for judgement in bench.log] == [[A]]
    assert bench.log[0].fail[0].evidence == "went down 3 times within 60 seconds"
    assert bench.memory.links[A].condition is LinkCondition.QUARANTINED
    bench.wait(15)
    flap(bench, 1)
    assert len(bench.log) == 1
    up_since = bench.now
    bench.wait(25)
    assert [judgement.restore for judgement in bench.log] == [(), (A,)]
    assert bench.memory.at is not None
    assert up_since + 20 < bench.memory.at
    assert not bench.memory.links


def test_outages_far_apart_are_no_flapping(bench):
    for _ in range(5):
        bench.cut(A)
        bench.look()
        bench.mend(A)
        bench.wait(40)
    assert not bench.log


def test_an_operator_ends_a_quarantine(bench):
    flap(bench)
    bench.memory = release(bench.memory, [A, B])
    assert bench.look().restore == (A,)
    bench.cut(A)
    assert not bench.wait(2)
    assert [failed(judgement) for judgement in bench.wait(2)] == [[A]]
    assert bench.memory.links[A].condition is LinkCondition.FAILED


def test_an_operator_makes_no_link_usable_that_is_seen_down(bench):
    flap(bench)
    bench.cut(A)
    bench.look()
    bench.memory = release(bench.memory, [A])
    assert not bench.wait(30)
    assert effective(frozenset(), bench.memory) == {A}
    bench.mend(A)
    assert bench.look().restore == (A,)


def test_an_operator_who_fails_a_link_wins(bench):
    bench.cut(A)
    bench.wait(4)
    assert effective({A, B}, bench.memory) == {A, B}
    bench.mend(A)
    bench.wait(4)
    assert effective({A, B}, bench.memory) == {A, B}
    assert effective({B}, bench.memory) == {B}


# -- hosts and news -----------------------------------------------------------------


def test_absent_hosts_move_nothing(bench):
    bench.fabric.hosts_off |= set(range(4, 16))
    assert not bench.wait(20)
    assert bench.memory.alarm is None
    assert len(bench.memory.hosts) == 12
    assert set(bench.memory.hosts.values()) == {102.0}
    bench.fabric.hosts_off.clear()
    bench.look()
    assert not bench.memory.hosts


def test_news_are_told_once(bench):
    news = {"unknown_switches": (UnknownSwitch(5, "new"),)}
    assert bench.look(1, **news).news == ("switch 0x0000000000000005 'new' is not recorded",)
    assert not bench.look(1, **news).news
    assert not bench.look().news
    assert bench.look(1, **news).news


# -- switches ---------------------------------------------------------------------


@pytest.mark.parametrize("level", ["leaf_guids", "l2_guids", "spine_guids"])
def test_the_links_of_a_dead_switch_fail_and_return_together(level):
    bench = Bench()
    bench.look()
    guid = getattr(bench.fabric.generated.inventory, level)[-1]
    links = bench.links_of(guid)
    bench.fabric.dead.add(guid)
    assert [set(failed(judgement)) for judgement in bench.wait(20)] == [links]
    assert not bench.memory.alarm
    bench.fabric.dead.clear()
    assert [set(judgement.restore) for judgement in bench.wait(20)] == [links]


def test_links_through_a_silent_switch_are_withheld_and_not_failed(bench):
    guid = bench.fabric.generated.inventory.l2_guids[3]
    bench.fabric.silent.add(guid)
    links = bench.links_of(guid)
    bench.look()
    bench.look()
    judgement = bench.look()
    assert not judgement.fail
    assert set(judgement.withhold) == links
    assert effective(frozenset(), bench.memory) == links
    assert effective(frozenset(), bench.memory, owned={A}) == links - {A}
    assert not bench.wait(10)
    bench.fabric.silent.clear()
    assert set(bench.look().unwithhold) == links
    assert not effective(frozenset(), bench.memory)


def test_a_silent_switch_that_dies(bench):
    guid = bench.fabric.generated.inventory.l2_guids[3]
    bench.fabric.silent.add(guid)
    bench.wait(5)
    bench.fabric.silent, bench.fabric.dead = set(), {guid}
    bench.wait(5)
    assert bench.memory.marked == bench.links_of(guid)
    assert set(bench.log[-1].unwithhold) == bench.links_of(guid)
    assert len(bench.log) == 2


# -- the circuit breaker --------------------------------------------------------------


def test_more_than_one_switch_raises_one_alarm_and_marks_nothing(bench):
    spines = bench.fabric.generated.inventory.spine_guids[2:]
    bench.fabric.dead |= set(spines)
    judgements = [bench.look() for _ in range(30)]
    assert [judgement.raised for judgement in judgements].count(True) == 1
    assert judgements[2].raised
    assert not bench.log
    assert bench.memory.alarm is not None
    assert bench.memory.alarm.text == (
        "lost in one window: 2 of 12 switches (spine-1-0, spine-1-1); nothing is marked"
    )
    assert {fault.link for fault in judgements[-1].proposed_fail} == bench.links_of(*spines)


def test_an_alarm_ends_when_the_fabric_is_as_before(bench):
    spines = bench.fabric.generated.inventory.spine_guids[2:]
    bench.fabric.dead |= set(spines)
    bench.wait(30)
    bench.fabric.dead.remove(spines[0])
    bench.wait(30)
    assert bench.memory.alarm is not None
    bench.fabric.dead.clear()
    assert bench.look().cleared
    assert not bench.wait(30)
    assert bench.memory.alarm is None
    assert not bench.log


def test_what_an_operator_acknowledges_is_marked_and_restored(bench):
    spines = bench.fabric.generated.inventory.spine_guids[2:]
    links = bench.links_of(*spines)
    bench.fabric.dead |= set(spines)
    bench.wait(30)
    bench.memory = acknowledge(bench.memory)
    assert set(failed(bench.look())) == links
    assert not bench.wait(30)
    bench.fabric.dead.clear()
    assert set(bench.look().restore) == links
    assert not bench.wait(30)
    assert bench.memory.alarm is None


def test_after_an_acknowledgement_the_next_loss_is_counted_alone(bench):
    spines = bench.fabric.generated.inventory.spine_guids
    bench.fabric.dead |= set(spines[2:])
    bench.wait(4)
    bench.memory = acknowledge(bench.memory)
    bench.look()
    bench.fabric.dead.add(spines[1])
    assert set(failed(bench.wait(4)[0])) == bench.links_of(spines[1])
    bench.fabric.dead.add(spines[0])
    assert not bench.wait(4)
    assert bench.memory.alarm is not None


def test_too_many_links_raise_an_alarm(bench):
    many = [LeafLink(1, 0, 0), SpineLink(1, 0, 0), SpineLink(1, 1, 0)]
    bench.cut(*many[:2])
    assert [failed(judgement) for judgement in bench.wait(6)] == [many[:2]]
    bench.cut(many[2])
    assert not bench.wait(20)  # the three of them went down in one window
    assert bench.memory.alarm is not None
    assert bench.memory.alarm.text == (
        "lost in one window: 3 of 16 links (leaf-1-0-0, spine-1-0-0, spine-1-1-0); "
        "nothing is marked"
    )


def test_losses_in_different_windows_are_marked(bench):
    spines = bench.fabric.generated.inventory.spine_guids
    for spine in spines[1:]:
        bench.fabric.dead.add(spine)
        assert [set(failed(judgement)) for judgement in bench.wait(12)] == [bench.links_of(spine)]


def test_switches_that_come_back_slowly_still_count(bench):
    """Two switches are up again before the hold-down is over, all their links are not."""
    spines = bench.fabric.generated.inventory.spine_guids[2:]
    bench.fabric.dead |= set(spines)
    bench.look()
    bench.fabric.dead.clear()
    bench.cut(*(min(bench.links_of(spine)) for spine in spines))
    bench.wait(5)
    assert not bench.log
    assert bench.memory.alarm is not None


def test_switches_and_links_that_an_operator_took_out_do_not_count(bench):
    spines = bench.fabric.generated.inventory.spine_guids
    failed_link = LeafLink(0, 1, 0)
    bench.operator = OperatorStates(frozenset({failed_link}), frozenset(spines[2:]))
    bench.fabric.dead |= {*spines[2:], bench.fabric.generated.inventory.leaf_guids[3]}
    bench.cut(failed_link)
    assert len(bench.wait(5)) == 1
    assert bench.memory.alarm is None
    assert bench.memory.marked >= {failed_link, *bench.links_of(*spines[2:])}


def test_an_observer_without_a_way_raises_one_alarm(bench):
    bench.cut(A)
    bench.wait(4)
    bench.fabric.observer_cut = True
    judgements = [bench.look() for _ in range(30)]
    assert [judgement.raised for judgement in judgements].count(True) == 1
    assert judgements[-1].alarm is not None
    assert judgements[-1].alarm.text == "the observer reads no switch; nothing is marked"
    bench.mend(A)
    bench.fabric.observer_cut = False
    judgement = bench.look()
    assert judgement.cleared
    assert judgement.restore == (A,)
    assert judgement.alarm is None


def test_an_observer_that_is_blind_for_a_moment_raises_no_alarm(bench):
    bench.fabric.observer_cut = True
    bench.look()
    bench.fabric.observer_cut = False
    assert bench.look().alarm is None
    assert not bench.log


def test_an_acknowledged_blindness_stays_quiet(bench):
    bench.fabric.observer_cut = True
    bench.wait(5)
    bench.memory = acknowledge(bench.memory)
    assert bench.look().alarm is None
    assert not bench.wait(20)
    assert bench.memory.alarm is None


def test_readings_over_another_way_are_judged_once_an_operator_says_so(bench):
    """The observer was moved, and its recorded port is down for ever."""
    way = bench.fabric.generated.inventory.endpoints[0].at
    moved = EndReading(way, PortState.DOWN)
    bench.cut(A)
    for _ in range(5):
        assert not bench.look(1, moved).changes
    assert bench.memory.alarm is not None
    bench.memory = acknowledge(bench.memory)
    for _ in range(4):
        bench.look(1, moved)
    assert bench.memory.marked == {A}


def test_periods_begin_again_after_a_time_without_readings(bench):
    bench.cut(A)
    bench.look()
    assert not bench.look(9).changes
    assert not bench.look().changes
    assert failed(bench.look()) == [A]


@pytest.mark.parametrize("age", [9.0, 0.5])
def test_nothing_follows_from_an_old_reading(bench, age):
    bench.cut(A)
    bench.wait(2)
    reading = bench.fabric.read(bench.now - age)
    seen = interpret(bench.cabling, reading)
    assert judge(bench.memory, seen, RULES, bench.now) == ReadingOutcome(bench.memory)


def test_the_same_reading_again_changes_nothing(bench):
    bench.cut(A)
    bench.wait(5)
    before = bench.memory
    assert not bench.look(0).changes
    assert bench.memory == before


# -- modes ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.FROZEN])
def test_a_mode_that_only_reports(bench, mode):
    bench.cut(A)
    bench.wait(4)
    bench.rules = replace(RULES, mode=mode)
    bench.mend(A)
    bench.cut(B)
    judgement = [bench.look() for _ in range(15)][-1]
    assert len(bench.log) == 1
    assert [fault.link for fault in judgement.proposed_fail] == [B]
    assert judgement.proposed_restore == (A,)
    bench.cut(C)  # a window later: no alarm
    bench.wait(5)
    assert bench.memory.alarm is None
    bench.rules = RULES
    judgement = bench.look()
    assert (failed(judgement), judgement.restore) == ([B, C], (A,))


# -- documents, re-import ----------------------------------------------------------


def test_memories_have_documents(bench):
    assert FAULT_MEMORY.read(FAULT_MEMORY.write(NOTHING_SEEN)) == NOTHING_SEEN
    guids = bench.fabric.generated.inventory.l2_guids
    flap(bench)
    bench.fabric.silent.add(guids[2])
    bench.fabric.hosts_off.add(9)
    bench.wait(3)
    bench.fabric.dead.add(guids[1])
    bench.fabric.dead.add(guids[3])
    bench.look(1, unknown_switches=(UnknownSwitch(5, "new"),))
    bench.wait(4)
    assert bench.memory.alarm
    assert bench.memory.withheld
    document = json.dumps(FAULT_MEMORY.write(bench.memory))
    assert FAULT_MEMORY.read(json.loads(document)) == bench.memory
    assert len(document) < 6000


@pytest.mark.parametrize("change", [{"links": 3}, {"withheld": ["x"]}, {"alarm": {"at": 1}}])
def test_other_documents_are_refused(change):
    with pytest.raises(InvalidInput):
        FAULT_MEMORY.read(FAULT_MEMORY.write(NOTHING_SEEN) | change)


def test_links_that_are_no_longer_recorded_are_forgotten(bench):
    bench.cut(A)
    bench.wait(4)
    inventory = bench.fabric.generated.inventory
    cables = tuple(cable for cable in inventory.cables if cable.link != A)
    bench.cabling = Cabling(replace(inventory, cables=cables))
    assert not bench.look().changes
    assert not bench.memory.links


def test_ports_that_are_not_recorded_are_news(bench):
    strange = EndReading(PortRef(0x77, 1), PortState.DOWN)
    assert len(bench.look(1, strange).news) == 1


# -- the mass events of a larger fabric ----------------------------------------------


def large() -> Bench:
    """128 hosts: 16 leaves, 16 L2 switches and 16 spines with 256 links; ordinary rules."""
    bench = Bench(FaultyFabric.of(xgft="3;8,4,4;1,4,4"), Rules())
    bench.look()
    return bench


def counts(judgements: Iterable[ReadingOutcome]) -> list[tuple[int, int]]:
    """How many links each generation marks and restores."""
    return [(len(judgement.fail), len(judgement.restore)) for judgement in judgements]


@pytest.mark.parametrize("seconds", [2, 300])
@pytest.mark.parametrize("event", ["leaf", "spines", "observer", "power"])
def test_mass_events_with_recovery(event, seconds):
    """Marked is only a dead leaf, and only if it is dead for longer than the hold-down."""
    bench = large()
    inventory = bench.fabric.generated.inventory
    events: dict[str, dict[str, Any]] = {
        "leaf": {"dead": {inventory.leaf_guids[5]}},
        "spines": {"dead": set(inventory.spine_guids[5:10])},
        "observer": {"observer_cut": True},
        "power": {"hosts_off": set(range(40, 80))},
    }
    sound = bench.fabric
    bench.fabric = replace(sound, **events[event])
    changes = bench.wait(seconds)
    alarmed = bench.memory.alarm is not None
    bench.fabric = sound
    changes += bench.wait(60)
    assert bench.memory.alarm is None
    assert not bench.memory.marked
    long = seconds > 10
    assert counts(changes) == ([(4, 0), (0, 4)] if event == "leaf" and long else [])
    assert alarmed == (long and event in ("spines", "observer"))


def test_a_third_of_all_spines_acknowledged_is_two_generations():
    bench = large()
    bench.fabric.dead |= set(bench.fabric.generated.inventory.spine_guids[5:10])
    assert not bench.wait(60)
    bench.memory = acknowledge(bench.memory)
    bench.wait(60)
    bench.fabric.dead.clear()
    bench.wait(60)
    assert counts(bench.log) == [(20, 0), (0, 20)]
