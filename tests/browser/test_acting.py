# SPDX-License-Identifier: Apache-2.0

"""People act on the fabric page: with a dry run before, a refusal's words, and an undo after."""

from __future__ import annotations

import json

import pytest

from tests.browser.chromium import Chromium
from tests.browser.site import HOSTS_32, Site, served
from tests.browser.test_pages import SCREENSHOTS

FABRIC = "/v1/fabrics/main"


@pytest.fixture(scope="module")
def browser():
    with Chromium() as made:
        yield made


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path, HOSTS_32)
    made.allocate("blue", 6)
    made.allocate("red", 5)
    with served(made) as made.url:
        yield made


@pytest.fixture
def view(browser, site):
    browser.size(1440, 900)
    browser.events.clear()
    browser.open(f"{site.url}/view")
    yield browser
    assert [one for one in browser.problems() if "status of 409" not in one] == []  # refusals


def until(browser, condition):
    """Wait until something is true in the page."""
    browser.run(
        f"new Promise((done) => {{ const look = () => ({condition}) ? done(true)"
        " : setTimeout(look, 20); look(); })"
    )


def text_of(browser, selector, part):
    """Wait until the text of an element has this part, and return it."""
    found = f"document.querySelector({json.dumps(selector)})"
    until(browser, f"{found} && {found}.textContent.includes({json.dumps(part)})")
    return browser.text(selector)


def fill(browser, selector, value):
    browser.run(
        f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
        f"e.value = {json.dumps(value)}; e.dispatchEvent(new Event('input')); }})()"
    )


def press(browser, button):
    browser.run(f"document.querySelector({json.dumps(button)}).click()")


def show(browser, tenant):
    press(browser, f"#tenants button[data-tenant='{tenant}']")


def named(site):
    return {one["name"]: one for one in site.get("/v1/allocations")["allocations"]}


def test_create_is_drawn_first_and_can_be_undone(view, site):
    fill(view, "#new [name=name]", "green")
    fill(view, "#new [name=hosts]", "4")
    before = view.run("document.querySelector('#cells').toDataURL()")
    press(view, "#new button")
    text_of(view, "#act-words", "It would have 4 hosts")
    until(view, f"document.querySelector('#cells').toDataURL() !== {json.dumps(before)}")
    view.screenshot(SCREENSHOTS / "create.png")
    assert "green" not in named(site)
    press(view, "#act-go")
    text_of(view, "#done", "green is asked for")
    text_of(view, "#tenants", "green")
    assert named(site)["green"]["requested"] == 4
    press(view, "#undo")
    text_of(view, "#done", "It is taken back")
    assert named(site).get("green", {}).get("state") in (None, "releasing")


def test_a_refusal_says_why_and_what_fits_and_a_queue_takes_it(view, site):
    fill(view, "#new [name=name]", "green")
    fill(view, "#new [name=hosts]", "30")
    press(view, "#new button")
    told = text_of(view, "#act-words", "The largest size that fits now is")
    body = {"name": "green", "hosts": 30, "dry_run": True}
    assert site.client.post("/v1/allocations", json=body).json["detail"] in told
    assert view.run("document.querySelector('#act-go').disabled")
    press(view, "#act-leave")
    view.run("document.querySelector('#new [name=waits]').checked = true")
    press(view, "#new button")
    text_of(view, "#act-words", "It would wait")
    press(view, "#act-go")
    text_of(view, "#queue", "green")
    assert named(site)["green"]["state"] == "queued"


def test_rename_resize_and_consent_with_their_undo(view, site):
    show(view, "blue")
    for act, value, field, before, after in (
        ("rename", "navy", "name", "blue", "navy"),
        ("consent", "restart", "movable", "never", "restart"),
    ):
        press(view, f"#tenant-acts [data-act={act}]")
        fill(view, "#act-value", value)
        press(view, "#act-go")
        until(view, "!document.querySelector('#act').open")
        (seen,) = [one[field] for one in named(site).values() if one["requested"] == 6]
        assert seen == after
        press(view, "#undo")
        text_of(view, "#done", "It is taken back")
        assert named(site)["blue"][field] == before
    press(view, "#tenant-acts [data-act=resize]")
    fill(view, "#act-value", "4")
    assert view.run("document.querySelector('#act-go').disabled")
    press(view, "#act-draw")
    assert "Given back: " in text_of(view, "#act-words", "It would have 4 hosts")
    press(view, "#act-go")
    text_of(view, "#done", "changes its size")
    assert named(site)["blue"]["requested"] == 4


def test_a_release_says_what_will_be_lost(view, site):
    show(view, "red")
    press(view, "#tenant-acts [data-act=release]")
    links = len(named(site)["red"]["links"])
    assert f"red loses 5 hosts and {links} link" in view.text("#act-loses")
    press(view, "#act-leave")
    assert named(site)["red"]["state"] == "active"
    press(view, "#tenant-acts [data-act=release]")
    press(view, "#act-go")
    text_of(view, "#done", "red is released")
    assert named(site).get("red", {}).get("state") in (None, "releasing")


def test_operators_drain_fail_and_use_again(view, site):
    host = site.get(f"{FABRIC}/hosts")["hosts"][0]["name"]
    view.type("#search", host)
    for act, state in (("drained", "drained"), ("failed", "failed")):
        text_of(view, "#cell", "Stateup")
        press(view, f"#cell [data-act={act}]")
        press(view, "#act-go")
        text_of(view, "#done", host)
        assert site.get(f"{FABRIC}/hosts")["hosts"][0]["state"] == state
        press(view, "#undo")
        text_of(view, "#done", "It is taken back")
        assert site.get(f"{FABRIC}/hosts")["hosts"][0]["state"] == "up"
    link = named(site)["blue"]["links"][0]
    view.type("#search", link)
    view.size(1000, 700)
    view.run("window.scrollTo(0, 0); document.querySelector('#done').hidden = true")
    press(view, "#fit")
    view.screenshot(SCREENSHOTS / "fault-1-before.png")
    press(view, "#cell [data-act=failed]")
    assert "blue is degraded" in view.text("#act-loses")
    press(view, "#act-go")
    text_of(view, "#needs", link)
    assert site.get(f"{FABRIC}/links/{link}")["state"] == "failed"
    text_of(view, "#cell", "Statefailed")
    view.screenshot(SCREENSHOTS / "fault-2-needs-a-person.png")
    press(view, "#needs [data-act=up]")
    press(view, "#act-go")
    text_of(view, "#done", "is used again")
    assert site.get(f"{FABRIC}/links/{link}")["state"] == "up"
    text_of(view, "#cell", "Stateup")
    view.screenshot(SCREENSHOTS / "fault-3-used-again.png")


def test_a_small_fabric_fills_its_frame(view):
    """Cells grow, and the frame is no higher than they need; a tooltip names what is under it."""
    frame = "document.querySelector('#frame').getBoundingClientRect()"
    assert view.run(f"{frame}.height") < 0.7 * 900
    x, y = view.run(f"[{frame}.x, {frame}.y]")
    view.mouse("mouseMoved", x + 60, y + 60)
    until(view, "document.querySelector('#cells').title.startsWith('Host: ')")


def test_an_address_shows_what_was_looked_at(view, site):
    """Tenant, cell and colours come back where the address is opened anew."""
    id, link = (named(site)["blue"][field] for field in ("id", "links"))
    show(view, "blue")
    view.type("#search", link[0])
    until(view, f"location.hash.includes('{link[0]}')")
    hash = view.run("location.hash")
    assert id in hash
    view.send("Page.navigate", url="about:blank")  # else the browser only moves within the page
    view.until("Page.loadEventFired")
    view.open(f"{site.url}/view?fabric=main{hash}&colour=load")
    assert view.text("#tree-title") == "Tree of blue"
    assert f"Cable\n{link[0]}" in view.text("#cell")
    assert view.run("document.querySelector('#colour').value") == "load"


def test_a_tenant_has_its_history_and_its_steps(view, site):
    show(view, "blue")
    told = text_of(view, "#story", "History")
    for event in site.get(f"/v1/allocations/{named(site)['blue']['id']}")["history"]:
        assert event["reason"] in told
    view.screenshot(SCREENSHOTS / "history.png")
