# SPDX-License-Identifier: Apache-2.0

"""Every step of a change of hosts crossed with every part that may fail meanwhile.

The tables are those that the published set gives, and every mixture of two sets that follow each
other is walked. With ``LAAS_MOVE_FAULTS=write`` all rows are written on the page
``reference/move-faults``; without it every fourth is tried, and has to be there.
"""

from __future__ import annotations

import csv
import io
import os
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.topology import LeafLink, SpineLink, link_name
from tests.convergers import Convergers
from tests.functional.api.test_make_room import ROOM, WANTED, consents
from tests.functional.api.test_make_room import crowded as crowded
from tests.functional.api.test_repair import say
from tests.functional.api.test_resize import active as active
from tests.functional.api.test_resize import names
from tests.walks import Mixed, Walks

PAGE = Path(__file__).parents[3] / "doc" / "source" / "reference" / "move-faults.inc"
WRITES = os.environ.get("LAAS_MOVE_FAULTS") == "write"
HEADER = [
    *("step", "what fails", "pairs lost at first"),
    *("sets until no other pair is lost", "pairs lost then", "afterwards"),
]
STEPS = ("prepare", "switch", "leave", "leave, servers on both", "withdraw")
PARTS = (
    *("new own link", "bridge"),
    *("old host", "new host", "L2 switch", "spine", "leaf of new hosts"),
    *("OpenSM, agent or cable of the manager", "worker"),
)

CELLS = [(step, part) for step in STEPS for part in PARTS]


class Fabric:
    """The switches of the fake subnet manager: each set that they ran since the fault."""

    def __init__(self, deployment) -> None:
        self.deployment = deployment
        record = deployment.store.fabrics.get("main")
        self.topology, self.inventory = record.topology, record.inventory
        self.states = [self.running]
        manager, apply = deployment.subnet_manager, deployment.subnet_manager.apply

        def noted() -> None:
            apply()
            if self.running.generation != self.states[-1].generation:
                self.states.append(self.running)

        manager.apply = noted

    @property
    def running(self):
        return self.deployment.subnet_manager.running["main"]

    def walks(self, state) -> Walks:
        placements = [placement for tenant in state.tenants for placement in tenant.placements]
        tables = forwarding_tables(
            self.topology,
            self.inventory,
            placements,
            state.failed_links,
            None,
            state.shared_plane,
            state.moved_links,
            state.reserved_links,
        )
        return Walks.over(self.inventory, tables)

    def judged(self, states, id, failed):
        """The lost pairs of a tenant in any mixture of these sets; none is foreign."""
        tenants = [next(one for one in each.tenants if one.allocation.id == id) for each in states]
        held = common = tenants[0].held
        for tenant in tenants:
            held = held.joined(tenant.held)
            common = common.beyond(common.beyond(tenant.held))  # others have no server, or no key
        ends = common.over(held)
        mixed = Mixed(self.topology, [self.walks(state) for state in states], ends, failed)
        assert mixed.foreign == set()
        return mixed.lost


@pytest.fixture
def work(deployment):
    """Let a worker take all steps; old hosts may be left at any time."""

    def run():
        deployment.slept += 600
        worker = Convergers(
            deployment.store,
            deployment.compute,
            deployment.subnet_manager,
            now=deployment.clock,
            chance=Random(1),
            move_window=1e9,
        )
        for _ in range(8):
            worker.run_once()
            deployment.slept += 60

    return run


@pytest.fixture
def at_step(client, deployment, crowded, work):
    """A tenant in a step of a change of three hosts on one leaf; as it was, and as it is."""

    def bring(step):
        for number, path in enumerate(crowded):
            consents(client, path, movable="restart" if number == 0 else "never")
        before = client.get(crowded[0]).json
        manager = deployment.subnet_manager
        for name in names(before):
            deployment.compute.servers[name] = before["project_id"]
            deployment.compute.broken.add(name)
        manager.at_once = step not in ("prepare", "switch")
        assert client.post(ROOM, json=WANTED).status_code == 202
        work()
        if step == "switch":
            manager.apply()
            work()
        if step == "withdraw":
            manager.at_once = False
            for name in names(before):
                deployment.compute.servers.pop(name)
            work()
        shown = client.get(crowded[0]).json
        assert shown["changing"] == step.partition(",")[0]
        if step == "leave, servers on both":
            deployment.compute.servers[shown["joining"][0]] = before["project_id"]
        return crowded[0], before, shown

    return bring


def links_of(part, fabric, before, shown):
    """The links that fail with a part."""
    bridge = set(shown["bridge"] or ())
    own = set(shown["links"])
    match part:
        case "new own link":
            chosen = sorted(own - set(before["links"]) - bridge)[:1]
        case "bridge":
            chosen = sorted(bridge)[:1]
        case "L2 switch":
            return [link for link in fabric.inventory.cable_of_link if _at(link, (0, 0))]
        case "spine":
            return [
                link
                for link in fabric.inventory.cable_of_link
                if isinstance(link, SpineLink) and (link.l2, link.up) == (0, 0)
            ]
        case "leaf of new hosts":
            joining = fabric.inventory.host_numbers[shown["joining"][0]]
            leaf = joining // 4
            return [
                link
                for link in fabric.inventory.cable_of_link
                if isinstance(link, LeafLink) and link.pod * 4 + link.leaf == leaf
            ]
        case _:
            return []
    return [link for link in fabric.inventory.cable_of_link if link_name(link) in chosen]


def _at(link, l2):
    at = (link.pod, link.up) if isinstance(link, LeafLink) else (link.pod, link.l2)
    return at == l2


@pytest.mark.parametrize(("step", "part"), CELLS if WRITES else CELLS[1::4])
def test_a_fault_in_a_move(client, deployment, at_step, work, step, part):
    path, before, shown = at_step(step)
    fabric = Fabric(deployment)
    failed = links_of(part, fabric, before, shown)
    first = fabric.judged([fabric.running], before["id"], failed)
    say(client, "failed", *map(link_name, failed))
    if part in ("old host", "new host"):
        [name, *_] = names(before) if part == "old host" else shown["joining"]
        host = client.patch(f"/v1/fabrics/main/hosts/{name}", json={"state": "failed"})
        assert host.status_code == 200
    manager = deployment.subnet_manager
    if part.startswith("OpenSM"):
        manager.at_once = False
        work()
        waits = client.get(path).json
        assert waits["changing"] == shown["changing"], "it waits"
        assert step.startswith("leave") or "waiting for the subnet manager" in waits["error"]
    if part != "worker":
        manager.at_once = True
        manager.apply()
        work()
        work()
    for was, now in pairwise(fabric.states):
        fabric.judged([was, now], before["id"], failed)
    counts = [len(fabric.judged([state], before["id"], failed)) for state in fabric.states]
    last = counts[-1]
    until = next(n for n, count in enumerate(counts) if set(counts[n:]) == {last})
    after = client.get(path).json
    assert after["state"] == "active"
    row = [step, part, str(len(first)), str(until), str(last), outcome(before, shown, after)]
    if last:
        assert after["degraded"], "nobody is told"
    tell(row)


def outcome(before, shown, after):
    """How the change stands."""
    if after["changing"] is None:
        back = sorted(names(after)) == sorted(names(before))
        return "turned back" if back else "over"
    if after["degraded"]:
        return f"degraded in {after['changing']}"
    changed = set(after["links"]) != set(shown["links"]) or after["bridge"] != shown["bridge"]
    return f"replaced in {after['changing']}" if changed else f"goes on in {after['changing']}"


def tell(row):
    """Write a row on the page, or compare it."""
    text = PAGE.read_text() if PAGE.exists() else ""
    lines = [line for line in text.splitlines() if line.startswith("   ") and ":" not in line[:5]]
    known = [next(csv.reader([line.strip()])) for line in lines]
    rows = {tuple(each[:2]): each for each in known if each != HEADER}
    if not WRITES:
        assert rows.get(tuple(row[:2])) == row, "run with LAAS_MOVE_FAULTS=write"
        return
    rows[tuple(row[:2])] = row
    order = sorted(rows.values(), key=lambda r: (STEPS.index(r[0]), PARTS.index(r[1])))
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([HEADER, *order])
    table = "".join(f"   {line}\n" for line in out.getvalue().splitlines())
    head = ".. Written by tests/functional/api/test_fault_matrix.py.\n\n"
    PAGE.write_text(f"{head}.. csv-table:: Faults in a move\n   :header-rows: 1\n\n{table}")
