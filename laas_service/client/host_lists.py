# SPDX-License-Identifier: Apache-2.0

"""Hosts as people list them: ``node[001-064]``, ``node[1-3,7],login``, a glob, or a leaf."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from laas_service.client.rest import Refused, Rest
from laas_service.client.usage import did_you_mean

MOST = 65_536
"""Names that one list may expand to."""

LEAF = 1
"""Level of leaves."""


def expanded(text: str) -> list[str]:
    """The names of a list as Slurm and ClusterShell write it, such as ``node[001-003,7],login``.

    Raises:
        Refused: brackets do not match, a range is none, or it has more than ``MOST`` names.
    """
    names: list[str] = []
    for word in re.split(r",(?![^\[]*\])", text):
        for name in _names(text, word):
            names.append(name)
            if len(names) > MOST:
                raise Refused(f"{text}: more than {MOST} hosts; write shorter ranges")
    return names


def _names(text: str, word: str) -> Iterator[str]:
    found = re.fullmatch(r"([^\[\]]*)\[([^\[\]]*)\](.*)", word)
    if found is None:
        if not word or "[" in word or "]" in word:
            raise Refused(f"{text}: {word!r} is no host list; write it such as node[001-064]")
        yield word
        return
    for part in found[2].split(","):
        ends = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if ends is None or int(ends[2] or ends[1]) < int(ends[1]):
            raise Refused(f"{text}: {part!r} is no range; write it such as 001-064")
        for number in range(int(ends[1]), int(ends[2] or ends[1]) + 1):
            middle = f"{found[1]}{number:0{len(ends[1])}}"
            rest = _names(text, found[3]) if found[3] else ("",)
            yield from (middle + end for end in rest)


def chosen(rest: Rest, fabric: str, words: Sequence[str]) -> list[str]:
    """The names of the hosts that are listed, each once, in the order of the list.

    ``fabric`` is its path. A word is a host, a host list, a glob, or the name of a leaf.

    Raises:
        Refused: a word names no host or leaf.
    """
    plain = [name for word in words for name in ([word] if _glob(word) else expanded(word))]
    leaves = {
        name: {tuple(place) for place in leaf["positions"]}
        for leaf in rest.listed(f"{fabric}/switches", "switches", level=LEAF)
        for name in (leaf["name"], leaf["guid"])
    }
    if len(plain) == 1 and not _glob(plain[0]) and plain[0] not in leaves:
        return plain  # the service judges a single name, without a list of all
    hosts = {host["name"]: host for host in rest.listed(f"{fabric}/hosts", "hosts")}
    compute = {host["compute_name"]: name for name, host in hosts.items()}
    found: dict[str, None] = {}
    for name in plain:
        if name in hosts or name in compute:
            found[compute.get(name, name)] = None
        elif _glob(name) and (matching := [host for host in hosts if fnmatchcase(host, name)]):
            found |= dict.fromkeys(matching)
        elif name in leaves:
            found |= dict.fromkeys(_below(hosts, leaves[name]))
        else:
            near = did_you_mean(name, hosts)
            raise Refused(f"{fabric} has no host or leaf {name!r}{near}; nothing was changed")
    return list(found)


def _glob(word: str) -> bool:
    return "*" in word or "?" in word


def _below(hosts: Mapping[str, Any], places: set[tuple[int, ...]]) -> list[str]:
    """The hosts with a port on the leaf that has these places, as (pod, leaf)."""
    return [
        name
        for name, host in hosts.items()
        if any((port["pod"], port["leaf"]) in places for port in host["ports"])
    ]
