# SPDX-License-Identifier: Apache-2.0

"""The record of a compute directory: a file ``journal`` that grows by one line a step.

Each line is a JSON object. The first one has the number of the next script. A line of a step has
the script of that number and what the step changed: the hosts that joined the pool, or all that
is known of one allocation. ``{"written": N}`` says that the script N and its host list are
written. ``Journal`` writes what has no such line again. A line that a crash has cut off was not
acknowledged, and the next step removes it.
"""

import fcntl
import io
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from laas_service.adapters import slurm
from laas_service.domain.errors import InvalidFile, Unavailable

PATIENCE, POLL = 30.0, 0.01
"""Seconds to wait for the lock of the directory, which is kept for a step; between two tries."""

SPARE_LINES = 1000
"""The journal is written anew once it has so many lines more than twice those it needs."""


@dataclass(frozen=True, slots=True)
class JournalTenant:
    """What an allocation has been handed over; ``hosts`` ascend by name."""

    project_id: str
    hosts: tuple[str, ...]
    fenced: bool = False


LEAVE = "leave"
"""The stage in which hosts have to be empty."""


@dataclass(frozen=True, slots=True)
class HostMoves:
    """By host to be emptied the target of its servers; ``answer`` is the file that is awaited.

    ``stage`` is the last stage that was asked for; ``LEAVE`` if nobody moves servers.
    """

    targets: Mapping[str, str]
    live: bool
    answer: str
    stage: str = "move"


@dataclass(slots=True)
class JournalState:
    """What all lines of the journal say together."""

    next: int = 1
    """Number of the next script."""

    pool: set[str] = field(default_factory=set)
    tenants: dict[str, JournalTenant] = field(default_factory=dict)
    """By allocation id."""

    moves: dict[str, HostMoves] = field(default_factory=dict)
    """The servers that have to go to other hosts, by allocation id."""

    owners: dict[str, str] = field(default_factory=dict)
    """The allocation that a host has been handed over to."""

    unwritten: "JournalStep | None" = None
    """The newest step, if its files may be missing."""

    def apply(self, step: "JournalStep") -> None:
        """Take over what a step changed."""
        self.next, self.unwritten = step.number + 1, step
        if step.id is None:
            self.pool.update(step.pool)
            return
        if had := self.tenants.pop(step.id, None):
            for host in had.hosts:
                self.owners.pop(host, None)
        self.moves.pop(step.id, None)
        if step.tenant is not None:
            self.tenants[step.id] = step.tenant
            self.owners.update(dict.fromkeys(step.tenant.hosts, step.id))
        if step.moves is not None:
            self.moves[step.id] = step.moves

    def wrote(self, number: int) -> None:
        """Note that the files of a step are written; no later script has its number."""
        self.next = max(self.next, number + 1)
        if self.unwritten and self.unwritten.number == number:
            self.unwritten = None


@dataclass(frozen=True, slots=True)
class JournalStep:
    """One script and what it stands for: hosts that join the pool, or the new state of ``id``."""

    number: int
    name: str
    """The name of the script, with its number."""
    script: str
    pool: tuple[str, ...] = ()
    id: str | None = None
    tenant: JournalTenant | None = None
    moves: HostMoves | None = None

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> "JournalStep":
        """The step of a line. Raises: KeyError, TypeError, ValueError."""
        tenant, moves = line.get("tenant"), line.get("moves")
        return cls(
            int(line["number"]),
            str(line["name"]),
            str(line["script"]),
            tuple(line["pool"]),
            line["id"],
            tenant
            and JournalTenant(tenant["project_id"], tuple(tenant["hosts"]), tenant["fenced"]),
            moves
            and HostMoves(
                *(dict(moves["targets"]), moves["live"], moves["answer"]),
                moves.get("stage", "move"),
            ),
        )


def _wait_for(lock: IO[str]) -> None:
    """Lock the file. Raises: Unavailable, if others keep it; a process may be stopped with it."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= until:
                raise Unavailable(
                    f"another process has held {lock.name} for {PATIENCE:g} s, and is perhaps "
                    "stopped: look for it with lslocks, and let it go on or kill it"
                ) from error
        time.sleep(POLL)


class Journal:
    """Reads and extends the journal of a directory; several processes may do so in turn.

    Errors of all methods: ``Unavailable`` when the directory cannot be read or written, or another
    process does not give its lock back within ``PATIENCE``,
    ``InvalidFile`` when a line is damaged.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "journal"
        self._file: io.FileIO | None = None
        """Kept open, so that the journal that replaces it has another inode."""
        self._end = self._lines = 0
        self._state = JournalState()

    @contextmanager
    def held(self) -> Iterator[JournalState]:
        """Lock the directory and yield the state, once all files of its steps are written."""
        try:
            for name in ("answers", "commands", "nodes"):
                (self._directory / name).mkdir(parents=True, exist_ok=True)
            with open(self._directory / ".lock", "w") as lock:
                _wait_for(lock)
                self._follow()
                self._complete()
                yield self._state
        except OSError as error:
            raise Unavailable(f"compute directory {self._directory}: {error}") from error

    def append(self, step: JournalStep) -> None:
        """Record a step, then write its script and its host list; within ``held``."""
        self._write(asdict(step), sync=True)
        self._state.apply(step)
        self._complete()
        if self._lines > 2 * self._needed + SPARE_LINES:
            self._compact()

    def forget(self, id: str) -> None:
        """Record that nothing is known of an allocation any more; within ``held``."""
        self.append(JournalStep(self._state.next - 1, "", "", id=id))

    # -- reading ------------------------------------------------------------------

    def _follow(self) -> None:
        """Read what has been added since the last time; everything if the file is another one."""
        if self._file is None or not self._path.exists():
            self._begin()
        assert self._file is not None
        here, there = os.fstat(self._file.fileno()), os.stat(self._path)
        if not os.path.samestat(here, there) or there.st_size < self._end:
            self._open()
        elif there.st_size > self._end:
            self._read()

    def _begin(self) -> None:
        """Open the journal; make one if there is none, or a state file of an earlier release."""
        adopted = self._state_file()
        if adopted is not None or not self._path.exists():
            self._state = adopted or JournalState()
            self._compact()
        if adopted is not None:
            replace_file(self._directory / "state.json", _REPLACED)
        self._open()

    def _open(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = io.FileIO(self._path, "r+")
        self._end = self._lines = 0
        self._state = JournalState()
        self._read()
        self._write_lists()

    def _read(self) -> None:
        """Apply the complete lines after ``_end``."""
        assert self._file is not None
        self._file.seek(self._end)
        for line in self._file.readall().splitlines(keepends=True):
            if line.endswith(b"\n"):
                self._apply(line)
                self._end += len(line)
                self._lines += 1
        if not self._lines:
            raise InvalidFile(str(self._path), 1, "not the journal of a compute directory: empty")

    def _apply(self, text: bytes) -> None:
        try:
            line = json.loads(text)
            if not self._lines:
                self._state.next = int(line["next"])
            elif "written" not in line:
                self._state.apply(JournalStep.of(line))
            else:
                self._state.wrote(int(line["written"]))
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            reason = f"not a line of the journal of a compute directory: {error!r}"
            raise InvalidFile(str(self._path), self._lines + 1, reason) from error

    # -- writing ------------------------------------------------------------------

    def _write(self, line: Mapping[str, Any], *, sync: bool) -> None:
        """Append a line in the place of one that was cut off; it is there whole or not at all."""
        assert self._file is not None
        text = json.dumps(line).encode() + b"\n"
        try:
            self._file.truncate(self._end)
            self._file.seek(self._end)
            if self._file.write(text) != len(text):
                raise OSError(f"{self._path}: only a part of a line was written")
            if sync:
                os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(self._end)
            raise
        self._end += len(text)
        self._lines += 1

    def _complete(self) -> None:
        """Write the files of the newest step, unless the journal says that they are written."""
        step = self._state.unwritten
        if step is None:
            return
        assert self._file is not None
        os.fsync(self._file.fileno())
        if step.name:
            replace_file(self._directory / "commands" / step.name, step.script)
        if step.id is not None:
            self._write_list(step.id)
        self._write({"written": step.number}, sync=False)
        self._state.wrote(step.number)

    def _write_list(self, id: str) -> None:
        """Write or remove the host list of an allocation; file names are checked ids."""
        file, tenant = self._directory / "nodes" / id, self._state.tenants.get(id)
        if tenant is None or tenant.fenced or not all(map(slurm.usable, tenant.hosts)):
            file.unlink(missing_ok=True)
        else:
            replace_file(file, "".join(f"{host}\n" for host in tenant.hosts))

    def _write_lists(self) -> None:
        """Write every host list again, and remove those of allocations that are not recorded."""
        present = {file.name for file in (self._directory / "nodes").iterdir()}
        for id in present | self._state.tenants.keys():
            self._write_list(id)

    @property
    def _needed(self) -> int:
        """The lines of a journal that says no more than the state."""
        return 2 + len(self._state.tenants.keys() | self._state.moves.keys())

    def _compact(self) -> None:
        """Replace the journal by one that says no more than the state."""
        state = self._state
        lines: list[Mapping[str, Any]] = [{"next": state.next}]
        number = state.next - 1
        steps = [JournalStep(number, "", "", pool=tuple(sorted(state.pool)))] if state.pool else []
        steps += [
            JournalStep(
                number, "", "", id=id, tenant=state.tenants.get(id), moves=state.moves.get(id)
            )
            for id in sorted(state.tenants.keys() | state.moves.keys())
        ]
        lines += [asdict(step) for step in steps]
        lines += [{"written": number}]
        replace_file(self._path, "".join(json.dumps(line) + "\n" for line in lines))

    # -- the file of earlier releases ---------------------------------------------

    def _state_file(self) -> JournalState | None:
        """What the ``state.json`` of an earlier release says, once its scripts are written."""
        file = self._directory / "state.json"
        try:
            text = file.read_text("utf-8")
            if text == _REPLACED:
                return None
            document = json.loads(text)
            state = JournalState(int(document["next"]), set(document["pool"]))
            tenants, moves = document["tenants"], document.get("moves", {})
            for id in tenants.keys() | moves.keys():
                line = {"number": state.next - 1, "name": "", "script": "", "pool": [], "id": id}
                line |= {"tenant": tenants.get(id), "moves": moves.get(id)}
                state.apply(JournalStep.of(line))
            for name, script in document["scripts"].items():
                replace_file(self._directory / "commands" / name, script)
        except FileNotFoundError:
            return None
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            reason = f"not the state of a compute directory: {error!r}"
            raise InvalidFile(str(file), 1, reason) from error
        return state


_REPLACED = '{"replaced by": "journal"}\n'
"""What ``state.json`` holds once it is in the journal. Earlier releases refuse it as damaged."""


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically: temporary file, fsync, rename, fsync of the directory."""
    temporary = path.with_name(f".{path.name}.new")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
