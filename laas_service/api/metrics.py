# SPDX-License-Identifier: Apache-2.0

"""Prometheus metrics: requests of this process, and fabrics as recorded now."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from laas_service.api.agent_metrics import Agents
from laas_service.app.lifecycle import State
from laas_service.app.records import Drift
from laas_service.app.use_cases import UseCases
from laas_service.app.views.utilization import Usage
from laas_service.domain.errors import Unavailable

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The counters of one process, and the gauges of every fabric."""

    def __init__(self, use_cases: UseCases) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(Fabrics(use_cases))
        self.registry.register(Searches(use_cases))
        self.registry.register(Agents(use_cases))
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


class Searches(Collector):
    """Counters that the policies keep."""

    def __init__(self, use_cases: UseCases) -> None:
        self._use_cases = use_cases

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        exhausted = CounterMetricFamily(
            "laas_search_budget_exhausted",
            "Searches that stopped at their budget, so that a placement may have been missed.",
            labels=("policy",),
        )
        for policy, count in self._use_cases.exhausted().items():
            exhausted.add_metric([policy], count)
        yield exhausted


class Fabrics(Collector):
    """Gauges read from the store at every scrape."""

    def __init__(self, use_cases: UseCases) -> None:
        self._use_cases = use_cases

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("laas_store_up", "Whether the database answers.")
        try:
            fabrics = [
                (
                    fabric.id,
                    self._use_cases.fabrics.utilization(fabric.id),
                    self._use_cases.fabrics.watched(fabric.id),
                )
                for fabric in self._use_cases.fabrics.fabrics()
            ]
        except Unavailable:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        generation = GaugeMetricFamily(
            "laas_fabric_generation", "Committed changes of the fabric.", labels=("fabric",)
        )
        allocations = GaugeMetricFamily(
            "laas_allocations", "Allocations by state.", labels=("fabric", "state")
        )
        degraded = GaugeMetricFamily(
            "laas_allocations_degraded",
            "Allocations that hold a failed link or host.",
            labels=("fabric",),
        )
        changing = GaugeMetricFamily(
            "laas_allocations_changing",
            "Allocations whose links are being replaced.",
            labels=("fabric",),
        )
        queued = GaugeMetricFamily("laas_queue_length", "Queued requests.", labels=("fabric",))
        current = GaugeMetricFamily(
            "laas_fabric_routes_current",
            "Whether the worker has seen the switches run the wanted generation.",
            labels=("fabric",),
        )
        drift = CounterMetricFamily(
            "laas_drift",
            "Times that drift was found, by kind.",
            labels=("fabric", "kind"),
        )
        repaired = CounterMetricFamily(
            "laas_drift_repaired",
            "Times that drift was repaired, by kind.",
            labels=("fabric", "kind"),
        )
        taken = CounterMetricFamily(
            "laas_fabric_taken", "Times that a worker took the fabric.", labels=("fabric",)
        )
        stuck = CounterMetricFamily(
            "laas_worker_stuck",
            "Times that a worker gave the fabric up because its step did not end.",
            labels=("fabric",),
        )
        resources = {
            "hosts": GaugeMetricFamily("laas_hosts", "Hosts.", labels=("fabric", "count")),
            "leaf_links": GaugeMetricFamily(
                "laas_leaf_links", "Leaf links.", labels=("fabric", "count")
            ),
            "spine_links": GaugeMetricFamily(
                "laas_spine_links", "Spine links.", labels=("fabric", "count")
            ),
        }
        for id, use, watched in fabrics:
            current.add_metric([id], watched.current)
            taken.add_metric([id], watched.holding.taken)
            stuck.add_metric([id], watched.holding.stuck)
            for kind in Drift:
                drift.add_metric([id, kind.value], watched.drift.get(kind, 0))
                repaired.add_metric([id, kind.value], watched.repaired.get(kind, 0))
            generation.add_metric([id], use.generation)
            degraded.add_metric([id], use.degraded)
            changing.add_metric([id], use.changing)
            queued.add_metric([id], use.allocations.get(State.QUEUED, 0))
            for state, number in use.allocations.items():
                allocations.add_metric([id, state.value], number)
            for name, family in resources.items():
                usage: Usage = getattr(use, name)
                for count in ("total", "allocated", "free", "failed", "drained"):
                    family.add_metric([id, count], getattr(usage, count))
        yield from (generation, allocations, degraded, changing, queued, current, drift, repaired)
        yield from (taken, stuck)
        yield from resources.values()
