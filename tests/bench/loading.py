# SPDX-License-Identifier: Apache-2.0

"""What OpenSM needs to load tables: ``python -m tests.bench.loading [--hosts H] [--rounds N]``.

A full tree of K-port switches is filled as in ``tests.bench.rendering``. The real OpenSM on the
simulator ``ibsim`` reads the tables of all tenants, and at each SIGHUP reads them again, in each
form by turns: bare lines, bare lines without leading zeros, lines with port GUIDs. Reported are
the size of the file, how long OpenSM has it open, by the clock and in processor time, and the
same of the whole reload; the medians of the rounds, and what was least. Then it reads tables
with nothing else, with one more tenant, and with a failed cable of a spine: reported are the
64-LID blocks that differ, and the management packets that OpenSM sends. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psutil

from laas_service.adapters.fabric_import.netlist import netlist, node_id
from laas_service.messages import FabricState
from opensm_writer import blocks, desired, publish, render
from tests.bench.policies import RADIX
from tests.bench.rendering import HOSTS
from tests.bench.serving import FABRIC, states
from tests.ibsim import Simulator
from tests.storm.journal import table
from tests.waiting import eventually

PATIENCE = 1200.0
"""Seconds for OpenSM's first sweep."""

LOOK = 0.001
"""Seconds between two looks at the files that OpenSM has open."""

_SENT = re.compile(rb"QP0 MADs sent +: (\d+)")
_ZEROS = re.compile(rb"^0x0*([0-9a-f]+) 0*(\d+)", re.MULTILINE)


class Reload(NamedTuple):
    """What one reload took, in seconds, and the subnet management packets that OpenSM sent."""

    open: float
    loading: float
    clock: float
    whole: float
    packets: int


class OpenSm:
    """OpenSM on a simulated fabric, with the file of tables at ``tables``."""

    def __init__(self, sim: Simulator, config: Path, tables: Path) -> None:
        self._log, self._tables = sim.directory / "osm.log", tables
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._console = free.getsockname()
        process = sim.start(
            *("opensm", "-F", str(config), "-f", "osm.log", "-s", "0", "-D", "0x03"),
            *("--dump_files_dir", "."),
            *("--console", "loopback", "--console-port", str(self._console[1])),
        )
        self._process = psutil.Process(process.pid)
        eventually(lambda: self._ups() > 0, "OpenSM's first sweep ends", patience=PATIENCE)

    def reload(self) -> Reload:
        """Send SIGHUP, and wait until the sweep ends."""
        ups, sent, before, start = self._ups(), self._sent(), self._spent(), time.perf_counter()
        self._process.send_signal(signal.SIGHUP)
        while not self._has_tables_open():
            time.sleep(LOOK)
        opened, spent = time.perf_counter(), self._spent()
        while self._has_tables_open():
            time.sleep(LOOK)
        closed, loaded = time.perf_counter(), self._spent()
        eventually(lambda: self._ups() > ups, "OpenSM's sweep ends", patience=PATIENCE)
        whole, clock = self._spent() - before, time.perf_counter() - start
        return Reload(closed - opened, loaded - spent, clock, whole, self._sent() - sent)

    def _ups(self) -> int:
        return self._log.read_bytes().count(b"-> SUBNET UP") if self._log.exists() else 0

    def _sent(self) -> int:
        """What OpenSM's console counts."""
        with socket.create_connection(self._console) as console:
            console.sendall(b"status\n")
            said = b""
            while (match := _SENT.search(said)) is None:
                said += console.recv(4096)
        return int(match[1])

    def _spent(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def _has_tables_open(self) -> bool:
        for link in Path(f"/proc/{self._process.pid}/fd").iterdir():
            try:
                if link.readlink() == self._tables:
                    return True
            except FileNotFoundError:  # it was closed meanwhile
                continue
        return False


def measure(hosts: int, tenants: int, rounds: int) -> str:
    before, state, cut = states(hosts, tenants)
    with TemporaryDirectory(prefix="laas-loading-") as name:
        place, forms = Path(name).resolve(), {}
        bare = _set(state, place, bare=True)
        forms["bare lines"] = (bare / "lfts").read_bytes()
        forms["without leading zeros"] = _ZEROS.sub(rb"0x\1 \2", forms["bare lines"])
        forms["with port GUIDs"] = (_set(state, place, bare=False) / "lfts").read_bytes()
        inventory = state.inventory
        manager = node_id(inventory, inventory.managers[0])
        with Simulator(netlist(inventory), host=manager) as sim:
            opensm = OpenSm(sim, bare / "opensm.conf", bare / "lfts")
            seen = defaultdict(list)
            for _ in range(rounds):
                for form, text in forms.items():
                    (bare / "lfts").write_bytes(text)
                    seen[form].append(opensm.reload())
            changes = list(_changes(opensm, bare / "lfts", place, (before, state, cut)))
    loading = ("form", "MB", "open s", "loading CPU s", "least")
    columns = (*loading, "reload s", "reload CPU s", "least", "packets")
    changed = ("change", "switches", "blocks", "packets")
    return f"{table(columns, _rows(forms, seen))}\n\n{table(changed, changes)}"


def _set(state: FabricState, place: Path, *, bare: bool) -> Path:
    """Publish the set of a state in a form; its directory."""
    root = place / ("bare" if bare else "named")
    settings = render.Settings(f"{root}/{FABRIC}/current", bare=bare)
    return publish.publish_set(desired.subnet_configuration(state), settings, root, 0).directory


def _rows(forms: dict[str, bytes], seen: dict[str, list[Reload]]) -> Iterator[tuple[str, ...]]:
    for form, reloads in seen.items():
        opened, loading, clock, whole, packets = zip(*reloads, strict=True)
        load = (median(opened), median(loading), min(loading))
        figures = (*load, median(clock), median(whole), min(whole))
        size, sent = f"{len(forms[form]) / 1e6:.1f}", f"{median(packets):.0f}"
        yield form, size, *(f"{figure:.2f}" for figure in figures), sent


def _changes(
    opensm: OpenSm, tables: Path, place: Path, wanted: tuple[FabricState, ...]
) -> Iterator[tuple[str, ...]]:
    """Switches and blocks that differ, and packets sent, from one state's tables to the next."""
    first, *_ = wanted
    tables.write_bytes((_set(first, place / "0", bare=True) / "lfts").read_bytes())
    opensm.reload()
    last = desired.subnet_configuration(first)
    names = ("nothing", "one more tenant", "a cable of a spine")
    for number, (what, each) in enumerate(zip(names, (first, *wanted[1:]), strict=True), 1):
        made = desired.subnet_configuration(each, last)
        counts = [
            len(blocks.differing(last.row_by_lid(switch), made.row_by_lid(switch)))
            for switch in made.tables.rows
        ]
        tables.write_bytes((_set(each, place / f"{number}", bare=True) / "lfts").read_bytes())
        sent = opensm.reload().packets
        yield what, f"{sum(map(bool, counts))}", f"{sum(counts)}", f"{sent}"
        last = made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.loading", description=__doc__)
    parser.add_argument("--hosts", type=int, choices=RADIX, action="append")
    parser.add_argument("--tenants", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3, help="of each form (%(default)s)")
    options = parser.parse_args()
    for hosts in options.hosts or HOSTS:
        text = measure(hosts, options.tenants, options.rounds)
        load = os.getloadavg()[1]
        print(f"OpenSM, {hosts:,} hosts, {os.cpu_count()} cores, load {load:.1f}:\n\n{text}\n")


if __name__ == "__main__":
    main()
