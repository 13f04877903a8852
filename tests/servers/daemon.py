# SPDX-License-Identifier: Apache-2.0

"""A private server of a test: its directory, its process and its log."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from tests.servers.leash import spawn
from tests.servers.small_disk import SmallDisk
from tests.waiting import PATIENCE, eventually


class Daemon:
    """Starts ``command``, waits until ``ready`` is true, and ends the server with the block.

    The server writes its output to ``log`` in ``directory``. The constructor makes the
    directory, with a path short enough for a socket; ``close`` deletes it.

    Raises (on entering):
        RuntimeError: the server ended; the text has the end of its log.
        AssertionError: it did not answer in time.
    """

    end = signal.SIGTERM
    """The signal at which the server ends at once; its data go with its directory."""

    def __init__(self, name: str, *, user: str | None = None, disk: int = 0) -> None:
        """``user`` owns the directory and the process if root runs the test.

        With ``disk`` the directory is a file system of its own, of so many MiB; root alone can.
        """
        self.name = name
        self.user = user if os.geteuid() == 0 else None
        self.directory = Path(tempfile.mkdtemp(prefix=f"laas-{name}-", dir="/tmp"))
        self.disk = SmallDisk(self.directory, disk) if disk and SmallDisk.AVAILABLE else None
        if self.user:
            shutil.chown(self.directory, self.user)
        self.log = self.directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def ready(self) -> bool:
        raise NotImplementedError

    def prepare(self) -> None:
        """Make the files that the server needs before its start."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def __enter__(self):
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def start(self) -> None:
        """Start the server, also again after it ended, and wait until it is ready."""
        with self.log.open("ab") as log:
            self.process = spawn(
                self.command(),
                cwd=self.directory,
                env=self.environment(),
                user=self.user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.wait_for(self.ready, "to answer")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def wait_for(self, look: Callable[[], bool], what: str) -> None:
        """Return when ``look`` is true.

        Raises:
            RuntimeError: the server ended; the text has the end of its log.
            AssertionError: ``look`` was not true in time.
        """

        def looked() -> bool:
            ended = self.process and self.process.poll() is not None
            found = look()
            if ended and not found:
                raise RuntimeError(f"{self.name} ended:\n{self.said()}")
            return found

        eventually(looked, lambda: f"{self.name} {what}:\n{self.said()}")

    def ended(self) -> bool:
        """Whether the server has ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def said(self) -> str:
        """The last 4,000 characters of the log."""
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def run(self, *command: str, text: str | None = None) -> str:
        """Run a program as the server's user; returns its output. Raises: RuntimeError."""
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment(),
            user=self.user,
            input=text or "",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    def close(self) -> None:
        """End the server with everything it started, and delete its directory."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(self.end)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        if self.disk is not None:
            self.disk.close()
        shutil.rmtree(self.directory, ignore_errors=True)
