# SPDX-License-Identifier: Apache-2.0

"""Renders the subnet manager's files from values; equal values give equal bytes.

A set of files serves two kinds of enforcement:

* ``file``: ``lfts``, complete forwarding tables, for any OpenSM;
* ``chains``: ``port_groups.conf``, ``topologies.conf``, ``chains.conf`` and
  ``engines/``, from which the vendor's OpenSM routes each tenant separately.

The partition file, the pinned LIDs, the cabling and the configuration fragment serve both.

Multicast: OpenSM builds multicast trees from hop counts, over links of any tenant, and
neither enforcement changes that. The fragment therefore switches multicast off
(``disable_multicast``), which also switches off IPoIB. For sites that need IPoIB,
``Settings.multicast`` leaves it on and gives every tenant a broadcast group that is limited
to 2.5 Gb/s. This is the only exception to isolation.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from laas_service.domain.errors import InvalidInput, LimitExceeded
from laas_service.domain.inventory import CableEnds
from laas_service.domain.routing.default_tables import NO_ROUTE
from opensm_writer.desired import (
    MAX_RULE,
    Chains,
    Partition,
    PortGroup,
    RoutingStep,
    SubnetConfiguration,
    guid_text,
    with_virtual_ports,
)

MAX_NAME = 64

TABLES = "lfts"
"""The file with the forwarding tables."""

BARE_ENTRY_SIZE = len("0x0001 001\n")
NAMED_ENTRY_SIZE = len("0x0001 001 # portguid 0x0002c90300000001:\n")
PORT_COLUMNS = slice(7, 10)
"""Columns of the three digits of the port in an entry of a table, bare or named."""
LID_COLUMNS = slice(2, 6)
"""Columns of the four digits of its LID."""
_LID_WEIGHTS = np.array([4096, 256, 16, 1])

_DIGITS = np.array([list(f"{port:03d}".encode()) for port in range(256)], np.uint8)
"""The three digits of each port."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the files depend on besides the state."""

    directory: str  # absolute path where OpenSM finds the current set
    enforcement: str = "file"  # or "chains"
    multicast: bool = False  # whether multicast and IPoIB stay on
    services: tuple[int, ...] = ()  # port GUIDs (storage, login) that every tenant may reach
    one_rule_per_group: bool = False  # port groups for old releases of the vendor's OpenSM
    virtual_ports: bool = False  # whether OpenSM knows virtual ports: partitions list them
    level: int = 0  # service level and virtual lane of shared hosts; 0: that of all others
    bare: bool = False  # entries of tables without port GUIDs: for readers that check the LIDs

    def __post_init__(self) -> None:
        printable = self.directory.isprintable()
        if not printable or not self.directory.startswith("/") or set(self.directory) & set(": #"):
            raise InvalidInput(
                "directory",
                self.directory,
                "give an absolute path without blanks, control characters, ':' and '#'",
            )
        if self.enforcement not in ("file", "chains"):
            raise InvalidInput("enforcement", self.enforcement, "use 'file' or 'chains'")


def set_files(
    configuration: SubnetConfiguration,
    settings: Settings,
    rendered: Callable[[int], str | None] = lambda guid: None,
) -> dict[str, Iterable[str]]:
    """All files of a set except the manifest: name -> pieces of text, iterable once.

    ``rendered`` is described at ``lfts``.

    Raises:
        LimitExceeded: the enforcement is ``chains``, and the chains cannot hold the tenants.
    """
    if configuration.chains is None and settings.enforcement == "chains":
        raise LimitExceeded(configuration.chains_omitted or "no routing chains")
    files: dict[str, Iterable[str]] = {
        TABLES: lfts(configuration, rendered, settings.bare),
        "guid2lid": guid2lid(configuration.lids),
        "partitions.conf": partitions(listed_partitions(configuration, settings), settings),
        "opensm.conf": fragment(settings, chains=configuration.chains is not None),
        "guid_index.json": guid_index(configuration),
        "cabling": cabling(configuration.state.inventory.cable_ends),
    }
    if configuration.chains is not None:
        files |= chain_files(configuration.chains, settings)
    return dict(sorted(files.items()))


def lfts(
    configuration: SubnetConfiguration,
    rendered: Callable[[int], str | None] = lambda guid: None,
    bare: bool = False,
) -> Iterator[str]:
    """Forwarding tables of all switches by GUID, entries by LID, without unrouted destinations.

    ``rendered`` may return the text of a switch's table that was rendered earlier from the same
    values, or None. ``bare`` is described at ``Renderer``.
    """
    renderer = Renderer(configuration, bare=bare)
    for guid in sorted(configuration.tables.rows):
        yield rendered(guid) or renderer.table(guid)


class Renderer:
    """Renders the tables of a configuration, each for itself.

    Named entries (0.9 GB at 11,664 hosts) have the GUID of the destination's port, and OpenSM
    sends each to the LID that it has given to that port. ``bare`` entries (a quarter of that) have
    the LID alone: they are right only if all LIDs are as pinned.
    """

    def __init__(self, configuration: SubnetConfiguration, *, bare: bool) -> None:
        self._configuration = configuration
        self._names = {s.guid: s.name for s in configuration.state.inventory.switches}
        self._top = max(configuration.lids.values())
        lines = b"".join(
            b"%#06x 000\n" % lid if bare else b"%#06x 000 # portguid %#018x:\n" % (lid, guid)
            for guid, lid in configuration.lids.items()
        )
        size = BARE_ENTRY_SIZE if bare else NAMED_ENTRY_SIZE
        self._lines = np.frombuffer(lines, np.uint8).reshape(-1, size).copy()

    def table(self, guid: int) -> str:
        """The text of one switch's table."""
        ports = np.frombuffer(
            self._configuration.by_lid(self._configuration.tables.rows[guid]), np.uint8
        )
        self._lines[:, PORT_COLUMNS] = _DIGITS[ports]
        routed = ports != NO_ROUTE
        lines = self._lines if routed.all() else self._lines[routed]
        return (
            f"Unicast lids [0-{self._top}] of switch Lid {self._configuration.lids[guid]} "
            f"guid {guid_text(guid)} "
            f"('{_plain(self._names[guid])}'):\n"
            f"{lines.tobytes().decode('ascii')}"
            f"{len(lines)} lids dumped\n"
        )


def table(guid: int, row: bytes, lids: Mapping[int, int], *, bare: bool = False) -> str:
    """One switch's table with these ports by LID, for the destinations of ``lids`` (by GUID)."""
    ports = {lid: port for lid, port in enumerate(row) if port != NO_ROUTE}
    entries = "".join(
        f"{lid:#06x} {ports[lid]:03d}{'' if bare else f' # portguid {guid_text(destination)}:'}\n"
        for destination, lid in sorted(lids.items(), key=lambda pair: pair[1])
        if lid in ports
    )
    top = max(lids.values())
    head = f"Unicast lids [0-{top}] of switch Lid {lids[guid]} guid {guid_text(guid)} ('read'):\n"
    return f"{head}{entries}{entries.count(chr(10))} lids dumped\n"


def without_guids(table: bytes) -> bytes:
    """The text of a switch's table with named entries, as it is with bare ones."""
    head, entries, tail = _parts(table)
    named = np.frombuffer(entries, np.uint8).reshape(-1, NAMED_ENTRY_SIZE)
    bare = named[:, :BARE_ENTRY_SIZE].copy()
    bare[:, -1] = ord("\n")
    return b"".join((head, bare.tobytes(), tail))


class GuidNames:
    """Gives bare entries the port GUIDs of their LIDs: ``lids`` by GUID."""

    def __init__(self, lids: Mapping[int, int]) -> None:
        self._ordered = np.array(sorted(lids.values()), np.intp)
        guids = {lid: guid for guid, lid in lids.items()}
        lines = b"".join(b"%#06x 000 # portguid %#018x:\n" % (x, guids[x]) for x in sorted(guids))
        self._lines = np.frombuffer(lines, np.uint8).reshape(-1, NAMED_ENTRY_SIZE)

    def named(self, table: bytes) -> bytes:
        """The text of a switch's table with bare entries, as it is with named ones.

        Each entry has one of the LIDs.
        """
        head, entries, tail = _parts(table)
        bare = np.frombuffer(entries, np.uint8).reshape(-1, BARE_ENTRY_SIZE)
        digits = bare[:, LID_COLUMNS].astype(np.intp)
        digits -= np.where(digits > ord("9"), ord("a") - 10, ord("0"))
        named = self._lines[np.searchsorted(self._ordered, digits @ _LID_WEIGHTS)]
        named[:, PORT_COLUMNS] = bare[:, PORT_COLUMNS]
        return b"".join((head, named.tobytes(), tail))


def _parts(table: bytes) -> tuple[bytes, bytes, bytes]:
    """The first line of a switch's table, its entries, and the last line."""
    first, last = table.index(b"\n") + 1, table.rindex(b"\n", 0, -1) + 1
    return table[:first], table[first:last], table[last:]


def _plain(name: str) -> str:
    """A switch's name for a comment: printable ASCII, at most 64 characters, without quotes."""
    return "".join(c if c.isascii() and c.isprintable() and c not in "'\"" else "_" for c in name)[
        :MAX_NAME
    ]


def guid2lid(lids: Mapping[int, int]) -> Iterator[str]:
    """One record for each GUID; OpenSM requires 16 lower-case digits and an empty line after it."""
    for guid in sorted(lids):
        yield f"{guid_text(guid)} {lids[guid]:#06x} {lids[guid]:#06x}\n\n"


def cabling(cables: Iterable[CableEnds]) -> Iterator[str]:
    """``GUID port GUID port`` of each recorded cable, to compare with the ports of the fabric."""
    for (first, port), (second, other_port) in cables:
        yield f"{first:#018x} {port} {second:#018x} {other_port}\n"


def listed_partitions(
    configuration: SubnetConfiguration, settings: Settings
) -> tuple[Partition, ...]:
    """The partitions as the file lists them: with virtual ports if OpenSM knows them."""
    if not settings.virtual_ports:
        return configuration.partitions
    return with_virtual_ports(configuration.partitions, configuration.state.virtual_guids)


def partitions(partitions: Iterable[Partition], settings: Settings) -> Iterator[str]:
    """``partitions.conf``: the default partition, then one partition for each tenant.

    Hosts are limited members of the default partition, so that they reach services but not
    each other. Each GUID has a line of its own, because OpenSM refuses lines of more than about
    4,090 bytes and then makes every port a full member of everything. A tenant's key stands at
    index 0 of its ports (``indx0``), because GASNet and NVSHMEM use that index. Shared hosts have
    a service level of their own, if there is one in the settings.
    """
    services = [f",\n  {guid_text(guid)}=full" for guid in sorted(settings.services)]
    yield f"Default=0x7fff : ALL=limited, ALL_SWITCHES=full, SELF=full{''.join(services)} ;\n"
    group = ", ipoib, rate=2" if settings.multicast else ""
    for partition in partitions:
        level = f", sl={settings.level}" if partition.shared and settings.level else ""
        yield f"{partition.name}={partition.pkey:#06x}, indx0{group}{level}, defmember=full :\n"
        yield ",\n".join(f"  {guid_text(guid)}" for guid in partition.members) + " ;\n"


def limited_partition(pkey: int, members: Iterable[int]) -> str:
    """A further rule, which makes ports (GUIDs) limited members of a partition of their own."""
    guids = ",\n".join(f"  {guid_text(guid)}" for guid in sorted(members))
    return f"laas.rewrite={pkey:#06x}, defmember=limited :\n{guids} ;\n"


def fragment(settings: Settings, *, chains: bool) -> Iterator[str]:
    """The fragment for OpenSM's configuration; keys of the other enforcement are comments.

    ``chains`` says whether the set has routing chains. The reason why it has none is in the
    manifest alone: an agent renders the fragment that it expects, and no text that it fetched
    may get into OpenSM's configuration.

    ``no_fallback`` is required: without it a bad file makes OpenSM route the whole fabric with
    minhop and report success.
    """
    directory = settings.directory
    tables = {"routing_engine": "file,no_fallback", "lfts_file": f"{directory}/lfts"}
    chain_keys = {
        "pgrp_policy_file": f"{directory}/port_groups.conf",
        "topo_policy_file": f"{directory}/topologies.conf",
        "rch_policy_file": f"{directory}/chains.conf",
    }
    common = {
        "partition_config_file": f"{directory}/partitions.conf",
        "part_enforce": "both",
        "use_ucast_cache": "FALSE",
        "honor_guid2lid_file": "TRUE",
        "sweep_on_trap": "TRUE",
        "force_log_flush": "TRUE",
        "disable_multicast": "FALSE" if settings.multicast else "TRUE",
    }
    yield "# Any OpenSM: forwarding tables from a file\n"
    yield from _keys(tables, used=settings.enforcement == "file")
    if chains:
        yield "# The vendor's OpenSM: routing chains\n"
        yield from _keys(chain_keys, used=settings.enforcement == "chains")
    else:
        yield "# No routing chains: manifest.json says why\n"
    yield "# Both\n"
    yield from _keys(common, used=True)
    if settings.level:
        yield "# Shared hosts have a virtual lane of their own\n"
        yield from _keys(_lanes(settings.level), used=True)
    yield f"# Pinned LIDs: copy {directory}/guid2lid to OpenSM's cache directory before it starts\n"


def _lanes(level: int) -> dict[str, str]:
    """Keys that give a service level the virtual lane of its number, and all others lane 0.

    Lanes that are in use have the same weight, in units of 64 bytes.
    """
    lanes = ",".join(str(level if number == level else 0) for number in range(16))
    return {
        "qos": "TRUE",
        "qos_max_vls": str(level + 1),
        "qos_high_limit": "0",
        "qos_vlarb_high": f"0:0,{level}:0",
        "qos_vlarb_low": f"0:64,{level}:64",
        "qos_sl2vl": lanes,
    }


def _keys(keys: Mapping[str, str], used: bool) -> Iterator[str]:
    for key, value in keys.items():
        yield f"{'' if used else '# '}{key} {value}\n"


def guid_index(configuration: SubnetConfiguration) -> Iterator[str]:
    """JSON: host index or switch position -> GUID and LID; ``HOST/RAIL`` if there are rails."""
    topology, inventory = configuration.state.topology, configuration.state.inventory
    tree = topology.tree

    def entry(guid: int) -> dict[str, object]:
        return {"guid": guid_text(guid), "lid": configuration.lids[guid]}

    index: dict[str, object] = {
        "hosts": {
            f"{host}/{rail}" if topology.rails > 1 else f"{host}": entry(endpoint.guid)
            for (host, rail), endpoint in sorted(inventory.endpoint_of_port.items())
        }
    }
    for kind, guids, width in (
        ("leaf", inventory.leaf_guids, tree.m[1]),
        ("l2", inventory.l2_guids, tree.l2_per_pod),
        ("spine", inventory.spine_guids, tree.spines_per_group),
    ):
        for number, guid in enumerate(guids):
            if guid:
                index[f"{kind}:{number // width}:{number % width}"] = entry(guid)
    yield json.dumps(index, indent=1) + "\n"


def chain_files(chains: Chains, settings: Settings) -> dict[str, Iterable[str]]:
    """Port groups, topologies, steps, and an engine file with its GUID lists for each step."""
    directory = settings.directory
    files: dict[str, Iterable[str]] = {
        "port_groups.conf": [
            port_group(group, settings.one_rule_per_group) for group in chains.groups
        ],
        "topologies.conf": [
            f"topology\nid: {t.id}\nsw-grp: {t.switches}\nhca-grp: {t.adapters}\nend-topology\n"
            for t in chains.topologies
        ],
        "chains.conf": [
            f"unicast-step\nid: {step.id}\nengine: {step.engine}\ntopology: {step.topology}\n"
            f"config: {directory}/{step.config}\nend-unicast-step\n"
            for step in chains.steps
        ],
    }
    for name, guids in chains.lists.items():
        files[name] = [f"{guid_text(guid)}\n" for guid in guids]
    for step in chains.steps:
        files[step.config] = [engine_file(step, chains.lists, directory)]
    return files


def engine_file(step: RoutingStep, lists: Collection[str], directory: str) -> str:
    """Configuration of a step's engine: the paths of its GUID lists, of those in ``lists``."""
    stem = step.config.removesuffix(".conf")
    keys = {"roots": "root_guid_file", "cn": "cn_guid_file"}
    return "".join(
        f"{key} {directory}/{stem}.{kind}\n"
        for kind, key in keys.items()
        if f"{stem}.{kind}" in lists
    )


def port_group(group: PortGroup, one_rule: bool = False) -> str:
    """A port group, by GUIDs only because names may contain colons; rules are below ``MAX_RULE``.

    With ``one_rule``, a group of several rules becomes groups of one rule each, joined by
    unions of two groups: a union takes no more.
    """
    rules: list[str] = []
    for text in (text for guid, ports in group.ports for text in _port_texts(guid, ports)):
        if rules and len(rules[-1]) + len(", ") + len(text) < MAX_RULE:
            rules[-1] += f", {text}"
        else:
            rules.append(f"port-guid: {text}")
    if not one_rule or len(rules) == 1:
        return _group(group.name, *rules)
    joined = f"{group.name}.0"
    groups = [_group(joined, rules[0])]
    for number, rule in enumerate(rules[1:], 1):
        part = f"{group.name}.{number}"
        union = group.name if number == len(rules) - 1 else f"{part}u"
        groups += [_group(part, rule), _group(union, f"union-rule: {joined}, {part}")]
        joined = union
    return "".join(groups)


def _group(name: str, *rules: str) -> str:
    return "\n".join(["port-group", f"name: {name}", *rules, "end-port-group\n"])


def _port_texts(guid: int, ports: tuple[int, ...]) -> Iterator[str]:
    """``GUID@1/2/5``, with at most 50 ports in each text."""
    if not ports:
        yield guid_text(guid)
    for start in range(0, len(ports), 50):
        yield f"{guid_text(guid)}@{'/'.join(map(str, ports[start : start + 50]))}"
