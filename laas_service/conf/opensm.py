# SPDX-License-Identifier: Apache-2.0

"""[opensm]: directory of the subnet manager's files, reload, checks, and the agent."""

import logging
import socket
from collections.abc import Callable
from pathlib import Path

from oslo_config import cfg

from laas_service.conf.group import Group, optional_path, setting
from laas_service.conf.opensm_site import site
from laas_service.domain.errors import InvalidInput
from laas_service.messages import PKEYS
from opensm_writer import render, tools
from opensm_writer.opensm import OpenSm, steady_time

LOG = logging.getLogger(__name__)

GROUP = "opensm"


def tenant_pkeys(text: str) -> range:
    """The partition keys that [opensm] pkeys names. Raises: InvalidInput."""
    try:
        first, last = (int(end, 16) for end in text.split("-"))
    except ValueError:
        first, last = 0, 0
    if not PKEYS[0] <= first <= last <= PKEYS[-1]:
        fix = "give FIRST-LAST within 0x0001-0x7ffe, such as 0x0001-0x3fff"
        raise InvalidInput("[opensm] pkeys", text, fix)
    return range(first, last + 1)


def _guid(text: str, option: str) -> int:
    try:
        return int(text, 16)
    except ValueError as error:
        raise InvalidInput(f"[{GROUP}] {option}", text, "give GUIDs such as 0x1b") from error


def _services(texts: list[str]) -> tuple[int, ...]:
    return tuple(sorted(_guid(text, "services") for text in texts))


class OpenSmOptions(Group, name=GROUP):
    """The options of [opensm]; all times are seconds."""

    reached_by: str = setting(
        cfg.StrOpt,
        "worker",
        choices=[
            ("worker", "a worker on OpenSM's machine writes the files and checks the tables"),
            ("agent", "laas-opensm-agent on OpenSM's machine does it; workers run elsewhere"),
            ("ufm", "a worker makes partitions in NVIDIA UFM, as [ufm] says, and writes the files"),
        ],
    )
    """Process that makes OpenSM read new files and checks that they took effect.

    Set 'agent' for the API and the workers if OpenSM runs on another machine than the workers. The
    API then renders the files, agents fetch them, and workers rely on the reports of the fabric's
    active agent. 'directory' and the options of OpenSM below then apply on OpenSM's machine.

    Set 'ufm' for the API and the workers if UFM runs the subnet manager. UFM's answer confirms
    partitions then, not forwarding tables. Set pkeys to a range that no other writer uses: whatever
    else is in it is removed. Files are written if 'directory' or 'enforcement' is set, or fetched
    by laas-opensm-agent with [ufm] agent; leave the commands below unset."""

    agent_lease_seconds: float = setting(cfg.FloatOpt, 15.0, min=0.1)
    """Seconds for which the report of an agent is valid. An agent reports every
    agent_poll_interval.

    If the active agent does not report for this long, another usable agent takes over; until then
    no generation is confirmed. Set the same value for the API and the workers. Raise it where the
    API is sometimes unreachable for longer."""

    directory: Path = setting(cfg.StrOpt, "$state_dir/opensm", read=Path)
    """Directory of the subnet manager's files, with one directory for each fabric. The current set
    is DIRECTORY/FABRIC/current. Include DIRECTORY/FABRIC/current/opensm.conf in OpenSM's
    configuration.

    Change it if OpenSM cannot read the state directory. It must not contain blanks, ':' or '#'.

    If it is set, the tools that read the switches are found (see tools); where there are none,
    allocations show confirmed_by = files. If neither it nor another option of OpenSM is set, they
    show confirmed_by = nobody."""

    enforcement: str = setting(
        cfg.StrOpt,
        "file",
        choices=[
            ("file", "our own forwarding tables; any OpenSM, any number of tenants"),
            ("chains", "routing chains; the vendor's OpenSM only, at most 49 tenants with links"),
        ],
    )
    """Which of the two enforcements OpenSM's configuration switches on. The files of the other
    one are written too.

    With 'file', OpenSM does not reroute around a failed cable by itself: the service must learn of
    the fault and publish new tables. With 'chains', OpenSM reroutes inside each tenant, but the
    service cannot read the tables back and compare them, so leave the commands and files below
    unset. A tenant beyond the limit is refused."""

    multicast: bool = setting(cfg.BoolOpt, False)
    """Enable multicast, which IPoIB needs.

    OpenSM builds multicast trees over any links, so multicast is the one exception to link
    isolation. Each tenant's broadcast group is limited to 2.5 Gb/s. Switch it on only if
    tenants need IPoIB."""

    services: tuple[int, ...] = setting(cfg.ListOpt, [], read=_services)
    """Port GUIDs (0x...) that every tenant may reach: storage, login, gateways.

    Hosts are limited members of the default partition. They reach only its full members: the
    subnet manager, and these ports. Add what every tenant needs, and never a tenant's host."""

    pkeys: range = setting(cfg.StrOpt, "0x0001-0x7ffe", read=tenant_pkeys)
    """Partition keys that new allocations may get, as FIRST-LAST in hexadecimal, without the
    membership bit.

    Narrow it if somebody else, such as Neutron, gives keys to ports of the fabric: keys outside of
    it are never given to a tenant, and ports that have them are not reported. Set the same value
    for the API, the workers and the agents. An allocation keeps its key for life, so one that was
    made under a wider range keeps a key outside of it."""

    virtual_ports: bool = setting(cfg.BoolOpt, False)
    """List the virtual ports of hosts (of their virtual functions) in the partitions of their
    tenants.

    Set it, for the API and the workers, only if the subnet manager knows virtual ports: the
    vendor's does, with [opensm_site] virt_enabled = 2. The upstream OpenSM has keys for each
    physical port only; all functions of a host then have the keys of its port, and a list of
    virtual ports is of no use."""

    one_rule_per_group: bool = setting(cfg.BoolOpt, False)
    """Write port groups with one rule each, joined in pairs, for routing chains.

    Old releases of the vendor's OpenSM allow only one rule in a group. Switch it on if OpenSM's log
    says that it refuses port_groups.conf. Newer releases read both forms."""

    keep: int = setting(cfg.IntOpt, 3, min=0)
    """Number of earlier sets of files to keep beside the current one.

    One set takes 12 MB at 1,024 hosts and 906 MB at 11,664. Where the worker itself reads the LIDs
    of the ports (see tools), it takes a quarter of that. Lower it where the disk is small."""

    pid_file: Path | None = setting(cfg.StrOpt, read=optional_path)
    """File with OpenSM's process id (its option --pidfile). OpenSM gets SIGHUP after files changed.

    By default the OpenSM of this machine is found that reads the files in 'directory' (see tools).
    Set this or reload_command where that cannot be, as with several OpenSMs on one machine. The
    service needs permission to signal that process."""

    reload_command: tuple[str, ...] = setting(cfg.ListOpt, [], read=tuple)
    """Command and arguments, separated by commas, that make OpenSM sweep; used instead of pid_file.

    For example 'systemctl,kill,-s,HUP,opensm'. The command runs without a shell. Set it if OpenSM
    runs in a container, or as a service of which only the manager may send signals."""

    tools: str = setting(cfg.StrOpt, tools.AUTO)
    """Where the process beside OpenSM finds the tools that read the switches: 'auto', 'none', or a
    directory.

    With 'auto' they are looked for in PATH and in the usual places: dump_lfts, iblinkinfo,
    perfquery and smpquery of infiniband-diags, laas-opensm-keys and laas-opensm-tables. OpenSM
    itself, its log and its cache are found by its command line and configuration. Then the process
    reads tables, ports, partition keys and counters: it sees a cut cable, and a dead switch blocks
    no confirmation. The tools need a management device. If they cannot ask, this is logged once,
    and they count as absent until the process is restarted.

    Nothing is looked for while no option of [opensm] says that OpenSM reads the files: set
    'directory' for that. With reached_by = ufm or enforcement = chains nothing is read.

    Give a directory if the tools lie elsewhere, or if yours are scripts of these names that call
    them with other options, such as another port (iblinkinfo -C mlx5_1). Set 'none' if nothing of
    this machine may ask the switches."""

    dump_command: tuple[str, ...] = setting(cfg.ListOpt, [], read=tuple)
    """Command and arguments, separated by commas, that print the tables of all switches; by default
    the dump_lfts that is found (see tools).

    'dump_lfts,-n' reads the switches themselves (0.7 s at 1,024 hosts, 15 s at 11,664) and is the
    best proof that a generation is in force: only with it, or with an agent, do allocations show
    that somebody looked (confirmed_by = switches). Set it if your tool needs other options."""

    dump_file: Path | None = setting(cfg.StrOpt, read=optional_path)
    """OpenSM's file opensm-lfts.dump. Set it if no tool may read the switches.

    OpenSM writes it into dump_files_dir after a sweep if log_flags has 0x40. It shows the tables
    that OpenSM computed, not those in the switches, so confirmed_by is files. At 3,456 hosts the
    dumps exceed 300 MB a sweep."""

    managers: list[str] = setting(cfg.ListOpt, [])
    """Port GUIDs (0x...) of the subnet managers of this service.

    If another one is the master, this is reported (condition not_master, drift of kind manager). By
    default the only one is the port through which keys are read. Set it if OpenSM uses another
    port, or on every machine if there are standby subnet managers."""

    log_file: Path | None = setting(cfg.StrOpt, read=optional_path)
    """OpenSM's log, which shows whether the last sweep used another routing engine, or none; by
    default that of the OpenSM that is found (see tools).

    Set it if OpenSM is not found: releasing an allocation may change partitions and no route, and
    then only the log shows that OpenSM read the new files. Our part of its configuration sets
    force_log_flush, so the log is up to date."""

    cache_directory: Path | None = setting(cfg.StrOpt, read=optional_path)
    """OpenSM's OSM_CACHE_DIR, where the service writes guid2lid; by default that of the OpenSM that
    is found (see tools).

    Set it if OpenSM starts for the first time with the files of the service. OpenSM reads that file
    when it starts. The tables are valid only while LIDs are as pinned."""

    timeout: float = setting(cfg.FloatOpt, 60.0, min=1.0)
    """Time limit of a command in seconds. Raise it for more than 5,000 hosts."""

    patience: float = setting(cfg.FloatOpt, 10.0, min=0.0)
    """Seconds to wait after publishing until OpenSM has installed the new tables.

    A sweep takes 0.6 s at 1,024 hosts and 2.4 s at 3,456. If it takes longer, the next check
    confirms the generation. Raise it to the longest sweep if allocations should be confirmed at
    once."""

    agent_name: str = setting(
        cfg.StrOpt,
        socket.gethostname(),
        sample_default="the name of the machine",
        regex="^[A-Za-z0-9._-]{1,255}$",
    )
    """Name of this laas-opensm-agent, unique among the agents of its fabric.

    Set it if two agents run on one machine."""

    agent_fabric: str | None = setting(cfg.StrOpt)
    """Fabric whose subnet manager laas-opensm-agent supervises. Set it if the service manages
    several fabrics; without it the agent asks the service for its only one."""

    agent_poll_interval: float = setting(cfg.FloatOpt, 2.0, min=0.05)
    """Seconds between two rounds of laas-opensm-agent. A round checks OpenSM and reports to the
    service.

    With a bus ([DEFAULT] transport_url) a round starts at once after a change; without one, after
    at most this long. Keep it well below agent_lease_seconds of the service: if an agent does not
    report for that long, another one takes over."""

    agent_fence_after: float = setting(cfg.FloatOpt, 0.0, min=0.0)
    """Seconds without contact to the service after which laas-opensm-agent stops a standby OpenSM;
    0 never does.

    A standby with an old set that becomes the master sends packets over links that others have got
    since. OpenSM is stopped only while another one answers as the master (SMInfo), so a master goes
    on, and so does the last manager. What is held for the standby stays held until its agent
    reports, or it is forgotten. Set it, well above agent_lease_seconds, where a fabric without a
    standby is better than one with old routes, and start OpenSM again by hand."""

    agent_plain_http: bool = setting(cfg.BoolOpt, False)
    """Let laas-opensm-agent send its password, its token and its reports over plain http to other
    machines.

    Whoever reads such a connection can act as the agent: make allocations active, and free hosts
    and links that are still in use. Whoever changes an answer decides about the files of OpenSM.
    The agent warns at each start. Switch it on only inside an encrypted tunnel."""

    def files(self, directory: Path, level: int) -> render.Settings:
        """Settings of the files below a directory; ``level`` is that of shared hosts."""
        return render.Settings(
            str(directory),
            self.enforcement,
            self.multicast,
            self.services,
            self.one_rule_per_group,
            self.virtual_ports,
            level,
        )


def attended(conf: cfg.ConfigOpts) -> bool:
    """Whether the configuration says where or how a subnet manager reads the files."""
    return any(named(conf, name) for name in ("directory", "enforcement"))


_DEFAULTS = (cfg.Locations.opt_default, cfg.Locations.set_default)
"""Where an option has its value from if no configuration names it."""


def named(conf: cfg.ConfigOpts, name: str) -> bool:
    """Whether the configuration names an option of this group."""
    place = conf.get_location(name, GROUP)
    return place is not None and place.location not in _DEFAULTS


# -- how OpenSM and the switches are reached

_REACHED = (
    *("pid_file", "reload_command", "dump_command", "dump_file"),
    *("log_file", "cache_directory"),
)
"""Options that say how a process reaches its OpenSM and reads the switches."""


def reaches_opensm(conf: cfg.ConfigOpts) -> bool:
    """Whether an option says how OpenSM of this machine is reached."""
    return any(conf.opensm[name] for name in _REACHED)


def check_reads_nothing(conf: cfg.ConfigOpts) -> None:
    """Return if an agent beside UFM would read nothing from switches. Raises: InvalidInput."""
    for name in ("dump_command", "dump_file", "log_file"):
        if conf.opensm[name]:
            fix = "leave it unset beside UFM: its manager computes tables that no set has"
            raise InvalidInput(f"[opensm] {name}", str(conf.opensm[name]), fix)


def looks_for_tools(conf: cfg.ConfigOpts) -> bool:
    """Whether a worker looks for tools: only if the configuration says that OpenSM reads files."""
    return attended(conf) or reaches_opensm(conf)


def found_tools(conf: cfg.ConfigOpts) -> tools.Tools:
    """The tools of this machine that can ask; why there are none is logged.

    None beside UFM or with routing chains: those managers compute tables that no set has. Raises:
    InvalidInput.
    """
    settings, of_site = conf.opensm, site(conf)
    if settings.reached_by == "ufm" or settings.enforcement != "file":
        return tools.Tools()
    try:
        given = of_site.for_tools() if of_site is not None else ()
    except OSError as error:
        fix = "give a directory that this user can write"
        raise InvalidInput("[opensm] directory", settings.directory, fix) from error
    found = tools.find(settings.tools, given)
    if found.problem:
        LOG.warning(
            "no tool reads the switches, so faults and drift are not seen: %s. Restart once mended",
            found.problem,
        )
    if of_site is not None and of_site.m_key_per_port:  # one M_Key does not open all ports
        return tools.Tools(counters=found.counters)
    return found


def opensm(
    conf: cfg.ConfigOpts, found: tools.Tools, now: Callable[[], float] = steady_time
) -> OpenSm | None:
    """How this process reaches OpenSM, with the tools that were found; None if it does not.

    Only files are written then. ``now`` is the clock by which the ages of its readings are judged.

    Raises: InvalidInput.
    """
    options, of_site = OpenSmOptions.of(conf), site(conf)
    if of_site is not None and of_site.m_key_per_port and options.dump_command:
        fix = "one M_Key does not open all ports: use dump_file, or no m_key_per_port"
        raise InvalidInput("[opensm] dump_command", ",".join(options.dump_command), fix)
    if not reaches_opensm(conf) and not found.dump:
        return None
    dump = options.dump_command or (() if options.dump_file else found.dump)
    seeks = options.tools != tools.NONE and options.reached_by != "ufm"
    return OpenSm(
        pid_file=options.pid_file,
        reload_command=options.reload_command,
        dump_command=dump,
        dump_file=options.dump_file,
        blocks_command=found.blocks,
        links_command=found.links,
        keys_command=found.keys,
        counters_command=found.counters,
        pkeys=options.pkeys,
        managers=frozenset(_guid(text, "managers") for text in options.managers),
        log_file=options.log_file,
        cache_directory=options.cache_directory,
        timeout=options.timeout,
        site=of_site,
        finder=tools.OpenSmFinder(options.directory.absolute()) if seeks else None,
        now=now,
    )
