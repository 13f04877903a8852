# SPDX-License-Identifier: Apache-2.0

"""Validity of tokens: service tokens, application credentials, expiry, revocation."""

from __future__ import annotations

import pytest
from keystoneauth1.identity.v3 import ApplicationCredential
from keystoneauth1.session import Session

from tests.keystone.conftest import expired

pytestmark = pytest.mark.road

FRESH = {"token_cache_time": -1}
"""Options that check every token with Keystone at every request."""


def status(client, path="/v1/fabrics", **tokens):
    names = {"user": "X-Auth-Token", "service": "X-Service-Token"}
    headers = {names[kind]: token for kind, token in tokens.items()}
    return client.get(path, headers=headers).status_code


@pytest.fixture(scope="module")
def stale(keystone, people):
    """A member's token that has expired."""
    return expired(keystone, "member", "blue")


def test_a_service_may_finish_what_it_began_for_a_user(client, people, stale):
    """A user's expired token is accepted together with a service token."""
    (service,) = people.tokens["service"]
    assert status(client, user=stale) == 401
    assert status(client, user=stale, service=service) == 200


@pytest.mark.parametrize("who", ["member", "stranger", "admin"])
def test_only_services_vouch(guarded, people, stale, who):
    """Only a token with the role ``service`` vouches, even if an option says otherwise."""
    client = guarded(service_token_roles_required="false")
    assert status(client, user=stale, service=people.tokens[who][0]) == 401


def test_a_service_does_not_lend_its_rights(client, people):
    (service,) = people.tokens["service"]
    (member,) = people.tokens["member"]
    assert status(client, "/v1/fabrics/main/hosts", user=service) == 200
    assert status(client, "/v1/fabrics/main/hosts", user=member, service=service) == 403


def test_an_application_credential_reaches_what_its_rules_say(client, keystone, people):
    """Access rules name the service by its type in the catalog."""
    if not keystone.has_endpoint("isolated-network"):
        keystone.endpoint("isolated-network", "http://127.0.0.1:9", region="Elsewhere")
    session = keystone.session("member", project="blue")
    rule = {"method": "GET", "path": "/v1/fabrics", "service": "isolated-network"}
    wanted = {"name": "only fabrics", "access_rules": [rule]}
    made = session.post(
        f"{keystone.url}/users/{session.get_user_id()}/application_credentials",
        json={"application_credential": wanted},
    ).json()["application_credential"]
    auth = ApplicationCredential(
        keystone.url,
        application_credential_id=made["id"],
        application_credential_secret=made["secret"],
    )
    token = Session(auth=auth).get_token()
    assert status(client, "/v1/fabrics", user=token) == 200
    assert status(client, "/v1/allocations", user=token) == 401
    for nobody in ("forged", people.tokens["member"][0], token):
        assert status(client, "/v1/allocations", user=token, service=nobody) == 401, "no service"
    (service,) = people.tokens["service"]
    assert status(client, "/v1/allocations", user=token, service=service) == 200


def test_a_revoked_token_ends_at_once_where_nothing_is_remembered(guarded, keystone, people):
    client = guarded(**FRESH)
    token = keystone.token("member", project="blue")
    assert status(client, user=token) == 200
    keystone.revoke(token)
    assert status(client, user=token) == 401


def test_a_role_that_is_taken_away_is_gone_with_it(guarded, keystone, people):
    client = guarded(**FRESH)
    keystone.user("leaver", {people.blue: ["reader"]})
    token = keystone.token("leaver", project="blue")
    assert status(client, user=token) == 200
    keystone.dismiss("leaver", people.blue, "reader")
    assert status(client, user=token) == 401


def test_while_keystone_is_away_nobody_gets_in(guarded, keystone, people):
    """Requests get 503 while Keystone is down; the same tokens are valid after its return."""
    client = guarded(**FRESH)
    (member,) = people.tokens["member"]
    assert status(client, user=member) == 200
    keystone.stop()
    try:
        answer = client.get("/v1/fabrics", headers={"X-Auth-Token": member})
        assert (answer.status_code, answer.json["code"]) == (503, "unavailable")
        assert answer.headers["Retry-After"]
        assert client.get("/healthcheck").status_code == 200
    finally:
        keystone.start()
    assert status(client, user=member) == 200


def test_the_services_own_login_is_renewed(guarded, keystone, people):
    """Tokens of 100 s are too short for keystoneauth, which renews them; requests succeed."""
    (member,) = people.tokens["member"]
    keystone.restart(expiration=100)
    try:
        client = guarded(**FRESH)
        assert [status(client, user=member) for _ in range(4)] == [200] * 4
        assert status(client, user="forged") == 401
    finally:
        keystone.restart(expiration=3600)
    assert status(client, user=member) == 200
