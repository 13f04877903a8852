# SPDX-License-Identifier: Apache-2.0

"""What Prometheus scrapes of agents, as they reported last."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from laas_service.app.allocations import Service
from laas_service.domain.errors import Conflict, Unavailable
from laas_service.messages import Condition


class Agents(Collector):
    """Gauges read from the store at every scrape; none where there are no agents."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            agency = self._service.agency
            agents = [
                (fabric.id, agent)
                for fabric in self._service.fabrics()
                for agent in agency.agents(fabric.id)
            ]
        except (Conflict, Unavailable):
            return
        labels = ("fabric", "agent")
        active = GaugeMetricFamily(
            "laas_agent_active", "Whether the agent's word counts.", labels=labels
        )
        silent = GaugeMetricFamily(
            "laas_agent_silent_seconds", "Time since the agent's last report.", labels=labels
        )
        condition = GaugeMetricFamily(
            "laas_agent_condition",
            "What the agent reported last: 1 for that, 0 for what else there is.",
            labels=(*labels, "condition"),
        )
        for fabric, agent in agents:
            active.add_metric([fabric, agent.name], agent.active)
            silent.add_metric([fabric, agent.name], agent.age)
            for one in Condition:
                condition.add_metric([fabric, agent.name, one.value], agent.seen.condition is one)
        yield from (active, silent, condition)
