# SPDX-License-Identifier: Apache-2.0

"""Threads in the background survive errors, and their errors are in the log."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from laas_service import background
from laas_service.app.use_cases import READ_AHEAD, in_background
from laas_service.domain.errors import Unavailable
from tests.waiting import eventually

ROOT = Path(background.__file__).parents[1]

DYING = """
import sys, threading
from laas_service.cmd import process
process.configured("laas-worker", sys.argv[1:])
def work():
    raise OSError("the database went\\naway")
thread = threading.Thread(target=work, name="laas-other")
thread.start()
thread.join()
"""


def test_what_is_read_ahead_begins_again_after_an_error(monkeypatch, caplog):
    monkeypatch.setattr(background, "AGAIN", 0.01)
    begun, done = [], []

    def steps():
        begun.append(1)
        if len(begun) < 3:
            raise Unavailable("the database failed")
        yield
        done.append(1)

    in_background(steps)
    eventually(lambda: done, "the steps are taken")
    assert len(begun) == 3
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in errors] == [f"{READ_AHEAD}: unexpected error"] * 2


@pytest.mark.parametrize("json", ["false", "true"])
def test_the_error_that_ends_any_thread_is_in_the_logs_format(tmp_path, json):
    (tmp_path / "laas.conf").write_text(f"[DEFAULT]\nuse_json = {json}\n")
    ended = subprocess.run(
        [sys.executable, "-c", DYING, "--config-file", str(tmp_path / "laas.conf")],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    lines = ended.stderr.splitlines()
    assert "laas-other has ended: unexpected error" in lines[0]
    assert "CRITICAL" in lines[0]
    start = "{" if json == "true" else lines[0][:4]  # the year
    assert all(line.startswith(start) for line in lines), ended.stderr


def test_every_thread_is_started_in_one_place():
    """Else its errors would end it without a line in the log."""
    there = []
    for file in [*ROOT.glob("laas_service/**/*.py"), *ROOT.glob("opensm_writer/**/*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "threading.Thread":
                there.append(file.name)
    assert there == ["background.py"]
