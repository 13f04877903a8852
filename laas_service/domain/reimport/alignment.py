# SPDX-License-Identifier: Apache-2.0

"""Alignment of a re-import: remaining switches, links and hosts keep their places.

An import numbers everything anew, so one more cable may change every number. Alignment
undoes that. A switch with a known GUID keeps its place. A new switch on the cables of
one that is gone takes that switch's place. Others take empty places, or new ones at the end.
So a tree only grows, and links and hosts that remain keep their names.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from laas_service.domain.errors import InvalidInput
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Cable, Inventory, PortRef
from laas_service.domain.reimport.host_places import placed_hosts
from laas_service.domain.reimport.layout import Layout, Row
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, Xgft


def aligned(before: Layout, after: Layout) -> Layout:
    """The fabric of ``after`` in the places of ``before``, with the LIDs of ``after``.

    Raises:
        InvalidInput: the number of rails differs, or hosts do not form leaf groups in the
            old order of rails.
    """
    if before.topology.rails != after.topology.rails:
        fix = f"the recorded hosts have {before.topology.rails}"
        raise InvalidInput("rails", after.topology.rails, fix)
    switches = _SwitchPlaces(before, after)
    leaves, l2s = switches.leaves(), switches.l2s()
    spines = switches.spines(l2s)
    hosts = placed_hosts(before, after, leaves)
    tree = _tree(before.topology.tree, hosts.m1, leaves, l2s, spines)
    cables = _cables(before, after.inventory, tree, leaves, l2s, spines)
    present = {cable.link for cable in cables}
    topology = Topology(
        tree,
        rails=after.topology.rails,
        host_ports=hosts.ports,
        absent_hosts=hosts.absent(tree),
        absent_links=frozenset(link for link in tree.links() if link not in present),
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


class _SwitchPlaces:
    """Finds the old number of each pod, then the place of each switch in its row."""

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
        return _old_numbers(votes, self.after.topology.tree.m[2])

    def leaves(self) -> list[Row]:
        return self._rows(self.before.leaves, self.after.leaves)

    def l2s(self) -> list[Row]:
        """The L2 switches by pod.

        A new one takes the old index of the other L2 switches of its new index, because an
        index means the same spines in every pod.
        """
        votes: Counter[tuple[int, int]] = Counter()
        for new_pod, row in enumerate(self.after.l2s):
            old = self._old(self.before.l2s, self.pods[new_pod])
            votes.update(
                (new, old.index(guid)) for new, guid in enumerate(row) if guid and guid in old
            )
        old_index = _old_numbers(votes, self.after.topology.tree.l2_per_pod)
        return self._rows(self.before.l2s, self.after.l2s, old_index)

    def spines(self, l2s: Sequence[Row]) -> list[Row]:
        """The spines by L2 index.

        A spine belongs to each index at which more than half as many pods reach it as at its
        best index.
        """
        place = {guid: (pod, i) for pod, row in enumerate(l2s) for i, guid in enumerate(row)}
        level = {switch.guid: switch.level for switch in self.after.inventory.switches}
        reach = grouped(
            (cable.upper.guid, place[cable.lower.guid])
            for cable in self.after.inventory.cables
            if level[cable.upper.guid] == 3 and cable.lower.guid in place
        )
        width = max(map(len, l2s), default=0)
        groups: list[list[int]] = [[] for _ in range(width)]
        for spine in dict.fromkeys(filter(None, self.after.inventory.spine_guids)):
            counts = Counter(index for _, index in set(reach[spine]))
            for index, count in counts.items():
                if 2 * count > max(counts.values()):
                    groups[index].append(spine)
        return [
            self._row(self._old(self.before.spines, index), group)
            for index, group in enumerate(groups)
        ]

    def _rows(
        self, before: Sequence[Row], after: Sequence[Row], old_index: Sequence[int] = ()
    ) -> list[Row]:
        by_pod: dict[int, Row] = {}
        for new, row in enumerate(after):
            old = self._old(before, self.pods[new])
            hints = {guid: old_index[i] for i, guid in enumerate(row) if guid} if old_index else {}
            by_pod[self.pods[new]] = self._row(old, [guid for guid in row if guid], hints)
        return [by_pod.get(pod, ()) for pod in range(self.count)]

    def _old(self, before: Sequence[Row], number: int) -> Row:
        return before[number] if number < len(before) else ()

    def _row(self, old: Row, new: Sequence[int], hints: Mapping[int, int] | None = None) -> Row:
        """The new switches at the places of the old row, with 0 at empty places.

        A new switch takes the place of the gone switch with which it shares most cable ends;
        else the index in ``hints`` if it is free; else the first free one.
        """
        index = {guid: old.index(guid) for guid in new if guid in old}
        gone = [guid for guid in old if guid and guid not in self.after.inventory.switch_of_guid]
        added = [guid for guid in new if guid not in index]
        common_ends = Counter(
            {
                (a, b): len(self.after.ends.get(a, _NONE) & self.before.ends.get(b, _NONE))
                for a in added
                for b in gone
            }
        )
        successors = _matched(+common_ends)
        index |= {guid: old.index(replaced) for guid, replaced in successors.items()}
        taken = set(index.values())
        for guid in added:
            if guid not in index:
                first = (hints or {}).get(guid)
                if first is None or first in taken:
                    first = next(i for i in itertools.count() if i not in taken)
                index[guid] = first
                taken.add(first)
        guid_at = {place: guid for guid, place in index.items()}
        return tuple(guid_at.get(i, 0) for i in range(max(guid_at, default=-1) + 1))


_NONE: frozenset[object] = frozenset()


def _matched(votes: Mapping[tuple[int, int], int]) -> dict[int, int]:
    """New -> old for the pairs (new, old) with most votes; each number is used at most once."""
    matched: dict[int, int] = {}
    taken: set[int] = set()
    for new, old in sorted(votes, key=lambda pair: (-votes[pair], pair)):
        if new not in matched and old not in taken:
            matched[new] = old
            taken.add(old)
    return matched


def _old_numbers(votes: Mapping[tuple[int, int], int], count: int) -> list[int]:
    """The old number of each of ``count`` new ones: by votes, else one that is free."""
    matched = _matched(votes)
    free = (number for number in itertools.count() if number not in matched.values())
    return [matched[new] if new in matched else next(free) for new in range(count)]


def _tree(
    old: Xgft, m1: int, leaves: Sequence[Row], l2s: Sequence[Row], spines: Sequence[Row]
) -> Xgft:
    """The old tree, grown to hold the rows; the number of parallel cables stays."""
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
    """Every cable with its link; remaining parallel cables keep their number."""
    old = {(cable.lower, cable.upper): cable.link for cable in before.inventory.cables}
    bundles = grouped(((c.lower.guid, c.upper.guid), (c.lower, c.upper)) for c in after.cables)
    link_of: dict[tuple[PortRef, PortRef], Link] = {}
    for pair, links in _bundles(tree, leaves, l2s, spines):
        link_of |= _numbered(sorted(bundles.get(pair, ())), links, old)
    return tuple(
        Cable(*ends, link_of.get(ends)) for ends in sorted(e for b in bundles.values() for e in b)
    )


def _bundles(
    tree: Xgft, leaves: Sequence[Row], l2s: Sequence[Row], spines: Sequence[Row]
) -> Iterable[tuple[tuple[int, int], list[Link]]]:
    """For each two switches that the tree joins, their links in the order of parallel cables."""
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
    link_of: dict[tuple[PortRef, PortRef], Link] = {}
    for pair in ends:
        link = old.get(pair)
        number = link.up % len(links) if link is not None else None
        if number is not None and links[number] not in link_of.values():
            link_of[pair] = links[number]
    free = [link for link in links if link not in link_of.values()]
    link_of |= zip([pair for pair in ends if pair not in link_of], free, strict=False)
    return link_of


def _flat(rows: Collection[Row], count: int, width: int) -> tuple[int, ...]:
    padded = [row + (0,) * (width - len(row)) for row in rows]
    padded += [(0,) * width] * (count - len(padded))
    return tuple(guid for row in padded for guid in row)
