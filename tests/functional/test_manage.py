# SPDX-License-Identifier: Apache-2.0

"""``laas-manage``: database, fabrics, quotas, common plane and verification."""

import io
import json
import re
import sqlite3
from dataclasses import replace

import pytest

from laas_service.adapters.db import schema
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.fabrics import StoredFabrics
from laas_service.adapters.db.leases import SqlLeases
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.fabric_import.fabric_file import read_fabric
from laas_service.adapters.fabric_import.netlist import netlist
from laas_service.app.lifecycle import State
from laas_service.app.requests import AllocationRequest
from laas_service.cmd import manage
from laas_service.cmd.manage import verify
from laas_service.domain import verification
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Request
from laas_service.domain.features import HostFeatures
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import LeafLink
from laas_service.messages import Applied, Master, Running
from opensm_writer.desired import subnet_configuration
from opensm_writer.render import lfts
from tests.cablings import NO_TREES
from tests.ibsim import Simulator
from tests.managers import EIGHT_RAILS
from tests.marks import needs_ibsim
from tests.shared import REPO

pytestmark = pytest.mark.road

EXAMPLE = str(REPO / "etc" / "laas" / "fabric-example.json")
SERVICES = ["--exclude", "storage*", "--subnet-manager", "sm*"]


class Tool:
    """``laas-manage`` with its own state directory."""

    def __init__(self, path, capsys):
        self.path = path
        self._capsys = capsys
        self._config = path / "laas.conf"
        self._config.write_text(f"[DEFAULT]\nstate_dir = {path}\n")

    def __call__(self, *command, rc=0):
        """Run a command, which must end with status ``rc``; return its output."""
        status = manage.main([f"--config-file={self._config}", *map(str, command)])
        printed = self._capsys.readouterr()
        assert status == rc, printed
        return printed.out + printed.err

    def store(self):
        return SqlStore(connect(f"sqlite:///{self.path}/laas.sqlite"))


def elsewhere(text):
    """The fabric with other GUIDs, as another one has."""
    return text.replace("2c90", "2d90")


def generated_twice(tool, xgft):
    """Files of two fabrics of one form, with different GUIDs."""
    described, one, two = (tool.path / name for name in ("f.json", "a.json", "b.json"))
    described.write_text(xgft)
    tool("fabric", "generate", described, "--format", "snapshot", "--output", one)
    two.write_text(elsewhere(one.read_text()))
    return one, two


@pytest.fixture
def run(tmp_path, capsys):
    return Tool(tmp_path, capsys)


@pytest.fixture
def ready(run):
    run("db", "upgrade")
    return run


def tenants(store, fabric, *sizes, first=0):
    for number, size in enumerate(sizes, start=first):
        request = Request(f"t{number}", size)
        new = AllocationRequest(
            id=request.id,
            fabric=fabric,
            name=request.id,
            project_id="p",
            policy="jigsaw",
            hosts=size,
        )
        store.admissions.admit(
            new, lambda draft, r=request: admit(POLICIES["jigsaw"](), draft.ledger, r)
        )


def test_database(run):
    assert "revision none" in run("db", "version", rc=1)
    assert "run laas-manage db upgrade" in run("fabric", "list", rc=1)
    run("db", "upgrade")
    run("db", "upgrade")
    assert "none" not in run("db", "version")


def test_released_allocations_are_archived_or_purged(ready):
    ready("fabric", "import", EXAMPLE, "--id", "fabric")
    store = ready.store()
    tenants(store, "fabric", 5, 40, 11)
    for id in ("t0", "t1"):
        record = store.allocations.transition(store.allocations.get(id), State.RELEASING, "asked")
        store.allocations.free(store.allocations.hand_back(record), "gone")
    path = ready.path / "released"
    assert f"{path}: 0 released" in ready("db", "archive", path, "--released-days", 1)
    with sqlite3.connect(ready.path / "laas.sqlite") as database:
        long_ago = "update allocation set updated_at = '2020-01-01 00:00:00' where id = ?"
        database.execute(long_ago, ("t0",))
    assert f"{path}: 1 released" in ready("db", "archive", path)
    [line] = path.read_text().splitlines()
    assert json.loads(line)["allocation"]["id"] == "t0"
    assert path.stat().st_mode & 0o777 == 0o640
    with sqlite3.connect(ready.path / "laas.sqlite") as database:
        database.execute(long_ago, ("t1",))
    assert "give a file that can be written" in ready("db", "archive", ready.path, rc=1)
    assert "1 released allocations are deleted" in ready("db", "purge", "--released-days", 400)
    assert [record.id for record in ready.store().allocations.page()] == ["t2"]
    assert "no findings" in ready("db", "check")


@pytest.mark.parametrize("days", ["0", "-1", "many", "100000"])
def test_days_that_cannot_be(run, days):
    with pytest.raises(SystemExit):
        run("db", "purge", "--released-days", days)


def test_nothing_is_deleted_where_the_configuration_keeps_all(ready):
    with ready._config.open("a") as config:
        config.write("[retention]\nreleased_days = 0\n")
    said = ready("db", "purge", rc=1)
    assert "--released-days" in said
    assert "[retention] released_days" in said


def test_generate_import_list_export_import(ready):
    dump, again = ready.path / "dump.txt", ready.path / "again.json"
    ready("fabric", "generate", EXAMPLE, "--output", dump)
    dry = ready("fabric", "import", dump, *SERVICES, "--dry-run")
    assert "recorded" not in dry
    report = ready("fabric", "import", dump, *SERVICES, "--id", "one")
    assert report == dry + "recorded as one\n"
    assert "123 hosts for tenants" in report
    assert "extra parallel cable" in report
    assert "already" in ready("fabric", "import", dump, "--id", "one", rc=1)
    listed = ready("fabric", "list")
    assert "8,8,4 ; 1,8,8" in listed
    assert "123" in listed

    ready("fabric", "export", "--output", again)
    again.write_text(elsewhere(again.read_text()))
    ready("fabric", "import", again, "--id", "two")
    one, two = ready.store().fabrics.all()
    assert one.topology == two.topology == read_fabric(EXAMPLE).topology
    assert one.inventory == read_fabric(EXAMPLE).inventory
    assert two.inventory == read_fabric(again).inventory
    for form in ("netlist", "ibnetdiscover"):
        assert "MF0;leaf-0-0" in ready("fabric", "export", "one", "--format", form)
    assert "name one of one, two" in ready("fabric", "export", rc=1)
    for words in (("two",), ("--fabric", "two")):
        assert "rails" in ready("fabric", "export", *words)
    assert "no fabric 'three'" in ready("fabric", "export", "three", rc=1)


@pytest.mark.parametrize("form", ["description", "snapshot", "ibnetdiscover"])
def test_hosts_beside_a_manager_with_rails_apart_are_withheld_from_any_file(ready, form):
    described, file = ready.path / "described.json", ready.path / form
    described.write_text(EIGHT_RAILS.model_dump_json())
    if form == "description":
        file = described
    else:
        ready("fabric", "generate", described, "--format", form, "--output", file)
    managers = ("--subnet-manager", "sm*")
    told = ready("fabric", "import", file, *managers, "--id", "withheld", "--all")
    told = " ".join(told.split())
    assert told.count("kept out: a leaf with a subnet manager has routes") == 4
    assert "warning" not in told
    ledger, _ = ready.store().fabrics.ledger("withheld")
    assert ledger.free_host_count == 20
    ready.store().fabrics.delete("withheld")
    words = ("--include", "node*", "--id", "offered", "--all")
    told = " ".join(ready("fabric", "import", file, *managers, *words).split())
    assert told.count("is offered, because --include names it") == 4
    ledger, _ = ready.store().fabrics.ledger("offered")
    assert ledger.free_host_count == 24


def test_an_import_without_a_manager_warns(ready):
    made, dump = ready.path / "made.json", ready.path / "dump.txt"
    made.write_text(EIGHT_RAILS.model_dump_json())
    ready("fabric", "generate", made, "--output", dump)
    assert "warning: no subnet manager is known" in ready("fabric", "import", dump)


def test_no_fat_tree_is_imported_only_if_asked_by_name(ready):
    dump, again = ready.path / "torus.txt", ready.path / "again.json"
    dump.write_text(NO_TREES["torus 4x4"].dump())
    for dry in ((), ("--dry-run",)):
        told = ready("fabric", "import", dump, *dry, rc=1)
        assert "12 of 32 cables between switches lie outside the tree" in told
        assert "switch-0[0x0002c90200000010] port 6 - switch-12[0x0002c902000000d0] port 3" in told
    assert ready.store().fabrics.all() == []
    assert "recorded" in ready("fabric", "import", dump, "--accept-no-fat-tree")
    assert "no fat-tree" in ready("fabric", "reimport", dump, rc=1)
    assert "nothing changed" in ready("fabric", "reimport", dump, "--accept-no-fat-tree")
    ready("fabric", "export", "--output", again)
    again.write_text(elsewhere(again.read_text()))
    assert "no fat-tree" in ready("fabric", "import", again, "--id", "two", rc=1)
    ready("fabric", "import", again, "--id", "two", "--accept", "no-fat-tree")


def test_what_hosts_are_like_is_set_by_pattern_and_travels_with_the_snapshot(ready):
    description = '{"xgft": "3;2,2,2;1,2,2", "hosts": {"7": {"traits": ["gpu"], "cost": 5}}}'
    again = ready.path / "again.json"
    path = ready.path / "fabric.json"
    path.write_text(description)
    ready("fabric", "import", path)
    store = ready.store()
    gpu = HostFeatures(frozenset({"gpu"}), 5)
    assert store.fabrics.ledger("fabric")[0].features.hosts == {7: gpu}
    words = ("--trait", "gpu", "--trait", "HW_NVME", "--cost", "3")
    assert "3 hosts described" in ready("host", "set", "node[67]", "node0", *words)
    assert "8 hosts described" in ready("host", "set", "node*", "--cost", "1")
    assert "1 hosts described" in ready("host", "set", "node0", "--no-traits")
    known = store.fabrics.ledger("fabric")[0].features
    assert known.of(0) == HostFeatures(cost=1)
    assert known.of(6) == HostFeatures(frozenset({"gpu", "HW_NVME"}), 1)
    ready("fabric", "export", "--output", again)
    again.write_text(elsewhere(again.read_text()))
    ready("fabric", "import", again, "--id", "two")
    assert store.fabrics.ledger("two")[0].features == known
    ready("fabric", "generate", path, "--format", "snapshot", "--output", again)
    assert json.loads(again.read_text())["topology"]["hosts"]["7"] == {"traits": ["gpu"], "cost": 5}


def test_what_cannot_be_set_is_named_and_nothing_is_recorded(ready):
    path = ready.path / "fabric.json"
    path.write_text('{"xgft": "3;2,2,2;1,2,2"}')
    ready("fabric", "import", path)
    assert "'node9'" in ready("host", "set", "node0", "node9", "--cost", "1", rc=1)
    assert "say what to change" in ready("host", "set", "node0", rc=1)
    for words in (("--cost", "-1"), ("--cost", "x"), ("--trait", "two words")):
        with pytest.raises(SystemExit):
            ready("host", "set", "node0", *words)
    assert ready.store().fabrics.ledger("fabric")[0].features.hosts == {}
    for hosts in ('{"8": {}}', '{"0": {"cost": -1}}', '{"0": {"colour": "red"}}', '["node0"]'):
        path.write_text(f'{{"xgft": "3;2,2,2;1,2,2", "hosts": {hosts}}}')
        assert "hosts" in ready("fabric", "import", path, "--id", "bad", rc=1)


def test_quotas_of_projects(ready):
    ready("quota", "set", "blue", "--hosts", 64, "--allocations", -1)
    ready("quota", "set", "red", "--hosts", 0, "--moves", 2)
    assert ready("quota", "list").splitlines() == [
        "blue: 0 of 64 hosts, 0 of any allocations, 0 of the default moves, 0 of the default slots",
        "red: 0 of 0 hosts, 0 of the default allocations, 0 of 2 moves, 0 of the default slots",
    ]
    ready("quota", "unset", "blue")
    assert "blue" not in ready("quota", "list")
    assert "there is no quota of project 'blue'" in ready("quota", "unset", "blue", rc=1)
    assert "give --hosts, --allocations, --moves or --slots" in ready("quota", "set", "red", rc=1)
    assert "give the id of a project" in ready("quota", "set", "a b", "--hosts", 1, rc=1)
    for wrong in ("-2", "many", "9" * 5000):
        with pytest.raises(SystemExit):
            ready("quota", "set", "red", "--hosts", wrong)


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("racks.7.txt", "racks.7"),
        ("Halle 2 (neu).json", "Halle-2-neu-"),
        ("..hidden.txt", "hidden"),
        ("é.json", "fabric"),
        ("x" * 100, "x" * 64),
    ],
)
def test_the_file_names_the_fabric(ready, name, id):
    (ready.path / name).write_text("3;2,2,2;1,2,2")
    assert ready("fabric", "import", ready.path / name).endswith(f"recorded as {id}\n")
    assert [fabric.id for fabric in ready.store().fabrics.all()] == [id]


def test_the_configured_fabric_is_meant_if_none_is_named(ready):
    for file in generated_twice(ready, "3;2,2,2;1,2,2"):
        ready("fabric", "import", file)
    words = ("host", "set", "node0", "--cost", "1")
    assert "name one of a, b" in ready(*words, rc=1)
    with ready._config.open("a") as config:
        config.write("[api]\ndefault_fabric = b\n")
    assert ready(*words) == "b: 1 hosts described\n"
    assert ready(*words, "--fabric", "a") == "a: 1 hosts described\n"
    assert ready("fabric", "plane").startswith("b: ")


def test_a_pipe_gets_whole_rows_and_a_terminal_lines_that_fit(ready, monkeypatch):
    (ready.path / f"{'long' * 16}.txt").write_text("3;2,2,2;1,2,2")
    ready("fabric", "import", *ready.path.glob("long*"))
    monkeypatch.setenv("COLUMNS", "60")
    (row,) = ready("fabric", "list").splitlines()[1:]
    assert row.split()[0] == "long" * 16
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lines = re.sub("\x1b.*?m", "", ready("fabric", "list")).splitlines()
    assert max(map(len, lines)) <= 60
    assert "".join(line[:12].strip() for line in lines).endswith("long" * 16)


def test_ctrl_c_is_quiet(ready, monkeypatch):
    def interrupted(store):
        raise KeyboardInterrupt

    monkeypatch.setattr(StoredFabrics, "all", interrupted)
    for command in (["fabric", "list"], ["fabric", "verify"]):
        assert ready(*command, rc=130) == ""


def test_import_from_standard_input(ready, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"hello\nworld\n")))
    printed = ready("fabric", "import", "-", rc=1)
    assert printed.startswith("laas-manage: standard input, line 1: ")
    assert printed.count("\n") == 1


def test_faults_of_a_snapshot_are_recorded(ready):
    document = {
        "m": [2, 2, 1],
        "w": [1, 2, 0],
        "failed_hosts": [3],
        "failed_leaf_links": [[0, 1, 0]],
    }
    path = ready.path / "fabric.json"
    path.write_text(json.dumps({"topology": document}))
    ready("fabric", "import", path)
    ledger, _ = ready.store().fabrics.ledger("fabric")
    assert ledger.failed_hosts == {3}
    assert ledger.failed_links == {LeafLink(0, 1, 0)}
    exported = json.loads(ready("fabric", "export"))
    assert exported["topology"]["failed_hosts"] == [3]
    assert exported["topology"]["failed_leaf_links"] == [[0, 1, 0]]


def test_a_shared_plane(ready):
    ready("fabric", "import", EXAMPLE, "--id", "fabric")
    assert "nothing withheld" in ready("fabric", "plane")
    printed = ready("fabric", "plane", "--l2", 0, "--dry-run", "--jobs", 60)
    assert "L2 index 0 would be withheld" in printed
    assert re.search(r"jigsaw +\d+ -> \d+ +\d+ -> \d+ +\d+\.\d% -> \d+\.\d%", printed)
    assert printed == ready("fabric", "plane", "--l2", 0, "--dry-run", "--jobs", 60)
    assert "-> -" in ready("fabric", "plane", "--l2", 0, "--dry-run", "--jobs", 0)
    assert "nothing withheld" in ready("fabric", "plane")
    assert "recorded as generation 2" in ready("fabric", "plane", "--l2", 0)
    tenants(ready.store(), "fabric", 5, 40)
    assert "no violations" in ready("fabric", "verify")
    assert "release them first: t0" in ready("fabric", "plane", "--l2", 1, rc=1)
    assert json.loads(ready("fabric", "export"))["topology"]["shared_plane"] == {
        "l2": [0],
        "spines": [],
    }
    assert "l2" in ready("fabric", "plane", "--l2", 99, rc=1)
    assert "not both" in ready("fabric", "plane", "--l2", 1, "--none", rc=1)
    assert "nothing withheld" in ready("fabric", "plane", "--none")


def test_export_holds_the_allocations(ready):
    ready("fabric", "import", EXAMPLE, "--id", "fabric")
    tenants(ready.store(), "fabric", 5, 40)
    first, second = json.loads(ready("fabric", "export"))["allocations"]
    assert (first["id"], first["n"], first["policy"], len(first["hosts"])) == ("t0", 5, "jigsaw", 5)
    assert len(second["hosts"]) == 40
    assert second["leaf_links"]
    assert not {tuple(x) for x in first["leaf_links"]} & {tuple(x) for x in second["leaf_links"]}


def test_verify(ready):
    assert "there is no fabric" in ready("fabric", "verify", rc=2)
    ready("fabric", "import", EXAMPLE, "--id", "fabric")
    tenants(ready.store(), "fabric", 5, 40, 11, 1)
    assert "4 allocations, no violations" in ready("fabric", "verify")

    with sqlite3.connect(ready.path / "laas.sqlite") as database:
        of_t1 = "allocation_placement where allocation = 't1'"
        (text,) = database.execute(f"select placed from {of_t1}").fetchone()
        placed = json.loads(text)
        group, hosts, uplinks = placed["groups"][0]
        placed["groups"][0] = [group, hosts, hex(int(uplinks, 16) & int(uplinks, 16) - 1)]
        changed = "update allocation_placement set placed = ? where allocation = 't1'"
        database.execute(changed, [json.dumps(placed)])
    printed = ready("fabric", "verify", rc=1)
    assert "shape: t1: " in printed
    assert "no violations" not in printed


def test_verify_looks_at_every_fabric(ready):
    """If one fabric cannot be checked, the results of the others are still printed."""
    one, two = generated_twice(ready, '{"xgft": "2;4,4;1,4"}')
    third = ready.path / "c.json"
    third.write_text(one.read_text().replace("2c90", "2e90"))
    for file in (one, two, third):
        ready("fabric", "import", file)
    tenants(ready.store(), "b", 3)
    found = json.loads(ready("fabric", "verify", "--json"))
    nothing: dict[str, object] = {"violations": [], "walks": None, "ports": None}
    nothing |= {"virtual_ports": {"recorded": 0, "read": 0}}
    nothing |= {"unsettled": None, "unmanaged": [], "engine": None, "master": None}
    nothing |= {"chains": None}
    assert found == {
        "fabrics": [
            {"fabric": "a", "generation": 1, "allocations": 0, **nothing},
            {"fabric": "b", "generation": 2, "allocations": 1, **nothing},
            {"fabric": "c", "generation": 1, "allocations": 0, **nothing},
        ],
        "failures": {},
    }
    assert ready("fabric", "verify").count("no violations") == 3
    with sqlite3.connect(ready.path / "laas.sqlite") as database:
        database.execute("update allocation_placement set placed = '[]'")
    printed = ready("fabric", "verify", rc=2)
    assert "b was not checked: " in printed
    assert "a, generation 1: 0 allocations, no violations" in printed
    assert "c, generation 1: 0 allocations, no violations" in printed


def test_verify_ends_with_two_whatever_keeps_it_from_looking(ready, monkeypatch):
    """Status 1 is reserved for violations."""
    ready("fabric", "import", EXAMPLE, "--id", "fabric")
    with sqlite3.connect(ready.path / "laas.sqlite") as database:
        database.execute("update alembic_version set version_num = 'a001'")
    assert "laas-manage db upgrade" in ready("fabric", "verify", rc=2)
    with sqlite3.connect(ready.path / "laas.sqlite") as database:
        database.execute(f"update alembic_version set version_num = '{schema.head()}'")
    monkeypatch.setattr(verification, "violations", lambda *a, **k: 1 // 0)
    printed = ready("fabric", "verify", rc=2)
    assert "unexpected ZeroDivisionError" in printed
    assert "Traceback" not in printed


def test_verify_reads_one_moment(ready, monkeypatch):
    """An allocation that completes a change between two reads is not reported as a violation."""
    ready("fabric", "import", EXAMPLE, "--id", "fabric")
    store = ready.store()
    looks: list[object] = []

    def late(parts, id, original=verify._changing):
        if len(looks) < 2:
            looks.append(tenants(store, "fabric", 1 + len(looks), first=len(looks)))
        return original(parts, id)

    monkeypatch.setattr(verify, "_changing", late)
    assert "2 allocations, no violations" in ready("fabric", "verify")
    monkeypatch.setattr(verify, "TRIES", 0)
    assert "was not checked: fabric fabric changed" in ready("fabric", "verify", rc=2)


@needs_ibsim
def test_verify_what_opensm_programmed(ready):
    """Verify tables that the real OpenSM programmed, as ``dump_lfts`` reads them back."""
    ready("fabric", "import", EXAMPLE, "--id", "fabric")
    tenants(ready.store(), "fabric", 5, 40, 11)
    state = ready.store().fabrics.routed("fabric")
    manager = next(e.guid for e in state.inventory.endpoints if e.name.startswith("sm"))
    with Simulator(netlist(state.inventory), "sm00 mlx5_0") as simulator:
        (simulator.directory / "lfts").write_text("".join(lfts(subnet_configuration(state))))
        (simulator.directory / "osm.conf").write_text(
            f"routing_engine file,no_fallback\nlfts_file {simulator.directory}/lfts\n"
        )
        simulator.run("opensm", "-o", "-F", "osm.conf", "-f", "osm.log", "-e")
        dump = simulator.read("dump_lfts")
    path = ready.path / "lfts.txt"
    path.write_text(dump)
    words = ["fabric", "verify", "--lfts", path, "--subnet-manager", hex(manager)]
    printed = ready(*words)
    ports = [2 * size for size in (5, 40, 11)]
    pairs = sum(n * (n - 1) for n in ports)
    assert printed.startswith("fabric, generation 4: 3 allocations, no violations")
    assert f"on {pairs} walks inside tenants and {2 * (len(state.inventory.lids) - 1)} " in printed
    (found,) = json.loads(ready(*words, "--json"))["fabrics"]
    assert found["walks"]["tenants"] == pairs
    assert found["unsettled"] is None
    SqlLeases(ready.store()._engine).take("fabric", "worker", 60)
    ready.store().observations.note_applied("fabric", Applied(3))
    assert "generation 4 are not confirmed yet" in ready(*words)
    ready.store().observations.note_applied("fabric", Applied(4))

    # Tables with one wrong entry, towards a host of t1, are reported.
    host = min(state.tenants[1].allocation.hosts(state.topology))
    lid = state.inventory.lids[state.inventory.endpoint_of_port[host, 0].guid]
    wrong = re.sub(rf"(?m)^0x{lid:04x} (\d+)", f"0x{lid:04x} 001", dump)
    path.write_text(wrong)
    printed = ready(*words, rc=1)
    assert f"host {host} rail 0" in printed

    path.write_text("nothing of the kind\n")
    assert "give what dump_lfts prints" in ready(*words, rc=2)
    path.unlink()
    assert "can be read" in ready(*words, rc=2)


def test_verify_partition_keys(ready):
    """Keys as laas-opensm-keys prints them, on two rails, then one wrong key at a time."""
    ready("fabric", "import", EXAMPLE, "--id", "fabric")
    tenants(ready.store(), "fabric", 5, 40, 11)
    state = ready.store().fabrics.routed("fabric")
    inventory, path = state.inventory, ready.path / "keys.txt"
    manager = next(e for e in inventory.endpoints if e.name.startswith("sm"))
    key_of = {h: t.pkey for t in state.tenants for h in t.allocation.hosts(state.topology)}
    words = ["fabric", "verify", "--keys", path, "--subnet-manager", hex(manager.guid)]
    sound: dict[tuple[int, int], str] = {(s.guid, 0): "- ffff" for s in inventory.switches}
    for end in inventory.endpoints:
        own = key_of.get(end.host) if end.host is not None else None
        keys = "ffff" if end is manager else "7fff" if own is None else f"{own | 0x8000:04x},7fff"
        sound |= {(end.guid, 0): f"- {keys}", tuple(end.at): f"on {keys}"}

    def read(master=manager.guid, **changes):
        ports = sound | changes.get("ports", {})
        lines = [f"port {guid:#018x} {port} {rest}" for (guid, port), rest in ports.items() if rest]
        head = [
            f"self {manager.guid:#018x}",
            f"master {master:#018x} lid 0x0001 priority 9 state 3",
        ]
        path.write_text("\n".join([*head, *lines, f"ports {len(lines)}"]) + "\n")

    read()
    printed = ready(*words)
    assert "3 allocations, no violations in the record and the partition keys" in printed
    (found,) = json.loads(ready(*words, "--json"))["fabrics"]
    assert found["ports"] == 2 * len(inventory.endpoints) + len(inventory.switches)
    assert (found["engine"], found["master"]) == (None, f"{manager.guid:#018x}")
    SqlLeases(ready.store()._engine).take("fabric", "worker", 60)
    seen = Running("minhop", Master(manager.guid, 1, 9))
    ready.store().observations.note_applied("fabric", Applied(None, "no", running=seen))
    assert "the routing engine that ran last is minhop, not file" in ready(*words, rc=1)
    ready.store().observations.note_applied(
        "fabric", Applied(4, running=replace(seen, engine="file"))
    )
    assert f"routing engine file; master {manager.guid:#018x}" in ready(*words)
    host, key = next(iter(key_of.items()))
    own = inventory.endpoint_of_port[host, 1]
    free = next(e for e in inventory.endpoints if e.host is not None and e.host not in key_of)
    full, at = f"{key | 0x8000:04x}", (own.at.guid, own.at.port)
    for port, keys, told in (
        ((own.guid, 0), f"- 7fff,{full}", f"({own.guid:#018x}) has key 0x7fff at index 0"),
        ((own.guid, 0), f"- {key:04x},7fff", f"({own.guid:#018x}) lacks key 0x{full}"),
        ((own.guid, 0), f"- {full},ffff", "has key 0xffff, which is not its own"),
        ((own.guid, 0), f"- {full}", "lacks key 0x7fff"),
        ((free.guid, 0), f"- 7fff,{full}", f"({free.guid:#018x}) has key 0x{full}"),
        ((free.guid, 0), "- ffff", f"({free.guid:#018x}) has key 0xffff"),
        (at, f"on 7fff,{full},9000", "in front of"),
        (at, f"off {full},7fff", "lets packets with foreign keys pass"),
        ((own.at.guid, 0), f"- ffff,{full}", "itself has key"),
        ((manager.guid, 0), "- ffff,9000", "has key 0x9000, which is not its own"),
    ):
        read(ports={port: keys})
        assert told in ready(*words, rc=1)
    read(ports={(end.guid, end.port): "" for end in [own.at]} | {at: f"on 7fff,{full}"})
    ready(*words)
    read(master=free.guid)
    assert "which is not ours" in ready(*words, rc=1)
    path.write_text("nothing of the kind\n")
    assert "is no line of laas-opensm-keys" in ready(*words, rc=2)
    path.unlink()
    assert "can be read" in ready(*words, rc=2)


@pytest.mark.parametrize("command", [["fabric"], ["db", "downgrade"], ["fabric", "import"]])
def test_wrong_command_line(command):
    with pytest.raises(SystemExit) as ended:
        manage.main(command)
    assert ended.value.code == 2


def test_configuration_that_cannot_be_read(capsys):
    assert manage.main(["--config-file", "/nonexistent", "fabric", "list"]) == 1
    assert "configuration" in capsys.readouterr().err
