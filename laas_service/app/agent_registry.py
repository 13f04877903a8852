# SPDX-License-Identifier: Apache-2.0

"""The use cases of agents: processes beside OpenSM that fetch file sets and report.

Each fabric has one active agent. Reports of the others are shown, but confirm nothing.
"""

import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from laas_service.app import safeguards
from laas_service.app.lifecycle import DUE, DUE_IF_CHANGING
from laas_service.app.ports.agents import Agent, Agents, FileSets
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.store import Store
from laas_service.app.records import Caller
from laas_service.domain.errors import Conflict, InvalidInput, LimitExceeded, NotFound
from laas_service.domain.faults.observation import Mode
from laas_service.messages import (
    AgentReport,
    Applied,
    Condition,
    ConfirmedBy,
    FileSet,
    Orders,
    Span,
)

LOG = logging.getLogger(__name__)

NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}"
"""Names of agents; the default is the machine's host name."""

CONFIRMING = (Condition.APPLIED, Condition.OTHER_GENERATION)
"""The conditions that name the generation in the switches."""


def successor(agents: Collection[Agent], reporting: str, seconds: float) -> str:
    """The name of the agent that is active once ``reporting``, one of them, has reported.

    The active agent remains active while it reports within ``seconds`` and is able, and for as
    long as no other agent that is able reports.
    """
    by_name = {agent.name: agent for agent in agents}
    active = next((agent for agent in agents if agent.active), None)
    if active is None or active.name == reporting:
        return reporting
    serves = active.age < seconds and active.seen.condition.able
    if not serves and by_name[reporting].seen.condition.able:
        return reporting
    return active.name


def applied(agents: Collection[Agent], seconds: float) -> Applied:
    """The generation in the switches that the active agent reported within ``seconds``."""
    standbys = {agent.name: agent.seen.published for agent in agents if not agent.active}
    return replace(_of_active(agents, seconds), standbys=standbys)


def _of_active(agents: Collection[Agent], seconds: float) -> Applied:
    active = next((agent for agent in agents if agent.active), None)
    if active is None:
        return Applied(None, "no agent reports: start laas-opensm-agent beside OpenSM")
    if active.age >= seconds:
        last = f"{active.name} was last seen at {active.seen_at.isoformat(timespec='seconds')}"
        return Applied(None, f"no agent reports: {last}")
    seen = active.seen
    if seen.condition is Condition.APPLIED:
        return Applied(
            seen.generation,
            without=seen.without,
            unconfirmed=seen.unconfirmed,
            by=ConfirmedBy.AGENT,
            condition=seen.condition,
            stamp=seen.stamp,
            running=seen.running,
            spent=_spent(seen),
        )
    text = f"agent {active.name}: {seen.condition.value.replace('_', ' ')}"
    return Applied(
        seen.generation,
        f"{text}: {seen.detail}" if seen.detail else text,
        without=seen.without,
        unconfirmed=seen.unconfirmed,
        by=ConfirmedBy.AGENT,
        condition=seen.condition,
        stamp=seen.stamp,
        running=seen.running,
        spent=_spent(seen),
    )


def _spent(seen: AgentReport) -> Mapping[Span, float]:
    """Where the agent's time for the generation in the switches went, if that is its newest."""
    return seen.spent if seen.generation == seen.published else {}


MOST_AHEAD = 16_000_000
"""How far above the database's a generation may be that agents report: going forward once takes a
million, and numbers end at 2 ** 31."""

MOST_FORWARD = 10
"""How often a fabric goes forward within ``FORWARD_SPAN`` before reports that ask for more are
refused, counted in the database."""

FORWARD_SPAN = timedelta(days=1)


class AgentRegistry:
    """The agents of all fabrics, and the file sets for them.

    A report is valid for ``seconds``. ``wake`` wakes a worker. ``fault_mode`` is the configured
    mode of observation. ``now`` is the clock by which workers judge the ages of readings. Agents of
    a frozen fabric keep the set that they have.
    """

    def __init__(
        self,
        store: Store,
        agents: Agents,
        files: FileSets,
        *,
        seconds: float,
        wake: Callable[[], None],
        now: Callable[[], datetime],
        fault_mode: Mode = Mode.ACT,
    ) -> None:
        self.now = now
        self._fault_mode = fault_mode
        self._store = store
        self._agents = agents
        self._files = files
        self.seconds = seconds
        self._wake = wake

    def report(self, fabric_id: str, name: str, seen: AgentReport) -> Orders:
        """Record an agent's report of its OpenSM and of the switches.

        A refused report has no effect.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: the name is malformed, or the condition goes without a generation and
                one is given, or the other way round, or the generation is ``MOST_AHEAD`` above
                that of the database.
            LimitExceeded: generations of another past were reported too often, or the fabric has
                too many agents.
        """
        if not re.fullmatch(NAME, name):
            fix = "use 1 to 255 of A-Z a-z 0-9 . _ -, not . or - in front"
            raise InvalidInput("agent", name, fix)
        if (seen.generation is not None) != (seen.condition in CONFIRMING):
            which = " or ".join(condition.value for condition in CONFIRMING)
            raise InvalidInput("generation", seen.generation, f"give it with {which}, and only so")
        strange = self._of_another_past(fabric_id, name, seen)
        turn = self._agents.report(fabric_id, name, seen, self.seconds)
        for generation, stamp, text in strange:
            self._store.fabrics.go_forward(fabric_id, generation, stamp, text)
        fabric = self._store.fabrics.get(fabric_id)
        wanted, stamp = fabric.routes_generation, fabric.routes_stamp
        if self._frozen(fabric_id) and seen.published is not None:
            wanted, stamp = seen.published, seen.published_stamp
        if turn.active == name and seen.counters:
            self._store.faults.record_counters(fabric_id, seen.counters)
        if turn.news:
            LOG.info(
                "fabric %s: agent %s is active; %s reports %s (%s)",
                *(fabric_id, turn.active, name, seen.condition.value, seen.detail or "no detail"),
            )
            known = applied(self._agents.all(fabric_id), self.seconds)
            self._store.observations.note_applied(fabric_id, known)
            self._wake()
        return Orders(turn.active == name, turn.active, wanted, self.seconds, stamp)

    def _of_another_past(
        self, fabric_id: str, name: str, seen: AgentReport
    ) -> list[tuple[int, str, str]]:
        """Generations that the agent has and the database never had, with stamp and a text.

        Raises: InvalidInput, LimitExceeded, NotFound: an agent must not use all numbers up.
        """
        fix = "remove the 'current' link of the fabric on that agent's machine"
        present, strange = (
            self._store.fabrics.get(fabric_id).generation,
            list[tuple[int, str, str]](),
        )
        for generation, stamp, where in (
            (seen.published, seen.published_stamp, f"agent {name} has published"),
            (seen.generation, seen.stamp, f"agent {name} sees in the switches"),
        ):
            if generation is None or self._store.fabrics.in_past(fabric_id, generation, stamp):
                continue
            text = f"{where} generation {generation}"
            if generation > present + MOST_AHEAD:
                raise InvalidInput(
                    "generation", generation, f"{text}, and the database is at {present}; {fix}"
                )
            strange.append((generation, stamp, text))
        if strange and self._store.fabrics.went_forward(fabric_id, FORWARD_SPAN) >= MOST_FORWARD:
            raise LimitExceeded(
                f"{strange[0][2]}, and fabric {fabric_id!r} went forward {MOST_FORWARD} times "
                f"within a day; {fix}"
            )
        return strange

    def _frozen(self, fabric_id: str) -> bool:
        mode = self._store.faults.mode(fabric_id) or self._fault_mode
        return mode is Mode.FROZEN

    def agents(self, fabric_id: str) -> list[Agent]:
        """By name. Raises: NotFound."""
        self._store.fabrics.get(fabric_id)
        return self._agents.all(fabric_id)

    def behind(self, fabric_id: str) -> set[str]:
        """Names of the agents whose set is not the wanted one: if the OpenSM beside one of them
        becomes the master, it routes by older files. Raises: NotFound."""
        fabric = self._store.fabrics.get(fabric_id)
        wanted, stamp = fabric.routes_generation, fabric.routes_stamp

        def has_it(seen: AgentReport) -> bool:
            same_past = not stamp or seen.published_stamp in ("", stamp)
            return seen.published == wanted and same_past

        return {agent.name for agent in self._agents.all(fabric_id) if not has_it(agent.seen)}

    def holding_up(self, fabric_id: str) -> dict[str, set[str]]:
        """By allocation (id) whose hosts or links would be free, the managers that it is held for.

        These could become the master and route by older files. Raises: NotFound.
        """
        if not self.behind(fabric_id):
            return {}
        known = applied(self._agents.all(fabric_id), self.seconds)
        records = every_allocation(
            self._store.allocations, fabric=fabric_id, states=DUE | DUE_IF_CHANGING
        )
        held = {record.id: safeguards.held_for(record, known) for record in records}
        return {id: managers for id, managers in held.items() if managers}

    def forget(self, caller: Caller, fabric_id: str, name: str) -> Agent:
        """A manager is gone for good: nothing is held until it has newer files. What it was.

        Raises:
            NotFound: there is no such fabric or agent.
            Conflict: it is active, or has reported within the lease.
        """
        known = {agent.name: agent for agent in self.agents(fabric_id)}
        if name not in known:
            raise NotFound("agent", name, f"known: {', '.join(known) or 'none'}")
        agent = known[name]
        if agent.active:
            raise Conflict(
                f"agent {name} is the active one, for which nothing is held: start the agent of "
                "another manager; once that one is active, forget this one"
            )
        if agent.age < self.seconds:
            raise Conflict(
                f"agent {name} reported {agent.age:.0f} s ago: stop OpenSM and laas-opensm-agent "
                f"on that machine, wait {self.seconds:g} s, then forget it"
            )
        self._agents.forget(fabric_id, name)
        LOG.info(
            "fabric %s: %s forgot agent %s, whose set was generation %s",
            *(fabric_id, caller.user_id, name, agent.seen.published),
        )
        self._wake()
        return agent

    def file_set(self, fabric_id: str, form: int) -> FileSet:
        """The wanted set, in the newest form up to ``form``.

        Raises:
            NotFound: there is no such fabric.
            Conflict: the fabric is frozen.
            LimitExceeded, Conflict, Unavailable: as ``FileSets.wanted``.
        """
        fabric = self._store.fabrics.get(fabric_id)
        if self._frozen(fabric.id):
            raise Conflict(f"fabric {fabric.id!r} is frozen: agents get no file set")
        return self._files.wanted(fabric.id, form)

    def file(self, fabric_id: str, generation: str, name: str, form: int) -> Path:
        """Raises: as ``FileSets.file``."""
        return self._files.file(self._store.fabrics.get(fabric_id).id, generation, name, form)
