# SPDX-License-Identifier: Apache-2.0

"""Placements beside which no packet of others has to cross the links of some owners.

Default routes keep off owned links where another way leads on (``routing.ways``), so whether some
pair has to cross a link follows from who holds hosts and links. Each placement is judged on a copy
of the ledger that has it, by ``crossed_links``: what is admitted is what is shown afterwards. The
tables of one state are made from those of the one before.

A placement is *harmful* if more pairs cross links of an owner that requires otherwise
(``LedgerView.undisturbed``). Those that a fault made cross are no reason to refuse.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import and_
from typing import TypeVar

from laas_service.domain.allocation import WHOLE, Allocation, NoFit, Refusal, Request
from laas_service.domain.constraints import Undisturbed
from laas_service.domain.crossed_links import CrossedLinks, LatestTables, crossed_links
from laas_service.domain.errors import DoubleClaim
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import Ledger, LedgerView, Masks
from laas_service.domain.topology import Link, bits

TRIES = 8
"""Placements that are judged for one request; each costs tables for the whole fabric."""

ASKED_FOR = "\0"
"""Stands for the id of the placement that is judged."""

Propose = Callable[[LedgerView], Allocation | NoFit]

Found = TypeVar("Found")


def is_judged(fabric: LedgerView, request: Request) -> bool:
    """Whether default routes decide about a request, or about where it is placed.

    Inside a container nothing changes for others: all that it holds is held.
    """
    if fabric.inventory is None or fabric.scope is not None or not request.kind.whole_hosts:
        return False
    return bool(fabric.undisturbed) or _wish(request) is not None


def judged(
    propose: Propose, fabric: LedgerView, request: Request, tries: int = TRIES
) -> Allocation | NoFit:
    """The first placement that harms nobody and is undisturbed as far as the request wants.

    ``propose`` is the policy; it is asked for other placements without some hosts and uplinks. Of
    those that are tried, a preferred one is crossed by the fewest pairs.
    """
    assert fabric.inventory is not None
    judge, wish = _Judge(fabric, fabric.inventory), _wish(request)
    best: tuple[int, Allocation] | None = None
    first: NoFit | None = None
    harmless, tried = False, 0
    for answer in _placements(propose, fabric, tries):
        if isinstance(answer, NoFit):
            first = answer
            break
        if answer.bandwidth != WHOLE:
            return answer
        tried += 1
        crossing, harmful = judge.crossing(answer)
        if harmful:
            continue
        harmless = True
        if wish is None or not crossing:
            return answer
        if best is None or crossing < best[0]:
            best = crossing, answer
    if first is not None:
        return first
    if best is not None and wish is Undisturbed.PREFER:
        return best[1]
    return _refusal(request, harmless, tried, None if best is None else best[0])


@dataclass(frozen=True)
class Disturbance:
    """What default routes do to a placement, and what it does to others."""

    crossing: int
    """Ordered pairs of ports of others whose packets have to cross its links."""

    others: int
    """Further pairs that have to cross links of any owner because of it; fewer if negative."""


def disturbance(
    fabric: LedgerView, request: Request, answer: Allocation | NoFit
) -> Disturbance | None:
    """What the answer to a judged request would meet; None of a refusal and of other requests."""
    if isinstance(answer, NoFit) or answer.bandwidth != WHOLE or not is_judged(fabric, request):
        return None
    assert fabric.inventory is not None
    judge = _Judge(fabric, fabric.inventory)
    after = judge.after(answer)
    own = after.pairs_by_owner.get(ASKED_FOR, 0)
    return Disturbance(own, after.crossing - judge.before.crossing)


def harm(fabric: LedgerView, changed: Allocation) -> NoFit | None:
    """Why an owner that ``fabric`` holds may not hold this instead; None if it may.

    While it changes it holds both placements, so both together are judged, too.
    """
    if fabric.inventory is None or fabric.scope is not None or not fabric.undisturbed:
        return None
    judge = _Judge(fabric, fabric.inventory)
    for held in dict.fromkeys((changed.joined(fabric.allocations[changed.id]), changed)):
        if judge.harms(held):
            return NoFit(Refusal.DISTURBS, f"with the new placement, {_HARM}")
    return None


def spared(
    fabric: LedgerView,
    choose: Callable[[Ledger], Found],
    held: Callable[[Found], Allocation | None],
    tries: int = TRIES,
) -> Found:
    """Links for an owner that ``fabric`` holds, which make no more pairs cross whoever forbids it.

    ``choose`` finds them on a copy of the ledger, in which some free links may be drained; ``held``
    gives all that the owner has with them, or None if nothing was found. If none of the links that
    are tried spare everybody, the first ones are taken: an owner needs them more than others need
    to be undisturbed.
    """
    first = choose(fabric.flattened())
    if fabric.inventory is None or fabric.scope is not None or not fabric.undisturbed:
        return first
    judge = _Judge(fabric, fabric.inventory)
    waiting, asked = deque([frozenset[Link]()]), {frozenset[Link]()}
    while waiting and tries:
        tries -= 1
        without = waiting.popleft()
        view = fabric.flattened()
        for link in without:
            view.drain_link(link)
        found = choose(view) if without else first
        has = held(found)
        if has is None:
            continue
        try:
            harmful = judge.harms(has)
        except DoubleClaim:
            return first  # earlier moves of a plan have to make its place free
        if not harmful:
            return found
        new = has.beyond(fabric.allocations[has.id]).links(fabric.topology)
        more = [without | {link} for link in new]
        waiting.extend(each for each in more if each not in asked)
        asked.update(more)
    return first


@dataclass
class _Judge:
    fabric: LedgerView
    inventory: Inventory

    def __post_init__(self) -> None:
        self.fabric.reader_cache(LatestTables)  # so that copies share it

    @cached_property
    def before(self) -> CrossedLinks:
        return crossed_links(self.fabric, self.inventory)

    def after(self, placement: Allocation) -> CrossedLinks:
        copy = self.fabric.copy()
        copy.claim(replace(placement, id=ASKED_FOR))
        return crossed_links(copy, self.inventory)

    def crossing(self, placement: Allocation) -> tuple[int, bool]:
        """The pairs that would cross links of the placement, and whether it is harmful."""
        after = self.after(placement)
        return after.pairs_by_owner.get(ASKED_FOR, 0), self.harmful(after)

    def harms(self, changed: Allocation) -> bool:
        """Whether it is harmful that an owner in the ledger holds exactly this."""
        copy = self.fabric.copy()
        copy.change(changed)
        return self.harmful(crossed_links(copy, self.inventory))

    def harmful(self, after: CrossedLinks) -> bool:
        return any(
            pairs > self.before.pairs_by_owner.get(id, 0)
            for id in self.fabric.undisturbed
            if (pairs := after.pairs_by_owner.get(id, 0))
        )


@dataclass(frozen=True)
class _Without:
    """Parts of the fabric that a placement is to leave alone."""

    groups: frozenset[int] = field(default_factory=frozenset)
    uplinks: int = 0
    """A mask of uplinks, the same at each leaf group."""

    def view(self, fabric: LedgerView) -> LedgerView:
        if not self.groups and not self.uplinks:
            return fabric
        whole = Masks.whole(fabric.topology)
        hosts = tuple(0 if g in self.groups else mask for g, mask in enumerate(whole.hosts))
        kept = (~self.uplinks,) * len(whole.uplinks)
        uplinks = tuple(map(and_, whole.uplinks, kept))
        return fabric.within(replace(whole, hosts=hosts, uplinks=uplinks))

    def further(self, fabric: LedgerView, answer: Allocation) -> Iterator[_Without]:
        """The same without another pod, an uplink of a placement, or a leaf group of it."""
        width = fabric.topology.groups_per_pod
        pods = {share.group // width for share in answer.groups}
        if fabric.topology.pods > 1:
            in_pods = {pod * width + leaf for pod in pods for leaf in range(width)}
            yield replace(self, groups=self.groups | in_pods)
        used = 0
        for share in answer.groups:
            used |= share.uplinks
        for up in bits(used):
            yield replace(self, uplinks=self.uplinks | 1 << up)
        for share in answer.groups:
            yield replace(self, groups=self.groups | {share.group})


def _placements(propose: Propose, fabric: LedgerView, tries: int) -> Iterator[Allocation | NoFit]:
    """The policy's placement, or its refusal; then other placements, each once."""
    waiting = deque([_Without()])
    asked, seen = {_Without()}, set[Allocation]()
    while waiting and tries:
        tries -= 1
        without = waiting.popleft()
        answer = propose(without.view(fabric))
        if isinstance(answer, NoFit):
            if not seen:
                yield answer
            continue
        if answer not in seen:
            seen.add(answer)
            yield answer
        new = [each for each in without.further(fabric, answer) if each not in asked]
        asked.update(new)
        waiting.extend(new)


_HARM = (
    "packets of hosts without an owner, or of services, would have to cross links of an "
    "allocation that requires to be undisturbed"
)


def _refusal(request: Request, harmless: bool, tried: int, least: int | None) -> NoFit:
    places = "the placement" if tried == 1 else f"each of the {tried} placements"
    if not harmless:
        detail = f"beside {places} that was tried for {request.hosts} hosts, {_HARM}"
        return NoFit(Refusal.DISTURBS, detail)
    detail = (
        f"links of {places} that was tried have to carry packets of others, which have no other "
        f"way: of {least} pairs of ports at best"
    )
    return NoFit(Refusal.NO_LEGAL_SHAPE, detail)


def _wish(request: Request) -> Undisturbed | None:
    return None if request.constraints is None else request.constraints.undisturbed
