# SPDX-License-Identifier: Apache-2.0


"""[worker]: how eagerly Nova and the subnet manager are driven towards the record."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

GROUP = "worker"
OPTIONS: list[Any] = [
    cfg.FloatOpt(
        "poll_interval",
        mutable=True,
        default=2.0,
        min=0.05,
        help="""
Seconds between looks at the database for allocations with a step to do.

An API process in the same program wakes the worker at once, one elsewhere does so over
the bus ([DEFAULT] transport_url). Without a bus, or while the broker is away, new work
is found after at most this long. Each look costs one short query.
""",
    ),
    cfg.FloatOpt(
        "reconcile_interval",
        mutable=True,
        default=300.0,
        min=1.0,
        help="""
Seconds between comparisons of everything recorded with everything observed.

What only placement can tell (a server where none should be), and lost messages between Nova's
services, are found or healed within this time. Each round asks Nova about every allocation
and placement about every host: about 100 ms a host. Lower it on small sites, raise it where
Nova is busy. What others did to aggregates and switches is found sooner: drift_interval.
""",
    ),
    cfg.FloatOpt(
        "drift_interval",
        mutable=True,
        default=10.0,
        min=0.05,
        help="""
Seconds between looks for what others changed: aggregates edited by hand, hosts gone from
Nova, switches that no longer run what is wanted.

A look is one list of Nova's aggregates, and one reading of what OpenSM runs, for each
fabric; a change of routes is believed when two looks in a row see it. A worker spends at
most a tenth of its time on them, so that on a fabric where reading the tables takes a minute
a look begins every ten. Raise it above the longest sweep of OpenSM, and where listing
aggregates is slow.
""",
    ),
    cfg.FloatOpt(
        "lease_seconds",
        default=15.0,
        min=0.05,
        help="""
Seconds for which a worker holds a fabric; while it lives it renews that every third of them.

Any number of workers share the fabrics of a database, each fabric with one at a time.
When a worker ends it gives its fabrics back at once. When it is killed, one on the same
machine takes over at once; others, or when its machine is gone, after this long. Raise
it where the database is out of reach for longer now and then: a worker that cannot
renew loses its fabrics to one that can.
""",
    ),
    cfg.FloatOpt(
        "step_timeout",
        default=600.0,
        min=0.1,
        help="""
Seconds without a sign of life after which a worker gives its fabrics up, so that another one
takes them over, although it still runs: a step that hangs, in Nova, a database or OpenSM, must
not hold up all tenants.

Each call to Nova is a sign of life. Publishing files, and reading them back from OpenSM, is one
step: keep this above the longest of them on your largest fabric. If the step ends after all,
the worker does nothing more of what it began.
""",
    ),
    cfg.BoolOpt(
        "repair",
        mutable=True,
        default=True,
        help="""
Whether drift that is found is repaired: aggregates made again, routes published again.

With False it is only reported, in the log, as the allocation's error, in the metrics and over
the bus; choose that while somebody works on Nova's aggregates or on OpenSM on purpose.
Routes that change for another reason are published in any case, and a worker that takes over
a fabric completes its pool.
""",
    ),
    cfg.BoolOpt(
        "repair_links",
        mutable=True,
        default=True,
        help="""
Whether links of a live allocation that fail are replaced without being asked.

The hosts stay and traffic goes on: the new links are claimed beside the old ones,
which are freed when no route uses them any more. With False the allocation is only
shown as degraded until somebody asks for the repair (laas allocation repair) or the
links are up again; choose that where every change of routes is to be approved.
""",
    ),
    cfg.FloatOpt(
        "retry_first",
        mutable=True,
        default=1.0,
        min=0.01,
        help="""
Seconds until a step that failed, or has to wait, is tried again; doubled each time
up to retry_last, and shortened at random by up to half so that retries spread out.
""",
    ),
    cfg.FloatOpt(
        "retry_last",
        mutable=True,
        default=60.0,
        min=0.01,
        help="""
Longest pause in seconds between two tries of a step. It bounds how late a release
notices that the last server is gone, or an allocation that Nova is back.
""",
    ),
    cfg.IntOpt(
        "park_after",
        mutable=True,
        default=5,
        min=1,
        help="""
Tries of a step that fails in a way nobody foresaw, until its allocation is parked in
state error with the reason.

It keeps its hosts and links, the others go on, and laas allocation retry takes it up where
it was. Failures that are foreseen (Nova does not answer, servers still run) are tried for
ever.
""",
    ),
    cfg.FloatOpt(
        "apply_timeout",
        mutable=True,
        default=120.0,
        min=0.01,
        help="""
Seconds the subnet manager may take to be seen running what was published before the
same files are published, and OpenSM told, once more.

Raise it above the longest sweep of a large fabric: each time OpenSM is told, it
starts a new sweep.
""",
    ),
]
