# SPDX-License-Identifier: Apache-2.0

"""Drift: what differs between the record and what is observed in Nova and the switches; pure.

Each function compares and returns a ``Difference``, or None if all is as recorded. A difference
says how it is repaired; ``drift_control`` does so.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from laas_service.app.handovers import handover_of
from laas_service.app.lifecycle import LIVE, State
from laas_service.app.ports.compute import Handover, HostShare, Share
from laas_service.app.records import AllocationRecord, Drift, FabricRecord, kind_of_loss
from laas_service.domain.wording import listed
from laas_service.messages import Applied


@dataclass(frozen=True, slots=True)
class HandOver:
    """Make the aggregate of an active allocation hold exactly its hosts."""

    record: AllocationRecord
    handover: Handover


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Dissolve the aggregate of an allocation that is released."""

    handover: Handover


@dataclass(frozen=True, slots=True)
class Fence:
    """Close the hosts of an allocation that is not active."""

    allocation_id: str


@dataclass(frozen=True, slots=True)
class Pool:
    """Put hosts into the pool again."""

    hosts: Collection[str]


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish the newest routes of a fabric again."""

    fabric: str


Repair = HandOver | TakeBack | Fence | Pool | Publish


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as recorded.

    ``subject`` is what it is about: the id of an allocation, else words for what differs in the
    fabric. ``fabrics`` are the ids of those it is counted for. ``detail`` is a sentence that
    does not name the subject. ``repair`` is None if the service cannot put it right.
    """

    kind: Drift
    subject: str
    fabrics: tuple[str, ...]
    detail: str
    repair: Repair | None = None

    @property
    def about(self) -> tuple[Drift, str]:
        """The same for the same thing, however it differs."""
        return self.kind, self.subject

    @property
    def told(self) -> str:
        """The sentence that is recorded for the fabric and told to others."""
        return self._in_words(self.kind.facts.told)

    @property
    def finding(self) -> str:
        """The sentence that is logged."""
        return self._in_words(self.kind.facts.logged)

    def _in_words(self, template: str) -> str:
        fabric = listed(self.fabrics)
        return template.format(subject=self.subject, fabric=fabric, detail=self.detail)


# -- Nova ---------------------------------------------------------------------------------


def hosts_difference(
    fabric: FabricRecord, record: AllocationRecord, observed: Handover | None
) -> Difference | None:
    """The hosts of an active allocation against what is handed over."""
    handover = handover_of(fabric, record)
    detail = difference_of_handovers(handover, observed)
    if detail is None:
        return None
    return Difference(
        Drift.HOSTS, record.id, (fabric.id,), detail, repair=HandOver(record, handover)
    )


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
    if isinstance(wanted, Share) or isinstance(found, Share):
        return []
    return [
        f"{host} has {found.get(host, 0)} instead of {wanted.get(host, 0)}"
        for host in sorted(wanted.keys() | found.keys())
        if found.get(host, 0) != wanted.get(host, 0)
    ]


def leftover_difference(
    record: AllocationRecord | None, handover: Handover, fabrics: tuple[str, ...]
) -> Difference | None:
    """An aggregate that belongs to no active allocation; None while its allocation lives.

    ``record`` is None if the allocation was never recorded: the service cannot know then whether
    it may take the hosts back. ``fabrics`` are the ids of those with one of the hosts.
    """
    id = handover.allocation_id
    if record is None:
        detail = f"hosts are handed over to allocation {id}, which is not recorded"
        return Difference(Drift.LEFTOVER, id, fabrics, detail)
    if record.state in LIVE:
        return None
    detail = f"allocation {id} is released, but hosts are still handed over"
    return Difference(Drift.LEFTOVER, id, fabrics, detail, repair=TakeBack(handover))


def misled_difference(record: AllocationRecord, handover: Handover) -> Difference | None:
    """An aggregate that admits another project to the hosts of an allocation in ``error``.

    The hosts of an active allocation are handed over again (``hosts_difference``); the steps of
    other states correct its aggregate themselves.
    """
    if record.state is not State.ERROR or handover.project_id == record.project_id:
        return None
    detail = f"hosts are handed over to project {handover.project_id!r}"
    return Difference(Drift.HOSTS, record.id, (record.fabric,), detail, repair=Fence(record.id))


def pool_difference(fabric: FabricRecord, missing: Collection[str]) -> Difference | None:
    """Hosts that have left the pool (``missing``, by name)."""
    if not missing:
        return None
    detail = (
        f"hosts are no longer in the pool, free ones accept any project: {listed(sorted(missing))}"
    )
    return Difference(
        Drift.POOL, f"hosts of {fabric.id}", (fabric.id,), detail, repair=Pool(sorted(missing))
    )


def opened_difference(fabric: FabricRecord, opened: Mapping[str, str]) -> Difference | None:
    """Hosts that aggregates of others open to projects: ``opened``, aggregates by host."""
    hosts = managed(fabric)
    shown = sorted(f"{host} by {name}" for host, name in opened.items() if host in hosts)
    if not shown:
        return None
    detail = f"other aggregates open hosts: {listed(shown)}"
    return Difference(Drift.POOL, opened_subject(fabric), (fabric.id,), detail)


def opened_subject(fabric: FabricRecord) -> str:
    return f"opened hosts of {fabric.id}"


def managed(fabric: FabricRecord) -> frozenset[str]:
    """Nova's names of the hosts that have to be in the pool."""
    present = set(range(fabric.topology.hosts)) - fabric.topology.absent_hosts
    return frozenset(filter(None, (fabric.inventory.host_names[host] for host in present)))


# -- switches -----------------------------------------------------------------------------


def routes_difference(fabric: FabricRecord, applied: Applied) -> Difference:
    """Routes that were confirmed and are no longer, or the keys or the master that go with them."""
    instead = applied.problem or f"generation {applied.generation} is applied"
    detail = f"generation {fabric.routes_generation} is no longer confirmed: {instead}"
    return Difference(
        kind_of_loss(applied),
        f"routes of {fabric.id}",
        (fabric.id,),
        detail,
        repair=Publish(fabric.id),
    )
