# SPDX-License-Identifier: Apache-2.0

"""Changes of placement: what each phase means in an allocation's story."""

from __future__ import annotations

from collections.abc import Collection

from laas_service.app.records import AllocationRecord, Phase
from laas_service.domain.topology import Link, Topology, link_name
from laas_service.domain.wording import listed


def next_phase(topology: Topology, record: AllocationRecord) -> str:
    """Why a change of placement goes on, once its phase is confirmed in the switches."""
    if record.phase is Phase.PREPARE:
        return "routes over the new links confirmed; traffic goes over to them"
    if record.phase is Phase.SWITCH:
        return "traffic confirmed on the new links; the old routes have to go"
    old, new = record.leaving, record.placed
    gone = () if old is None or new is None else old.beyond(new).links(topology)
    return f"old routes gone; freed {named(sorted(gone, key=topology.tree.link_id))}"


def named(links: Collection[Link]) -> str:
    """Links by name, the first few of many."""
    return f"{'link' if len(links) == 1 else 'links'} {listed(map(link_name, links))}"
