# SPDX-License-Identifier: Apache-2.0

"""Words of operators and observation about hosts, links and switches, and the states they cause.

A host or link has failed if anybody says so of it or of a switch that it is connected to. It is
drained if it has not failed, and somebody says that no new owner may have it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.transactions import FEW
from laas_service.app.records import (
    FabricRecord,
    HostState,
    LinkState,
    Source,
    SwitchState,
    Word,
    Words,
)
from laas_service.app.views import leaf as leaf_view
from laas_service.domain.faults.interpretation import UnreadSwitch as ObservedState
from laas_service.domain.topology import Link
from laas_service.messages import Initiator

UP, DRAINED, FAILED = HostState.UP.value, HostState.DRAINED.value, HostState.FAILED.value
"""The states of hosts, and of links."""

MAINTENANCE = SwitchState.MAINTENANCE.value


@dataclass(frozen=True, slots=True)
class Changes:
    """The hosts and links whose state changed: the previous state and the new one."""

    hosts: Mapping[int, tuple[HostState, HostState]] = field(default_factory=dict)
    links: Mapping[Link, tuple[LinkState, LinkState]] = field(default_factory=dict)

    @property
    def routes(self) -> bool:
        """Whether routes change: those of links that have failed, or had."""
        return any(LinkState.FAILED in states for states in self.links.values())


@dataclass(frozen=True, slots=True)
class SwitchWord:
    """What operators said of a switch."""

    name: str
    level: int
    state: str
    since: datetime
    by: Initiator | None = None
    reason: str | None = None
    repaired_at: datetime | None = None
    """When they took it back; it has its effects until the tables of the switch are confirmed."""

    def effect_on_link(self) -> str:
        """The state of its links. A leaf under maintenance needs no links drained: nobody new
        gets a host there."""
        if self.state == FAILED:
            return FAILED
        return DRAINED if self.level > 1 else UP

    def effect_on_host(self) -> str:
        """The state of the hosts on it, if it is a leaf."""
        return FAILED if self.state == FAILED else DRAINED

    def word(self, state: str) -> Word:
        """The word about a link or host that has this state because of the switch."""
        return Word(Source.OPERATOR, state, self.since, self.text(), self.by, self.reason)

    def own_word(self) -> Word:
        """The word about the switch itself."""
        if self.repaired_at is None:
            return Word(Source.OPERATOR, self.state, self.since, None, self.by, self.reason)
        state = ObservedState.RETURNING.value
        return Word(Source.OPERATOR, state, self.repaired_at, self.text(), self.by)

    def text(self) -> str:
        if self.repaired_at is not None:
            return f"switch {self.name} is repaired, and its tables are not compared yet"
        return f"switch {self.name} {'has failed' if self.state == FAILED else 'is maintained'}"


def switch_words(session: Session, fabric: FabricRecord) -> dict[int, SwitchWord]:
    """What operators said of switches that the fabric has, by GUID."""
    table, known = models.SwitchStateRow, fabric.inventory.switch_of_guid
    rows = session.scalars(select(table).where(table.fabric == fabric.id).order_by(table.guid))
    return {
        switch.guid: SwitchWord(
            switch.name,
            switch.level,
            row.state,
            row.since,
            row.said_by,
            row.reason,
            row.repaired_at,
        )
        for row in rows
        if (switch := known.get(int(row.guid, 16))) is not None
    }


def links_of(fabric: FabricRecord, switches: Collection[int]) -> dict[Link, list[int]]:
    """The links of these switches, each with those of the switches that it connects."""
    links: dict[Link, list[int]] = defaultdict(list)
    if switches:
        for link, cable in fabric.inventory.cable_of_link.items():
            for end in (cable.lower, cable.upper):
                if end.guid in switches:
                    links[link].append(end.guid)
    return links


def maintained_links(session: Session, fabric: FabricRecord) -> set[Link]:
    """The links that their owners should leave, because a switch is under maintenance."""
    words = switch_words(session, fabric)
    left = {
        guid
        for guid, word in words.items()
        if word.effect_on_link() == DRAINED and word.repaired_at is None
    }
    return set(links_of(fabric, left))


def say(
    row: models.HostStateRow | models.LinkStateRow,
    state: str | None,
    at: datetime,
    by: Initiator | None,
    reason: str | None = None,
) -> None:
    """Record what an operator says of a host or link.

    The same word again changes nothing but the reason, if one is given.
    """
    if row.operator != state or reason is not None:
        row.reason = reason if state else None
    if row.operator != state:
        row.operator = state
        row.operator_since = at if state else None
        row.operator_by = by if state else None


def settle(
    session: Session,
    fabric: FabricRecord,
    *,
    hosts: Collection[int] | None = None,
    links: Collection[Link] | None = None,
) -> Changes:
    """Bring the recorded states in line with what is said; of these hosts and links, None: all.

    The fabric's row must be locked.
    """
    words, tree = switch_words(session, fabric), fabric.topology.tree
    of_hosts: dict[int, list[str]] = defaultdict(list)
    for guid, word in words.items():
        if word.level == 1:
            for host in leaf_view.hosts_on(fabric, guid):
                of_hosts[host].append(word.effect_on_host())
    of_links: dict[int, list[str]] = {
        tree.link_id(link): [words[guid].effect_on_link() for guid in guids]
        for link, guids in links_of(fabric, words).items()
    }
    link_ids = None if links is None else {tree.link_id(link) for link in links}
    host_changes = _settled(session, fabric, models.HostStateRow, "host", hosts, of_hosts)
    link_changes = _settled(session, fabric, models.LinkStateRow, "link", link_ids, of_links)
    session.flush()
    return Changes(
        {
            number: (HostState(old), HostState(new))
            for number, (old, new) in sorted(host_changes.items())
        },
        {
            tree.link_at(number): (LinkState(old), LinkState(new))
            for number, (old, new) in sorted(link_changes.items())
        },
    )


def _settled(
    session: Session,
    fabric: FabricRecord,
    table: Any,
    key: str,
    chosen: Collection[int] | None,
    of_switches: Mapping[int, list[str]],
) -> dict[int, tuple[str, str]]:
    """The previous and the new state of each host or link whose state changes.

    ``of_switches`` are the states that follow from words about switches.
    """
    rows = rows_of(session, fabric.id, table, key, chosen)
    numbers = rows.keys() | (
        of_switches.keys() if chosen is None else of_switches.keys() & set(chosen)
    )
    changes: dict[int, tuple[str, str]] = {}
    for number in sorted(numbers):
        row = rows.get(number)
        own = () if row is None else (word.state for word in _own_words(row))
        new = _worst(*own, *of_switches.get(number, ()))
        old = UP if row is None else row.state
        if row is None:
            if new != UP:
                session.add(table(fabric=fabric.id, state=new, **{key: number}))
        elif new == UP:
            session.delete(row)
        else:
            row.state = new
        if new != (old or UP):
            changes[number] = (old or UP, new)
    return changes


def rows_of(
    session: Session, fabric_id: str, table: Any, key: str, chosen: Collection[int] | None
) -> dict[int, Any]:
    """The rows of these hosts or links (None: all) by number, locked."""
    column = getattr(table, key)
    query = select(table).where(table.fabric == fabric_id).order_by(column).with_for_update()
    if chosen is not None and len(chosen) <= FEW:
        query = query.where(column.in_(chosen))
    rows = {getattr(row, key): row for row in session.scalars(query)}
    if chosen is None:
        return rows
    wanted = set(chosen)
    return {number: row for number, row in rows.items() if number in wanted}


def _worst(*states: str | None) -> str:
    for state in (FAILED, DRAINED):
        if state in states:
            return state
    return UP


def words(session: Session, fabric: FabricRecord) -> Words:
    """All words about parts that are not up; of each part the word that decides comes first."""
    switches, tree = switch_words(session, fabric), fabric.topology.tree
    by_link = links_of(fabric, switches)
    hosts: dict[int, list[Word]] = defaultdict(list)
    links: dict[Link, list[Word]] = defaultdict(list)
    host_table, link_table = models.HostStateRow, models.LinkStateRow
    for row in session.scalars(select(host_table).where(host_table.fabric == fabric.id)):
        hosts[row.host] += _own_words(row, _leaves(fabric, row.leaves))
    for row_ in session.scalars(select(link_table).where(link_table.fabric == fabric.id)):
        links[tree.link_at(row_.link)] += _own_words(row_)
    for guid, switch in switches.items():
        if switch.level == 1:
            for host in leaf_view.hosts_on(fabric, guid):
                hosts[host].append(switch.word(switch.effect_on_host()))
    for link, guids in by_link.items():
        for switch in (switches[guid] for guid in guids):
            if (effect := switch.effect_on_link()) != UP:
                links[link].append(switch.word(effect))
    return Words(
        {host: _ordered(said) for host, said in hosts.items()},
        {link: _ordered(said) for link, said in links.items()},
        {guid: word.own_word() for guid, word in switches.items()},
    )


def _own_words(
    row: models.HostStateRow | models.LinkStateRow, operators_evidence: str | None = None
) -> Iterator[Word]:
    """What is said of a host or link itself."""
    if row.operator is not None:
        since, by = row.operator_since, row.operator_by
        yield Word(Source.OPERATOR, row.operator, since, operators_evidence, by, row.reason)
    if row.observed is not None:
        yield Word(Source.OBSERVED, row.observed, row.observed_since, row.evidence)
    if isinstance(row, models.HostStateRow) and row.nova is not None:
        yield Word(Source.NOVA, row.nova, row.nova_since, row.nova_evidence)


def _ordered(said: Iterable[Word]) -> tuple[Word, ...]:
    """Failed before drained, operators before observation; else as given."""
    return tuple(
        sorted(said, key=lambda word: (word.state != FAILED, word.source is not Source.OPERATOR))
    )


def _leaves(fabric: FabricRecord, guids: list[str] | None) -> str | None:
    """The evidence of a drain with leaves."""
    if guids is None:
        return None
    known = fabric.inventory.switch_of_guid
    names = (known[int(g, 16)].name if int(g, 16) in known else g for g in guids)
    return f"drained with leaf {', '.join(names)}"
