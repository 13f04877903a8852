# SPDX-License-Identifier: Apache-2.0


"""[queue]: who starts next among those who wait for room, and who may overtake."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

GROUP = "queue"
OPTIONS: list[Any] = [
    cfg.StrOpt(
        "discipline",
        mutable=True,
        default="easy",
        choices=[
            ("fifo", "requests start in the order in which they came; nobody overtakes"),
            ("easy", "later ones may overtake where that does not delay the first (backfilling)"),
        ],
        help="""
Whether a request may be served before one that waits longer.

easy uses hosts that would stay idle until the first in the queue fits; it needs the
expected duration of what runs and of who overtakes, and is fifo where these are not
known. Choose fifo where the order must be seen to be kept, or where durations are
announced too short to be trusted.
""",
    ),
    cfg.IntOpt(
        "window",
        mutable=True,
        default=50,
        min=0,
        help="""
How many requests behind the first are tried under easy.

Raise it if hosts stay idle while small requests wait far behind in a long queue;
lower it if serving the queue takes the worker too long (each one tried is a search).
""",
    ),
    cfg.StrOpt(
        "shadow",
        mutable=True,
        default="what-if",
        choices=[
            ("end-before-shadow", "only who ends before the first one's reservation"),
            ("what-if", "also who leaves the first one a place at its reservation"),
        ],
        help="""
Who may overtake under easy. The reservation of the first in the queue is when it fits
if everything ends as announced.

what-if fills more. Choose end-before-shadow if announced durations are often exceeded
and the first in the queue must not depend on a placement worked out from them.
""",
    ),
    cfg.StrOpt(
        "order",
        mutable=True,
        default="arrival",
        choices=[
            ("arrival", "who came first"),
            ("big-first", "who asks for most hosts"),
        ],
        help="""
Who is tried first among those who may overtake under easy.

big-first fills the fabric better where sizes differ much; small requests then wait
longer. It never delays the first in the queue.
""",
    ),
]
