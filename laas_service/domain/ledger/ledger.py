# SPDX-License-Identifier: Apache-2.0

"""The ledger of a fabric: the owner of each host and link, faults, free hosts and links."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Self

from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import DoubleClaim
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import containers, faults, ownership, slots
from laas_service.domain.ledger.masks import Masks
from laas_service.domain.ledger.state import LedgerState, comparable, copied
from laas_service.domain.ledger.trial import Taking, trial
from laas_service.domain.tenancy import Kind
from laas_service.domain.topology import Link, Topology


class Ledger(LedgerState):
    """One fabric's state as integers; the only mutable thing in the domain.

    The fields are described in ``state`` and ``free``. The methods below are the only
    writers; each either happens entirely or raises and changes nothing. Readers have
    ``LedgerView``: the type checker refuses to write through it.

    Methods that change something are called on the fabric's ledger and find the ledgers
    they are about, those of containers included.
    """

    __slots__ = ()

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        for link in topology.absent_links:
            faults.refresh_link(self, link)

    # -- owners ---------------------------------------------------------------

    def claim(self, allocation: Allocation) -> None:
        """Give hosts and links to one owner, in the ledger of its parent.

        Raises:
            DoubleClaim: one of them is owned or down, or the id is taken.
            NotFound: its parent is no container.
            Conflict: its parent shares its hosts and it wants whole ones, or the reverse.
        """
        if allocation.id in self.allocations or (
            self.inside and containers.find_holder(self, allocation.id) is not None
        ):
            raise DoubleClaim(f"allocation {allocation.id!r} already holds hosts")
        nested = self.nests and allocation.parent != self.scope
        ledger = self.ledger(allocation.parent) if nested else self
        kind = allocation.kind
        slots.check_class(ledger, allocation.id, kind)
        if kind.whole_hosts:
            ledger._check_free(allocation)
            ledger._take(allocation)
            ledger.lost_host_count -= ownership.unusable(ledger, allocation)
        else:
            slots.check_free(ledger, allocation.held_slots)
            slots.take(ledger, allocation.held_slots)
        ledger.allocations[allocation.id] = allocation
        ledger._open(allocation, kind)

    def release(self, allocation_id: str) -> Allocation:
        """Take everything back from an owner; hosts and links that are down do not become free.

        Raises:
            NotFound: there is no allocation of that id.
            Conflict: it is a container, and allocations are inside.
        """
        ledger = self.holder(allocation_id)
        containers.end(ledger, allocation_id)
        allocation = ledger.allocations.pop(allocation_id)
        ledger.undisturbed -= {allocation_id}
        if allocation.kind.whole_hosts:
            ledger._give_back(allocation)
        else:
            slots.give_back(ledger, allocation.held_slots)
        return allocation

    def keep_undisturbed(self, allocation_id: str) -> None:
        """Admit no other owner beside which packets have to cross links of this one.

        Raises:
            NotFound: there is no allocation of that id.
        """
        self.holder(allocation_id).undisturbed |= {allocation_id}

    def change(self, allocation: Allocation) -> Allocation:
        """Let the owner of that id hold exactly this; returns its previous allocation.

        It may keep hosts and links that are down. Those that it gives up are free at once: an
        owner whose traffic has still to move holds both places (``Allocation.joined``) until
        then.

        Raises:
            NotFound: there is no allocation of that id.
            DoubleClaim: a host or link that it did not hold is owned or down.
            Conflict: it is a container, and allocations are inside.
        """
        ledger = self.holder(allocation.id)
        previous = ledger.allocations[allocation.id]
        kind = allocation.kind
        if not kind.whole_hosts:
            slots.check_free(ledger, allocation.held_slots, previous.held_slots)
            slots.give_back(ledger, previous.held_slots)
            slots.take(ledger, allocation.held_slots)
            ledger.allocations[allocation.id] = allocation
            return previous
        added = allocation.beyond(previous)
        ledger._check_free(added)
        containers.end(ledger, allocation.id)
        ledger._take(added)
        ledger.allocations[allocation.id] = allocation
        ledger._give_back(previous.beyond(allocation))
        ledger._open(allocation, kind)
        return previous

    _check_free = ownership.check_free
    _take = ownership.take
    _give_back = ownership.give_back

    def everybody(self) -> Iterator[Allocation]:
        """All allocations that hold hosts, a container before those inside it."""
        owning = (ledger for ledger in self.ledgers() if ledger.part is None)
        return (a for ledger in owning for a in ledger.allocations.values())

    def sharers(self) -> Iterator[Allocation]:
        """All allocations that have slots of shared hosts."""
        sharing = (ledger for ledger in self.ledgers() if ledger.part is not None)
        return (a for ledger in sharing for a in ledger.allocations.values())

    def owners_of_hosts(self) -> dict[int, str]:
        """Host number -> id of its innermost owner, for all owned hosts."""
        return {h: a.id for a in self.everybody() for h in a.hosts(self.topology)}

    def owners_of_links(self) -> dict[Link, str]:
        """Link -> id of its innermost owner, for all owned links."""
        return {x: a.id for a in self.everybody() for x in a.links(self.topology)}

    # -- containers -----------------------------------------------------------

    ledgers = containers.walk
    """This ledger and all inside it, a container's before those inside that."""

    ledger = containers.ledger_of
    """The ledger of a container, the fabric's own for None. Raises: NotFound."""

    holder = containers.holder
    """The ledger in which an allocation is. Raises: NotFound."""

    def _open(self, container: Allocation, kind: Kind) -> None:
        """Begin the ledger of what an allocation holds, if it is for others."""
        if kind.encloses and self.nests:
            containers.begin(self, container, self.within(Masks.of(self.topology, container)))

    # -- hosts, links, the common plane ---------------------------------------

    def describe_hosts(self, known: Mapping[int, HostFeatures]) -> None:
        """Record the traits and costs of hosts; owners keep hosts they have. Raises: NotFound."""
        for host in known:
            faults.check_host(self.topology, host)
        for ledger in self.ledgers():
            ledger.features = ledger.features.having(known)

    def fail_host(self, host: int) -> None:
        """Never hand this host out; its present owner, if any, keeps it. Raises: NotFound."""
        faults.check_host(self.topology, host)
        for ledger in self.ledgers():
            ledger.failed_hosts.add(host)
            faults.refresh_host(ledger, host)

    def drain_host(self, host: int) -> None:
        """Keep a host out of new allocations until it is repaired. Raises: NotFound."""
        faults.check_host(self.topology, host)
        for ledger in self.ledgers():
            ledger.drained_hosts.add(host)
            faults.refresh_host(ledger, host)

    def repair_host(self, host: int) -> None:
        """The host is up: neither failed nor drained. Raises: NotFound."""
        faults.check_host(self.topology, host)
        for ledger in self.ledgers():
            ledger.failed_hosts.discard(host)
            ledger.drained_hosts.discard(host)
            faults.refresh_host(ledger, host)

    def fail_link(self, link: Link) -> None:
        """Never hand this link out; its present owner, if any, keeps it. Raises: NotFound."""
        faults.check_link(self.topology, link)
        for ledger in self.ledgers():
            ledger.failed_links.add(link)
            faults.refresh_link(ledger, link)

    def drain_link(self, link: Link) -> None:
        """Keep a link out of new allocations until it is repaired. Raises: NotFound."""
        faults.check_link(self.topology, link)
        for ledger in self.ledgers():
            ledger.drained_links.add(link)
            faults.refresh_link(ledger, link)

    def repair_link(self, link: Link) -> None:
        """The link is up: neither failed nor drained. Raises: NotFound."""
        faults.check_link(self.topology, link)
        for ledger in self.ledgers():
            ledger.failed_links.discard(link)
            ledger.drained_links.discard(link)
            faults.refresh_link(ledger, link)

    withhold = faults.withhold
    """Hand out no link of a ``CommonPlane`` from now on, and again those of the previous plane.

    Raises:
        Conflict: an allocation holds one of them.
    """

    # -- copies, views, trials ------------------------------------------------

    def copy(self) -> Self:
        """A ledger of its own in the same state; values that never change are shared."""
        copy = copied(self)
        copy.inside = {id: inner.copy() for id, inner in self.inside.items()}
        return copy

    def flattened(self) -> Self:
        """A ledger of its own for what-ifs, in which containers are owners like any other."""
        copy = self.copy()
        copy.inside = {}
        copy.nests = False
        return copy

    def unowned(self) -> Self:
        """A ledger of its own without owners, in which everything that is usable is free."""
        view = self.flattened()
        containers.disown(view)
        return view

    def within(self, extent: Masks) -> Self:
        """A ledger of its own in which only ``extent`` exists: nothing outside is free.

        For looking: a placement that a policy finds in it is free in this ledger too, and is
        claimed here. The owners are the same. Releasing one in the view frees only those of
        its hosts and links that lie in ``extent``.
        """
        view = self.flattened()
        containers.restrict(view, extent)
        return view

    def trial(self) -> AbstractContextManager[None]:
        """Undo at the end of the block all that is done to this ledger in it.

        Trials nest. No other thread may read this ledger meanwhile; a ``copy`` is for that.
        """
        return trial(self.ledgers())

    def taking(self, allocation: Allocation) -> AbstractContextManager[None]:
        """Claim an allocation of whole links in the block, and undo that as ``trial`` does.

        Its id is new, it has no parent, and the block changes nothing else.

        Raises:
            DoubleClaim: when the block is entered, a host or link is not free.
        """
        return Taking(self, allocation)

    state = comparable
    """Everything that can change, comparable: equal states behave equally."""
