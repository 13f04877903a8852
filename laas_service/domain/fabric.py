# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""The ledger: who owns which host and link, what is down, what is free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import DoubleClaim, NotFound
from laas_service.domain.features import PLAIN_HOSTS, HostFeatures
from laas_service.domain.part import Part
from laas_service.domain.topology import LeafLink, Link, Topology

NEVER = 1 << 62
"""More hosts than any fabric has: no size is known not to fit."""


class Fabric:
    """One fabric's state as integers; the only mutable thing in the domain.

    Readers (policies) use the attributes, which hold what is free now:

    * ``free_hosts[g]``: mask of the free slots of leaf group g;
    * ``free_uplinks[g]``: mask of its free uplinks, one field of w2 bits a plane; a
      bit is set only if the uplink is free on every rail of the plane;
    * ``free_spines[pod * columns_per_pod + c]``: mask of w3 bits, the free uplinks
      of the L2 switch at column c;
    * ``free_host_count`` and ``pod_free_hosts[pod]``: how many hosts are free;
    * ``groups_by_free[n]``: bit set of the groups with exactly n free hosts, and
      ``pod_groups_by_free[pod][n]`` the same for one pod, by number in the pod;
    * ``odd_groups[pod]``: bit set of the pod's groups that miss an uplink, because
      it is absent or failed. Owners of uplinks own hosts below them, so any other
      group whose hosts are all free has all its uplinks free;
    * ``lost_host_count``: hosts that would be free were they not failed or drained;
    * ``features``: the traits and costs of hosts.

    The counts and bit sets follow from the masks and are kept up by the verbs, so
    that a policy need not look at every leaf. A policy must not change any of
    these. The verbs below are the only writers; each either happens entirely or
    raises and changes nothing.

    One thing readers may write, as it only saves them work: sizes they have proved
    not to fit, ``misfits[policy]`` anywhere and ``pod_misfits[pod]`` on two or more
    leaf groups of one pod. What does not fit now fits no sooner after a claim or a
    fault, and larger sizes do not fit either; so the smallest such size holds
    until something becomes free, when the ledger forgets it.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.allocations: dict[str, Allocation] = {}
        self.failed_hosts: set[int] = set()
        self.drained_hosts: set[int] = set()
        self.failed_links: set[Link] = set()
        self.features = PLAIN_HOSTS
        self._undo: list[tuple[list[int] | None, int, int]] | None = None
        groups = range(topology.groups)
        columns = topology.pods * topology.columns_per_pod
        self.free_hosts = [topology.present_slots(g) for g in groups]
        uplinks = (1 << topology.tree.w[1] * topology.planes) - 1
        self.free_uplinks = [uplinks if topology.leaves_of_group(g) else 0 for g in groups]
        self.free_spines = [(1 << topology.tree.w[2]) - 1] * columns
        self._present_hosts = list(self.free_hosts)
        self._usable_hosts = list(self.free_hosts)
        self._usable_uplinks = list(self.free_uplinks)
        self._usable_spines = list(self.free_spines)
        self._all_uplinks = uplinks
        self._index_hosts()
        self.misfits: dict[str, int] = {}
        self.pod_misfits = [NEVER] * topology.pods
        self.lost_host_count = 0
        self.odd_groups = [0] * topology.pods
        self._group_of_leaf = {
            leaf: (g, rail) for g in groups for rail, leaf in enumerate(topology.leaves_of_group(g))
        }
        self._column_of_l2 = {
            topology.l2_of_column(pod, c): pod * topology.columns_per_pod + c
            for pod in range(topology.pods)
            for c in range(topology.columns_per_pod)
        }
        for link in topology.absent_links:
            self._refresh_link(link)

    def copy(self) -> Fabric:
        """A ledger of its own in the same state; what never changes is shared."""
        twin = Fabric.__new__(Fabric)
        twin.__dict__.update(self.__dict__)
        twin._undo = None
        twin.allocations = dict(self.allocations)
        twin.failed_hosts = set(self.failed_hosts)
        twin.drained_hosts = set(self.drained_hosts)
        twin.failed_links = set(self.failed_links)
        for masks in (
            "free_hosts",
            "free_uplinks",
            "free_spines",
            "_usable_hosts",
            "_usable_uplinks",
            "_usable_spines",
            "groups_by_free",
            "pod_free_hosts",
            "odd_groups",
            "pod_misfits",
        ):
            setattr(twin, masks, list(getattr(self, masks)))
        twin.misfits = dict(self.misfits)
        twin.pod_groups_by_free = [list(sets) for sets in self.pod_groups_by_free]
        return twin

    def within(self, part: Part) -> Fabric:
        """A ledger of its own in which only ``part`` exists: what is outside is not free.

        For looking: what a policy finds in it is free in this ledger too, and is claimed
        here. The owners are the same, so that releasing one in the view frees of what
        it holds no more than lies in the part.
        """
        twin = self.copy()
        for masks, only in (
            ("hosts", part.hosts),
            ("uplinks", part.uplinks),
            ("spines", part.spines),
        ):
            for kind in ("_usable_", "free_"):
                name = kind + masks
                setattr(twin, name, [a & b for a, b in zip(getattr(self, name), only, strict=True)])
        twin._present_hosts = [a & b for a, b in zip(self._present_hosts, part.hosts, strict=True)]
        twin._index_hosts()
        twin._index_losses()
        twin.misfits = {}
        twin.pod_misfits = [NEVER] * self.topology.pods
        return twin

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Try something on this ledger itself: whatever is done inside is undone at the end.

        Everything is as it was then, what is remembered of misfits included, which a
        release makes the ledger forget and a claim makes it learn. Trials nest. Costs about
        as much as what is done, not as much as the fabric is large; nobody else may look
        at this ledger meanwhile (an ordinary ``copy`` is for that).
        """
        outer, undo = self._undo, list[tuple[list[int] | None, int, int]]()
        before = {name: getattr(self, name) for name in _SMALL}
        for name, value in before.items():
            setattr(self, name, value.copy())
        unchanging = self.lost_host_count, self.features
        self._undo = undo
        try:
            yield
        finally:
            self._undo = None
            for masks, index, value in reversed(undo):
                if masks is None:
                    self._set_free_hosts(index, value)
                else:
                    masks[index] = value
            self.__dict__.update(before)
            self.lost_host_count, self.features = unchanging
            self._undo = outer

    def _note(self, masks: list[int], index: int) -> None:
        """Before a mask changes: what it was, if this is a trial."""
        if self._undo is not None:
            self._undo.append((masks, index, masks[index]))

    # -- indices --------------------------------------------------------------

    def _index_hosts(self) -> None:
        """Count the free hosts once; ``_set_free_hosts`` keeps the counts afterwards."""
        topology = self.topology
        sizes = range(topology.slots + 1)
        self.groups_by_free = [0 for _ in sizes]
        self.pod_groups_by_free = [[0 for _ in sizes] for _ in range(topology.pods)]
        self.pod_free_hosts = [0] * topology.pods
        for group, mask in enumerate(self.free_hosts):
            count = mask.bit_count()
            pod, local = divmod(group, topology.groups_per_pod)
            self.groups_by_free[count] |= 1 << group
            self.pod_groups_by_free[pod][count] |= 1 << local
            self.pod_free_hosts[pod] += count
        self.free_host_count = sum(self.pod_free_hosts)

    def _index_losses(self) -> None:
        """Count once what is down: hosts nobody owns, and leaf groups that miss an uplink."""
        owned = [0] * self.topology.groups
        for allocation in self.allocations.values():
            for group, hosts, _ in allocation.groups:
                owned[group] |= hosts
        masks = zip(self._present_hosts, self._usable_hosts, owned, strict=True)
        self.lost_host_count = sum((a & ~b & ~c).bit_count() for a, b, c in masks)
        self.odd_groups = [0] * self.topology.pods
        for group, usable in enumerate(self._usable_uplinks):
            pod, local = divmod(group, self.topology.groups_per_pod)
            if usable != self._all_uplinks and self._present_hosts[group]:
                self.odd_groups[pod] |= 1 << local

    def _set_free_hosts(self, group: int, mask: int) -> None:
        before, after = self.free_hosts[group].bit_count(), mask.bit_count()
        if self._undo is not None:
            self._undo.append((None, group, self.free_hosts[group]))
        self.free_hosts[group] = mask
        if before == after:
            return
        pod, local = divmod(group, self.topology.groups_per_pod)
        bit = 1 << group
        self.groups_by_free[before] ^= bit
        self.groups_by_free[after] ^= bit
        bit = 1 << local
        self.pod_groups_by_free[pod][before] ^= bit
        self.pod_groups_by_free[pod][after] ^= bit
        self.pod_free_hosts[pod] += after - before
        self.free_host_count += after - before

    def _forget_misfits(self, pod: int) -> None:
        """Something of the pod may have become free."""
        self.misfits.clear()
        self.pod_misfits[pod] = NEVER

    def groups_with_room(self, pod: int, hosts: int) -> list[int]:
        """The pod's groups with that many free hosts, best fit first."""
        first, found = pod * self.topology.groups_per_pod, []
        for members in self.pod_groups_by_free[pod][hosts:]:
            while members:
                low = members & -members
                found.append(first + low.bit_length() - 1)
                members ^= low
        return found

    # -- owners ---------------------------------------------------------------

    def claim(self, allocation: Allocation) -> None:
        """Give hosts and links to one owner.

        Raises:
            DoubleClaim: one of them is owned or down, or the id is taken.
        """
        if allocation.id in self.allocations:
            raise DoubleClaim(f"allocation {allocation.id!r} already holds hosts")
        self._check_free(allocation)
        self._take(allocation)
        self.allocations[allocation.id] = allocation

    def release(self, allocation_id: str) -> Allocation:
        """Take everything back from an owner; what is down stays out of the free pool.

        Raises:
            NotFound: nobody of that id holds anything.
        """
        allocation = self.allocations.pop(allocation_id, None)
        if allocation is None:
            raise NotFound("allocation", allocation_id)
        self._give_back(allocation)
        return allocation

    def change(self, allocation: Allocation) -> Allocation:
        """From now on the owner of that id holds exactly this; returns what it held.

        What it keeps it may keep although it is down. What it gives up is free at once:
        an owner whose traffic has still to move holds both (``Allocation.joined``) until
        it has.

        Raises:
            NotFound: nobody of that id holds anything.
            DoubleClaim: what it did not hold is owned or down.
        """
        before = self.allocations.get(allocation.id)
        if before is None:
            raise NotFound("allocation", allocation.id)
        more = allocation.beyond(before)
        self._check_free(more)
        self._take(more)
        self.allocations[allocation.id] = allocation
        self._give_back(before.beyond(allocation))
        return before

    def _check_free(self, wanted: Allocation) -> None:
        width = self.topology.columns_per_pod
        for group, hosts, uplinks in wanted.groups:
            if hosts & ~self.free_hosts[group] or uplinks & ~self.free_uplinks[group]:
                raise DoubleClaim(f"leaf group {group}: a host or uplink is not free")
        for pod, column, uplinks in wanted.columns:
            if uplinks & ~self.free_spines[pod * width + column]:
                raise DoubleClaim(f"pod {pod}, L2 {column}: an uplink is not free")

    def _take(self, wanted: Allocation) -> None:
        width = self.topology.columns_per_pod
        for group, hosts, uplinks in wanted.groups:
            self._set_free_hosts(group, self.free_hosts[group] ^ hosts)
            self._note(self.free_uplinks, group)
            self.free_uplinks[group] ^= uplinks
        for pod, column, uplinks in wanted.columns:
            index = pod * width + column
            if self._undo is not None:
                self._note(self.free_spines, index)
            self.free_spines[index] ^= uplinks

    def _give_back(self, held: Allocation) -> None:
        width = self.topology.columns_per_pod
        for group, hosts, uplinks in held.groups:
            usable = hosts & self._usable_hosts[group]
            self._set_free_hosts(group, self.free_hosts[group] | usable)
            self._forget_misfits(group // self.topology.groups_per_pod)
            self.lost_host_count += (hosts ^ usable).bit_count()
            self._note(self.free_uplinks, group)
            self.free_uplinks[group] |= uplinks & self._usable_uplinks[group]
        for pod, column, uplinks in held.columns:
            index = pod * width + column
            if self._undo is not None:
                self._note(self.free_spines, index)
            self.free_spines[index] |= uplinks & self._usable_spines[index]
            self.misfits.clear()

    def owners_of_hosts(self) -> dict[int, str]:
        """Host number -> id of its owner, for all owned hosts."""
        return {h: a.id for a in self.allocations.values() for h in a.hosts(self.topology)}

    def owners_of_links(self) -> dict[Link, str]:
        """Link -> id of its owner, for all owned links."""
        return {x: a.id for a in self.allocations.values() for x in a.links(self.topology)}

    # -- what hosts are like --------------------------------------------------

    def describe_hosts(self, known: Mapping[int, HostFeatures]) -> None:
        """Record the traits and costs of these hosts; who has them keeps them. Raises: NotFound."""
        for host in known:
            self._check_host(host)
        self.features = self.features.having(known)

    # -- faults ---------------------------------------------------------------

    def fail_host(self, host: int) -> None:
        """Never hand this host out; its present owner, if any, keeps it."""
        self._check_host(host)
        self.failed_hosts.add(host)
        self._refresh_host(host)

    def drain_host(self, host: int) -> None:
        """Keep this host out of new allocations until it is repaired (undrained)."""
        self._check_host(host)
        self.drained_hosts.add(host)
        self._refresh_host(host)

    def repair_host(self, host: int) -> None:
        """The host is up: neither failed nor drained."""
        self._check_host(host)
        self.failed_hosts.discard(host)
        self.drained_hosts.discard(host)
        self._refresh_host(host)

    def fail_link(self, link: Link) -> None:
        """Never hand this link out; its present owner, if any, keeps it."""
        self._check_link(link)
        self.failed_links.add(link)
        self._refresh_link(link)

    def repair_link(self, link: Link) -> None:
        self._check_link(link)
        self.failed_links.discard(link)
        self._refresh_link(link)

    def _check_host(self, host: int) -> None:
        if not 0 <= host < self.topology.hosts or host in self.topology.absent_hosts:
            raise NotFound("host", host)

    def _check_link(self, link: Link) -> None:
        if not self.topology.tree.has_link(link) or link in self.topology.absent_links:
            raise NotFound("link", list(link))

    def _refresh_host(self, host: int) -> None:
        group, slot = self.topology.place_of(host)
        bit = 1 << slot
        up = host not in self.failed_hosts and host not in self.drained_hosts
        usable = self._usable_hosts[group]
        if up == bool(usable & bit):
            return
        self._note(self._usable_hosts, group)
        self._usable_hosts[group] = usable ^ bit
        owned = any(
            share.group == group and share.hosts & bit
            for allocation in self.allocations.values()
            for share in allocation.groups
        )
        if not owned:
            self._set_free_hosts(group, self.free_hosts[group] ^ bit)
            self._forget_misfits(group // self.topology.groups_per_pod)
            self.lost_host_count += -1 if up else 1

    def _refresh_link(self, link: Link) -> None:
        """Recompute the free bit that stands for this link (and its twins on other rails)."""
        topology = self.topology
        down = self.failed_links | topology.absent_links
        if isinstance(link, LeafLink):
            leaf = topology.tree.leaf_id(link.pod, link.leaf)
            if leaf not in self._group_of_leaf:
                return  # a leaf without hosts for tenants
            index, rail = self._group_of_leaf[leaf]
            plane = topology.plane_of_rail[rail]
            bit = 1 << plane * topology.tree.w[1] + link.up
            twins = [
                LeafLink(*divmod(other, topology.tree.m[1]), link.up)
                for r, other in enumerate(topology.leaves_of_group(index))
                if topology.plane_of_rail[r] == plane
            ]
            up = not any(twin in down for twin in twins)
            usable, free = self._usable_uplinks, self.free_uplinks
            owned = any(
                share.group == index and share.uplinks & bit
                for allocation in self.allocations.values()
                for share in allocation.groups
            )
        else:
            if (link.pod, link.l2) not in self._column_of_l2:
                return
            index = self._column_of_l2[link.pod, link.l2]
            bit = 1 << link.up
            up = link not in down
            usable, free = self._usable_spines, self.free_spines
            width = topology.columns_per_pod
            owned = any(
                share.pod * width + share.column == index and share.uplinks & bit
                for allocation in self.allocations.values()
                for share in allocation.columns
            )
        self._note(usable, index)
        self._note(free, index)
        usable[index] = usable[index] & ~bit | (bit if up else 0)
        free[index] = free[index] & ~bit | (bit if up and not owned else 0)
        self.misfits.clear()
        if isinstance(link, LeafLink):
            pod, local = divmod(index, topology.groups_per_pod)
            self._forget_misfits(pod)
            odd = self._usable_uplinks[index] != self._all_uplinks
            self.odd_groups[pod] = self.odd_groups[pod] & ~(1 << local) | (odd << local)

    # -- whole state ----------------------------------------------------------

    def state(self) -> tuple[object, ...]:
        """Everything that can change, comparable: equal states behave equally."""
        return (
            tuple(self.free_hosts),
            tuple(self.free_uplinks),
            tuple(self.free_spines),
            frozenset(self.failed_hosts),
            frozenset(self.drained_hosts),
            frozenset(self.failed_links),
            frozenset(self.allocations.values()),
            frozenset(self.features.hosts.items()),
        )


_SMALL = (
    "allocations",
    "failed_hosts",
    "drained_hosts",
    "failed_links",
    "misfits",
    "pod_misfits",
    "odd_groups",
)
"""What a trial copies as a whole, as it is short; the rest is noted as it changes."""


FabricView = Fabric
"""What a policy is given: a ``Fabric`` it only reads."""
