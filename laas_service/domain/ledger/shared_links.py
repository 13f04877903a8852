# SPDX-License-Identifier: Apache-2.0

"""Shared links: who has how much of which link, and a fabric whose links can be shared.

Bandwidth is in parts per million (ppm) of a link's. The ledger of shares stands beside
the ledger of owners: a link has one owner, or any number of shares that add up to no more
than the cap, or is free. For the simulator and the planner; the service gives whole links.

Source: least constrained with link-sharing, Jigsaw (HPDC'21) 5.2.3 and 5.4.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from laas_service.domain.allocation import WHOLE, Allocation
from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound
from laas_service.domain.ledger.ledger import NEVER, Ledger
from laas_service.domain.topology import Topology, bits

CAP = 800_000
"""The most of a link that is shared out, ppm; above 80 percent delays grow (Jigsaw, 5.4.2)."""


class Claim(NamedTuple):
    """The same share of several links: of row ``row`` those in ``links``, ``ppm`` of each."""

    row: int
    links: int
    ppm: int


class Shares:
    """Shares of links by owner. Links are bits of rows, whatever these stand for.

    ``residual`` of a link is what may still be reserved of it: ``cap`` less all shares.

    Raises:
        InvalidInput: the cap is not within 1 .. 1,000,000 ppm.
    """

    def __init__(self, cap: int = CAP) -> None:
        if not 1 <= cap <= WHOLE:
            raise InvalidInput("cap", cap, f"give 1 to {WHOLE} parts per million of a link")
        self.cap = cap
        self._used: dict[int, dict[int, int]] = {}
        self._held: dict[str, tuple[Claim, ...]] = {}
        self._crowded: dict[int, dict[int, int]] = {}

    def copy(self) -> Shares:
        twin = Shares(self.cap)
        twin._used = {row: dict(used) for row, used in self._used.items()}
        twin._held = dict(self._held)
        twin._crowded = {ppm: dict(rows) for ppm, rows in self._crowded.items()}
        return twin

    def residual(self, row: int, link: int) -> int:
        """Ppm of a link that nobody has reserved, up to the cap."""
        return self.cap - self._used.get(row, {}).get(link, 0)

    def shared(self, row: int) -> int:
        """Mask of the links of a row of which somebody has a share."""
        return sum(1 << link for link in self._used.get(row, ()))

    def crowded(self, ppm: int) -> dict[int, int]:
        """By row, the mask of the links of which not so much is left; rows without are absent."""
        if ppm not in self._crowded:
            found = self._crowded[ppm] = {}
            for row, used in self._used.items():
                for link in used:
                    if self.residual(row, link) < ppm:
                        found[row] = found.get(row, 0) | 1 << link
        return self._crowded[ppm]

    def check(self, parts: Iterable[Claim]) -> None:
        """Nothing if this can be reserved.

        Raises:
            InvalidInput: a share is not within 1 ppm and the cap.
            DoubleClaim: some link has less left.
        """
        for row, links, ppm in parts:
            if not 1 <= ppm <= self.cap:
                raise InvalidInput("bandwidth", ppm, f"give 1 to {self.cap} ppm of a link")
            for link in bits(links):
                if self.residual(row, link) < ppm:
                    left = self.residual(row, link)
                    raise DoubleClaim(f"link {link} of row {row}: {left} ppm left, {ppm} asked")

    def reserve(self, owner: str, parts: Iterable[Claim]) -> None:
        """Give an owner shares of links, no link twice; all of them or, if it raises, none.

        Raises:
            InvalidInput, DoubleClaim: see ``check``; or the owner has shares already.
        """
        held = tuple(parts)
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
            NotFound: it has none.
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
        """Keep the masks of crowded links up."""
        left = self.residual(row, link)
        for ppm, rows in self._crowded.items():
            mask = rows.get(row, 0)
            rows[row] = mask | 1 << link if left < ppm else mask & ~(1 << link)


class SharedLedger(Ledger):
    """A ledger in which allocations may hold a share of their links instead of all of it.

    A link somebody has a share of is not free to those who want all of it. Rows of
    ``shares`` are the leaf groups, and after them the L2 switches as in ``free_spines``.
    """

    def __init__(self, topology: Topology, cap: int = CAP) -> None:
        self.shares = Shares(cap)
        super().__init__(topology)

    def copy(self) -> SharedLedger:
        twin = super().copy()
        assert isinstance(twin, SharedLedger)
        twin.shares = self.shares.copy()
        return twin

    def with_room(self, ppm: int) -> Ledger:
        """The fabric as it looks to one who wants so much of each link. For looking only."""
        view = Ledger.__new__(Ledger)
        view.__dict__.update(self.__dict__)
        crowded, groups = self.shares.crowded(ppm), self.topology.groups
        view.free_uplinks = [
            self._roomy(row, free, usable, crowded)
            for row, (free, usable) in enumerate(
                zip(self.free_uplinks, self._usable_uplinks, strict=True)
            )
        ]
        view.free_spines = [
            self._roomy(groups + index, free, usable, crowded)
            for index, (free, usable) in enumerate(
                zip(self.free_spines, self._usable_spines, strict=True)
            )
        ]
        view.misfits = {}
        view.pod_misfits = [NEVER] * self.topology.pods
        return view

    def _roomy(self, row: int, free: int, usable: int, crowded: dict[int, int]) -> int:
        """The links of a row with room: free, or shared and not crowded."""
        return free | self.shares.shared(row) & usable & ~crowded.get(row, 0)

    @contextmanager
    def trial(self) -> Iterator[None]:
        kept = self.shares
        self.shares = kept.copy()
        try:
            with super().trial():
                yield
        finally:
            self.shares = kept

    def change(self, allocation: Allocation) -> Allocation:
        if allocation.bandwidth != WHOLE:
            raise InvalidInput("allocation", allocation.id, "release what has shares, then claim")
        return super().change(allocation)

    # -- owners ---------------------------------------------------------------

    def _parts(self, allocation: Allocation) -> list[Claim]:
        width, groups = self.topology.columns_per_pod, self.topology.groups
        ppm = allocation.bandwidth
        parts = [Claim(group, uplinks, ppm) for group, _, uplinks in allocation.groups if uplinks]
        return parts + [
            Claim(groups + pod * width + column, uplinks, ppm)
            for pod, column, uplinks in allocation.columns
        ]

    def _check_free(self, wanted: Allocation) -> None:
        super()._check_free(wanted if wanted.bandwidth == WHOLE else _hosts_of(wanted))
        if wanted.bandwidth == WHOLE:
            return
        parts = self._parts(wanted)
        self.shares.check(parts)
        for row, links, _ in parts:
            masks, usable, index = self._row(row)
            there = masks[index] | self.shares.shared(row) & usable[index]
            if links & ~there:
                raise DoubleClaim(f"row {row}: a link is owned or down")

    def _row(self, row: int) -> tuple[list[int], list[int], int]:
        """Where the free and the usable links of a row are."""
        groups = self.topology.groups
        if row < groups:
            return self.free_uplinks, self._usable_uplinks, row
        return self.free_spines, self._usable_spines, row - groups

    def _take(self, wanted: Allocation) -> None:
        if wanted.bandwidth == WHOLE:
            super()._take(wanted)
            return
        super()._take(_hosts_of(wanted))
        parts = self._parts(wanted)
        self.shares.reserve(wanted.id, parts)
        for row, links, _ in parts:
            masks, _, index = self._row(row)
            self._note(masks, index)
            masks[index] &= ~links

    def _give_back(self, held: Allocation) -> None:
        if held.bandwidth == WHOLE:
            super()._give_back(held)
            return
        super()._give_back(_hosts_of(held))
        for row, links, _ in self.shares.release(held.id):
            masks, usable, index = self._row(row)
            self._note(masks, index)
            masks[index] |= links & usable[index] & ~self.shares.shared(row)


def _hosts_of(allocation: Allocation) -> Allocation:
    """The same without its links."""
    groups = tuple(share._replace(uplinks=0) for share in allocation.groups)
    return replace(allocation, groups=groups, columns=())
