# SPDX-License-Identifier: Apache-2.0

"""What compute has of an allocation: the names of its hosts, and the slots on them."""

from collections.abc import Iterable

from laas_service.app.ports.compute import Handover, HostShare, Share
from laas_service.app.records import AllocationRecord, FabricRecord
from laas_service.domain.allocation import Allocation


def handover_of(fabric: FabricRecord, record: AllocationRecord) -> Handover:
    """An allocation of a fabric as compute sees it, once its present step is taken."""
    names = host_names(fabric, record.open_hosts)
    share: HostShare = Share.WHOLE
    if record.slots is not None:
        share = slots_by_name(fabric, record.open_hosts)
    return Handover(record.id, record.project_id, names, share)


def host_names(fabric: FabricRecord, placement: Allocation | None) -> tuple[str, ...]:
    """Nova's names of the hosts of a placement, or of those on which it has slots."""
    hosts: Iterable[int] = ()
    if placement is not None and placement.slots is not None:
        hosts = placement.slots.counts
    elif placement is not None:
        hosts = placement.hosts(fabric.topology)
    return tuple(fabric.inventory.host_names[host] for host in hosts)


def slots_by_name(fabric: FabricRecord, placement: Allocation | None) -> dict[str, int]:
    """The slots of a placement of class ``shared``, by Nova's names of their hosts."""
    if placement is None or placement.slots is None:
        return {}
    return {fabric.inventory.host_names[h]: n for h, n in placement.slots.counts.items()}


def is_in_compute(record: AllocationRecord, *, claims_slots: bool) -> bool:
    """Whether hosts are handed over to the project of an allocation, whole ones or slots.

    ``claims_slots`` as in ``ports.compute.ComputeReader``.
    """
    return record.in_compute or (record.slots is not None and claims_slots)
