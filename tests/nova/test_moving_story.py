# SPDX-License-Identifier: Apache-2.0

"""A tenant grows, shrinks, loses a host and gets another, and moves to another pod; a full fabric.

Nova and placement are real, and so is OpenSM, on a simulated fabric. Our ``laas-api
--all-in-one`` runs as a process. All the time LID-routed queries run between the tenant's hosts,
and all tables are read and walked. With ``LAAS_STORY=full`` (``tox -e story``) the fabric has 128
hosts, otherwise 16.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import pytest

from laas_service.adapters.fabric_import.netlist import node_id
from laas_service.app.lifecycle import Phase
from laas_service.domain.inventory import PortRef
from laas_service.wiring.composition import Composition
from opensm_writer import parse
from tests.faults.wiring import Judge, Wiring
from tests.marks import needs_ibsim
from tests.nova import cloud
from tests.nova.test_story import FULL, SCALE, laas, site_on
from tests.options import options_from
from tests.story.network import network
from tests.story.queries import Queries
from tests.story.site import OpenStackSite, Rest
from tests.waiting import PATIENCE, eventually

pytestmark = needs_ibsim

RED, BLUE = "1" * 32, "2" * 32
POD = 16 if SCALE is FULL else 4
"""Hosts of a pod."""

SMALL = 3 if SCALE is FULL else 1
"""Hosts that move so that a pod gets empty, one less than on a leaf."""

SETTINGS = """\
[queue]
make_room = on
make_room_interval = 1
[compute]
shared_disks = true
state_interval = 1
[faults]
hold_down = 1
"""


@pytest.fixture(scope="module")
def nova():
    with cloud.started(SCALE.hosts) as nova:
        nova.filter_with(cloud.OURS)
        yield nova


@pytest.fixture
def clouds(nova, tmp_path):
    with (
        cloud.served(nova) as url,
        network(SCALE.xgft, tmp_path) as net,
        laas(url, net, tmp_path, SETTINGS) as api,
    ):
        yield Clouds(nova, net, site_on(OpenStackSite, url, net, Rest(api)), Rest(api), tmp_path)
    nova.clear()


@dataclass
class Change:
    """What happened while one change of placement was made."""

    name: str
    seconds: float
    new_hosts: int
    sent: int
    lost: int
    longest: float
    between: int
    looks: int
    walked: int
    foreign: int


class Clouds:
    """The cloud, the service by its interface for users, and the judges."""

    def __init__(self, nova, net, site, rest, directory):
        self.nova, self.net, self.site, self.rest = nova, net, site, rest
        conf = options_from(directory / "laas.conf")
        self.store = Composition(conf).store
        fabric = self.store.fabrics.get("f")
        self.topology, self.inventory = fabric.topology, fabric.inventory
        self.wiring = Wiring(self.inventory)
        self.judge = Judge(self.topology, self.inventory)
        self.changes = []

    # -- the tenants ------------------------------------------------------------

    def allocate(self, project, hosts, **more):
        """An active allocation that may be moved; None if it was refused."""
        body = {"name": f"of-{project[0]}", "hosts": hosts, "project_id": project, **more}
        body = {"movable": "restart", **body}
        status, document = self.rest.call("POST", "/v1/allocations", project, body)
        if status == 409:
            return None
        return self.rest.settled(project, document, "active")

    def ask(self, method, path, project, body):
        """The answer to a request that begins something."""
        status, document = self.rest.call(method, path, project, body)
        assert status < 300, document
        return document

    def show(self, id):
        return self.rest.call("GET", f"/v1/allocations/{id}")[1]

    def hosts(self, id):
        return {host["name"] for host in self.show(id)["hosts"]}

    def release(self, id):
        document = self.rest.call("DELETE", f"/v1/allocations/{id}")[1]
        self.rest.settled("", document, "released")

    def settled(self, id):
        def done():
            shown = self.show(id)
            return None if shown.get("changing") or shown.get("announced") else shown

        return eventually(done, lambda: f"{id} is settled: {self.show(id)}", patience=4 * PATIENCE)

    def free(self):
        hosts = self.rest.call("GET", "/v1/fabrics/f/utilization")[1]["hosts"]
        return hosts["free"]

    def empty(self, hosts):
        """Delete the servers on some hosts, and wait until they are gone."""

        def there():
            return [server.id for server in self.site.servers() if server.host in hosts]

        for id in there():
            self.nova.admin.servers.delete(id)
        eventually(lambda: not there(), "servers are deleted")

    def servers_on(self, project):
        found: Counter[str] = Counter()
        for server in self.site.servers():
            if server.project == project:
                found[server.host] += 1
        return found

    # -- what is promised -------------------------------------------------------

    def records(self):
        return [record for record in self.store.allocations.page(fabric="f") if record.placed]

    def promised(self):
        """By allocation id: the placements within which packets have to arrive now."""
        return {record.id: _promised(record) for record in self.records()}

    def ways(self):
        """Host -> hosts of the same placement, but for those that are cut off."""
        names = self.inventory.host_names
        found: dict[str, set[str]] = {}
        for placement in chain.from_iterable(self.promised().values()):
            hosts = {names[host] for host in placement.hosts(self.topology)} - self.cut_off
            for host in hosts:
                found.setdefault(host, set()).update(hosts - {host})
        return found

    @property
    def cut_off(self):
        return {
            end.name.split()[0]
            for end in self.inventory.endpoints
            if end.at not in self.wiring.far and end.host is not None
        }

    # -- faults -----------------------------------------------------------------

    def end_of(self, host):
        (index,) = (n for n, name in enumerate(self.inventory.host_names) if name == host)
        return self.inventory.endpoint_of_port[index, 0]

    def unplug(self, host):
        end = self.end_of(host)
        self.net.simulator.console(f'Unlink "S-{end.at.guid:016x}"[{end.at.port}]')
        self.wiring.cut(end.at)

    def plug_in(self, host):
        end = self.end_of(host)
        node = node_id(self.inventory, end)
        self.net.simulator.console(f'Link "S-{end.at.guid:016x}"[{end.at.port}] "{node}"[1]')
        self.wiring.connect(end.at, PortRef(end.guid, 0))

    def absent(self):
        """Hosts whose switch port is down, as the service saw it."""
        return self.store.faults.observation("f").memory.hosts.keys()

    # -- the judges -------------------------------------------------------------

    @contextmanager
    def asked(self):
        """Queries between the hosts of each allocation."""
        ends = {host: self.end_of(host) for host in SCALE.hosts}
        nodes = {host: node_id(self.inventory, end) for host, end in ends.items()}
        lids = {host: self.inventory.lids[end.guid] for host, end in ends.items()}
        with Queries(self.net.simulator, nodes, lids, self.ways) as self.queries:
            yield self.queries

    def walked(self):
        """Walk all pairs of all tenants over the tables in the switches, as they are now."""
        before = {record.id: record for record in self.records()}
        done = self.net.simulator.run("dump_lfts", "-n", check=False)
        rows = parse.dumped_tables(done.stdout.splitlines())
        for line in done.stderr.splitlines():
            if line.startswith("SubnGet(LFT) failed"):
                rows.pop(int(line.partition("Node GUID ")[2].split()[0], 16), None)
        after = {record.id: record for record in self.records()}
        tenants = []
        for id in before.keys() & after.keys():
            links = {
                link
                for record in (before[id], after[id])
                for link in record.held.links(self.topology)
            }
            both = [p for p in _promised(before[id]) if p in _promised(after[id])]
            tenants += [(placement, links) for placement in both]
        return self.judge.pairs(rows, self.wiring, tenants)

    @contextmanager
    def measured(self, name, id):
        """Note what the queries and the walks show while the block changes the placement."""
        old, begun = self.hosts(id), time.monotonic()
        self.queries.taken()
        with Walks(self) as walks:
            yield
            self.settled(id)
            seconds = time.monotonic() - begun
        counts = self.queries.taken()
        new = self.hosts(id)
        change = Change(
            name,
            round(seconds, 1),
            len(new - old),
            counts.sent,
            counts.lost,
            round(counts.longest, 2),
            sum(source in old - new and target in new - old for source, target in counts.pairs),
            len(walks.seen),
            sum(pairs.walked for pairs in walks.seen),
            sum(pairs.foreign for pairs in walks.seen),
        )
        print(change, counts.examples, [pairs.examples for pairs in walks.seen if pairs.foreign])
        self.changes.append(change)


class Walks:
    """Walks over all tables, one after the other, until the block ends."""

    def __init__(self, clouds):
        self._clouds, self.seen = clouds, []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error = None

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self):
        try:
            while not self._stop.is_set() or not self.seen:
                self.seen.append(self._clouds.walked())
        except BaseException as error:
            self._error = error


def _promised(record):
    """Placements within which packets have to arrive, in this phase of a change."""
    change = record.change
    if change is None:
        return [record.placed]
    if change.phase in (Phase.PREPARE, Phase.SWITCH):
        return [change.old]
    if change.phase is Phase.WITHDRAW:
        return [change.new]
    assert not change.parted, "there are free links"
    return [change.held]


def test_a_tenant_lives(clouds):
    """It grows, shrinks, loses a host and gets another, and moves to another pod."""
    size = POD - 1 - POD // 8
    red = clouds.allocate(RED, size)["id"]  # in the pod with the subnet manager's switch
    blue = clouds.allocate(BLUE, POD)["id"]
    assert clouds.site.boot(RED, size) == size
    assert clouds.site.boot(BLUE, POD) == POD
    path = f"/v1/allocations/{red}"
    with clouds.asked():
        before = clouds.hosts(red)
        with clouds.measured("grows", red):
            clouds.ask("PATCH", path, RED, {"hosts": size + 1})
        assert clouds.site.boot(RED, 1) == 1
        joined = clouds.hosts(red) - before
        assert len(joined) == 1
        assert set(clouds.servers_on(RED)) == clouds.hosts(red)
        clouds.empty(joined)
        with clouds.measured("shrinks", red):
            clouds.ask("PATCH", path, RED, {"hosts": size, "give_back": sorted(joined)})
        assert set(clouds.servers_on(RED)) == clouds.hosts(red) == before
        lost = sorted(clouds.servers_on(RED))[0]
        with clouds.nova.dead(lost) as service:
            clouds.unplug(lost)
            witness = sorted(clouds.hosts(red) - {lost})[0]
            assert not clouds.queries.reaches(witness, lost)
            eventually(lambda: lost in clouds.absent(), "the host is missed")
            clouds.nova.admin.services.force_down(service, True)
            with clouds.measured("gets another host", red):
                clouds.ask("POST", f"{path}/replace-hosts", RED, {"hosts": [lost]})
        eventually(
            lambda: (
                {
                    migration.status
                    for migration in clouds.nova.admin.migrations.list()
                    if migration.migration_type == "evacuation"
                }
                <= {"completed"}
            ),
            "the host has removed its servers",
        )
        clouds.nova.admin.services.force_down(service, False)
        clouds.plug_in(lost)
        assert lost not in clouds.servers_on(RED)
        before = clouds.hosts(red)
        with clouds.measured("moves to another pod", red):
            body = {"hosts": sorted(pod_of(before))}
            answer = clouds.ask("POST", "/v1/fabrics/f/evacuate", "", body)
            assert answer["staying"] == []
        assert not pod_of(before) & clouds.hosts(red)
        assert set(clouds.servers_on(RED)) <= clouds.hosts(red)
        assert sum(clouds.servers_on(RED).values()) == size
        assert set(clouds.servers_on(BLUE)) == clouds.hosts(blue)
    for change in clouds.changes:
        assert (change.lost, change.foreign) == (0, 0), change
        assert change.sent
        assert change.walked
        if change.name.startswith("moves"):
            assert change.between, "no query went from an old host to a new one"


def test_a_full_fabric_has_room_after_one_move(clouds):
    """A refused request fits after one move: on request, and because it waits in the queue."""
    pods = len(SCALE.hosts) // POD
    projects = [f"{number:032x}" for number in range(1, 2 * pods + 4)]
    stays = {"movable": "never"}  # one of these could leave a pod for a single new host
    large = [clouds.allocate(projects.pop(), POD - SMALL, **stays)["id"] for _ in range(pods)]
    owners = [projects.pop() for _ in range(pods)]
    small = [clouds.allocate(project, SMALL)["id"] for project in owners]
    assert clouds.free() == 0
    by_pod = {frozenset(pod_of(clouds.hosts(id))): id for id in large}
    of_pod = {min(pod_of(clouds.hosts(id))): id for id in small}
    first, second, third = (of_pod[pod] for pod in sorted(of_pod)[:3])
    owner = dict(zip(small, owners, strict=True))
    later, alone, waiting = projects
    for id in (first, second, third):
        assert clouds.site.boot(owner[id], SMALL) == SMALL

    clouds.release(by_pod[frozenset(pod_of(clouds.hosts(first)))])
    clouds.site.delete(owner[second])
    clouds.release(second)
    assert clouds.free() == POD
    assert clouds.allocate(later, POD) is None
    with clouds.asked(), clouds.measured("makes room", first):
        plan = clouds.ask("POST", "/v1/fabrics/f/make-room", "", {"hosts": POD})
        assert [move["allocation"] for move in plan["moves"]] == [first]
        assert plan["moved_hosts"] == SMALL
    assert set(clouds.servers_on(owner[first])) == clouds.hosts(first)
    placed = clouds.allocate(later, POD)["id"]
    assert pod_of(clouds.hosts(placed)) == clouds.hosts(placed)

    clouds.release(placed)
    mover = clouds.allocate(alone, SMALL)["id"]
    assert clouds.site.boot(alone, SMALL) == SMALL
    clouds.site.delete(owner[third])
    clouds.release(third)
    assert clouds.free() == POD
    with clouds.asked(), clouds.measured("makes room for the queue", mover):
        body = {"name": "head", "hosts": POD, "project_id": waiting, "wait": True}
        head = clouds.rest.call("POST", "/v1/allocations", waiting, body)[1]
        assert head["state"] == "queued"
        clouds.rest.settled(waiting, head, "active")
    assert set(clouds.servers_on(alone)) == clouds.hosts(mover)
    assert clouds.free() == 0
    for change in clouds.changes:
        assert change.new_hosts == SMALL
        assert (change.lost, change.foreign) == (0, 0), change
        assert change.sent
        assert change.walked
    assert any(change.between for change in clouds.changes), "no query between old and new hosts"


def pod_of(hosts):
    """All hosts of the pods of some hosts."""
    pods = {SCALE.hosts.index(host) // POD for host in hosts}
    return {host for n, host in enumerate(SCALE.hosts) if n // POD in pods}
