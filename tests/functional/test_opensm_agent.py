# SPDX-License-Identifier: Apache-2.0

"""laas-api, laas-worker, agents and the real OpenSM: each failure is reported as its condition.

All processes are real, and the agents reach the service over REST alone. The tests check the
tables in the simulated switches.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import requests
from keystoneauth1.adapter import Adapter
from keystoneauth1.noauth import NoAuth
from keystoneauth1.session import Session

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.fabric_import.netlist import netlist, node_id
from laas_service.client.rest import SERVICE_TYPE, Rest
from laas_service.domain.faults.reading import PortState
from laas_service.domain.verification import physical_tables, walk_violations
from laas_service.wiring.composition import Composition
from opensm_writer import fileset, parse
from tests.functional.test_opensm_keys import (
    FULL,
    LIMITED,
    STARTS,
    SWEPT,
    raw_keys,
    write_entries,
    write_keys,
)
from tests.ibsim import Simulator
from tests.marks import needs_ibsim
from tests.options import options_from
from tests.servers.process import Port, Process
from tests.waiting import eventually

pytestmark = needs_ibsim

ROOT = Path(__file__).resolve().parents[2]

LEASE = 30
"""Seconds. Agents report several times a second; with a shorter lease, an agent that is delayed
on a busy machine would lose it."""

SERVICE = """\
[DEFAULT]
state_dir = {directory}/service
[database]
connection = sqlite:///{directory}/laas.db
[api]
bind_port = {port}
[opensm]
reached_by = agent
directory = {machine}
agent_lease_seconds = {lease}
patience = 2
[worker]
poll_interval = 0.2
reconcile_interval = 1
retry_last = 1
"""

AGENT = """\
[DEFAULT]
state_dir = {machine}
[laas]
endpoint_override = {url}
[opensm]
directory = {machine}
agent_name = {name}
agent_fabric = main
agent_poll_interval = {poll}
pid_file = {machine}/opensm.pid
log_file = {subnet}/osm.log
cache_directory = {subnet}
dump_command = {dump}
tools = {tools}
[worker]
apply_timeout = 120
"""


STANDS_BY = "Entering STANDBY state"


class Machine:
    """A machine (a directory) with an OpenSM, and the port of the API that its agent uses."""

    def __init__(self, directory: Path, sim: Simulator, node: str) -> None:
        self.directory, self.sim, self.node = directory, sim, node
        self.home = directory / "main"
        self.subnet = directory / "subnet"  # OpenSM's own files
        self.subnet.mkdir(parents=True)
        self.port = Port()
        environment = sim.environment(node)
        names = ("IBSIM_SOCKNAME", "LD_PRELOAD", "SIM_HOST")
        client = [f"{name}={environment[name]}" for name in names]
        tool = ["env", f"--chdir={sim.directory}", *client]
        self.dump = [*tool, "dump_lfts", "-n"]

    def configure(self, site: Path) -> Path:
        """Write the configuration of the API that serves this machine's agent; return its path."""
        config = site / f"{self.directory.name}.conf"
        config.write_text(
            SERVICE.format(
                directory=site, machine=self.directory, port=self.port.number, lease=LEASE
            )
        )
        return config

    def start_opensm(self, *more: str) -> None:
        places = [f"{name}={self.subnet}" for name in ("OSM_CACHE_DIR", "OSM_TMP_DIR")]
        command = ("opensm", "-F", str(self.home / "current" / "opensm.conf"))
        log = ("-f", str(self.subnet / "osm.log"), "-s", "0")
        self.opensm = self.sim.start("env", *places, *command, *log, *more, host=self.node)
        fileset.replace_file(self.directory / "opensm.pid", f"{self.opensm.pid}\n")

    def kill_opensm(self) -> None:
        self.opensm.kill()
        self.opensm.wait()

    def logged(self, words: str) -> int:
        """How often OpenSM has logged the words."""
        log = self.subnet / "osm.log"
        return log.read_text().count(words) if log.exists() else 0

    def logs_again(self, words: str, before: int, patience: float) -> None:
        """Wait until OpenSM has logged the words more than ``before`` times."""
        eventually(lambda: self.logged(words) > before, f"OpenSM logs {words}", patience)


class Site:
    """A service, and machines with OpenSM and agents; most tests use one machine."""

    def __init__(self, directory: Path, machines: int = 1) -> None:
        made = generate(Description(xgft="3;2,2,4;1,2,2", subnet_managers=machines))
        self.topology, self.inventory = made.topology, made.inventory
        self.managers = [e for e in made.inventory.endpoints if e.host is None]
        nodes = [node_id(made.inventory, manager) for manager in self.managers]
        self.sim = Simulator(netlist(made.inventory), host=nodes[0])
        self.directory = directory
        self.machines = [
            Machine(directory / f"machine{number}", self.sim, node)
            for number, node in enumerate(nodes)
        ]
        self.machine = self.machines[0]
        self.home, self.port = self.machine.home, self.machine.port
        self.start_opensm, self.kill_opensm = self.machine.start_opensm, self.machine.kill_opensm
        self.running: list[Process] = []
        self.configs = [machine.configure(directory) for machine in self.machines]
        session = Session()
        self.rest = Rest(Adapter(session, auth=NoAuth(self.port.url), service_type=SERVICE_TYPE))

    @property
    def opensm(self) -> subprocess.Popen[bytes]:
        return self.machine.opensm

    # -- processes

    def start(self, name: str, module: str, config: Path) -> Process:
        command = [sys.executable, "-m", f"laas_service.cmd.{module}", "--config-file", str(config)]
        process = Process(command, self.directory / f"{name}.log", os.environ)
        self.running.append(process)
        return process

    def serve(self) -> None:
        """Create a database with the fabric; start an API for each machine, and a worker."""
        parts = self.parts()
        parts.database.upgrade()
        parts.store.fabrics.add("main", self.topology, self.inventory)
        parts.database.engine.dispose()
        for number, (machine, config) in enumerate(zip(self.machines, self.configs, strict=True)):
            api = self.start(f"api{number}", "api", config)
            api.wait_for(f"{machine.port.url}/healthcheck")
        self.start("worker", "worker", self.configs[0])

    def parts(self) -> Composition:
        return Composition(options_from(self.configs[0]))

    def agent(
        self,
        name: str,
        machine: int = 0,
        *,
        counters: bool = False,
        poll: float = 0.3,
    ) -> Process:
        there = self.machines[machine]
        tools = self.sim.tools(there.directory / f"tools-{name}", host=there.node)
        if not counters:
            (tools / "perfquery").unlink()
        config = there.directory / f"{name}.conf"
        config.write_text(
            AGENT.format(
                machine=there.directory,
                url=there.port.url,
                name=name,
                subnet=there.subnet,
                dump=",".join(there.dump),
                tools=tools,
                poll=poll,
            )
        )
        return self.start(name, "opensm_agent", config)

    def start_master_and_standby(self, master: Machine, standby: Machine) -> None:
        """Start two OpenSMs; both again until the master still sweeps beside its standby.

        Prints how often they were started.

        A master asks a subnet manager that it discovers at once, and may wait for the answer for
        ever: a request that the starting process lost is not timed out by the simulator, as it
        is by the kernel (libumad2sim does not use ``timeout_ms``). OpenSM alone, without any of
        our files, stood still in 4 of 8 starts. The agent of the master is called a.
        """
        for starts in range(1, STARTS + 1):
            standing = standby.logged(STANDS_BY)
            master.start_opensm("-p", "9")
            self.becomes("applied")
            standby.start_opensm("-p", "3")
            with contextlib.suppress(AssertionError):
                standby.logs_again(STANDS_BY, standing, patience=30.0)
                swept = master.logged(SWEPT)
                master.opensm.send_signal(signal.SIGHUP)
                master.logs_again(SWEPT, swept, patience=30.0)
                print(f"a master and its standby run after {starts} starts")
                return
            standby.kill_opensm()
            master.kill_opensm()
            self.becomes("dead")
        raise AssertionError(f"a master stood still beside its standby {STARTS} times")

    # -- observations

    def seen(self, name: str = "a"):
        """The last report of an agent; None before the first one."""
        agents = self.rest.get("/v1/fabrics/main/agents")["agents"]
        return next((agent for agent in agents if agent["name"] == name), None)

    def until(self, look, what: str):
        return eventually(look, lambda: f"{what}:\n{self.said()}")

    def becomes(self, condition: str, name: str = "a", detail: str = "") -> None:
        def look():
            seen = self.seen(name)
            return seen and seen["condition"] == condition and detail in (seen["detail"] or "")

        self.until(look, f"agent {name} becomes {condition} {detail}")

    def rests(self) -> None:
        """Wait until OpenSM has answered every signal: its log has stopped growing."""
        log, sizes = self.machine.subnet / "osm.log", [-1]

        def look():
            sizes.append(log.stat().st_size)
            return sizes[-1] == sizes[-2]

        eventually(look, "OpenSM's log has stopped growing", pause=3.0)

    def said(self) -> str:
        logs = sorted([*self.directory.glob("*.log"), *self.directory.glob("*/subnet/osm.log")])
        return "\n".join(f"--- {log}\n{log.read_text()[-4000:]}" for log in logs)

    def log(self, name: str = "a") -> str:
        return (self.directory / f"{name}.log").read_text()

    def logs(self, since: int, *words: str) -> None:
        """Wait until agent a has logged the words in this order, after ``since`` characters."""
        pattern = re.compile(".*".join(map(re.escape, words)), re.DOTALL)
        self.until(lambda: pattern.search(self.log()[since:]), f"agent a logs {words}")

    def ask(self, name: str, hosts: int) -> str:
        body = {"name": name, "hosts": hosts}
        return str(self.rest.call("POST", "/v1/allocations", body=body)["id"])

    def allocation(self, id: str):
        return self.rest.get(f"/v1/allocations/{id}")

    def is_active(self, id: str) -> None:
        self.until(lambda: self.allocation(id)["state"] == "active", f"{id} is active")

    def rows(self) -> dict[int, bytes]:
        """The forwarding tables in the switches, by GUID."""
        return parse.dumped_tables(self.sim.read(*self.machine.dump).splitlines())

    def check_switches(self) -> None:
        """Wait until the switches hold the published tables, then check isolation.

        The wait has two reasons: the agent logs an observation before it reports it, so that
        the state of the service may be older, and ``dump_lfts`` sometimes leaves out a switch
        on a busy machine.
        """
        lfts = (self.home / "current" / "lfts").read_bytes()
        wanted = {t.guid: t.row for t in parse.switch_tables([lfts], "lfts")}
        self.until(lambda: self.rows() == wanted, "the wanted tables are in the switches")
        parts = self.parts()
        placed = [r.placed for r in parts.store.allocations.page() if r.placed is not None]
        parts.database.engine.dispose()
        assert placed
        tables = physical_tables(wanted, self.inventory.lids)
        guids = [manager.guid for manager in self.managers]
        walks = walk_violations(self.topology, self.inventory, tables, placed, guids)
        assert walks.violations == []

    def close(self) -> None:
        for process in reversed(self.running):
            process.stop()
        for machine in self.machines:
            machine.port.close()


@pytest.fixture
def site(tmp_path, request):
    site = Site(tmp_path, getattr(request, "param", 1))
    with site.sim:
        try:
            yield site
        finally:
            site.close()


def test_from_the_request_to_the_switches_whatever_happens_to_opensm(site):
    site.serve()
    first = site.agent("a")
    site.becomes("dead")
    site.start_opensm()
    site.becomes("applied")
    blue = site.ask("blue", 5)
    site.is_active(blue)
    site.check_switches()
    assert b"portguid" not in (site.home / "current" / "lfts").read_bytes()

    # OpenSM dies: a new allocation waits and shows the reason until OpenSM is back.
    site.kill_opensm()
    site.becomes("dead", detail="OpenSM does not run")
    red = site.ask("red", 3)

    site.until(
        lambda: "agent a: dead: OpenSM does not run" in str(site.allocation(red).get("error")),
        "the reason is shown",
    )
    assert site.allocation(red)["state"] == "allocating"
    site.start_opensm()
    site.is_active(red)
    site.check_switches()

    # OpenSM is restarted: the new process is signalled, and its tables are confirmed.
    site.becomes("applied")
    before = len(site.log())
    site.kill_opensm()
    site.start_opensm()
    site.logs(before, "restarted, generation None", "applied, generation")
    site.becomes("applied")

    # OpenSM is stopped and continued.
    os.kill(site.opensm.pid, signal.SIGSTOP)
    site.becomes("wedged", detail="stopped")
    os.kill(site.opensm.pid, signal.SIGCONT)
    site.becomes("applied")

    # OpenSM reads an older set while the agent is stopped.
    earlier = min(site.home.glob("gen-*"), key=lambda path: fileset.read_manifest(path).generation)
    number = fileset.read_manifest(earlier).generation
    wanted = site.seen()["published"]
    assert number < wanted
    before = len(site.log())
    lfts = (site.home / "current" / "lfts").resolve()
    ours, older = lfts.read_bytes(), (earlier / "lfts").read_bytes()
    os.kill(first.pid, signal.SIGSTOP)
    site.rests()
    lfts.write_bytes(older)
    os.kill(site.opensm.pid, signal.SIGHUP)
    told = {t.guid: t.row for t in parse.switch_tables([older], "lfts")}
    site.until(lambda: site.rows() == told, "the older tables are in the switches")
    lfts.write_bytes(ours)
    os.kill(first.pid, signal.SIGCONT)
    noticed = f"other_generation, generation {number}, published {wanted}"
    site.logs(before, noticed, "applied, generation")
    site.becomes("applied")
    site.check_switches()

    # OpenSM is started with another routing engine.
    site.kill_opensm()
    site.start_opensm("-R", "minhop")
    site.becomes("other_engine", detail="OpenSM routed with minhop, not file")
    site.kill_opensm()
    site.start_opensm()
    site.becomes("applied")
    site.check_switches()

    # The agent is stopped.
    first.stop()
    assert "Traceback" not in site.log()


def test_a_new_tenant_becomes_active_while_a_spine_is_dead(site):
    """The agent reads the ports after OpenSM's log told of the change, and counters all along."""
    site.serve()
    site.agent("a", counters=True)
    site.becomes("dead")
    site.start_opensm()
    site.becomes("applied")
    spine = site.inventory.spine_guids[0]
    site.sim.console(f'Unlink "S-{spine:016x}"')

    def routing():
        return site.rest.get("/v1/fabrics/main/routing")["subnet_managers"][0]

    site.until(lambda: routing()["without"] == [f"{spine:#018x}"], "the spine is left out")
    assert routing()["current"]
    parts = site.parts()
    reading = parts.subnet_managers.of_worker.reading("main")
    parts.database.engine.dispose()
    unread = {end for end, state, _ in reading.ends if state is PortState.UNREAD}
    assert unread == {
        end for pair in site.inventory.cable_ends for end in pair if end.guid == spine
    }
    blue = site.ask("blue", 5)
    site.is_active(blue)
    for first, second in site.inventory.cable_ends:
        if spine in (first.guid, second.guid):
            ends = (f'"S-{end.guid:016x}"[{end.port}]' for end in (first, second))
            site.sim.console(f"Link {' '.join(ends)}")
    site.until(lambda: routing()["without"] == [], "the spine has returned")
    site.until(lambda: routing()["current"], "its tables are confirmed")
    site.check_switches()

    def counters():
        return site.rest.get("/v1/fabrics/main/observation")["counters"]

    switches = len(site.inventory.switches)
    site.until(lambda: counters()["switches"] == switches, "counters of every switch are recorded")
    metrics = site.machine.port.url + "/metrics"
    shown = f'laas_allocation_data_bytes_total{{allocation="{blue}",fabric="main"'
    site.until(lambda: shown in requests.get(metrics, timeout=30).text, "metrics show the data")


def test_when_the_active_agent_is_killed_the_other_takes_over(site):
    site.serve()
    agents = {"a": site.agent("a")}
    site.becomes("dead")
    site.start_opensm()
    site.becomes("applied")
    agents["b"] = site.agent("b")
    site.becomes("applied", "b")
    blue = site.ask("blue", 5)
    site.is_active(blue)
    generation = site.rest.get("/v1/fabrics/main/routing")["generation"]
    for name in agents:
        site.until(lambda name=name: site.seen(name)["generation"] == generation, "both see it")

    (active,) = [name for name in agents if site.seen(name)["role"] == "active"]
    (other,) = agents.keys() - {active}
    os.kill(agents[active].pid, signal.SIGKILL)
    red = site.ask("red", 3)
    site.is_active(red)
    site.until(lambda: (site.seen(other)["generation"] or 0) > generation, "it acknowledges")
    assert site.seen(other)["role"] == "active"
    assert site.seen(active)["role"] == "standby"
    assert "OpenSM was signalled" in site.log(other)
    site.check_switches()


@pytest.mark.parametrize("site", [2], indirect=True)
def test_when_the_master_dies_its_standby_routes_what_is_wanted(site):
    """Two machines, each with an OpenSM and an agent; both processes of one are killed."""
    first, second = site.machines
    site.serve()
    site.agent("b", machine=1)
    site.becomes("dead", "b")
    agent = site.agent("a")
    site.becomes("dead")
    site.start_master_and_standby(first, second)
    site.becomes("not_master", "b", detail="another subnet manager")
    blue = site.ask("blue", 5)
    site.is_active(blue)
    assert [site.seen(name)["role"] for name in "ab"] == ["active", "standby"]

    first.kill_opensm()
    os.kill(agent.pid, signal.SIGKILL)
    red = site.ask("red", 3)
    site.is_active(red)
    assert [site.seen(name)["role"] for name in "ab"] == ["standby", "active"]
    site.becomes("applied", "b")
    site.home = second.home
    site.check_switches()


if os.environ.get("LAAS_KEYS") == "full":

    def test_every_kind_of_drift_is_told_and_repaired(site):
        """Prints seconds until an agent that polls as often as by default told it, and repaired it.

        Here ``smpquery`` and ``dump_lfts`` read the keys and tables. Seconds count from the moment
        when the drift is in force, or when an operator has restarted OpenSM.
        """
        site.serve()
        agent = site.agent("a", poll=2)
        site.becomes("dead")
        site.start_opensm()
        ids = [site.ask("blue", 5), site.ask("red", 3)]
        for id in ids:
            site.is_active(id)
        site.becomes("applied")
        parts = site.parts()
        placed = {r.id: r.placed for r in parts.store.allocations.page()}
        parts.database.engine.dispose()
        blue, red = (placed[id].hosts(site.topology)[0] for id in ids)
        lids, ends = site.inventory.lids, site.inventory.endpoint_of_port
        end = ends[blue, 0]
        host, leaf, ours = lids[end.guid], lids[end.at.guid], lids[site.managers[0].guid]
        own, foreign = (raw_keys(site, lids[ends[tenant, 0].guid])[0] for tenant in (blue, red))
        assert len({own, foreign, LIMITED}) == 3
        current = site.home / "current"
        lfts, partitions = current / "lfts", current / "partitions.conf"
        older = min(site.home.glob("gen-*"), key=lambda d: fileset.read_manifest(d).generation)
        lines = []

        def everything() -> tuple[dict[int, bytes], list[object]]:
            """All tables, and of each port the key at index 0 of adapters, and all keys."""
            adapters = [raw_keys(site, lid) for lid in lids.values()]
            at_leaves = [(lids[e.at.guid], e.at.port) for e in site.inventory.endpoints]
            read = [(keys[0], {*keys} - {0}) for keys in adapters]
            return site.rows(), [*read, *({*raw_keys(site, *at)} - {0} for at in at_leaves)]

        published = everything()

        def drift(kind: str, condition: str, make, *values, remedy=None) -> None:
            site.becomes("applied")
            make(*values)
            begun = time.monotonic()
            site.becomes(condition)
            told = time.monotonic() - begun
            if remedy is not None:
                remedy()
                begun = time.monotonic()
            site.becomes("applied")
            again = time.monotonic() - begun
            assert everything() == published
            lines.append(f"{kind:56} {condition:17} {told:5.1f} {again:6.1f}")

        def write_beyond() -> None:
            write_keys(site, host, 0, 0, 0, 0, 0, 0, foreign, block=1)

        def write_entry() -> None:
            entries = bytearray(published[0][end.at.guid].ljust(64, b"\xff")[:64])
            entries[host] = 1 + entries[host] % 2
            write_entries(site, leaf, bytes(entries))

        def swept_for(path: Path, content: bytes) -> None:
            """OpenSM reads another file while the agent does not look."""
            os.kill(agent.pid, signal.SIGSTOP)
            site.rests()
            before = path.read_bytes()
            path.write_bytes(content)
            swept = site.machine.logged(SWEPT)
            os.kill(site.opensm.pid, signal.SIGHUP)
            site.machine.logs_again(SWEPT, swept, patience=60.0)
            path.write_bytes(before)
            os.kill(agent.pid, signal.SIGCONT)

        def restart(*more: str) -> None:
            site.kill_opensm()
            site.start_opensm(*more)

        keys = partial(write_keys, site)
        wrong, another = "wrong_keys", [own, LIMITED, foreign]
        drift("another tenant's key in a host's port", wrong, keys, host, 0, *another)
        drift("the tenant's key is missing in a host's port", wrong, keys, host, 0, LIMITED)
        drift("the tenant's key at index 1", wrong, keys, host, 0, LIMITED, own)
        drift("the default key as a full member", wrong, keys, host, 0, own, FULL)
        drift("another tenant's key in a leaf's port", wrong, keys, leaf, end.at.port, *another)
        drift("a tenant's key in a switch", wrong, keys, leaf, 0, FULL, own)
        drift("a tenant's key in the manager's port", wrong, keys, ours, 0, FULL, own)
        drift("another tenant's key at index 37", wrong, write_beyond, remedy=restart)
        garbage = b"Default=0x7fff: ALL=full;\nno partition"
        drift("OpenSM read a malformed partition file", wrong, swept_for, partitions, garbage)
        drift("an entry of a forwarding table", "differs", write_entry)
        drift(
            "the tables of an older set",
            "other_generation",
            swept_for,
            lfts,
            (older / "lfts").read_bytes(),
        )
        drift("another routing engine", "other_engine", restart, "-R", "minhop", remedy=restart)
        print("\n".join(lines))

    @pytest.mark.parametrize("site", [2], indirect=True)
    def test_a_standby_with_older_files_takes_over(site):
        """It routes by them, nothing is confirmed meanwhile, and its agent makes up for it."""
        first, second = site.machines
        site.serve()
        standby = site.agent("b", machine=1)
        site.becomes("dead", "b")
        agent = site.agent("a")
        site.becomes("dead")
        blue = site.ask("blue", 5)
        site.until(lambda: not site.seen("b")["behind"], "b has the set with blue")
        site.start_master_and_standby(first, second)
        site.is_active(blue)
        site.becomes("not_master", "b", detail="another subnet manager")
        os.kill(standby.pid, signal.SIGKILL)
        red = site.ask("red", 3)
        site.is_active(red)
        assert [site.seen(name)["behind"] for name in "ab"] == [False, True]
        wanted, older = site.rows(), (second.home / "current" / "lfts").read_bytes()

        first.kill_opensm()
        os.kill(agent.pid, signal.SIGKILL)
        old = {t.guid: t.row for t in parse.switch_tables([older], "lfts")}
        assert old != wanted
        begun = time.monotonic()
        site.until(lambda: site.rows() == old, "the standby routes by its older files")
        taken = time.monotonic() - begun

        def shown():
            return site.rest.get("/v1/fabrics/main/routing")["subnet_managers"][0]

        site.until(lambda: not shown()["current"], "nothing is confirmed")
        assert "no agent reports" in shown()["problem"]
        site.agent("b", machine=1)
        site.becomes("applied", "b")
        assert not site.seen("b")["behind"]
        assert site.rows() == wanted
        site.until(lambda: shown()["current"], "the wanted generation is confirmed again")
        print(f"older tables {taken:.1f} s after the master's end, {shown()}")
