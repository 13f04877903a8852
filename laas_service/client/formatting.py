# SPDX-License-Identifier: Apache-2.0

"""Formatting for terminals: the columns of lists, and values as short texts."""

import json
from collections.abc import Sequence
from typing import Any

COLUMNS: dict[str, tuple[str, ...]] = {
    "fabrics": ("id", "shape", "generation", "created_at"),
    "hosts": (
        *("name", "state", "reason", "source", "owner", "index", "domains", "compute_name"),
        "traits",
        *("cost", "ports"),
    ),
    "links": (
        *("id", "state", "since", "reason", "evidence", "source", "by", "owner", "crossed_by"),
        *("why", "lower", "upper"),
    ),
    "promises": (
        *("link", "direction", "allocation", "bandwidth", "promised", "mean", "deviation"),
        *("outage", "state", "measured"),
    ),
    "switches": ("name", "state", "reason", "source", "level", "guid", "ports", "lid", "positions"),
    "agents": ("name", "condition", "seen_at", "detail", "role", "generation", "published"),
    "history": ("number", "at", "state", "reason", "seconds"),
    "allocations": (
        *("id", "name", "state", "updated_at", "error", "degraded", "requested", "position"),
        *("shape", "confirmed_by", "policy", "parent", "project_id"),
    ),
}
"""Columns of each list, by the name of its items in REST: first how it is."""

KEPT = frozenset(("id", "name", "state", "condition", "since", "updated_at", "error", "detail"))
"""Columns that no table leaves out."""

FOR_A_PERSON = frozenset(
    (
        *("error", "failed", "absent", "quarantined", "differs", "other_engine", "wrong_keys"),
        *("wrong_settings", "dead", "wedged", "refused", "blind"),
    )
)
"""States and conditions that need a person; tables mark them."""

MARK = "! "

GROUPS: dict[str, tuple[str, ...]] = {
    "": (
        *("id", "name", "state", "updated_at", "error", "degraded", "position", "waits_for"),
        *("changing", "announced"),
    ),
    "what": (
        *("class", "requested", "slots", "bandwidth", "deviation", "risk", "container", "parent"),
        *("sharing", "policy", "constraints", "project_id", "fabric", "created_at", "duration"),
        *("expected_end", "movable", "notice", "move_cost"),
    ),
    "where": (
        *("shape", "hosts", "links", "joining", "leaving", "bridge", "pkey", "pkeys"),
        *("rails_joined", "cost"),
    ),
    "how it is": (),
    "history": ("history",),
}
"""The fields of an allocation as a table shows them; those not named here are how it is."""


def grouped(shown: dict[str, Any]) -> dict[str, Any]:
    """The fields that have a value, in their groups, each below its name in capitals."""
    full = {name: value for name, value in shown.items() if value not in (None, [], {}, "")}
    named = {name for group in GROUPS.values() for name in group}
    rows: dict[str, Any] = {}
    for title, group in GROUPS.items():
        names = group or [name for name in full if name not in named]
        found = {name: full[name] for name in names if name in full}
        rows.update({**({title.upper(): ""} if title and found else {}), **found})
    return rows


def marked(item: dict[str, Any]) -> dict[str, Any]:
    """The item with a mark at its state if that, or an error beside it, needs a person."""
    field = "condition" if "condition" in item else "state"
    if item.get(field) in FOR_A_PERSON or (field in item and item.get("error")):
        return {**item, field: f"{MARK}{item[field]}"}
    return item


LEFT_OUT_FIRST = (
    *("seconds", "project_id", "positions", "lid", "index", "ports", "policy", "published"),
    *("compute_name", "by", "parent", "cost", "confirmed_by", "source", "level", "seen_at"),
    *("created_at", "shape", "evidence", "traits"),
)
"""Columns that a table leaves out, in this order, if the terminal is too narrow for all."""

SHORTENED = ("id", "owner", "parent", "allocation")
"""Columns with ids of allocations, of which a narrow table shows the first characters."""

SHORTEST_ID = 8
"""Characters of an id that a narrow table shows, or more if two ids in it begin with the same."""


def shortened(ids: Sequence[str]) -> list[str]:
    """The first characters of ids, as many as tell them apart; other cells as they are."""
    known = {cell for cell in ids if cell != "-"}
    size = SHORTEST_ID
    while len({cell[:size] for cell in known}) < len(known):
        size += 1
    return [cell[:size] if cell in known else cell for cell in ids]


def brief(value: Any) -> str:
    """A value of an answer as a short text for a table; ``--json`` prints the full value."""
    return printable(_brief(value))


def lines(value: Any) -> str:
    """A value for a program that reads lines: of a list each item on a line, names for objects."""
    match value:
        case None:
            return ""
        case list():
            return "\n".join(lines(item) for item in value)
        case {"text": str(text)} | {"detail": str(text)}:
            return printable(text)
        case {"name": str(name)} | {"id": str(name)}:
            return printable(name)
        case dict():
            return json.dumps(value)
        case _:
            return printable(str(value))


def printable(text: str) -> str:
    """The text with each character but line ends that is not printable as an escape."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _brief(value: Any) -> str:
    match value:
        case None:
            return "-"
        case {"since": since, "text": text}:
            return f"{text} ({since})"
        case {"text": text}:
            return str(text)
        case {"thin": _, "detail": detail}:
            return str(detail)
        case {"m": m, "w": w, "rails": rails}:
            tree = f"XGFT(3; {','.join(map(str, m))}; {','.join(map(str, w))})"
            return tree if rails == 1 else f"{tree}, {rails} rails"
        case {"user_id": user, "request_id": request}:
            return f"{user} ({request})"
        case {"by": by, "at": at, "generation": generation}:
            return f"{by}, generation {generation}, {at}"
        case {"routes": routes, "keys": keys}:
            return f"routes: {brief(routes)}\nkeys: {brief(keys)}"
        case {"bandwidth": bandwidth, "seconds": _, "at": _}:
            return str(bandwidth)
        case {"guid": guid, "port": port}:
            return f"{guid}/{port}"
        case dict():
            return ", ".join(f"{key} {brief(item)}" for key, item in value.items()) or "-"
        case [{"rail": _}, *_]:
            return " ".join(f"{p['pod']}:{p['leaf']}:{p['k']}" for p in value)
        case [{"project_id": _, "hosts": _}, *_]:
            return "\n".join(
                f"{owner['name']} ({owner.get('id') or owner['allocation']}) "
                f"of {owner['project_id']}: {brief(owner['hosts'])}"
                for owner in value
            )
        case [{"risk": _, "tenants": _}, *_]:
            return "\n".join(
                f"risk {r['risk']:g}: {r['tenants']} tenants{' or more' if r['more'] else ''}"
                for r in value
            )
        case [{"free": _, "allocated": _}, *_]:
            return "\n".join(
                f"{fabric['id']}: {fabric['free']} of {fabric['total']} hosts free, "
                f"{fabric['failed']} failed, {fabric['drained']} drained; "
                + ", ".join(f"{n} {s}" for s, n in fabric["allocations"].items() if n)
                for fabric in value
            )
        case [str(text), *_] if " " in text:
            return "\n".join(value)
        case [{"index": _, "name": _}, *_]:
            return " ".join(host["name"] for host in value)
        case [{"policy": _, "largest": _}, *_]:
            return "\n".join(
                f"{c['policy']}: largest {c['largest_before']} -> {c['largest']}, hosts beyond a "
                f"leaf {c['beyond_leaf_before']} -> {c['beyond_leaf']}"
                for c in value
            )
        case [{"condition": _, "evidence": _}, *_]:
            return "\n".join(
                f"{link['id']} {link['condition']} since {link['since']}: {link['evidence']}"
                for link in value
            )
        case [{"guid": _, "state": _, "since": _}, *_]:
            return "\n".join(f"{s['name']} {s['state']} since {s['since']}" for s in value)
        case [{"at": _, "text": _}, *_]:
            return "\n".join(f"{news['at']} {news['text']}" for news in value)
        case [{"guid": _, "name": _}, *_]:
            return " ".join(switch["name"] for switch in value)
        case [{"at": _}, *_]:
            return "\n".join(f"{e['at']} {e['state']}: {e['reason']}" for e in value)
        case list():
            return " ".join(brief(item) for item in value) or "-"
        case _:
            return str(value)


BULKY = ("leaf_links", "spine_links")
"""Fields for programs that a table leaves out; ``links`` says the same in words."""
