# SPDX-License-Identifier: Apache-2.0

"""The fabric page of a running service in Chromium; ``tests/browser`` has all the others."""

from __future__ import annotations

import pytest

from tests.browser.chromium import Chromium
from tests.browser.site import Site, served

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_a_page_answers_who_owns_a_cable_and_why_not(deployment, client, allocate):
    """The owner by a search, and the refusal with what is in the way by a form."""
    blue, green = allocate(9, "blue"), allocate(12, "green")
    site = Site.__new__(Site)
    site.deployment = deployment
    with served(site) as url, Chromium() as browser:
        browser.open(f"{url}/view")
        assert "21 with an owner" in browser.text("#summary")
        browser.type("#search", blue["links"][0])
        assert f"Cable\n{blue['links'][0]}" in browser.text("#cell")
        assert "Owner\nblue" in browser.text("#cell")
        browser.type("#ask-hosts", "30")
        browser.run(
            "new Promise((done) => { const look = () => document.querySelector('#verdict') ?"
            " done(true) : setTimeout(look, 20); look(); })"
        )
        assert "30 hosts are refused" in browser.text("#verdict")
        assert green["name"] in browser.text("#question")
        assert browser.problems() == []
        assert all(request.startswith(url) for request in browser.requests())
