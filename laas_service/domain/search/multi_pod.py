# SPDX-License-Identifier: Apache-2.0

"""Placements over several pods: full leaves, one remainder leaf, spines in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import and_

from laas_service.domain.allocation import ColumnShare, GroupShare, Shape
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import Budget, Wanted, blocks, first_block, lowest
from laas_service.domain.search.shapes import Placement
from laas_service.domain.search.spine_bounds import Spines
from laas_service.domain.topology import Column, bits

Split = list[tuple[int, int]]
"""For each column, uplinks of its bundle taken by full leaves, and by the remainder leaf."""


COST_OF_A_POD = 6
"""Work, in units of ``Budget``, to see what a pod has for leaves that are alike."""


class AcrossPods:
    """The pods as they look when all leaves of a tenant use some of ``uplinks`` alike.

    ``hosts`` is how many the tenant has on each leaf but the remainder leaf, its
    *full* leaves. Leaves with that many free and with all of ``uplinks`` (here
    *whole*) are interchangeable, so a pod is its number of them and the free spine
    uplinks of its L2 switches.
    """

    def __init__(
        self, fabric: LedgerView, uplinks: int, budget: Budget, hosts: int, sharing: Spines
    ) -> None:
        topology = fabric.topology
        self.fabric = fabric
        self.uplinks = uplinks
        self.budget = budget
        self.sharing = sharing
        self.groups = topology.groups_per_pod
        self.taper, self.spine_taper = topology.tree.taper
        self.columns = [
            column._replace(bundle=column.bundle & uplinks) for column in topology.columns
        ]
        self.sizes = [column.bundle.bit_count() for column in self.columns]
        self.hosts = hosts
        width = self._width(hosts)
        self.spare = [(uplinks & field).bit_count() - width for field in topology.plane_fields]
        self.fields = topology.plane_fields
        self.forced = not any(self.spare)
        self.whole = [self._whole_groups(pod) for pod in range(topology.pods)]
        self.counts = [groups.bit_count() for groups in self.whole]
        free = fabric.pod_free_hosts
        self.order = sorted(range(topology.pods), key=lambda pod: (self.counts[pod], free[pod]))
        budget.spend(COST_OF_A_POD * topology.pods)
        self._spines: dict[int, Sequence[int]] = {}
        self._leasts: dict[int, list[int]] = {}

    def _whole_groups(self, pod: int) -> int:
        """Bit set of the pod's groups with enough free hosts, and all of ``uplinks``."""
        by_free = self.fabric.pod_groups_by_free[pod]
        doubtful = sum(by_free[self.hosts : -1])
        whole = doubtful | by_free[-1]
        doubtful |= by_free[-1] & self.fabric.odd_groups[pod]
        for local in bits(doubtful):
            if self.uplinks & ~self.fabric.free_uplinks[pod * self.groups + local]:
                whole ^= 1 << local
        return whole

    def _width(self, hosts: int) -> int:
        """Uplinks in each plane for that many hosts on a leaf."""
        return -(-hosts // self.taper)

    def _spine_width(self, uplinks: int, column: Column) -> int:
        """Spine uplinks of an L2 switch for so many uplinks of leaf groups below it."""
        return -(-uplinks * column.rails // self.spine_taper)

    def _room(self, spines: int, column: Column) -> int:
        """The inverse: how many uplinks of leaf groups these spine uplinks can carry."""
        return spines.bit_count() * self.spine_taper // column.rails

    def spines(self, pod: int) -> Sequence[int]:
        """Free spine uplinks of a pod, by column."""
        if pod not in self._spines:
            width = len(self.columns)
            self._spines[pod] = self.fabric.free_spines[pod * width : (pod + 1) * width]
        return self._spines[pod]

    def place(self, shape: Shape) -> Placement | None:
        """``pods`` pods alike and a remainder pod if there is one; Jigsaw's FIND_L3."""
        rows = [pod for pod in self.order if self.counts[pod] >= shape.leaves]
        if len(rows) < shape.pods or not self.budget.spend(2 * len(self.order)):
            return None
        rests: list[int | None] = [None]
        if shape.remainder_leaves or shape.remainder_hosts:
            rests = [pod for pod in self.order if self._holds_remainder(pod, shape)]
            if not rests:
                return None
        for pods in self._pod_sets(rows, shape):
            full: list[int] = []
            for rest in rests:
                if not self.budget.spend(len(self.columns)):
                    return None
                others = [pod for pod in pods if pod != rest][: shape.pods]
                if len(others) < shape.pods:
                    continue
                if others != full:
                    full = others
                    common = [
                        reduce(and_, masks) for masks in zip(*map(self.spines, full), strict=True)
                    ]
                if placement := self._with_remainder(shape, full, common, rest):
                    return placement
        return None

    def place_in_two(self, shape: Shape) -> Placement | None:
        """A pod, and a remainder pod that is no smaller; see ``two_pod_shapes``.

        Here the spine uplinks of the full pod lie within those of the other.
        """
        for rest in self.order:
            if not self._holds_remainder(rest, shape):
                continue
            below = self.spines(rest)
            for pod in self.order:
                if pod == rest or self.counts[pod] < shape.leaves:
                    continue
                if not self.budget.spend(2 * len(self.columns)):
                    return None
                common = [mask & own for mask, own in zip(below, self.spines(pod), strict=True)]
                if placement := self._with_leaf(shape, [pod], common, below, rest):
                    return placement
        return None

    def _holds_remainder(self, pod: int, shape: Shape) -> bool:
        """Whether a pod has the leaves of the remainder, as hosts go."""
        if self.counts[pod] < shape.remainder_leaves:
            return False
        if not shape.remainder_hosts:
            return True
        roomy = 0
        for groups in self.fabric.pod_groups_by_free[pod][shape.remainder_hosts :]:
            roomy |= groups
        return roomy.bit_count() > shape.remainder_leaves

    def _least(self, leaves: int) -> list[int]:
        """For each column the spine uplinks without which ``leaves`` full leaves cannot do."""
        if leaves not in self._leasts:
            self._leasts[leaves] = [
                self._spine_width(leaves * max(0, size - self.spare[column.plane]), column)
                for size, column in zip(self.sizes, self.columns, strict=True)
            ]
        return self._leasts[leaves]

    # -- which pods -----------------------------------------------------------

    def _pod_sets(self, rows: list[int], shape: Shape) -> Iterator[list[int]]:
        """Sets of pods with enough spine uplinks in common in each column.

        First, the same spines at every L2 switch: quick to see, and it keeps the
        columns alike for those who come later. Then the complete search, over all
        columns side by side.
        """
        least = self._least(shape.leaves)
        if self.forced:
            most = max(least)
            alike = [reduce(and_, self.spines(pod)) for pod in rows]
            first = first_block(alike, shape.pods, lambda common: common.bit_count() >= most)
            if first:
                yield [rows[row] for row in first[0]]
        among = self._candidates(rows, shape, least)
        rows = [pod for pod in rows if among >> pod & 1]
        if len(rows) >= shape.pods:
            with self.budget.keeping(2):
                sides, wanted = self._side_by_side(rows, shape, least)
                for block, _ in blocks(sides, wanted, self.budget):
                    yield [rows[row] for row in block]

    def _candidates(self, rows: list[int], shape: Shape, least: list[int]) -> int:
        """Those of the pods ``rows`` that the bounds leave, as a bit set."""
        among = sum(1 << pod for pod in rows)
        if self.forced:
            wanted = [need for need in least if need]
            return self.sharing.candidates(among, shape.pods, min(wanted), len(wanted))
        used = [column for column, size in zip(self.columns, self.sizes, strict=True) if size]
        need = min(self._spine_width(shape.leaves, column) for column in used)
        wide = max(size for size in self.sizes)
        columns = len(self.spare) * -(-self._width(self.hosts) // wide)
        return self.sharing.candidates(among, shape.pods, need, columns)

    def _side_by_side(
        self, rows: list[int], shape: Shape, least: list[int]
    ) -> tuple[list[int], Wanted]:
        """The columns of each pod in one mask, and what is needed in common; see ``blocks``.

        Where all uplinks are used, columns that are equal in all pods count once.
        """
        width = self.fabric.topology.tree.w[2]
        field = (1 << width) - 1
        self.budget.spend(len(rows) * len(self.columns))
        wants: dict[tuple[int, ...], int] = {}
        for column, need in zip(self.columns, least, strict=True):
            masks = tuple(self.spines(pod)[column.number] for pod in rows)
            key = masks if self.forced else (*masks, column.number)
            wants[key] = max(need, wants.get(key, 0))
        sides = [0] * len(rows)
        for place, key in enumerate(wants):
            for row in range(len(rows)):
                sides[row] |= key[row] << place * width
        parts = [(field << place * width, need) for place, need in enumerate(wants.values())]

        def met(common: int) -> bool:
            for part, need in parts:
                if (common & part).bit_count() < need:
                    return False
            return self.forced or self._carry(common, shape.leaves)

        needs = [(part, need) for part, need in parts if need]
        trim = None if self.forced else self._trimmer(shape)
        return sides, Wanted(shape.pods, needs, met, trim)

    def _trimmer(self, shape: Shape) -> Callable[[int], int]:
        """Drops from masks of columns side by side those that carry no uplink at all."""
        width = self.fabric.topology.tree.w[2]
        field = (1 << width) - 1
        parts = [
            (field << column.number * width, self._spine_width(shape.leaves, column))
            for column in self.columns
        ]

        def trim(common: int) -> int:
            for part, need in parts:
                if (common & part).bit_count() < need:
                    common &= ~part
            return common

        return trim

    def _carry(self, common: int, leaves: int) -> bool:
        """Whether L2 switches with these spine uplinks let enough uplinks of leaves in."""
        width = self.fabric.topology.tree.w[2]
        field = (1 << width) - 1
        room = [0] * len(self.spare)
        for size, column in zip(self.sizes, self.columns, strict=True):
            spines = common >> column.number * width & field
            room[column.plane] += min(size, self._room(spines, column) // leaves)
        return min(room) >= self._width(self.hosts)

    # -- which uplinks and spines ---------------------------------------------

    def _with_remainder(
        self, shape: Shape, full: Sequence[int], common: Sequence[int], rest: int | None
    ) -> Placement | None:
        """The shape on these pods, for some remainder leaf if it has one."""
        below = common
        if rest is not None:
            below = [mask & own for mask, own in zip(common, self.spines(rest), strict=True)]
            least = self._least(shape.remainder_leaves)
            if any(mask.bit_count() < need for mask, need in zip(below, least, strict=True)):
                return None
        return self._with_leaf(shape, full, common, below, rest)

    def _with_leaf(
        self,
        shape: Shape,
        full: Sequence[int],
        common: Sequence[int],
        below: Sequence[int],
        rest: int | None,
    ) -> Placement | None:
        """The same with the spine uplinks that the remainder pod may use, in ``below``."""
        leaves: list[int | None] = [None]
        tried = set()
        more = 0
        if rest is not None and shape.remainder_hosts:
            leaves = list(self._remainder_leaves(shape, rest))
            more = self._room_for_more(shape, below)
        wide = self._width(shape.remainder_hosts)
        for leaf in leaves:
            uplinks = more & self.fabric.free_uplinks[leaf] if leaf is not None else 0
            if uplinks not in tried:
                tried.add(uplinks)
                if any((uplinks & field).bit_count() < wide for field in self.fields):
                    continue
                if not self.budget.spend(4 * len(self.columns)):
                    return None
                if split := self._split(shape, common, below, uplinks):
                    return self._placement(shape, full, rest, leaf, common, below, split)
        return None

    def _room_for_more(self, shape: Shape, below: Sequence[int]) -> int:
        """The uplinks above which the remainder pod has room for the remainder leaf too."""
        more = 0
        for column, size in zip(self.columns, self.sizes, strict=True):
            least = max(0, size - self.spare[column.plane]) * shape.remainder_leaves
            if self._room(below[column.number], column) > least:
                more |= column.bundle
        return more

    def _remainder_leaves(self, shape: Shape, pod: int) -> Iterable[int]:
        """Groups of the remainder pod with room for the remainder leaf, best fit first."""
        for group in self.fabric.groups_with_room(pod, shape.remainder_hosts):
            whole = self.whole[pod] >> group - pod * self.groups & 1
            if self.counts[pod] - whole >= shape.remainder_leaves:
                yield group

    def _split(
        self, shape: Shape, common: Sequence[int], below: Sequence[int], rest_uplinks: int
    ) -> Split | None:
        """How the uplinks of full leaves and of the remainder leaf spread over the columns.

        In each plane they add up to what the leaves need, and no L2 switch gets
        more from below than its spine uplinks carry: in full pods those in
        ``common``, in the remainder pod those in ``below``. None if there is no way.
        """
        width, rest_width = self._width(shape.hosts), self._width(shape.remainder_hosts)
        split: Split = []
        for plane in range(len(self.spare)):
            options = [
                self._options(column, shape, common, below, rest_uplinks)
                for column in self.columns
                if column.plane == plane
            ]
            part = _most_rest(options, width)
            if part is None:
                return None
            wanted = rest_width
            for some, extra in part:
                split.append((some, min(extra, wanted)))
                wanted -= min(extra, wanted)
            if wanted:
                return None
        return split

    def _options(
        self,
        column: Column,
        shape: Shape,
        common: Sequence[int],
        below: Sequence[int],
        rest_uplinks: int,
    ) -> Split:
        """What a column allows: uplinks of full leaves, with the most of the remainder leaf."""
        size = self.sizes[column.number]
        most = min(size, self._room(common[column.number], column) // shape.leaves)
        limit = self._room(below[column.number], column)
        own = (column.bundle & rest_uplinks).bit_count()
        return [
            (some, min(room, some, own))
            for some in range(most, max(0, size - self.spare[column.plane]) - 1, -1)
            if (room := limit - some * shape.remainder_leaves) >= 0
        ]

    def _placement(
        self,
        shape: Shape,
        full: Sequence[int],
        rest: int | None,
        leaf: int | None,
        common: Sequence[int],
        below: Sequence[int],
        split: Split,
    ) -> Placement:
        """Take hosts, uplinks and spine uplinks.

        The remainder leaf's uplinks come first, the other leaves' contain them; the
        spine uplinks of the smaller pod come first, the others' contain them.
        """
        fabric = self.fabric
        uplinks = leaf_uplinks = 0
        columns = []
        alike = reduce(and_, common)
        for column, (some, extra) in zip(self.columns, split, strict=True):
            own = column.bundle & fabric.free_uplinks[leaf] if leaf is not None else 0
            leaf_part = lowest(own, extra)
            leaf_uplinks |= leaf_part
            uplinks |= leaf_part | lowest(column.bundle ^ leaf_part, some - extra)
            number, rest_part = column.number, 0
            count = self._spine_width(some * shape.leaves, column)
            if rest is None:
                part = _prefer(common[number], alike, count)
            else:
                rest_count = self._spine_width(some * shape.remainder_leaves + extra, column)
                if shape.remainder_leaves < shape.leaves:
                    rest_part = _prefer(below[number], alike, rest_count)
                    part = _extended(rest_part, common[number], alike, count)
                else:
                    part = _prefer(common[number], alike, count)
                    rest_part = _extended(part, below[number], alike, rest_count)
                columns.append(ColumnShare(rest, number, rest_part))
            columns.extend([ColumnShare(pod, number, part) for pod in full])
        groups = []
        for pod in full:
            groups += self._full_shares(self.whole[pod], pod, shape.leaves, uplinks)
        if rest is not None:
            whole = self.whole[rest]
            if leaf is not None:
                whole &= ~(1 << leaf - rest * self.groups)
                hosts = lowest(fabric.free_hosts[leaf], shape.remainder_hosts)
                groups.append(GroupShare(leaf, hosts, leaf_uplinks))
            groups += self._full_shares(whole, rest, shape.remainder_leaves, uplinks)
        taken = [share for share in columns if share.uplinks]
        return Placement(tuple(sorted(groups)), tuple(sorted(taken)), shape)

    def _full_shares(self, whole: int, pod: int, count: int, uplinks: int) -> list[GroupShare]:
        """The hosts of the first ``count`` whole groups of a pod."""
        groups = [pod * self.groups + local for local in bits(lowest(whole, count))]
        free = self.fabric.free_hosts
        return [GroupShare(group, lowest(free[group], self.hosts), uplinks) for group in groups]


def _most_rest(options: Sequence[Split], width: int) -> Split | None:
    """One option of each column: full uplinks add up to ``width``, the rest to the most it can."""
    if all(len(choices) == 1 for choices in options):
        only = [choices[0] for choices in options]
        return only if sum(some for some, _ in only) == width else None
    # Uplinks taken so far -> most remainder uplinks with them, and the choices.
    best: dict[int, tuple[int, Split]] = {0: (0, [])}
    for choices in options:
        following: dict[int, tuple[int, Split]] = {}
        for taken, (rest, chosen) in best.items():
            for some, extra in choices:
                total = taken + some
                if total <= width and rest + extra > following.get(total, (-1,))[0]:
                    following[total] = rest + extra, [*chosen, (some, extra)]
        best = following
    return best[width][1] if width in best else None


def _extended(taken: int, mask: int, liked: int, count: int) -> int:
    """``taken`` and more bits of ``mask``, which contains it, to make ``count``."""
    return taken | _prefer(mask ^ taken, liked, count - taken.bit_count())


def _prefer(mask: int, liked: int, count: int) -> int:
    """``count`` bits of ``mask``, the lowest of the liked ones first."""
    taken = lowest(mask & liked, count)
    return taken | lowest(mask & ~liked, count - taken.bit_count())
