# SPDX-License-Identifier: Apache-2.0

"""The sets of uplinks that the leaves of a shape may share, enumerated one uplink at a time.

The full leaves of a tenant are the rows of a biclique, and the uplinks that they share are its
bits. With many leaves and few uplinks on each there are far more sets of leaves than sets of
uplinks. So this search goes through the sets of uplinks, on all pods at once (``pod_fields``).

A set of uplinks *passes* a shape if enough pods have enough leaves with all of these uplinks,
and if above each uplink these pods have enough spines that enough of them have in common. The
second test looks at one uplink at a time. So a set that passes may still not fit, but a set
that does not pass fits nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import comb

from laas_service.domain.allocation import Shape
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import bit_counts, counted_at_least
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.leaf_bicliques import LeafMatrix
from laas_service.domain.search.pod_fields import PodFields, pod_fields
from laas_service.domain.search.pod_leaves import PodLeaves
from laas_service.domain.topology import bits

MOST_SETS = 48
"""Where more sets pass, they are not listed: there is probably a placement."""

FEW_LEAF_SETS = 8
"""Where the leaves can be chosen in so few ways, sets of uplinks are not listed either."""

COST_OF_A_SET = 6
COST_OF_A_SHAPE = 2
"""Units of work to test a set of uplinks, and for each shape."""

PassingSet = tuple[int, list[Shape]]
"""A set of uplinks, and the shapes that it passes."""

_Open = tuple[Shape, int]
"""A shape that is still possible, and the pods that may be its full pods."""


class _TooMany(Exception):
    """More sets pass than are listed, or the budget is used up."""


class UplinkSets:
    """The leaf groups and spines of all pods by uplink, for the requests of one search."""

    def __init__(self, fabric: LedgerView, pods: Sequence[PodLeaves], budget: SearchBudget) -> None:
        topology = fabric.topology
        self.fields = fields = pod_fields(
            topology.pods, max(topology.groups_per_pod, topology.tree.w[2])
        )
        self._budget = budget
        self._planes = [list(bits(plane)) for plane in topology.plane_fields]
        self._pods = pods
        self._groups = fabric.reader_cache(_GroupsByUplink).now(pods, fields)
        self._spines = fabric.reader_cache(_SpinesByColumn).now(fabric, fields)
        self._above: list[tuple[_Spines, int]] = []
        for column in sorted(topology.columns, key=lambda column: column.bundle):
            above = self._spines[column.number], column.rails
            self._above += [above] * column.bundle.bit_count()
        self._spine_taper = topology.taper[1]
        budget.spend(2 * topology.pods)

    @cached_property
    def matrix(self) -> LeafMatrix:
        """The leaf groups by uplink; a group's place in its pod's field is its rank."""
        width, pods = self.fields.width, self._pods

        def uplinks_of(place: int) -> int:
            pod = pods[place // width]
            return pod.uplinks[pod.capacities[place % width][1]]

        return LeafMatrix(self.fields, self._groups, self._planes, uplinks_of)

    def passing(
        self, leaf_hosts: int, width: int, leaves: int, shapes: Sequence[Shape]
    ) -> list[PassingSet] | None:
        """The sets of ``width`` uplinks in each plane that pass one of these shapes, and which.

        All shapes have ``leaves`` full leaves of ``leaf_hosts`` hosts. None if the budget runs
        out or more than ``MOST_SETS`` sets pass.
        """
        groups = self.fields.joined(pod.with_room[leaf_hosts] for pod in self._pods)
        open_shapes = [(shape, self.fields.ones) for shape in shapes]
        found: list[PassingSet] = []
        try:
            self._extend(groups, open_shapes, 0, (0, width, self._planes[0]), width, leaves, found)
        except _TooMany:
            return None
        return found

    def _extend(
        self,
        groups: int,
        shapes: list[_Open],
        chosen: int,
        ahead: tuple[int, int, list[int]],
        width: int,
        leaves: int,
        found: list[PassingSet],
    ) -> None:
        """Append to ``found`` the sets with the uplinks ``chosen``, which ``groups`` have.

        ``ahead`` is a plane, how many uplinks of it are missing, and from which to take them.
        """
        plane, missing, uplinks = ahead
        if not missing:
            if plane + 1 < len(self._planes):
                next_plane = plane + 1, width, self._planes[plane + 1]
                self._extend(groups, shapes, chosen, next_plane, width, leaves, found)
                return
            passed = [shape for shape, pods in shapes if self._agree(chosen, shape, pods)]
            if passed:
                found.append((chosen, passed))
            if len(found) > MOST_SETS:
                raise _TooMany
            return
        groups &= counted_at_least(missing, bit_counts([groups & self._groups[u] for u in uplinks]))
        count = groups.bit_count()
        if count < leaves:
            return
        if not chosen and comb(count, leaves) <= FEW_LEAF_SETS:
            raise _TooMany
        passing: list[tuple[int, int, list[_Open]]] = []
        for place, uplink in enumerate(uplinks):
            if len(passing) + len(uplinks) - place < missing:
                return
            with_uplink = groups & self._groups[uplink]
            if with_uplink.bit_count() < leaves:
                continue
            still_open = self._still_open(shapes, with_uplink, uplink)
            if still_open:
                passing.append((uplink, with_uplink, still_open))
        others = [uplink for uplink, _, _ in passing]
        for place, (uplink, with_uplink, still_open) in enumerate(passing):
            if len(passing) - place < missing:
                return
            then = plane, missing - 1, others[place + 1 :]
            self._extend(with_uplink, still_open, chosen | 1 << uplink, then, width, leaves, found)

    def _still_open(self, shapes: list[_Open], groups: int, uplink: int) -> list[_Open]:
        """The shapes that ``groups`` and the spines above one uplink leave open."""
        if not self._budget.spend(COST_OF_A_SET + COST_OF_A_SHAPE * len(shapes)):
            raise _TooMany
        fields = self.fields
        counts = fields.counts(groups)
        with_leaves: dict[int, int] = {}
        above, rails = self._above[uplink]
        still_open = []
        for shape, full_pods in shapes:
            pods, leaves, remainder_leaves = shape.pods, shape.leaves, shape.remainder_leaves
            if leaves not in with_leaves:
                with_leaves[leaves] = fields.at_least(counts, leaves)
            full_pods &= with_leaves[leaves]
            if full_pods.bit_count() < pods:
                continue
            full_pods &= above.pods_sharing(pods, -(-leaves * rails // self._spine_taper))
            if full_pods.bit_count() < pods:
                continue
            if remainder_leaves:
                if remainder_leaves not in with_leaves:
                    with_leaves[remainder_leaves] = fields.at_least(counts, remainder_leaves)
                spines = -(-remainder_leaves * rails // self._spine_taper)
                all_pods = with_leaves[remainder_leaves] & above.pods_sharing(pods + 1, spines)
                full_pods &= all_pods
                if full_pods.bit_count() < pods or all_pods.bit_count() <= pods:
                    continue
            still_open.append((shape, full_pods))
        return still_open

    def _agree(self, uplinks: int, shape: Shape, full_pods: int) -> bool:
        """Whether enough of these pods share enough spines above all of the uplinks.

        Drops pods that lack spines of which enough other pods have enough, until nothing changes.
        """
        if shape.pods == 1:
            return True
        width = self.fields.width
        pods, count = [bit // width for bit in bits(full_pods)], 0
        columns = [self._above[uplink] for uplink in bits(uplinks)]
        while count != len(pods):
            count = len(pods)
            if not self._budget.spend(count * len(columns)):
                raise _TooMany
            for above, rails in columns:
                spines = -(-shape.leaves * rails // self._spine_taper)
                pods = above.sharing_among(pods, shape.pods, spines)
                if len(pods) < shape.pods:
                    return False
        return True


@dataclass(slots=True)
class _GroupsByUplink:
    """The leaf groups that have an uplink free, by uplink; kept with a ledger (``reader_cache``).

    The lists are replaced, never changed, so that threads may share them.
    """

    _last: tuple[Sequence[PodLeaves], list[int]] = ((), [])

    def copy(self) -> _GroupsByUplink:
        return _GroupsByUplink(self._last)

    def now(self, pods: Sequence[PodLeaves], fields: PodFields) -> list[int]:
        """For each uplink the groups of all pods; only pods that changed are looked at."""
        seen, groups = self._last
        if not seen:
            by_uplink = zip(*(pod.by_uplink for pod in pods), strict=True)
            groups = [fields.joined(by_pod) for by_pod in by_uplink]
        elif seen is not pods:
            groups = groups.copy()
            for number, (pod, seen_pod) in enumerate(zip(pods, seen, strict=True)):
                if pod is not seen_pod:
                    at = number * fields.width
                    both = zip(pod.by_uplink, seen_pod.by_uplink, strict=True)
                    for uplink, (new, old) in enumerate(both):
                        groups[uplink] ^= (new ^ old) << at
        self._last = pods, groups
        return groups


@dataclass(slots=True)
class _SpinesByColumn:
    """The spine uplinks of each column; kept with a ledger (``reader_cache``)."""

    _last: list[_Spines] = field(default_factory=list)

    def copy(self) -> _SpinesByColumn:
        return _SpinesByColumn(self._last)

    def now(self, fabric: LedgerView, fields: PodFields) -> list[_Spines]:
        """For each column what is free now; only columns that changed are new."""
        width, last = fabric.topology.columns_per_pod, self._last
        columns: list[_Spines] = []
        known: dict[tuple[int, ...], _Spines] = {}
        spines = fabric.free_spines
        for number in range(width):
            masks = tuple(spines[number::width])
            if last and last[number].masks == masks:
                columns.append(last[number])
                continue
            if masks not in known:
                known[masks] = _Spines(masks, fields)
            columns.append(known[masks])
        self._last = columns
        return columns


class _Spines:
    """The free spine uplinks above one L2 index."""

    def __init__(self, masks: tuple[int, ...], fields: PodFields) -> None:
        self.masks = masks
        self._fields = fields
        self._sharing: dict[tuple[int, int], int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Spines) and self.masks == other.masks

    @cached_property
    def _joined(self) -> int:
        return self._fields.joined(self.masks)

    @cached_property
    def _pod_counts(self) -> list[int]:
        """In how many pods each spine uplink is free."""
        return bit_counts(self.masks)

    def pods_sharing(self, pods: int, spines: int) -> int:
        """The pods with ``spines`` free spine uplinks, each of which is free in ``pods`` pods."""
        key = pods, spines
        if key not in self._sharing:
            fields = self._fields
            shared = self._joined & counted_at_least(pods, self._pod_counts) * fields.ones
            self._sharing[key] = fields.at_least(fields.counts(shared), spines)
        return self._sharing[key]

    def sharing_among(self, among: list[int], pods: int, spines: int) -> list[int]:
        """The pods of ``among`` with ``spines`` spine uplinks free in ``pods`` of them."""
        masks = self.masks
        shared = counted_at_least(pods, bit_counts([masks[pod] for pod in among]))
        return [pod for pod in among if (masks[pod] & shared).bit_count() >= spines]
