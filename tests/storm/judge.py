# SPDX-License-Identifier: Apache-2.0

"""Judge of the storm: compares ownership in journals, record, compute and published routes.

Every function returns sentences about problems; an empty list means that there are none. The
judge uses topology and inventory of the service, the columns of its tables and the formats of
its published files, and no other code of the service.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

from laas_service.domain.inventory import Inventory
from laas_service.domain.topology import Topology, link_name
from tests.storm.evidence import Routes, Tables
from tests.storm.journal import Journal
from tests.walks import Walks

HOLDING = {"allocating", "active", "releasing", "error"}
FOLLOWS = {
    "queued": {"queued", "allocating", "released"},
    "allocating": {"allocating", "active", "releasing", "error"},
    "active": {"active", "releasing", "error"},
    "releasing": {"releasing", "released", "error"},
    "error": {"error", "allocating", "active", "releasing"},
    "released": set(),
}
"""States that may follow a state in the history of an allocation."""

Fabrics = Mapping[str, tuple[Topology, Inventory]]


# -- at every moment ---------------------------------------------------------------------


def claim_problems(seen: Tables, fabrics: Fabrics) -> list[str]:
    """Double owners, leaks, and differences between placements and claims in one snapshot."""
    found = [
        *_double("host", seen.host_claims),
        *_double("link", seen.link_claims),
        *_beyond("host", seen.host_claims),
        *_beyond("link", seen.link_claims),
        *_stories(seen),
    ]
    keys: dict[tuple[str, int], list[str]] = defaultdict(list)
    for row in seen.pkey_claims:
        keys[row["fabric"], row["pkey"]].append(row["allocation"])
    found += [f"partition key {key} is owned by {ids}" for key, ids in keys.items() if ids[1:]]
    claimed = {
        what: _by_owner(what, rows)
        for what, rows in (("host", seen.host_claims), ("link", seen.link_claims))
    }
    for id, row in seen.allocations.items():
        hosts, links = _placed(row, fabrics[row["fabric"]][0])
        if row["state"] in HOLDING and len(hosts) < row["hosts"]:
            found.append(f"{id} asked for {row['hosts']} hosts and has {len(hosts)}")
        for what, wanted in (("host", hosts), ("link", links)):
            have = claimed[what].pop(id, set())
            if row["state"] not in HOLDING and have:
                found.append(f"leak: {id} is {row['state']} and holds {what}s {sorted(have)}")
            elif have != wanted:
                found.append(f"{id}: placed on {what}s {sorted(wanted)}, claims {sorted(have)}")
    for what, owners in claimed.items():
        found += [f"leak: {what}s of {id}, which is not recorded" for id in owners]
    return found


def _double(what: str, rows: Iterable[Any]) -> Iterator[str]:
    owners: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for row in rows:
        owners[row["fabric"], row["scope"], row[what]].append(row["allocation"])
    for (fabric, _, number), ids in owners.items():
        if len(ids) > 1:
            yield f"double owner: {what} {number} of {fabric} is owned by {' and by '.join(ids)}"


def _beyond(what: str, rows: list[Any]) -> Iterator[str]:
    """Claims of children that their containers do not hold."""
    outer = {(row["allocation"], row[what]) for row in rows}
    for row in rows:
        if row["scope"] and (row["scope"], row[what]) not in outer:
            yield f"{row['allocation']} has {what} {row[what]}, which {row['scope']} has not"


def _by_owner(what: str, rows: Iterable[Any]) -> dict[str, set[int]]:
    owned: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        owned[row["allocation"]].add(row[what])
    return owned


def _placed(row: Mapping[str, Any], topology: Topology) -> tuple[set[int], set[int]]:
    """Numbers of hosts and links in the masks of an allocation's placements, without rails."""
    (m1, _, _), (_, w2, w3) = topology.tree.m, topology.tree.w
    spines = topology.tree.m[1] * topology.tree.m[2] * w2
    hosts, links = set(), set()
    for placed in filter(None, (row["placed"], row["leaving"], row["bridge"])):
        for leaf, slots, ups in placed["groups"]:
            hosts |= {leaf * m1 + position for position in _bits(slots)}
            links |= {leaf * w2 + up for up in _bits(ups)}
        for pod, column, ups in placed["columns"]:
            links |= {spines + (pod * w2 + column) * w3 + up for up in _bits(ups)}
    return hosts, links


def _bits(mask: str) -> list[int]:
    number = int(mask, 16)
    return [at for at in range(number.bit_length()) if number >> at & 1]


def _stories(seen: Tables) -> Iterator[str]:
    """Forbidden transitions, and histories that end in another state than the record."""
    stories: dict[str, list[str]] = defaultdict(list)
    for row in seen.events:
        stories[row["allocation"]].append(row["state"])
    for id, row in seen.allocations.items():
        story = stories.pop(id, [])
        for before, after in pairwise(story):
            if after not in FOLLOWS[before]:
                yield f"{id} became {after} after {before}"
        if not story or story[-1] != row["state"]:
            yield f"{id} is {row['state']}, and its story ends with {story[-1:]}"
    yield from (f"a story of {id}, which is not recorded" for id in stories)


def published_problems(state_dir: Path, fabric: str, known: dict[int, bytes]) -> list[str]:
    """A published generation that is older than one before, or was another one before.

    ``known`` are the manifests seen so far by generation; the present one is added.
    """
    manifest = state_dir / "opensm" / fabric / "current" / "manifest.json"
    try:
        present = manifest.read_bytes()
    except FileNotFoundError:
        return []
    number = json.loads(present)["generation"]
    found = []
    if known and number < max(known):
        found.append(f"{fabric}: generation {number} was published after {max(known)}")
    if known.setdefault(number, present) != present:
        found.append(f"{fabric}: generation {number} was published twice, and differs")
    return found


# -- while the clients rest ----------------------------------------------------------------


def told_problems(seen: Tables, journals: Iterable[Journal], fabrics: Fabrics) -> list[str]:
    """Differences between the acknowledged allocations, keys and states and the record."""
    journals = list(journals)
    told = {id: one for journal in journals for id, one in journal.told.items()}
    found = [f"{id} is recorded, and nobody was told" for id in seen.allocations.keys() - told]
    for id, one in told.items():
        row = seen.allocations.get(id)
        if row is None:
            found.append(f"lost: {id} was acknowledged ({one.key})")
            continue
        recorded = (row["fabric"], row["name"], row["hosts"], row["parent"], bool(row["container"]))
        if recorded != (one.fabric, one.name, one.hosts, one.parent, one.container):
            found.append(f"{id} is recorded as {recorded}, told {one}")
        if one.live == (row["state"] in ("releasing", "released")):
            found.append(f"{id} is {row['state']}, told {'live' if one.live else 'released'}")
    keys = {row["key"]: row["allocation"] for row in seen.keys}
    found += [
        f"key {one.key} is {keys.get(one.key)}, not {id}"
        for id, one in told.items()
        if keys.get(one.key) != id
    ]
    refused = {key for journal in journals for key in journal.refused}
    found += [f"key {key} was refused, and is {keys[key]}" for key in refused & keys.keys()]
    return found + _place_problems(seen, journals, fabrics)


def _place_problems(seen: Tables, journals: list[Journal], fabrics: Fabrics) -> list[str]:
    wanted = {
        place: state
        for journal in journals
        for place, state in journal.down.items()
        if state != "up"
    }
    there = recorded_places(seen, fabrics)
    return [
        f"{place} is {there.get(place, 'up')}, told {wanted.get(place, 'up')}"
        for place in sorted(wanted.keys() | there.keys())
        if there.get(place) != wanted.get(place)
    ]


def recorded_places(seen: Tables, fabrics: Fabrics) -> dict[tuple[str, str, str], str]:
    """The states of hosts and links that are not up, by fabric, kind and name."""
    return {
        (row["fabric"], "hosts", fabrics[row["fabric"]][1].host_names[row["host"]]): row["state"]
        for row in seen.host_states
    } | {
        (
            row["fabric"],
            "links",
            link_name(fabrics[row["fabric"]][0].tree.link_at(row["link"])),
        ): row["state"]
        for row in seen.link_states
    }


# -- when all work is done --------------------------------------------------------------------


def unsettled(seen: Tables) -> list[str]:
    """Allocations that are in transition, or in state error."""
    return [
        f"{id} is {row['state']}, {row['phase'] or 'not moving'}: {row['error']}"
        for id, row in seen.allocations.items()
        if row["state"] not in ("active", "queued", "released") or row["phase"]
    ]


def compute_problems(
    seen: Tables, handed: Mapping[str, tuple[frozenset[str], bool]], fabrics: Fabrics
) -> list[str]:
    """Allocations that compute has not handed over as recorded: the active ones, unfenced."""
    found = []
    owned = _by_owner("host", seen.host_claims)
    active = _active(seen)
    for id in sorted(active.keys() | handed.keys()):
        hosts, fenced = handed.get(id, (frozenset(), False))
        names = fabrics[active[id]["fabric"]][1].host_names if id in active else ()
        wanted = {names[host] for host in owned[id]} if id in active else set()
        if hosts != wanted or fenced:
            found.append(
                f"compute gave {id} {sorted(hosts)}, fenced {fenced}, not {sorted(wanted)}"
            )
    return found


def _active(seen: Tables) -> dict[str, Mapping[str, Any]]:
    return {
        id: row
        for id, row in seen.allocations.items()
        if row["state"] == "active" and not row["container"]
    }


def route_problems(
    seen: Tables, fabric: str, published: Routes | None, fabrics: Fabrics
) -> list[str]:
    """Pairs of hosts that leave the links of their allocation, or go up after going down."""
    active = {id for id, row in _active(seen).items() if row["fabric"] == fabric}
    if published is None:
        return [f"{fabric}: nothing was published"] if active else []
    topology, inventory = fabrics[fabric]
    found = [f"{fabric}: {id} is not routed" for id in sorted(active - published.tenants)]
    found += [f"{fabric}: {id} is still routed" for id in sorted(published.tenants - active)]
    hosts, links = _by_owner("host", seen.host_claims), _by_owner("link", seen.link_claims)
    walks = Walks.over_rows(inventory, published.rows)
    for id in sorted(active & published.tenants):
        for source, target in permutations(sorted(hosts[id]), 2):
            start = inventory.endpoint_of_port[source, 0].at.guid
            try:
                path = walks.path(start, inventory.endpoint_of_port[target, 0].guid)
            except (AssertionError, KeyError) as error:
                found.append(f"{id}: from host {source} to {target}: {error!r}")
                continue
            used = {-1 if c.link is None else topology.tree.link_id(c.link) for c, _ in path}
            if used - links[id]:
                found.append(f"{id}: {source} to {target} over links {sorted(used - links[id])}")
            if (downs := [down for _, down in path]) != sorted(downs):
                found.append(f"{id}: {source} to {target} goes up after it went down")
    return found


def left_over(seen: Tables) -> list[str]:
    """Claims that remain after every allocation was released."""
    rows = {"host": seen.host_claims, "link": seen.link_claims, "pkey": seen.pkey_claims}
    return [f"leak: {len(left)} claims of {what}s are left" for what, left in rows.items() if left]
