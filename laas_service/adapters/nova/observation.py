# SPDX-License-Identifier: Apache-2.0

"""What Nova's aggregates say: which hosts are handed over, pooled, fenced, closed, or opened."""

from collections.abc import Mapping
from dataclasses import replace

from laas_service.adapters.nova.aggregates import Aggregate, Aggregates
from laas_service.adapters.nova.keys import ALLOCATION, CLOSING, OWNER, OwnKeys
from laas_service.adapters.nova.shares import SlotQuestions
from laas_service.app.ports.compute import Handover, HostPart, ObservedAggregates


class AggregateReader:
    """Reads the aggregates of the service and of others; changes nothing."""

    def __init__(self, keys: OwnKeys, aggregates: Aggregates, slots: SlotQuestions) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._slots = slots

    def handed_over(self) -> Mapping[str, Handover]:
        """See ``Compute.handed_over``; the project of a fenced allocation is the sentinel.

        Slots are read in placement, host by host.
        """
        self._aggregates.begin()
        aggregates = self._aggregates.present
        found = _handed_over(aggregates)
        shared = {a.metadata[ALLOCATION]: a for a in aggregates.values() if a.is_shared}
        numbers = self._slots.numbers(shared, recent=self._aggregates.comparing)
        return found | {id: replace(found[id], share=slots) for id, slots in numbers.items()}

    def observed(self) -> ObservedAggregates:
        """See ``Compute.observed``. One list-aggregates call; servers are not checked."""
        self._aggregates.begin()
        aggregates = self._aggregates.present
        closed = aggregates.get(self._keys.closed_hosts)
        parts = (a for a in aggregates.values() if self._keys.is_part(a.name))
        foreign = [
            aggregate
            for name, aggregate in sorted(aggregates.items())
            if not self._keys.is_part(name) and not aggregate.is_ours
            if any(key.startswith(OWNER) for key in aggregate.metadata)
        ]
        pooled, fenced = self._keys.pooled, self._keys.fenced
        return ObservedAggregates(
            _handed_over(aggregates),
            frozenset(h for part in parts if part.isolates_as(pooled) for h in part.hosts),
            {host: aggregate.name for aggregate in foreign for host in aggregate.hosts},
            closed.hosts if closed and closed.isolates_as(CLOSING) else frozenset(),
            frozenset(
                aggregate.metadata[ALLOCATION]
                for aggregate in aggregates.values()
                if aggregate.is_ours and aggregate.isolates_as(fenced)
            ),
        )


def _handed_over(aggregates: Mapping[str, Aggregate]) -> dict[str, Handover]:
    """The allocations of these aggregates, without their slots."""
    return {
        aggregate.metadata[ALLOCATION]: Handover(
            aggregate.metadata[ALLOCATION],
            aggregate.admitted,
            tuple(sorted(aggregate.hosts)),
            HostPart.UNREAD if aggregate.is_shared else HostPart.WHOLE,
        )
        for aggregate in aggregates.values()
        if aggregate.is_ours
    }
