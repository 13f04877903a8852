# SPDX-License-Identifier: Apache-2.0

"""Prometheus metrics: requests of this process, fabrics as recorded now, and agents."""

from abc import abstractmethod
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from laas_service.app.lifecycle import State
from laas_service.app.records import Drift, Source
from laas_service.app.requests import Watched
from laas_service.app.use_cases import UseCases
from laas_service.app.views.parts import part
from laas_service.app.views.utilization import UseCount, Utilization
from laas_service.domain.errors import Conflict, Unavailable
from laas_service.domain.faults.memory import LinkCondition
from laas_service.messages import Condition, ConfirmedBy, Running, Span

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class ServiceMetrics:
    """The counters of one process, and the gauges of every fabric."""

    def __init__(self, use_cases: UseCases, *further: Collector) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(FabricGauges(use_cases))
        for collector in further:
            self.registry.register(collector)
        self.registry.register(TrafficCounters(use_cases))
        self.registry.register(Searches(use_cases))
        self.registry.register(AgentGauges(use_cases))
        self._requests = Counter(
            "laas_http_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "laas_http_request_seconds",
            "Time from a request to its answer; waiting for outcomes included.",
            ("method", "route"),
            registry=self.registry,
        )
        self._refusals = Counter(
            "laas_refusals",
            "Requests for hosts refused, by the limit that was hit.",
            ("reason",),
            registry=self.registry,
        )

    def text(self) -> str:
        """Everything, in Prometheus' text format."""
        return generate_latest(self.registry).decode()

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; methods that no route has share one label, however many there are."""
        method = method if method in METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def refused(self, reason: str) -> None:
        self._refusals.labels(reason).inc()


class Scraped(Collector):
    """Values that the use cases know, read at every scrape.

    What cannot be read of a fabric or an allocation is left out (``views.parts``).
    """

    def __init__(self, use_cases: UseCases) -> None:
        self._use_cases = use_cases

    def collect(self) -> Iterator[Metric]:
        name = f"metrics: {type(self).__name__.lower()}"
        yield from part(name, lambda: list(self.families()), [])

    @abstractmethod
    def families(self) -> Iterator[Metric]:
        """The metrics with their samples."""


class Searches(Scraped):
    """Counters that the policies keep."""

    def families(self) -> Iterator[Metric]:
        exhausted = CounterMetricFamily(
            "laas_search_budget_exhausted",
            "Searches that stopped at their budget, so that a placement may have been missed.",
            labels=("policy",),
        )
        for policy, count in self._use_cases.exhausted().items():
            exhausted.add_metric([policy], count)
        yield exhausted


class FabricMetric(NamedTuple):
    """A metric that every fabric has."""

    kind: type[GaugeMetricFamily] | type[CounterMetricFamily]
    name: str
    help: str
    values: Callable[[Utilization, Watched], Mapping[tuple[str, ...], float]]
    """By the values of ``labels``."""
    labels: tuple[str, ...] = ()
    """Those beside ``fabric``."""


def _counts(usage: UseCount) -> Mapping[tuple[str, ...], float]:
    counts = ("total", "allocated", "free", "failed", "drained")
    return {(count,): getattr(usage, count) for count in counts}


def _suspected(watched: Watched) -> int:
    links = watched.observation.memory.links.values()
    return sum(entry.condition is LinkCondition.SUSPECTED for entry in links)


def _port_errors(watched: Watched) -> Mapping[tuple[str, ...], float]:
    counters = Counts(error.counter for found in watched.counters for error in found.errors)
    return {(counter,): count for counter, count in counters.items()}


def _running(running: Running) -> tuple[str, str]:
    master = running.master
    return running.engine or "", f"{master.guid:#018x}" if master is not None else ""


def _at(moment: datetime | None) -> Mapping[tuple[str, ...], float]:
    """A time in seconds since the epoch; nothing if there was none."""
    return {} if moment is None else {(): moment.timestamp()}


FABRIC_METRICS = (
    FabricMetric(
        GaugeMetricFamily,
        "laas_fabric_generation",
        "Committed changes of the fabric.",
        lambda use, watched: {(): use.generation},
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_allocations",
        "Allocations by state.",
        lambda use, watched: {(state.value,): n for state, n in use.allocations.items()},
        ("state",),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_allocations_degraded",
        "Allocations that hold a failed link or host.",
        lambda use, watched: {(): use.degraded},
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_allocations_disturbed",
        "Allocations that require to be undisturbed, with links that packets of others cross.",
        lambda use, watched: {(): use.disturbed},
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_allocations_changing",
        "Allocations whose links are being replaced.",
        lambda use, watched: {(): use.changing},
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_allocations_overdue",
        "Allocations with servers on hosts that they should have left.",
        lambda use, watched: {(): use.overdue},
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_queue_length",
        "Queued requests.",
        lambda use, watched: {(): use.allocations.get(State.QUEUED, 0)},
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_fabric_routes_current",
        "Whether the wanted generation is confirmed; laas_fabric_routes_confirmed says by what.",
        lambda use, watched: {(): watched.current},
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_fabric_routes_confirmed",
        "What confirms the generation that the worker saw: 1 for that, 0 for the others.",
        lambda use, watched: {(by.value,): watched.holding.applied_by is by for by in ConfirmedBy},
        ("confirmed_by",),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_fabric_running",
        "1, with the engine that routed last and the port GUID of the master; empty if unknown.",
        lambda use, watched: {_running(watched.holding.running): 1},
        ("engine", "master"),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_allocations_confirmed",
        "Live allocations by what the last change of their routes was confirmed by.",
        lambda use, watched: {(by.value,): use.confirmed.get(by, 0) for by in ConfirmedBy},
        ("confirmed_by",),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_allocations_evidence",
        "Live allocations by what their routes, and their partition keys, are confirmed by.",
        lambda use, watched: {
            (part, by.value): use.evidence.get((part, by), 0)
            for part in ("routes", "keys")
            for by in ConfirmedBy
        },
        ("evidence", "confirmed_by"),
    ),
    FabricMetric(
        CounterMetricFamily,
        "laas_drift",
        "Times that drift was found, by kind.",
        lambda use, watched: {(kind.value,): watched.drift.get(kind, 0) for kind in Drift},
        ("kind",),
    ),
    FabricMetric(
        CounterMetricFamily,
        "laas_drift_repaired",
        "Times that drift was repaired, by kind.",
        lambda use, watched: {(kind.value,): watched.repaired.get(kind, 0) for kind in Drift},
        ("kind",),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_fabric_compared_seconds",
        "Time of the last full comparison with Nova and the switches, in seconds since the epoch.",
        lambda use, watched: _at(watched.holding.compared_at),
    ),
    FabricMetric(
        CounterMetricFamily,
        "laas_fabric_taken",
        "Times that a worker took the fabric.",
        lambda use, watched: {(): watched.holding.taken},
    ),
    FabricMetric(
        CounterMetricFamily,
        "laas_worker_stuck",
        "Times that a worker gave the fabric up because its step did not end.",
        lambda use, watched: {(): watched.holding.stuck},
    ),
    FabricMetric(
        CounterMetricFamily,
        "laas_allocations_activated",
        "Allocations that became active.",
        lambda use, watched: {(): watched.holding.activated},
    ),
    FabricMetric(
        CounterMetricFamily,
        "laas_allocation_seconds",
        "Time from the requests of these allocations until then, by what it went to.",
        lambda use, watched: {(s.value,): watched.holding.seconds.get(s, 0.0) for s in Span},
        ("span",),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_links_not_up",
        "Links that are not up, by state and by who says so.",
        lambda use, watched: {
            (state, source.value): watched.links.get((state, source), 0)
            for state in ("failed", "drained")
            for source in Source
        },
        ("state", "source"),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_observation_alarm",
        "Whether the circuit breaker of the observation is open.",
        lambda use, watched: {(): watched.observation.memory.alarm is not None},
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_observation_suspected_links",
        "Links that are seen down for less than the hold-down.",
        lambda use, watched: {(): _suspected(watched)},
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_observation_read_seconds",
        "Time of the last recorded reading of the ports, in seconds since the epoch.",
        lambda use, watched: _at(watched.observation.read_at),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_ports_with_errors",
        "Ports beyond a threshold, by the counter.",
        lambda use, watched: _port_errors(watched),
        ("counter",),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_audit_foreign_data",
        "Places where links of an allocation carry more data than its ports brought.",
        lambda use, watched: {(): sum(len(found.foreign) for found in watched.counters)},
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_counters_read_seconds",
        "Time of the oldest of the last readings of switches' counters, since the epoch.",
        lambda use, watched: (
            {(): min(found.at for found in watched.counters)} if watched.counters else {}
        ),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_hosts",
        "Hosts.",
        lambda use, watched: _counts(use.hosts),
        ("count",),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_hosts_withheld",
        "Hosts that no new owner gets for what Nova shows of them, by cause.",
        lambda use, watched: {(c.name.lower(),): n for c, n in watched.withheld.items()},
        ("cause",),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_leaf_links",
        "Leaf links.",
        lambda use, watched: _counts(use.leaf_links),
        ("count",),
    ),
    FabricMetric(
        GaugeMetricFamily,
        "laas_spine_links",
        "Spine links.",
        lambda use, watched: _counts(use.spine_links),
        ("count",),
    ),
)


class FabricGauges(Scraped):
    """The metrics of every fabric, and whether the database answers."""

    def families(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("laas_store_up", "Whether the database answers.")
        cases = self._use_cases.fabrics

        def read(id: str) -> list[tuple[str, Utilization, Watched]]:
            return [(id, cases.utilization(id), cases.watched(id))]

        try:
            ids = [fabric.id for fabric in cases.fabrics()]
            fabrics = [
                found
                for id in ids
                for found in part(f"metrics of fabric {id}", partial(read, id), [])
            ]
        except Unavailable:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        for metric in FABRIC_METRICS:
            family = metric.kind(metric.name, metric.help, labels=("fabric", *metric.labels))
            for id, use, watched in fabrics:
                values = part(
                    f"{metric.name} of fabric {id}", partial(_floats, metric, use, watched), {}
                )
                for labels, value in values.items():
                    family.add_metric([id, *labels], value)
            yield family


def _floats(
    metric: FabricMetric, use: Utilization, watched: Watched
) -> Mapping[tuple[str, ...], float]:
    return {labels: float(value) for labels, value in metric.values(use, watched).items()}


class TrafficCounters(Scraped):
    """The data of live allocations; a series ends when its allocation is released."""

    def families(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "laas_allocation_data_bytes",
            "Data that crossed the allocation's ports, by where it was counted.",
            labels=("fabric", "allocation", "project", "place"),
        )
        cases = self._use_cases.fabrics
        try:
            for fabric in cases.fabrics():
                name = f"metrics: traffic of fabric {fabric.id}"
                for traffic in part(name, partial(cases.traffic, fabric.id), []):
                    for place, count in traffic.bytes.items():
                        labels = [fabric.id, traffic.id, traffic.project_id, place]
                        family.add_metric(labels, count)
        except Unavailable:
            return
        yield family


class AgentGauges(Scraped):
    """Gauges read from the store at every scrape; none where agents are not used."""

    def families(self) -> Iterator[Metric]:
        try:
            registry = self._use_cases.agents
            fabrics = self._use_cases.fabrics.fabrics()
            agents = [(f.id, agent) for f in fabrics for agent in registry.agents(f.id)]
            behind = {fabric.id: registry.behind(fabric.id) for fabric in fabrics}
            held = {fabric.id: registry.holding_up(fabric.id) for fabric in fabrics}
        except (Conflict, Unavailable):
            return
        labels = ("fabric", "agent")
        active = GaugeMetricFamily(
            "laas_agent_active", "Whether the agent is the active one.", labels=labels
        )
        silent = GaugeMetricFamily(
            "laas_agent_silent_seconds", "Time since the agent's last report.", labels=labels
        )
        older = GaugeMetricFamily(
            "laas_agent_behind", "Whether the agent's set is not the wanted one.", labels=labels
        )
        condition = GaugeMetricFamily(
            "laas_agent_condition",
            "The condition the agent reported last: 1 for that condition, 0 for the others.",
            labels=(*labels, "condition"),
        )
        holding = GaugeMetricFamily(
            "laas_allocations_held",
            "Allocations whose hosts or links are held for a manager with older files.",
            labels=("fabric",),
        )
        for id, allocations in held.items():
            holding.add_metric([id], len(allocations))
        for fabric, agent in agents:
            active.add_metric([fabric, agent.name], agent.active)
            silent.add_metric([fabric, agent.name], agent.age)
            older.add_metric([fabric, agent.name], agent.name in behind[fabric])
            for value in Condition:
                reported = agent.seen.condition is value
                condition.add_metric([fabric, agent.name, value.value], reported)
        yield from (active, silent, older, condition, holding)
