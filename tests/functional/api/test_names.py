# SPDX-License-Identifier: Apache-2.0

"""Names: from version 1.3 on, a live allocation has its name alone in its project."""

from __future__ import annotations

import pytest

from tests.functional.api.test_microversions import LIST, version
from tests.functional.api.test_tenants import TokensAsHeaders

OLD, NEW = version("1.2"), version("1.3")


@pytest.fixture
def ask(client):
    """Ask for an allocation; the answer."""

    def asked(name="blue", headers=NEW, hosts=2, **fields):
        return client.post(LIST, json={"name": name, "hosts": hosts, **fields}, headers=headers)

    return asked


def taken(answer, name, holder):
    """Whether a request is refused for its name, with the id of the allocation that has it."""
    assert (answer.status_code, answer.json["code"]) == (409, "name_taken")
    assert answer.json["allocation"] == holder
    (field,) = answer.json["errors"]
    assert (field["field"], field["value"]) == ("name", name)
    assert "allow_duplicate_name" in answer.json["detail"]
    assert holder in answer.json["detail"]
    return True


def test_a_name_is_given_once_and_the_holder_is_told(ask, client):
    first = ask().json
    assert taken(ask(), "blue", first["id"])
    assert [one["id"] for one in client.get(LIST).json["allocations"]] == [first["id"]]
    assert ask("green").status_code == 202


def test_a_name_that_an_older_version_gave_is_taken_too(ask):
    first = ask(headers=OLD).json
    assert taken(ask(), "blue", first["id"])
    assert ask(headers=OLD).status_code == 202, "older versions give names twice, as before"


def test_a_duplicate_may_be_allowed(ask):
    first = ask().json
    assert ask(allow_duplicate_name=True).status_code == 202
    assert taken(ask(allow_duplicate_name=False), "blue", first["id"])


def test_a_queued_request_holds_its_name(ask):
    assert ask("large", hosts=32).status_code == 202
    queued = ask(wait=True).json
    assert queued["state"] == "queued"
    assert taken(ask(wait=True), "blue", queued["id"])


def test_renaming_takes_the_new_name_and_frees_the_old_one(ask, client):
    blue, green = ask("blue").json["id"], ask("green").json["id"]
    rename = client.patch(f"{LIST}/{green}", json={"name": "blue"}, headers=NEW)
    assert taken(rename, "blue", blue)
    assert client.get(f"{LIST}/{green}").json["name"] == "green"
    assert client.patch(f"{LIST}/{green}", json={"name": "red"}, headers=NEW).status_code == 200
    assert ask("green").status_code == 202
    assert taken(ask("red"), "red", green)
    same = client.patch(f"{LIST}/{green}", json={"name": "red"}, headers=NEW)
    assert same.status_code == 200, "its own name is no duplicate"
    double = {"name": "blue", "allow_duplicate_name": True}
    assert client.patch(f"{LIST}/{green}", json=double, headers=NEW).status_code == 200
    assert ask("red").status_code == 202, "nobody has it any more"


def test_a_released_allocation_frees_its_name(ask, client, deployment):
    first = ask().json["id"]
    assert client.delete(f"{LIST}/{first}").status_code == 202
    assert taken(ask(), "blue", first)
    deployment.converge()
    deployment.converge()
    second = ask()
    assert second.status_code == 202
    waiting = ask("large", hosts=32, wait=True).json["id"]
    assert client.delete(f"{LIST}/{waiting}").status_code == 202
    assert ask("large").status_code == 202


def test_a_repeated_request_with_its_key_is_answered_again(ask, client):
    headers = {**NEW, "Idempotency-Key": "one"}
    first, again = ask(headers=headers), ask(headers=headers)
    assert first.json["id"] == again.json["id"]


def test_other_projects_have_names_of_their_own(deployment):
    client = deployment.client(authenticate=TokensAsHeaders)
    for token in ("blue", "red"):
        answer = client.post(
            LIST, json={"name": "a", "hosts": 2}, headers={"X-Auth-Token": token, **NEW}
        )
        assert answer.status_code == 202


def test_the_field_needs_the_version_that_has_it_and_a_name(ask, client):
    answer = ask(headers=OLD, allow_duplicate_name=True)
    assert answer.status_code == 400
    assert answer.json["errors"][0]["field"] == "allow_duplicate_name"
    assert "1.3" in answer.json["detail"]
    path = f"{LIST}/{ask().json['id']}"
    answer = client.patch(path, json={"hosts": 3, "allow_duplicate_name": True}, headers=NEW)
    assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, "allow_duplicate_name")
