# SPDX-License-Identifier: Apache-2.0

"""The real ``openstack`` command, the real Keystone, and ``laas-api`` in a process of its own."""

from __future__ import annotations

import configparser
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml  # type: ignore[import-untyped]
from keystoneauth1.session import Session

from laas_service.adapters.db import schema
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.fabric_import.generator import inventory
from laas_service.client import osc
from tests.completion import completed
from tests.functional.api.conftest import TOPOLOGY
from tests.functional.test_version import listener as listener
from tests.marks import needs_bash_completion
from tests.servers.keystone import PASSWORD, REGION
from tests.servers.process import Port, Process

BIN = Path(sys.executable).parent
LOUD = "keystonemiddleware keystoneauth urllib3 oslo_policy oslo_config sqlalchemy.engine"
"""Loggers that are quiet by default."""


def configuration(directory, port, **sections):
    """Configuration of a service with 32 hosts that logs at DEBUG."""
    database = f"sqlite:///{directory}/laas.db"
    engine = connect(database)
    schema.upgrade(engine)
    SqlStore(engine).fabrics.add("main", TOPOLOGY, inventory(TOPOLOGY))
    engine.dispose()
    levels = ",".join(f"{name}=DEBUG" for name in LOUD.split())
    given = {
        "DEFAULT": {"state_dir": directory, "debug": "true", "default_log_levels": levels},
        "database": {"connection": database},
        "worker": {"poll_interval": 0.2},
        **sections,
    }
    given["api"] = {"bind_port": port.number, **given.get("api", {})}
    lines = []
    for section, options in given.items():
        lines += [f"[{section}]", *(f"{name} = {value}" for name, value in options.items())]
    file = directory / "laas.conf"
    file.write_text("\n".join(lines))
    return file


class Api:
    """Runs ``laas-api --all-in-one`` until the block ends."""

    def __init__(self, directory, **sections):
        self._port = Port()
        self.url = self._port.url
        file = configuration(directory, self._port, **sections)
        self._command = [str(BIN / "laas-api"), "--all-in-one", "--config-file", str(file)]
        self._log = directory / "laas-api.log"

    def __enter__(self):
        self._process = Process(self._command, self._log, os.environ)
        self._process.wait_for(self.url)
        return self

    def __exit__(self, *exc):
        self._process.stop()
        self._port.close()

    def said(self):
        return self._process.said()

    def says(self, words):
        """Wait until the log has these words; it may be written after the answer."""
        self._process.wait_until(lambda: words in self.said(), f"it does not say {words}")


@pytest.fixture(scope="module")
def api(keystone, people, tmp_path_factory):
    options = {
        **keystone.options("laas", "service"),
        "www_authenticate_uri": keystone.url,
    }
    directory = tmp_path_factory.mktemp("laas")
    strategy = {"auth_strategy": "keystone"}
    risks = {"free_unconfirmed": True}  # neither OpenSM nor whoever runs scripts is there
    with Api(directory, api=strategy, keystone_authtoken=options, worker=risks) as running:
        keystone.endpoint("isolated-network", running.url)
        keystone.endpoint("isolated-network", "http://127.0.0.1:9", region="Elsewhere")
        yield running


@pytest.fixture
def run(api, keystone):
    """Run a command as a user; returns its exit status, standard output and standard error."""

    def command(*words, who="member", project="blue", program="openstack", **variables):
        return ran({**keystone.environment(who, project), **variables}, program, *words)

    return command


def ran(variables, program, *words):
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OS_", "LAAS_"))}
    done = subprocess.run(
        [str(BIN / program), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**inherited, **variables},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def answered(run):
    """Run a command that succeeds; returns its JSON output."""

    def command(*words, **who):
        status, out, err = run(*words, "-f", "json", **who)
        assert status == 0, err
        return json.loads(out)

    return command


@pytest.fixture
def emptied(run):
    """Release all allocations after the test."""
    yield
    every = ("isolated", "network", "list", "--all-projects", "-f", "value", "-c", "ID")
    left = run(*every, who="boss")[1].split()
    if left:
        run("isolated", "network", "delete", "--yes", "--wait", *left, who="boss")


def test_a_life(run, answered, emptied, people):
    words = ("isolated", "network", "create", "--hosts", "6", "--wait", "atlas")
    made = answered(*words)
    assert (made["state"], made["project_id"]) == ("active", people.blue)
    assert len(made["hosts"]) == 6
    assert {"index", "name"} <= made["hosts"][0].keys()

    status, out, _ = run("isolated", "network", "list", "-f", "value", "-c", "Name", "-c", "State")
    assert (status, out) == (0, "atlas active\n")
    status, out, _ = run("isolated", "network", "list", "-f", "yaml")
    assert yaml.safe_load(out)[0]["id"] == made["id"]
    status, out, _ = run("isolated", "network", "show", "atlas")
    assert f"| id {' ' * 20}"[:5] in out
    assert "active" in out
    assert " ".join(host["name"] for host in made["hosts"][:3]) in out

    assert run("isolated", "network", "set", "--name", "titan", "atlas") == (0, "", "")
    assert answered("isolated", "network", "show", "titan")["id"] == made["id"]
    assert run("isolated", "network", "delete", "--wait", "titan") == (0, "", "")
    assert answered("isolated", "network", "list") == []
    assert answered("isolated", "network", "show", made["id"])["state"] == "released"


def test_fabrics(run, answered):
    assert answered("isolated", "network", "fabric", "fit", "--hosts", "8", "main")["fits"]
    status, out, _ = run("isolated", "network", "fabric", "show", "-c", "shape")
    assert status == 0
    assert "| XGFT(3; 4,4,2; 1,4,4) |" in out


def test_a_refusal_is_one_sentence(run):
    status, out, err = run("isolated", "network", "create", "--hosts", "40", "huge")
    assert (status, out) == (3, "")
    assert "too_few_hosts" in err
    assert "32" in err
    assert err.count("\n") == 1


def test_what_cannot_be_deleted_does_not_stop_the_rest(run, answered, emptied):
    answered("isolated", "network", "create", "--hosts", "1", "--wait", "one")
    status, _, err = run("isolated", "network", "delete", "--yes", "--wait", "none", "one")
    assert status in (1, 4)
    assert "Cannot delete none" in err
    assert "1 of 2 not deleted" in err
    assert answered("isolated", "network", "list") == []


def test_roles_are_keystones(run, answered, emptied, people):
    """An administrator may name another project; tenants and readers may not."""
    words = ("isolated", "network", "create", "--hosts", "2", "--project", "red", "gift")
    assert answered(*words, who="boss")["project_id"] == people.red
    status, _, err = run(*words)
    assert status == 7
    assert "forbidden" in err
    status, _, err = run("isolated", "network", "show", "gift", who="reader")
    assert status == 4
    assert "not_found" in err
    mine = answered("isolated", "network", "list", who="stranger", project="red")
    assert [one["name"] for one in mine] == ["gift"]
    listed = ("isolated", "network", "list", "--project", "blue")
    assert answered(*listed, who="boss") == []
    in_red = ("allocation", "list", "--json", "--project", "red")
    status, out, err = run(*in_red, program="laas", who="boss")
    assert (status, [one["name"] for one in json.loads(out)]) == (0, ["gift"]), err


def test_region_and_interface_choose_the_endpoint(run):
    status, _, err = run("isolated", "network", "list", OS_REGION_NAME="Elsewhere")
    assert status == 6
    assert "127.0.0.1:9" in err
    status, _, err = run("isolated", "network", "list", OS_INTERFACE="internal")
    assert status in (1, 6)
    assert "isolated-network" in err
    assert REGION in err


def test_the_version_of_the_interface_can_be_named(run):
    option = "--os-isolated-network-api-version"
    for known in ("1", "1.0", "1.1", "1.2", "1.3"):
        assert run(option, known, "isolated", "network", "list")[::2] == (0, "")
    _, _, err = run(option, "7", "isolated", "network", "list")
    assert "7 is not in supported versions" in err
    status, _, err = run(option, "1.99", "isolated", "network", "list")
    assert (status, "version 1.99 is not known" in err) == (1, True)


def test_an_administrator_lists_his_own_project_or_all(run, answered, emptied):
    """Names of other projects' isolated networks stand for these all the same."""
    words = ("isolated", "network", "create", "--hosts", "2", "--project")
    answered(*words, "red", "gift", who="boss")
    answered(*words, "blue", "mine", who="boss")
    listed = ("isolated", "network", "list")

    def names(*more, **who):
        return [one["name"] for one in answered(*more, **who)]

    assert names(*listed, who="boss") == ["mine"]
    assert names(*listed, "--all-projects", who="boss") == ["gift", "mine"]
    old = ("--os-isolated-network-api-version", "1.0", *listed)
    assert names(*old, who="boss") == ["gift", "mine"]
    status, _, err = run(*listed, "--all-projects")
    assert (status, "laas:any_project" in err) == (7, True)
    assert answered("isolated", "network", "show", "gift", who="boss")["name"] == "gift"
    status, out, err = run("allocation", "list", "--json", program="laas", who="boss")
    assert (status, [one["name"] for one in json.loads(out)]) == (0, ["mine"]), err
    every = ("allocation", "list", "--json", "--all-projects")
    status, out, err = run(*every, program="laas", who="boss")
    assert (status, [one["name"] for one in json.loads(out)]) == (0, ["gift", "mine"]), err


@needs_bash_completion
def test_the_shell_completes_the_commands(run, tmp_path):
    status, out, _ = run("complete")
    assert status == 0
    words = [name.removeprefix("isolated_network_").split("_") for name in _plugin()]
    for noun, place in (("", 0), ("fabric", 1), ("switch", 1)):
        known = {one[place] for one in words if not place or one[0] == noun}
        assert len(known) > 3
        of = f"_{noun}" if noun else ""
        assert f"cmds_isolated_network{of}='{' '.join(sorted(known))}'" in out
    assert "--hosts" in out.partition("cmds_isolated_network_create=")[2].partition("\n")[0]
    script = tmp_path / "complete.sh"
    script.write_text(out)
    ends = ("fabric utilization", "create --hosts")
    whole = [f"openstack isolated network {end}" for end in ends]
    assert completed(script, [line[:-2] for line in whole]) == whole


def test_the_small_client_finds_the_service_in_the_catalog(run, answered, emptied):
    answered("isolated", "network", "create", "--hosts", "2", "--wait", "shared")
    status, out, err = run("allocation", "list", "--json", program="laas")
    assert status == 0, err
    assert [one["name"] for one in json.loads(out)] == ["shared"]
    status, _, err = run("fabric", "hosts", program="laas")
    assert (status, "forbidden" in err) == (7, True)


def test_without_keystone(tmp_path):
    """``openstack`` reaches a service without Keystone by its endpoint."""
    with Api(tmp_path) as embedded:
        login = {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": embedded.url}
        words = ("isolated", "network", "fabric", "list", "-f", "value", "-c", "ID")
        assert ran(login, "openstack", *words) == (0, "main\n", "")


def test_the_log_shows_no_secret(api, run, keystone):
    """The log at DEBUG has neither passwords nor tokens, after valid tokens and invalid ones."""
    token = keystone.token("member", project="blue")
    for given in (token, f"{token[:-9]}forged-so"):
        login = {"OS_TOKEN": given, "LAAS_ENDPOINT": api.url}
        assert ran(login, "laas", "fabric", "list")[0] == (0 if given == token else 7)
    for status in (200, 401):
        api.says(f"GET /v1/fabrics answered {status}")
    said = api.said()
    assert "/v3/auth/tokens" in said
    for secret in (PASSWORD, token, token[:60]):
        assert secret not in said


def _plugin() -> list[str]:
    """The names of the plugin's commands, as ``setup.cfg`` declares them."""
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[2] / "setup.cfg")
    lines = setup["options.entry_points"]["openstack.isolated_network.v1"].split("\n")
    return [line.partition("=")[0].strip() for line in lines if line]


def test_requests_of_the_openstack_command_say_who_sends_them(listener):
    connection = SimpleNamespace(config=SimpleNamespace(get_endpoint=lambda kind: listener.url))
    openstack = SimpleNamespace(
        _api_version={osc.API_NAME: "1.0"},
        session=Session(),
        interface=None,
        region_name=None,
        sdk_connection=connection,
    )
    with suppress(Exception):
        osc.make_client(openstack)._adapter.get("/", authenticated=False)
    assert listener.asked == ["laas-openstackclient/1.0.0"]
