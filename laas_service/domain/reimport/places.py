# SPDX-License-Identifier: Apache-2.0

"""The new cables in the old places: what stays keeps its pod, index, uplink and slot.

An import numbers what it recognises afresh, so that one cable more may shift everything.
Here the same switches, told by their GUIDs, keep their places; a new switch on the cables
of one that is gone takes its place; others take places that nobody has, else new ones at the
end. So a tree only grows, and links and hosts that stay are called what they were called.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from laas_service.domain.errors import InvalidInput
from laas_service.domain.inventory import Cable, Inventory, PortRef
from laas_service.domain.reimport.layout import Layout, Row
from laas_service.domain.reimport.slots import slotted
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, Xgft


def laid_over(before: Layout, after: Layout) -> Layout:
    """The fabric of ``after`` in the places of ``before``; its LIDs are still those of ``after``.

    Raises:
        InvalidInput: hosts have another number of rails, or do not form leaf groups
            in the rails' old order.
    """
    if before.topology.rails != after.topology.rails:
        fix = f"hosts had {before.topology.rails}: import it under another --id"
        raise InvalidInput("rails", after.topology.rails, fix)
    work = _Places(before, after)
    leaves, l2s = work.leaves(), work.l2s()
    spines = work.spines(l2s)
    hosts = slotted(before, after, leaves)
    tree = _tree(before.topology.tree, hosts.m1, leaves, l2s, spines)
    cables = _cables(before, after.inventory, tree, leaves, l2s, spines)
    present = {cable.link for cable in cables}
    topology = Topology(
        tree,
        rails=after.topology.rails,
        host_ports=hosts.ports,
        absent_hosts=hosts.absent(tree),
        absent_links=frozenset(link for link in _links(tree) if link not in present),
    )
    inventory = replace(
        after.inventory,
        host_names=hosts.names(topology),
        cables=cables,
        endpoints=hosts.endpoints(topology),
        leaf_guids=_flat(leaves, tree.m[2], tree.m[1]),
        l2_guids=_flat(l2s, tree.m[2], tree.l2_per_pod),
        spine_guids=_flat(spines, tree.l2_per_pod, tree.spines_per_group),
    )
    return Layout(topology, inventory)


class _Places:
    """Pods first, then the switches of each row."""

    def __init__(self, before: Layout, after: Layout) -> None:
        self.before, self.after = before, after
        self.pods = self._pods()
        """The old number of each new pod."""
        self.count = max(before.topology.tree.m[2], *(pod + 1 for pod in self.pods))

    def _pods(self) -> list[int]:
        votes: Counter[tuple[int, int]] = Counter()
        for old_rows, new_rows in (
            (self.before.leaves, self.after.leaves),
            (self.before.l2s, self.after.l2s),
        ):
            pod_of = {guid: pod for pod, row in enumerate(old_rows) for guid in row if guid}
            for new, row in enumerate(new_rows):
                votes.update((new, pod_of[guid]) for guid in row if guid in pod_of)
        matched = _matched(votes)
        free = (pod for pod in itertools.count() if pod not in matched.values())
        return [
            matched[new] if new in matched else next(free)
            for new in range(self.after.topology.tree.m[2])
        ]

    def leaves(self) -> list[Row]:
        return self._rows(self.before.leaves, self.after.leaves)

    def l2s(self) -> list[Row]:
        """L2 switches: a new one takes the index whose L2 switches its own index has in other
        pods, as an index means the same spines in every pod."""
        votes: Counter[tuple[int, int]] = Counter()
        for new_pod, row in enumerate(self.after.l2s):
            old = self._old(self.before.l2s, self.pods[new_pod])
            votes.update(
                (new, old.index(guid)) for new, guid in enumerate(row) if guid and guid in old
            )
        matched = _matched(votes)
        free = (index for index in itertools.count() if index not in matched.values())
        width = self.after.topology.tree.l2_per_pod
        wanted = [matched[new] if new in matched else next(free) for new in range(width)]
        return self._rows(self.before.l2s, self.after.l2s, wanted)

    def spines(self, l2s: Sequence[Row]) -> list[Row]:
        """Spines by the L2 index that more than half as many pods reach them at as at any."""
        place = {guid: (pod, i) for pod, row in enumerate(l2s) for i, guid in enumerate(row)}
        level = {switch.guid: switch.level for switch in self.after.inventory.switches}
        reach: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for cable in self.after.inventory.cables:
            if level[cable.upper.guid] == 3 and cable.lower.guid in place:
                reach[cable.upper.guid].add(place[cable.lower.guid])
        width = max(map(len, l2s), default=0)
        groups: list[list[int]] = [[] for _ in range(width)]
        for spine in dict.fromkeys(filter(None, self.after.inventory.spine_guids)):
            counts = Counter(index for _, index in reach[spine])
            for index, count in counts.items():
                if 2 * count > max(counts.values()):
                    groups[index].append(spine)
        return [
            self._row(self._old(self.before.spines, index), group)
            for index, group in enumerate(groups)
        ]

    def _rows(
        self, before: Sequence[Row], after: Sequence[Row], wanted: Sequence[int] = ()
    ) -> list[Row]:
        found: dict[int, Row] = {}
        for new, row in enumerate(after):
            old = self._old(before, self.pods[new])
            hints = {guid: wanted[i] for i, guid in enumerate(row) if guid} if wanted else {}
            found[self.pods[new]] = self._row(old, [guid for guid in row if guid], hints)
        return [found.get(pod, ()) for pod in range(self.count)]

    def _old(self, before: Sequence[Row], number: int) -> Row:
        return before[number] if number < len(before) else ()

    def _row(self, old: Row, new: Sequence[int], wanted: Mapping[int, int] | None = None) -> Row:
        """The new switches at the places of the old row, 0 in between."""
        index = {guid: old.index(guid) for guid in new if guid in old}
        gone = [guid for guid in old if guid and guid not in self.after.inventory.switch_of_guid]
        fresh = [guid for guid in new if guid not in index]
        alike = Counter(
            {
                (a, b): len(self.after.ends.get(a, _NONE) & self.before.ends.get(b, _NONE))
                for a in fresh
                for b in gone
            }
        )
        for guid, replaced in _matched(+alike).items():
            index[guid] = old.index(replaced)
        taken = set(index.values())
        for guid in fresh:
            if guid not in index:
                first = (wanted or {}).get(guid)
                if first is None or first in taken:
                    first = next(i for i in itertools.count() if i not in taken)
                index[guid] = first
                taken.add(first)
        at = {place: guid for guid, place in index.items()}
        return tuple(at.get(i, 0) for i in range(max(at, default=-1) + 1))


_NONE: frozenset[object] = frozenset()


def _matched(votes: Mapping[tuple[int, int], int]) -> dict[int, int]:
    """New to old, most votes first, each at most once."""
    found: dict[int, int] = {}
    taken: set[int] = set()
    for new, old in sorted(votes, key=lambda pair: (-votes[pair], pair)):
        if new not in found and old not in taken:
            found[new] = old
            taken.add(old)
    return found


def _tree(
    old: Xgft, m1: int, leaves: Sequence[Row], l2s: Sequence[Row], spines: Sequence[Row]
) -> Xgft:
    """The old tree, grown as far as the rows need; parallel cables stay as many as they were."""
    pods = len(leaves)
    width = max(old.l2_per_pod, *map(len, l2s))
    above = max(old.spines_per_group, *map(len, spines), 0)
    m2 = max(old.m[1], *map(len, leaves))
    w2 = max(width, 1) * old.cables[0] if m2 > 1 or width else 0
    w3 = (max(above, 1) if pods > 1 else above) * old.cables[1]
    return Xgft((m1, m2, pods), (1, w2, w3), old.cables)


def _cables(
    before: Layout,
    after: Inventory,
    tree: Xgft,
    leaves: Sequence[Row],
    l2s: Sequence[Row],
    spines: Sequence[Row],
) -> tuple[Cable, ...]:
    """Every cable with its link; in a bundle those that stay keep their number."""
    old = {(cable.lower, cable.upper): cable.link for cable in before.inventory.cables}
    bundles: dict[tuple[int, int], list[tuple[PortRef, PortRef]]] = defaultdict(list)
    for cable in after.cables:
        bundles[cable.lower.guid, cable.upper.guid].append((cable.lower, cable.upper))
    link_of: dict[tuple[PortRef, PortRef], Link] = {}
    for pair, links in _bundles(tree, leaves, l2s, spines):
        link_of |= _numbered(sorted(bundles.get(pair, ())), links, old)
    return tuple(
        Cable(*ends, link_of.get(ends)) for ends in sorted(e for b in bundles.values() for e in b)
    )


def _bundles(
    tree: Xgft, leaves: Sequence[Row], l2s: Sequence[Row], spines: Sequence[Row]
) -> Iterable[tuple[tuple[int, int], list[Link]]]:
    """The links between each two switches that the tree joins, by parallel cable."""
    p2, p3 = tree.cables
    for pod, row in enumerate(leaves):
        for (leaf, lower), (i, upper) in itertools.product(enumerate(row), enumerate(l2s[pod])):
            if lower and upper:
                yield (lower, upper), [LeafLink(pod, leaf, i * p2 + c) for c in range(p2)]
        for i, lower in enumerate(l2s[pod]):
            for s, upper in enumerate(spines[i] if i < len(spines) else ()):
                if lower and upper:
                    yield (lower, upper), [SpineLink(pod, i, s * p3 + c) for c in range(p3)]


def _numbered(
    ends: Sequence[tuple[PortRef, PortRef]],
    links: Sequence[Link],
    old: Mapping[tuple[PortRef, PortRef], Link | None],
) -> dict[tuple[PortRef, PortRef], Link]:
    found: dict[tuple[PortRef, PortRef], Link] = {}
    for end in ends:
        link = old.get(end)
        number = link.up % len(links) if link is not None else None
        if number is not None and links[number] not in found.values():
            found[end] = links[number]
    free = [link for link in links if link not in found.values()]
    found |= zip([end for end in ends if end not in found], free, strict=False)
    return found


def _links(tree: Xgft) -> Iterable[Link]:
    return map(tree.link_at, range(tree.leaf_links + tree.spine_links))


def _flat(of: Collection[Row], count: int, width: int) -> tuple[int, ...]:
    padded = [row + (0,) * (width - len(row)) for row in of]
    padded += [(0,) * width] * (count - len(padded))
    return tuple(guid for row in padded for guid in row)
