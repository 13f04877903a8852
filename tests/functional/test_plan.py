# SPDX-License-Identifier: Apache-2.0

"""``laas-plan`` as a command: files, streams and exit status."""

import json
import subprocess
import sys
from random import Random

import pytest

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.fabric_file import read_fabric
from laas_service.adapters.snapshot import fabric_from_snapshot
from laas_service.domain.verification import violations
from opensm_writer import parse
from tests.cablings import NO_TREES
from tests.managers import EIGHT_RAILS
from tests.shared import SHARED, needs_shared
from tests.terminal import on_a_terminal

COMMAND = [sys.executable, "-m", "laas_service.cmd.plan"]
XGFT = "3;4,4,4;1,4,4"


def plan(*args, requests=(), status=0):
    """Run ``laas-plan`` and return its answers.

    The exit status must be ``status``; unless that is 1, standard error must be empty.
    """
    text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in requests)
    done = subprocess.run(
        [*COMMAND, *map(str, args)], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    assert status == 1 or done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def allocate(id, hosts, **more):
    return {"op": "allocate", "id": id, "hosts": hosts, **more}


def test_a_day_in_files(tmp_path):
    requests, output, state = (tmp_path / name for name in ("in", "out", "state.json"))
    lines = [allocate("t1", 23), allocate("t2", 9, policy="laas"), {"op": "release", "id": "t2"}]
    requests.write_text("\n".join(map(json.dumps, lines)))
    said = plan(
        "--xgft", XGFT, "--policy", "jigsaw", "--requests", requests, "--output", output,
        "--snapshot", state, "--tables",
    )  # fmt: skip
    assert said == []
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert [a["outcome"] for a in answers] == ["allocated", "allocated", "released"]
    snapshot = json.loads(state.read_text())
    (t1,) = snapshot["allocations"]
    for name in ("hosts", "leaf_links", "spine_links", "shape"):
        assert t1[name] == answers[0][name]
    assert len(t1["hosts"]) == t1["n"] == 23
    assert t1["tables"]["leaf:0:0"]["0"] == "host"
    assert {key.split(":")[0] for key in t1["tables"]} == {"leaf", "l2", "spine"}


DAY = [
    allocate("blue", 6),
    {"op": "probe", "hosts": 3},
    allocate("red", 60),
    {"op": "fail", "host": 63},
    {"op": "fail", "leaf_link": [3, 3, 3]},
    {"op": "make-room", "hosts": 1, "moves": 1},
    {"op": "resize", "id": "blue", "hosts": 8},
    allocate("green", 2),
    {"op": "release", "id": "green"},
    {"op": "grow"},
]


def at_a_terminal(*args, requests, columns=80):
    """What ``laas-plan`` prints on a pseudo-terminal, which it gets requests from a pipe."""
    text = "".join(json.dumps(x) + "\n" for x in requests)
    return on_a_terminal([*COMMAND, *args], columns, text)[1]


@pytest.fixture(scope="module")
def answers():
    """What a pipe gets."""
    return plan("--xgft", XGFT, requests=DAY, status=2)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_people_at_a_terminal_read_sentences_a_table_and_a_drawing(answers, columns):
    """The same answers as JSON, which a pipe gets; hosts have their names."""
    written = at_a_terminal("--xgft", XGFT, requests=DAY, columns=columns)
    lines = written.splitlines()
    for line, answer in zip(lines, answers, strict=False):
        assert line.startswith(f"{answer['outcome']}  "), line
        assert "{" not in line
    assert "blue: 6 hosts, shape 1x(1x4)+(0x4+2), on node[00-05]" in lines[0]
    assert "3 hosts as " in lines[1]
    assert answers[2]["detail"] in lines[2]
    assert f"the largest that fits is {answers[2]['largest_fit']}" in lines[2]
    assert lines[3] == "ok  fail host node63"
    assert lines[4] == "ok  fail leaf_link [3, 3, 3]"
    assert "blue: 8 hosts" in lines[6]
    assert lines[8] == "released  green"
    assert "grow" in lines[9]
    shown = lines[len(answers) :]
    assert "node[00-07]" in "".join("".join(shown).split())
    assert "pod 0  AAAA AAAA .... ...." in lines
    assert "pod 3  .... .... .... ...!" in lines
    assert all(len(line) <= columns for line in shown)


def test_the_form_of_the_answers_can_be_chosen():
    done = subprocess.run(
        [*COMMAND, "--xgft", XGFT, "--format", "text"], input=json.dumps(allocate("blue", 6)),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("allocated  blue: 6 hosts")
    assert json.loads(
        at_a_terminal("--xgft", XGFT, "--format", "json", requests=[allocate("blue", 6)])
    )["hosts"] == [*range(6)]


def test_hosts_beside_a_manager_with_rails_apart_are_not_offered(tmp_path):
    described = tmp_path / "described.json"
    described.write_text(EIGHT_RAILS.model_dump_json())
    requests = [allocate("t1", 21), {"op": "repair", "host": 0}, allocate("t2", 21)]
    refused, _, allocated = plan("--fabric", described, "--policy", "baseline", requests=requests)
    assert (refused["outcome"], refused["largest_fit"]) == ("refused", 20)
    assert allocated["outcome"] == "allocated"


def test_a_run_continues_from_a_snapshot(tmp_path):
    state = tmp_path / "state.json"
    plan(
        "--xgft",
        XGFT,
        "--snapshot",
        state,
        requests=[allocate("t1", 60), {"op": "fail", "host": 63}],
    )
    again = [allocate("t1", 1), allocate("t2", 4), {"op": "repair", "host": 63}, allocate("t2", 4)]
    for given in (["--state", state], ["--xgft", XGFT, "--state", state]):
        answers = plan(*given, requests=again)
        assert [a["outcome"] for a in answers] == ["error", "refused", "ok", "allocated"]
        assert answers[1]["largest_fit"] == 3
        assert answers[3]["hosts"] == [60, 61, 62, 63]


def refusal(*args):
    done = subprocess.run(
        [*COMMAND, *map(str, args)], input="", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    return done.stderr


def test_a_state_of_another_fabric_is_refused_and_told_what_differs(tmp_path):
    state = tmp_path / "state.json"
    plan("--xgft", XGFT, "--snapshot", state)
    told = refusal("--xgft", "3;4,4,3;1,4,4", "--state", state)
    assert "m is (4, 4, 4) in the snapshot and (4, 4, 3) in the fabric given; leave out" in told
    assert f'give --xgft "{XGFT}"' in told
    assert "w is" not in told
    told = refusal("--xgft", "2;4,4;1,4", "--state", state)
    assert "w is (1, 4, 4) in the snapshot and (1, 4, 0) in the fabric given" in told


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("3;18,18,36;1,18", "3 levels need 3 sizes w, there are 2"),
        ("2;18;1,18", "2 levels need 2 sizes m, there are 1"),
        ("4;2,2,2,2;1,2,2,2", "it begins with the number of levels, 2 or 3"),
        ("3;0,18,36;1,18,18", "m is (0, 18, 36): give three sizes of at least 1"),
        ("3;4,4,4;2,4,4", "w is (2, 4, 4): give [1, w2, w3]"),
        ("3;4,4,4;1,0,4", "w is (1, 0, 4): a pod of several leaves needs w2 of at least 1"),
        ("18,18", 'write "3;m1,m2,m3;1,w2,w3" or "2;m1,m2;1,w2"'),
        ("fat-tree", 'write "3;m1,m2,m3;1,w2,w3" or "2;m1,m2;1,w2"'),
        (__file__, "this is a file; give it with --fabric"),
    ],
)
def test_a_wrong_xgft_gets_advice_about_xgft(spec, told):
    refused = refusal("--xgft", spec)
    assert f"laas-plan: xgft: {spec!r} is not valid; " in refused
    assert told in refused
    assert "ibnetdiscover" not in refused


def test_a_dump_of_no_fat_tree_is_refused(tmp_path):
    dump = tmp_path / "torus.txt"
    dump.write_text(NO_TREES["torus 4x4"].dump())
    assert "the cabling is no fat-tree" in refusal("--fabric", dump)


def test_each_answer_comes_before_the_next_request_is_written():
    with subprocess.Popen(
        [*COMMAND, "--xgft", XGFT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        for id in ("t1", "t2"):
            process.stdin.write(json.dumps(allocate(id, 5)) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["outcome"] == "allocated"
        process.stdin.close()
    assert process.returncode == 0


def test_a_malformed_line_makes_status_2_and_changes_nothing(tmp_path):
    state = tmp_path / "state.json"
    answers = plan(
        "--xgft", XGFT, "--snapshot", state,
        requests=["{", allocate("t1", 3), {"op": "release", "id": "t9"}],
        status=2,
    )  # fmt: skip
    assert [a["outcome"] for a in answers] == ["error", "allocated", "error"]
    assert len(json.loads(state.read_text())["allocations"]) == 1


def test_an_unknown_id_alone_leaves_status_0():
    assert plan("--xgft", XGFT, requests=[{"op": "release", "id": "t9"}])[0]["outcome"] == "error"


def test_bytes_that_are_not_text_are_malformed():
    done = subprocess.run(
        [*COMMAND, "--xgft", XGFT],
        input=b'\xff\xfe\x00{"\n' + b"\x80\n",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("args", "status"),
    [
        ([], 2),
        (["--xgft", XGFT, "--policy", "best"], 2),
        (["--xgft", "3;4,4"], 1),
        (["--fabric", "/nowhere/at/all"], 1),
        (["--xgft", XGFT, "--requests", "/nowhere/at/all"], 1),
        (["--xgft", XGFT, "--output", "/nowhere/at/all"], 1),
        (["--xgft", XGFT, "--snapshot", "/nowhere/at/all"], 1),
        (["--xgft", XGFT, "--state", "/nowhere/at/all"], 1),
        (["--xgft", XGFT, "--opensm", "/proc/nowhere"], 1),
    ],
)
def test_an_unusable_file_or_option_is_reported_in_one_sentence(args, status):
    done = subprocess.run([*COMMAND, *args], input="", capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("laas-plan: ")
    assert done.stderr.count("\n") == status


def test_a_dump_of_ibnetdiscover_and_files_for_opensm(tmp_path):
    """The files for the subnet manager can be parsed and hold the tenants' partition keys."""
    described = {"xgft": "3;4,4,4;1,4,4", "rails": 2}
    dump = tmp_path / "fabric.txt"
    dump.write_text(ibnetdiscover.render(read_fabric(json.dumps(described)).inventory))
    out, state = tmp_path / "sm", tmp_path / "state.json"
    wanted = [allocate("t1", 5), allocate("t2", 11), allocate("t3", 1)]
    answers = plan("--fabric", dump, "--opensm", out, "--snapshot", state, requests=wanted)
    assert [a["outcome"] for a in answers] == ["allocated"] * 3
    current = out / "current"
    assert json.loads((current / "manifest.json").read_text())["generation"] == 1
    keys = parse.partitions((current / "partitions.conf").read_text(), "partitions.conf")
    assert [(p.pkey, len(p.members)) for p in keys.partitions] == [(1, 10), (2, 22), (3, 2)]
    assert str(current / "lfts") in (current / "opensm.conf").read_text()
    plan(
        "--fabric",
        dump,
        "--state",
        state,
        "--opensm",
        out,
        requests=[{"op": "release", "id": "t2"}],
    )
    assert json.loads((current / "manifest.json").read_text())["generation"] == 2


@needs_shared
@pytest.mark.parametrize("name", ["dgx-ndr-2025", "lassen-edr-2019", "lab4sw-2023"])
@pytest.mark.parametrize("policy", ["jigsaw", "laas", "simple"])
def test_allocations_on_real_fabrics_are_verified(name, policy, tmp_path):
    """Allocations of many sizes; some are refused, and the snapshot has no violations."""
    sizes = [1, 3, 2, 7, 25, 60, 4, 130, 18, 40, 300, 5]
    state = tmp_path / "state.json"
    answers = plan(
        "--fabric", SHARED / "fabrics" / f"{name}.ibnetdiscover.txt", "--policy", policy,
        "--snapshot", state,
        requests=[allocate(f"t{n}", size) for n, size in enumerate(sizes)],
    )  # fmt: skip
    assert any(a["outcome"] == "allocated" for a in answers)
    fabric = fabric_from_snapshot(json.loads(state.read_text()))
    assert violations(fabric.topology, fabric.allocations.values(), Random(1)) == []
