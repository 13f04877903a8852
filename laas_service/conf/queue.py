# SPDX-License-Identifier: Apache-2.0

"""[queue]: order of queued requests, and backfilling."""

from datetime import time

from oslo_config import cfg

from laas_service.app.queue_moves import RoomMode, RoomRules
from laas_service.app.room_planner import Permission
from laas_service.conf.group import Group, setting
from laas_service.domain.admission.queue import Discipline
from laas_service.domain.errors import InvalidInput

GROUP = "queue"

GAIN = 300.0
"""Seconds by which the first request has to start earlier, or nobody moves for it: a move takes
minutes itself. Where the start is not known, because allocations have no duration, it counts as
late enough."""

MOVES = 1
"""Tenants that one plan moves. More fill the fabric a little better, and each of them is moved."""


def _window(text: str) -> tuple[time, time] | None:
    """The time of day that make_room_window gives. Raises: InvalidInput."""
    if not text:
        return None
    try:
        first, last = map(time.fromisoformat, text.split("-"))
    except ValueError:
        first = last = time()
    if first == last:
        fix = "give HH:MM-HH:MM in UTC, such as 22:00-04:00"
        raise InvalidInput("[queue] make_room_window", text, fix)
    return first, last


class QueueOptions(Group, name=GROUP):
    """The options of [queue]."""

    discipline: str = setting(
        cfg.StrOpt,
        "easy",
        mutable=True,
        choices=[
            ("fifo", "requests start in order of arrival; none overtakes another"),
            ("easy", "later requests may overtake if the first is not delayed (backfilling)"),
        ],
    )
    """Whether a request may start before one that has waited longer.

    easy uses hosts that would be idle until the first request in the queue fits. It needs the
    expected durations of running allocations and of the request that overtakes; where a duration is
    unknown it works as fifo. Choose fifo if strict order is required, or if announced durations
    are too short to be trusted."""

    window: int = setting(cfg.IntOpt, 50, mutable=True, min=0)
    """Number of requests behind the first that easy tries.

    Raise it if hosts stay idle while small requests wait far behind in a long queue.
    Lower it if serving the queue takes the worker too long, as each request costs a search."""

    make_room: RoomMode = setting(
        cfg.StrOpt,
        "off",
        read=RoomMode,
        mutable=True,
        choices=[
            ("off", "nobody moves for the queue"),
            ("advise", "the plan that would make room is shown and nobody moves"),
            ("on", "tenants who consent move, after their notice"),
        ],
    )
    """Whether tenants move so that the first request of a queue fits. A plan is made where it has
    free hosts enough, and only of tenants whose consent, quota of moves ([limits] moves) and cost
    allow it. The room that a plan makes is held for that request. Choose advise first, to see what
    would move; choose on if tenants consented and large requests wait long."""

    make_room_max_cost: float | None = setting(cfg.FloatOpt, mutable=True, min=0)
    """Highest move_cost of a tenant that moves for the queue. Without it the cost is not limited.
    Set it if tenants give costs in a unit that you agreed on."""

    make_room_interval: float = setting(cfg.FloatOpt, 60.0, mutable=True, min=1)
    """Least number of seconds between two plans for a fabric. A search takes up to some seconds of
    a worker's time, and is repeated only if something has changed. Raise it where allocations
    change every few seconds and searches slow the worker."""

    make_room_window: tuple[time, time] | None = setting(cfg.StrOpt, "", read=_window, mutable=True)
    """Time of day in UTC in which plans begin, HH:MM-HH:MM; it may contain midnight. Empty: at any
    time. Outside it plans are shown only. Set it if tenants move at night only."""

    make_room_hosts: int = setting(cfg.IntOpt, 0, mutable=True, min=0)
    """Size of a tenant for which room is made while nobody waits, within make_room_window; 0: none.
    The room is not held. Set it to the size of your usual large request, if such requests come
    during the day."""

    @property
    def order(self) -> Discipline:
        """The discipline with its window."""
        return Discipline(self.discipline, self.window)

    @property
    def room(self) -> RoomRules:
        """Who moves so that the first request fits."""
        return RoomRules(
            self.make_room,
            Permission(MOVES, self.make_room_max_cost),
            GAIN,
            self.make_room_interval,
            self.make_room_window,
            self.make_room_hosts,
        )
