# SPDX-License-Identifier: Apache-2.0

"""One search: the request, the fabric and the preference that its steps share, and its answer.

A policy lists the steps of its search in order: one leaf group, one pod, several pods, partial
leaves. Each step is a generator of legal placements, in ``one_leaf``, ``one_pod``,
``multi_pod`` and ``partial_leaves``. A placement is legal under the conditions (1) to (6) of
Jigsaw (HPDC'21), section 3.2, whose part for two levels is LaaS (ANCS'16), Theorem 2. Two
generalizations apply everywhere:

* taper (LaaS, section 3, over-subscription): D hosts on a leaf need ceil(D / O) uplinks, and
  f cables into an L2 switch from below need ceil(f / O) uplinks of it;
* rails: a *plane* has one field of uplinks that all its rails use alike, so an L2 switch gets
  a cable on each rail of its plane for every uplink chosen.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request, Shape
from laas_service.domain.constraints import ContentionFree, Within
from laas_service.domain.ledger import LedgerView
from laas_service.domain.routing.contention import contention_of
from laas_service.domain.search.best_fit import BestFit
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.known_fits import Known, KnownFits
from laas_service.domain.search.min_cost import WORK_FACTOR, MinCost
from laas_service.domain.search.misfits import Misfits
from laas_service.domain.search.preference import Preference
from laas_service.domain.search.shapes import Placement, most_pods, pods_of
from laas_service.domain.search.spine_bounds import SpineBounds


def too_few_hosts(fabric: LedgerView, asked: int) -> NoFit | None:
    """The refusal if fewer hosts are free than asked, else None."""
    free, lost = fabric.free_host_count, fabric.lost_host_count
    if asked <= free:
        return None
    text = f"{free} hosts free, {asked} asked"
    if asked <= free + lost:
        return NoFit(Refusal.FAULT, f"{text}; {lost} more are failed or drained")
    return NoFit(Refusal.TOO_FEW_HOSTS, text)


def is_plain(fabric: LedgerView, request: Request) -> bool:
    """Whether a request without wishes needs no uplinks in a single leaf group."""
    plain = request.constraints is None and request.packing is None and request.grain is None
    return plain and fabric.topology.rails == 1


def no_legal_shape(fabric: LedgerView, hosts: int, *, contention_free: bool = False) -> NoFit:
    """The refusal of a request for fewer hosts than are free."""
    return NoFit(
        Refusal.NO_LEGAL_SHAPE,
        f"{fabric.free_host_count} hosts free, {hosts} asked, but no leaf, pod or set of pods"
        " has them with enough free links in common"
        + " in a shape without contention"
        * contention_free,
    )


class Search:
    """What the steps of one search share, for one policy's request in one fabric.

    ``work`` is the budget in units of ``SearchBudget``. Within it the search is complete: a
    shape that has a legal placement gets one. A ``variant`` of a policy remembers its misfits
    apart from the policy's own.

    Constraints: only shapes that meet the request's ``within`` and ``spread`` are tried, and if
    it requires ``contention_free``, only shapes that are. With
    ``cheapest`` the preference is ``MinCost`` and the budget ``WORK_FACTOR`` times ``work``.
    """

    within: Within | None = None
    spread = 1
    contention_free = False
    preference: Preference
    _tried_in_several_pods: tuple[int, int] | None = None
    """The arguments of ``may_fit_several_pods``, if it was asked and a search may follow."""
    _spine_bounds: SpineBounds | None = None
    most_pods_tried = 1
    """The most pods of the shapes tried so far; only kept if ``spread`` is above 1."""

    def __init__(
        self, fabric: LedgerView, policy: str, request: Request, work: int, variant: str = ""
    ) -> None:
        constraints = request.constraints
        self.fabric = fabric
        self.topology = fabric.topology
        self.policy = policy
        self._misfits = fabric.reader_cache(Misfits)
        self._misfits_of = f"{policy} {variant}" if variant else policy
        self.request = request
        plain = constraints is None and request.grain is None
        self._known_fits = KnownFits.kept_with(fabric) if plain else None
        if constraints is not None:
            self.within, self.spread = constraints.place, constraints.least_pods
            self.contention_free = constraints.contention_free is ContentionFree.REQUIRE
        if constraints is not None and constraints.cheapest:
            self.budget = SearchBudget(work * WORK_FACTOR, request.budget)
            self.preference = MinCost(fabric)
        else:
            self.budget = SearchBudget(work, request.budget)
            self.preference = BestFit(fabric, self.budget, self._misfits, request.packing)

    # -- what steps ask -------------------------------------------------------

    @property
    def spine_bounds(self) -> SpineBounds:
        """The bounds on sets of pods, made when a step first asks for them."""
        if self._spine_bounds is None:
            self._spine_bounds = SpineBounds(self.fabric, self.budget)
        return self._spine_bounds

    @property
    def one_pod_allowed(self) -> bool:
        """Whether the constraints allow a placement on several leaf groups of one pod."""
        return self.spread == 1 and self.within is not Within.LEAF

    def fitting(self, shapes: Sequence[Shape], *, one_pod: bool = True) -> Sequence[Shape]:
        """The shapes that the request's grain allows, without contention if it requires that."""
        if grain := self.request.grain:
            size = self.request.hosts
            shapes = [shape for shape in shapes if grain.allows(shape, size, one_pod)]
        if not self.contention_free:
            return shapes
        return [shape for shape in shapes if contention_of(self.topology, shape).free]

    def allowed(self, shapes: Sequence[Shape]) -> Sequence[Shape]:
        """The shapes on several pods that meet the constraints and may still be chosen."""
        if self.within is not None:
            return ()
        if self.spread > 1:
            pods = [pods_of(shape) for shape in shapes]
            self.most_pods_tried = max(self.most_pods_tried, *pods, 1)
            shapes = [
                shape for shape, count in zip(shapes, pods, strict=True) if count >= self.spread
            ]
        return self.preference.improving(self.fitting(shapes, one_pod=False))

    def may_fit_several_pods(self, hosts: int, leaf_hosts: int) -> bool:
        """Whether full leaf groups may fit that are ``hosts`` hosts with a remainder leaf.

        The smallest leaf has ``leaf_hosts`` hosts. False if they are known not to fit. If not,
        and the request is refused, that is remembered.
        """
        if hosts >= self._misfits.in_several_pods(self.fabric):
            return False
        self._tried_in_several_pods = hosts, leaf_hosts
        return True

    def known_in_pod(self, pod: int) -> Known | None:
        """What ``KnownFits`` has of a pod, to add to; None if nothing is to be remembered."""
        known = self._known_fits
        return None if known is None else known.in_pod(self.fabric, pod)

    def known_in_several_pods(self) -> Known | None:
        """The same of several pods."""
        if self._known_fits is None or any(self.fabric.odd_groups):
            return None
        return self._known_fits.in_several_pods(self.fabric).placements

    # -- the answer -----------------------------------------------------------

    def answer(self, *steps: Iterator[Placement]) -> Allocation | NoFit:
        """The allocation that the preference chooses among the steps' placements, or a refusal.

        The steps run lazily, in order, and not at all if a refusal is known beforehand.
        """
        request = self.request
        if refusal := too_few_hosts(self.fabric, request.hosts):
            return refusal
        misfit = self._misfits.smallest(self._misfits_of, self.fabric.freed)
        if request.hosts >= misfit and self.spread == 1:
            return no_legal_shape(self.fabric, request.hosts, contention_free=self.contention_free)
        placement = self.preference.choose(chain.from_iterable(steps))
        if placement is None:
            return self._refusal()
        groups, columns, shape = placement
        return Allocation(request.id, request.hosts, self.policy, groups, columns, shape)

    def _refusal(self) -> NoFit:
        """The refusal after a search without a placement."""
        hosts = self.request.hosts
        if self.budget.exceeded:
            return NoFit(
                Refusal.BUDGET,
                f"{self.fabric.free_host_count} hosts free, {hosts} asked; the search"
                f" stopped after {self.budget.nodes} nodes, a placement may exist",
            )
        if self.spread > self.most_pods_tried:
            return self._too_few_pods()
        if self.spread == 1 and not self.contention_free:
            self._misfits.remember(self._misfits_of, self.fabric.freed, hosts)
            if self.within is None and self._tried_in_several_pods is not None:
                self._misfits.remember_in_several_pods(self.fabric, *self._tried_in_several_pods)
        return no_legal_shape(self.fabric, hosts, contention_free=self.contention_free)

    def _too_few_pods(self) -> NoFit:
        """The refusal if no shape of the policy lies in ``spread`` pods of any fabric."""
        hosts, topology, most = self.request.hosts, self.topology, 1
        text = (
            f"{self.policy} spreads {hosts} hosts over {self.most_pods_tried} of {topology.pods}"
            " pods at most"
        )
        if self.policy != "lc":
            most = most_pods(
                hosts, topology.hosts_per_group, topology.groups_per_pod, topology.pods
            )
        if self.spread <= most:
            text += f", as it has to fill leaves; lc spreads them over up to {most}"
        return NoFit(Refusal.CONSTRAINT, text)
