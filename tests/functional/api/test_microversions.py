# SPDX-License-Identifier: Apache-2.0

"""Microversions: the header, the version documents, and what each version changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from keystoneauth1 import discover

from laas_service.api import microversions
from laas_service.client import rest
from tests.functional.api.test_tenants import TokensAsHeaders

NAME = "OpenStack-API-Version"
LIST = "/v1/allocations"


def version(text):
    return {NAME: f"isolated-network {text}"}


@pytest.mark.parametrize("path", ["/v1", "/v1/"])
def test_the_version_document_has_the_range(client, path):
    (listed,) = client.get("/").json["versions"]
    assert (listed["min_version"], listed["max_version"]) == ("1.0", "1.3")
    assert client.get(path).json == {"version": listed}


def test_keystoneauth_finds_the_range(client):
    """Judged by the library that OpenStack's clients discover versions with."""
    session: Any = SimpleNamespace(get=lambda url, **_: answered(client.get(url)))
    (found,) = discover.Discover(session, "http://localhost/v1/").version_data()
    assert (found["version"], found["min_microversion"], found["max_microversion"]) == (
        (1, 0),
        (1, 0),
        (1, 3),
    )


def answered(answer):
    return SimpleNamespace(status_code=answer.status_code, json=lambda: answer.json, headers={})


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ({}, "1.0"),
        ({NAME: "compute 2.90"}, "1.0"),
        (version("1.0"), "1.0"),
        (version("1.1"), "1.1"),
        (version("latest"), "1.3"),
        ({NAME: "compute 2.90, isolated-network 1.1"}, "1.1"),
        ({NAME: "Isolated-Network  1.1"}, "1.1"),
    ],
)
def test_every_answer_tells_its_version(client, sent, told):
    for path, status in ((LIST, 200), ("/v1/allocations/nobody", 404)):
        answer = client.get(path, headers=sent)
        assert answer.status_code == status
        assert answer.headers[NAME] == f"isolated-network {told}"
        assert NAME in answer.headers["Vary"]


@pytest.mark.parametrize("unknown", ["0.9", "1.4", "2.0", "1.999999999"])
def test_an_unknown_version_is_refused(client, unknown):
    answer = client.post(LIST, json={"name": "blue", "hosts": 2}, headers=version(unknown))
    assert (answer.status_code, answer.json["code"]) == (406, "unknown_version")
    assert (answer.json["min_version"], answer.json["max_version"]) == ("1.0", "1.3")
    assert f"version {unknown} is not known" in answer.json["detail"]
    assert "from 1.0 to 1.3" in answer.json["detail"]
    assert client.get(LIST).json["allocations"] == []


@pytest.mark.parametrize(
    "wrong",
    ["", "1", "1.x", "01.1", "1.1.1", "1.1 1.1", "-1.0", "newest", "1.1, isolated-network 1.0"],
)
def test_what_is_no_version_is_an_error(client, wrong):
    answer = client.get(LIST, headers=version(wrong))
    assert (answer.status_code, answer.json["code"]) == (400, "invalid_input")
    assert answer.json["errors"][0]["field"] == NAME


def test_the_client_knows_the_newest_version():
    assert str(microversions.NEWEST) == rest.VERSION


# -- 1.1: an administrator's list is that of his project --------------------------------------


@pytest.fixture
def names(deployment):
    """List as a user in a version; the names of the allocations, or the status of a refusal."""
    client = deployment.client(authenticate=TokensAsHeaders)
    for token, name in (("blue", "a"), ("red", "b"), ("admin", "c")):
        body = {"name": name, "hosts": 2}
        answer = client.post(LIST, json=body, headers={"X-Auth-Token": token})
        assert answer.status_code == 202

    def listed(token, query="", asked="1.1"):
        headers = {"X-Auth-Token": token, **version(asked)}
        answer = client.get(f"{LIST}{query}", headers=headers)
        if answer.status_code != 200:
            return answer.status_code
        page = answer.json
        found = [one["name"] for one in page["allocations"]]
        if page["next"]:
            found += [
                one["name"] for one in client.get(page["next"], headers=headers).json["allocations"]
            ]
        return found

    return listed


def test_an_administrators_list_is_his_projects(names):
    assert names("admin", asked="1.0") == ["a", "b", "c"]
    assert names("admin") == ["c"]
    assert names("admin", "?all_projects=false") == ["c"]
    assert names("admin", "?all_projects=true") == ["a", "b", "c"]
    assert names("admin", "?all_projects=true&limit=2") == ["a", "b", "c"]
    assert names("admin", "?project_id=red") == ["b"]
    assert names("admin", "?project_id=red&all_projects=true") == ["b"]


def test_a_tenants_list_is_the_same_in_all_versions(names):
    for asked in ("1.0", "1.1"):
        assert names("blue", asked=asked) == ["a"]
        assert names("blue", "?project_id=red", asked=asked) == []
    assert names("blue", "?all_projects=true") == 403


def test_all_projects_needs_its_version(names, client):
    assert names("admin", "?all_projects=true", asked="1.0") == 400
    answer = client.get(f"{LIST}?all_projects=true")
    assert answer.json["errors"][0]["field"] == "all_projects"
    assert "1.1" in answer.json["errors"][0]["detail"]


def test_without_authentication_everybody_sees_all(client):
    for project in ("blue", "red"):
        body = {"name": project, "hosts": 2}
        client.post(LIST, json=body, headers={"X-Project-Id": project})
    for query, found in (
        ("", ["blue", "red"]),
        ("?all_projects=true", ["blue", "red"]),
        ("?project_id=red", ["red"]),
    ):
        answer = client.get(f"{LIST}{query}", headers=version("1.1"))
        assert [one["name"] for one in answer.json["allocations"]] == found


# -- 1.2: an answer has the fields of its kind ------------------------------------------------

OF_SLOTS = {"slots", "bandwidth", "deviation", "enforcement", "units", "unit_moves"}
OF_LINKS = {"leaf_links", "spine_links", "links", "shape", "contention_free", "worst_load"}
KEYS = {"pkey", "pkeys"}
ABSENT = {
    "plain": OF_SLOTS | {"container", "sharing"},
    "virtual": OF_SLOTS | KEYS | {"sharing"},
    "part": OF_SLOTS | {"container"},
    "units": OF_LINKS | KEYS | {"container", "sharing", "constraints", "bridge"},
}
"""The fields that an allocation does not have, by its name."""
AT_TIMES = {
    *("parent", "position", "waits_for", "duration", "expected_end", "constraints", "degraded"),
    *("changing", "joining", "leaving", "bridge", "announced", "error", "priority"),
    "crossed_by",
}
"""The fields that an allocation lacks while they have no value."""


def absent(old):
    """The fields that 1.2 leaves out of an allocation as 1.1 shows it."""
    empty = {name for name in AT_TIMES if old[name] is None and name != "bridge"}
    empty |= {name for name in AT_TIMES if old[name] == []}
    return ABSENT[old["name"]] | empty


@pytest.fixture
def kinds(allocate):
    """One allocation of each kind, by name."""
    part = allocate(2, "part", sharing={"slots": 4, "bandwidth": 10.0})
    return {
        "plain": allocate(2, "plain"),
        "virtual": allocate(2, "virtual", container=True),
        "part": part,
        "units": allocate(None, "units", **UNITS, parent=part["id"]),
    }


UNITS: dict[str, Any] = {"class": "shared", "slots": 3, "bandwidth": 1.0}


@pytest.mark.parametrize("name", ABSENT)
def test_an_answer_lacks_what_its_kind_does_not_have(client, kinds, name):
    path = f"{LIST}/{kinds[name]['id']}"
    first, old, new = (client.get(path, headers=version(f"1.{n}")) for n in range(3))
    assert first.text == old.text
    assert old.json.keys() - new.json.keys() == absent(old.json)
    assert new.json == {field: old.json[field] for field in old.json if field in new.json}


def test_a_list_lacks_in_each_row_what_its_kind_does_not_have(client, kinds):
    old, new = (client.get(LIST, headers=version(f"1.{n}")).json["allocations"] for n in (1, 2))
    assert {one["name"] for one in old} == ABSENT.keys()
    for was, now in zip(old, new, strict=True):
        assert was.keys() - now.keys() == absent(was)


def test_an_answer_about_plain_hosts_has_at_most_30_fields(client, kinds):
    shown = client.get(f"{LIST}/{kinds['plain']['id']}", headers=version("1.2")).json
    assert len(shown) <= 30
    assert not shown.keys() & AT_TIMES


def test_fields_of_situations_are_shown_while_they_have_a_value(client, kinds):
    path, headers = f"{LIST}/{kinds['plain']['id']}", version("1.2")
    assert client.get(f"{LIST}/{kinds['units']['id']}", headers=headers).json["parent"]
    body = {"name": "late", "hosts": 32, "wait": True, "duration": 60}
    late = client.post(LIST, json=body, headers=headers).json
    assert (late["position"], late["duration"]) == (1, 60)
    assert late["waits_for"]["detail"]
    client.patch(path, json={"hosts": 3}, headers=headers)
    assert client.get(path, headers=headers).json["joining"]


@pytest.mark.parametrize("asked", [{"hosts": 2}, UNITS], ids=["plain", "units"])
def test_a_dry_run_lacks_what_its_kind_does_not_have(client, kinds, asked):
    body = {"name": "blue", "dry_run": True, **asked}
    old, new = (client.post(LIST, json=body, headers=version(f"1.{n}")).json for n in (1, 2))
    name = "units" if "slots" in asked else "plain"
    assert old.keys() - new.keys() == ABSENT[name] & old.keys()


def test_the_description_requires_no_field_that_a_kind_lacks(client):
    schemas = client.get("/v1/openapi.json").json["components"]["schemas"]
    sometimes = set().union(*ABSENT.values())
    for name in ("Allocation", "AllocationSummary", "DryRun"):
        at_times = set() if name == "DryRun" else AT_TIMES
        assert not (sometimes | at_times) & set(schemas[name]["required"])
        assert {"name", "hosts", "policy"} <= set(schemas[name]["required"])
