# SPDX-License-Identifier: Apache-2.0

"""[compute]: who makes hosts accept one project's servers only."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

GROUP = "compute"
OPTIONS: list[Any] = [
    cfg.StrOpt(
        "kind",
        default="directory",
        choices=[
            ("directory", "write the openstack commands for a person to read and run"),
            ("nova", "drive Nova's host aggregates and check them against placement"),
        ],
        help="""
How hosts are handed to their tenants.

Choose nova in a cloud, and fill in [nova]. With directory a step counts as done as
soon as its commands are written: nobody checks that a person ran them.
""",
    ),
    cfg.StrOpt(
        "directory",
        default="$state_dir/compute",
        help="Where kind = directory writes its commands and remembers its state.",
    ),
    cfg.StrOpt(
        "pool",
        default="laas-pool",
        help="""
Name of the permanent aggregate that holds every managed host.

A host that is in no tenant's aggregate accepts nobody because it is in this one.
Change the name before the first start only; a renamed pool is a second one, and
the hosts stay in both.
""",
    ),
    cfg.StrOpt(
        "sentinel",
        default="laas-nobody",
        regex="^[^,]{1,255}$",
        help="""
Value of filter_tenant_id that stands for nobody; it must not be the id of a project.
""",
    ),
    cfg.BoolOpt(
        "one_allocation_per_project",
        default=True,
        help="""
Whether a project may hold one live allocation only.

Nova tells allocations of one project apart only with LaasTenantFilter among
[filter_scheduler] enabled_filters, and only for servers that carry the scheduler
hint laas:allocation. Set it to False once that filter runs in every scheduler;
without it the servers of two allocations mix, and use links that belong to neither.
""",
    ),
]
