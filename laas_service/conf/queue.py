# SPDX-License-Identifier: Apache-2.0

"""[queue]: order of queued requests, and backfilling."""

from typing import Any

from oslo_config import cfg

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
        "shadow",
        mutable=True,
        default="what-if",
        choices=[
            ("end-before-shadow", "only requests that end before the reservation of the first"),
            ("what-if", "also requests that leave room for the first at its reservation"),
        ],
        help="""
Which requests may overtake under easy. The reservation of the first request in the queue is
the time at which it fits if all allocations end as announced.

what-if fills the fabric better. Choose end-before-shadow if announced durations are often
exceeded and the first request must not depend on a placement computed from them.
""",
    ),
    cfg.StrOpt(
        "order",
        mutable=True,
        default="arrival",
        choices=[
            ("arrival", "in order of arrival"),
            ("big-first", "the request for most hosts first"),
        ],
        help="""
Order in which requests that may overtake under easy are tried.

big-first fills the fabric better where sizes differ much, but small requests wait longer. It
never delays the first request in the queue.
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
    cfg.IntOpt(
        "make_room_moves",
        mutable=True,
        default=1,
        min=1,
        max=4,
        help="""
Number of tenants that one plan may move. More than one fills the fabric a little better and costs
more moves.
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
        "make_room_gain",
        mutable=True,
        default=300.0,
        min=0,
        help="""
Number of seconds by which the first request has to start earlier than without moves. Where its
start is not known, because allocations have no duration, the gain counts as large enough.
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
