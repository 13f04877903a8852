# SPDX-License-Identifier: Apache-2.0

"""The subnet-manager port on UFM, tried on the stand-in."""

from __future__ import annotations

import logging
import socket
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.ufm.manager import PartitionChange, changes
from laas_service.adapters.ufm.memory import PartitionRequest
from laas_service.adapters.ufm.rest import Member, UfmRest, UfmSettings
from laas_service.domain.errors import Conflict, InvalidInput, Unavailable
from laas_service.domain.inventory import PortRef
from laas_service.domain.topology import parse_link
from laas_service.messages import Applied, Condition, ConfirmedBy
from laas_service.wiring.composition import Composition
from opensm_writer.desired import partitions
from opensm_writer.local import LocalSubnetManager
from opensm_writer.render import Settings
from tests.functional.api.test_confirmed_by import Site
from tests.options import options_from
from tests.ufm.cabling import Fabric
from tests.ufm.faults import Redirect
from tests.ufm.manager import Record, manager, remembering, settings
from tests.ufm.server import certificate, standing_in
from tests.ufm.state import Ufm
from tests.unit.opensm_writer.states import ONE, POD, WIDE, state
from tests.waiting import eventually

FOREIGN = 0x0000DEAD0000BEEF


@pytest.fixture
def site():
    with standing_in() as standin:
        yield standin


@pytest.fixture
def record():
    return Record(state(generation=7))


@pytest.fixture
def port(site, tmp_path, record):
    return manager(site, tmp_path, record)


def wanted(fabric_state):
    return {p.pkey: set(p.members) for p in partitions(fabric_state)}


def confirmed(generation, stamp=""):
    return Applied(generation, by=ConfirmedBy.UFM, stamp=stamp)


def key_of(allocation, fabric_state):
    return next(t.pkey for t in fabric_state.tenants if t.allocation.id == allocation.id)


# -- partitions ------------------------------------------------------------------------------


def test_partitions_are_made_and_confirmed_by_what_ufm_answers(site, port, record):
    before = port.applied("tiny")
    assert (before.generation, before.condition) == (None, Condition.WRONG_KEYS)
    assert "lacks" in before.problem
    port.publish(record.state)
    assert site.ufm.members() == wanted(record.state)
    for partition in site.ufm.partitions.values():
        for member in partition.members.values():
            assert (member.index0, member.membership) == (True, "full")
    assert port.applied("tiny") == confirmed(7)


def test_publishing_again_changes_nothing(site, port, record):
    port.publish(record.state)
    made = list(site.ufm.changes)
    port.publish(record.state)
    record.state = replace(record.state, generation=8, stamp="other")
    port.publish(record.state)
    assert site.ufm.changes == made
    assert port.applied("tiny") == confirmed(8, "other")


def test_a_change_removes_before_it_adds(site, port, record):
    port.publish(record.state)
    site.ufm.changes.clear()
    keys = {t.allocation.id: t.pkey for t in record.state.tenants}
    exchanged = {ONE.id: POD, POD.id: ONE}
    tenants = tuple(
        replace(t, allocation=replace(exchanged[t.allocation.id], id=t.allocation.id))
        if t.allocation.id in exchanged
        else t
        for t in record.state.tenants
    )
    record.state = replace(record.state, generation=8, tenants=tenants)
    port.publish(record.state)
    assert site.ufm.members() == wanted(record.state)
    verbs = [verb for verb, _, _ in site.ufm.changes]
    assert verbs == sorted(verbs, reverse=True), "remove, remove, add, add"
    assert {int(key, 16) for _, key, _ in site.ufm.changes} == {keys[ONE.id], keys[POD.id]}


def test_a_generation_that_was_published_is_confirmed_while_a_newer_one_waits(port, record):
    port.publish(record.state)
    record.state = state([ONE], generation=8)
    assert port.applied("tiny") == confirmed(7)


def test_another_process_confirms_without_publishing(site, tmp_path, port, record):
    port.publish(record.state)
    assert manager(site, tmp_path, record).applied("tiny") == confirmed(7)


def test_virtual_ports_are_members_too(site, tmp_path, record):
    port = manager(site, tmp_path, record, virtual_ports=True)
    physical = min(wanted(record.state)[key_of(ONE, record.state)])
    record.state = replace(record.state, virtual_guids={physical: (0xAA01, 0xAA02)})
    port.publish(record.state)
    assert {physical, 0xAA01, 0xAA02} <= site.ufm.members()[key_of(ONE, record.state)]
    assert port.applied("tiny") == confirmed(7)


def test_many_ports_take_several_requests(site, tmp_path, record):
    port = manager(site, tmp_path, record, virtual_ports=True)
    physical = min(wanted(record.state)[key_of(ONE, record.state)])
    many = tuple(range(1, 1200))
    record.state = replace(state([ONE]), virtual_guids={physical: many})
    port.publish(record.state)
    assert port.applied("tiny") == confirmed(7)
    record.state = state([], 8)
    port.publish(record.state)
    assert site.ufm.members() == {}
    assert [verb for verb, _, _ in site.ufm.changes] == ["add"] * 3 + ["remove"] * 3


def test_a_key_outside_of_ours_is_refused(site, tmp_path, record):
    port = manager(site, tmp_path, record, pkeys=range(0x100, 0x102))
    with pytest.raises(Conflict, match=r"\[opensm\] pkeys"):
        port.publish(record.state)
    assert site.ufm.members() == {}


def test_the_ports_of_another_fabric_are_refused(site, port, record):
    with pytest.raises(InvalidInput, match="ufm"):
        port.publish(replace(record.state, fabric="other"))
    with pytest.raises(InvalidInput, match="ufm"):
        port.applied("other")
    assert site.ufm.calls == []


# -- drift -----------------------------------------------------------------------------------


def add(site, pkey, *guids, **how):
    texts = [f"{guid:016x}" for guid in guids]
    body = {"pkey": f"{pkey:#x}", "guids": texts, "index0": True, "membership": "full", **how}
    site.ufm.add(body)


def test_what_others_write_in_our_range_is_told_and_removed(site, port, record):
    port.publish(record.state)
    victim = key_of(ONE, record.state)
    add(site, victim, FOREIGN)
    add(site, 0x1FFF, FOREIGN)
    site.ufm.make({"pkey": "0x1ffe"})
    seen = port.applied("tiny")
    assert (seen.generation, seen.condition) == (None, Condition.WRONG_KEYS)
    assert f"{FOREIGN:#018x}" in seen.problem
    assert f"key {victim:#06x}" in seen.problem
    assert "0x1ffe is an empty partition" in seen.problem
    port.publish(record.state)
    assert site.ufm.members() == wanted(record.state)
    assert port.applied("tiny") == confirmed(7)


def test_other_ranges_are_never_touched(site, port, record):
    ours = min(wanted(record.state)[key_of(ONE, record.state)])
    theirs = {0x50: {FOREIGN}, 0x2000: {FOREIGN, ours}}
    for pkey, guids in theirs.items():
        add(site, pkey, *guids, membership="limited")
    site.ufm.make({"pkey": "0x2001"})
    port.publish(record.state)
    assert port.applied("tiny") == confirmed(7)
    assert site.ufm.members() == {**wanted(record.state), **theirs, 0x2001: set()}
    record.state = state([], generation=8)
    port.publish(record.state)
    assert site.ufm.members() == {**theirs, 0x2001: set()}


def test_members_that_lost_their_membership_or_index_get_it_back(site, port, record):
    port.publish(record.state)
    pkey = key_of(WIDE, record.state)
    members = site.ufm.partitions[f"{pkey:#x}"].members
    first, second, third, *_ = members
    members[first].membership = "limited"
    members[second].index0 = False
    del members[third]
    problem = port.applied("tiny").problem
    assert "limited members, or not at index 0" in problem
    assert f"lacks 0x{third}" in problem
    port.publish(record.state)
    assert port.applied("tiny") == confirmed(7)


@pytest.mark.parametrize(
    "flag", [str, lambda flag: str(flag).lower(), int, lambda flag: "yes" if flag else "no"]
)
def test_booleans_are_read_as_such_also_as_text(site, port, record, flag):
    site.ufm.flag = flag
    port.publish(record.state)
    assert port.applied("tiny") == confirmed(7)
    members = site.ufm.partitions[f"{key_of(WIDE, record.state):#x}"].members
    moved = next(iter(members))
    members[moved].index0 = False
    seen = port.applied("tiny")
    assert seen.generation is None
    assert "limited members, or not at index 0" in seen.problem
    port.publish(record.state)
    assert members[moved].index0 is True
    assert port.applied("tiny") == confirmed(7)


def test_what_is_no_boolean_confirms_nothing(site, port, record):
    port.publish(record.state)
    site.ufm.flag = lambda flag: "perhaps"
    with pytest.raises(Unavailable, match="partitions in an unknown form"):
        port.applied("tiny")


def test_a_default_partition_of_full_members_confirms_nothing(site, port, record):
    port.publish(record.state)
    site.ufm.default_membership = "full"
    seen = port.applied("tiny")
    assert (seen.generation, seen.condition) == (None, Condition.WRONG_SETTINGS)
    assert "default_membership" in seen.problem
    site.ufm.release = (6, 18, 0)  # this release does not tell
    assert port.applied("tiny") == confirmed(7)


# -- late rounds -----------------------------------------------------------------------------


def test_a_late_round_cannot_add_what_was_withdrawn(site, tmp_path, port, record):
    early = record.state
    port.publish(early)
    record.state = state([ONE], generation=8)
    port.publish(record.state)
    for other in (port, manager(site, tmp_path, record)):
        with pytest.raises(Conflict, match="comes late"):
            other.publish(early)
    assert site.ufm.members() == wanted(record.state)


def test_a_round_that_is_overtaken_stops_before_its_next_change(site, port, record):
    """Another worker records and publishes generation 8 while this one publishes 7."""
    newest = state([ONE], generation=8)
    original = port._ufm.add

    def overtaken(pkey, guids, **how):
        original(pkey, guids, **how)
        record.state = newest

    port._ufm.add = overtaken
    with pytest.raises(Conflict, match="comes late"):
        port.publish(record.state)
    assert [verb for verb, _, _ in site.ufm.changes] == ["add"]


def test_no_withdrawal_is_confirmed_that_a_lost_request_could_undo(site, tmp_path, record):
    """The request is carried out late, after the generation that withdraws what it adds."""
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    memory = remembering("tiny", clock=lambda session: now[0])
    port = manager(site, tmp_path, record, memory=memory)
    site.faults.plan("late", method="POST")
    with pytest.raises(Unavailable):
        port.publish(record.state)
    record.state = state([], generation=8)
    again = manager(site, tmp_path, record, memory=memory)  # the worker starts anew
    for one in (port, again):
        one.publish(record.state)
        seen = one.applied("tiny")
        assert seen.generation is None
        assert "may still add" in seen.problem
        assert "as generation 7 asked" in seen.problem
    site.faults.carry_out_all()
    seen = again.applied("tiny")
    assert (seen.generation, seen.condition) == (None, Condition.WRONG_KEYS)
    again.publish(record.state)
    assert site.ufm.members() == {}
    now[0] += timedelta(seconds=59)
    assert again.applied("tiny").generation is None
    now[0] += timedelta(seconds=1)
    assert again.applied("tiny") == confirmed(8)


def test_no_withdrawal_is_confirmed_that_a_job_could_undo(site, tmp_path, record):
    memory = remembering("tiny")
    site.ufm.asynchronous, site.ufm.slowness = True, 10**9
    port = manager(site, tmp_path, record, memory=memory, job_timeout=1e-9)
    with pytest.raises(Unavailable, match="Running"):
        port.publish(record.state)
    site.ufm.asynchronous = False
    record.state = state([], generation=8)
    port = manager(site, tmp_path, record, memory=memory)
    port.publish(record.state)
    assert "may still add" in port.applied("tiny").problem
    site.ufm.finish_jobs()
    assert port.applied("tiny").condition is Condition.WRONG_KEYS
    port.publish(record.state)
    assert port.applied("tiny") == confirmed(8)
    assert memory.under_way("tiny") == []


@pytest.mark.parametrize("answer", [{}, []])
def test_a_job_that_ufm_has_forgotten_has_ended(site, tmp_path, record, answer):
    memory = remembering("tiny")
    left = PartitionRequest("tiny", 0x100, True, frozenset({1}), 6)
    memory.note_job(memory.begin(left), "99")
    site.ufm.unknown = answer
    port = manager(site, tmp_path, record, memory=memory)
    port.publish(record.state)
    assert port.applied("tiny") == confirmed(7)


def test_a_lost_removal_holds_up_what_it_would_undo(site, tmp_path, port, record):
    """A tenant goes and comes again while the removal of its ports may still be carried out."""
    port.publish(record.state)
    record.state = state([POD, WIDE], generation=8)
    site.faults.plan("late", method="POST")
    with pytest.raises(Unavailable):
        port.publish(record.state)
    record.state = state(generation=9)
    port.publish(record.state)
    seen = port.applied("tiny")
    assert (seen.generation, "may still remove" in seen.problem) == (None, True)


def test_what_was_withdrawn_is_remembered_by_later_processes(site, tmp_path, record):
    memory = remembering("tiny")
    port = manager(site, tmp_path, record, memory=memory)
    port.publish(record.state)
    early, record.state = record.state, state([ONE], generation=8)
    port.publish(record.state)
    gone = wanted(early)[key_of(WIDE, early)]
    add(site, key_of(WIDE, early), *gone)
    port = manager(site, tmp_path, record, memory=memory)
    assert f"{len(gone)} of them withdrawn by generation 8" in port.applied("tiny").problem


# -- jobs and faults ---------------------------------------------------------------------------


def test_jobs_are_followed(site, port, record):
    site.ufm.asynchronous, site.ufm.slowness = True, 3
    port.publish(record.state)
    assert port.applied("tiny") == confirmed(7)
    assert any(path.startswith("/jobs/") for _, path in site.ufm.calls)


def test_a_job_that_fails_is_told_and_tried_again(site, port, record):
    site.ufm.asynchronous, site.ufm.failing_jobs = True, 1
    with pytest.raises(Unavailable, match="job 1 is 'Completed With Errors'"):
        port.publish(record.state)
    assert port.applied("tiny").generation is None
    port.publish(record.state)
    assert port.applied("tiny") == confirmed(7)


def test_a_job_that_does_not_end_is_given_up(site, tmp_path):
    site.ufm.asynchronous, site.ufm.slowness = True, 10**9
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    rest = UfmRest(settings(site, tmp_path), sleep=sleep, clock=lambda: now[0])
    with pytest.raises(Unavailable, match="Running"):
        rest.wait(rest.add(0x100, [1], ip_over_ib=False))
    assert now[0] <= 60


@pytest.mark.parametrize("kind", ["refused", "lost", "half", "garbage", 429, 500, 503])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_after_a_fault_the_next_round_brings_what_is_missing(site, port, record, kind, method):
    site.faults.plan(kind, method=method)
    with pytest.raises(Unavailable, match="UFM 127"):
        port.publish(record.state)
    if method == "GET":
        assert site.ufm.members() == {}
    port.publish(record.state)
    assert port.applied("tiny") == confirmed(7)
    assert site.ufm.members() == wanted(record.state)


def test_a_slow_answer_is_not_awaited(site, tmp_path, record):
    port = manager(site, tmp_path, record, timeout=0.2)
    site.faults.plan("slow", method="POST")
    with pytest.raises(Unavailable, match="Timeout"):
        port.publish(record.state)
    site.faults.given_up.set()
    port.publish(record.state)
    assert port.applied("tiny") == confirmed(7)


def test_partitions_in_another_form_are_refused(site, port, record, monkeypatch):
    monkeypatch.setattr(site.ufm, "shown", lambda key, **how: {"guids": [{"guid": "x"}]})
    with pytest.raises(Unavailable, match="unknown form"):
        port.publish(record.state)
    assert site.ufm.members() == {}


def test_what_changes_between_two_sets_of_partitions():
    right, limited = Member(True, True), Member(False, True)
    present = {1: {10: right, 11: limited, 12: right}, 2: {}, 3: {13: right}, 4: {14: right}}
    found = changes({1: frozenset({10, 11, 15}), 4: frozenset({14})}, present)
    nothing: frozenset[int] = frozenset()
    assert found == [
        PartitionChange(1, frozenset({11, 12}), frozenset({11, 15})),
        PartitionChange(2, nothing, nothing, empty=True),
        PartitionChange(3, frozenset({13}), nothing),
    ]


# -- files ---------------------------------------------------------------------------------------


def test_files_have_to_be_current_too(site, tmp_path, record):
    files = LocalSubnetManager(
        Settings(str(tmp_path / "files"), enforcement="chains"), attended=True
    )
    port = manager(site, tmp_path, record, files)
    port.publish(record.state)
    assert port.applied("tiny") == confirmed(7)
    assert port.on_disk("tiny") == (7, "")
    (tmp_path / "files" / "tiny" / "current" / "chains.conf").write_text("")
    assert "chains.conf" in port.applied("tiny").problem
    port.publish(record.state)
    assert port.applied("tiny") == confirmed(7)


# -- logging in ------------------------------------------------------------------------------------


def test_a_certificate_logs_in_and_an_unknown_authority_is_refused(tmp_path, record):
    authority = certificate(tmp_path, "authority")
    server, _ = (certificate(tmp_path, name, authority) for name in ("ufm", "laas"))
    stranger = certificate(tmp_path, "stranger")
    with standing_in(tls=server, clients=authority[0]) as site:
        cert, key, ca = (tmp_path / name for name in ("laas.pem", "laas.key", "authority.pem"))
        known = UfmRest(UfmSettings(site.url, cert_file=cert, key_file=key, ca_file=ca))
        assert known.release() == "6.23.1"
        other = tmp_path / "stranger.pem"
        assert stranger[0] == str(other)
        for wrong in (other, None):
            distrusts = UfmSettings(site.url, cert_file=cert, key_file=key, ca_file=wrong)
            with pytest.raises(Unavailable, match="SSLError"):
                UfmRest(distrusts).release()
        by_token = settings(site, tmp_path, ca_file=ca)
        assert UfmRest(by_token).release() == "6.23.1"


def test_a_new_token_is_used_at_once(site, tmp_path, port, record):
    port.publish(record.state)
    site.ufm.tokens.clear()
    with pytest.raises(Unavailable, match=r"refuses GET .*check \[ufm\] token_file"):
        port.applied("tiny")
    (tmp_path / "ufm-token").write_text(site.token())
    assert port.applied("tiny") == confirmed(7)


def test_no_secret_is_logged_or_told(site, tmp_path, record, caplog):
    caplog.set_level(logging.DEBUG)
    port = manager(site, tmp_path, record, timeout=0.2)
    token = (tmp_path / "ufm-token").read_text().strip()
    port.publish(record.state)
    told = []
    for kind in ("refused", "lost", "half", "garbage", "slow", 500):
        site.faults.plan(kind)
        with pytest.raises(Unavailable) as failed:
            port.applied("tiny")
        told.append(str(failed.value))
    (tmp_path / "ufm-token").write_text(f"{token}\nsecond line")
    with pytest.raises(Unavailable) as failed:
        port.applied("tiny")
    told.append(str(failed.value))
    assert token not in caplog.text
    assert not [text for text in told if token in text]


class Listener:
    """Another server, which notes that somebody connects to it."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/ufmRestV3/resources/pkeys"

    def was_asked(self):
        try:
            self.socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_credentials_follow_a_redirection(site, port, record, status):
    record.state = state([])
    port.publish(record.state)
    record.state = state(generation=8)
    elsewhere = Listener()
    with closing(elsewhere.socket):
        calls = {
            "GET": lambda: port.applied("tiny"),
            "POST": lambda: port.publish(record.state),
            "PUT": lambda: port._ufm.set_unhealthy([PortRef(1, 2)], True),
            "DELETE": lambda: port._ufm.delete(0x100),
        }
        for method, call in calls.items():
            site.faults.plan(Redirect(status, elsewhere.url), method=method)
            with pytest.raises(Unavailable, match=f"answers {status} to {method}"):
                call()
        assert not elsewhere.was_asked()
    assert site.ufm.members() == {}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"url": "http://ufm.example.org"}, "use https"),
        ({"url": "ftp://ufm.example.org"}, "https://"),
        ({"url": ""}, "https://"),
        ({"url": "https://admin:pw@ufm.example.org"}, "alone"),
        ({"url": "https://ufm.example.org:port"}, r"\[ufm\] url"),
        ({"token_file": None}, "token_file"),
        ({"cert_file": "ufm-token"}, "not both"),
        ({"token_file": None, "cert_file": "ufm-token"}, "needs its key"),
        ({"token_file": "open-token"}, "chmod 600"),
        ({"token_file": "empty-token"}, "empty"),
        ({"token_file": "missing"}, "no such file"),
        ({"ca_file": "missing"}, "exists"),
    ],
)
def test_wrong_settings_are_refused(site, tmp_path, given, named):
    settings(site, tmp_path)
    (tmp_path / "open-token").write_text("secret")
    (tmp_path / "empty-token").touch(0o600)
    paths = {k: tmp_path / v if v and k != "url" else v for k, v in given.items()}
    with pytest.raises(InvalidInput, match=named) as failed:
        UfmSettings(**{"url": site.url, "token_file": tmp_path / "ufm-token", **paths})
    assert "pw" not in str(failed.value)


# -- the service -----------------------------------------------------------------------------------

OPTIONS = """reached_by = ufm
pkeys = 0x0100-0x01ff
[ufm]
url = {url}
fabric = {fabric}
token_file = {path}/ufm-token
"""


def parts(directory, text):
    (directory / "laas.conf").write_text(f"[DEFAULT]\nstate_dir = {directory}\n[opensm]\n{text}")
    return Composition(options_from(directory / "laas.conf"))


def test_combinations_of_options_that_are_refused(site, tmp_path):
    settings(site, tmp_path)
    good = OPTIONS.format(url=site.url, fabric="main", path=tmp_path)
    assert parts(tmp_path, good).subnet_managers.of_worker.confirmed_by is ConfirmedBy.UFM
    for text, named in (
        (good.replace("pkeys = 0x0100-0x01ff\n", ""), r"\[opensm\] pkeys"),
        (good.replace("fabric = main", ""), r"\[ufm\] fabric"),
        (good.replace("\n[ufm]", "\ndump_command = dump_lfts\n[ufm]"), "reached_by"),
    ):
        with pytest.raises(InvalidInput, match=named):
            parts(tmp_path, text).subnet_managers.of_worker  # noqa: B018


def test_an_allocation_is_synced_while_ufm_says_so(site, tmp_path):
    settings(site, tmp_path)
    text = OPTIONS.format(url=site.url, fabric="main", path=tmp_path)
    text += "[worker]\ndrift_interval = 0.05\n"
    with closing(Site(tmp_path, text)) as service:
        asked = service.ask("blue")
        assert asked["configs_synced"] is False
        assert site.ufm.calls == [], "the API does not ask UFM"
        site.faults.plan(503, times=3)
        active = service.settle(asked["id"], "active")
        assert (active["configs_synced"], active["confirmed_by"]) == (True, "ufm")
        reason = "routes written, partitions confirmed by UFM"
        assert active["history"][-1]["reason"].startswith(reason)
        (pkey,) = site.ufm.members()
        assert len(site.ufm.members()[pkey]) == 5
        add(site, pkey, FOREIGN)
        fabric = service.look("/v1/fabrics/main/routing")
        assert fabric["subnet_managers"][0]["name"] == "ufm"
        checked = service.parts.fabric_leases.check_drift
        (finding,) = eventually(checked, "no drift is found")
        assert f"{FOREIGN:#018x}" in finding
        assert service.look(f"/v1/allocations/{asked['id']}")["configs_synced"] is False
        assert FOREIGN not in site.ufm.members()[pkey], "it is repaired"
        service.parts.fabric_leases.run_once()
        assert service.look(f"/v1/allocations/{asked['id']}")["configs_synced"] is True
        metrics = service.client.get("/metrics").text
        assert 'laas_drift_total{fabric="main",kind="keys"} 1.0' in metrics


def test_a_tenant_of_a_link_that_ufm_shows_down_gets_another_one(tmp_path):
    """The configured service, from UFM's ports to new links, and to marks of a flapping link."""
    made = generate(Description(xgft="2;4,4;1,8"))
    fabric = Fabric(ibnetdiscover.parse(ibnetdiscover.render(made.inventory)))
    with standing_in(Ufm(fabric)) as site:
        settings(site, tmp_path)
        text = OPTIONS.format(url=site.url, fabric="main", path=tmp_path)
        text += "ports_interval = 0.1\nmark_unhealthy = true\n[faults]\nhold_down = 0\nflaps = 2\n"
        with closing(Site(tmp_path, text)) as service:
            id = service.ask("blue")["id"]
            link = service.settle(id, "active")["links"][0]
            cable = made.inventory.cable_of_link[parse_link(link)]

            def links():
                service.parts.fabric_leases.run_once()
                shown = service.look(f"/v1/allocations/{id}")
                return [] if shown["changing"] or shown["degraded"] else shown["links"]

            def failed():
                service.parts.fabric_leases.run_once()
                return (
                    parse_link(link) in service.parts.store.fabrics.ledger("main")[0].failed_links
                )

            fabric.down.add((cable.upper.guid, cable.upper.port))
            eventually(lambda: links() and link not in links(), "the link stays the tenant's", 60)
            assert service.look(f"/v1/allocations/{id}")["configs_synced"] is True
            fabric.down.clear()
            eventually(lambda: not failed(), "the link does not come back", 60)
            fabric.down.add((cable.upper.guid, cable.upper.port))
            eventually(failed, "the link does not fail again", 60)
            site.ufm.finish_jobs()

            def marked():
                service.parts.fabric_leases.run_once()
                site.ufm.finish_jobs()
                return site.ufm.unhealthy.keys()

            both = {f"{end.guid:016x}_{end.port}" for end in (cable.lower, cable.upper)}
            eventually(lambda: marked() == both, lambda: str(site.ufm.unhealthy), 60)
