# SPDX-License-Identifier: Apache-2.0

"""Drives one OpenSM: publishes or fetches sets, has them read, observes OpenSM and the switches.

``local`` and ``supervisor`` both use it, in a worker and in an agent.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from laas_service.domain.errors import Unavailable
from laas_service.domain.faults.counters import SwitchCounters
from laas_service.domain.faults.reading import FabricReading
from laas_service.messages import FabricState
from opensm_writer import fetch, publish, reload, render
from opensm_writer.counters import CounterReader
from opensm_writer.desired import subnet_configuration
from opensm_writer.health import Observation
from opensm_writer.keys import DesiredKeys, KeyReading, WrongKeys, members_of
from opensm_writer.links import Comparison
from opensm_writer.observer import LinkObserver
from opensm_writer.opensm import NOT_MASTER, OpenSm, difference
from opensm_writer.reload import ReloadNote
from opensm_writer.set_reader import SetOnDisk, SetReader

LOG = logging.getLogger(__name__)


class OpenSmDriver:
    """The sets of one fabric in a directory, and the OpenSM that reads them.

    Without ``opensm``, a site loads the files by hand: nothing is signalled or read back, and
    an undamaged current set counts as applied. ``keep`` is how many older sets stay; the tables
    in the switches are compared with them, too.
    """

    def __init__(
        self, root: Path, fabric: str, opensm: OpenSm | None = None, *, keep: int = 3
    ) -> None:
        self._root, self._fabric, self._opensm, self._keep = root, fabric, opensm, keep
        self._home = root / fabric
        self._sets = SetReader(self._home)
        self._published: publish.PublishedSet | None = None
        self._rows: dict[int, bytes] = {}
        self._observer = LinkObserver(opensm) if opensm is not None else None
        self._counters = CounterReader(opensm) if opensm is not None else None
        self._serving: SetOnDisk | None = None  # the current set, if OpenSM runs and is the master
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

        Raises:
            Conflict, LimitExceeded, InvalidFile, OSError: see ``publish.publish_set``.
        """
        last = self._published
        configuration = subnet_configuration(state, last.configuration if last else None)
        self._published = publish.publish_set(configuration, settings, self._root, self._keep, last)
        self._sets.remember(self._published.tables)

    def fetch(self, source: fetch.Source) -> None:
        """Make the source's set current, if it passes the checks.

        Raises:
            Conflict, InvalidFile, OSError, LaasError: see ``fetch.fetch_set``.
        """
        known = self._sets.known_tables()
        fetch.fetch_set(source, self._root, self._fabric, self._keep, known, self._switches())

    def _switches(self) -> Mapping[int, bytes]:
        """GUIDs of the switches that were seen last; empty if they cannot be read."""
        if not self._rows and self._opensm is not None:
            try:
                self._rows = self._opensm.tables()
            except (Unavailable, OSError) as error:
                LOG.info("the switches cannot be read yet: %s", error)
        return self._rows

    def reload(self) -> None:
        """Have OpenSM read the current set; safe to repeat.

        Raises:
            Unavailable, OSError: see ``reload.reload_set``.
        """
        if self._opensm is None:
            return
        current, wrong = self.current, self._wrong_keys
        if wrong is not None and current is not None and current.partitions is not None:
            members = members_of(wrong.ports, current.cables)
            reload.rewrite_keys(self._home, self._opensm, current.partitions, members)
        self._keys = None
        reload.reload_set(self._home, self._opensm)

    def process_name(self) -> str | None:
        """Name of OpenSM's process; None if nothing says which it is. Raises: Unavailable."""
        process = self._opensm.process() if self._opensm is not None else None
        return process.name if process is not None else None

    def observe(
        self, mark: str | None, *, reuse_tables: bool = False, reuse_ports: bool = False
    ) -> Observation:
        """The present state of the current set, OpenSM's process and log, and the switches.

        ``mark`` is the end of the log before the last reload; None does not check the sweep.
        ``reuse_tables``: use the tables that were read last, unless a sweep has ended badly or
        another switch is dead or silent than at that time. ``reuse_ports``: use the last reading
        of the ports if there is one, unless a switch does not answer.

        Raises:
            OSError: the directory of the sets cannot be read.
        """
        self._serving = None
        current = self._sets.current()
        if current is None or current.damage is not None:
            observation = Observation(damage=current.damage if current is not None else None)
            current = None
        else:
            observation = Observation(published=current.generation)
        if self._opensm is None:
            return replace(observation, matches=observation.published, current=current is not None)
        try:
            process = self._opensm.process()
        except Unavailable as error:
            return replace(observation, dead=str(error))
        observation = replace(observation, stopped=process is not None and process.stopped)
        try:
            if self._opensm.stands_by():
                return replace(observation, foreign_master=self._master())
            if mark is not None:
                observation = replace(observation, sweep=self._opensm.sweep(mark))
            swept_badly = observation.sweep.ended and observation.sweep.problem is not None
            if current is None:
                return observation
            self._serving = current
            links = self._last(current) if reuse_ports else None
            links = links or self._look(current)
            observation = _with_reading(observation, links)
            if not reuse_tables or swept_badly or _unreached(links) != self._not_compared:
                rows = self._opensm.tables(current.rows.keys() - _unreached(links))
                if current.rows.keys() - rows.keys() - _unreached(links):
                    links = self._look(current, doubtful=True)
                    missing = current.rows.keys() - rows.keys() - _unreached(links)
                    if missing and self._observer is not None and self._observer.under_way:
                        rows = self._rows or rows  # the ports will tell whether they are dead
                self._rows, self._not_compared, self._keys = rows, _unreached(links), None
            observation = self._compared(_with_reading(observation, links), current, links)
            return self._with_keys(observation, current)
        except (Unavailable, OSError) as error:
            return replace(observation, blind=str(error))

    def look(self) -> FabricReading | None:
        """The last reading of the ports; they are read again if that is due.

        None without a current set, and while OpenSM does not run or is not the master.
        """
        try:
            self._serving = current = self.current
            if self._opensm is None or current is None:
                return None
            self._opensm.process()
            if self._opensm.stands_by():
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

    def _master(self) -> str:
        """The master while OpenSM's log says that it is another subnet manager."""
        if self._opensm is None or not self._opensm.keys_command:
            return NOT_MASTER
        try:
            reading = self._opensm.keys(self._home / "current", "--master-only")
        except Unavailable:
            return NOT_MASTER
        return self._opensm.foreign_master(reading) or NOT_MASTER

    def _with_keys(self, observation: Observation, current: SetOnDisk) -> Observation:
        """Add another master, and wrong partition keys if the tables are the current set's.

        Raises: Unavailable.
        """
        opensm, self._wrong_keys = self._opensm, None
        if opensm is None or not opensm.keys_command:
            return observation
        if not observation.current:
            reading = opensm.keys(self._home / current.name, "--master-only")
            return replace(observation, foreign_master=opensm.foreign_master(reading))
        if current.partitions is None or not current.cables:
            return observation
        if self._keys is None:
            self._keys = opensm.keys(self._home / current.name)
        if master := opensm.foreign_master(self._keys):
            return replace(observation, foreign_master=master)
        desired = DesiredKeys(current.partitions, current.cables, opensm.pkeys)
        self._wrong_keys = desired.wrong(self._keys, {*observation.without, *observation.silent})
        detail = self._wrong_keys.detail if self._wrong_keys is not None else None
        return replace(observation, wrong_keys=detail)

    def _look(self, current: SetOnDisk, *, doubtful: bool = False) -> Comparison | None:
        if self._observer is None:
            return None
        return self._observer.look(current.cables, doubtful=doubtful)

    def _last(self, current: SetOnDisk) -> Comparison | None:
        return self._observer.last(current.cables) if self._observer is not None else None

    def _compared(
        self, observation: Observation, current: SetOnDisk, links: Comparison | None
    ) -> Observation:
        """Add which set's tables are in the switches, except in dead and silent switches."""
        missing = current.rows.keys() - self._rows.keys()
        dead = missing & links.dead if links is not None else set()
        silent = missing & links.silent if links is not None else set()
        observation = replace(
            observation, without=tuple(sorted(dead)), silent=tuple(sorted(silent))
        )

        def answering(on_disk: SetOnDisk) -> dict[int, bytes]:
            return {g: row for g, row in on_disk.rows.items() if g not in dead | silent}

        text = difference(answering(current), self._rows)
        if text is None:
            return replace(observation, matches=current.generation, current=True)
        for other in self._sets.others():
            if answering(other) == self._rows:
                return replace(observation, matches=other.generation, difference=text)
        return replace(observation, difference=text)


def _unreached(links: Comparison | None) -> frozenset[int]:
    """GUIDs of the dead and the silent switches."""
    return links.dead | links.silent if links is not None else frozenset()


def _with_reading(observation: Observation, links: Comparison | None) -> Observation:
    return replace(observation, reading=links.reading if links is not None else None)
