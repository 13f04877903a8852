# SPDX-License-Identifier: Apache-2.0

"""Examines the service on a controller, for ``laas-doctor``: the checks of ``laas-status`` and who
answers, who reports, and what nobody watches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from oslo_config import cfg
from oslo_config.iniparser import ParseError
from oslo_upgradecheck.upgradecheck import Code

from laas_doctor import Finding, Severity, failure, unwatched, warning
from laas_service.cmd import status
from laas_service.cmd.process import parsed
from laas_service.conf.gone import sections
from laas_service.domain.errors import LaasError

CLOCKS = 2.0
"""Seconds that clocks may differ. Keystone's tokens and the ages of readings bear more, but a
machine that differs by this much has no time service."""

SEVERITIES = {Code.FAILURE: Severity.FAILURE, Code.WARNING: Severity.WARNING}


def examine(etc: Path) -> Iterator[Finding] | None:
    """None without a laas.conf, or if that is an agent's. ``etc`` stands for ``/etc``."""
    file, directory = etc / "laas" / "laas.conf", etc / "laas" / "laas.conf.d"
    if not file.exists() or of_agent_alone(file):
        return None
    return _findings(file, directory)


def of_agent_alone(file: Path) -> bool:
    """Whether a configuration says where the service is, and nothing of a service."""
    try:
        found = sections(file).keys()
    except (OSError, UnicodeDecodeError, ParseError):
        return False  # the examination tells why
    return "laas" in found and not found & {"database", "api", "worker", "compute"}


def _findings(file: Path, directory: Path) -> Iterator[Finding]:
    directories = [str(directory)] if directory.is_dir() else []
    try:
        conf = parsed(
            "laas-doctor", [], default_config_files=[str(file)], default_config_dirs=directories
        )
    except (cfg.Error, OSError) as error:
        yield failure("Options", str(error), f"mend {file}")
        return
    logging.disable()  # the answer is the findings alone
    try:
        checks = status.UpgradeChecks.of(conf)
        for check in status.CHECKS:
            for finding in status.found(checks, check):
                if severity := SEVERITIES.get(finding.code):
                    if check.name == "Confirmation":
                        severity = Severity.UNWATCHED
                    fix = finding.fix or check.fix
                    yield Finding(severity, check.name, finding.why, fix)
        if checks.current():
            yield from _clock(checks)
            yield from _agents(checks)
    except LaasError as error:
        yield failure("Service", str(error), f"mend {file}")
    finally:
        logging.disable(logging.NOTSET)


def _clock(checks: status.UpgradeChecks) -> Iterator[Finding]:
    """Whether this machine and the database agree on the time."""
    ahead = (datetime.now(UTC) - checks.parts.database.clock()).total_seconds()
    if abs(ahead) > CLOCKS:
        side = "ahead of" if ahead > 0 else "behind"
        why = f"this machine is {abs(ahead):.0f} s {side} the database's"
        yield warning("Clock", why, "run a time service, such as chrony, on both")


def _agents(checks: status.UpgradeChecks) -> Iterator[Finding]:
    """Managers without an agent that reports, and sets that they do not have."""
    registry = checks.parts.subnet_managers.registry(lambda: None)
    if registry is None:
        return
    for fabric in checks.parts.store.fabrics.all():
        agents = registry.agents(fabric.id)
        if not agents:
            why = f"no agent has ever reported for fabric {fabric.id}: no tenant becomes active"
            yield failure("Agents", why, "install laas-opensm-agent beside its OpenSM")
        behind = registry.behind(fabric.id)
        for agent in agents:
            if agent.age > registry.seconds:
                silence = f"has been silent for {agent.age:.0f} s"
                text = f"agent {agent.name} of fabric {fabric.id} {silence}"
                if agent.active:
                    fix = "start laas-opensm-agent there, and run laas-doctor on that machine"
                    yield failure("Agents", text, fix)
                else:
                    fix = f"start it, or declare it gone: laas manager forget {agent.name}"
                    yield unwatched("Agents", text, fix)
            elif agent.name in behind:
                why = f"agent {agent.name} of fabric {fabric.id} has not the wanted set of files"
                yield warning("Agents", why, "read its log; it needs GET .../file-set")
