# SPDX-License-Identifier: Apache-2.0

"""Prometheus metrics of links that tenants on shared hosts have promises of."""

from collections.abc import Iterator
from functools import partial
from itertools import groupby

from prometheus_client.core import GaugeMetricFamily, Metric

from laas_service.api.metrics import Scraped
from laas_service.app.sharing.promises import PromiseEntry
from laas_service.app.views.parts import part
from laas_service.domain.errors import Unavailable


class PromiseGauges(Scraped):
    """The fullest link of each allocation that shares its hosts; shares of its bandwidth."""

    def families(self) -> Iterator[Metric]:
        labels = ("fabric", "allocation")
        promised = GaugeMetricFamily(
            "laas_shared_links_promised",
            "Highest share of its bandwidth that a link of shared hosts promises.",
            labels=labels,
        )
        measured = GaugeMetricFamily(
            "laas_shared_links_measured",
            "Highest share of that bandwidth that was measured on a link with promises.",
            labels=labels,
        )
        outage = GaugeMetricFamily(
            "laas_shared_links_outage",
            "Highest probability that demands exceed a link of shared hosts.",
            labels=labels,
        )

        def fullest(found: list[PromiseEntry]) -> list[tuple[GaugeMetricFamily, float]]:
            read = [e.measured.bandwidth for e in found if e.measured is not None]
            return [
                (promised, max(entry.load.occupancy for entry in found)),
                (outage, max(entry.load.outage for entry in found)),
                *((measured, max(read) / found[0].sharing.bandwidth) for _ in read[:1]),
            ]

        cases, promises = self._use_cases.fabrics, self._use_cases.sharing.promises
        try:
            for fabric in cases.fabrics():
                for id, entries in groupby(promises(fabric.id), lambda e: e.allocation):
                    found, at = list(entries), [fabric.id, id]
                    name = f"metrics of allocation {id}"
                    for family, value in part(name, partial(fullest, found), []):
                        family.add_metric(at, value)
        except Unavailable:
            return
        yield from (promised, measured, outage)
