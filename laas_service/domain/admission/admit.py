# SPDX-License-Identifier: Apache-2.0

"""Admission: ask the policy for an allocation, then claim it; and the largest size that fits."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

from laas_service.domain.admission import undisturbed
from laas_service.domain.admission.by_domain import sums_of_domains, whole_domains
from laas_service.domain.admission.constrained import (
    explain_constraints,
    for_policy,
    propose,
    restricted_view,
)
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.constraints import Constraints, Undisturbed
from laas_service.domain.errors import InvalidInput
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.policies.base import Policy

SIZES_TRIED = 256
"""Sizes that ``largest_fit`` tries one by one where it is not monotone, before it bisects."""

OTHERS_WAIT = NoFit(Refusal.OTHERS_WAIT, "this placement would delay another request")


def admit(
    policy: Policy,
    fabric: Ledger,
    request: Request,
    accept: Callable[[Allocation], bool] | None = None,
) -> Allocation | NoFit:
    """Ask the policy for an allocation and claim it, unless ``accept`` refuses it.

    Raises:
        InvalidInput: the request asks for fewer than one host, or inside a container to be
            undisturbed.
        NotFound: its parent is no container of this fabric.
    """
    if request.hosts < 1:
        raise InvalidInput("hosts", request.hosts, "ask for at least 1 host")
    answer = propose_in_scope(policy, fabric, request)
    if isinstance(answer, NoFit):
        return answer
    if accept is not None and not accept(answer):
        return OTHERS_WAIT
    fabric.claim(answer)
    if requires_undisturbed(request.constraints):
        fabric.keep_undisturbed(answer.id)
    return answer


def requires_undisturbed(constraints: Constraints | None) -> bool:
    """Whether the owner keeps others from making packets cross its links."""
    return constraints is not None and constraints.undisturbed is Undisturbed.REQUIRE


def propose_in_scope(policy: Policy, fabric: LedgerView, request: Request) -> Allocation | NoFit:
    """What the policy answers on the fabric or in the container that the request names.

    Nothing is claimed.

    Raises:
        NotFound: the parent of the request is no container of this fabric.
        InvalidInput: it asks to be undisturbed inside a container, or where no cables are known.
    """
    parent = request.parent
    wish = None if request.constraints is None else request.constraints.undisturbed
    if parent is not None and wish is not None:
        fix = "ask it of the container: default routes tell apart what containers hold, no more"
        raise InvalidInput("constraints.undisturbed", wish.value, fix)
    if wish is not None and fabric.inventory is None:
        fix = "leave it out: the cables of this fabric are not known here"
        raise InvalidInput("constraints.undisturbed", wish.value, fix)
    view = fabric if parent == fabric.scope else fabric.ledger(parent)
    answer = propose(policy, view, request)
    if isinstance(answer, Allocation) and (parent is not None or request.kind.encloses):
        return replace(
            answer,
            parent=parent,
            container=request.container,
            sharing=request.sharing,
        )
    return answer


def largest_fit(
    policy: Policy,
    fabric: LedgerView,
    below: int,
    constraints: Constraints | None = None,
    bandwidth: int | None = None,
) -> int:
    """The largest size under ``below`` that would fit now; 0 if none would.

    For a monotone policy (if N fits, so does N - 1) bisection finds it;
    ``tests/unit/domain/policies/test_contract.py`` tests that policies are what they say.
    Other policies are asked size by size, without the sizes that their refusals rule out.
    Under ``spread``, and where ``contention_free`` is required, a smaller size may not fit
    although a larger one does. Then every policy is asked for up to ``SIZES_TRIED`` sizes one by
    one; after that, bisection finds a size that fits but may not be the largest. So it does where
    links of owners may not be crossed.
    """
    if constraints is not None and constraints.by_domain:
        return _largest_by_domain(policy, fabric, below, constraints.musts, bandwidth)
    asked = Request("", 1, constraints=constraints and constraints.musts, bandwidth=bandwidth)
    if undisturbed.is_judged(fabric, asked):
        return _largest_judged(policy, fabric, below, asked)
    if constraints is not None:
        constraints = for_policy(policy, constraints.musts)
        fabric = restricted_view(fabric, constraints)
    request = Request("", 1, constraints=constraints, bandwidth=bandwidth)
    if not policy.monotone:
        return _largest_by_size(policy, fabric, below, request)
    if constraints is None or (constraints.least_pods == 1 and not constraints.contention_free):
        return _largest_by_halves(policy, fabric, below, request)
    in_any_shape = constraints.without("spread").without("contention_free")
    anywhere = replace(request, constraints=in_any_shape)
    top = _largest_by_halves(policy, fabric, below, anywhere)
    for size in range(top, max(0, top - SIZES_TRIED), -1):
        if isinstance(policy.propose(fabric, replace(request, hosts=size)), Allocation):
            return size
    return _largest_by_halves(policy, fabric, top - SIZES_TRIED + 1, request)


def _largest_judged(policy: Policy, fabric: LedgerView, below: int, request: Request) -> int:
    """A size that harms nobody and is undisturbed; the first placement of each is judged."""

    def misfits(size: int) -> bool:
        answer = propose(policy, fabric, replace(request, hosts=size), tries=1)
        return isinstance(answer, NoFit)

    sizes = range(1, min(below, fabric.free_host_count + 1))
    return bisect_left(sizes, True, key=misfits)


def _largest_by_domain(
    policy: Policy, fabric: LedgerView, below: int, constraints: Constraints, bandwidth: int | None
) -> int:
    """``largest_fit`` under constraints on domains, which the sizes tried have as well."""

    def fits(size: int, constraints: Constraints = constraints) -> bool:
        request = Request("", size, constraints=constraints, bandwidth=bandwidth)
        return isinstance(propose(policy, fabric, request), Allocation)

    top = min(below - 1, fabric.free_host_count)
    if constraints.domains is not None:
        sizes = [d.size for d in whole_domains(fabric, constraints.kind or "")]
        sums = {
            (size, count)
            for count in range(min(constraints.domains, len(sizes)), 0, -1)
            for size in sums_of_domains(sizes, count)
            if size <= top
        }
        found = (
            size
            for size, count in sorted(sums, reverse=True)[:SIZES_TRIED]
            if fits(size, replace(constraints, domains=count))
        )
        return next(found, 0)
    step = constraints.per_domain or 1
    sizes_tried = range(top - top % step, 0, -step)
    simple = policy.monotone and not constraints.contention_free and constraints.least_pods == 1
    if simple and constraints.per_domain is None and constraints.kind_of_spread is None:
        return bisect_left(range(1, top + 1), True, key=lambda size: not fits(size))
    return next(filter(fits, sizes_tried[:SIZES_TRIED]), 0)


def _largest_by_halves(policy: Policy, fabric: LedgerView, below: int, request: Request) -> int:
    def misfits(size: int) -> bool:
        return isinstance(policy.propose(fabric, replace(request, hosts=size)), NoFit)

    sizes = range(1, min(below, fabric.free_host_count + 1))
    return bisect_left(sizes, True, key=misfits)


def _largest_by_size(policy: Policy, fabric: LedgerView, below: int, request: Request) -> int:
    size = min(below - 1, fabric.free_host_count)
    while size > 0:
        answer = policy.propose(fabric, replace(request, hosts=size))
        if isinstance(answer, Allocation):
            break
        size = size - 1 if answer.largest_fit is None else answer.largest_fit
    return max(size, 0)


def explain(policy: Policy, fabric: LedgerView, request: Request, refusal: NoFit) -> NoFit:
    """The refusal with the largest size that would fit now.

    If the request would fit without its constraints, the reason is ``CONSTRAINT`` and the
    detail names them.
    """
    largest = largest_fit(policy, fabric, request.hosts, request.constraints, request.bandwidth)
    explained = explain_constraints(policy, fabric, request, refusal)
    return replace(explained, largest_fit=largest)
