# SPDX-License-Identifier: Apache-2.0

"""One OpenSM: its process, its log, the signal to read new files, the tables in the switches.

OpenSM reports success in cases where isolation is lost. Only the tables that are read back from
the switches count.
"""

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple

from laas_service.domain.errors import InvalidFile, InvalidInput, Unavailable
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.messages import PKEYS
from opensm_writer import parse
from opensm_writer.blocks import Block, answer, question
from opensm_writer.keys import MASTER, KeyReading, reading_of
from opensm_writer.links import NodePorts, parsed
from opensm_writer.site import SiteSettings
from opensm_writer.tools import OpenSmFinder, Whereabouts

PIECE = 1 << 20
"""Bytes of a command's output that are read in one piece."""

LOG_TAIL = 1 << 24
"""Bytes at the end of OpenSM's log that are searched."""

_ENGINE = re.compile(r"(\S+) tables configured on all switches")
_CONFIGURED = b" tables configured on all switches"
_ENGINE_NAME = re.compile(rb"[A-Za-z0-9_.-]+$")
LONGEST_ENGINE = 64
"""Characters of the name of a routing engine."""

_ALIVE = re.compile(r"Name:\s+opensm.*\n(?:.*\n)*?State:\s+[^ZX]")
_NO_ENGINE = "No routing engine able to successfully configure"

_STARTED = 19
"""Index, after the name in ``/proc/PID/stat``, of the start time in ticks since boot."""

_SIGNAL_MASKS = re.compile(r"^Sig(?:Blk|Ign|Cgt):\s*([0-9a-f]+)$", re.MULTILINE)
_SIGHUP_BIT = 1 << (signal.SIGHUP - 1)

_STATE = re.compile(rb"\] 0x80 -> Entering ([A-Z-]+) state$", re.MULTILINE)

_PORT_CHANGES = (b'"Link state change"', b'"GID in service"', b'"GID out of service"')
_APPEARED = b'"GID in service"'
_SWEPT = b"SUBNET UP"

_BAD_KEY = re.compile(rb'Reporting Security Notice "Bad [PQ]_Key[^"\n]*" from [^\n]*?LID1 (\d+),')
"""A notice of a bad P_Key or Q_Key, and the LID of the sender of the packet."""

_UNREAD_BLOCK = re.compile(rb"SubnGet\(LFT\) failed on switch .* Node GUID 0x([0-9a-f]+) ")
"""A complaint of ``dump_lfts`` (infiniband-diags 44), and the GUID of the switch."""

NOT_MASTER = "another subnet manager is the master"

OTHER_ENGINE = "OpenSM routed with"

UNFINISHED = "OpenSM's sweep is not finished"


class LinkEvent(IntEnum):
    """What OpenSM's log tells of the ports; the more important, the higher."""

    NONE = 0
    SWEPT = 1  # the ports may have changed
    CHANGED = 2  # a port or a node has changed
    APPEARED = 3  # a port has appeared: it has got a LID


@dataclass(frozen=True, slots=True)
class Process:
    """A running OpenSM."""

    pid: int
    name: str  # PID and start time, unique since boot
    stopped: bool = False  # by SIGSTOP or a debugger


@dataclass(frozen=True, slots=True)
class Sweep:
    """The newest sweep in the log since a mark."""

    ended: bool  # False also if there was none
    problem: str | None = None

    @property
    def other_engine(self) -> bool:
        """Whether OpenSM routed with another engine than the file's."""
        return (self.problem or "").startswith(OTHER_ENGINE)


_BEGAN = time.time() - time.monotonic()


def steady_time() -> float:
    """Seconds since the epoch; a jump of this machine's clock after the start changes nothing."""
    return _BEGAN + time.monotonic()


@dataclass(frozen=True, slots=True)
class Role:
    """What OpenSM is in its subnet, by its log."""

    stands_by: bool = False  # another subnet manager is the master
    engine: str | None = None  # the last one that it routed with, as the master


@dataclass(frozen=True, slots=True)
class OpenSm:
    """How to reach one OpenSM. Each field is optional; reading back needs one of the dumps.

    ``dump_file`` is the ``opensm-lfts.dump`` that OpenSM writes with log flag 0x40 after a
    sweep: the tables that it intended to write. ``log_file`` shows whether OpenSM used another
    engine. It also shows that OpenSM swept; the tables do not, if only partitions changed.
    """

    pid_file: Path | None = None  # of the process that gets SIGHUP
    reload_command: tuple[str, ...] = ()  # run instead of the signal
    dump_command: tuple[str, ...] = ()  # prints the tables in the switches (``dump_lfts -n``)
    dump_file: Path | None = None  # read if there is no dump_command
    blocks_command: tuple[str, ...] = ()  # prints blocks of tables (``laas-opensm-tables``)
    links_command: tuple[str, ...] = ()  # prints the ports of all nodes (``iblinkinfo -l``)
    keys_command: tuple[str, ...] = ()  # prints keys (``laas-opensm-keys``), given a set's path
    pkeys: range = PKEYS  # keys that tenants may have; others are not judged
    managers: frozenset[int] = frozenset()  # port GUIDs of our subnet managers, if not this port
    links_interval: float = 60  # seconds between two readings of the ports without an event
    links_patience: float = 1  # seconds to wait for the ports; slower readings go on beside
    counters_command: tuple[str, ...] = ()  # prints the counters of ports (``perfquery``)
    counters_rate: float = 200  # ports of which counters are read in a second, at most
    log_file: Path | None = None
    cache_directory: Path | None = None  # where OpenSM reads ``guid2lid`` when it starts
    timeout: float = 60  # seconds, for each command
    site: SiteSettings | None = None  # options of OpenSM that this site sets
    finder: OpenSmFinder | None = field(default=None, repr=False, compare=False)
    """Finds the process, the log and the cache where no field names them; None: nothing does."""
    now: Callable[[], float] = field(default=steady_time, repr=False, compare=False)
    """Seconds since the epoch, by the clock that the ages of readings are judged by."""
    _dumps: parse.Dumps = field(default_factory=parse.Dumps, init=False, repr=False, compare=False)

    @property
    def log(self) -> Path | None:
        """OpenSM's log; None if it is not known, or until the finder has found an OpenSM."""
        return self.log_file or (found.log if (found := self._found()) is not None else None)

    @property
    def may_have_a_log(self) -> bool:
        """Whether the log is known, or may still be found."""
        return self.log_file is not None or self.finder is not None

    @property
    def cache(self) -> Path | None:
        """The directory where OpenSM reads ``guid2lid`` when it starts, likewise."""
        return self.cache_directory or (
            found.cache if (found := self._found()) is not None else None
        )

    def _found(self) -> Whereabouts | None:
        return self.finder.found() if self.finder is not None else None

    def reload(self) -> None:
        """Start a heavy sweep, in which OpenSM reads the partitions and the tables again.

        Raises:
            Unavailable: OpenSM does not run, is starting so that SIGHUP would end it, or the
                command failed.
        """
        if self.reload_command:
            for _ in self._printed(self.reload_command):
                pass
            return
        found = self._found()
        if self.pid_file is not None or (found is not None and found.takes_signals):
            process = self.process()
            assert process is not None
            if not _survives_sighup(process.pid):
                raise Unavailable(
                    f"OpenSM is starting: process {process.pid} does not handle SIGHUP yet"
                )
            os.kill(process.pid, signal.SIGHUP)

    def mark(self) -> str:
        """The present end of the log, for ``sweep``; empty without a log."""
        if (log := self.log) is None or not log.exists():
            return ""
        stat = log.stat()
        return f"{stat.st_ino} {stat.st_size}"

    def process(self) -> Process | None:
        """The process in ``pid_file``, or the one that was found; None without either.

        Raises:
            Unavailable: it does not run, or not any more.
        """
        if self.pid_file is not None:
            return _process(self.pid_file)
        found = self._found()
        return _process_of(found.pid, "found before") if found is not None else None

    def stop_standby(self, directory: Path) -> bool:
        """Stop OpenSM if another subnet manager answers as the master (SMInfo); whether it did.

        ``directory`` is as for ``keys``. Never stops a master, nor one of which nobody can tell.

        Raises:
            Unavailable: it does not run, or the master cannot be read.
        """
        process = self.process()
        if process is None or not self.keys_command:
            raise Unavailable("nothing tells which OpenSM runs here, or which one is the master")
        reading = self.keys(directory, "--master-only")
        master = reading.master
        if master is None or master.state != MASTER or master.guid == reading.own:
            return False
        try:
            os.kill(process.pid, signal.SIGTERM)
        except OSError as error:
            raise Unavailable(
                f"OpenSM (process {process.pid}) cannot be stopped: {error}"
            ) from error
        return True

    def tables(self, expected: Collection[int] = ()) -> dict[int, bytes]:
        """The tables in the switches: GUID -> ports by LID.

        ``dump_command`` is run once more if it fails before its timeout, or leaves out a switch
        of ``expected`` (GUIDs), because a packet to a switch or its answer may be lost.
        ``dump_lfts`` prints zeros for blocks that a switch did not answer, and ends with status
        0; the tables of switches of which it complains so are left out.

        Raises:
            Unavailable, OSError: the tables cannot be read.
        """
        if self.dump_command:
            begun = time.monotonic()
            try:
                rows = self._dumped()
            except Unavailable:
                if time.monotonic() - begun >= self.timeout:
                    raise
            else:
                if rows.keys() >= set(expected):
                    return rows
            return self._dumped()
        if self.dump_file is not None:
            return self._dumps.read(parse.file_pieces(self.dump_file))
        raise Unavailable("no way to read tables back: see [opensm] tools")

    def _dumped(self) -> dict[int, bytes]:
        """The tables that ``dump_command`` read entirely. Raises: Unavailable."""
        incomplete: set[int] = set()

        def complaint(line: bytes) -> None:
            if match := _UNREAD_BLOCK.match(line):
                incomplete.add(int(match[1], 16))

        rows = self._dumps.read(self._printed(self._tool(self.dump_command), complaint=complaint))
        return {guid: row for guid, row in rows.items() if guid not in incomplete}

    def blocks(
        self, wanted: Collection[Block], directory: Path | None
    ) -> dict[int, dict[Block, bytes]]:
        """Blocks of tables in the switches, by GUID; those that are not answered are missing.

        ``directory`` has the set with the recorded cables; None: it has none.

        Raises:
            Unavailable: ``blocks_command`` fails, or prints something else.
        """
        given = self.site.for_readers() if self.site is not None else ()
        places = () if directory is None else (str(directory),)
        command = (*self.blocks_command, *given, *places)
        text = b"".join(self._printed(command, question(wanted)))
        try:
            return answer(text.decode(errors="replace"), self.blocks_command[0])
        except InvalidFile as error:
            raise Unavailable(str(error)) from error

    def links(self) -> NodePorts:
        """The ports of all nodes that answer.

        Raises:
            Unavailable: ``links_command`` is not set, fails, or prints no port.
        """
        if not self.links_command:
            raise Unavailable("no way to read ports: set links_command")
        text = b"".join(self._printed(self._tool(self.links_command))).decode(errors="replace")
        links = parsed(text)
        if not links.ports:
            raise Unavailable(f"{self.links_command[0]} printed no port")
        return links

    def counters(self, lid: int, ports: Collection[int]) -> str:
        """What ``counters_command`` prints for ports of a switch.

        It is run for the counters that every port has (``-l LID PORTS``), for those of 64 bits
        (``-x``) and for those of error correction (``-T``), which a port may lack.

        Raises:
            Unavailable: the first run failed.
        """
        where = ("-l", str(lid), ",".join(map(str, ports)))
        command = self._tool(self.counters_command)
        text = b"".join(self._printed((*command, *where)))
        for table in ("-x", "-T"):
            with suppress(Unavailable):
                text += b"".join(self._printed((*command, table, *where)))
        return text.decode(errors="replace")

    def bad_key_traps(self, mark: str) -> tuple[list[int], str]:
        """The LIDs that sent packets with bad keys, by the log since a mark; and the next mark.

        Empty without a log, or if it cannot be read.
        """
        if (log := self.log) is None:
            return [], mark
        try:
            part = _log_since(log, mark)
        except OSError:
            return [], mark
        lines = part.text[: part.text.rfind(b"\n") + 1]
        found = [int(lid) for lid in _BAD_KEY.findall(lines)]
        return found, f"{part.inode} {part.start + len(lines)}"

    def keys(self, directory: Path, *options: str) -> KeyReading:
        """The partition keys of the ports in the set in ``directory``, and the master.

        ``keys_command`` is run once more if it fails before its timeout.

        Raises:
            Unavailable: it fails, or prints something else.
        """
        given = self.site.for_readers() if self.site is not None else ()
        command = (*self.keys_command, *given, *options, str(directory))
        begun = time.monotonic()
        try:
            text = b"".join(self._printed(command))
        except Unavailable:
            if time.monotonic() - begun >= self.timeout:
                raise
            text = b"".join(self._printed(command))
        try:
            return reading_of(text.decode(errors="replace"), self.keys_command[0])
        except InvalidFile as error:
            raise Unavailable(str(error)) from error

    def foreign_master(self, reading: KeyReading) -> str | None:
        """The master that is not one of ours, in words; None if it is ours or does not answer."""
        master = reading.master
        if master is None or master.state != MASTER or master.guid in self.managers:
            return None
        if not self.managers and master.guid == reading.own:
            return None
        return f"{NOT_MASTER}: {master.guid:#018x}, LID {master.lid}, priority {master.priority}"

    def link_events(self, mark: str) -> tuple[LinkEvent, str]:
        """What the log tells since a mark; and the next mark.

        ``NONE`` without a log, or if it cannot be read.
        """
        if (log := self.log) is None:
            return LinkEvent.NONE, mark
        try:
            part = _log_since(log, mark)
        except OSError:
            return LinkEvent.NONE, mark
        lines = part.text[: part.text.rfind(b"\n") + 1]
        event = LinkEvent.SWEPT if _SWEPT in lines else LinkEvent.NONE
        if any(change in lines for change in _PORT_CHANGES):
            event = LinkEvent.CHANGED
        if _APPEARED in lines:
            event = LinkEvent.APPEARED
        return event, f"{part.inode} {part.start + len(lines)}"

    def role(self) -> Role:
        """The last state and the last routing engine in the log.

        Without a log OpenSM is assumed to be the master, with an unknown engine. Raises: OSError.
        """
        if (log := self.log) is None or not log.exists():
            return Role()
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL))
            text = file.read()
        states = _STATE.findall(text)
        if states[-1:] in ([b"STANDBY"], [b"NOT-ACTIVE"]):
            return Role(stands_by=True)
        at = text.rfind(_CONFIGURED)
        engine = _ENGINE_NAME.search(text[max(0, at - LONGEST_ENGINE) : at]) if at >= 0 else None
        return Role(engine=engine[0].decode() if engine else None)

    def sweep(self, mark: str) -> Sweep:
        """The newest sweep since a mark, and whether it used the tables in the file.

        Without a log the sweep is assumed to have ended well. Raises: OSError.
        """
        if (log := self.log) is None:
            return Sweep(True)
        part = _log_since(log, mark)
        lines = part.text.decode(errors="replace").splitlines()
        if part.whole and not any("SUBNET UP" in line or _NO_ENGINE in line for line in lines):
            return Sweep(False, "OpenSM has not swept since the files changed")
        problem = engine_problem(lines)
        return Sweep(problem != UNFINISHED, problem)

    def wrong_settings(self, reading: KeyReading) -> str | None:
        """The first site setting that is not in force, as far as the devices tell; else None."""
        if self.site is None:
            return None
        desired, master = self.site.sm_priority, reading.master
        ours = master is not None and master.guid == reading.own
        if master is not None and ours and desired not in (None, master.priority):
            return f"OpenSM runs with sm_priority {master.priority}, not {desired}"
        level = self.site.protection
        open_ports = [
            port for port in reading.ports.values() if level is not None and port.open_to(level)
        ]
        if not open_ports:
            return None
        where = f"{open_ports[0].port.guid:#018x}"
        return f"{len(open_ports)} ports are not protected by the M_Key at level {level}: {where}"

    def _tool(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """A command with the M_Key for it, if there is one. Raises: Unavailable."""
        try:
            return command if self.site is None else (*command, *self.site.for_tools())
        except (InvalidInput, OSError) as error:
            raise Unavailable(f"{command[0]}: {error}") from error

    def _printed(
        self,
        command: tuple[str, ...],
        typed: bytes = b"",
        complaint: Callable[[bytes], object] | None = None,
    ) -> Iterator[bytes]:
        """The output of a command that reads ``typed``, in pieces.

        ``complaint`` gets each line of its error output if it ends with status 0.

        Raises:
            Unavailable: it fails, or does not end in time.
        """
        late = threading.Event()
        try:
            with (
                _typed(typed) as keyboard,
                tempfile.TemporaryFile() as errors,
                subprocess.Popen(
                    command,
                    stdin=keyboard,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                ) as running,
            ):
                with _ended(running, self.timeout, late):
                    assert running.stdout is not None
                    yield from iter(partial(running.stdout.read, PIECE), b"")
                    code = running.wait()
                errors.seek(0)
                if complaint is not None and not code:
                    for line in errors:
                        complaint(line)
                message = errors.read().decode(errors="replace").strip()
        except OSError as error:
            raise Unavailable(f"{command[0]}: {error}") from error
        if late.is_set():
            raise Unavailable(f"{command[0]}: timed out after {self.timeout:g} seconds")
        if code:
            raise Unavailable(f"{command[0]} failed with {code}: {message[-300:]}")


@contextmanager
def _typed(text: bytes) -> Iterator[int]:
    """A file descriptor from which a command reads a text."""
    if not text:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text)
        file.seek(0)
        yield file.fileno()


class _LogPart(NamedTuple):
    """The end of a log."""

    inode: int
    start: int  # in bytes
    text: bytes
    whole: bool  # whether it begins at the mark


def _log_since(path: Path, mark: str) -> _LogPart:
    """A log from a mark on, or from its start if it is another file; at most its tail.

    Raises: OSError.
    """
    with path.open("rb") as log:
        stat = os.fstat(log.fileno())
        inode, _, size = mark.partition(" ")
        since = int(size) if inode == str(stat.st_ino) and int(size) <= stat.st_size else 0
        start = max(since, stat.st_size - LOG_TAIL)
        log.seek(start)
        return _LogPart(stat.st_ino, start, log.read(), start == since)


@contextmanager
def _ended(
    running: subprocess.Popen[bytes], timeout: float, late: threading.Event
) -> Iterator[None]:
    """Kill the process and its children after ``timeout`` seconds, or at the end of the block."""

    def end() -> None:
        late.set()
        with suppress(OSError):  # the process has just ended, or belongs to another user
            os.killpg(running.pid, signal.SIGKILL)

    timer = threading.Timer(timeout, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if running.poll() is None:
            end()


def engine_problem(log: Iterable[str]) -> str | None:
    """What is wrong with the routing engine of the newest sweep in a log; None if nothing is."""
    problem = None
    swept = True
    for line in log:
        if match := _ENGINE.search(line):
            problem = None if match[1] == "file" else f"{OTHER_ENGINE} {match[1]}, not file"
            swept = False
        elif _NO_ENGINE in line:
            problem = "OpenSM could not use the tables and kept the old ones; see its log"
        elif "SUBNET UP" in line:
            swept = True
    return problem or (None if swept else UNFINISHED)


def difference(desired: Mapping[int, bytes], actual: Mapping[int, bytes]) -> str | None:
    """The first switch and LID that differ, and how many switches differ; None if none does.

    Both are switch GUID -> ports by LID. A switch that only one of them has differs, too.
    """
    guids = sorted(desired.keys() | actual.keys())
    different = [guid for guid in guids if desired.get(guid) != actual.get(guid)]
    if not different:
        return None
    first = different[0]
    if first not in actual:
        detail = "was not seen"
    elif first not in desired:
        detail = "is not in the fabric's description"
    else:
        length = max(len(desired[first]), len(actual[first]))
        pairs = zip(_padded(desired[first], length), _padded(actual[first], length), strict=True)
        lid, (to, instead) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
        detail = f"sends LID {lid:#06x} to {_port(instead)}, not to {_port(to)}"
    return f"{len(different)} of {len(desired)} switches differ: {first:#018x} {detail}"


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
    """The process whose id is in the file.

    Raises:
        Unavailable: it does not run, or is not an OpenSM.
    """
    try:
        pid = int(path.read_text())
        os.kill(pid, 0)
    except (OSError, ValueError) as error:
        raise Unavailable(f"OpenSM does not run ({path}: {error})") from error
    return _process_of(pid, str(path))


def _process_of(pid: int, known_by: str) -> Process:
    """The process with this id, that is ``known_by`` a file.

    Raises:
        Unavailable: it does not run, or is not an OpenSM.
    """
    try:
        status = Path(f"/proc/{pid}/status")
        if not status.exists():  # not Linux
            return Process(pid, str(pid))
        if not _ALIVE.match(status.read_text()):
            raise ProcessLookupError(f"process {pid} is not an OpenSM, or has ended")
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError) as error:
        raise Unavailable(f"OpenSM does not run ({known_by}: {error})") from error
    return Process(pid, f"{pid}-{values[_STARTED]}", values[0] in "Tt")
