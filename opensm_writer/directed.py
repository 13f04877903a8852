# SPDX-License-Identifier: Apache-2.0

"""Directed routes over recorded cables; pure."""

from collections import defaultdict, deque
from collections.abc import Collection

from laas_service.domain.inventory import ADAPTER_PORT, CableEnds

Way = tuple[tuple[int, CableEnds], ...]
"""The port by which a packet leaves each switch, and the cable there."""


def ways(
    cables: Collection[CableEnds],
    start: int,
    targets: Collection[int],
    avoided: Collection[CableEnds] = (),
) -> dict[int, Way]:
    """A shortest way from a switch to each target that has one, over cables not ``avoided``.

    ``start`` and ``targets`` are GUIDs, those of ports for adapters.
    """
    onward: dict[int, list[tuple[int, int, CableEnds]]] = defaultdict(list)
    for cable in cables:
        if targets and cable not in avoided:
            first, second = cable
            onward[first.guid].append((first.port, second.guid, cable))
            if second.port != ADAPTER_PORT:
                onward[second.guid].append((second.port, first.guid, cable))
    found: dict[int, Way] = {start: ()}
    waiting = deque(found)
    while waiting:
        here = waiting.popleft()
        for port, there, cable in onward[here]:
            if there not in found:
                found[there] = (*found[here], (port, cable))
                waiting.append(there)
    return {guid: found[guid] for guid in targets if guid in found}
