# SPDX-License-Identifier: Apache-2.0

"""``laas-manage fabric import`` of files as they lie around: packed, of other tools, managed."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys
import threading
import zipfile
from functools import partial

import pytest
import sqlalchemy as sa

from laas_service.adapters.fabric_import import decoding, ibnetdiscover
from laas_service.adapters.fabric_import.fabric_file import read_fabric
from laas_service.adapters.fabric_import.netlist import netlist
from laas_service.domain.errors import ManagedElsewhere
from tests.cablings import NO_TREES
from tests.functional.test_manage import Tool, elsewhere
from tests.ibsim import Simulator
from tests.machines import Plugged
from tests.marks import needs_ibsim
from tests.recabling import apart
from tests.scripts import executable
from tests.waiting import at_once, eventually

DUMP = ibnetdiscover.render(read_fabric("2;2,2;1,2").inventory)
FORM = {"importable", "refused", "hosts_named", "hosts_for_tenants", "cables", "slow_cables"}
FORM |= {"kept_out", "accepted"}


@pytest.fixture
def run(tmp_path, capsys):
    tool = Tool(tmp_path, capsys)
    tool("db", "upgrade")
    return tool


def zipped(**files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return data.getvalue()


def told(run, data, *words, rc=1, name="dump"):
    """What a program reads of an import of these bytes."""
    (run.path / name).write_bytes(data)
    answer = json.loads(run("fabric", "import", run.path / name, "--json", *words, rc=rc))
    assert answer.keys() == FORM
    assert answer["importable"] == (rc == 0) == (answer["refused"] is None)
    return answer


TEXT = DUMP.encode()


@pytest.mark.parametrize(
    "data",
    [
        TEXT, gzip.compress(TEXT), bz2.compress(TEXT), lzma.compress(TEXT), zipped(a=TEXT),
        DUMP.encode("utf-16"), DUMP.encode("utf-16-le"), DUMP.encode("utf-8-sig"),
        DUMP.replace("\n", "\r\n").encode(),
    ],
    ids=["plain", "gzip", "bzip2", "xz", "zip", "utf-16", "utf-16-le", "bom", "crlf"],
)  # fmt: skip
def test_a_dump_in_any_packing(run, data):
    answer = told(run, data, rc=0)
    assert (answer["hosts_named"], answer["hosts_for_tenants"], answer["cables"]) == (4, 4, 4)
    assert read_fabric(run.path / "dump").inventory == read_fabric("2;2,2;1,2").inventory


CA = 'Ca\t1 "H-0000000000000001"\t# "a mlx5_0"\n'
SWITCH = 'Switch\t4 "S-0000000000000002"\t# "s"\n'


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", "empty", "is empty"),
        (b" \n\r\n", "empty", "is empty"),
        (b"# one\n# two\n", "empty", "comments"),
        (gzip.compress(b""), "empty", "is empty"),
        (gzip.compress(TEXT)[:-90], "compressed", "gzip file that cannot be unpacked"),
        (gzip.compress(gzip.compress(TEXT)), "compressed", "unpack it once"),
        (zipped(a=TEXT, b=TEXT), "compressed", "2 files (a, b)"),
        (b"\x28\xb5\x2f\xfd1234", "compressed", "zstd"),
        (b"\x7fELF\0\0", "not_a_dump", "a program"),
        (bytes(range(200, 216)) + b"\0\0", "not_a_dump", "binary"),
        (b"SwitchName=s0 Nodes=n[1-4]\n", "not_a_dump", "Slurm topology.conf"),
        (b"host,switch\na,1\nb,2\n", "not_a_dump", "CSV"),
        (b"host;switch;port\na;1;2\nb;2;2\n", "not_a_dump", "CSV"),
        (b"[1, 2]", "not_a_dump", "JSON list"),
        (b'{"nodes": []}', "not_a_dump", "JSON of another kind"),
        (b"<html></html>", "not_a_dump", "HTML"),
        (b"to be or not\n", "not_a_dump", "'to be or not'"),
        (b"ibnetdiscover: iberror: failed: discover failed\n", "not_a_dump", "run it as root"),
        (CA.encode(), "no_switch", "no switch"),
        (SWITCH.encode(), "no_host", "no host"),
        (TEXT[: len(TEXT) // 2], "unreadable", "line"),
        (NO_TREES["torus 4x4"].dump().encode(), "no_fat_tree", "--accept no-fat-tree"),
    ],
    ids=lambda value: value if isinstance(value, str) else "data",
)  # fmt: skip
def test_what_is_not_imported_is_named_for_what_it_is(run, data, code, words):
    refused = told(run, data)["refused"]
    assert refused["code"] == code, refused
    assert words in refused["detail"]
    line = run("fabric", "import", run.path / "dump", rc=1)
    assert line.startswith("laas-manage: ")
    assert line.count("\n") == 1
    assert run.store().fabrics.all() == []


@pytest.mark.parametrize("packed", [False, True])
def test_comments_without_end_are_refused_at_a_limit_in_bounded_memory(tmp_path, packed):
    """The limit of the size holds for what is packed, too: 700 MB come from less than 1 MB."""
    path = tmp_path / "comments"
    if packed:
        with gzip.open(path, "wb", compresslevel=1) as file:
            for _ in range(700):
                file.write(b"# nothing here\n" * (2**20 // 15))
    else:
        with path.open("wb") as file:
            file.truncate(700 * 2**20)
    words = [sys.executable, "-m", "laas_service.cmd.manage", "fabric", "import", str(path)]
    program = (
        "import resource, subprocess, sys\n"
        "status = subprocess.run(sys.argv[1:]).returncode\n"
        "print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "--dry-run", "--json"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    said, (status, kilobytes) = done.stdout.splitlines()[0], done.stdout.split()[-2:]
    assert json.loads(said)["refused"]["code"] == "too_large"
    assert f"at most {decoding.MOST:,}" in said
    assert status == "1"
    assert int(kilobytes) < 600 * 1024


@needs_ibsim
def test_the_real_tools_are_named_and_ibnetdiscover_is_run(run, monkeypatch):
    named = {
        "ibnetdiscover -p": ("ibnetdiscover", "-p"), "ibnetdiscover -l": ("ibnetdiscover", "-l"),
        "iblinkinfo": ("iblinkinfo",), "ibswitches": ("ibswitches",), "ibhosts": ("ibhosts",),
        "ibnodes": ("ibnodes",), "sminfo": ("sminfo",), "perfquery": ("perfquery",),
    }  # fmt: skip
    with Simulator(netlist(read_fabric("2;2,2;1,2").inventory)) as sim:
        sim.start("opensm", "-f", "osm.log")
        eventually(lambda: "SMINFO_MASTER" in sim.run("sminfo", check=False).stdout, "a master")
        for tool, command in named.items():
            refused = told(run, sim.read(*command).encode())["refused"]
            assert refused["code"] == "another_tool", refused
            assert tool in refused["detail"]
            assert "run: ibnetdiscover > fabric.txt" in refused["detail"]
        for name in ("IBSIM_SOCKNAME", "LD_PRELOAD", "SIM_HOST"):
            monkeypatch.setenv(name, sim.environment()[name])
        answer = json.loads(run("fabric", "import", "--live", "--json").splitlines()[-1])
        assert (answer["importable"], answer["hosts_for_tenants"]) == (True, 4)
    (fabric,) = run.store().fabrics.all()
    assert fabric.id == "fabric"


def test_live_without_a_port_or_a_tool_is_one_clear_line(run, monkeypatch):
    tool = run.path / "ibnetdiscover"
    monkeypatch.setenv("PATH", str(run.path))
    for script, words in (
        ('echo "can\'t open UMAD port ((null):0)" >&2; exit 255', ("root", "ib_umad")),
        ("echo 'umad0: Permission denied' >&2; exit 1", ("run this command as root",)),
        ("echo 'iberror: odd' >&2; exit 3", ("status 3: iberror: odd",)),
    ):
        executable(tool, f"#!/bin/sh\n{script}\n")
        line = run("fabric", "import", "--live", rc=1)
        assert line.startswith("laas-manage: ibnetdiscover: ")
        assert line.count("\n") == 1
        assert any(each in line for each in words)
        refused = json.loads(run("fabric", "import", "--live", "--json", rc=1))["refused"]
        assert refused["code"] == "unreadable"
    tool.unlink()
    monkeypatch.setattr("laas_service.adapters.fabric_import.live.SYSTEM_PATHS", "")
    assert "infiniband-diags" in run("fabric", "import", "--live", rc=1)


@pytest.mark.parametrize("option", ["--exclude", "--include", "--subnet-manager"])
def test_a_pattern_that_matches_nothing_is_refused(run, option):
    refused = told(run, TEXT, option, "nood*")["refused"]
    assert refused["code"] == "pattern_matches_nothing"
    assert f"{option}: 'nood*'" in refused["detail"]
    (run.path / "d.json").write_text('{"xgft": "2;2,2;1,2"}')
    assert "'nood*'" in run("fabric", "import", run.path / "d.json", option, "nood*", rc=1)
    assert run.store().fabrics.all() == []
    answer = told(run, TEXT, "--exclude", "node3", rc=0)
    assert answer["hosts_for_tenants"] == 3
    assert [(k["kind"], k["count"], k["names"]) for k in answer["kept_out"]] == [
        ("excluded", 1, ["node3"])
    ]
    assert answer["kept_out"][0]["guids"] == ["0x0002c90300000007"]


def test_a_refused_fabric_is_counted_as_far_as_it_was_recognised(run):
    torus = NO_TREES["torus 4x4"].dump().encode()
    answer = told(run, torus)
    taken = told(run, torus, "--accept", "no-fat-tree", "--dry-run", rc=0)
    assert answer["hosts_named"] == len(set(re.findall(r'"(node\d+)', torus.decode()))) > 0
    assert answer["cables"] == 32
    known = ("hosts_named", "hosts_for_tenants", "cables", "slow_cables", "kept_out")
    assert [answer[key] for key in known] == [taken[key] for key in known]
    assert (answer["accepted"], taken["accepted"]) == ([], ["no-fat-tree"])


def test_a_fabric_without_hosts_for_tenants_is_told_with_what_is_kept_out(run):
    nameless = re.sub("node[0-9] mlx5_0", "localhost mlx5_0", DUMP)
    answer = told(run, nameless.encode())
    assert answer["refused"]["code"] == "no_host"
    assert (answer["hosts_named"], answer["hosts_for_tenants"], answer["cables"]) == (0, 0, 4)
    (kept,) = answer["kept_out"]
    assert (kept["kind"], kept["count"], len(kept["guids"])) == ("nameless", 4, 4)
    answer = told(run, TEXT, "--exclude", "node*")
    assert answer["refused"]["code"] == "no_host"
    assert [(kept["kind"], kept["names"]) for kept in answer["kept_out"]] == [
        ("excluded", ["node0", "node1", "node2", "node3"])
    ]
    routers = re.sub("node[0-9] mlx5_0", "Mellanox Technologies Aggregation Node", DUMP)
    answer = told(run, routers.encode())
    assert answer["refused"]["code"] == "no_host"
    assert [(kept["kind"], kept["count"]) for kept in answer["kept_out"]] == [("aggregation", 4)]


def test_no_switch_or_port_is_in_two_fabrics(run):
    told(run, TEXT, "--id", "one", rc=0)
    answer = told(run, TEXT, "--id", "two")
    assert (answer["hosts_named"], answer["hosts_for_tenants"]) == (4, 4)
    refused = answer["refused"]
    assert refused["code"] == "managed_elsewhere"
    assert "fabric one has 4 of the same switches and 4 of the same ports" in refused["detail"]
    assert [fabric.id for fabric in run.store().fabrics.all()] == ["one"]
    run("fabric", "reimport", run.path / "dump", "--id", "one")
    half = DUMP.replace("2c902", "2d902")  # other switches, the same ports
    assert "4 of the same ports" in told(run, half.encode(), "--id", "two")["refused"]["detail"]
    (run.path / "dump").write_text(elsewhere(DUMP))
    said = " ".join(run("fabric", "import", run.path / "dump", "--id", "two").split())
    assert "4 hosts have the names of hosts of fabric one" in said
    assert "no findings" in run("db", "check")
    one = run.store().fabrics.get("one")
    run.store().fabrics.add("three", one.topology, apart(one.inventory, 1))
    with run.store()._engine.begin() as connection:  # as an earlier release did
        same = sa.text("select inventory from fabric where id = 'one'")
        taken = sa.text("update fabric set inventory = :same where id = 'three'")
        connection.execute(taken, {"same": connection.scalar(same)})
    found = run("db", "check", rc=1)
    assert "fabrics one and three both have 4 of the same switches and 4 of the same" in found


def test_a_dry_run_looks_for_other_fabrics_too(run):
    assert "no findings" in run("db", "check")
    told(run, TEXT, "--id", "one", rc=0)
    answer = told(run, TEXT, "--id", "two", "--dry-run")
    assert answer["refused"]["code"] == "managed_elsewhere"
    assert "fabric one has 4 of the same switches" in answer["refused"]["detail"]
    assert "4 of the same ports" in run("fabric", "import", run.path / "dump", "--dry-run", rc=1)
    assert told(run, TEXT, "--id", "one", "--dry-run", rc=0)["importable"]
    (run.path / "dump").write_text(elsewhere(DUMP))
    said = " ".join(run("fabric", "import", run.path / "dump", "--dry-run").split())
    assert "4 hosts have the names of hosts of fabric one" in said
    assert [fabric.id for fabric in run.store().fabrics.all()] == ["one"]


def test_a_dry_run_needs_no_database_and_makes_none(tmp_path, capsys):
    run = Tool(tmp_path, capsys)
    before = set(tmp_path.rglob("*"))
    (tmp_path / "dump").write_text(DUMP)
    said = run("fabric", "import", tmp_path / "dump", "--dry-run")
    assert "4 hosts for tenants" in said
    assert "not compared" not in said
    assert set(tmp_path.rglob("*")) == before | {tmp_path / "dump"}
    (tmp_path / "laas.conf").write_text("[database]\nconnection = postgresql://127.0.0.1:1/none\n")
    said = run("fabric", "import", tmp_path / "dump", "--dry-run")
    assert "not compared with the managed fabrics: " in said


def fabric_of_dual_ports(number, first, step):
    """A fabric of two machines, and of the ports ``number`` of two that another one has, too.

    The GUIDs of ports are ``first`` and so on above that of their node, ``step`` apart.
    """
    made = Plugged()
    for n in range(2):
        made.add(f"own{number}{n} mlx4_0", n)
    for node in made.nodes:
        node.guid ^= number << 56
    text = made.dump().replace("fc6a1c03", f"fc6a1c{number:02x}")
    for n in range(2):
        guid, at = 0x2C9030000A000 + 16 * n, f"S-fc6a1c{number:02x}{0x40 * (n + 1):08x}"
        port = guid + first + step * (number - 1)
        name = f"both{number}{n} mlx4_0"
        line = f'[9]\t"H-{guid:016x}"[{number}]({port:x}) \t\t# "{name}" lid 9 4xNDR'
        lines = text.split("\n")
        place = next(i for i, each in enumerate(lines) if each.startswith(f'Switch\t65 "{at}"'))
        lines.insert(place + 1, line)
        text = "\n".join(lines) + (
            f'\ncaguid=0x{guid:x}\nCa\t2 "H-{guid:016x}"\t\t# "{name}"\n'
            f'[{number}]({port:x}) \t"{at}"[9]\t\t# lid 9 lmc 0 "sw{n}" lid 1 4xNDR\n'
        )
    return text


@pytest.mark.parametrize(("first", "step"), [(1, 1), (0, 1), (0, 8)])
def test_an_adapter_with_a_port_in_two_fabrics_is_told(run, first, step):
    """The machine may be called otherwise in each: only the GUID of the node shows it."""
    for number in (1, 2):
        text = fabric_of_dual_ports(number, first, step)
        (run.path / "dump").write_text(text)
        words = ("fabric", "import", run.path / "dump", "--id", f"f{number}")
        dry, said = (" ".join(run(*words, *more).split()) for more in (["--dry-run"], []))
        assert ("2 adapters" in said) == (number == 2)
        assert dry.count("adapters") == said.count("adapters")
    assert "2 adapters have a port here and another one in fabric f1" in said
    assert "0x0002c9030000a000, 0x0002c9030000a010" in said
    assert "no findings" in run("db", "check")


def test_of_two_imports_at_once_one_is_refused(run):
    fabric, ended = read_fabric("2;2,2;1,2"), []

    def add(id):
        try:
            run.store().fabrics.add(id, fabric.topology, fabric.inventory)
            ended.append(id)
        except ManagedElsewhere as error:
            ended.append(str(error))

    at_once(partial(add, "one"), partial(add, "two"))
    assert len(run.store().fabrics.all()) == 1
    assert sum("of the same switches" in each for each in ended) == 1


def test_the_report_is_a_page_whose_lines_fit(run, monkeypatch):
    """One line a kind, with what to act on before the counts; ``--all`` names every one."""
    described = {"xgft": "3;4,4,4;1,4,4", "missing_cables": 5, "aggregation_nodes": True}
    made, dump = run.path / "made.json", run.path / "dump.txt"
    made.write_text(json.dumps(described))
    run("fabric", "generate", made, "--output", dump)
    page = run("fabric", "import", dump, "--dry-run").splitlines()
    assert max(map(len, page)) <= 100
    assert page[1] == "to act on:"
    assert page[2].startswith("  5 missing cable: 0 of 1 cables (")
    assert sum("missing cable" in line for line in page) == 1
    everything = run("fabric", "import", dump, "--dry-run", "--all")
    assert everything.count("missing cable: 0 of 1 cables") == 5


def test_what_is_accepted_is_told(run):
    torus = NO_TREES["torus 4x4"].dump().encode()
    answer = told(run, torus, "--accept", "no-fat-tree", "--dry-run", rc=0)
    assert answer["accepted"] == ["no-fat-tree"]
    page = run("fabric", "import", run.path / "dump", "--accept-no-fat-tree", "--dry-run")
    assert page.startswith("accepted, though the cabling is no fat-tree:")
    assert "pairs of hosts may have no route" in page
    assert told(run, TEXT, "--accept", "no-fat-tree", "--dry-run", rc=0)["accepted"] == []


def test_a_long_import_says_after_two_seconds_what_it_does(run, monkeypatch):
    slow, over = run.path / "slow", threading.Event()
    os.mkfifo(slow)

    def feed():
        with slow.open("wb") as pipe:
            over.wait(3)
            pipe.write(TEXT)

    feeder = threading.Thread(target=feed)
    feeder.start()
    said = run("fabric", "import", slow, "--dry-run")
    feeder.join(60)
    assert f"laas-manage: reading {slow}, 2 s so far" in said
