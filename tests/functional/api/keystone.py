# SPDX-License-Identifier: Apache-2.0

"""A stand-in for Keystone that knows a few tokens; the real keystonemiddleware queries it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler


def token(project, roles, url):
    now = datetime.now(UTC)
    return {
        "token": {
            "methods": ["password"],
            "issued_at": now.isoformat(),
            "expires_at": (now + timedelta(hours=1)).isoformat(),
            "user": {"id": "u1", "name": "u1", "domain": {"id": "default", "name": "Default"}},
            "project": {"id": project, "name": project, "domain": {"id": "d", "name": "D"}},
            "roles": [{"id": role, "name": role} for role in roles],
            "catalog": [
                {
                    "type": "identity",
                    "id": "identity",
                    "name": "keystone",
                    "endpoints": [
                        {"id": kind, "interface": kind, "region_id": "R", "region": "R", "url": url}
                        for kind in ("admin", "internal", "public")
                    ],
                }
            ],
        }
    }


class Keystone(BaseHTTPRequestHandler):
    tokens = {
        "blue-token": ("blue", ["member", "reader"]),
        "red-token": ("red", ["member", "reader"]),
        "root-token": ("ops", ["admin"]),
        "service-token": ("service", ["service"]),
    }

    def do_GET(self):
        if self.path.startswith("/v3/auth/tokens"):
            known = self.token(self.headers["X-Subject-Token"])
            self.send(200 if known else 404, known or {"error": {"code": 404}})
        else:
            root = f"http://{self.headers['Host']}/v3/"
            version = {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": root}]}
            versions = {"versions": {"values": [version]}}
            self.send(200, {"version": version} if self.path.startswith("/v3") else versions)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send(201, self.token("service-token"), {"X-Subject-Token": "service-token"})

    def token(self, id):
        url = f"http://{self.headers['Host']}/v3"
        return token(*self.tokens[id], url) if id in self.tokens else None

    def send(self, status, document, headers=None):
        body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass
