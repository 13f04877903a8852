# SPDX-License-Identifier: Apache-2.0

"""Setting up: the virtual environment of make, and the files that the package installs."""

import configparser
import os
import re
import subprocess
from pathlib import Path

from tests.scripts import executable

ROOT = Path(__file__).parents[2]

STAND_IN = """#!/bin/sh
# python3 -m venv DIRECTORY
mkdir -p "$3/bin"
printf '#!/bin/sh\\n' > "$3/bin/pip"
chmod +x "$3/bin/pip"
"""
"""Makes an empty virtual environment whose pip installs nothing."""


def make(directory: Path) -> subprocess.CompletedProcess[str]:
    (directory / "Makefile").write_text((ROOT / "Makefile").read_text())
    python = executable(directory / "python", STAND_IN)
    return subprocess.run(
        ["make", "-C", str(directory), f"PYTHON={python}", ".venv/tools"],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
    )


def test_make_replaces_a_file_in_the_place_of_its_virtual_environment(tmp_path):
    (tmp_path / ".venv").write_text(".tox/lint\n")
    done = make(tmp_path)
    assert (tmp_path / ".venv" / "tools").is_file(), done.stderr


def test_make_keeps_a_virtual_environment(tmp_path):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "mine").touch()
    make(tmp_path)
    assert (tmp_path / ".venv" / "mine").exists()


def test_tox_leaves_the_place_to_make():
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini")
    assert not parser["tox"].getboolean("venv_redirect")


def test_the_package_installs_every_sample():
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg")
    lines = parser["files"]["data_files"].strip().splitlines()
    installed = {path for line in lines for path in ROOT.glob(line.partition(" = ")[2])}
    there = {path for path in (ROOT / "etc").rglob("*") if path.is_file()}
    assert there <= installed


def test_the_wheels_are_built_after_their_samples():
    """``tox -e wheel`` writes the complete samples where a wheel takes its files from."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    *before, last = tox["testenv:wheel"]["commands"].split("\n")[1:]
    assert last == "python packaging/wheels.py dist"
    for name, line in zip(("config", "policy"), before, strict=True):
        assert line == f"{{[testenv:gen{name}]commands}}"
        file = f"etc/laas/{name}-generator.conf"
        assert tox[f"testenv:gen{name}"]["commands"].endswith(f" --config-file {file}")
        assert re.search(r"\noutput_file = etc/laas/.+\.sample\n", (ROOT / file).read_text())
    assert '"etc/laas/*.sample"' in (ROOT / "packaging" / "distributions.toml").read_text()
