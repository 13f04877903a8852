# SPDX-License-Identifier: Apache-2.0

"""Shared links: shares of links by owner, and the ledger of a fabric whose links are shared.

Bandwidth is in parts per million (ppm) of a link's. A link has one owner, or any number of
shares that add up to no more than the cap, or is free. Used by the simulator and the
planner; the service gives out whole links only.

Source: least constrained with link-sharing, Jigsaw (HPDC'21) 5.2.3 and 5.4.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, NamedTuple

from laas_service.domain.allocation import WHOLE, Allocation
from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.ledger.free import ReaderCaches
from laas_service.domain.ledger.state import aliased
from laas_service.domain.topology import Topology, bits

CAP = 800_000
"""The most of a link that is given out in shares, ppm; above 80 percent delays grow
(Jigsaw, 5.4.2)."""


class Claim(NamedTuple):
    """The same share of several links of one row."""

    row: int
    """Number of a row of links, see ``SharedLedger``."""

    links: int
    """Mask of the links of the row."""

    ppm: int
    """The share of each of these links, parts per million."""


class Shares:
    """Shares of links by owner. A link is a bit of a row; the caller says what rows are.

    Raises:
        InvalidInput: the cap is not within 1 .. 1,000,000 ppm.
    """

    def __init__(self, cap: int = CAP) -> None:
        if not 1 <= cap <= WHOLE:
            raise InvalidInput("cap", cap, f"give 1 to {WHOLE} parts per million of a link")
        self.cap = cap
        """The most that all shares of one link may add up to, ppm."""

        self._used: dict[int, dict[int, int]] = {}
        """By row and link, the sum of all shares, ppm; links without shares are absent."""

        self._held: dict[str, tuple[Claim, ...]] = {}
        """What each owner has."""

        self._crowded: dict[int, dict[int, int]] = {}
        """By ppm, once asked for: the answer of ``crowded``, kept up by ``_note``."""

    def copy(self) -> Shares:
        copy = Shares(self.cap)
        copy._used = {row: dict(used) for row, used in self._used.items()}
        copy._held = dict(self._held)
        copy._crowded = {ppm: dict(rows) for ppm, rows in self._crowded.items()}
        return copy

    def residual(self, row: int, link: int) -> int:
        """What may still be reserved of a link, ppm: the cap less all shares."""
        return self.cap - self._used.get(row, {}).get(link, 0)

    def shared(self, row: int) -> int:
        """Mask of the links of a row that have shares."""
        return sum(1 << link for link in self._used.get(row, ()))

    def crowded(self, ppm: int) -> dict[int, int]:
        """By row, the mask of the links with less than ``ppm`` left; unused rows are absent."""
        if ppm not in self._crowded:
            self._crowded[ppm] = {
                row: sum(1 << link for link in used if self.residual(row, link) < ppm)
                for row, used in self._used.items()
            }
        return self._crowded[ppm]

    def check(self, claims: Iterable[Claim]) -> None:
        """Check that these shares can be reserved.

        Raises:
            InvalidInput: a share is not within 1 ppm and the cap.
            DoubleClaim: a link has less left.
        """
        for row, links, ppm in claims:
            if not 1 <= ppm <= self.cap:
                raise InvalidInput("bandwidth", ppm, f"give 1 to {self.cap} ppm of a link")
            for link in bits(links):
                if self.residual(row, link) < ppm:
                    left = self.residual(row, link)
                    raise DoubleClaim(f"link {link} of row {row}: {left} ppm left, {ppm} asked")

    def reserve(self, owner: str, claims: Iterable[Claim]) -> None:
        """Give an owner shares of links, no link twice; all of them or, if it raises, none.

        Raises:
            InvalidInput: a share is not within 1 ppm and the cap.
            DoubleClaim: a link has less left, or the owner has shares already.
        """
        held = tuple(claims)
        if owner in self._held:
            raise DoubleClaim(f"{owner!r} already has shares")
        self.check(held)
        self._held[owner] = held
        for row, links, ppm in held:
            used = self._used.setdefault(row, {})
            for link in bits(links):
                used[link] = used.get(link, 0) + ppm
                self._note(row, link)

    def release(self, owner: str) -> tuple[Claim, ...]:
        """Take all shares back from an owner.

        Raises:
            NotFound: the owner has none.
        """
        if owner not in self._held:
            raise NotFound("shares of", owner)
        held = self._held.pop(owner)
        for row, links, ppm in held:
            used = self._used[row]
            for link in bits(links):
                used[link] -= ppm
                if not used[link]:
                    del used[link]
                self._note(row, link)
        return held

    def _note(self, row: int, link: int) -> None:
        """Update the masks of crowded links after a share of this link changed."""
        left = self.residual(row, link)
        for ppm, rows in self._crowded.items():
            mask = rows.get(row, 0)
            rows[row] = mask | 1 << link if left < ppm else mask & ~(1 << link)


class SharedLedger(Ledger):
    """A ledger in which allocations may hold a share of their links instead of all of it.

    A link that has shares is not free to an allocation that needs all of it.
    """

    __slots__ = ("shares",)

    SHORT: ClassVar[tuple[str, ...]] = (*Ledger.SHORT, "shares")

    def __init__(self, topology: Topology, cap: int = CAP) -> None:
        self.shares = Shares(cap)
        """Rows are the leaf groups, and after them the pods as in ``free_lanes``."""

        super().__init__(topology)

    def with_room(self, ppm: int) -> LedgerView:
        """The fabric as a request for ``ppm`` of each link sees it: links with room are free."""
        view = aliased(self, Ledger)
        crowded, groups = self.shares.crowded(ppm), self.topology.groups
        view.free_uplinks = [
            self._roomy(row, free, usable, crowded)
            for row, (free, usable) in enumerate(
                zip(self.free_uplinks, self.usable_uplinks, strict=True)
            )
        ]
        view.free_lanes = [
            self._roomy(groups + pod, free, usable, crowded)
            for pod, (free, usable) in enumerate(
                zip(self.free_lanes, self.usable_lanes, strict=True)
            )
        ]
        view.reader_caches = ReaderCaches()
        return view

    def _roomy(self, row: int, free: int, usable: int, crowded: dict[int, int]) -> int:
        """The links of a row with room: free, or shared and not crowded."""
        return free | self.shares.shared(row) & usable & ~crowded.get(row, 0)

    def change(self, allocation: Allocation) -> Allocation:
        if allocation.bandwidth != WHOLE:
            raise InvalidInput("allocation", allocation.id, "release what has shares, then claim")
        return super().change(allocation)

    # -- owners ---------------------------------------------------------------

    def _claims(self, allocation: Allocation) -> list[Claim]:
        """The shares of links that an allocation holds."""
        groups, ppm = self.topology.groups, allocation.bandwidth
        claims = [Claim(group, uplinks, ppm) for group, _, uplinks in allocation.groups if uplinks]
        return claims + [
            Claim(groups + pod, lanes, ppm)
            for pod, lanes in allocation.spines_by_pod(self.topology)
        ]

    def _check_free(self, allocation: Allocation) -> None:
        if allocation.bandwidth == WHOLE:
            super()._check_free(allocation)
            return
        super()._check_free(_hosts_of(allocation))
        claims = self._claims(allocation)
        self.shares.check(claims)
        for row, links, _ in claims:
            free, usable, index = self._row(row)
            if links & ~(free[index] | self.shares.shared(row) & usable[index]):
                raise DoubleClaim(f"row {row}: a link is owned or down")

    def _row(self, row: int) -> tuple[list[int], list[int], int]:
        """The lists with the free and the usable links of a row, and its index there."""
        groups = self.topology.groups
        if row < groups:
            return self.free_uplinks, self.usable_uplinks, row
        return self.free_lanes, self.usable_lanes, row - groups

    def _take(self, allocation: Allocation) -> None:
        if allocation.bandwidth == WHOLE:
            super()._take(allocation)
            return
        super()._take(_hosts_of(allocation))
        claims = self._claims(allocation)
        self.shares.reserve(allocation.id, claims)
        for row, links, _ in claims:
            free, _, index = self._row(row)
            self.note(free, index)
            free[index] &= ~links

    def _give_back(self, allocation: Allocation) -> None:
        if allocation.bandwidth == WHOLE:
            super()._give_back(allocation)
            return
        super()._give_back(_hosts_of(allocation))
        for row, links, _ in self.shares.release(allocation.id):
            free, usable, index = self._row(row)
            self.note(free, index)
            free[index] |= links & usable[index] & ~self.shares.shared(row)
        if allocation.columns:
            self.mark_freed_spines()


def _hosts_of(allocation: Allocation) -> Allocation:
    """The same allocation without its links."""
    groups = tuple(share._replace(uplinks=0) for share in allocation.groups)
    return replace(allocation, groups=groups, columns=())
