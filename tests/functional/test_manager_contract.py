# SPDX-License-Identifier: Apache-2.0

"""One contract for every subnet-manager port: local OpenSM, agent, UFM.

The switches of the first two are a file of tables; the agent reports what a supervisor of its own
directory sees. UFM is the stand-in.
"""

from __future__ import annotations

import inspect
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from laas_service.adapters.agent_switches import AgentSubnetManager
from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.app.ports.agents import Agent
from laas_service.app.ports.subnet_manager import SubnetManager, SubnetManagerReader
from laas_service.domain.errors import Conflict, Unavailable
from laas_service.messages import AgentReport, Condition, ConfirmedBy
from opensm_writer.desired import partitions
from opensm_writer.local import LocalSubnetManager
from opensm_writer.opensm import OpenSm
from tests.ufm.cabling import Fabric
from tests.ufm.manager import Record, manager
from tests.ufm.server import standing_in
from tests.ufm.state import Ufm
from tests.unit.opensm_writer.states import ONE, POD, TINY, WIDE, state
from tests.waiting import eventually

LEASE = 15.0


class LocalSite:
    """OpenSM on the worker's machine; its switches run the tables that it read at a reload."""

    by = ConfirmedBy.SWITCHES

    def __init__(self, directory, record):
        self.record, self.switches = record, directory / "switches"
        self.files = directory / "files"
        reads = ("cp", str(self.files / "tiny" / "current" / "lfts"), str(self.switches))
        opensm = OpenSm(reload_command=reads, dump_command=("cat", str(self.switches)), timeout=60)
        self.port: Any = LocalSubnetManager(self.files, opensm, patience=0)

    def catch_up(self):
        """OpenSM has read the files already."""

    def tamper(self):
        text = self.switches.read_text()
        self.switches.write_text(re.sub(r"^(0x0001) \d+", r"\1 001", text, flags=re.M))

    def vanish(self):
        self.switches.unlink()

    def members(self):
        text = (self.files / "tiny" / "current" / "partitions.conf").read_text()
        found = {}
        for pkey, body in re.findall(r"^laas-[^=]*=0x(\w+)[^:]*:([^;]*);", text, re.M):
            found[int(pkey, 16)] = {int(g, 16) for g in re.findall(r"0x\w+", body)}
        return found


class AgentSite(LocalSite):
    """An agent whose machine has such an OpenSM; it fetches what is recorded."""

    by = ConfirmedBy.AGENT

    def __init__(self, directory, record):
        super().__init__(directory, record)
        self.machine, self.reports, self.age = self.port, [], 0.0
        self.port = AgentSubnetManager(
            self,  # type: ignore[arg-type]
            seconds=LEASE,
            patience=0,
            wake=self.fetch,
            sleep=lambda seconds: None,
        )

    def fetch(self):
        self.machine.publish(self.record.state)
        self.report()

    def report(self):
        seen = self.machine.applied("tiny")
        there = seen.generation is not None
        condition = Condition.APPLIED if there else Condition.DIFFERS
        report = AgentReport(condition, seen.problem, seen.generation, stamp=seen.stamp)
        self.reports = [Agent("a", True, report, datetime.now(UTC), self.age)]

    def catch_up(self):
        self.report()

    def tamper(self):
        super().tamper()
        self.report()

    def vanish(self):
        self.age = LEASE
        self.report()

    def all(self, fabric):
        return self.reports


class UfmSite:
    """A UFM, in which changes are jobs that end when ``catch_up`` is called."""

    by = ConfirmedBy.UFM

    def __init__(self, directory, record, standin):
        self.record, self.standin = record, standin
        self.port = manager(standin, directory, record, mark_unhealthy=True)

    def catch_up(self):
        self.standin.ufm.finish_jobs()

    def tamper(self):
        for partition in self.standin.ufm.partitions.values():
            partition.members.pop(next(iter(partition.members), ""), None)

    def vanish(self):
        self.standin.faults.plan("refused", times=9)

    def members(self):
        return self.standin.ufm.members()


@pytest.fixture(params=["local", "agent", "ufm"])
def site(request, tmp_path):
    record = Record(state(generation=7))
    if request.param != "ufm":
        yield {"local": LocalSite, "agent": AgentSite}[request.param](tmp_path, record)
        return
    fabric = Fabric(ibnetdiscover.parse(ibnetdiscover.render(TINY.inventory)))
    with standing_in(Ufm(fabric)) as standin:
        yield UfmSite(tmp_path, record, standin)


def wanted(fabric_state):
    return {p.pkey: set(p.members) for p in partitions(fabric_state)}


def published(site):
    site.port.publish(site.record.state)
    site.catch_up()


def applied(site):
    """What is applied; a manager that cannot be asked confirms nothing."""
    try:
        return site.port.applied("tiny")
    except Unavailable:
        return None


def test_it_is_the_port(site):
    port: SubnetManager = site.port
    assert port.prepared("tiny") is True
    reading = port.reading("tiny")
    if site.by is ConfirmedBy.UFM:
        assert reading is not None
        assert (reading.ends, reading.unhealthy) == ((), ())
        assert reading.switches_read == len(TINY.inventory.switches)
    else:
        assert reading is None, "nothing reads the ports here"
    assert port.counters("tiny") == ()


def test_no_question_changes_anything(site, tmp_path):
    """Each method of ``SubnetManagerReader`` leaves files and UFM as they are."""
    published(site)
    ports = frozenset(end for cable in TINY.inventory.cables for end in (cable.lower, cable.upper))
    arguments = {"fabric": "tiny", "wanted": ports}
    if site.by is ConfirmedBy.UFM:
        site.standin.ufm.calls.clear()
    before = contents(tmp_path)
    questions = [name for name in vars(SubnetManagerReader) if not name.startswith("_")]
    for name in questions:
        method = getattr(site.port, name)
        method(*(arguments[given] for given in inspect.signature(method).parameters))
    assert len(questions) > 5
    assert contents(tmp_path) == before
    if site.by is ConfirmedBy.UFM:
        assert site.standin.ufm.calls
        assert {method for method, _ in site.standin.ufm.calls} == {"GET"}


def contents(directory):
    """What the files of a directory have."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_nothing_is_confirmed_before_anything_is_published(site):
    seen = applied(site)
    assert seen is not None
    assert seen.generation is None
    assert seen.problem


def test_a_generation_is_confirmed_with_its_stamp_and_by_whom(site):
    published(site)
    seen = applied(site)
    assert (seen.generation, seen.stamp, seen.problem) == (7, "", None)
    assert (seen.by, site.port.confirmed_by) == (site.by, site.by)
    assert seen.by.was_read
    assert site.members() == wanted(site.record.state)


def test_publishing_again_changes_nothing(site):
    published(site)
    published(site)
    assert applied(site).generation == 7
    assert site.members() == wanted(site.record.state)


def test_a_later_generation_takes_the_place(site):
    published(site)
    for generation, tenants in ((8, [ONE, WIDE]), (9, [POD]), (10, [])):
        site.record.state = state(tenants, generation)
        published(site)
        assert applied(site).generation == generation
        assert site.members() == wanted(site.record.state)


def test_a_late_round_does_not_bring_back_what_was_withdrawn(site):
    early = site.record.state
    published(site)
    site.record.state = state([ONE], 8)
    published(site)
    try:
        site.port.publish(early)
    except Conflict:
        pass
    else:
        assert site.by is ConfirmedBy.AGENT, "its agent fetches what is recorded"
    site.catch_up()
    assert site.members() == wanted(site.record.state)
    assert applied(site).generation == 8


def test_what_others_change_is_seen_and_repaired(site):
    published(site)
    site.tamper()
    seen = applied(site)
    assert seen.generation is None
    assert seen.problem
    published(site)
    eventually(lambda: applied(site).generation == 7, lambda: str(applied(site)), 40)
    assert site.members() == wanted(site.record.state)


def test_a_manager_that_does_not_answer_confirms_nothing(site):
    published(site)
    site.vanish()
    seen = applied(site)
    assert seen is None or (seen.generation is None and seen.problem)
