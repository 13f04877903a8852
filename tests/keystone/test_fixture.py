# SPDX-License-Identifier: Apache-2.0

"""The Keystone fixture of other tests: users, restarts, lifetimes of tokens."""

from __future__ import annotations

import pytest
from keystoneauth1.exceptions import ConnectFailure, EndpointNotFound
from keystoneauth1.session import Session


def seen(keystone, token):
    """Keystone's answer about a token."""
    session = keystone.session(project=None, system_scope="all")
    return session.get(f"{keystone.url}/auth/tokens", headers={"X-Subject-Token": token}).json()[
        "token"
    ]


def test_a_user_has_the_roles_it_was_given(keystone):
    blue = keystone.project("blue")
    keystone.user("alice", {blue: ["member", "service"]})
    token = seen(keystone, keystone.token("alice", project="blue"))
    assert token["project"]["id"] == blue
    assert {role["name"] for role in token["roles"]} == {"member", "reader", "service"}


def test_users_of_the_domain_and_of_all(keystone):
    keystone.user("overseer", domain=["admin"], system=["reader"])
    domain = keystone.token("overseer", project=None, domain_id="default")
    system = keystone.token("overseer", project=None, system_scope="all")
    assert seen(keystone, domain)["domain"]["id"] == "default"
    assert seen(keystone, system)["system"] == {"all": True}


def test_asking_twice_makes_nothing_twice(keystone):
    assert keystone.project("twice") == keystone.project("twice")
    assert keystone.user("twin") == keystone.user("twin")


def test_the_catalog_grows(keystone):
    wanted = {"service_type": "image", "interface": "internal", "skip_discovery": True}
    keystone.endpoint("image", "http://127.0.0.1:9/n", region="North", interface="internal")
    session = keystone.session()
    assert session.get_endpoint(**wanted, region_name="North") == "http://127.0.0.1:9/n"
    with pytest.raises(EndpointNotFound):
        session.get_endpoint(**wanted, region_name="RegionOne")


def test_a_revoked_token_is_one_no_more(keystone):
    token = keystone.token()
    assert keystone.knows(token)
    keystone.revoke(token)
    assert not keystone.knows(token)


def test_it_can_be_away_and_comes_back_where_it_was(keystone):
    """Users and tokens survive a restart."""
    token = keystone.token()
    keystone.stop()
    try:
        with pytest.raises(ConnectFailure):
            Session().get(keystone.url)
    finally:
        keystone.start()
    assert seen(keystone, token)
