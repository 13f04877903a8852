# SPDX-License-Identifier: Apache-2.0

"""[opensm]: where the subnet manager's files go, and how to see that they took effect."""

from __future__ import annotations

import socket
from typing import Any

from oslo_config import cfg

GROUP = "opensm"

OPTIONS: list[Any] = [
    cfg.StrOpt(
        "reached_by",
        default="worker",
        choices=[
            ("worker", "a worker on OpenSM's machine writes the files and looks at the tables"),
            ("agent", "laas-opensm-agent on OpenSM's machine does; workers run elsewhere"),
        ],
        help="""
Who has OpenSM read new files, and sees that they took effect.

Set 'agent' for the API and the workers alike where OpenSM's machine is not the workers':
the API then renders the files, agents fetch them, and workers take the word of the fabric's
active agent. 'directory' and the options of OpenSM below are those of OpenSM's machine.
""",
    ),
    cfg.FloatOpt(
        "agent_lease_seconds",
        default=15.0,
        min=0.1,
        help="""
Seconds for which what an agent reported counts; it reports every agent_poll_interval.

When the active agent has not reported for so long another one that is able takes over, and
until then no generation is confirmed. The same for the API and the workers. Raise it where
the API is out of reach for longer now and then.
""",
    ),
    cfg.StrOpt(
        "directory",
        default="$state_dir/opensm",
        help="""
Directory of the subnet manager's files, one directory a fabric in it; the set in
force is DIRECTORY/FABRIC/current. Include DIRECTORY/FABRIC/current/opensm.conf in
OpenSM's configuration.

Change it when OpenSM cannot read the state directory. No blanks, ':' or '#' in it.
""",
    ),
    cfg.StrOpt(
        "enforcement",
        default="file",
        choices=[
            ("file", "our own forwarding tables; any OpenSM, any number of tenants"),
            ("chains", "routing chains; the vendor's OpenSM only, at most 49 tenants with links"),
        ],
        help="""
Which of the two enforcements OpenSM's configuration switches on; the files of the
other are written all the same.

With 'file', OpenSM does not reroute around a failed cable by itself: the service has
to know of the fault and publish new tables. With 'chains' OpenSM reroutes inside each
tenant, but nothing can be read back and compared, so leave the options below unset;
a tenant beyond the limit is refused.
""",
    ),
    cfg.BoolOpt(
        "multicast",
        default=False,
        help="""
Leave multicast (and with it IPoIB) on.

OpenSM builds multicast trees over any links, so this is the one exception to link
isolation; each tenant's broadcast group is capped at 2.5 Gb/s. Switch it on only where
tenants need IPoIB.
""",
    ),
    cfg.ListOpt(
        "services",
        default=[],
        help="""
Port GUIDs (0x...) that every tenant may talk to: storage, login, gateways.

Hosts are limited members of the default partition and reach its full members only:
the subnet manager, and these. Never list a host that is for rent.
""",
    ),
    cfg.BoolOpt(
        "one_rule_per_group",
        default=False,
        help="""
Write port groups of one rule each, joined two by two, for routing chains.

Old releases of the vendor's OpenSM allow a group one rule only. Switch it on if its log
refuses port_groups.conf; newer releases read both forms.
""",
    ),
    cfg.IntOpt(
        "keep",
        default=3,
        min=0,
        help="""
How many earlier sets of files to keep beside the current one.

One set takes 12 MB at 1,024 hosts and 906 MB at 11,664.
""",
    ),
    cfg.StrOpt(
        "pid_file",
        help="""
File with OpenSM's process id (its option --pidfile); it gets SIGHUP after files changed.

Set this or reload_command where OpenSM runs; set neither where files are carried over
by hand. The service must be allowed to signal that process.
""",
    ),
    cfg.ListOpt(
        "reload_command",
        default=[],
        help="""
Command and arguments, separated by commas, that make OpenSM sweep; instead of pid_file.

For example 'systemctl,kill,-s,HUP,opensm'. No shell is involved.
""",
    ),
    cfg.ListOpt(
        "dump_command",
        default=[],
        help="""
Command and arguments, separated by commas, that print the tables of all switches.

'dump_lfts,-n' asks the switches themselves (0.7 s at 1,024 hosts, 15 s at 11,664) and
is the best proof that a generation is in force. Needs access to a management device.
""",
    ),
    cfg.StrOpt(
        "dump_file",
        help="""
OpenSM's own opensm-lfts.dump, where dump_command cannot be used.

OpenSM writes it after a sweep when log_flags has 0x40, into dump_files_dir. It shows
what OpenSM meant to write; at 3,456 hosts the dumps exceed 300 MB a sweep.
""",
    ),
    cfg.StrOpt(
        "log_file",
        help="""
OpenSM's log, to notice that it used another routing engine, or none, in the last sweep.

Set it: a release may change partitions and no route, and then only the log shows that
OpenSM has read the new files. The fragment sets force_log_flush, so it is up to date.
""",
    ),
    cfg.StrOpt(
        "cache_directory",
        help="""
OpenSM's OSM_CACHE_DIR (/var/cache/opensm by default), to put guid2lid there.

OpenSM reads it when it starts; the tables hold only while LIDs are as pinned.
""",
    ),
    cfg.FloatOpt(
        "timeout",
        default=60.0,
        min=1.0,
        help="""
Seconds after which a command is given up. Raise it beyond 5,000 hosts.
""",
    ),
    cfg.FloatOpt(
        "patience",
        default=10.0,
        min=0.0,
        help="""
Seconds to wait, right after publishing, for OpenSM to have the new tables in place.

A sweep takes 0.6 s at 1,024 hosts and 2.4 s at 3,456. When it takes longer nothing is
lost: the generation is confirmed at the next look.
""",
    ),
    cfg.StrOpt(
        "agent_name",
        default=socket.gethostname(),
        sample_default="the name of the machine",
        regex="^[A-Za-z0-9._-]{1,255}$",
        help="""
What laas-opensm-agent calls itself; each agent of a fabric has a name of its own.

Set it where two agents run on one machine.
""",
    ),
    cfg.StrOpt(
        "agent_fabric",
        help="""
The fabric whose subnet manager laas-opensm-agent looks after. Needed only where the
service manages several.
""",
    ),
    cfg.FloatOpt(
        "agent_poll_interval",
        default=2.0,
        min=0.05,
        help="""
Seconds between two rounds of laas-opensm-agent: a report to the service, and a look at OpenSM.

With a bus ([DEFAULT] transport_url) it looks at once when something changes; without one a
change is seen after at most this long. Keep it well below agent_lease_seconds of the service:
an agent that is not heard of for that long is followed by another one.
""",
    ),
]
