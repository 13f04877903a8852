# SPDX-License-Identifier: Apache-2.0

"""An HTTP stand-in for the QoS policies and ports of Neutron."""

from __future__ import annotations

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit


class Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Network:
    """Ports by id, and policies by id."""

    def __init__(self) -> None:
        self.ports: dict[str, dict[str, Any]] = {}
        self.policies: dict[str, dict[str, Any]] = {}
        self.failing: int | None = None
        self.page: int | None = None  # items that a list has at most

    def port(self, server: str) -> str:
        id = str(uuid.uuid4())
        self.ports[id] = {"id": id, "device_id": server, "qos_policy_id": None}
        return id

    def route(self, method, path, query, body):
        if self.failing:
            raise Refusal(self.failing, "injected")
        match method, path:
            case "GET", ["qos", "policies"]:
                return self._page("policies", path, list(self.policies.values()), query)
            case "POST", ["qos", "policies"]:
                id = str(uuid.uuid4())
                self.policies[id] = {**body["policy"], "id": id, "rules": []}
                return {"policy": self.policies[id]}
            case "DELETE", ["qos", "policies", id]:
                if any(port["qos_policy_id"] == id for port in self.ports.values()):
                    raise Refusal(409, f"QoS Policy {id} is used by port")
                del self._policy(id)["rules"][:]
                del self.policies[id]
                return None
            case "POST", ["qos", "policies", id, "bandwidth_limit_rules"]:
                rule = {"type": "bandwidth_limit", "id": str(uuid.uuid4())}
                rules = self._policy(id)["rules"]
                if any(r["direction"] == "egress" for r in rules):
                    raise Refusal(409, "Rule conflicts with another rule")
                rules.append({**rule, **body["bandwidth_limit_rule"]})
                return {"bandwidth_limit_rule": rules[-1]}
            case "PUT", ["qos", "policies", id, "bandwidth_limit_rules", number]:
                (rule,) = [r for r in self._policy(id)["rules"] if r["id"] == number]
                rule.update(body["bandwidth_limit_rule"])
                return {"bandwidth_limit_rule": rule}
            case "GET", ["ports"]:
                found = list(self.ports.values())
                for key in {key for key, _ in query} - {"fields", "marker"}:
                    if key == "qos_policy_id":
                        raise Refusal(400, f"['{key}'] is invalid attribute for filtering")
                    values = {value for name, value in query if name == key}
                    found = [port for port in found if port[key] in values]
                return self._page("ports", path, found, query)
            case "PUT", ["ports", id]:
                if id not in self.ports:
                    raise Refusal(404, f"Port {id} could not be found.")
                self.ports[id].update(body["port"])
                return {"port": self.ports[id]}
        raise Refusal(404, f"{method} {path}")

    def _page(self, key, path, found, query):
        """A part of a list, and the address of the next one, as Neutron has it."""
        marker = dict(query).get("marker")
        ids = [item["id"] for item in found]
        shown = found[ids.index(marker) + 1 if marker else 0 :][: self.page]
        if not shown or shown[-1] is found[-1]:
            return {key: shown}
        more = urlencode(
            [*((k, v) for k, v in query if k != "marker"), ("marker", shown[-1]["id"])]
        )
        href = f"http://elsewhere.example.org/v2.0/{'/'.join(path)}?{more}"
        return {key: shown, f"{key}_links": [{"rel": "next", "href": href}]}

    def _policy(self, id):
        if id not in self.policies:
            raise Refusal(404, f"QoS policy {id} could not be found.")
        return self.policies[id]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, *args):
        pass

    def _serve(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        url = urlsplit(self.path)
        try:
            path = url.path.strip("/").split("/")[1:]
            found = self.server.network.route(self.command, path, parse_qsl(url.query), body)
            self._answer(200 if found is not None else 204, found)
        except Refusal as refusal:
            error = {"NeutronError": {"message": str(refusal), "type": "Error", "detail": ""}}
            self._answer(refusal.status, error)

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def _answer(self, status, found):
        data = b"" if found is None else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(ThreadingHTTPServer):
    """``with Server() as server``: serves ``server.network`` at ``server.url``."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        self.network = Network()
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.shutdown()
        self.server_close()
