# SPDX-License-Identifier: Apache-2.0

"""An agent on UFM's machine puts the files of routes where UFM's subnet manager reads them.

The service, its REST interface and the agent are real, UFM is the stand-in. Nothing here runs the
vendor's subnet manager: the judge of routing chains reads the files that the agent has put there.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import closing
from functools import cached_property
from pathlib import Path

import pytest
from werkzeug.serving import make_server

from laas_service.domain.errors import InvalidInput
from laas_service.messages import Condition
from laas_service.wiring.agent import agent
from opensm_writer import desired
from opensm_writer.opensm import OpenSm
from opensm_writer.supervisor import Supervisor
from tests.chains import judged
from tests.functional.api.test_confirmed_by import Site
from tests.functional.test_ufm import OPTIONS
from tests.offers import Offer
from tests.options import options_from
from tests.ufm.manager import settings
from tests.ufm.server import standing_in
from tests.unit.opensm_writer.states import ONE, POD, WIDE, state
from tests.waiting import eventually


def chains_in(directory: Path) -> dict[str, str]:
    """The files of the set that UFM's manager reads, by name."""
    current = directory / "current"
    paths = [path for path in current.resolve().rglob("*") if path.is_file()]
    return {path.relative_to(current.resolve()).as_posix(): path.read_text() for path in paths}


# -- the agent alone -----------------------------------------------------------------------


class Machine:
    """UFM's machine; ``told`` appears when the subnet manager is told to read the files."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.told = directory, directory / "told"
        self.home = directory / "ufm" / "tiny"

    def supervisor(self, enforcement="chains"):
        reads = OpenSm(reload_command=("touch", str(self.told)))
        return Supervisor(
            self.home.parent, "tiny", reads, enforcement=enforcement, reads_back=False
        )

    def offer(self, fabric_state, enforcement="chains", **options):
        there = self.directory / "there" / enforcement
        return Offer(fabric_state, there, self.home, enforcement=enforcement, **options)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize("one_rule", [False, True])
def test_the_chains_are_current_and_the_manager_is_told(machine, one_rule):
    supervisor = machine.supervisor()
    for tenants, generation in (((POD, ONE, WIDE), 7), ((ONE, WIDE), 8), ((), 9)):
        wanted = state(tenants, generation)
        supervisor.fetch_set(machine.offer(wanted, one_rule_per_group=one_rule))
        assert not supervisor.refused
        assert supervisor.needs_reload()
        assert supervisor.observe(active=True).generation in (None, generation)
        supervisor.reload()
        assert machine.told.exists()
        machine.told.unlink()
        seen = supervisor.observe(active=True)
        assert (seen.condition, seen.generation) == (Condition.APPLIED, generation)
        assert not supervisor.needs_reload()
        files = chains_in(machine.home)
        assert judged(wanted, files, one_rule=one_rule).violations == []
        current = machine.home / "current"
        for key, name in (
            ("pgrp_policy_file", "port_groups.conf"),
            ("topo_policy_file", "topologies.conf"),
            ("rch_policy_file", "chains.conf"),
        ):
            assert f"\n{key} {current}/{name}\n" in files["opensm.conf"]


def test_damaged_files_are_told_and_fetched_again(machine):
    supervisor, offer = machine.supervisor(), machine.offer(state())
    supervisor.fetch_set(offer)
    supervisor.reload()
    chains = machine.home / "current" / "chains.conf"
    chains.write_text("")
    seen = supervisor.observe(active=True)
    assert (seen.condition, seen.generation) == (Condition.STARTING, None)
    assert "chains.conf" in str(seen.detail)
    supervisor.fetch_set(offer)
    supervisor.reload()
    assert supervisor.observe(active=True).condition is Condition.APPLIED
    assert judged(state(), chains_in(machine.home)).violations == []


@pytest.mark.parametrize(("own", "given"), [("chains", "file"), ("file", "chains")])
def test_a_set_of_the_other_enforcement_is_refused(machine, own, given):
    supervisor = machine.supervisor(own)
    supervisor.fetch_set(machine.offer(state(), given))
    seen = supervisor.observe(active=True)
    assert seen.condition is Condition.REFUSED
    assert f"enforcement must be {own}" in str(seen.detail)
    assert not machine.home.joinpath("current").exists()


def test_a_set_without_chains_is_refused(machine, monkeypatch):
    monkeypatch.setattr(desired, "MAX_TOPOLOGIES", 1)
    supervisor = machine.supervisor()
    supervisor.fetch_set(machine.offer(state(), "file"))
    detail = supervisor.observe(active=True).detail
    assert "no routing chains" in str(detail)
    assert "routing chains hold 1 tenants" in str(detail)


# -- the service, the agent and UFM ----------------------------------------------------------


AGENT = """\
[DEFAULT]
state_dir = {path}
[laas]
endpoint_override = {url}
[opensm]
reached_by = ufm
enforcement = {enforcement}
directory = {path}
agent_name = ufm1
agent_fabric = main
{more}
"""


class Beside:
    """UFM's machine with an agent that reaches the API over HTTP."""

    def __init__(self, service, directory, enforcement="chains", more=""):
        self.server = make_server("127.0.0.1", 0, service.client.application, threaded=True)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        url = f"http://127.0.0.1:{self.server.server_port}"
        directory.mkdir(exist_ok=True)
        text = AGENT.format(path=directory, url=url, enforcement=enforcement, more=more)
        (directory / "laas.conf").write_text(text)
        self.conf, self.directory = options_from(directory / "laas.conf"), directory

    @cached_property
    def agent(self):
        return agent(self.conf)

    def round(self):
        self.agent.once()
        return self.agent.once()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def ufm():
    with standing_in() as standin:
        yield standin


def service(ufm, tmp_path, enforcement="chains"):
    settings(ufm, tmp_path)
    text = OPTIONS.format(url=ufm.url, fabric="main", path=tmp_path)
    text = f"enforcement = {enforcement}\ndirectory = {tmp_path}/machine\n{text}"
    return Site(tmp_path, f"{text}agent = true\n[worker]\ndrift_interval = 0.05\n")


def synced(site, id):
    site.parts.fabric_leases.check_drift()
    site.parts.fabric_leases.run_once()
    return site.look(f"/v1/allocations/{id}")["configs_synced"]


@pytest.mark.parametrize("enforcement", ["chains", "file"])
def test_an_allocation_is_active_when_ufm_and_the_agent_have_it(ufm, tmp_path, enforcement):
    site = service(ufm, tmp_path, enforcement)
    with closing(site), closing(Beside(site, tmp_path / "machine", enforcement)) as beside:
        id = site.ask("blue")["id"]
        site.parts.fabric_leases.run_once()
        assert ufm.ufm.members(), "UFM has the partition"
        shown = site.look(f"/v1/allocations/{id}")
        assert (shown["state"], shown["configs_synced"]) == ("allocating", False)
        assert "no agent reports" in shown["error"]
        assert beside.round().condition is Condition.APPLIED
        active = site.settle(id, "active")
        assert (active["configs_synced"], active["confirmed_by"]) == (True, "ufm")
        home = tmp_path / "machine" / "main"
        routed = site.parts.store.fabrics.routed("main")
        if enforcement == "chains":
            verdict = judged(routed, chains_in(home))
            assert (verdict.violations, verdict.engines) == ([], {id: "ftree"})
        ufm.ufm.partitions.popitem()
        eventually(site.parts.fabric_leases.check_drift, "no drift is found")
        assert site.look(f"/v1/allocations/{id}")["configs_synced"] is False, "UFM has it not"
        assert synced(site, id) is True
        lists = home / "current" / "guid_index.json"
        lists.write_text("{}")
        beside.agent._look()
        beside.agent._report()
        assert eventually(lambda: not synced(site, id), "it is synced with damaged files", 30)
        del beside.agent  # it starts anew
        assert beside.round().condition is Condition.APPLIED
        assert eventually(lambda: synced(site, id), "it is not synced", 30)


def test_tenants_beyond_the_limit_of_chains_are_refused(ufm, tmp_path, monkeypatch):
    with (
        closing(service(ufm, tmp_path)) as site,
        closing(Beside(site, tmp_path / "machine")) as beside,
    ):
        first = site.ask("blue")["id"]
        site.parts.fabric_leases.run_once()
        beside.round()
        site.settle(first, "active")
        members = ufm.ufm.members()
        monkeypatch.setattr(desired, "MAX_TOPOLOGIES", 1)
        second = site.ask("green")["id"]
        site.parts.fabric_leases.run_once()
        shown = site.look(f"/v1/allocations/{second}")
        assert shown["state"] == "allocating"
        assert "routing chains hold 1 tenants with links" in shown["error"]
        assert ufm.ufm.members() == members, "no partition without routes"
        site.client.delete(f"/v1/allocations/{second}?force=true")

        def released():
            beside.round()
            first_is_synced = synced(site, first)
            return first_is_synced and site.look(f"/v1/allocations/{second}")["state"] == "released"

        eventually(released, lambda: str(site.look(f"/v1/allocations/{second}")), 60)
        assert ufm.ufm.members() == members


def test_an_agent_beside_ufm_reads_nothing_from_switches(ufm, tmp_path):
    with closing(service(ufm, tmp_path)) as site:
        for option in ("dump_command = dump_lfts", "log_file = /var/log/opensm.log"):
            with closing(Beside(site, tmp_path / "other", more=option)) as beside:
                with pytest.raises(InvalidInput, match="beside UFM"):
                    beside.agent  # noqa: B018
                shutil.rmtree(beside.directory)
