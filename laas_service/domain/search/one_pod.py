# SPDX-License-Identifier: Apache-2.0

"""Where a shape fits: the enumeration that policies share.

A policy lists the shapes it allows, the most wanted first; a ``Search`` looks for
one inside a leaf group, then inside a pod, then across pods. What makes a shape
legal is the same for all: Jigsaw (HPDC'21) section 3.2, conditions (1) to (6),
whose two-level part is LaaS (ANCS'16) Theorem 2. Two generalizations run through:

* taper (LaaS section 3, over-subscription): D hosts on a leaf take ceil(D / O)
  uplinks, f cables into an L2 switch from below take ceil(f / O) uplinks of it;
* rails: a *plane* has one field of uplinks that all its rails use alike, so an
  L2 switch gets a cable on each rail of its plane for every uplink chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from laas_service.domain.allocation import (
    Allocation,
    GroupShare,
    NoFit,
    Refusal,
    Request,
    Shape,
)
from laas_service.domain.constraints import Within
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import Budget, Wanted, blocks, lowest
from laas_service.domain.search.misfits import Misfits
from laas_service.domain.search.multi_pod import AcrossPods
from laas_service.domain.search.partial_leaves import ThinLeaves
from laas_service.domain.search.shapes import (
    Placement,
    most_pods,
    pod_shapes,
    tree_shapes,
    two_pod_shapes,
)
from laas_service.domain.search.spine_bounds import Spines
from laas_service.domain.topology import bits

WORK = 60_000
"""Default budget of a request for searching (see ``Budget``): 15 to 30 ms.

Most requests need none of it, and tenants of all sizes that come and go hardly
ever a hundredth.
"""


def too_few(fabric: LedgerView, asked: int) -> NoFit | None:
    """The refusal where fewer hosts are free than asked."""
    free, lost = fabric.free_host_count, fabric.lost_host_count
    if asked <= free:
        return None
    text = f"{free} hosts free, {asked} asked"
    if asked <= free + lost:
        return NoFit(Refusal.FAULT, f"{text}; {lost} more are failed or drained")
    return NoFit(Refusal.TOO_FEW_HOSTS, text)


class Search:
    """Looks for shapes in one fabric on behalf of one policy's request.

    A ``variant`` of a policy has a memory of misfits of its own. ``work`` bounds the
    search. Within it the search is complete: a shape that has a legal placement gets
    one. ``answer`` says if the budget was the limit. Under the request's ``within`` and
    ``spread`` only shapes that meet these are looked for.
    """

    within: Within | None = None
    spread = 1
    reach = 1
    """The most pods that shapes looked at so far lie in, where that matters."""

    def __init__(
        self, fabric: LedgerView, policy: str, request: Request, work: int, variant: str = ""
    ) -> None:
        topology = fabric.topology
        self.fabric = fabric
        self.policy = policy
        self.misfits = fabric.reader_cache(Misfits)
        self.misfits_of = f"{policy} {variant}" if variant else policy
        self.request = request
        self.budget = Budget(work, request.meter)
        self.slots = topology.slots
        self.groups = topology.groups_per_pod
        self.pods = topology.pods
        self.taper, self.spine_taper = topology.tree.taper
        self.planes = topology.plane_fields
        if request.constraints is not None:
            self.within, self.spread = request.constraints.within, request.constraints.spread
        self.sharing = Spines(fabric, self.budget)

    def width(self, hosts: int) -> int:
        """Uplinks in each plane for that many hosts on a leaf."""
        return -(-hosts // self.taper)

    def wide(self, width: int) -> Callable[[int], bool]:
        """Whether a mask has ``width`` uplinks in every plane."""
        if len(self.planes) == 1:
            return lambda uplinks: uplinks.bit_count() >= width
        return lambda uplinks: all((uplinks & plane).bit_count() >= width for plane in self.planes)

    # -- the answer -----------------------------------------------------------

    def hopeless(self) -> NoFit | None:
        """The refusal of a size that cannot fit, known without a search."""
        asked = self.request.hosts
        if refusal := too_few(self.fabric, asked):
            return refusal
        misfit = self.misfits.smallest(self.misfits_of, self.fabric.freed)
        if asked >= misfit and self.spread == 1:
            return self._no_legal_shape()
        return None

    def answer(self, placement: Placement | None) -> Allocation | NoFit:
        """The allocation, or why there is none."""
        request = self.request
        if placement:
            groups, columns, shape = placement
            return Allocation(request.id, request.hosts, self.policy, groups, columns, shape)
        if self.budget.exceeded:
            return NoFit(
                Refusal.BUDGET,
                f"{self.fabric.free_host_count} hosts free, {request.hosts} asked; the search"
                f" stopped after {self.budget.nodes} nodes, a placement may exist",
            )
        if self.spread > 1:
            return self._no_legal_shape() if self.spread <= self.reach else self._too_far()
        self.misfits.remember(self.misfits_of, self.fabric.freed, request.hosts)
        return self._no_legal_shape()

    def _too_far(self) -> NoFit:
        """No shape of this policy lies in so many pods, however empty the fabric is."""
        hosts, most = self.request.hosts, 1
        text = f"{self.policy} spreads {hosts} hosts over {self.reach} of {self.pods} pods at most"
        if self.policy != "lc":
            most = most_pods(hosts, self.slots, self.groups, self.pods)
        if self.spread <= most:
            text += f", as it has to fill leaves; lc spreads them over up to {most}"
        return NoFit(Refusal.CONSTRAINT, text)

    def _no_legal_shape(self) -> NoFit:
        return NoFit(
            Refusal.NO_LEGAL_SHAPE,
            f"{self.fabric.free_host_count} hosts free, {self.request.hosts} asked, but no leaf,"
            " pod or set of pods has them with enough free links in common",
        )

    # -- inside a leaf group --------------------------------------------------

    def in_one_group(self, hosts: int) -> Placement | None:
        """The fullest leaf group with room. It needs no links, unless to join rails."""
        for group in self._groups_for(hosts) if self.spread == 1 else ():
            uplinks = self._joining_uplinks(group) if hosts > 1 else 0
            if uplinks is not None:
                taken = lowest(self.fabric.free_hosts[group], hosts)
                return Placement((GroupShare(group, taken, uplinks),), (), Shape(1, 1, hosts))
        return None

    def _groups_for(self, hosts: int) -> Iterator[int]:
        """Leaf groups with room, the fullest first, or first those that suit its packing.

        Groups that are all free come last either way.
        """
        by_free, packing, room = self.fabric.groups_by_free, self.request.packing, hosts
        if packing is not None:
            suited = [
                (packing.cost(group, free - hosts), group)
                for free in range(hosts, self.slots)
                for group in bits(by_free[free])
            ]
            yield from (group for _, group in sorted(suited))
            room = max(hosts, self.slots)
        for free in range(room, self.slots + 1):
            yield from bits(by_free[free])

    def _joining_uplinks(self, group: int) -> int | None:
        """One uplink in each plane of several rails, None if a plane has none free.

        The rails of a plane take the same uplink index and so meet at its L2 switch.
        """
        joining = 0
        if len(self.planes) < self.fabric.topology.rails:
            for plane, field in enumerate(self.planes):
                if self.fabric.topology.rails_in_plane(plane) > 1:
                    free = self.fabric.free_uplinks[group] & field
                    if not free:
                        return None
                    joining |= free & -free
        return joining

    # -- inside a pod ---------------------------------------------------------

    def in_one_pod(self, hosts: int) -> Placement | None:
        """Any shape of ``hosts`` hosts on several groups of one pod; fullest pod first."""
        misfits, freed = self.misfits, self.fabric.pod_freed
        shapes = pod_shapes(hosts, self.slots, self.groups, self.taper)
        if self.spread > 1 or self.within is Within.LEAF:
            return None
        failed: int | None = None
        for pod in self._pods_with_room(hosts) if shapes else ():
            if hosts >= misfits.smallest(pod, freed[pod]):
                continue
            if failed is None or not self._alike(failed, pod):
                if self.budget.exceeded:
                    return None
                if placement := self._place_in_pod(pod, shapes):
                    return placement
                failed = pod
            if not self.budget.exceeded:
                misfits.remember(pod, freed[pod], hosts)
        return None

    def _alike(self, one: int, other: int) -> bool:
        """Whether leaf by leaf two pods have the same uplinks and numbers of hosts free."""
        by_free, uplinks = self.fabric.pod_groups_by_free, self.fabric.free_uplinks
        width = self.groups
        return by_free[one] == by_free[other] and (
            uplinks[one * width : (one + 1) * width] == uplinks[other * width : (other + 1) * width]
        )

    def whole_groups(self, leaves: int) -> Placement | None:
        """That many whole leaf groups of one pod; fullest pod first."""
        shape = Shape(1, leaves, self.slots)
        if self.spread > 1 or self.within is Within.LEAF:
            return None
        for pod in self._pods_with_room(shape.size):
            if placement := self._place_in_pod(pod, (shape,)):
                return placement
        return None

    def _pods_with_room(self, hosts: int) -> list[int]:
        free = self.fabric.pod_free_hosts
        return sorted((p for p in range(self.pods) if free[p] >= hosts), key=free.__getitem__)

    def _place_in_pod(self, pod: int, shapes: Sequence[Shape]) -> Placement | None:
        at_least = [groups.bit_count() for groups in self.fabric.pod_groups_by_free[pod]]
        for free in range(self.slots - 1, -1, -1):
            at_least[free] += at_least[free + 1]
        for shape in shapes:
            rest = shape.remainder_hosts
            if at_least[shape.hosts] < shape.leaves or (rest and at_least[rest] <= shape.leaves):
                continue
            if placement := self._two_level(pod, shape):
                return placement
        return None

    def _two_level(self, pod: int, shape: Shape) -> Placement | None:
        """``leaves`` groups of ``hosts`` that share uplinks, and a remainder group if there is one.

        LaaS, Theorem 2; Jigsaw, conditions (2) and (4).
        """
        uplinks = self.fabric.free_uplinks
        groups = self.fabric.groups_with_room(pod, shape.hosts)
        width, rest_width = self.width(shape.hosts), self.width(shape.remainder_hosts)
        wide, rest_wide = self.wide(width), self.wide(rest_width)
        rest = self.fabric.groups_with_room(pod, shape.remainder_hosts) if rest_width else []

        def wide_with_rest(common: int) -> bool:
            return wide(common) and any(rest_wide(common & uplinks[group]) for group in rest)

        needs = [(field, width) for field in self.planes]
        rows = [uplinks[group] for group in groups]
        met = wide_with_rest if rest else wide
        for block, common in blocks(rows, Wanted(shape.leaves, needs, met), self.budget):
            full = [groups[row] for row in block]
            if not rest:
                return self._one_pod_placement(shape, full[: shape.leaves], common, None)
            for group in rest:
                if rest_wide(common & uplinks[group]):
                    others = [other for other in full if other != group][: shape.leaves]
                    if len(others) == shape.leaves:
                        return self._one_pod_placement(shape, others, common, group)
        return None

    def _one_pod_placement(
        self, shape: Shape, full: list[int], common: int, rest: int | None
    ) -> Placement:
        """Take hosts and uplinks: the remainder's first, the others contain them."""
        fabric = self.fabric
        width, rest_width = self.width(shape.hosts), self.width(shape.remainder_hosts)
        chosen = rest_chosen = 0
        for field in self.planes:
            within = common & field
            some = lowest(within & fabric.free_uplinks[rest], rest_width) if rest is not None else 0
            rest_chosen |= some
            chosen |= some | lowest(within ^ some, width - some.bit_count())
        shares = [GroupShare(g, lowest(fabric.free_hosts[g], shape.hosts), chosen) for g in full]
        if rest is not None:
            hosts = lowest(fabric.free_hosts[rest], shape.remainder_hosts)
            shares.append(GroupShare(rest, hosts, rest_chosen))
        return Placement(tuple(sorted(shares)), (), shape)

    # -- across pods ----------------------------------------------------------

    def across_pods(self, leaves: int, rest: int) -> Placement | None:
        """Any shape of ``leaves`` full leaf groups and ``rest`` hosts over several pods.

        Jigsaw, conditions (1) to (6), with its own restriction of section 4.
        """
        if leaves > self.fabric.groups_by_free[self.slots].bit_count() and self.spread == 1:
            return None
        return self._across(
            tree_shapes(leaves, rest, self.slots, self.groups, self.pods, self.spine_taper)
        )

    def _allowed(self, shapes: Sequence[Shape]) -> Sequence[Shape]:
        """Those of shapes over several pods that the request's constraints leave."""
        if self.within is not None:
            return ()
        if self.spread == 1:
            return shapes
        pods = [
            shape.pods + (shape.remainder_leaves > 0 or shape.remainder_hosts > 0)
            for shape in shapes
        ]
        self.reach = max(self.reach, *pods, 1)
        return [shape for shape, some in zip(shapes, pods, strict=True) if some >= self.spread]

    def _seen_across(self, uplinks: int, hosts: int) -> AcrossPods:
        """The pods when leaves of so many hosts use some of ``uplinks``."""
        return AcrossPods(self.fabric, uplinks, self.budget, hosts, self.sharing)

    def across_two_pods(self, leaves: int, rest: int) -> Placement | None:
        """Any shape over two pods whose remainder pod is no smaller than the other one."""
        shapes = self._allowed(two_pod_shapes(leaves, rest, self.slots, self.groups))
        if not shapes or leaves > self.fabric.groups_by_free[self.slots].bit_count():
            return None
        for uplinks in self._common_uplinks():
            view = self._seen_across(uplinks, self.slots)
            for shape in shapes:
                if placement := view.place_in_two(shape):
                    return placement
        return None

    def across_pods_on_thin_leaves(self, hosts: int) -> Placement | None:
        """Any shape of ``hosts`` hosts over several pods whose leaves are not full."""
        thin = ThinLeaves(self.fabric, self.budget, self.sharing, self._seen_across)
        return thin.place(hosts, self._allowed)

    def whole_pods(self, pods: int) -> Placement | None:
        """That many whole pods."""
        return self._across((Shape(pods, self.groups, self.slots),))

    def _across(self, shapes: Sequence[Shape]) -> Placement | None:
        if shapes := self._allowed(shapes):
            for uplinks in self._common_uplinks():
                view = self._seen_across(uplinks, self.slots)
                for shape in shapes:
                    if placement := view.place(shape):
                        return placement
        return None

    def _common_uplinks(self) -> Iterable[int]:
        """The sets of uplinks that full leaves can have in common, the widest first.

        There is one set unless leaves have more uplinks than they need and some
        have failed: then all intersections of what such leaves have left.
        """
        fabric, everything, width = self.fabric, sum(self.planes), self.width(self.slots)
        if width * len(self.planes) == everything.bit_count() or not any(fabric.odd_groups):
            return [everything]
        masks = {everything}
        for pod, odd in enumerate(fabric.odd_groups):
            for local in bits(odd & fabric.pod_groups_by_free[pod][self.slots]):
                masks.add(fabric.free_uplinks[pod * self.groups + local])
        wide, closed, todo = self.wide(width), set[int](), sorted(masks)
        while todo:
            mask = todo.pop()
            if mask in closed or not wide(mask):
                continue
            if not self.budget.spend(2 * len(masks)):
                break
            closed.add(mask)
            todo.extend(sorted(mask & other for other in masks))
        return sorted(closed, key=lambda mask: (-mask.bit_count(), mask))
