# SPDX-License-Identifier: Apache-2.0

"""Supervises the OpenSM of an agent's machine: what to fetch, when to reload, what to report."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from laas_service.domain.errors import Conflict, InvalidFile, LimitExceeded, Unavailable
from laas_service.messages import AgentReport, Condition
from opensm_writer import fetch, health
from opensm_writer.driver import OpenSmDriver
from opensm_writer.opensm import OpenSm
from opensm_writer.reload import ReloadNote

LOG = logging.getLogger(__name__)

REST = 10
"""After tables were read back and confirmed, they are not read for this many times as long."""

COUNTED_PORTS = 400
"""Ports whose counters one report has, at most: about half of what the service takes."""

REFUSALS = (InvalidFile, Conflict, LimitExceeded, OSError)
RELOAD_AGAIN = (
    Condition.DIFFERS,
    Condition.OTHER_ENGINE,
    Condition.OTHER_GENERATION,
    Condition.WRONG_KEYS,
    Condition.WRONG_SETTINGS,
)


class Supervisor:
    """One fabric's sets and OpenSM, beside an agent; remembers reloads and restarts.

    ``timeout`` is how many seconds OpenSM has to read a set before this counts against it and
    it is signalled once more. ``keep`` is how many older sets stay. ``enforcement`` and
    ``reads_back`` are described at ``OpenSmDriver``.
    """

    def __init__(
        self,
        root: Path,
        fabric: str,
        opensm: OpenSm,
        *,
        keep: int = 3,
        timeout: float = 120,
        enforcement: str = "file",
        reads_back: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = OpenSmDriver(
            root.absolute(),
            fabric,
            opensm,
            keep=keep,
            enforcement=enforcement,
            reads_back=reads_back,
        )
        self._timeout, self._clock = timeout, clock
        self._opensm, self._current = opensm, root.absolute() / fabric / "current"
        self._note = self._driver.note
        self._reloaded_at = clock()  # or when this object was made
        self._unconfirmed = False  # the set was not seen in the switches since the reload
        self._confirmed_set = ""  # name of the set that was seen last
        self._refusal: str | None = None
        self._restarted = False  # another process runs than when a set was last confirmed
        self._restart_to_report = False  # noticed by ``reload``, not reported yet
        self._wedged = False
        self._report = AgentReport(Condition.STARTING)
        self._rest_until = clock()
        self._comparing_since: float | None = None  # when the tables were first to be read

    # -- sets

    @property
    def published(self) -> int | None:
        """Generation of the current set; None if there is none, or it is damaged."""
        current = self._driver.current
        return current.generation if current is not None else None

    @property
    def published_stamp(self) -> str:
        """Stamp of that generation; empty if it has none."""
        current = self._driver.current
        return current.stamp if current is not None else ""

    def fetch_set(self, source: fetch.SetSource) -> None:
        """Make the source's set current. If it fails a check, it is refused and nothing changes.

        Raises:
            LaasError: the source does not answer.
        """
        try:
            self._driver.fetch(source)
        except REFUSALS as error:
            if str(error) != self._refusal:
                LOG.error("the set is refused, the current one stays: %s", error)
            self._refusal = str(error)
        else:
            self._refusal = None

    @property
    def refused(self) -> bool:
        """Whether the last set that was fetched was refused."""
        return self._refusal is not None

    # -- reloads

    def needs_reload(self) -> bool:
        """Whether OpenSM has to be signalled to read the current set.

        True if it was not signalled, if another process runs, or if the switches have other
        tables. Also True without an OpenSM, once: the LIDs are then copied for its start.
        """
        current, note = self._driver.current, self._driver.note
        if current is None or note.set != current.name:
            return current is not None
        try:
            process = self._driver.process_name()
        except Unavailable:
            return False
        if not note.done or process not in (None, note.process):
            return True
        late = not self._unconfirmed or self._clock() - self._reloaded_at >= self._timeout
        return self._is_to_reload_again() and late

    def _is_to_reload_again(self) -> bool:
        """Whether OpenSM runs something else, or may have lost a signal."""
        return self._report.condition in RELOAD_AGAIN or self._wedged

    def reload(self) -> None:
        """Have OpenSM read the current set, if there is one; failures are logged."""
        if self._driver.current is None:
            return
        last_process = self._note.process
        try:
            self._driver.reload()
        except (Unavailable, OSError) as error:
            LOG.warning("OpenSM could not be signalled: %s", error)
        else:
            LOG.info("OpenSM was signalled to read generation %s", self.published)
        note = self._driver.note
        self._restart_to_report = last_process not in ("", note.process)
        self._restarted |= self._restart_to_report
        self._accept_note(note)

    def _accept_note(self, note: ReloadNote) -> None:
        self._note, self._reloaded_at = note, self._clock()
        self._unconfirmed = self._restarted or note.set != self._confirmed_set
        self._rest_until = self._reloaded_at

    def fence(self) -> None:
        """Stop OpenSM if it is a standby, so that it cannot route by an old set; logged."""
        try:
            if self._opensm.stop_standby(self._current):
                LOG.error(
                    "OpenSM was stopped: it stands by with a set that may be old. Start it once "
                    "this agent reaches the service"
                )
        except (Unavailable, OSError) as error:
            LOG.warning("OpenSM is not stopped, although its set may be old: %s", error)

    # -- observations

    def observe(self, active: bool) -> AgentReport:
        """The present condition. Only the active agent checks which process was signalled."""
        note = self._driver.note
        if note != self._note:  # another agent of this machine signalled it
            self._accept_note(note)
        observation = self._observation(note, active)
        self._report = health.report(observation, self._timeout)
        condition = self._report.condition
        self._wedged = condition is Condition.WEDGED and not observation.stopped
        if condition is Condition.APPLIED:
            self._unconfirmed = self._restarted = False
            self._confirmed_set = note.set
        elif self._is_to_reload_again():
            self._confirmed_set = ""
        return replace(self._report, counters=self._driver.counters(COUNTED_PORTS))

    def _observation(self, note: ReloadNote, active: bool) -> health.OpenSMState:
        current = self._driver.current
        signalled = note.done and current is not None and note.set == current.name
        unsignalled = active and signalled and self._other_process(note)
        waited = math.inf if self._wedged else self._clock() - self._reloaded_at
        observation = replace(
            self._observe(note.mark if signalled and not unsignalled else None, unsignalled),
            refused=self._refusal,
            waited=waited,
            unconfirmed=self._unconfirmed,
        )
        if observation.dead is not None:
            return observation
        self._restarted = active and (self._restarted or unsignalled)
        observation = replace(
            observation,
            restarted=self._restarted,
            unsignalled=unsignalled or self._restart_to_report,
        )
        self._restart_to_report = False
        return self._with_time_to_sweep(observation, note)

    def _other_process(self, note: ReloadNote) -> bool:
        try:
            return self._driver.process_name() not in (None, note.process)
        except Unavailable:
            return False

    def _observe(self, mark: str | None, unsignalled: bool) -> health.OpenSMState:
        """Observe; confirmed tables are read again only after a rest, and beside this thread."""
        begun = self._clock()
        confirmed = self._report.condition is Condition.APPLIED and not unsignalled
        resting = confirmed and begun < self._rest_until
        if not resting and self._comparing_since is None:
            self._comparing_since = begun
        waits = confirmed and not self._unconfirmed and not resting and not self._driver.prepared()
        resting = resting or waits
        observation = self._driver.observe(mark, reuse_tables=resting)
        if not resting and self._comparing_since is not None:
            ended = self._clock()
            self._rest_until = ended + REST * (ended - self._comparing_since)
            self._comparing_since = None
        return observation

    def _with_time_to_sweep(
        self, observation: health.OpenSMState, note: ReloadNote
    ) -> health.OpenSMState:
        """Ignore that a sweep has not ended yet, if it is for a set that was confirmed before."""
        confirmed = note.set == self._confirmed_set and not observation.restarted
        in_time = observation.waited < self._timeout
        if confirmed and in_time and not observation.sweep.ended:
            return replace(observation, sweep=health.UNCHECKED)
        return observation
