# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""Changes of placement: who decides them, and what each phase means in an allocation's story."""

from __future__ import annotations

from collections.abc import Collection

from laas_service.app.ports import Store
from laas_service.app.records import AllocationRecord, Move, Phase
from laas_service.domain.degradation import Degraded
from laas_service.domain.errors import ConcurrentUpdate, Conflict
from laas_service.domain.fabric import Fabric
from laas_service.domain.repair import repair
from laas_service.domain.topology import Link, Topology, link_name

SHOWN = 5
"""Links that a line of the story names."""


def mend(store: Store, record: AllocationRecord) -> AllocationRecord | Degraded:
    """Begin to replace the failed links of an allocation; as it is if none of them has failed.

    Raises:
        Conflict: it is not active.
        ConcurrentUpdate: it moved on; read it again.
    """
    placed = record.placed
    if placed is None:
        raise Conflict(f"allocation {record.id!r} is {record.state.value}, not active")
    if record.phase is not None or record.faults is None:
        return record

    def choose(fabric: Fabric) -> Move | Degraded | None:
        if fabric.allocations.get(record.id) != placed:
            raise ConcurrentUpdate(f"allocation {record.id!r} is past version {record.version}")
        answer = repair(fabric, placed)
        if isinstance(answer, Degraded):
            return answer
        if answer is placed:
            return None
        topology = fabric.topology
        gone = sorted(placed.beyond(answer).links(topology), key=topology.tree.link_id)
        new = sorted(answer.beyond(placed).links(topology), key=topology.tree.link_id)
        return Move(answer, f"repair: {named(gone)} replaced by {named(new)}")

    answer = store.move(record, choose)
    return record if answer is None else answer


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
    names = [link_name(link) for link in links]
    more = len(names) - SHOWN
    kind = "link" if len(names) == 1 else "links"
    return f"{kind} {', '.join(names[:SHOWN])}" + (f" and {more} more" if more > 0 else "")
