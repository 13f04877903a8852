# SPDX-License-Identifier: Apache-2.0

"""Topology-aware: hosts only, kept where tenants cannot meet on a link whatever the routing."""

from __future__ import annotations

from typing import ClassVar

from laas_service.domain.allocation import Allocation, GroupShare, NoFit, Refusal, Request
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.any_hosts import any_hosts
from laas_service.domain.search.bicliques import lowest
from laas_service.domain.search.one_pod import too_few


class Ta:
    """Jain et al. (IPDPS'17) and Pollard et al. (SC'18), as Jigsaw (HPDC'21), 5.2.2, has them.

    No link is claimed. Hosts are given so that under any up-down routing no two
    tenants use the same link:

    * a tenant that some leaf could hold must lie in one leaf, one that some pod
      could hold in one pod; only larger ones lie across pods;
    * of the tenants on a leaf at most one may leave it, as its traffic may climb
      every uplink; those inside the leaf use none and may join anywhere;
    * likewise at most one tenant of a pod may leave the pod, and those inside the
      pod on other leaves do not meet it.

    Where the papers are silent: "could hold" is said of the empty fabric, less
    absent hosts, so a size always goes to the same level. Best fit is the fullest
    leaf or pod with room; within a pod the emptiest leaves, and across pods the
    emptiest pods, as few of them as hold the tenant, the last one again by best
    fit. On R rails a leaf is a leaf group, and each rail is looked at by itself.
    All other tenants count by the hosts they hold, whatever their policy.

    A refusal of N does not imply one of N + 1, which may belong to a higher level;
    so refusals say at once which smaller size would fit.
    """

    name: ClassVar[str] = "ta"
    isolating: ClassVar[bool] = False
    monotone: ClassVar[bool] = False

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        if refusal := too_few(fabric, request.hosts):
            return refusal
        topology, hosts = fabric.topology, request.hosts
        if request.constraints is not None and request.constraints.of_shape:
            return self._constrained(fabric, request, request.constraints)
        if hosts <= topology.largest_leaf:
            groups = _in_a_leaf(fabric, hosts)
        elif hosts <= topology.largest_pod:
            groups = _Ground(fabric).in_a_pod(hosts)
        else:
            groups = _Ground(fabric).across_pods(hosts)
        if groups:
            return Allocation(request.id, hosts, self.name, tuple(sorted(groups)))
        return NoFit(
            Refusal.NO_LEGAL_SHAPE,
            f"{fabric.free_host_count} hosts free, {hosts} asked, but no leaf, pod or set of pods"
            " of the right level has them clear of other tenants' traffic",
            _Ground(fabric).largest_fit(hosts),
        )

    def _constrained(
        self, fabric: LedgerView, request: Request, wish: Constraints
    ) -> Allocation | NoFit:
        """Any hosts that the rules leave; which level a size belongs to stays as it is."""
        topology, hosts = fabric.topology, request.hosts
        leaf, pod = hosts <= topology.largest_leaf, hosts <= topology.largest_pod
        level = "leaf" if leaf else "pod" if pod else "set of pods"
        if (wish.spread > 1 and pod) or (wish.within and not pod):
            return NoFit(Refusal.CONSTRAINT, f"ta gives {hosts} hosts one {level}, no other")
        if wish.within is Within.LEAF and not leaf:
            return NoFit(Refusal.CONSTRAINT, f"ta gives {hosts} hosts one {level}, no other")
        ground = _Ground(fabric)
        places = [[group] for group in range(topology.groups)] if leaf else ground.places(pod)
        if shares := any_hosts(fabric, places, hosts, wish):
            return Allocation(request.id, hosts, self.name, tuple(shares))
        return NoFit(
            Refusal.NO_LEGAL_SHAPE,
            f"{fabric.free_host_count} hosts free, {hosts} asked, but no {level} has them clear"
            " of other tenants' traffic",
        )


def _in_a_leaf(fabric: LedgerView, hosts: int) -> list[GroupShare]:
    """The fullest leaf with room; nothing if there is none."""
    for roomy in fabric.groups_by_free[hosts:]:
        if roomy:
            group = (roomy & -roomy).bit_length() - 1
            return [GroupShare(group, lowest(fabric.free_hosts[group], hosts), 0)]
    return []


class _Ground:
    """What tenants that leave their leaf may still use.

    ``taken`` are the leaf groups, ``crossed`` the pods that such a tenant, or one
    that leaves its pod, is in; ``room[pod]`` counts free hosts on leaves not taken.
    """

    def __init__(self, fabric: LedgerView) -> None:
        self.fabric = fabric
        self.width = fabric.topology.groups_per_pod
        self.room = list(fabric.pod_free_hosts)
        self.taken: set[int] = set()
        self.crossed: set[int] = set()
        for allocation in fabric.allocations.values():
            if len(allocation.groups) > 1:
                self._note({share.group for share in allocation.groups})

    def _note(self, groups: set[int]) -> None:
        """Somebody is on these leaf groups at once."""
        for group in groups - self.taken:
            self.room[group // self.width] -= self.fabric.free_hosts[group].bit_count()
        self.taken |= groups
        pods = {group // self.width for group in groups}
        if len(pods) > 1:
            self.crossed |= pods

    def places(self, pod: bool) -> list[list[int]]:
        """The groups not taken of each pod, or of all pods that nobody crosses."""
        pods = [
            [
                group
                for group in range(one * self.width, (one + 1) * self.width)
                if group not in self.taken
            ]
            for one in range(self.fabric.topology.pods)
            if pod or one not in self.crossed
        ]
        return pods if pod else [[group for some in pods for group in some]]

    def in_a_pod(self, hosts: int) -> list[GroupShare]:
        """The pod with the least room that is enough; nothing if there is none."""
        pods = [pod for pod, room in enumerate(self.room) if room >= hosts]
        return self._on_leaves(min(pods, key=self.room.__getitem__), hosts) if pods else []

    def across_pods(self, hosts: int) -> list[GroupShare]:
        """As few pods as hold them; nothing if all together do not."""
        room = {pod: room for pod, room in enumerate(self.room) if pod not in self.crossed}
        return [share for pod, part in _packed(room, hosts) for share in self._on_leaves(pod, part)]

    def _on_leaves(self, pod: int, hosts: int) -> list[GroupShare]:
        """As few leaves of a pod as hold them."""
        free = self.fabric.free_hosts
        groups = range(pod * self.width, (pod + 1) * self.width)
        room = {group: free[group].bit_count() for group in groups if group not in self.taken}
        return [
            GroupShare(group, lowest(free[group], part), 0) for group, part in _packed(room, hosts)
        ]

    def largest_fit(self, below: int) -> int:
        """The largest size under ``below``, a size that does not fit, that would."""
        topology = self.fabric.topology
        across = sum(room for pod, room in enumerate(self.room) if pod not in self.crossed)
        if topology.largest_pod < across < below:
            return across
        if topology.largest_leaf < max(self.room) < below:
            return max(self.room)
        sizes = range(min(below, topology.largest_leaf + 1))
        return max((free for free in sizes if self.fabric.groups_by_free[free]), default=0)


def _packed(room: dict[int, int], hosts: int) -> list[tuple[int, int]]:
    """Places and how many hosts go to each: the emptiest first, the last by best fit.

    Nothing if all places together have too little room.
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
