# SPDX-License-Identifier: Apache-2.0

"""``laas-verify-certificate``: checks a certificate of isolation without trust in its operator.

One file, the standard library and ``cryptography``; it shares no code with the service.
"""

import argparse
import base64
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

FORM, HEADER = "laas-certificate/1", {"alg": "EdDSA", "typ": "laas-certificate+jws"}
OWN, OTHER = 1, 4  # kinds of destinations; between them switches and services
REASONS = {"own_senders": False, "nobody_sends": False, "no_other_way": True}  # whether pairs cross
NONE = 255  # no entry, or one that leaves by a port of somebody else
AHEAD, SLACK = 120, 1 << 20  # seconds between clocks; bytes between two readings of counters
Keys = dict[str, tuple[Ed25519PublicKey, bool]]  # by id: the key, and whether it is revoked
GUID, PKEY = re.compile("0x[0-9a-f]{16}"), re.compile("0x(?!0000|7f{3})[0-7][0-9a-f]{3}")
END, MAYBE = {"switch": GUID, "port": int}, (int, type(None))
HOST_PORT = {**END, "guid": GUID, "lid": int, "rail": int}
SHAPE: dict[str, Any] = {
    "form": str,
    "allocation": {"id": str, "name": str, "project": str, "hosts": int},
    "fabric": str,
    "nonce": (str, type(None)),
    "issued_at": int,
    "generation": {"wanted": int, "read": MAYBE},
    "read": {"by": str, "at": MAYBE},
    "hosts": [{"name": str, "placements": [int], "ports": [HOST_PORT]}],
    "cables": [{"lower": END, "upper": END}],
    "destinations": str,
    "switches": [{"guid": GUID, "entries": (str, type(None))}],
    "crossing": [{**END, "destinations": int, "hosts": int, "pairs": int, "why": str}],
    "keys": {"read": bool, "by_rail": [PKEY]},
    "counters": dict.fromkeys(("injected", "delivered", "leaf_up", "leaf_down"), MAYBE),
    "not_read": [str],
}


def decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def keys_in(data: bytes) -> Keys:
    """The Ed25519 keys in PEM, in a JWK or in a set of JWKs, by thumbprint (RFC 7638)."""
    if data.lstrip().startswith(b"-----BEGIN"):
        key = load_pem_public_key(data)
        raw = key.public_bytes_raw() if isinstance(key, Ed25519PublicKey) else b""
        found = [{"crv": "Ed25519", "x": encoded(raw)}]
    else:
        found = (one := json.loads(data)).get("keys", [one])
    keys: Keys = {}
    for one in found:
        name = f'{{"crv":"Ed25519","kty":"OKP","x":"{one["x"]}"}}'.encode()
        key = Ed25519PublicKey.from_public_bytes(decoded(one["x"]))
        keys[encoded(hashlib.sha256(name).digest())] = key, "revoked" in one
    return keys


def misshapen(value: Any, shape: Any, name: str) -> Iterator[str]:
    """Where a value has another form than the shape."""
    if isinstance(shape, dict) and isinstance(value, dict) and value.keys() == shape.keys():
        for field, inner in shape.items():
            yield from misshapen(value[field], inner, f"{name}.{field}")
    elif isinstance(shape, list) and isinstance(value, list):
        for number, one in enumerate(value):
            yield from misshapen(one, shape[0], f"{name}[{number}]")
    elif isinstance(shape, re.Pattern):
        if not isinstance(value, str) or not shape.fullmatch(value):
            yield f"form: {name} is not of the form {shape.pattern}"
    elif type(value) not in (shape if isinstance(shape, tuple) else (shape,)):
        yield f"form: {name} has another type, or other fields"


def opened(envelope: Any, keys: Keys) -> tuple[Any, list[str]]:
    """The statement in a JWS (RFC 7515, flattened JSON), and what is wrong with the envelope."""
    header, payload = json.loads(decoded(envelope["protected"])), decoded(envelope["payload"])
    statement = json.loads(payload)
    if {**header, "kid": ""} != {**HEADER, "kid": ""}:
        return statement, [f"envelope: it is not of the type {HEADER['typ']}, signed by EdDSA"]
    if header["kid"] not in keys:
        return statement, ["key: it is signed by a key that is not given"]
    key, revoked = keys[header["kid"]]
    wrong = ["revoked: its key is revoked"] if revoked else []
    try:
        signed = f"{envelope['protected']}.{envelope['payload']}".encode()
        key.verify(decoded(envelope["signature"]), signed)
    except InvalidSignature:
        wrong.append("signature: the statement was changed, or another key signed it")
    text = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if text.encode() != payload:  # RFC 8785, as there are no fractions and names are ASCII
        wrong.append("canonical: the statement is no canonical JSON (RFC 8785)")
    return statement, wrong


def of_context(st: Any, args: argparse.Namespace, now: float) -> Iterator[str]:
    """Violations of what the reader expects: allocation, nonce, age, generation, readings."""
    if st["form"] != FORM:
        yield f"form: it is not {FORM}"
    if args.allocation not in (None, st["allocation"]["id"]):
        yield f"allocation: it is for {st['allocation']['id']}"
    if args.nonce is not None and st["nonce"] != args.nonce:
        yield "nonce: it does not answer this request"
    if st["issued_at"] > now + AHEAD:
        yield "future: it is issued in the future"
    if st["generation"]["read"] != st["generation"]["wanted"]:
        yield "generation: the switches do not run the generation that is wanted"
    if st["read"]["by"] not in ("switches", "agent") or st["read"]["at"] is None:
        yield "read: nobody read the tables of the switches"
    elif st["read"]["at"] > st["issued_at"]:
        yield "order: the switches were read after it was issued"
    elif args.max_age is not None and now - st["read"]["at"] > args.max_age:
        yield f"age: the switches were read {now - st['read']['at']:.0f} seconds ago"
    yield from (f"not read: {what}" for what in st["not_read"])
    if not st["keys"]["read"]:
        yield "keys: the partition keys of the ports were not read"
    counted = st["counters"]
    for on_cables, of_hosts in (("leaf_up", "injected"), ("leaf_down", "delivered")):
        if (counted[on_cables] or 0) > (counted[of_hosts] or 0) + SLACK:
            yield f"counters: {on_cables} exceeds {of_hosts}: bytes of others were on its cables"


class Fabric:
    """What the statement says of hosts, cables and tables."""

    def __init__(self, st: Any) -> None:
        self.st = st
        self.ports = [(port, host) for host in st["hosts"] for port in host["ports"]]
        self.at = {(port["switch"], port["port"]): port["lid"] for port, _ in self.ports}
        pairs = [[(end["switch"], end["port"]) for end in c.values()] for c in st["cables"]]
        self.far = {near: far for a, b in pairs for near, far in ((a, b), (b, a))}
        self.ends = Counter((port["switch"], port["port"]) for port, _ in self.ports)
        self.ends.update(end for pair in pairs for end in pair)
        self.kinds = base64.b64decode(st["destinations"], validate=True)
        tables = {switch["guid"]: switch["entries"] for switch in st["switches"]}
        self.rows = {g: base64.b64decode(e, validate=True) for g, e in tables.items() if e}
        self.unread = tables.keys() - self.rows.keys()

    def wrong_parts(self) -> Iterator[str]:
        """Violations by hosts, cables and switches as such."""
        hosts, rails = self.st["hosts"], len(self.st["keys"]["by_rail"])
        yield from (f"port: {place} is given twice" for place, n in self.ends.items() if n > 1)
        yield from (f"port: {place} is none" for place in self.ends if not 0 < place[1] < NONE)
        names = Counter(("lid", port["lid"]) for port, _ in self.ports)
        names.update(("guid", port["guid"]) for port, _ in self.ports)
        names.update(("name", host["name"]) for host in hosts)
        yield from (f"host: {name} is given twice" for name, n in names.items() if n > 1)
        if not rails or any([p["rail"] for p in h["ports"]] != [*range(rails)] for h in hosts):
            yield "rail: a host has not one port on each rail"
        if sum(0 in h["placements"] for h in hosts) < max(1, self.st["allocation"]["hosts"]):
            yield "hosts: there are fewer than were asked for"
        if {guid for guid, _ in self.ends} != self.rows.keys() | self.unread:
            yield "switches: those of hosts and cables are not those with tables"
        yield from (f"table: that of {guid} was not read" for guid in self.unread)
        own = {lid for lid, kind in enumerate(self.kinds) if kind == OWN}
        if own != {*self.at.values()} or any(len(r) != len(self.kinds) for r in self.rows.values()):
            yield "destinations: they are not the addresses of its hosts and those in its tables"

    def foreign(self) -> Iterator[str]:
        """Entries by foreign ports, and entries towards others that nothing explains."""
        found: dict[tuple[str, int], Counter[int]] = {}
        for guid, row in self.rows.items():
            for lid, port in enumerate(row):
                if port != NONE and (guid, port) not in self.ends:
                    yield f"foreign port: {guid} sends {lid} by port {port}, which is not its own"
                elif port != NONE and self.kinds[lid] != OWN:
                    found.setdefault((guid, port), Counter())[self.kinds[lid]] += 1
        told = {(one["switch"], one["port"]): one for one in self.st["crossing"]}
        for place in sorted(found.keys() | told.keys()):
            count, one = found.get(place, Counter()), told.get(place, {"destinations": 0})
            if place in self.at or not count.keys() <= {2, 3, OTHER}:
                yield f"foreign address: packets of others leave by {place}"
            elif (one["destinations"], one.get("hosts")) != (count.total(), count[OTHER]):
                yield f"crossing: {count.total()} addresses of others leave by {place}, unexplained"
            elif REASONS.get(one["why"]) is not (one["pairs"] > 0):
                yield f"crossing: the reason at {place} is unknown, or contradicts the pairs"

    def lost(self, port: Any, host: Any) -> Iterator[str]:
        """The first sender whose packets do not arrive at a port of a host."""
        arrives: set[str] = set()
        for sender, other in self.ports:
            apart = not {*host["placements"]} & {*other["placements"]}
            at, passed = sender["switch"], dict[str, None]()
            while sender["rail"] == port["rail"] and not apart and at not in arrives:
                if at in passed:
                    yield f"loop: packets to {port['guid']} come back to {at}"
                    return
                passed[at] = None
                place = at, self.rows[at][port["lid"]] if at in self.rows else NONE
                if self.at.get(place) == port["lid"]:
                    break
                if place not in self.far:
                    yield f"route: at {at} packets to {port['guid']} go by {place[1]}, and are lost"
                    return
                at = self.far[place][0]
            arrives.update(passed)


def violations(envelope: Any, keys: Keys, args: argparse.Namespace, now: float) -> list[str]:
    """All that is wrong with a certificate."""
    statement, wrong = opened(envelope, keys)
    shape = [*misshapen(statement, SHAPE, "statement")]
    if any(one.startswith(("envelope", "key", "signature")) for one in wrong) or shape:
        return wrong + shape
    wrong += of_context(statement, args, now)
    fabric = Fabric(statement)
    wrong += fabric.wrong_parts()
    if not any(one.startswith("destinations") for one in wrong):
        wrong += fabric.foreign()
        wrong += (text for own in fabric.ports for text in fabric.lost(*own))
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """The command: 0 if the certificate holds, 1 with a violation on each line, 2 if unreadable."""
    parser = argparse.ArgumentParser(description="Check a certificate of isolation.")
    parser.add_argument("file", type=Path, metavar="FILE", help="the certificate")
    parser.add_argument("--key", type=Path, required=True, help="public keys: JWK set, JWK or PEM")
    parser.add_argument("--allocation", metavar="ID", help="the allocation that it has to be for")
    parser.add_argument("--max-age", type=float, metavar="SECONDS", help="since the last reading")
    parser.add_argument("--nonce", metavar="TEXT", help="the text that was sent with the request")
    args = parser.parse_args(arguments)
    try:
        envelope, keys = json.loads(args.file.read_bytes()), keys_in(args.key.read_bytes())
        wrong = violations(envelope, keys, args, time.time())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        print(f"laas-verify-certificate: unreadable: {error!r}", file=sys.stderr)
        return 2
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
