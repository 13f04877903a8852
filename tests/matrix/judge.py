# SPDX-License-Identifier: Apache-2.0

"""Judge of the matrix: reads database, cloud and files, and lists every broken promise.

The judge reads tables and file formats by itself. It uses neither the ledger, the policies,
the converger nor the verification of the service.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from laas_service.domain.routing.default_tables import NO_ROUTE
from tests.matrix.site import FABRIC, Site
from tests.storm.evidence import ALLOCATIONS
from tests.walks import Walks

NOBODY = "laas-nobody"

MIGRATED = ("confirmed", "reverted", "done")
"""The states in which migrations end; those off a dead host are done."""


class Seen:
    """State of database, cloud and files at one moment."""

    def __init__(self, site: Site) -> None:
        engine = sa.create_engine(site.url, poolclass=sa.pool.NullPool)
        with engine.connect() as connection:

            def rows(query: str) -> list[Any]:
                return list(connection.execute(sa.text(query)).mappings())

            (self.fabric,) = rows("select generation, routes_generation from fabric")
            self.allocations = {row["id"]: row for row in rows(ALLOCATIONS)}
            self.events = rows("select allocation, state, reason from event order by id")
            self.hosts = rows("select host as what, allocation from host_claim")
            self.links = rows("select link as what, allocation from link_claim")
            self.pkeys = rows("select pkey as what, allocation from pkey_claim")
            self.failed = rows("select link from link_state")
            self.untold = len(rows("select id from notification"))
            self.applied = [row["applied"] for row in rows("select applied from lease")]
        engine.dispose()
        with site.cloud.lock:
            self.aggregates, self.mirror = site.cloud.snapshot()
            self.overlaps = list(site.cloud.overlaps)
            self.servers = [*site.cloud.servers.values(), *site.cloud.held.values()]
            status = {id: site.cloud.states.get(id, ("ACTIVE",))[0] for id in site.cloud.servers}
            self.stopped = [id for id in status if status[id] != "ACTIVE"]
            self.running = {site.cloud.servers[id][0] for id in status if status[id] == "ACTIVE"}
            self.locked = list(site.cloud.locks)
            self.migrations = [one.status for one in site.cloud.migrations]
        self.published = site.published
        text = (self.published / "manifest.json").read_bytes()
        self.manifest = json.loads(text)
        self.lfts = (self.published / "lfts").read_text()

    def named(self, name: str) -> list[Any]:
        return [row for row in self.allocations.values() if row["name"] == name]

    def story(self, id: str) -> list[str]:
        return [event["reason"] for event in self.events if event["allocation"] == id]

    def summary(self) -> tuple[object, ...]:
        """States, claims and failed links by name: equal for two runs with different ids."""
        states = sorted((row["name"], row["state"]) for row in self.allocations.values())
        names = {row["id"]: row["name"] for row in self.allocations.values()}
        claims = [
            sorted((row["what"], names[row["allocation"]]) for row in claims)
            for claims in (self.hosts, self.links)
        ]
        return states, claims, sorted(row["link"] for row in self.failed)

    @property
    def hurt(self) -> bool:
        """Whether an allocation holds a failed host or link."""
        return any(row["faults"] is not None for row in self.allocations.values())

    @property
    def settled(self) -> bool:
        """Whether the record leaves no work to be done."""
        return (
            all(row["state"] in ("active", "released") for row in self.allocations.values())
            and all(row["announced"] is None for row in self.allocations.values())
            and all(row["phase"] is None for row in self.allocations.values())
            and all(row["error"] is None for row in self.allocations.values())
            and self.applied == [self.fabric["routes_generation"]]
        )


def standing(seen: Seen) -> list[str]:
    """Broken promises among those that hold at every moment, also during a fault."""
    return [
        *_ownership(seen),
        *_files(seen),
        *_walks(seen, seen.lfts),
        *_cloud(seen),
        *_servers(seen),
        *_parted(seen),
    ]


def final(seen: Seen, switches: str | None = None) -> list[str]:
    """Broken promises in the end: also leftovers and disagreement between the systems."""
    wrong = standing(seen)
    if not seen.settled:
        wrong.append("something is still to be done")
    active = {id for id, row in seen.allocations.items() if row["state"] == "active"}
    if set(seen.manifest["tenants"]) != active:
        wrong.append(f"routes of {sorted(seen.manifest['tenants'])}, active are {sorted(active)}")
    if seen.manifest["generation"] != seen.fabric["routes_generation"]:
        wrong.append("the published files are not the newest")
    wrong += _handed_over(seen, active)
    if seen.stopped or seen.locked:
        wrong.append(f"servers are stopped: {seen.stopped}, or locked: {seen.locked}")
    if left := [status for status in seen.migrations if status not in MIGRATED]:
        wrong.append(f"migrations are {left}")
    for id, count in Counter(row["allocation"] for row in seen.hosts).items():
        if count != seen.allocations[id]["hosts"]:
            wrong.append(f"{id} asked for {seen.allocations[id]['hosts']} hosts and has {count}")
    for id in active:
        hosts, links, pkeys = (
            {row["what"] for row in rows if row["allocation"] == id} for rows in _claims(seen)
        )
        leaves = {host // FABRIC.topology.hosts_per_group for host in hosts}
        if not (hosts and pkeys and (links or len(leaves) == 1)):
            wrong.append(f"{id} is active without hosts, links or a partition")
    for id in seen.allocations:
        twice = [line for line, times in Counter(seen.story(id)).items() if times > 1]
        wrong += [f"told twice: {line}" for line in twice if _once(line)]
    if switches is not None:
        wrong += _walks(seen, switches)
        if not same_tables(switches, seen.lfts):
            wrong.append("the switches do not hold the published tables")
    return wrong


def _once(line: str) -> bool:
    """Whether a line tells of a step that is done once, rather than of a failure."""
    return line.startswith(("claimed", "release", "routes", "hosts", "repair:", "traffic"))


def _claims(seen: Seen) -> tuple[list[Any], ...]:
    return seen.hosts, seen.links, seen.pkeys


def _owned(rows: Iterable[Any]) -> dict[str, set[int]]:
    owned: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        owned[row["allocation"]].add(row["what"])
    return owned


def _ownership(seen: Seen) -> list[str]:
    wrong = []
    for rows in _claims(seen):
        for what, times in Counter(row["what"] for row in rows).items():
            if times > 1:
                wrong.append(f"{what} is owned {times} times")
        for id in {row["allocation"] for row in rows}:
            state = seen.allocations[id]["state"] if id in seen.allocations else "unknown"
            if state not in ("allocating", "active", "releasing"):
                wrong.append(f"{id} is {state} and owns something")
    return wrong


def _files(seen: Seen) -> list[str]:
    """Files of the published set that differ from its manifest."""
    return [
        f"{name} is not what the manifest says"
        for name, digest in seen.manifest["files"].items()
        if not (seen.published / name).exists() or _digest(seen.published / name) != digest
    ]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _tables(dump: str) -> dict[int, dict[int, int]]:
    """Ports by switch GUID and LID, from the output of ``dump_lfts``."""
    tables: dict[int, dict[int, int]] = {}
    table: dict[int, int] = {}
    for line in dump.splitlines():
        if header := re.search(r"^Unicast lids .* guid (0x[0-9a-f]+)", line):
            table = tables.setdefault(int(header[1], 16), {})
        elif (entry := re.match(r"(0x[0-9a-f]+) (\d+)", line)) and int(entry[2]) != NO_ROUTE:
            table[int(entry[1], 16)] = int(entry[2])
    return tables


def same_tables(one: str, other: str) -> bool:
    """Whether two dumps hold the same tables."""
    return _tables(one) == _tables(other)


def _walks(seen: Seen, dump: str) -> list[str]:
    """Routed allocations that own no hosts, or whose packets take foreign links or get lost.

    Packets between hosts that join and hosts that leave may get lost only where nothing joins them.
    """
    inventory, tree = FABRIC.inventory, FABRIC.topology.tree
    tables = _tables(dump)

    def port(switch: int, destination: int) -> int | None:
        return tables.get(switch, {}).get(inventory.lids[destination])

    walks, wrong = Walks(inventory, port), []
    hosts, links = _owned(seen.hosts), _owned(seen.links)
    for id in seen.manifest["tenants"]:
        if not hosts[id]:
            wrong.append(f"{id} is routed and owns nothing")
        row = seen.allocations[id]
        used, old, new = _routed_hosts(row, hosts[id])
        for first in used:
            for second in used:
                source, target = (inventory.endpoint_of_port[host, 0] for host in (first, second))
                try:
                    taken = walks.path(source.at.guid, target.guid)
                except AssertionError as error:
                    if row["bridge"] or {first, second} <= old or {first, second} <= new:
                        wrong.append(f"{id}: {error}")
                    continue
                foreign = {cable.link for cable, _ in taken if cable.link is not None} - {
                    tree.link_at(number) for number in links[id]
                }
                if foreign:
                    wrong.append(f"{id} is routed over {foreign}, which it does not own")
    return wrong


def _routed_hosts(row: Any, owned: set[int]) -> tuple[set[int], set[int], set[int]]:
    """The hosts of an allocation that have its routes; of them those of the old and new placement.

    Hosts that join get their routes in the first step after they are claimed; those that leave lose
    them in the last step before they are freed.
    """
    if row["phase"] is None:
        return owned, owned, owned
    old, new = _hosts_of(row["leaving"]), _hosts_of(row["placed"])
    if row["phase"] in ("stop", "prepare"):
        return old, old, old
    if row["phase"] == "withdraw":
        return new, new, new
    return owned, old, new


def _hosts_of(placement: Any) -> set[int]:
    """The numbers of the hosts in a recorded placement."""
    document = json.loads(placement) if isinstance(placement, str) else placement
    return {
        FABRIC.topology.hosts_per_group * group + position
        for group, mask, _ in document["groups"]
        for position in range(FABRIC.topology.hosts_per_group)
        if int(mask, 16) >> position & 1
    }


def _cloud(seen: Seen) -> list[str]:
    """Aggregates with hosts that their allocation does not own, or opened without routes."""
    wrong = [f"two writers at once on {name}" for name in seen.overlaps]
    names, owned = FABRIC.inventory.host_names, _owned(seen.hosts)
    for name, (metadata, hosts) in seen.aggregates.items():
        id = metadata.get("laas:allocation")
        if id is None:
            continue
        if not hosts <= {names[host] for host in owned[id]}:
            wrong.append(f"{name} has hosts that its allocation does not own")
        if metadata["filter_tenant_id"] != NOBODY:
            if metadata["filter_tenant_id"] != seen.allocations[id]["project_id"]:
                wrong.append(f"{name} lets in {metadata['filter_tenant_id']}")
            if hosts and id not in seen.manifest["tenants"]:
                wrong.append(f"{name} is open and has no routes")
    return wrong


def _servers(seen: Seen) -> list[str]:
    """Servers, and rooms of migrations, on hosts of others or without routes."""
    names = FABRIC.inventory.host_names
    owners = {names[row["what"]]: row["allocation"] for row in seen.hosts}
    wrong = []
    for host, project in seen.servers:
        owner = owners.get(host)
        if owner is None or seen.allocations[owner]["project_id"] != project:
            wrong.append(f"a server of {project} is on {host}, which {owner} owns")
        elif owner not in seen.manifest["tenants"]:
            wrong.append(f"a server is on {host}, which has no routes")
    return wrong


def _parted(seen: Seen) -> list[str]:
    """Servers that run on hosts to be left while routes change and no links join the new hosts."""
    names, wrong = FABRIC.inventory.host_names, []
    for id, row in seen.allocations.items():
        if row["phase"] in ("prepare", "switch", "enter") and not row["bridge"]:
            old, new = _hosts_of(row["leaving"]), _hosts_of(row["placed"])
            running = {host for host in old - new if names[host] in seen.running}
            if running and new - old:
                wrong.append(f"servers of {id} run on {running} while the routes change")
    return wrong


def leaf_of(seen: Seen, name: str) -> int:
    """The number of the leaf that has all hosts of an allocation."""
    (record,) = seen.named(name)
    (leaf,) = {
        row["what"] // FABRIC.topology.hosts_per_group
        for row in seen.hosts
        if row["allocation"] == record["id"]
    }
    return int(leaf)


def _handed_over(seen: Seen, active: set[str]) -> list[str]:
    """Differences of Nova and placement from the record: aggregates, pool, their hosts."""
    names, owned = FABRIC.inventory.host_names, _owned(seen.hosts)
    wanted: dict[str, Any] = {
        f"laas-{id}": (
            {"filter_tenant_id": seen.allocations[id]["project_id"], "laas:allocation": id},
            {names[host] for host in owned[id]},
        )
        for id in active
    }
    pooled = {"filter_tenant_id": NOBODY, "laas:pool": "true"}
    wanted["laas-pool"] = (pooled, {name for name in names if name})
    wrong = []
    if seen.aggregates != wanted:
        wrong.append(f"handed over is {seen.aggregates}, wanted {wanted}")
    for host, inside in seen.mirror.items():
        if inside != {name for name, (_, hosts) in wanted.items() if host in hosts}:
            wrong.append(f"placement sees {host} in {sorted(inside)}")
    return wrong
