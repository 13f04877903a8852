# SPDX-License-Identifier: Apache-2.0

"""The documented way to serve strangers, uWSGI behind nginx, with the documented files."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.functional.api.test_process import KEYSTONE, command, write
from tests.servers.daemon import Daemon
from tests.servers.process import Port

ROOT = Path(__file__).parents[3]
ETC = ROOT / "etc"
NGINX, UWSGI = (shutil.which(name, path="/usr/sbin:/usr/bin") for name in ("nginx", "uwsgi-core"))
PLUGIN = Path("/usr/lib/uwsgi/plugins/python{}{}_plugin.so".format(*sys.version_info))

pytestmark = pytest.mark.skipif(
    not (NGINX and UWSGI and PLUGIN.exists()),
    reason="needs the Debian packages nginx, uwsgi-core, and uwsgi-plugin-python3 of this Python",
)

LONG = "900"
"""Seconds after which half a request or answer ends: more than the test waits for."""

HALF = {
    "header": b"GET /healthcheck HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    "body": b"POST /v1/allocations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
    "answer": b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100,
}
"""What clients send that never finish a request, or never read an answer."""


def changed(text: str, **lines: str) -> str:
    """The text with other values of some settings; each is in it once."""
    for name, value in lines.items():
        setting = name.replace("_", "[-_]")
        text, count = re.subn(rf"(?m)^( *{setting}(?: =)? ).*?(;?)$", rf"\g<1>{value}\2", text)
        assert count == 1, name
    return text


class Uwsgi(Daemon):
    end = signal.SIGINT

    def __init__(self, home: Path) -> None:
        super().__init__("uwsgi")
        self.socket = home / "api.sock"
        lines = {
            "plugin": str(PLUGIN),
            "env": f"LAAS_CONFIG_DIR={home}",
            "socket": str(self.socket),
            "processes": "1",
            "socket_timeout": LONG,
            "harakiri": LONG,
        }
        text = changed((ETC / "uwsgi" / "laas.ini").read_text(), **lines)
        text = re.sub(r"(?m)^(uid|gid|chown-socket) = .*\n", "", text)  # there is no such user
        # Tests may run on another Python of the same version: only the packages are taken.
        paths = f"pythonpath = {ROOT}\npythonpath = {sysconfig.get_path('purelib')}"
        text, count = re.subn(r"(?m)^virtualenv = .*$", paths, text)
        assert count == 1
        (self.directory / "laas.ini").write_text(text)

    def command(self) -> list[str]:
        return [UWSGI or "", "--ini", str(self.directory / "laas.ini")]

    def ready(self) -> bool:
        return self.socket.exists()


class Nginx(Daemon):
    def __init__(self, upstream: Path) -> None:
        super().__init__("nginx")
        home = self.directory
        self.port = Port()
        text = changed(
            (ETC / "nginx" / "laas.conf").read_text(),
            listen=f"127.0.0.1:{self.port.number} ssl",
            ssl_certificate=f"{home}/laas.pem",
            ssl_certificate_key=f"{home}/laas.key",
            uwsgi_pass=f"unix:{upstream}",
            include="/etc/nginx/uwsgi_params",
            client_header_timeout=f"{LONG}s",
            client_body_timeout=f"{LONG}s",
            send_timeout=f"{LONG}s",
        )
        temporary = "".join(
            f"{kind}_temp_path {home}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (home / "nginx.conf").write_text(
            f"daemon off;\npid {home}/pid;\nerror_log stderr;\nuser root;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{temporary}{text}}}\n"
        )

    def prepare(self) -> None:
        made = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=laas")
        self.run("openssl", *made, "-keyout", "laas.key", "-out", "laas.pem")

    def command(self) -> list[str]:
        return [NGINX or "", "-e", "stderr", "-c", str(self.directory / "nginx.conf")]

    def ready(self) -> bool:
        try:
            self.connected().close()
        except OSError:
            return False
        return True

    def connected(self, text: bytes = b"", address: str = "127.0.0.1") -> ssl.SSLSocket:
        there = ("127.0.0.1", self.port.number)
        plain = socket.create_connection(there, timeout=300, source_address=(address, 0))
        client = self.trusting().wrap_socket(plain, server_hostname="laas")
        client.sendall(text)
        return client

    def healthy(self) -> bool:
        url = f"https://127.0.0.1:{self.port.number}/healthcheck"
        try:
            with urllib.request.urlopen(url, timeout=300, context=self.trusting()) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError:
            return False

    def trusting(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.directory / "laas.pem"))
        context.check_hostname = False
        return context


@pytest.fixture(scope="module")
def nginx(tmp_path_factory):
    home = tmp_path_factory.mktemp("api")
    config = write(home / "laas.conf", auth_strategy="keystone")
    with (home / "laas.conf").open("a") as file:
        file.write(KEYSTONE)
    upgrade = command("manage", "--config-file", config, "db", "upgrade")
    subprocess.run(upgrade, check=True, capture_output=True, timeout=300)
    with Uwsgi(home) as uwsgi, Nginx(uwsgi.socket) as proxy:
        proxy.wait_for(proxy.healthy, "passes requests on")
        yield proxy


@pytest.mark.parametrize("half", HALF)
def test_clients_with_half_a_request_or_answer_do_not_lock_others_out(nginx, half):
    """They have two addresses, as nginx serves a hundred at one time of the same one."""
    with ExitStack() as clients:
        for number in range(130):
            address = f"127.0.0.{2 + number % 2}"
            clients.enter_context(nginx.connected(HALF[half], address))
        nginx.wait_for(nginx.healthy, "serves others, once its queue of requests is short")
