# SPDX-License-Identifier: Apache-2.0

"""Verification of allocations and forwarding tables, independent of the code that made them.

This package uses the same values (topology, allocation, inventory) as the policies, the
ledger and the routing, but none of their code. Every function re-derives a promise from the
values and returns all violations: sentences that name the promise, the allocation and the
host or link. An empty list means that the promise holds.
"""

from collections.abc import Collection, Iterable
from random import Random

from laas_service.domain.allocation import Allocation
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.topology import Link, Topology
from laas_service.domain.verification.bandwidth import (
    adversarial_permutations,
    permutation_violations,
    random_permutation,
)
from laas_service.domain.verification.isolation import addressable, isolation_violations
from laas_service.domain.verification.keys import (
    ReadKeys,
    function_violations,
    key_violations,
    partition_violations,
)
from laas_service.domain.verification.shapes import shape_violations
from laas_service.domain.verification.shared import withheld_violations
from laas_service.domain.verification.sharing import slot_violations
from laas_service.domain.verification.walks import (
    Tables,
    Walks,
    credit_loop,
    physical_tables,
    walk_violations,
)

__all__ = [
    "ReadKeys",
    "Tables",
    "Walks",
    "adversarial_permutations",
    "credit_loop",
    "function_violations",
    "isolation_violations",
    "key_violations",
    "partition_violations",
    "permutation_violations",
    "physical_tables",
    "random_permutation",
    "shape_violations",
    "slot_violations",
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
    plane: CommonPlane = NO_PLANE,
) -> list[str]:
    """All violations by recorded allocations: isolation, common plane, shape, bandwidth.

    Each allocation is tried with the adversarial permutations and with ``permutations``
    random ones. ``walk_violations`` checks the tables of the switches.
    """
    allocations = list(allocations)
    broken = isolation_violations(topology, allocations, failed_hosts, failed_links)
    broken += withheld_violations(topology, allocations, plane)
    for allocation in (addressable(topology, allocation) for allocation in allocations):
        broken += shape_violations(topology, allocation)
        cases = adversarial_permutations(topology, allocation)
        hosts = allocation.hosts(topology)
        for number in range(permutations):
            cases[f"random {number}"] = random_permutation(hosts, random)
        broken += permutation_violations(topology, allocation, cases)
    return broken
