# SPDX-License-Identifier: Apache-2.0

"""Agents: processes beside OpenSM that fetch sets of files, and say what the switches run.

Each fabric has one active agent; what the others see is shown and does not count.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from laas_service.app.ports.fabrics import FabricReader
from laas_service.domain.errors import InvalidInput
from laas_service.messages import AgentReport, Applied, Condition, FileSet

LOG = logging.getLogger(__name__)

NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}"
"""What an agent may be called: by default, its machine's host name."""

CONFIRMING = (Condition.APPLIED, Condition.OTHER_GENERATION)
"""The conditions that name the generation in the switches."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent as it reported last; ``age`` is seconds since then, by the database's clock."""

    name: str
    active: bool
    seen: AgentReport
    seen_at: datetime
    age: float


@dataclass(frozen=True, slots=True)
class Turn:
    """Which agent is active after a report, and whether what it confirms is news."""

    active: str
    news: bool


class Agents(Protocol):
    """What agents reported; times are those of the database's clock alone.

    Errors of all methods: ``Unavailable``.
    """

    def report(self, fabric: str, name: str, seen: AgentReport, seconds: float) -> Turn:
        """Record what an agent saw, and let ``successor`` say which one is active: one
        transaction, so that there is never more than one. ``ConcurrentUpdate``."""

    def all(self, fabric: str) -> list[Agent]:
        """By name."""


class FileSets(Protocol):
    """The sets of files that agents fetch. Errors of all methods: ``NotFound``; ``Unavailable``."""

    def wanted(self, fabric: str) -> FileSet:
        """The set for the fabric's present state, rendered if it is not there yet.

        ``LimitExceeded`` or ``Conflict`` if it cannot be rendered.
        """

    def file(self, fabric: str, generation: str, name: str) -> Path:
        """A file of the wanted set, or of one wanted a short while ago.

        ``NotFound`` if no such set is kept, or if its manifest does not name the file.
        """


def successor(agents: Collection[Agent], reporting: str, seconds: float) -> str:
    """The one that is active once ``reporting``, one of them, has reported.

    An active agent stays it while it reports within ``seconds`` and is able, or while no
    other one that is able reports.
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
    """What the switches run: as the active agent confirms, if it reported within ``seconds``."""
    active = next((agent for agent in agents if agent.active), None)
    if active is None:
        return Applied(None, "no agent reports: start laas-opensm-agent beside OpenSM")
    if active.age >= seconds:
        last = f"{active.name} was last seen at {active.seen_at.isoformat(timespec='seconds')}"
        return Applied(None, f"no agent reports: {last}")
    seen = active.seen
    if seen.condition is Condition.APPLIED:
        return Applied(seen.generation)
    text = f"agent {active.name}: {seen.condition.value.replace('_', ' ')}"
    return Applied(seen.generation, f"{text}: {seen.detail}" if seen.detail else text)


@dataclass(frozen=True, slots=True)
class Orders:
    """The answer to a report: who is active, and which generation is wanted.

    The agent that is active is so for ``seconds``, unless it reports again.
    """

    active: str
    wanted: int
    seconds: float


class Agency:
    """The use cases of agents, and of those who look at them.

    ``seconds`` is how long a report counts. ``wake`` nudges a worker.
    """

    def __init__(
        self,
        fabrics: FabricReader,
        agents: Agents,
        files: FileSets,
        *,
        seconds: float,
        wake: Callable[[], None],
    ) -> None:
        self._fabrics = fabrics
        self._agents = agents
        self._files = files
        self._seconds = seconds
        self._wake = wake

    def report(self, fabric_id: str, name: str, seen: AgentReport) -> Orders:
        """Take what an agent says of its OpenSM and of the switches.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: the name is none, or the generation does not go with the condition.
        """
        if not re.fullmatch(NAME, name):
            fix = "use 1 to 255 of A-Z a-z 0-9 . _ -, not . or - in front"
            raise InvalidInput("agent", name, fix)
        if (seen.generation is not None) != (seen.condition in CONFIRMING):
            which = " or ".join(condition.value for condition in CONFIRMING)
            raise InvalidInput("generation", seen.generation, f"give it with {which}, and only so")
        wanted = self._fabrics.fabric(fabric_id).routes_generation
        turn = self._agents.report(fabric_id, name, seen, self._seconds)
        if turn.news:
            LOG.info(
                "fabric %s: agent %s is active; %s reports %s (%s)",
                *(fabric_id, turn.active, name, seen.condition.value, seen.detail or "no detail"),
            )
            self._wake()
        return Orders(turn.active, wanted, self._seconds)

    def agents(self, fabric_id: str) -> list[Agent]:
        """By name. Raises: NotFound."""
        self._fabrics.fabric(fabric_id)
        return self._agents.all(fabric_id)

    def file_set(self, fabric_id: str) -> FileSet:
        """Raises: NotFound; LimitExceeded, Conflict, Unavailable as ``FileSets.wanted``."""
        return self._files.wanted(self._fabrics.fabric(fabric_id).id)

    def file(self, fabric_id: str, generation: str, name: str) -> Path:
        """Raises: as ``FileSets.file``."""
        return self._files.file(self._fabrics.fabric(fabric_id).id, generation, name)
