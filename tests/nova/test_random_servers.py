# SPDX-License-Identifier: Apache-2.0

"""Servers of owners and strangers at random, while allocations and hosts change at random.

With ``LAAS_RANDOM=full`` (``tox -e random-servers``) 1,000 servers are created during 200 events,
in eight clouds one after the other; otherwise 30 during six. An event is an allocation, a release,
a drain, an edit of an aggregate by hand, or the failure or return of a nova-compute. Nova,
placement and our worker's code are real. The judge reads the servers from Nova and from the fake
hypervisors, and the owners from the record; it knows nothing of the adapter and the filter.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from novaclient import exceptions as refused

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.app.lifecycle import HOLDING, State
from laas_service.app.records import AllocationRecord, Caller, HostState
from laas_service.domain.errors import Conflict, HostsBusy
from laas_service.wiring.composition import Composition
from tests.nova import cloud
from tests.nova.test_holes import FORGED, KEY, Service
from tests.options import options_from
from tests.story import site
from tests.waiting import eventually

MANAGED = [f"n{number:02d}" for number in range(1, 13)]
ORDINARY = ["plain1", "plain2", "plain3"]
TENANTS = [f"{number:032x}" for number in range(1, 6)]
STRANGERS = [f"{number:032x}" for number in range(11, 14)]
EACH = 5
"""Servers that are created between two events."""

ROOM = 12
"""Servers that a host has room for with this flavor, cautiously."""

FULL = [(seed, 25) for seed in range(1, 9)]
SCALES = FULL if os.environ.get("LAAS_RANDOM") == "full" else [(1, 6)]
"""Seeds, with the number of events of each."""

SERVED = {State.ACTIVE, State.RELEASING, State.ERROR}
"""States in which the hosts belong to the project of the allocation, in Nova too."""


@pytest.fixture(params=SCALES, ids=[f"seed{seed}" for seed, _ in SCALES])
def story(request, tmp_path):
    seed, events = request.param
    with cloud.started([*MANAGED, *ORDINARY]) as nova:
        yield RandomStory(nova, wired(nova, tmp_path), seed), events


def wired(nova, directory):
    """The service, wired to this Nova, with a fabric of its managed hosts."""
    conf = options_from()
    conf.set_override("state_dir", str(directory))
    conf.set_override("state_interval", 1.0, "compute")
    conf.set_override("hold_down", 0.0, "compute")
    conf.set_override("access", "together", "sharing")
    for name, seconds in (("retry_first", 0.1), ("retry_last", 0.5)):
        conf.set_override(name, seconds, "worker")
    for name in ("reconcile_interval", "drift_interval"):
        conf.set_override(name, 1.0, "worker")
    parts = Composition(conf)
    parts.compute = nova.compute()
    parts.database.upgrade()
    made = generate(Description(xgft="2;4,3;1,4"))
    parts.store.fabrics.add("f", made.topology, replace(made.inventory, host_names=tuple(MANAGED)))
    return parts


@dataclass
class Boot:
    """A server that is asked for, and the hosts that its project may use, before the request."""

    project: str
    usable: frozenset[str]
    id: str


@dataclass
class RandomStory:
    """The story of one cloud; ``problems`` are broken promises, in sentences."""

    nova: cloud.Nova
    parts: Composition
    seed: int
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self):
        self.rng = random.Random(self.seed)
        self.admin = self.nova.admin
        self.service = Service(self.parts)
        self.components = self.parts.use_cases(wake=lambda: None).components
        self.project_of: dict[str, str] = {}
        """By server, also of those that Nova has forgotten."""
        self.services = {s.host: s.id for s in self.admin.services.list(binary="nova-compute")}
        self.down: set[str] = set()
        self.drained: set[str] = set()
        self.edited: set[str] = set()
        """Hosts of an edit by hand that nobody has repaired: no promise to their owner."""
        self.opened: set[str] = set()
        """Free hosts that an edit by hand has opened to everybody."""
        self.confined: set[str] = set()
        """Strangers whom an edit by hand names: Nova's pre-filter sends them to its hosts alone."""
        self.extra: list[object] = []
        """Aggregates that were made by hand."""
        self.nova.filter_with(cloud.OURS)

    def tell(self, events):
        self.settle()
        begin = [self.allocate, self.allocate, self.edit, self.release, self.fail, self.drain]
        try:
            for number in range(events):
                self.event(begin[number] if number < len(begin) else self.random_event())
                self.boots()
                self.look("after the servers")
                self.tidy()
                self.settle()
                self.look("after the worker")
        finally:
            print(self.summary(), *self.problems, sep="\n")

    def summary(self):
        """What happened in this cloud; the documentation names these figures."""
        counts = Counter(self.counts)
        active, refused = counts.pop("active", 0), counts.pop("refused", 0)
        return (
            f"cloud {self.seed}: {active + refused} servers, {active} active, {refused} refused, "
            f"{counts.pop('wrongly refused', 0)} of them wrongly, "
            f"{counts.pop('strangers', 0)} strangers at {counts.pop('looks', 0)} looks; "
            f"{dict(sorted(counts.items()))}"
        )

    # -- events -------------------------------------------------------------------------

    def random_event(self):
        kinds = [
            (self.allocate, 8),
            (self.release, 6),
            (self.drain, 2),
            (self.edit, 5),
            (self.fail, 3),
            (self.come_back, 2),
        ]
        acts, weights = zip(*kinds, strict=True)
        (act,) = self.rng.choices(acts, weights)
        return act

    def event(self, act):
        self.last = act.__name__
        self.counts[act.__name__] += 1
        act()

    def allocate(self):
        taken = {record.project_id for record in self.holding()}
        free = [project for project in TENANTS if project not in taken]
        if free:
            self.service.ask(self.rng.choice(free), self.rng.randint(1, 4))
            self.settle()

    def release(self):
        """At times the owner deletes its servers first, and at times a host dies under them."""
        active = [record for record in self.holding() if record.state is State.ACTIVE]
        if not active:
            return
        record = self.rng.choice(active)
        if self.rng.random() < 0.4:
            self.force_down(self.rng.choice(sorted(self.service.hosts(record))))
        force = self.rng.random() < 0.5
        if not force:
            self.delete(record.project_id)
        with suppress(HostsBusy):
            self.service.release(record, force=force)
        if force:
            self.settle()
            self.look("while a release waits")
            self.delete(record.project_id)
        self.settle()

    def drain(self):
        """Drain a host for everybody in Nova, or for new owners in the service; or end that."""
        host = self.rng.choice(MANAGED)
        caller = Caller("admin", "operator", admin=True, request_id="request")
        if self.rng.random() < 0.5:
            state = self.rng.choice([HostState.DRAINED, HostState.UP])
            with suppress(Conflict):
                self.components.set_host_state(caller, "f", host, state)
            return
        aggregate = next((a for a in self.admin.aggregates.list() if a.name == "drained"), None)
        if aggregate is None:
            aggregate = self.admin.aggregates.create("drained", None)
            self.admin.aggregates.set_metadata(aggregate, {"laas:drained": "true"})
        if host in self.drained:
            self.admin.aggregates.remove_host(aggregate, host)
            self.drained.remove(host)
        else:
            self.admin.aggregates.add_host(aggregate, host)
            self.drained.add(host)
        self.nova.scheduler_knows()

    def edit(self):
        """Edit aggregates by hand; servers are created before the worker can repair that."""
        active = [record for record in self.holding() if record.state is State.ACTIVE]
        owned = {host for record in self.holding() for host in self.service.hosts(record)}
        aggregates = {a.name: a for a in self.admin.aggregates.list()}
        calls, stranger = self.admin.aggregates, self.rng.choice(STRANGERS)
        free = sorted(set(MANAGED) - owned - self.withheld())
        if free and self.rng.random() < 0.2:
            host = self.rng.choice(free)
            for name, aggregate in aggregates.items():
                if name.startswith(cloud.POOL) and host in aggregate.hosts:
                    calls.remove_host(aggregate, host)
            self.opened.add(host)
            self.counts["a host left the pool"] += 1
        elif active:
            record = self.rng.choice(active)
            hosts = sorted(self.service.hosts(record))
            aggregate, host = aggregates[f"laas-{record.id}"], self.rng.choice(hosts)
            self.edited.update(hosts)
            kinds = ["key", "foreign", "left", "joined", "mark", "owner"]
            kind = self.rng.choice(kinds)
            self.counts[f"edit: {kind}"] += 1
            if kind in ("key", "foreign"):
                self.confined.add(stranger)
            if kind == "key":
                calls.set_metadata(aggregate, {f"{KEY}_more": stranger})
            elif kind == "foreign":
                foreign = calls.create(f"by hand {len(self.counts)}", None)
                calls.set_metadata(foreign, {KEY: stranger})
                calls.add_host(foreign, host)
                self.extra.append(foreign)
            elif kind == "left":
                calls.remove_host(aggregate, host)
            elif kind == "mark":
                calls.set_metadata(aggregate, {"laas:allocation": None})
            elif kind == "owner":  # it opens the hosts to the stranger until the worker sees it
                calls.set_metadata(aggregate, {KEY: stranger})
                self.settle()
            else:
                other = self.rng.choice(sorted(set(MANAGED) - set(hosts)))
                calls.add_host(aggregate, other)
                self.edited.add(other)
        self.nova.scheduler_knows()

    def fail(self):
        self.force_down(self.rng.choice([*MANAGED, *ORDINARY[:1]]))

    def force_down(self, host):
        if len(self.down) < 4:
            self.admin.services.force_down(self.services[host], True)
            self.down.add(host)

    def come_back(self):
        for host in sorted(self.down):
            self.admin.services.force_down(self.services[host], False)
        self.down.clear()

    # -- servers ------------------------------------------------------------------------

    def boots(self):
        """Create servers at the same time; each that is refused must have had no host."""
        asked = [self.ask_for_server() for _ in range(EACH)]
        landed = [(boot, site.landed(self.admin, boot.id)) for boot in asked]
        full = {h for h, servers in self.running().items() if len(servers) >= ROOM}
        for boot, host in landed:
            self.counts["active" if host else "refused"] += 1
            free = boot.usable - full
            if host is None and free:
                self.counts["wrongly refused"] += 1
                self.problems.append(
                    f"a server of project {boot.project} is refused, but {sorted(free)} are free; "
                    f"{self.named(boot.project)} name it; the last event was {self.last}"
                )

    def ask_for_server(self):
        record, hints = None, {}
        active = [record for record in self.holding() if record.state is State.ACTIVE]
        if active and self.rng.random() < 0.65:
            record = self.rng.choice(active)
            project, usable = record.project_id, self.usable_by(record)
            if self.rng.random() < 0.3:
                hints["laas:allocation"] = record.id
        else:
            project = self.rng.choice(STRANGERS)
            usable = frozenset() if project in self.confined else self.usable_by(None)
            if active and self.rng.random() < 0.2:
                hints["laas:allocation"] = self.rng.choice(active).id
                usable = frozenset()
        if self.rng.random() < 0.2:
            hints |= FORGED
        made = self.nova.client(project).servers.create(
            "server", cloud.IMAGE, flavor="1", nics="none", scheduler_hints=hints or None
        )
        self.project_of[made.id] = project
        return Boot(project, usable, made.id)

    def usable_by(self, record):
        """Hosts that a project may use: those of its allocation, else those of nobody."""
        hosts = self.service.hosts(record) if record else set(ORDINARY)
        closed = self.parts.compute.observed().closed
        return frozenset(hosts - self.down - self.drained - self.edited - closed)

    def named(self, project):
        """The aggregates that name a project."""
        return [a.name for a in self.admin.aggregates.list() if project in a.metadata.values()]

    def delete(self, project):
        self.nova.delete_servers({"project_id": project})

    def tidy(self):
        """Undo edits that the service leaves alone, empty what was opened, and thin out servers."""
        for aggregate in self.extra:
            for host in self.admin.aggregates.get(aggregate).hosts:
                self.admin.aggregates.remove_host(aggregate, host)
            self.admin.aggregates.delete(aggregate)
        self.extra.clear()
        for host in sorted(self.opened):
            self.nova.delete_servers({"host": host})
        self.opened.clear()
        for project in [*TENANTS, *STRANGERS]:
            search = {"all_tenants": 1, "project_id": project}
            if len(self.admin.servers.list(detailed=False, search_opts=search)) > 8:
                self.delete(project)
        self.inspect()

    def inspect(self):
        """Remove what runs on hosts in quarantine without Nova's knowledge, or leave it for now."""
        caller = Caller("admin", "operator", admin=True, request_id="request")
        quarantine = sorted(self.parts.store.faults.host_memory("f").quarantine)
        for host in quarantine:
            self.counts["looks at a host in quarantine"] += 1
            if host in self.down or self.rng.random() < 0.5:
                continue
            known = {server.id for server in self.running().get(host, ())}
            running = self.hypervisor(host)
            for id in running.keys() - known:
                del running[id]
                self.counts["servers that ran on"] += 1
            with suppress(Conflict):
                self.components.confirm_empty(caller, "f", host)

    # -- the worker ---------------------------------------------------------------------

    def settle(self):
        """Rounds of the worker until it has nothing more to do, and has repaired the edits."""

        def done():
            self.parts.fabric_leases.reconcile()
            self.parts.fabric_leases.check_drift()
            waiting = [r for r in self.holding() if r.state not in (State.ACTIVE, State.ERROR)]
            return self.is_repaired() and all(self.waits_for_others(r) for r in waiting)

        self.service.rounds(done, lambda: f"the worker comes to rest: {self.said()}")
        self.edited.clear()
        self.confined.clear()
        self.nova.scheduler_knows()

    def is_repaired(self):
        """Whether Nova's aggregates name exactly the recorded owners, and the pool holds all."""
        shown = self.admin.aggregates.list()
        pooled = {h for a in shown if a.name.startswith(cloud.POOL) for h in a.hosts}
        occupied = self.opened | self.running().keys()
        if set(MANAGED) - pooled - occupied:
            return False
        named = {a.name: a for a in shown}
        for record in self.holding():
            aggregate = named.get(f"laas-{record.id}")
            keys = {KEY: record.project_id, "laas:allocation": record.id}
            if record.state is State.ACTIVE and (
                aggregate is None
                or set(aggregate.hosts) != self.service.hosts(record)
                or aggregate.metadata != keys
            ):
                return False
        return True

    def waits_for_others(self, record):
        """Whether a step waits for an owner to delete its servers."""
        running = self.running()
        return record.state is State.RELEASING and any(
            running.get(host) for host in self.service.hosts(record)
        )

    def said(self):
        return [(r.id, r.state, r.error) for r in self.holding()], sorted(self.withheld())

    def holding(self):
        return list(self.parts.store.allocations.page(states=HOLDING))

    def withheld(self):
        return set(self.parts.store.faults.host_memory("f").withheld())

    # -- the judge ----------------------------------------------------------------------

    def look(self, when):
        """Compare the servers, by Nova and by the hypervisors, with the recorded owners."""
        owners = {
            host: record
            for record in self.holding()
            if record.state in SERVED
            for host in self.service.hosts(record)
        }
        self.counts["looks"] += 1
        for host, servers in self.running().items():
            for server in servers:
                self.judge_server(when, host, server.id, owners.get(host))
        for host in MANAGED:
            for id in self.hypervisor(host):
                self.judge_server(f"{when}, on the hypervisor", host, id, owners.get(host))

    def judge_server(self, when, host, id, record: AllocationRecord | None):
        project = self.project_of[id]
        if record is not None and record.project_id != project:
            self.counts["strangers"] += 1
            self.problems.append(
                f"{when}: {id} of project {project} is on {host} of project {record.project_id}"
            )

    def running(self):
        """The servers of all projects by host, as Nova has them."""
        found: dict[str, list[object]] = {}
        for server in self.admin.servers.list(search_opts={"all_tenants": 1}):
            if host := getattr(server, "OS-EXT-SRV-ATTR:host"):
                found.setdefault(host, []).append(server)
        return found

    def hypervisor(self, host):
        """The servers that run on a host, whatever Nova knows, by id."""
        return self.nova.computes[host].manager.driver.instances


def test_random_servers_of_owners_and_strangers(story):
    story, events = story
    story.tell(events)
    assert story.problems == []
    assert story.counts["active"] >= events * EACH / 2, dict(story.counts)
    with suppress(refused.NotFound):
        story.nova.clear()
    eventually(lambda: not story.running(), "all servers are gone")
