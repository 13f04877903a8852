# SPDX-License-Identifier: Apache-2.0

"""What keeps an allocation from its next step although its routes are confirmed; pure.

A change does not move on to what has failed, old hosts have to be empty in time, and nothing is
free while a subnet manager could still route to it.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from laas_service.app import lifecycle
from laas_service.app.lifecycle import (
    DUE_IF_CHANGING,
    HANDED_OVER,
    AllocationFaults,
    Phase,
    Situation,
    State,
)
from laas_service.app.wording import waits
from laas_service.domain.errors import Conflict
from laas_service.domain.topology import Topology
from laas_service.messages import Applied


def broken_ahead(allocation: Situation, topology: Topology) -> AllocationFaults | None:
    """The failed links and hosts that a change of placement would move on to; None if none.

    From ``switch`` on the traffic uses them already: then they are repaired, not avoided.
    """
    return _broken(allocation, topology, (Phase.STOP, Phase.PREPARE))


def broken_while_leaving(allocation: Situation, topology: Topology) -> AllocationFaults | None:
    """The failed links and hosts that a change uses beside its old placement; None if none.

    Servers are on old hosts for long meanwhile. The old placement alone works: nothing of it has
    failed.
    """
    found = _broken(allocation, topology, (Phase.ENTER, Phase.LEAVE))
    change, faults = allocation.change, allocation.faults
    if found is None or change is None or faults is None:
        return None
    intact = set(change.old.links(topology)).isdisjoint(faults.links)
    return found if intact and change.freed.size else None


def _broken(
    allocation: Situation, topology: Topology, phases: Collection[Phase]
) -> AllocationFaults | None:
    """What has failed of all that a change claims, in one of these steps."""
    change, faults = allocation.change, allocation.faults
    if allocation.state not in DUE_IF_CHANGING or change is None or faults is None:
        return None
    if change.phase not in phases or change.way_back is None:
        return None
    claimed = change.claimed
    links = set(claimed.links(topology)).intersection(faults.links)
    hosts = set(claimed.hosts(topology)).intersection(faults.hosts)
    if not (links or hosts):
        return None
    return AllocationFaults(tuple(sorted(links, key=topology.tree.link_id)), tuple(sorted(hosts)))


def can_mend(allocation: Situation) -> bool:
    """Whether failed links of a change of hosts can be replaced before the change goes on."""
    change, faults = allocation.change, allocation.faults
    if allocation.state not in DUE_IF_CHANGING or change is None or faults is None:
        return False
    waits = change.mending is None and change.phase in (Phase.ENTER, Phase.LEAVE)
    return waits and bool(faults.links) and not allocation.kind.keeps_links


def empty_by(allocation: Situation, notice: float, window: float) -> datetime | None:
    """When the hosts that its change leaves must be empty; None if it leaves none.

    ``notice`` (of its tenant) and ``window`` are in seconds. The window begins with an announced
    move, and after the notice for any other change.
    """
    change, begun = allocation.change, allocation.begun_at
    if change is None or change.phase is Phase.WITHDRAW:
        return None
    if Phase.LEAVE not in {change.phase, *(step.phase for step in change.steps())}:
        return None
    if allocation.moves_at is not None:
        return allocation.moves_at + timedelta(seconds=window)
    return None if begun is None else begun + timedelta(seconds=notice + window)


def is_overdue(allocation: Situation, now: datetime, notice: float, window: float) -> bool:
    """Whether hosts that it leaves should be empty by now; they stay its own until they are."""
    limit = empty_by(allocation, notice, window)
    return limit is not None and now >= limit


def gives_back(allocation: Situation) -> bool:
    """Whether hosts or links are free for others once the awaited routes are confirmed."""
    placed_anew = allocation.state is State.ALLOCATING and allocation.handed_back
    return lifecycle.frees(allocation) or placed_anew


def held_for(allocation: Situation, applied: Applied) -> set[str]:
    """Managers that could route again by files from before it gave its hosts or links up.

    What it gives up stays its own until each of them has the set that frees it.
    """
    if not gives_back(allocation) or not lifecycle.awaits_routes(allocation):
        return set()
    if not lifecycle.confirmed(allocation, applied.generation):
        return set()
    return {
        name
        for name, generation in applied.standbys.items()
        if generation is None or generation < allocation.generation
    }


def lacks_evidence(allocation: Situation, applied: Applied) -> bool:
    """Whether hosts or links would be free by files that nobody has seen in the switches.

    An operator's word (``applied.loaded``) stands for that.
    """
    if applied.by.was_read or not gives_back(allocation):
        return False
    if not lifecycle.confirmed(allocation, applied.generation):
        return False
    return applied.loaded is None or applied.loaded < allocation.generation


def not_kept(
    allocation: Situation, applied: int | None, problem: str | None, ever: int | None
) -> str | None:
    """What the switches run instead of the routes and keys of an allocation at rest, in words.

    ``applied`` is the generation that they run, or None and a ``problem``; ``ever`` is the newest
    one that was ever confirmed. None: they run its routes, or have never done so.
    """
    wanted = allocation.generation
    at_rest = allocation.state in HANDED_OVER and allocation.change is None
    if not at_rest or not allocation.kind.whole_hosts or ever is None or ever < wanted:
        return None
    if applied is None:
        return waits.not_confirmed(problem) if problem else None
    return waits.outdated(applied, wanted) if applied < wanted else None


def check_repairs_now(allocation: Situation) -> None:
    """Raises: Conflict, if its failed links can be replaced only when its change is over."""
    change = allocation.change
    if change is None or not lifecycle.has_replaceable_links(allocation):
        return
    if change.mending is not None:
        return
    if change.claimed.size or change.freed.size:
        raise Conflict(
            f"the hosts of allocation {allocation.id!r} are changing (step "
            f"{change.phase.value!r}); its failed links are replaced when that is over: wait, or "
            "turn the change back"
        )
