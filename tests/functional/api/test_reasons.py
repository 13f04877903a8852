# SPDX-License-Identifier: Apache-2.0

"""Reasons that operators give for a drain, a failure or a maintenance are kept and shown."""

from __future__ import annotations

import pytest

from tests.functional.api.test_mistakes import laas
from tests.waiting import eventually

__all__ = ["laas"]

FAN = "fan 3 is loud"

SAID = [
    ("host drain node08", "fabric hosts --state drained", "hosts/node08"),
    ("host fail 'node[08-09]' --yes", "fabric hosts --state failed", "hosts/node08"),
    ("host drain node08 --move", "fabric hosts --state drained", "hosts/node08"),
    ("switch drain leaf-1-3 --yes", "fabric hosts --state drained", "hosts/node28"),
    ("switch fail leaf-1-3", "switch show leaf-1-3", "switches/leaf-1-3"),
    ("switch maintain leaf-1-3", "fabric switches", "switches/leaf-1-3"),
    ("link fail leaf-1-3-3", "link show leaf-1-3-3", "links/leaf-1-3-3"),
]
"""A command without its reason; one that shows it; what it is about in REST."""


def part(client, place):
    """What REST lists of the part."""
    kind, _, name = place.partition("/")
    listed = client.get(f"/v1/fabrics/main/{kind}").json[kind]
    return next(one for one in listed if name in (one.get("id"), one.get("name")))


@pytest.mark.parametrize(("said", "shown", "place"), SAID)
def test_a_reason_is_kept_and_shown(laas, client, said, shown, place):
    status, _, err = laas(f"{said} --reason '{FAN}'")
    assert status == 0, err
    assert part(client, place)["reason"] == FAN
    assert FAN in laas(f"{shown} -f json")[1]
    faults = client.get("/v1/fabrics/main/map").json["faults"]
    assert FAN in {fault["reason"] for fault in faults}


@pytest.mark.parametrize(("said", "shown", "place"), SAID)
def test_a_reason_ends_with_what_it_is_for(laas, client, said, shown, place):
    assert laas(f"{said} --reason '{FAN}'")[0] == 0
    kind, _, name = place.partition("/")
    if said.startswith("switch drain"):
        kind, name = "switches", "leaf-1-3"
    path = f"/v1/fabrics/main/{kind}/{name}"
    assert client.patch(path, json={"state": "up"}).status_code == 200
    assert part(client, place)["reason"] is None


def test_a_new_reason_replaces_the_old_one_and_none_keeps_it(laas, client):
    laas("host drain node08 --reason one")
    since = part(client, "hosts/node08")["since"]
    laas("host drain node08")
    assert part(client, "hosts/node08")["reason"] == "one"
    laas("host drain node08 --reason other")
    assert (part(client, "hosts/node08")["reason"], part(client, "hosts/node08")["since"]) == (
        "other",
        since,
    )


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("hosts/node08", {"reason": "x"}, "state: is missing; say what to change"),
        ("hosts/node08", {"reason": "x", "cost": 1}, "give it with a state other than up"),
        ("hosts/node08", {"reason": "x", "state": "up"}, "give it with a state other than up"),
        ("hosts/node08", {"reason": "", "state": "drained"}, "give 1 or more characters"),
        ("hosts/node08", {"reason": "a\nb", "state": "drained"}, "leave out control characters"),
        ("links/leaf-0-0-0", {"reason": "x", "state": "up"}, "give it with a state other than up"),
        ("switches/leaf-0-0", {"reason": "x", "state": "up"}, "give it with a state other than up"),
    ],
)
def test_a_reason_for_nothing_is_refused(client, path, body, told):
    before = client.get("/v1/fabrics/main/hosts").json
    answer = client.patch(f"/v1/fabrics/main/{path}", json=body)
    assert (answer.status_code, told in answer.json["detail"]) == (400, True), answer.text
    assert client.get("/v1/fabrics/main/hosts").json == before


def test_a_drain_with_another_reason_changes_the_map(laas, client):
    """Whoever shows the map asks again."""
    laas("host drain node08 --reason one")
    tag = client.get("/v1/fabrics/main/map").headers["ETag"]
    laas("host drain node08 --reason another")

    def is_new():
        answer = client.get("/v1/fabrics/main/map", headers={"If-None-Match": tag})
        return answer.status_code == 200

    eventually(is_new, "the map has the other reason")
