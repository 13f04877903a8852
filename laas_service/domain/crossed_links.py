# SPDX-License-Identifier: Apache-2.0

"""Owned links that packets of others have to cross, with the number of pairs that do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Endpoint, Inventory, PortRef
from laas_service.domain.ledger import LedgerView
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from laas_service.domain.routing.tenant_tables import reserved_links, routed_allocations
from laas_service.domain.topology import LeafLink, Link


@dataclass(frozen=True)
class CrossedLinks:
    """Ordered pairs of ports that may talk, and those of them that cross links of a third party.

    Such are hosts that nobody owns, and services with everything. A tenant's packets on its own
    links, and on those of its container, do not count, nor do packets to a tenant on its links.
    """

    pairs: int
    crossing: int
    links: Mapping[Link, int]
    """The pairs that cross each of the links that are crossed, by number of the link."""

    owners: Mapping[Link, str]
    """The innermost owner of each of these."""

    pairs_by_owner: Mapping[str, int]
    """The pairs that cross links of each allocation, those of allocations inside it included."""


@dataclass
class LatestTables:
    """The tables that were made last for a ledger or a copy of it; all of them share this.

    It only saves time: the next tables are made from them.
    """

    tables: ForwardingTables | None = None

    def copy(self) -> LatestTables:
        return self


def tables_of(fabric: LedgerView, inventory: Inventory) -> ForwardingTables:
    """The tables for everybody who holds hosts."""
    latest = fabric.reader_cache(LatestTables)
    latest.tables = forwarding_tables(
        fabric.topology,
        inventory,
        routed_allocations(fabric.everybody()),
        fabric.failed_links,
        latest.tables,
        plane=fabric.shared_plane,
        reserved_links=reserved_links(fabric.topology, fabric.everybody()),
    )
    return latest.tables


def crossed_links(fabric: LedgerView, inventory: Inventory) -> CrossedLinks:
    """Which owned links the default routes cross, where no way leads past them."""
    return _Crossing(fabric, inventory).found()


def why_crossed(fabric: LedgerView, inventory: Inventory, links: Iterable[Link]) -> dict[Link, str]:
    """Why no other way leads past crossed links: what the uplinks of their lower switches are."""
    owned, failed = fabric.owners_of_links(), fabric.failed_links
    uplinks = grouped((x.lower.guid, x.link) for x in inventory.cables if x.link is not None)
    reasons = {}
    for link in links:
        beside = uplinks[inventory.cable_of_link[link].lower.guid]
        down = sum(x in failed for x in beside)
        held = sum(x in owned and x not in failed for x in beside)
        name = f"{'leaf' if isinstance(link, LeafLink) else 'L2 switch'} {link[0]}/{link[1]}"
        reason = f"{held} of {len(beside)} uplinks of {name} are owned, {down} have failed"
        if free := len(beside) - down - held:
            reason += f", and from the {free} free ones no free way leads on"
        reasons[link] = reason
    return reasons


class _Crossing:
    def __init__(self, fabric: LedgerView, inventory: Inventory) -> None:
        self._inventory = inventory
        self._tree = fabric.topology.tree
        self._tables: ForwardingTables = tables_of(fabric, inventory)
        self._owner_of_link = fabric.owners_of_links()
        self._failed = fabric.failed_links
        self._parents: dict[str, str | None] = {}
        self._owner_of_host: dict[int, str] = {}
        for allocation in fabric.everybody():
            self._parents[allocation.id] = allocation.parent
            self._owner_of_host |= dict.fromkeys(allocation.hosts(fabric.topology), allocation.id)

    def found(self) -> CrossedLinks:
        endpoints = {self._tables.index[e.guid]: e for e in self._inventory.endpoints}
        services = {n for n, e in endpoints.items() if e.host is None}
        idle = {n for n, e in endpoints.items() if e.host is not None and self._owner(e) is None}
        sources: dict[int, Counter[tuple[bool, str | None]]] = defaultdict(Counter)
        for endpoint in endpoints.values():
            sources[endpoint.at.guid][endpoint.host is None, self._owner(endpoint)] += 1
        crossed: Counter[Link] = Counter()
        by_owner: Counter[str] = Counter()
        crossing = 0
        for switch, several in sources.items():
            astray = set(self._tables.crossing[switch].tolist())
            if not any(service for service, _ in several):
                astray &= services | idle  # nobody else is sent anything from here
            for position in sorted(astray & endpoints.keys()):
                links: list[Link] | None = None
                for (service, owner), count in several.items():
                    talks = service or position in services or (owner is None and position in idle)
                    if not talks:
                        continue
                    if links is None:
                        links = [*self._foreign(switch, endpoints[position])]
                    own = self._chain(owner)
                    others = [link for link in links if self._owner_of_link[link] not in own]
                    crossing += count if others else 0
                    for link in others:
                        crossed[link] += count
                    around = (self._chain(self._owner_of_link[link]) for link in others)
                    by_owner.update(dict.fromkeys(set[str]().union(*around), count))
        hosts = len(endpoints) - len(services)
        return CrossedLinks(
            len(idle) * (len(idle) - 1) + len(services) * (2 * hosts + len(services) - 1),
            crossing,
            {link: crossed[link] for link in sorted(crossed, key=self._tree.link_id)},
            {link: self._owner_of_link[link] for link in crossed},
            by_owner,
        )

    def _owner(self, endpoint: Endpoint) -> str | None:
        return None if endpoint.host is None else self._owner_of_host.get(endpoint.host)

    def _chain(self, owner: str | None) -> set[str]:
        """An allocation and the containers around it."""
        chain = set()
        while owner is not None:
            chain.add(owner)
            owner = self._parents[owner]
        return chain

    def _foreign(self, switch: int, target: Endpoint) -> Iterator[Link]:
        """The links on a path that have an owner, and not the target's."""
        own = self._chain(self._owner(target))
        passed = set()
        while switch != target.at.guid and switch not in passed:
            passed.add(switch)
            port = self._tables.port(switch, target.guid)
            ahead = None if port is None else self._inventory.far_ends.get(PortRef(switch, port))
            if ahead is None:
                return
            (switch, _), cable = ahead
            if cable.link in self._failed:
                return
            owner = None if cable.link is None else self._owner_of_link.get(cable.link)
            if cable.link is not None and owner is not None and owner not in own:
                yield cable.link
