# SPDX-License-Identifier: Apache-2.0

"""[sharing]: hosts that the servers of several allocations share (class ``shared``)."""

from typing import Any

from oslo_config import cfg

GROUP = "sharing"
OPTIONS: list[Any] = [
    cfg.StrOpt(
        "access",
        default="none",
        choices=[
            ("none", "hosts are not shared"),
            ("together", "all who share hosts have one partition key"),
        ],
        help="""
Whether hosts are shared, given that those who share them can reach each other.

Upstream OpenSM knows the partition keys of physical ports, not of virtual ones. So the servers on a
host have all keys of its port, whosever they are. With together, all who share the hosts of an
allocation have the partition key of that allocation: they share its links, and access to each
other, as on one Ethernet segment. With none, requests for class shared are refused.
""",
    ),
    cfg.IntOpt(
        "service_level",
        default=1,
        min=0,
        max=7,
        help="""
Service level and virtual lane of those who share hosts, apart from owners' (level 0); 0 gives them
owners' lane.

With access = together it is written into the files for OpenSM: shared hosts' partitions have the
service level, and OpenSM's configuration maps it to the lane of the same number, with equal weights
for both lanes. The switches need as many lanes as this number plus one. Change it only before
the first start, or restart OpenSM: the agents and the service must have the same files.
""",
    ),
    cfg.StrOpt(
        "enforcement",
        default="none",
        choices=[
            ("none", "bandwidth is accounted, not enforced"),
            ("neutron", "what the ports of servers send is limited by Neutron's QoS"),
            ("directory", "write the openstack commands that limit ports, for a person to run"),
        ],
        help="""
What keeps the servers of class shared to the bandwidth that they send.

With neutron, fill in [neutron]; the service's user has to be an administrator there, as only
administrators may make QoS policies. Neutron limits ports of Ethernet; drivers of InfiniBand's
virtual functions have no limit of rate. Needs [compute] kind = nova, which tells the servers.
""",
    ),
    cfg.FloatOpt(
        "interval",
        default=10.0,
        min=1.0,
        help="""
Seconds between two looks at the ports of servers of class shared.

A port of a new server is not limited until the next look. A look takes one request to placement for
each shared host, and two to Neutron for each allocation and 50 servers.
""",
    ),
    cfg.StrOpt(
        "directory",
        default="$state_dir/limits",
        help="Directory of the commands that enforcement = directory writes.",
    ),
]
