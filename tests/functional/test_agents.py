# SPDX-License-Identifier: Apache-2.0

"""An allocation becomes active on a report of the active agent; the tests send the reports."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.cmd import api
from laas_service.domain.errors import InvalidInput
from laas_service.wiring.composition import Composition
from tests.options import options_from
from tests.waiting import eventually

F = "/v1/fabrics/main"
CONFIGURATION = """\
[DEFAULT]
state_dir = {directory}
[opensm]
reached_by = agent
directory = /var/lib/opensm/laas
agent_lease_seconds = {lease}
patience = 0
[worker]
retry_first = 0.01
retry_last = 0.01
[api]
audit = False
"""


class Site:
    """The API and a worker in this process; OpenSM is on another machine."""

    def __init__(self, directory, lease):
        text = CONFIGURATION.format(directory=directory, lease=lease)
        (directory / "laas.conf").write_text(text)
        conf = options_from(directory / "laas.conf")
        self.parts = Composition(conf)
        self.parts.database.upgrade()
        made = generate(Description(xgft="2;4,4;1,4"))
        self.parts.store.fabrics.add("main", made.topology, made.inventory)
        self.client = api.application(conf, self.parts.use_cases(lambda: None)).test_client()

    def report(self, name, condition, generation=None, **more):
        body = {"condition": condition, "generation": generation, "detail": "made up", **more}
        answer = self.client.put(f"{F}/agents/{name}", json=body)
        assert answer.status_code == 200, answer.text
        orders: Any = answer.json
        return orders

    def ask(self, name):
        made = self.client.post("/v1/allocations", json={"name": name, "hosts": 5})
        assert made.status_code == 202, made.text
        allocation: Any = made.json
        return allocation["id"]

    def shown(self, id):
        return self.look(f"/v1/allocations/{id}")

    def look(self, path, headers=None):
        answer: Any = self.client.get(path, headers=headers).json
        return answer

    def rounds(self, number=3):
        """Run rounds of the worker; the pause makes every postponed step due again."""
        for _ in range(number):
            self.parts.fabric_leases.run_once()
            time.sleep(0.02)  # a postponed step is due again

    def becomes(self, state, id):
        def became() -> bool:
            if self.shown(id)["state"] == state:
                return True
            self.rounds(1)
            return False

        eventually(became, lambda: f"{id} is {state}: {self.shown(id)}", pause=0)

    def close(self):
        self.parts.database.engine.dispose()


@pytest.fixture
def site(tmp_path):
    """A site where an agent's report is valid for an hour."""
    made = Site(tmp_path, lease=3600)
    yield made
    made.close()


def test_only_the_active_agents_word_makes_an_allocation_active(site):
    assert site.report("sm1", "starting")["role"] == "active"
    id = site.ask("blue")
    wanted = site.report("sm1", "sweeping")["wanted"]

    def waits(why):
        site.rounds()
        assert site.shown(id)["state"] == "allocating"
        assert why in site.shown(id)["error"]
        (manager,) = site.look(f"{F}/routing")["subnet_managers"]
        assert not manager["current"]
        assert why in manager["problem"]

    waits("agent sm1: sweeping: made up")
    assert site.report("sm2", "applied", wanted)["role"] == "standby"
    waits("agent sm1: sweeping: made up")
    site.report("sm1", "other_generation", wanted - 1)
    waits("agent sm1: other generation: made up")
    site.report("sm1", "differs")
    waits("agent sm1: differs: made up")
    site.report("sm1", "applied", wanted)
    site.becomes("active", id)
    (manager,) = site.look(f"{F}/routing")["subnet_managers"]
    assert manager == {
        "name": "opensm",
        "generation": wanted,
        "confirmed_by": "agent",
        "current": True,
        "problem": None,
        "engine": None,
        "master": None,
        "without": [],
        "unconfirmed": [],
    }


def test_the_engine_and_the_master_that_an_agent_saw_are_shown(site, capsys):
    ours = {"guid": "0x0002c90380000001", "lid": 336, "priority": 9}
    other = {"guid": "0x0002c90300000001", "lid": 1, "priority": 15}
    wanted = site.report("sm1", "starting")["wanted"]
    for condition, engine, master in (
        ("applied", "file", ours),
        ("not_master", None, other),
        ("other_engine", "minhop", ours),
        ("blind", None, None),
    ):
        generation = wanted if condition == "applied" else None
        site.report("sm1", condition, generation, engine=engine, master=master)
        site.rounds()
        (manager,) = site.look(f"{F}/routing")["subnet_managers"]
        assert (manager["engine"], manager["master"]) == (engine, master)
        (agent,) = site.look(f"{F}/agents")["agents"]
        assert (agent["engine"], agent["master"]) == (engine, master)
        if condition == "applied":
            shown = (
                f'laas_fabric_running{{engine="file",fabric="main",master="{ours["guid"]}"}} 1.0'
            )
            assert shown in site.client.get("/metrics").text
    body = {"condition": "blind", "master": ours | {"priority": 16}}
    answer = site.client.put(f"{F}/agents/sm1", json=body)
    assert answer.json["errors"][0]["field"] == "master.priority"


def test_what_is_released_is_free_only_when_its_routes_are_seen_to_be_gone(site):
    id = site.ask("blue")
    before = site.report("sm1", "starting")["wanted"]
    site.report("sm1", "applied", before)
    site.becomes("active", id)
    assert site.client.delete(f"/v1/allocations/{id}").status_code == 202
    site.rounds()
    wanted = site.report("sm1", "applied", before)["wanted"]
    assert wanted > before
    site.rounds()
    assert site.shown(id)["state"] == "releasing"
    assert site.look(F)["hosts"]["free"] == 11
    site.report("sm1", "applied", wanted)
    site.becomes("released", id)
    assert site.look(F)["hosts"]["free"] == 16


def test_the_word_of_an_agent_that_is_gone_counts_no_more(tmp_path):
    site = Site(tmp_path, lease=0.1)
    id = site.ask("blue")
    wanted = site.report("sm1", "starting")["wanted"]
    assert site.look(f"{F}/routing")["generation"] == wanted
    site.report("sm1", "applied", wanted)
    time.sleep(0.2)  # the lease, twice: a longer sleep beside other work changes nothing
    site.rounds()
    assert site.shown(id)["state"] == "allocating"
    assert "no agent reports: sm1 was last seen at 20" in site.shown(id)["error"]
    site.close()


def test_the_files_name_the_directory_on_opensms_machine(site, tmp_path):
    found = site.look(f"{F}/file-set", {"Laas-Set-Form": "6"})
    answer = site.client.get(f"{F}/file-set/{found['manifest']['generation']}/opensm.conf")
    assert "lfts_file /var/lib/opensm/laas/main/current/lfts\n" in answer.text
    kept = tmp_path / "file-sets" / "main" / "current" / "manifest.json"
    assert json.loads(kept.read_text()) == found["manifest"]
    site.rounds()
    assert not (tmp_path / "opensm").exists(), "workers write no files"


def test_agents_read_tables_back_and_that_needs_our_own(tmp_path):
    site = Site(tmp_path, lease=15)
    site.parts._conf.set_override("enforcement", "chains", group="opensm")
    with pytest.raises(InvalidInput, match="enforcement"):
        site.parts.use_cases(lambda: None)
    site.close()
