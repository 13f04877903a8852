# SPDX-License-Identifier: Apache-2.0

"""What follows from readings over time: which links are recorded as failed, and which again not.

A judgement has three steps. It *follows* each link: a link that is down is suspected, and failed
after the hold-down; one that was moved has failed at once, as packets over it arrive at a foreign
port; one that goes down too often, or has too many errors, is quarantined. The *circuit breaker*
compares what is new in one window with its limits; beyond them it raises an alarm and nothing is
marked. Else the judgement *settles*: everything that is due is marked and restored at once.

A switch that answers again may have old tables, or none. Its links stay out of use until somebody
has compared its tables with the published ones.

Only losses count in the breaker. A link is restored only if both its ends were read and say that
it is up, which an observer without a way to the fabric cannot report.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from laas_service.domain.faults.interpretation import Interpretation, UnreadSwitch
from laas_service.domain.faults.memory import (
    Alarm,
    CircuitState,
    FaultMemory,
    LinkCondition,
    LinkMemory,
    SwitchMemory,
    WithheldHost,
)
from laas_service.domain.topology import LeafLink, Link, link_name
from laas_service.domain.wording import listed

WATCHED, SUSPECTED, FAILED, QUARANTINED = (
    LinkCondition.WATCHED,
    LinkCondition.SUSPECTED,
    LinkCondition.FAILED,
    LinkCondition.QUARANTINED,
)

NOT_COMPARED = "its switch answers again, and its tables are not compared yet"
"""The evidence for links and hosts at a returning switch."""

_Loss = LinkMemory | SwitchMemory
_Entry = TypeVar("_Entry", LinkMemory, SwitchMemory)


class Mode(StrEnum):
    """What a judgement may change."""

    ACT = "act"  # mark and restore links
    OBSERVE = "observe"  # follow and propose; mark and restore nothing
    FROZEN = "frozen"  # the same; repair and publication, too, stand still


@dataclass(frozen=True, slots=True)
class Rules:
    """How readings are judged. Times are seconds."""

    mode: Mode = Mode.ACT
    hold_down: float = 5.0
    """How long a link is down before it has failed. It waits at most as long again for changes
    that began meanwhile, so that all of them are one generation."""
    flaps: int = 3
    """How often a link goes down within ``flap_window`` until it is quarantined; at least 2."""
    flap_window: float = 600.0
    """A constant of the service: bad cables come back within minutes, and ``flaps`` is what sites
    choose."""
    quarantine: float = 1800.0
    """How long a quarantined link has to stay up."""
    breaker_switches: int = 1
    """The most switches lost in one window."""
    breaker_share: float = 0.05
    """The largest share of the links lost in one window, without those of dead switches; 0..1.
    One link is always allowed."""
    breaker_window: float = 60.0
    """A constant of the service: no power supply takes longer to lose its switches."""
    reading_lifetime: float = 60.0
    """The age from which a reading decides nothing. After as long a time without a reading,
    hold-downs and quarantines begin again."""


@dataclass(frozen=True, slots=True)
class OperatorStates:
    """What operators said. Losses of these links and switches do not count in the breaker."""

    failed_links: frozenset[Link] = frozenset()
    switches: frozenset[int] = frozenset()
    """GUIDs of switches that are failed, drained or maintained."""


NO_WORDS = OperatorStates()


@dataclass(frozen=True, slots=True)
class ObservedFault:
    """A link to be recorded as failed, source ``observed``."""

    link: Link
    since: float
    """When the link was first seen down, or quarantined; seconds since the epoch."""
    evidence: str


@dataclass(frozen=True, slots=True)
class ReadingOutcome:
    """What follows from a reading: one transaction and one generation of the fabric."""

    memory: FaultMemory
    """The memory for the next judgement; to be stored together with the changes."""
    fail: tuple[ObservedFault, ...] = ()
    """Links to be recorded as failed, ascending."""
    restore: tuple[Link, ...] = ()
    """Links whose observed fault ends, ascending."""
    withhold: tuple[Link, ...] = ()
    """Links that nobody new may get from now on, as nobody can confirm that they work: they lead
    through a silent switch or one that is returning, or join two switches that were not read."""
    unwithhold: tuple[Link, ...] = ()
    proposed_fail: tuple[ObservedFault, ...] = ()
    """What the mode or an alarm keeps from being marked."""
    proposed_restore: tuple[Link, ...] = ()
    raised: bool = False
    """Whether this reading raised the alarm that the memory holds."""
    cleared: bool = False
    """Whether this reading ended an alarm."""
    news: tuple[str, ...] = ()
    """News that the reading before did not have."""

    @property
    def alarm(self) -> Alarm | None:
        """The alarm that stands."""
        return self.memory.alarm

    @property
    def changes(self) -> bool:
        """Whether the record of links changes."""
        return bool(self.fail or self.restore or self.withhold or self.unwithhold)


def judge(
    memory: FaultMemory,
    interpretation: Interpretation,
    rules: Rules,
    now: float,
    operator: OperatorStates = NO_WORDS,
    compared: Collection[int] | None = None,
) -> ReadingOutcome:
    """What follows from a reading, after what the memory holds.

    ``compared`` are those of the returning switches, by GUID, whose tables are as published; None
    if nobody can compare tables, so that a switch that answers is good.

    ``now`` (seconds since the epoch) only tells the age of the reading; all periods are counted
    from reading to reading. The same reading again changes nothing. Nothing follows from a
    reading that is too old, or older than one that was judged, or whose observer has no way to
    the fabric.
    """
    at = interpretation.at
    if now - at > rules.reading_lifetime or (memory.at is not None and at < memory.at):
        return ReadingOutcome(memory)
    if interpretation.observer_problem:
        blind = _blind(memory, interpretation, rules)
        if interpretation.reads_nothing or not blind.memory.blindness_accepted:
            return blind
        memory, cleared = blind.memory, False
    else:
        cleared = memory.alarm is not None and memory.alarm.observer
        memory = replace(
            memory,
            blind_since=None,
            blindness_accepted=False,
            alarm=None if cleared else memory.alarm,
        )
    followed = _followed(memory, interpretation, rules, compared)
    verdict = _Judgement(followed, interpretation, rules, operator)
    judgement = verdict.judgement()
    news = tuple(text for text in interpretation.news if text not in memory.told)
    return replace(judgement, cleared=judgement.cleared or cleared, news=news)


def _blind(memory: FaultMemory, interpretation: Interpretation, rules: Rules) -> ReadingOutcome:
    """The judgement while the observer has no way to the fabric: an alarm after the hold-down."""
    at = interpretation.at
    since = at if memory.blind_since is None else memory.blind_since
    memory = replace(memory, blind_since=since)
    if memory.alarm or memory.blindness_accepted or at - since < rules.hold_down:
        return ReadingOutcome(memory)
    alarm = Alarm(at, f"{interpretation.observer_problem}; nothing is marked", observer=True)
    return ReadingOutcome(replace(memory, alarm=alarm), raised=True)


UNDECIDED = 1.0
"""Seconds until a newer reading is asked for, where a reading took longer than the hold-down."""


def hold_down_ends_in(memory: FaultMemory, rules: Rules, at: float) -> float | None:
    """Seconds from ``at`` until the next hold-down ends; None if none is running.

    ``UNDECIDED`` if one has ended, and the last reading is from before its end.
    """
    suspected = (entry for entry in memory.links.values() if entry.condition is SUSPECTED)
    switches = (entry for entry in memory.switches.values() if entry.standing is CircuitState.NEW)
    changes: tuple[_Loss, ...] = (*suspected, *switches)
    ends = [entry.since + rules.hold_down for entry in changes]
    if any(memory.at is not None and memory.at < end <= at for end in ends):
        return UNDECIDED
    return min((end - at for end in ends if end > at), default=None)


# -- following ------------------------------------------------------------------


def _followed(
    memory: FaultMemory,
    interpretation: Interpretation,
    rules: Rules,
    compared: Collection[int] | None,
) -> FaultMemory:
    """The memory after the reading, before anything is decided."""
    at = interpretation.at
    gap = memory.at is None or at - memory.at > rules.reading_lifetime
    links = {}
    recorded = interpretation.cabling.links
    seen = interpretation.down.keys() | interpretation.erroneous.keys()
    for link in memory.links.keys() | seen:
        if link in recorded:
            entry = _link_after(memory.links.get(link), link, interpretation, rules, gap)
            if entry is not None:
                links[link] = entry
    switches = {}
    for guid, state in interpretation.switches.items():
        old = memory.switches.get(guid)
        restarted = (
            old is None
            or old.state is UnreadSwitch.RETURNING
            or (gap and old.standing is CircuitState.NEW)
        )
        switches[guid] = (
            SwitchMemory(state, at) if old is None or restarted else replace(old, state=state)
        )
    if compared is not None:
        switches |= _returning(memory, interpretation, compared)
    names = interpretation.cabling.host_names
    absent = {names[host] for host in sorted(interpretation.absent_hosts)}
    return replace(
        memory,
        at=at,
        links=dict(sorted(links.items(), key=lambda item: _order(item[0]))),
        switches=dict(sorted(switches.items())),
        hosts={name: memory.hosts.get(name, at) for name in sorted(absent)},
        told=interpretation.news,
    )


def _returning(
    memory: FaultMemory, interpretation: Interpretation, compared: Collection[int]
) -> dict[int, SwitchMemory]:
    """The switches that answer again, and whose tables are still to be compared.

    A switch that was away for less than the hold-down changed nothing, and needs none.
    """
    returning = {}
    for guid, entry in memory.switches.items():
        answers = guid not in interpretation.switches and entry.standing is not CircuitState.NEW
        if answers and guid in interpretation.cabling.switch_names:
            if entry.state is not UnreadSwitch.RETURNING:
                at, state = interpretation.at, UnreadSwitch.RETURNING
                returning[guid] = SwitchMemory(state, at, entry.standing)
            elif guid not in compared:
                returning[guid] = entry
    return returning


def _link_after(
    entry: LinkMemory | None, link: Link, interpretation: Interpretation, rules: Rules, gap: bool
) -> LinkMemory | None:
    """The memory of a link after a reading; None if there is nothing to remember.

    ``gap``: the reading before is too long ago for periods to go on.
    """
    at = interpretation.at
    if link in interpretation.down:
        return _seen_down(entry, link, interpretation, rules, gap)
    if link in interpretation.erroneous:
        entry = _seen_with_errors(entry, at, interpretation.erroneous[link])
    elif entry is None:
        return None
    elif link in interpretation.unsure:
        entry = _seen_unsure(entry)
    else:
        entry = _seen_up(entry, at, rules, gap)
    entry = replace(entry, downs=_recent(entry.downs, at, rules))
    return entry if entry.condition.bad or entry.marked or entry.downs else None


def _seen_down(
    entry: LinkMemory | None, link: Link, interpretation: Interpretation, rules: Rules, gap: bool
) -> LinkMemory:
    at, evidence = interpretation.at, interpretation.down[link]
    switch, moved = interpretation.down_by_switch.get(link, 0), link in interpretation.moved
    if entry is None:
        condition = FAILED if moved or not rules.hold_down else SUSPECTED
        return LinkMemory(condition, at, evidence, (at,), switch=switch, moved=moved)
    downs = _recent(entry.downs, at, rules)
    if entry.up_since is not None:
        downs = (*downs, at)[-rules.flaps :]
    if entry.condition is WATCHED:
        standing = CircuitState.PASSED if entry.marked else CircuitState.NEW
        entry = LinkMemory(
            SUSPECTED, at, evidence, switch=0, marked=entry.marked, standing=standing
        )
    elif entry.condition is SUSPECTED:
        if gap:
            entry = replace(entry, since=at)
        elif at - entry.since >= rules.hold_down:
            entry = replace(entry, condition=FAILED)
        entry = replace(entry, evidence=evidence)
    elif entry.condition is FAILED:
        entry = replace(entry, evidence=evidence)
    if moved and entry.condition is SUSPECTED:
        entry = replace(entry, condition=FAILED)
    if entry.condition is not QUARANTINED and len(downs) >= rules.flaps:
        often = f"went down {len(downs)} times within {rules.flap_window:g} seconds"
        entry = replace(entry, condition=QUARANTINED, since=at, evidence=often)
    switch = switch or entry.switch
    return replace(entry, downs=downs, up_since=None, switch=switch, moved=moved)


def _seen_with_errors(entry: LinkMemory | None, at: float, evidence: str) -> LinkMemory:
    """A link with too many errors is quarantined; it has to stay up without them."""
    if entry is None:
        return LinkMemory(QUARANTINED, at, evidence)
    if entry.condition is QUARANTINED:
        return replace(entry, up_since=None)
    standing = CircuitState.PASSED if entry.marked else CircuitState.NEW
    return replace(
        entry,
        condition=QUARANTINED,
        since=at,
        evidence=evidence,
        up_since=None,
        standing=standing,
    )


def _seen_unsure(entry: LinkMemory) -> LinkMemory:
    """A hold-down and a quarantine begin again; a link that is recorded as failed stays so."""
    if entry.condition is SUSPECTED or (entry.condition is FAILED and not entry.marked):
        return replace(entry, condition=WATCHED)
    if entry.condition is QUARANTINED:
        return replace(entry, up_since=None)
    return entry


def _seen_up(entry: LinkMemory, at: float, rules: Rules, gap: bool) -> LinkMemory:
    up_since = at if entry.up_since is None or gap else entry.up_since
    entry = replace(entry, moved=False)
    if entry.condition is not QUARANTINED:
        return replace(entry, condition=WATCHED, up_since=up_since)
    if at - up_since < rules.quarantine:
        return replace(entry, up_since=up_since)
    return replace(entry, condition=WATCHED, up_since=up_since, downs=())


def _recent(downs: tuple[float, ...], at: float, rules: Rules) -> tuple[float, ...]:
    return tuple(down for down in downs if at - down < rules.flap_window)


def _order(link: Link) -> tuple[bool, Link]:
    """Leaf links before spine links, then by address."""
    return not isinstance(link, LeafLink), link


# -- deciding -------------------------------------------------------------------


class _Judgement:
    """One judgement: the circuit breaker, then what is marked and restored."""

    def __init__(
        self,
        memory: FaultMemory,
        interpretation: Interpretation,
        rules: Rules,
        operator: OperatorStates,
    ) -> None:
        self._memory = memory
        self._interpretation = interpretation
        self._cabling = interpretation.cabling
        self._rules = rules
        self._operator = operator
        self._at = interpretation.at
        self._returning = {
            guid for guid, entry in memory.switches.items() if entry.state is UnreadSwitch.RETURNING
        }

    def judgement(self) -> ReadingOutcome:
        before = self._memory.alarm
        alarm = self._alarm()
        raised, cleared = before is None and alarm is not None, before is not None and alarm is None
        if alarm is None and self._window_is_over():
            judgement = self._settled()
        else:
            opened = self._opened() if alarm is None else None
            judgement = ReadingOutcome(replace(self._memory, alarm=alarm, opened=opened))
        if alarm is not None or self._rules.mode is not Mode.ACT:
            faults, restore = self._due()
            judgement = replace(judgement, proposed_fail=faults, proposed_restore=restore)
        return replace(judgement, raised=raised, cleared=cleared)

    # -- the circuit breaker ------------------------------------------------------

    def _alarm(self) -> Alarm | None:
        """The alarm that stands after this reading."""
        undecided: list[_Loss] = [*self._new_links(), *self._new_switches()]
        if self._memory.alarm is not None:
            return self._memory.alarm if undecided else None
        if not any(self._held_down(entry) for entry in undecided):
            return None
        switches, links = self._lost_switches(), self._lost_links()
        allowed = max(1, int(self._rules.breaker_share * len(self._cabling.links)))
        if len(switches) <= self._rules.breaker_switches and len(links) <= allowed:
            return None
        return Alarm(self._at, self._text(switches, links))

    def _new_links(self) -> Iterator[LinkMemory]:
        """Links that got worse, of which neither the breaker nor an operator has decided."""
        for link, entry in self._memory.links.items():
            new = entry.condition.bad and entry.standing is CircuitState.NEW
            if new and not entry.marked and not self._expected(link):
                yield entry

    def _new_switches(self) -> Iterator[SwitchMemory]:
        for guid, entry in self._memory.switches.items():
            if entry.standing is CircuitState.NEW and guid not in self._operator.switches:
                yield entry

    def _expected(self, link: Link) -> bool:
        """Whether an operator said that the link or a switch at one end is out of use."""
        cable = self._cabling.links[link]
        return link in self._operator.failed_links or not self._operator.switches.isdisjoint(
            (cable.lower.guid, cable.upper.guid)
        )

    def _counts(self, entry: _Loss) -> bool:
        """Whether a loss counts in this window."""
        if entry.standing is CircuitState.PASSED:
            return self._at - entry.since < self._rules.breaker_window
        return entry.standing is CircuitState.NEW

    def _lost_switches(self) -> list[int]:
        """The switches lost in the window: not read now, or their links are still down."""
        lost = {guid for guid, entry in self._memory.switches.items() if self._counts(entry)}
        lost -= self._returning
        lost |= {entry.switch for _, entry in self._counted_links() if entry.switch}
        return sorted(lost - self._operator.switches)

    def _lost_links(self) -> list[Link]:
        """The links lost in the window, without those of dead switches."""
        return [link for link, entry in self._counted_links() if not entry.switch]

    def _counted_links(self) -> Iterator[tuple[Link, LinkMemory]]:
        for link, entry in self._memory.links.items():
            if entry.condition.bad and self._counts(entry) and not self._expected(link):
                yield link, entry

    def _text(self, switches: list[int], links: list[Link]) -> str:
        parts = []
        if switches:
            names = listed(map(self._cabling.switch_name, switches))
            parts.append(f"{len(switches)} of {len(self._cabling.switch_names)} switches ({names})")
        if links:
            names = listed(map(link_name, links))
            parts.append(f"{len(links)} of {len(self._cabling.links)} links ({names})")
        return f"lost in one window: {' and '.join(parts)}; nothing is marked"

    # -- settling -----------------------------------------------------------------

    def _held_down(self, entry: _Loss) -> bool:
        """Whether the hold-down is over."""
        if isinstance(entry, LinkMemory) and entry.condition.unusable:
            return True
        return self._at - entry.since >= self._rules.hold_down

    def _young(self) -> bool:
        """Whether a change is within its hold-down."""
        suspected = (e for e in self._memory.links.values() if e.condition is SUSPECTED)
        switches = (e for e in self._memory.switches.values() if e.standing is CircuitState.NEW)
        changes: tuple[_Loss, ...] = (*suspected, *switches)
        return not all(map(self._held_down, changes))

    def _opened(self) -> float | None:
        """When the first change was seen that is not settled."""
        waits = self._young() or any(
            entry.condition.unusable != entry.marked and not self._awaits_comparison(link)
            for link, entry in self._memory.links.items()
        )
        if not waits:
            return None
        return self._at if self._memory.opened is None else self._memory.opened

    def _awaits_comparison(self, link: Link) -> bool:
        """Whether a switch at one end is returning."""
        cable = self._cabling.links[link]
        return cable.lower.guid in self._returning or cable.upper.guid in self._returning

    def _window_is_over(self) -> bool:
        """Whether all changes can be settled as one: none is young, or the first waited enough.

        A link that was moved waits for no others.
        """
        opened = self._opened()
        late = opened is not None and self._at - opened >= 2 * self._rules.hold_down
        links = self._memory.links.items()
        moved = any(entry.moved and link not in self._memory.closed for link, entry in links)
        return late or moved or not self._young()

    def _due(self) -> tuple[tuple[ObservedFault, ...], tuple[Link, ...]]:
        """The links to mark, and those to restore: only links that this reading sees up."""
        links, unsure = self._memory.links.items(), self._interpretation.unsure
        faults = (
            ObservedFault(link, entry.since, entry.evidence)
            for link, entry in links
            if entry.condition.unusable and not entry.marked
        )
        restore = (
            link
            for link, entry in links
            if entry.marked
            and entry.condition is WATCHED
            and link not in unsure
            and not self._awaits_comparison(link)
        )
        return tuple(faults), tuple(restore)

    def _settled(self) -> ReadingOutcome:
        """The judgement that lets everything due through, and marks it if the mode allows."""
        memory = self._memory
        links = {link: self._passed(entry) for link, entry in memory.links.items()}
        switches = {guid: self._passed(entry) for guid, entry in memory.switches.items()}
        opened = self._at if self._young() else None
        if self._rules.mode is not Mode.ACT:
            passed = replace(memory, links=links, switches=switches, opened=opened, alarm=None)
            return ReadingOutcome(passed)
        faults, restore = self._due()
        for fault in faults:
            links[fault.link] = replace(links[fault.link], marked=True)
        for link in restore:
            links[link] = replace(links[link], marked=False)
            if not links[link].downs:
                del links[link]
        for link, entry in links.items():
            if entry.marked and entry.condition is WATCHED and self._awaits_comparison(link):
                links[link] = replace(entry, evidence=NOT_COMPARED)
        withheld = self._withheld(switches) - {link for link, e in links.items() if e.marked}
        hosts = self._withheld_hosts(switches)
        return ReadingOutcome(
            replace(
                memory,
                links=links,
                switches=switches,
                withheld=withheld,
                withheld_hosts=hosts,
                closed=frozenset(link for link, e in links.items() if e.marked and e.moved),
                opened=opened,
                alarm=None,
            ),
            faults,
            restore,
            tuple(sorted(withheld - memory.withheld, key=_order)),
            tuple(sorted(memory.withheld - withheld, key=_order)),
        )

    def _passed(self, entry: _Entry) -> _Entry:
        due = isinstance(entry, SwitchMemory) or entry.condition.unusable
        if due and entry.standing is CircuitState.NEW and self._held_down(entry):
            return replace(entry, standing=CircuitState.PASSED)
        return entry

    def _withheld_hosts(self, switches: Mapping[int, SwitchMemory]) -> dict[int, WithheldHost]:
        """The hosts at switches that are not confirmed, those at a dead one as failed; and hosts
        with another adapter at one of their ports."""
        known = self._memory.withheld_hosts
        withheld = {
            host: WithheldHost(known[host].since if host in known else self._at, evidence)
            for host, evidence in self._interpretation.moved_hosts.items()
        }
        for guid, entry in switches.items():
            if entry.standing is CircuitState.NEW:
                continue
            failed = entry.state is UnreadSwitch.DEAD
            name = self._cabling.switch_name(guid)
            if guid in self._returning:
                evidence = NOT_COMPARED
            else:
                evidence = f"its switch {name} {'is dead' if failed else 'does not answer'}"
            for host in self._cabling.hosts_of_switch.get(guid, ()):
                if host not in withheld or (failed and not withheld[host].failed):
                    withheld[host] = WithheldHost(entry.since, evidence, failed)
        return dict(sorted(withheld.items()))

    def _withheld(self, switches: Mapping[int, SwitchMemory]) -> frozenset[Link]:
        """The links that nobody can confirm: those of silent and of returning switches, and those
        between two switches that were not read. Switches that were not let through do not count."""
        withheld = set()
        passed = {
            guid: e.state for guid, e in switches.items() if e.standing is not CircuitState.NEW
        }
        for guid, state in passed.items():
            for cable in self._cabling.cables_of_switch[guid]:
                both = cable.lower.guid in passed and cable.upper.guid in passed
                alone = state in (UnreadSwitch.SILENT, UnreadSwitch.RETURNING)
                if cable.link is not None and (alone or both):
                    withheld.add(cable.link)
        return frozenset(withheld)
