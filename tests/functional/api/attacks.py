# SPDX-License-Identifier: Apache-2.0

"""Requests of an attacker who has a token, by attempt of doc/source/reference/attacks.rst.

Every attempt yields requests as keywords of ``FlaskClient.open``. ``victim`` is the document
of an allocation of project blue. The attacker is a member of project red, unless the headers
of a request name another caller.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from laas_service.api.app import ROUTES
from laas_service.api.resource import Operation

Request = dict[str, Any]

NOBODY: dict[str, str] = {}
RED = {"X-Auth-Token": "red-token"}
ADMIN = {"X-Auth-Token": "root-token"}
SERVICE = {"X-Auth-Token": "service-token"}
FORGED = {
    "X-Identity-Status": "Confirmed",
    "X-Service-Identity-Status": "Confirmed",
    "X-Roles": "admin,service",
    "X-Role": "admin",
    "X-Service-Roles": "service",
    "X-User-Id": "root",
    "X-Project-Id": "blue",
    "X-Tenant-Id": "blue",
    "X-Domain-Id": "default",
    "X-Is-Admin-Project": "True",
    "OpenStack-System-Scope": "all",
    "X-Forwarded-For": "127.0.0.1",
    "X-Real-Ip": "127.0.0.1",
    "Forwarded": "for=127.0.0.1;host=localhost",
}
NEW = {"name": "mine", "hosts": 1}
BODIES: dict[tuple[str, str], Any] = {
    ("PATCH", "/v1/fabrics/<fabric_id>/hosts/<path:name>"): {"state": "failed"},
    ("PATCH", "/v1/fabrics/<fabric_id>/links/<link_id>"): {"state": "failed"},
    ("PATCH", "/v1/fabrics/<fabric_id>/switches/<path:switch_id>"): {"state": "drained"},
    ("PUT", "/v1/fabrics/<fabric_id>/plane"): {"l2": [0]},
    ("POST", "/v1/fabrics/<fabric_id>/make-room"): {"hosts": 1},
    ("POST", "/v1/fabrics/<fabric_id>/sleep"): {"moves": 1},
    ("POST", "/v1/fabrics/<fabric_id>/consolidate"): {"moves": 1},
    ("POST", "/v1/fabrics/<fabric_id>/evacuate"): {"hosts": ["node00"]},
    ("PUT", "/v1/fabrics/<fabric_id>/agents/<agent>"): {"condition": "starting"},
    ("POST", "/v1/allocations"): NEW,
    ("PATCH", "/v1/allocations/<allocation_id>"): {"name": "mine"},
    ("POST", "/v1/allocations/<allocation_id>/replace-hosts"): {},
}
NASTY = (
    "../../../../etc/passwd",
    "..",
    "/etc/passwd",
    "-rf",
    "$(touch /tmp/pwned)",
    "`id`",
    "a; reboot",
    "a|b&c>d<e",
    "'; DROP TABLE allocation; --",
    '" OR ""="',
    "%s%n%x",
    "{0.__class__}",
    "{{7*7}}",
    "${jndi:ldap://x}",
    "*",
    "~root",
    "\u202egnp.exe",
    "\u0130\u0131\u017f\u212a",
    "\U0001f4a3",
    "\u2028line",
    "a\u0300" * 40,
    "\ufeffbom",
    "\ufdd0\uffff",
)
"""Pieces of paths, shell, SQL, templates and Unicode; the service must take them as plain text."""
CONTROLS = "\x01\x1b\x7f\x80\x85\x9b\x9f\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"
"""Control characters of all blocks, separators, and characters that change the direction."""


def _url(route: Operation, allocation: str, host: str = "node00") -> str:
    path = route.path.replace("<fabric_id>", "main").replace("<path:name>", host)
    path = path.replace("<path:switch_id>", "leaf-0-0")
    path = path.replace("<link_id>", "leaf-0-0-0").replace("<allocation_id>", allocation)
    path = path.replace("<agent>", "sm1").replace("<generation>/<path:file>", "1/lfts")
    return path + ("?hosts=1" if path.endswith("/fit") else "")


def _of(route: Operation, allocation: str, headers: dict[str, str]) -> Request:
    body = BODIES.get((route.method, route.path))
    url = _url(route, allocation)
    return {"method": route.method, "path": url, "json": body, "headers": headers}


def _operators() -> list[Operation]:
    """The routes that no tenant may use."""
    tenants = re.compile(r"laas:(fabric:(get|map)|quota:get|allocation:.*)")
    return [route for route in ROUTES if route.rule and not tenants.fullmatch(route.rule)]


def _one() -> list[Operation]:
    return [route for route in ROUTES if "<allocation_id>" in route.path]


def _post(body: Any = None, *, headers: dict[str, str] = RED, **more: Any) -> Request:
    return {
        "method": "POST",
        "path": "/v1/allocations",
        "headers": headers,
        **({"data": body} if isinstance(body, bytes) else {"json": body}),
        **({"content_type": "application/json"} if isinstance(body, bytes) else {}),
        **more,
    }


# -- callers and projects -----------------------------------------------------------


def without_a_token(victim: Any) -> Iterator[Request]:
    for route in ROUTES:
        if route.rule:
            yield _of(route, victim["id"], NOBODY)
            yield _of(route, victim["id"], FORGED)
            yield _of(route, victim["id"], {**FORGED, "X-Auth-Token": "forged"})


def another_tenants(victim: Any) -> Iterator[Request]:
    for route in _one():
        for headers in (RED, {**FORGED, **RED}):
            yield _of(route, victim["id"], headers)
            yield _of(route, victim["id"], {**headers, "If-Match": f'"{victim["version"]}"'})


def by_force(victim: Any) -> Iterator[Request]:
    path = f"/v1/allocations/{victim['id']}?force=true"
    for headers in (RED, {**FORGED, **RED}, SERVICE):
        yield {"method": "DELETE", "path": path, "headers": headers}


def guessed_ids(victim: Any) -> Iterator[Request]:
    id = victim["id"]
    guesses = (
        id.upper(),
        f" {id}",
        f"{id}%20",
        f"{id}.",
        f"{id}%0a",
        id[:-1] + "%25",
        "_" * len(id),
        "%25",
        "*",
        "0",
        "-1",
        "None",
        "allocation-0",
        "a" * 5000,
        f"{id}%27%20OR%20%271%27=%271",
    )
    for guess in guesses:
        for route in _one():
            yield _of(route, guess, RED)


def as_parent_or_marker(victim: Any) -> Iterator[Request]:
    id = victim["id"]
    yield _post({**NEW, "parent": id})
    yield _post({**NEW, "parent": id, "dry_run": True})
    yield _post({**NEW, "parent": id, "container": True})
    for path in (f"/v1/fabrics/main/fit?hosts=1&parent={id}", f"/v1/allocations?marker={id}"):
        yield {"path": path, "headers": RED}


def another_project(victim: Any) -> Iterator[Request]:
    for headers in (RED, {**FORGED, **RED}):
        for more in ({}, {"dry_run": True}, {"wait": True}, {"container": True}):
            yield _post({**NEW, "project_id": "blue", **more}, headers=headers)
            yield _post({**NEW, "project_id": "ops", **more}, headers=headers)


def another_projects_list(victim: Any) -> Iterator[Request]:
    for query in ("project_id=blue", "project_id=", "project_id=%25", "project_id=Blue"):
        yield {"path": f"/v1/allocations?{query}", "headers": {**FORGED, **RED}}


def smuggled_project(victim: Any) -> Iterator[Request]:
    for query in ("project_id=blue", "tenant_id=blue", "all_tenants=1", "user=root"):
        yield _post(NEW, path=f"/v1/allocations?{query}")
    for field in ("tenant", "tenant_id", "project", "owner", "user_id", "id", "state", "admin"):
        yield _post({**NEW, field: "blue"})
    for query in ("project_id=red&project_id=blue", "all_tenants=1", "project=blue", "owner=blue"):
        yield {"path": f"/v1/allocations?{query}", "headers": RED}
        yield {"path": f"/v1/quota?{query}", "headers": RED}


def another_projects_quota(victim: Any) -> Iterator[Request]:
    for project in ("blue", "BLUE", "local", "blu"):
        for headers in (RED, {**FORGED, **RED}):
            yield {"path": f"/v1/quota?project_id={project}", "headers": headers}


def operators_routes(victim: Any) -> Iterator[Request]:
    for route in _operators():
        for headers in (RED, {**FORGED, **RED}):
            yield _of(route, "", headers)


def services_token(victim: Any) -> Iterator[Request]:
    for route in ROUTES:
        if route.path.startswith("/v1/allocations") or route.rule == "laas:fabric:update":
            yield _of(route, victim["id"], SERVICE)


# -- methods, paths and headers -----------------------------------------------------


def another_method(victim: Any) -> Iterator[Request]:
    path = f"/v1/allocations/{victim['id']}"
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        for method in ("DELETE", "PATCH"):
            yield {"method": "POST", "path": path, "headers": {**RED, name: method}}
    for method in ("DELETE", "PATCH"):
        yield {"method": "POST", "path": f"{path}?_method={method}", "headers": RED}
        yield {"method": "POST", "path": path, "data": {"_method": method}, "headers": RED}
    for method in ("TRACE", "CONNECT", "PROPFIND", "PUT", "delete", "DELETE\u00a0", "X" * 1000):
        yield {"method": method, "path": path, "headers": RED}


def another_way_there(victim: Any) -> Iterator[Request]:
    id = victim["id"]
    paths = (
        f"/v1/allocations/{id}/",
        f"//v1/allocations/{id}",
        f"/v1//allocations//{id}",
        f"/v1/allocations/./{id}",
        f"/v1/allocations/%2e/{id}",
        f"/v1/fabrics/../allocations/{id}",
        f"/v1/fabrics/%2e%2e/allocations/{id}",
        f"/v1/fabrics/%2e%2e%2fallocations%2f{id}",
        f"/v1%2fallocations%2f{id}",
        f"/v1\\allocations\\{id}",
        f"/v1/%5callocations/{id}",
        f"/V1/ALLOCATIONS/{id}",
        f"/v1/allocations;x=y/{id}",
        f"/v1/allocations/{id};admin=true",
        f"/v1/allocations/{id}%23",
        f"/v1/allocations/{id}%3fforce=true",
        f"/v1/allocations/x/../{id}",
        "/healthcheck/../v1/fabrics/main/hosts",
        "/v1/openapi.json/../fabrics/main/hosts",
        "/v1/openapi.json%2f..%2ffabrics%2fmain%2fhosts",
        "/v1/fabrics/main/../../../etc/passwd",
        "/v1/fabrics/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/v1/fabrics/..%c0%af..%c0%afetc/passwd",
        "/v1/fabrics/%u002e%u002e",
        "/v1/fabrics/%ff%fe",
        "/v1/fabrics/main%0d%0aX-Roles:%20admin",
        "/static/../laas.conf",
        "/.git/config",
        "/etc/passwd",
        "/v1/allocations/" + "a/" * 500,
    )
    for path in paths:
        yield {"path": path, "headers": RED}


def a_nul(victim: Any) -> Iterator[Request]:
    id = victim["id"]
    for path in (f"/v1/allocations/{id}%00", "/v1/fabrics/main%00", "/v1/fabrics/%00/fit?hosts=1"):
        yield {"path": path, "headers": RED}
    for query in ("marker=%00", "fabric=main%00", "project_id=red%00", "%00=1", "limit=1%00"):
        yield {"path": f"/v1/allocations?{query}", "headers": RED}
    for field in ("name", "fabric", "policy", "project_id", "parent"):
        yield _post({**NEW, field: "x\0y"})
        yield _post(b'{"name": "mine", "hosts": 1, "%s": "\0"}' % field.encode())
    yield _post({**NEW, "x\0y": 1})
    yield _post({**NEW, "constraints": {"traits": ["x\0"]}})
    yield _post({**NEW, "constraints": {"avoid_hosts": ["node00\0"]}}, headers=ADMIN)
    yield {"path": f"/v1/allocations/{id}", "method": "PATCH", "json": {"name": "\0"}}
    yield {
        "path": "/v1/fabrics/main/hosts/node00",
        "method": "PATCH",
        "json": {"traits": ["A\0"]},
        "headers": ADMIN,
    }


def forged_host(victim: Any) -> Iterator[Request]:
    path = f"/v1/allocations/{victim['id']}"
    for host in (
        "evil.example",
        "evil.example:99999",
        "a b",
        "evil/../x",
        "[::1",
        "\u00e9",
        "a" * 9000,
    ):
        yield {"path": path, "headers": {**RED, "Host": host}}
    for name in (
        "X-Forwarded-Host",
        "X-Host",
        "X-Original-Url",
        "X-Rewrite-Url",
        "X-Forwarded-Prefix",
    ):
        yield {"path": path, "headers": {**RED, name: "evil.example"}}


def odd_headers(victim: Any) -> Iterator[Request]:
    path = f"/v1/allocations/{victim['id']}"
    for tag in ("*", '"', '"-1"', '"1" OR 1=1', 'W/"1"', "\u00ff", '"' + "9" * 5000 + '"'):
        for method, body in (("DELETE", None), ("PATCH", {"name": "mine"})):
            yield {
                "method": method,
                "path": path,
                "json": body,
                "headers": {**RED, "If-Match": tag},
            }
    for name in ("X-Openstack-Request-Id", "X-Request-Id", "Cookie", "Accept", "Range", "Expect"):
        yield {"path": path, "headers": {**RED, name: "req-{{7*7}}../../evil"}}


# -- bodies and values --------------------------------------------------------------


class Endless(io.RawIOBase):
    """An endless body that counts the bytes read; it ends after 1 MiB to keep tests bounded."""

    def __init__(self) -> None:
        self.given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.given > 2**20:
            return 0
        buffer[:] = b"x" * len(buffer)
        self.given += len(buffer)
        return len(buffer)


def _sized(length: int | None, stream: Any) -> Request:
    """A request with a declared length, or a chunked one without (the server knows its end)."""
    said = {} if length is None else {"CONTENT_LENGTH": str(length)}
    overrides = {"wsgi.input": stream, "wsgi.input_terminated": True, **said}
    return _post(environ_overrides=overrides, content_type="application/json")


def too_long(victim: Any) -> Iterator[Request]:
    yield _post({**NEW, "name": "x" * 70_000})
    yield _post(b" " * 70_000 + b'{"name": "mine", "hosts": 1}')
    yield _post({**NEW, "constraints": {"avoid_hosts": ["x" * 255] * 300}})
    yield _post({**NEW, **{f"field{number}": number for number in range(9_000)}})
    yield _sized(10**12, Endless())
    yield _sized(None, Endless())
    yield _sized(None, io.BytesIO(b'{"name": "mine", "hosts": 1}' + b" " * 70_000))
    for method, path in (
        ("PATCH", f"/v1/allocations/{victim['id']}"),
        ("PUT", "/v1/fabrics/main/plane"),
    ):
        yield {
            "method": method,
            "path": path,
            "data": b"[" * 70_000,
            "content_type": "application/json",
            "headers": ADMIN,
        }


def too_many(victim: Any) -> Iterator[Request]:
    many = "&".join(f"a{number}=1" for number in range(5_000))
    for path in (f"/v1/allocations?{many}", f"/v1/allocations?limit={'9' * 5_000}&x=1"):
        yield {"path": path, "headers": RED}
    yield _post({**NEW, **{f"f{number}": 0 for number in range(4_000)}})
    yield _post({**NEW, "constraints": {"traits": ["HW_A"] * 4_097}})
    yield _post({**NEW, "constraints": {"avoid_pods": [0] * 4_097}}, headers=ADMIN)


def too_deep(victim: Any) -> Iterator[Request]:
    for depth in (150, 1_000, 30_000):
        yield _post(b"[" * depth + b"]" * depth)
        yield _post(b'{"name": "mine", "hosts": ' + b"[" * depth + b"]" * depth + b"}")
        half = depth // 5
        yield _post(
            b'{"name": "mine", "hosts": 1, "x": ' + b'{"a":' * half + b"1" + b"}" * half + b"}"
        )
        yield _post(b'{"name": "mine", "hosts": 1, "constraints": {"traits": ' + b"[" * depth)


def another_type(victim: Any) -> Iterator[Request]:
    good = b'{"name": "mine", "hosts": 1}'
    kinds = (
        "text/plain",
        "text/json",
        "application/xml",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/x-ndjson",
        "application/jsonp",
        "application/json, text/plain",
        "application/octet-stream",
        "",
    )
    for kind in kinds:
        yield _post(good, content_type=kind)


def another_coding(victim: Any) -> Iterator[Request]:
    text = '{"name": "mine", "hosts": 1}'
    for coding in ("utf-16", "utf-32", "utf-7"):
        kind = f"application/json; charset={coding}"
        yield _post(text.encode(coding) if coding != "utf-7" else b"+AHs-", content_type=kind)
    yield _post(b"\x1f\x8b\x08\x00" + b"\0" * 20, headers={**RED, "Content-Encoding": "gzip"})
    yield _post(b"\xef\xbb\xbf" + text.encode())
    yield _post(b'{"name": "\xc0\xaf", "hosts": 1}')
    yield _post(b'{"name": "\\ud800", "hosts": 1}')
    yield _post(b'[{"op": "replace"}]', content_type="application/json-patch+json")


def keys_twice(victim: Any) -> Iterator[Request]:
    yield _post(b'{"name": "mine", "name": "mine", "hosts": 1}')
    yield _post(b'{"name": "mine", "hosts": 1, "hosts": 32}')
    yield _post(b'{"name": "mine", "hosts": 1, "project_id": "red", "project_id": "red"}')
    yield _post(b'{"name": "mine", "hosts": 1, "n\\u0061me": "other"}')
    yield _post(b'{"name": "mine", "hosts": 1, "constraints": {"spread": 1, "spread": 2}}')
    yield {
        "method": "PATCH",
        "path": "/v1/fabrics/main/links/leaf-0-0-0",
        "data": b'{"state": "up", "state": "failed"}',
        "content_type": "application/json",
        "headers": ADMIN,
    }


def no_numbers(victim: Any) -> Iterator[Request]:
    texts = (
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"-1e999",
        b"0",
        b"-1",
        b"1.5",
        b"1e0",
        b"2147483648",
        b"18446744073709551616",
        b"9" * 400,
        b"9" * 5_000,
        b"0x10",
        b"1_000",
        b'"1"',
        b"true",
        b"[1]",
    )
    for text in texts:
        yield _post(b'{"name": "mine", "hosts": ' + text + b"}")
    for text in (*texts[:5], b"0.0", b"-0.0", b"9" * 400, b'"1"', b"true"):
        yield _post(b'{"name": "mine", "hosts": 1, "duration": ' + text + b"}")
        yield _post(
            b'{"name": "mine", "hosts": 1, "constraints": {"max_host_cost": -' + text + b"}}"
        )
    for number in ("nan", "inf", "-1", "0", "1.5", "0x1", "\u0661", "9" * 400, "9" * 5_000, "1e3"):
        yield {"path": f"/v1/fabrics/main/fit?hosts={quote(number)}", "headers": RED}


def large_numbers(victim: Any) -> Iterator[Request]:
    """Numbers of the right type that name no existing pod, switch or link."""
    for number in (10**4, 10**9, 2**31, 2**63, 2**64, 10**400):
        pods = {**NEW, "constraints": {"avoid_pods": [number]}}
        yield _post(pods, headers=ADMIN)
        plane = {"l2": [number], "spines": [number]}
        path = "/v1/fabrics/main/plane"
        yield {"method": "PUT", "path": path, "json": plane, "headers": ADMIN}
        for kind in ("leaf", "spine"):
            path = f"/v1/fabrics/main/links/{kind}-0-0-{number}"
            yield {"method": "PATCH", "path": path, "json": {"state": "failed"}, "headers": ADMIN}
    path = f"/v1/fabrics/main/links/leaf-0-0-{'9' * 5_000}"
    yield {"method": "PATCH", "path": path, "json": {"state": "failed"}, "headers": ADMIN}


def beyond_bounds(victim: Any) -> Iterator[Request]:
    """Numbers, lists and amounts that would cost much, or that no arithmetic can take."""
    for slots in (65_537, 10_000_000, 2**31 - 1, 10**30):
        new = {"name": "mine", "class": "shared", "slots": slots, "bandwidth": 1.0}
        yield _post(new)
        yield _post({**new, "dry_run": True})
        for what in ("fit", "map"):
            yield {"path": f"/v1/fabrics/main/{what}?slots={slots}&bandwidth=1"}
    one = {"name": "mine", "class": "shared", "slots": 1, "bandwidth": 1.0}
    for amount in (0, 1e-300, 1e-7, 1e7, 1e300):
        yield _post({**one, "bandwidth": amount})
        yield _post({**one, "bandwidth": [amount]})
        yield {"path": f"/v1/fabrics/main/fit?slots=1&bandwidth={amount}"}
    for deviation in (1e5, 1e300):
        yield _post({**one, "deviation": deviation})
    for risk in (0, 1e-300, 1e-17, 0.6):
        yield _post({**one, "risk": risk})
        yield {"path": f"/v1/fabrics/main/fit?slots=1&bandwidth=1&risks={risk}"}
    yield {"path": "/v1/fabrics/main/fit?slots=1&bandwidth=1&risks=" + ",".join(["0.1"] * 9)}
    yield _post({**one, "slots": 4097, "bandwidth": [1.0] * 4097})
    for hosts in (10**7, 2**31):
        yield _post({**NEW, "hosts": hosts})
        for what in ("fit", "map"):
            yield {"path": f"/v1/fabrics/main/{what}?hosts={hosts}"}
    yield _post({**NEW, "constraints": {"spread": 10**6}})
    for duration in (1e-300, 1e300):
        yield _post({**NEW, "duration": duration})
    yield {"path": f"/v1/allocations?limit={10**12}"}
    yield {"path": f"/v1/allocations?marker={'x' * 5_000}"}
    yield _post(NEW, path="/v1/allocations?wait=1e300")


def nasty_names(victim: Any) -> Iterator[Request]:
    """Put each text in every name except that of a new allocation, which may be any text."""
    for text in NASTY:
        for field in ("fabric", "policy", "parent"):
            yield _post({**NEW, field: text})
        yield _post({**NEW, "constraints": {"traits": [text]}})
        yield _post({**NEW, "constraints": {"avoid_hosts": [text]}}, headers=ADMIN)
        place = quote(text, safe="")
        for path in (
            f"/v1/fabrics/{place}",
            f"/v1/fabrics/{place}/routing",
            f"/v1/fabrics/{place}/idle",
        ):
            yield {"path": path, "headers": ADMIN}
        for part, body in (("hosts", {"state": "failed"}), ("links", {"state": "failed"})):
            path = f"/v1/fabrics/main/{part}/{place}"
            yield {"method": "PATCH", "path": path, "json": body, "headers": ADMIN}
        path, traits = "/v1/fabrics/main/hosts/node00", {"traits": [text]}
        yield {"method": "PATCH", "path": path, "json": traits, "headers": ADMIN}
        for query in (f"marker={place}", f"state={place}", f"{place}=1"):
            yield {"path": f"/v1/allocations?{query}", "headers": RED}


def control_characters(victim: Any) -> Iterator[Request]:
    path = f"/v1/allocations/{victim['id']}"
    for control in CONTROLS:
        name = f"blue{control}x"
        yield _post({**NEW, "name": name})
        yield {"method": "PATCH", "path": path, "json": {"name": name}}
        for field in ("fabric", "policy", "parent"):
            yield _post({**NEW, field: name})
        yield _post({**NEW, "constraints": {"avoid_hosts": [name]}}, headers=ADMIN)


def nasty_agents(victim: Any) -> Iterator[Request]:
    """Requests with a service's token, which may report and fetch, for files it must not reach."""
    found = {"condition": "starting"}
    for text in NASTY:
        place = quote(text, safe="")
        path = f"/v1/fabrics/main/agents/{place}"
        yield {"method": "PUT", "path": path, "json": found, "headers": SERVICE}
        for path in (f"{place}/lfts", f"2/{place}", f"2/../{place}", f"2/lfts/{place}"):
            yield {"path": f"/v1/fabrics/main/file-set/{path}", "headers": SERVICE}


def wrong_reports(victim: Any) -> Iterator[Request]:
    for body in (
        b'{"condition": "applied", "condition": "dead"}',
        b'{"condition": "applied", "generation": 1e0}',
        b'{"condition": "applied", "generation": ' + b"9" * 5_000 + b"}",
        b'{"condition": "applied", "generation": true}',
        b'{"condition": "applied", "generation": -1}',
        b'{"condition": "dead", "generation": 1}',
        b'{"condition": "dead", "detail": "\\u0000"}',
        b'{"condition": "dead", "detail": "\\ud800"}',
        b'{"condition": "dead", "detail": "' + b"x" * 5_000 + b'"}',
        b'{"condition": "dead", "role": "active"}',
        b'{"condition": "dead", "seen_at": "2999-01-01"}',
        b"[" * 30_000,
        b"null",
        b"",
    ):
        yield {
            "method": "PUT",
            "path": "/v1/fabrics/main/agents/sm1",
            "data": body,
            "content_type": "application/json",
            "headers": SERVICE,
        }


def odd_ranges(victim: Any) -> Iterator[Request]:
    for ranges in (
        "bytes=0-0,2-2",
        "bytes=" + ",".join(f"{start}-{start}" for start in range(0, 2_000, 2)),
        "bytes=5-4",
        "bytes=-0",
        "bytes=--5",
        "bytes=999999999999-",
        "bytes=" + "9" * 5_000 + "-",
        "bytes=a-b",
        "bytes=\u0661-",
        "bytes=0x0-0x5",
    ):
        path = "/v1/fabrics/main/file-set/2/lfts"
        yield {"path": path, "headers": {**SERVICE, "Range": ranges}}


ATTEMPTS: dict[str, Callable[[Any], Iterator[Request]]] = {
    "No token, a forged one, or headers that only Keystone's middleware sets": without_a_token,
    "Every route on another project's allocation, with forged headers too": another_tenants,
    "A release by force": by_force,
    "Ids guessed: other case, blanks, wildcards, SQL": guessed_ids,
    "Another project's allocation as parent, or as marker of a list": as_parent_or_marker,
    "Another project in the body": another_project,
    "Another project in the query of a list: the list is empty": another_projects_list,
    "Another project's quota": another_projects_quota,
    "Another project in fields and parameters that do not exist": smuggled_project,
    "Every operator's route, with forged headers too": operators_routes,
    "Tenants' and operators' routes with the token of a service": services_token,
    "Another method in a header, in the query, in a form; unknown methods": another_method,
    "Other ways to a path: ``..``, ``%2e%2e``, ``//``, ``;``, ``\\``": another_way_there,
    "A NUL in path, query or body": a_nul,
    "Another ``Host``, ``X-Forwarded-Host``, ``X-Original-Url``": forged_host,
    "Odd ``If-Match``, request ids, ranges": odd_headers,
    "Bodies too long, without end, or in chunks without end": too_long,
    "Too many fields, parameters, traits, hosts to avoid": too_many,
    "JSON nested up to 30,000 deep": too_deep,
    "A body of another type, or of none": another_type,
    "Other character sets, compressed bodies, broken UTF-8": another_coding,
    "A key given twice": keys_twice,
    "NaN, infinity, fractions, signs, numbers of 5,000 digits": no_numbers,
    "Numbers of pods, links and switches that are far too large": large_numbers,
    "Slots, hosts, amounts, risks and lists beyond their bounds": beyond_bounds,
    "Paths, shell, SQL, templates and odd Unicode in every name": nasty_names,
    "Control characters and bidirectional overrides in every name": control_characters,
    "The same in the names of agents, and of the files that agents fetch": nasty_agents,
    "Reports of an agent with wrong numbers and texts, or with more than that": wrong_reports,
    "Many ranges of a file at once, and ranges that are none": odd_ranges,
}
"""Attempts by their text in the documented table."""
