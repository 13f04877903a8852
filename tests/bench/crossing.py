# SPDX-License-Identifier: Apache-2.0

"""Default entries beside owners: ``python -m tests.bench.crossing [--hosts H ...] [--changes N]``.

Tenants of exponential size, a sixtieth of the hosts on average, fill a full tree to a share of its
hosts. Then they come and go. For each change: blocks of 64 LIDs and switches that get other
entries, and processor seconds to compute the tables; each with default entries that keep off owned
cables, and with plain D-mod-k. Before and after: the share of pairs of hosts without an owner that
cross owned cables, over at most 400 destinations.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from laas_service.adapters.fabric_import import generator
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Request
from laas_service.domain.inventory import PortRef
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables

RADIX = {512: 0, 1024: 16, 5488: 28, 11664: 36}
"""512 hosts are 8 pods of 8 leaves with 8 hosts."""

Matrix = NDArray[np.uint8]
"""By switch and destination, the out port."""


class Tenants:
    """Tenants that come and go on a full tree."""

    def __init__(self, hosts: int, share: float) -> None:
        half = RADIX[hosts] // 2 or 8
        pods = RADIX[hosts] or 8
        made = generator.generate(
            generator.Description(xgft=f"3;{half},{half},{pods};1,{half},{half}", subnet_managers=1)
        )
        self.topology, self.inventory = made.topology, made.inventory
        self._share, self._rng, self._number = share, Random(1), 0
        self.ledger, self._policy = Ledger(made.topology), POLICIES["jigsaw"]()
        while self.used < 0.95 * share:
            self.change()

    @property
    def used(self) -> float:
        """The share of the hosts that tenants have."""
        return sum(a.size for a in self.ledger.allocations.values()) / self.topology.hosts

    def change(self) -> None:
        """One tenant goes, or one comes if it fits."""
        held, rng = self.ledger.allocations, self._rng
        if held and (self.used > self._share or rng.random() < 0.3):
            self.ledger.release(rng.choice(sorted(held)))
        else:
            size = 1 + int(rng.expovariate(60 / self.topology.hosts))
            admit(self._policy, self.ledger, Request(f"t{self._number}", size))
            self._number += 1

    def tables(self, last: ForwardingTables | None) -> ForwardingTables:
        held = self.ledger.allocations.values()
        return forwarding_tables(self.topology, self.inventory, held, previous=last)

    def crossing(self, rows: Matrix, destinations: Sequence[int]) -> float:
        """The share of pairs of hosts without an owner that cross an owned cable."""
        held = self.ledger.allocations.values()
        owned = {host for a in held for host in a.hosts(self.topology)}
        links = {link for a in held for link in a.links(self.topology)}
        far, position = self.inventory.far_ends, {g: n for n, g in enumerate(destinations)}
        guids = sorted(switch.guid for switch in self.inventory.switches)
        number = {guid: n for n, guid in enumerate(guids)}
        idle = [e for e in self.inventory.endpoints if e.host is not None and e.host not in owned]
        starts = Counter(endpoint.at.guid for endpoint in idle)
        crossed = pairs = 0
        for target in Random(2).sample(idle, min(400, len(idle))):
            for start, count in starts.items():
                switch, foreign = start, False
                while switch != target.at.guid:
                    out = PortRef(switch, int(rows[number[switch], position[target.guid]]))
                    end, cable = far[out]
                    switch, foreign = end.guid, foreign or cable.link in links
                count -= start == target.at.guid
                pairs, crossed = pairs + count, crossed + count * foreign
        return crossed / max(1, pairs)


def matrix(tables: ForwardingTables) -> Matrix:
    return np.array([np.frombuffer(row, np.uint8) for row in tables.rows.values()])


def row(name: str, values: Iterable[float]) -> str:
    ordered = sorted(values)
    worst = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"  {name:28}{mean(ordered):10.2f}{worst:10.2f}"


def measure(hosts: int, changes: int, share: float) -> None:
    tenants = Tenants(hosts, share)
    plain = matrix(forwarding_tables(tenants.topology, tenants.inventory, []))
    last = tenants.tables(None)
    block = np.array([tenants.inventory.lids[guid] for guid in last.destinations]) // 64
    after = matrix(last)
    before = np.where(last.own_entries, after, plain)
    named = ("D-mod-k", before), ("off owned cables", after)
    print(f"{hosts} hosts, {tenants.used:.0%} owned by {len(tenants.ledger.allocations)} tenants")
    for name, rows in named:
        print(f"  crossing, {name:18}{tenants.crossing(rows, last.destinations):10.4%}")
    counts: dict[str, list[float]] = {}
    for _ in range(changes):
        tenants.change()
        clock = time.process_time()
        last = tenants.tables(last)
        clock = time.process_time() - clock
        following = matrix(last)
        both = np.where(last.own_entries, following, plain), following
        for (name, _), old, new in zip(named, (before, after), both, strict=True):
            switches, entries = (old != new).nonzero()
            blocks = len(np.unique(switches * (block.max() + 1) + block[entries]))
            counts.setdefault(f"blocks, {name}", []).append(blocks)
            counts.setdefault(f"switches, {name}", []).append(len(np.unique(switches)))
        counts.setdefault("processor seconds", []).append(clock)
        before, after = both
    print(f"  {'a change:':28}{'mean':>10}{'p99':>10}")
    print("\n".join(row(name, values) for name, values in counts.items()))
    print(
        f"  crossing, at the end        {tenants.crossing(after, last.destinations):10.4%}",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", choices=RADIX, default=[*RADIX])
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--owned", type=float, default=0.7)
    given = parser.parse_args()
    for number in given.hosts:
        measure(number, given.changes, given.owned)
