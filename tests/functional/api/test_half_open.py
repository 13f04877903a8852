# SPDX-License-Identifier: Apache-2.0

"""Clients that never finish a request do not lock others out."""

from __future__ import annotations

import socket
import threading
import urllib.request
from contextlib import ExitStack, contextmanager, suppress

import pytest
from waitress import wasyncore

from laas_service.cmd.api import http_server
from tests.waiting import eventually

HALF = b"GET /healthcheck HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


@pytest.fixture
def serving(deployment):
    """Starts the HTTP server with options of [api], on a free port."""

    @contextmanager
    def serve(**options):
        deployment.conf.set_override("bind_port", 0, group="api")
        for name, value in options.items():
            deployment.conf.set_override(name, value, group="api")
        server = http_server(deployment.client().application, deployment.conf)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield server.effective_port
        finally:
            with suppress(OSError):  # the server may have closed the trigger already
                server.trigger.pull_trigger(
                    lambda: wasyncore.close_all(server._map, ignore_all=True)
                )
            thread.join(60)

    return serve


def half_open(port, text=HALF):
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    client.sendall(text)
    return client


def healthy(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=20) as answer:
        return answer.status == 200


def test_clients_with_half_a_header_do_not_lock_others_out(serving):
    """With the defaults; 100 such clients filled the server for two minutes."""
    with serving() as port, ExitStack() as clients:
        for _ in range(130):
            clients.enter_context(half_open(port))
        assert healthy(port)


@pytest.mark.parametrize("text", [HALF, b"", b"POST /v1/allocations HTTP/1.1\r\nContent-Length: 9"])
def test_a_client_that_sends_a_byte_now_and_then_is_dropped(serving, text):
    with serving(request_timeout=1) as port, half_open(port, text) as client:

        def dropped():
            try:
                if text:
                    client.sendall(b"1")
                client.settimeout(0.1)
                return not client.recv(1)
            except TimeoutError:
                return False
            except OSError:
                return True

        eventually(dropped, "the server closes the connection")


def test_a_full_server_serves_again_after_the_time_out(serving):
    with serving(connections=16, request_timeout=1) as port, ExitStack() as clients:
        for _ in range(40):
            clients.enter_context(half_open(port))
        assert healthy(port)
