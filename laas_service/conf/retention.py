# SPDX-License-Identifier: Apache-2.0

"""[retention]: how long the database keeps what is over."""

from oslo_config import cfg

from laas_service.conf.group import Group, setting

GROUP = "retention"


class RetentionGroup(Group, name=GROUP):
    """The options of [retention]."""

    released_days: int = setting(cfg.IntOpt, 365, mutable=True, min=0)
    """Days after which a worker deletes a released allocation with its history and its idempotency
    key; 0 keeps all of them. A container stays until nothing inside it is recorded.

    A key that is deleted may be used again and then stands for a new request. To keep a record of
    what is deleted, choose 0 and have laas-manage db archive write it into a file."""
