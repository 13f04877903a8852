# SPDX-License-Identifier: Apache-2.0

"""What a shared plane costs, and where it does not reach: for the operator who chooses one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from laas_service.domain.admission.admit import largest_fit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.budget import UNBOUNDED, RequestBudget
from laas_service.domain.inventory import Inventory, Switch
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.policies.base import BudgetedPolicy, Policy
from laas_service.domain.shared_plane import SharedPlane
from laas_service.domain.topology import LeafLink


@dataclass(frozen=True, slots=True)
class Cost:
    """What one policy can do with a fabric that has no tenants.

    ``largest`` is the largest allocation. ``beyond_leaf`` is how many hosts tenants of more
    than a leaf could have together, when the largest that fits is taken again and again.
    With ``cut_off`` there was no budget to find that out: it is at least so much.
    """

    policy: str
    largest: int
    beyond_leaf: int
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Reach:
    """How many links a plane has, absent ones left out, and what it fails to keep clear.

    ``unreached`` are leaves with adapters but without a working leaf link of it: what is
    there talks over any links. ``mixed`` are spines of it that stand above L2 indices of
    tenants, too: what they get for a tenant's port goes down that tenant's own links.
    """

    plane: SharedPlane
    leaf_links: int
    spine_links: int
    unreached: tuple[Switch, ...]
    mixed: tuple[Switch, ...]


def costs(
    fabric: LedgerView, plane: SharedPlane, policies: Collection[Policy], work: int = UNBOUNDED
) -> list[tuple[Cost, Cost]]:
    """For each policy what it can do with the present plane, and with another.

    Looked at is the fabric without tenants; what has failed or is drained stays so. Each of
    these answers has the same part of ``work`` (see ``meter``).
    """
    present, then = emptied(fabric, fabric.shared_plane), emptied(fabric, plane)
    part = work // (2 * len(policies))
    return [
        (
            _cost(policy, present.copy(), RequestBudget(part)),
            _cost(policy, then.copy(), RequestBudget(part)),
        )
        for policy in policies
    ]


def emptied(fabric: LedgerView, plane: SharedPlane) -> Ledger:
    """The fabric without tenants, with ``plane`` withheld."""
    empty = fabric.surface()
    for id in tuple(empty.allocations):
        empty.release(id)
    empty.withhold(plane)
    return empty


def _cost(unbounded: Policy, empty: Ledger, meter: RequestBudget) -> Cost:
    policy = BudgetedPolicy(unbounded, meter)
    largest = size = largest_fit(policy, empty, empty.free_host_count + 1)
    beyond = 0
    while size > empty.topology.slots:
        found = policy.propose(empty, Request(f"{beyond}", size))
        if not isinstance(found, Allocation):
            break  # the search gave up on what it found before
        empty.claim(found)
        beyond += found.size
        size = largest_fit(policy, empty, size + 1)
    return Cost(policy.name, largest, beyond, meter.cut)


def reach(fabric: LedgerView, inventory: Inventory, plane: SharedPlane) -> Reach:
    """Where a plane's cables lead, as things are now."""
    tree, topology = fabric.topology.tree, fabric.topology
    links = [link for link in plane.links(tree) if link not in topology.absent_links]
    cables = {link: inventory.cable_of_link.get(link) for link in links}
    working = {
        cable.lower.guid
        for link, cable in cables.items()
        if cable is not None and link not in fabric.failed_links and isinstance(link, LeafLink)
    }
    needed = {endpoint.at.guid for endpoint in inventory.endpoints} if plane.l2 else set()
    own = {
        cable.upper.guid
        for link, cable in cables.items()
        if cable is not None and not isinstance(link, LeafLink)
    }
    others = {
        cable.upper.guid
        for link, cable in inventory.cable_of_link.items()
        if not isinstance(link, LeafLink)
        and not plane.holds(tree, link)
        and link.l2 not in plane.l2
    }
    return Reach(
        plane,
        sum(isinstance(link, LeafLink) for link in links),
        sum(not isinstance(link, LeafLink) for link in links),
        tuple(s for s in inventory.switches if s.level == 1 and s.guid in needed - working),
        tuple(s for s in inventory.switches if s.guid in own & others),
    )
