# SPDX-License-Identifier: Apache-2.0

"""``laas-doctor``: seeded harms of each part, what it says of them, and that it says no more."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict
from urllib.request import Request, urlopen

import pytest

import laas_doctor
from laas_doctor import Severity, failure
from tests.scripts import executable
from tests.servers.leash import spawn
from tests.waiting import eventually

DOCTOR = (sys.executable, "-m", "laas_doctor")
EXAMPLE = "etc/laas/fabric-example.json"

NOVA = """\
[filter_scheduler]
available_filters = nova.scheduler.filters.all_filters
available_filters = nova_filters.laas.LaasTenantFilter
enabled_filters = ComputeFilter,AggregateMultiTenancyIsolation,LaasTenantFilter
[scheduler]
limit_tenants_to_placement_aggregate = true
"""

PLUGIN = """\
[DEFAULT]
partition = links
[laas]
auth_type = none
endpoint_override = {}
"""

SLURM = """\
#!/bin/sh
case "$*" in
"show config") printf 'ClusterName             = slurm\\nJobSubmitPlugins        = lua\\n'
    printf 'PrologSlurmctld         = /etc/slurm/laas-prolog.sh\\n' ;;
"show partition links") echo PartitionName=links ;;
"--oneliner show node") echo NodeName=node00 Arch=x86_64; echo NodeName=node01 Arch=x86_64 ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def etc(tmp_path):
    (tmp_path / "etc/laas").mkdir(parents=True)
    return tmp_path / "etc"


@pytest.fixture
def doctor(etc, monkeypatch):
    """Run the command; its status, and its rows as (severity, what, why, fix)."""

    def run():
        done = subprocess.run(
            [*DOCTOR, "--json", "--etc", etc],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        rows = json.loads(done.stdout)
        assert all(set(row) == {"severity", "what", "why", "fix"} for row in rows), rows
        assert all(all(row.values()) for row in rows), "each row says all four"
        assert done.returncode == int(any(row["severity"] == "failure" for row in rows))
        return rows

    return run


def manage(etc, *words):
    command = [sys.executable, "-m", "laas_service.cmd.manage"]
    config = f"--config-file={etc}/laas/laas.conf"
    subprocess.run([*command, config, *words], check=True, capture_output=True)


@pytest.fixture
def service(etc, tmp_path):
    """A configured service whose database is ready; returns a function that adds options."""
    file = etc / "laas/laas.conf"
    base = (
        f"[DEFAULT]\nstate_dir = {tmp_path}\n[database]\nconnection = sqlite:///{tmp_path}/l.db\n"
    )

    def configure(text=""):
        file.write_text(f"{base}[opensm]\ndump_command = dump_lfts,-n\n{text}")

    configure()
    manage(etc, "db", "upgrade")
    manage(etc, "fabric", "import", EXAMPLE, "--id", "main")
    return configure


def asked(url, report=None):
    """The JSON of an answer; of a PUT if there is a report."""
    body = None if report is None else json.dumps(report).encode()
    headers = {"Content-Type": "application/json"}
    request = Request(url, body, headers, method="GET" if body is None else "PUT")
    with urlopen(request) as answer:
        return json.load(answer)


def of(rows, what):
    return [(row["severity"], row["why"]) for row in rows if row["what"] == what]


def test_a_machine_without_any_part(doctor):
    (row,) = doctor()
    assert (row["severity"], row["why"]) == ("failure", "no part of LaaS is set up here")


def test_a_service_in_order(service, doctor):
    assert doctor() == []


@pytest.mark.parametrize(
    ("text", "what", "severity", "said"),
    [
        ("[api]\nbind_port = eighty\n", "Options", "failure", "[api] bind_port: 'eighty' is"),
        ("[api]\nthredds = 3\n", "Options", "warning", "[api] thredds has no effect"),
        ("[api]\ndefault_policy = laas\nenabled_policies = jigsaw\n", "Options together",
         "failure", "is not in enabled_policies"),
        ("reached_by = agent\n", "Agents", "failure", "no agent has ever reported"),
        ("dump_command =\ntools = none\n", "Confirmation", "unwatched",
         "nobody reads the switches"),
        ("[api]\ndefault_fabric = nowhere\n", "Fabrics", "failure", "nowhere is not managed"),
    ],
)  # fmt: skip
def test_harm_to_a_service(service, doctor, text, what, severity, said):
    if text.startswith("reached_by"):
        text = text.replace("reached_by", "dump_command =\nreached_by")
    service(text)
    found = of(doctor(), what)
    assert (severity, True) in [(s, said in why) for s, why in found], found


def test_a_schema_that_is_not_current(etc, service, doctor, tmp_path):
    (tmp_path / "l.db").unlink()
    rows = doctor()
    assert next(row["severity"] for row in rows) == "failure"
    assert {row["fix"] for row in rows if row["what"] == "Database schema"} == {
        "run laas-manage db upgrade"
    }
    manage(etc, "db", "upgrade")
    assert doctor() == []


def test_a_broken_file_is_one_row(etc, doctor):
    (etc / "laas/laas.conf").write_text("[api\nport\n")
    (row,) = doctor()
    assert (row["severity"], row["what"]) == ("failure", "Options")


@pytest.fixture
def running(etc, service):
    """The endpoint of a running laas-api."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    opensm = "dump_command =\nreached_by = agent\nagent_lease_seconds = 900\n"
    service(f"{opensm}[api]\nbind_port = {port}\n")
    command = [sys.executable, "-m", "laas_service.cmd.api", "--config-file"]
    process = spawn([*command, str(etc / "laas/laas.conf")], stderr=subprocess.PIPE, text=True)
    try:
        eventually(lambda: _answers(port), "laas-api does not answer")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate()


def _answers(port):
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


TOOL = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def agent(etc, tmp_path):
    """Configures an agent beside an OpenSM of which only the tools are here."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("smpquery", "dump_lfts", "iblinkinfo", "perfquery"):
        executable(tools / name, TOOL)
    sets = tmp_path / "opensm"
    (sets / "main/current").mkdir(parents=True)

    def configure(endpoint, more="", used=tools):
        text = f"[laas]\nendpoint_override = {endpoint}\nauth_type = none\n"
        opensm = f"[opensm]\ndirectory = {sets}\ntools = {used}\nreload_command = true\n{more}"
        (etc / "laas/opensm-agent.conf").write_text(f"{text}{opensm}")

    return configure


def test_an_agent_whose_service_is_not_there(agent, doctor):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    agent(f"http://127.0.0.1:{port}")
    (row,) = [row for row in doctor() if row["severity"] == "failure"]
    assert row["what"] == "Service"


@pytest.mark.parametrize(
    ("harm", "what", "severity", "said"),
    [
        ("tools", "Tools", "failure", "nothing reads the switches back"),
        ("plain", "Service", "failure", "use https"),
        ("sets", "File sets", "failure", "no set of files is in"),
        ("opensm", "OpenSM", "failure", "no OpenSM runs here that reads files in"),
        ("option", "Options", "warning", "has no effect"),
    ],
)
def test_harm_to_an_agent(agent, doctor, tmp_path, harm, what, severity, said):
    used, more, endpoint = tmp_path / "tools", "", "http://127.0.0.1:9"
    match harm:
        case "tools":
            used = "none"
        case "plain":
            endpoint = "http://controller.example.org"
        case "sets":
            (tmp_path / "opensm/main/current").rmdir()
        case "opensm":
            more = "reload_command =\n"
        case "option":
            more = "agent_nam = x\n"
    agent(endpoint, more, used)
    found = of(doctor(), what)
    assert (severity, True) in [(s, said in why) for s, why in found], found


def test_without_tools_that_is_unwatched(agent, doctor):
    agent("http://127.0.0.1:9", used="none")
    unwatched = [row["why"] for row in doctor() if row["severity"] == "unwatched"]
    assert any("cut one is not seen" in why for why in unwatched)
    assert any("a foreign one is not seen" in why for why in unwatched)


def test_parts_in_order_and_rows_worst_first(etc, running, agent, doctor, monkeypatch, tmp_path):
    agent(running, "agent_fabric = main\n")
    assert of(doctor(), "Agents") == [
        ("failure", "no agent has ever reported for fabric main: no tenant becomes active")
    ]
    asked(f"{running}/v1/fabrics/main/agents/sm1", {"condition": "starting"})
    names = [host["name"] for host in asked(f"{running}/v1/fabrics/main/hosts")["hosts"]]
    (etc / "nova").mkdir()
    (etc / "nova/nova.conf").write_text(NOVA)
    (etc / "laas/laas-slurm.conf").write_text(PLUGIN.format(running))
    (tmp_path / "bin").mkdir()
    slurm = SLURM.replace("node00", names[0]).replace("node01", names[1])
    executable(tmp_path / "bin/scontrol", slurm)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    rows = doctor()
    assert [row["severity"] for row in rows] == sorted(
        (row["severity"] for row in rows), key=list(Severity).index
    )
    assert [row for row in rows if row["severity"] == "failure"] == []
    said = subprocess.run([*DOCTOR, "--etc", etc], capture_output=True, text=True, check=False)
    assert "Examined: agent, filter, service, slurm." in said.stdout
    assert "Nothing must be mended." in said.stdout

    executable(tmp_path / "bin/scontrol", slurm.replace("= lua", "= (null)"))
    (etc / "nova/nova.conf").write_text(NOVA.replace("AggregateMultiTenancyIsolation,", ""))
    rows = doctor()
    assert of(rows, "Slurm") == [
        ("failure", "JobSubmitPlugins has no lua: jobs start without waiting for their links")
    ]
    ((severity, why),) = of(rows, "Nova's filters")
    assert (severity, "AggregateMultiTenancyIsolation is not in" in why) == ("failure", True)


@pytest.mark.parametrize(
    ("old", "new", "severity", "said"),
    [
        (",LaasTenantFilter", "", "warning", "LaasTenantFilter is not in"),
        (
            "available_filters = nova_filters.laas.LaasTenantFilter\n", "",
            "failure", "available_filters does not name",
        ),
        ("Isolation,LaasTenantFilter", "Isolation,LaasTenantFilter,NumInstancesFilter",
         "warning", "is before NumInstancesFilter"),
        ("aggregate = true", "aggregate = false", "warning", "is not true"),
    ],
)  # fmt: skip
def test_harm_to_the_filters(etc, doctor, old, new, severity, said):
    (etc / "nova").mkdir()
    assert old in NOVA
    (etc / "nova/nova.conf").write_text(NOVA.replace(old, new))
    found = of(doctor(), "Nova's filters")
    assert [(s, said in why) for s, why in found] == [(severity, True)], found


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("       = slurm", "       = other", "ClusterName is other"),
        ("laas-prolog.sh", "own.sh", "PrologSlurmctld does not name"),
        ("show partition links", "show partition others", "scontrol has no answer"),
    ],
)  # fmt: skip
def test_harm_to_slurm(etc, doctor, tmp_path, monkeypatch, old, new, said):
    (etc / "laas/laas-slurm.conf").write_text(PLUGIN.format("http://127.0.0.1:9"))
    (tmp_path / "bin").mkdir()
    executable(tmp_path / "bin/scontrol", SLURM.replace(old, new))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    ((severity, why),) = of(doctor(), "Slurm")
    assert (severity, said in why) == ("failure", True), why


def test_the_parts_of_other_environments_are_asked(tmp_path):
    """As the Debian packages have them; here a stand-in answers in place of their Python."""
    row = asdict(failure("OpenSM", "it does not run", "start it"))
    for name, text in {
        "laas-opensm-agent": json.dumps({"parts": ["agent"], "findings": [row]}),
        "laas-slurm": "no module named laas_doctor",
    }.items():
        place = tmp_path / name / "bin"
        place.mkdir(parents=True)
        executable(place / "python", f"#!/bin/sh\necho '{text}'\n")
        (place / "laas-doctor").touch()
    (tmp_path / "laas-client" / "bin").mkdir(parents=True)  # has no part to examine
    (agent, (told,)), (slurm, (broken,)) = laas_doctor.examined_elsewhere(tmp_path, tmp_path)
    assert (agent, told.why) == ({"agent"}, "it does not run")
    assert slurm == {"laas-slurm"}
    assert "no readable answer" in broken.why
