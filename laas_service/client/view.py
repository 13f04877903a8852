# SPDX-License-Identifier: Apache-2.0

"""The fabric page on this machine, with the caller's own login: ``laas view``.

A small server on loopback passes the map on, so the service needs no sessions and no browser
gets a token. A login node has many users: the page's address has a part that cannot be guessed,
a request must name this server in its Host header (a web page elsewhere may have its own name
resolve to this machine, DNS rebinding), and only the map can be asked for.
"""

import json
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from keystoneauth1.exceptions import ClientException

from laas_service import page
from laas_service.client.rest import Refused, Rest

ADDRESS = "127.0.0.1"

ASKED = ("hosts", "policy")
"""The parameters of the map that a browser may send."""


class ViewServer(ThreadingHTTPServer):
    """Serves the page of one fabric below an unguessable path.

    ``fabric`` is the path of the fabric in REST. ``port`` 0 takes a free port.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True

    def __init__(self, rest: Rest, fabric: str, port: int = 0) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.rest = rest
        self.fabric = fabric
        self.secret = secrets.token_urlsafe(32)
        self.hosts = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}

    @property
    def url(self) -> str:
        """The address for the browser; whoever knows it sees what the caller may see."""
        return f"http://{ADDRESS}:{self.server_port}/{self.secret}/"


class _Handler(BaseHTTPRequestHandler):
    """Answers GETs of the page and of the map; all else is refused without a reason."""

    server: ViewServer
    server_version = "laas-view"
    sys_version = ""

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        below = f"/{self.server.secret}/"
        if self.headers.get_all("Host") not in [[host] for host in self.server.hosts]:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"wrong Host header\n")
        elif not secrets.compare_digest(asked.path[: len(below)].encode(), below.encode()):
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")
        elif asked.path == below:
            name = self.server.fabric.rpartition("/")[2]
            html = page.live_page(name, f"{below}map").encode()
            self._answer(HTTPStatus.OK, page.CONTENT_TYPE, html)
        elif asked.path == f"{below}map":
            self._map(dict(parse_qsl(asked.query)))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")

    def _map(self, query: dict[str, str]) -> None:
        status, document = HTTPStatus.OK, {}
        try:
            asked = {name: query[name] for name in ASKED if name in query}
            document = self.server.rest.get(f"{self.server.fabric}/map", **asked)
        except (Refused, ClientException) as error:
            status, document = HTTPStatus.BAD_GATEWAY, {"detail": str(error)}
        self._answer(status, "application/json", json.dumps(document).encode())

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": page.policy(frames=True),
            "Cache-Control": "no-store",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the addresses contain the secret."""
