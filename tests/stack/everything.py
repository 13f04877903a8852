# SPDX-License-Identifier: Apache-2.0

"""The whole stack: starts all servers in the order of their needs, stops them in reverse."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from laas_service.adapters.fabric_import.fabric_file import read_fabric
from tests.servers.keystone import Keystone
from tests.servers.mariadb import MariaDb
from tests.servers.rabbitmq import RabbitMQ
from tests.stack.cloud import Cloud
from tests.stack.service import LinksService

XGFT = "3;4,4,8;1,4,4"
"""128 hosts on 32 leaves in 8 pods."""

KEPT_LOGS = Path("stack-logs")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the stack."""


def undisturbed() -> None:
    """Ignore signals from now on, so that no signal interrupts the shutdown."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Everything:
    """The running stack. If the block ends with an error, ``stack-logs`` keeps its logs.

    ``times`` has the seconds that the start of each part took.
    """

    def __init__(self, say: Callable[[str], object], xgft: str = XGFT) -> None:
        """``xgft`` is the tree of the hosts; the subnet manager gets one host more."""
        self._say = say
        self._xgft = xgft
        self._stack = ExitStack()
        self.times: dict[str, float] = {}

    def __enter__(self) -> Everything:
        with ExitStack() as stack:
            self.directory = Path(tempfile.mkdtemp(prefix="laas-stack-", dir="/tmp"))
            stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            self.logs = self.directory / "logs"
            self.logs.mkdir()
            stack.push(self._keep_logs)
            try:
                self._start(stack)
            except BaseException:
                undisturbed()
                raise
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        undisturbed()
        self._say("stopping")
        self._stack.__exit__(kind, value, trace)

    def _start(self, stack: ExitStack) -> None:
        description = self.directory / "fabric.json"
        description.write_text(json.dumps({"xgft": self._xgft, "subnet_managers": 1}))
        self.service = LinksService(self.directory / "laas", self.logs, read_fabric(description))
        self.cloud = Cloud(self.directory / "nova", self.logs, self.service.hosts)
        with self._timed("MariaDB, RabbitMQ, ibsim"):
            self.databases = stack.enter_context(MariaDb("--max-connections=1000"))
            self.broker = stack.enter_context(RabbitMQ())
            stack.enter_context(self.service.simulator)
        self.keystone = Keystone(
            self.directory / "keystone", connection=self.databases.database("keystone")
        )
        self.cloud.configure(self.keystone, self.databases, self.broker.url)
        self.service.configure(self.keystone, self.databases.database("laas"), self.broker.url)
        with self._timed("tables of Keystone, Nova, placement and ours"):
            self._all_at_once(
                self.keystone.prepare,
                self.cloud.make_tables,
                lambda: self.service.prepare(description),
            )
        with self._timed("Keystone"):
            stack.callback(self.keystone.__exit__)
            self.keystone.start()
            self.cloud.register(self.keystone, self.service.url)
        with self._timed(f"Nova, placement and {len(self.service.hosts)} computes"):
            stack.callback(self.cloud.stop)
            self.cloud.start(self._say)
        with self._timed("our API, worker and agent, OpenSM"):
            stack.callback(self.service.stop)
            self.service.start()

    def _timed(self, what: str):
        return _Timed(self, what)

    def _all_at_once(self, *steps: Callable[[], object]) -> None:
        with ThreadPoolExecutor(len(steps)) as pool:
            running = [pool.submit(step) for step in steps]
        for step in running:
            step.result()

    def _keep_logs(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Copy the logs after an error; runs after all servers, before the directory is deleted."""
        if kind is not None:
            shutil.rmtree(KEPT_LOGS, ignore_errors=True)
            shutil.copytree(self.logs, KEPT_LOGS)
            self._say(f"the logs are in {KEPT_LOGS.absolute()}")


class _Timed:
    def __init__(self, everything: Everything, what: str) -> None:
        self._everything, self._what = everything, what

    def __enter__(self) -> None:
        self._begin = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            taken = time.monotonic() - self._begin
            self._everything.times[self._what] = taken
            self._everything._say(f"{taken:5.1f} s  {self._what}")
