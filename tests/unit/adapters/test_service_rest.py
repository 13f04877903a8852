# SPDX-License-Identifier: Apache-2.0

"""An agent sends its token by https, or by http to its own machine."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import pytest
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter

from laas_service.adapters import service_rest
from laas_service.domain.errors import InvalidInput, Unavailable
from laas_service.messages import AgentReport, Condition, Master, Running, Span
from tests.options import options_from
from tests.shared import REPO

ELSEWHERE = ["http://192.0.2.1:8780", "HTTP://laas.internal:8780", "http://127.0.0.1@laas.internal"]
HERE = ["http://127.0.0.1:8780", "http://localhost:8780/laas", "http://[::1]:8780"]

SUBJECT = {"X-Subject-Token": "token"}
TOKEN = {
    "token": {
        "methods": ["password"],
        "issued_at": "2026-01-01T00:00:00.000000Z",
        "expires_at": "2999-01-01T00:00:00.000000Z",
        "user": {"id": "u", "name": "agent", "domain": {"id": "d", "name": "D"}},
        "project": {"id": "service", "name": "service", "domain": {"id": "d", "name": "D"}},
        "roles": [{"id": "r", "name": "service"}],
    }
}


def configured(**values):
    conf = options_from()
    for name, value in values.items():
        conf.set_override(name, value, group="laas")
    return conf


@contextmanager
def serving(answer):
    """A server on this machine; ``answer(method, path, url)`` is status, document, headers."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, document, headers = answer(self.command, self.path, url)
            body = json.dumps(document).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = _answer

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def keystone(endpoint):
    """A Keystone whose catalogue has the service at ``endpoint``."""

    def answer(method, path, url):
        if method == "POST":
            return 201, TOKEN | {"token": TOKEN["token"] | {"catalog": catalogue}}, SUBJECT
        version = {
            "id": "v3.14",
            "status": "stable",
            "links": [{"rel": "self", "href": f"{url}/v3"}],
        }
        return 200, {"version": version}, {}

    place = {"interface": "internal", "region": "RegionOne", "url": endpoint, "id": "e"}
    catalogue = [{"type": "isolated-network", "id": "s", "name": "laas", "endpoints": [place]}]
    with serving(answer) as url:
        yield f"{url}/v3"


def login(auth_url):
    conf = configured(auth_type="v3password")
    conf.register_opts(loading.get_auth_plugin_conf_options("v3password"), "laas")
    values = {"auth_url": auth_url, "username": "agent", "password": "secret"}
    for name, value in {**values, "user_domain_id": "d", "project_id": "service"}.items():
        conf.set_override(name, value, group="laas")
    return conf


@pytest.mark.parametrize("url", ELSEWHERE)
def test_http_to_another_machine_is_refused_at_start(url):
    with pytest.raises(InvalidInput) as refused:
        service_rest.connect(configured(endpoint_override=url))
    assert str(refused.value).startswith(
        f"[laas] endpoint_override: {url!r} is not valid; use https"
    )


@pytest.mark.parametrize("url", [*HERE, "https://laas.internal:8780", "HTTPS://192.0.2.1/laas"])
def test_https_and_loopback_are_taken(url):
    assert service_rest.connect(configured(endpoint_override=url)).get_endpoint() == url


@pytest.mark.parametrize(
    "url", ["ftp://laas.internal", "laas.internal:8780", "http://[::1", "http:"]
)
def test_an_address_of_another_kind_is_refused(url):
    with pytest.raises(InvalidInput, match=r"\[laas\] endpoint_override"):
        service_rest.connect(configured(endpoint_override=url))


@pytest.mark.parametrize("url", ELSEWHERE)
def test_keystone_by_http_on_another_machine_is_refused_at_start(url):
    with pytest.raises(InvalidInput, match=r"^\[laas\] auth_url: .* use https"):
        service_rest.connect(login(url))


@pytest.mark.parametrize("url", ELSEWHERE)
def test_an_option_allows_http_loudly(url, caplog):
    for conf in (configured(endpoint_override=url), login(url)):
        conf.set_override("agent_plain_http", True, group="opensm")
        with suppress(Unavailable):
            service_rest.connect(conf)
        assert "[opensm] agent_plain_http is on" in caplog.text
        assert caplog.records[0].levelname == "WARNING"
        caplog.clear()


def test_documented_addresses_are_encrypted():
    """Of the page on Keystone, the samples, and all other pages of the installation."""
    pages = [*(REPO / "doc" / "source" / "install").glob("*.rst"), *(REPO / "etc").rglob("*.conf")]
    text = "\n".join(page.read_text() for page in pages)
    addresses = re.findall(r"(?:auth_url|auth_uri|endpoint_override) = (\S+)", text)
    addresses += re.findall(r"endpoint create .* (\S+)$", text, re.M)
    assert len(addresses) > 5
    for address in addresses:
        service_rest.connect(configured(endpoint_override=address))


def test_the_interface_of_the_agent_is_documented_with_https():
    conf = configured()
    page = (REPO / "doc" / "source" / "install" / "keystone.rst").read_text()
    documented = dict(re.findall(r"isolated-network (\w+) (\S+)$", page, re.M))
    assert documented[conf.laas.valid_interfaces[0]].startswith("https://")


@pytest.mark.parametrize("url", ELSEWHERE)
def test_http_in_the_catalogue_is_refused_at_start(url):
    with keystone(url) as auth_url, pytest.raises(InvalidInput) as refused:
        service_rest.connect(login(auth_url))
    said = str(refused.value)
    assert said.startswith("[laas] valid_interfaces (the endpoint in Keystone's catalogue)")
    assert repr(url) in said
    assert "set [laas] endpoint_override" in said


def test_https_in_the_catalogue_is_taken():
    with keystone("https://laas.internal:8780") as auth_url:
        adapter = service_rest.connect(login(auth_url))
        assert adapter.get_endpoint() == "https://laas.internal:8780"


def test_while_keystone_is_away_the_agent_starts_and_the_catalogue_is_checked_later():
    with keystone("https://laas.internal:8780") as auth_url:
        pass
    service = service_rest.ServiceRest(service_rest.connect(login(auth_url)), "agent", "main")
    with pytest.raises(Unavailable):
        service.described()


def test_a_redirection_to_http_is_not_followed():
    def answer(method, path, url):
        return 307, {}, {"Location": "http://laas.internal:8780/v1/fabrics"}

    with serving(answer) as url:
        service = service_rest.ServiceRest(
            service_rest.connect(configured(endpoint_override=url)), "agent"
        )
        with pytest.raises(InvalidInput, match=r"'http://laas\.internal:8780/v1/fabrics'"):
            _ = service.fabric


SPENT, RUNNING, STAMPS = {"spent"}, {"engine", "master"}, {"stamp", "published_stamp"}


@pytest.mark.parametrize(
    ("refused", "sent"),
    [(SPENT, [5, 4]), (SPENT | RUNNING, [5, 4, 2]), (SPENT | RUNNING | STAMPS, [5, 4, 2, 0])],
    ids=["release with what runs", "release with stamps", "release without stamps"],
)
def test_a_service_of_an_earlier_release_gets_a_report_that_it_knows(refused, sent):
    bodies = []

    class Old:
        """Refuses fields that it does not know, as releases before the stamps do."""

        def request(self, path, method, **options):
            bodies.append(options["json"])
            known = not options["json"].keys() & refused
            orders = {"role": "active", "active": "a", "wanted": 7, "lease_seconds": 15}
            return Reply(200, orders) if known else Reply(400, {"detail": "no such field"})

    class Reply:
        def __init__(self, status_code, document):
            self.status_code, self.document = status_code, document

        def json(self):
            return self.document

    running = Running("file", Master(0x1B, 7, 9))
    stamp = "1" * 16
    seen = AgentReport(
        Condition.APPLIED, None, 7, 7, stamp=stamp, published_stamp=stamp, running=running
    )
    seen = replace(seen, spent={Span.FETCH: 1.2345})
    orders = service_rest.ServiceRest(cast("Adapter", Old()), "a", "f").report(seen)
    assert (orders.wanted, orders.stamp) == (7, "")
    assert [len((SPENT | RUNNING | STAMPS) & body.keys()) for body in bodies] == sent
    assert bodies[0]["spent"] == {"fetch": 1.234}
    assert bodies[0]["master"] == {"guid": "0x000000000000001b", "lid": 7, "priority": 9}
