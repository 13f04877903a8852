# SPDX-License-Identifier: Apache-2.0

"""Requests on domains against all sets of hosts: placements, refusals and largest fits."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from laas_service.domain.admission.admit import admit, explain
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.constraints import Constraints, Spread
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.verification import isolation_violations, shape_violations
from tests.unit.domain.policies.domains import Every, described, some_domains
from tests.unit.domain.policies.states import noisy_fabric
from tests.unit.domain.policies.test_brute_force import TREES

STATES = int(os.environ.get("LAAS_DOMAINS_STATES", "6"))
"""For each tree; 140 make more than two thousand in all."""

SEED = os.environ.get("LAAS_DOMAINS_SEED", "domains")

FORMS = ("domains", "per_domain", "within", "spread", "exclusive", "alone in domains")
EXACT = ("jigsaw", "lc")
"""Policies that never give more hosts than are asked for."""


def asked(form: str, size: int, rng: Random) -> tuple[Constraints, int]:
    """Constraints of a form, and a number that they have."""
    if form == "domains" or form == "alone in domains":
        number = rng.randint(1, 3)
        alone = form != "domains"
        return Constraints(domains=number, kind="k", exclusive=alone), number
    if form == "per_domain":
        number = rng.choice([n for n in (1, 2, 3) if not size % n])
        return Constraints(per_domain=number, kind="k"), number
    if form == "within":
        return Constraints(within="k"), 0
    if form == "spread":
        number = rng.randint(1, 4)
        return Constraints(spread=Spread("k", number)), number
    return Constraints(kind="k", exclusive=True), 0


def fits(every: Every, form: str, policy: str, size: int, number: int) -> bool:
    match form:
        case "domains" | "alone in domains":
            return every.whole(policy, number, size)
        case "per_domain":
            return every.each(policy, number, size)
        case "within":
            return every.within(policy, size)
        case "spread":
            return every.spread(policy, number, size)
    return every.unused().anywhere(policy, size)


def broken(fabric: Ledger, every: Every, form: str, number: int, answer: Allocation) -> str | None:
    hosts = set(answer.hosts(fabric.topology))
    used = {name: hosts.intersection(of) for name, of in every.named.items() if hosts & set(of)}
    inside = set().union(*used.values()) if used else set()
    if form in ("domains", "alone in domains"):
        whole = all(found == set(every.named[name]) for name, found in used.items())
        return None if whole and inside == hosts and len(used) == number else "not whole"
    if form == "per_domain":
        right = all(len(found) == number for found in used.values()) and inside == hosts
        return None if right else "not so many of each"
    if form == "within":
        return None if len(used) == 1 and inside == hosts else "not in one"
    if form == "spread":
        return None if len(used) >= number else "not spread"
    alone = not any(every.owned.intersection(every.named[name]) for name in used)
    return None if alone else "not alone"


def largest(every: Every, form: str, policy: str, size: int, number: int) -> int:
    if form in ("domains", "alone in domains"):
        return max(
            (
                smaller
                for smaller in range(1, size)
                for count in range(1, number + 1)
                if every.whole(policy, count, smaller)
            ),
            default=0,
        )
    for smaller in range(size - 1, 0, -1):
        if fits(every, form, policy, smaller, number):
            return smaller
    return 0


@pytest.mark.parametrize("tree", TREES)
def test_every_form_against_every_set_of_hosts(tree):
    topology, rng = TREES[tree], Random(f"{SEED} {tree}")
    outcomes: dict[Any, int] = {}
    for state in range(STATES):
        fabric = noisy_fabric(topology, rng)
        named = some_domains(fabric, rng)
        described(fabric, {"k": named})
        every = Every(fabric, named)
        for form in FORMS:
            policy = rng.choice(
                EXACT if form == "spread" else (*EXACT, "laas", "simple", "baseline")
            )
            size = rng.randint(1, min(8, topology.hosts))
            constraints, number = asked(form, size, rng)
            if form in ("domains", "alone in domains"):
                some = rng.sample(sorted(named), min(number, len(named)))
                size = sum(len(named[name]) for name in some)
                number = len(some)
                constraints = Constraints(domains=number, kind="k", exclusive=form != "domains")
            where = f"state {state}: {policy}, {form} {number}, {size} hosts of {named}"
            before = fabric.state()
            expected = fits(every, form, policy, size, number)
            answer = admit(POLICIES[policy](), fabric, Request("t", size, constraints=constraints))
            assert isinstance(answer, Allocation) == expected, f"{where}: {answer}"
            outcomes[form, expected] = outcomes.get((form, expected), 0) + 1
            if isinstance(answer, NoFit):
                assert fabric.state() == before
                request = Request("t", size, constraints=constraints)
                told = explain(POLICIES[policy](), fabric, request, answer)
                wanted = largest(every, form, policy, size, number)
                assert told.largest_fit == wanted, f"{where}: {told}"
                if Every(fabric, named).anywhere(policy, size):
                    assert told.reason is Refusal.CONSTRAINT, f"{where}: {told}"
                continue
            assert broken(fabric, every, form, number, answer) is None, f"{where}: {answer}"
            assert not shape_violations(topology, answer), where
            assert not isolation_violations(topology, fabric.allocations.values()), where
            fabric.release("t")
            assert fabric.state() == before
    assert {expected for _, expected in outcomes} == {True, False}


@pytest.mark.parametrize(
    "named", [{"a": [0, 3], "b": [1, 4], "c": [2, 5]}, {"a": [0, 1], "b": [3, 4], "c": [6, 7]}]
)
def test_hosts_without_links_are_also_those_of_whole_domains(named):
    fabric = Ledger(TREES["two levels"])
    described(fabric, {"k": named})
    for number in range(3):
        request = Request(f"t{number}", 2, constraints=Constraints(domains=1, kind="k"))
        answer = admit(POLICIES["baseline"](), fabric, request)
        assert isinstance(answer, Allocation)
        assert sorted(answer.hosts(fabric.topology)) in named.values()


@pytest.mark.parametrize(
    "tree", ["two levels", "three levels", "tapered leaves", "rails in planes"]
)
def test_whole_domains_that_are_alike_along_a_history(tree):
    """What a ledger keeps of one request for the next follows owners, faults and new domains."""
    topology, rng = TREES[tree], Random(f"{SEED} history {tree}")
    fabric = Ledger(topology)
    outcomes = set()
    for step in range(90):
        if step % 30 == 0:
            hosts = sorted(range(topology.hosts), key=topology.place_of)
            size = topology.hosts_per_group if step == 60 else 1
            named = {f"d{i}": hosts[i : i + size] for i in range(0, len(hosts), size)}
            named.pop(rng.choice(sorted(named)))
            fabric.describe_hosts(dict.fromkeys(hosts, HostFeatures()))
            described(fabric, {"k": named})
        _changed(fabric, rng, step)
        every, count = Every(fabric, named), rng.randint(1, 4)
        hosts_asked = count * size
        policy = rng.choice((*EXACT, "laas", "simple"))
        expected = every.whole(policy, count, hosts_asked)
        request = Request(f"w{step}", hosts_asked, constraints=Constraints(domains=count, kind="k"))
        before = list(fabric.allocations.values())
        answer = admit(POLICIES[policy](), fabric, request)
        where = f"step {step}: {policy}, {count} of {named}: {answer}"
        assert isinstance(answer, Allocation) == expected, where
        outcomes.add(expected)
        if isinstance(answer, Allocation):
            assert broken(fabric, every, "domains", count, answer) is None, where
            assert not shape_violations(topology, answer), where
            assert not isolation_violations(topology, [*before, answer]), where
            if rng.random() < 0.7:
                fabric.release(answer.id)
    assert outcomes == {True, False}


def _changed(fabric: Ledger, rng: Random, step: int) -> None:
    """Let a tenant come or go, or a host or link fail or be repaired."""
    change, topology = rng.randrange(6), fabric.topology
    if change == 0:
        admit(POLICIES["jigsaw"](), fabric, Request(f"t{step}", rng.randint(1, 3)))
    elif change in (1, 2) and fabric.allocations:
        fabric.release(rng.choice(sorted(fabric.allocations)))
    elif change == 3 and len(fabric.failed_hosts) < 3:
        fabric.fail_host(rng.randrange(topology.hosts))
    elif change == 4 and fabric.failed_hosts:
        fabric.repair_host(rng.choice(sorted(fabric.failed_hosts)))
    elif change == 5:
        for link in sorted(fabric.failed_links):
            fabric.repair_link(link)
        tree = topology.tree
        fabric.fail_link(tree.link_at(rng.randrange(tree.leaf_links)))
