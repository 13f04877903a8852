# SPDX-License-Identifier: Apache-2.0

"""Real tokens, checked by the real middleware against a stand-in for Keystone."""

from __future__ import annotations

import pytest

from laas_service.api.auth import Loopback, middleware
from laas_service.domain.errors import InvalidInput


def test_a_token_is_worth_what_keystone_says(guarded):
    headers = {"X-Auth-Token": "blue-token", "X-Roles": "admin", "X-Project-Id": "ops"}
    body = {"name": "a", "hosts": 1}
    made = guarded.post("/v1/allocations", json=body, headers=headers)
    assert made.status_code == 202
    assert made.json["project_id"] == "blue"
    assert guarded.get("/v1/fabrics/main/hosts", headers=headers).status_code == 403


@pytest.mark.parametrize("headers", [{}, {"X-Auth-Token": "forged"}])
def test_without_a_good_token_keystone_is_pointed_at(guarded, headers):
    forged = {**headers, "X-Identity-Status": "Confirmed", "X-Roles": "admin"}
    answer = guarded.get("/v1/fabrics", headers=forged)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Keystone uri=")


def test_no_token_is_needed_to_look_at_the_doorbell(guarded):
    for path in ("/", "/healthcheck", "/v1/", "/v1/openapi.json"):
        assert guarded.get(path).status_code == 200


def test_while_keystone_is_away_nobody_gets_in(guarded, keystone):
    keystone.shutdown()
    keystone.server_close()
    answer = guarded.get("/v1/fabrics", headers={"X-Auth-Token": "blue-token"})
    assert answer.status_code == 503
    assert answer.json["code"] == "unavailable"
    assert guarded.get("/healthcheck").status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback(deployment, host):
    assert middleware("none", host, deployment.conf) is Loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "laas.example", ""])
def test_without_authentication_only_loopback(deployment, host):
    with pytest.raises(InvalidInput, match="keystone"):
        middleware("none", host, deployment.conf)


@pytest.mark.parametrize("missing", ["auth_type", "auth.url", "www_authenticate_uri"])
def test_keystone_without_its_options_is_refused(deployment, tmp_path, missing):
    options = {
        "auth_type": "password",
        "auth_url": "http://keystone",
        "www_authenticate_uri": "http://keystone",
    }
    del options[missing.replace(".", "_")]
    lines = [f"{name} = {value}" for name, value in options.items()]
    file = tmp_path / "laas.conf"
    file.write_text("\n".join(["[keystone_authtoken]", *lines]))
    deployment.conf(["--config-file", str(file)], project="laas")
    with pytest.raises(InvalidInput, match=missing):
        deployment.client(middleware("keystone", "0.0.0.0", deployment.conf))


def test_a_strategy_nobody_knows(deployment):
    with pytest.raises(InvalidInput, match="auth_strategy"):
        middleware("password", "127.0.0.1", deployment.conf)


def test_a_default_policy_that_is_not_offered(deployment):
    with pytest.raises(InvalidInput, match="default_policy"):
        deployment.use_cases(default_policy="best")


def test_inside_a_container_are_its_own_project_and_administrators(guarded):
    def ask(token, **more):
        body = {"name": "x", "hosts": 1, **more}
        return guarded.post("/v1/allocations", json=body, headers={"X-Auth-Token": token})

    made = ask("blue-token", hosts=8, container=True)
    assert made.status_code == 202
    parent = made.json["id"]
    assert ask("blue-token", parent=parent).json["project_id"] == "blue"
    assert ask("red-token", parent=parent).status_code == 404
    assert ask("blue-token", parent=parent, project_id="red").status_code == 403
    guest = ask("root-token", parent=parent, project_id="red")
    assert (guest.status_code, guest.json["project_id"]) == (202, "red")
    seen = guarded.get("/v1/allocations", headers={"X-Auth-Token": "red-token"}).json
    assert [one["id"] for one in seen["allocations"]] == [guest.json["id"]]
