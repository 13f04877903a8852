# SPDX-License-Identifier: Apache-2.0

"""[api]: address, authentication, limits, policies and default fabric of the REST interface."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from oslo_config import cfg

from laas_service.domain.constraints import ContentionFree
from laas_service.domain.errors import InvalidInput
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.base import Policy

GROUP = "api"
OPTIONS: list[Any] = [
    cfg.HostAddressOpt(
        "bind_host",
        default="127.0.0.1",
        help="""
Address laas-api listens on.

With auth_strategy = none it must be a loopback address, because every caller is then
an administrator; requests that a proxy forwarded are refused.
""",
    ),
    cfg.PortOpt(
        "bind_port",
        default=8780,
        help="""
Port laas-api listens on. With 0 it takes a free port and logs the number.
""",
    ),
    cfg.StrOpt(
        "auth_strategy",
        default="none",
        choices=[
            ("keystone", "Keystone checks tokens; configure [keystone_authtoken]"),
            ("none", "no tokens; loopback only"),
        ],
        help="""
How callers authenticate.

Choose keystone wherever anybody but the machine's own users can reach the service.
""",
    ),
    cfg.IntOpt(
        "threads",
        default=16,
        min=2,
        help="""
Number of requests that laas-api handles at one time. Half of them may wait with ?wait=; further
ones are answered at once. Each thread costs some memory: raise it if many clients wait.
Allocations of one fabric are always decided one after the other.
""",
    ),
    cfg.IntOpt(
        "connections",
        default=800,
        min=16,
        help="""
Number of connections that laas-api holds at one time. Further clients wait in the operating
system's queue until one ends.

Each connection needs a file descriptor: raise the limit of the process (LimitNOFILE in systemd)
with it. A connection costs a few kilobytes and no thread until a whole request has arrived.
""",
    ),
    cfg.IntOpt(
        "request_timeout",
        default=30,
        min=1,
        help="""
Seconds within which a whole request, headers and body, has to arrive after its first byte, and
after which a connection ends on which nothing moves. A client that sends a byte now and then gains
no time, and one that takes no byte of an answer loses its connection.

Lower it where strangers reach laas-api directly. Behind a proxy that buffers requests the default
is enough.
""",
    ),
    cfg.ListOpt(
        "trusted_proxies",
        default=[],
        help="""
Addresses or networks of the proxies in front of the API, such as 192.0.2.10 or 2001:db8::/64.

The audit trail names the address that a request came from. Only of a request from one of these
addresses does it name the client that Forwarded or X-Forwarded-For gives: the last address there
that is not a proxy's.
""",
    ),
    cfg.BoolOpt(
        "audit",
        mutable=True,
        default=True,
        help="""
Whether the logger laas_service.audit gets a line for each request that changes something
or is denied. The line names initiator, action and outcome in the fields of a CADF event.
""",
    ),
    cfg.IntOpt(
        "search_budget",
        default=4_000_000,
        min=100_000,
        help="""
Work that all searches for one request may do together: the search for a placement of hosts or
slots, for the largest size that fits, for allocations whose release makes room, for tenants that
fit at other risks, and for queued requests that may start. One unit takes about half a
microsecond, so the default is about two seconds. A request that is decided again, because another
one was faster, has the whole budget again.

If the budget is used up, the answer holds the result so far and says so (code search_budget,
or cut_off beside the answer). Raise it for full explanations on fabrics with many tenants.
Lower it where untrusted people send requests.
""",
    ),
    cfg.FloatOpt(
        "max_wait",
        mutable=True,
        default=60.0,
        min=0.0,
        help="""
Longest time in seconds that a request may wait with ?wait=. Keep it below the time-out of
any proxy in front of the service.
""",
    ),
    cfg.ListOpt(
        "enabled_policies",
        default=["jigsaw"],
        help="""
Policies that requests may name. The policies baseline and ta do not isolate, and are for
comparison in laas-plan. Enable one of them only where tenants need no links of their own.
""",
    ),
    cfg.StrOpt(
        "default_policy",
        default="jigsaw",
        help="""
Policy of requests that name none. It must be one of enabled_policies.
""",
    ),
    cfg.StrOpt(
        "contention_free",
        choices=(
            ("", "any legal shape"),
            ("prefer", "a shape without contention, if one costs no more and takes no more pods"),
            ("require", "only a shape without contention; a request is refused without one"),
        ),
        default="",
        help="""
What requests want that do not say whether their shape has to be free of contention: that no shift
of their hosts puts two flows on one link. The page of policies has the cost of each value in
utilization.
""",
    ),
    cfg.StrOpt(
        "default_fabric",
        help="""
Fabric of requests and commands that name none. Without this option, they have to name one if the
service manages several fabrics.
""",
    ),
]


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """What [api] offers to requests."""

    policies: Mapping[str, Policy]
    """Those that are enabled, by name."""
    default_policy: str
    default_fabric: str | None
    contention_free: ContentionFree | None
    """Of requests that say nothing of it."""
    waiters: int
    """Requests that may wait at one time: each holds a thread, so half of the threads."""
    search_budget: int
    """Units of ``domain.budget`` for each request."""

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Self:
        """Raises: InvalidInput."""
        options = conf.api
        for name in options.enabled_policies:
            if name not in POLICIES:
                fix = f"choose among {', '.join(sorted(POLICIES))}"
                raise InvalidInput("[api] enabled_policies", name, fix)
        wanted = options.contention_free
        return cls(
            policies={name: POLICIES[name]() for name in options.enabled_policies},
            default_policy=options.default_policy,
            default_fabric=options.default_fabric,
            contention_free=ContentionFree(wanted) if wanted else None,
            waiters=options.threads // 2,
            search_budget=options.search_budget,
        )
