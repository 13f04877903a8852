# SPDX-License-Identifier: Apache-2.0

"""Text of others is one printable line in every log, plain or JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

NASTY = "a\r\n2030-01-01 00:00:00.000 1 INFO forged\x1b[2J\x00\x07\u202eb\u2028c\x85d\udcff"
ESCAPED = r"a\r\n2030-01-01 00:00:00.000 1 INFO forged\x1b[2J\x00\x07\u202eb\u2028c\x85d\udcff"

SPEAKING = """
import logging, sys
from laas_service.cmd import process
getattr(process, sys.argv[1])("laas-test", sys.argv[2:])
nasty = {nasty!r}
LOG = logging.getLogger("laas_service.test")
LOG.warning("UFM answered %s", nasty)
LOG.warning(nasty)
LOG.warning("an object: %s", ValueError(nasty))
logging.getLogger("waitress").warning("serving %s" % nasty)
try:
    try:
        raise ValueError(nasty)
    except ValueError as first:
        LOG.warning("while an error is handled")
        raise RuntimeError(nasty) from first
except RuntimeError as error:
    error.add_note(nasty)
    LOG.exception("an error")
LOG.warning("wrong %d", nasty)
"""

APPENDED = """
[loggers]
keys = root
[handlers]
keys = out
[formatters]
keys =
[handler_out]
class = StreamHandler
args = (sys.stderr,)
[logger_root]
handlers = out
level = INFO
"""

FORMATS = {
    "plain": "",
    "json": "use_json = true\n",
    "color": "log_color = true\n",
    "file": "log_file = {home}/log\nuse_stderr = false\n",
    "appended": "log_config_append = {home}/log.conf\n",
}


@pytest.fixture
def said(tmp_path):
    """The lines of a process that logs such texts, in one of the formats."""

    def lines(form, setup="configured"):
        (tmp_path / "log.conf").write_text(APPENDED)
        text = "[DEFAULT]\n" + FORMATS[form].format(home=tmp_path)
        (tmp_path / "laas.conf").write_text(text)
        script = SPEAKING.format(nasty=NASTY)
        ended = subprocess.run(
            [sys.executable, "-c", script, setup, "--config-file", str(tmp_path / "laas.conf")],
            capture_output=True,
            timeout=300,
            check=True,
        )
        log = tmp_path / "log"
        return (ended.stderr if form != "file" else log.read_bytes()).decode().split("\n")[:-1]

    return lines


@pytest.mark.parametrize("form", FORMATS)
def test_each_line_is_printable_and_none_is_forged(said, form):
    lines = said(form)
    if form == "color":  # the colours are the log's own
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert len(lines) > 6
    assert [line for line in lines if not line.isprintable()] == []
    assert not any(line.startswith("2030") for line in lines)
    whole = "\n".join(lines)
    if form == "json":
        assert [json.loads(line)["message"] for line in lines][1] == ESCAPED
    else:
        assert whole.count(ESCAPED) >= 6
        assert "Traceback" in whole
        assert "ValueError: " + ESCAPED in whole


def test_long_running_processes_do_the_same(said):
    assert all(line.isprintable() for line in said("plain", "daemon_configured"))
