# SPDX-License-Identifier: Apache-2.0

"""The subnet-manager port of a service whose agents reach OpenSM: reads the agents' reports."""

import time
from collections.abc import Callable, Mapping

from laas_service.app.agent_registry import applied
from laas_service.app.ports.agents import Agents
from laas_service.domain.faults.counters import SwitchCounters
from laas_service.domain.faults.reading import FabricReading
from laas_service.domain.inventory import PortRef
from laas_service.messages import Applied, ConfirmedBy, FabricState, Span, Standing

PAUSE = 0.2
"""Seconds between two reads of the agents' last reports."""


class AgentSubnetManager:
    """Answers from the last report of a fabric's active agent, unless it is ``seconds`` old.

    Agents poll for a new generation; ``wake`` has agents on the bus poll at once. Right after
    publishing, ``applied`` waits up to ``patience`` seconds for the new generation.
    """

    confirmed_by = ConfirmedBy.AGENT

    def __init__(
        self,
        agents: Agents,
        *,
        seconds: float,
        patience: float,
        wake: Callable[[], None],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agents = agents
        self._seconds = seconds
        self._patience = patience
        self._wake = wake
        self._sleep = sleep
        self._clock = clock
        self._published: dict[str, tuple[float, int]] = {}  # clock and generation, until awaited

    def publish(self, state: FabricState) -> Mapping[Span, float]:
        """See ``app.ports.subnet_manager.SubnetManager``; raises nothing."""
        self._published[state.fabric] = (self._clock(), state.generation)
        self._wake()
        return {}

    def standing(self, fabric: str) -> Standing | None:
        """None: agents do not report it."""
        return None

    def prepared(self, fabric: str) -> bool:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``; agents read themselves."""
        return True

    def applied(self, fabric: str) -> Applied:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``."""
        never = self._clock() - self._patience, 0
        published_at, awaited = self._published.pop(fabric, never)
        while True:
            agents = self._agents.all(fabric)
            answer = applied(agents, self._seconds)
            if answer.generation is not None and answer.generation >= awaited:
                return answer
            silent = all(agent.age >= self._seconds for agent in agents)
            if silent or self._clock() + PAUSE > published_at + self._patience:
                return answer
            self._sleep(PAUSE)

    def on_disk(self, fabric: str) -> tuple[int, str] | None:
        """None: each report of an agent is compared with the database when it comes in."""
        return None

    def reading(self, fabric: str) -> FabricReading | None:
        """The last reading of the active agent, also if that no longer reports."""
        active = next((agent for agent in self._agents.all(fabric) if agent.active), None)
        return active.seen.reading if active is not None else None

    def counters(self, fabric: str) -> tuple[SwitchCounters, ...]:
        """Nothing: what agents report is recorded when it comes in."""
        return ()

    def marks_differ(self, fabric: str, wanted: frozenset[PortRef]) -> bool:
        """No: links in quarantine are avoided, and nothing isolates their ports."""
        return False

    def mark_ports(self, fabric: str, wanted: frozenset[PortRef]) -> None:
        """Nothing, see ``marks_differ``."""
