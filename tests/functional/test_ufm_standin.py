# SPDX-License-Identifier: Apache-2.0

"""The stand-in for UFM: what its documents say, and what two of its clients expect."""

from __future__ import annotations

import pytest
import requests

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.generator import Description, generate
from tests.ufm.cabling import Fabric
from tests.ufm.faults import login_form
from tests.ufm.server import certificate, standing_in
from tests.ufm.state import Ufm

A, B, C = "b8599f03001ae2f1", "b8599f03001ae2f2", "b8599f03001ae2fa"


@pytest.fixture
def site():
    generated = generate(Description(xgft="2;2,2;1,2"))
    fabric = Fabric(ibnetdiscover.parse(ibnetdiscover.render(generated.inventory)))
    with standing_in(Ufm(fabric)) as standin:
        yield standin


class Client:
    """Requests with one way to log in."""

    def __init__(self, url, prefix="/ufmRest", **options):
        self.url, self.session = url + prefix, requests.Session()
        self.session.trust_env = False
        for name, value in options.items():
            setattr(self.session, name, value)
        if not options:
            self.session.auth = ("admin", "123456")

    def __call__(self, method, path, expected=200, **options):
        answer = self.session.request(method, self.url + path, timeout=10, **options)
        assert answer.status_code == expected, answer.text
        return answer

    def get(self, path, expected=200):
        return self("GET", path, expected).json()


# -- logging in --------------------------------------------------------------------------


def test_each_prefix_has_its_own_login(site):
    token = Client(site.url)("POST", "/app/tokens").json()["access_token"]
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    session = requests.Session()
    body = login_form("admin", "123456")
    assert session.post(f"{site.url}/dologin", body, headers=form, timeout=10).ok
    by_token = {"headers": {"Authorization": f"Basic {token}"}}
    for prefix, right in (
        ("/ufmRest", {"auth": ("admin", "123456")}),
        ("/ufmRestV2", {"cookies": session.cookies}),
        ("/ufmRestV3", by_token),
    ):
        assert Client(site.url, prefix, **right).get("/app/ufm_version") == {
            "ufm_release_version": "6.23.1"
        }
        wrong = {"headers": {"Authorization": "Basic wrong"}}
        Client(site.url, prefix, **wrong)("GET", "/app/ufm_version", 401)
    Client(site.url, "/ufmRest", **by_token)("GET", "/app/ufm_version", 401)
    Client(site.url, "/ufmRestKrb")("GET", "/app/ufm_version", 401)


def test_a_client_with_a_certificate_needs_no_password(tmp_path):
    authority = certificate(tmp_path, "authority")
    server, client = (certificate(tmp_path, name, authority) for name in ("ufm", "laas"))
    with standing_in(tls=server, clients=authority[0]) as site:
        known = Client(site.url, cert=client, verify=authority[0])
        assert known.get("/app/ufm_version") == {"ufm_release_version": "6.23.1"}
        Client(site.url, verify=authority[0], auth=None)("GET", "/app/ufm_version", 401)
        with pytest.raises(requests.exceptions.SSLError):
            Client(site.url, cert=client)("GET", "/app/ufm_version")


def test_times_are_local_and_name_no_zone(site):
    site.ufm.offset = 9
    issued = Client(site.url)("POST", "/app/tokens").json()["issued_at"]
    assert issued[:16] >= site.ufm.local_time()[:13]
    assert not issued.endswith(("Z", "+00:00"))


# -- partitions --------------------------------------------------------------------------


def test_the_answer_about_partitions_depends_on_the_options(site):
    ask = Client(site.url)
    ask("POST", "/resources/pkeys", json={"pkey": "0x5", "guids": [f"0x{A}"], "index0": True})
    assert ask.get("/resources/pkeys") == ["0x7fff", "0x5"]
    assert ask.get("/resources/pkeys?guids_data=true&qos_conf=true") == ["0x7fff", "0x5"]
    guids = ask.get("/resources/pkeys?guids_data=true")
    assert guids["0x5"] == {
        "partition": "api_pkey_0x5",
        "ip_over_ib": True,
        "guids": [{"guid": A, "index0": True, "membership": "full"}],
    }
    assert guids["0x7fff"]["membership"] == "limited"
    assert ask.get("/resources/pkeys?qos_conf=true")["0x5"]["qos_conf"]["rate_limit"] == 2.5
    assert ask.get("/resources/pkeys/0x5") == {"partition": "api_pkey_0x5", "ip_over_ib": True}
    assert ask.get("/resources/pkeys/0x9?guids_data=true") == {}
    site.ufm.unknown = None
    ask("GET", "/resources/pkeys/0x9?guids_data=true", 404)


def test_a_partition_goes_with_its_last_member(site):
    ask = Client(site.url)
    for pkey in ("0x5", "0x0006"):
        ask("POST", "/resources/pkeys", json={"pkey": pkey, "guids": [A, B]})
    ask("DELETE", f"/resources/pkeys/0x5/guids/{A}")
    assert site.ufm.members() == {5: {int(B, 16)}, 6: {int(A, 16), int(B, 16)}}
    ask("DELETE", f"/resources/pkeys/0x5/guids/{B}")
    ask("DELETE", "/resources/pkeys/0x6")
    assert site.ufm.members() == {}
    ask("DELETE", f"/resources/pkeys/0x5/guids/{B}", 404)


def test_an_empty_partition_stays_and_put_replaces_members(site):
    ask = Client(site.url)
    ask("POST", "/resources/pkeys/add", json={"pkey": "0x5", "partition_name": "blue"})
    assert site.ufm.members() == {5: set()}
    ask("POST", "/resources/pkeys", json={"pkey": "0x5", "guids": [A, B]})
    ask("PUT", "/resources/pkeys", json={"pkey": "0x5", "guids": [C], "membership": "limited"})
    shown = ask.get("/resources/pkeys/0x5?guids_data=true")
    assert shown["partition"] == "blue"
    assert [row["guid"] for row in shown["guids"]] == [C]
    assert shown["guids"][0]["membership"] == "limited"


def test_what_the_interface_refuses(site):
    ask = Client(site.url)
    for body, status in (
        ({"pkey": "0x7fff", "guids": [A]}, 403),
        ({"pkey": "0x8000", "guids": [A]}, 400),
        ({"pkey": "x", "guids": [A]}, 400),
        ({"pkey": "0x5", "guids": [A.replace("b8", "b8:")]}, 400),
        ({"pkey": "0x5", "guids": []}, 400),
        ({"pkey": "0x5", "guids": [A], "memberships": ["full", "full"]}, 400),
    ):
        ask("POST", "/resources/pkeys", status, json=body)
    ask("POST", "/resources/pkeys", 400, data="{")
    assert site.ufm.members() == {}


def test_older_releases_know_less(site):
    ask, ufm = Client(site.url), site.ufm
    ufm.release = (6, 18, 0)
    assert "membership" not in ask.get("/resources/pkeys/0x7fff?guids_data=true")
    ask("POST", "/resources/pkeys/add", json={"pkey": "0x5", "partition_name": "blue"})
    assert ask.get("/resources/pkeys/0x5")["partition"] == "api_pkey_0x5"


def test_a_change_that_is_a_job_takes_effect_when_the_job_has_ended(site):
    ask, ufm = Client(site.url), site.ufm
    ufm.asynchronous = True
    answer = ask("POST", "/resources/pkeys", 202, json={"pkey": "0x5", "guids": [A]})
    path = answer.headers["Location"].partition("/ufmRest")[2]
    assert ufm.members() == {}
    statuses = [ask.get(path)["Status"] for _ in range(4)]
    assert statuses == ["Running", "Running", "Completed", "Completed"]
    assert ufm.members() == {5: {int(A, 16)}}
    ufm.failing_jobs = 1
    answer = ask("DELETE", "/resources/pkeys/0x5", 202)
    ufm.finish_jobs()
    path = answer.headers["Location"].partition("/ufmRest")[2]
    assert ask.get(path)["Status"] == "Completed With Errors"
    assert ufm.members() == {5: {int(A, 16)}}
    assert ask.get("/jobs/99") == {}


# -- the calls of known clients ------------------------------------------------------------


def test_the_calls_of_ib_kubernetes(site):
    """Each is answered with 200, with GUIDs of 16 digits and keys of four [k8s]."""
    ask = Client(site.url)
    ask("GET", "/app/ufm_version")
    add = {
        "pkey": "0x00AB",
        "index0": True,
        "ip_over_ib": True,
        "membership": "full",
        "guids": [A, B],
    }
    ask("POST", "/resources/pkeys", json=add)
    ask("POST", "/resources/pkeys", json=add)
    assert site.ufm.members() == {0xAB: {int(A, 16), int(B, 16)}}
    remove = {"pkey": "0x00AB", "guids": [A]}
    ask("POST", "/actions/remove_guids_from_pkey", json=remove)
    assert site.ufm.members() == {0xAB: {int(B, 16)}}


def test_the_calls_of_the_infra_controller(site):
    """The fields that its structures require are there, of their types [nico]."""
    token = site.token()
    ask = Client(site.url, "/ufmRestV3", headers={"Authorization": f"Basic {token}"})
    assert isinstance(ask.get("/app/ufm_version")["ufm_release_version"], str)
    smconf = ask.get("/app/smconf")
    assert smconf.keys() == {"subnet_prefix", "m_key", "sm_key", "sa_key", "m_key_per_port"}
    assert smconf["m_key_per_port"] is False
    bind = {"pkey": "0x2fb", "ip_over_ib": True, "membership": "full", "index0": True}
    ask("POST", "/resources/pkeys", json={**bind, "guids": [A, B, C]})
    qos = {"pkey": "0x2fb", "mtu_limit": 4, "service_level": 0, "rate_limit": 2.0}
    ask("PUT", "/resources/pkeys/qos_conf", json=qos)
    with_qos = ask.get("/resources/pkeys?qos_conf=true")
    assert with_qos["0x2fb"]["qos_conf"] == {
        "mtu_limit": 4,
        "service_level": 0,
        "rate_limit": 2.5,
    }
    for key, partition in ask.get("/resources/pkeys?guids_data=true").items():
        assert key.startswith("0x")
        assert isinstance(partition["partition"], str)
        assert isinstance(partition["ip_over_ib"], bool)
        for member in partition["guids"]:
            assert member.keys() == {"guid", "index0", "membership"}
    one = ask.get("/resources/pkeys/0x2fb?guids_data=true&qos_conf=true")
    assert one["guids"]
    assert one["qos_conf"]
    assert ask.get("/resources/pkeys/0x2fc?guids_data=true") == {}, "its sign of not found"
    ask("POST", "/actions/remove_guids_from_pkey", json={"pkey": "0x2fb", "guids": [A, B, C]})
    assert site.ufm.members() == {}
    ports = ask.get("/resources/ports?sys_type=Computer")
    assert len(ports) == 4
    for port in ports:
        assert isinstance(port["lid"], int)
        names = ("guid", "name", "systemID", "dname", "system_name", "physical_state")
        assert all(isinstance(port[name], str) for name in (*names, "logical_state"))
        assert port["name"].startswith(port["guid"])


# -- the fabric ----------------------------------------------------------------------------


def test_systems_ports_and_links(site):
    ask = Client(site.url)
    switches = ask.get("/resources/systems?type=switch")
    assert len(switches) == 4
    assert len(ask.get("/resources/systems")) == 8
    links = ask.get("/resources/links")
    assert len(links) == 8
    pages = [ask.get(f"/resources/links?page_number={n}&rpp=5")["data"] for n in (1, 2, 3)]
    assert [row for page in pages for row in page] == links
    assert links[0]["source_port"].isdecimal()
    active = ask.get("/resources/ports?active=true")
    assert len(active) == 2 * len(links)
    assert {port["peer"] for port in active} == {port["name"] for port in active}


def test_a_cable_that_is_down_is_no_link(site):
    ask, fabric = Client(site.url), site.ufm.fabric
    wire = fabric.cabling.wires[0]
    fabric.down.add(wire.a[:2])
    assert len(ask.get("/resources/links")) == 7
    assert len(ask.get("/resources/ports?active=true")) == 14
    ports = ask.get("/resources/ports")
    assert len(ports) == 16
    assert {port["physical_state"] for port in ports} == {"Link Up", "Polling"}


def test_disabled_ports_are_listed_on_demand(site):
    ask, fabric = Client(site.url), site.ufm.fabric
    fabric.disabled.add(fabric.cabling.wires[0].a[:2])
    assert len(ask.get("/resources/ports")) == 15
    ports = ask.get("/resources/ports?show_disabled=true")
    assert len(ports) == 16
    assert sorted(port["physical_state"] for port in ports).count("Disabled") == 1
    assert sorted(port["physical_state"] for port in ports).count("Polling") == 1, "its peer"


def test_topologies_are_compared_by_a_job(site):
    ask, fabric = Client(site.url), site.ufm.fabric
    last = "/reports/last_report/Topology_Compare"
    assert ask.get(last) == {}
    wire = fabric.cabling.wires[0]
    fabric.down.add(wire.b[:2])
    answer = ask("POST", "/reports/Topology_Compare", 202)
    assert "/jobs/" in answer.headers["Location"]
    assert ask.get(last) == {}
    site.ufm.finish_jobs()
    report = ask.get(last)
    assert report["added"] == {"nodes": [], "links": []}
    assert report["removed"]["nodes"] == []
    (link,) = report["removed"]["links"]
    assert link["name"].count("_") == 2
    assert link["source_guid"] == f"{wire.a.guid:016x}"


def test_an_isolated_port_is_linked_and_has_no_peer(site):
    ask, ufm = Client(site.url), site.ufm
    port = ask.get("/resources/ports?active=true")[0]
    ufm.hold_unhealthy(port["name"], "FLAPPING")
    (row,) = ask.get("/app/unhealthy_ports")
    assert (row["Condition"], row["UnhealthyPortNumber"]) == ("FLAPPING", port["number"])
    ufm.listed_conditions = True
    assert ask.get("/app/unhealthy_ports")[0]["Condition"] == ["FLAPPING"]
    shown = {row["name"]: row for row in ask.get("/resources/ports")}
    for name in (port["name"], port["peer"]):
        assert shown[name]["physical_state"] == "Link Up"
        assert shown[name]["logical_state"] == "Initialize"
        assert "peer_guid" not in shown[name]


def test_a_port_becomes_unhealthy_a_little_later(site):
    ask, ufm = Client(site.url), site.ufm
    port = ask.get("/resources/ports?active=true")[0]["name"]
    body = {"ports": [port], "ports_policy": "UNHEALTHY", "action": "isolate"}
    ask("PUT", "/app/unhealthy_ports", json=body)
    assert ask.get("/app/unhealthy_ports") == []
    ufm.finish_jobs()
    (row,) = ask.get("/app/unhealthy_ports")
    assert f"{row['UnhealthyGUID']}_{row['UnhealthyPortNumber']}" == port
    ask("PUT", "/app/unhealthy_ports", json={"ports": ["ALL"], "ports_policy": "HEALTHY"})
    ufm.finish_jobs()
    assert ask.get("/app/unhealthy_ports") == []
    ask("PUT", "/app/unhealthy_ports", 400, json={**body, "action": "reboot"})


def test_a_device_is_marked_by_a_job(site):
    ask = Client(site.url)
    system = ask.get("/resources/systems?type=switch")[0]["system_guid"]
    body = {
        "action": "mark_device_unhealthy",
        "params": {"device_policy": "UNHEALTHY", "action": "isolate"},
        "object_ids": [system],
        "object_type": "System",
        "identifier": "id",
    }
    answer = ask("POST", "/actions", 202, json=body)
    site.ufm.finish_jobs()
    assert "/jobs/" in answer.headers["Location"]
    guids = {row["UnhealthyGUID"] for row in ask.get("/app/unhealthy_ports")}
    assert guids == {system}


# -- faults ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["refused", "lost", "late", "half", "slow"])
def test_a_spoiled_answer_is_none(site, kind):
    ask = Client(site.url)
    site.faults.plan(kind, method="POST")
    body = {"pkey": "0x5", "guids": [A]}
    with pytest.raises(requests.exceptions.RequestException):
        ask.session.request("POST", f"{ask.url}/resources/pkeys", json=body, timeout=0.5)
    assert bool(site.ufm.members()) is (kind in ("lost", "half", "slow"))
    for _ in range(6):
        ask("GET", "/app/ufm_version")
    assert bool(site.ufm.members()) is (kind != "refused")
    assert site.faults.happened == [kind]


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_an_error_changes_nothing(site, status):
    ask = Client(site.url)
    site.faults.plan(status)
    answer = ask("POST", "/resources/pkeys", status, json={"pkey": "0x5", "guids": [A]})
    assert ("Retry-After" in answer.headers) is (status == 429)
    assert site.ufm.members() == {}


def test_a_login_page_in_place_of_an_answer(site):
    ask = Client(site.url)
    site.faults.plan("garbage")
    assert ask("GET", "/app/ufm_version").text.startswith("<html>")
