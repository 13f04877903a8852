# SPDX-License-Identifier: Apache-2.0

"""Which placements would delay the head of an EASY queue, as far as is known without a search.

A placement beside which the head does not fit at its shadow time prevents it as long as the
reservation lasts, because hosts and links that are free at the shadow time only become fewer. For
the same reason so does every placement that takes more, if nobody shares what it takes.

A head that is too large for every pod is placed on leaf groups all of whose hosts are free
(``full_leaves``). Then two things are known of any placement before a search for the head:

* Too few such groups are left beside one that takes too many of them. A request that is too large
  for every pod takes some wherever it is placed, so the policy need not be asked
  (``Vetoes.most_hosts``).
* Of a pod's groups the head can use any. So all that a placement takes from it is how many of
  each pod's groups, and which spine uplinks.
"""

from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.policies.base import Traits
from laas_service.domain.search.shapes import full_leaves, most_hosts
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
        self._slots = future.topology.slots
        self._tried: set[int] = set()
        """What the placements took beside which the head did not fit (``taken``)."""
        self._never: list[int] = []
        """Those of them beside which no search can find a place for it."""
        self._planned: tuple[Allocation | None, int] = None, 0
        """The head's last known place, and all that it takes."""
        self._leaves = 0
        """The leaf groups all of whose hosts the head needs; 0 if it may do with none."""
        plain = head.constraints is None and head.parent is None and not moves
        if plain and head.hosts > max(future.pod_free_hosts):
            self._leaves = full_leaves(policy.name, head.hosts, self._slots)
        self._by_pod = self._leaves * self._slots >= head.hosts and not any(future.odd_groups)
        """Whether the head needs nothing but such groups, and of each pod's can use any."""

    def most_hosts(self, present: LedgerView) -> int:
        """Every placement of more hosts on the fabric as it is now would delay the head."""
        future = self._future
        if not self._leaves:
            return future.free_host_count
        spare = future.groups_by_free[self._slots].bit_count() - self._leaves
        in_several_pods = most_hosts(self._policy.name, spare, self._slots)
        return max(in_several_pods, *present.pod_free_hosts)

    def taken(self, newcomer: Allocation) -> int:
        """What a placement takes that the head may need, as a mask to compare with others."""
        topology = self._future.topology
        if not self._by_pod:
            return _mask(newcomer, topology)
        full, width = self._future.groups_by_free[self._slots], topology.groups_per_pod
        taken = pod_end = next_bit = 0
        for group, _, _ in newcomer.groups:
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
        if taken in self._tried:
            return False
        if not taken:
            return True
        for part in self._never:
            if not part & ~taken:
                return False
        if self._by_pod:
            topology = self._future.topology
            lost = (taken & (1 << topology.groups) - 1).bit_count()
            if self._future.groups_by_free[self._slots].bit_count() - lost < self._leaves:
                return False
        if planned is not None and self._policy.isolating:
            if planned is not self._planned[0]:
                self._planned = planned, _mask(planned, self._future.topology)
            if not self._planned[1] & _mask(newcomer, self._future.topology):
                return True  # isolated allocations need only their own hosts and links
        return None

    def add(self, taken: int, *, proven: bool) -> None:
        """The head did not fit beside a placement; ``proven`` unless its search was cut off."""
        self._tried.add(taken)
        if proven and self._policy.isolating:
            self._never.append(taken)

    def forget(self) -> None:
        """Something has become free at the shadow time."""
        self._tried.clear()
        self._never.clear()


def _mask(allocation: Allocation, topology: Topology) -> int:
    """The hosts and links of an allocation."""
    slots, uplinks_at = topology.slots, topology.groups * topology.slots
    width = topology.tree.w[1] * topology.planes
    taken = 0
    for group, hosts, uplinks in allocation.groups:
        taken |= hosts << group * slots | uplinks << uplinks_at + group * width
    return taken | _spines(allocation, topology) << uplinks_at + topology.groups * width


def _spines(allocation: Allocation, topology: Topology) -> int:
    """The spine uplinks of an allocation."""
    width, spines = topology.columns_per_pod * topology.lane, 0
    for pod, lanes in allocation.spines_by_pod(topology):
        spines |= lanes << pod * width
    return spines
