# SPDX-License-Identifier: Apache-2.0

"""Connection strings with mistakes: a line that says what to do, and no part of the string."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest

from laas_service.adapters.db.database_url import Redaction, parsed
from laas_service.cmd.process import registered
from laas_service.conf.database import connection, engine_options
from laas_service.domain.errors import InvalidInput

SECRETS = ("Left", "Right", "Upper", "Lower")

DOLLAR, AT, PERCENT, FORM = "$$", "%40", "%25", "driver://user:password@host/database"

STRINGS = {
    "mysql+pymysql://laas:Left$Right@127.0.0.1:1/laas": DOLLAR,
    "mysql+pymysql://laas:Left${Right}@127.0.0.1:1/laas": DOLLAR,
    "mysql+pymysql://laas:Left$database@127.0.0.1:1/laas": DOLLAR,
    "mysql+pymysql://laas:Left$connection@127.0.0.1:1/laas": DOLLAR,
    "mysql+pymysql://laas:Left@Right@127.0.0.1:1/laas": AT,
    "mysql+pymysql://laas:Left@Right/Upper@127.0.0.1:1/laas": AT,
    "mysql+pymysql://laas:Left@Right?Upper@127.0.0.1:1/laas": AT,
    "postgresql+psycopg://laas:Left@Right:Upper@127.0.0.1/laas": AT,
    "postgresql+psycopg://laas:Left%Right@127.0.0.1:1/laas": PERCENT,
    "postgresql+psycopg://laas:Left": FORM,
    "Left": FORM,
    "//laas:Left@127.0.0.1/laas": FORM,
    "Left://laas:Right@127.0.0.1:1/laas": "driver",
    "mysql+Left://laas:Right@127.0.0.1:1/laas": "driver",
    "mysql+pymysql://laas:Upper@127.0.0.1:1/laas?Left=Right": "after the ?",
    "postgresql+psycopg://laas:Upper@127.0.0.1:1/laas?Left=Right": "after the ?",
    "postgresql+psycopg://laas:Upper@127.0.0.1:1/laas?sslmode=Left": "",
    "postgresql+psycopg://laas:Left#Right@127.0.0.1:1/laas": "Connection refused",
    "postgresql+psycopg://laas:Left;Right@127.0.0.1:1/laas": "Connection refused",
    "postgresql+psycopg://laas:Left/Right@127.0.0.1:1/laas": "Connection refused",
}
"""Strings with mistakes, or that lead nowhere, and what the error says."""

LINES = ("connection Left", "   laas:Left@h", "[database Left", "=Left")
"""Lines that no parser understands."""

COMMANDS = (
    ("laas-api",),
    ("laas-worker",),
    ("laas-manage", "db", "version"),
    ("laas-status", "upgrade", "check"),
)


def _said(tmp_path: Path, line: str, command: tuple[str, ...]) -> str:
    file, log = tmp_path / "laas.conf", tmp_path / "laas.log"
    file.write_text(
        f"[DEFAULT]\ndebug = true\nlog_file = {log}\nstate_dir = {tmp_path}\n"
        f"[database]\nmax_retries = 1\nretry_interval = 0\n{line}\n"
    )
    name, *words = command
    done = subprocess.run(
        [name, "--config-file", str(file), *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "COLUMNS": "1000"},
    )
    assert done.returncode in (1, 2, 255), done
    logged = log.read_text() if log.exists() else ""
    return f"{done.stdout}{done.stderr}{logged}"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    "line", ["connection = mysql+pymysql://laas:Left$Right@127.0.0.1:1/laas", *LINES]
)
def test_no_command_prints_a_part_of_a_line_that_it_cannot_read(tmp_path, line, command):
    said = _said(tmp_path, line, command)
    assert not [secret for secret in SECRETS if secret in said], said
    assert "Traceback" not in said


@pytest.mark.parametrize("string", STRINGS)
def test_the_mistake_is_explained_and_no_part_is_printed(tmp_path, string):
    said = _said(tmp_path, f"connection = {string}", ("laas-manage", "db", "version"))
    assert not [secret for secret in SECRETS if secret in said], said
    assert "Traceback" not in said
    assert STRINGS[string] in said
    assert said.splitlines()[0].startswith("laas-manage: ") or "WARNING" in said


def test_dollars_are_doubled(tmp_path):
    file = tmp_path / "laas.conf"
    file.write_text("[database]\nconnection = mysql+pymysql://laas:a$$b%40@h/laas\n")
    conf = registered()
    conf(["--config-file", str(file)], project="laas")
    url = parsed(connection(conf))
    assert (url.password, url.host, url.query["charset"]) == ("a$b@", "h", "utf8mb4")


def test_other_options_of_the_database_are_named_without_their_values(tmp_path):
    file = tmp_path / "laas.conf"
    file.write_text("[database]\nconnection_parameters = Left$Right\n")
    conf = registered()
    conf(["--config-file", str(file)], project="laas")
    with pytest.raises(InvalidInput, match=r"\[database\] connection_parameters") as refused:
        engine_options(conf)
    assert "Left" not in str(refused.value)


def test_a_library_shows_no_password_while_it_connects():
    hides = Redaction(parsed("postgresql+psycopg://laas:Left@h/laas?sslmode=Right"))
    record = logging.LogRecord("oslo_db", logging.INFO, "", 0, "%s and %s", ("Left", "Right"), None)
    assert hides.filter(record)
    assert record.getMessage() == "*** and ***"
