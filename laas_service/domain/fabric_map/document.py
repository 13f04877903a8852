# SPDX-License-Identifier: Apache-2.0

"""The map of a ledger alone, as the planner and the simulator have one."""

from typing import Any

from laas_service.domain.fabric_map.cells import fabric_map
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import link_name


def ledger_document(ledger: LedgerView, inventory: Inventory, name: str) -> dict[str, Any]:
    """The map with what a ledger knows of tenants, counts and faults; ``name`` is its title."""
    return {
        **fabric_map(ledger, inventory, plain_tenants(ledger)),
        "fabric": name,
        "counts": _counts(ledger, inventory),
        "faults": plain_faults(ledger, inventory),
    }


def _counts(ledger: LedgerView, inventory: Inventory) -> dict[str, Any]:
    """Counts of hosts; those of links take the rails into account and are left to the service."""
    absent = ledger.topology.absent_hosts
    present = [h for h, name in enumerate(inventory.host_names) if name and h not in absent]
    return {
        "hosts": {
            "total": len(present),
            "allocated": len(ledger.owners_of_hosts()),
            "free": ledger.free_host_count,
            "failed": len(ledger.failed_hosts),
            "drained": len(ledger.drained_hosts),
        }
    }


def plain_tenants(ledger: LedgerView) -> list[dict[str, Any]]:
    """Tenants as a ledger alone knows them, in the order of their claims."""
    return [
        {
            "id": allocation.id,
            "name": allocation.id,
            "requested": allocation.requested,
            "policy": allocation.policy,
            "shape": None if allocation.shape is None else str(allocation.shape),
            "parent": allocation.parent,
        }
        for allocation in ledger.everybody()
    ]


def plain_faults(ledger: LedgerView, inventory: Inventory) -> list[dict[str, Any]]:
    """Hosts and links that are not up, as a ledger alone knows them."""
    names = inventory.host_names
    return [
        *(
            {"kind": "host", "name": names[host] or str(host), "state": state}
            for state, hosts in (("failed", ledger.failed_hosts), ("drained", ledger.drained_hosts))
            for host in sorted(hosts)
        ),
        *(
            {"kind": "link", "name": link_name(link), "state": state}
            for state, links in (("failed", ledger.failed_links), ("drained", ledger.drained_links))
            for link in sorted(links, key=ledger.topology.tree.link_id)
        ),
    ]
