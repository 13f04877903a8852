# SPDX-License-Identifier: Apache-2.0

"""The body of an agent's report, and the value that the service reads from it."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from laas_service.adapters import service_rest
from laas_service.api import schemas
from laas_service.domain.faults.reading import (
    EndReading,
    FabricReading,
    PortState,
    UnknownCable,
    UnknownSwitch,
)
from laas_service.domain.inventory import PortRef
from laas_service.messages import AgentReport, Condition
from opensm_writer.opensm import OpenSm

GUIDS = st.integers(0, 2**64 - 1)
PORTS = st.builds(PortRef, GUIDS, st.integers(0, 255))
STATES = st.sampled_from([PortState.DOWN, PortState.SILENT, PortState.UNREAD])
ENDS = st.one_of(
    st.builds(EndReading, PORTS, STATES, st.none()),
    st.builds(EndReading, PORTS, st.just(PortState.OTHER), PORTS),
)
COUNTS = st.integers(0, 2**31 - 1)
NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=64)
READINGS = st.builds(
    FabricReading,
    at=st.just(0.0),
    ends=st.lists(ENDS, max_size=30).map(tuple),
    observer=st.none() | PORTS,
    nodes_read=COUNTS,
    switches_read=COUNTS,
    unknown_switches=st.lists(st.builds(UnknownSwitch, GUIDS, NAMES), max_size=3).map(tuple),
    unknown_cables=st.lists(st.builds(UnknownCable, PORTS, PORTS), max_size=3).map(tuple),
    ends_left_out=COUNTS,
)
SWITCHES = st.lists(GUIDS, max_size=5).map(tuple)


def received(seen: AgentReport, later: float = 0.0) -> AgentReport:
    body = json.loads(json.dumps(service_rest._report(seen, time.time())))
    return schemas.AgentReport.model_validate(body).seen(time.time() + later)


@given(READINGS, SWITCHES, SWITCHES)
def test_a_report_arrives_as_it_was_sent(reading, without, unconfirmed):
    reading = replace(reading, at=time.time())
    sent = AgentReport(Condition.APPLIED, None, 7, 8, without, unconfirmed, reading)
    got = received(sent)
    assert got.reading is not None
    assert sorted(got.reading.ends, key=repr) == sorted(reading.ends, key=repr)
    assert replace(got, reading=replace(got.reading, at=reading.at, ends=reading.ends)) == sent


def test_the_time_of_a_reading_is_that_of_the_service():
    """The clock of the agent may be wrong; only how old its reading is counts."""
    seen = AgentReport(Condition.APPLIED, None, 7, 8, reading=FabricReading(time.time() - 5))
    got = received(seen, later=1000)
    assert got.reading is not None
    assert 990 < got.reading.at - time.time() < 996


def test_earlier_services_get_no_field_that_they_do_not_know():
    seen = AgentReport(Condition.APPLIED, None, 7, 8)
    assert set(service_rest._report(seen, time.time())) == {
        "condition",
        "detail",
        "generation",
        "published",
    }


def test_a_long_reading_is_cut():
    ends = tuple(EndReading(PortRef(2**63 + n, n % 255), PortState.DOWN) for n in range(2000))
    seen = AgentReport(Condition.APPLIED, None, 7, 8, reading=FabricReading(time.time(), ends))
    assert len(json.dumps(service_rest._report(seen, time.time()))) < 50_000
    got = received(seen).reading
    assert got is not None
    assert got.ends == ends[: len(got.ends)]
    assert 1000 < len(got.ends) == 2000 - got.ends_left_out


def test_a_jump_of_the_agents_clock_makes_no_reading_older(monkeypatch):
    """Readings and reports are dated by one clock, which does not follow this machine's."""
    opensm = OpenSm()
    seen = AgentReport(Condition.APPLIED, None, 7, 8, reading=FabricReading(opensm.now()))
    monkeypatch.setattr(time, "time", lambda: 2e9)
    assert service_rest._report(seen, opensm.now())["reading"]["age"] < 3600
