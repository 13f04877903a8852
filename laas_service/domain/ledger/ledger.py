# SPDX-License-Identifier: Apache-2.0

"""The ledger: who owns which host and link, what is down, what is free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import Conflict, DoubleClaim, NotFound
from laas_service.domain.features import PLAIN_HOSTS, HostFeatures
from laas_service.domain.ledger.masks import Masks
from laas_service.domain.shared_plane import NO_PLANE, SharedPlane
from laas_service.domain.topology import LeafLink, Link, Topology

NEVER = 1 << 62
"""More hosts than any fabric has: no size is known not to fit."""


class Ledger:
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
      it is absent, failed or withheld (``shared_plane``). Owners of uplinks own hosts
      below them, so any other group whose hosts are all free has all its uplinks free;
    * ``lost_host_count``: hosts that would be free were they not failed or drained;
    * ``features``: the traits and costs of hosts.

    The counts and bit sets follow from the masks and are kept up by the verbs, so
    that a policy need not look at every leaf. A policy must not change any of
    these. The verbs below are the only writers; each either happens entirely or
    raises and changes nothing.

    ``inside[id]`` is the ledger of the container of that id: a fabric in which only what it
    holds exists, with its children as owners. Its ``scope`` is that id, and None for the
    fabric itself. Verbs are called on the fabric, and find the ledger they are about.

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
        self.shared_plane = NO_PLANE
        self.scope: str | None = None
        self.inside: dict[str, Ledger] = {}
        self._nests = True
        self._part = Masks.whole(topology)
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

    def copy(self) -> Ledger:
        """A ledger of its own in the same state; what never changes is shared."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._undo = None
        twin.allocations = dict(self.allocations)
        twin.inside = {id: inner.copy() for id, inner in self.inside.items()}
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

    def surface(self) -> Ledger:
        """A ledger of its own for what-ifs, in which containers are owners like any other."""
        twin = self.copy()
        twin.inside = {}
        twin._nests = False
        return twin

    def within(self, part: Masks) -> Ledger:
        """A ledger of its own in which only ``part`` exists: what is outside is not free.

        For looking: what a policy finds in it is free in this ledger too, and is claimed
        here. The owners are the same, so that releasing one in the view frees of what
        it holds no more than lies in the part.
        """
        twin = self.surface()
        twin._part = self._part & part
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
        unchanging = self.lost_host_count, self.features, self.shared_plane
        self._undo = undo
        try:
            with ExitStack() as inside:
                for inner in self.inside.values():
                    inside.enter_context(inner.trial())
                yield
        finally:
            self._undo = None
            for masks, index, value in reversed(undo):
                if masks is None:
                    self._set_free_hosts(index, value)
                else:
                    masks[index] = value
            self.__dict__.update(before)
            self.lost_host_count, self.features, self.shared_plane = unchanging
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
        """Give hosts and links to one owner, in the ledger of its parent.

        Raises:
            DoubleClaim: one of them is owned or down, or the id is taken.
            NotFound: its parent is no container.
        """
        if any(allocation.id in ledger.allocations for ledger in self.ledgers()):
            raise DoubleClaim(f"allocation {allocation.id!r} already holds hosts")
        ledger = self.ledger(allocation.parent) if self._nests else self
        ledger._check_free(allocation)
        ledger._take(allocation)
        ledger.allocations[allocation.id] = allocation
        ledger._open(allocation)

    def release(self, allocation_id: str) -> Allocation:
        """Take everything back from an owner; what is down stays out of the free pool.

        Raises:
            NotFound: nobody of that id holds anything.
            Conflict: it is a container, and others hold something inside.
        """
        ledger = self.holder(allocation_id)
        ledger._close(allocation_id)
        allocation = ledger.allocations.pop(allocation_id)
        ledger._give_back(allocation)
        return allocation

    def change(self, allocation: Allocation) -> Allocation:
        """From now on the owner of that id holds exactly this; returns what it held.

        What it keeps it may keep although it is down. What it gives up is free at once:
        an owner whose traffic has still to move holds both (``Allocation.joined``) until
        it has.

        Raises:
            NotFound: nobody of that id holds anything.
            DoubleClaim: what it did not hold is owned or down.
            Conflict: it is a container, and others hold something inside.
        """
        ledger = self.holder(allocation.id)
        before = ledger.allocations[allocation.id]
        more = allocation.beyond(before)
        ledger._check_free(more)
        ledger._close(allocation.id)
        ledger._take(more)
        ledger.allocations[allocation.id] = allocation
        ledger._give_back(before.beyond(allocation))
        ledger._open(allocation)
        return before

    # -- containers -----------------------------------------------------------

    def ledgers(self) -> Iterator[Ledger]:
        """This ledger and all inside it, a container's before those inside that."""
        yield self
        for inner in self.inside.values():
            yield from inner.ledgers()

    def ledger(self, scope: str | None) -> Ledger:
        """The ledger of a container, the fabric's own for None. NotFound."""
        for ledger in self.ledgers():
            if ledger.scope == scope:
                return ledger
        raise NotFound("container", scope, "name one that holds hosts")

    def holder(self, allocation_id: str) -> Ledger:
        """The ledger in which somebody holds something. NotFound."""
        for ledger in self.ledgers():
            if allocation_id in ledger.allocations:
                return ledger
        raise NotFound("allocation", allocation_id)

    def everybody(self) -> Iterator[Allocation]:
        """All owners, containers before what is inside them."""
        return (a for ledger in self.ledgers() for a in ledger.allocations.values())

    def _open(self, container: Allocation) -> None:
        """Begin the ledger of what an allocation holds, if it is a container."""
        if not container.container or not self._nests:
            return
        inner = self.within(Masks.of(self.topology, container))
        inner.allocations = {}
        inner.scope, inner._nests, inner.shared_plane = container.id, True, NO_PLANE
        for kind in ("hosts", "uplinks", "spines"):
            setattr(inner, f"free_{kind}", list(getattr(inner, f"_usable_{kind}")))
        inner._index_hosts()
        inner._index_losses()
        self.inside[container.id] = inner

    def _close(self, allocation_id: str) -> None:
        """End the ledger of a container. Raises: Conflict."""
        inner = self.inside.get(allocation_id)
        if inner is None:
            return
        if inner.allocations:
            shown = ", ".join(sorted(inner.allocations)[:5]) + " and more" * (
                len(inner.allocations) > 5
            )
            raise Conflict(
                f"{allocation_id!r} is a container with {len(inner.allocations)} allocations "
                f"inside; release them first: {shown}"
            )
        del self.inside[allocation_id]

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
        """Host number -> id of its innermost owner, for all owned hosts."""
        return {h: a.id for a in self.everybody() for h in a.hosts(self.topology)}

    def owners_of_links(self) -> dict[Link, str]:
        """Link -> id of its innermost owner, for all owned links."""
        return {x: a.id for a in self.everybody() for x in a.links(self.topology)}

    # -- what hosts are like --------------------------------------------------

    def describe_hosts(self, known: Mapping[int, HostFeatures]) -> None:
        """Record the traits and costs of these hosts; who has them keeps them. Raises: NotFound."""
        for host in known:
            self._check_host(host)
        for ledger in self.ledgers():
            ledger.features = ledger.features.having(known)

    # -- faults ---------------------------------------------------------------

    def fail_host(self, host: int) -> None:
        """Never hand this host out; its present owner, if any, keeps it."""
        self._check_host(host)
        for ledger in self.ledgers():
            ledger.failed_hosts.add(host)
            ledger._refresh_host(host)

    def drain_host(self, host: int) -> None:
        """Keep this host out of new allocations until it is repaired (undrained)."""
        self._check_host(host)
        for ledger in self.ledgers():
            ledger.drained_hosts.add(host)
            ledger._refresh_host(host)

    def repair_host(self, host: int) -> None:
        """The host is up: neither failed nor drained."""
        self._check_host(host)
        for ledger in self.ledgers():
            ledger.failed_hosts.discard(host)
            ledger.drained_hosts.discard(host)
            ledger._refresh_host(host)

    def fail_link(self, link: Link) -> None:
        """Never hand this link out; its present owner, if any, keeps it."""
        self._check_link(link)
        for ledger in self.ledgers():
            ledger.failed_links.add(link)
            ledger._refresh_link(link)

    def repair_link(self, link: Link) -> None:
        self._check_link(link)
        for ledger in self.ledgers():
            ledger.failed_links.discard(link)
            ledger._refresh_link(link)

    def _check_host(self, host: int) -> None:
        if not 0 <= host < self.topology.hosts or host in self.topology.absent_hosts:
            raise NotFound("host", host)

    def _check_link(self, link: Link) -> None:
        if not self.topology.tree.has_link(link) or link in self.topology.absent_links:
            raise NotFound("link", list(link))

    def _refresh_host(self, host: int) -> None:
        group, slot = self.topology.place_of(host)
        bit = 1 << slot
        here = bool(self._present_hosts[group] & bit)
        up = here and host not in self.failed_hosts and host not in self.drained_hosts
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
            here = bool(self._part.uplinks[index] & bit)
            up = here and not any(map(self._is_out, twins))
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
            up = bool(self._part.spines[index] & bit) and not self._is_out(link)
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

    def _is_out(self, link: Link) -> bool:
        """Whether a link is not for tenants now: failed, absent or withheld."""
        return (
            link in self.failed_links
            or link in self.topology.absent_links
            or self.shared_plane.holds(self.topology.tree, link)
        )

    # -- the shared plane -----------------------------------------------------

    def withhold(self, plane: SharedPlane) -> None:
        """Hand out no link of ``plane`` from now on, and again those of the plane before.

        Raises:
            Conflict: a tenant has one of them.
        """
        before, self.shared_plane = self.shared_plane, plane
        taken = Masks.of_plane(self.topology, plane)
        width = self.topology.columns_per_pod
        owners = [
            allocation.id
            for allocation in self.allocations.values()
            if any(share.uplinks & taken.uplinks[share.group] for share in allocation.groups)
            or any(
                uplinks & taken.spines[pod * width + column]
                for pod, column, uplinks in allocation.columns
            )
        ]
        if owners:
            self.shared_plane = before
            shown = ", ".join(sorted(owners)[:5]) + " and more" * (len(owners) > 5)
            raise Conflict(
                f"{plane} cannot be withheld: {len(owners)} allocations have links of it; "
                f"release them first: {shown}"
            )
        for kind, masks in (("uplinks", taken.uplinks), ("spines", taken.spines)):
            for values in (getattr(self, f"_usable_{kind}"), getattr(self, f"free_{kind}")):
                for index, mask in enumerate(masks):
                    self._note(values, index)
                    values[index] &= ~mask
        for link in before.links(self.topology.tree):
            if not plane.holds(self.topology.tree, link) and link not in self.topology.absent_links:
                self._refresh_link(link)
        self._index_losses()

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
            self.shared_plane,
            frozenset(self.allocations.values()),
            frozenset(self.features.hosts.items()),
            tuple((id, self.inside[id].state()) for id in sorted(self.inside)),
        )


_SMALL = (
    "allocations",
    "inside",
    "failed_hosts",
    "drained_hosts",
    "failed_links",
    "misfits",
    "pod_misfits",
    "odd_groups",
)
"""What a trial copies as a whole, as it is short; the rest is noted as it changes."""


LedgerView = Ledger
"""What a policy is given: a ``Ledger`` it only reads."""
