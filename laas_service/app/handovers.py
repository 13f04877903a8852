# SPDX-License-Identifier: Apache-2.0

"""What compute has of an allocation: the names of its hosts, and the slots on them."""

from laas_service.app.ports.compute import Handover, HostPart, HostShare
from laas_service.app.records import AllocationRecord, FabricRecord
from laas_service.domain.allocation import Allocation


def handover_of(fabric: FabricRecord, record: AllocationRecord) -> Handover:
    """An allocation of a fabric as compute sees it, once its present step is taken."""
    names = host_names(fabric, record.open_hosts)
    share: HostShare = HostPart.WHOLE
    if not record.kind.whole_hosts:
        share = slots_by_name(fabric, record.open_hosts)
    return Handover(record.id, record.project_id, names, share)


def host_names(fabric: FabricRecord, placement: Allocation | None) -> tuple[str, ...]:
    """Nova's names of the hosts of a placement, or of those on which it has slots."""
    hosts = placement.places(fabric.topology) if placement is not None else ()
    return tuple(fabric.inventory.host_names[host] for host in hosts)


def slots_by_name(fabric: FabricRecord, placement: Allocation | None) -> dict[str, int]:
    """The slots of a placement of class ``shared``, by Nova's names of their hosts."""
    if placement is None or placement.kind.whole_hosts:
        return {}
    return {fabric.inventory.host_names[h]: n for h, n in placement.held_slots.counts.items()}


def is_in_compute(record: AllocationRecord, *, claims_slots: bool) -> bool:
    """Whether hosts are handed over to the project of an allocation, whole ones or slots.

    ``claims_slots`` as in ``ports.compute.ComputeReader``.
    """
    return record.in_compute or (not record.kind.whole_hosts and claims_slots)


def managed_hosts(fabric: FabricRecord) -> frozenset[str]:
    """Nova's names of the hosts that have to be in the pool."""
    present = set(range(fabric.topology.hosts)) - fabric.topology.absent_hosts
    return frozenset(filter(None, (fabric.inventory.host_names[host] for host in present)))


def difference_of_handovers(recorded: Handover, observed: Handover | None) -> str | None:
    """What is not as recorded, in a sentence; None if all is."""
    if observed is None:
        return "nothing is handed over" if recorded.hosts else None
    if observed.project_id != recorded.project_id:
        return f"hosts are handed over to project {observed.project_id!r}"
    missing = sorted(set(recorded.hosts) - set(observed.hosts))
    foreign = sorted(set(observed.hosts) - set(recorded.hosts))
    if observed.shared != recorded.shared:
        return f"{observed.kind} are handed over instead of {recorded.kind}"
    slots = _difference_of_slots(recorded.share, observed.share)
    parts = [
        f"{what}: {', '.join(hosts)}"
        for what, hosts in (
            ("hosts not handed over", missing),
            ("hosts too many", foreign),
            ("slots differ", slots),
        )
        if hosts
    ]
    return "; ".join(parts) or None


def _difference_of_slots(wanted: HostShare, found: HostShare) -> list[str]:
    """The hosts with other slots than recorded, as far as they were read."""
    if isinstance(wanted, HostPart) or isinstance(found, HostPart):
        return []
    return [
        f"{host} has {found.get(host, 0)} instead of {wanted.get(host, 0)}"
        for host in sorted(wanted.keys() | found.keys())
        if found.get(host, 0) != wanted.get(host, 0)
    ]
