# SPDX-License-Identifier: Apache-2.0

"""``laas-status upgrade check``: its findings and its exit status."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from laas_service.adapters.db.engine import connect
from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import Handover
from laas_service.app.ports.projects import Projects
from laas_service.cmd import status
from laas_service.wiring.composition import Composition
from opensm_writer import fileset
from opensm_writer.local import LocalSubnetManager
from tests.functional.test_manage import EXAMPLE, Tool, tenants
from tests.nova_standin import TOKEN, Cloud, Fault, Server
from tests.options import options_from

pytestmark = pytest.mark.road

REPO = Path(__file__).parents[2]
READ_BACK = {"dump_command": "dump_lfts,-n"}
ALLOCATIONS, OPTIONS, TOGETHER, ROUTES = "Allocations", "Options", "Options together", "Routes"


class Check(Tool):
    """``laas-status upgrade check`` and ``laas-manage`` with their own state directory."""

    def configure(self, **groups):
        """Write the configuration: options by group."""
        groups = {"DEFAULT": {"state_dir": self.path}, "opensm": READ_BACK} | groups
        lines = []
        for group, options in groups.items():
            lines += [f"[{group}]", *(f"{name} = {value}" for name, value in options.items())]
        self._config.write_text("\n".join(lines))

    def findings(self, rc=0):
        """Result and details of each check, by its name."""
        words = [f"--config-file={self._config}", "upgrade", "check", "--json"]
        ended = status.main(words)
        printed = self._capsys.readouterr()
        assert ended == rc, printed
        return {row["check"]: (row["result"], row["details"]) for row in _rows(printed.out)}

    def process(self):
        words = ["laas_service.cmd.status", f"--config-file={self._config}", "upgrade", "check"]
        return subprocess.run(
            [sys.executable, "-m", *words],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def _rows(text):
    return json.loads(text)["checks"]


def hosts(check):
    """The hosts of the fabric."""
    conf = options_from(check._config)
    fabric = Composition(conf).store.fabrics.get("main")
    return [name for name in fabric.inventory.host_names if name]


@pytest.fixture
def check(tmp_path, capsys):
    made = Check(tmp_path, capsys)
    made.configure()
    return made


@pytest.fixture
def ready(check):
    check("db", "upgrade")
    check("fabric", "import", EXAMPLE, "--id", "main")
    return check


def test_the_exit_status_says_whether_the_release_can_be_started(check):
    """The statuses are 0, 1, 2 and 255, as for every OpenStack service."""
    ended = check.process()
    assert ended.returncode == 2, ended.stderr
    assert "run laas-manage db upgrade" in ended.stdout
    check("db", "upgrade")
    assert check.findings()
    check.configure(api={"thredds": 3})
    assert check.findings(rc=1)
    check._config.unlink()
    ended = check.process()
    assert ended.returncode == 255
    assert "Traceback" not in ended.stdout + ended.stderr


def test_a_fabric_that_is_in_order(ready):
    assert {code for code, _ in ready.findings().values()} == {0}


def test_a_check_that_cannot_look_says_so(check):
    found = check.findings(rc=2)
    assert found[ALLOCATIONS] == (1, "not checked, because the schema is not current")
    check.configure(database={"connection": "postgresql+psycopg://x@127.0.0.1:9/x"})
    assert "the database failed" in check.findings(rc=2)["Database schema"][1]


@pytest.mark.parametrize(
    ("group", "options", "code", "said"),
    [
        ("worker", {"poll_interval": "often"}, 2, "[worker] poll_interval: could not convert"),
        ("api", {"auth_strategy": "maybe"}, 2, "[api] auth_strategy: Valid values are"),
        ("worker", {"retires": 1}, 1, "[worker] retires has no effect: there is no such option"),
        ("works", {"retires": 1}, 1, "[works] retires has no effect: there is no such section"),
        ("DEFAULT", {"log-file": "x", "logfile": "x"}, 1, "deprecated, use [DEFAULT] log_file"),
    ],
)
def test_options_that_are_wrong_unknown_or_old(ready, monkeypatch, group, options, code, said):
    monkeypatch.chdir(ready.path)  # the log file that one of them names is created there
    base = {"DEFAULT": {"state_dir": ready.path}}
    base[group] = base.get(group, {}) | options
    ready.configure(**base)
    found = ready.findings(rc=code)[OPTIONS]
    assert found[0] == code
    assert said in found[1]


def test_the_options_of_a_login_are_known(ready):
    login = {"auth_type": "v3applicationcredential", "application_credential_id": "x"}
    ready.configure(nova=login, placement=login, keystone_authtoken=login)
    assert ready.findings()[OPTIONS] == (0, None)


@pytest.mark.parametrize(
    ("groups", "code", "said"),
    [
        ({"api": {"bind_host": "0.0.0.0"}}, 2, "auth_strategy = keystone"),
        ({"api": {"auth_strategy": "keystone"}}, 2, "keystone_authtoken"),
        ({"opensm": {"enforcement": "chains", "log_file": "/x"}}, 2, "reading back needs 'file'"),
        ({"opensm": {"services": "storage"}}, 2, "give GUIDs such as 0x1b"),
        ({"api": {"default_policy": "laas"}}, 2, "not in enabled_policies"),
        ({"api": {"enabled_policies": "best"}}, 2, "enabled_policies"),
        ({"compute": {"kind": "nova"}}, 2, "[nova] auth_type"),
        ({"worker": {"retry_first": 5, "retry_last": 1}}, 1, "is below retry_first"),
    ],
)
def test_options_that_contradict_each_other(ready, groups, code, said):
    ready.configure(**groups)
    found = ready.findings(rc=code)[TOGETHER]
    assert found[0] == code
    assert said in found[1]


def test_a_default_fabric_that_is_not_there(ready):
    ready.configure(api={"default_fabric": "other"})
    assert "name one of main" in ready.findings(rc=2)["Fabrics"][1]


def test_nobody_reads_the_switches_back(ready):
    assert ready.findings()["Confirmation"] == (0, None)
    ready.configure(opensm={})
    code, said = ready.findings(rc=1)["Confirmation"]
    assert code == 1
    assert "confirmed_by = nobody" in said
    assert "no option of [opensm] says that OpenSM reads the files: see [opensm] tools" in said
    ready.configure(opensm={"reached_by": "agent"})
    assert ready.findings()["Confirmation"] == (0, None)


def test_records_that_do_not_agree(ready):
    with connect(f"sqlite:///{ready.path}/laas.sqlite").begin() as connection:
        connection.exec_driver_sql("UPDATE fabric SET routes_generation = 9")
    assert "its routes are of generation 9" in ready.findings(rc=2)["Records"][1]


def test_an_allocation_in_error(ready):
    store = ready.store()
    tenants(store, "main", 4)
    store.allocations.transition(
        store.allocations.get("t0"), State.ERROR, "parked", error="no idea"
    )
    found = ready.findings(rc=1)[ALLOCATIONS]
    assert found == (
        1,
        "allocation t0 is in error: no idea; laas allocation retry or delete it",
    )


def test_routes_that_the_release_could_not_render(ready, monkeypatch):
    tenants(ready.store(), "main", 20)
    assert ready.findings()[ROUTES] == (0, None)
    ready.configure(opensm={"enforcement": "chains"})
    assert "confirmed_by = files" in ready.findings(rc=1)["Confirmation"][1]
    monkeypatch.setattr("opensm_writer.desired.MAX_TOPOLOGIES", 0)
    code, said = ready.findings(rc=2)[ROUTES]
    assert code == 2
    assert said.startswith("fabric main cannot be published: ")


def test_tenants_whose_entries_another_release_would_change_are_named(ready):
    """The published entries differ for the same placement, as after a change of routing."""
    store = ready.store()
    tenants(store, "main", 20)
    LocalSubnetManager(ready.path / "opensm").publish(store.fabrics.routed("main"))
    assert ready.findings()[ROUTES] == (0, None)
    manifest = ready.path / "opensm" / "main" / "current" / fileset.MANIFEST
    document = json.loads(manifest.read_text())
    document["tenants"]["t0"]["entries"] = "0" * 64
    manifest.write_text(json.dumps(document))
    code, said = ready.findings(rc=1)[ROUTES]
    assert code == 1
    assert "entries of unchanged tenants (t0)" in said


def test_looking_changes_nothing(ready):
    tenants(ready.store(), "main", 20)
    before = {path: statements(path) for path in ready.path.rglob("*.sqlite")}
    ready.findings()
    assert not (ready.path / "opensm").exists()
    assert {path: statements(path) for path in before} == before


def statements(database: Path) -> list[str]:
    """All that a database holds, as the statements that make it again.

    Its file also changes when a connection closes, as its write-ahead log then goes into it.
    """
    with closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


def test_novas_side(ready):
    """The check compares Nova's aggregates with the records, and fails if Nova does not answer.

    It reminds the operator of the scheduler filters, as Nova has no API that shows them.
    """
    with Server() as server:
        server.cloud = Cloud(["node0", *hosts(ready)])
        login = {"auth_type": "admin_token", "token": TOKEN}
        ready.configure(
            compute={"kind": "nova"},
            nova={**login, "endpoint": f"{server.url}/compute"},
            placement={**login, "endpoint": f"{server.url}/placement"},
        )
        code, said = ready.findings()["Nova"]
        assert code == 0
        assert "AggregateMultiTenancyIsolation are in enabled_filters" in said
        conf = options_from(ready._config)
        server.cloud.newest = "2.96"
        code, said = ready.findings(rc=1)["Nova"]
        assert "older than 34.0.0: unless it is 31.3.1, 32.2.1, 33.0.2" in said
        assert "does not show which servers were created with a forged hint" in said
        server.cloud.newest = "2.104"
        server.cloud.hints[server.cloud.boot("node0", "p")] = {"_nova_check_type": "rebuild"}
        code, said = ready.findings(rc=1)["Nova"]
        (forged,) = server.cloud.hints
        assert f"created with the forged hint _nova_check_type: {forged}" in said
        server.cloud.faults.append(Fault(403, "servers", times=3))
        code, said = ready.findings(rc=1)["Nova"]
        assert "forged hints are not looked for: not allowed to list the servers" in said
        server.cloud.servers.clear()
        assert "there is no pool yet" in said
        Composition(conf).compute.hand_over(Handover("lost", "p", ("node0",)))
        code, said = ready.findings(rc=1)["Nova"]
        assert code == 1
        assert "allocation lost, which is not recorded" in said
    code, said = ready.findings(rc=2)["Nova"]
    assert code == 2
    assert "Traceback" not in said


def test_hosts_that_nova_does_not_know_or_calls_otherwise(ready):
    with Server() as server:
        login = {"auth_type": "admin_token", "token": TOKEN}
        ready.configure(
            compute={"kind": "nova"},
            nova={**login, "endpoint": f"{server.url}/compute"},
            placement={**login, "endpoint": f"{server.url}/placement"},
        )
        ours = sorted(hosts(ready))
        server.cloud = Cloud([f"x{ours[0]}", *(name.upper() for name in ours[1:])])
        code, said = ready.findings(rc=1)["Nova"]
        assert code == 1
        assert (
            f"{len(ours) - 1} hosts have another name in Nova: {ours[1]} is {ours[1].upper()}"
            in said
        )
        assert (
            f"1 of {len(ours)} hosts are unknown in Nova, so no new owner gets them; host" in said
        )
        assert f"host '{ours[0]}' nearly matches 'x{ours[0]}' there" in said


def test_allocations_of_a_project_that_keystone_does_not_have(ready, monkeypatch):
    conf = options_from(ready._config)
    tenants(Composition(conf).store, "main", 2)
    assert ready.findings()["Projects"] == (0, None)
    monkeypatch.setattr(Projects, "is_gone", lambda self, project: project == "p")
    code, said = ready.findings(rc=1)["Projects"]
    assert code == 1
    assert "allocation t0 belongs to project p, which Keystone does not have" in said


def test_the_candidates_of_other_projects(ready):
    """Placement is asked as the scheduler asks it, by a request as long as the scheduler's."""
    with Server() as server:
        ours = hosts(ready)
        server.cloud = Cloud([*ours, "node0", "node1", "node2"])
        login = {"auth_type": "admin_token", "token": TOKEN}
        ready.configure(
            compute={"kind": "nova"},
            nova={**login, "endpoint": f"{server.url}/compute"},
            placement={**login, "endpoint": f"{server.url}/placement"},
        )
        conf = options_from(ready._config)
        compute = Composition(conf).compute
        compute.pool([*ours, "node0", "node1"])
        _, said = ready.findings()["Nova"]
        assert "placement offers 1 hosts outside the pool to other projects (a request of " in said
        compute.hand_over(Handover("lost", "p", ("node0",)))
        server.cloud.faults.append(Fault(500, "candidates", times=3, skip=1))
        _, said = ready.findings(rc=1)["Nova"]
        assert "cannot ask placement for candidates with a request of " in said, "an owner's"
        assert "raise the limit of placement's web server (uWSGI: buffer-size)" in said
        server.cloud.faults[:] = [Fault(403, "candidates")]
        _, said = ready.findings(rc=1)["Nova"]
        assert "give the service's user a role with placement:allocation_candidates:list" in said
        assert "left to their owners" not in said
        server.cloud.faults[:] = [Fault(403, "migrations")]
        _, said = ready.findings(rc=1)["Nova"]
        assert "servers of tenants that move are left to their owners: not allowed" in said
        server.cloud.mirror[server.cloud.providers["node1"]].clear()
        _, said = ready.findings(rc=1)["Nova"]
        assert (
            f"placement shows {len(ours) + 1} of {len(ours) + 2} hosts of aggregate laas-pool"
            in said
        )
        assert "sync_aggregates" in said


@pytest.mark.parametrize(
    ("module", "code", "said"),
    [
        ("", 2, "the scheduler filter cannot be loaded: "),
        (None, 0, "Nova is not installed here; run python3 -c 'import nova_filters.laas'"),
    ],
    ids=["another Nova", "no Nova"],
)
def test_the_filter_and_the_nova_of_this_environment(tmp_path, monkeypatch, module, code, said):
    if module is not None:
        (tmp_path / "nova").mkdir()
        (tmp_path / "nova" / "__init__.py").write_text(module)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{REPO}")
    (finding,) = status._filter_interface()
    assert (finding.code, said in finding.why) == (code, True)
    assert "Traceback" not in finding.why
