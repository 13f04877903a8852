# SPDX-License-Identifier: Apache-2.0

"""[retention]: how long the database keeps what is over."""

from typing import Any

from oslo_config import cfg

GROUP = "retention"

OPTIONS: list[Any] = [
    cfg.IntOpt(
        "released_days",
        mutable=True,
        default=365,
        min=0,
        help="""
Days after which a worker deletes a released allocation with its history and its idempotency key; 0
keeps all of them. A container stays until nothing inside it is recorded.

A key that is deleted may be used again and then stands for a new request. To keep a record of what
is deleted, choose 0 and have laas-manage db archive write it into a file.
""",
    ),
]
