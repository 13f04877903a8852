# SPDX-License-Identifier: Apache-2.0

"""The subnet manager's files, rendered purely: equal values give equal bytes.

Two enforcements lie side by side in one set of files:

* ``file``: ``lfts``, our own forwarding tables, for any OpenSM;
* ``chains``: ``port_groups.conf``, ``topologies.conf``, ``chains.conf`` and
  ``engines/``, from which the vendor's OpenSM routes each tenant by itself.

The partition file, the pinned LIDs and the configuration fragment serve both.

Multicast: OpenSM builds multicast trees from hop counts, over anybody's links,
and neither enforcement changes that. The fragment therefore switches multicast
off (``disable_multicast``), which also switches off IPoIB. Where IPoIB is needed,
``Settings.multicast`` leaves it on and gives every tenant a broadcast group whose
rate is capped at 2.5 Gb/s: the one, stated exception to isolation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from laas_service.domain.errors import InvalidInput, LimitExceeded
from laas_service.domain.routing.default_tables import NO_ROUTE
from opensm_writer.desired import MAX_RULE, Chains, Partition, Plan, PortGroup, Step, guid_text

MAX_NAME = 64

FORM = 2
"""Raised when equal values give other bytes than in the release before."""

ENTRY_SIZE = len("0x0001 001 # portguid 0x0002c90300000001:\n")
PORT_COLUMNS = range(7, 10)
"""Where the three digits of the port stand in an entry of a table."""

_DIGITS = [bytes(ord(f"{port:03d}"[digit]) for port in range(256)) for digit in range(3)]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the files depend on besides the state.

    ``directory`` is where OpenSM will find the current set, an absolute path.
    ``enforcement`` is ``file`` or ``chains``. ``services`` are port GUIDs (storage,
    login) that are full members of the default partition: every tenant reaches them.
    ``one_rule_per_group`` writes port groups for old releases of the vendor's OpenSM.
    """

    directory: str
    enforcement: str = "file"
    multicast: bool = False
    services: tuple[int, ...] = ()
    one_rule_per_group: bool = False

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


def render(
    plan: Plan, settings: Settings, kept: Callable[[int], str | None] = lambda guid: None
) -> dict[str, Iterable[str]]:
    """All files but the manifest: name -> pieces of text, each to be read once.

    ``kept`` is described at ``lfts``.

    Raises:
        LimitExceeded: ``chains`` is to be enforced and the chains cannot hold the tenants.
    """
    if plan.chains is None and settings.enforcement == "chains":
        raise LimitExceeded(plan.chains_omitted or "no routing chains")
    files: dict[str, Iterable[str]] = {
        "lfts": lfts(plan, kept),
        "guid2lid": guid2lid(plan.lids),
        "partitions.conf": partitions(plan.partitions, settings),
        "opensm.conf": fragment(settings, chains=plan.chains is not None),
        "guid_index.json": [guid_index(plan)],
    }
    if plan.chains is not None:
        files |= chain_files(plan.chains, settings)
    return dict(sorted(files.items()))


def lfts(plan: Plan, kept: Callable[[int], str | None] = lambda guid: None) -> Iterator[str]:
    """Switch by switch (by GUID), entries by LID; destinations without a route are left out.

    ``kept`` may give the table of a switch as it was rendered from the same values before.
    """
    names = {switch.guid: switch.name for switch in plan.state.inventory.switches}
    top = max(plan.lids.values())
    lines = bytearray().join(
        b"%#06x 000 # portguid %#018x:\n" % (lid, guid) for guid, lid in plan.lids.items()
    )
    for guid, row in sorted(plan.tables.rows.items()):
        table = kept(guid)
        if table is None:
            ports = plan.by_lid(row)
            table = (
                f"Unicast lids [0-{top}] of switch Lid {plan.lids[guid]} guid {guid_text(guid)} "
                f"('{_plain(names[guid])}'):\n"
                f"{_entries(lines, ports)}"
                f"{len(ports) - ports.count(NO_ROUTE)} lids dumped\n"
            )
        yield table


def _entries(lines: bytearray, ports: bytes) -> str:
    """Write ports into the lines, all at once, a digit after the other; drop those without."""
    for column, digit in zip(PORT_COLUMNS, _DIGITS, strict=True):
        lines[column::ENTRY_SIZE] = ports.translate(digit)
    found, start = [], 0
    for place in _places(ports, NO_ROUTE):
        found.append(lines[start * ENTRY_SIZE : place * ENTRY_SIZE])
        start = place + 1
    found.append(lines[start * ENTRY_SIZE :])
    return bytearray().join(found).decode("ascii")


def _places(ports: bytes, wanted: int) -> Iterator[int]:
    place = ports.find(wanted)
    while place >= 0:
        yield place
        place = ports.find(wanted, place + 1)


def _plain(name: str) -> str:
    """A switch's name fit for a comment: printable, short, without quotes."""
    return "".join(c if c.isascii() and c.isprintable() and c not in "'\"" else "_" for c in name)[
        :MAX_NAME
    ]


def guid2lid(lids: Mapping[int, int]) -> Iterator[str]:
    """One record a GUID; OpenSM wants 16 digits in lower case and an empty line after each."""
    for guid in sorted(lids):
        yield f"{guid_text(guid)} {lids[guid]:#06x} {lids[guid]:#06x}\n\n"


def partitions(partitions: Iterable[Partition], settings: Settings) -> Iterator[str]:
    """Hosts are limited members of the default partition: they reach services, not each other.

    One GUID a line, because OpenSM refuses lines of more than about 4,090 bytes (and
    then makes every port a full member of everything).
    """
    services = [f",\n  {guid_text(guid)}=full" for guid in sorted(settings.services)]
    yield f"Default=0x7fff : ALL=limited, ALL_SWITCHES=full, SELF=full{''.join(services)} ;\n"
    group = ", ipoib, rate=2" if settings.multicast else ""
    for partition in partitions:
        yield f"{partition.name}={partition.pkey:#06x}{group}, defmember=full :\n"
        yield ",\n".join(f"  {guid_text(guid)}" for guid in partition.members) + " ;\n"


def fragment(settings: Settings, *, chains: bool) -> Iterator[str]:
    """The fragment for OpenSM's configuration; the enforcement not in use is commented out.

    ``chains`` says whether the set has routing chains. The reason why it has none is in the
    manifest alone: an agent renders the fragment it expects, and text that came from
    elsewhere must not decide what OpenSM is configured with.

    ``no_fallback`` is not a matter of taste: without it a bad file makes OpenSM route
    the whole fabric with minhop and report success.
    """
    here = settings.directory
    tables = {"routing_engine": "file,no_fallback", "lfts_file": f"{here}/lfts"}
    chain_keys = {
        "pgrp_policy_file": f"{here}/port_groups.conf",
        "topo_policy_file": f"{here}/topologies.conf",
        "rch_policy_file": f"{here}/chains.conf",
    }
    common = {
        "partition_config_file": f"{here}/partitions.conf",
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
    yield f"# Pinned LIDs: copy {here}/guid2lid to OpenSM's cache directory before it starts\n"


def _keys(keys: Mapping[str, str], used: bool) -> Iterator[str]:
    for key, value in keys.items():
        yield f"{'' if used else '# '}{key} {value}\n"


def guid_index(plan: Plan) -> str:
    """Hosts and positions of switches -> GUID and LID; on several rails hosts are ``H/RAIL``."""
    topology, inventory = plan.state.topology, plan.state.inventory
    tree = topology.tree

    def entry(guid: int) -> dict[str, object]:
        return {"guid": guid_text(guid), "lid": plan.lids[guid]}

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
    return json.dumps(index, indent=1) + "\n"


def chain_files(chains: Chains, settings: Settings) -> dict[str, Iterable[str]]:
    """Port groups, topologies, steps, and an engine file with its GUID lists for each step."""
    here = settings.directory
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
            f"config: {here}/{step.config}\nend-unicast-step\n"
            for step in chains.steps
        ],
    }
    for name, guids in chains.lists.items():
        files[name] = [f"{guid_text(guid)}\n" for guid in guids]
    for step in chains.steps:
        files[step.config] = [engine_file(step, chains.lists, here)]
    return files


def engine_file(step: Step, lists: Collection[str], here: str) -> str:
    """What a step's engine is configured with: which GUID lists it has."""
    stem = step.config.removesuffix(".conf")
    keys = {"roots": "root_guid_file", "cn": "cn_guid_file"}
    return "".join(
        f"{key} {here}/{stem}.{kind}\n" for kind, key in keys.items() if f"{stem}.{kind}" in lists
    )


def port_group(group: PortGroup, one_rule: bool = False) -> str:
    """A group by GUIDs only (names may contain colons), its rules short enough for the vendor.

    With ``one_rule``, a group that needs several is put together from groups of one
    rule each, two at a time, as unions take no more.
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
    found = [_group(joined, rules[0])]
    for number, rule in enumerate(rules[1:], 1):
        part = f"{group.name}.{number}"
        union = group.name if number == len(rules) - 1 else f"{part}u"
        found += [_group(part, rule), _group(union, f"union-rule: {joined}, {part}")]
        joined = union
    return "".join(found)


def _group(name: str, *rules: str) -> str:
    return "\n".join(["port-group", f"name: {name}", *rules, "end-port-group\n"])


def _port_texts(guid: int, ports: tuple[int, ...]) -> Iterator[str]:
    """``GUID@1/2/5``; a switch with very many ports in several parts."""
    if not ports:
        yield guid_text(guid)
    for start in range(0, len(ports), 50):
        yield f"{guid_text(guid)}@{'/'.join(map(str, ports[start : start + 50]))}"
