# SPDX-License-Identifier: Apache-2.0

"""[sharing]: hosts that the servers of several allocations share (class ``shared``)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from oslo_config import cfg

from laas_service.conf.compute import UNSHARED
from laas_service.conf.group import Group, setting
from laas_service.domain.errors import InvalidInput

GROUP = "sharing"


class SharingGroup(Group, name=GROUP):
    """The options of [sharing]."""

    access: str = setting(
        cfg.StrOpt,
        "none",
        choices=[
            ("none", "hosts are not shared"),
            ("together", "all who share hosts have one partition key"),
        ],
    )
    """Whether hosts are shared, given that those who share them can reach each other.

    Upstream OpenSM knows the partition keys of physical ports, not of virtual ones. So the servers
    on a host have all keys of its port, whosever they are. With together, all who share the hosts
    of an allocation have the partition key of that allocation: they share its links, and access to
    each other, as on one Ethernet segment. With none, requests for class shared are refused. Choose
    together if tenants of class shared trust each other."""

    service_level: int = setting(cfg.IntOpt, 1, min=0, max=7)
    """Service level and virtual lane of those who share hosts, apart from owners' (level 0); 0
    gives them owners' lane.

    With access = together it is written into the files for OpenSM: shared hosts' partitions have
    the service level, and OpenSM's configuration maps it to the lane of the same number, with equal
    weights for both lanes. The switches need as many lanes as this number plus one. Change it only
    before the first start, or restart OpenSM: the agents and the service must have the same files.
    """

    enforcement: str = setting(
        cfg.StrOpt,
        "none",
        choices=[
            ("none", "bandwidth is accounted, not enforced"),
            ("neutron", "what the ports of servers send is limited by Neutron's QoS"),
            ("directory", "write the openstack commands that limit ports, for a person to run"),
        ],
    )
    """What keeps the servers of class shared to the bandwidth that they send.

    With neutron, fill in [neutron]; the service's user has to be an administrator there, as only
    administrators may make QoS policies. Neutron limits ports of Ethernet; drivers of InfiniBand's
    virtual functions have no limit of rate. Needs [compute] kind = nova, which tells the servers.
    Choose neutron if tenants must not send more than they asked for, directory if a person limits
    the ports."""


NOT_TOGETHER = (
    "those who share hosts would reach each other, as the keys of a port are those of all servers "
    "behind it; [sharing] access = together accepts that"
)
"""Why hosts are not shared unless an operator says so."""


CHAINS = (
    "with [opensm] enforcement = chains OpenSM chooses the routes, and promises of links follow "
    "the service's own; [opensm] enforcement = file has these"
)
"""Why hosts are not shared where the vendor's OpenSM routes inside each tenant."""


@dataclass(frozen=True, slots=True)
class SharingOptions:
    """How [sharing] has hosts shared."""

    unshared: str
    """Why hosts are not shared; empty if they are."""
    level: int
    """The service level of shared hosts; 0 if it is that of all others."""
    enforcement: str
    """``none``, ``neutron`` or ``directory``."""
    directory: Path
    """Of the commands that ``directory`` writes."""

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Self:
        """Raises: InvalidInput."""
        options, kind = SharingGroup.of(conf), conf.compute.kind
        if options.enforcement == "neutron" and kind != "nova":
            fix = "only [compute] kind = nova tells the servers whose ports are to be limited"
            raise InvalidInput("[sharing] enforcement", options.enforcement, fix)
        together = options.access == "together"
        unshared = UNSHARED.get(kind, "" if together else NOT_TOGETHER)
        if conf.opensm.enforcement == "chains":
            unshared = unshared or CHAINS
        return cls(
            unshared=unshared,
            level=options.service_level if together else 0,
            enforcement=options.enforcement,
            directory=Path(conf.state_dir) / "limits",
        )
