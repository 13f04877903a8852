# SPDX-License-Identifier: Apache-2.0

"""Drives one OpenSM: publishes or fetches sets, has them read, observes OpenSM and the switches.

``local`` and ``supervisor`` both use it, in a worker and in an agent.
"""

import logging
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from laas_service.domain.errors import InvalidFile, InvalidInput, Unavailable
from laas_service.domain.faults.counters import SwitchCounters
from laas_service.domain.faults.reading import FabricReading
from laas_service.domain.inventory import CableEnds
from laas_service.messages import FabricState, Running
from opensm_writer import assemble, fetch, mixtures, publish, reload, render, standing
from opensm_writer.blocks import Block, differing, patched
from opensm_writer.counters import CounterReader
from opensm_writer.desired import subnet_configuration
from opensm_writer.health import OpenSMState
from opensm_writer.keys import DesiredKeys, KeyReading, WrongKeys, members_of
from opensm_writer.links import Comparison, wrong_lids
from opensm_writer.observer import BackgroundReading, LinkObserver
from opensm_writer.opensm import NOT_MASTER, OpenSm, Sweep, difference
from opensm_writer.parse import guid2lid
from opensm_writer.reload import ReloadNote
from opensm_writer.set_reader import SetOnDisk, SetReader
from opensm_writer.site import SiteSettings

LOG = logging.getLogger(__name__)

REWRITES = Sweep(False, "OpenSM writes keys or tables again that others changed")

ALL_READ = 600
"""Seconds after which all tables are read again, whatever differs."""

SLOW = 1.0
"""Reading all tables takes so many seconds if it is worth to read some blocks instead.

``prepared`` waits so long for a reading that it begins.
"""

STANDING_BLOCKS = 4000
"""Blocks that are read at most to confirm routes before a sweep: more take as long as that."""

BLOCK_TRIES = 3
"""So often in a row the blocks may be read in vain until all tables are read instead."""


class _AllTables(BackgroundReading[dict[int, bytes]]):
    """Reads all tables beside the caller. ``reload`` is the last one before that began."""

    def __init__(self, opensm: OpenSm, reload: ReloadNote, expected: Collection[int]) -> None:
        super().__init__("laas-tables", lambda: self._read_all(opensm, expected))
        self.reload = reload
        self.took = 0.0  # seconds, when it has ended

    def _read_all(self, opensm: OpenSm, expected: Collection[int]) -> dict[int, bytes]:
        begun = time.monotonic()
        try:
            return opensm.tables(expected)
        finally:
            self.took = time.monotonic() - begun

    def lacks(self, expected: Collection[int]) -> bool:
        """Whether it has ended without the tables of some of these switches."""
        return self.ended.is_set() and not set(expected) <= (self.result or {}).keys()


class OpenSmDriver:
    """The sets of one fabric in a directory, and the OpenSM that reads them.

    Without ``opensm``, a site loads the files by hand: nothing is signalled or read back, and
    an undamaged current set counts as applied. ``keep`` is how many older sets stay; the tables
    in the switches are compared with them, too. ``site`` holds without ``opensm``, which has its
    own. Sets that are fetched have to switch ``enforcement`` on. With ``reads_back`` False the
    tables are the manager's own affair: an undamaged current set counts as applied as soon as
    ``opensm`` was signalled for it.
    """

    def __init__(
        self,
        root: Path,
        fabric: str,
        opensm: OpenSm | None = None,
        *,
        keep: int = 3,
        site: SiteSettings | None = None,
        enforcement: str = "file",
        reads_back: bool = True,
    ) -> None:
        self._enforcement, self._reads_back = enforcement, reads_back
        self._site = opensm.site if opensm is not None else site
        self._root, self._fabric, self._opensm, self._keep = root, fabric, opensm, keep
        self._home = root / fabric
        self._sets = SetReader(self._home)
        self._published: publish.PublishedSet | None = None
        self._rows: dict[int, bytes] = {}
        self._observer = LinkObserver(opensm) if opensm is not None else None
        self._counters = CounterReader(opensm) if opensm is not None else None
        self._serving: SetOnDisk | None = None  # the current set, if OpenSM runs and is the master
        self._matched = ""  # the set whose tables they were, if any
        self._all_read_at = -math.inf  # when all tables were read last
        self._all_took = 0.0  # seconds
        self._all_tables: _AllTables | None = None  # begun, not used yet
        self._vain_tries = 0  # to read blocks
        self._not_compared: frozenset[int] = frozenset()  # switches, when the tables were read
        self._keys: KeyReading | None = None  # as read after the tables; None: not since then
        self._wrong_keys: WrongKeys | None = None  # when they were last compared

    @property
    def current(self) -> SetOnDisk | None:
        """The current set; None if there is none, or it is damaged. Raises: OSError."""
        current = self._sets.current()
        return current if current is not None and current.damage is None else None

    @property
    def note(self) -> ReloadNote:
        """The last reload, also by another process."""
        return reload.read_note(self._home)

    def publish(self, state: FabricState, settings: render.Settings) -> None:
        """Render the set for a state and make it current.

        The tables have no port GUIDs if the LIDs of the ports were read and are right, and OpenSM
        would get the same ones at a restart (``cache_directory``).

        Raises:
            Conflict, LimitExceeded, InvalidFile, OSError: see ``publish.publish_set``.
        """
        last = self._published
        configuration = subnet_configuration(
            state, last.configuration if last else None, enforcement=settings.enforcement
        )
        if self._pins and settings.enforcement == "file":
            problem = self._wrong_lids(configuration.lids, state.inventory.cable_ends)
            settings = replace(settings, bare=problem is None)
            if problem is not None:
                LOG.warning("the tables of %s name port GUIDs: %s", self._fabric, problem)
        self._published = publish.publish_set(configuration, settings, self._root, self._keep, last)
        self._sets.remember(self._published)

    def fetch(self, source: fetch.SetSource) -> None:
        """Make the source's set current, if it passes the checks.

        Raises:
            Conflict, InvalidFile, OSError, LaasError: see ``fetch.fetch_set``.
        """
        fetch.fetch_set(
            source,
            self._root,
            self._fabric,
            self._keep,
            self._sets.known_tables(),
            self._switches(),
            self._wrong_lids if self._pins else fetch.never_read,
            self._enforcement,
        )

    @property
    def _pins(self) -> bool:
        """Whether the LIDs of ports can be read, and a restarted OpenSM would give the same."""
        opensm = self._opensm
        return opensm is not None and bool(opensm.links_command and opensm.cache)

    def _wrong_lids(self, pinned: Mapping[int, int], cables: tuple[CableEnds, ...]) -> str | None:
        """Why tables without port GUIDs may not be loaded, by the LIDs of the ports now."""
        try:
            process = self.process_name()
        except Unavailable:
            process = ""
        read = self._observer.lids(cables, process) if self._observer is not None else None
        return wrong_lids(pinned, read) if read is not None else "the LIDs cannot be read"

    def _switches(self) -> Mapping[int, bytes]:
        """GUIDs of the switches that were seen last; empty if they cannot be read."""
        if not self._rows and self._opensm is not None and self._reads_back:
            try:
                self._rows = self._opensm.tables()
            except (Unavailable, OSError) as error:
                LOG.info("the switches cannot be read yet: %s", error)
        return self._rows

    def reload(self) -> None:
        """Bring OpenSM's configuration up to date and have it read the current set; repeatable.

        If OpenSM has to write keys or tables again that others changed, or if packets could go
        round while it writes the set's tables, it first sweeps once with other files: until then
        ``rewriting`` is true, and afterwards the set is to be reloaded once more. ``observe`` sees
        to the end of that sweep.

        A set with the same files as the one that OpenSM has read, and that the switches had at the
        last reading, needs no sweep and no signal.

        If tables without port GUIDs are not right for the LIDs that ports have, they get the GUIDs
        first (``assemble``).

        Raises:
            Unavailable, OSError: see ``reload.reload_set``; or a file with a key cannot be used.
        """
        try:
            if self._site is not None:
                self._site.write(self._home)
        except InvalidInput as error:
            raise Unavailable(str(error)) from error
        if self._opensm is None:
            return
        if self.rewriting and not reload.rewriting_ended(self._home, self._opensm):
            return
        reload.end_rewriting(self._home)
        current, wrong = self.current, self._wrong_keys
        if current is not None and current.bare:
            problem = self._wrong_lids(current.lids, current.cables)
            if problem is not None:
                LOG.warning("the tables of %s get port GUIDs: %s", self._fabric, problem)
                known = self._sets.known_tables()
                try:
                    assemble.name_ports_of_current(self._home, self._keep, known)
                except InvalidFile as error:
                    raise Unavailable(f"the tables get no port GUIDs: {error}") from error
                current = self.current
        follows = self.is_to_follow
        if follows:
            wrong = None
        self._keys = self._wrong_keys = None
        tables = keys = None
        if current is not None and self._has_read(current.name):
            foreign = {
                table.guid: row
                for table in current.tables
                if (row := self._rows.get(table.guid, table.row)) != table.row
            }
            tables = (current.tables, foreign) if foreign else None
        elif (
            current is not None
            and not (follows and self.note.set == current.name)
            and (rows := self._between(current))
        ):
            tables = current.tables, rows
        if wrong is not None and current is not None and current.partitions is not None:
            members = members_of(wrong.in_first_block, current.cables)
            keys = (current.partitions, members) if members else None
        signalled = self.note.set
        runs = current is not None and signalled == self._matched != current.name and not follows
        if runs and keys is None and self._has_read(signalled) and reload.take_as_read(self._home):
            return
        if not reload.begin_rewriting(self._home, self._opensm, keys, tables):
            reload.reload_set(self._home, self._opensm)

    def _between(self, current: SetOnDisk) -> dict[int, bytes]:
        """Rows to write before the current set's; of a standby and a first set none."""
        opensm, signalled = self._opensm, self.note.set
        try:
            if opensm is None or not self._reads_back or opensm.role().stands_by:
                return {}
        except Unavailable:
            return {}
        olds = [self._rows] if self._matched and self._matched != current.name else []
        if signalled not in (self._matched, current.name):
            olds += [other.rows for other in self._sets.others() if other.name == signalled]
        return mixtures.between(olds, current.rows, current.cables) if olds else {}

    @property
    def rewriting(self) -> bool:
        """Whether OpenSM was signalled to write keys or tables again, and the set is to follow."""
        return self.note.rewriting_since is not None

    @property
    def is_to_follow(self) -> bool:
        """Whether that sweep has ended, and OpenSM is to read the set again."""
        return self.note.rewritten

    def _rewriting_goes_on(self) -> bool:
        """Whether that sweep has not ended; if it has, the set is OpenSM's again."""
        if self._opensm is None or not self.rewriting:
            return False
        if not reload.rewriting_ended(self._home, self._opensm):
            return True
        reload.end_rewriting(self._home)
        return False

    def _has_read(self, name: str) -> bool:
        """Whether the running OpenSM was signalled before to read this set, and swept since."""
        note = self.note
        try:
            known = note.done and note.set == name and self.process_name() in (None, note.process)
            return known and self._opensm is not None and self._opensm.sweep(note.mark).ended
        except Unavailable:
            return False

    def process_name(self) -> str | None:
        """Name of OpenSM's process; None if nothing says which it is. Raises: Unavailable."""
        process = self._opensm.process() if self._opensm is not None else None
        return process.name if process is not None else None

    def observe(
        self, mark: str | None, *, reuse_tables: bool = False, reuse_ports: bool = False
    ) -> OpenSMState:
        """The present state of the current set, OpenSM's process and log, and the switches.

        ``mark`` is the end of the log before the last reload; None does not check the sweep.
        While a sweep goes on the tables are not read: they change, and reading them slows OpenSM.
        ``reuse_tables``: use the tables that were read last, unless a sweep has ended badly or
        another switch is dead or silent than at that time. ``reuse_ports``: use the last reading
        of the ports if there is one, unless a switch does not answer.

        Raises:
            OSError: the directory of the sets cannot be read.
        """
        self._serving = None
        current = self._sets.current()
        if current is None or current.damage is not None:
            observation = OpenSMState(damage=current.damage if current is not None else None)
            current = None
        else:
            observation = OpenSMState(published=current.generation, published_stamp=current.stamp)
        if self._opensm is None:
            return _taken_as_read(observation)
        try:
            process = self._opensm.process()
        except Unavailable as error:
            return replace(observation, dead=str(error))
        observation = replace(observation, stopped=process is not None and process.stopped)
        try:
            role = self._opensm.role()
            if role.stands_by:
                return self._with_master(observation, self._master())
            observation = replace(observation, running=Running(role.engine))
            if self._rewriting_goes_on():
                self._serving = current
                return replace(observation, sweep=REWRITES)
            if mark is not None:
                observation = replace(observation, sweep=self._opensm.sweep(mark))
            swept_badly = observation.sweep.ended and observation.sweep.problem is not None
            if current is None:
                return observation
            if not self._reads_back:
                return _taken_as_read(observation)
            self._serving = current
            links = self._last(current) if reuse_ports else None
            links = links or self._look(current)
            observation = _with_reading(observation, links)
            due = not reuse_tables or swept_badly or _unreached(links) != self._not_compared
            if due and observation.sweep.ended:
                rows = None if swept_badly else self._changed(current, _unreached(links))
                if rows is None:
                    rows = self._all_rows(self._opensm, current.rows.keys() - _unreached(links))
                if current.rows.keys() - rows.keys() - _unreached(links):
                    links = self._look(current, doubtful=True)
                    missing = current.rows.keys() - rows.keys() - _unreached(links)
                    if missing and self._observer is not None and self._observer.under_way:
                        rows = self._rows or rows  # the ports will tell whether they are dead
                self._rows, self._not_compared, self._keys = rows, _unreached(links), None
                if self._all_tables is not None and self._all_tables.ended.is_set():
                    self._all_tables = None
            observation = self._compared(_with_reading(observation, links), current, links)
            if current.bare:
                problem = self._wrong_lids(current.lids, current.cables)
                observation = replace(observation, wrong_lids=problem)
            return self._with_keys(observation, current)
        except (Unavailable, OSError) as error:
            return replace(observation, blind=str(error))

    def standing(self) -> frozenset[int]:
        """Partition keys that are new in the current set, and whose routes need no sweep.

        All entries that pairs of their members use are as in the current set: in every set that
        OpenSM may write since the tables were last those of a set, and in the switches, from which
        they are read now. Empty if that cannot be told.
        """
        try:
            return self._standing()
        except (Unavailable, InvalidFile, OSError) as error:
            LOG.info("no routes are confirmed before the sweep: %s", error)
            return frozenset()

    def _standing(self) -> frozenset[int]:
        opensm, current, note = self._opensm, self.current, self.note
        if opensm is None or not opensm.blocks_command or not self._reads_back or current is None:
            return frozenset()
        others = [other for other in self._sets.others() if other.name != current.name]
        seen = next((other for other in others if other.name == self._matched), None)
        if seen is None or seen.partitions is None or current.partitions is None:
            return frozenset()
        undisturbed = note.set == current.name and not self.rewriting and not self.is_to_follow
        if not undisturbed or opensm.role().stands_by:
            return frozenset()
        if self.process_name() not in (None, note.process):
            return frozenset()
        if current.bare and self._wrong_lids(current.lids, current.cables) is not None:
            return frozenset()
        written = [other.rows for other in others if other.generation >= seen.generation]
        known = set(seen.partitions.partitions)
        new = [each for each in current.partitions.partitions if each not in known]
        rows = current.rows
        lids = guid2lid((self._home / current.name / "guid2lid").read_text(), "guid2lid")
        ways = standing.Ways(rows, lids, current.cables)
        stand = {
            partition.pkey: entries
            for partition in new
            if (entries := ways.entries_between(partition.members)) is not None
            and standing.agree(entries, rows, written)
        }
        lid_of = {table.guid: table.lid for table in current.tables}
        wanted = {b for entries in stand.values() for b in standing.blocks_of(entries, lid_of)}
        if not wanted or len(wanted) > STANDING_BLOCKS:
            return frozenset()
        read = opensm.blocks(wanted, self._home / current.name if current.cables else None)
        return frozenset(
            key for key, entries in stand.items() if standing.were_read(entries, rows, read, lid_of)
        )

    def prepared(self) -> bool:
        """Whether ``observe`` need not wait until all tables are read.

        If not, they are read beside the caller, who calls again later; at first it waits ``SLOW``
        seconds. Also True if they cannot be read now: ``observe`` tells why.
        """
        reading = self._all_tables
        if reading is not None and not (reading.ended.is_set() and reading.reload != self.note):
            return reading.ended.is_set()
        opensm, note = self._opensm, self.note
        try:
            current = self.current
            if opensm is None or current is None or not self._reads_back:
                return True
            if opensm.role().stands_by:
                return True
            opensm.process()
            if not opensm.sweep(note.mark).ended:
                return True
        except (Unavailable, OSError):
            return True
        self._all_tables = _AllTables(opensm, note, current.rows.keys() - self._not_compared)
        self._all_tables.start()
        return self._all_tables.ended.wait(SLOW)

    def _all_rows(self, opensm: OpenSm, expected: Collection[int]) -> dict[int, bytes]:
        """The tables of all switches, also those read for ``prepared`` if OpenSM read no set since.

        Raises: Unavailable, OSError.
        """
        note, reading = self.note, self._all_tables
        if reading is None or reading.reload != note or reading.lacks(expected):
            reading = _AllTables(opensm, note, expected)
            reading.start()
        reading.ended.wait()
        self._all_read_at = time.monotonic()
        self._all_took = reading.took
        if reading.result is None:
            raise reading.error or Unavailable("the tables were not read")
        return reading.result

    def _changed(self, current: SetOnDisk, unreached: frozenset[int]) -> dict[int, bytes] | None:
        """The tables, if it is enough to read those blocks that differ in the current set.

        It is if ``blocks_command`` is set, all tables were read within ``ALL_READ`` seconds, that
        took ``SLOW`` seconds, and since the tables were those of the last set, OpenSM has read no
        set but the current one. None if it is not, if nothing differs, if a block cannot be
        read, or if ``blocks_command`` has failed ``BLOCK_TRIES`` times.

        Raises:
            Unavailable: it failed less often; all tables would take much longer.
        """
        opensm, recent = self._opensm, time.monotonic() - self._all_read_at < ALL_READ
        if opensm is None or not opensm.blocks_command or not recent or self._all_took < SLOW:
            return None
        if not self._matched or self._matched != self._sets.previous():
            return None
        tables = [table for table in current.tables if table.guid not in unreached]
        rows = {table.guid: self._rows.get(table.guid, b"") for table in tables}
        wanted = {
            Block(table.lid, number): table.guid
            for table in tables
            for number in differing(rows[table.guid], table.row)
        }
        if not wanted or self._rows.keys() - rows.keys() - unreached:
            return None
        try:
            read = opensm.blocks(wanted, self._home / current.name if current.cables else None)
        except Unavailable as error:
            self._vain_tries += 1
            if self._vain_tries % BLOCK_TRIES:
                raise
            LOG.warning("all tables are read, because some blocks were not: %s", error)
            return None
        self._vain_tries = 0
        if {block: guid for guid, blocks in read.items() for block in blocks} != wanted:
            return None
        for guid, blocks in read.items():
            rows[guid] = patched(rows[guid], {b.number: ports for b, ports in blocks.items()})
        return rows

    def look(self) -> FabricReading | None:
        """The last reading of the ports; they are read again if that is due.

        None without a current set, and while OpenSM does not run or is not the master.
        """
        try:
            self._serving = current = self.current
            if self._opensm is None or current is None:
                return None
            self._opensm.process()
            if self._opensm.role().stands_by:
                self._serving = None
                return None
        except (Unavailable, OSError):
            self._serving = None
            return None
        links = self._look(current)
        return links.reading if links is not None else None

    def counters(self, limit: int | None = None) -> tuple[SwitchCounters, ...]:
        """Counters that were read since the last call, of ``limit`` ports; see ``CounterReader``.

        None if the last ``look`` or ``observe`` found no current set, or OpenSM not running or
        not the master.
        """
        if self._counters is None or self._serving is None:
            return ()
        return self._counters.take(self._serving.tables, self._serving.cables, limit)

    def _master(self) -> KeyReading | None:
        """The master while OpenSM's log says that it is another one; None: it is not known."""
        if self._opensm is None or not self._opensm.keys_command:
            return None
        try:
            return self._opensm.keys(self._home / "current", "--master-only")
        except Unavailable:
            return None

    def _with_master(self, observation: OpenSMState, reading: KeyReading | None) -> OpenSMState:
        """Add that another subnet manager is the master, and which."""
        if self._opensm is None or reading is None:
            return replace(observation, foreign_master=NOT_MASTER)
        foreign = self._opensm.foreign_master(reading) or NOT_MASTER
        return replace(_with_running(observation, reading), foreign_master=foreign)

    def _with_keys(self, observation: OpenSMState, current: SetOnDisk) -> OpenSMState:
        """Add another master, and wrong partition keys if the tables are the current set's.

        Raises: Unavailable.
        """
        opensm, self._wrong_keys = self._opensm, None
        if opensm is None or not opensm.keys_command:
            return observation
        if not observation.current:
            reading = opensm.keys(self._home / current.name, "--master-only")
            observation = _with_running(observation, reading)
            return replace(
                observation,
                foreign_master=opensm.foreign_master(reading),
                difference=reading.several_lids or observation.difference,
            )
        if current.partitions is None or not current.cables:
            return observation
        if self._keys is None:
            self._keys = opensm.keys(self._home / current.name)
        observation = _with_running(observation, self._keys)
        if master := opensm.foreign_master(self._keys):
            return replace(observation, foreign_master=master)
        desired = DesiredKeys(current.partitions, current.cables, opensm.pkeys)
        self._wrong_keys = desired.wrong(self._keys, {*observation.without, *observation.silent})
        detail = self._wrong_keys.detail if self._wrong_keys is not None else None
        settings = opensm.wrong_settings(self._keys)
        return replace(observation, wrong_keys=detail, wrong_settings=settings)

    def _look(self, current: SetOnDisk, *, doubtful: bool = False) -> Comparison | None:
        if self._observer is None:
            return None
        return self._observer.look(current.cables, doubtful=doubtful)

    def _last(self, current: SetOnDisk) -> Comparison | None:
        return self._observer.last(current.cables) if self._observer is not None else None

    def _compared(
        self, observation: OpenSMState, current: SetOnDisk, links: Comparison | None
    ) -> OpenSMState:
        """Add which set's tables are in the switches, except in dead and silent switches."""
        missing = current.rows.keys() - self._rows.keys()
        dead = missing & links.dead if links is not None else set()
        silent = missing & links.silent if links is not None else set()
        observation = replace(
            observation, without=tuple(sorted(dead)), silent=tuple(sorted(silent))
        )

        self._matched = ""

        def answering(on_disk: SetOnDisk) -> dict[int, bytes]:
            return {g: row for g, row in on_disk.rows.items() if g not in dead | silent}

        text = difference(answering(current), self._rows)
        if text is None:
            self._matched = current.name
            return replace(
                observation, matches=current.generation, stamp=current.stamp, current=True
            )
        for other in self._sets.others():
            if answering(other) == self._rows:
                self._matched = other.name
                return replace(
                    observation, matches=other.generation, stamp=other.stamp, difference=text
                )
        return replace(observation, difference=text)


def _unreached(links: Comparison | None) -> frozenset[int]:
    """GUIDs of the dead and the silent switches."""
    return links.dead | links.silent if links is not None else frozenset()


def _with_running(observation: OpenSMState, reading: KeyReading) -> OpenSMState:
    """Add the master, unless it does not answer."""
    master = reading.master.master if reading.master is not None else None
    return replace(observation, running=replace(observation.running, master=master))


def _taken_as_read(observation: OpenSMState) -> OpenSMState:
    """The observation as if the switches had what the current set, if there is one, asks for."""
    return replace(
        observation,
        matches=observation.published,
        stamp=observation.published_stamp,
        current=observation.published is not None,
    )


def _with_reading(observation: OpenSMState, links: Comparison | None) -> OpenSMState:
    return replace(observation, reading=links.reading if links is not None else None)
