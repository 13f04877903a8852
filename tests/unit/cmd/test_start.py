"""What a command imports before it has read its command line; measured by modules, not time."""

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from laas_service.cmd.manage.command_line import FORMATS, GROUPS, implementation
from laas_service.cmd.manage.fabrics import WRITERS
from laas_service.version import VERSION

COMMANDS = {
    script.name: script.value
    for script in entry_points(group="console_scripts")
    if script.value.partition(".")[0] in ("laas_service", "opensm_writer")
}

HEAVY = (
    *("alembic", "dask", "eventlet", "flask", "keystonemiddleware", "kombu", "networkx"),
    *("novaclient", "oslo_messaging", "oslo_service", "prometheus_client", "sqlalchemy"),
    *("laas_service.wiring.composition", "laas_service.app.use_cases", "matplotlib"),
)
"""Packages that no command needs to answer ``--help``."""

MANAGE_TOO = ("keystoneauth1", "numpy", "oslo_config", "oslo_log", "pydantic", "requests", "rich")
"""Packages that ``laas-manage`` does not need either."""

RUN = """
import sys
from importlib import import_module
module, _, function = sys.argv.pop(1).partition(":")
heavy = sys.argv.pop(1).split(",")
status = 0
for line in sys.argv.pop(1).split(" and "):
    sys.argv[:] = ["command", *line.split()]
    try:
        getattr(import_module(module), function)()
    except SystemExit as stop:
        status = status or stop.code
print("imported:", *(name for name in heavy if name in sys.modules))
sys.exit(status)
"""


def run(command: str, lines: str, heavy: tuple[str, ...] = HEAVY) -> tuple[str, list[str]]:
    """What the command prints, and which of the ``heavy`` modules it has imported.

    The word "and" separates ``lines`` for one process.
    """
    done = subprocess.run(
        [sys.executable, "-c", RUN, COMMANDS[command], ",".join(heavy), lines],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.returncode in (0, 2), done.stderr
    printed, _, imported = done.stdout.rpartition("imported:")
    return printed + done.stderr, imported.split()


def test_all_commands_are_looked_at():
    assert {"laas", "laas-api", "laas-manage", "laas-plan", "laas-worker"} <= COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_the_version_are_there_without_heavy_packages(command):
    printed, imported = run(command, "--help and --version")
    assert printed.startswith("usage: ")
    assert printed.split()[-1] == VERSION
    assert imported == []


def test_laas_manage_reads_its_command_line_with_the_standard_library():
    lines = "--help and --version and fabric import --help and host set and frob"
    _, imported = run("laas-manage", lines, (*HEAVY, *MANAGE_TOO))
    assert imported == []


def test_laas_reads_its_command_line_without_what_makes_connections():
    """Nor does it start the shell of cliff."""
    lines = "--help and fabric fit --help and frob"
    _, imported = run("laas", lines, (*HEAVY, "cmd2", "keystoneauth1", "requests", "rich"))
    assert imported == []


def test_every_command_of_laas_manage_is_there():
    for _, commands in GROUPS.values():
        for command in commands:
            assert implementation(command.run.__qualname__).__doc__


def test_laas_manage_offers_the_formats_that_it_writes():
    assert set(WRITERS) == set(FORMATS)
