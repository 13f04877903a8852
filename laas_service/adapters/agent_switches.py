# SPDX-License-Identifier: Apache-2.0

"""The subnet-manager port where agents reach OpenSM: this process only reads what they say."""

from __future__ import annotations

import time
from collections.abc import Callable

from laas_service.app.agent_registry import applied
from laas_service.app.ports.agents import Agents
from laas_service.messages import Applied, FabricState

PAUSE = 0.2
"""Seconds between looks at what agents have reported."""


class AgentSubnetManager:
    """Takes the word of a fabric's active agent, if it is not older than ``seconds``.

    Agents learn of a new generation by themselves; ``tell`` has those that listen look at
    once. Right after publishing, ``applied`` waits up to ``patience`` seconds for the new
    generation.
    """

    def __init__(
        self,
        agents: Agents,
        *,
        seconds: float,
        patience: float,
        tell: Callable[[], None],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agents = agents
        self._seconds = seconds
        self._patience = patience
        self._tell = tell
        self._sleep = sleep
        self._clock = clock
        self._told: dict[str, tuple[float, int]] = {}

    def publish(self, state: FabricState) -> None:
        """See ``app.ports.subnet_manager.SubnetManager``; raises nothing."""
        self._told[state.fabric] = (self._clock(), state.generation)
        self._tell()

    def applied(self, fabric: str) -> Applied:
        """See ``laas_service.app.ports.subnet_manager.SubnetManager``."""
        told_at, wanted = self._told.pop(fabric, (self._clock() - self._patience, 0))
        while True:
            agents = self._agents.all(fabric)
            found = applied(agents, self._seconds)
            if found.generation is not None and found.generation >= wanted:
                return found
            gone = all(agent.age >= self._seconds for agent in agents)
            if gone or self._clock() + PAUSE > told_at + self._patience:
                return found
            self._sleep(PAUSE)
