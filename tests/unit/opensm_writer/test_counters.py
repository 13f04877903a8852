# SPDX-License-Identifier: Apache-2.0

"""Which counters are read of which switches, with a script in place of ``perfquery``."""

from __future__ import annotations

import time

import pytest

from laas_service.adapters.fabric_import import generator
from laas_service.domain.faults.counters import BAD_KEYS
from laas_service.domain.inventory import ADAPTER_PORT, PortRef
from opensm_writer.counters import CounterReader, parsed, ports_of_lids, targets
from opensm_writer.opensm import OpenSm
from opensm_writer.parse import SwitchTable
from tests.scripts import executable
from tests.waiting import eventually

BASIC = """# Port counters: Lid 240 port {port} (CapMask: 0x1300)
PortSelect:......................{port}
CounterSelect:...................0x0000
SymbolErrorCounter:..............7
LinkErrorRecoveryCounter:........0
LinkDownedCounter:...............0
PortRcvErrors:...................1
PortRcvRemotePhysicalErrors:.....0
PortRcvSwitchRelayErrors:........0
PortXmitDiscards:................0
PortXmitConstraintErrors:........0
PortRcvConstraintErrors:.........0
CounterSelect2:..................0x00
LocalLinkIntegrityErrors:........0
ExcessiveBufferOverrunErrors:....0
QP1Dropped:......................0
VL15Dropped:.....................0
PortXmitData:....................4294967295
PortRcvData:.....................4294967295
PortXmitPkts:....................23
PortRcvPkts:.....................23
PortXmitWait:....................0
"""
EXTENDED = """# Port extended counters: Lid 240 port {port} (CapMask: 0x5300 CapMask2: 0x0000002)
PortSelect:......................{port}
CounterSelect:...................0x0000
PortXmitData:....................{data}
PortRcvData:.....................1656
PortXmitPkts:....................23
PortRcvPkts:.....................23
PortUnicastXmitPkts:.............0
PortUnicastRcvPkts:..............0
PortMulticastXmitPkts:...........5
PortMulticastRcvPkts:............0
"""
MADE = generator.generate(generator.Description(xgft="3;2,2,2;1,2,2", subnet_managers=1))
CABLES = MADE.inventory.cable_ends
LIDS = {switch.guid: 100 + n for n, switch in enumerate(MADE.inventory.switches)}
ADAPTERS = {endpoint.guid: 1 + n for n, endpoint in enumerate(MADE.inventory.endpoints)}
GUIDS = {lid: guid for guid, lid in (LIDS | ADAPTERS).items()}
TABLES = tuple(SwitchTable(guid, lid, b"", GUIDS, 0, b"") for guid, lid in LIDS.items())


def test_what_perfquery_prints_is_read():
    """Data of 32 bits do not count; 64 bits replace the errors of a port that has them."""
    text = BASIC.format(port=1) + BASIC.format(port=2) + EXTENDED.format(port=2, data=1 << 60)
    text += "SymbolErrorCounter:..............70000\nEffective Physical BER:..15E-255\n"
    text += "# PortExtendedSpeedsCounters: Lid 240 port 1\nPortSelect:......................1\n"
    text += "FECModeActive:...................0x0003\n"
    ports = parsed(text)
    assert sorted(ports) == [1, 2]
    assert ports[2].values["PortXmitData"] == 1 << 60
    assert ports[2].values["PortMulticastXmitPkts"] == 5
    assert ports[2].values["SymbolErrorCounter"] == 70000
    assert ports[2].bit_error_rate == 15e-255
    assert ports[1].values["SymbolErrorCounter"] == 7
    assert ports[1].values["FECModeActive"] == 3
    assert not {"PortXmitData", "PortRcvData", "PortXmitPkts"} & ports[1].values.keys()
    assert "QP1Dropped" not in ports[1].values


@pytest.mark.parametrize("text", ["", "garbage\n", "PortRcvErrors:..1\n", BASIC[:60]])
def test_other_text_is_no_counter(text):
    assert parsed(text.format(port=1)) == {}


def test_all_switch_ports_with_a_cable_are_read():
    found = targets(TABLES, CABLES)
    assert [target.guid for target in found] == sorted(LIDS)
    assert {(t.guid, t.lid) for t in found} == set(LIDS.items())
    ends = {end for pair in CABLES for end in pair if end.guid in LIDS}
    assert {PortRef(t.guid, port) for t in found for port in t.ports} == ends


def test_lids_are_those_of_ports():
    ports = ports_of_lids(TABLES, CABLES)
    assert {ports[lid] for lid in LIDS.values()} == {PortRef(guid, 0) for guid in LIDS}
    for first, second in CABLES:
        if second.port == ADAPTER_PORT:
            assert ports[ADAPTERS[second.guid]] == first


class Site:
    """A stand-in for ``perfquery`` that prints two templates, and fails for LIDs in a file."""

    def __init__(self, directory, rate=1e6):
        self.runs, self.refused = directory / "runs", directory / "refused"
        self.log, self.basic, self.extended = (directory / n for n in ("log", "basic", "extended"))
        self.log.write_text("OpenSM\n")
        self.refused.write_text("")
        self.basic.write_text(BASIC)
        self.extended.write_text(EXTENDED.replace("{data}", "77"))
        script = executable(
            directory / "perfquery",
            "#!/bin/sh\n"
            f'echo "$*" >> {self.runs}\n'
            f'case "$1" in -T) echo cannot query >&2; exit 255;; -x) text={self.extended}; shift;; '
            f"*) text={self.basic};; esac\n"
            f'grep -qx "$2" {self.refused} && exit 1\n'
            'for port in $(echo "$3" | tr , " "); do sed "s/{port}/$port/" $text; done\n',
        )
        self.opensm = OpenSm(counters_command=(str(script),), counters_rate=rate, log_file=self.log)
        self.reader = CounterReader(self.opensm)
        self.taken = {}

    def take(self, limit=None):
        answer = self.reader.take(TABLES, CABLES, limit)
        self.taken |= {reading.guid: reading for reading in answer}
        return answer

    def seen(self):
        self.take()
        return self.taken

    def until(self, guids, what):
        eventually(lambda: self.seen().keys() >= set(guids), what)


def test_every_switch_is_read_in_turn(tmp_path):
    site = Site(tmp_path)
    begun = time.time()
    site.until(LIDS, "all switches are read")
    for guid, reading in site.taken.items():
        target = next(t for t in targets(TABLES, CABLES) if t.guid == guid)
        assert sorted(reading.ports) == [0, *target.ports]
        assert begun <= reading.at <= time.time()
        values = reading.ports[target.ports[0]].values
        assert (values["PortXmitData"], values["PortRcvErrors"], values[BAD_KEYS]) == (77, 1, 0)
    command = site.runs.read_text().splitlines()[0].split()
    assert command[:2] == ["-l", str(min(LIDS.values()))]
    assert not any({"-r", "-R"} & set(run.split()) for run in site.runs.read_text().splitlines())


def test_a_switch_that_does_not_answer_is_left_out(tmp_path):
    site = Site(tmp_path)
    silent = min(LIDS)
    site.refused.write_text(f"{LIDS[silent]}\n")
    site.until(LIDS.keys() - {silent}, "the others are read")
    assert silent not in site.taken
    site.refused.write_text("")
    site.until(LIDS, "it answers again")


def test_the_newest_reading_of_a_switch_is_taken_once(tmp_path):
    site = Site(tmp_path)
    target = targets(TABLES, CABLES)[0]
    site.reader.read(target)
    site.extended.write_text(EXTENDED.replace("{data}", "78"))
    site.reader.read(target)
    first = site.take()
    assert [reading.ports[target.ports[0]].values["PortXmitData"] for reading in first] == [78]


def test_only_so_many_ports_are_taken(tmp_path):
    site = Site(tmp_path)
    first, second, *_ = targets(TABLES, CABLES)
    for target in (first, second):
        site.reader.read(target)
    assert [reading.guid for reading in site.take(1)] == [first.guid]


def test_the_rate_is_bounded(tmp_path):
    """At one port in 1,000 seconds the first switch is the only one that is read."""
    site = Site(tmp_path, rate=0.001)
    first = targets(TABLES, CABLES)[0]
    site.until([first.guid], "the first switch is read")
    eventually(lambda: len(site.runs.read_text().splitlines()) == 3, "three commands")
    assert site.take() == ()


def test_nothing_is_read_without_a_command():
    assert CounterReader(OpenSm()).take(TABLES, CABLES) == ()


def test_packets_with_bad_keys_are_counted_at_their_sender(tmp_path):
    site = Site(tmp_path)
    first, adapter = next(cable for cable in CABLES if cable[1].port == ADAPTER_PORT)
    target = next(t for t in targets(TABLES, CABLES) if t.guid == first.guid)
    site.take()
    with site.log.open("a") as log:
        for place in (
            "from LID 9, GUID 0x0002c90300000011",
            "from switch LID 100, GUID 0x0002c90200000001 port 3 : data_valid 0x001f",
        ):
            log.write(
                "Nov 22 15:57:27 250709 [B54A86C0] 0x02 -> log_notice: Reporting Security Notice "
                f'"Bad P_Key" {place} : LID1 {ADAPTERS[adapter.guid]}, LID2 9, PKey 0x8101, SL 0, '
                "QP1 0x12, QP2 0x13, GID1 fe80::1, GID2 fe80::2\n"
            )

    def count():
        seen = site.seen().get(target.guid)
        return seen and seen.ports[first.port].values[BAD_KEYS]

    eventually(lambda: count() == 2, "both packets are counted")
