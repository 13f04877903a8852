# SPDX-License-Identifier: Apache-2.0

"""Checks a set of files that was fetched before it may become current.

Every file is parsed strictly and composed anew from the numbers and names that were parsed, as
releases of the manifest's form compose it: what was fetched has to be the same, byte for byte. The
files must agree with each other, and the sha256 of each tenant's entries in the manifest must be
that of the entries in the tables.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from itertools import count, takewhile, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from laas_service.domain.errors import InvalidFile
from laas_service.domain.inventory import ADAPTER_PORT
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.domain.wording import listed
from laas_service.messages import PKEYS
from opensm_writer import fileset, parse, render
from opensm_writer.desired import (
    MAX_LID,
    MAX_STEPS,
    SAFE_NAME,
    Chains,
    Partition,
    guid_text,
    partition_name,
)
from opensm_writer.fileset import FORMS, INCLUDED, MANIFEST, Manifest

ALWAYS = frozenset({"lfts", "guid2lid", "partitions.conf", "opensm.conf", "guid_index.json"})
OPTIONAL = frozenset({"cabling"})
"""Sets of releases that do not observe cables lack these files."""
CHAINS = frozenset({"port_groups.conf", "topologies.conf", "chains.conf"})

MAX_GENERATION = 2**63 - 1
MAX_SHOWN = 100
"""Characters of a wrong value that an error text shows."""

ENGINES = frozenset({"updn", "ftree"})
"""The routing engines that a step may name."""

MOVING = "minhop"
"""The engine of the step of a tenant that moves, where routing chains are enforced."""

_HOST = re.compile(r"[0-9]{1,9}(?:/[0-9]{1,3})?")
_SWITCH = re.compile(r"(?:leaf|l2|spine):[0-9]{1,9}:[0-9]{1,9}")
_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_ENGINE = re.compile(rf"(?:base|plane|engines/{SAFE_NAME.pattern})\.(?:conf|roots|cn)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_FILES = len(ALWAYS | OPTIONAL | CHAINS) + 3 * MAX_STEPS
"""Each step has an engine file and up to two lists of GUIDs."""

_PRINTS = {"depends", "entries"}


def manifest(document: Any, fabric: str) -> Manifest:
    """The manifest in a document that was fetched.

    Every text in it has a known form: one line of printable ASCII of bounded length.

    Raises:
        InvalidFile: a field is missing or has another form, the fabric is another one, or the
            names of files are not those of a set.
    """
    form = document.get("form", 4) if isinstance(document, dict) else 4
    forms = {known for known in FORMS if known <= fileset.FORM}
    if type(form) is not int or form not in forms:
        known = listed(sorted(map(str, forms)))
        raise _wrong(f"its form is {_shown(form)}; this agent knows {known}: upgrade the agent")
    if not isinstance(document, dict) or set(document) != set(FORMS[form]):
        raise _wrong(f"it has {', '.join(FORMS[form])} and no other keys")
    stamp = document.get("stamp", fileset.NO_STAMP)
    named, generation, digests, chains, tenants = (document[key] for key in FORMS[4])
    if not isinstance(stamp, str) or not fileset.STAMP.fullmatch(stamp):
        raise _wrong(f"{_shown(stamp)} is not a stamp")
    if named != fabric or not SAFE_NAME.fullmatch(fabric):
        raise _wrong(f"it is of fabric {_shown(named)}, not of {fabric!r}")
    if type(generation) is not int or not 1 <= generation <= MAX_GENERATION:
        raise _wrong(f"{_shown(generation)} is not a generation")
    if not isinstance(chains, str) or not fileset.CHAINS.fullmatch(chains):
        raise _wrong("chains are 'included', or 'omitted: ' and a short line with the reason")
    if not isinstance(digests, dict) or len(digests) > MAX_FILES:
        raise _wrong(f"files is a map from names to sha256 with at most {MAX_FILES} names")
    _check_names(digests, chains)
    if (
        not isinstance(tenants, dict)
        or len(tenants) > len(PKEYS)
        or not all(
            SAFE_NAME.fullmatch(name) and isinstance(prints, dict) and prints.keys() == _PRINTS
            for name, prints in tenants.items()
        )
    ):
        raise _wrong("tenants is a map from ids to depends and entries, at most one for each key")
    for value in (*digests.values(), *(v for prints in tenants.values() for v in prints.values())):
        if not isinstance(value, str) or not _SHA256.fullmatch(value):
            raise _wrong(f"{_shown(value)} is not a sha256")
    return Manifest(fabric, generation, digests, chains, tenants, fileset.known_stamp(stamp), form)


def _check_names(names: Collection[str], chains: str) -> None:
    required = ALWAYS | CHAINS if chains == INCLUDED else ALWAYS
    for name in names:
        engine = chains == INCLUDED and _ENGINE.fullmatch(name)
        if name not in required | OPTIONAL and not engine:
            raise _wrong(f"{_shown(name)} is not a file of a set")
    if missing := sorted(required - set(names)):
        raise _wrong(f"{listed(missing)} missing")


def check(
    directory: Path,
    manifest: Manifest,
    home: Path,
    known: Mapping[bytes, parse.SwitchTable] | None = None,
    switches: Collection[int] = (),
    enforcement: str = "file",
) -> tuple[parse.SwitchTable, ...]:
    """Check a set; its tables in the order of the file.

    ``home`` is the directory from which OpenSM will read the set. ``known`` is described at
    ``parse.switch_tables``. ``switches`` are GUIDs of the switches in the fabric, empty if they
    are not known; a set that has none of them is for another fabric. ``enforcement`` is what the
    set has to switch on.

    Raises:
        InvalidFile: names the file and, if a line is wrong, the line.
    """
    _check_files(directory, manifest)
    try:
        return _check(_Texts(directory), manifest, home, known or {}, switches, enforcement)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidFile(directory.name, 1, f"a file cannot be parsed: {error!r}") from error


def _check_files(directory: Path, manifest: Manifest) -> None:
    """Check that the directory has exactly the files of the manifest, undamaged, and no link."""
    paths = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*")}
    for name, path in paths.items():
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise InvalidFile(name, 1, "this is not a regular file")
    files = {name for name, path in paths.items() if path.is_file()} - {MANIFEST}
    for name in sorted(files ^ manifest.files.keys()):
        why = "the file is missing" if name not in files else "the manifest does not name it"
        raise InvalidFile(name, 1, why)
    for name in fileset.damaged(directory, manifest, unread=(render.TABLES,)):
        raise InvalidFile(name, 1, "its sha256 is not the one in the manifest")


class _Texts:
    """The files by name, decoded as UTF-8 without translation of line ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __getitem__(self, name: str) -> str:
        return (self.directory / name).read_bytes().decode()


def _check(
    texts: _Texts,
    manifest: Manifest,
    home: Path,
    known: Mapping[bytes, parse.SwitchTable],
    switches: Collection[int],
    enforcement: str,
) -> tuple[parse.SwitchTable, ...]:
    if enforcement == "chains" and manifest.chains != INCLUDED:
        raise _wrong(f"it has no routing chains: {_shown(manifest.chains)}")
    lids = parse.guid2lid(texts["guid2lid"], "guid2lid")
    if not all(1 <= lid <= MAX_LID for lid in lids.values()):
        raise InvalidFile("guid2lid", 1, f"LIDs lie in 1..{MAX_LID:#x}")
    _check_composed("guid2lid", texts["guid2lid"], render.guid2lid(lids))
    checked = fileset.checked_tables(texts.directory, manifest, known)
    by_guid = parse.by_guid(checked, lids, render.TABLES)
    if not by_guid:
        raise InvalidFile("lfts", 1, "it has no switch")
    if next(iter(by_guid.values())).bare is not (manifest.form == fileset.BARE):
        raise InvalidFile("lfts", 1, f"its entries are not those of form {manifest.form}")
    if switches and not by_guid.keys() & set(switches):
        raise InvalidFile("lfts", 1, "none of its switches is in this fabric")
    tables = tuple(by_guid.values())
    _check_index(texts["guid_index.json"], lids)
    _check_fragment(texts["opensm.conf"], manifest, home, enforcement)
    if manifest.chains == INCLUDED:
        _check_chains(texts, manifest, home, enforcement)
    _check_tenants(texts["partitions.conf"], home, manifest, lids, tables)
    if "cabling" in manifest.files:
        _check_cabling(texts["cabling"], lids, by_guid)
    return tables


def _check_index(text: str, lids: Mapping[int, int]) -> None:
    index = json.loads(text)
    if json.dumps(index, indent=1) + "\n" != text:
        raise InvalidFile("guid_index.json", 1, "it is not in the form that this release writes")
    known = {guid_text(guid): lid for guid, lid in lids.items()}
    switches = {key: entry for key, entry in index.items() if key != "hosts"}
    for form, entries in ((_HOST, index["hosts"]), (_SWITCH, switches)):
        for key, entry in entries.items():
            if not form.fullmatch(key) or entry.keys() != {"guid", "lid"}:
                raise InvalidFile("guid_index.json", 1, f"{_shown(key)} is no entry of an index")
            if type(entry["lid"]) is not int or known.get(entry["guid"]) != entry["lid"]:
                raise InvalidFile("guid_index.json", 1, f"{_shown(entry)} contradicts guid2lid")


def _check_cabling(text: str, lids: Mapping[int, int], switches: Collection[int]) -> None:
    """Check that the ends of all cables are switches of ``lfts``, or adapters with a LID."""
    cables = parse.cabling(text, "cabling")
    _check_composed("cabling", text, render.cabling(cables))
    for number, ends in enumerate(cables, 1):
        for guid, port in ends:
            if guid not in lids or (guid in switches) == (port == ADAPTER_PORT):
                raise InvalidFile("cabling", number, f"{guid:#018x} contradicts the tables")


def _check_fragment(text: str, manifest: Manifest, home: Path, enforcement: str) -> None:
    """Check that the fragment equals, byte for byte, one that is rendered here."""
    chains = manifest.chains == INCLUDED
    accepted = [
        "".join(
            render.fragment(
                render.Settings(str(home), enforcement, multicast, level=level), chains=chains
            )
        )
        for level in range(8)
        for multicast in (False, True)
    ]
    if text in accepted:
        return
    pairs = enumerate(zip(text.splitlines(), accepted[0].splitlines(), strict=False), 1)
    line, (fetched, expected) = next(
        ((number, pair) for number, pair in pairs if pair[0] != pair[1]), (1, ("", ""))
    )
    raise InvalidFile(
        "opensm.conf",
        line,
        f"{_shown(fetched)} is not {expected!r}; [opensm] directory must be the same for the "
        f"service and the agent, and enforcement must be {enforcement}",
    )


def _check_composed(name: str, text: str, *accepted: Iterable[str]) -> None:
    """Check that a file equals, byte for byte, one of the texts that are composed here."""
    expected = ["".join(pieces) for pieces in accepted]
    if text in expected:
        return
    pairs = enumerate(zip_longest(text.split("\n"), expected[0].split("\n"), fillvalue=""), 1)
    line, fetched = next((number, pair[0]) for number, pair in pairs if pair[0] != pair[1])
    raise InvalidFile(name, line, f"{_shown(fetched)} is not what this release writes")


def _check_chains(texts: _Texts, manifest: Manifest, home: Path, enforcement: str) -> None:
    groups = parse.port_groups(texts["port_groups.conf"], "port_groups.conf")
    parts = parse.topologies(texts["topologies.conf"], "topologies.conf")
    names = {group.name for group in groups}
    if wrong := sorted(name for name in names if not _GROUP.fullmatch(name)):
        raise InvalidFile("port_groups.conf", 1, f"{_shown(wrong[0])} is not the name of a group")
    if not {name for part in parts for name in (part.switches, part.adapters)} <= names:
        raise InvalidFile("topologies.conf", 1, "a group is not in port_groups.conf")
    steps = parse.chain(texts["chains.conf"], "chains.conf", str(home))
    if not {step.topology for step in steps} <= {0, *(part.id for part in parts)}:
        raise InvalidFile("chains.conf", 1, "a topology is not in topologies.conf")
    moving = {(MOVING, part.id) for part in parts if enforcement == "chains"}
    named = {(step.engine, step.topology) for step in steps} - moving
    if wrong := sorted({engine for engine, _ in named} - ENGINES):
        raise InvalidFile("chains.conf", 1, f"{_shown(wrong[0])} is not an engine of a step")
    engines = manifest.files.keys() - ALWAYS - OPTIONAL - CHAINS
    if wrong := sorted({step.config for step in steps} - engines):
        raise InvalidFile("chains.conf", 1, f"{_shown(wrong[0])} is not a file of this set")
    lists = {name for name in engines if name[-5:] != ".conf"}
    stems = {step.config.removesuffix(".conf") for step in steps}
    for name in sorted(engines):
        if name.rpartition(".")[0] not in stems:
            raise InvalidFile(name, 1, "no step of chains.conf uses it")
    values = Chains(
        groups, parts, steps, {name: parse.guid_list(texts[name], name) for name in lists}
    )
    ways = [
        render.chain_files(values, render.Settings(str(home), one_rule_per_group=one_rule))
        for one_rule in (False, True)
    ]
    for name in ways[0]:
        _check_composed(name, texts[name], *(way[name] for way in ways))


def _check_tenants(
    text: str,
    home: Path,
    manifest: Manifest,
    lids: Mapping[int, int],
    tables: tuple[parse.SwitchTable, ...],
) -> None:
    """Check the partition of every tenant, and its entries against the manifest."""
    name = "partitions.conf"
    parsed = parse.partitions(text, name)
    settings = render.Settings(
        str(home),
        multicast=parsed.multicast,
        services=parsed.services,
        level=parsed.level,
    )
    _check_composed(name, text, render.partitions(parsed.partitions, settings))
    partitions = {partition.name: partition for partition in parsed.partitions}
    of_tenant = {tenant: _of_tenant(tenant, partitions) for tenant in manifest.tenants}
    known = [partition for several in of_tenant.values() for partition in several]
    if len(known) != len(partitions) or not all(of_tenant.values()):
        raise InvalidFile(name, 1, "its tenants are not those of the manifest")
    if len({p.pkey for p in partitions.values()}) != text.count("defmember=full"):
        raise InvalidFile(name, 1, "a name or key occurs twice")
    if not all(partition.pkey in PKEYS for partition in parsed.partitions):
        raise InvalidFile(name, 1, f"keys of tenants lie in {PKEYS[0]:#x}..{PKEYS[-1]:#x}")
    members = [guid for partition in known for guid in partition.members]
    if len(set(members)) != len(members):
        raise InvalidFile(name, 1, "a GUID is in two partitions")
    no_route, length = bytes([NO_ROUTE]), max(lids.values()) + 1
    ordered = sorted(tables, key=lambda table: table.guid)
    rows = b"".join(table.row.ljust(length, no_route) for table in ordered)
    matrix = np.frombuffer(rows, np.uint8).reshape(len(ordered), length)
    for tenant, prints in manifest.tenants.items():
        digests = []
        for partition in of_tenant[tenant]:
            ports = [guid for guid in partition.members if guid in lids]  # others are virtual
            entries = matrix[:, [lids[guid] for guid in ports]]
            digests.append(hashlib.sha256(entries.tobytes()).hexdigest())
        if fileset.combined(digests) != prints["entries"]:
            raise InvalidFile("lfts", 1, f"entries of tenant {tenant} are not the manifest's")


def _of_tenant(tenant: str, partitions: Mapping[str, Partition]) -> list[Partition]:
    """The partitions of a tenant in the order of its rails."""
    names = (partition_name(tenant, number) for number in count())
    return [partitions[name] for name in takewhile(partitions.__contains__, names)]


def _shown(value: object) -> str:
    """A wrong value for an error text: one line of at most about ``MAX_SHOWN`` characters."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _wrong(why: str) -> InvalidFile:
    return InvalidFile(MANIFEST, 1, why)
