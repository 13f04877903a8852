# SPDX-License-Identifier: Apache-2.0

"""Certificates of isolation through REST, and the verifier, which finds each seeded violation."""

from __future__ import annotations

import base64
import copy
import json
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import laas_verify_certificate as verifier
from laas_service.adapters.certificate_keys import CertificateKeys
from laas_service.adapters.db.leases import SqlLeases
from laas_service.messages import Applied, ConfirmedBy, Master, Running

READ = Running("file", Master(0x1B, 7, 9))
"""What routes the fabric where the keys of all ports were read."""


def confirm(deployment, *, by=ConfirmedBy.SWITCHES, running=READ, **more):
    """Record that the switches were read and run the newest routes."""
    generation = deployment.store.fabrics.get("main").routes_generation
    applied = Applied(generation, by=by, running=running, **more)
    deployment.store.observations.note_applied("main", applied)


def certificate(client, allocation, **query):
    answer = client.get(f"/v1/allocations/{allocation['id']}/certificate", query_string=query)
    assert answer.status_code == 200, answer.text
    return answer.json


def statement_of(envelope):
    return json.loads(verifier.decoded(envelope["payload"]))


@pytest.fixture
def deployment(deployment, monkeypatch):
    """A deployment with a worker, and a verifier by the same clock."""
    clock = SimpleNamespace(time=lambda: deployment.clock().timestamp())
    monkeypatch.setattr(verifier, "time", clock)
    SqlLeases(deployment.engine).take("main", "node1/7", 3600)
    return deployment


@pytest.fixture
def two(deployment, allocate):
    """Two allocations whose routes were read in the switches."""
    both = allocate(12, "blue"), allocate(6, "red")
    confirm(deployment)
    return both


@pytest.fixture
def verify(deployment, tmp_path, capsys):
    """Run the verifier on an envelope; its exit status and the lines that it prints."""

    def run(envelope, *options, key=None):
        file = tmp_path / "certificate.json"
        file.write_text(envelope if isinstance(envelope, str) else json.dumps(envelope))
        public = key or tmp_path / "certificate-keys" / "public.json"
        status = verifier.main([str(file), "--key", str(public), *options])
        return status, capsys.readouterr().out.splitlines()

    return run


def test_a_certificate_of_read_routes_holds(client, two, verify):
    blue, _ = two
    signed = certificate(client, blue, nonce="7f3a")
    options = ("--allocation", blue["id"], "--nonce", "7f3a", "--max-age", "60")
    assert verify(signed, *options) == (0, [])


def test_it_names_what_is_owned_and_no_other_tenant(client, two):
    blue, red = two
    told = statement_of(certificate(client, blue))
    assert sorted(h["name"] for h in told["hosts"]) == sorted(h["name"] for h in blue["hosts"])
    assert len(told["cables"]) == len(blue["links"])
    text = json.dumps(told)
    assert red["id"] not in text
    assert not {h["name"] for h in red["hosts"]} & set(text.split('"'))


def test_the_public_keys_are_written_for_tenants(client, two, deployment):
    certificate(client, two[0])
    [key] = json.loads((deployment.certificate_keys.directory / "public.json").read_text())["keys"]
    assert (key["kty"], key["crv"], "d" in key) == ("OKP", "Ed25519", False)
    private = deployment.certificate_keys.directory / "0001.pem"
    assert private.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param({"by": ConfirmedBy.FILES}, id="nobody read the switches"),
        pytest.param({"running": Running("file")}, id="keys were not read"),
        pytest.param({"unconfirmed": "a switch"}, id="a switch is silent"),
    ],
)
def test_what_was_not_read_is_stated(client, deployment, two, verify, seen):
    blue, _ = two
    if "unconfirmed" in seen:
        first = statement_of(certificate(client, blue))["switches"][0]["guid"]
        seen = {"unconfirmed": (int(first, 16),)}
    confirm(deployment, **seen)
    signed = certificate(client, blue)
    status, found = verify(signed)
    assert status == 1
    assert any("not read" in line or "nobody read" in line for line in found)


def test_routes_that_are_not_confirmed_are_not_certified(client, deployment, two, verify):
    blue, _ = two
    deployment.store.observations.note_applied("main", Applied(None, "a switch differs"))
    told = statement_of(signed := certificate(client, blue))
    assert {switch["entries"] for switch in told["switches"]} == {None}
    status, found = verify(signed)
    assert status == 1
    assert "generation: the switches do not run the generation that is wanted" in found


def test_a_shared_or_waiting_allocation_has_none(client, deployment, allocate):
    part = allocate(4, "part", sharing={"slots": 8, "bandwidth": 10.0})
    body = {"name": "vms", "class": "shared", "slots": 4, "bandwidth": 0.2, "parent": part["id"]}
    vms = client.post("/v1/allocations?wait=5", json=body).json
    answer = client.get(f"/v1/allocations/{vms['id']}/certificate")
    assert (answer.status_code, answer.json["code"]) == (409, "conflict")
    assert "hosts and links of their own" in answer.json["detail"]


def test_a_rotated_key_signs_and_a_revoked_one_is_refused(client, deployment, two, verify):
    blue, _ = two
    old = certificate(client, blue)
    directory = deployment.certificate_keys.directory
    later = CertificateKeys(directory.parent / "other")
    later.sign({})
    (directory.parent / "other" / "0001.pem").rename(directory / "0002.pem")
    new = certificate(client, blue)
    assert old["protected"] != new["protected"]
    assert verify(old) == verify(new) == (0, [])
    (directory / "0001.pem").rename(directory / "0001.revoked")
    certificate(client, blue)
    assert verify(old) == (1, ["revoked: its key is revoked"])
    assert verify(new) == (0, [])


# Seeded violations. Each changes a statement that holds, which is signed again by the right key,
# so only the check of this name can find it.


def row(told, number=0):
    """A table of the statement, which ``put`` writes back."""
    return bytearray(base64.b64decode(told["switches"][number]["entries"]))


def put(told, entries, number=0):
    told["switches"][number]["entries"] = base64.b64encode(entries).decode()


def numbered(told, guid):
    return next(n for n, switch in enumerate(told["switches"]) if switch["guid"] == guid)


def kinds(told):
    return bytearray(base64.b64decode(told["destinations"]))


def pair_apart(told):
    """Ports of two hosts below different leaves."""
    first = told["hosts"][0]["ports"][0]
    others = (port for host in told["hosts"] for port in host["ports"])
    return first, next(port for port in others if port["switch"] != first["switch"])


def missing_route(told):
    sender, target = pair_apart(told)
    number = numbered(told, sender["switch"])
    entries = row(told, number)
    entries[target["lid"]] = verifier.NONE
    put(told, entries, number)


def loop(told):
    """The upper switch sends packets back to the leaf that they come from."""
    sender, target = pair_apart(told)
    entries = row(told, numbered(told, sender["switch"]))
    out = entries[target["lid"]]
    for cable in told["cables"]:
        lower, upper = cable["lower"], cable["upper"]
        if (lower["switch"], lower["port"]) == (sender["switch"], out):
            number = numbered(told, upper["switch"])
            above = row(told, number)
            above[target["lid"]] = upper["port"]
            put(told, above, number)


def to_another_host(told):
    """The leaf delivers packets of one host to another one."""
    first = told["hosts"][0]["ports"][0]
    other = next(
        port
        for host in told["hosts"][1:]
        for port in host["ports"]
        if port["switch"] == first["switch"]
    )
    number = numbered(told, first["switch"])
    entries = row(told, number)
    entries[other["lid"]] = first["port"]
    put(told, entries, number)


def foreign_host(told):
    """Packets to another tenant's host leave by a host's port."""
    port = told["hosts"][0]["ports"][0]
    number = numbered(told, port["switch"])
    entries = row(told, number)
    entries[kinds(told).index(verifier.OTHER)] = port["port"]
    put(told, entries, number)


def foreign_over_a_cable(told):
    """Packets to another tenant's host leave by another cable than the statement explains."""
    number = numbered(told, told["hosts"][0]["ports"][0]["switch"])
    guid, entries = told["switches"][number]["guid"], row(told, number)
    lid = kinds(told).index(verifier.OTHER)
    ports = {c["lower"]["port"] for c in told["cables"] if c["lower"]["switch"] == guid}
    entries[lid] = min(ports - {entries[lid]})
    put(told, entries, number)


def foreign_cable(told):
    """A table sends packets by a port that the allocation does not own."""
    sender, _ = pair_apart(told)
    number = numbered(told, sender["switch"])
    used = {c["lower"]["port"] for c in told["cables"] if c["lower"]["switch"] == sender["switch"]}
    used |= {
        p["port"] for h in told["hosts"] for p in h["ports"] if p["switch"] == sender["switch"]
    }
    entries = row(told, number)
    entries[0] = max(used) + 1
    put(told, entries, number)


def unknown_address(told):
    number, entries = 0, row(told)
    owned = next(
        end["port"]
        for cable in told["cables"]
        for end in cable.values()
        if end["switch"] == told["switches"][0]["guid"]
    )
    entries[next(lid for lid, kind in enumerate(kinds(told)) if not kind)] = owned
    put(told, entries, number)


def cable_left_out(told):
    """The cable that packets take is not among those that it owns: its entries are foreign."""
    sender, target = pair_apart(told)
    out = row(told, numbered(told, sender["switch"]))[target["lid"]]
    used = {"switch": sender["switch"], "port": out}
    told["cables"] = [cable for cable in told["cables"] if cable["lower"] != used]


def cable_twice(told):
    told["cables"].append(told["cables"][0])


def end_of_two_cables(told):
    told["cables"][1]["lower"] = dict(told["cables"][0]["lower"])


def cable_at_a_host(told):
    port = told["hosts"][0]["ports"][0]
    upper = told["cables"][0]["upper"]
    told["cables"].append({"lower": {k: port[k] for k in ("switch", "port")}, "upper": upper})


def own_address_hidden(told):
    found = kinds(told)
    found[told["hosts"][0]["ports"][0]["lid"]] = verifier.OTHER
    told["destinations"] = base64.b64encode(found).decode()


def foreign_address_claimed(told):
    found = kinds(told)
    found[found.index(verifier.OTHER)] = verifier.OWN
    told["destinations"] = base64.b64encode(found).decode()


def short_table(told):
    put(told, row(told)[:-1])


def changed(path, value):
    """A change of the field at ``path``; a function of the old value is called."""

    def change(told):
        inner = told
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value(inner[path[-1]]) if callable(value) else value

    return change


def one_switch_more(told):
    told["switches"].append({"guid": "0x00000000000000ff", "entries": None})


def copied(*path):
    """A change after which two hosts have the same value at ``path``."""

    def change(told):
        value = told["hosts"][0]
        for step in path:
            value = value[step]
        changed(("hosts", 1, *path), value)(told)

    return change


def without(path):
    def change(told):
        inner = told
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]

    return change


def no_host(told):
    told["hosts"], told["allocation"]["hosts"] = [], 0


def explained(**fields):
    """A record of crossing that nothing in the tables confirms."""

    def change(told):
        end = told["cables"][0]["lower"]
        told["crossing"] = [
            one
            for one in told["crossing"]
            if (one["switch"], one["port"]) != (end["switch"], end["port"])
        ]
        told["crossing"].append(
            {**end, "destinations": 999, "hosts": 0, "pairs": 0, "why": "nobody_sends", **fields}
        )

    return change


def crossing_with(**fields):
    def change(told):
        told["crossing"][0].update(fields)

    return change


def more_on_cables(place, of_hosts):
    def change(told):
        told["counters"] = dict.fromkeys(told["counters"], 1000)
        told["counters"][place] = told["counters"][of_hosts] + 2 * verifier.SLACK

    return change


LATER = 10_000
SEEDS = {
    # what is owned
    "a foreign cable": (foreign_cable, "foreign port"),
    "a cable twice": (cable_twice, "port"),
    "one end of two cables": (end_of_two_cables, "port and foreign port and crossing and route"),
    "a cable at a host's port": (cable_at_a_host, "port"),
    "a port number of nothing": (
        changed(("hosts", 0, "ports", 0, "port"), 0),
        "port and foreign port and route",
    ),
    "a host's name twice": (copied("name"), "host"),
    "a GUID twice": (copied("ports", 0, "guid"), "host"),
    "fewer hosts than asked for": (changed(("allocation", "hosts"), 13), "hosts"),
    "a host in no placement": (changed(("hosts", 0, "placements"), []), "hosts"),
    "no hosts of none": (no_host, "hosts and destinations"),
    "a host with one port more than keys": (
        lambda told: told["hosts"][0]["ports"][0].update(rail=1),
        "rail",
    ),
    "no rail": (changed(("keys", "by_rail"), []), "rail"),
    "a switch too many": (one_switch_more, "switches and table"),
    # routes
    "a missing route": (missing_route, "route"),
    "a loop": (loop, "loop"),
    "packets to another host": (to_another_host, "route"),
    "an entry by a cable that is not owned": (
        cable_left_out,
        "foreign port and crossing and route",
    ),
    "another tenant's host by a host's port": (foreign_host, "foreign address and crossing"),
    "another tenant's host by a cable": (foreign_over_a_cable, "crossing"),
    "an entry to an address of nobody": (unknown_address, "foreign address"),
    "an own address that is another's": (own_address_hidden, "destinations"),
    "a foreign address that is its own": (foreign_address_claimed, "destinations"),
    "a table that is too short": (short_table, "destinations"),
    "a table that was not read": (
        changed(("switches", 0, "entries"), None),
        "table and crossing and route",
    ),
    "crossing that no table has": (explained(), "crossing"),
    "fewer addresses cross than leave": (crossing_with(destinations=1), "crossing"),
    "fewer hosts cross than leave": (crossing_with(hosts=0), "crossing"),
    "crossing left out": (changed(("crossing",), []), "crossing"),
    "crossing without a known reason": (crossing_with(why="trust us"), "crossing"),
    "pairs that the reason denies": (crossing_with(pairs=3, why="nobody_sends"), "crossing"),
    "a reason without pairs": (crossing_with(pairs=0, why="no_other_way"), "crossing"),
    # what was read
    "a stale generation": (changed(("generation", "read"), lambda n: n - 1), "generation"),
    "no generation": (changed(("generation", "read"), None), "generation"),
    "files alone": (changed(("read", "by"), "files"), "read"),
    "no time of reading": (changed(("read", "at"), None), "read"),
    "read after it was issued": (changed(("read", "at"), lambda at: at + LATER), "order"),
    "issued in the future": (changed(("issued_at",), lambda at: at + LATER), "future"),
    "keys were not read": (changed(("keys", "read"), False), "keys"),
    "something was not read": (changed(("not_read",), ["port counters"]), "not read"),
    "foreign bytes up": (more_on_cables("leaf_up", "injected"), "counters"),
    "foreign bytes down": (more_on_cables("leaf_down", "delivered"), "counters"),
    # form
    "another form": (changed(("form",), "laas-certificate/9"), "form"),
    "a field more": (changed(("comment",), "fine"), "form"),
    "a field less": (without(("fabric",)), "form"),
    "a field less inside": (without(("cables", 0, "upper")), "form"),
    "a string for a number": (changed(("issued_at",), "now"), "form"),
    "true for a number": (changed(("allocation", "hosts"), True), "form"),
    "no GUID": (changed(("switches", 0, "guid"), "leaf-1"), "form"),
    "the default partition": (changed(("keys", "by_rail"), ["0x7fff"]), "form"),
    "no partition": (changed(("keys", "by_rail"), ["0x0000"]), "form"),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seeded_violation_is_caught(client, deployment, two, verify, seed):
    change, name = SEEDS[seed]
    blue, _ = two
    told = statement_of(certificate(client, blue))
    assert verify(signed(deployment, told)) == (0, [])
    bad = copy.deepcopy(told)
    change(bad)
    assert bad != told
    status, found = verify(signed(deployment, bad))
    assert (status, {line.split(":")[0] for line in found}) == (1, {*name.split(" and ")})


def signed(deployment, told):
    envelope = deployment.certificate_keys.sign(told)
    return {part: getattr(envelope, part) for part in ("payload", "protected", "signature")}


def test_a_certificate_of_somebody_else_is_caught(client, two, verify):
    blue, red = two
    status, found = verify(certificate(client, red), "--allocation", blue["id"])
    assert (status, found) == (1, [f"allocation: it is for {red['id']}"])


def test_an_older_certificate_is_caught(client, two, verify):
    blue, _ = two
    old = certificate(client, blue, nonce="first")
    assert verify(old, "--nonce", "second") == (1, ["nonce: it does not answer this request"])
    assert verify(certificate(client, blue), "--nonce", "second")[0] == 1


def test_an_old_reading_is_caught(client, deployment, two, verify):
    told = statement_of(certificate(client, two[0]))
    told["read"]["at"] -= 1000
    assert verify(signed(deployment, told)) == (0, [])
    status, found = verify(signed(deployment, told), "--max-age", "600")
    assert (status, [line.split(":")[0] for line in found]) == (1, ["age"])


def test_a_statement_that_was_changed_is_caught(client, two, verify):
    blue, red = two
    good, other = certificate(client, blue), certificate(client, red)
    told = statement_of(good)
    told["allocation"]["name"] = "green"
    text = json.dumps(told, sort_keys=True, separators=(",", ":")).encode()
    wrong = "signature: the statement was changed, or another key signed it"
    for changes in (
        {"payload": verifier.encoded(text)},
        {"payload": other["payload"]},
        {"signature": other["signature"]},
        {"signature": ""},
    ):
        assert verify({**good, **changes}) == (1, [wrong])


def test_another_key_is_caught(client, two, verify, tmp_path):
    signed = certificate(client, two[0])
    CertificateKeys(tmp_path / "other").sign({})
    other = tmp_path / "other" / "public.json"
    gone = (1, ["key: it is signed by a key that is not given"])
    assert verify(signed, key=other) == gone
    header = json.loads(verifier.decoded(signed["protected"]))
    forged = {**header, "kid": json.loads(other.read_text())["keys"][0]["kid"]}
    envelope = {**signed, "protected": verifier.encoded(json.dumps(forged).encode())}
    status, found = verify(envelope, key=other)
    assert (status, found[0].split(":")[0]) == (1, "signature")


@pytest.mark.parametrize("change", [{"alg": "none"}, {"alg": "HS256"}, {"typ": "JWT"}])
def test_another_kind_of_signature_is_caught(client, two, verify, change):
    signed = certificate(client, two[0])
    header = json.loads(verifier.decoded(signed["protected"])) | change
    envelope = {**signed, "protected": verifier.encoded(json.dumps(header).encode())}
    status, found = verify(envelope)
    assert (status, found[0].split(":")[0]) == (1, "envelope")


def test_a_statement_that_is_no_canonical_json_is_caught(client, two, verify, tmp_path):
    told = statement_of(certificate(client, two[0]))
    key = Ed25519PrivateKey.generate()
    raw = verifier.encoded(key.public_key().public_bytes_raw())
    public = {"crv": "Ed25519", "kty": "OKP", "x": raw}
    (tmp_path / "jwk.json").write_text(json.dumps(public))
    [name] = verifier.keys_in(json.dumps(public).encode())
    header = verifier.encoded(json.dumps({**verifier.HEADER, "kid": name}).encode())
    payload = verifier.encoded(json.dumps(told).encode())
    signature = verifier.encoded(key.sign(f"{header}.{payload}".encode()))
    envelope = {"payload": payload, "protected": header, "signature": signature}
    status, found = verify(envelope, key=tmp_path / "jwk.json")
    assert (status, found[0].split(":")[0]) == (1, "canonical")


@pytest.mark.parametrize("text", ["", "[]", "no JSON", '{"payload": 1}', "{}", '{"protected":"!"}'])
def test_a_file_that_is_no_certificate_is_unreadable(client, two, verify, text):
    certificate(client, two[0])
    assert verify(text) == (2, [])


def test_a_file_that_is_no_key_is_unreadable(client, two, verify, tmp_path):
    signed = certificate(client, two[0])
    (tmp_path / "no.key").write_text("{}")
    assert verify(signed, key=tmp_path / "no.key") == (2, [])
    assert verify(signed, key=tmp_path / "absent") == (2, [])
