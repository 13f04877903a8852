# SPDX-License-Identifier: Apache-2.0

"""One fabric's sets on this machine and the OpenSM beside them: what an agent looks after."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from laas_service.domain.errors import Conflict, InvalidFile, LimitExceeded, Unavailable
from laas_service.messages import AgentReport, Condition
from opensm_writer import fetch, fileset, health, parse, reload
from opensm_writer.opensm import OpenSm, Sweep, difference

LOG = logging.getLogger(__name__)

SHARE = 10
"""Reading back what was confirmed takes at most this part of the time, however long it takes."""

UNFIT = (InvalidFile, Conflict, LimitExceeded, OSError)
RETELL = (Condition.DIFFERS, Condition.OTHER_GENERATION)


@dataclass(frozen=True, slots=True)
class _Set:
    """A set on disk as it was read, and what its files were like then.

    No ``tables``: it is damaged.
    """

    name: str
    generation: int
    signature: fileset.Signature
    tables: tuple[parse.SwitchTable, ...] | None

    @property
    def rows(self) -> dict[int, bytes]:
        return {table.guid: table.row for table in self.tables or ()}


class Supervisor:
    """Takes sets, has OpenSM read them, and looks what became of that.

    ``timeout`` is how many seconds OpenSM may take to be seen with what it was told, before
    that counts against it and it is told once more. ``keep`` is how many old sets stay; the
    tables in the switches are compared with those, too.
    """

    def __init__(
        self,
        root: Path,
        fabric: str,
        opensm: OpenSm,
        *,
        keep: int = 3,
        timeout: float = 120,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root, self._fabric, self._opensm = root.absolute(), fabric, opensm
        self._home = self._root / fabric
        self._keep, self._timeout, self._clock = keep, timeout, clock
        self._sets: dict[str, _Set] = {}
        self._note = reload.told(self._home)
        self._since = clock()  # when it was told, or we came
        self._unconfirmed = False
        self._confirmed = ""
        self._refusal: str | None = None
        self._restarted = self._unsaid = self._wedged = False
        self._seen = AgentReport(Condition.STARTING)
        self._rows: dict[int, bytes] = {}
        self._rest_until = clock()

    # -- taking sets

    @property
    def published(self) -> int | None:
        """The generation of the current set; None if there is none, or it is damaged."""
        found = self._current()
        return found.generation if found is not None else None

    def receive(self, source: fetch.Source) -> None:
        """Make the source's set current; one that is not fit is refused, and all stays.

        Raises:
            LaasError: the source could not be asked.
        """
        try:
            fetch.fetch_set(
                source, self._root, self._fabric, self._keep, self._known(), self._switches()
            )
        except UNFIT as error:
            if str(error) != self._refusal:
                LOG.error("the set is refused, the one before stays: %s", error)
            self._refusal = str(error)
        else:
            self._refusal = None

    @property
    def refused(self) -> bool:
        """Whether the set that was offered last was refused."""
        return self._refusal is not None

    def _switches(self) -> Mapping[int, bytes]:
        """Those that are there, as far as anybody can tell."""
        if not self._rows:
            try:
                self._rows = self._opensm.tables()
            except (Unavailable, OSError) as error:
                LOG.info("switches are not seen yet: %s", error)
        return self._rows

    # -- telling OpenSM

    def to_be_told(self) -> bool:
        """Whether OpenSM has to be told: it was not, or another process was, or to no effect.

        Also without an OpenSM, once: its LIDs then lie ready for when it starts.
        """
        current, note = self._current(), reload.told(self._home)
        if current is None or note.set != current.name:
            return current is not None
        try:
            process = self._opensm.process()
        except Unavailable:
            return False
        if not note.done or (process is not None and process.name != note.process):
            return True
        late = not self._unconfirmed or self._clock() - self._since >= self._timeout
        return self._seen.condition in RETELL and late

    def tell(self) -> None:
        """Have OpenSM read the current set, if there is one; without an OpenSM it stays untold."""
        if self._current() is None:
            return
        before = self._note.process
        try:
            reload.tell(self._home, self._opensm)
        except (Unavailable, OSError) as error:
            LOG.warning("OpenSM could not be told: %s", error)
        else:
            LOG.info("OpenSM was told to read generation %s", self.published)
        note = reload.told(self._home)
        self._unsaid = before not in ("", note.process)
        self._restarted |= self._unsaid
        self._told(note)

    def _told(self, note: reload.ReloadNote) -> None:
        self._note, self._since = note, self._clock()
        self._unconfirmed = self._restarted or note.set != self._confirmed
        self._rest_until = self._since

    # -- looking

    def look(self, active: bool) -> AgentReport:
        """What is to be reported now. Only who is active minds which process was told."""
        note = reload.told(self._home)
        if note != self._note:  # another agent of this machine told it
            self._told(note)
        look = self._look(note, active)
        self._seen = health.seen(look, self._timeout)
        if self._seen.condition is Condition.APPLIED:
            self._unconfirmed = self._restarted = False
            self._confirmed = note.set
        elif self._seen.condition in RETELL:
            self._confirmed = ""
        self._wedged = self._seen.condition is Condition.WEDGED and not look.stopped
        return self._seen

    def _look(self, note: reload.ReloadNote, active: bool) -> health.Look:
        current = self._current()
        found = health.Look(
            refused=self._refusal,
            published=current.generation if current is not None else None,
            waited=math.inf if self._wedged else self._clock() - self._since,
            unconfirmed=self._unconfirmed,
        )
        try:
            process = self._opensm.process()
        except Unavailable as error:
            return replace(found, dead=str(error))
        told = note.done and current is not None and note.set == current.name
        untold = active and told and process is not None and note.process != process.name
        self._restarted = active and (self._restarted or untold)
        found = replace(
            found,
            stopped=process is not None and process.stopped,
            restarted=self._restarted,
            untold=untold or self._unsaid,
        )
        self._unsaid = False  # that it was another process is told at least once
        try:
            if self._opensm.stands_by():
                return replace(found, stands_by=True)
            if told and not untold:
                found = replace(found, sweep=self._sweep(note, found))
            if not self._resting(found):
                self._read(current)
        except (Unavailable, OSError) as error:
            return replace(found, blind=str(error))
        return self._compared(found, current)

    def _sweep(self, note: reload.ReloadNote, found: health.Look) -> Sweep:
        """What the log says; who was told again what it runs already may take its time."""
        sweep = self._opensm.sweep(note.mark)
        again = note.set == self._confirmed and not found.restarted
        in_time = found.waited < self._timeout
        return health.UNASKED if again and in_time and not sweep.ended else sweep

    def _resting(self, found: health.Look) -> bool:
        """Whether what was read back a moment ago still has to do."""
        settled = self._seen.condition is Condition.APPLIED and found.sweep.problem is None
        return settled and not found.untold and self._clock() < self._rest_until

    def _read(self, current: _Set | None) -> None:
        begun = self._clock()
        self._rows = self._opensm.tables(current.rows if current is not None else ())
        ended = self._clock()
        self._rest_until = ended + SHARE * (ended - begun)

    def _compared(self, found: health.Look, current: _Set | None) -> health.Look:
        """Whose tables are in the switches."""
        if current is None:
            return found
        if current.rows == self._rows:
            return replace(found, matches=current.generation, current=True)
        text = difference(current.rows, self._rows)
        for directory in sorted(self._home.glob("gen-*"), reverse=True):
            other = self._read_set(directory) if directory.name != current.name else None
            if other is not None and other.rows == self._rows:
                return replace(found, matches=other.generation, difference=text)
        return replace(found, difference=text)

    # -- what is on disk

    def _current(self) -> _Set | None:
        link = self._home / "current"
        return self._read_set(self._home / link.readlink().name) if link.is_symlink() else None

    def _read_set(self, directory: Path) -> _Set | None:
        """A set that is whole; read again only when its files are others."""
        signature = fileset.signature(directory)
        found = self._sets.get(directory.name)
        if found is None or found.signature != signature:
            self._sets = {name: s for name, s in self._sets.items() if (self._home / name).exists()}
            found = _Set(directory.name, 0, signature, None)
            try:
                manifest = fileset.read_manifest(directory)
                if damaged := fileset.damaged(directory, manifest):
                    raise InvalidFile(damaged[0], 1, "it differs from the manifest")
                pieces = parse.file_pieces(directory / "lfts")
                tables = tuple(parse.switch_tables(pieces, "lfts", self._known()))
                found = replace(found, generation=manifest.generation, tables=tables)
            except (OSError, InvalidFile) as error:
                LOG.error("%s is damaged: %s", directory, error)
            self._sets[directory.name] = found
        return found if found.tables is not None else None

    def _known(self) -> dict[bytes, parse.SwitchTable]:
        """Tables that were read before, which need not be read again."""
        return {t.digest: t for kept in self._sets.values() for t in kept.tables or ()}
