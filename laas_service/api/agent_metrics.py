# SPDX-License-Identifier: Apache-2.0

"""Prometheus metrics of agents, by their last reports."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from laas_service.app.use_cases import UseCases
from laas_service.domain.errors import Conflict, Unavailable
from laas_service.messages import Condition


class Agents(Collector):
    """Gauges read from the store at every scrape; none where agents are not used."""

    def __init__(self, use_cases: UseCases) -> None:
        self._use_cases = use_cases

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            registry = self._use_cases.agents
            agents = [
                (fabric.id, agent)
                for fabric in self._use_cases.fabrics.fabrics()
                for agent in registry.agents(fabric.id)
            ]
        except (Conflict, Unavailable):
            return
        labels = ("fabric", "agent")
        active = GaugeMetricFamily(
            "laas_agent_active", "Whether the agent is the active one.", labels=labels
        )
        silent = GaugeMetricFamily(
            "laas_agent_silent_seconds", "Time since the agent's last report.", labels=labels
        )
        condition = GaugeMetricFamily(
            "laas_agent_condition",
            "The condition the agent reported last: 1 for that condition, 0 for the others.",
            labels=(*labels, "condition"),
        )
        for fabric, agent in agents:
            active.add_metric([fabric, agent.name], agent.active)
            silent.add_metric([fabric, agent.name], agent.age)
            for value in Condition:
                reported = agent.seen.condition is value
                condition.add_metric([fabric, agent.name, value.value], reported)
        yield from (active, silent, condition)
