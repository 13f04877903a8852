# SPDX-License-Identifier: Apache-2.0

"""Every command of ``laas`` at 60, 80 and 120 columns, piped and on a terminal, with the service
down, with two fabrics, and interrupted.

The service answers each command once; further runs get the same answers from a recording. The
commands run in this process on a pretended terminal, and some as processes on a real one.
``tests/keystone/test_openstack_commands.py`` runs the same through ``openstack``.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from laas_service.client.view import ViewServer
from laas_service.cmd import client as command
from laas_service.domain.compute_hosts import HostMemory, Quarantine
from laas_service.messages import AgentReport, Condition
from tests.completion import completed
from tests.functional.api.conftest import Deployment
from tests.marks import needs_bash_completion

WIDTHS = (60, 80, 120)
COLOUR = r"\x1b\[[0-9;]*m"

BLUE = ("blue",)
SECONDS = "30"
"""What ``--wait`` of ``laas`` takes; that of ``openstack`` takes nothing."""

SAMPLES = {
    "allocation certificate": ("blue", "--output", "blue.json"),
    "allocation change-slots": ("web", "--slots", "3", "--dry-run"),
    "allocation consent": ("blue", "--movable", "never"),
    "allocation create": ("--name", "red", "--hosts", "5", "--wait", SECONDS),
    "allocation delete": ("gone", "--wait", SECONDS),
    "allocation draw": ("blue", "--svg", "blue.svg"),
    "allocation history": BLUE,
    "allocation list": (),
    "allocation ranks": BLUE,
    "allocation rename": ("old", "new"),
    "allocation repair": ("repaired", "--wait", SECONDS),
    "allocation replace-hosts": ("blue", "--host", "node00", "--dry-run"),
    "allocation resize": ("blue", "7", "--dry-run"),
    "allocation retry": ("stuck", "--wait", SECONDS),
    "allocation set": ("older", "--name", "newer"),
    "allocation show": BLUE,
    "apply": ("lines",),
    "fabric agents": (),
    "fabric consolidate": ("--parent", "pool", "--max-moves", "2", "--dry-run"),
    "fabric delete": ("spare",),
    "fabric fit": ("9",),
    "fabric hosts": (),
    "fabric idle": (),
    "fabric links": (),
    "fabric list": (),
    "fabric make-room": ("3", "--dry-run"),
    "fabric map": ("--html", "map.html"),
    "fabric observation": (),
    "fabric plane": ("--l2", "3", "--dry-run"),
    "fabric promises": ("--kind", "host"),
    "fabric routing": (),
    "fabric show": (),
    "fabric sleep": ("--moves", "1", "--dry-run"),
    "fabric switches": (),
    "fabric utilization": (),
    "host confirm-empty": ("node31",),
    "host drain": ("node30",),
    "host fail": ("node29",),
    "host repair": ("node29",),
    "host set": ("node28", "--trait", "gpu", "--cost", "3"),
    "link fail": ("leaf-1-3-3",),
    "link repair": ("leaf-1-3-3",),
    "link show": ("leaf-0-0-0",),
    "manager forget": ("gone",),
    "manager list": (),
    "quota show": (),
    "status": (),
    "switch drain": ("leaf-1-2", "--yes"),
    "switch fail": ("leaf-1-3",),
    "switch maintain": ("leaf-1-1",),
    "switch repair": ("leaf-1-3",),
    "switch show": ("leaf-0-0",),
    "view": (),
    "wait": BLUE,
}
"""What each command gets here; they are recorded in this order."""

SILENT = {"allocation certificate", "allocation set", "allocation delete"}
PLAIN = {"apply", "allocation ranks", "view"}
"""Commands that print no table."""

COMMANDS = sorted(set(command.LaasShell().command_manager.commands) - {"help", "complete"})
OLD_NAMES = set(command.OLD_NAMES)

NO_FABRIC = {"fabric list", "fabric delete", "quota show", "status", "wait"}
"""Commands that need no fabric to be chosen, beside those about allocations."""


class Recording:
    """Stands for the adapter: answers from the service once, and from memory afterwards."""

    def __init__(self, client):
        self._client = client
        self._answers: dict[str, Any] = {}
        self.asked: list[tuple[str, str]] = []
        self.interrupt_at = 0
        self.fabrics = 1

    def request(self, path, method, params, json, headers, **_):
        self.asked.append((method, path))
        if len(self.asked) == self.interrupt_at:
            raise KeyboardInterrupt
        key = repr((method, path, sorted(params.items()), json))
        if key not in self._answers:
            answer = self._client.open(
                path, method=method, query_string=params, json=json, headers=headers
            )
            self._answers[key] = (answer.status_code, answer.json, dict(answer.headers))
        status, document, headers = self._answers[key]
        for entry in document.get("history", ()):
            entry["seconds"] = {"wait": 0.5}  # not as measured
        if path == "/v1/fabrics" and self.fabrics == 2:
            (fabric,) = document["fabrics"]
            two = [fabric, {**fabric, "id": "other"}]
            document = {**document, "fabrics": two, "default": None}
        return SimpleNamespace(status_code=status, json=lambda: document, headers=headers)


def recordings_of(empty_database, directory):
    """A recording for each command, of a service with one fabric."""
    deployment = Deployment(shutil.copy(empty_database, directory / "laas.db")).add_fabric()
    client = deployment.client()
    for name in ("blue", "old", "older", "gone", "repaired", "stuck"):
        body = {"name": name, "hosts": 9 if name == "blue" else 1}
        assert client.post("/v1/allocations?wait=5", json=body).status_code == 202
    pool: dict[str, object] = {
        "name": "pool",
        "hosts": 2,
        "sharing": {"slots": 2, "bandwidth": 10.0},
    }
    web: dict[str, object] = {"name": "web", "class": "shared", "slots": 2, "bandwidth": 1.0}
    for shared in (pool, web):
        assert client.post("/v1/allocations?wait=5", json=shared).status_code == 202
    recordings: dict[str, Recording] = {}

    def recording(name):
        if name not in recordings:
            if name == "fabric delete":
                deployment.add_fabric("spare")
            if name == "host confirm-empty":
                memory = HostMemory(quarantine={"node31": Quarantine("a server vanished", 0.0)})
                deployment.store.faults.judge_hosts("main", lambda before: memory)
            if name == "manager forget":
                for agent in ("sm1", "gone"):  # the first one is active
                    report = AgentReport(Condition.DEAD, "no process")
                    deployment.agents.report("main", agent, report, 15)
                deployment.later = 60  # an agent that reports is not forgotten
            recordings[name] = Recording(client)
        made = recordings[name]
        made.asked, made.interrupt_at, made.fabrics = [], 0, 1
        return made

    yield recording
    deployment.engine.dispose()


@pytest.fixture(scope="module")
def site(empty_database, tmp_path_factory):
    yield from recordings_of(empty_database, tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def examples(empty_database, tmp_path_factory):
    yield from recordings_of(empty_database, tmp_path_factory.mktemp("examples"))


@pytest.fixture
def new_site(empty_database, tmp_path):
    yield from recordings_of(empty_database, tmp_path)


class Terminal(io.StringIO):
    def isatty(self):
        return True


NOWHERE = "http://127.0.0.1:9"
"""An address where nothing listens."""


@pytest.fixture
def outside(monkeypatch, tmp_path):
    """Set a directory and an environment without logins; ``laas view`` ends at once.

    Call it with a width, and with whether that is of a terminal; it returns standard output and
    standard error.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_text('{"op": "repair", "host": "node28"}\n')
    for name in ("OS_AUTH_URL", "OS_AUTH_TYPE", "OS_TOKEN", "LAAS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("keystoneauth1.session.time.sleep", lambda seconds: None)

    def stop(server):
        raise KeyboardInterrupt

    monkeypatch.setattr(ViewServer, "serve_forever", stop)

    def streams(width, terminal):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((width, 24)))
        out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        return out, err

    return streams


@pytest.fixture
def run(outside, monkeypatch):
    """Run a command; its exit status, standard output and standard error.

    Without an ``adapter`` the service is down.
    """

    def ran(name, *more, width=200, terminal=False, adapter=None, words=None):
        out, err = outside(width, terminal)
        with monkeypatch.context() as patch:
            if adapter is not None:
                patch.setattr(command, "adapter", lambda args: adapter)
            given = SAMPLES[name] if words is None else words
            status = command.main([*name.split(), *given, *more, "--endpoint", NOWHERE])
        return status, out.getvalue(), err.getvalue()

    return ran


@pytest.fixture
def says():
    """What precedes each message."""
    return "laas: "


def test_every_command_has_an_example():
    assert sorted(SAMPLES) == COMMANDS


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in OLD_NAMES])
def test_the_example_in_the_help_can_be_carried_out(run, examples, capsys, name):
    with pytest.raises(SystemExit) as ended:
        command.main([*name.split(), "--help"])
    assert ended.value.code == 0
    (example,) = re.findall(r"^example: laas (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert example.startswith(f"{name} ")
    status, _, err = run(
        name, words=shlex.split(example)[len(name.split()) :], adapter=examples(name)
    )
    assert status == 0, err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_gets_the_same_at_any_width(run, site, name):
    whole = run(name, adapter=site(name))
    assert whole[0] == 0, whole
    assert bool(whole[1]) is (name not in SILENT)
    if name != "view":  # whose address is a new one each time
        for width in WIDTHS:
            assert run(name, width=width, adapter=site(name)) == whole


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_terminal_gets_lines_that_fit(run, site, name, width):
    recording = site(name)
    status, out, err = run(name, width=width, terminal=True, adapter=recording)
    assert status == 0, err
    assert bool(out) is (name not in SILENT)
    out = re.sub(COLOUR, "", out)
    if name not in PLAIN:
        assert max(map(len, out.splitlines()), default=0) <= width
    assert "Traceback" not in out + err
    if name in ("allocation list", "fabric hosts", "fabric links"):
        shown = set(re.findall(r"\ballocation-?\w*", out))
        assert shown
        assert all(re.fullmatch(r"allocation-\d", one) for one in shown)  # or not unambiguous


GOLDEN = Path(__file__).parents[2] / "golden"

CHANGING = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?(Z|\+00:00))?", lambda found: "T" * len(found[0])),
    (r"127\.0\.0\.1:\d+/[\w-]{43}", lambda found: "127.0.0.1:PORT/SECRET"),
    (r"\b[0-9a-f]{32}\b", lambda found: "I" * len(found[0])),
    (r"req-[0-9a-f-]{36}", lambda found: "R" * len(found[0])),
)
"""What differs from run to run: times, addresses, ids of requests."""


@pytest.mark.parametrize("way", ["80", "piped"])
def test_what_a_person_sees(run, new_site, way):
    """Compared with a file that a person reads in review; LAAS_WRITE_GOLDEN=1 writes it."""
    text = ""
    for name in SAMPLES:
        status, out, err = run(name, width=80, terminal=way == "80", adapter=new_site(name))
        assert status == 0, err
        shown = re.sub(COLOUR, "", out) + err
        for pattern, put in CHANGING:
            shown = re.sub(pattern, put, shown)
        text += f"$ laas {' '.join((name, *SAMPLES[name]))}\n{shown}\n"
    golden = GOLDEN / f"commands-{way}.txt"
    if os.environ.get("LAAS_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_the_two_jsons_are_the_same(run, site):
    """``--json`` and ``-f json``, field by field."""
    for name in COMMANDS:
        if name not in PLAIN | SILENT:
            shown, formatted = (
                json.loads(run(name, *words, adapter=site(name))[1])
                for words in (("--json",), ("-f", "json"))
            )
            assert shown == formatted, name
            first = shown[0] if isinstance(shown, list) and shown else shown
            for field in first if shown else ():
                words = ("-f", "json", "-c", field)
                one = json.loads(run(name, *words, adapter=site(name))[1])
                one = one[0] if isinstance(shown, list) else one
                assert one == {field: first[field]}, (name, field)


def test_what_needs_a_person_is_marked_and_stays(run, site):
    stuck: Any = SimpleNamespace(
        request=lambda *_, **__: SimpleNamespace(
            status_code=200, json=lambda: {"allocations": [STUCK], "next": None}
        )
    )
    for width in WIDTHS:
        status, out, _ = run("allocation list", width=width, terminal=True, adapter=stuck)
        plain = re.sub(COLOUR, "", out)
        assert (status, plain != out) == (0, True)
        assert "| ! error" in plain
        for word in STUCK["error"].split():
            assert word in plain


@pytest.mark.parametrize("name", COMMANDS)
def test_a_service_that_is_down_is_one_line(run, says, name):
    status, out, err = run(name)
    assert (status, out) == (6, "")
    fix = "start laas-api there, or give another endpoint"
    assert re.fullmatch(
        rf"{says}cannot reach the service: {NOWHERE}/v1/\S+: Connection refused; {fix}\n", err
    )


@pytest.mark.parametrize(
    "name", [one for one in COMMANDS if not one.startswith("alloc") and one not in NO_FABRIC]
)
def test_with_two_fabrics_one_is_named(run, says, site, name):
    recording = site(name)
    recording.fabrics = 2
    refused = run(name, adapter=recording)
    assert refused == (1, "", f"{says}name one of these with --fabric: main, other\n")
    assert recording.asked == [("GET", "/v1/fabrics")]
    status, _, err = run(name, "--fabric", "main", adapter=recording)
    assert status == 0, err
    status, _, err = run(name, "--fabric", "absent", adapter=recording)
    if name != "view":
        assert (status, err.count("\n")) == (4, 1)


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_is_quiet_and_says_what_was_left(run, says, site, name):
    """At each request of the command; a request that changes something may be carried out."""
    recording = site(name)
    run(name, adapter=recording)
    asked = list(recording.asked)
    for number, (method, path) in enumerate(asked, 1):
        recording = site(name)
        recording.interrupt_at = number
        status, out, err = run(name, adapter=recording)
        left = f"{says}interrupted; the service may still carry out {method} {path}"
        assert (status, out, err.partition(";")[0]) == (
            130,
            "",
            says + "interrupted" if method != "GET" else "",
        )
        assert err.startswith(left if method != "GET" else "")


def test_every_command_prints_the_whole_answer_as_json(run, site):
    for name in sorted(set(COMMANDS) - PLAIN):
        recording = site(name)
        status, out, err = run(name, "--json", adapter=recording)
        assert (status, err) == (0, ""), name
        json.loads(out)


@pytest.mark.parametrize("form", ["json", "yaml", "csv", "value", "table"])
def test_the_formats_of_a_list(run, site, form):
    words = ("-f", form, "-c", "Name", "-c", "requested", "--sort-column", "Name")
    status, out, err = run("allocation list", *words, adapter=site("allocation list"))
    assert (status, err) == (0, "")
    expected = [{"name": name, "requested": size} for name, size in names_of(site)]
    match form:
        case "json":
            assert json.loads(out) == expected
        case "yaml":
            assert yaml.safe_load(out) == expected
        case "csv":
            lines = [f'"{row["name"]}","{row["requested"]}"' for row in expected]
            assert out.splitlines() == ['"name","requested"', *lines]
        case "value":
            assert out.splitlines() == [f"{row['name']} {row['requested']}" for row in expected]
        case _:
            assert "| Name" in out


def names_of(site):
    listed = site("allocation list").request("/v1/allocations", "GET", {}, None, {}).json()
    return sorted((one["name"], one["requested"]) for one in listed["allocations"])


def test_help_lists_every_command_or_those_of_a_noun(run, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all((f"  {name} " in out) is (name not in OLD_NAMES) for name in COMMANDS)
    status, out, _ = run("fabric", "--help", words=())
    assert (status, "  fabric fit " in out, "  host drain " in out) == (0, True, False)


@needs_bash_completion
def test_the_shell_completes_every_command(run, tmp_path):
    """Every noun, verb and option is in the script, and an interactive bash completes some."""
    status, out, _ = run("complete", words=())
    assert status == 0
    assert "cmds_fabric='" in out
    for name in COMMANDS:
        variable = f"cmds_{name.replace(' ', '_').replace('-', '_')}="
        assert "--help" in out.partition(variable)[2].partition("\n")[0], name
    script = tmp_path / "complete.sh"
    script.write_text(out)
    whole = [
        "laas allocation",
        "laas fabric utilization",
        "laas host confirm-empty",
        "laas fabric fit --contention-free",
        "laas view --port",
    ]
    assert completed(script, [line[:-2] for line in whole]) == whole
    assert completed(script, ["laas allocation re"]) == ["laas allocation re"]  # of several


# --- processes on a real terminal ------------------------------------------------------------


class Held(BaseHTTPRequestHandler):
    """Lists one allocation that is being made; holds POSTs and questions about fabrics.

    What is held is answered when the test ends.
    """

    server: Any

    def do_GET(self):
        if self.path.startswith("/v1/fabrics/"):
            self._hold()
            return
        answered = self.path.startswith("/v1/allocations/")
        document = RECORD if answered else {"allocations": [RECORD], "next": None}
        self._answer(document)
        if answered:
            self.server.polled.set()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if "wait=1" in self.path:
            self._hold()
        else:
            self._answer(RECORD)

    def _hold(self):
        self.server.polled.set()
        self.server.over.wait(300)

    def _answer(self, document):
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


RECORD: dict[str, Any] = {
    "id": "6f9619ff-8b86-d011-b42d-00cf4fc964ff",
    "name": "blue",
    "project_id": "9" * 32,
    "state": "allocating",
    "changing": None,
    "error": None,
    "waits_for": None,
    "requested": 9,
    "shape": "2 leaves of 4 hosts and one of 1",
    "policy": "jigsaw",
    "confirmed_by": None,
}


STUCK = {**RECORD, "state": "error", "error": "nova did not answer for a long time now"}


@pytest.fixture
def held():
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Held)
    server.daemon_threads = True
    server.polled, server.over = threading.Event(), threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()


def _hear_ctrl_c():
    """The terminal's signals reach this process, also where the tests run in the background."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class OnTerminal:
    """A command as a process whose terminal has a number of columns."""

    def __init__(self, columns, *command):
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, columns))
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("OS_", "LAAS_", "COLUMNS"))
        }
        self._master = master
        self._said = b""
        self._process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=inherited,
            start_new_session=True,
            preexec_fn=_hear_ctrl_c,
        )
        os.close(slave)

    def interrupt(self):
        os.write(self._master, b"\x03")

    def says(self, words):
        """Wait until the terminal shows these words, or the process has ended."""
        while words not in self._said.decode() and self._read():
            pass

    def ended(self):
        """Exit status and what the terminal shows, from the end of the process on."""
        while self._read():
            pass
        try:
            return self._process.wait(300), self._said.decode().replace("\r\n", "\n")
        finally:
            self._process.send_signal(signal.SIGKILL)
            os.close(self._master)

    def _read(self):
        try:
            block = os.read(self._master, 4096)
        except OSError:
            return False  # the process has closed its end
        self._said += block
        return bool(block)


@pytest.fixture
def begin(held):
    """Begin a command on a terminal; ``seconds`` is how long it waits for a change."""

    def begun(name, *words, columns=80, seconds=None):
        waits = [] if seconds is None else ["--wait", seconds]
        endpoint = f"http://127.0.0.1:{held.server_port}"
        program = [sys.executable, "-m", "laas_service.cmd.client", "--endpoint", endpoint]
        return OnTerminal(columns, *program, *name.split(), *words, *waits)

    return begun


def test_a_real_terminal(begin):
    status, said = begin("allocation list", columns=60).ended()
    assert status == 0, said
    table = [line for line in said.splitlines() if line[:1] in "+|"]
    assert max(map(len, table)) <= 60
    row = table[3]
    assert f" {RECORD['id'][:8]} " in row or f" {RECORD['id']} " in row
    for shown in ("blue", "allocating", "9"):
        assert f" {shown} " in row


CREATE = ("allocation create", "--name", "blue", "--hosts", "9")


def after(says):
    """The commands that a person may want after Ctrl-C."""
    command = "laas allocation" if says else "openstack isolated network"
    return f"; see it with '{command} show blue'; end it with '{command} delete blue'"


def test_ctrl_c_while_an_answer_is_awaited(begin, says, held):
    process = begin(*CREATE, seconds="1000")
    assert held.polled.wait(300)
    process.interrupt()
    left = f"{says}interrupted; the service may still carry out POST /v1/allocations{after(says)}"
    assert process.ended() == (130, f"^C\n{left}\n")


def test_ctrl_c_while_an_allocation_is_waited_for(begin, says, held):
    process = begin(*CREATE, seconds="900")
    assert held.polled.wait(300)
    process.interrupt()
    left = (
        f"{says}interrupted; allocation {RECORD['id']} is still allocating; the service continues"
        f"{after(says)}"
    )
    assert process.ended() == (130, f"^C\n{left}\n")


def test_ctrl_c_while_nothing_is_left(begin, held):
    process = begin("fabric show", "--fabric", "main")
    assert held.polled.wait(300)
    process.interrupt()
    assert process.ended() == (130, "^C")


def test_ctrl_c_ends_the_view(begin):
    process = begin("view", "--fabric", "main")
    process.says("sees this page.")
    process.interrupt()
    status, said = process.ended()
    address, *more = said.splitlines()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{43}/", address)
    advice = "End with Ctrl-C. Whoever knows the address sees this page."
    assert (status, more) == (0, [advice, "^C"])
