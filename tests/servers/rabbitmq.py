# SPDX-License-Identifier: Apache-2.0

"""RabbitMQ as a private instance.

    with RabbitMQ() as broker:
        run(transport_url=broker.url)
        broker.kill()   # as if power was lost
        broker.start()  # the same port, users, queues and stored messages

It listens on loopback only, on ports nobody had, with an epmd, a node directory and a
cookie of its own; everything ends with the block. Queues survive a restart if they are
durable, messages if they are persistent and the broker has confirmed them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from tests.servers.leash import spawn
from tests.waiting import PATIENCE, eventually

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
CONTROL = SERVER.with_name("rabbitmqctl")
"""The scripts themselves; those in PATH want to be root, and become another user."""

AVAILABLE = SERVER.exists() and shutil.which("epmd") is not None
"""Whether the package rabbitmq-server is installed."""

PORTS = range(20_000, 32_000)

ERLANG = (
    "+S 2:2",  # schedulers: as many as the machines of the tests have cores
    "+sbwt none +sbwtdcpu none +sbwtdio none",  # no busy waiting
    "-start_epmd false",
    "-kernel inet_dist_use_interface {127,0,0,1}",
)

CONFIGURATION = """\
listeners.tcp.local = 127.0.0.1:{port}
log.file.level = info
disk_free_limit.absolute = 1MB
vm_memory_high_watermark.absolute = 1GB
"""


class RabbitMQ:
    """A broker, answering when the block is entered. ``port`` stays the same throughout."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="laas-rabbitmq-"))
        self.port, self._epmd_port, self._node_port = _free_ports(3)
        self._epmd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For ``transport_url``."""
        return f"rabbit://guest:guest@127.0.0.1:{self.port}/"

    def __enter__(self) -> RabbitMQ:
        try:
            self._prepare()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start it, or start it again, and return when it answers."""
        if self._server is not None:
            raise RuntimeError("RabbitMQ runs already")
        # The broker gives up if it cannot register.
        eventually(lambda: _listens(self._epmd_port), "epmd listens")
        self._server = self._spawn(str(SERVER), "rabbitmq.out")
        eventually(self._started, lambda: f"RabbitMQ starts:\n{self._last_words()}")

    def _started(self) -> bool:
        assert self._server is not None
        ended = self._server.poll() is not None
        answers = self.answers()
        if ended and not answers:
            raise RuntimeError(f"RabbitMQ did not start:\n{self._last_words()}")
        return answers

    def stop(self) -> None:
        """Let it end by itself: it stores what it has to and closes connections."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut does; connections are reset."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """``stop`` and ``start``."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Make it silent: connections stay open and nobody answers, until ``resume``."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after ``pause``."""
        self._signal(signal.SIGCONT)

    def control(self, *words: str) -> str:
        """What ``rabbitmqctl`` answers, as in ``control("add_vhost", "late")``."""
        return subprocess.run(
            [str(CONTROL), *words],
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        ).stdout

    def answers(self) -> bool:
        """Whether it begins to speak AMQP 0-9-1 to whoever connects."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return connection.recv(1) == b"\x01"
        except OSError:
            return False

    def close(self) -> None:
        """End everything at once and remove all traces."""
        if self._server is not None:
            self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def _prepare(self) -> None:
        configuration = self.directory / "rabbitmq.conf"
        configuration.write_text(CONFIGURATION.format(port=self.port))
        (self.directory / "enabled_plugins").write_text("[].\n")
        self._epmd = self._spawn("epmd", "epmd.out")

    def _environment(self) -> dict[str, str]:
        """The cookie is made in HOME; RUNNING_UNDER_SYSTEMD keeps the script from staying."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RABBITMQ_", "ERL_"))
        }
        return inherited | {
            "HOME": str(self.directory),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RUNNING_UNDER_SYSTEMD": "yes",
            "RABBITMQ_NODENAME": "laas@localhost",
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_PID_FILE": str(self.directory / "rabbitmq.pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": " ".join(ERLANG),
        }

    def _spawn(self, command: str, output: str) -> subprocess.Popen[bytes]:
        with (self.directory / output).open("ab") as out:
            return spawn(
                [command],
                cwd=self.directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def _signal(self, number: signal.Signals) -> None:
        if self._server is None:
            raise RuntimeError("RabbitMQ does not run")
        os.killpg(self._server.pid, number)

    def _end(self, number: signal.Signals) -> None:
        self._signal(number)
        assert self._server is not None
        try:
            self._server.wait(PATIENCE)
        finally:
            if self._server.poll() is None:
                os.killpg(self._server.pid, signal.SIGKILL)
                self._server.wait()
            self._server = None

    def _last_words(self) -> str:
        logs = [*self.directory.glob("*.out"), *self.directory.glob("log/*.log")]
        return "\n".join(log.read_text(errors="replace")[-2000:] for log in logs)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
    except OSError:
        return False
    return True


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different.

    They lie below those that the system gives to clients: none is lost to one of them
    before the broker listens, nor while it is down.
    """
    free: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise RuntimeError(f"no {count} free ports among {PORTS}")
