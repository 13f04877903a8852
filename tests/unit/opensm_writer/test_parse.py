# SPDX-License-Identifier: Apache-2.0

"""Output of tools is parsed leniently, rendered files strictly; errors name the line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.domain.errors import InvalidFile
from laas_service.domain.routing.default_tables import NO_ROUTE
from opensm_writer import parse

OPENSM = """\
Unicast lids [0-36] of switch Lid 2 guid 0x0002c90201000000 ('a guid 0xbad'):
0x0001 001 # Channel Adapter portguid 0x0002c90300000001: 'node00000'
0x0002 000 # Switch portguid 0x0002c90201000000: 'sw1-0000'
0x0024 003 # Switch portguid 0x0002c90202000000: 'sw2-0000'
36 lids dumped
"""
DUMP_LFTS = """\
Unicast lids [0x0-0x24] of switch DR path slid 0; dlid 0; 0,1,3 guid 0x0002c90201000000 (a b):
  Lid  Out   Destination
       Port     Info
0x0001 001 : (Channel Adapter portguid 0x0002c90300000001: 'node00000')
0x0002 000 : (Switch portguid 0x0002c90201000000: 'sw1-0000')
0x0003 255 : (path not there)
0x0024 003 : (Switch portguid 0x0002c90202000000: 'sw2-0000')
3 valid lids dumped
"""


@pytest.mark.parametrize("dump", [OPENSM, DUMP_LFTS], ids=["opensm-lfts.dump", "dump_lfts"])
def test_both_formats_of_dumps_are_parsed(dump):
    tables = parse.dumped_tables(dump.splitlines())
    assert tables.keys() == {0x0002C90201000000}
    row = tables[0x0002C90201000000]
    assert {lid: port for lid, port in enumerate(row) if port != NO_ROUTE} == {1: 1, 2: 0, 36: 3}


@given(
    which=st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=4),
    size=st.integers(1, 500),
)
def test_successive_dumps_are_parsed_like_single_ones(which, size):
    switches = [
        *(OPENSM, DUMP_LFTS),
        *(OPENSM.replace("0x0002c9020100", f"0x0002c902010{number}") for number in (1, 2)),
        DUMP_LFTS.replace("0x0003 255", "0x0003 007"),
        "Unicast lids of nothing that anybody knows\n",
    ]
    dumps = parse.Dumps()
    for numbers in which:
        text = "".join(switches[number] for number in numbers)
        pieces = [text[at : at + size].encode() for at in range(0, len(text), size)]
        assert dumps.read(pieces) == parse.dumped_tables(text.splitlines())


HEAD = "Unicast lids [0-9] of switch Lid 2 guid 0x0002c90201000000 ('s'):\n"
FIRST = "0x0001 001 # portguid 0x0002c90300000001:\n"
OWN = "0x0002 000 # portguid 0x0002c90201000000:\n"


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("", 1, "no.* head"),
        (f"{FIRST}{HEAD}{OWN}1 lids dumped\n", 1, "head"),
        (f"{HEAD}{FIRST}{OWN}", 3, "ends without the count"),
        (f"{HEAD}{FIRST}{OWN}3 lids dumped\n", 4, "ends without the count"),
        (f"{HEAD}{FIRST}{OWN[:-1]}\r\n2 lids dumped\n", 3, "is not an entry"),
        (f"{HEAD}{OWN}{FIRST}2 lids dumped\n", 3, "not above"),
        (f"{HEAD}{FIRST}1 lids dumped\n", 1, "no entry for its own LID"),
        (f"{HEAD}{FIRST.replace(' 001 ', ' 255 ')}{OWN}2 lids dumped\n", 2, "ports are 0..254"),
        (f"{HEAD}{FIRST}{OWN}2 lids dumped\nand more\n", 4, "count|entry"),
    ],
)
def test_tables_of_another_form_are_refused(text, line, why):
    with pytest.raises(InvalidFile, match=why) as refused:
        list(parse.switch_tables(text.encode().splitlines(keepends=True), "lfts"))
    assert refused.value.line == line


@pytest.mark.parametrize(
    "text",
    [
        "0x0002c90300000001 0x0001 0x0001\n",  # no empty line: OpenSM drops the lines after it
        "0x2c90300000001 0x0001 0x0001\n\n",  # not padded
        "0x0002C90300000001 0x0001 0x0001\n\n",  # upper case
        "0x0002c90300000001 0x0001 0x0002\n\n",  # LMC is 0
        "0x0002c90300000001 0x0040 0x0040\n\n",  # the highest is a multiple of 64
        "0x0002c90300000001 0x0001 0x0001\n\n0x0002c90300000002 0x0001 0x0001\n\n",
        "0x0002c90300000001 0x0001 0x0001\n\n0x0002c90300000001 0x0002 0x0002\n\n",
    ],
)
def test_records_that_opensm_would_drop_are_refused(text):
    with pytest.raises(InvalidFile):
        parse.guid2lid(text, "guid2lid")


DEFAULT = "Default=0x7fff : ALL=limited, ALL_SWITCHES=full, SELF=full ;\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("t=0x0101, defmember=full :\n  0x0002c90300000001 ;\n", 1),
        (f"{DEFAULT}t=0x0101, defmember=full :\n  0x0002c90300000001\n", 2),
        (f"{DEFAULT}t=0x0101, indx1, defmember=full :\n  0x0002c90300000001 ;\n", 2),
        (f"{DEFAULT}t=0x0101, defmember=limited :\n  0x0002c90300000001 ;\n", 2),
        (f"{DEFAULT}t=0x0101, defmember=full :\n  0x0002c90300000001,\n  node7 ;\n", 4),
        (DEFAULT.replace("SELF=full", "SELF=full" + " " * 4000), 1),
    ],
)
def test_partitions_that_opensm_might_not_parse_are_refused(text, line):
    with pytest.raises(InvalidFile) as refused:
        parse.partitions(text, "partitions.conf")
    assert refused.value.line == line


GROUP = "port-group\nname: {}\nport-guid: 0x0002c90300000001\nend-port-group\n"


@pytest.mark.parametrize(
    "text",
    [
        GROUP.format("ALL"),
        GROUP.format("all_of_us"),
        GROUP.format("x") * 2,
        "port-group\nend-port-group\n",
        "port-group\nname: x\nend-port-group\n",
        "port-group\nname: x\nport-guid: MF0;leaf1:MQM9700/U1\nend-port-group\n",
        f"port-group\nname: x\nport-guid: {'0x0002c90300000001, ' * 20}\nend-port-group\n",
        GROUP.format("x")[:-15],
        GROUP.format("x") + "port-group\nname: y\nunion-rule: x, z\nend-port-group\n",
        GROUP.format("x") + "port-group\nname: y\nunion-rule: x\nend-port-group\n",
        "stray\n" + GROUP.format("x"),
    ],
)
def test_port_groups_that_the_vendor_refuses_are_refused(text):
    with pytest.raises(InvalidFile):
        parse.port_groups(text, "port_groups.conf")


def test_chains_start_with_the_whole_fabric():
    step = (
        "unicast-step\nid: {}\nengine: ftree\ntopology: {}\nconfig: /d/x.conf\nend-unicast-step\n"
    )
    assert len(parse.chain(step.format(1, 0) + step.format(2, 1), "", "/d")) == 2
    for text in (step.format(1, 1), step.format(2, 0) + step.format(1, 1), step.format(0, 0)):
        with pytest.raises(InvalidFile):
            parse.chain(text, "", "/d")
    with pytest.raises(InvalidFile, match="not in /other"):
        parse.chain(step.format(1, 0), "", "/other")
