# SPDX-License-Identifier: Apache-2.0

"""[opensm]: directory of the subnet manager's files, reload, checks, and the agent."""

import socket
from typing import Any

from oslo_config import cfg

GROUP = "opensm"

OPTIONS: list[Any] = [
    cfg.StrOpt(
        "reached_by",
        default="worker",
        choices=[
            ("worker", "a worker on OpenSM's machine writes the files and checks the tables"),
            ("agent", "laas-opensm-agent on OpenSM's machine does it; workers run elsewhere"),
            ("ufm", "a worker makes partitions in NVIDIA UFM, as [ufm] says, and writes the files"),
        ],
        help="""
Process that makes OpenSM read new files and checks that they took effect.

Set 'agent' for the API and the workers if OpenSM runs on another machine than the workers. The
API then renders the files, agents fetch them, and workers rely on the reports of the fabric's
active agent. 'directory' and the options of OpenSM below then apply on OpenSM's machine.

Set 'ufm' for the API and the workers if UFM runs the subnet manager. UFM's answer confirms
partitions then, not forwarding tables. Set pkeys to a range that no other writer uses: whatever
else is in it is removed. Files are written if 'directory' or 'enforcement' is set, or fetched by
laas-opensm-agent with [ufm] agent; leave the commands below unset.
""",
    ),
    cfg.FloatOpt(
        "agent_lease_seconds",
        default=15.0,
        min=0.1,
        help="""
Seconds for which the report of an agent is valid. An agent reports every agent_poll_interval.

If the active agent does not report for this long, another usable agent takes over; until then
no generation is confirmed. Set the same value for the API and the workers. Raise it where the
API is sometimes unreachable for longer.
""",
    ),
    cfg.StrOpt(
        "directory",
        default="$state_dir/opensm",
        help="""
Directory of the subnet manager's files, with one directory for each fabric. The current set
is DIRECTORY/FABRIC/current. Include DIRECTORY/FABRIC/current/opensm.conf in OpenSM's
configuration.

Change it if OpenSM cannot read the state directory. It must not contain blanks, ':' or '#'.

If it is set, and nothing reads tables back, allocations show confirmed_by = files. If neither it
nor another option of OpenSM is set, they show confirmed_by = nobody.
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
Which of the two enforcements OpenSM's configuration switches on. The files of the other
one are written too.

With 'file', OpenSM does not reroute around a failed cable by itself: the service must learn
of the fault and publish new tables. With 'chains', OpenSM reroutes inside each tenant, but the
service cannot read the tables back and compare them, so leave the options below unset. A
tenant beyond the limit is refused.
""",
    ),
    cfg.BoolOpt(
        "multicast",
        default=False,
        help="""
Enable multicast, which IPoIB needs.

OpenSM builds multicast trees over any links, so multicast is the one exception to link
isolation. Each tenant's broadcast group is limited to 2.5 Gb/s. Switch it on only if
tenants need IPoIB.
""",
    ),
    cfg.ListOpt(
        "services",
        default=[],
        help="""
Port GUIDs (0x...) that every tenant may reach: storage, login, gateways.

Hosts are limited members of the default partition. They reach only its full members: the
subnet manager, and these ports. Never list a tenant host.
""",
    ),
    cfg.StrOpt(
        "pkeys",
        default="0x0001-0x7ffe",
        help="""
Partition keys that new allocations may get, as FIRST-LAST in hexadecimal, without the membership
bit.

Narrow it if somebody else, such as Neutron, gives keys to ports of the fabric: keys outside of it
are never given to a tenant, and ports that have them are not reported. Set the same value for
the API, the workers and the agents. An allocation keeps its key for life, so one that was made
under a wider range keeps a key outside of it.
""",
    ),
    cfg.BoolOpt(
        "virtual_ports",
        default=False,
        help="""
List the virtual ports of hosts (of their virtual functions) in the partitions of their tenants.

Set it, for the API and the workers, only if the subnet manager knows virtual ports: the vendor's
does, with [opensm_site] virt_enabled = 2. The upstream OpenSM has keys for each physical port only;
all functions of a host then have the keys of its port, and a list of virtual ports is of no use.
""",
    ),
    cfg.BoolOpt(
        "one_rule_per_group",
        default=False,
        help="""
Write port groups with one rule each, joined in pairs, for routing chains.

Old releases of the vendor's OpenSM allow only one rule in a group. Switch it on if OpenSM's log
says that it refuses port_groups.conf. Newer releases read both forms.
""",
    ),
    cfg.IntOpt(
        "keep",
        default=3,
        min=0,
        help="""
Number of earlier sets of files to keep beside the current one.

One set takes 12 MB at 1,024 hosts and 906 MB at 11,664. Where the worker itself reads the LIDs of
the ports (links_command), it takes a quarter of that.
""",
    ),
    cfg.StrOpt(
        "pid_file",
        help="""
File with OpenSM's process id (its option --pidfile). OpenSM gets SIGHUP after files changed.

Set this or reload_command where OpenSM runs. Set neither if you copy the files by hand. The
service needs permission to signal that process.
""",
    ),
    cfg.ListOpt(
        "reload_command",
        default=[],
        help="""
Command and arguments, separated by commas, that make OpenSM sweep; used instead of pid_file.

For example 'systemctl,kill,-s,HUP,opensm'. The command runs without a shell.
""",
    ),
    cfg.ListOpt(
        "dump_command",
        default=[],
        help="""
Command and arguments, separated by commas, that print the tables of all switches.

'dump_lfts,-n' reads the switches themselves (0.7 s at 1,024 hosts, 15 s at 11,664) and is the
best proof that a generation is in force: only with it, or with an agent, do allocations show that
somebody looked (confirmed_by = switches). It needs access to a management device.
""",
    ),
    cfg.ListOpt(
        "blocks_command",
        default=[],
        help="""
Command and arguments, separated by commas, that print the changed blocks of tables.

With 'laas-opensm-tables' a new generation is confirmed by reading the blocks that it changes, if
all tables were read by dump_command in the ten minutes before: under a second instead of 15 s at
11,664 hosts after a cable failed. Everything is read again in every check for drift. It needs
access to a management device. The path of the published set is added: it shows the way to switches
without a route.
""",
    ),
    cfg.StrOpt(
        "dump_file",
        help="""
OpenSM's file opensm-lfts.dump, for sites that cannot use dump_command.

OpenSM writes it into dump_files_dir after a sweep if log_flags has 0x40. It shows the tables
that OpenSM computed, not those in the switches, so confirmed_by is files. At 3,456 hosts the
dumps exceed 300 MB a sweep.
""",
    ),
    cfg.ListOpt(
        "links_command",
        default=[],
        help="""
Command and arguments, separated by commas, that print the ports of all nodes.

With 'iblinkinfo,-l,-o,16,-t,200' the process beside OpenSM compares the ports of the fabric with
the recorded cables: it reports cables that are down, and a dead switch no longer keeps a
generation from being confirmed. Without it no fault is noticed, and a dead switch blocks. It
needs access to a management device. Set log_file too, so that the ports are read as soon as
OpenSM notices a change.

With cache_directory, it then leaves out the port GUIDs in the tables, which OpenSM reads faster,
while all ports have the LIDs that the tables were made for.

Keep -o and -t: by default iblinkinfo waits up to two seconds for each port towards a switch that
does not answer.
""",
    ),
    cfg.FloatOpt(
        "links_interval",
        default=60.0,
        min=1.0,
        help="""
Seconds after which links_command is run although OpenSM's log tells of no change.

At most a tenth of the time is spent in it, though three readings may follow one another after a
quiet time. Lower it where log_file is not set.
""",
    ),
    cfg.ListOpt(
        "counters_command",
        default=[],
        help="""
Command and arguments, separated by commas, that print the counters of ports: 'perfquery'.

The process beside OpenSM adds '-l LID PORTS', then the same with -x and with -T, for one switch
after the other. [faults] says what follows from the counters. Without the command no counters are
read. Keep a timeout in it on a large fabric, such as 'perfquery,-t,200': a switch that does not
answer is left out of a round. The command never resets a counter.

Switches without a route to this machine are left out (laas-opensm-keys and laas-opensm-tables reach
them by directed routes, which counters do not have).

A command of your own may also print, after 'PortSelect:..N', a line 'Effective Physical BER:
15E-255' as mlxlink does; symbol errors of that port do not count then.
""",
    ),
    cfg.FloatOpt(
        "counters_rate",
        default=200.0,
        min=1.0,
        help="""
The most ports of which counters are read in a second.

Each port costs up to three management packets and their answers. At 11,664 hosts (58,320 switch
ports) a round over the fabric takes five minutes at 200. Raise it for fresher figures; an agent
hands over at most 400 ports in each [opensm] agent_poll_interval.
""",
    ),
    cfg.ListOpt(
        "keys_command",
        default=[],
        help="""
Command and arguments, separated by commas, that print the partition keys of all ports.

With 'laas-opensm-keys' the process beside OpenSM compares the keys in the ports of hosts, of
the leaf switches in front of them and of the switches themselves with the published ones, and
sees which subnet manager is the master: a generation is confirmed only if both are right. The
path of the published set is added. It needs access to a management device, and takes about six
packets for each host port.

Without it partition keys are written and never read.
""",
    ),
    cfg.ListOpt(
        "managers",
        default=[],
        help="""
Port GUIDs (0x...) of the subnet managers of this service.

If another one is the master, this is reported (condition not_master, drift of kind manager). By
default the only one is the port through which keys_command reads. Set it if OpenSM uses another
port, or on every machine if there are standby subnet managers.
""",
    ),
    cfg.StrOpt(
        "log_file",
        help="""
OpenSM's log, which shows whether the last sweep used another routing engine, or none.

Set it: releasing an allocation may change partitions and no route, and then only the log shows
that OpenSM read the new files. Our part of its configuration sets force_log_flush, so the log
is up to date.
""",
    ),
    cfg.StrOpt(
        "cache_directory",
        help="""
OpenSM's OSM_CACHE_DIR (by default /var/cache/opensm), where the service writes guid2lid.

OpenSM reads that file when it starts. The tables are valid only while LIDs are as pinned.
""",
    ),
    cfg.FloatOpt(
        "timeout",
        default=60.0,
        min=1.0,
        help="""
Time limit of a command in seconds. Raise it for more than 5,000 hosts.
""",
    ),
    cfg.FloatOpt(
        "patience",
        default=10.0,
        min=0.0,
        help="""
Seconds to wait after publishing until OpenSM has installed the new tables.

A sweep takes 0.6 s at 1,024 hosts and 2.4 s at 3,456. If it takes longer, the next check
confirms the generation.
""",
    ),
    cfg.StrOpt(
        "agent_name",
        default=socket.gethostname(),
        sample_default="the name of the machine",
        regex="^[A-Za-z0-9._-]{1,255}$",
        help="""
Name of this laas-opensm-agent, unique among the agents of its fabric.

Set it if two agents run on one machine.
""",
    ),
    cfg.StrOpt(
        "agent_fabric",
        help="""
Fabric whose subnet manager laas-opensm-agent supervises. Required if the service
manages several fabrics.
""",
    ),
    cfg.FloatOpt(
        "agent_poll_interval",
        default=2.0,
        min=0.05,
        help="""
Seconds between two rounds of laas-opensm-agent. A round checks OpenSM and reports to the service.

With a bus ([DEFAULT] transport_url) a round starts at once after a change; without one, after at
most this long. Keep it well below agent_lease_seconds of the service: if an agent does not
report for that long, another one takes over.
""",
    ),
    cfg.BoolOpt(
        "agent_plain_http",
        default=False,
        help="""
Let laas-opensm-agent send its password, its token and its reports over plain http to other
machines.

Whoever reads such a connection can act as the agent: make allocations active, and free hosts and
links that are still in use. Whoever changes an answer decides about the files of OpenSM. The agent
warns at each start. Switch it on only inside an encrypted tunnel.
""",
    ),
]
