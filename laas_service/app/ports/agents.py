# SPDX-License-Identifier: Apache-2.0

"""Agents beside OpenSM: their recorded reports, and the file sets that they fetch."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from laas_service.messages import AgentReport, FileSet


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent and its last report; ``age`` is seconds since then, by the database's clock."""

    name: str
    active: bool
    seen: AgentReport
    seen_at: datetime
    age: float


@dataclass(frozen=True, slots=True)
class Turn:
    """Which agent is active after a report, and whether what it confirms has changed."""

    active: str
    news: bool


class Agents(Protocol):
    """Reports of agents; times are those of the database's clock alone.

    Errors of all methods: ``Unavailable``.
    """

    def report(self, fabric: str, name: str, seen: AgentReport, seconds: float) -> Turn:
        """Record a report, and choose the active agent by ``agent_registry.successor``.

        One transaction, so that there is never more than one active agent.
        ``ConcurrentUpdate``; ``LimitExceeded`` if the name is new and the fabric has too many.
        """

    def all(self, fabric: str) -> list[Agent]:
        """By name."""

    def forget(self, fabric: str, name: str) -> None:
        """Delete the record of an agent that is not active; others stay until then."""


class FileSets(Protocol):
    """The file sets that agents fetch. Errors of all methods: ``NotFound``; ``Unavailable``."""

    def wanted(self, fabric: str, form: int) -> FileSet:
        """The set for the fabric's present state, rendered if it does not exist yet.

        Its manifest has the newest form up to ``form``.
        ``LimitExceeded`` or ``Conflict`` if it cannot be rendered.
        """

    def file(self, fabric: str, generation: str, name: str, form: int) -> Path:
        """A file of the wanted set, or of one that was wanted shortly before.

        ``form`` is the one that was given to ``wanted``.

        ``NotFound`` if no such set is kept, or if its manifest does not name the file.
        """
