# SPDX-License-Identifier: Apache-2.0

"""[queue]: order of queued requests, and backfilling."""

from dataclasses import dataclass
from datetime import time
from typing import Any, Self

from oslo_config import cfg

from laas_service.app.queue_moves import RoomMode, RoomRules
from laas_service.app.room_planner import Permission
from laas_service.domain.admission.queue import Discipline
from laas_service.domain.errors import InvalidInput

GROUP = "queue"
OPTIONS: list[Any] = [
    cfg.StrOpt(
        "discipline",
        mutable=True,
        default="easy",
        choices=[
            ("fifo", "requests start in order of arrival; none overtakes another"),
            ("easy", "later requests may overtake if the first is not delayed (backfilling)"),
        ],
        help="""
Whether a request may start before one that has waited longer.

easy uses hosts that would be idle until the first request in the queue fits. It needs the
expected durations of running allocations and of the request that overtakes; where a duration is
unknown it works as fifo. Choose fifo if strict order is required, or if announced durations
are too short to be trusted.
""",
    ),
    cfg.IntOpt(
        "window",
        mutable=True,
        default=50,
        min=0,
        help="""
Number of requests behind the first that easy tries.

Raise it if hosts stay idle while small requests wait far behind in a long queue.
Lower it if serving the queue takes the worker too long, as each request costs a search.
""",
    ),
    cfg.StrOpt(
        "make_room",
        mutable=True,
        default="off",
        choices=[
            ("off", "nobody moves for the queue"),
            ("advise", "the plan that would make room is shown and nobody moves"),
            ("on", "tenants who consent move, after their notice"),
        ],
        help="""
Whether tenants move so that the first request of a queue fits. A plan is made where it has free
hosts enough, and only of tenants whose consent, quota of moves ([limits] moves) and cost allow it.
The room that a plan makes is held for that request.
""",
    ),
    cfg.FloatOpt(
        "make_room_max_cost",
        mutable=True,
        min=0,
        help="""
Highest move_cost of a tenant that moves for the queue. Without it the cost is not limited.
""",
    ),
    cfg.FloatOpt(
        "make_room_interval",
        mutable=True,
        default=60.0,
        min=1,
        help="""
Least number of seconds between two plans for a fabric. A search takes up to some seconds of a
worker's time, and is repeated only if something has changed.
""",
    ),
    cfg.StrOpt(
        "make_room_window",
        mutable=True,
        default="",
        help="""
Time of day in UTC in which plans begin, HH:MM-HH:MM; it may contain midnight. Empty: at any time.
Outside it plans are shown only.
""",
    ),
    cfg.IntOpt(
        "make_room_hosts",
        mutable=True,
        default=0,
        min=0,
        help="""
Size of a tenant for which room is made while nobody waits, within make_room_window; 0: none. The
room is not held.
""",
    ),
]


GAIN = 300.0
"""Seconds by which the first request has to start earlier, or nobody moves for it: a move takes
minutes itself. Where the start is not known, because allocations have no duration, it counts as
late enough."""

MOVES = 1
"""Tenants that one plan moves. More fill the fabric a little better, and each of them is moved."""


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """How [queue] has queued requests start."""

    discipline: Discipline
    room: RoomRules

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Self:
        """Raises: InvalidInput."""
        options = conf.queue
        room = RoomRules(
            RoomMode(options.make_room),
            Permission(MOVES, options.make_room_max_cost),
            GAIN,
            options.make_room_interval,
            _window(options.make_room_window),
            options.make_room_hosts,
        )
        return cls(Discipline(options.discipline, options.window), room)


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
