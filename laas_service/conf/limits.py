# SPDX-License-Identifier: Apache-2.0

"""[limits]: default quotas of projects, and the rate of their requests."""

from oslo_config import cfg

from laas_service.app.records import Limits
from laas_service.conf.group import Group, setting

GROUP = "limits"


def _limit(number: int) -> int | None:
    return number if number >= 0 else None


class LimitOptions(Group, name=GROUP):
    """The options of [limits]."""

    hosts: int | None = setting(cfg.IntOpt, -1, read=_limit, min=-1, mutable=True)
    """Number of hosts that a project may request at one time; -1 is unlimited. Hosts of queued
    requests and of containers count. Hosts of allocations inside a container do not count again.
    laas-manage quota sets the limits of single projects. Set it if a project may not take the whole
    fabric."""

    allocations: int | None = setting(cfg.IntOpt, -1, read=_limit, min=-1, mutable=True)
    """Number of allocations that a project may have at one time; -1 is unlimited. Queued
    allocations, containers and allocations inside containers count. Set it if projects would make
    many small allocations, which cost partition keys and fragment the fabric."""

    moves: int | None = setting(cfg.IntOpt, -1, read=_limit, min=-1, mutable=True)
    """How often allocations of a project that consent to moves may get other hosts for others
    within 24 hours; -1 is unlimited. An announced move counts until it is called off, and from its
    beginning for 24 hours. Exchanges of links alone do not count. laas-manage quota sets the limits
    of single projects; 0 exempts a project. Moves that an administrator forces count, but are not
    limited. Set it if projects that consent should seldom be disturbed."""

    slots: int | None = setting(cfg.IntOpt, -1, read=_limit, min=-1, mutable=True)
    """Slots of shared hosts (class of service "shared") that a project may have at one time; -1 is
    unlimited. Queued requests count. laas-manage quota sets the limits of single projects. Set it
    if a project may not fill all shared hosts."""

    unmoved_projects: frozenset[str] = setting(cfg.ListOpt, [], read=frozenset, mutable=True)
    """Ids of projects whose allocations are never moved for others, whatever they consent to,
    unless an administrator forces it. Set it for services that others depend on."""

    rate: float = setting(cfg.FloatOpt, 0.0, mutable=True, min=0.0)
    """Average number of requests a second that a project may send to one API process; 0 is
    unlimited. Further requests are answered 429 with Retry-After. Requests without a token do not
    count; limit them in the proxy in front of the service. Set it if clients poll more often than
    the service can answer."""

    burst: int = setting(cfg.IntOpt, 20, mutable=True, min=1)
    """Number of requests that a project may send at once after a pause. Raise it if scripts of
    users start many requests together. It has no effect without rate."""

    @property
    def limits(self) -> Limits:
        """Of every project that has no quota of its own."""
        return Limits(self.hosts, self.allocations, self.moves, self.slots)
