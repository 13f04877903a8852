# SPDX-License-Identifier: Apache-2.0

"""Examines the plug-in where slurmctld runs: its file, Slurm's settings, and the service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oslo_config import cfg

from laas_doctor import Finding, failure, warning
from laas_service.client.rest import Refused
from slurm_plugin import conf as options
from slurm_plugin.slurm import SlurmFailed, run

WHAT = "Slurm"


def examine(etc: Path) -> Iterator[Finding] | None:
    """None where the plug-in has no configuration. ``etc`` stands for ``/etc``."""
    file = etc / "laas" / options.DEFAULT_FILE.name
    return _findings(file) if file.exists() else None


def _findings(file: Path) -> Iterator[Finding]:
    try:
        conf = options.read(str(file))
        partition = conf.partition
    except (cfg.Error, OSError, UnicodeDecodeError) as error:
        why = str(error).splitlines()[0]
        yield failure("laas-slurm", why, f"mend {file}; admin/slurm lists its options")
        return
    yield from _of_slurm(partition, conf.cluster)
    yield from _of_service(conf, file)


def _of_slurm(partition: str, cluster: str) -> Iterator[Finding]:
    try:
        settings = dict(
            re.findall(r"^(\w+)\s*= (.*)$", run("scontrol", "show", "config"), re.MULTILINE)
        )
        run("scontrol", "show", "partition", partition)
    except SlurmFailed as error:
        why = f"scontrol has no answer: {str(error).splitlines()[0]}"
        fix = f"start slurmctld, and see that slurm.conf has the partition {partition}"
        yield failure(WHAT, why, fix)
        return
    named = settings.get("ClusterName", cluster).strip()
    if named != cluster:
        why = f"ClusterName is {named}, but cluster in laas-slurm.conf is {cluster}"
        yield failure(WHAT, why, "make them equal: allocations are named after it")
    if "lua" not in settings.get("JobSubmitPlugins", "").split(","):
        why = "JobSubmitPlugins has no lua: jobs start without waiting for their links"
        yield failure(WHAT, why, "set JobSubmitPlugins=lua, and install job_submit.lua")
    if "prolog" not in settings.get("PrologSlurmctld", "(null)").lower():
        why = "PrologSlurmctld does not name our prolog: nothing keeps a job from other hosts"
        yield failure(WHAT, why, "set PrologSlurmctld to prolog.sh, or call it in the site's own")


def _of_service(conf: Any, file: Path) -> Iterator[Finding]:
    what = "Service"
    try:
        hosts = options.service(conf).hosts()
    except Refused as refusal:
        yield failure(what, str(refusal), f"mend [laas] of {file}, or start laas-api")
        return
    except Exception as error:  # libraries of the login raise what they like
        why = f"no login: {type(error).__name__}: {(str(error) or '-').splitlines()[0]}"
        yield failure(what, why, f"mend [laas] of {file}")
        return
    try:
        shown = run("scontrol", "--oneliner", "show", "node")
    except SlurmFailed:
        return  # told before
    nodes = set(re.findall(r"^NodeName=(\S+)", shown, re.MULTILINE))
    if hosts and nodes and not hosts & nodes:
        why = f"no node of Slurm is a host of the fabric: {min(nodes)} there, {min(hosts)} here"
        yield failure("Names of hosts", why, "name Slurm's nodes as the fabric's hosts are named")
    elif nodes - hosts:
        strange = nodes - hosts
        why = f"{len(strange)} nodes of Slurm are no hosts of the fabric, as {min(strange)}"
        yield warning("Names of hosts", why, "leave them out of the partition, or name them alike")
