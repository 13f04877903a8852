# SPDX-License-Identifier: Apache-2.0

"""Reads the routing chains of a published set as the manuals of the vendor's OpenSM define them.

The grammar and the limits are those of the manuals (routing-chains.txt of MLNX_OFED 24.10;
UFM-SDN Appliance 4.18, "Routing Chains"), and of the vendor's headers for sizes of tables. What a
manual forbids, or does not mention, is a violation: nobody can say what the manager does with it.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

TOPOLOGIES = 50
STEPS = 50
STEP_ID = 100
"""Sizes of the vendor's tables: topologies, steps, and the highest id of a step."""

RULE_BYTES = 256
"""The vendor's headers have this size for the text of a rule, with its ending zero."""

RESERVED = re.compile(r"ALL(_.*)?|Default", re.DOTALL)
"""Names of groups that the vendor's OpenSM defines itself."""

DETERMINISTIC = frozenset({"minhop", "updn", "ftree", "pqft"})
"""Engines that the manuals name for a step: one port for each switch and destination."""

ADAPTIVE = frozenset({"ar_updn", "ar_ftree"})
"""Engines of the vendor's OpenSM that give a switch several ports for a destination. No manual
names them for a step, so only a site that has tried them can use them there."""

GROUPS_FILE, TOPOLOGIES_FILE, CHAINS_FILE = "port_groups.conf", "topologies.conf", "chains.conf"
INDEX_FILE, MAIN_FILE = "guid_index.json", "opensm.conf"

_LEVELS = {"leaf": 1, "l2": 2, "spine": 3}
_GUID_PORTS = re.compile(r"0x([0-9a-f]{16})(?:@(\d+(?:-\d+)?(?:/\d+(?:-\d+)?)*))?")
_MAIN_KEYS = {
    "pgrp_policy_file": GROUPS_FILE,
    "topo_policy_file": TOPOLOGIES_FILE,
    "rch_policy_file": CHAINS_FILE,
}
_ENGINE_KEYS = ("root_guid_file", "cn_guid_file")

Group = dict[int, frozenset[int] | None]
"""GUID -> the ports that a group names of it; None if it names the GUID alone, for all ports."""


@dataclass(frozen=True, slots=True)
class ChainTopology:
    """A topology with the contents of its groups."""

    id: int
    switches: Group
    adapters: Group


@dataclass(frozen=True, slots=True)
class ChainStep:
    """A step of the chain; ``roots`` and ``adapters`` are the GUID lists of its engine file."""

    id: int
    engine: str
    topology: int
    fallback_to: int | None
    roots: frozenset[int] | None
    adapters: frozenset[int] | None


@dataclass
class ChainFiles:
    """What the files say, and the violations that reading them showed."""

    violations: list[str] = field(default_factory=list)
    topologies: dict[int, ChainTopology] = field(default_factory=dict)
    """By id."""
    steps: list[ChainStep] = field(default_factory=list)
    """By ascending id: the order in which the manager runs them."""
    levels: dict[int, int] = field(default_factory=dict)
    """Switch GUID -> level: 1 is a leaf, 3 a spine."""
    hosts: dict[tuple[int, int], int] = field(default_factory=dict)
    """(host number, rail) -> port GUID."""


def read(files: Mapping[str, str], *, one_rule: bool = False) -> ChainFiles:
    """Read the chains in the files of a set, by name.

    ``one_rule``: the release of the vendor's OpenSM allows a port group one rule only.
    """
    return _ChainReader(files, one_rule).result


class _ChainReader:
    def __init__(self, files: Mapping[str, str], one_rule: bool) -> None:
        self._files, self._one_rule = files, one_rule
        self.result = ChainFiles()
        self._directory = self._main_directory()
        self._index()
        groups = self._groups()
        self._topologies(groups)
        self._steps()

    def _wrong(self, name: str, text: str) -> None:
        self.result.violations.append(f"chains: {name}: {text}")

    def _text(self, name: str) -> str:
        if name not in self._files:
            self._wrong(name, "the set lacks this file")
        return self._files.get(name, "")

    def _main_directory(self) -> str:
        """The directory of the set, from the paths that the main configuration has or offers."""
        found = {}
        for line in self._text(MAIN_FILE).splitlines():
            key, _, value = line.removeprefix("# ").partition(" ")
            if key in _MAIN_KEYS:
                found[key] = value
        directories = set()
        for key, name in _MAIN_KEYS.items():
            path = found.get(key, "")
            if not path.endswith(f"/{name}"):
                self._wrong(MAIN_FILE, f"{key} does not name {name}")
            directories.add(path.removesuffix(f"/{name}"))
        return max(directories)

    def _index(self) -> None:
        try:
            for key, value in json.loads(self._text(INDEX_FILE)).items():
                if key == "hosts":
                    for place, entry in value.items():
                        host, _, rail = place.partition("/")
                        self.result.hosts[int(host), int(rail or 0)] = int(entry["guid"], 16)
                else:
                    self.result.levels[int(value["guid"], 16)] = _LEVELS[key.partition(":")[0]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._wrong(INDEX_FILE, f"it cannot be read: {error}")

    def _blocks(
        self, name: str, kind: str, keys: frozenset[str], repeated: frozenset[str]
    ) -> Iterator[list[tuple[str, str]]]:
        """The qualifiers of each block of a policy file."""
        block: list[tuple[str, str]] | None = None
        for number, line in enumerate(self._text(name).splitlines(), 1):
            key, separator, value = line.partition(":")
            value = value.strip()
            if line == kind and block is None:
                block = []
            elif line == f"end-{kind}" and block is not None:
                for twice, times in Counter(key for key, _ in block).items():
                    if times > 1 and twice not in repeated:
                        self._wrong(name, f"line {number}: the block has {twice} {times} times")
                yield block
                block = None
            elif block is None or not separator or key not in keys:
                self._wrong(name, f"line {number}: no manual has {line[:60]!r} here")
            elif ":" in value:
                self._wrong(name, f"line {number}: a value has a colon, which ends the policy")
            else:
                block.append((key, value))
        if block is not None:
            self._wrong(name, f"the last {kind} does not end")

    # -- groups and topologies ----------------------------------------------------

    def _groups(self) -> dict[str, Group]:
        rules_of: dict[str, list[tuple[str, str]]] = {}
        kinds = frozenset({"port-guid", "union-rule"})
        for block in self._blocks(
            GROUPS_FILE, "port-group", kinds | {"name", "use"}, repeated=kinds
        ):
            name = dict(block).get("name", "")
            rules = [(key, value) for key, value in block if key in kinds]
            if not name or RESERVED.fullmatch(name) or name in rules_of:
                self._wrong(GROUPS_FILE, f"a group is called {name!r}: no name, reserved or taken")
            if not rules or (self._one_rule and len(rules) > 1):
                allowed = "one rule" if self._one_rule else "at least one rule"
                self._wrong(GROUPS_FILE, f"group {name} has {len(rules)} rules, not {allowed}")
            for key, value in rules:
                if len(f"{key}: {value}".encode()) >= RULE_BYTES:
                    self._wrong(GROUPS_FILE, f"a rule of {name} has {RULE_BYTES} bytes or more")
            rules_of[name] = rules
        known: dict[str, Group] = {}
        return {name: self._group(name, rules_of, known, ()) for name in rules_of}

    def _group(
        self,
        name: str,
        rules_of: Mapping[str, list[tuple[str, str]]],
        known: dict[str, Group],
        inside: tuple[str, ...],
    ) -> Group:
        """The ports of a group; ``known`` are the groups that were read before."""
        if name in known:
            return known[name]
        group: Group = {}
        if name in inside or name not in rules_of:
            self._wrong(GROUPS_FILE, f"group {inside[-1]} joins {name!r}, which is not a group")
            return group
        for key, value in rules_of[name]:
            parts = value.split(", ")
            if key == "union-rule":
                if len(parts) != 2:
                    self._wrong(GROUPS_FILE, f"a union of {name} joins {len(parts)} groups, not 2")
                for part in parts:
                    for guid, ports in self._group(part, rules_of, known, (*inside, name)).items():
                        _add(group, guid, ports)
                continue
            for part in parts:
                match = _GUID_PORTS.fullmatch(part)
                if match is None:
                    self._wrong(GROUPS_FILE, f"group {name}: {part[:60]!r} is no GUID with ports")
                else:
                    _add(group, int(match[1], 16), _numbers(match[2]) if match[2] else None)
        known[name] = group
        return group

    def _topologies(self, groups: Mapping[str, Group]) -> None:
        keys = frozenset({"id", "sw-grp", "hca-grp"})
        topologies = self.result.topologies
        for block in self._blocks(TOPOLOGIES_FILE, "topology", keys, frozenset()):
            given = dict(block)
            id = _number(given.get("id"))
            if given.keys() != keys or id in topologies or not id:
                self._wrong(TOPOLOGIES_FILE, f"topology {given.get('id')}: a key lacks, or the id")
                continue
            for key in ("sw-grp", "hca-grp"):
                if given[key] not in groups:
                    self._wrong(TOPOLOGIES_FILE, f"topology {id}: no group {given[key]!r}")
            switches, adapters = groups.get(given["sw-grp"], {}), groups.get(given["hca-grp"], {})
            topologies[id] = ChainTopology(id, switches, adapters)
        if len(topologies) > TOPOLOGIES or max(topologies, default=0) > TOPOLOGIES:
            self._wrong(TOPOLOGIES_FILE, f"the vendor's OpenSM holds {TOPOLOGIES} topologies")

    # -- steps ----------------------------------------------------------------------

    def _steps(self) -> None:
        keys = frozenset({"id", "engine", "topology", "config", "use", "fallback-to", "path-bit"})
        steps: dict[int, ChainStep] = {}
        for block in self._blocks(CHAINS_FILE, "unicast-step", keys, frozenset()):
            given = dict(block)
            id, topology = _number(given.get("id")), _number(given.get("topology", "0"))
            fallback = given.get("fallback-to")
            if not id or id in steps or topology is None:
                self._wrong(CHAINS_FILE, f"step {given.get('id')}: the id or topology is wrong")
                continue
            if given.get("path-bit", "0") != "0":
                self._wrong(
                    CHAINS_FILE, f"step {id}: a path bit needs an LMC, and the set has none"
                )
            if given.get("engine") not in DETERMINISTIC | ADAPTIVE:
                self._wrong(CHAINS_FILE, f"step {id}: no manual has engine {given.get('engine')!r}")
            lists = self._engine_lists(id, given["config"]) if "config" in given else {}
            steps[id] = ChainStep(
                id,
                given.get("engine", ""),
                topology,
                None if fallback is None else _number(fallback) or 0,
                lists.get("root_guid_file"),
                lists.get("cn_guid_file"),
            )
        if len(steps) > STEPS or max(steps, default=0) > STEP_ID:
            self._wrong(CHAINS_FILE, f"the vendor's OpenSM holds {STEPS} steps, ids to {STEP_ID}")
        self.result.steps = [steps[id] for id in sorted(steps)]

    def _engine_lists(self, step: int, path: str) -> dict[str, frozenset[int]]:
        """The GUID lists of an engine file, by its key."""
        lists: dict[str, frozenset[int]] = {}
        name = self._named(path)
        for line in self._text(name).splitlines():
            key, _, value = line.partition(" ")
            if key not in _ENGINE_KEYS or key in lists:
                self._wrong(name, f"step {step} may not set {line[:60]!r} in its engine file")
                continue
            text = self._text(self._named(value))
            if not re.fullmatch(r"(0x[0-9a-f]{16}\n)+", text):
                self._wrong(self._named(value), "it is not a list of GUIDs, one a line")
            lists[key] = frozenset(int(guid, 16) for guid in re.findall(r"0x[0-9a-f]{16}", text))
        return lists

    def _named(self, path: str) -> str:
        """The name in the set of the file at a path; the path itself if it is outside."""
        return path.removeprefix(f"{self._directory}/")


def _add(group: Group, guid: int, ports: frozenset[int] | None) -> None:
    known = group.get(guid, frozenset())
    group[guid] = None if known is None or ports is None else known | ports


def _numbers(text: str) -> frozenset[int]:
    """Ports of ``1/2/5-7``."""
    numbers: set[int] = set()
    for part in text.split("/"):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), min(int(last or first), 255) + 1))
    return frozenset(numbers)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,9}", text, re.ASCII) else None
