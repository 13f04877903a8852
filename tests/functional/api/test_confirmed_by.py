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
from laas_service.cmd import api
from laas_service.messages import Applied, ConfirmedBy
from laas_service.wiring.parts import Parts
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
SCRIPTED = "nobody checked that it was run"


def configure(path, opensm):
    """Write a configuration with these options of OpenSM; its path."""
    text = (
        f"[DEFAULT]\nstate_dir = {path}\n[api]\naudit = False\nbind_port = 0\n"
        "[worker]\nretry_first = 0.01\nretry_last = 0.01\n"
        f"[opensm]\npatience = 0\n{opensm.format(path=path)}"
    )
    (path / "laas.conf").write_text(text)
    return path / "laas.conf"


class Site:
    """The API and a worker in this process; the test sends the agent's reports, if there is one."""

    def __init__(self, path, opensm):
        self.conf = cfg.ConfigOpts()
        options.register_opts(self.conf)
        self.conf.register_cli_opts(api.CLI)
        self.conf(["--config-file", str(configure(path, opensm))], project="laas")
        self.parts = Parts(self.conf)
        self.parts.database.upgrade()
        if not self.parts.store.fabrics.all():
            made = generate(Description(xgft="2;4,4;1,8"))
            self.parts.store.fabrics.add("main", made.topology, made.inventory)
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

    def close(self):
        self.parts.database.engine.dispose()


def reason(document):
    return document["history"][-1]["reason"]


@pytest.mark.parametrize(("opensm", "by", "words"), WAYS, ids=IDS)
def test_every_answer_says_who_looked(tmp_path, opensm, by, words):
    with closing(Site(tmp_path, opensm)) as site:
        asked = site.ask("blue")
        assert asked["confirmed_by"] is None
        active = site.settle(asked["id"], "active")
        assert active["confirmed_by"] == by
        assert reason(active).startswith(f"routes {words}; ")
        assert SCRIPTED in reason(active)
        (listed,) = site.look("/v1/allocations")["allocations"]
        assert listed["confirmed_by"] == by
        routing = site.look(f"{F}/routing")
        assert [sm["confirmed_by"] for sm in routing["subnet_managers"]] == [by]
        assert [sm["current"] for sm in routing["subnet_managers"]] == [True]
        assert routing["worker"]["confirmed_by"] == by
        metrics = site.client.get("/metrics").text
        for value in ConfirmedBy:
            one = f'{{confirmed_by="{value.value}",fabric="main"}} {float(value.value == by)}'
            assert f"laas_fabric_routes_confirmed{one}" in metrics
            assert f"laas_allocations_confirmed{one}" in metrics
        site.client.delete(f"/v1/allocations/{asked['id']}")
        released = site.settle(asked["id"], "released")
        assert released["confirmed_by"] == by
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
