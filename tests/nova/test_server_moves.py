# SPDX-License-Identifier: Apache-2.0

"""Servers go from old to new hosts of their allocation by the real Nova."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nova.virt import fake
from novaclient.exceptions import BadRequest, Conflict

from laas_service.app.ports.compute import Handover, MoveProgress, MoveStage, ServerMoves
from laas_service.domain.errors import Forbidden, HostsBusy
from tests.nova import cloud
from tests.story.site import landed
from tests.waiting import eventually

RED, BLUE = "1" * 32, "2" * 32
HOSTS = ["n1", "n2", "n3"]
OLD, NEW = Handover("a1", RED, ("n1",)), Handover("a1", RED, ("n2",))
THERE, BACK = ServerMoves("a1", RED, {"n1": "n2"}), ServerMoves("a1", RED, {"n2": "n1"})


@pytest.fixture(scope="module")
def nova():
    with cloud.started(HOSTS) as nova:
        yield nova


@pytest.fixture
def site(nova):
    yield Site(nova)
    nova.clear()


class Site:
    """An owner on n1, a neighbour on n3, and our adapter."""

    def __init__(self, nova):
        self.nova = nova
        self.compute = nova.compute()
        self.compute.pool(HOSTS)
        self.hand_over(OLD)
        self.hand_over(Handover("a2", BLUE, ("n3",)))

    def hand_over(self, handover):
        self.compute.hand_over(handover)
        self.nova.scheduler_knows()

    def boot(self, project):
        servers = self.nova.client(project).servers
        server = servers.create("server", cloud.IMAGE, flavor="1", nics="none")
        landed(self.nova.admin, server.id)
        return server.id

    def shown(self, id):
        server = self.nova.admin.servers.get(id).to_dict()
        return server["OS-EXT-SRV-ATTR:host"], server["status"]

    def last_migration(self, id):
        """The newest migration of a server; None if there is none."""
        return next(iter(self.nova.admin.migrations.list(instance_uuid=id, limit=1)), None)

    def refused(self, id, target):
        """Ask for a migration to a host, and wait until the scheduler has refused it."""
        before = self.last_migration(id)
        self.nova.admin.servers.migrate(id, host=target)

        def ended():
            newest = self.last_migration(id)
            known = before.id if before else None
            return newest is not None and newest.id != known and newest.status == "error"

        eventually(ended, f"{id} is refused on {target}")

    def moved(self, moves):
        """Move until the old hosts are empty; each call is by an adapter that remembers nothing."""

        def done():
            progress = self.nova.compute().move_servers(moves)
            assert progress.stuck == ()
            return progress == MoveProgress() and not self.compute.occupants(list(moves.targets))

        eventually(done, "the old hosts are empty")

    def told(self, moves, words):
        """Move until the adapter tells these words of a server."""

        def seen():
            progress = self.nova.compute().move_servers(moves)
            return any(words in text for text in (*progress.under_way, *progress.stuck))

        eventually(seen, words)


def test_servers_go_to_the_new_host_and_nobody_else_does(site):
    servers, stranger = [site.boot(RED) for _ in range(2)], site.boot(BLUE)
    site.hand_over(NEW)
    site.moved(THERE)
    assert [site.shown(id) for id in servers] == [("n2", "ACTIVE")] * 2
    assert {site.last_migration(id).status for id in servers} == {"confirmed"}
    for target in ("n1", "n2"):
        site.refused(stranger, target)
        eventually(lambda: site.shown(stranger) == ("n3", "ACTIVE"), "the stranger stays")
    with site.nova.deaf_scheduler():
        site.hand_over(OLD)
        site.moved(BACK)
    assert [site.shown(id) for id in servers] == [("n1", "ACTIVE")] * 2


def test_servers_stop_move_and_start_where_nothing_joins_the_hosts(site):
    """Their owner cannot start them meanwhile; a server that its owner has stopped stays so."""
    runs, rests = site.boot(RED), site.boot(RED)
    owner = site.nova.client(RED).servers
    owner.stop(rests)
    eventually(lambda: site.shown(rests)[1] == "SHUTOFF", "it stops")
    stop, start = (replace(THERE, stage=stage) for stage in (MoveStage.STOP, MoveStage.START))

    def over(moves):
        return lambda: site.nova.compute().move_servers(moves) == MoveProgress()

    eventually(over(stop), "all have stopped")
    assert site.shown(runs) == ("n1", "SHUTOFF")
    with pytest.raises(Conflict):
        owner.start(runs)
    site.hand_over(NEW)
    site.moved(THERE)
    assert [site.shown(id) for id in (runs, rests)] == [("n2", "SHUTOFF")] * 2
    eventually(over(start), "those that ran have started")
    assert [site.shown(id)[1] for id in (runs, rests)] == ["ACTIVE", "SHUTOFF"]
    owner.stop(runs)


def test_servers_that_stopped_for_a_move_are_given_back_to_their_owner_by_a_release(site):
    """They stay stopped. A server that stops without a lock is its owner's all the time."""
    id, owner = site.boot(RED), site.nova.client(RED).servers
    stop, unlock = (replace(THERE, stage=stage) for stage in (MoveStage.STOP, MoveStage.UNLOCK))
    halt = replace(stop, locks=False)

    def over(moves):
        return lambda: site.nova.compute().move_servers(moves) == MoveProgress()

    eventually(over(halt), "it has stopped")
    assert site.shown(id) == ("n1", "SHUTOFF")
    owner.start(id)
    eventually(lambda: site.shown(id)[1] == "ACTIVE", "its owner starts it")
    eventually(over(stop), "it has stopped and is locked")
    with pytest.raises(Conflict):
        owner.delete(id)
    eventually(over(unlock), "it is unlocked")
    assert site.shown(id) == ("n1", "SHUTOFF")
    owner.delete(id)
    eventually(lambda: not site.compute.occupants(["n1"]), "its owner deletes it")


def test_a_disabled_target_is_told_and_tried_again(site):
    server = site.boot(RED)
    site.hand_over(NEW)
    (service,) = site.nova.admin.services.list(host="n2", binary="nova-compute")
    site.nova.admin.services.disable(service.id)
    try:
        site.told(THERE, "whose last migration to n2 failed")
        eventually(lambda: site.shown(server) == ("n1", "ACTIVE"), "the server stays")
    finally:
        site.nova.admin.services.enable(service.id)
    site.moved(THERE)
    assert site.shown(server) == ("n2", "ACTIVE")


def test_a_server_that_breaks_on_its_way_is_told(site, monkeypatch):
    def breaks(*args, **kwargs):
        raise RuntimeError("no disk")

    server = site.boot(RED)
    site.hand_over(NEW)
    monkeypatch.setattr(fake.FakeDriver, "finish_migration", breaks)
    site.told(THERE, "is in error")
    assert site.shown(server)[1] == "ERROR"
    eventually(lambda: not site.compute.occupants(["n1"]), "the error alone holds the step")
    assert site.compute.move_servers(THERE).stuck


def test_the_change_turns_back_before_it_is_confirmed(site):
    server = site.boot(RED)
    site.hand_over(NEW)
    site.compute.move_servers(THERE)
    eventually(lambda: site.shown(server) == ("n2", "VERIFY_RESIZE"), "it waits")
    assert {o.host for o in site.compute.occupants(["n1", "n2"])} == {"n1", "n2"}
    site.hand_over(OLD)
    site.moved(BACK)
    assert site.shown(server) == ("n1", "ACTIVE")
    assert site.last_migration(server).status == "reverted"


def test_running_servers_migrate_live_where_that_is_configured(site):
    server = site.boot(RED)
    site.hand_over(NEW)
    site.moved(ServerMoves("a1", RED, THERE.targets, live=True))
    assert site.shown(server) == ("n2", "ACTIVE")
    assert site.last_migration(server).migration_type == "live-migration"


def test_servers_of_a_dead_host_are_evacuated(site):
    servers = [site.boot(RED) for _ in range(2)]
    site.hand_over(NEW)
    with site.nova.dead("n1") as service:
        site.told(THERE, "compute service set --down n1 nova-compute")
        assert {site.shown(id)[0] for id in servers} == {"n1"}
        site.nova.admin.services.force_down(service, True)
        site.told(THERE, "would lose its")
        shared = site.nova.compute(shared_disks=True)
        eventually(lambda: shared.move_servers(THERE) == MoveProgress(), "all are evacuated")
        assert [site.shown(id) for id in servers] == [("n2", "ACTIVE")] * 2
        assert {site.last_migration(id).migration_type for id in servers} == {"evacuation"}
        assert site.compute.occupants(["n1"]) == [], "the tenant has left the host"
        with pytest.raises(HostsBusy, match="n1 runs"):
            site.compute.hand_over(Handover("a3", BLUE, ("n1",)))
        with pytest.raises(BadRequest, match="`done` evacuation"):
            site.nova.admin.services.force_down(service, False)
    eventually(
        lambda: {site.last_migration(id).status for id in servers} == {"completed"},
        "the host has removed them",
    )
    site.nova.admin.services.force_down(service, False)
    assert site.compute.occupants(["n1"]) == []
    site.hand_over(Handover("a3", BLUE, ("n1",)))


def test_without_the_role_of_an_administrator_the_error_says_so(site):
    server = site.boot(RED)
    site.hand_over(NEW)
    site.nova.policy.set_rules(
        {
            "os_compute_api:servers:detail:get_all_tenants": "role:laas",
            "os_compute_api:servers:allow_all_filters": "role:laas",
        },
        overwrite=False,
    )
    with pytest.raises(Forbidden, match="os-migrations:index"):
        site.nova.compute(role="laas").move_servers(THERE)
    assert site.shown(server) == ("n1", "ACTIVE")
