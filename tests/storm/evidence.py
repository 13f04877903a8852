# SPDX-License-Identifier: Apache-2.0

"""Evidence for the judge: a snapshot of the tables, the hosts handed over, the published routes.

This module reads them by plain SQL and from plain files, so that it cannot repeat a mistake
of the service's own code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

ALLOCATIONS = """
    select allocation.*, placed, pkey, pkeys, confirmed_by, leaving, phase, bridge, announced,
        faults,
        case when kind = 'container' then 1 else 0 end as container
    from allocation
    left join allocation_placement placement on placement.allocation = allocation.id
    left join allocation_change placement_change on placement_change.allocation = allocation.id
    left join allocation_move placement_move on placement_move.allocation = allocation.id
    left join allocation_faults on allocation_faults.allocation = allocation.id
    order by sequence
"""
"""Rows of allocations with those beside them that judges look at."""

_QUERIES = {
    "allocations": ALLOCATIONS,
    "host_claims": "select fabric, scope, host, allocation, parent from host_claim",
    "link_claims": "select fabric, scope, link, allocation, parent from link_claim",
    "pkey_claims": "select fabric, pkey, allocation from pkey_claim",
    "host_states": "select fabric, host, state from host_state",
    "link_states": "select fabric, link, state from link_state",
    "keys": "select project_id, key, allocation from idempotency",
    "events": "select allocation, state from event order by id",
}
WIDE = "w"
"""The fabric of the expensive questions, which the judge leaves aside: nothing changes there."""

_QUOTED = {"mysql": {"keys": "select project_id, `key`, allocation from idempotency"}}


@dataclass(frozen=True)
class Tables:
    """Rows of all tables in one snapshot."""

    allocations: dict[str, Mapping[str, Any]]
    host_claims: list[Any]
    link_claims: list[Any]
    pkey_claims: list[Any]
    host_states: list[Any]
    link_states: list[Any]
    keys: list[Any]
    events: list[Any]
    aside: frozenset[str] = frozenset()
    """Allocations of the fabric ``WIDE``, which no other table of these has."""


def tables(engine: sa.Engine) -> Tables:
    """Read a snapshot. Raises: sqlalchemy.exc.DBAPIError: the connection was cut; try again."""
    other = _QUOTED.get(engine.dialect.name, {})
    sqlite = engine.dialect.name == "sqlite"  # a transaction reads one state there
    level = {} if sqlite else {"isolation_level": "REPEATABLE READ"}
    with engine.connect().execution_options(**level) as connection, connection.begin():
        rows = {
            name: connection.execute(sa.text(other.get(name, query))).mappings().all()
            for name, query in _QUERIES.items()
        }
    allocations: dict[str, Mapping[str, Any]] = {}
    aside = frozenset(row["id"] for row in rows["allocations"] if row["fabric"] == WIDE)
    for name, all_rows in rows.items():
        rows[name] = [row for row in all_rows if not {row.get("allocation"), row.get("id")} & aside]
    for found in rows.pop("allocations"):
        row = dict(found)
        for column in ("placed", "leaving", "bridge"):
            if isinstance(row[column], str):  # MariaDB returns JSON as text
                row[column] = json.loads(row[column])
        allocations[row["id"]] = row
    tables_of = {name: list(all_of) for name, all_of in rows.items()}
    return Tables(allocations, **tables_of, aside=aside)


def handed_over(state_dir: Path) -> dict[str, tuple[frozenset[str], bool]]:
    """Hosts that compute handed over, and whether they are fenced, by allocation."""
    found: dict[str, tuple[frozenset[str], bool]] = {}
    try:
        journal = (state_dir / "compute" / "journal").read_text()
    except FileNotFoundError:
        return found
    for text in journal.splitlines(keepends=True):
        line = json.loads(text) if text.endswith("\n") else {}
        if line.get("id") is not None:
            found.pop(line["id"], None)
            if tenant := line["tenant"]:
                found[line["id"]] = frozenset(tenant["hosts"]), tenant["fenced"]
    return found


@dataclass(frozen=True)
class Routes:
    """A published set: generation, routed allocations, and tables by switch GUID."""

    generation: int
    tenants: frozenset[str]
    rows: dict[int, bytes]


_SWITCH = re.compile(r"Unicast lids \[0-(\d+)\] of switch Lid \d+ guid (0x[0-9a-f]+)")
_ENTRY = re.compile(r"(0x[0-9a-f]{4}) (\d{3})\b")


def routes(state_dir: Path, fabric: str) -> Routes | None:
    """Read the published routes of a fabric; None before the first publication."""
    current = state_dir / "opensm" / fabric / "current"
    if not current.exists():
        return None
    home = current.resolve()  # the worker may change the symbolic link meanwhile
    manifest = json.loads((home / "manifest.json").read_text())
    rows: dict[int, bytearray] = {}
    row = bytearray()
    for line in (home / "lfts").read_text().splitlines():
        if found := _SWITCH.match(line):
            row = rows[int(found[2], 16)] = bytearray(b"\xff" * (int(found[1]) + 1))
        elif found := _ENTRY.match(line):
            row[int(found[1], 16)] = int(found[2])
    return Routes(
        manifest["generation"],
        frozenset(manifest["tenants"]),
        {guid: bytes(ports) for guid, ports in rows.items()},
    )
