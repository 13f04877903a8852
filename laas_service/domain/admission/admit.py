# SPDX-License-Identifier: Apache-2.0

"""The admission step everyone shares: propose, then claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from laas_service.domain.admission.constrained import blamed, propose, view
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.constraints import Constraints
from laas_service.domain.errors import InvalidInput
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.policies.base import Policy

LOOKS = 256
"""Sizes tried one by one where a smaller size need not fit."""


def admit(
    policy: Policy,
    fabric: Ledger,
    request: Request,
    accept: Callable[[Allocation], bool] | None = None,
) -> Allocation | NoFit:
    """Propose and, if something fits and ``accept`` does not object, claim it.

    Raises:
        InvalidInput: the request asks for fewer than one host.
        NotFound: it names a parent that is no container here.
    """
    if request.hosts < 1:
        raise InvalidInput("hosts", request.hosts, "ask for at least 1 host")
    answer = offer(policy, fabric, request)
    if isinstance(answer, NoFit):
        return answer
    if accept is not None and not accept(answer):
        return NoFit(Refusal.OTHERS_WAIT, "the placement found would be in the way of another")
    fabric.claim(answer)
    return answer


def offer(policy: Policy, fabric: LedgerView, request: Request) -> Allocation | NoFit:
    """What the policy answers in the ledger that the request is for: the fabric's, or a
    container's. NotFound."""
    answer = propose(policy, fabric.ledger(request.parent), request)
    if isinstance(answer, Allocation):
        answer = replace(answer, parent=request.parent, container=request.container)
    return answer


def largest_fit(
    policy: Policy,
    fabric: LedgerView,
    below: int,
    constraints: Constraints | None = None,
    bandwidth: int | None = None,
) -> int:
    """The largest size under ``below`` that would fit now, 0 if none.

    For a monotone policy (if N fits, so does N - 1) bisection finds it;
    ``tests/unit/policies/test_contract.py`` holds policies to what they say. The
    others are asked size by size, except those that their refusals rule out. So is
    every policy under ``spread``, which a smaller size can miss: after ``LOOKS`` sizes
    bisection finds a size that fits, if not surely the largest.
    """
    if constraints is not None:
        constraints = constraints.musts
        fabric = view(fabric, constraints)
    if not policy.monotone:
        return _largest_by_size(policy, fabric, below, constraints, bandwidth)
    if constraints is None or constraints.spread == 1:
        return _largest_by_halves(policy, fabric, below, constraints, bandwidth)
    top = _largest_by_halves(policy, fabric, below, constraints.without("spread"), bandwidth)
    for size in range(top, max(0, top - LOOKS), -1):
        if _fits(policy, fabric, size, constraints, bandwidth):
            return size
    return _largest_by_halves(policy, fabric, top - LOOKS + 1, constraints, bandwidth)


def _fits(
    policy: Policy,
    fabric: LedgerView,
    size: int,
    constraints: Constraints | None,
    bandwidth: int | None,
) -> bool:
    request = Request("", size, constraints=constraints, bandwidth=bandwidth)
    return isinstance(policy.propose(fabric, request), Allocation)


def _largest_by_halves(
    policy: Policy,
    fabric: LedgerView,
    below: int,
    constraints: Constraints | None,
    bandwidth: int | None,
) -> int:
    fits, misfits = 0, min(below, fabric.free_host_count + 1)
    while misfits - fits > 1:
        middle = (fits + misfits) // 2
        if _fits(policy, fabric, middle, constraints, bandwidth):
            fits = middle
        else:
            misfits = middle
    return fits


def _largest_by_size(
    policy: Policy,
    fabric: LedgerView,
    below: int,
    constraints: Constraints | None,
    bandwidth: int | None,
) -> int:
    size = min(below - 1, fabric.free_host_count)
    while size > 0:
        request = Request("", size, constraints=constraints, bandwidth=bandwidth)
        answer = policy.propose(fabric, request)
        if isinstance(answer, Allocation):
            break
        size = size - 1 if answer.largest_fit is None else answer.largest_fit
    return max(size, 0)


def explain(policy: Policy, fabric: LedgerView, request: Request, refusal: NoFit) -> NoFit:
    """The refusal with the largest size that would fit now filled in.

    If it is the constraints that refuse, the reason says so and the detail which.
    """
    wish, bandwidth = request.constraints, request.bandwidth
    most = largest_fit(policy, fabric, request.hosts, wish, bandwidth)
    return replace(blamed(policy, fabric, request, refusal), largest_fit=most)
