# SPDX-License-Identifier: Apache-2.0

"""The page's script: its parts are small, and pass their own tests, which Node runs."""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from laas_service import page

NODE = shutil.which("node")
TESTS = Path(__file__).with_name("scripts")


@pytest.mark.skipif(NODE is None, reason="needs Node (bindep.txt)")
def test_nodes_own_runner():
    run = subprocess.run(
        [NODE or "", "--test", "."], cwd=TESTS, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_script_is_in_the_page():
    scripts = {one.name for one in files("laas_service.page").iterdir() if one.name[-3:] == ".js"}
    assert scripts == set(page.SCRIPTS)
