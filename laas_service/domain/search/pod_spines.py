# SPDX-License-Identifier: Apache-2.0

"""The free spine uplinks of each pod in the forms that searches compare, kept between searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import NamedTuple

from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.lanes import lane_width, side_by_side


class PodSpines(NamedTuple):
    """The free spine uplinks of one pod."""

    masks: Sequence[int]
    """By column; see ``Ledger.free_spines``."""
    alike: int
    """The mask of the spine uplinks that are free above all L2 indices."""
    lanes: int
    """The masks of all columns side by side (``lanes``)."""
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
        width = fabric.topology.columns_per_pod
        masks = fabric.free_spines[pod * width : (pod + 1) * width]
        known = self._known.get(pod)
        if known is None or known.masks != masks:
            alike = reduce(and_, masks)
            lanes = side_by_side(masks, lane_width(fabric.topology.tree.w[2]))
            known = PodSpines(masks, alike, lanes, masks.count(alike) == width)
            self._known[pod] = known
        return known

    def copy(self) -> SpinesOfPods:
        return SpinesOfPods(dict(self._known))
