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


REQUESTS = "performance.getEntriesByType('resource')"


def until(browser, condition):
    browser.run(
        f"new Promise((done) => {{ const look = () => ({condition}) ? done(true) :"
        " setTimeout(look, 20); look(); })"
    )


def test_the_page_keeps_itself_up_to_date(deployment, client, allocate):
    """Without reload: a new tenant, a failed host and a lost connection; little is sent else."""
    allocate(9, "blue")
    site = Site.__new__(Site)
    site.deployment = deployment
    with Chromium() as browser:
        with served(site) as url:
            browser.open(f"{url}/view")
            browser.type("#search", "node00")
            browser.type("#search", "")
            browser.run("document.querySelector('#tenants button').focus()")
            until(browser, "document.querySelector('#live').textContent.startsWith('Live')")
            until(browser, f"{REQUESTS}.some((one) => one.responseStatus === 304)")
            browser.run("window.marked = true")
            allocate(4, "green")
            client.patch("/v1/fabrics/main/hosts/node31", json={"state": "failed"})
            until(browser, "document.querySelector('#faults').textContent.includes('node31')")
            assert "host node31\tfailed" in browser.text("#needs")
            assert "laas host repair node31" in browser.text("#needs")
            assert "green" in browser.text("#tenants")
            assert "Host\nnode00" in browser.text("#cell"), "the chosen cell stays chosen"
            assert browser.run("window.marked"), "the page was not loaded again"
            assert browser.run("document.activeElement.textContent") == "blue"
            assert browser.problems() == []
        until(browser, "document.querySelector('#live').textContent.startsWith('No connection')")
        assert "The connection is lost" in browser.text("#found")
        assert "green" in browser.text("#tenants"), "the last map stays"
