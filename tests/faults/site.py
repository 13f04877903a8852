# SPDX-License-Identifier: Apache-2.0

"""A simulated fabric, the real OpenSM, the real worker as a process, and tenants."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from laas_service.adapters.fabric_import.netlist import netlist, node_id
from laas_service.app.records import AllocationRecord, FabricRecord, HostState, Observation
from laas_service.app.requests import AllocationRequest
from laas_service.app.use_cases import UseCases
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.errors import Unavailable
from laas_service.domain.inventory import PortRef
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.topology import Link
from laas_service.wiring.composition import Composition
from opensm_writer import parse
from tests.drafts import on_ledger
from tests.faults.fabrics import Fabric
from tests.faults.wiring import Judge, Pairs, Rows, Wiring
from tests.ibsim import Simulator
from tests.options import options_from
from tests.servers.leash import spawn
from tests.waiting import eventually

ID = "site"

CONFIGURATION = """\
[DEFAULT]
state_dir = {state}
[database]
connection = sqlite:///{state}/laas.sqlite
[opensm]
{opensm}
[worker]
{worker}
[faults]
{faults}
"""

REACHED = """\
pid_file = {here}/opensm.pid
dump_command = {tool},dump_lfts,-n
tools = {tools}
log_file = {here}/osm.log
cache_directory = {here}
timeout = 600
patience = 300"""
"""The options by which the worker reaches OpenSM and the switches."""

FOUND = "directory = {state}/opensm"
"""The one option of a worker that finds them in its PATH and among the processes."""

Settings = Mapping[str, object]


class Site:
    """A fabric with tenants, all active when the block is entered.

    ``faults`` and ``worker`` are options of these sections; all others have their defaults.
    ``sweep`` is OpenSM's own interval in seconds (its default is 10). ``opensm`` are options that
    say how the worker reaches it: ``REACHED`` or ``FOUND``.
    """

    def __init__(
        self,
        fabric: Fabric,
        *,
        faults: Settings,
        worker: Settings | None = None,
        sweep: int = 10,
        patience: float = 300,
        opensm: str = REACHED,
    ) -> None:
        self.fabric, self.topology, self.inventory = fabric, fabric.topology, fabric.inventory
        self.patience, self._opensm = patience, opensm
        self._faults, self._worker_options, self._sweep = faults, worker or {}, sweep
        self.wiring = Wiring(self.inventory)
        self.judge = Judge(self.topology, self.inventory)
        self.sim = Simulator(netlist(self.inventory), host=node_id(self.inventory, fabric.manager))
        self._endpoints = {PortRef(end.guid, 0): end for end in self.inventory.endpoints}

    def __enter__(self) -> Site:
        self.sim.__enter__()
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.sim.close()

    def _start(self) -> None:
        here = self.sim.directory
        self.state = here / "state"
        self.state.mkdir()
        self.config = here / "laas.conf"
        self._configure()
        conf = options_from(self.config)
        self.parts = Composition(conf)
        self.parts.database.upgrade()
        self.store = self.parts.store
        self.store.fabrics.add(ID, self.topology, self.inventory)
        self.operator: UseCases = self.parts.use_cases(lambda: None)
        for spare in self.fabric.spares:
            self.store.components.set_host_state(ID, spare, HostState.DRAINED)
        for number, hosts in enumerate(self.fabric.sizes):
            self.admit(f"t{number}", hosts)
        with suppress(Unavailable):  # OpenSM does not run yet
            self.parts.subnet_managers.of_worker.publish(self.store.fabrics.routed(ID))
        current = self.state / "opensm" / ID / "current" / "opensm.conf"
        process = self.sim.start(
            *("opensm", "-F", str(current), "-f", "osm.log", "-s", str(self._sweep)),
            *("-D", "0x03", "--dump_files_dir", "."),
        )
        (here / "opensm.pid").write_text(f"{process.pid}\n")
        eventually(self._is_up, "OpenSM's first sweep ends", patience=self.patience)
        self.start_worker()
        eventually(self.is_sound, self.describe, patience=self.patience)

    def _is_up(self) -> bool:
        log = self.sim.directory / "osm.log"
        return log.exists() and b"SUBNET UP" in log.read_bytes()

    def _configure(self) -> None:
        here, environment = self.sim.directory, self.sim.environment()
        variables = [f"{key}={environment[key]}" for key in ("IBSIM_SOCKNAME", "LD_PRELOAD")]
        tool = ("env", "-C", str(here), *variables, f"SIM_HOST={self.sim.host}")
        self.dump = (*tool, "dump_lfts", "-n")
        self.tools = self.sim.tools(here / "tools")
        if self._opensm == REACHED:
            (self.tools / "perfquery").unlink()  # whose runs would not let the worker rest

        def lines(values: Settings) -> str:
            return "\n".join(f"{key} = {value}" for key, value in values.items())

        self.config.write_text(
            CONFIGURATION.format(
                state=self.state,
                opensm=self._opensm.format(
                    state=self.state, here=here, tool=",".join(tool), tools=self.tools
                ),
                worker=lines(self._worker_options),
                faults=lines(self._faults),
            )
        )

    def start_worker(self) -> None:
        """Start ``laas-worker``; it ends with the block."""
        with (self.sim.directory / "worker.log").open("ab") as log:
            self.worker: subprocess.Popen[bytes] = spawn(
                [
                    *(sys.executable, "-m", "laas_service.cmd.worker"),
                    *("--config-file", str(self.config)),
                ],
                cwd=Path(__file__).parents[2],
                env=os.environ | {"PATH": f"{self.tools}:{os.environ['PATH']}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.sim._processes.append(self.worker)

    def rest(self, seconds: float = 1.0) -> None:
        """Wait until the worker has run no tool for some seconds, such as one that reads tables."""
        tasks, since = Path(f"/proc/{self.worker.pid}/task"), [time.monotonic()]

        def rested() -> bool:
            if any(path.read_text() for path in tasks.glob("*/children")):
                since[0] = time.monotonic()
            return time.monotonic() - since[0] >= seconds

        eventually(rested, self.describe, patience=self.patience)

    def processor_seconds(self) -> float:
        """Processor time of the simulator, OpenSM and the worker, with tools that have ended."""
        times = [psutil.Process(process.pid).cpu_times() for process in self.sim._processes]
        return float(sum(t.user + t.system + t.children_user + t.children_system for t in times))

    # -- tenants ----------------------------------------------------------------

    def admit(self, id: str, hosts: int) -> bool:
        """Admit a tenant by Jigsaw; whether there was room."""
        new = AllocationRequest(
            id=id, fabric=ID, name=id, project_id=f"of-{id}", policy="jigsaw", hosts=hosts
        )
        record = self.store.admissions.admit(
            new, on_ledger(partial(admit, Jigsaw(), request=Request(id, hosts)))
        )
        return isinstance(record, AllocationRecord)

    def records(self) -> list[AllocationRecord]:
        return [
            record for record in self.store.allocations.page(fabric=ID) if record.placed is not None
        ]

    def tenants(self) -> list[tuple[Allocation, set[Link]]]:
        """The placement of each tenant, and all links that it holds."""
        tenants = []
        for record in self.records():
            placed, held = record.placed, record.held
            if placed is not None and held is not None:
                tenants.append((placed, set(held.links(self.topology))))
        return tenants

    # -- what the service says ----------------------------------------------------

    @property
    def record(self) -> FabricRecord:
        return self.store.fabrics.get(ID)

    @property
    def seen(self) -> Observation:
        return self.store.faults.observation(ID)

    @property
    def failed(self) -> set[Link]:
        return set(self.store.fabrics.ledger(ID)[0].failed_links)

    def is_confirmed(self) -> bool:
        """Whether the newest routes were read back, and no change of a placement is under way."""
        applied = self.store.observations.holding(ID).applied
        return applied == self.record.routes_generation and not any(
            record.phase for record in self.records()
        )

    def is_settled(self) -> bool:
        """Whether the newest routes were read back and nobody waits for other links.

        A tenant for which there are no other links says so.
        """
        return self.is_confirmed() and all(
            record.error for record in self.records() if record.faults
        )

    def is_sound(self) -> bool:
        """Whether all tenants are active, nothing is down, and the routes are confirmed."""
        records = self.records()
        return (
            self.is_confirmed()
            and all(r.state.value == "active" and not r.faults for r in records)
            and self.seen.read_at is not None
            and not self.seen.memory.marked
            and not self.seen.memory.switches
        )

    def describe(self) -> str:
        holding = self.store.observations.holding(ID)
        states = {r.id: (r.state.value, r.phase, r.faults, r.error) for r in self.records()}
        log = (self.sim.directory / "worker.log").read_text(errors="replace")[-3000:]
        return f"{holding}\n{self.record.routes_generation}\n{states}\n{self.seen.memory}\n{log}"

    # -- the switches -------------------------------------------------------------

    def rows(self) -> Rows:
        """The tables in the switches; those of silent switches are missing.

        ``dump_lfts`` prints zeros for blocks that it could not read, and names the switch in its
        error output only. Such a table is missing, too.
        """
        done = self.sim.run(*self.dump, check=False)
        rows = parse.dumped_tables(done.stdout.splitlines())
        for line in done.stderr.splitlines():
            if line.startswith("SubnGet(LFT) failed"):
                rows.pop(int(line.partition("Node GUID ")[2].split()[0], 16), None)
        return rows

    def pairs(self, known: Rows | None = None) -> Pairs:
        """Walk all pairs over the switches' tables.

        A link that a tenant held before or after the tables were read is its own. ``known``
        has the tables of switches that do not answer.
        """
        before = self.tenants()
        rows = {**(known or {}), **self.rows()}
        after = {tenant.id: links for tenant, links in self.tenants()}
        both = [(tenant, links | after.get(tenant.id, set())) for tenant, links in before]
        return self.judge.pairs(rows, self.wiring, both)

    # -- faults -------------------------------------------------------------------

    def cut(self, ports: Iterable[PortRef]) -> None:
        """Unplug the cables at these switch ports, as fast as possible."""
        ports = list(ports)
        self._console(f'Unlink "S-{port.guid:016x}"[{port.port}]' for port in ports)
        for port in ports:
            self.wiring.cut(port)

    def mend(self, ports: Iterable[PortRef]) -> None:
        """Plug the cables of these switch ports in as they were."""
        for port in [port for port in ports if port not in self.wiring.far]:
            if port not in self.wiring.far:  # the other end of the cable was not among them
                self.connect(port, self.wiring.recorded[port])

    def connect(self, first: PortRef, second: PortRef) -> None:
        """Plug a cable into two free ports."""
        self._console([f"Link {self._name(first)} {self._name(second)}"])
        self.wiring.connect(first, second)

    def kill(self, switch: int) -> None:
        """Take the power of a switch."""
        self._console([f'Unlink "S-{switch:016x}"'])
        for port in self.wiring.ports(switch):
            self.wiring.cut(port)

    def revive(self, switch: int) -> None:
        self.mend(self.wiring.ports(switch))

    def silence(self, switch: int, share: int = 100) -> None:
        """Let a switch drop management packets (percent); it forwards as before."""
        self._console([f'Error "S-{switch:016x}" {share}'])

    def _name(self, port: PortRef) -> str:
        if port.port:
            return f'"S-{port.guid:016x}"[{port.port}]'
        return f'"{node_id(self.inventory, self._endpoints[port])}"[1]'

    def _console(self, lines: Iterable[str]) -> None:
        self.sim.console("\n".join(lines))
