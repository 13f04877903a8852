# SPDX-License-Identifier: Apache-2.0

"""The page's script: small modules, their own tests, which Node runs, and all of them as one."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from laas_service import page

NODE = shutil.which("node")
TESTS = Path(__file__).with_name("scripts")
MOST_LINES = 300

needs_node = pytest.mark.skipif(NODE is None, reason="needs Node (bindep.txt)")


@needs_node
def test_nodes_own_runner():
    run = subprocess.run(
        [NODE or "", "--test", "."], cwd=TESTS, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_module_is_in_the_page_and_small():
    scripts = {one.name for one in files("laas_service.page").iterdir() if one.name[-3:] == ".js"}
    assert scripts == set(page.modules())
    long = {name: text.count("\n") for name, text in page.modules().items()}
    assert {name: lines for name, lines in long.items() if lines >= MOST_LINES} == {}


def test_imports_point_one_way():
    seen: set[str] = set()
    for name, text in page.modules().items():
        assert set(re.findall(r'from "\./([^"]+)"', text)) <= seen, name
        seen.add(name)


@needs_node
def test_all_modules_as_one(tmp_path):
    """A saved page has one script: no import is left in it, and no name is there twice."""
    saved = page.page({"fabric": "f"})
    text = saved.rpartition('<script type="module">')[2].partition("</script>")[0]
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
    script = tmp_path / "all.mjs"
    script.write_text(text)
    run = subprocess.run(
        [NODE or "", "--check", script], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
