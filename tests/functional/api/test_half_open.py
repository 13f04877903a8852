# SPDX-License-Identifier: Apache-2.0

"""Clients that never finish a request, or never read an answer, do not lock others out."""

from __future__ import annotations

import re
import socket
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager, suppress

import pytest
from waitress import wasyncore

from laas_service.cmd.http_server import SEND_BUFFER, http_server
from tests.slow_readers import PATH, SlowReader
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
            yield int(server.effective_port)
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


def answered(port, route):
    """How often the service answered requests of the route, by its own metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    counts = re.findall(
        rf'^laas_http_requests_total{{.*route="{re.escape(route)}".*}} (\S+)$', text, re.M
    )
    return sum(map(float, counts))


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


FILE = "/v1/fabrics/main/file-set/1/lfts"
LARGE = {
    PATH: PATH,
    "/v1/fabrics/main/map": "/v1/fabrics/<fabric_id>/map",
    FILE: "/v1/fabrics/<fabric_id>/file-set/<generation>/<path:file>",
}
"""Paths with large answers, and their routes."""


@pytest.fixture
def files(deployment):
    """The set of files that agents fetch."""
    answer = deployment.client().get("/v1/fabrics/main/file-set")
    assert answer.json["manifest"]["generation"] == 1


@pytest.mark.parametrize("path", LARGE)
def test_clients_that_read_no_answer_take_no_thread_from_others(serving, files, path):
    """Sixteen of them held all threads for as long as they stayed."""
    pipelined = 2000
    with serving(threads=2, request_timeout=600) as port, ExitStack() as clients:
        readers = [clients.enter_context(SlowReader(port, path, pipelined)) for _ in range(16)]
        seen = [0.0]

        def stuck():
            for reader in readers:
                reader.push()
            seen.append(answered(port, LARGE[path]))
            return 0 < seen[-1] == seen[-2]

        eventually(stuck, "no answer is made any more", pause=1)
        assert healthy(port)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            made = seen[-1] * len(answer.read())
        assert made < 16 * 4 * SEND_BUFFER, "requests are taken although answers are unsent"
        assert not any(reader.ended() for reader in readers)


@pytest.mark.parametrize("path", LARGE)
def test_a_client_that_reads_no_answer_is_dropped(serving, files, path):
    """Although it goes on to send."""
    with serving(request_timeout=1) as port, SlowReader(port, path, 2000) as reader:

        def dropped():
            reader.push()
            return reader.ended()

        eventually(dropped, "the server ends the connection")


def test_a_client_that_reads_slowly_gets_every_answer(serving):
    """For longer than the time-out it takes less than the system holds for it."""
    pipelined = 20
    with serving(threads=2, request_timeout=4) as port, SlowReader(port, PATH, pipelined) as reader:
        same = urllib.request.Request(
            f"http://127.0.0.1:{port}{PATH}", headers={"Host": "localhost"}
        )
        with urllib.request.urlopen(same, timeout=60) as answer:
            body = answer.read()
        read = bytearray()
        slow_until = time.monotonic() + 12
        while time.monotonic() < slow_until:
            read.extend(reader.read())
            time.sleep(0.2)  # a slow client, for three times the time-out

        def complete():
            read.extend(reader.read(2**20))
            return read.count(body) == pipelined

        eventually(complete, "all answers arrive", pause=0.01)
        assert read.count(b"HTTP/1.1 200 OK") == pipelined
