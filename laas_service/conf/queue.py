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
]
