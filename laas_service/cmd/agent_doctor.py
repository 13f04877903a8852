# SPDX-License-Identifier: Apache-2.0

"""Examines a machine with an OpenSM and laas-opensm-agent, for ``laas-doctor``."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from oslo_config import cfg
from oslo_config.iniparser import ParseError

from laas_doctor import Finding, failure, unwatched, warning
from laas_service.adapters import service_rest
from laas_service.cmd.process import parsed
from laas_service.conf import review
from laas_service.conf.gone import sections
from laas_service.conf.opensm import OpenSmOptions, found_tools, opensm
from laas_service.domain.errors import LaasError
from laas_service.version import VERSION

CLOCKS = 2.0
"""Seconds that the clocks of this machine and of the service may differ."""


def examine(etc: Path) -> Iterator[Finding] | None:
    """None where no agent is configured. ``etc`` stands for ``/etc``."""
    for name in ("opensm-agent.conf", "laas.conf"):
        file = etc / "laas" / name
        if file.exists() and (name == "opensm-agent.conf" or _names_a_service(file)):
            return _findings(file)
    return None


def _names_a_service(file: Path) -> bool:
    try:
        return "laas" in sections(file)
    except (OSError, UnicodeDecodeError, ParseError):
        return False  # the service's examination tells why


def _findings(file: Path) -> Iterator[Finding]:
    try:
        conf = parsed("laas-doctor", [], default_config_files=[str(file)], default_config_dirs=[])
    except (cfg.Error, OSError) as error:
        yield failure("Options", str(error), f"mend {file}")
        return
    logging.disable()  # the answer is the findings alone
    try:
        for text in review.wrong_values(conf):
            yield failure("Options", text, f"correct it in {file}")
        for text in review.remarks(conf):
            yield warning("Options", text, f"correct it in {file}")
        for look in (_opensm, _files, _service):
            try:
                yield from look(conf)
            except (LaasError, cfg.Error, ValueError) as error:
                yield failure("Options", str(error), f"correct it in {file}")
    finally:
        logging.disable(logging.NOTSET)


def _opensm(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """OpenSM, and the tools that read the switches."""
    options = OpenSmOptions.of(conf)
    if options.reached_by == "ufm":
        return  # UFM looks after its OpenSM
    tools = found_tools(conf)
    beside = opensm(conf, tools)
    if beside is None or not (beside.dump_command or beside.dump_file):
        why = f"nothing reads the switches back: {tools.problem or 'no tool is to be used'}"
        yield failure("Tools", why, "mend that, or set [opensm] dump_command or dump_file")
    reads = {
        "cables, so a cut one is not seen": tools.links,
        "counters, so errors of cables are not seen": tools.counters,
        "partition keys, so a foreign one is not seen": tools.keys,
    }
    for what, command in reads.items():
        if not command:
            fix = f"install infiniband-diags; {tools.problem or 'see [opensm] tools'}"
            yield unwatched("Tools", f"nothing reads the {what}", fix)
    if beside is None or options.reload_command:
        return
    try:
        process = beside.process()
    except LaasError as error:
        yield failure("OpenSM", str(error), "start OpenSM")
        return
    if process is None:
        where = options.directory.absolute()
        why = f"no OpenSM runs here that reads files in {where}"
        fix = "start it with the opensm.conf that install/opensm-agent shows"
        yield failure("OpenSM", why, fix)
    elif beside.log is None:
        why = "its log cannot be read, so its errors and sweeps are not seen"
        yield unwatched("OpenSM", why, "let the agent's user read it, or set [opensm] log_file")


def _files(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """The directory of the sets."""
    directory = OpenSmOptions.of(conf).directory.absolute()
    if not directory.is_dir():
        why = f"{directory} does not exist: OpenSM has no files of the service"
        yield failure("File sets", why, f"create it for the agent's user: mkdir -p {directory}")
    elif not any((path / "current").exists() for path in directory.iterdir()):
        why = f"no set of files is in {directory} yet"
        yield failure("File sets", why, "start laas-opensm-agent, and read its log")


def _service(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Whether the service answers, knows this agent's fabric, and has the same time and release."""
    options = OpenSmOptions.of(conf)
    try:
        adapter = service_rest.connect(conf)
        asked = time.time()
        answer: Any = adapter.get("/", raise_exc=False, authenticated=False)
        rest = service_rest.ServiceRest(adapter, options.agent_name, options.agent_fabric)
        rest.described()
    except LaasError as error:
        yield failure("Service", str(error), "start laas-api, or mend [laas]")
        return
    except Exception as error:  # libraries of the login raise what they like
        why = f"{type(error).__name__}: {(str(error) or '-').splitlines()[0]}"
        yield failure("Service", why, "start laas-api, or mend [laas]")
        return
    if date := answer.headers.get("Date"):
        ahead = asked - parsedate_to_datetime(date).timestamp()
        if abs(ahead) > CLOCKS + 1:  # the header has whole seconds
            side = "ahead of" if ahead > 0 else "behind"
            why = f"this machine is {abs(ahead):.0f} s {side} the service's"
            yield warning("Clock", why, "run a time service, such as chrony, on both")
    release = answer.json().get("release") if answer.status_code < 400 else None
    if release not in (None, VERSION):
        why = f"the service is release {release}, this agent {VERSION}"
        yield warning("Release", why, "upgrade the older one; one release apart works")
