# SPDX-License-Identifier: Apache-2.0

"""The strategy of a search: the order in which it tries placements, and which one it answers.

Every step of a search is a generator of legal placements. A preference orders what the steps
try, and chooses among what they yield. There are two: ``best_fit`` takes the first placement,
``min_cost`` the one whose hosts cost least.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from laas_service.domain.allocation import GroupShare, Shape
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.pod_view import PodView
from laas_service.domain.search.shapes import Placement

PodChoice = tuple[Sequence[int], int | None]
"""The full pods of a shape, and its remainder pod if it has one."""


class Preference(Protocol):
    """Orders the choices of a search and chooses among its placements."""

    def choose(self, placements: Iterator[Placement]) -> Placement | None:
        """The preferred placement; None if there is none. Placements are found lazily."""

    def leaf_groups(self, hosts: int) -> Iterable[int]:
        """The leaf groups with at least ``hosts`` free hosts, the preferred one first."""

    def shares(self, groups: Iterable[int], hosts: int, uplinks: int) -> list[GroupShare]:
        """The preferred ``hosts`` free hosts of each of these leaf groups, with ``uplinks``."""

    def pods(self, hosts: int) -> Iterator[int]:
        """The pods to search for ``hosts`` hosts, the preferred one first.

        The caller takes the next pod only when it has tried all shapes of that size in the
        last one.
        """

    def may_improve(self, shape: Shape, pod: int | None = None) -> bool:
        """Whether a placement of this shape (in this pod) may still be chosen."""

    def improving(self, shapes: Sequence[Shape]) -> Sequence[Shape]:
        """The shapes that may still be chosen, in the same order."""

    def ordered(self, groups: list[int], hosts: int) -> list[int]:
        """Interchangeable leaf groups, those preferred for ``hosts`` hosts each first."""

    def pod_preference(self, view: PodView) -> PodPreference:
        """The same preference for placements on several pods of ``view``."""


class PodPreference(Protocol):
    """Orders the choices of a search over several pods, all seen in one ``PodView``."""

    def pod_choices(self, shape: Shape) -> Iterator[PodChoice]:
        """Full pods with enough common spine uplinks and a remainder pod, preferred first."""

    def remainder_pods(self, shape: Shape) -> Sequence[int]:
        """The pods that may have the shape's remainder, the preferred one first."""

    def remainder_leaves(self, shape: Shape, pod: int) -> Sequence[int]:
        """The groups that may be the remainder leaf in a pod, the preferred one first."""

    def full_leaves(self, pod: int, fitting: int, count: int) -> list[int]:
        """The preferred ``count`` leaf groups of a bit set of fitting groups of a pod."""


def pods_with_room(fabric: LedgerView, hosts: int) -> list[int]:
    """The pods with at least ``hosts`` free hosts, the fullest first."""
    free = fabric.pod_free_hosts
    if hosts > max(free):
        return []
    return sorted([pod for pod, count in enumerate(free) if count >= hosts], key=free.__getitem__)
