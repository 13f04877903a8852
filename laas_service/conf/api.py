# SPDX-License-Identifier: Apache-2.0

"""[api]: where the service listens, whom it believes, what it offers."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

GROUP = "api"
OPTIONS: list[Any] = [
    cfg.HostAddressOpt(
        "bind_host",
        default="127.0.0.1",
        help="""
Address laas-api listens on.

With auth_strategy = none it has to be a loopback address, because every caller is
then an administrator. Requests that a proxy passed on are refused then.
""",
    ),
    cfg.PortOpt(
        "bind_port",
        default=8780,
        help="""
Port laas-api listens on; 0 takes a free one and logs which.
""",
    ),
    cfg.StrOpt(
        "auth_strategy",
        default="none",
        choices=[
            ("keystone", "tokens are checked by Keystone; configure [keystone_authtoken]"),
            ("none", "no tokens; loopback only"),
        ],
        help="""
How callers prove who they are.

Choose keystone wherever anybody but the machine's own users can reach the service.
""",
    ),
    cfg.IntOpt(
        "threads",
        default=16,
        min=2,
        help="""
Requests laas-api works on at one time. Each thread costs some memory; allocations
of one fabric are decided one after the other, whatever this says.
""",
    ),
    cfg.IntOpt(
        "max_body",
        default=65536,
        min=1024,
        help="""
Longest request body in bytes; longer ones are refused unread.
""",
    ),
    cfg.BoolOpt(
        "audit",
        mutable=True,
        default=True,
        help="""
Whether the logger laas_service.audit gets a line for each request that changes something,
or that is denied: who, what, with which outcome, in the fields of a CADF event.
""",
    ),
    cfg.IntOpt(
        "search_budget",
        default=4_000_000,
        min=100_000,
        help="""
Work that all searches for one request may do together: for its own place, for the largest
size that fits, for what would make room, for who of a queue may start. A unit is about half a
microsecond, so that the default is about two seconds.

A request that needs more is answered with what was found until then, and says so (code
search_budget, or cut_off beside the answer). Raise it where fabrics of many tenants are to be
explained at any price; lower it where requests come from people who are not known.
""",
    ),
    cfg.FloatOpt(
        "max_wait",
        mutable=True,
        default=60.0,
        min=0.0,
        help="""
Longest time in seconds that ?wait= may hold a request. Keep it below the time-out of
any proxy in front.
""",
    ),
    cfg.IntOpt(
        "max_waiters",
        default=8,
        min=1,
        help="""
Requests that may wait for an outcome at one time; further ones are answered at once.
Each holds a thread, so keep it below the number of threads.
""",
    ),
    cfg.ListOpt(
        "enabled_policies",
        default=["jigsaw"],
        help="""
Policies that tenants may name. Policies that do not isolate (baseline, ta) are for
comparison in laas-plan: enable one only where tenants need no links of their own.
""",
    ),
    cfg.StrOpt(
        "default_policy",
        default="jigsaw",
        help="""
Policy of requests that name none; one of enabled_policies.
""",
    ),
    cfg.StrOpt(
        "default_fabric",
        help="""
Fabric of requests that name none. Needed only where several are managed.
""",
    ),
]
