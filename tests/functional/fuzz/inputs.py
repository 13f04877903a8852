# SPDX-License-Identifier: Apache-2.0

"""Invalid inputs: valid texts of each kind, and seeded mutations of them.

A seed gives the same input on every machine: ``spoiled(SEEDS["swf"], 17)``.
"""

from __future__ import annotations

import itertools
import json
from random import Random
from typing import Any

from laas_service.adapters.fabric_import import generator
from laas_service.adapters.fabric_import.ibnetdiscover import render
from laas_service.adapters.snapshot import snapshot
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft

TREES = {
    "one rail": Topology(Xgft((2, 2, 2), (1, 2, 2))),
    "two levels": Topology(Xgft((2, 3, 1), (1, 2, 0))),
}
RAILS = {"xgft": "3;2,2,2;1,2,2", "rails": 2, "hosts": {"1": {"traits": ["gpu"], "cost": 2}}}


def _inhabited(topology: Topology) -> Ledger:
    fabric = Ledger(topology)
    for number, policy in enumerate(("jigsaw", "laas", "ta")):
        admit(POLICIES[policy](), fabric, Request(f"tenant {number}", number + 1))
    fabric.fail_host(topology.hosts - 1)
    fabric.fail_link(LeafLink(0, 1, 1))
    if topology.tree.w[2]:
        fabric.fail_link(SpineLink(0, 0, 1))
    return fabric


def _requests() -> str:
    lines: list[dict[str, Any]] = [
        {"op": "allocate", "id": "a", "hosts": 2},
        {"op": "allocate", "id": "c", "hosts": 4, "container": True},
        {"op": "allocate", "id": "b", "hosts": 2, "parent": "c", "policy": "laas"},
        {"op": "probe", "hosts": 3, "constraints": {"within": "pod", "spread": 1}},
        {"op": "fail", "host": 1},
        {"op": "fail", "leaf_link": [0, 0, 1]},
        {"op": "repair", "spine_link": [0, 0, 1]},
        {"op": "repair-allocation", "id": "a"},
        {"op": "resize", "id": "a", "hosts": 5},
        {"op": "make-room", "hosts": 6, "moves": 1, "apply": True},
        {"op": "withhold", "l2": [1], "spines": []},
        {"op": "allocate", "id": "d", "hosts": 1, "bandwidth": 0.5, "policy": "lc-s"},
        {"op": "release", "id": "a"},
    ]
    return "\n".join(map(json.dumps, lines)) + "\n"


SEEDS: dict[str, tuple[str, ...]] = {
    "dump": tuple(render(generator.inventory(topology)) for topology in TREES.values()),
    "snapshot": tuple(
        json.dumps(snapshot(_inhabited(topology), tables=False)) for topology in TREES.values()
    ),
    "description": ("3;2,2,2;1,2,2", "2;4,3;1,2", json.dumps(RAILS)),
    "swf": (
        "; Version: 2.2\n; MaxNodes: 8\n"
        "1 0 10 100 4 -1 -1 4 200 -1 1 1 1 1 1 1 -1 -1\n"
        "2 5 0 60 -1 -1 -1 2 90 -1 5 1 1 1 1 1 -1 -1\n",
    ),
    "csv": ("id,hosts,arrival,run\n1,2,0,10\n2,4,1.5,20\n",),
    "jsonl": (_requests(),),
}
"""Valid texts by kind."""

PIECES = (
    *("0", "1", "2", "3", "7", "-1", "1.5", "1e3", "1e999", "-0", "00", "0x", "0xffffffffffffffff"),
    *("9" * 20, "9" * 400, "9" * 5000, "18446744073709551616", "NaN", "Infinity", "null", "true"),
    *("\0", "\n", "\r", "\t", " ", ",", ";", ":", '"', "'", "\\", "[", "]", "{", "}", "#", "[1]"),
    *(
        "[" * 3000,
        '{"a":' * 2000,
        "\ud800",
        "\ufeff",
        "\u0661",
        "\u00b2",
        "\u202e",
        "\x85",
        "\u2028",
    ),
    *("S-0002c90200000001", "H-0002c90201000000", "Switch", "Ca", "lid", "../../x", "$(id)", "%s"),
    *("main", "jigsaw", "lc-s", "svc", "kraken", "hosts", "topology", "id", "xgft", "a", "c"),
)
"""Texts that mutations insert."""


def spoiled(seeds: tuple[str, ...], number: int) -> str:
    """One of the texts after one to six mutations; ``number`` is the seed."""
    chance = Random(number)
    text = chance.choice(seeds)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        if text[:1] == "{" and chance.random() < 0.6:
            text = _other_values(text, chance)
        else:
            text = chance.choice(WAYS)(text, chance)
    return text


def _cut(text: str, chance: Random) -> str:
    return text[: chance.randrange(len(text) + 1)]


def _piece(text: str, chance: Random) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(PIECES) + text[at + chance.choice((0, 0, 1, 2, 9)) :]


def _number(text: str, chance: Random) -> str:
    """Replace a number by another piece."""
    spans = [(at, at + len(part)) for at, part in _numbered(text) if part.isdecimal()]
    if not spans:
        return text
    start, end = chance.choice(spans)
    return text[:start] + chance.choice(PIECES) + text[end:]


def _numbered(text: str) -> list[tuple[int, str]]:
    found, at = [], 0
    for digits, group in itertools.groupby(text, str.isdecimal):
        part = "".join(group)
        if digits:
            found.append((at, part))
        at += len(part)
    return found


def _lines(text: str, chance: Random) -> str:
    """Remove, duplicate or move a line."""
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    one = lines.pop(chance.randrange(len(lines)))
    for _ in range(chance.choice((0, 1, 2))):
        lines.insert(chance.randrange(len(lines) + 1), one)
    return "".join(lines)


def _anything(text: str, chance: Random) -> str:
    return "".join(chr(chance.randrange(0x250)) for _ in range(chance.randrange(40)))


def _other_values(text: str, chance: Random) -> str:
    """Change or remove a value, a key or an item of the JSON document on one line."""
    lines = text.splitlines()
    at = chance.randrange(len(lines))
    try:
        document = json.loads(lines[at])
    except (ValueError, RecursionError):
        return text
    places = list(_places(document))
    if not places:
        return text
    holder, key = chance.choice(places)
    match chance.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[chance.choice(PIECES)] = holder.pop(key)
        case 1:
            holder.insert(chance.randrange(len(holder) + 1), holder[key])
        case _:
            holder[key] = chance.choice(VALUES)
    lines[at] = json.dumps(document)
    return "\n".join(lines)


def _places(value: Any) -> Any:
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        yield value, key
        yield from _places(value[key])


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, 4, 8, -1, 10**9, 2**31, 2**63, 2**64, 10**400),
    *(0.0, 0.5, 1.5, -1.0, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", "0", "1", "x", "a", "c", "jigsaw", "lc-s", "up:0", "host", "\0", "\ud800", "x" * 300),
    *([], [0], [0, 0], [0, 0, 0], [1, 1, 1], [-1, 0, 0], [[0, 0, 0]], [None], {}, {"a": 1}, [[[]]]),
)
WAYS = (_cut, _piece, _piece, _number, _number, _number, _lines, _lines, _anything)
