# SPDX-License-Identifier: Apache-2.0

"""RabbitMQ as a private instance.

    with RabbitMQ() as broker:
        run(transport_url=broker.url)
        broker.kill()   # as if power was lost
        broker.start()  # the same port, users, queues and stored messages

The broker listens on free ports of loopback. It has its own epmd, node directory and cookie;
everything ends with the block. A queue survives a restart if it is durable. A message
survives if it is persistent and the broker has confirmed it.
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
"""The script itself; the wrapper in PATH requires root, and changes the user."""

AVAILABLE = SERVER.exists() and shutil.which("epmd") is not None
"""Whether the package rabbitmq-server is installed."""

PORTS = range(20_000, 32_000)

ERLANG = (
    "+S 2:2",  # two schedulers, for machines with two cores
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
    """A broker that answers when the block begins; ``port`` does not change at restarts."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="laas-rabbitmq-"))
        self.port, self._epmd_port, self._node_port = _free_ports(3)
        self._epmd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Value of ``transport_url``."""
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
        """Start the broker, also after ``stop`` or ``kill``; return when it answers."""
        if self._server is not None:
            raise RuntimeError("RabbitMQ runs already")
        # The broker ends at start if it cannot register with epmd.
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
        """End the broker in order: it stores messages and closes connections."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker, as a power cut does; connections are reset."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """``stop``, then ``start``."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop the process until ``resume``: connections stay open without answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process after ``pause``."""
        self._signal(signal.SIGCONT)

    def control(self, *words: str) -> str:
        """Output of ``rabbitmqctl``, as in ``control("add_vhost", "late")``."""
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
        """Whether the broker answers a new connection in AMQP 0-9-1."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return connection.recv(1) == b"\x01"
        except OSError:
            return False

    def close(self) -> None:
        """Kill broker and epmd, and delete the directory."""
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
        """Environment of the broker.

        The cookie is made in HOME. With RUNNING_UNDER_SYSTEMD the script does not stay as parent.
        """
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
    """Different ports on which no program listens now.

    The ports lie below the range that the system gives to clients, so that no client takes
    one before the broker listens, or while the broker is down.
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
