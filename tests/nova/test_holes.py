# SPDX-License-Identifier: Apache-2.0

"""Holes in the isolation by Nova's own aggregates, and tests that our adapter closes them.

Each class is one hole. ``naive`` is a Nova with its own filter and aggregates made by hand.
``ours`` is the configuration of ``doc/source/install/nova.rst`` with our adapter.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from unittest import mock

import pytest
from keystoneauth1.exceptions import ConnectFailure
from nova import context, exception, objects
from nova.conf import CONF
from nova.scheduler import utils
from nova.scheduler.client.report import SchedulerReportClient
from nova.scheduler.rpcapi import SchedulerAPI
from novaclient import exceptions as refused

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.nova import NovaCompute
from laas_service.adapters.nova.cloud import Cloud
from laas_service.adapters.nova.names import HostNames
from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import Handover, Occupant
from laas_service.app.records import Caller, Drift
from laas_service.app.requests import AllocationRequest, AllocationView
from laas_service.domain.allocation import NoFit, Refusal
from laas_service.domain.errors import Conflict, HostsBusy, InvalidInput, Unavailable
from laas_service.wiring.composition import Composition
from tests.nova import cloud
from tests.options import options_from
from tests.story import site
from tests.waiting import PATIENCE, eventually

RED, BLUE, GREEN = "1" * 32, "2" * 32, "3" * 32
HOSTS = [f"n{number}" for number in range(1, 7)]
KEY = "filter_tenant_id"
A1 = Handover("a1", RED, ("n1", "n2"))
OTHER_IMAGE = "a2459075-d96c-40d5-893e-577ff92e721c"
FORGED = {"_nova_check_type": "rebuild"}
"""The scheduler hint of CVE-2026-46448, as a user sends it."""

FULL = "full"
"""Id of a flavor that fills a host."""


@pytest.fixture(scope="module")
def nova():
    with cloud.started(HOSTS) as nova:
        nova.admin.flavors.create("full", 7000, 1, 1, flavorid=FULL)
        yield nova


@pytest.fixture
def lab(nova):
    lab = Lab(nova)
    yield lab
    lab.clear()


@pytest.fixture
def naive(lab):
    """Nova with its own tenant filter; the pre-filter is off, as by default."""
    lab.nova.filter_with(cloud.STOCK, pre_filter=False)
    return lab


@pytest.fixture
def ours(lab):
    """Nova with our filter; all hosts are in the pool, and no server runs."""
    lab.nova.filter_with(cloud.OURS)
    lab.compute.pool(HOSTS)
    lab.nova.scheduler_knows()
    return lab


@pytest.fixture
def parts(ours, tmp_path):
    """The service, wired to this Nova, with a fabric of its hosts; it looks every second."""
    parts = wired(tmp_path)
    parts.compute = ours.compute
    return parts


def wired(directory, *config_files, names=HOSTS):
    """The service with a fabric of the hosts; compute is as the files configure it."""
    conf = options_from(*config_files)
    conf.set_override("state_dir", str(directory))
    conf.set_override("state_interval", 1.0, "compute")
    conf.set_override("hold_down", 0.0, "compute")
    conf.set_override("retry_last", 1.0, "worker")
    parts = Composition(conf)
    parts.database.upgrade()
    made = generate(Description(xgft="2;3,2;1,3"))
    inventory = replace(made.inventory, host_names=tuple(names))
    parts.store.fabrics.add("f", made.topology, inventory)
    return parts


class Lab:
    """Actions of the tests on one Nova; ``clear`` undoes them."""

    def __init__(self, nova):
        self.nova = nova
        self.admin = nova.admin
        self.compute = nova.compute()
        self.undo = ExitStack()

    def clear(self):
        with self.undo:
            self.undo.callback(self.nova.clear)

    def flags(self, group=None, **values):
        """Set options of nova.conf until ``clear``."""
        for name, value in values.items():
            options = CONF[group] if group else CONF
            self.undo.callback(self.nova.flags, group=group, **{name: options[name]})
            self.nova.flags(group=group, **{name: value})

    def isolate(self, value, *hosts, name="by hand", key=KEY, zone=None, known=True):
        """Make an aggregate by hand; with ``known``, wait until the scheduler knows it."""
        aggregate = self.admin.aggregates.create(name, zone)
        for host in hosts:
            self.admin.aggregates.add_host(aggregate, host)
        aggregate = self.admin.aggregates.set_metadata(aggregate, {key: value})
        if known:
            self.nova.scheduler_knows()
        return aggregate

    def hand_over(self, handover):
        """Hand over by our adapter; return when the scheduler knows."""
        self.compute.hand_over(handover)
        self.nova.scheduler_knows()

    def boot(self, project, *, times=1, flavor="1", admin=False, **options):
        """Start servers one after the other; returns the hosts of those that found one."""
        client = self.nova.client(project, admin=admin)
        found = []
        for _ in range(times):
            server = client.servers.create(
                "server", cloud.IMAGE, flavor=flavor, nics="none", **options
            )
            found.append(site.landed(self.admin, server.id))
        return [host for host in found if host]

    def delete(self, project):
        self.nova.delete_servers({"project_id": project})

    def server_of(self, project):
        search = {"all_tenants": 1, "project_id": project}
        return self.admin.servers.list(search_opts=search)[0]

    def host_of(self, project):
        return getattr(self.server_of(project), "OS-EXT-SRV-ATTR:host")

    def rebuild(self, project, image=cloud.IMAGE):
        """Rebuild the one server of a project; returns its host afterwards.

        Nova asks the scheduler only if the image differs from the present one.
        """
        server = self.server_of(project)
        self.nova.client(project).servers.rebuild(server, image)
        return site.landed(self.admin, server.id)


class TestOwnerSpills:
    """A host without an owner accepts every project, also one that owns other hosts."""

    def test_naive(self, naive):
        naive.isolate(RED, "n1")
        assert set(naive.boot(RED, times=2, flavor=FULL)) - {"n1"}

    def test_ours(self, ours):
        ours.hand_over(Handover("a1", RED, ("n1",)))
        assert ours.boot(RED, times=2, flavor=FULL) == ["n1"]


class TestStrangersOnFreeHosts:
    """A free host, meant for the next tenant, accepts servers of any project."""

    def test_naive(self, naive):
        naive.isolate(RED, "n1")
        assert naive.boot(BLUE)

    def test_ours(self, ours):
        ours.hand_over(A1)
        assert ours.boot(BLUE) == []
        assert ours.boot(RED)


class TestStrangersPastThePreFilter:
    """The pre-filter alone confines the owner, and does not keep other projects out."""

    def test_naive(self, lab):
        lab.nova.filter_with(["ComputeFilter"], pre_filter=True)
        lab.isolate(RED, *HOSTS)
        assert lab.boot(BLUE)

    def test_ours(self, ours):
        ours.hand_over(Handover("a1", RED, tuple(HOSTS)))
        assert ours.boot(BLUE) == []
        assert ours.boot(RED)


class TestCommaList:
    """Nova's filter reads lists, but the pre-filter does not: both projects spill silently."""

    def test_naive(self, lab):
        lab.nova.filter_with(cloud.STOCK, pre_filter=True)
        lab.isolate(f"{RED},{BLUE}", "n1")
        assert set(lab.boot(RED, times=2, flavor=FULL)) - {"n1"}

    def test_ours(self, ours):
        with pytest.raises(InvalidInput, match="one project"):
            ours.compute.hand_over(Handover("a1", f"{RED},{BLUE}", ("n1",)))
        assert ours.boot(RED) == []


class TestLongList:
    """A value has at most 255 characters: a list of eight projects does not fit."""

    def test_naive(self, naive):
        with pytest.raises(refused.BadRequest):
            naive.isolate(",".join(f"{number:032x}" for number in range(8)), "n1")

    def test_ours(self, ours):
        for number, host in enumerate(HOSTS):
            ours.compute.hand_over(Handover(f"a{number}", f"{number + 1:032x}", (host,)))
        assert len(ours.compute.handed_over()) == len(HOSTS)


class TestUnionOfTwoAggregates:
    """A host in the aggregates of two projects accepts both."""

    def test_naive(self, naive):
        naive.isolate(RED, *HOSTS, name="red")
        naive.isolate(BLUE, *HOSTS, name="blue")
        assert naive.boot(RED)
        assert naive.boot(BLUE)

    def test_ours(self, ours):
        ours.hand_over(A1)
        with pytest.raises(Conflict, match="laas-a1 has n2"):
            ours.compute.hand_over(Handover("a2", BLUE, ("n2", "n3")))
        second = ours.isolate(BLUE, "n2", "n3", name="laas-a2")
        ours.admin.aggregates.set_metadata(second, {"laas:allocation": "a2"})
        ours.nova.scheduler_knows()
        assert set(ours.boot(BLUE, times=2, flavor=FULL)) == {"n3"}
        assert set(ours.boot(RED, times=2, flavor=FULL)) == {"n1"}


class TestForeignAggregateWithOurKey:
    """A foreign aggregate with our key admits other projects to hosts that have an owner."""

    def test_naive(self, naive):
        naive.isolate(RED, *HOSTS, name="red")
        naive.isolate(BLUE, "n1", name="blue", key=f"{KEY}_extra")
        assert naive.boot(BLUE) == ["n1"]

    @pytest.mark.parametrize("host", ["n1", "n3"])
    def test_ours(self, ours, host):
        """The filter ignores the foreign aggregate on an owned host and on a free one."""
        ours.hand_over(A1)
        ours.isolate(BLUE, host, name="blue", key=f"{KEY}_extra")
        assert ours.boot(BLUE) == []
        with pytest.raises(Conflict, match=f"blue has {host}"):
            ours.compute.pool(HOSTS)

    def test_ours_with_a_key_in_our_own_aggregate(self, ours):
        ours.hand_over(A1)
        (aggregate,) = [a for a in ours.admin.aggregates.list() if a.name == "laas-a1"]
        ours.admin.aggregates.set_metadata(aggregate, {f"{KEY}_extra": BLUE})
        ours.nova.scheduler_knows()
        assert ours.boot(BLUE) == []
        ours.compute.hand_over(A1)
        assert f"{KEY}_extra" not in ours.admin.aggregates.get(aggregate.id).metadata


class TestStrangerNamedByAnAggregate:
    """Nova's pre-filter confines a project that an aggregate names, by whatever key, to its hosts.

    n6 is an ordinary host.
    """

    def test_naive(self, lab):
        lab.nova.filter_with(cloud.STOCK, pre_filter=True)
        lab.isolate(RED, "n1", name="red")
        lab.isolate(BLUE, "n1", name="blue", key=f"{KEY}_extra")
        assert lab.boot(BLUE, times=2, flavor=FULL) == ["n1"], "the other hosts are free"

    def test_ours(self, lab):
        """Named on owned hosts it gets no host, until the service restores the aggregate."""
        lab.nova.filter_with(cloud.OURS)
        lab.compute.pool(HOSTS[:5])
        lab.hand_over(A1)
        assert lab.boot(BLUE) == ["n6"]
        (aggregate,) = [a for a in lab.admin.aggregates.list() if a.name == "laas-a1"]
        lab.admin.aggregates.set_metadata(aggregate, {f"{KEY}_extra": BLUE})
        lab.nova.scheduler_knows()
        assert lab.boot(BLUE) == []
        lab.hand_over(A1)
        assert lab.boot(BLUE) == ["n6"]


class TestEditedAggregate:
    """An owner's aggregate is edited to name another project, which starts a server there."""

    def test_naive(self, naive):
        aggregate = naive.isolate(RED, *HOSTS)
        naive.admin.aggregates.set_metadata(aggregate, {KEY: BLUE})
        naive.nova.scheduler_knows()
        assert naive.boot(BLUE)
        assert naive.boot(RED) == []

    def test_ours(self, ours):
        """The next reconcile round restores the aggregate and reports the stranger's server."""
        ours.hand_over(A1)
        (aggregate,) = [a for a in ours.admin.aggregates.list() if a.name == "laas-a1"]
        ours.admin.aggregates.set_metadata(aggregate, {KEY: BLUE})
        ours.nova.scheduler_knows()
        (host,) = ours.boot(BLUE)
        with pytest.raises(HostsBusy, match=f"{host} runs .* of project {BLUE}"):
            ours.compute.hand_over(A1)
        assert ours.compute.handed_over() == {"a1": A1}
        ours.nova.scheduler_knows()
        assert ours.boot(BLUE) == []
        (own,) = ours.boot(RED)
        assert own in A1.hosts

    def test_ours_in_error(self, ours):
        """What is edited while an allocation is in error is seen as such, and closed."""
        ours.hand_over(A1)
        (aggregate,) = [a for a in ours.admin.aggregates.list() if a.name == "laas-a1"]
        ours.admin.aggregates.set_metadata(aggregate, {KEY: BLUE})
        seen = ours.compute.observed()
        assert (seen.handed_over["a1"].project_id, seen.fenced) == (BLUE, frozenset())
        ours.compute.fence("a1")
        assert ours.compute.observed().fenced == {"a1"}
        ours.nova.scheduler_knows()
        assert ours.boot(BLUE) == ours.boot(RED) == []


class TestLostCast:
    """Schedulers learn of aggregates by messages; a lost message leaves a host open."""

    def test_naive(self, naive):
        with mock.patch.object(SchedulerAPI, "update_aggregates"):
            naive.isolate(RED, *HOSTS, known=False)
        assert naive.boot(BLUE)

    def test_ours(self, ours):
        with mock.patch.object(SchedulerAPI, "update_aggregates"):
            ours.compute.hand_over(A1)
        assert ours.boot(BLUE) == []
        assert ours.boot(RED) == [], "closed, not open"
        ours.hand_over(A1)  # as every reconcile round does
        assert ours.boot(RED)


class TestReorderedCasts:
    """Each message holds the whole aggregate: the last to arrive wins, even if it is old."""

    @staticmethod
    def reordered(lab, act):
        """Run ``act``, and deliver its messages to the scheduler in reverse order."""
        late = []
        send = SchedulerAPI.update_aggregates
        with mock.patch.object(
            SchedulerAPI, "update_aggregates", lambda self, *args: late.append((self, args))
        ):
            act()
        assert len(late) > 2
        manager = lab.nova.scheduler.manager.host_manager
        with mock.patch.object(
            manager, "update_aggregates", wraps=manager.update_aggregates
        ) as heard:
            for self, args in reversed(late):
                send(self, *args)
            eventually(lambda: heard.call_count == len(late), "the scheduler hears all")

    def test_naive(self, naive):
        self.reordered(naive, lambda: naive.isolate(RED, *HOSTS, known=False))
        assert naive.boot(BLUE)

    def test_ours(self, ours):
        self.reordered(ours, lambda: ours.compute.hand_over(A1))
        assert ours.boot(BLUE) == []
        ours.hand_over(A1)
        assert ours.boot(BLUE) == []
        assert ours.boot(RED)


class TestServerInFlight:
    """A host is isolated after a scheduler chose it for a server, and before that arrives."""

    @staticmethod
    def in_flight(lab, meanwhile):
        """Run ``meanwhile`` between the scheduler's choice and its claim; returns the host."""
        chosen, go = threading.Event(), threading.Event()
        claim = utils.claim_resources

        def late(*args, **kwargs):
            chosen.set()
            assert go.wait(PATIENCE)
            return claim(*args, **kwargs)

        with mock.patch.object(utils, "claim_resources", late):
            servers = lab.nova.client(BLUE).servers
            server = servers.create("server", cloud.IMAGE, flavor="1", nics="none")
            try:
                assert chosen.wait(PATIENCE)
                meanwhile()
            finally:
                go.set()
            return site.landed(lab.admin, server.id)

    def test_naive(self, naive):
        isolate = partial(naive.isolate, RED, *HOSTS, known=False)  # the scheduler is blocked
        assert self.in_flight(naive, isolate) in HOSTS

    def test_ours(self, lab):
        lab.nova.filter_with(cloud.OURS)
        host = self.in_flight(lab, lambda: lab.compute.pool(HOSTS))
        with pytest.raises(HostsBusy, match=f"{host} runs .* of project {BLUE}"):
            lab.compute.hand_over(Handover("a1", RED, (host,)))
        with pytest.raises(HostsBusy, match=host):
            lab.compute.pool(HOSTS)
        assert lab.boot(BLUE) == []


class TestBusyHost:
    """Nova isolates a host on which a stranger's server runs, and rebuilds the server there."""

    def test_naive(self, naive):
        (host,) = naive.boot(BLUE)
        naive.isolate(RED, host)
        naive.rebuild(BLUE)
        assert naive.host_of(BLUE) == host

    def test_ours(self, lab):
        lab.nova.filter_with(cloud.OURS)
        (host,) = lab.boot(BLUE)
        with pytest.raises(HostsBusy, match=f"{host} runs .* of project {BLUE}"):
            lab.compute.pool(HOSTS)
        with pytest.raises(HostsBusy, match=f"{host} runs .* of project {BLUE}"):
            lab.compute.hand_over(Handover("a1", RED, tuple(HOSTS)))
        lab.nova.scheduler_knows()
        assert lab.boot(RED) in ([], [host]), "nothing was announced"


class TestReleasedHostWithAServer:
    """A host gets a new owner while the last owner's server runs, and is rebuilt, there."""

    def test_naive(self, naive):
        naive.isolate(GREEN, *HOSTS[1:], name="others")
        aggregate = naive.isolate(RED, "n1")
        assert naive.boot(RED) == ["n1"]
        naive.admin.aggregates.set_metadata(aggregate, {KEY: BLUE})
        naive.nova.scheduler_knows()
        assert naive.boot(BLUE) == ["n1"]
        naive.rebuild(RED)
        assert naive.host_of(RED) == naive.host_of(BLUE) == "n1"

    def test_ours(self, ours):
        ours.hand_over(A1)
        (host,) = ours.boot(RED)
        ours.compute.fence("a1")
        ours.nova.scheduler_knows()
        assert ours.boot(RED) == ours.boot(BLUE) == []
        ours.rebuild(RED)
        with pytest.raises(HostsBusy, match=f"{host} runs"):
            ours.compute.take_back(A1)
        with pytest.raises(HostsBusy, match=f"{host} runs"):
            ours.compute.hand_over(Handover("a2", BLUE, (host,)))
        ours.delete(RED)
        ours.compute.take_back(A1)
        ours.hand_over(Handover("a2", BLUE, (host,)))
        assert ours.boot(BLUE) == [host]


class TestReleaseOpensHosts:
    """A host that leaves its last aggregate accepts every project."""

    def test_naive(self, naive):
        aggregate = naive.isolate(RED, *HOSTS)
        for host in HOSTS[:2]:
            naive.admin.aggregates.remove_host(aggregate, host)
        naive.nova.scheduler_knows()
        assert set(naive.boot(BLUE)) <= {"n1", "n2"}
        assert naive.boot(BLUE)

    def test_ours(self, ours):
        ours.hand_over(A1)
        ours.compute.take_back(A1)
        ours.nova.scheduler_knows()
        assert ours.boot(BLUE) == ours.boot(RED) == []


class TestMetadataAfterHosts:
    """Hosts of a new aggregate accept every project until its metadata are set."""

    def test_naive(self, naive):
        aggregate = naive.admin.aggregates.create("by hand", None)
        for host in HOSTS:
            naive.admin.aggregates.add_host(aggregate, host)
        naive.nova.scheduler_knows()
        assert naive.boot(BLUE)

    def test_ours(self, ours):
        """After a crash between any two calls strangers stay out; the next start finishes."""
        for calls in range(6):
            dying = NovaCompute(
                dying_cloud(ours.admin, ours.nova.placement, calls),
                pool=cloud.POOL,
                sentinel=cloud.NOBODY,
            )
            try:
                dying.hand_over(A1)
            except Unavailable:
                assert ours.boot(BLUE) == []
            else:
                break
        assert calls > 2, "it needs several calls"
        ours.nova.compute().hand_over(A1)
        ours.nova.scheduler_knows()
        assert ours.boot(RED)
        assert ours.boot(BLUE) == []


def dying_cloud(nova, placement, calls):
    """Fails after ``calls`` writing calls about aggregates, as if the service was killed."""
    made = Cloud(nova, placement)
    left = iter(range(calls))
    write = made.aggregates._write

    def spend(*args):
        if next(left, None) is None:
            raise Unavailable("killed")
        return write(*args)

    made.aggregates._write = spend  # type: ignore[method-assign]
    return made


class TestLostAnswer:
    """Nova carries out a call that timed out, and refuses its repetition."""

    @staticmethod
    def deaf(lab):
        """The next host joins its aggregate, but the answer is lost."""
        join = lab.admin.aggregates.add_host
        answers = iter([ConnectFailure("timed out")])

        def add_host(aggregate, host):
            answer = join(aggregate, host)
            for failure in answers:
                raise failure
            return answer

        return mock.patch.object(lab.admin.aggregates, "add_host", add_host)

    def test_naive(self, naive):
        with self.deaf(naive):
            with pytest.raises(ConnectFailure):
                naive.isolate(RED, "n1")
            with pytest.raises(refused.Conflict):
                naive.isolate(RED, "n1")

    def test_ours(self, ours):
        with self.deaf(ours):
            with pytest.raises(Unavailable):
                ours.compute.hand_over(A1)
            assert ours.boot(BLUE) == []
            ours.compute.hand_over(A1)
        assert ours.compute.handed_over() == {"a1": A1}


class TestPlacementMissesAHost:
    """Nova answers 200 although placement missed the host; the pre-filter finds no host."""

    @staticmethod
    def forgetful():
        """The next update of placement fails."""
        tell = SchedulerReportClient.aggregate_add_host
        failures = iter([exception.ResourceProviderUpdateFailed(url="placement", error="away")])

        def aggregate_add_host(self, *args, **kwargs):
            for failure in failures:
                raise failure
            return tell(self, *args, **kwargs)

        return mock.patch.object(SchedulerReportClient, "aggregate_add_host", aggregate_add_host)

    def test_naive(self, lab):
        lab.nova.filter_with(cloud.STOCK, pre_filter=True)
        with self.forgetful():
            lab.isolate(RED, "n1")
        assert lab.boot(RED) == []

    def test_ours(self, ours):
        with self.forgetful():
            ours.hand_over(Handover("a1", RED, ("n1",)))
        assert ours.boot(RED) == ["n1"]


class TestMoreHostsThanPlacementLists:
    """Placement lists a few hosts, the filter rejects them all, and idle hosts stay unused."""

    @staticmethod
    def who_finds(lab):
        """The projects for which Nova finds a host in an empty cloud."""
        found = set()
        for project in (RED, BLUE):
            if lab.boot(project):
                found.add(project)
            lab.delete(project)
        return found

    def test_naive(self, naive):
        naive.isolate(BLUE, *HOSTS[:5], name="blue")
        naive.isolate(RED, "n6", name="red")
        assert self.who_finds(naive) == {RED, BLUE}
        naive.flags(group="scheduler", max_placement_results=1)
        assert len(self.who_finds(naive)) == 1, "the one that has the host which is listed"

    def test_ours(self, ours):
        ours.hand_over(Handover("a1", BLUE, tuple(HOSTS[:5])))
        ours.hand_over(Handover("a2", RED, ("n6",)))
        ours.flags(group="scheduler", max_placement_results=1)
        assert self.who_finds(ours) == {RED, BLUE}
        assert ours.boot(RED, times=3) == ["n6"] * 3
        assert len(ours.boot(BLUE, times=3)) == 3


class TestForcedHost:
    """A host that an administrator names in the availability zone bypasses all filters."""

    def test_naive(self, naive):
        naive.isolate(RED, "n1")
        assert naive.boot(BLUE, admin=True, availability_zone="nova:n1") == ["n1"]
        assert naive.boot(RED, admin=True, availability_zone="nova:n2") == ["n2"]

    def test_ours(self, ours):
        """The pre-filter confines the owner; the next reconcile round reports a stranger."""
        ours.hand_over(A1)
        assert ours.boot(RED, admin=True, availability_zone="nova:n3") == []
        with pytest.raises(refused.Forbidden):
            ours.boot(BLUE, availability_zone="nova:n1")
        assert ours.boot(BLUE, admin=True, host="n1") == []
        assert ours.boot(BLUE, admin=True, availability_zone="nova:n1") == [], "the pool is hidden"
        ours.nova.filter_with(cloud.STOCK)
        assert ours.boot(BLUE, admin=True, availability_zone="nova:n1") == ["n1"]
        with pytest.raises(HostsBusy, match=f"n1 runs .* of project {BLUE}"):
            ours.compute.hand_over(A1)


class TestForgedRebuild:
    """Before the fix of CVE-2026-46448, a user's hint makes Nova treat a create as a rebuild.

    The scheduler then asks neither the pre-filter nor placement, and skips filters.
    """

    @staticmethod
    def forged():
        """Add the hint below the API, which removes it since the fix."""
        build = utils.build_filter_properties
        hint = {"_nova_check_type": ["rebuild"]}
        return mock.patch.object(
            utils,
            "build_filter_properties",
            lambda hints, *args: build({**(hints or {}), **hint}, *args),
        )

    def test_naive(self, naive):
        naive.isolate(RED, *HOSTS)
        assert naive.boot(BLUE) == []
        with self.forged():
            assert naive.boot(BLUE)

    def test_ours(self, ours):
        ours.hand_over(A1)
        with self.forged():
            assert ours.boot(BLUE) == []
            (host,) = ours.boot(RED)
        assert host in A1.hosts

    @staticmethod
    def affected():
        """Whether the API of this release of Nova accepts the hint (OSSA-2026-022)."""
        series, *release = map(int, version("nova").split("."))
        return tuple(release) < {31: (3, 1), 32: (2, 1), 33: (0, 2)}.get(series, (0, 0))

    def test_naive_through_the_api(self, naive):
        naive.isolate(RED, *HOSTS)
        assert naive.boot(BLUE) == []
        assert bool(naive.boot(BLUE, scheduler_hints=FORGED)) is self.affected()

    def test_ours_through_the_api(self, ours):
        ours.hand_over(A1)
        assert ours.boot(BLUE, scheduler_hints=FORGED) == []
        (host,) = ours.boot(RED, scheduler_hints=FORGED)
        assert host in A1.hosts

    def test_a_true_rebuild_passes(self, ours):
        """A rebuild passes even on a fenced host, which accepts no new server."""
        ours.hand_over(A1)
        (host,) = ours.boot(RED)
        ours.compute.fence("a1")
        ours.nova.scheduler_knows()
        assert ours.rebuild(RED, image=OTHER_IMAGE) == host
        assert ours.server_of(RED).image["id"] == OTHER_IMAGE


class TestGhost:
    """A server that came by the forged hint has no allocation in placement."""

    OWNED = Handover("a1", RED, tuple(HOSTS))

    @pytest.fixture
    def ghost(self, ours):
        """BLUE's server on one of RED's hosts; our filter was not in force when it was created."""
        ours.hand_over(self.OWNED)
        ours.nova.filter_with(cloud.STOCK)
        with TestForgedRebuild.forged():
            (host,) = ours.boot(BLUE)
        ours.nova.filter_with(cloud.OURS)
        return Occupant(host, ours.server_of(BLUE).id, BLUE)

    def test_naive(self, ours, ghost):
        """Who asks placement, as Nova recommends, sees an empty host."""
        (node,) = [h for h in ours.admin.hypervisors.list() if h.service["host"] == ghost.host]
        assert not ours.nova._held(f"/resource_providers/{node.id}/allocations")

    def test_ours(self, ours, ghost):
        """The ghost is seen; while its host is closed, the owner's servers run on."""
        assert ours.compute.look(HOSTS)[ghost.host].servers == (ghost,)
        assert ghost in ours.compute.occupants(HOSTS)
        with pytest.raises(HostsBusy, match=f"{ghost.host} runs {ghost.consumer} of .* {BLUE}"):
            ours.compute.hand_over(self.OWNED)
        others = {*HOSTS} - {ghost.host}
        ours.compute.close(HOSTS, others)
        assert ours.compute.observed().closed == others
        ours.nova.scheduler_knows()
        assert ours.boot(RED) == [ghost.host], "the other hosts are closed"
        ours.compute.close(HOSTS, [ghost.host])
        assert ours.compute.observed().closed == {ghost.host}
        ours.nova.scheduler_knows()
        (host,) = ours.boot(RED)
        assert host in others

    def test_the_host_is_neither_taken_back_nor_handed_over(self, ours, ghost):
        with pytest.raises(HostsBusy, match=ghost.consumer):
            ours.compute.take_back(self.OWNED)
        with pytest.raises(HostsBusy, match=ghost.consumer):
            ours.compute.hand_over(Handover("a2", GREEN, (ghost.host,)))
        ours.delete(BLUE)
        ours.compute.take_back(self.OWNED)

    def test_the_worker_tells_it_and_closes_its_host_until_it_is_gone(self, ours, parts):
        service, closed = Service(parts), lambda: ours.compute.observed().closed
        record = service.ask(RED, 6)
        service.rounds(lambda: service.state(record) is State.ACTIVE, "it is active")
        ours.nova.scheduler_knows()
        (own,) = ours.boot(RED)
        ours.nova.filter_with(cloud.STOCK)
        with TestForgedRebuild.forged():
            (host,) = ours.boot(BLUE)
        ours.nova.filter_with(cloud.OURS)
        service.rounds(lambda: closed() == {host}, "its host is closed")
        ghost = f"{host} runs {ours.server_of(BLUE).id} of project {BLUE}"
        assert ghost in parts.store.allocations.get(record.id).history[-1].reason
        assert parts.store.observations.drift("f")[Drift.STRANGERS] == 1
        ours.nova.scheduler_knows()
        assert host not in ours.boot(RED, times=3)
        assert ours.server_of(BLUE).status == "ACTIVE", "nobody stops it by default"
        here = ours.admin.servers.list(search_opts={"all_tenants": 1, "host": own})
        assert {s.status for s in here} == {"ACTIVE"}
        ours.delete(BLUE)
        service.rounds(lambda: not closed(), "its host is open again")

    def test_its_hint_outlives_the_fix(self, ours, ghost):
        found = ours.compute.checks.forged_rebuilds() or ""
        assert found.endswith(
            f"servers were created with the forged hint _nova_check_type: {ghost.consumer}"
        )
        ours.delete(BLUE)
        assert "forged hint" not in (ours.compute.checks.forged_rebuilds() or "")

    def test_an_administrator_may_stop_it(self, ours, ghost):
        ours.compute.stop(ghost.consumer)
        server = ours.admin.servers.get(ghost.consumer)
        eventually(lambda: server.get() or server.status == "SHUTOFF", "the ghost stops")

    def test_the_rights_it_takes(self, ours, ghost):
        """Without the right to list servers a ghost is seen, but not its project."""
        policy, rule = ours.nova.policy, "role:admin or role:links"
        hypervisors, servers = "os_compute_api:os-hypervisors:list-detail", "os_compute_api:servers"
        more = ("detail:get_all_tenants", "allow_all_filters")
        policy.set_rules({hypervisors: rule}, overwrite=False)
        compute = ours.nova.compute(role="links")
        unknown = replace(ghost, project_id=None)
        assert compute.look(HOSTS)[ghost.host].servers == (unknown,)
        policy.set_rules({f"{servers}:{name}": rule for name in more}, overwrite=False)
        assert compute.look(HOSTS)[ghost.host].servers == (ghost,)


class TestPlacementHidesThePool:
    """With our request filter placement returns ordinary projects no host of the pool."""

    @pytest.fixture
    def hidden(self, ours):
        """n6 is an ordinary host; the others are in the pool, and RED owns two of them."""
        (pool,) = ours.admin.aggregates.list()
        ours.admin.aggregates.remove_host(pool, "n6")
        ours.hand_over(A1)
        return ours

    def test_no_forced_host(self, hidden):
        """Nova skips the filters, but not the request filters."""
        assert hidden.boot(BLUE, admin=True, availability_zone="nova:n1") == []
        assert hidden.boot(BLUE, admin=True, availability_zone="nova:n6") == ["n6"]
        assert hidden.boot(RED)[0] in A1.hosts

    def test_the_check_asks_as_the_scheduler_does(self, hidden):
        """``laas-status`` tells by it; an administrator of placement may have edited the pool."""
        problem, found = hidden.compute.checks.candidates()
        assert problem is None
        assert found.startswith("placement offers 1 hosts outside the pool to other projects (a ")
        (node,) = [h for h in hidden.admin.hypervisors.list() if h.service["host"] == "n5"]
        path = f"/resource_providers/{node.id}/aggregates"
        answer = hidden.nova.placement.get(path, microversion="1.19").json()
        kept = {**answer, "aggregates": []}
        hidden.nova.placement.put(path, json=kept, microversion="1.19")
        problem, _ = hidden.compute.checks.candidates()
        assert problem is not None
        assert problem.startswith("placement shows 4 of 5 hosts of aggregate laas-pool")
        generation = hidden.nova.placement.get(path, microversion="1.19").json()
        answer["resource_provider_generation"] = generation["resource_provider_generation"]
        hidden.nova.placement.put(path, json=answer, microversion="1.19")
        assert hidden.compute.checks.candidates() == (None, found)

    def test_everybody_finds_the_own_hosts(self, hidden):
        """Else placement may list only hosts that the filters reject."""
        hidden.flags(group="scheduler", max_placement_results=1)
        assert hidden.boot(GREEN, times=3) == ["n6"] * 3
        assert set(hidden.boot(RED, times=3)) <= set(A1.hosts)

    def test_servers_of_an_owner_still_move(self, hidden):
        """Their flavors, which Nova keeps with the server, ask for nothing."""
        (host,) = hidden.boot(RED)
        (server,) = hidden.admin.servers.list(search_opts={"all_tenants": 1, "project_id": RED})
        hidden.admin.servers.migrate(server)
        eventually(lambda: server.get() or server.status == "VERIFY_RESIZE", "the server moves")
        (other,) = set(A1.hosts) - {host}
        assert getattr(server, "OS-EXT-SRV-ATTR:host") == other
        hidden.admin.servers.confirm_resize(server)
        eventually(lambda: server.get() or server.status == "ACTIVE", "the move is confirmed")


class TestComputeServiceComesBack:
    """A compute service that was deleted returns without aggregates: it accepts every project."""

    @classmethod
    def reborn(cls, lab, host):
        """Delete a compute service and start it again; returns the new service."""
        cls.deleted(lab, host)
        return cls.started(lab, host)

    @staticmethod
    def deleted(lab, host):
        lab.nova.computes[host].stop()
        (service,) = lab.admin.services.list(host=host, binary="nova-compute")
        lab.admin.services.delete(service.id)

    @staticmethod
    def started(lab, host):
        cell = lab.nova.host_mappings[host].cell_mapping
        objects.HostMapping(context.get_context(), host=host, cell_mapping=cell).create()
        lab.nova._start_compute(host)
        (service,) = lab.admin.services.list(host=host, binary="nova-compute")
        return service

    def test_naive(self, naive):
        naive.isolate(RED, *HOSTS)
        self.reborn(naive, "n5")
        naive.nova.scheduler_knows()
        assert naive.boot(BLUE) == ["n5"]

    def test_ours(self, ours):
        """With ``enable_new_services = false`` a host takes no server before it is pooled."""
        handover = Handover("a1", RED, ("n5",))
        ours.hand_over(handover)
        ours.flags(enable_new_services=False)
        service = self.reborn(ours, "n5")
        ours.undo.callback(ours.admin.services.enable, service.id)
        ours.nova.scheduler_knows()
        assert ours.boot(BLUE) == []
        assert ours.compute.handed_over()["a1"].hosts == ()
        ours.compute.pool(HOSTS)
        ours.hand_over(handover)
        ours.admin.services.enable(service.id)
        assert ours.boot(BLUE) == []
        assert ours.boot(RED) == ["n5"]


class Service:
    """The service's use cases on a real Nova, and rounds of its worker."""

    def __init__(self, parts):
        self.store = parts.store
        self._parts = parts
        use_cases = parts.use_cases(wake=lambda: None)
        self._allocations, self._changes = use_cases.allocations, use_cases.changes

    def rounds(self, done, what):
        """Rounds of the worker until ``done``."""

        def seen():
            self._parts.fabric_leases.run_once()
            self._parts.admission_queue.serve_all()
            return done()

        eventually(seen, what, pause=0.2)

    def ask(self, project, hosts):
        caller = Caller(project, "somebody", admin=False, request_id="request")
        answer = self._allocations.allocate(caller, AllocationRequest(name="x", hosts=hosts))
        return answer if isinstance(answer, NoFit) else answer.record

    def release(self, record, *, force):
        caller = Caller(record.project_id, "somebody", admin=True, request_id="request")
        self._allocations.release(caller, record.id, force=force)

    def state(self, record):
        return self.store.allocations.get(record.id).state

    def error(self, record):
        return self.store.allocations.get(record.id).error

    def hosts(self, record):
        record, fabric = self.store.allocations.get(record.id), self.store.fabrics.get("f")
        return {fabric.inventory.host_names[host] for host in record.placed.hosts(fabric.topology)}

    def withheld(self):
        """Why hosts get no new owner, by name."""
        names = self.store.fabrics.get("f").inventory.host_names
        words = self.store.components.words("f").hosts
        return {names[host]: said[0].evidence for host, said in words.items()}


class TestHostsThatRunNothing:
    """Nova's aggregates take hosts that are disabled or down: their owner cannot use them."""

    @pytest.fixture
    def services(self, ours):
        found = {s.host: s for s in ours.admin.services.list(binary="nova-compute")}
        for service in found.values():
            ours.undo.callback(ours.admin.services.enable, service.id)
            ours.undo.callback(ours.admin.services.force_down, service.id, False)
        return found

    def test_naive(self, naive, services):
        naive.admin.services.disable_log_reason(services["n1"].id, "memory")
        naive.isolate(BLUE, *HOSTS[1:], name="others")
        naive.isolate(RED, "n1")
        assert naive.boot(RED) == []

    def test_ours(self, ours, services, parts):
        ours.admin.services.disable_log_reason(services["n1"].id, "memory")
        ours.admin.services.force_down(services["n2"].id, True)
        service = Service(parts)
        why = {"n1": "disabled in Nova: memory", "n2": "down in Nova"}
        service.rounds(lambda: service.withheld() == why, "hosts are withheld")
        record = service.ask(RED, 2)
        service.rounds(lambda: service.state(record) is State.ACTIVE, "it is active")
        assert not service.hosts(record) & {"n1", "n2"}
        refusal = service.ask(BLUE, 3)
        assert isinstance(refusal, NoFit)
        ours.admin.services.enable(services["n1"].id)
        ours.admin.services.force_down(services["n2"].id, False)
        service.rounds(lambda: service.withheld() == {}, "hosts are given back")

    def test_hosts_that_go_after_the_last_look(self, ours, services, parts):
        """They are looked at when they are to be handed over."""
        parts._conf.set_override("hold_down", 1000.0, "compute")
        parts._conf.set_override("state_interval", 1000.0, "compute")
        service = Service(parts)
        service.rounds(
            lambda: parts.store.faults.host_memory("f").strange == set(), "hosts are seen"
        )
        for each in services.values():
            ours.admin.services.disable_log_reason(each.id, "memory")
        record = service.ask(RED, 2)
        service.rounds(lambda: service.error(record), "the allocation waits")
        assert service.state(record) is State.ALLOCATING
        host = min(service.hosts(record))
        assert f"handed over now: {host} is disabled in Nova: memory" in service.error(record)
        assert ours.compute.handed_over() == {}
        for each in services.values():
            ours.admin.services.enable(each.id)
        service.rounds(lambda: service.state(record) is State.ACTIVE, "it is active")
        assert service.withheld() == {}

    def test_an_allocation_is_placed_anew(self, ours, services, parts):
        """A host fails after it was claimed and before it is handed over."""
        service = Service(parts)
        record = service.ask(RED, 2)
        first = service.hosts(record)
        for host in first:
            ours.admin.services.disable_log_reason(services[host].id, "memory")
        service.rounds(lambda: service.state(record) is State.ACTIVE, "it is active")
        assert not service.hosts(record) & first
        assert set(ours.compute.handed_over()[record.id].hosts) == service.hosts(record)

    def test_a_host_that_nova_does_not_know(self, ours, parts):
        """Another host takes its place; Nova adds no such host to an aggregate."""
        service = Service(parts)
        record = service.ask(RED, 5)
        (spare,) = {*HOSTS} - service.hosts(record)
        host = sorted(service.hosts(record))[0]
        TestComputeServiceComesBack.deleted(ours, host)
        try:
            service.rounds(lambda: service.state(record) is State.ACTIVE, "it is active")
            assert spare in service.hosts(record)
            assert host not in service.hosts(record)
            assert service.withheld() == {host: "unknown in Nova"}
            assert isinstance(service.ask(BLUE, 1), NoFit)
        finally:
            TestComputeServiceComesBack.started(ours, host)
        service.rounds(lambda: not service.withheld(), "the host is given back")

    def test_an_outage_of_the_broker_withholds_nobody(self, ours, services, parts):
        """Every compute is down at once: that is one alarm, and no host's own fault."""
        service, memory = Service(parts), parts.store.faults.host_memory
        for each in services.values():
            ours.admin.services.force_down(each.id, True)
        service.rounds(lambda: memory("f").not_up == {*HOSTS}, "all are seen to be down")
        assert memory("f").alarm
        assert service.withheld() == {}
        record = service.ask(RED, 2)
        service.rounds(lambda: service.error(record), "the allocation waits")
        assert "down in Nova" in service.error(record)
        for each in services.values():
            ours.admin.services.force_down(each.id, False)
        service.rounds(lambda: service.state(record) is State.ACTIVE, "it is active")
        # A hand-over looks at its own hosts; the alarm ends with the next look at all of them.
        service.rounds(lambda: memory("f").alarm is None, "all are seen to be up")
        assert service.withheld() == {}

    def test_a_dead_host_is_not_the_next_tenants(self, ours, services, parts):
        """Its server is deleted while its compute is down, and runs on; Nova shows it empty."""
        service = Service(parts)
        record = service.ask(RED, 2)
        service.rounds(lambda: service.state(record) is State.ACTIVE, "it is active")
        ours.nova.scheduler_knows()
        (host,) = ours.boot(RED)
        memory = service.store.faults.host_memory
        service.rounds(lambda: host in memory("f").servers, "the server is seen")
        ours.admin.services.force_down(services[host].id, True)
        ours.delete(RED)
        assert not ours.compute.occupants(HOSTS), "Nova and placement have forgotten it"
        service.store.allocations.transition(
            service.store.allocations.get(record.id), State.RELEASING, "asked"
        )
        service.rounds(lambda: service.state(record) is State.RELEASED, "it is released")
        assert "quarantined: server" in " ".join(
            f"quarantined: {entry.why}" for entry in memory("f").quarantine.values()
        )
        ours.admin.services.force_down(services[host].id, False)
        service.rounds(lambda: not memory("f").not_up, "its compute is back")
        assert service.withheld().keys() == {host}
        assert isinstance(service.ask(BLUE, 6), NoFit)
        service.store.faults.release_quarantine("f", host)
        assert service.withheld() == {}


class TestOtherNames:
    """Nova adds no host to an aggregate whose name a fabric writes differently."""

    NAMES = ("N1", "N2", "N3", "N4", "n5.example.org", "n6")

    @staticmethod
    def service(lab, tmp_path, names):
        parts = wired(tmp_path, names=names)
        cloud = Cloud(lab.admin, lab.nova.placement, names=HostNames(parts._names_in_nova))
        parts.compute = NovaCompute(cloud, pool="laas-pool", sentinel="laas-nobody")
        return Service(parts), parts

    def test_naive(self, naive):
        aggregate = naive.admin.aggregates.create("by hand", None)
        with pytest.raises(refused.NotFound):
            naive.admin.aggregates.add_host(aggregate, "N1")

    def test_ours(self, lab, tmp_path):
        lab.nova.filter_with(cloud.OURS)
        service, parts = self.service(lab, tmp_path, self.NAMES)
        record = service.ask(RED, 2)
        service.rounds(lambda: service.state(record) is State.ACTIVE, "it is active")
        hosts = service.hosts(record)
        assert parts.compute.handed_over()[record.id].hosts == tuple(sorted(hosts))
        pool, mine = sorted(lab.admin.aggregates.list(), key=lambda one: len(one.hosts))[::-1]
        assert {*pool.hosts} == {*HOSTS}
        assert {*mine.hosts} == {host.lower().partition(".")[0] for host in hosts}
        lab.nova.scheduler_knows()
        assert lab.boot(RED)[0] in mine.hosts
        assert lab.boot(BLUE) == []
        memory = parts.store.faults.host_memory
        service.rounds(lambda: len(memory("f").names) == 5, "other names are recorded")
        assert memory("f").names["n5.example.org"] == "n5"
        assert (memory("f").alarm, service.withheld()) == (None, {})
        later = NovaCompute(
            Cloud(lab.admin, lab.nova.placement, names=HostNames(parts._names_in_nova)),
            pool="laas-pool",
            sentinel="laas-nobody",
        )
        assert later.handed_over()[record.id].hosts == tuple(sorted(hosts))

    def test_names_that_nothing_matches(self, lab, tmp_path):
        """Nothing is allocated there, and the first pair that nearly matches is told."""
        lab.nova.filter_with(cloud.OURS)
        names = [f"n-{number}" for number in range(1, 7)]
        service, parts = self.service(lab, tmp_path, names)
        memory = parts.store.faults.host_memory
        service.rounds(lambda: memory("f").alarm, "the alarm is told")
        assert memory("f").alarm == (
            "6 of 6 hosts have been unknown in Nova since their import, so no new owner gets them; "
            "host 'n-1' nearly matches 'n1' there"
        )
        assert service.withheld().keys() == {*names}
        assert isinstance(service.ask(RED, 1), NoFit)


class TestKeptServers:
    """With ``reclaim_instance_interval`` a deleted server keeps its room, and can be restored."""

    def test_naive(self, naive):
        naive.flags(reclaim_instance_interval=3600)
        (host,) = naive.boot(RED)
        (server,) = naive.admin.servers.list(search_opts={"all_tenants": 1})
        naive.nova.client(RED).servers.delete(server.id)
        listed = partial(naive.admin.servers.list, search_opts={"all_tenants": 1})
        eventually(lambda: not listed(), "it is not listed")
        assert naive.compute.occupants([host])
        naive.admin.servers.force_delete(server.id)

    def test_ours(self, ours, parts):
        ours.flags(reclaim_instance_interval=3600)
        service = Service(parts)
        record = service.ask(RED, 2)
        service.rounds(lambda: service.state(record) is State.ACTIVE, "it is active")
        ours.nova.scheduler_knows()
        (host,) = ours.boot(RED)
        (server,) = ours.admin.servers.list(search_opts={"all_tenants": 1})
        ours.nova.client(RED).servers.delete(server.id)
        listed = partial(ours.admin.servers.list, search_opts={"all_tenants": 1})
        eventually(lambda: not listed(), "it is not listed")
        with pytest.raises(HostsBusy) as error:
            service.release(record, force=False)
        assert f"{host} keeps {server.id} of project {RED}, deleted at 20" in str(error.value)
        assert "reclaim_instance_interval" in str(error.value)
        ours.admin.servers.force_delete(server.id)
        eventually(lambda: not ours.compute.occupants([host]), "its room is free")
        service.release(record, force=False)
        service.rounds(lambda: service.state(record) is State.RELEASED, "it is released")


class TestAvailabilityZone:
    """An aggregate with an availability zone refuses hosts that run servers."""

    def test_naive(self, naive):
        (host,) = naive.boot(RED)
        with pytest.raises(refused.Conflict):
            naive.isolate(RED, host, zone="red-zone")

    def test_ours(self, lab):
        """A host joins an allocation while servers of the same project run on it."""
        lab.nova.filter_with(cloud.OURS)
        (host,) = lab.boot(RED)
        lab.compute.hand_over(Handover("a1", RED, (host,)))
        assert {a.availability_zone for a in lab.admin.aggregates.list()} == {None}


class TestSeveralZones:
    """Hosts of one allocation may be in several availability zones; others may name a zone."""

    @pytest.fixture
    def zones(self, ours):
        """One zone in each of two aggregates that an operator made."""
        for zone, hosts in (("east", HOSTS[:3]), ("west", HOSTS[3:])):
            aggregate = ours.admin.aggregates.create(zone, zone)
            for host in hosts:
                ours.admin.aggregates.add_host(aggregate, host)
        ours.nova.scheduler_knows()
        return ours

    def test_ours(self, zones):
        zones.compute.pool(HOSTS)
        zones.hand_over(Handover("a1", RED, ("n1", "n4")))
        assert set(zones.boot(RED, times=2, flavor=FULL)) == {"n1", "n4"}
        zones.delete(RED)
        assert zones.boot(RED, availability_zone="west") == ["n4"]
        for zone in ("east", "west"):
            assert zones.boot(BLUE, availability_zone=zone) == []
        zones.delete(RED)
        zones.compute.take_back(Handover("a1", RED, ("n1", "n4")))
        zones.nova.scheduler_knows()
        assert zones.boot(RED, availability_zone="west") == []
        zones_of = {s.host: s.zone for s in zones.admin.services.list(binary="nova-compute")}
        assert {zones_of["n1"], zones_of["n4"]} == {"east", "west"}, "as the operator made them"


class TestDeafScheduler:
    """A second scheduler hears no messages: it knows the aggregates as they were at its start.

    It decides the first request, and then every other one.
    """

    def test_naive(self, naive):
        with naive.nova.deaf_scheduler():
            naive.isolate(RED, *HOSTS)
            assert len(naive.boot(BLUE, times=4)) == 2, "the deaf scheduler lets strangers in"

    def test_ours(self, ours, parts):
        """It refuses owners rather than let strangers in, and a forced release ends."""
        service = Service(parts)
        with ours.nova.deaf_scheduler():
            record = service.ask(RED, 6)
            service.rounds(lambda: service.state(record) is State.ACTIVE, "it is active")
            ours.nova.scheduler_knows()
            assert ours.boot(BLUE, times=2) == []
            assert len(ours.boot(RED, times=2)) == 1, "the deaf scheduler refuses the owner"
            service.release(record, force=True)
            ours.delete(RED)
            service.rounds(lambda: service.state(record) is State.RELEASED, "it ends")
            ours.nova.scheduler_knows()
            assert ours.boot(RED, times=2) == []

    def test_a_former_owner_with_a_forged_hint(self, ours):
        """Only our filter reads the database then; the deaf scheduler knows RED as the owner."""
        former, present = Handover("a1", RED, tuple(HOSTS)), Handover("a2", BLUE, tuple(HOSTS))
        ours.hand_over(former)
        with ours.nova.deaf_scheduler():
            ours.compute.take_back(former)
            ours.hand_over(present)
            with TestForgedRebuild.forged():
                assert ours.boot(RED, times=2) == []
                assert len(ours.boot(BLUE, times=2)) == 2


class TestNovaTimesOut:
    """Nova accepts connections and answers nothing, for longer than the service waits."""

    def test_a_forced_release_says_why_and_ends(self, ours, tmp_path):
        gate = threading.Event()
        gate.set()
        with cloud.served(ours.nova, gate) as url:
            config = tmp_path / "laas.conf"
            config.write_text(
                "[compute]\nkind = nova\n"
                f"[nova]\nauth_type = admin_token\nendpoint = {url}/compute/v2.1\n"
                "token = service:admin\ntimeout = 1\n"
                f"[placement]\nauth_section = nova\nendpoint_override = {url}/placement\n"
            )
            service = Service(wired(tmp_path, config))
            record = service.ask(RED, 2)
            service.rounds(lambda: service.state(record) is State.ACTIVE, "it is active")
            gate.clear()
            service.release(record, force=True)
            service.rounds(lambda: service.error(record), "the release says why it waits")
            assert service.state(record) is State.RELEASING
            assert "cannot list aggregates: Request to " in service.error(record)
            assert "timed out" in service.error(record)
            gate.set()
            service.rounds(lambda: service.state(record) is State.RELEASED, "it ends")
        ours.nova.scheduler_knows()
        assert ours.compute.handed_over() == {}
        assert ours.boot(RED) == []


class TestTwoAllocationsOfAProject:
    """Nova knows only the project: its servers mix across the hosts of two allocations."""

    def test_naive(self, naive):
        naive.isolate(RED, "n1", "n2", name="first")
        naive.isolate(RED, "n3", "n4", name="second")
        naive.isolate(BLUE, "n5", "n6", name="others")
        hint = {"laas:allocation": "first"}
        landed = naive.boot(RED, times=4, flavor=FULL, scheduler_hints=hint)
        assert set(landed) == {"n1", "n2", "n3", "n4"}

    def test_ours(self, ours):
        ours.hand_over(A1)
        ours.hand_over(Handover("a2", RED, ("n3", "n4")))
        hint = {"laas:allocation": "a1"}
        landed = ours.boot(RED, times=3, flavor=FULL, scheduler_hints=hint)
        assert sorted(landed) == ["n1", "n2"]


class TestQuotaOfTenInstances:
    """A project cannot use more hosts than the servers that its quota in Nova allows."""

    @pytest.fixture(autouse=True)
    def _three(self, lab):
        lab.flags(group="quota", instances=3)

    def test_naive(self, naive):
        naive.isolate(RED, *HOSTS)
        with pytest.raises(refused.Forbidden, match="Quota exceeded for instances"):
            naive.boot(RED, times=4)

    def test_ours(self, ours, parts):
        """A too large request is refused with its reason; a granted one can be used fully."""
        allocations = parts.use_cases(wake=lambda: None).allocations
        caller = Caller(RED, "somebody", admin=False, request_id="request")
        refusal = allocations.allocate(caller, AllocationRequest(name="large", hosts=4))
        assert isinstance(refusal, NoFit)
        assert refusal.reason is Refusal.QUOTA
        assert f"project {RED} may run 3 servers in Nova" in refusal.detail
        assert refusal.largest_fit == 3
        assert not parts.store.allocations.page()
        assert not ours.compute.handed_over()
        small = allocations.allocate(caller, AllocationRequest(name="small", hosts=3))
        assert isinstance(small, AllocationView)
        while parts.fabric_leases.run_once():
            pass
        (record,) = parts.store.allocations.page()
        assert record.state is State.ACTIVE
        ours.nova.scheduler_knows()
        assert len(set(ours.boot(RED, times=3, flavor=FULL))) == 3
        ours.undo.callback(ours.admin.quotas.delete, RED)
        ours.admin.quotas.update(RED, instances=-1)
        assert ours.compute.server_limit(RED) is None
