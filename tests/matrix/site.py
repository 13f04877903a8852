# SPDX-License-Identifier: Apache-2.0

"""Environment of a cell: the state that survives a crash, and the surrounding servers."""

from __future__ import annotations

import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.fabric_import.netlist import netlist
from laas_service.app.records import LinkState
from laas_service.domain.topology import LeafLink
from laas_service.wiring.composition import Composition
from tests import nova_standin
from tests.ibsim import Simulator
from tests.matrix.proxy import Proxy
from tests.options import options_from
from tests.servers.postgresql import PostgreSql
from tests.servers.rabbitmq import RabbitMQ
from tests.waiting import eventually

FABRIC = generate(Description(xgft="3;2,2,4;1,2,2", subnet_managers=1))
"""16 hosts in 4 pods, and a port for the subnet manager."""

CONFIGURATION = """\
[DEFAULT]
state_dir = {state}
{bus}
[database]
connection = {database}
[worker]
poll_interval = 0.2
lease_seconds = 3600
reconcile_interval = 3600
retry_first = 0.1
retry_last = 0.2
repair_links = {repair_links}
[compute]
kind = nova
[nova]
auth_type = admin_token
endpoint = http://127.0.0.1:{nova}/compute
token = {token}
[placement]
auth_section = nova
endpoint_override = http://127.0.0.1:{nova}/placement
[opensm]
{opensm}
"""

BUS = """\
transport_url = {url}
[oslo_messaging_notifications]
driver = messagingv2
"""

LEAVE = b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'site'"

SWEEP = ("-f", "osm.log", "-s", "0", "-D", "0x43", "--dump_files_dir", ".")


@dataclass(frozen=True)
class Ground:
    """Servers that a cell needs.

    ``sqlite`` puts the database on a small disk, in place of PostgreSQL. ``proxy`` puts a
    proxy in front of PostgreSQL. ``opensm`` and ``broker`` start the real programs.
    """

    sqlite: bool = False
    proxy: bool = False
    opensm: bool = False
    broker: bool = False


class World:
    """The servers that all cells share; each starts when a cell first needs it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._postgresql: PostgreSql | None = None
        self._broker: RabbitMQ | None = None
        self._disk: Path | None = None
        self.mounted = False
        self.directory = Path(tempfile.mkdtemp(prefix="laas-matrix-"))
        self.nova = nova_standin.Server()
        self.kept: dict[tuple[str, bool], nova_standin.Cloud] = {}

    def __enter__(self) -> World:
        self._stack.enter_context(self.nova)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def postgresql(self) -> PostgreSql:
        if self._postgresql is None:
            self._postgresql = self._stack.enter_context(PostgreSql())
        return self._postgresql

    @property
    def broker(self) -> RabbitMQ:
        if self._broker is None:
            self._broker = self._stack.enter_context(RabbitMQ())
        return self._broker

    @property
    def disk(self) -> Path:
        """A tmpfs of 16 MB, or a plain directory if mounting is not permitted."""
        if self._disk is None:
            self._disk = self.directory / "disk"
            self._disk.mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(self._disk)]
            self.mounted = not subprocess.run(mount, capture_output=True, check=False).returncode
            if self.mounted:
                self._stack.callback(subprocess.run, ["umount", "-l", str(self._disk)], check=True)
        return self._disk

    def query(self, statement: str) -> None:
        socket = str(self.postgresql.directory)
        with psycopg.connect(host=socket, user="laas", dbname="postgres", autocommit=True) as made:
            made.execute(LEAVE)
            self._patiently(lambda: made.execute(statement.encode()))

    def _patiently(self, act: Callable[[], object]) -> None:
        """Retry ``act`` while sessions of killed processes still hold the database."""

        def done() -> bool:
            try:
                act()
            except psycopg.errors.ObjectInUse:
                return False
            return True

        eventually(done, "the database is left", pause=0.5)


class Site:
    """Database, files and cloud of one cell, with copies of initial states.

    All cells use the same directory, because published files contain its name.
    """

    def __init__(self, world: World, ground: Ground) -> None:
        self.world = world
        self.ground = ground
        self._stack = ExitStack()
        home = world.disk if ground.sqlite else world.directory
        self.state = home / "site"
        self.config = world.directory / "laas.conf"
        self.database_proxy: Proxy | None = None
        self.simulator: Simulator | None = None
        self.processes: list[int] = []  # ids of the service's processes

    def __enter__(self) -> Site:
        port = self.world.nova.server_address[1]
        self.nova_proxy = Proxy(lambda: socket.create_connection(("127.0.0.1", port)))
        self._stack.callback(self.nova_proxy.close)
        if self.ground.proxy:
            path = str(self.world.postgresql.directory / ".s.PGSQL.5432")
            self.database_proxy = Proxy(lambda: _unix(path))
            self._stack.callback(self.database_proxy.close)
        return self

    def __exit__(self, *exc: object) -> None:
        self.cloud.hanging.set()
        self._stack.close()
        shutil.rmtree(self.state, ignore_errors=True)

    @property
    def cloud(self) -> nova_standin.Cloud:
        return self.world.nova.cloud

    @property
    def published(self) -> Path:
        """Directory of the published set of files."""
        return self.state / "opensm" / "f" / "current"

    @property
    def url(self) -> str:
        """URL of the database for the judge, which does not use the proxy."""
        if self.ground.sqlite:
            return f"sqlite:///{self.state}/laas.sqlite"
        return f"postgresql+psycopg://laas@/site?host={self.world.postgresql.directory}"

    # -- contents ---------------------------------------------------------------

    def make_empty(self) -> None:
        """Start with a fabric and a cloud with its hosts, without allocations."""
        shutil.rmtree(self.state, ignore_errors=True)
        self.state.mkdir()
        names = [name for name in FABRIC.inventory.host_names if name]
        self.world.nova.cloud = nova_standin.Cloud(names)
        if not self.ground.sqlite:
            self.world.query("DROP DATABASE IF EXISTS site WITH (FORCE)")
            self.world.query("CREATE DATABASE site")
        self.configure()
        with self._parts() as parts:
            parts.database.upgrade()
            parts.store.fabrics.add("f", FABRIC.topology, FABRIC.inventory)

    @contextmanager
    def _parts(self) -> Iterator[Composition]:
        conf = options_from(self.config)
        parts = Composition(conf)
        yield parts
        parts.database.engine.dispose()

    def part(self, leaf: int) -> None:
        """Fail links, so that no free ones join a leaf (by number) to others with free hosts.

        It loses the last of its uplinks, and the others the first. The first leaf is full and keeps
        all: default routes lead over it. No process of the service may run meanwhile.
        """
        tree = FABRIC.topology.tree
        with self._parts() as parts:
            for number in range(1, tree.m[1] * tree.m[2]):
                up = tree.w[1] - 1 if number == leaf else 0
                link = LeafLink(*divmod(number, tree.m[1]), up)
                parts.store.components.set_link_state("f", link, LinkState.FAILED)

    def keep(self, name: str) -> None:
        """Save the present state under a name; no process of the service may run meanwhile."""
        kept = self.world.directory / f"{name}-{self.ground.sqlite}"
        shutil.copytree(self.state, kept, symlinks=True)
        if not self.ground.sqlite:
            self.world.query(f"CREATE DATABASE {name} TEMPLATE site")
        self.world.kept[name, self.ground.sqlite] = self.cloud.copy()

    def take(self, name: str) -> None:
        """Restore the state that ``keep`` saved."""
        shutil.rmtree(self.state, ignore_errors=True)
        shutil.copytree(
            self.world.directory / f"{name}-{self.ground.sqlite}", self.state, symlinks=True
        )
        if not self.ground.sqlite:
            self.world.query("DROP DATABASE IF EXISTS site WITH (FORCE)")
            self.world.query(f"CREATE DATABASE site TEMPLATE {name}")
        self.world.nova.cloud = self.world.kept[name, self.ground.sqlite].copy()
        if self.ground.opensm:
            self._simulate()

    def has(self, name: str) -> bool:
        return (name, self.ground.sqlite) in self.world.kept

    def configure(self, *, repair_links: bool = True) -> None:
        database = self.url
        if self.database_proxy:
            port = self.database_proxy.port
            database = f"postgresql+psycopg://laas@127.0.0.1:{port}/site?sslmode=disable"
        self.config.write_text(
            CONFIGURATION.format(
                state=self.state,
                database=database,
                bus=BUS.format(url=self.world.broker.url) if self.ground.broker else "",
                nova=self.nova_proxy.port,
                token=nova_standin.TOKEN,
                repair_links=repair_links,
                opensm=self._opensm_options(),
            )
        )

    # -- the subnet manager -----------------------------------------------------

    def _simulate(self) -> None:
        """Start the simulated fabric, and an OpenSM with the published files."""
        text = netlist(FABRIC.inventory)
        manager = next(e for e in FABRIC.inventory.endpoints if e.name.startswith("sm"))
        leaf = f'"S-{manager.at.guid:016x}"[{manager.at.port}]'
        (block,) = [block for block in text.split("caguid=")[1:] if leaf in block]
        self.simulator = self._stack.enter_context(Simulator(text, host=block.split('"')[1]))
        shutil.copy(self.published / "guid2lid", self.simulator.directory)
        self.start_opensm()

    def start_opensm(self) -> None:
        assert self.simulator is not None
        log = self.simulator.directory / "osm.log"
        size = log.stat().st_size if log.exists() else 0
        process = self.simulator.start("opensm", "-F", str(self.published / "opensm.conf"), *SWEEP)
        self._opensm = process
        (self.simulator.directory / "opensm.pid").write_text(f"{process.pid}\n")

        def up() -> bool:
            return log.exists() and b"SUBNET UP" in log.read_bytes()[size:]

        eventually(up, "OpenSM sweeps")

    def kill_opensm(self) -> None:
        self._opensm.kill()
        self._opensm.wait()

    def dump(self) -> str:
        """Output of ``dump_lfts``: the forwarding tables of the simulated switches."""
        assert self.simulator is not None
        return self.simulator.read("dump_lfts", "-n")

    def _opensm_options(self) -> str:
        if self.simulator is None:
            return ""
        here, environment = self.simulator.directory, self.simulator.environment()
        names = ("IBSIM_SOCKNAME", "LD_PRELOAD", "SIM_HOST")
        settings = ",".join(f"{name}={environment[name]}" for name in names)
        return (
            f"pid_file = {here}/opensm.pid\n"
            f"log_file = {here}/osm.log\n"
            f"cache_directory = {here}\n"
            f"dump_command = env,-C,{here},{settings},dump_lfts,-n\n"
            "tools = none\n"
            "patience = 120\n"
        )

    # -- the disk ---------------------------------------------------------------

    def fill_disk(self) -> None:
        """Fill the disk; without a disk of our own, keep every file from growing."""
        if not self.world.mounted:
            return self._limit(0)
        with (self.world.disk / "ballast").open("wb", buffering=0) as ballast:
            for size in (1 << 16, 1 << 12, 1):
                with suppress(OSError):
                    while True:
                        ballast.write(bytes(size))

    def empty_disk(self) -> None:
        if not self.world.mounted:
            return self._limit(resource.RLIM_INFINITY)
        (self.world.disk / "ballast").unlink()

    def _limit(self, size: int) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                resource.prlimit(process, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _unix(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection
