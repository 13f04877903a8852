# SPDX-License-Identifier: Apache-2.0


"""The judge: re-derives every promise from scratch, collecting all that is wrong.

It shares the vocabulary (topology, allocation, inventory) with the policies, the
ledger and the routing, and no code. Every function returns sentences that name
the promise, the allocation and the host or link; none means sound.
"""

from collections.abc import Collection, Iterable
from random import Random

from laas_service.domain.allocation import Allocation
from laas_service.domain.shared_plane import NO_PLANE, SharedPlane
from laas_service.domain.topology import Link, Topology
from laas_service.domain.verification.bandwidth import (
    adversarial_permutations,
    permutation_violations,
    random_permutation,
)
from laas_service.domain.verification.isolation import addressable, isolation_violations
from laas_service.domain.verification.shapes import shape_violations
from laas_service.domain.verification.shared import withheld_violations
from laas_service.domain.verification.walks import (
    Tables,
    Walks,
    credit_loop,
    physical_tables,
    walk_violations,
)

__all__ = [
    "Tables",
    "Walks",
    "adversarial_permutations",
    "credit_loop",
    "isolation_violations",
    "permutation_violations",
    "physical_tables",
    "random_permutation",
    "shape_violations",
    "violations",
    "walk_violations",
]


def violations(
    topology: Topology,
    allocations: Iterable[Allocation],
    random: Random,
    *,
    permutations: int = 3,
    failed_hosts: Collection[int] = (),
    failed_links: Collection[Link] = (),
    plane: SharedPlane = NO_PLANE,
) -> list[str]:
    """Every promise about what is recorded that does not hold; empty means sound.

    Each allocation is tried with the adversarial permutations and that many random
    ones. What the switches hold is another question: ``walk_violations``.
    """
    allocations = list(allocations)
    found = isolation_violations(topology, allocations, failed_hosts, failed_links)
    found += withheld_violations(topology, allocations, plane)
    for allocation in (addressable(topology, allocation) for allocation in allocations):
        found += shape_violations(topology, allocation)
        tried = adversarial_permutations(topology, allocation)
        hosts = allocation.hosts(topology)
        for number in range(permutations):
            tried[f"random {number}"] = random_permutation(hosts, random)
        found += permutation_violations(topology, allocation, tried)
    return found
