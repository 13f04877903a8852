# SPDX-License-Identifier: Apache-2.0

"""Sessions of the fabric page with the real Keystone: who gets in, and how nobody else does."""

from __future__ import annotations

import json
import time

import pytest
import webob
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from laas_service.api.auth import Keystone, middleware
from laas_service.api.session_cookies import COOKIE, HEADER, LONGEST, SessionCookies
from tests.browser.chromium import Chromium
from tests.browser.site import Site, served
from tests.keystone.test_tokens import FRESH
from tests.servers.keystone import PASSWORD

HERE = {"Origin": "http://localhost"}
ROLES = {"reader": "blue", "member": "blue", "boss": "ops", "stranger": "red"}
NOTHING = webob.Response()
MAP = "/v1/fabrics/main/map"


def password(user, project="blue"):
    return {"username": user, "password": PASSWORD, "project": project}


class Person:
    """A browser's part: it keeps the cookie, and the page's part: it keeps the secret."""

    def __init__(self, client):
        self.client = client.application.test_client(use_cookies=False)
        self.cookie = self.secret = ""

    def sign_in(self, login, headers=HERE, **more):
        answer = self.client.post("/v1/session", json=login, headers=headers, **more)
        if answer.status_code == 201:
            self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
            self.secret = answer.json["secret"]
        return answer

    def ask(self, path, method="GET", headers=None, **more):
        both = {"Cookie": self.cookie, HEADER: self.secret, **(headers or {})}
        sent = {name: value for name, value in both.items() if value is not None}
        return self.client.open(path, method=method, headers=sent, **more)


@pytest.fixture
def make(guarded):
    """Make people of one service that asks Keystone at each request."""
    client = guarded(**FRESH)
    return lambda: Person(client)


@pytest.fixture
def member(make, people):
    person = make()
    assert person.sign_in(password("member")).status_code == 201
    return person


@pytest.mark.parametrize(("user", "project"), ROLES.items())
def test_a_session_has_the_rights_of_its_token(make, keystone, people, user, project):
    """The statuses, and the answers, are those of the same person's token."""
    person = make()
    answer = person.sign_in(password(user, project))
    assert answer.status_code == 201
    assert (answer.json["user"], answer.json["project"]) == (user, project)
    assert "member" in answer.json["roles"] or user == "reader"
    token = {"X-Auth-Token": keystone.token(user, project=project)}
    for path in ("/v1/fabrics", MAP, "/v1/allocations", "/v1/fabrics/main/hosts", "/v1/quota"):
        seen, due = person.ask(path), person.client.get(path, headers=token)
        assert seen.status_code == due.status_code, path
        without_time = [{**one.json, "at": None, "request_id": None} for one in (seen, due)]
        assert without_time[0] == without_time[1], path
    named = {"name": user, "hosts": 1}
    made = person.ask("/v1/allocations", "POST", json=named)
    assert made.status_code == (403 if user == "reader" else 202)


def test_a_cookie_that_no_script_reads_and_no_other_site_sends(make, people):
    person = make()
    answer = person.sign_in(password("member"))
    value, *attributes = answer.headers["Set-Cookie"].split("; ")
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} < set(attributes)
    assert not any(one.startswith("Domain") for one in attributes)
    (seconds,) = (int(one[8:]) for one in attributes if one.startswith("Max-Age="))
    assert 0 < seconds <= LONGEST
    assert answer.headers["Cache-Control"] == "no-store"
    assert "token" not in answer.json
    assert PASSWORD not in answer.text + value


def test_an_application_credential(make, keystone, people):
    session = keystone.session("member", project="blue")
    made = session.post(
        f"{keystone.url}/users/{session.get_user_id()}/application_credentials",
        json={"application_credential": {"name": "page"}},
    ).json()["application_credential"]
    person = make()
    login = {"application_credential_id": made["id"]}
    login["application_credential_secret"] = made["secret"]
    assert person.sign_in(login).json["project"] == "blue"
    assert person.ask("/v1/allocations").status_code == 200
    assert person.sign_in({**login, "application_credential_secret": "x"}).status_code == 401


def test_a_pasted_token(make, keystone, people):
    person = make()
    token = keystone.token("member", project="blue")
    answer = person.sign_in({"token": token})
    assert (answer.status_code, answer.json["user"]) == (201, "member")
    assert person.ask("/v1/allocations").status_code == 200
    for bad in filter(None, people.tokens["none"]):
        assert make().sign_in({"token": bad}).status_code == 401
    for scope in people.tokens["scope"]:
        refused = make().sign_in({"token": scope})
        assert refused.status_code == 403
        assert "for no project" in refused.json["detail"]


def test_wrong_logins_are_refused_in_plain_words(make, people, caplog):
    wrong = {**password("member"), "password": "wrong-password"}
    for login in (wrong, password("nobody"), password("member", "red")):
        answer = make().sign_in(login)
        assert answer.status_code == 401
        assert "Keystone refuses" in answer.json["detail"]
        assert "Set-Cookie" not in answer.headers
    mixed = make().sign_in({**password("member"), "token": "x"})
    assert mixed.status_code == 400
    assert PASSWORD not in mixed.text
    assert "wrong-password" not in caplog.text
    assert PASSWORD not in caplog.text


def test_nobody_without_a_role_gets_in(make, keystone, people):
    """Keystone gives no token for a project in which a user has no role."""
    keystone.user("idler", {people.red: ["reader"]})
    assert make().sign_in(password("idler")).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {HEADER: None},
        {HEADER: ""},
        {HEADER: "guessed"},
        {"Cookie": None},
        {"Cookie": f"{COOKIE}=forged"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # another port of this host
        {"Host": "evil.example"},
        {"Host": "localhost:8080"},
    ],
    ids=str,
)
def test_a_stolen_session(member, headers):
    """The cookie alone opens nothing, nor do both parts from another page or at another name."""
    assert member.ask("/v1/allocations").status_code == 200
    assert member.ask("/v1/allocations", headers=headers).status_code == 401
    body = {"name": "stolen", "hosts": 1}
    assert member.ask("/v1/allocations", "POST", headers, json=body).status_code == 401
    assert member.ask("/v1/allocations").json["allocations"] == []


def test_parts_of_two_sessions_do_not_fit(make, member, people):
    boss = make()
    boss.sign_in(password("boss", "ops"))
    assert boss.ask("/v1/fabrics/main/hosts").status_code == 200
    assert member.ask("/v1/allocations", headers={"Cookie": boss.cookie}).status_code == 401


def test_another_sites_form(make, people):
    """Neither signs a person in as somebody else, nor out, nor makes anything."""
    person = make()
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert person.sign_in(password("member"), headers=headers).status_code == 403
    form = {"data": '{"token": "x"}', "content_type": "text/plain"}
    assert person.client.post("/v1/session", headers=HERE, **form).status_code == 415
    person.sign_in(password("member"))
    away = {"Origin": "https://evil.example"}
    assert person.ask("/v1/session", "DELETE", away).status_code == 401
    assert person.ask("/v1/allocations").status_code == 200


def test_a_replayed_session(member, guarded):
    """Signing out revokes the token: the old cookie opens nothing, in another process either."""
    elsewhere = Person(guarded(**FRESH))
    elsewhere.cookie, elsewhere.secret = member.cookie, member.secret
    assert elsewhere.ask("/v1/allocations").status_code == 200, "all processes share the key"
    answer = member.ask("/v1/session", "DELETE")
    assert (answer.status_code, answer.json) == (200, {"ended": True})
    assert "Max-Age=0" in answer.headers["Set-Cookie"]
    assert member.ask("/v1/allocations").status_code == 401
    assert elsewhere.ask("/v1/allocations").status_code == 401
    assert member.ask("/v1/session", "DELETE").status_code == 401


def test_a_process_refuses_an_ended_session_whose_token_it_remembers(guarded, people):
    person = Person(guarded())  # tokens count for five minutes without asking Keystone
    person.sign_in(password("member"))
    assert person.ask("/v1/allocations").status_code == 200
    person.ask("/v1/session", "DELETE")
    assert person.ask("/v1/allocations").status_code == 401


def test_a_session_ends_with_its_time_and_with_its_token(authtoken, deployment, keystone, people):
    times = [time.time()]

    def authenticate(app):
        checked = Keystone(app, authtoken(**FRESH))
        return SessionCookies(checked, checked.logins(), checked.secrets(), lambda: times[0])

    person = Person(deployment.client(authenticate))
    person.sign_in(password("member"))
    times[0] += LONGEST - 10
    assert person.ask("/v1/allocations").status_code == 200
    times[0] += 11
    assert person.ask("/v1/allocations").status_code == 401
    token = keystone.token("member", project="blue")
    times[0] = time.time()
    person.sign_in({"token": token})
    keystone.revoke(token)
    assert person.ask("/v1/allocations").status_code == 401


def test_services_with_another_secret_do_not_read_the_cookie(member, keystone):
    """The key comes from the secret that the service logs in with, and from nothing else."""
    environ = {
        "HTTP_COOKIE": member.cookie,
        "HTTP_X_LAAS_SESSION": member.secret,
        "HTTP_HOST": "localhost",
        "wsgi.url_scheme": "http",
    }
    read = {}
    for secret in (PASSWORD, "another"):
        seed = json.dumps({"password": secret})
        read[secret] = SessionCookies(NOTHING, Adapter(Session()), seed).content(environ)
    assert read["another"] is None
    assert read[PASSWORD] is not None


def test_no_login_crosses_the_network_in_the_clear(make, people):
    for base, client, status in (
        ("http://laas.example", "192.0.2.9", 403),
        ("http://localhost", "192.0.2.9", 403),
        ("http://laas.example", "127.0.0.1", 403),
        ("https://laas.example", "192.0.2.9", 201),
        ("http://127.0.0.1", "127.0.0.1", 201),
    ):
        answer = make().sign_in(
            password("member"),
            headers={"Origin": base},
            base_url=base,
            environ_overrides={"REMOTE_ADDR": client},
        )
        assert answer.status_code == status, (base, client)
        if status == 403:
            assert "needs TLS" in answer.json["detail"]


def test_logins_are_rate_limited_by_address(make):
    """One address is told to wait; Keystone is not asked any more, and another address is."""
    statuses = [make().sign_in({"token": "guess"}).status_code for _ in range(30)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    last = make().sign_in({"token": "guess"})
    assert int(last.headers["Retry-After"]) >= 1


def test_while_keystone_is_away_nobody_signs_in(make, keystone, people):
    keystone.stop()
    try:
        answer = make().sign_in(password("member"))
        assert (answer.status_code, answer.json["code"]) == (503, "unavailable")
    finally:
        keystone.start()
    assert make().sign_in(password("member")).status_code == 201


@pytest.fixture
def page(deployment, authtoken):
    """A service with logins on a free port, and a browser at its page."""
    local = deployment.client()
    for name, project in (("of-blue", "blue"), ("of-red", "red")):
        made = local.post("/v1/allocations", json={"name": name, "hosts": 3, "project_id": project})
        assert made.status_code == 202
    site = Site.__new__(Site)
    site.deployment = deployment
    authenticate = middleware("keystone", "0.0.0.0", authtoken(**FRESH))
    with served(site, authenticate) as url, Chromium() as browser:
        browser.open(f"{url}/view")
        yield browser


def wait_for(browser, condition):
    browser.run(
        f"new Promise((done) => {{ const look = () => {condition} ? done(true) :"
        " setTimeout(look, 20); look(); })"
    )


def sign_in_with(browser, user, project="blue", secret=PASSWORD):
    for name, text in (("username", user), ("project", project)):
        browser.run(f"document.querySelector('[name={name}]').value = '{text}'")
    browser.run("document.querySelector('#refused').textContent = ''")
    browser.type("[name=password]", secret)


def test_signing_in_and_out_in_a_browser(page, people):
    """The page shows nothing before; then what the role may see; nothing after signing out."""
    browser = page
    assert not browser.run("document.querySelector('main').checkVisibility()")
    assert browser.run("document.querySelector('#door').checkVisibility()")
    assert "main" not in browser.run("document.querySelector('#data').textContent")
    sign_in_with(browser, "member", secret="wrong")
    wait_for(browser, "document.querySelector('#refused').textContent")
    assert "Keystone refuses" in browser.text("#refused")
    sign_in_with(browser, "member")
    wait_for(browser, "document.querySelector('#summary').textContent")
    assert "of your project; all else is grey" in browser.text("#summary")
    assert "member, project blue" in browser.text("#session")
    assert browser.run("document.cookie") == "", "no script reads the cookie"
    browser.send("Page.reload")
    browser.until("Page.loadEventFired")
    wait_for(browser, "document.querySelector('#summary')?.textContent")
    browser.click("#sign-out")
    browser.until("Page.loadEventFired")
    wait_for(browser, "document.querySelector('#door')?.checkVisibility()")
    assert browser.text("#summary") == ""
    sign_in_with(browser, "boss", "ops")
    wait_for(browser, "document.querySelector('#summary').textContent")
    assert "of-red" in browser.text("#tenants")
    problems = [one for one in browser.problems() if "status of 401" not in one]
    assert problems == []


def test_a_role_that_sees_nothing_is_told_so(page, keystone, people):
    keystone.user("watcher", {people.blue: ["observer"]})
    sign_in_with(page, "watcher")
    wait_for(page, "document.querySelector('#found').textContent")
    assert "laas:fabric:get does not let you do this" in page.text("#found")
    assert page.text("#summary") == ""
