# SPDX-License-Identifier: Apache-2.0

"""Which placements would delay the head of an EASY queue, as far as is known without a search.

A placement beside which the head does not fit at its shadow time prevents it as long as the
reservation lasts, because hosts and links that are free at the shadow time only become fewer. For
the same reason so does every placement that takes more, if nobody shares what it takes.

A head that is too large for every pod is placed on leaf groups all of whose hosts are free
(``full_leaves``). Then two things are known of any placement before a search for the head:

* Too few such groups are left beside one that takes too many of them. By its hosts a request
  takes at least so many of them in each pod, or in several, wherever it is placed there. So the
  policy need not be asked (``Vetoes.most_hosts``).
* Of a pod's groups the head can use any. So all that a placement takes from it is how many of
  each pod's groups, and which spine uplinks.
"""

from functools import partial

from laas_service.domain.allocation import Allocation, GroupShare, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.policies.base import Traits
from laas_service.domain.search.shapes import full_leaves
from laas_service.domain.search.size_bounds import most_that_may_fit, surely_in_pod
from laas_service.domain.search.without_search import first_pod, known_in_several_pods
from laas_service.domain.topology import Topology


class Vetoes:
    """What is known of one reservation.

    ``future`` is the fabric at the shadow time, which may only lose free hosts and links while
    this is used. ``moves`` says that the head may get its place by moves of tenants. Then only
    placements that were tried are known.
    """

    def __init__(self, policy: Traits, head: Request, future: LedgerView, moves: bool) -> None:
        self._policy = policy
        self._future = future
        self._per_leaf = future.topology.hosts_per_group
        self._tried: set[int] = set()
        """What the placements took beside which the head did not fit (``taken``)."""
        self._never: list[int] = []
        """Those of them beside which no search can find a place for it."""
        self._most_in_pod: dict[int, int] = {}
        """By pod, how many of its full leaf groups the head can do without, if that is known."""
        self._delaying: dict[int, tuple[GroupShare, ...]] = {}
        """By their number, the groups of the last placement on so many that delays the head."""
        self._planned: Allocation | None = None
        """The head's last known place."""
        self._planned_groups: dict[int, tuple[int, int]] = {}
        """Its hosts and uplinks by leaf group."""
        self._planned_spines: dict[int, int] = {}
        """Its spine uplinks by pod."""
        self._leaves = 0
        """The leaf groups all of whose hosts the head needs; 0 if it may do with none."""
        plain = head.constraints is None and head.parent is None and not moves
        if plain and head.hosts > max(future.pod_free_hosts):
            self._leaves = full_leaves(policy.name, head.hosts, self._per_leaf)
        self._by_pod = self._leaves * self._per_leaf >= head.hosts and not any(future.odd_groups)
        """Whether the head needs nothing but such groups, and of each pod's can use any."""

    def most_hosts(self, present: LedgerView) -> int:
        """Every placement of more hosts on the fabric as it is now would delay the head."""
        if not self._leaves:
            return self._future.free_host_count
        in_pod = partial(self._most_hosts_in_pod, present)
        return most_that_may_fit(present, self._policy.name, self._spare, in_pod)

    def delays(self, present: LedgerView, hosts: int) -> bool:
        """Whether a plain request for so many hosts surely would be placed so that the head waits.

        If not, it may still. With packing, requests are placed otherwise.
        """
        if not self._by_pod or self._future.topology.rails > 1:
            return False
        if hosts <= self._per_leaf:
            for groups in present.groups_by_free[hosts:]:
                if groups:
                    return self._takes_last(groups & -groups)
        pod = first_pod(present, hosts)
        if pod is None:
            leaves, rest = divmod(hosts, self._per_leaf)
            if rest and self._policy.name != "laas":
                return False
            leaves += rest > 0
            delaying = self._delaying.get(leaves)
            if delaying is None or any(present.odd_groups):
                return False
            placement = known_in_several_pods(present).placements.get(leaves)
            return placement is not None and placement.groups is delaying
        if hosts <= self._most_hosts_in_pod(present, pod):
            return False
        return surely_in_pod(present, pod, hosts)

    @property
    def _spare(self) -> int:
        """How many of the leaf groups all of whose hosts are free the head does not need."""
        return self._future.groups_by_free[self._per_leaf].bit_count() - self._leaves

    def _most_leaves_in_pod(self, pod: int) -> int:
        """How many of these groups of a pod may be taken, as far as is known."""
        spare = self._future.groups_by_free[self._per_leaf].bit_count() - self._leaves
        known = self._most_in_pod.get(pod, spare)
        return known if known < spare else spare

    def _most_hosts_in_pod(self, present: LedgerView, pod: int) -> int:
        """Hosts that are free in the other groups, and those of as many of these groups."""
        others, hosts = ~self._future.pod_groups_by_free[pod][self._per_leaf], 0
        for free, groups in enumerate(present.pod_groups_by_free[pod]):
            if groups:
                hosts += free * (groups & others).bit_count()
        return hosts + self._most_leaves_in_pod(pod) * self._per_leaf

    def _takes_last(self, group: int) -> bool:
        """Whether the head needs a leaf group, given as a bit set."""
        if not group & self._future.groups_by_free[self._per_leaf]:
            return False
        pod = (group.bit_length() - 1) // self._future.topology.groups_per_pod
        return self._most_leaves_in_pod(pod) < 1

    def taken(self, newcomer: Allocation) -> int:
        """What a placement takes that the head may need, as a mask to compare with others."""
        topology = self._future.topology
        if not self._by_pod:
            return _mask(newcomer, topology)
        full, width = self._future.groups_by_free[self._per_leaf], topology.groups_per_pod
        taken = pod_end = next_bit = 0
        held = newcomer.groups
        if newcomer.alone:
            groups = {group for group, _, _ in (*newcomer.groups, *newcomer.alone)}
            held = tuple(GroupShare(group, 0, 0) for group in sorted(groups))
        for group, _, _ in held:
            if full >> group & 1:
                if group >= pod_end:
                    first = group - group % width
                    pod_end, next_bit = first + width, 1 << first
                taken |= next_bit
                next_bit <<= 1
        return taken | _spines(newcomer, topology) << topology.groups

    def known(self, taken: int, newcomer: Allocation, planned: Allocation | None) -> bool | None:
        """Whether the head fits beside the newcomer, which has ``taken``; None if not known.

        ``planned`` is a place of the head at its shadow time.
        """
        if not taken:
            return True
        if taken in self._tried or any(not part & ~taken for part in self._never):
            self._delaying[len(newcomer.groups)] = newcomer.groups
            return False
        if self._by_pod:
            groups = (1 << self._future.topology.groups) - 1
            if (taken & groups).bit_count() > self._spare:
                return False
        if planned is not None and self._policy.isolating and self._apart(newcomer, planned):
            return True  # isolated allocations need only their own hosts and links
        return None

    def _apart(self, newcomer: Allocation, planned: Allocation) -> bool:
        """Whether a place of the head has nothing of the newcomer's."""
        topology = self._future.topology
        if planned is not self._planned:
            self._planned = planned
            self._planned_groups = {g: (hosts, uplinks) for g, hosts, uplinks in planned.groups}
            self._planned_spines = dict(planned.spines_by_pod(topology))
        for group, hosts, uplinks in (*newcomer.groups, *newcomer.alone):
            place = self._planned_groups.get(group)
            if place is not None and (hosts & place[0] or uplinks & place[1]):
                return False
        spines = self._planned_spines
        for pod, lanes in newcomer.spines_by_pod(topology):
            if lanes & spines.get(pod, 0):
                return False
        return True

    def add(self, taken: int, newcomer: Allocation, *, proven: bool) -> None:
        """The head did not fit beside the newcomer; ``proven`` unless its search was cut off."""
        self._tried.add(taken)
        self._delaying[len(newcomer.groups)] = newcomer.groups
        if not proven or not self._policy.isolating:
            return
        self._never.append(taken)
        if self._by_pod:
            width = self._future.topology.groups_per_pod
            pod = ((taken & -taken).bit_length() - 1) // width
            groups = taken >> pod * width
            if not groups >> width:  # it takes nothing but groups of this pod
                most = groups.bit_count() - 1
                self._most_in_pod[pod] = min(most, self._most_in_pod.get(pod, most))

    def forget(self) -> None:
        """Something has become free at the shadow time."""
        self._tried.clear()
        self._never.clear()
        self._most_in_pod.clear()
        self._delaying.clear()


def _mask(allocation: Allocation, topology: Topology) -> int:
    """The hosts and links of an allocation."""
    per_leaf, uplinks_at = topology.hosts_per_group, topology.groups * topology.hosts_per_group
    width = topology.tree.w[1] * topology.planes
    taken = 0
    for group, hosts, uplinks in (*allocation.groups, *allocation.alone):
        taken |= hosts << group * per_leaf | uplinks << uplinks_at + group * width
    return taken | _spines(allocation, topology) << uplinks_at + topology.groups * width


def _spines(allocation: Allocation, topology: Topology) -> int:
    """The spine uplinks of an allocation."""
    width, spines = topology.columns_per_pod * topology.lane, 0
    for pod, lanes in allocation.spines_by_pod(topology):
        spines |= lanes << pod * width
    return spines
