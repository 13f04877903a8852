# SPDX-License-Identifier: Apache-2.0

"""Runs the examples of the documentation and compares their output.

A ``.. code-block:: console`` holds commands (``$ ...``) and their output. In the output,
``...`` stands for any text, and ``exit status N`` is the expected status if it is not 0.
The commands of a page run in order, against a separate service for each page; those of README run
again with a second fabric.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.fabric_import.generator import inventory
from tests.functional.api.conftest import TOPOLOGY
from tests.recabling import apart
from tests.servers.process import Port, Process

ROOT = Path(__file__).parents[2]
README = "../../README.rst"
SHARED = "user/shared.rst"
PAGES = [
    README,
    "user/tutorial.rst",
    "user/allocations.rst",
    SHARED,
    "user/view.rst",
    "user/planning.rst",
    "user/simulation.rst",
    "user/isolation.rst",
    "admin/operate.rst",
    "admin/day2.rst",
    "admin/troubleshooting.rst",
    "admin/slurm.rst",
]
SCRIPTS = Path(sys.executable).parent

_BLOCK = re.compile(r"^\.\. code-block:: console\n\n((?:   .*\n|\n)+)", re.MULTILINE)
_STATUS = re.compile(r"exit status (\d+)")


def examples(page: str) -> list[tuple[str, str]]:
    """The commands of a page, each with its documented output."""
    found: list[tuple[str, str]] = []
    for block in _BLOCK.findall((ROOT / "doc" / "source" / page).read_text()):
        for line in block.splitlines():
            text = line[3:]
            if text.startswith("$ "):
                found.append((text[2:], ""))
            elif text.startswith("> "):
                found[-1] = (f"{found[-1][0]}\n{text[2:]}", "")
            elif found:
                found[-1] = (found[-1][0], f"{found[-1][1]}{text}\n")
    return found


@pytest.fixture
def site(tmp_path):
    """Run a service on the example fabric and yield the environment of its clients."""
    config = tmp_path / "laas.conf"
    port = Port()
    config.write_text(
        f"[DEFAULT]\nstate_dir = {tmp_path}/state\n[api]\nbind_port = {port.number}\n"
        "default_fabric = fabric-example\n[worker]\npoll_interval = 0.1\n"
        "[sharing]\naccess = together\n"
    )
    environment = os.environ | {
        "LAAS_ENDPOINT": port.url,
        "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
    }

    def manage(*words: str) -> None:
        words = ("laas-manage", "--config-file", str(config), *words)
        subprocess.run(words, env=environment, check=True, timeout=300)

    manage("db", "upgrade")
    manage("fabric", "import", str(ROOT / "etc/laas/fabric-example.json"))
    command = ["laas-api", "--all-in-one", "--config-file", str(config)]
    api = Process(command, tmp_path / "log", environment)
    try:
        api.wait_for(f"{port.url}/healthcheck")
        yield config, environment
    finally:
        api.stop()
        port.close()


@pytest.mark.parametrize("page", PAGES)
def test_examples_run_and_print_what_they_say(page, site, tmp_path):
    config, environment = site
    found = examples(page)
    assert found, "the page has no examples"
    if page == SHARED:  # the example fabric has two rails
        another(tmp_path)
    for text, expected in found:
        run(text, expected, config, environment, tmp_path)
    if page == README:
        another(tmp_path)
        for text, expected in found:
            run(text, expected, config, environment, tmp_path)


def another(directory):
    """A second fabric for the service."""
    engine = connect(f"sqlite:///{directory}/state/laas.sqlite")
    SqlStore(engine).fabrics.add("another", TOPOLOGY, apart(inventory(TOPOLOGY), 1))
    engine.dispose()


def run(text, expected, config, environment, directory):
    """Run one example in a directory; its output and status must be those of the page."""
    command, _, stdin = text.partition("\n")
    words = shlex.split(command)
    if words[0] == "laas-manage":
        words[1:1] = ["--config-file", str(config)]
    done = subprocess.run(
        words,
        env=environment,
        cwd=directory,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=600,
    )
    said = _STATUS.search(expected)
    status = int(said[1]) if said else 0
    printed = done.stdout + done.stderr
    assert done.returncode == status, f"$ {command}\n{printed}"
    wanted = _STATUS.sub("", expected).strip() or "..."
    assert doctest.OutputChecker().check_output(
        f"{wanted}\n",
        f"{printed.strip()}\n",
        doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    ), f"$ {command}\nsaid:\n{wanted}\nprinted:\n{printed}"
