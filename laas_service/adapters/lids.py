# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""Pins a LID to every port, so that tables written for a fabric stay true.

Low LIDs go to what may be switched off, high ones to what stays: hosts, other
adapters, then from a new block of 64 on the switches (spines first), and on top the
subnet managers. So the topmost block holds only switches and subnet managers, which
keeps OpenSM from writing beyond its tables when hosts are off; and as the highest
LID is no multiple of 64, the diagnostics do not leave it out.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable

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
