# SPDX-License-Identifier: Apache-2.0

"""Pinned LIDs: a fixed LID for every port, so that forwarding tables stay valid.

Ports that may be switched off get low LIDs: hosts, then other adapters. The switches (spines
first) follow from a new block of 64 on, and the subnet managers are last. So the topmost block
holds only switches and subnet managers, which keeps OpenSM from writing beyond its tables when
hosts are off. The highest LID is no multiple of 64, because the diagnostics would leave it out.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping

from laas_service.domain.errors import LimitExceeded
from laas_service.domain.inventory import Endpoint, Switch

HIGHEST = 0xBFFF
"""Highest unicast LID."""

BLOCK = 64
"""LIDs in one block of a forwarding table."""


def pinned(
    endpoints: Iterable[Endpoint],
    switches: Iterable[Switch],
    managers: Collection[int] = (),
) -> dict[int, int]:
    """Pin a LID to every port GUID and switch GUID; ``managers`` are port GUIDs.

    Raises:
        LimitExceeded: a subnet has fewer unicast LIDs than there are ports.
    """
    ends = sorted(
        endpoints, key=lambda e: (e.host is None, e.host or 0, e.rail, e.guid in managers, e.guid)
    )
    low = [e.guid for e in ends if e.guid not in managers]
    high = [s.guid for s in sorted(switches, key=lambda s: (-s.level, s.guid))]
    high += sorted(set(managers))
    start = (len(low) // BLOCK + 1) * BLOCK if low else 1
    lids = dict(zip(low, itertools.count(1))) | dict(zip(high, itertools.count(start)))
    if high and (start + len(high) - 1) % BLOCK == 0:
        lids[high[-1]] += 1
    if max(lids.values(), default=0) > HIGHEST:
        raise LimitExceeded(f"{len(lids)} ports need more LIDs than a subnet has ({HIGHEST})")
    return lids


def repinned(
    recorded: Mapping[int, int],
    imported: Mapping[int, int],
    tenant_ports: Collection[int],
    switches: Collection[int],
) -> dict[int, int]:
    """``imported`` with the LIDs of ``recorded`` for all GUIDs that stay; by GUID.

    New ports get free LIDs: adapters low ones, below the topmost block; switches and subnet
    managers (whose LIDs in ``imported`` are above those of all switches) new ones on top.

    Raises:
        LimitExceeded: no LID is left, or the topmost block would hold hosts.
    """
    above = max((imported[guid] for guid in switches), default=HIGHEST)
    lids = {guid: recorded[guid] for guid in imported if guid in recorded}
    fresh = sorted(imported.keys() - lids.keys(), key=imported.__getitem__)
    high = [g for g in fresh if g in switches or (imported[g] > above and g not in tenant_ports)]
    used = set(lids.values())
    top = max(used, default=0) // BLOCK
    free = (lid for lid in itertools.count(1) if lid not in used and lid // BLOCK != top)
    lids |= zip((guid for guid in fresh if guid not in high), free, strict=False)
    highest = max(lids.values(), default=0)
    mixed = any(lids[guid] // BLOCK == highest // BLOCK for guid in tenant_ports)
    lids |= zip(high, itertools.count((highest // BLOCK + 1) * BLOCK if mixed else highest + 1))
    if high and lids[high[-1]] % BLOCK == 0:
        lids[high[-1]] += 1
    highest = max(lids.values(), default=1)
    if (
        highest > HIGHEST
        or highest % BLOCK == 0
        or any(lids[guid] // BLOCK == highest // BLOCK for guid in tenant_ports)
    ):
        raise LimitExceeded(
            f"no LIDs for {len(fresh)} new ports: hosts need LIDs below those of the switches, and "
            "recorded LIDs stay; import the fabric under another --id"
        )
    return lids
