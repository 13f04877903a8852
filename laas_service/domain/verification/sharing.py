# SPDX-License-Identifier: Apache-2.0

"""Slots of shared hosts, and what links promise: recorded, and as the tables need it.

From the records alone: no host gives more slots than it has, every virtual machine has one slot,
and the promises of a link add up to no more than its bandwidth. From the tables: all tenants
together put no more on a link than it has, and while no link has failed, each is promised what it
can put there. That is the maximum flow over its pairs of hosts whose path crosses the link, where
each virtual machine sends and receives at most its demand. Paths are walked over the cabling.
Nothing of ``domain.sharing`` is used.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from statistics import NormalDist

from laas_service.domain.allocation import Allocation, HeldSlots, Promise
from laas_service.domain.inventory import Inventory
from laas_service.domain.topology import Link, Topology, link_name
from laas_service.domain.verification.wires import Wires
from laas_service.domain.wording import SHOWN, listed

STEPS = 10**6
"""Steps of 1 Gb/s in a ``Promise``."""

NEAR = 1e-12
"""By how much sums of floats may be above what is promised, as a part of it."""

NORMAL = NormalDist()
NO_PLACES: Mapping[str, Sequence[HeldSlots]] = {}


def slot_violations(
    topology: Topology,
    inventory: Inventory,
    allocations: Iterable[Allocation],
    sharers: Iterable[Allocation],
    tables: Mapping[int, Mapping[int, int]] | None = None,
    places: Mapping[str, Sequence[HeldSlots]] = NO_PLACES,
    failed: Collection[Link] = (),
) -> list[str]:
    """All violations by allocations that have slots.

    ``allocations`` are those that hold hosts. ``tables`` as for ``walk_violations``; without them
    only the records are checked. ``failed`` links carry nothing. ``places`` are, by id, the places
    of tenants whose virtual machines move: what they hold must do for each of these.
    """
    parts = {held.id: held for held in allocations if held.sharing is not None}
    inside: dict[str, list[Allocation]] = defaultdict(list)
    broken = []
    for sharer in sharers:
        if sharer.slots is None or sharer.parent not in parts:
            broken.append(f"slots: {sharer.id} has none of an allocation that shares its hosts")
        else:
            inside[sharer.parent].append(sharer)
    wires = Wires(inventory, tables) if tables is not None else None
    for id, held in sorted(inside.items()):
        broken += _of_hosts(topology, parts[id], held, places)
        broken += _of_links(topology, parts[id], held)
        if wires is None:
            continue
        walker = _Walker(topology, wires, frozenset(failed))
        if not walker.failed.intersection(parts[id].links(topology)):
            for sharer in held:
                broken += _of_tables(walker, sharer, places)
        broken += _of_traffic(walker, parts[id], held, places)
    return broken


Pairs = dict[int, list[tuple[int, int]]]
"""Directed link, as in ``Promise`` -> (source, target) of the hosts whose path crosses it."""


@dataclass(frozen=True)
class _Walker:
    """Walks the paths between the hosts of places."""

    topology: Topology
    wires: Wires
    failed: frozenset[Link]

    def pairs(self, place: HeldSlots) -> tuple[Pairs, list[str]]:
        """The pairs by link, and the pairs without a path, as sentences."""
        counts, pairs, lost = place.counts, defaultdict[int, list[tuple[int, int]]](list), []
        ports = {e.host: e for e in self.wires.endpoints.values() if e.host in counts}
        for source, target in permutations(counts, 2):
            path, why = self.wires.walk(ports[source].at.guid, ports[target].guid)
            down = [c.link for c, _ in path if c.link is not None and c.link in self.failed]
            if why is None and down:
                why = f"link {link_name(down[0])} has failed"
            if why is not None:
                lost.append(f"{ports[source].name} to {ports[target].name}: {why}")
            for cable, up in path if not down else ():
                if cable.link is not None:
                    number = 2 * self.topology.tree.link_id(cable.link) + (not up)
                    pairs[number].append((source, target))
        own = self.topology.tree.leaf_links + self.topology.tree.spine_links
        for host in counts if len(counts) > 1 else ():
            pairs[2 * (own + host)] = [(host, other) for other in counts if other != host]
            pairs[2 * (own + host) + 1] = [(other, host) for other in counts if other != host]
        return pairs, lost

    def named(self, number: int) -> str:
        """A directed link."""
        link, down = divmod(number, 2)
        tree, inventory = self.topology.tree, self.wires.inventory
        host = link - tree.leaf_links - tree.spine_links
        if host >= 0:
            return f"the link {'to' if down else 'from'} host {inventory.host_names[host]}"
        return f"link {link_name(tree.link_at(link))} {'down' if down else 'up'}"


def _of_hosts(
    topology: Topology,
    part: Allocation,
    sharers: Iterable[Allocation],
    places: Mapping[str, Sequence[HeldSlots]],
) -> Iterator[str]:
    hosts, used = set(part.hosts(topology)), Counter[int]()
    for sharer in sharers:
        slots = sharer.held_slots
        placed = sorted(unit for _, units in slots.units for unit in units)
        if sharer.id not in places and placed != list(range(slots.demand.slots)):
            yield f"slots: {sharer.id} has virtual machines without exactly one slot"
        for host, units in slots.units:
            used[host] += len(units)
            if host not in hosts:
                yield f"slots: {sharer.id} has slots of host {host}, which {part.id} does not share"
    for host, count in sorted(used.items()):
        if count > part.terms.slots:
            yield f"slots: host {host} gives {count} of {part.terms.slots} slots"


def _of_links(topology: Topology, part: Allocation, sharers: Iterable[Allocation]) -> Iterator[str]:
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for sharer in sharers:
        for link, *amounts in sharer.held_slots.promised:
            sums[link] = [a + b for a, b in zip(sums[link], amounts, strict=True)]
    quantile = NORMAL.inv_cdf(1 - part.terms.risk)
    for link, (certain, mean, variance) in sorted(sums.items()):
        needed = (certain + mean) / STEPS + quantile * math.sqrt(variance / STEPS)
        if needed > part.terms.bandwidth * (1 + 1e-9):
            yield (
                f"slots: {_named(topology, link)} promises {needed:.3f} of "
                f"{part.terms.bandwidth:g} Gb/s"
            )


def _of_tables(
    walker: _Walker, sharer: Allocation, places: Mapping[str, Sequence[HeldSlots]]
) -> Iterator[str]:
    held = sharer.held_slots
    promised = {promise.link: promise for promise in held.promised}
    for place in places.get(sharer.id, (held,)):
        pairs, _ = walker.pairs(place)
        for link, crossing in sorted(pairs.items()):
            given = promised.get(link, Promise(link, 0, 0, 0))
            if short := _short(place, crossing, given):
                yield f"slots: {sharer.id} can put {short} on {walker.named(link)}"


def _of_traffic(
    walker: _Walker,
    part: Allocation,
    sharers: Iterable[Allocation],
    places: Mapping[str, Sequence[HeldSlots]],
) -> Iterator[str]:
    """Pairs without a path, and links on which all tenants together can put more than it has."""
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for sharer in sharers:
        promised = {promise.link: promise for promise in sharer.held_slots.promised}
        most: dict[int, list[float]] = {}
        for place in places.get(sharer.id, (sharer.held_slots,)):
            pairs, lost = walker.pairs(place)
            if lost:
                yield f"slots: {sharer.id}: {listed(lost, SHOWN)}"
            for link, crossing in pairs.items():
                needed = _needed(place, crossing, promised.get(link))
                known = most.get(link, needed)
                most[link] = [max(a, b) for a, b in zip(known, needed, strict=True)]
        for link, needed in most.items():
            sums[link] = [a + b for a, b in zip(sums[link], needed, strict=True)]
    quantile = NORMAL.inv_cdf(1 - part.terms.risk)
    for link, (mean, variance) in sorted(sums.items()):
        if (load := mean + quantile * math.sqrt(variance)) > part.terms.bandwidth * (1 + 1e-9):
            yield (
                f"slots: by the tables {walker.named(link)} has to carry {load:.6g} of "
                f"{part.terms.bandwidth:g} Gb/s"
            )


def _needed(
    place: HeldSlots, pairs: Sequence[tuple[int, int]], given: Promise | None
) -> list[float]:
    """Mean and variance, in Gb/s, of the most that a tenant can put on a link with these pairs.

    Where demands differ, those of the promise, if it is enough, and else of the least cover.
    """
    if place.demand.alike:
        load, (mean, deviation) = most_traffic(place.counts, pairs), place.demand.each[0]
        return [load * _positive(mean, deviation), load * deviation**2]
    if given is not None and not _short_of_each(place, pairs, given):
        return [(given.certain + given.mean) / STEPS, given.variance / STEPS]
    return min(_covers(place, pairs))


def _short(place: HeldSlots, pairs: Sequence[tuple[int, int]], given: Promise) -> str:
    """What the demands of a place need on a link with these pairs, if it is more than given."""
    if not place.demand.alike:
        return _short_of_each(place, pairs, given)
    load, mean = most_traffic(place.counts, pairs), place.demand.each[0][0]
    deviation = place.demand.each[0][1]
    if not deviation:
        if load * mean * STEPS <= given.certain * (1 + NEAR) + 1e-6:
            return ""
        return f"{load * mean:g} Gb/s, and is promised {given.certain / STEPS:g},"
    enough = load * _positive(mean, deviation) * STEPS <= given.mean * (1 + NEAR) + 1e-6
    if enough and load * deviation**2 * STEPS <= given.variance * (1 + NEAR) + 1e-6:
        return ""
    return f"{load} demands of {mean:g} +- {deviation:g} Gb/s, and is promised less,"


def _positive(mean: float, deviation: float) -> float:
    """The mean of a normal demand that is cut off at 0."""
    if not deviation:
        return mean
    return mean * NORMAL.cdf(mean / deviation) + deviation * NORMAL.pdf(mean / deviation)


def _short_of_each(place: HeldSlots, pairs: Sequence[tuple[int, int]], given: Promise) -> str:
    """As ``_short``, where demands differ: empty if what is given is enough for any cover.

    A cover has the sender or the receiver of each pair. Of the senders outside it, it has all
    receivers; senders with the same receivers are in it or outside it together.
    """
    for mean, variance in _covers(place, pairs):
        enough = mean * STEPS <= (given.certain + given.mean) * (1 + NEAR) + 1e-6
        if enough and variance * STEPS <= given.variance * (1 + NEAR) + 1e-6:
            return ""
    senders = len({source for source, _ in pairs})
    return f"demands of {senders} hosts, for which no cover is promised enough,"


def _covers(place: HeldSlots, pairs: Sequence[tuple[int, int]]) -> Iterator[list[float]]:
    """Mean and variance, in Gb/s, of the demands of each cover of the pairs."""
    amounts = {
        host: [
            sum(_positive(*place.demand.each[unit]) for unit in units),
            sum(place.demand.each[unit][1] ** 2 for unit in units),
        ]
        for host, units in place.units
    }
    receivers: dict[int, set[int]] = defaultdict(set)
    for source, target in pairs:
        receivers[source].add(target)
    groups: dict[frozenset[int], list[int]] = defaultdict(list)
    for source, targets in receivers.items():
        groups[frozenset(targets)].append(source)
    for inside in product((True, False), repeat=len(groups)):
        cover: set[int] = set()
        for kept, (reached, senders) in zip(inside, groups.items(), strict=True):
            cover |= set(senders) if kept else reached
        yield [sum(amounts[host][i] for host in cover) for i in (0, 1)]


def most_traffic(counts: Mapping[int, int], pairs: Sequence[tuple[int, int]]) -> int:
    """The maximum flow from senders to receivers over some pairs, each with its units.

    Takes one unit more as long as there is a path for it, by way of what was sent before.
    """
    sent, received = Counter[int](), Counter[int]()
    flow = Counter[tuple[int, int]]()
    targets: dict[int, list[int]] = defaultdict(list)
    for source, target in pairs:
        targets[source].append(target)
    while True:
        before: dict[tuple[str, int], tuple[str, int]] = {}
        waiting = [("from", s) for s in targets if sent[s] < counts[s]]
        seen, end = set(waiting), None
        for kind, host in waiting:
            if kind == "from":
                following = [("to", target) for target in targets[host]]
            elif received[host] < counts[host]:
                end = (kind, host)
                break
            else:
                following = [("from", s) for s in targets if flow[s, host]]
            for node in following:
                if node not in seen:
                    seen.add(node)
                    before[node] = (kind, host)
                    waiting.append(node)
        if end is None:
            return sent.total()
        received[end[1]] += 1
        node = end
        while node in before:
            previous = before[node]
            if node[0] == "to":
                flow[previous[1], node[1]] += 1
            else:
                flow[node[1], previous[1]] -= 1
            node = previous
        sent[node[1]] += 1


def _named(topology: Topology, number: int) -> str:
    link, down = divmod(number, 2)
    cables = topology.tree.leaf_links + topology.tree.spine_links
    if link >= cables:
        return f"the link {'to' if down else 'from'} host {link - cables}"
    return f"link {link_name(topology.tree.link_at(link))} {'down' if down else 'up'}"
