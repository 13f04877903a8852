# SPDX-License-Identifier: Apache-2.0

"""The common plane: links withheld from tenants, for traffic that belongs to no tenant.

LaaS (ANCS'16) gives every tenant links of its own. Storage, gateways, the subnet manager
and idle hosts also need links; without a common plane they use those of tenants. An operator
who withholds L2 indices from allocation confines this shared traffic to the plane.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from laas_service.domain.errors import InvalidInput
from laas_service.domain.topology import LeafLink, Link, Xgft


@dataclass(frozen=True, slots=True)
class CommonPlane:
    """L2 indices and spines, the same in every pod and spine group.

    The plane withholds the leaf links to ``l2`` and the spine links of every L2 switch to
    ``spines``; without ``spines``, all spine links above ``l2``. Shared traffic goes over the
    leaf links to ``l2`` and the spine links from there to ``spines``. So ``l2`` is enough if
    every spine is above one L2 index. If a spine is above several (a director), name it in
    ``spines`` too, to keep tenants off it. Without ``l2``, shared traffic takes any leaf link;
    a spine link with an owner then carries only traffic from and to the owner. Without both
    there is no plane.

    If a tree has p parallel cables, an index stands for all p of them.
    """

    l2: tuple[int, ...] = ()
    """L2 indices, ascending."""

    spines: tuple[int, ...] = ()
    """Spines of a spine group, ascending."""

    def __bool__(self) -> bool:
        return bool(self.l2 or self.spines)

    def __str__(self) -> str:
        named = (("L2 index", self.l2), ("spine", self.spines))
        parts = [f"{kind} {', '.join(map(str, numbers))}" for kind, numbers in named if numbers]
        return " and ".join(parts) or "nothing"

    @classmethod
    def of(cls, tree: Xgft, l2: tuple[int, ...] = (), spines: tuple[int, ...] = ()) -> CommonPlane:
        """The plane of these indices on a tree.

        Raises:
            InvalidInput: an index is out of range or named twice, or tenants would be left
                without an L2 switch or without a spine.
        """
        for name, given, width in (
            ("l2", l2, tree.l2_per_pod),
            ("spines", spines, tree.spines_per_group),
        ):
            if len(set(given)) != len(given) or not all(0 <= index < width for index in given):
                fix = f"name each once, in 0..{width - 1}" if width else "the tree has none"
                raise InvalidInput(name, list(given), fix)
        if l2 and len(l2) == tree.l2_per_pod:
            raise InvalidInput("l2", list(l2), "leave tenants at least one L2 index")
        if not l2 and spines and len(spines) == tree.spines_per_group:
            raise InvalidInput("spines", list(spines), "leave tenants at least one spine")
        return cls(tuple(sorted(l2)), tuple(sorted(spines)))

    def carries(self, tree: Xgft, link: Link) -> bool:
        """Whether shared traffic may use a link; without ``l2``, that is every leaf link."""
        if isinstance(link, LeafLink):
            return not self.l2 or link.up // tree.cables[0] in self.l2
        return (not self.l2 or link.l2 in self.l2) and (
            not self.spines or link.up // tree.cables[1] in self.spines
        )

    def withholds(self, tree: Xgft, link: Link) -> bool:
        """Whether a link is withheld from allocation."""
        if isinstance(link, LeafLink):
            return link.up // tree.cables[0] in self.l2
        return link.up // tree.cables[1] in self.spines if self.spines else link.l2 in self.l2

    def keeps_clear(self, link: Link) -> bool:
        """Whether an owned link carries no shared traffic except from and to its owner."""
        return bool(self.l2) if isinstance(link, LeafLink) else bool(self)

    def links(self, tree: Xgft) -> Iterator[Link]:
        """Every withheld link in the order of numbers, absent ones included."""
        return (link for link in tree.links() if self and self.withholds(tree, link))


NO_PLANE = CommonPlane()
"""No link is withheld: shared traffic follows D-mod-k over all links, owned or not."""
