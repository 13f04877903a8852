# SPDX-License-Identifier: Apache-2.0

"""Default entries beside owners: ``python -m tests.bench.crossing [--hosts H ...] [--changes N]``.

With ``--opensm``, the real OpenSM on the simulator ``ibsim`` gets the tables of the same changes,
first with plain D-mod-k, then off owned cables. For each change: processor seconds to compute the
tables, of the whole service side (computing, writing and parsing the set) and of OpenSM, its
packets, and seconds by the clock until all changed blocks are read back from the switches as they
should be, which confirms the set. Without it:

Tenants of exponential size, a sixtieth of the hosts on average, fill a full tree to a share of its
hosts. Then they come and go. For each change: blocks of 64 LIDs and switches that get other
entries, and processor seconds to compute the tables; each with default entries that keep off owned
cables, and with plain D-mod-k. Before and after: the share of pairs of hosts without an owner that
cross owned cables, over at most 400 destinations.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import mean
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from laas_service.adapters.fabric_import import generator
from laas_service.adapters.fabric_import.netlist import netlist, node_id
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Request
from laas_service.domain.inventory import PortRef
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing import ways
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from laas_service.messages import FabricState, TenantRoute
from opensm_writer import blocks, desired, publish, render
from tests.bench.loading import OpenSm
from tests.bench.serving import FABRIC
from tests.ibsim import Simulator

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

    def state(self, number: int) -> FabricState:
        """What is published in this generation."""
        held = self.ledger.allocations
        keys = {id: 1 + int(id[1:]) % 30_000 for id in held}
        routes = tuple(TenantRoute(held[id], key) for id, key in sorted(keys.items()))
        return FabricState(FABRIC, number, self.topology, self.inventory, routes)

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


@contextmanager
def price_of_a_held_cable(cost: int) -> Iterator[None]:
    """With 0, default entries follow D-mod-k, whoever owns its cables."""
    usual, ways.HELD = ways.HELD, cost
    try:
        yield
    finally:
        ways.HELD = usual


class Switches:
    """A fabric with the real OpenSM, which gets one set after the other."""

    def __init__(self, sim: Simulator, place: Path, first: FabricState) -> None:
        self._place, self._settings = place, render.Settings(f"{place}/{FABRIC}/current")
        self._reader = sim.tools(place / "tools") / "laas-opensm-tables"
        self._last = desired.subnet_configuration(first)
        self._set = publish.publish_set(self._last, self._settings, place, 1)
        self._tables, config = place / "lfts", place / "opensm.conf"
        text = (self._set.directory / "opensm.conf").read_text()
        config.write_text(text.replace(f"{self._settings.directory}/lfts", str(self._tables)))
        self._hand_over()
        self._opensm = OpenSm(sim, config, self._tables)

    def change(self, state: FabricState) -> dict[str, float]:
        """Publish a state, let OpenSM load it, and read back what differs."""
        start, spent, last = time.perf_counter(), time.process_time(), self._last
        self._last = made = desired.subnet_configuration(state, last)
        computed = time.process_time() - spent
        self._set = publish.publish_set(made, self._settings, self._place, 1, self._set)
        spent = time.process_time() - spent
        self._hand_over()
        reload = self._opensm.reload()
        lids, rows = state.inventory.lids, {g: made.row_by_lid(g) for g in made.tables.rows}
        wanted = [
            blocks.Block(lids[guid], number)
            for guid, row in rows.items()
            for number in blocks.differing(last.row_by_lid(guid), row)
        ]
        self._check(wanted, rows)
        clock = time.perf_counter() - start
        return {
            "blocks": len(wanted),
            "packets of OpenSM": reload.packets,
            "tables, CPU s": computed,
            "whole set, CPU s": spent,
            "OpenSM, CPU s": reload.whole,
            "confirmed after s": clock,
        }

    def _hand_over(self) -> None:
        shutil.copyfile(self._set.directory / "lfts", self._tables)

    def _check(self, wanted: Sequence[blocks.Block], rows: Mapping[int, bytes]) -> None:
        """Raises: AssertionError: switches have other entries."""
        asked = blocks.question(wanted)
        done = subprocess.run([self._reader], input=asked, capture_output=True, check=True)
        read = blocks.answer(done.stdout.decode(), "laas-opensm-tables")
        assert sum(map(len, read.values())) == len(wanted)
        for guid, found in read.items():
            numbered = {block.number: ports for block, ports in found.items()}
            assert blocks.patched(rows[guid], numbered) == rows[guid], f"{guid:#x}"


def confirm(hosts: int, changes: int, share: float) -> None:
    """Changes of a history on the real OpenSM, with each kind of default entries."""
    for name, cost in (("D-mod-k", 0), ("off owned cables", ways.HELD)):
        tenants = Tenants(hosts, share)
        manager = node_id(tenants.inventory, tenants.inventory.managers[0])
        counts: dict[str, list[float]] = {}
        with (
            price_of_a_held_cable(cost),
            TemporaryDirectory(prefix="laas-crossing-") as place,
            Simulator(netlist(tenants.inventory), host=manager) as sim,
        ):
            switches = Switches(sim, Path(place).resolve(), tenants.state(1))
            for number in range(changes):
                tenants.change()
                for what, value in switches.change(tenants.state(number + 2)).items():
                    counts.setdefault(what, []).append(value)
        print(f"{hosts} hosts, {name}:{'mean':>{24 - len(name)}}{'p99':>10}")
        print("\n".join(row(what, values) for what, values in counts.items()), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", choices=RADIX, default=[*RADIX])
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--owned", type=float, default=0.7)
    parser.add_argument("--opensm", action="store_true", help="let the real OpenSM load the tables")
    given = parser.parse_args()
    for number in given.hosts:
        (confirm if given.opensm else measure)(number, given.changes, given.owned)
