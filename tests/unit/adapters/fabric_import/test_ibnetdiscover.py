# SPDX-License-Identifier: Apache-2.0

import contextlib
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.fabric_import.recovery import recover
from laas_service.domain.errors import InvalidFile, InvalidInput

WORDS = Description(xgft="3;2,2,2;1,2,2", aggregation_nodes=True, odd_names=True)
DUMP = ibnetdiscover.render(generate(WORDS).inventory)
PLAIN = ibnetdiscover.parse(DUMP)


def same(text):
    read = ibnetdiscover.parse(text)
    return (read.nodes.keys(), set(read.wires)) == (PLAIN.nodes.keys(), set(PLAIN.wires))


def line_of(pattern, text=DUMP):
    return next(n for n, line in enumerate(text.split("\n"), 1) if re.search(pattern, line))


def changed(pattern, new, count=1):
    text, found = re.subn(pattern, new, DUMP, count=count, flags=re.MULTILINE)
    assert found
    return text


def test_names_are_read_whole():
    names = {node.name for node in PLAIN.nodes.values()}
    assert "MF0;leaf-0-1:MQM8700/U1" in names
    assert "Mellanox Technologies Aggregation Node" in names


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + DUMP,
        "[root@sm ~]# ibnetdiscover\n" + DUMP + "\n[root@sm ~]# ",
        DUMP.replace("\n", "\r\n"),
        DUMP.replace("\n\n", "\nibwarn: [12] mad_rpc: _do_madrpc failed; dport (DR path 0,1)\n\n"),
        re.sub(r"(?m)^(\[\d+\])\t", r"\1(4)\t", DUMP),  # lanes, as ibdiagnet writes them
        re.sub(r'(?m)^(\[\d+\])\t("S-)', r"\1[ext 7]\t\2", DUMP),
        re.sub(r"switchguid=\S+", "switchguid=0x1(1)", DUMP),  # the switch is part of a chassis
        "Chassis 1 (guid 0x2c9)\nHostname: sw1\n" + DUMP + "\nNon-Chassis Nodes\n",
        re.sub(r"(?m)( 4xHDR)$", r"\1 s=32 w=2 v=1", DUMP),
        re.sub(r"\]\(([0-9a-f]+)\) \t\t", "]\t\t", DUMP),  # port GUID only at the adapter
        re.sub(r'(?m)^\[1\]\([0-9a-f]+\)( \t"S)', r"[1]\1", DUMP),  # only at the switch
    ],
    ids=["bom", "prompt", "crlf", "warning", "lane", "ext", "chassis", "-g", "-f", "near", "far"],
)
def test_forms_of_the_same_fabric(text):
    assert same(text)


def test_lines_passed_over_are_reported():
    read = ibnetdiscover.parse("[root@sm ~]# ibnetdiscover\n" + DUMP)
    assert read.skipped == ((1, "[root@sm ~]# ibnetdiscover"),)


def test_lanes_do_not_hide_the_port_guid():
    text = re.sub(r"(?m)^(\[\d+\])\t", r"\1(4)\t", DUMP)
    assert set(ibnetdiscover.parse(text).wires) == set(PLAIN.wires)


def test_ports_above_the_number_that_a_line_gives_are_split_ports():
    text = changed(r"^Switch\t\d+", "Switch\t2")
    (guid,) = ibnetdiscover.parse(text).split
    assert ibnetdiscover.parse(text).nodes[guid].ports == PLAIN.nodes[guid].ports == 5
    assert same(text)


def test_a_cable_at_a_port_that_no_split_explains_is_set_apart():
    text = changed(r"^Switch\t\d+", "Switch\t1")
    read = ibnetdiscover.parse(text)
    (guid,) = read.split
    assert read.nodes[guid].ports == 3  # two of one port, and that of the aggregation node
    gone = {end.port for wire in read.beyond for end in (wire.a, wire.b) if end.guid == guid}
    assert gone == {4, 5}
    assert set(read.wires) | set(read.beyond) == set(PLAIN.wires)


FIRST_PORT = r'^\[1\]\t"H-'


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("", 1, "no switch"),
        ("hello\n", 1, "no switch"),
        (changed(r'^(\[1\]\t"H-[0-9a-f]+)".*', r"\1"), line_of(FIRST_PORT), "malformed"),
        (changed(r'^Switch\t\d+ "S-.*', 'Switch\t9 "S-'), line_of("^Switch"), "malformed"),
        (changed(r"^Switch\t\d+", "Switch\t0"), line_of("^Switch"), "a node has 1 to 254"),
        (changed(r"^\[1\]\t", "[255]\t"), line_of(r"^\[1\]\t"), "port 255 of a node with 5"),
        (changed(r"^\[1\]\(", "[2]("), line_of(r"^\[1\]\("), "port 2 of a node with 1"),
        (changed(r"^\[2\]\t", "[1]\t"), line_of(r"^\[2\]\t"), "described before, at line"),
        (changed(FIRST_PORT + r".*\n", ""), None, "where the file shows no cable"),
        (changed(r'^(\[3\]\t"S-[0-9a-f]+"\[)1\]', r"\g<1>2]"), line_of(r"^\[3\]"), "disagree"),
        ("[1] " + '"S-1"[1]\n' + DUMP, 1, "without a node above it"),
        (DUMP + "\n" + DUMP, None, "described before, at line"),
        (DUMP[: DUMP.rindex("caguid")], None, "the file does not describe"),
        (changed(r"^\[1\]\(([0-9a-f]+)\)", "[1](77)"), None, "port GUID"),
    ],
)  # fmt: skip
def test_torn_or_edited_file_is_refused_with_its_line(text, line, why):
    with pytest.raises(InvalidFile, match=re.escape(why)) as refused:
        ibnetdiscover.parse(text, "dump.txt")
    if line:
        assert refused.value.line == line
    assert str(refused.value).startswith("dump.txt, line ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("cut", range(len(DUMP) // 37))
def test_a_dump_cut_anywhere_is_never_taken_for_a_smaller_fabric(cut):
    text = DUMP[: cut * 37]
    with pytest.raises(InvalidFile):
        recover(ibnetdiscover.parse(text))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_mangled_dumps_are_read_or_refused(data):
    """A damaged dump gives a fabric or one clear error."""
    lines = DUMP.split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["drop", "repeat", "swap", "replace", "text", "digit"]))
        if kind == "drop":
            del lines[at]
        elif kind == "repeat":
            lines.insert(at, lines[at])
        elif kind == "swap":
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == "replace":
            lines[at] = data.draw(st.text(max_size=20))
        elif kind == "text":
            cut = data.draw(st.integers(0, len(lines[at])))
            lines[at] = lines[at][:cut] + data.draw(st.text(max_size=5)) + lines[at][cut:]
        else:
            digit = str(data.draw(st.integers(0, 10**6)))
            lines[at] = re.sub(r"\d+", digit, lines[at], count=data.draw(st.integers(1, 3)))
    with contextlib.suppress(InvalidFile, InvalidInput):
        recover(ibnetdiscover.parse("\n".join(lines)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30),
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
)
def test_any_cabling_is_a_fabric_or_a_clear_refusal(cables, hosts):
    """Rings, meshes and stars give a fabric or a clear error, never a traceback."""
    free = dict.fromkeys(range(10), 0)
    ports: dict[int, list[str]] = {n: [] for n in range(10)}

    def port(switch):
        free[switch] += 1
        return free[switch]

    adapters = []
    for a, b in cables:
        x, y = port(a), port(b)
        ports[a].append(f'[{x}]\t"S-{b + 1:016x}"[{y}]')
        ports[b].append(f'[{y}]\t"S-{a + 1:016x}"[{x}]')
    for number, switch in enumerate(hosts):
        x, guid = port(switch), 100 + number
        ports[switch].append(f'[{x}]\t"H-{guid:016x}"[1]({guid:x})')
        adapters.append(
            f'Ca\t1 "H-{guid:016x}"\t# "h{number // 2} mlx5_{number % 2}"\n'
            f'[1]({guid:x})\t"S-{switch + 1:016x}"[{x}]\n'
        )
    switches = [
        f'Switch\t99 "S-{n + 1:016x}"\t# "s{n}"\n' + "\n".join(ports[n]) + "\n" for n in range(10)
    ]
    try:
        result = recover(ibnetdiscover.parse("\n".join(switches + adapters)))
    except (InvalidFile, InvalidInput):
        return
    told = sum(cable.link is None for cable in result.inventory.cables)
    assert len(result.inventory.cables) == len(cables)
    assert told == result.report.irregular_cables
    assert len(result.inventory.endpoints) == len(hosts)
