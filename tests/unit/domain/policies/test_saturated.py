# SPDX-License-Identifier: Apache-2.0

"""A tree of 1,024 hosts, filled until it refuses: every permutation of a tenant has its links."""

from __future__ import annotations

from random import Random

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.ledger.shared_links import SharedLedger
from laas_service.domain.policies import PLANNING
from laas_service.domain.topology import Topology, Xgft
from laas_service.domain.verification import violations

TREE = Topology(Xgft((8, 8, 16), (1, 8, 8)))


@pytest.mark.parametrize("name", ["simple", "laas", "jigsaw", "lc", "lc-s"])
def test_random_permutations_take_one_flow_a_link(name):
    """Admit and release tenants until 60 are refused; then the judge routes those that remain."""
    rng = Random(name)
    fabric, policy = SharedLedger(TREE), PLANNING[name]()
    refused = number = 0
    while refused < 60:
        number += 1
        share = rng.choice((100_000, 200_000, 300_000, 400_000))
        size = 1 + int(rng.expovariate(1 / 16))
        answer = admit(policy, fabric, Request(f"t{number}", size, bandwidth=share))
        if not isinstance(answer, Allocation):
            refused += 1
            fabric.release(rng.choice(sorted(fabric.allocations)))
    live = fabric.allocations.values()
    assert fabric.free_host_count < TREE.hosts / 4
    assert sum(len(allocation.groups) > 1 for allocation in live) > 10
    with_spines = sum(bool(allocation.columns) for allocation in live)
    assert with_spines > (-1 if name == "simple" else 0)
    assert not violations(TREE, live, rng, permutations=5)
