# SPDX-License-Identifier: Apache-2.0

"""The output of ``iblinkinfo -l`` for recorded cables, as infiniband-diags 44.0 prints it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from laas_service.domain.inventory import ADAPTER_PORT, CableEnds, PortRef


def line(
    port: PortRef, name: str, other: PortRef | None, state: str = "Active", lid: int = 3
) -> str:
    """The line of a port: linked to ``other``, or down if ``state`` is Down, else silent."""
    head = f'0x{port.guid:016x} "{name:>30}" {lid:6} {port.port:4}[  ] =='
    if state == "Down":
        return f'{head}({"":14} {state:>6}/{"Polling":>8})==>  {"":11}[  ] "" ( )\n'
    link = f"({'4X':>3} {'2.5 Gbps':>18} {state:>6}/{'LinkUp':>8})"
    if other is None:
        return f'{head}{link}==>      "Port not available"\n'
    far = f"0x{other.guid:016x} {8:6} {other.port:4}[  ]"
    return f'{head}{link}==>  {far} "a node" (Could be 12X Could be 10.0 Gbps)\n'


def output(
    cables: Iterable[CableEnds],
    observer: int,
    *,
    down: Collection[PortRef] = (),
    dead: Collection[int] = (),
    silent: Collection[int] = (),
    moved: Mapping[PortRef, PortRef] | None = None,
    lids: Mapping[int, int] | None = None,
) -> str:
    """What the tool prints on the adapter ``observer`` (GUID), without regard to reachability.

    ``down`` are ends of cut cables, ``dead`` and ``silent`` GUIDs of switches, ``moved`` cables
    that are not recorded, by either end. ``lids`` are by GUID.
    """
    links: dict[int, list[tuple[PortRef, PortRef]]] = defaultdict(list)
    for first, second in cables:
        if second.port == ADAPTER_PORT:
            second = second._replace(port=1)
        links[first.guid].append((first, second))
        links[second.guid].append((second, first))
    order = sorted(links, key=lambda guid: (guid == observer, -guid))
    text = []
    for guid in order:
        if guid in dead or guid in silent:
            continue
        lid = (lids or {}).get(guid, 3)
        for port, other in sorted(links[guid]):
            now = (moved or {}).get(port, other)
            if port in down or other in down or now.guid in dead:
                text.append(line(port, f"node {guid:x}", None, "Down", lid))
            elif now.guid in silent:
                text.append(line(port, f"node {guid:x}", None, "Initialize", lid))
            else:
                text.append(line(port, f"node {guid:x}", now, lid=lid))
    return "".join(text)
