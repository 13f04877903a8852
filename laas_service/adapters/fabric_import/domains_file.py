# SPDX-License-Identifier: Apache-2.0

"""Domains of hosts from files: own JSON, blocks of Slurm and of topograph, aggregates of Nova.

Slurm has blocks in ``topology.yaml`` or, as ``BlockName=`` lines, in ``topology.conf``. Topograph
writes either. Blocks are domains of one kind, which the file does not name. Topograph may cut one
domain into several blocks; a comment ``# BLOCK=DOMAIN`` above each names the domain.

Nova answers ``{"aggregates": [...]}``; ``openstack aggregate list --long -f json`` prints the list.
An aggregate is a domain if it has a property of the kind's name; the value is the domain's name.
"""

import json
import re
from collections.abc import Iterator, Mapping

import yaml  # type: ignore[import-untyped]

from laas_service.adapters.documents import checked_domains
from laas_service.adapters.slurm import expanded
from laas_service.domain.errors import InvalidFile

NamedDomains = dict[str, dict[str, tuple[str, ...]]]
"""By kind and name the names of the hosts of each domain."""

_BLOCK = re.compile(r"^\s*BlockName=(\S+)\s(?:.*\s)?Nodes=(\S+)", re.IGNORECASE)

_NAME = re.compile(r"^\s*#\s*([^\s=]+)=(\S+)\s*$")

_FIX = (
    'give {"KIND": {"DOMAIN": ["HOST", ...]}}, or blocks of Slurm in the form of topology.yaml or '
    "topology.conf"
)


def read_domains(text: str, source: str, kind: str) -> NamedDomains:
    """The domains of a file; ``kind`` is that of Slurm's blocks. Errors name ``source``.

    Raises:
        InvalidFile: it has another form, or a list of hosts that Slurm does not know.
    """
    if blocks := list(_lines(text, source)):
        return {kind: _together(blocks, source)}
    try:
        document = yaml.safe_load(text)  # JSON is YAML
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        raise InvalidFile(source, mark.line + 1 if mark else 1, _FIX) from error
    if isinstance(document, Mapping) and isinstance(document.get("aggregates"), list):
        document = document["aggregates"]
    if isinstance(document, list) and any(_is_aggregate(one) for one in document):
        return {kind: _together(list(_aggregates(document, source, kind)), source)}
    if isinstance(document, list):
        return {kind: _together(list(_blocks(document, source)), source)}
    if not isinstance(document, Mapping):
        raise InvalidFile(source, 1, _FIX)
    return checked_domains(json.loads(json.dumps(document, default=str)))


def _lines(text: str, source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    names: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if named := _NAME.match(line):
            names[named[1]] = named[2]
        if found := _BLOCK.match(line.partition("#")[0] + " "):
            try:
                yield names.get(found[1], found[1]), expanded(found[2])
            except ValueError as error:
                raise InvalidFile(source, number, str(error)) from error


def _blocks(topologies: list[object], source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for topology in topologies:
        block = topology.get("block") if isinstance(topology, Mapping) else None
        for one in (block or {}).get("blocks", ()) if isinstance(block or {}, Mapping) else ():
            name, nodes = (
                (one.get("block"), one.get("nodes")) if isinstance(one, Mapping) else 2 * (None,)
            )
            if isinstance(name, str) and not nodes:
                continue  # topograph fills up with blocks without nodes
            if not isinstance(name, str) or not isinstance(nodes, str):
                raise InvalidFile(source, 1, "each block has a name (block) and a list (nodes)")
            try:
                yield name, expanded(nodes)
            except ValueError as error:
                raise InvalidFile(source, 1, f"block {name}: {error}") from error


def _is_aggregate(one: object) -> bool:
    return isinstance(one, Mapping) and {"name", "hosts"} <= {str(key).lower() for key in one}


def _aggregates(
    found: list[object], source: str, kind: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Of those with a property of the kind's name: its value, and the hosts."""
    for one in found:
        if not isinstance(one, Mapping) or not _is_aggregate(one):
            raise InvalidFile(source, 1, "each aggregate has a name and hosts")
        fields = {str(key).lower(): value for key, value in one.items()}
        properties = fields.get("properties", fields.get("metadata")) or {}
        if not isinstance(properties, Mapping) or kind not in properties:
            continue
        hosts = fields["hosts"] or []
        if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
            raise InvalidFile(source, 1, f"aggregate {fields['name']}: hosts is a list of names")
        yield str(properties[kind]), tuple(hosts)


def _together(blocks: list[tuple[str, tuple[str, ...]]], source: str) -> dict[str, tuple[str, ...]]:
    if not blocks:
        raise InvalidFile(source, 1, f"it has no block, and no aggregate of the kind; {_FIX}")
    named: dict[str, tuple[str, ...]] = {}
    for name, hosts in blocks:
        named[name] = named.get(name, ()) + hosts
    return named
