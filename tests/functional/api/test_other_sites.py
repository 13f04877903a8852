# SPDX-License-Identifier: Apache-2.0

"""Without logins: pages of other sites, which a browser on this machine shows, do nothing here."""

from __future__ import annotations

import pytest

NEW = {"name": "new", "hosts": 1}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:8888"},
        {"Origin": "https://localhost"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
    ids=str,
)
def test_another_site_makes_nothing(client, headers):
    answer = client.post("/v1/allocations", json=NEW, headers=headers)
    assert answer.status_code == 403
    assert "not one of this service" in answer.json["detail"]
    assert client.get("/v1/allocations").json["allocations"] == []


def test_the_page_itself_and_programs_act(client):
    for headers in (
        {},
        {"Origin": "http://localhost"},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"},
    ):
        assert client.post("/v1/allocations", json=NEW, headers=headers).status_code == 202


def test_another_site_reads_nothing_and_may_link_here(client):
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/view", headers=followed).status_code == 200
    embedded = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert client.get("/v1/fabrics", headers=embedded).status_code == 403


def test_there_is_nothing_to_sign_in_to(client):
    for method in ("POST", "DELETE"):
        answer = client.open("/v1/session", method=method, json={"token": "x"})
        assert answer.status_code == 403
        assert "no logins" in answer.json["detail"]
