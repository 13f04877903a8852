# SPDX-License-Identifier: Apache-2.0

"""What an allocation and a generation are confirmed by, for each way to reach a subnet manager."""

from __future__ import annotations

import signal
import subprocess
from contextlib import closing
from typing import Any

import pytest
from flask.testing import FlaskClient
from oslo_config import cfg

from laas_service import conf as options
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.app.lifecycle import State
from laas_service.app.records import Caller
from laas_service.cmd import api
from laas_service.messages import Applied, ConfirmedBy
from laas_service.wiring.composition import Composition
from tests.functional.api.conftest import CheckedClient
from tests.functional.api.test_process import command
from tests.servers.leash import spawn
from tests.waiting import eventually

F = "/v1/fabrics/main"
CURRENT = "{path}/opensm/main/current/lfts"
DIRECTORY = "directory = {path}/opensm\n"
BY_HAND = DIRECTORY
READ_BACK = DIRECTORY + f"dump_command = cat,{CURRENT}\n"
COMPUTED = DIRECTORY + f"dump_file = {CURRENT}\n"
CHAINS = "enforcement = chains\n"
AGENT = "reached_by = agent\ndirectory = /var/lib/opensm/laas\nagent_lease_seconds = 3600\n"

WAYS = [
    (READ_BACK, "switches", "confirmed in the switches"),
    (AGENT, "agent", "confirmed by the agent beside OpenSM"),
    (BY_HAND, "files", "written, nobody read the switches"),
    (COMPUTED, "files", "written, nobody read the switches"),
    (CHAINS, "files", "written, nobody read the switches"),
    ("", "nobody", "written, no subnet manager is configured"),
]
IDS = ["read back", "agent", "by hand", "computed", "chains", "defaults"]
READERS = ("switches", "agent")
OPERATOR = Caller(project_id="local", user_id="op", admin=True, request_id="")
SCRIPTED = "nobody checked that it was run"


RISKS = "free_unconfirmed = True\n"


def configure(path, opensm, worker):
    """Write a configuration with these options of OpenSM and workers; its path."""
    text = (
        f"[DEFAULT]\nstate_dir = {path}\n[api]\naudit = False\nbind_port = 0\n"
        f"[worker]\nretry_first = 0.01\nretry_last = 0.01\n{worker}"
        f"[opensm]\npatience = 0\n{opensm.format(path=path)}"
    )
    (path / "laas.conf").write_text(text)
    return path / "laas.conf"


class Site:
    """The API and a worker in this process; the test sends the agent's reports, if there is one."""

    def __init__(self, path, opensm, worker=RISKS, *, serves=True):
        self.conf = cfg.ConfigOpts()
        options.register_opts(self.conf)
        self.conf.register_cli_opts(api.CLI)
        self.conf(["--config-file", str(configure(path, opensm, worker))], project="laas")
        self.parts = Composition(self.conf)
        self.parts.database.upgrade()
        if not self.parts.store.fabrics.all():
            made = generate(Description(xgft="2;4,4;1,8"))
            self.parts.store.fabrics.add("main", made.topology, made.inventory)
        if not serves:
            return
        app = api.application(self.conf, self.parts.use_cases(lambda: None))
        app.test_client_class = CheckedClient
        self.client: FlaskClient = app.test_client()

    def ask(self, name):
        allocation: Any = self.client.post("/v1/allocations", json={"name": name, "hosts": 5}).json
        return allocation

    def look(self, path):
        answer: Any = self.client.get(path).json
        return answer

    def settle(self, id, state):
        """Run rounds of the worker until the allocation has the state; its document."""

        def settled():
            if self.conf.opensm.reached_by == "agent":
                wanted = self.look(f"{F}/routing")["generation"]
                report = {"condition": "applied", "generation": wanted}
                self.client.put(f"{F}/agents/sm1", json=report)
            self.parts.fabric_leases.run_once()
            shown = self.look(f"/v1/allocations/{id}")
            return shown["state"] == state and not shown["changing"] and not shown["degraded"]

        eventually(settled, lambda: str(self.look(f"/v1/allocations/{id}")), pause=0)
        return self.look(f"/v1/allocations/{id}")

    def wait_for(self, id, words):
        """Run rounds of the worker until ``error`` of the allocation has these words."""

        def told():
            self.parts.fabric_leases.run_once()
            return words in (self.look(f"/v1/allocations/{id}")["error"] or "")

        eventually(told, lambda: str(self.look(f"/v1/allocations/{id}")), pause=0)
        return self.look(f"/v1/allocations/{id}")

    def close(self):
        self.parts.database.engine.dispose()


def reason(document):
    return document["history"][-1]["reason"]


@pytest.mark.parametrize(("opensm", "by", "words"), WAYS, ids=IDS)
def test_every_answer_says_who_looked(tmp_path, opensm, by, words):
    with closing(Site(tmp_path, opensm)) as site:
        asked = site.ask("blue")
        assert asked["confirmed_by"] is None
        assert asked["confirmed"] == {"routes": None, "keys": None}
        active = site.settle(asked["id"], "active")
        assert active["confirmed_by"] == by
        routes, keys = active["confirmed"]["routes"], active["confirmed"]["keys"]
        assert (routes["by"], keys["by"]) == (by, "files" if by in READERS else by), (
            "no key is read"
        )
        wanted = active["progress"]["generation_wanted"]
        assert (routes["generation"], keys["generation"]) == (wanted, wanted)
        assert asked["created_at"] < routes["at"] == keys["at"] <= active["updated_at"]
        assert reason(active).startswith(f"routes {words}; ")
        assert SCRIPTED in reason(active)
        (listed,) = site.look("/v1/allocations")["allocations"]
        assert listed["confirmed_by"] == by
        assert listed["confirmed"] == active["confirmed"]
        routing = site.look(f"{F}/routing")
        assert [sm["confirmed_by"] for sm in routing["subnet_managers"]] == [by]
        assert [sm["current"] for sm in routing["subnet_managers"]] == [True]
        assert routing["worker"]["confirmed_by"] == by
        metrics = site.client.get("/metrics").text
        for value in ConfirmedBy:
            one = f'{{confirmed_by="{value.value}",fabric="main"}} {float(value.value == by)}'
            assert f"laas_fabric_routes_confirmed{one}" in metrics
            assert f"laas_allocations_confirmed{one}" in metrics
            for evidence, confirms in (("routes", by), ("keys", keys["by"])):
                one = f'confirmed_by="{value.value}",evidence="{evidence}",fabric="main"'
                count = float(value.value == confirms)
                assert f"laas_allocations_evidence{{{one}}} {count}" in metrics
        site.client.delete(f"/v1/allocations/{asked['id']}")
        released = site.settle(asked["id"], "released")
        assert released["confirmed_by"] == by
        assert released["confirmed"] == {"routes": None, "keys": None}
        assert reason(released).endswith(f"withdrawal of the routes {words}")


@pytest.mark.parametrize(("opensm", "by", "words"), WAYS[:3], ids=IDS[:3])
def test_a_change_of_links_says_who_looked(tmp_path, opensm, by, words):
    with closing(Site(tmp_path, opensm)) as site:
        asked = site.ask("blue")
        link = site.settle(asked["id"], "active")["links"][0]
        site.client.patch(f"{F}/links/{link}", json={"state": "failed"})
        repaired = site.settle(asked["id"], "active")
        assert link not in repaired["links"]
        assert repaired["confirmed_by"] == by
        told = [event["reason"] for event in repaired["history"] if words in event["reason"]]
        assert [text.partition(f" {words}")[0] for text in told] == [
            "routes",
            "routes over the new links",
            "routes that move the traffic to the new links",
            "withdrawal of the old routes",
        ]


def test_a_site_that_begins_to_read_back_says_so_from_then_on(tmp_path):
    """An allocation keeps what it was confirmed by; the fabric shows what confirms it now."""
    with closing(Site(tmp_path, "")) as site:
        old = site.ask("blue")
        site.settle(old["id"], "active")
        site.parts.fabric_leases.leave()
    with closing(Site(tmp_path, READ_BACK)) as site:
        new = site.ask("red")
        assert site.settle(new["id"], "active")["confirmed_by"] == "switches"
        assert site.look(f"/v1/allocations/{old['id']}")["confirmed_by"] == "nobody"
        assert site.look(f"{F}/routing")["worker"]["confirmed_by"] == "switches"


@pytest.mark.parametrize(("opensm", "by", "words"), WAYS, ids=IDS)
def test_the_api_takes_the_workers_word_for_what_is_read_back(tmp_path, opensm, by, words):
    """Without its own worker, options of OpenSM may be in the configuration of another machine."""
    with closing(Site(tmp_path, opensm)) as site:
        said = api.unread_switches(site.conf, site.parts)
        assert (said is None) is (by in ("switches", "agent"))
        if said is not None:
            assert f"confirmed_by = {by}" in said
        asked = site.ask("blue")
        site.settle(asked["id"], "active")
        assert api.unread_switches(site.conf, site.parts) == said
        elsewhere = Applied(2, by=ConfirmedBy.SWITCHES)
        site.parts.store.observations.note_applied("main", elsewhere)
        assert api.unread_switches(site.conf, site.parts) is None


@pytest.mark.parametrize(("opensm", "warns"), [("", 1), (READ_BACK, 0)], ids=["none", "read back"])
@pytest.mark.parametrize(
    ("process", "ready"),
    [(("api", "--all-in-one"), "Listening on"), (("worker",), "held by")],
    ids=["api", "worker"],
)
def test_a_process_warns_once_that_nobody_reads_back(tmp_path, process, ready, opensm, warns):
    with closing(Site(tmp_path, opensm)):
        config = str(tmp_path / "laas.conf")
    said = []
    with spawn(
        command(*process, "--config-file", config), stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            said.append(line)
            if ready in line:
                break
        running.send_signal(signal.SIGTERM)
        said += running.communicate(timeout=300)[1].splitlines()
    assert len([line for line in said if "nobody reads the switches back" in line]) == warns, said


@pytest.mark.parametrize(("opensm", "by", "words"), WAYS[2:5], ids=IDS[2:5])
def test_files_alone_free_nothing_until_an_operator_says_so(tmp_path, opensm, by, words):
    with closing(Site(tmp_path, opensm + DIRECTORY * (DIRECTORY not in opensm), "")) as site:
        id = site.ask("blue")["id"]
        site.settle(id, "active")
        before = owned(site)
        site.client.delete(f"/v1/allocations/{id}")
        waits = site.wait_for(id, "held: nobody has read whether the switches run generation")
        assert owned(site) == before
        generation = site.look(f"{F}/routing")["generation"]
        assert f"write {generation} into main/loaded" in waits["error"]
        loaded = tmp_path / "opensm" / "main" / "loaded"
        loaded.write_text(f"{generation - 1}\n")
        site.wait_for(id, "held: nobody has read")
        assert owned(site) == before, "an older generation says nothing of this one"
        loaded.write_text("yes")
        site.wait_for(id, "write a generation, such as 57")
        loaded.write_text(f"{generation}\n")
        site.settle(id, "released")
        assert owned(site) == []


def test_a_repair_frees_no_old_links_by_files_alone(tmp_path):
    with closing(Site(tmp_path, BY_HAND, "")) as site:
        id = site.ask("blue")["id"]
        link = site.settle(id, "active")["links"][0]
        site.client.patch(f"{F}/links/{link}", json={"state": "failed"})
        repairing = site.wait_for(id, "held: nobody has read")
        assert repairing["changing"] == "withdraw"
        owner = site.look(f"{F}/links?owner={id}")["links"]
        assert link in [each["id"] for each in owner]


def test_without_a_manager_only_a_service_for_this_machine_frees(tmp_path):
    """The first steps of the README, and the same with Keystone."""
    with closing(Site(tmp_path, "", "")) as site:
        id = site.ask("blue")["id"]
        site.settle(id, "active")
        assert "are free as soon as" in str(site.parts.subnet_managers.unread_switches())
        site.client.delete(f"/v1/allocations/{id}")
        site.settle(id, "released")
        red = site.ask("red")["id"]
        site.settle(red, "active")
        site.parts.fabric_leases.leave()
    with closing(Site(tmp_path, "", "[api]\nauth_strategy = keystone\n", serves=False)) as site:
        assert "are held until an operator" in str(site.parts.subnet_managers.unread_switches())
        use = site.parts.use_cases(lambda: None)
        use.allocations.release(OPERATOR, red, force=False)
        site.parts.fabric_leases.run_once()
        answer(tmp_path, "take-back")
        for _ in range(4):
            site.parts.fabric_leases.run_once()
        (record,) = site.parts.store.allocations.page(states=[State.RELEASING])
        assert "held: nobody has read" in str(record.error)


COMPUTE = "[compute]\nkind = directory\n"


def test_a_script_that_takes_hosts_back_has_to_answer(tmp_path):
    with closing(Site(tmp_path, READ_BACK, COMPUTE)) as site:
        id = site.ask("blue")["id"]
        hosts = [host["name"] for host in site.settle(id, "active")["hosts"]]
        site.client.patch(f"/v1/allocations/{id}", json={"hosts": 3, "give_back": hosts[-2:]})
        site.wait_for(id, f"servers still run on {hosts[-2]}")
        assert len(site.look(f"/v1/fabrics/main/hosts?owner={id}")["hosts"]) == 5
        answer(tmp_path, "hand-over")
        assert len(site.settle(id, "active")["hosts"]) == 3
        site.client.delete(f"/v1/allocations/{id}")
        site.wait_for(id, "has not answered")
        assert len(site.look(f"/v1/fabrics/main/hosts?owner={id}")["hosts"]) == 3
        answer(tmp_path, "take-back")
        site.settle(id, "released")
        assert owned(site) == []


def owned(site):
    """Hosts and links with an owner, by name."""
    hosts, links = site.look(f"{F}/hosts")["hosts"], site.look(f"{F}/links")["links"]
    named = [(host["name"], host["owner"]) for host in hosts]
    return [each for each in (*named, *((x["id"], x["owner"]) for x in links)) if each[1]]


def answer(path, step):
    """Make the answer of the newest script of a step by hand, as an operator may."""
    scripts = (path / "compute" / "commands").glob(f"*-{step}-*.sh")
    newest = max(scripts, key=lambda script: script.name)
    (path / "compute" / "answers" / newest.stem).touch()
