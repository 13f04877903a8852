# SPDX-License-Identifier: Apache-2.0

"""The cost of a common plane to tenants, and the leaves that it does not reach."""

from collections.abc import Collection
from dataclasses import dataclass

from laas_service.domain.admission.admit import largest_fit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.budget import UNBOUNDED, RequestBudget
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.inventory import Inventory, Switch
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.policies.base import BudgetedPolicy, Policy
from laas_service.domain.topology import LeafLink


@dataclass(frozen=True, slots=True)
class Cost:
    """The capacity of a fabric without tenants under one policy."""

    policy: str

    largest: int
    """Hosts of the largest allocation that fits."""

    beyond_leaf: int
    """Hosts of all tenants larger than a leaf, if the largest that fits is placed repeatedly."""

    cut_off: bool = False
    """Whether the budget ran out; ``largest`` and ``beyond_leaf`` may then be higher."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The links of a plane, and where it cannot keep shared traffic off tenants' links."""

    plane: CommonPlane

    leaf_links: int
    """How many leaf links it has, without absent ones."""

    spine_links: int
    """How many spine links it has, without absent ones."""

    unreached: tuple[Switch, ...]
    """Leaves with adapters but without a working leaf link of the plane: their shared traffic
    uses any links."""

    mixed: tuple[Switch, ...]
    """Spines of the plane that are also above L2 indices of tenants: they send packets for a
    tenant's port down that tenant's links."""


def costs(
    fabric: LedgerView, plane: CommonPlane, policies: Collection[Policy], work: int = UNBOUNDED
) -> list[tuple[Cost, Cost]]:
    """For each policy, the capacity with the present plane and with ``plane``.

    The fabric is taken without tenants; faults and drains stay. Each of these searches gets an
    equal share of ``work``, in units of ``RequestBudget``.
    """
    present = without_tenants(fabric, fabric.shared_plane)
    changed = without_tenants(fabric, plane)
    share = work // (2 * len(policies))
    return [
        (
            _cost(policy, present.copy(), RequestBudget(share)),
            _cost(policy, changed.copy(), RequestBudget(share)),
        )
        for policy in policies
    ]


def without_tenants(fabric: LedgerView, plane: CommonPlane) -> Ledger:
    """The fabric without tenants, with ``plane`` withheld."""
    empty = fabric.flattened()
    for id in tuple(empty.allocations):
        empty.release(id)
    empty.withhold(plane)
    return empty


def _cost(unbounded: Policy, empty: Ledger, meter: RequestBudget) -> Cost:
    policy = BudgetedPolicy(unbounded, meter)
    largest = size = largest_fit(policy, empty, empty.free_host_count + 1)
    beyond = 0
    while size > empty.topology.hosts_per_group:
        answer = policy.propose(empty, Request(f"{beyond}", size))
        if not isinstance(answer, Allocation):
            break  # the search for the largest size found it, this one exhausted its budget
        empty.claim(answer)
        beyond += answer.size
        size = largest_fit(policy, empty, size + 1)
    return Cost(policy.name, largest, beyond, meter.cut)


def reach(fabric: LedgerView, inventory: Inventory, plane: CommonPlane) -> Reach:
    """The links of a plane in the present state of the fabric."""
    tree, topology = fabric.topology.tree, fabric.topology
    links = [link for link in plane.links(tree) if link not in topology.absent_links]
    cables = {link: inventory.cable_of_link.get(link) for link in links}
    working = {
        cable.lower.guid
        for link, cable in cables.items()
        if cable is not None and link not in fabric.failed_links and isinstance(link, LeafLink)
    }
    with_adapters = {endpoint.at.guid for endpoint in inventory.endpoints} if plane.l2 else set()
    spines = {
        cable.upper.guid
        for link, cable in cables.items()
        if cable is not None and not isinstance(link, LeafLink)
    }
    tenant_spines = {
        cable.upper.guid
        for link, cable in inventory.cable_of_link.items()
        if not isinstance(link, LeafLink)
        and not plane.withholds(tree, link)
        and link.l2 not in plane.l2
    }
    return Reach(
        plane,
        sum(isinstance(link, LeafLink) for link in links),
        sum(not isinstance(link, LeafLink) for link in links),
        tuple(s for s in inventory.switches if s.level == 1 and s.guid in with_adapters - working),
        tuple(s for s in inventory.switches if s.guid in spines & tenant_spines),
    )
