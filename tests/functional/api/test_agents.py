# SPDX-License-Identifier: Apache-2.0

"""Agents beside OpenSM: their reports, the active agent, and the files they fetch."""

from __future__ import annotations

import hashlib
import json
import time

import pytest

from laas_service.domain.faults.counters import CounterMemory, Findings
from opensm_writer import parse, render
from opensm_writer.desired import subnet_configuration
from tests.functional.api.conftest import settings_of

F = "/v1/fabrics/main"


@pytest.fixture
def report(client):
    def said(name, condition="applied", **more):
        return client.put(f"{F}/agents/{name}", json={"condition": condition, **more})

    return said


def listed(client):
    return {one["name"]: one for one in client.get(f"{F}/agents").json["agents"]}


# -- reports ------------------------------------------------------------------------


def test_the_first_is_active_and_learns_what_is_wanted(client, report, allocate):
    wanted = client.get(f"{F}/routing").json["generation"]
    first = report("sm1", "starting")
    assert first.status_code == 200
    orders = {"role": "active", "active": "sm1", "wanted": wanted, "lease_seconds": 15}
    stamp = first.json["stamp"]
    assert stamp
    assert first.json == {**orders, "stamp": stamp}
    assert report("sm2", "starting").json == {**orders, "stamp": stamp, "role": "standby"}
    allocate(3)
    assert report("sm1", generation=wanted).json["wanted"] == wanted + 1


def test_agents_of_a_frozen_fabric_keep_the_set_that_they_have(client, report, allocate):
    old = client.get(f"{F}/routing").json["generation"]
    client.patch(f"{F}/observation", json={"mode": "frozen"})
    client.patch(f"{F}/links/leaf-0-0-0", json={"state": "failed"})
    assert report("sm1", generation=old, published=old).json["wanted"] == old
    refused = client.get(f"{F}/file-set")
    assert refused.status_code == 409
    assert "is frozen" in refused.json["detail"]
    client.patch(f"{F}/observation", json={"mode": "observe"})
    assert report("sm1", generation=old, published=old).json["wanted"] > old
    assert client.get(f"{F}/file-set").status_code == 200


def test_what_each_saw_last_is_listed_in_pages(client, report):
    report("sm2", "dead", detail="no process")
    report("sm1", "other_generation", generation=3, published=4)
    first = client.get(f"{F}/agents?limit=1").json
    rest = client.get(first["next"]).json
    assert rest["next"] is None
    seen = [one.pop("seen_at")[:2] for one in (*first["agents"], *rest["agents"])]
    assert seen == ["20", "20"]
    assert [*first["agents"], *rest["agents"]] == [
        {
            "name": "sm1",
            "role": "active",
            "condition": "other_generation",
            "detail": None,
            "generation": 3,
            "published": 4,
            "behind": True,
            "holds": 0,
            "engine": None,
            "master": None,
        },
        {
            "name": "sm2",
            "role": "standby",
            "condition": "dead",
            "detail": "no process",
            "generation": None,
            "published": None,
            "behind": True,
            "holds": 0,
            "engine": None,
            "master": None,
        },
    ]


def test_names_are_those_of_machines(client, report):
    for name in ("a%20b", "a%0ab", "h%C3%B6st", "a;b", "x" * 256, ".", "-rf"):
        answer = report(name, "starting")
        assert answer.status_code == 400, name
        assert answer.json["errors"][0]["field"] == "agent"
    assert listed(client) == {}


WRONG_REPORTS = [
    ({"condition": "fine"}, "condition"),
    ({"condition": "applied"}, "generation"),
    ({"condition": "dead", "generation": 1}, "generation"),
    ({"condition": "applied", "generation": 0}, "generation"),
    ({"condition": "applied", "generation": 2**31}, "generation"),
    ({"condition": "applied", "generation": "1"}, "generation"),
    ({"condition": "dead", "published": -1}, "published"),
    ({"condition": "dead", "detail": "x" * 4001}, "detail"),
    ({"condition": "dead", "detail": "\0"}, "detail"),
    ({"condition": "dead", "role": "active"}, "role"),
    ({}, "condition"),
]


def test_a_wrong_report_names_the_field_and_changes_nothing(client):
    for body, field in WRONG_REPORTS:
        answer = client.put(f"{F}/agents/sm1", json=body)
        assert answer.status_code == 400, body
        assert answer.json["errors"][0]["field"] == field
    assert listed(client) == {}


READING = {
    "age": 2.5,
    "ends": ["0x0002c90201000000 down 4 17", "0x0002c90202000000 unread 1"],
    "moved": ["0x0002c90201000000 5 0x0002c90201000001 5"],
    "observer": "0x0002c90300000001 1",
    "nodes_read": 52,
    "switches_read": 20,
    "unknown_switches": [{"guid": "0x0002c90205000000", "name": "new"}],
    "unknown_cables": ["0x0002c90201000000 9 0x0002c90205000000 1"],
}


def test_a_reading_and_the_switches_that_were_left_out_are_kept(deployment, report):
    dead, silent = 0x2C90202000000, 0x2C90202000001
    answer = report(
        "sm1",
        generation=1,
        without=[f"{dead:#018x}"],
        unconfirmed=[f"{silent:#018x}"],
        reading=READING,
    )
    assert answer.status_code == 200
    (agent,) = deployment.agents.all("main")
    assert (agent.seen.without, agent.seen.unconfirmed) == ((dead,), (silent,))
    reading = agent.seen.reading
    assert time.time() - 60 < reading.at < time.time() - 2
    assert [end.state.value for end in reading.ends] == ["down", "down", "unread", "other"]
    assert reading.ends[-1].other == (0x2C90201000001, 5)
    assert (reading.observer, reading.ends_left_out) == ((0x2C90300000001, 1), 0)
    assert report("sm1", generation=1).status_code == 200
    (agent,) = deployment.agents.all("main")
    assert (agent.seen.without, agent.seen.unconfirmed, agent.seen.reading) == ((), (), None)


def test_a_worker_is_woken_by_another_reading_of_the_active_agent(deployment, report):
    report("sm1", generation=1, reading=READING)
    report("sm2", generation=1)
    deployment.woken = 0
    report("sm1", generation=1, reading={**READING, "age": 0})
    report("sm2", generation=1, reading=READING)
    assert deployment.woken == 0
    report("sm1", generation=1, reading={**READING, "ends": []})
    assert deployment.woken == 1
    report("sm1", generation=1, reading={**READING, "ends": []}, without=["0x0002c90202000000"])
    assert deployment.woken == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"age": -1},
        {"age": None},
        {"ends": ["0x0002c90201000000 up 4"]},
        {"ends": ["0x0002c90201000000 other 4"]},
        {"ends": ["0x0002c90201000000 down 256"]},
        {"ends": ["0x0002c90201000000 down 04"]},
        {"ends": ["0x0002c90201000000 down"]},
        {"ends": ["0x0002C90201000000 down 4"]},
        {"ends": ["0x0002c90201000000 down 4\n"]},
        {"moved": ["0x0002c90201000000 5"]},
        {"observer": "0x1 1"},
        {"nodes_read": -1},
        {"switches_read": 2**31},
        {"unknown_switches": [{"guid": "0x0002c90205000000", "name": "a\nb"}]},
        {"unknown_cables": ["0x0002c90201000000 9 0x0002c90205000000 1"] * 101},
        {"ends": ["0x0002c90201000000 down 4"] * 2001},
        {"more": 1},
    ],
)
def test_a_wrong_reading_is_refused(client, report, wrong):
    assert report("sm1", generation=1, reading={**READING, **wrong}).status_code in (400, 413)
    assert listed(client) == {}


def test_details_may_be_long_and_in_any_language(client, report):
    text = "\u00e4\U0001f4a3" * 2000
    assert report("sm1", "differs", detail=text).status_code == 200
    assert listed(client)["sm1"]["detail"] == text


def test_reports_are_no_decisions_to_be_audited(client, report, caplog):
    caplog.set_level("INFO", logger="laas_service.audit")
    report("sm1", "starting")
    assert not [r for r in caplog.records if r.name == "laas_service.audit"]
    client.patch(f"{F}/hosts/node01", json={"state": "drained"})
    assert [r for r in caplog.records if r.name == "laas_service.audit"]


def test_metrics_tell_who_is_active_silent_or_in_trouble(client, deployment, report):
    report("sm2", "wedged")
    report("sm1", generation=1)
    deployment.later = 40
    told = client.get("/metrics").text
    assert 'laas_agent_active{agent="sm1",fabric="main"} 1.0' in told
    assert 'laas_agent_active{agent="sm2",fabric="main"} 0.0' in told
    assert 'laas_agent_condition{agent="sm2",condition="wedged",fabric="main"} 1.0' in told
    assert 'laas_agent_condition{agent="sm2",condition="applied",fabric="main"} 0.0' in told
    silent = told.partition('laas_agent_silent_seconds{agent="sm1",fabric="main"} ')[2]
    assert 40 <= float(silent.split()[0]) < 4000
    deployment.reached_by_agents = False
    assert "laas_agent" not in deployment.client().get("/metrics").text


def test_a_report_that_is_denied_is_audited(guarded, caplog):
    caplog.set_level("INFO", logger="laas_service.audit")
    headers = {"X-Auth-Token": "blue-token"}
    assert guarded.put(f"{F}/agents/sm1", json={}, headers=headers).status_code == 403
    (line,) = [r.getMessage() for r in caplog.records if r.name == "laas_service.audit"]
    assert json.loads(line)["target"] == {"typeURI": "service/isolated-network/agent", "id": "sm1"}


def test_of_an_unknown_fabric_there_is_nothing(client):
    there = "/v1/fabrics/nowhere"
    report = client.put(f"{there}/agents/sm1", json={"condition": "starting"})
    looks = [client.get(f"{there}/{path}") for path in ("agents", "file-set", "file-set/1/lfts")]
    for answer in (report, *looks):
        assert answer.status_code == 404
        assert "nowhere" in answer.json["detail"]


def test_where_workers_reach_opensm_agents_are_told_so(deployment):
    """An agent is configured, but the service is not: it refuses reports and serves no files."""
    deployment.reached_by_agents = False
    client = deployment.client()
    for answer in (
        client.put(f"{F}/agents/sm1", json={"condition": "starting"}),
        client.get(f"{F}/agents"),
        client.get(f"{F}/file-set"),
        client.get(f"{F}/file-set/1/lfts"),
    ):
        assert answer.status_code == 409
        assert "reached_by = agent" in answer.json["detail"]


# -- the files ----------------------------------------------------------------------


def fetched(client):
    """Fetch a file set as an agent does; return its description, and the contents by name."""
    found = client.get(f"{F}/file-set").json
    generation = found["manifest"]["generation"]
    contents = {}
    for name, digest in found["manifest"]["files"].items():
        answer = client.get(f"{F}/file-set/{generation}/{name}")
        assert answer.status_code == 200
        assert answer.mimetype == "application/octet-stream"
        assert len(answer.data) == found["sizes"][name]
        assert hashlib.sha256(answer.data).hexdigest() == digest
        contents[name] = answer.data
    assert found["sizes"].keys() == contents.keys()
    return found, contents


def test_a_set_is_that_of_the_state_wanted(client, deployment, allocate):
    allocate(9)
    found, contents = fetched(client)
    state = deployment.store.fabrics.routed("main")
    configuration = subnet_configuration(state)
    rendered = render.set_files(configuration, settings_of("main"))
    assert contents == {name: "".join(pieces).encode() for name, pieces in rendered.items()}
    assert found["manifest"]["fabric"] == "main"
    assert found["manifest"]["generation"] == state.generation
    assert b"/var/lib/laas/opensm/main/current/lfts" in contents["opensm.conf"]
    allocate(3, name="red")
    again, _ = fetched(client)
    assert again["manifest"]["generation"] == state.generation + 1


def test_the_manifest_is_that_of_the_file_to_the_byte(client, deployment):
    """An agent that writes the received manifest gets the bytes of the service's own file."""
    text = client.get(f"{F}/file-set", headers={"Laas-Set-Form": "5"}).text
    manifest = json.loads(text)["manifest"]
    kept = deployment.served.file("main", "1", "lfts", 5).with_name("manifest.json")
    assert json.dumps(manifest, indent=1) + "\n" == kept.read_text()


def test_agents_of_two_releases_fetch_side_by_side(client, deployment, allocate):
    """Only the newer one knows tables without port GUIDs, and says so in each request."""
    allocate(9)
    configuration = subnet_configuration(deployment.store.fabrics.routed("main"))
    for headers, bare in (({"Laas-Set-Form": "6"}, True), ({"Laas-Set-Form": "5"}, False)):
        found = client.get(f"{F}/file-set", headers=headers).json
        url = f"{F}/file-set/{found['manifest']['generation']}/lfts"
        text = client.get(url, headers=headers).data
        assert len(text) == found["sizes"]["lfts"]
        expected = render.lfts(configuration, bare=bare)
        assert text == "".join(expected).encode()
    assert client.get(url).data == text  # an agent that does not say what it knows


def test_the_tables_of_switches_are_fetched_one_by_one(client, allocate):
    allocate(5)
    found, contents = fetched(client)
    generation, start, tables = found["manifest"]["generation"], 0, []
    for size, digest in found["parts"]["lfts"]:
        bytes_ = f"bytes={start}-{start + size - 1}"
        answer = client.get(f"{F}/file-set/{generation}/lfts", headers={"Range": bytes_})
        assert answer.status_code == 206
        whole = len(contents["lfts"])
        assert answer.headers["Content-Range"] == f"bytes {start}-{start + size - 1}/{whole}"
        assert hashlib.sha256(answer.data).hexdigest() == digest
        (table,) = parse.switch_tables([answer.data], "lfts")
        tables.append(table.guid)
        start += size
    assert start == len(contents["lfts"])
    assert len(set(tables)) == 32


def test_after_one_more_allocation_most_tables_are_as_they_were(client, allocate):
    allocate(2)
    before = client.get(f"{F}/file-set").json["parts"]["lfts"]
    allocate(6, name="red")
    after = client.get(f"{F}/file-set").json["parts"]["lfts"]
    assert len(after) == len(before) == 32
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert 0 < len(changed) < 16, len(changed)


RANGES = {
    "bytes=0-0": slice(0, 1),
    "bytes=0-99": slice(0, 100),
    "bytes=7-": slice(7, None),
    "bytes=-5": slice(-5, None),
    "bytes=10-999999999": slice(10, None),
}
NO_RANGES = ("bytes=99999999-", "bytes=5-2", "bytes=0-1,5-6", "bytes=a-b", "bytes=" + "9" * 999)


def test_ranges_are_those_of_rfc_9110(client):
    url = f"{F}/file-set/1/guid2lid"
    whole = client.get(url).data
    for asked, part in RANGES.items():
        answer = client.get(url, headers={"Range": asked})
        assert answer.status_code == 206, asked
        assert answer.data == whole[part], asked
    for asked in NO_RANGES:
        assert client.get(url, headers={"Range": asked}).status_code == 416, asked


NO_FILES = [
    "manifest.json",
    ".served.json",
    "../gen-1/lfts",
    "%2e%2e/gen-1/lfts",
    "..%2f..%2flaas.db",
    "/etc/passwd",
    "%2Fetc%2Fpasswd",
    "engines",
    "engines/",
    ".",
    "",
    "lfts/",
    "LFTS",
    "lfts%00",
    "lfts%20",
]


def test_only_what_the_manifest_names_is_a_file(client):
    assert client.get(f"{F}/file-set/1/lfts").status_code == 200
    for name in NO_FILES:
        answer = client.get(f"{F}/file-set/1/{name}")
        assert answer.status_code in (400, 404), name


def test_only_what_is_kept_is_given(client):
    for generation in ("0", "2", "-1", "01", "1.0", "current", "x" * 500, "9" * 9999):
        answer = client.get(f"{F}/file-set/{generation}/lfts")
        assert answer.status_code == 404
        assert "generation 1 is wanted now" in answer.json["detail"]


def test_one_that_is_still_being_fetched_stays_for_a_while(client, allocate):
    first, contents = fetched(client)
    generation = first["manifest"]["generation"]
    for number in range(2):
        allocate(1, name=f"a{number}")
        assert fetched(client)[0]["manifest"]["generation"] == generation + number + 1
        old = client.get(f"{F}/file-set/{generation}/lfts")
        assert (old.status_code, old.data) == (200, contents["lfts"])
    allocate(1, name="a2")
    fetched(client)
    assert client.get(f"{F}/file-set/{generation}/lfts").status_code == 404


def counted(client, **changes):
    guid = f"{next(iter(client.get('/v1/fabrics/main/switches').json['switches']))['guid']}"
    row = {
        "guid": guid,
        "age": 1.5,
        "names": ["PortRcvErrors", "Later"],
        "ports": ["1 4 7", "2 - 0"],
    }
    return {**row, **changes}


def test_counters_of_the_active_agent_are_recorded(client, deployment, report):
    answer = report(
        "sm1", generation=1, counters=[counted(client), counted(client, guid="0x00000000000000ff")]
    )
    assert answer.status_code == 200, answer.text
    report("sm2", generation=1, counters=[counted(client, age=0.0, ports=["1 5 7"])])
    seen = []

    def account(memory, reading, owners):
        seen.append(reading)
        return CounterMemory(reading), Findings(reading.guid, reading.at, leaf=True)

    assert not deployment.store.faults.account_counters("main", account)
    [reading] = seen
    assert time.time() - 60 < reading.at < time.time() - 1
    assert {port: dict(c.values) for port, c in reading.ports.items()} == {
        1: {"PortRcvErrors": 4},
        2: {},
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"ports": ["1 4"]},
        {"ports": ["1 4 x"]},
        {"age": -1},
        {"names": ["Port Errors", "Later"]},
        {"bit_error_rates": {"1": 2.0}},
        {"ports": ["1 4 7"] * 300},
    ],
)
def test_wrong_counters_are_refused(client, report, wrong):
    answer = report("sm1", generation=1, counters=[counted(client, **wrong)])
    assert answer.status_code == 400
    assert answer.json["errors"][0]["field"].startswith("counters")


def test_a_report_of_another_past_moves_the_numbers_on(client, deployment):
    """An agent has generation 70 of a database that went back; the next set is above it."""
    body = {"condition": "applied", "generation": 70, "published": 70, "stamp": "a" * 16}
    orders = client.put(f"{F}/agents/a", json={**body, "published_stamp": "a" * 16}).json
    assert orders["wanted"] > 70
    fabric = deployment.store.fabrics.get("main")
    assert (orders["wanted"], orders["stamp"]) == (fabric.routes_generation, fabric.routes_stamp)
    again = client.put(f"{F}/agents/a", json={**body, "published_stamp": "a" * 16}).json
    assert again["wanted"] == orders["wanted"], "it is known as a past one now"
    manifest = client.get(f"{F}/file-set", headers={"Laas-Set-Form": "5"}).json["manifest"]
    assert (manifest["generation"], manifest["stamp"]) == (orders["wanted"], orders["stamp"])


def test_an_agent_that_knows_no_stamps_reports_and_fetches_as_before(client):
    body = {"condition": "applied", "generation": 1, "published": 1}
    assert client.put(f"{F}/agents/a", json=body).json["wanted"] == 1
    manifest = client.get(f"{F}/file-set").json["manifest"]
    assert [*manifest] == ["fabric", "generation", "files", "chains", "tenants"]


def test_an_agent_that_reports_false_generations_uses_few_numbers_up(client, report, deployment):
    before = deployment.store.fabrics.get("main").generation
    for number in (2**31 - 1, before + 20_000_000):
        answer = report("sm1", "sweeping", published=number)
        assert answer.status_code == 400
        assert "remove the 'current' link" in answer.json["errors"][0]["detail"]
    assert deployment.store.fabrics.get("main").generation == before
    for turn in range(15):
        wanted = deployment.store.fabrics.get("main").routes_generation
        stamp = f"{turn:016x}"
        answer = report("sm1", "sweeping", published=wanted, published_stamp=stamp)
        assert (answer.status_code == 200) == (turn < 10), answer.text
    assert "went forward 10 times within a day" in answer.json["detail"]
    assert deployment.store.fabrics.get("main").generation < before + 11_000_000
    sound = deployment.store.fabrics.get("main")
    seen = {"published": sound.routes_generation, "published_stamp": sound.routes_stamp}
    assert report("sm1", "sweeping", **seen).status_code == 200


def strange(deployment, turn):
    """A set of another past, just above the database's."""
    wanted = deployment.store.fabrics.get("main").routes_generation
    return {"published": wanted + 15_000_000, "published_stamp": f"{turn:016x}"}


def test_a_refused_report_moves_no_numbers(report, deployment):
    """By its name, its generation, its other generation, or the number of agents."""
    for number in range(32):
        assert report(f"sm{number}", "sweeping").status_code == 200
    before = deployment.store.fabrics.get("main")
    for turn in range(10):
        refused = report(f"more{turn}", "sweeping", **strange(deployment, turn))
        assert refused.status_code == 409, refused.text
        refused = report("-", "sweeping", **strange(deployment, turn))
        assert refused.status_code == 400
        refused = report("sm0", "sweeping", generation=5, **strange(deployment, turn))
        assert refused.status_code == 400
        far = {"generation": 2**31 - 1, "stamp": "b" * 16}
        refused = report("sm0", "applied", **far, **strange(deployment, turn))
        assert refused.status_code == 400, refused.text
    assert deployment.store.fabrics.get("main") == before


def test_all_processes_together_go_forward_ten_times_a_day(report, deployment):
    """What one process has counted, another one, or the same one after a restart, knows."""
    for turn in range(10):
        other = deployment.client()
        body = {"condition": "sweeping", **strange(deployment, turn)}
        assert other.put(f"{F}/agents/sm{turn}", json=body).status_code == 200
    before = deployment.store.fabrics.get("main").generation
    answer = deployment.client().put(
        f"{F}/agents/sm0", json={"condition": "sweeping", **strange(deployment, 99)}
    )
    assert answer.status_code == 409
    assert "went forward 10 times within a day" in answer.json["detail"]
    assert deployment.store.fabrics.get("main").generation == before


def test_an_agent_with_older_files_is_told(client, report, allocate):
    wanted = report("sm1", "starting").json

    def behind():
        shown = {name: agent["behind"] for name, agent in listed(client).items()}
        lines = client.get("/metrics").text.splitlines()
        metric = "laas_agent_behind{"
        found = {x.split('agent="')[1].split('"')[0]: x for x in lines if x.startswith(metric)}
        assert {name: line.endswith(" 1.0") for name, line in found.items()} == shown
        return shown

    def published(orders):
        return {"published": orders["wanted"], "published_stamp": orders["stamp"]}

    report("sm1", "sweeping", **published(wanted))
    report("sm2", "not_master", **published(wanted))
    assert behind() == {"sm1": False, "sm2": False}
    allocate(3)
    orders = report("sm1", "sweeping", **published(wanted)).json
    assert behind() == {"sm1": True, "sm2": True}
    report("sm1", "sweeping", **published(orders))
    assert behind() == {"sm1": False, "sm2": True}
