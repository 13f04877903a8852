# SPDX-License-Identifier: Apache-2.0

"""The free spine uplinks of each pod in the forms that searches compare, kept between searches."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import NamedTuple

from laas_service.domain.lanes import apart
from laas_service.domain.ledger import LedgerView


class PodSpines(NamedTuple):
    """The free spine uplinks of one pod."""

    lanes: int
    """The masks of all columns side by side; see ``Ledger.free_lanes``."""
    alike: int
    """The mask of the spine uplinks that are free above all L2 indices."""
    equal: bool
    """Whether the masks of all columns are ``alike``."""


@dataclass(slots=True)
class SpinesOfPods:
    """``PodSpines`` by pod; kept with a ledger (``reader_cache``).

    An entry holds as long as the ledger has the very masks that it was made from. So neither
    claims nor faults need to be reported.
    """

    _known: dict[int, PodSpines] = field(default_factory=dict)
    """By pod."""

    def of(self, fabric: LedgerView, pod: int) -> PodSpines:
        """The free spine uplinks of a pod now."""
        lanes = fabric.free_lanes[pod]
        known = self._known.get(pod)
        if known is None or known.lanes != lanes:
            width, lane = fabric.topology.columns_per_pod, fabric.topology.lane
            masks = apart(lanes, width, lane)
            alike = reduce(and_, masks)
            known = self._known[pod] = PodSpines(lanes, alike, masks.count(alike) == width)
        return known

    def copy(self) -> SpinesOfPods:
        return SpinesOfPods(dict(self._known))
