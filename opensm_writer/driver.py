# SPDX-License-Identifier: Apache-2.0

"""Drives one OpenSM: publishes or fetches sets, has them read, observes OpenSM and the switches.

``local`` and ``supervisor`` both use it, in a worker and in an agent.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from laas_service.domain.errors import Unavailable
from laas_service.messages import FabricState
from opensm_writer import fetch, publish, reload, render
from opensm_writer.desired import subnet_configuration
from opensm_writer.health import Observation
from opensm_writer.opensm import OpenSm, difference
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
        if self._opensm is not None:
            reload.reload_set(self._home, self._opensm)

    def process_name(self) -> str | None:
        """Name of OpenSM's process; None if nothing says which it is. Raises: Unavailable."""
        process = self._opensm.process() if self._opensm is not None else None
        return process.name if process is not None else None

    def observe(self, mark: str | None, *, reuse_tables: bool = False) -> Observation:
        """The present state of the current set, OpenSM's process and log, and the switches.

        ``mark`` is the end of the log before the last reload; None does not check the sweep.
        ``reuse_tables``: use the tables that were read last, unless a sweep has ended badly.

        Raises:
            OSError: the directory of the sets cannot be read.
        """
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
                return replace(observation, stands_by=True)
            if mark is not None:
                observation = replace(observation, sweep=self._opensm.sweep(mark))
            swept_badly = observation.sweep.ended and observation.sweep.problem is not None
            if current is None:
                return observation
            if not reuse_tables or swept_badly:
                self._rows = self._opensm.tables(current.rows)
        except (Unavailable, OSError) as error:
            return replace(observation, blind=str(error))
        return self._compared(observation, current)

    def _compared(self, observation: Observation, current: SetOnDisk) -> Observation:
        """Add which set's tables are in the switches."""
        text = difference(current.rows, self._rows)
        if text is None:
            return replace(observation, matches=current.generation, current=True)
        for other in self._sets.others():
            if other.rows == self._rows:
                return replace(observation, matches=other.generation, difference=text)
        return replace(observation, difference=text)
