# SPDX-License-Identifier: Apache-2.0

"""A tree of 1,024 hosts filled until it refuses: every tenant's permutations have links enough."""

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
    """Tenants come and go until 60 are refused; then the judge routes for each that is left."""
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
    assert sum(len(one.groups) > 1 for one in live) > 10
    assert sum(bool(one.columns) for one in live) > (name == "simple" and -1)
    assert not violations(TREE, live, rng, permutations=5)
