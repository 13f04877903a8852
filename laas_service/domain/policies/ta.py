# SPDX-License-Identifier: Apache-2.0

"""Topology-aware: hosts only, chosen so that no two tenants can meet on a link."""

from typing import ClassVar

from laas_service.domain.allocation import Allocation, GroupShare, NoFit, Refusal, Request
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.any_hosts import any_hosts
from laas_service.domain.search.bicliques import lowest_bits
from laas_service.domain.search.search import too_few_hosts


class Ta:
    """Jain et al. (IPDPS'17) and Pollard et al. (SC'18), as described in Jigsaw (HPDC'21), 5.2.2.

    The policy claims no links. It chooses hosts so that under any up-down routing no two
    tenants use the same link:

    * a tenant that some leaf could hold lies in one leaf; a tenant that some pod could hold
      lies in one pod; only larger tenants lie across pods;
    * at most one of the tenants on a leaf leaves it, as its traffic may use every uplink;
      tenants inside the leaf use no uplink and may join anywhere;
    * at most one of the tenants in a pod leaves the pod; tenants inside the pod on other
      leaves do not meet it.

    The papers leave the rest open. Here "could hold" refers to the empty fabric without its
    absent hosts, so a size always belongs to the same level. Best fit is the fullest leaf or
    pod with room. Within a pod the emptiest leaves are taken, and across pods the emptiest
    pods; as few of them as hold the tenant, and the last one by best fit again. On R rails a
    leaf is a leaf group, and each rail is considered by itself. Other tenants count by the
    hosts they hold, whatever their policy.

    A refusal of N hosts does not imply a refusal of N + 1, which may belong to a higher
    level. Every refusal therefore says which smaller size would fit.
    """

    name: ClassVar[str] = "ta"
    isolating: ClassVar[bool] = False
    monotone: ClassVar[bool] = False

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        if refusal := too_few_hosts(fabric, request.hosts):
            return refusal
        topology, hosts = fabric.topology, request.hosts
        if request.constraints is not None and request.constraints.of_shape:
            return self._constrained(fabric, request, request.constraints)
        if hosts <= topology.largest_leaf:
            groups = _in_a_leaf(fabric, hosts)
        elif hosts <= topology.largest_pod:
            groups = _ClearLeaves(fabric).in_a_pod(hosts)
        else:
            groups = _ClearLeaves(fabric).across_pods(hosts)
        if groups:
            return Allocation(request.id, hosts, self.name, tuple(sorted(groups)))
        return NoFit(
            Refusal.NO_LEGAL_SHAPE,
            f"{fabric.free_host_count} hosts free, {hosts} asked, but no leaf, pod or set of pods"
            " of the right level has them clear of other tenants' traffic",
            _ClearLeaves(fabric).largest_fit(hosts),
        )

    def _constrained(
        self, fabric: LedgerView, request: Request, constraints: Constraints
    ) -> Allocation | NoFit:
        """Any hosts that the rules allow; a size still belongs to the same level."""
        topology, hosts, within = fabric.topology, request.hosts, constraints.place
        fits_leaf, fits_pod = hosts <= topology.largest_leaf, hosts <= topology.largest_pod
        level = "leaf" if fits_leaf else "pod" if fits_pod else "set of pods"
        too_narrow = not (fits_leaf if within is Within.LEAF else fits_pod)
        if (constraints.least_pods > 1 and fits_pod) or (within and too_narrow):
            return NoFit(Refusal.CONSTRAINT, f"ta gives {hosts} hosts one {level}, no other")
        if fits_leaf:
            places = [[group] for group in range(topology.groups)]
        elif fits_pod:
            places = _ClearLeaves(fabric).by_pod()
        else:
            places = [_ClearLeaves(fabric).of_uncrossed_pods()]
        if shares := any_hosts(fabric, places, hosts, constraints):
            return Allocation(request.id, hosts, self.name, tuple(shares))
        return NoFit(
            Refusal.NO_LEGAL_SHAPE,
            f"{fabric.free_host_count} hosts free, {hosts} asked, but no {level} has them clear"
            " of other tenants' traffic",
        )


def _in_a_leaf(fabric: LedgerView, hosts: int) -> list[GroupShare]:
    """Hosts of the fullest leaf with room; empty if there is none."""
    for roomy in fabric.groups_by_free[hosts:]:
        if roomy:
            group = (roomy & -roomy).bit_length() - 1
            return [GroupShare(group, lowest_bits(fabric.free_hosts[group], hosts), 0)]
    return []


class _ClearLeaves:
    """The leaf groups and pods that a tenant may use which leaves its leaf or its pod."""

    def __init__(self, fabric: LedgerView) -> None:
        self._fabric = fabric
        self._width = fabric.topology.groups_per_pod
        self.room = list(fabric.pod_free_hosts)
        """By pod, the free hosts on leaf groups that are not taken."""
        self.taken: set[int] = set()
        """Leaf groups with a tenant that leaves them."""
        self.crossed: set[int] = set()
        """Pods with a tenant that leaves them."""
        for allocation in fabric.allocations.values():
            if len(allocation.groups) > 1:
                self._take({share.group for share in allocation.groups})

    def _take(self, groups: set[int]) -> None:
        """Record a tenant that lies on all of these leaf groups."""
        for group in groups - self.taken:
            self.room[group // self._width] -= self._fabric.free_hosts[group].bit_count()
        self.taken |= groups
        pods = {group // self._width for group in groups}
        if len(pods) > 1:
            self.crossed |= pods

    def by_pod(self) -> list[list[int]]:
        """For each pod, its leaf groups that are not taken."""
        return [self._clear_groups(pod) for pod in range(self._fabric.topology.pods)]

    def of_uncrossed_pods(self) -> list[int]:
        """The leaf groups that are not taken, in pods that no tenant leaves."""
        pods = (pod for pod in range(self._fabric.topology.pods) if pod not in self.crossed)
        return [group for pod in pods for group in self._clear_groups(pod)]

    def _clear_groups(self, pod: int) -> list[int]:
        groups = range(pod * self._width, (pod + 1) * self._width)
        return [group for group in groups if group not in self.taken]

    def in_a_pod(self, hosts: int) -> list[GroupShare]:
        """Hosts of the pod with the least room that is enough; empty if there is none."""
        pods = [pod for pod, room in enumerate(self.room) if room >= hosts]
        return self._on_leaves(min(pods, key=self.room.__getitem__), hosts) if pods else []

    def across_pods(self, hosts: int) -> list[GroupShare]:
        """Hosts of as few pods as possible; empty if all pods together have too few."""
        room = {pod: room for pod, room in enumerate(self.room) if pod not in self.crossed}
        return [
            share for pod, count in _packed(room, hosts) for share in self._on_leaves(pod, count)
        ]

    def _on_leaves(self, pod: int, hosts: int) -> list[GroupShare]:
        """Hosts of as few leaf groups of a pod as possible."""
        free = self._fabric.free_hosts
        room = {group: free[group].bit_count() for group in self._clear_groups(pod)}
        return [
            GroupShare(group, lowest_bits(free[group], count), 0)
            for group, count in _packed(room, hosts)
        ]

    def largest_fit(self, below: int) -> int:
        """The largest size under ``below`` that fits; ``below`` itself does not fit."""
        topology = self._fabric.topology
        across = sum(room for pod, room in enumerate(self.room) if pod not in self.crossed)
        if topology.largest_pod < across < below:
            return across
        if topology.largest_leaf < max(self.room) < below:
            return max(self.room)
        sizes = range(min(below, topology.largest_leaf + 1))
        return max((free for free in sizes if self._fabric.groups_by_free[free]), default=0)


def _packed(room: dict[int, int], hosts: int) -> list[tuple[int, int]]:
    """(place, number of hosts) in as few places as possible; empty if there is too little room.

    The emptiest places are filled first; the last place is chosen by best fit.
    """
    if sum(room.values()) < hosts:
        return []
    packed = []
    emptiest = sorted(room, key=lambda place: (-room[place], place))
    for place in emptiest:
        if room[place] >= hosts:
            break
        packed.append((place, room[place]))
        hosts -= room[place]
    last = min(
        (place for place in emptiest[len(packed) :] if room[place] >= hosts),
        key=room.__getitem__,
    )
    return [*packed, (last, hosts)]
