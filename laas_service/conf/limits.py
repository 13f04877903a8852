# SPDX-License-Identifier: Apache-2.0

"""[limits]: how much a project may have, and how fast it may ask."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg, types

GROUP = "limits"

_COUNT = types.Integer(min=-1)

OPTIONS: list[Any] = [
    cfg.Opt(
        "hosts",
        mutable=True,
        type=_COUNT,
        default=-1,
        help="""
Hosts that a project may have asked for at one time, those of queued requests and of
containers included; -1 is any number. laas-manage quota
says otherwise for single projects. What is inside a container counts there already.
""",
    ),
    cfg.Opt(
        "allocations",
        mutable=True,
        type=_COUNT,
        default=-1,
        help="""
Allocations that a project may have at one time, queued ones, containers and those inside
them included; -1 is any number.
""",
    ),
    cfg.FloatOpt(
        "rate",
        mutable=True,
        default=0.0,
        min=0.0,
        help="""
Requests a second that a project may send to one process of the API, in the long run; more
are answered 429 with Retry-After. 0 is any number. Requests without a token are not
counted: leave those to the proxy in front.
""",
    ),
    cfg.IntOpt(
        "burst",
        mutable=True,
        default=20,
        min=1,
        help="""
Requests that a project may send at once after it was quiet.
""",
    ),
]
