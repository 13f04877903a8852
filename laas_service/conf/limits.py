# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

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
