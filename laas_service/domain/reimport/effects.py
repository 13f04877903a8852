# SPDX-License-Identifier: Apache-2.0

"""What an import would mean for each live allocation: nothing, news, or a reason to refuse.

An allocation stays as it is: every host it holds is there under its name, on the same leaves;
every link joins the same two ports; and its routes are those it has. What the operator
has declared failed may come back on other ports, or on a switch in the old one's place. A
host's own adapter and the port it is plugged into on its leaf are nobody else's, and may change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import LaasError
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.reimport.layout import Layout
from laas_service.domain.reimport.renumbering import Renumbering
from laas_service.domain.routing.tenant_tables import routed_allocations, tenant_tables
from laas_service.domain.topology import Link, link_name


@dataclass(frozen=True, slots=True)
class Effect:
    """``refused``: what would be taken from the allocation, a line each. ``news``: what it gets
    beside: hosts whose adapter or port is another one."""

    allocation: str
    refused: tuple[str, ...] = ()
    news: tuple[str, ...] = ()


def effects(ledger: LedgerView, before: Layout, after: Layout) -> list[Effect]:
    """One for each allocation, containers too, by id."""
    numbers = Renumbering.between(before, after)
    work = _Effects(ledger, before, after, numbers)
    found = {one.id: work.effect(one) for one in ledger.everybody()}
    if not any(effect.refused for effect in found.values()):
        for id, why in work.disturbed().items():
            found[id] = Effect(id, (why,), found[id].news)
    return [found[id] for id in sorted(found)]


def ledger_after(ledger: LedgerView, numbers: Renumbering) -> Ledger:
    """The owners and the shared plane of a ledger on the new topology, nothing down.

    Raises:
        Conflict: somebody cannot hold what he holds.
    """
    fabric = Ledger(numbers.after)
    fabric.withhold(ledger.shared_plane)
    for one in ledger.everybody():
        fabric.claim(numbers.allocation(one))
    return fabric


class _Effects:
    """Looks at one allocation after the other."""

    def __init__(
        self, ledger: LedgerView, before: Layout, after: Layout, numbers: Renumbering
    ) -> None:
        self.ledger, self.before, self.after, self.numbers = ledger, before, after, numbers

    def effect(self, held: Allocation) -> Effect:
        refused = [*self._hosts(held), *self._links(held)]
        if not refused:
            try:
                self.numbers.allocation(held)
            except LaasError as error:
                refused = [str(error)]
        return Effect(held.id, tuple(refused), tuple(self._news(held)))

    def _hosts(self, held: Allocation) -> Iterator[str]:
        old, new = self.before.inventory.host_names, self.after.inventory.host_names
        for host in held.hosts(self.before.topology):
            name, now = old[host], self.numbers.hosts.get(host)
            if now is None:
                yield f"takes host {name}: it is gone"
            elif new[now] != name:
                yield f"takes host {name}: it is called {new[now]}"
            elif self._places(self.before, host) != self._places(self.after, now):
                yield f"takes host {name}: it is on other leaves"
            elif host in self.ledger.failed_hosts:
                continue
            elif self._leaves(self.before, host) != self._leaves(self.after, now):
                yield (
                    f"changes the routes of host {name}: a leaf of it was replaced; it may be "
                    "while the host is failed"
                )

    def _places(self, layout: Layout, host: int) -> list[tuple[int, int]]:
        return [(port.pod, port.leaf) for port in layout.topology.ports_of(host)]

    def _leaves(self, layout: Layout, host: int) -> list[int]:
        return [endpoint.at.guid for endpoint in layout.host_endpoints.get(host, ())]

    def _links(self, held: Allocation) -> Iterator[str]:
        old, new = self.before.inventory.cable_of_link, self.after.inventory.cable_of_link
        for link in held.links(self.before.topology):
            if link in self.before.topology.absent_links:
                continue
            was, now = old.get(link), new.get(link)
            if self.numbers.link(link) is None:
                yield f"takes link {link_name(link)}: its cable is gone"
            elif link in self.ledger.failed_links or was is None or now is None:
                continue
            elif (was.lower, was.upper) != (now.lower, now.upper):
                yield (
                    f"changes the routes over link {link_name(link)}: its cable is on other "
                    "ports; it may be while the link is failed"
                )

    def _news(self, held: Allocation) -> Iterator[str]:
        for host in held.hosts(self.before.topology):
            now = self.numbers.hosts.get(host)
            was = self.before.host_endpoints.get(host, ())
            becomes = self.after.host_endpoints.get(-1 if now is None else now, ())
            for a, b in zip(was, becomes, strict=False):
                name = self.before.inventory.host_names[host]
                if a.guid != b.guid:
                    yield f"host {name} rail {a.rail} has another adapter, {b.guid:#018x}"
                elif a.at != b.at:
                    yield f"host {name} rail {a.rail} is on port {b.at.port}"

    def disturbed(self) -> dict[str, str]:
        """Those whose routes would be others, or who could not hold what they hold."""
        before = list(self.ledger.everybody())
        try:
            after = list(ledger_after(self.ledger, self.numbers).everybody())
        except LaasError as error:
            return {one.id: str(error) for one in before}
        now = {one.id: one for one in routed_allocations(after)}
        failed = self.ledger.failed_links
        there = {link for link in map(self.numbers.link, failed) if link is not None}
        return {
            one.id: "changes its routes"
            for one in routed_allocations(before)
            if self._renamed(one, failed) != tenant_tables(self.after.topology, now[one.id], there)
        }

    def _renamed(self, one: Allocation, failed: Collection[Link]) -> dict[str, dict[str, str]]:
        """Its routes now, in the new numbers."""
        tables = tenant_tables(self.before.topology, one, failed)
        return {
            switch: {self._destination(name): out for name, out in entries.items()}
            for switch, entries in tables.items()
        }

    def _destination(self, name: str) -> str:
        host, _, rail = name.partition("/")
        number = str(self.numbers.hosts[int(host)])
        return f"{number}/{rail}" if rail else number
