# SPDX-License-Identifier: Apache-2.0

"""Places of virtual clusters on the shared hosts of an allocation: the class ``shared``.

The policy keeps a ``RoutedSite`` for each allocation that shares its hosts. Whenever it is asked,
the site catches up with the ledger, at the cost of what has changed since. Searches run on a copy
of the site, so nobody waits for another one's search.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import is_
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from laas_service.domain.allocation import (
    MOST_SLOTS,
    Allocation,
    HeldSlots,
    NoFit,
    Promise,
    Refusal,
    Request,
    Sharing,
    SlotDemand,
)
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import LaasError, LimitExceeded, NotFound
from laas_service.domain.faults.degradation import Degraded, OverfullLink, SeparatedLeaves
from laas_service.domain.ledger import LedgerView
from laas_service.domain.sharing.cluster import Cluster, Demand, Embedding, Whole
from laas_service.domain.sharing.hose_load import cost_of_crossing
from laas_service.domain.sharing.link_promises import (
    Held,
    Promised,
    PromisedLoad,
    RoutedSite,
    amounts_of,
)
from laas_service.domain.sharing.migration import MachineMove, UnitMigration, planned
from laas_service.domain.sharing.mixed_placement import MIXED
from laas_service.domain.sharing.placement import (
    ALIKE,
    BUDGET,
    COST_OF_A_STEP,
    CUT_OFF,
    Engine,
    NotPlaced,
    Placed,
)
from laas_service.domain.sharing.routes import NO_ROUTE, Routes
from laas_service.domain.topology import Link

NAME = "shared"
"""The policy that allocations of the class have."""

MOST_STEPS = 400
"""States between moves that the search for an order looks at, about 0.3 ms each."""

SITES = 8
"""Sites that a policy keeps; the one that was not asked for longest is made anew."""


@dataclass
class _Kept:
    """A site, and what it was made of and holds."""

    part: Allocation
    failed: frozenset[Link]
    """The failed links of the whole fabric."""
    site: RoutedSite
    held: dict[str, Allocation] = field(default_factory=dict)


Ahead = Callable[[Callable[[], Iterator[None]]], None]
"""Takes steps when there is time; gets a function that begins them."""


class SharedSlots:
    """Places virtual clusters on the hosts that the allocation of a ledger shares.

    Safe to share between threads. ``ahead`` takes the steps that it is given when it has time, and
    may take them again. They read the forwarding tables of shared hosts, which otherwise the first
    look at each leaf does.
    """

    name: ClassVar[str] = NAME
    isolating: ClassVar[bool] = False
    monotone: ClassVar[bool] = False

    def __init__(self, ahead: Ahead = lambda steps: None) -> None:
        self._ahead = ahead
        self._sites: dict[tuple[str, bool], _Kept] = {}
        """By the id of the allocation that shares its hosts, and whether nobody has a slot."""
        self._lock = threading.Lock()

    def prepare(self, fabric: Callable[[], LedgerView]) -> None:
        """Make ready, ahead of requests, what those for slots of a ledger need.

        Nothing happens if nobody shares hosts there when the time has come.
        """

        def steps() -> Iterator[None]:
            with suppress(LaasError):
                self._site(fabric())  # makes it, or lets it catch up
            yield

        self._ahead(steps)

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        """Slots of least footprint that were found, or the binding host or link.

        The searches draw on the budget of the request, if it has one.

        Raises:
            NotFound: the ledger is of no allocation that shares its hosts.
        """
        wanted = request.demand
        demand = _bounded(fabric, wanted)
        site, budget = self._site(fabric), request.budget
        cluster, asked = _cluster(request.id, demand), wanted.slots
        answer = _engine(alike=demand.alike).embed(site, cluster, request_budget=budget)
        if isinstance(answer, NotPlaced):
            return _refusal(site, cluster, answer, budget, asked, alike=demand.alike)
        slots = _slots(site, demand, answer.plan)
        return Allocation(request.id, 0, NAME, (), parent=fabric.scope, slots=slots)

    def change(
        self,
        fabric: LedgerView,
        allocation: Allocation,
        demand: SlotDemand,
        budget: RequestBudget | None = None,
    ) -> Allocation | NoFit:
        """Other slots for an allocation: fewest moves, then least footprint.

        The moves, in order, keep all promises to others after each of them, with the demand that
        the allocation has until they are over. Less of everything moves nothing.

        Raises:
            NotFound: as ``propose``, or the ledger does not hold the allocation.
        """
        if allocation.kind.whole_hosts:
            raise NotFound("slots of allocation", allocation.id)
        asked, demand = demand.slots, _bounded(fabric, demand)
        site = self._site(fabric)
        answer = change_on(site, allocation, demand, request_budget=budget)
        if isinstance(answer, NotPlaced):
            alike = demand.alike and allocation.held_slots.demand.alike
            cluster = _cluster(allocation.id, demand)
            return _refusal(site, cluster, answer, budget, asked, alike=alike)
        return answer

    def trial(self, fabric: LedgerView, risk: float | None = None) -> RoutedSite:
        """A copy of the site of a ledger as it is now, by default with the risk that it has.

        Raises:
            NotFound: as ``propose``.
            InvalidInput: ``risk`` is out of the range of ``Sharing``.
        """
        site = self._site(fabric)
        return site if risk is None else site.at_risk(risk)

    def fits(
        self, fabric: LedgerView, demand: SlotDemand, budget: RequestBudget | None = None
    ) -> bool | None:
        """Whether a place is found for a new allocation; None if the budget ends the search.

        Raises: NotFound, as ``propose``.
        """
        demand = _bounded(fabric, demand)
        engine, site = _engine(alike=demand.alike), self._site(fabric)
        answer = engine.embed(site, _cluster("", demand), request_budget=budget)
        if isinstance(answer, Placed):
            return True
        return None if budget is not None and budget.cut else False

    def largest(
        self, fabric: LedgerView, demand: SlotDemand, budget: RequestBudget | None = None
    ) -> int:
        """The most slots with this demand for which a place is found; 0 if there is none.

        More may fit if the budget is cut then.

        Of demands that differ, so many of the first ones.

        Raises:
            NotFound: as ``propose``.
        """
        site, demand = self._site(fabric), _bounded(fabric, demand)
        free = min(_free(site), MOST_SLOTS)
        most = demand._replace(slots=free) if demand.alike else demand
        if not free:
            return 0
        engine = _engine(alike=demand.alike)
        largest, proven = engine.most(site, _cluster("", most), request_budget=budget)
        if budget is not None and not proven:
            budget.cut = True
        return largest

    def tenants(
        self,
        fabric: LedgerView,
        demand: SlotDemand,
        risk: float,
        most: int,
        budget: RequestBudget | None = None,
    ) -> int:
        """How many further tenants with this demand fit, if links had this risk; at most ``most``.

        They are placed one after the other, each as ``propose`` does. Nothing is claimed.

        Raises:
            NotFound: as ``propose``.
            InvalidInput: ``risk`` is out of the range of ``Sharing``.
        """
        trial, demand = self.trial(fabric, risk), _bounded(fabric, demand)
        embed = _engine(alike=demand.alike).embed
        for number in range(most):
            cluster = _cluster(f"further {number}", demand)
            answer = embed(trial, cluster, request_budget=budget)
            if isinstance(answer, NotPlaced):
                return number
            embedding = answer.plan.embedding
            if budget is not None:
                budget.spend(2 * cost_of_crossing(trial.routes, embedding) + demand.slots)
            trial.hold(Held(cluster, embedding, trial.promised(cluster, embedding)))
        return most

    def loads(self, fabric: LedgerView, only: Collection[str] | None = None) -> list[PromisedLoad]:
        """What each link promises to all sharers, ascending by link; it is as in ``Promise``.

        Where links have failed, the larger of what is promised without faults and what today's
        routes lead over the link. With ``only``, links that promise anything to these sharers, and
        what they promise to these.

        Raises:
            NotFound: as ``propose``.
        """
        site = self._site(fabric)
        if only is not None:
            for id in [id for id in site.clusters if id not in only]:
                site.release(id)
        return site.loads()

    def lacks(self, fabric: LedgerView, ids: Collection[str]) -> dict[str, Degraded]:
        """By id, what sharers lack while links and hosts are down, or promise more than they have.

        Those that lack nothing are left out.

        Raises:
            NotFound: as ``propose``, or one has no slots there.
        """
        site = self._site(fabric)
        found = {id: self._lacking(fabric, site, site.held(id)) for id in ids}
        return {id: degraded for id, degraded in found.items() if degraded != Degraded()}

    def _lacking(self, fabric: LedgerView, site: RoutedSite, held: Held) -> Degraded:
        routes = site.routes
        hosts = {routes.host_of(machine) for machine in held.counts}
        ours = held.promised.links[held.promised.links >= routes.without_faults]
        own = {routes.links[n // 2 - 1] for n in ours[ours < routes.of_hosts].tolist()}
        over = [
            OverfullLink(routes.name(load.link), load.occupancy * bandwidth, bandwidth)
            for load in site.of_links(held.promised.links)
            for bandwidth in [float(site.bandwidth[load.link])]
            if load.link != NO_ROUTE and load.occupancy > 1
        ]
        return Degraded(
            links=tuple(sorted(own & routes.failed, key=fabric.topology.tree.link_id)),
            hosts=tuple(sorted(hosts & fabric.failed_hosts)),
            apart=tuple(self._apart(site, held)),
            over=tuple(over),
        )

    def _apart(self, site: RoutedSite, held: Held) -> Iterator[SeparatedLeaves]:
        """The pairs of leaves of a sharer between which today's tables have no path."""
        routes, width = site.routes, site.routes.topology.tree.m[1]
        if NO_ROUTE not in held.promised.links:
            return
        machines = np.array(sorted(held.counts), dtype=np.int64)
        leaves = np.unique(routes.leaf_of[machines])
        lost = (routes.walk(leaves, machines) == NO_ROUTE).any(axis=2)
        pairs = {
            tuple(sorted((int(leaves[a]), int(routes.leaf_of[machines[b]]))))
            for a, b in zip(*np.nonzero(lost), strict=True)
        }
        for first, second in sorted(pairs):
            yield SeparatedLeaves(0, divmod(first, width), divmod(second, width))

    def _site(self, fabric: LedgerView) -> RoutedSite:
        """A copy of the site of a ledger as it is now."""
        part, sharing = _shared(fabric)
        with self._lock:
            failed = frozenset(fabric.failed_links)
            empty = not fabric.allocations
            whole = self._whole(fabric, part)
            other = self._kept(fabric, part, failed, not empty)
            kept = self._kept(fabric, part, failed, empty)
            if kept is None:
                if other is None:
                    lost = failed.intersection(part.links(fabric.topology))
                    known = fabric.inventory
                    names = known.host_names if known is not None else ()
                    if whole is not None and not lost:
                        routes = whole
                    else:
                        routes = Routes(fabric.topology, part, lost, names, whole)
                    self._ahead(routes.read_ahead)
                else:
                    routes = other.site.routes
                site = RoutedSite(routes, sharing.slots, sharing.bandwidth, sharing.risk)
                kept = self._sites[part.id, empty] = _Kept(part, failed, site)
            while len(self._sites) > SITES:
                del self._sites[next(iter(self._sites))]
            _catch_up(kept, fabric)
            return kept.site.copy()

    def _whole(self, fabric: LedgerView, part: Allocation) -> Routes | None:
        """The routes without faults of the part as it is now, if they are known."""
        for empty in (False, True):
            kept = self._sites.get((part.id, empty))
            if kept is not None and kept.part == part:
                routes = kept.site.routes.whole or kept.site.routes
                if routes.topology is fabric.topology:
                    return routes
        return None

    def _kept(
        self, fabric: LedgerView, part: Allocation, failed: frozenset[Link], empty: bool
    ) -> _Kept | None:
        """The site that is kept, moved to the end, if it is of the part as it is now."""
        kept = self._sites.pop((part.id, empty), None)
        if (
            kept is None
            or (kept.part is not part and kept.part != part)
            or kept.site.routes.topology is not fabric.topology
        ):
            return None
        if kept.failed != failed:
            if not kept.site.routes.numbers.keys().isdisjoint(kept.failed ^ failed):
                return None
            kept.failed = failed
        self._sites[part.id, empty] = kept
        return kept


def change_on(
    site: RoutedSite,
    allocation: Allocation,
    demand: SlotDemand,
    budget: int | None = BUDGET,
    request_budget: RequestBudget | None = None,
) -> Allocation | NoFit | NotPlaced:
    """As ``SharedSlots.change``, on a site that holds the slots of the allocation.

    Without a place that fits, the answer does not say what would fit. ``budget`` is that of the
    search, ``request_budget`` that of all searches for the request.
    """
    old = allocation.slots
    assert old is not None
    alike = demand.alike and old.demand.alike
    cluster = _cluster(allocation.id, demand)
    answer = _engine(alike=alike).change(site, cluster, budget, request_budget)
    kept = _given_back(site, cluster, alike=alike)
    if isinstance(answer, NotPlaced):
        # Less is given back whatever has failed; it loads no link more than before.
        return _with(allocation, _slots(site, demand, kept)) if kept is not None else answer
    slots = _slots(site, demand, answer.plan)
    if not answer.plan.moves:
        return _with(allocation, slots)
    if kept is not None:
        return _with(allocation, _slots(site, demand, kept))
    try:
        return _in_order(site, allocation, old, slots, answer.plan, request_budget)
    except LimitExceeded as error:
        return NotPlaced(str(error), False)


def _given_back(site: RoutedSite, cluster: Cluster, *, alike: bool) -> UnitMigration | None:
    """The plan without moves to a cluster that asks for no more than it holds; else None."""
    held = site.held(cluster.id)
    before, size = held.cluster.demands, len(cluster.demands)
    if size > len(before) or sum(held.counts.values()) != len(before):
        return None
    wanted, present = amounts_of(cluster), amounts_of(held.cluster)[:size]
    emptied = set(site.emptied.tolist())
    if (wanted > present).any() or not emptied.isdisjoint(held.counts):
        return None
    if not alike:
        on = {m: tuple(u for u in units if u < size) for m, units in held.embedding.items()}
        return UnitMigration(cluster, {m: units for m, units in on.items() if units})
    counts, gone = dict(held.counts), len(before) - size
    for machine in sorted(counts, key=lambda m: (counts[m], m)):
        leave = min(gone, counts[machine])
        counts[machine] -= leave
        gone -= leave
    counts = {machine: units for machine, units in counts.items() if units}
    return planned(site.tree, cluster, held.embedding, counts)


def _in_order(
    site: RoutedSite,
    allocation: Allocation,
    old: HeldSlots,
    new: HeldSlots,
    plan: UnitMigration,
    budget: RequestBudget | None,
) -> Allocation | NoFit:
    """The new slots with moves in an order that keeps all promises, and what they need.

    Raises: LimitExceeded.
    """
    order = _ordered(site, _cluster(allocation.id, old.demand), plan, budget)
    if isinstance(order, str):
        detail = f"{len(plan.moves)} virtual machines would move, and in no order does "
        detail += f"{order} keep what it promises to others"
        return NoFit(Refusal.BANDWIDTH, detail, cut_off=True)  # other moves may have an order
    moves, needed = order
    routes = site.routes
    hosts = tuple((m.unit, routes.host_of(m.source), routes.host_of(m.target)) for m in moves)
    passing = _promises(site, needed)
    slots = HeldSlots(new.demand, new.units, new.promised, hosts, passing)
    after = site.promised(plan.cluster, plan.embedding)
    both = _most(site, [site.held(allocation.id).promised, needed, after])
    for link in site.overloaded(allocation.id, both).tolist():
        detail = f"while virtual machines move, {routes.name(link)} cannot promise the old "
        fix = "and the new demand at once; change slots first, then the demand"
        return NoFit(Refusal.BANDWIDTH, f"{detail}{fix}", cut_off=True)
    return _with(allocation, slots)


def _catch_up(kept: _Kept, fabric: LedgerView) -> None:
    """Hold what the owners of the ledger hold, and close hosts that are down or drained."""
    site, wanted = kept.site, fabric.allocations
    same = map(is_, kept.held.values(), map(wanted.get, kept.held))
    for id in [id for id, known in zip(kept.held, same, strict=True) if not known]:
        if wanted.get(id) == kept.held[id]:
            kept.held[id] = wanted[id]
            continue
        site.release(id)
        del kept.held[id]
    for id in [id for id in wanted if id not in kept.held] if len(kept.held) != len(wanted) else ():
        site.hold(held_by(site, wanted[id]))
        kept.held[id] = wanted[id]
    down = fabric.failed_hosts | fabric.drained_hosts
    own = set(site.routes.hosts).intersection(down) if down else ()
    closed = [site.routes.machine_of(host) for host in sorted(own)]
    site.closed = np.array(closed, dtype=np.int64)


def held_by(site: RoutedSite, allocation: Allocation) -> Held:
    """What an allocation with slots holds: what it can put on each link by the tables.

    Records have what it held when it was admitted. They stand where tables do not tell: while
    virtual machines move, and for the choice of a cover where demands differ.
    """
    slots, routes = allocation.held_slots, site.routes
    embedding = {routes.machine_of(host): units for host, units in slots.units}
    cluster = _cluster(allocation.id, slots.demand)
    settled = sorted(u for units in embedding.values() for u in units) == [
        *range(slots.demand.slots)
    ]
    if settled and slots.demand.alike:
        return Held(cluster, embedding, site.promised(cluster, embedding))
    recorded = _promised(routes, slots.promised)
    if settled and routes.whole is None:
        now = site.promised(cluster, embedding)
        same = set(now.links.tolist()) == set(recorded.links.tolist())
        return Held(cluster, embedding, recorded if same else now)
    if routes.whole is None:
        return Held(cluster, embedding, recorded)
    now = site.promised(cluster, embedding)
    of_whole = now.links >= routes.without_faults
    if settled and set(now.links[of_whole].tolist()) != set(recorded.links.tolist()):
        return Held(cluster, embedding, now)
    today = Promised(now.links[~of_whole], _at(now, ~of_whole))
    return Held(cluster, embedding, _most(site, [today, recorded]))


def _at(promised: Promised, which: NDArray[np.bool_]) -> tuple[Whole, Whole, Whole]:
    certain, mean, variance = (amounts[which] for amounts in promised.amounts)
    return certain, mean, variance


def _most(site: RoutedSite, promises: Sequence[Promised]) -> Promised:
    """On each link, the most of any of these."""
    most = np.zeros((3, site.routes.count), dtype=np.int64)
    for links, amounts in promises:
        most[:, links] = np.maximum(most[:, links], amounts)
    (links,) = np.nonzero(most.any(axis=0))
    certain, mean, variance = most[:, links]
    return Promised(links, (certain, mean, variance))


def _promised(routes: Routes, promises: tuple[Promise, ...]) -> Promised:
    links = np.array([routes.number_of[p.link] for p in promises], dtype=np.int64)
    amounts = np.array([p[1:] for p in promises], dtype=np.int64).reshape(-1, 3).T
    return Promised(links, (amounts[0], amounts[1], amounts[2]))


def _engine(*, alike: bool) -> Engine:
    return ALIKE if alike else MIXED


def _cluster(id: str, demand: SlotDemand) -> Cluster:
    return Cluster(id, tuple(Demand(mean, deviation**2) for mean, deviation in demand.each))


def _with(allocation: Allocation, slots: HeldSlots) -> Allocation:
    return Allocation(allocation.id, 0, NAME, (), parent=allocation.parent, slots=slots)


def _slots(site: RoutedSite, demand: SlotDemand, plan: UnitMigration) -> HeldSlots:
    """The slots of a plan, and what links promise."""
    promised = _promises(site, site.promised(plan.cluster, plan.embedding))
    units = sorted((site.routes.host_of(m), on) for m, on in plan.embedding.items() if on)
    return HeldSlots(demand, tuple(units), promised)


def _promises(site: RoutedSite, promised: Promised) -> tuple[Promise, ...]:
    """As they are recorded: by the tables without faults."""
    kept = promised.links >= site.routes.without_faults
    links = site.routes.physical[promised.links[kept]]
    rows = np.stack([links, *_at(promised, kept)], axis=1)
    return tuple(Promise(*row) for row in rows[np.argsort(links)].tolist())


def _ordered(
    site: RoutedSite, cluster: Cluster, plan: UnitMigration, budget: RequestBudget | None
) -> tuple[list[MachineMove], Promised] | str:
    """Moves in an order in which the cluster fits after each, and what it needs in all.

    Tries all orders, none through a set of moves that led nowhere; if none fits, names the link
    that is in the way.

    Raises: LimitExceeded.
    """
    size, amounts = len(cluster.demands), amounts_of(cluster)
    start = site.held(cluster.id).embedding
    dead, tried, name = set[frozenset[MachineMove]](), 0, ""
    order, needed = list[MachineMove](), list[Promised]()
    left, places, waiting = list(plan.moves), [start], [iter(plan.moves)]
    while left:
        move = next(waiting[-1], None)
        if move is None:
            if not order:
                return name
            dead.add(frozenset(order))
            waiting.pop()
            places.pop()
            needed.pop()
            left.append(order.pop())
            continue
        if frozenset((*order, move)) in dead:
            continue
        cost = COST_OF_A_STEP + 4 * size + 2 * cost_of_crossing(site.routes, places[-1])
        tried += 1
        if tried > MOST_STEPS or (budget is not None and not budget.spend(cost)):
            raise LimitExceeded(CUT_OFF)
        place = _after(places[-1], move)
        promised = site.promised(cluster, place, amounts)
        over = site.overloaded(cluster.id, promised).tolist()
        if over:
            name = name or site.routes.name(over[0])
            continue
        order.append(move)
        left.remove(move)
        places.append(place)
        needed.append(promised)
        waiting.append(iter(sorted(left)))
    return order, _most(site, needed)


def _after(embedding: Embedding, move: MachineMove) -> Embedding:
    """The units on each machine after a move."""
    after = dict(embedding)
    after[move.source] = tuple(unit for unit in after[move.source] if unit != move.unit)
    after[move.target] = (*after.get(move.target, ()), move.unit)
    return {machine: units for machine, units in after.items() if units}


def _shared(fabric: LedgerView) -> tuple[Allocation, Sharing]:
    """The allocation that a ledger is of, and how it shares its hosts. Raises: NotFound."""
    part = fabric.part
    if part is None:
        raise NotFound("shared hosts in", fabric.scope)
    return part, part.terms


def _free(site: RoutedSite) -> int:
    """Free slots of hosts that are not closed."""
    return int(np.delete(site.free, site.closed).sum())


def _bounded(fabric: LedgerView, demand: SlotDemand) -> SlotDemand:
    """The demand; of more slots than the hosts have in all, one more than they have.

    So nothing that is built of it is larger than the hosts, and it is refused all the same.

    Raises:
        NotFound: the ledger is of no allocation that shares its hosts.
    """
    part, sharing = _shared(fabric)
    most = part.size * sharing.slots + 1
    if demand.slots <= most:
        return demand
    bandwidth, deviation = (
        amounts[:most] if isinstance(amounts, tuple) else amounts
        for amounts in (demand.bandwidth, demand.deviation)
    )
    return SlotDemand(most, bandwidth, deviation)


def _refusal(
    site: RoutedSite,
    cluster: Cluster,
    refused: NotPlaced,
    budget: RequestBudget | None,
    asked: int,
    *,
    alike: bool,
) -> NoFit:
    """The refusal of ``asked`` slots with the binding link, or the number of free slots, and what
    fits."""
    binding = refused.binding.replace(f"{len(cluster.demands)} asked", f"{asked} asked")
    detail = f"{asked} slots: {binding}"
    if budget is not None and budget.cut:
        return NoFit(Refusal.BUDGET, detail, 0, cut_off=True)
    most, exact = _engine(alike=alike).most(site, cluster, request_budget=budget)
    held = site.clusters.get(cluster.id)
    free = _free(site) + (sum(held.counts.values()) if held is not None else 0)
    few = free < len(cluster.demands)
    reason = Refusal.TOO_FEW_SLOTS if few else Refusal.BANDWIDTH
    cut_off = not refused.proven or not exact or (budget is not None and budget.cut)
    return NoFit(reason, detail, most, cut_off=cut_off)
