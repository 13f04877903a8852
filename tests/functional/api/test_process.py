# SPDX-License-Identifier: Apache-2.0

"""Real processes of the service: start, requests, stop and restart."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from laas_service.cmd.client import main as laas
from tests.servers.leash import spawn

pytestmark = pytest.mark.road


def write(path, **api):
    lines = [f"{name} = {value}" for name, value in {"bind_port": 0, **api}.items()]
    text = [
        "[DEFAULT]",
        f"state_dir = {path.parent}",
        "[database]",
        f"connection = sqlite:///{path.parent}/laas.db",
        "[api]",
        *lines,
        "",
    ]
    path.write_text("\n".join(text))
    return str(path)


def command(module, *words):
    return [sys.executable, "-m", f"laas_service.cmd.{module}", *words]


@contextmanager
def running(config):
    """Run ``laas-api --all-in-one`` and yield its address; it must end with 0 on SIGTERM."""
    process = spawn(
        command("api", "--all-in-one", "--config-file", config),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"Listening on (http://\S+)", line):
                break
        else:
            pytest.fail("".join(said))
        yield found.group(1)
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=300)
        assert process.returncode == 0, rest
    finally:
        process.kill()
        process.communicate()


def asked(capsys, url, *words):
    status = laas(["--endpoint", url, "--json", *words])
    out, err = capsys.readouterr()
    assert status == 0, err
    return json.loads(out)


def test_the_whole_service_in_one_process(deployment, tmp_path, capsys, monkeypatch):
    """Jigsaw places, the worker writes commands and files, and a restart keeps the state."""
    for name in ("OS_AUTH_URL", "OS_AUTH_TYPE", "OS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    config = write(tmp_path / "laas.conf")
    with running(config) as url:
        create = ("allocation", "create", "--name", "blue", "--hosts", "9", "--wait", "300")
        made = asked(capsys, url, *create)
        assert made["state"] == "active"
        assert made["policy"] == "jigsaw"
        assert asked(capsys, url, "fabric", "routing")["subnet_managers"][0]["name"]
    assert (tmp_path / "opensm" / "main" / "current" / "partitions.conf").exists()
    assert list((tmp_path / "compute" / "commands").iterdir())
    with running(config) as url:
        assert asked(capsys, url, "allocation", "show", "blue")["links"] == made["links"]
        gone = asked(capsys, url, "allocation", "delete", "blue", "--wait", "300")
        assert gone["state"] == "released"
        assert asked(capsys, url, "fabric", "show")["hosts"]["free"] == 32


@pytest.mark.parametrize("name", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "Via"])
def test_the_server_leaves_a_proxys_headers_for_the_service_to_refuse(served, name):
    request = urllib.request.Request(f"{served}/v1/fabrics", headers={name: "localhost"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    assert refused.value.code == 403
    assert "put no proxy in front" in json.load(refused.value)["detail"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a service that runs in one process."""
    with running(write(tmp_path_factory.mktemp("served") / "laas.conf")) as url:
        yield url


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("bind_host", "0.0.0.0", "auth_strategy = keystone"),
        ("enabled_policies", "best", "enabled_policies"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_served(tmp_path, option, value, said):
    config = write(tmp_path / "laas.conf", **{option: value})
    ended = subprocess.run(
        command("api", "--all-in-one", "--config-file", config),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 1
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_without_tables_the_service_says_what_to_run(tmp_path):
    config = write(tmp_path / "laas.conf")
    ended = subprocess.run(
        command("api", "--config-file", config),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 1
    assert "laas-manage db upgrade" in ended.stderr


KEYSTONE = """
[keystone_authtoken]
auth_type = password
auth_url = http://127.0.0.1:9
www_authenticate_uri = http://127.0.0.1:9
"""


def imported(directory):
    """Import the application as a WSGI server does, and print the status of two requests."""
    script = (
        "from laas_service.cmd.wsgi import application\n"
        "client = application.test_client()\n"
        "print(client.get('/').status_code, client.get('/v1/fabrics').status_code)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "LAAS_CONFIG_DIR": str(directory)},
    )


def test_a_wsgi_server_gets_an_application(tmp_path):
    write(tmp_path / "laas.conf", auth_strategy="keystone")
    (tmp_path / "laas.conf.d").mkdir()
    (tmp_path / "laas.conf.d" / "keystone.conf").write_text(KEYSTONE)
    ended = imported(tmp_path)
    assert ended.stdout.split() == ["200", "401"], ended.stderr


@pytest.mark.parametrize(
    ("opensm", "warns"),
    [("", 1), ("[opensm]\ndump_command = true\n", 0)],
    ids=["nobody reads back", "read back"],
)
def test_a_wsgi_server_is_told_once_that_nobody_reads_back(tmp_path, opensm, warns):
    config = write(tmp_path / "laas.conf", auth_strategy="keystone")
    with (tmp_path / "laas.conf").open("a") as file:
        file.write(KEYSTONE + opensm)
    assert "does not answer" in imported(tmp_path).stderr  # there are no tables yet
    upgrade = command("manage", "--config-file", config, "db", "upgrade")
    subprocess.run(upgrade, check=True, capture_output=True, timeout=300)
    assert imported(tmp_path).stderr.count("nobody reads the switches back") == warns


def test_a_wsgi_server_gets_nothing_without_authentication(tmp_path):
    write(tmp_path / "laas.conf", auth_strategy="none")
    ended = imported(tmp_path)
    assert ended.returncode != 0
    assert "behind a WSGI server use keystone" in ended.stderr
