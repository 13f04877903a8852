# SPDX-License-Identifier: Apache-2.0

"""The server of ``laas view``: its path cannot be guessed, and it answers to its own name."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import closing
from typing import Any

import pytest

from laas_service.client.rest import Refused
from laas_service.client.view import ViewServer


class OneMap:
    def __init__(self):
        self.asked = []

    def get(self, path, **query):
        self.asked.append((path, query))
        if query.get("hosts") == "0":
            raise Refused("ask for at least 1 host")
        return {"fabric": "main"}


@pytest.fixture
def server():
    rest: Any = OneMap()
    made = ViewServer(rest, "/v1/fabrics/main")
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def get(server, path, host=None, method="GET"):
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)) as wire:
        wire.putrequest(method, path, skip_host=True)
        if host != "":
            wire.putheader("Host", host or f"127.0.0.1:{server.server_port}")
        wire.endheaders()
        answer = wire.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())


def test_the_page_and_its_map(server):
    status, text, headers = get(server, f"/{server.secret}/")
    assert status == 200
    assert f'"source":"/{server.secret}/map"' in text
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    status, text, _ = get(
        server, f"/{server.secret}/map?hosts=5&token=x", f"localhost:{server.server_port}"
    )
    assert (status, json.loads(text)) == (200, {"fabric": "main"})
    assert server.rest.asked == [("/v1/fabrics/main/map", {"hosts": "5"})]


def test_a_refusal_of_the_service_is_shown(server):
    status, text, _ = get(server, f"/{server.secret}/map?hosts=0")
    assert (status, json.loads(text)["detail"]) == (502, "ask for at least 1 host")


@pytest.mark.parametrize("path", ["/", "/map", "/x/", "/v1/fabrics", "//", "/%2e%2e/map"])
def test_without_the_secret_there_is_nothing(server, path):
    assert get(server, path)[0] == 404
    assert get(server, f"/{server.secret[:-1]}x/map")[0] == 404
    assert get(server, f"/{server.secret}/other")[0] == 404
    assert server.rest.asked == []


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "evil.example:80", ""])
def test_another_host_name_is_refused(server, host):
    """A web page whose name resolves to this machine learns nothing (DNS rebinding)."""
    assert get(server, f"/{server.secret}/map", host)[0] == 403
    assert server.rest.asked == []


def test_only_reading(server):
    assert get(server, f"/{server.secret}/map", method="POST")[0] == 501


def test_secrets_differ_and_are_long(server):
    other = ViewServer(server.rest, "/v1/fabrics/main")
    other.server_close()
    assert other.secret != server.secret
    assert len(server.secret) >= 43  # 256 bits
