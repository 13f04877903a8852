# SPDX-License-Identifier: Apache-2.0

"""Many nodes behind one nova-compute: allocations at random, servers, cleaning, decisions.

``LAAS_NODES`` has the numbers of ``Size`` (``tox -e nodes``: 1,000 nodes); without it this is a
sample. The copies of a node are written into Ironic's database; Nova, its Ironic driver and
scheduler, placement and our adapter are real. The judge is the book of this test: who owns which
node by the hand-overs that it asked for.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from nova import context, objects
from oslo_messaging import ExpectedException

from laas_service.adapters.nova import NovaCompute
from laas_service.app.ports.compute import Handover
from laas_service.domain.errors import HostsBusy
from tests.nodes import cloud
from tests.nodes.conftest import NODES
from tests.nova.cloud import IMAGE
from tests.story import site
from tests.waiting import eventually


@dataclass(frozen=True)
class Size:
    nodes: int
    projects: int
    allocations: int
    servers: int
    decisions: int


SIZE = Size(*map(int, os.environ.get("LAAS_NODES", "12 3 5 5 15").split()))
STRANGERS = [f"{number:032x}" for number in range(901, 904)]
LARGEST = 8
"""Nodes of an allocation, at most."""

FEW = 20
"""Up to so many nodes, a later test may use the cloud as it was."""


@pytest.fixture
def names(nova):
    made = [f"node{number:04d}" for number in range(SIZE.nodes - len(NODES))]
    begun = time.monotonic()
    nova.copy_nodes("n1", made)
    print(f"\nnova-compute knows {SIZE.nodes} nodes after {time.monotonic() - begun:.0f} s")
    yield [*NODES, *made]
    if SIZE.nodes > FEW:
        return  # the servers end with this test
    nova.forget_nodes()
    nova.ironic.drop(made)
    nova.refresh()


def test_no_server_is_ever_misplaced(nova, names):
    story = Story(nova, names)
    try:
        story.tell()
    finally:
        print(story.summary())
    assert story.counts["misplaced"] == 0
    assert story.counts["wrongly refused"] == 0
    assert story.counts["decisions"] >= SIZE.decisions
    assert story.counts["deployed"] >= SIZE.servers


class Story:
    def __init__(self, nova, names):
        self.nova, self.names = nova, names
        self.rng = random.Random(23)
        self.calls: list[str] = []
        self.compute: NovaCompute = nova.node_compute(beat=self.calls.append)
        self.projects = [f"{number:032x}" for number in range(1, SIZE.projects + 1)]
        self.owner: dict[str, str] = {}
        """The project that may use a node."""
        self.live: list[Handover] = []
        self.servers: dict[str, str] = {}
        """The node of each server."""
        self.counts: Counter[str] = Counter()
        self.laps: dict[str, list[tuple[float, int]]] = {}
        self.name_of = {uuid: name for name, uuid in nova.ironic.uuids().items()}

    def tell(self):
        with self.lap("all nodes join the pool"):
            self.compute.pool(self.names)
        for number in range(SIZE.allocations):
            while len(self.owner) > SIZE.nodes * 0.6:
                self.release()
            self.allocate(f"a{number}")
            self.boot(SIZE.servers * (number + 1) // SIZE.allocations)
            for _ in range(-(-SIZE.decisions // SIZE.allocations)):
                self.decide()
            if self.rng.random() < 0.3:
                self.release()
            if number == SIZE.allocations // 2:
                self.compare()
        while self.live:
            self.release()
        self.compare()

    @contextmanager
    def lap(self, what):
        calls, begun = len(self.calls), time.monotonic()
        yield
        lap = (time.monotonic() - begun, len(self.calls) - calls)
        self.laps.setdefault(what, []).append(lap)

    def summary(self):
        """What happened; the documentation names these figures."""
        lines = [f"{SIZE}: {dict(sorted(self.counts.items()))}"]
        for what, laps in self.laps.items():
            seconds, calls = sorted(lap[0] for lap in laps), [lap[1] for lap in laps]
            lines.append(
                f"{what}: {len(laps)} times, {seconds[len(laps) // 2]:.2f} s in the middle, "
                f"{seconds[-1]:.2f} s at most; {min(calls)} to {max(calls)} calls"
            )
        return "\n".join(lines)

    def allocate(self, id):
        free = [name for name in self.names if name not in self.owner]
        hosts = tuple(sorted(self.rng.sample(free, self.rng.randint(1, LARGEST))))
        handover = Handover(id, self.rng.choice(self.projects), hosts)
        with self.lap("an allocation is handed over"):
            self.compute.hand_over(handover)
        self.nova.scheduler_knows()
        self.owner |= dict.fromkeys(hosts, handover.project_id)
        self.live.append(handover)

    def release(self):
        """Close, delete the servers, wait until the nodes are clean, take back."""
        handover = self.live.pop(self.rng.randrange(len(self.live)))
        self.compute.fence(handover.allocation_id)
        used = [id for id, node in self.servers.items() if node in handover.hosts]
        for id in used:
            self.nova.admin.servers.delete(id)
            self.servers.pop(id)
        with self.lap("an allocation with servers is taken back" if used else "one without"):
            eventually(
                lambda: self.taken_back(handover, used), f"{handover} is taken back", pause=2
            )
        for host in handover.hosts:
            assert self.nova.ironic.node(host)["provision_state"] == "available", host
            del self.owner[host]
        self.counts["cleaned"] += len(used)
        if used:
            self.nova.refresh(handover.hosts)

    def taken_back(self, handover, servers):
        try:
            self.compute.take_back(handover)
        except HostsBusy:
            self.delete_failed(servers)
            return False
        return True

    def delete_failed(self, servers):
        """Delete once more, as an owner does, servers that Nova failed to delete.

        Nova gives up if Ironic closes the connection of one of its requests.
        """
        query = {"all_tenants": True, "status": "ERROR"}
        for server in self.nova.admin.servers.list(search_opts=query):
            if server.id in servers:
                server.delete()
                self.counts["deleted again"] += 1

    def boot(self, until):
        """Start servers of owners until so many were deployed, as long as there is room."""
        while self.counts["deployed"] < until:
            usable = [project for project in self.projects if self.usable(project)]
            if not usable:
                return
            project = self.rng.choice(usable)
            servers = self.nova.client(project).servers
            made = servers.create("server", IMAGE, flavor=cloud.NODE, nics="none")
            with self.lap("a server"):
                found = site.landed(self.nova.admin, made.id, pause=1)
            if found is None:
                self.counts["wrongly refused"] += 1
                return
            node = self.nova.node_of(made.id)
            self.counts["deployed"] += 1
            self.counts["misplaced"] += self.owner.get(node) != project
            self.servers[made.id] = node

    def usable(self, project):
        busy = set(self.servers.values())
        return {name for name, owner in self.owner.items() if owner == project} - busy

    def decide(self):
        """Ask the scheduler for a node, as for a server that is built; then give it back."""
        project = self.rng.choice([*self.projects, *STRANGERS])
        admin = context.get_admin_context()
        id = str(uuid.uuid4())
        spec = objects.RequestSpec.from_components(
            admin,
            id,
            objects.ImageMeta(properties=objects.ImageMetaProps()),
            objects.Flavor.get_by_flavor_id(admin, cloud.NODE),
            None,
            objects.InstancePCIRequests(requests=[]),
            {},
            None,
            None,
            project_id=project,
            user_id="user",
        )
        spec.requested_resources = []
        spec.request_level_params = objects.RequestLevelParams()
        self.counts["decisions"] += 1
        free = self.usable(project)
        try:
            with self.lap("a decision of the scheduler"):
                chosen = self.nova.scheduler.manager.select_destinations(
                    admin, spec_obj=spec, instance_uuids=[id], return_objects=True
                )
        except ExpectedException:  # NoValidHost, for a caller over messages
            self.counts["refused"] += 1
            self.counts["wrongly refused"] += bool(free)
            return
        node = self.name_of[chosen[0][0].nodename]
        self.counts["misplaced"] += self.owner.get(node) != project
        self.nova.placement.delete(f"/allocations/{id}")

    def compare(self):
        with self.lap("a look"):
            views = self.compute.look(self.names)
        told = {h: {o.project_id for o in v.servers} for h, v in views.items() if v.servers}
        assert told == {node: {self.owner[node]} for node in self.servers.values()}
        with self.lap("a comparison"), self.compute.comparison():
            self.compute.pool(self.names)
            for handover in self.live:
                self.compute.hand_over(handover)
        assert self.compute.handed_over() == {each.allocation_id: each for each in self.live}
