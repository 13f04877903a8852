# SPDX-License-Identifier: Apache-2.0

"""[limits]: default quotas of projects, and the rate of their requests."""

from dataclasses import dataclass
from typing import Any, Self

from oslo_config import cfg, types

from laas_service.app.records import Limits

GROUP = "limits"

_COUNT = types.Integer(min=-1)

OPTIONS: list[Any] = [
    cfg.Opt(
        "hosts",
        mutable=True,
        type=_COUNT,
        default=-1,
        help="""
Number of hosts that a project may request at one time; -1 is unlimited. Hosts of queued
requests and of containers count. Hosts of allocations inside a container do not count again.
laas-manage quota sets the limits of single projects.
""",
    ),
    cfg.Opt(
        "allocations",
        mutable=True,
        type=_COUNT,
        default=-1,
        help="""
Number of allocations that a project may have at one time; -1 is unlimited. Queued
allocations, containers and allocations inside containers count.
""",
    ),
    cfg.Opt(
        "moves",
        mutable=True,
        type=_COUNT,
        default=-1,
        help="""
How often allocations of a project that consent to moves may get other hosts for others within 24
hours; -1 is unlimited. An announced move counts until it is called off, and from its beginning
for 24 hours. Exchanges of links alone do not count. laas-manage quota sets the limits of single
projects; 0 exempts a project. Moves that an administrator forces count, but are not limited.
""",
    ),
    cfg.Opt(
        "slots",
        mutable=True,
        type=_COUNT,
        default=-1,
        help="""
Slots of shared hosts (class of service "shared") that a project may have at one time; -1 is
unlimited. Queued requests count. laas-manage quota sets the limits of single projects.
""",
    ),
    cfg.ListOpt(
        "unmoved_projects",
        mutable=True,
        default=[],
        help="""
Ids of projects whose allocations are never moved for others, whatever they consent to, unless an
administrator forces it.
""",
    ),
    cfg.FloatOpt(
        "rate",
        mutable=True,
        default=0.0,
        min=0.0,
        help="""
Average number of requests a second that a project may send to one API process; 0 is
unlimited. Further requests are answered 429 with Retry-After. Requests without a token do not
count; limit them in the proxy in front of the service.
""",
    ),
    cfg.IntOpt(
        "burst",
        mutable=True,
        default=20,
        min=1,
        help="""
Number of requests that a project may send at once after a pause.
""",
    ),
]


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """What [limits] gives every project that has no quota of its own."""

    limits: Limits
    unmoved: frozenset[str]
    """Ids of projects whose allocations are never moved for others."""

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Self:
        options = conf.limits
        names = ("hosts", "allocations", "moves", "slots")
        given = {name: options[name] if options[name] >= 0 else None for name in names}
        return cls(Limits(**given), frozenset(options.unmoved_projects))
