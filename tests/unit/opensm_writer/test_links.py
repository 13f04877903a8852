# SPDX-License-Identifier: Apache-2.0

"""The ports that ``iblinkinfo -l`` prints, and how they compare with the recorded cables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laas_service.adapters.fabric_import import generator
from laas_service.domain.faults.reading import (
    EndReading,
    PortState,
    UnknownCable,
    UnknownSwitch,
)
from laas_service.domain.inventory import ADAPTER_PORT, PortRef
from opensm_writer import links
from tests.unit.opensm_writer.iblinkinfo import line, output

CAPTURED = """\
0x0000000000200003 "                        spine1"      6    2[  ] ==( 4X           2.5 Gbps Active/  LinkUp)==>  0x0000000000200001      3    4[  ] "leaf1" (Could be 12X Could be 10.0 Gbps)
0x0000000000200003 "                        spine1"      6    3[  ] ==(                Down/ Polling)==>             [  ] "" ( )
0x0000000000100003 "                      h1 HCA-1"      5    1[  ] ==( 4X           2.5 Gbps Active/  LinkUp)==>  0x0000000000200000      2    2[  ] "leaf0" (Could be 12X Could be 10.0 Gbps)
0x0000000000200000 "                         leaf0"      2    3[  ] ==(                Down/ Polling)==>             [  ] "" ( )
0x0000000000200000 "                         leaf0"      2    4[  ] ==( 4X           2.5 Gbps Initialize/  LinkUp)==>      "Port not available"
 ./libibnetdisc/query_smp.c:186; umad (DR path slid 0; dlid 0; 0,1,4 Attr 0x11:0) bad status 110; Connection timed out
0x0000000000100001 "                      h0 HCA-1"      1    1[  ] ==( 4X           2.5 Gbps Active/  LinkUp)==>  0x0000000000200000      2    1[  ] "leaf0" (Could be 12X Could be 10.0 Gbps)

"""  # noqa: E501 - as printed

MADE = generator.generate(generator.Description(xgft="3;2,2,2;1,2,2", subnet_managers=1))
CABLES = MADE.inventory.cable_ends
BETWEEN = [cable for cable in CABLES if cable[1].port != ADAPTER_PORT]
MANAGER = next(e for e in MADE.inventory.endpoints if e.host is None)
SPINE, OTHER_SPINE = (guid for guid in MADE.inventory.spine_guids[:2])
LEAF = MADE.inventory.leaf_guids[-1]


def compared(text: str) -> links.Comparison:
    return links.compared(CABLES, links.parsed(text), 5.0)


def words(comparison: links.Comparison) -> dict[PortRef, PortState]:
    return {end: state for end, state, _ in comparison.reading.ends}


def cables_of(guid: int) -> list[tuple[PortRef, PortRef]]:
    """Its own end, the other end."""
    return [
        (end, other) for pair in CABLES for end, other in (pair, pair[::-1]) if end.guid == guid
    ]


def test_captured_lines():
    found = links.parsed(CAPTURED)
    assert found.lids == {0x200003: 6, 0x100003: 5, 0x200000: 2, 0x100001: 1}
    assert found.ports == {
        PortRef(0x200003, 2): PortRef(0x200001, 4),
        PortRef(0x200003, 3): PortState.DOWN,
        PortRef(0x100003, 1): PortRef(0x200000, 2),
        PortRef(0x200000, 3): PortState.DOWN,
        PortRef(0x200000, 4): PortState.SILENT,
        PortRef(0x100001, 1): PortRef(0x200000, 1),
    }
    assert found.names[0x200003] == "spine1"
    assert found.start == PortRef(0x100001, 1)
    assert found.switches == {0x200000, 0x200003}
    assert found.skipped == 1


@pytest.mark.parametrize(
    "link",
    [
        "( 4X   10.0 Gbps (FDR10) Active/  LinkUp)",
        "( 4X      undefined (33) Active/  LinkUp)",
        "(12X       53.125 Gbps Armed/LinkErrorRecovery)",
    ],
)
def test_other_speeds_and_external_ports(link):
    head = '0x0000000000000009 "MF0;core-1:MQM8700/U1"     13   40[17] =='
    text = f'{head}{link}==>  0x000000000000000a     1   2[ 3] "x" ( )\n'
    assert links.parsed(text).ports == {PortRef(9, 40): PortRef(10, 2)}


@pytest.mark.parametrize(
    "name",
    [
        'x" 3 1[ ] ==( Down/ Polling)==> [ ] "" ( )',
        '" 1 1[  ] ==(  Down/ Polling)==>  "Port not available"',
        '"\\" ( ) %s \x7f',
    ],
)
def test_the_name_of_a_host_does_not_change_the_state_of_a_switch(name):
    """A tenant chooses the node description of his host."""
    port, host = PortRef(9, 4), PortRef(11, 1)
    text = line(port, "leaf", host).replace('"a node"', f'"{name}"') + line(host, name, port)
    assert links.parsed(text).ports[port] == host


@pytest.mark.parametrize("junk", ["", "\n", "0x1 2", '0x0000000000000001 "a" 1 1[  ] ==', "ä" * 9])
def test_other_lines_are_skipped_and_counted(junk):
    found = links.parsed(junk + "\n" + CAPTURED)
    assert len(found.ports) == 6
    assert found.skipped == 1 + bool(junk.strip())


def test_a_sound_fabric():
    comparison = compared(output(CABLES, MANAGER.guid))
    reading = comparison.reading
    assert (reading.ends, reading.at, reading.observer) == ((), 5.0, PortRef(MANAGER.guid, 1))
    assert reading.switches_read == len(MADE.inventory.switches)
    assert reading.nodes_read == len(MADE.inventory.switches) + len(MADE.inventory.endpoints)
    assert (reading.unknown_cables, reading.unknown_switches) == ((), ())
    assert (comparison.dead, comparison.silent) == (frozenset(), frozenset())


def test_a_cut_cable():
    first, second = BETWEEN[3]
    comparison = compared(output(CABLES, MANAGER.guid, down=[first]))
    assert words(comparison) == {first: PortState.DOWN, second: PortState.DOWN}
    assert comparison.dead == frozenset()


def test_a_host_that_is_switched_off():
    """Only the end at the switch is listed."""
    switch, host = next(cable for cable in CABLES if cable[1].port == ADAPTER_PORT)
    assert words(compared(output(CABLES, MANAGER.guid, dead=[host.guid]))) == {
        switch: PortState.DOWN
    }


@pytest.mark.parametrize("kind", ["dead", "silent"])
@pytest.mark.parametrize("switch", [SPINE, LEAF])
def test_a_switch_that_does_not_answer(switch, kind):
    hosts = [other.guid for _, other in cables_of(switch) if other.port == ADAPTER_PORT]
    dead, silent = ([*hosts, switch], []) if kind == "dead" else (hosts, [switch])
    comparison = compared(output(CABLES, MANAGER.guid, dead=dead, silent=silent))
    state = PortState.DOWN if kind == "dead" else PortState.SILENT
    expected = {}
    for end, other in cables_of(switch):
        expected[end] = PortState.UNREAD
        if other.port != ADAPTER_PORT:
            expected[other] = state
    assert words(comparison) == expected
    assert getattr(comparison, kind) == {switch}
    assert len(comparison.dead | comparison.silent) == 1


def test_a_switch_behind_dead_switches_is_dead():
    above = {other.guid for _, other in cables_of(LEAF) if other.port != ADAPTER_PORT}
    hosts = {other.guid for _, other in cables_of(LEAF)} - above
    text = output(CABLES, MANAGER.guid, dead=[LEAF, *above, *hosts])
    assert compared(text).dead == {LEAF, *above}
    silent = next(iter(above))
    text = output(CABLES, MANAGER.guid, dead=[LEAF, *above - {silent}, *hosts], silent=[silent])
    comparison = compared(text)
    assert comparison.dead == above - {silent}
    assert comparison.silent == {LEAF, silent}


def test_a_switch_that_is_not_read_for_no_stated_reason():
    """Its ports do not answer, but one neighbour says that the link is up."""
    text = output(CABLES, MANAGER.guid)
    lines = [each for each in text.splitlines(True) if not each.startswith(f"0x{SPINE:016x}")]
    comparison = compared("".join(lines))
    assert (comparison.dead, comparison.silent) == (frozenset(), frozenset())
    assert set(words(comparison).values()) == {PortState.UNREAD}


def test_an_observer_that_is_cut_off_calls_nothing_dead():
    port = PortRef(MANAGER.guid, 1)
    comparison = compared(line(port, "manager", None, "Down"))
    assert comparison.reading.observer == port
    assert comparison.reading.ends[0] == EndReading(port, PortState.DOWN)
    assert set(words(comparison).values()) == {PortState.DOWN, PortState.UNREAD}
    assert comparison.dead == frozenset()
    leaf = MANAGER.at.guid
    text = [
        each
        for each in output(
            CABLES,
            MANAGER.guid,
            dead=[other.guid for _, other in cables_of(leaf) if other.port != ADAPTER_PORT],
        ).splitlines(True)
        if each.startswith(f"0x{leaf:016x}")
    ]
    assert compared("".join(text)).dead == frozenset()


def test_moved_cables_unknown_switches_and_unknown_cables():
    (first, second), (third, fourth) = BETWEEN[0], BETWEEN[-1]
    new = PortRef(0xABC, 1)
    swapped = {first: fourth, fourth: first, second: third, third: second}
    text = output(CABLES, MANAGER.guid, moved=swapped)
    assert compared(text).reading.ends == tuple(
        EndReading(end, PortState.OTHER, swapped[end]) for end in (first, second, third, fourth)
    )
    port = PortRef(first.guid, 99)
    text = (
        line(new, "new", port)
        + line(new._replace(port=2), "new", None, "Down")
        + line(port, "leaf", new)
        + output(CABLES, MANAGER.guid)
    )
    reading = compared(text).reading
    assert reading.ends == ()
    assert reading.unknown_switches == (UnknownSwitch(0xABC, "new"),)
    assert reading.unknown_cables == (UnknownCable(new, port),)


def test_a_host_on_another_port():
    (switch, host), new = CABLES[0], PortRef(LEAF, 77)
    moved = host._replace(port=1)
    assert host.port == ADAPTER_PORT
    text = line(new, "leaf", moved) + output(CABLES, MANAGER.guid, down=[switch])
    reading = compared(text).reading
    assert reading.ends == (EndReading(switch, PortState.DOWN),)
    assert reading.unknown_cables == (UnknownCable(min(moved, new), max(moved, new)),)


def test_a_reading_lists_a_bounded_number_of_ends(monkeypatch):
    monkeypatch.setattr(links, "MAX_ENDS", 3)
    reading = compared(output(CABLES, MANAGER.guid, dead=[SPINE, OTHER_SPINE])).reading
    whole = 2 * len(cables_of(SPINE) + cables_of(OTHER_SPINE))
    assert (len(reading.ends), reading.ends_left_out) == (3, whole - 3)
    assert replace(reading, ends=()).switches_read == len(MADE.inventory.switches) - 2


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        ({1: 10, 2: 20, 3: 30}, None),
        ({1: 10, 2: 20, 9: 30}, None),  # a port that is not pinned has no entry
        ({1: 10, 2: 20, 3: 0}, None),  # a host that boots has none yet
        ({1: 20, 2: 10}, "2 of 2 ports have other LIDs than their tables: 0x0000000000000001 has"),
        ({1: 10, 2: 20, 3: 31}, "1 of 3 ports have other LIDs"),
        ({1: 10, 2: 0, 3: 0}, "1 of 3 ports have a LID"),  # OpenSM has not given them yet
        ({}, "0 of 0 ports have a LID"),
    ],
)
def test_tables_for_other_lids_are_told(read, problem):
    told = links.wrong_lids({1: 10, 2: 20, 3: 30}, read)
    assert told == problem if problem is None else problem in str(told)
