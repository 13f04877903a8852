# SPDX-License-Identifier: Apache-2.0

"""No policy places more hosts than the limits say, whatever it was asked before."""

from __future__ import annotations

from random import Random

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.policies.laas import Laas
from laas_service.domain.policies.simple import Simple
from laas_service.domain.search.known_fits import KnownFits
from laas_service.domain.search.size_bounds import most_that_may_fit, surely_in_pod
from laas_service.domain.topology import Topology, Xgft

TREE = Topology(Xgft((2, 4, 4), (1, 2, 3)))  # 4 pods of 4 leaves of 2 hosts
POLICIES = (Laas(), Jigsaw(), Jigsaw(two_pods=True), Simple())


@pytest.mark.parametrize("policy", POLICIES, ids=["laas", "jigsaw", "two pods", "simple"])
def test_limits_agree_with_what_the_policy_answers(policy):
    told = set[str]()
    for seed in range(60):
        rng, ledger = Random(seed), Ledger(TREE)
        ledger.reader_cache(KnownFits)
        for step in range(40):
            if ledger.allocations and rng.random() < 0.4:
                ledger.release(rng.choice(sorted(ledger.allocations)))
            admit(policy, ledger, Request(f"{step}", rng.randint(1, 12)))
            most = most_that_may_fit(ledger, policy.name)
            asked = ledger.copy()
            asked.reader_caches.clear()
            for hosts in range(1, ledger.free_host_count + 1):
                answer = policy.propose(asked, Request("x", hosts))
                if isinstance(answer, NoFit):
                    continue
                assert hosts <= most, (seed, step)
                pods = {share.group // TREE.groups_per_pod for share in answer.groups}
                if len(answer.groups) > 1 and len(pods) == 1:
                    told.add("in a pod")
            if most < ledger.free_host_count:
                told.add("less than is free")
            if policy.name != "simple":
                check_pods(policy, ledger, asked, (seed, step))
    assert "in a pod" in told
    assert ("less than is free" in told) == (policy.name != "simple")


def check_pods(policy, ledger, asked, where):
    """A pod of which it is said that it surely has so many hosts has them in a legal shape."""
    width = TREE.groups_per_pod
    for pod in range(TREE.pods):
        alone = asked.copy()
        for group in range(TREE.groups):
            if group // width != pod:
                alone.set_free_hosts(group, 0)
        for hosts in range(1, TREE.hosts_per_group * width + 1):
            if surely_in_pod(ledger, pod, hosts):
                assert isinstance(policy.propose(alone, Request("x", hosts)), Allocation), where
