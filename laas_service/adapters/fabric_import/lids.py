# SPDX-License-Identifier: Apache-2.0

"""Pins a LID to every port, so that tables written for a fabric stay true.

Low LIDs go to what may be switched off, high ones to what stays: hosts, other
adapters, then from a new block of 64 on the switches (spines first), and on top the
subnet managers. So the topmost block holds only switches and subnet managers, which
keeps OpenSM from writing beyond its tables when hosts are off; and as the highest
LID is no multiple of 64, the diagnostics do not leave it out.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping

from laas_service.domain.errors import LimitExceeded
from laas_service.domain.inventory import Endpoint, Switch

HIGHEST = 0xBFFF
BLOCK = 64


def pinned(
    endpoints: Iterable[Endpoint],
    switches: Iterable[Switch],
    managers: Collection[int] = (),
) -> dict[int, int]:
    """LID of every port GUID and switch GUID; ``managers`` are port GUIDs.

    Raises:
        LimitExceeded: there are more ports than unicast LIDs in a subnet.
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
    before: Mapping[int, int],
    after: Mapping[int, int],
    rented: Collection[int],
    switches: Collection[int],
) -> dict[int, int]:
    """``after`` with the LIDs of ``before`` for the GUIDs that stay; ``rented`` are tenants' ports.

    What is new takes free LIDs: adapters low ones, below the topmost block; switches and
    subnet managers (which have LIDs above all switches in ``after``) new ones on top.

    Raises:
        LimitExceeded: there is no LID left, or the topmost block would hold hosts.
    """
    above = max((after[guid] for guid in switches), default=HIGHEST)
    lids = {guid: before[guid] for guid in after if guid in before}
    fresh = sorted(after.keys() - lids.keys(), key=after.__getitem__)
    high = [g for g in fresh if g in switches or (after[g] > above and g not in rented)]
    used = set(lids.values())
    top = max(used, default=0) // BLOCK
    free = (lid for lid in itertools.count(1) if lid not in used and lid // BLOCK != top)
    lids |= zip((guid for guid in fresh if guid not in high), free, strict=False)
    highest = max(lids.values(), default=0)
    mixed = any(lids[guid] // BLOCK == highest // BLOCK for guid in rented)
    lids |= zip(high, itertools.count((highest // BLOCK + 1) * BLOCK if mixed else highest + 1))
    if high and lids[high[-1]] % BLOCK == 0:
        lids[high[-1]] += 1
    highest = max(lids.values(), default=1)
    if (
        highest > HIGHEST
        or highest % BLOCK == 0
        or any(lids[guid] // BLOCK == highest // BLOCK for guid in rented)
    ):
        raise LimitExceeded(
            f"{len(fresh)} new ports find no LIDs, as hosts' are below those of the switches, "
            "and all that are given stay: import the fabric under another --id"
        )
    return lids
