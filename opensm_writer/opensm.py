# SPDX-License-Identifier: Apache-2.0

"""OpenSM as a process: tell it to read new files, and see what it made of them.

OpenSM reports success in cases where isolation is gone, so nothing is believed but
the tables themselves, read back after it was told.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from laas_service.domain.errors import Unavailable
from laas_service.domain.routing.default_tables import NO_ROUTE
from opensm_writer import parse

PIECE = 1 << 20
"""Bytes of a command's output that are read at once."""

LOG_TAIL = 1 << 24
"""Bytes at the end of OpenSM's log that are looked at."""

_ENGINE = re.compile(r"(\S+) tables configured on all switches")
_ALIVE = re.compile(r"Name:\s+opensm.*\n(?:.*\n)*?State:\s+[^ZX]")
_NO_ENGINE = "No routing engine able to successfully configure"

_STARTED = 19
"""Of the values behind the name in ``/proc/PID/stat``: when it started, in ticks since boot."""

_SIGNAL_MASKS = re.compile(r"^Sig(?:Blk|Ign|Cgt):\s*([0-9a-f]+)$", re.MULTILINE)
_SIGHUP_BIT = 1 << (signal.SIGHUP - 1)

_STATE = re.compile(rb"\] 0x80 -> Entering ([A-Z-]+) state$", re.MULTILINE)

NOT_MASTER = "another subnet manager is the master"

UNFINISHED = "OpenSM's sweep is not finished"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that is an OpenSM. ``name`` is one that no other process has had since boot."""

    pid: int
    name: str
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """What the log says of the newest sweep since a mark."""

    ended: bool
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class OpenSm:
    """How to reach one OpenSM. All are optional, but one way to read back is wanted.

    ``pid_file`` or ``reload_command`` tell it to sweep. ``dump_command`` prints the
    tables that are in the switches (``dump_lfts -n``); ``dump_file`` is the
    ``opensm-lfts.dump`` that OpenSM writes with log flag 0x40 after a sweep, which is
    what it meant to write. ``log_file`` shows whether it fell back to another engine,
    and that it swept at all, which a change of partitions alone does not show in tables.
    ``cache_directory`` is where it keeps ``guid2lid``. ``timeout`` is in seconds and
    holds for each command.
    """

    pid_file: Path | None = None
    reload_command: tuple[str, ...] = ()
    dump_command: tuple[str, ...] = ()
    dump_file: Path | None = None
    log_file: Path | None = None
    cache_directory: Path | None = None
    timeout: float = 60
    _dumps: parse.Dumps = field(default_factory=parse.Dumps, init=False, repr=False, compare=False)

    def reload(self) -> None:
        """Start a heavy sweep, which reads the partitions and the tables again.

        Raises:
            Unavailable: there is no OpenSM to tell, it has just been started and SIGHUP would
                end it, or the command failed.
        """
        if self.reload_command:
            self._run(self.reload_command)
        elif self.pid_file is not None:
            process = _process(self.pid_file)
            if not _survives_sighup(process.pid):
                raise Unavailable(
                    f"OpenSM is starting: process {process.pid} does not handle SIGHUP yet"
                )
            os.kill(process.pid, signal.SIGHUP)

    def mark(self) -> str:
        """Where the log ends now, to be given to ``problem`` later; empty without a log."""
        if self.log_file is None or not self.log_file.exists():
            return ""
        stat = self.log_file.stat()
        return f"{stat.st_ino} {stat.st_size}"

    def problem(self, meant: Mapping[int, bytes], mark: str = "") -> str | None:
        """Why OpenSM does not run these tables; None if every switch is seen to have them.

        ``meant`` is switch GUID -> ports by LID. ``mark`` is from before the reload.
        """
        try:
            self.process()
            if self.stands_by():
                return NOT_MASTER
            return self.sweep(mark).problem or difference(meant, self.tables(meant))
        except (Unavailable, OSError) as error:
            return str(error)

    def process(self) -> Process | None:
        """The process that is told; None where no ``pid_file`` says which.

        Raises:
            Unavailable: it does not run.
        """
        return _process(self.pid_file) if self.pid_file is not None else None

    def tables(self, expected: Collection[int] = ()) -> dict[int, bytes]:
        """Switch GUID -> ports by LID, read back.

        A packet to a switch or its answer may be lost. ``dump_command`` is therefore run once
        more if it fails before its time is up, or leaves out a switch of ``expected`` (GUIDs).

        Raises:
            Unavailable, OSError: they cannot be.
        """
        if self.dump_command:
            begun = time.monotonic()
            try:
                rows = self._dumps.read(self._printed(self.dump_command))
            except Unavailable:
                if time.monotonic() - begun >= self.timeout:
                    raise
            else:
                if rows.keys() >= set(expected):
                    return rows
            return self._dumps.read(self._printed(self.dump_command))
        if self.dump_file is not None:
            return self._dumps.read(parse.file_pieces(self.dump_file))
        raise Unavailable("no way to read tables back: set dump_command or dump_file")

    def stands_by(self) -> bool:
        """Whether the log says last that OpenSM is not the master of its subnet.

        Without a log it is taken for the master. Raises: OSError.
        """
        if self.log_file is None or not self.log_file.exists():
            return False
        with self.log_file.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_TAIL))
            states = _STATE.findall(log.read())
        return states[-1:] in ([b"STANDBY"], [b"NOT-ACTIVE"])

    def sweep(self, mark: str) -> Sweep:
        """Whether there was a sweep since the mark, and the newest used our tables.

        Without a log it is taken for granted. Raises: OSError.
        """
        if self.log_file is None:
            return Sweep(True)
        with self.log_file.open("rb") as log:
            stat = os.fstat(log.fileno())
            inode, _, size = mark.partition(" ")
            since = int(size) if inode == str(stat.st_ino) and int(size) <= stat.st_size else 0
            start = max(since, stat.st_size - LOG_TAIL)
            log.seek(start)
            lines = log.read().decode(errors="replace").splitlines()
        if start == since and not any("SUBNET UP" in line or _NO_ENGINE in line for line in lines):
            return Sweep(False, "OpenSM has not swept since the files changed")
        problem = engine_problem(lines)
        return Sweep(problem != UNFINISHED, problem)

    def _run(self, command: tuple[str, ...]) -> None:
        for _ in self._printed(command):
            pass

    def _printed(self, command: tuple[str, ...]) -> Iterator[bytes]:
        """What a command prints, in pieces. Raises: Unavailable."""
        late = threading.Event()
        try:
            with (
                tempfile.TemporaryFile() as complaints,
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=complaints,
                    start_new_session=True,
                ) as running,
            ):
                with _ended(running, self.timeout, late):
                    assert running.stdout is not None
                    yield from iter(partial(running.stdout.read, PIECE), b"")
                    code = running.wait()
                complaints.seek(0)
                said = complaints.read().decode(errors="replace").strip()
        except OSError as error:
            raise Unavailable(f"{command[0]}: {error}") from error
        if late.is_set():
            raise Unavailable(f"{command[0]}: timed out after {self.timeout:g} seconds")
        if code:
            raise Unavailable(f"{command[0]} failed with {code}: {said[-300:]}")


@contextmanager
def _ended(
    running: subprocess.Popen[bytes], timeout: float, late: threading.Event
) -> Iterator[None]:
    """The process and its children have no longer than that; it does not outlive the block."""

    def end() -> None:
        late.set()
        with suppress(OSError):  # it has just ended, or is another user's
            os.killpg(running.pid, signal.SIGKILL)

    timer = threading.Timer(timeout, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if running.poll() is None:
            with suppress(OSError):
                os.killpg(running.pid, signal.SIGKILL)


def engine_problem(log: Iterable[str]) -> str | None:
    """What the newest sweep in a log says of the routing engine, if it is bad."""
    problem = None
    swept = True
    for line in log:
        if found := _ENGINE.search(line):
            problem = None if found[1] == "file" else f"OpenSM routed with {found[1]}, not file"
            swept = False
        elif _NO_ENGINE in line:
            problem = "OpenSM could not use the tables and kept the old ones; see its log"
        elif "SUBNET UP" in line:
            swept = True
    return problem or (None if swept else UNFINISHED)


def difference(meant: Mapping[int, bytes], seen: Mapping[int, bytes]) -> str | None:
    """The first switch and LID that differ, and how many switches do; None if none does.

    Switches that are seen and were not meant count too.
    """
    wrong = [
        guid for guid in sorted(meant.keys() | seen.keys()) if meant.get(guid) != seen.get(guid)
    ]
    if not wrong:
        return None
    first = wrong[0]
    if first not in seen:
        detail = "was not seen"
    elif first not in meant:
        detail = "is not in the fabric's description"
    else:
        length = max(len(meant[first]), len(seen[first]))
        pairs = zip(_padded(meant[first], length), _padded(seen[first], length), strict=True)
        lid, (want, have) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
        detail = f"sends LID {lid:#06x} to {_port(have)}, not to {_port(want)}"
    return f"{len(wrong)} of {len(meant)} switches differ: {first:#018x} {detail}"


def _padded(row: bytes, length: int) -> bytes:
    return row.ljust(length, bytes([NO_ROUTE]))


def _port(port: int) -> str:
    return "no port" if port == NO_ROUTE else f"port {port}"


def _survives_sighup(pid: int) -> bool:
    """Whether a process blocks, ignores or handles SIGHUP; True where Linux does not say.

    Without a handler SIGHUP ends a process. OpenSM installs its handler 15 to 30 ms after it
    was started (measured with OpenSM 3.3.23).
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    masks = _SIGNAL_MASKS.findall(status)
    return not masks or any(int(mask, 16) & _SIGHUP_BIT for mask in masks)


def _process(path: Path) -> Process:
    """The process whose id is in the file, if it is there and is an OpenSM.

    Raises:
        Unavailable: it is not.
    """
    try:
        pid = int(path.read_text())
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/status")
        if not status.exists():  # another system than Linux
            return Process(pid, str(pid))
        if not _ALIVE.match(status.read_text()):
            raise ProcessLookupError(f"process {pid} is another one, or has ended")
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError) as error:
        raise Unavailable(f"OpenSM does not run ({path}: {error})") from error
    return Process(pid, f"{pid}-{values[_STARTED]}", values[0] in "Tt")
