# SPDX-License-Identifier: Apache-2.0

"""Tenants come and go on the hosts of a fabric: with our service, and with Nova alone.

With ``LAAS_STORY=full`` (``tox -e story``) the story has twelve tenants, 300 servers and 128
hosts; otherwise it has 16 hosts. Nova and placement are real, behind a TCP port. Our
``laas-api --all-in-one`` runs beside them, and the real OpenSM on a simulated fabric of the
same hosts. The naive cloud is the same Nova, configured as its documentation says: its own
filter, an aggregate for each tenant, and a fabric with OpenSM's own routes.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.marks import needs_ibsim
from tests.nova import cloud
from tests.servers.leash import spawn
from tests.story.judge import Held
from tests.story.network import network
from tests.story.scenario import STRANGER, Story
from tests.story.site import OpenStackSite, Rest
from tests.waiting import PATIENCE, eventually

pytestmark = [needs_ibsim, pytest.mark.road]


@dataclass(frozen=True)
class Scale:
    """Size of the story; ``hosts`` are the names that the generator of fabrics gives."""

    xgft: str
    hosts: tuple[str, ...]
    tenants: int
    servers: int
    sizes: tuple[int, int]


FULL = Scale("3;4,4,8;1,4,4", tuple(f"node{n:03d}" for n in range(128)), 12, 300, (3, 14))
SMALL = Scale("3;2,2,4;1,2,2", tuple(f"node{n:02d}" for n in range(16)), 4, 20, (1, 4))
SCALE = FULL if os.environ.get("LAAS_STORY") == "full" else SMALL
REPO = Path(__file__).parents[2]
BOOT = {"image": cloud.IMAGE, "flavor": "1", "nics": "none"}


@pytest.fixture(scope="module")
def nova():
    with cloud.started(SCALE.hosts) as nova:
        yield nova


class NaiveSite(OpenStackSite):
    """Makes an aggregate for each tenant by hand: first the hosts, then the tenant's key."""

    def allocate(self, project, hosts):
        taken = set().union(*(a.hosts for a in self.admin.aggregates.list()), set())
        chosen = [host for host in SCALE.hosts if host not in taken][:hosts]
        if len(chosen) < hosts:
            return None
        aggregate = self.admin.aggregates.create(f"tenant-{project}", None)
        for host in chosen:
            self.admin.aggregates.add_host(aggregate, host)
        self.admin.aggregates.set_metadata(aggregate, {"filter_tenant_id": project})
        return Held(str(aggregate.id), project, frozenset(chosen))

    def release(self, held):
        for host in held.hosts:
            self.admin.aggregates.remove_host(held.id, host)
        self.admin.aggregates.delete(held.id)


def test_the_naive_configuration_fails_the_judge(nova, tmp_path):
    nova.filter_with(cloud.STOCK, pre_filter=False)
    with cloud.served(nova) as url, network(SCALE.xgft, tmp_path) as net:
        (tmp_path / "opensm.conf").write_text("routing_engine ftree\nforce_log_flush TRUE\n")
        net.start("-F", str(tmp_path / "opensm.conf"))
        eventually(lambda: "SUBNET UP" in log_text(net), "OpenSM sweeps")
        site = site_on(NaiveSite, url, net, Rest(""))
        story = Story(site, tenants=2, servers=4, sizes=SCALE.sizes, say=print)
        told = story.tell()
        for project in [*story.projects, STRANGER]:
            site.delete(project)
        for held in story.held.values():
            site.release(held)
    print(told)
    for words in (
        "of nobody",  # a server outside its owner's hosts
        "is open to everybody",  # free hosts
        "holds no hosts, and started a server",  # a stranger
        "has the keys []",  # no partition
    ):
        assert any(words in problem for problem in told.problems), words


def test_every_host_has_the_owner_it_was_given_to(nova, tmp_path):
    nova.filter_with(cloud.OURS)
    with (
        cloud.served(nova) as url,
        network(SCALE.xgft, tmp_path) as net,
        laas(url, net, tmp_path) as api,
    ):
        site = site_on(OpenStackSite, url, net, Rest(api))
        told = Story(
            site, tenants=SCALE.tenants, servers=SCALE.servers, sizes=SCALE.sizes, say=print
        ).tell()
        print(told)
        assert told.problems == []
        assert told.booted >= SCALE.servers
        assert told.released == told.allocated > SCALE.tenants
        assert told.turned_away > told.allocated
        assert Rest(api).call("GET", "/v1/fabrics/f/utilization")[1]["hosts"]["allocated"] == 0


def site_on(kind, url, net, rest):
    """A site of class ``kind`` for the Nova at ``url``."""
    admin = cloud.remote_client(url, "service", admin=True)
    return kind(rest, lambda project: cloud.remote_client(url, project), admin, BOOT, net.subnet)


@contextmanager
def laas(url, net, directory, settings=""):
    """Run our service with that Nova and that fabric; yield its URL once routes are confirmed.

    ``settings`` are further sections of its configuration.
    """
    config, cables = directory / "laas.conf", directory / "fabric.ibnetdiscover"
    port = free_port()
    config.write_text(
        f"[DEFAULT]\nstate_dir = {directory}/state\n"
        f"[api]\nbind_port = {port}\n"
        "[compute]\nkind = nova\n"
        f"[nova]\nauth_type = admin_token\nendpoint = {url}/compute/v2.1\ntoken = service:admin\n"
        f"[placement]\nauth_section = nova\nendpoint_override = {url}/placement\n"
        "[worker]\npoll_interval = 0.2\nretry_first = 0.2\nretry_last = 2\n"
        f"[opensm]\n{net.options()}{settings}"
    )
    cables.write_text(net.cable_list())
    run("manage", config, "db", "upgrade")
    run("manage", config, "fabric", "import", cables, "--id", "f", "--subnet-manager", net.manager)
    with (directory / "laas-api.log").open("wb") as log:
        process = spawn(command("api", config, "--all-in-one"), cwd=REPO, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    published = directory / "state" / "opensm" / "f" / "current"
    try:
        manifest = published / "manifest.json"
        eventually(while_runs(process, manifest.exists), "the service publishes files")
        net.start("-F", str(published / "opensm.conf"))
        rest = Rest(address)
        routing = "/v1/fabrics/f/routing"

        def confirmed():
            return all(sm["current"] for sm in rest.call("GET", routing)[1]["subnet_managers"])

        eventually(while_runs(process, confirmed), "the published routes are confirmed")
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE)
        print((directory / "laas-api.log").read_text()[-8000:])


def command(program, config, *words):
    module = f"laas_service.cmd.{program}"
    return [sys.executable, "-m", module, "--config-file", str(config), *map(str, words)]


def run(program, config, *words):
    done = subprocess.run(
        command(program, config, *words), cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def log_text(net):
    return net.log.read_text(errors="replace") if net.log.exists() else ""


def while_runs(process, look):
    """Wrap ``look`` for ``eventually``: fail at once if the process has ended."""

    def looked():
        ended = process.poll() is not None
        found = look()
        assert found or not ended, "the service ended"
        return found

    return looked
