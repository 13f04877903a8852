# SPDX-License-Identifier: Apache-2.0

"""The effect of a re-import on each live allocation, and the reasons to refuse it.

A re-import must leave every allocation as it is: each of its hosts exists under its name, on
the same leaves; each of its links joins the same two ports; its routes stay the same. A
host or link that the operator declared failed may come back on other ports, or on a new
switch in the old one's place. A host's adapter, and the port of the leaf that it uses, belong
to the host alone and may change.
"""

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
    """The effect on one allocation."""

    allocation: str
    """Its id."""

    refused: tuple[str, ...] = ()
    """Why the re-import is refused, one line for each loss."""

    news: tuple[str, ...] = ()
    """Changes that its owner is told: hosts with another adapter or port."""


SLOTS_STAY = "it has slots of shared hosts, which a re-import does not renumber; release it first"


def effects(ledger: LedgerView, before: Layout, after: Layout) -> list[Effect]:
    """The effect on each allocation, containers included, by id."""
    numbers = Renumbering.between(before, after)
    comparison = _EffectComparison(ledger, before, after, numbers)
    by_id = {held.id: comparison.effect(held) for held in ledger.everybody()}
    for held in ledger.sharers():
        by_id[held.id] = Effect(held.id, (SLOTS_STAY,))
    if not any(effect.refused for effect in by_id.values()):
        for id, refusal in comparison.route_changes().items():
            by_id[id] = Effect(id, (refusal,), by_id[id].news)
    return [by_id[id] for id in sorted(by_id)]


def ledger_after(ledger: LedgerView, numbers: Renumbering) -> Ledger:
    """The allocations and the common plane of a ledger on the new topology, without faults.

    Raises:
        Conflict: an allocation cannot hold its hosts and links there.
    """
    fabric = Ledger(numbers.after)
    fabric.withhold(ledger.shared_plane)
    for held in ledger.everybody():
        fabric.claim(numbers.allocation(held))
    return fabric


class _EffectComparison:
    """Compares each allocation before and after the re-import."""

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
                yield f"takes host {name}: it is now called {new[now]}"
            elif self._places(self.before, host) != self._places(self.after, now):
                yield f"takes host {name}: it is on other leaves"
            elif host in self.ledger.failed_hosts:
                continue
            elif self._leaves(self.before, host) != self._leaves(self.after, now):
                yield (
                    f"changes the routes of host {name}: one of its leaves was replaced; this is "
                    "allowed while the host is marked failed"
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
                    "ports; this is allowed while the link is marked failed"
                )

    def _news(self, held: Allocation) -> Iterator[str]:
        for host in held.hosts(self.before.topology):
            now = self.numbers.hosts.get(host)
            was = self.before.host_endpoints.get(host, ())
            after = self.after.host_endpoints.get(-1 if now is None else now, ())
            for old, new in zip(was, after, strict=False):
                name = self.before.inventory.host_names[host]
                if old.guid != new.guid:
                    yield f"host {name} rail {old.rail} has another adapter, {new.guid:#018x}"
                elif old.at != new.at:
                    yield f"host {name} rail {old.rail} is on port {new.at.port}"

    def route_changes(self) -> dict[str, str]:
        """By id, the allocations whose routes or holdings would change, each with a refusal."""
        before = list(self.ledger.everybody())
        try:
            after = list(ledger_after(self.ledger, self.numbers).everybody())
        except LaasError as error:
            return {held.id: str(error) for held in before}
        by_id = {routed.id: routed for routed in routed_allocations(after)}
        failed = self.ledger.failed_links
        failed_after = {link for link in map(self.numbers.link, failed) if link is not None}
        return {
            routed.id: "changes its routes"
            for routed in routed_allocations(before)
            if self._present_tables(routed, failed)
            != tenant_tables(self.after.topology, by_id[routed.id], failed_after)
        }

    def _present_tables(
        self, routed: Allocation, failed: Collection[Link]
    ) -> dict[str, dict[str, str]]:
        """Its present tables, with the new numbers of hosts."""
        tables = tenant_tables(self.before.topology, routed, failed)
        return {
            switch: {self._destination(name): out for name, out in entries.items()}
            for switch, entries in tables.items()
        }

    def _destination(self, name: str) -> str:
        host, _, rail = name.partition("/")
        number = str(self.numbers.hosts[int(host)])
        return f"{number}/{rail}" if rail else number
