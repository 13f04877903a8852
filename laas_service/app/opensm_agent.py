# SPDX-License-Identifier: Apache-2.0

"""The agent beside OpenSM: reports, fetches the wanted file set, has OpenSM reload it."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from laas_service.app.worker.loop import Loop
from laas_service.domain.errors import LaasError
from laas_service.messages import AgentReport, Condition, Orders, Span

LOG = logging.getLogger(__name__)

MAX_DETAIL = 4000
LONGEST_PAUSE = 60.0
"""The most seconds between two tries to take a set that was refused."""

UNSETTLED = (Condition.SWEEPING, Condition.RESTARTED)


Report = Callable[[AgentReport], Orders]
"""Reports to the service what is seen, which also renews the agent's lease.

``Unavailable``, ``Forbidden``, ``NotFound``; ``Conflict`` if the wanted set cannot be rendered.
"""


class SetSupervisor(Protocol):
    """The sets on this machine and its OpenSM; see ``opensm_writer.supervisor``."""

    @property
    def published(self) -> int | None:
        """The generation of the current set; None if there is none."""

    @property
    def published_stamp(self) -> str:
        """The stamp of that generation; empty if it has none."""

    @property
    def refused(self) -> bool:
        """Whether the last set that was fetched was refused."""

    def needs_reload(self) -> bool:
        """Whether OpenSM has to be signalled to read the current set."""

    def reload(self) -> None:
        """Have OpenSM read the current set, if there is one; failures are logged."""

    def fence(self) -> None:
        """Stop OpenSM if another one is the master; failures are logged."""

    def observe(self, active: bool) -> AgentReport:
        """The present condition; ``active`` says whether this agent is the active one."""


class OpenSmAgent(Loop):
    """Looks after one OpenSM, every ``interval`` seconds or when woken.

    Of several agents of a fabric the service makes one the active agent. Only the active agent
    has its OpenSM reload, and only while its lease lasts. The lease is counted by the agent's own
    clock, from before the report was sent. A report that says the agent is unable renews no
    lease, because the service may have made another agent active. While the service cannot be
    reached, nothing changes; after ``fence_after`` seconds of that a standby OpenSM is stopped, as
    others may have got what its set still routes to. ``fetch`` makes the wanted set current, unless
    it fails a check; it raises what ``report`` does.
    """

    name = "laas-opensm-agent"

    def __init__(
        self,
        report: Report,
        fetch: Callable[[], None],
        supervisor: SetSupervisor,
        *,
        interval: float = 2.0,
        fence_after: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(interval)
        self._send, self._fetch = report, fetch
        self._supervisor, self._clock = supervisor, clock
        self._seen = AgentReport(Condition.STARTING)
        self._reported: AgentReport | None = None
        self._lease_until = -math.inf
        self._fence_after, self._reached_at = fence_after, clock()
        self._leads = False
        self._compared = False
        self._refused: int | None = None
        self._pause, self._try_at = interval, -math.inf
        self._spent: dict[Span, float] = {}  # on the newest set
        self._reloaded_at = math.inf  # the newest set, until it is confirmed

    def round(self) -> None:
        """One round; errors of the service are logged, and OpenSM is checked nevertheless."""
        reported = self._try_report()
        if not reported and self._clock() - self._reached_at >= self._fence_after:
            self._supervisor.fence()
        if not self.stopping:
            self._tell()
        self._look()
        if reported and _news(self._seen) != _news(self._reported):
            self.wake()

    def _try_report(self) -> bool:
        """Report, and take the wanted set; whether the service could be reached."""
        try:
            orders = self._report()
            if not self.stopping:
                self._take(orders.wanted, orders.stamp)
        except LaasError as error:
            LOG.warning("the service cannot be reached, nothing changes here: %s", error)
            return False
        self._reached_at = self._clock()
        return True

    def once(self) -> AgentReport:
        """One round, then a second report with its result. Raises: LaasError."""
        self.round()
        self._report()
        return self._seen

    @property
    def leading(self) -> bool:
        """Whether this agent may have OpenSM reload now."""
        return self._clock() < self._lease_until

    def _report(self) -> Orders:
        """Report; returns the service's orders."""
        seen, asked = self._seen, self._clock()
        detail = seen.detail and seen.detail.replace("\0", " ")[:MAX_DETAIL]
        orders = self._send(replace(seen, detail=detail))
        self._reported = seen
        lease = orders.lease_seconds if seen.condition.able else self._to_signal_again(seen)
        self._lease_until = asked + lease if orders.leads else -math.inf
        return orders

    def _to_signal_again(self, seen: AgentReport) -> float:
        """Seconds for which an agent leads that reported that it is not able.

        OpenSM may have lost a signal: while no other agent is able, it gets another one.
        """
        return self._interval if seen.condition is Condition.WEDGED else -math.inf

    def _take(self, wanted: int, stamp: str) -> None:
        """Publish the wanted set, unless it is published already.

        The first round takes the set in any case, which compares the files on disk with it. A
        refused set is tried again at growing intervals, until another generation is wanted.
        """
        published = self._supervisor.published == wanted
        if stamp and self._supervisor.published_stamp:
            published = published and self._supervisor.published_stamp == stamp
        if self._compared and published and not self._supervisor.refused:
            return
        if self._supervisor.refused and self._refused == wanted and self._clock() < self._try_at:
            return
        begun = self._clock()
        self._fetch()
        self._spent, self._reloaded_at = {Span.FETCH: self._clock() - begun}, math.inf
        self._compared = True
        if self._supervisor.refused:
            repeated = self._refused == wanted
            self._pause = min(2 * self._pause, LONGEST_PAUSE) if repeated else self._interval
            self._refused, self._try_at = wanted, self._clock() + self._pause

    def _tell(self) -> None:
        """Have OpenSM reload if that is needed, or if this agent has just become active."""
        led, self._leads = self._leads, self.leading
        if self._leads and not led:
            self._saw(self._supervisor.observe(active=True))  # before it is changed
        if self._leads and (not led or self._supervisor.needs_reload()) and self.leading:
            begun = self._clock()
            self._supervisor.reload()
            self._reloaded_at = self._clock()
            self._spent[Span.RELOAD] = self._reloaded_at - begun

    def _look(self) -> None:
        """Check OpenSM and the switches; while OpenSM is busy, again for up to an interval."""
        until, pause = self._clock() + self._interval, 0.05
        while True:
            self._saw(self._supervisor.observe(self._leads))
            if self._seen.condition not in UNSETTLED or self._supervisor.needs_reload():
                return
            if self._clock() + pause > until or self._stopping.wait(pause):
                return
            pause *= 2

    def _saw(self, seen: AgentReport) -> None:
        if seen.generation is not None and seen.generation == seen.published:
            if self._reloaded_at < math.inf:
                self._spent[Span.READ_BACK] = self._clock() - self._reloaded_at
                self._reloaded_at = math.inf
            seen = replace(seen, spent=dict(self._spent))
        if _news(seen) != _news(self._seen):
            LOG.info(
                "%s, generation %s, published %s (%s)",
                *(seen.condition, seen.generation, seen.published, seen.detail or "no problem"),
            )
        self._seen = seen


def _news(seen: AgentReport | None) -> AgentReport | None:
    """The part of a report whose change is reported at once."""
    if seen is None:
        return None
    reading = replace(seen.reading, at=0.0) if seen.reading is not None else None
    return replace(seen, detail=None, reading=reading, counters=())
