# SPDX-License-Identifier: Apache-2.0

"""Options that earlier releases had, and what takes the place of each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oslo_config import cfg

_FOUND = "[opensm] tools finds the tool"
_SITE = "write it in OpenSM's words: [opensm_site] option = {name} VALUE"

GONE = {
    ("api", "max_body"): "bodies end at 65,536 bytes",
    ("api", "max_waiters"): "half of [api] threads may wait",
    ("compute", "outage_share"): "half of the hosts may be down at once",
    ("faults", "audit_share"): "others may send one percent of the tenant's own data",
    ("faults", "bit_error_rate"): "the largest one is 1e-12, InfiniBand's own objective",
    ("faults", "breaker_window"): "losses within 60 seconds count together",
    ("faults", "flap_window"): "flaps counts how often a link goes down within 600 seconds",
    ("faults", "reading_lifetime"): "a reading is good for 60 seconds",
    ("faults", "wait_tick"): "give PortXmitWait in error_thresholds as N/second",
    ("limits", "change_burst"): "a project may send 200 changes at once",
    ("limits", "change_rate"): "a project may send 2 changes a second",
    ("opensm", "blocks_command"): _FOUND,
    ("opensm", "counters_command"): _FOUND,
    ("opensm", "counters_rate"): "counters of 200 ports are read in a second",
    ("opensm", "keys_command"): _FOUND,
    ("opensm", "links_command"): _FOUND,
    ("opensm", "links_interval"): "ports are read every 60 seconds, and after events in the log",
    **{
        ("opensm_site", name): _SITE.format(name=name)
        for name in (
            "allowed_sm_guids",
            "m_key_lease_period",
            "m_key_lookup",
            "m_key_per_port",
            "m_key_protection_level",
            "polling_retry_number",
            "sa_enhanced_trust_model",
            "sa_etm_max_num_event_subs",
            "sa_etm_max_num_mcgs",
            "sa_etm_max_num_srvcs",
            "sm_priority",
            "sminfo_polling_timeout",
            "virt_enabled",
        )
    },
    ("queue", "make_room_gain"): "a move has to bring the first request 300 seconds",
    ("queue", "make_room_moves"): "a plan moves one tenant",
    ("queue", "order"): "requests that overtake are tried in order of arrival",
    ("queue", "shadow"): "requests overtake that leave room for the first at its reservation",
    ("retention", "events"): "a history keeps its newest 1,000 events",
    ("sharing", "directory"): "the commands are in limits, in the state directory",
    ("sharing", "interval"): "ports are looked at every 10 seconds",
    ("ufm", "timeout"): "UFM has 10 seconds for an answer",
    ("worker", "park_after"): "a step is tried five times",
}
"""By group and name."""


def files(conf: cfg.ConfigOpts) -> Iterator[Path]:
    """The configuration files, in the order in which they are read."""
    for name in conf.config_file or ():
        yield Path(name).expanduser()
    for directory in conf.config_dir or ():
        yield from sorted(Path(directory).expanduser().glob("*.conf"))


def sections(path: Path) -> dict[str, dict[str, Any]]:
    """What a file sets. Raises: cfg.ConfigFileParseError, OSError."""
    found: dict[str, dict[str, Any]] = {}
    cfg.ConfigParser(str(path), found).parse()
    return found


def still_set(conf: cfg.ConfigOpts, group: str) -> Iterator[str]:
    """Options of a group that have gone, and that a file of ``conf`` sets."""
    for path in files(conf):
        for name in sections(path).get(group, {}):
            if (group, name.replace("-", "_")) in GONE:
                yield name
