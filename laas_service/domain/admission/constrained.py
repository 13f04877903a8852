# SPDX-License-Identifier: Apache-2.0

"""Placing under constraints: the policy itself, in a view of the hosts that meet them.

Traits, costs and hosts or pods to avoid only take hosts away, so any policy serves
unchanged and stays complete. ``within``, ``spread`` and ``cheapest`` are about shapes:
the policy reads them from the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import and_

from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.constraints import Constraints
from laas_service.domain.errors import InvalidInput
from laas_service.domain.ledger import Ledger, LedgerView, Masks
from laas_service.domain.policies.base import Policy


def propose(policy: Policy, fabric: LedgerView, request: Request) -> Allocation | NoFit:
    """What the policy answers, the request's constraints met; nothing is changed.

    If the search for the cheapest runs out of its budget before it finds anything,
    any placement that meets the musts is taken.
    """
    wish = request.constraints
    if wish is None:
        return policy.propose(fabric, request)
    seen = view(fabric, wish)
    answer = policy.propose(seen, request)
    if isinstance(answer, NoFit) and answer.reason is Refusal.BUDGET and wish.cheapest:
        answer = policy.propose(seen, replace(request, constraints=wish.musts))
    return answer


def view(fabric: LedgerView, constraints: Constraints) -> Ledger:
    """A ledger of its own with only the hosts that each by itself meet the constraints.

    A policy may leave there what it learns about sizes under these constraints.
    """
    topology, features = fabric.topology, fabric.features
    masks: Sequence[int] = Masks.whole(topology).hosts
    for trait in sorted(constraints.traits):
        masks = tuple(map(and_, masks, features.masks(topology, trait)))
    if constraints.max_host_cost is not None:
        masks = _less(masks, features.dearer(topology, constraints.max_host_cost))
    if constraints.avoid_hosts:
        masks = _less(masks, Masks.of_hosts(topology, constraints.avoid_hosts).hosts)
    if constraints.avoid_pods:
        leaves = topology.tree.m[1]
        masks = tuple(
            0
            if any(leaf // leaves in constraints.avoid_pods for leaf in topology.leaves_of_group(g))
            else mask
            for g, mask in enumerate(masks)
        )
    whole = Masks.whole(topology)
    if masks == whole.hosts:
        return fabric.copy()
    return fabric.within(Masks(tuple(masks), whole.uplinks, whole.spines))


def check(fabric: LedgerView, constraints: Constraints) -> None:
    """Nothing if the constraints speak of what this fabric has.

    Raises:
        InvalidInput: a host, a pod or a trait that it does not have; names the field.
    """
    topology, traits = fabric.topology, fabric.features.traits
    pods = topology.tree.m[2]
    for host in sorted(constraints.avoid_hosts):
        if not 0 <= host < topology.hosts:
            fix = f"hosts are 0..{topology.hosts - 1}"
            raise InvalidInput("constraints.avoid_hosts", host, fix)
    for pod in sorted(constraints.avoid_pods):
        if not 0 <= pod < pods:
            raise InvalidInput("constraints.avoid_pods", pod, f"pods are 0..{pods - 1}")
    if constraints.spread > topology.pods:
        raise InvalidInput(
            "constraints.spread", constraints.spread, f"the fabric has {topology.pods} pods"
        )
    for trait in sorted(constraints.traits - traits):
        known = f"; known are {', '.join(sorted(traits))}" if traits else ""
        raise InvalidInput("constraints.traits", trait, f"name traits that hosts have{known}")


def _less(masks: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(mask & ~other for mask, other in zip(masks, others, strict=True))


def blamed(policy: Policy, fabric: LedgerView, request: Request, refusal: NoFit) -> NoFit:
    """The refusal, and if it would fit without constraints, which of them refuse it."""
    wish = request.constraints
    unblamed = (Refusal.BUDGET, Refusal.QUOTA, Refusal.OTHERS_WAIT)
    if wish is None or not wish.musts.names or refusal.reason in unblamed:
        return refusal
    without = policy.propose(fabric, replace(request, constraints=None))
    if isinstance(without, NoFit):
        return replace(without, largest_fit=None)
    musts = wish.musts
    culprits = [
        musts.described(name)
        for name in musts.names
        if isinstance(
            propose(policy, fabric, replace(request, constraints=musts.without(name))), Allocation
        )
    ]
    if culprits:
        which = f"constraint {' or without '.join(culprits)}"
    else:
        which = f"constraints {' and '.join(map(musts.described, musts.names))} together"
    detail = f"{request.hosts} hosts would fit without {which}; under constraints: {refusal.detail}"
    return replace(refusal, reason=Refusal.CONSTRAINT, detail=detail)
