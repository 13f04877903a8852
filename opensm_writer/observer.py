# SPDX-License-Identifier: Apache-2.0

"""Reads the ports of a fabric after events in OpenSM's log, and at regular intervals."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from laas_service import background
from laas_service.domain.errors import Unavailable
from laas_service.domain.inventory import CableEnds
from opensm_writer.links import Comparison, NodePorts, compared
from opensm_writer.opensm import LinkEvent, OpenSm

LOG = logging.getLogger(__name__)

REST = 9
"""For each reading of the ports, this many times as long without one is owed."""

REST_AFTER_CHANGE = 3
"""The same for readings because a port has changed; they need not wait for the rest of others."""

BURST = 3
"""So many readings may follow one another if no rest is owed."""

RETRY = 5.0
"""Seconds until the ports are read again if that failed."""

T = TypeVar("T")


class BackgroundReading(Generic[T]):
    """Calls ``read`` once, beside the caller: ``result`` or ``error`` is set when it has ``ended``.

    A command of OpenSM's machine ends after ``opensm.timeout`` seconds at the latest.
    """

    def __init__(self, name: str, read: Callable[[], T]) -> None:
        self.name, self._read = name, read
        self.result: T | None = None
        self.error: Exception | None = None
        self.ended = threading.Event()

    def start(self) -> None:
        background.start(self.name, self._run)

    def _run(self) -> None:
        try:
            self.result = self._read()
        except (Unavailable, OSError) as error:
            self.error = error
        except Exception as error:
            LOG.exception("%s: unexpected error", self.name)
            self.error = error
        finally:
            self.ended.set()


class LinkObserver:
    """The ports that the OpenSM of this machine reaches, compared with a fabric's cables.

    They are read if OpenSM's log tells of a change, if the last reading differs from the one
    before it, and else every ``opensm.links_interval`` seconds; but at most for a tenth of the
    time, or for a third of it because the log tells of changed ports and of the sweeps after that.
    Up to ``BURST`` readings follow one another after a rest. They are read beside the caller, in a
    thread, so that a slow reading delays no round. Without ``opensm.links_command`` nothing is
    read. ``now`` is seconds since the epoch, ``opensm.now`` if None is given.
    """

    def __init__(
        self,
        opensm: OpenSm,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._opensm, self._clock, self._now = opensm, clock, now or opensm.now
        self._cables: tuple[CableEnds, ...] = ()
        self._seen: Comparison | None = None
        self._reading: BackgroundReading[NodePorts] | None = None  # under way
        self._read_at = 0.0  # when it began, by ``now``
        self._event = LinkEvent.NONE  # since the last reading
        self._again = True  # read again although nothing tells of a change
        self._mark = opensm.mark() if opensm.links_command else ""
        self._process: str | None = None  # when LIDs were asked for last
        self._appearances, self._read_after, self._seen_after = 1, 0, 0
        self._begun = self._retry_at = clock()
        self._took = 0.0  # seconds, the last reading
        self._rested_at = clock()  # when no rest is owed any more
        self._change_rested_at = clock()  # the same for readings because of changes
        self._sweep_expected = False  # a port has changed, and no sweep has ended since
        self._for_change = False  # the reading under way, or the last one
        self._problem = ""

    def look(self, cables: tuple[CableEnds, ...], *, doubtful: bool = False) -> Comparison | None:
        """The last comparison; begins to read the ports if that is due or the last is ``doubtful``.

        Waits ``opensm.links_patience`` seconds at most for the reading that it begins, or that
        settles the doubt; later calls take the result of a slower one (``under_way``).

        ``at`` of its reading is now if OpenSM has a log and it tells of no change since, else
        the time at which the ports were read. None before the first reading.
        """
        if not self._opensm.links_command or not cables:
            return None
        if cables != self._cables:
            self._cables, self._seen, self._again = cables, None, True
        event, self._mark = self._opensm.link_events(self._mark)
        if event is LinkEvent.APPEARED:
            self._appearances, event = self._appearances + 1, LinkEvent.CHANGED
        if event is LinkEvent.SWEPT and self._sweep_expected:
            event, self._sweep_expected = LinkEvent.CHANGED, False
        elif event is LinkEvent.CHANGED:
            self._sweep_expected = True
        self._event = max(self._event, event)
        late = self._clock() - self._begun >= self._opensm.links_interval
        due = bool(self._event) or self._again or late or doubtful
        begins = due and self._reading is None and self._may_read()
        if begins:
            self._begin()
        if self._reading is not None:
            patience = self._opensm.links_patience if begins or doubtful else 0
            if self._reading.ended.wait(patience):
                self._take(self._reading)
        elif self._seen is not None and self._opensm.log is not None and not self._event:
            self._seen = _at(self._seen, self._now())
        return self._seen

    def lids(self, cables: tuple[CableEnds, ...], process: str | None) -> Mapping[int, int] | None:
        """The LIDs of all ports, by GUID; None if they cannot be read.

        Waits for a reading that began after OpenSM's log told last that a port has appeared, and
        after another process of OpenSM (its name is ``process``) began: LIDs change only then.
        Without a log it always reads.
        """
        if not self._opensm.links_command or not cables:
            return None
        if self._opensm.log is None or process != self._process:
            self._process, self._appearances = process, self._appearances + 1
        for _ in range(BURST):
            self.look(cables)
            if self._seen is not None and self._seen_after == self._appearances:
                return self._seen.lids
            if self._reading is None and self._clock() < self._retry_at:
                return None
            if self._reading is None:
                self._begin()
            if (reading := self._reading) is not None:
                reading.ended.wait()
                self._take(reading)
        fresh = self._seen_after == self._appearances
        return self._seen.lids if fresh and self._seen is not None else None

    def last(self, cables: tuple[CableEnds, ...]) -> Comparison | None:
        """The last comparison with these cables, however old; None if there is none."""
        return self._seen if cables == self._cables else None

    def _may_read(self) -> bool:
        now, spare = self._clock(), (BURST - 1) * self._took
        if now < self._retry_at:
            return False
        changed = self._event is LinkEvent.CHANGED
        if changed and self._change_rested_at - now <= spare * REST_AFTER_CHANGE:
            return True
        return self._rested_at - now <= spare * REST

    @property
    def under_way(self) -> bool:
        """Whether the ports are being read."""
        return self._reading is not None

    def _begin(self) -> None:
        self._for_change = self._event is LinkEvent.CHANGED
        self._begun, self._event = self._clock(), LinkEvent.NONE
        self._read_at, self._read_after = self._now(), self._appearances
        self._reading = BackgroundReading("laas-ports", self._opensm.links)
        self._reading.start()

    def _take(self, reading: BackgroundReading[NodePorts]) -> None:
        """Compare the ports of a reading that has ended."""
        self._reading = None
        if reading.result is None:
            error = str(reading.error)
            if error != self._problem:
                LOG.warning("the ports of the fabric cannot be read: %s", error)
            self._problem, self._event, pause = error, LinkEvent.CHANGED, RETRY
        else:
            seen = compared(self._cables, reading.result, self._read_at)
            self._again = self._seen is None or _at(seen, 0) != _at(self._seen, 0)
            if self._again:
                self._tell(seen, reading.result.skipped)
            self._seen, self._problem, pause = seen, "", 0.0
            self._seen_after = self._read_after
        ended = self._clock()
        self._took, self._retry_at = ended - self._begun, ended + pause
        self._rested_at = max(ended, self._rested_at) + REST * self._took
        if self._for_change:
            rested_at = max(ended, self._change_rested_at)
            self._change_rested_at = rested_at + REST_AFTER_CHANGE * self._took

    def _tell(self, seen: Comparison, skipped: int) -> None:
        reading = seen.reading
        LOG.info(
            "%s nodes were read, %s of them switches; ends of cables that are not up: %s; "
            "dead switches: %s, silent ones: %s; lines skipped: %s",
            reading.nodes_read,
            reading.switches_read,
            len(reading.ends) + reading.ends_left_out,
            len(seen.dead),
            len(seen.silent),
            skipped,
        )


class LinkEvents:
    """Changes of ports that OpenSM's log tells of."""

    def __init__(self, opensm: OpenSm) -> None:
        self._opensm, self._mark = opensm, opensm.mark()

    @classmethod
    def of(cls, opensm: OpenSm | None) -> LinkEvents | None:
        """None, if no log is read, or nothing could read the ports afterwards."""
        if opensm is None or not opensm.links_command or not opensm.may_have_a_log:
            return None
        return cls(opensm)

    def happened(self) -> bool:
        """Whether the log tells of one since the last call; costs little."""
        event, self._mark = self._opensm.link_events(self._mark)
        return bool(event)


def _at(comparison: Comparison, at: float) -> Comparison:
    return replace(comparison, reading=replace(comparison.reading, at=at))
