# SPDX-License-Identifier: Apache-2.0

"""Proposals under constraints: the policy is asked on a ledger of the hosts that meet them.

Traits, costs and hosts or pods to avoid only remove hosts, so every policy can be used
unchanged and stays complete. ``within`` and ``spread`` of leaves and pods, ``cheapest`` and a
required ``contention_free`` restrict shapes: the policy reads them from the request. Constraints
on domains become questions of both kinds (``by_domain``). ``undisturbed`` is
judged on the whole placement, and so is what it does to others (``undisturbed``).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import and_

from laas_service.domain.admission import undisturbed
from laas_service.domain.admission.broken_domains import broken_first
from laas_service.domain.admission.by_domain import propose_by_domain, sums_of_domains
from laas_service.domain.allocation import HOSTS_ONLY, Allocation, Ground, NoFit, Refusal, Request
from laas_service.domain.constraints import Constraints, ContentionFree, Undisturbed, Within
from laas_service.domain.errors import InvalidInput
from laas_service.domain.ledger import Ledger, LedgerView, Masks
from laas_service.domain.policies.base import Policy
from laas_service.domain.routing.contention import contention
from laas_service.domain.topology import Topology
from laas_service.domain.wording import alike


def propose(
    policy: Policy, fabric: LedgerView, request: Request, tries: int = undisturbed.TRIES
) -> Allocation | NoFit:
    """What the policy answers under the request's constraints; nothing is changed.

    If the search for the cheapest placement exhausts its budget before it finds any, the
    policy is asked again for any placement that meets the other constraints. Where links of
    some owners may not be crossed, up to ``tries`` placements are judged.
    """
    if undisturbed.is_judged(fabric, request):
        answers = partial(_proposed, policy, request=request)
        return undisturbed.judged(answers, fabric, request, tries)
    return _proposed(policy, fabric, request)


def _proposed(policy: Policy, fabric: LedgerView, request: Request) -> Allocation | NoFit:
    """The answer, whoever's links packets cross beside it."""
    constraints = request.constraints
    if constraints is None:
        return _broken_first(fabric, fabric, policy.propose(fabric, request))
    if constraints.contention_free is ContentionFree.PREFER:
        return _preferably_without_contention(policy, fabric, request, constraints)
    constraints = for_policy(policy, constraints)
    request = replace(request, constraints=constraints)
    if constraints.by_domain:
        permitted = partial(permitted_hosts, fabric, constraints)
        return propose_by_domain(policy, fabric, permitted, request)
    view = restricted_view(fabric, constraints)
    answer = policy.propose(view, request)
    if isinstance(answer, NoFit) and answer.reason.unproven and constraints.cheapest:
        answer = policy.propose(view, replace(request, constraints=constraints.musts))
    return answer if constraints.cheapest else _broken_first(fabric, view, answer)


def _broken_first(
    fabric: LedgerView, view: LedgerView, answer: Allocation | NoFit
) -> Allocation | NoFit:
    return answer if isinstance(answer, NoFit) else broken_first(fabric, view, answer)


class ConstrainedPolicy:
    """Answers as ``policy`` does to requests that all have the same constraints beside their own.

    Without links of its own, no policy meets ``contention_free``; then it is left out.
    """

    def __init__(self, policy: Policy, contention_free: ContentionFree) -> None:
        self.name = policy.name
        self.isolating = policy.isolating
        self.monotone = policy.monotone and contention_free is ContentionFree.PREFER
        self._policy = policy
        owned = policy.isolating and policy.name not in HOSTS_ONLY
        self._wish = contention_free if owned else None

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        constraints = replace(request.constraints or Constraints(), contention_free=self._wish)
        if not constraints.names:
            return self._policy.propose(fabric, request)
        return propose(self._policy, fabric, replace(request, constraints=constraints))


def for_policy(policy: Policy, constraints: Constraints) -> Constraints:
    """The constraints with what ``contention_free`` and ``undisturbed`` mean for the policy.

    Hosts that own no links of their own meet no traffic only within a leaf.
    """
    required = [
        name
        for name, wish, require in (
            ("contention_free", constraints.contention_free, ContentionFree.REQUIRE),
            ("undisturbed", constraints.undisturbed, Undisturbed.REQUIRE),
        )
        if wish is require
    ]
    if not required or (policy.isolating and policy.name not in HOSTS_ONLY):
        return constraints
    if constraints.least_pods > 1 or constraints.by_domain:
        fix = f"leave it out, or choose another policy: {policy.name} owns no links across leaves"
        raise InvalidInput(f"constraints.{required[0]}", "require", fix)
    return replace(constraints, within=Within.LEAF)


def _preferably_without_contention(
    policy: Policy, fabric: LedgerView, request: Request, constraints: Constraints
) -> Allocation | NoFit:
    """The usual placement, or one without contention in no more pods and for no more cost."""
    others = constraints.without("contention_free")
    usual = _proposed(
        policy, fabric, replace(request, constraints=others if others.names else None)
    )
    topology, features = fabric.topology, fabric.features
    if isinstance(usual, NoFit) or contention(topology, usual).free:
        return usual
    if usual.policy in HOSTS_ONLY or not policy.isolating:
        return usual
    required = replace(constraints, contention_free=ContentionFree.REQUIRE)
    answer = _proposed(policy, fabric, replace(request, constraints=required))
    if isinstance(answer, NoFit) or _pods(topology, answer) > _pods(topology, usual):
        return usual
    if constraints.cheapest:
        costs = [features.cost(placed.hosts(topology)) for placed in (answer, usual)]
        return answer if costs[0] <= costs[1] else usual
    return answer


def _pods(topology: Topology, allocation: Allocation) -> int:
    return len({share.group // topology.groups_per_pod for share in allocation.groups})


def restricted_view(fabric: LedgerView, constraints: Constraints) -> Ledger:
    """A new ledger with only the hosts that meet the constraints, each host by itself.

    It is separate from ``fabric`` so that misfits cached for it hold under these constraints.
    """
    whole = Masks.whole(fabric.topology)
    masks = permitted_hosts(fabric, constraints)
    return fabric.copy() if masks == whole.hosts else fabric.within(replace(whole, hosts=masks))


def permitted_hosts(fabric: LedgerView, constraints: Constraints) -> tuple[int, ...]:
    """The hosts that meet the constraints on single hosts and on pods, as masks by leaf group."""
    topology, features = fabric.topology, fabric.features
    masks: Sequence[int] = Masks.whole(topology).hosts
    for trait in sorted(constraints.traits):
        masks = tuple(map(and_, masks, features.masks(topology, trait)))
    if constraints.max_host_cost is not None:
        masks = _without(masks, features.dearer(topology, constraints.max_host_cost))
    if constraints.avoid_hosts:
        masks = _without(masks, topology.positions_of(constraints.avoid_hosts))
    if constraints.avoid_pods:
        leaves = topology.tree.m[1]
        masks = tuple(
            0
            if any(leaf // leaves in constraints.avoid_pods for leaf in topology.leaves_of_group(g))
            else mask
            for g, mask in enumerate(masks)
        )
    return tuple(masks)


def check_constraints(fabric: LedgerView, constraints: Constraints) -> None:
    """Check that the hosts, pods, traits and kinds of domains named are those of this fabric.

    Raises:
        InvalidInput: the fabric lacks a host, a pod, a trait or a kind; names the field.
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
    if (least := constraints.least_pods) > topology.pods:
        raise InvalidInput("constraints.spread", least, f"the fabric has {topology.pods} pods")
    kinds = fabric.features.members
    for name, kind in constraints.kinds:
        if kind not in kinds:
            places = ["leaf", "pod"] if name == "within" else []
            fix = alike(kind, [*places, *sorted(kinds)], "the fabric")
            raise InvalidInput(f"constraints.{name}", kind, fix)
    for trait in sorted(constraints.traits - traits):
        fix = alike(trait, sorted(traits), "the fabric")
        raise InvalidInput("constraints.traits", trait, fix)


def hosts_of_domains(
    policy: Policy, fabric: LedgerView, constraints: Constraints, given: int | None
) -> int:
    """The hosts that a request for whole domains asks for.

    Where domains differ in size and no number is given, the least that fits now; if none does,
    the least of all.

    Raises:
        InvalidInput: no so many domains of the fabric have the number of hosts that is given.
    """
    assert constraints.domains is not None, "no whole domains are asked for"
    assert constraints.kind is not None, "Constraints has checked it"
    count = constraints.domains
    sizes = [d.size for d in fabric.features.domains(fabric.topology, constraints.kind)]
    sums = sorted(sums_of_domains(sizes, min(count, len(sizes))))
    if (missing := count - len(sizes)) > 0:
        sums = [sums[-1] + missing * size for size in sorted(set(sizes))]
    if given is not None:
        if given not in sums:
            asked = f"{count} domains of kind {constraints.kind}"
            hosts = f"{sums[0]}" if len(sums) == 1 else f"{sums[0]} to {sums[-1]}"
            raise InvalidInput("hosts", given, f"leave it out: {asked} have {hosts} hosts")
        return given
    for size in sums if len(sums) > 1 else ():
        request = Request("", size, constraints=constraints)
        if isinstance(propose(policy, fabric, request), Allocation):
            return size
    return sums[0]


def _without(masks: Sequence[int], excluded: Sequence[int]) -> tuple[int, ...]:
    return tuple(mask & ~out for mask, out in zip(masks, excluded, strict=True))


def explain_constraints(
    policy: Policy, fabric: LedgerView, request: Request, refusal: NoFit
) -> NoFit:
    """The refusal; if the request would fit without constraints, with those that prevent it."""
    constraints = request.constraints
    related = refusal.reason.facts.ground is Ground.FABRIC
    if constraints is None or not constraints.musts.names or not related:
        return refusal
    without = policy.propose(fabric, replace(request, constraints=None))
    if isinstance(without, NoFit):
        return replace(without, largest_fit=None)
    musts = constraints.musts
    preventing = [
        musts.described(name)
        for name in musts.names
        if isinstance(
            propose(policy, fabric, replace(request, constraints=musts.without(name))), Allocation
        )
    ]
    if preventing:
        which = f"constraint {' or without '.join(preventing)}"
    else:
        which = f"constraints {' and '.join(map(musts.described, musts.names))} together"
    detail = f"{request.hosts} hosts would fit without {which}; under constraints: {refusal.detail}"
    return replace(refusal, reason=Refusal.CONSTRAINT, detail=detail)
