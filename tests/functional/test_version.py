# SPDX-License-Identifier: Apache-2.0

"""The version is in the tree, and on every request that the service sends."""

import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from laas_service.adapters import ironic_nodes, neutron, service_rest
from laas_service.adapters.nova import cloud
from laas_service.adapters.ufm.rest import UfmRest, UfmSettings
from laas_service.version import VERSION, user_agent
from laas_service.wiring.composition import Composition
from tests.options import options_from

ROOT = Path(__file__).parents[2]


class Listener(ThreadingHTTPServer):
    """Answers 404 to everything, and remembers who asked."""

    def __init__(self) -> None:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                asked.append(self.headers.get("User-Agent", ""))
                self.send_error(404)

            do_GET = do_POST = do_PUT = _answer

            def log_message(self, *words: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.url = asked, f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def listener():
    with Listener() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def configured(tmp_path, url, *lines):
    """Options in which every other service is at ``url``, with a token."""
    login = f"auth_type = admin_token\nendpoint = {url}\ntoken = t\n"
    groups = [f"[{name}]\n{login}" for name in ("nova", "placement", "neutron", "ironic", "laas")]
    (tmp_path / "laas.conf").write_text("\n".join([*groups, *lines]))
    return options_from(tmp_path / "laas.conf")


def ask_nova(conf):
    cloud.connect(conf, lambda action: None, dict).servers.servers_on("n1")


def ask_placement(conf):
    cloud.connect(conf, lambda action: None, dict).placement.candidates("a")


def ask_neutron(conf):
    neutron.connect(conf).forget_limits("a")


def ask_ironic(conf):
    connected = ironic_nodes.connect(conf, dict)
    assert connected is not None
    connected[0].nodes()


def ask_as_an_agent(conf):
    service_rest.connect(conf).get("/v1/fabrics")


ASK = {
    "nova": (ask_nova, "laas"),
    "placement": (ask_placement, "laas"),
    "neutron": (ask_neutron, "laas"),
    "ironic": (ask_ironic, "laas"),
    "agent": (ask_as_an_agent, "laas-opensm-agent"),
}


@pytest.mark.parametrize("service", ASK)
def test_requests_to_other_services_say_who_sends_them(listener, tmp_path, service):
    ask, program = ASK[service]
    with suppress(Exception):  # the answer is 404
        ask(configured(tmp_path, listener.url))
    assert {agent.split()[0] for agent in listener.asked} == {user_agent(program)}


def test_requests_to_keystone_say_who_sends_them(listener, tmp_path):
    lines = f"auth_type = password\nauth_url = {listener.url}/v3\nusername = u\npassword = p\n"
    conf = configured(tmp_path, listener.url, "[compute]\nkind = nova", f"[nova]\n{lines}")
    with suppress(Exception):
        ask_nova(conf)
    assert listener.asked
    assert {agent.split()[0] for agent in listener.asked} == {"laas/1.0.0"}
    listener.asked.clear()
    with suppress(Exception):
        Composition(conf).projects.check("blue")
    assert {agent.split()[0] for agent in listener.asked} == {"laas/1.0.0"}


def test_requests_to_ufm_say_who_sends_them(listener, tmp_path):
    token = tmp_path / "token"
    token.write_text("t")
    token.chmod(0o600)
    with suppress(Exception):
        UfmRest(UfmSettings(listener.url, token)).release()
    assert listener.asked == ["laas-worker/1.0.0"]


def test_requests_of_the_command_line_say_who_sends_them(listener):
    laas = [sys.executable, "-m", "laas_service.cmd.client", "--endpoint", listener.url]
    subprocess.run([*laas, "allocation", "list"], capture_output=True, timeout=300, check=False)
    assert set(listener.asked) == {"laas/1.0.0"}


def test_a_fresh_copy_without_tags_is_packaged_with_this_version(tmp_path):
    """``setup.py`` asks neither git nor a tag."""
    for name in ("setup.py", "setup.cfg", "README.rst", "requirements.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "laas_service").mkdir()
    text = (ROOT / "laas_service" / "version.py").read_text()
    (tmp_path / "laas_service" / "version.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == [VERSION], done.stderr
    assert VERSION == "1.0.0"
