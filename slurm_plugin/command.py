# SPDX-License-Identifier: Apache-2.0

"""laas-slurm: gives each job of a Slurm partition hosts and links of its own.

Exit status 0: done. 1: Slurm or the service refused, could not be reached, or a job may not start.
2: the command line or the configuration file was wrong.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from oslo_config import cfg

from laas_service.client.rest import Refused
from laas_service.version import ShowVersion
from slurm_plugin import conf as options
from slurm_plugin import slurm
from slurm_plugin.decide import (
    Free,
    Gate,
    Instruction,
    Offer,
    Open,
    Rank,
    Release,
    Stop,
    Tell,
    Unhold,
    decide,
)
from slurm_plugin.departures import Departures
from slurm_plugin.service import Service
from slurm_plugin.slurm import SlurmFailed
from slurm_plugin.world import Mark, Settings, World

LOG = logging.getLogger("laas-slurm")

FRESH = 60.0
"""Seconds for which the names of the fabric's hosts are not read again."""


class Daemon:
    """Rounds on one partition. It remembers nothing that a decision needs."""

    def __init__(self, conf: Any, closing: bool = False) -> None:
        self._partition = conf.partition
        self._interval = conf.poll_interval
        self._settings = options.settings(conf, closing)
        self._service = options.service(conf)
        self._hosts: frozenset[str] = frozenset()
        self._read_at = -FRESH
        self.stop = threading.Event()
        self._departures = Departures(self.stop)

    def world(self) -> World:
        """Read the service first: an allocation's job is then older. Raises: as ``round``."""
        if time.monotonic() - self._read_at >= FRESH:
            self._hosts, self._read_at = self._service.hosts(), time.monotonic()
        allocations = self._service.allocations()
        jobs, foreign = slurm.read_jobs(self._partition)
        nodes = slurm.read_nodes(self._partition)
        return World(jobs, nodes, self._hosts, allocations, foreign, int(time.time()))

    def round(self) -> World:
        """Read, decide, and act; returns what was read.

        Raises:
            SlurmFailed, Refused: Slurm or the service could not be read; nothing was done.
        """
        slurm.keep_gate()
        world = self.world()
        instructions = decide(world, self._settings)
        doubtful = {e.allocation.id for e in instructions if isinstance(e, Release)}
        self._departures.forget_others(doubtful)
        for instruction in instructions:
            if self.stop.is_set():
                break
            try:
                if isinstance(instruction, Release) and not self._may(instruction, world):
                    continue
                perform(instruction, self._service, world.now)
            except (SlurmFailed, Refused) as error:
                LOG.warning("%s: %s", type(instruction).__name__, error)
        return world

    def _may(self, release: Release, world: World) -> bool:
        """Whether the job of an allocation is known to run nowhere."""
        allocation = release.allocation
        if release.certain or allocation.state == "queued":
            return True
        up = {node.name for node in world.nodes if not node.down}
        return self._departures.has_left(allocation, set(allocation.hosts) - up)

    def serve(self) -> None:
        """Rounds until ``stop``, or until nothing is left if the partition is switched off."""
        said = ""
        while not self.stop.is_set():
            try:
                world = self.round()
                if self._settings.closing and not world.allocations:
                    return
                said = ""
            except (SlurmFailed, Refused) as error:
                if str(error) != said:
                    LOG.error("%s; nothing is done until that ends, and no job starts", error)
                said = str(error)
            except Exception:
                LOG.exception("a round failed; it is tried again")
            self.stop.wait(self._interval)


def perform(instruction: Instruction, service: Service, now: int) -> None:
    """Carry out one instruction. Raises: SlurmFailed, Refused."""
    LOG.debug("%s", instruction)
    match instruction:
        case Offer(job, avoid):
            try:
                service.offer(job, avoid)
            except Refused as refusal:
                if refusal.status is not None and refusal.status < 500:
                    slurm.commented(job.address, Mark("refused", at=now, words=str(refusal)))
                raise
        case Rank(allocation, priority):
            service.prioritize(allocation.id, priority)
        case Release(allocation, why):
            LOG.info("allocation %s of job %d: %s", allocation.id, allocation.job, why)
            service.release(allocation.id)
        case Open(job, hosts, mark):
            LOG.info("job %d may start on allocation %s", job.id, mark.allocation)
            slurm.opened(job, hosts, mark)
        case Gate(job, mark):
            LOG.info("job %d waits again: %s", job.id, mark.words)
            slurm.gated(job, mark)
        case Unhold(job):
            LOG.warning("job %d: %s; its hold is ended, see slurmctld's log", job.id, job.reason)
            slurm.released(job)
        case Free(job):
            slurm.freed(job)
        case Tell(job, mark, task):
            slurm.commented(job.address if task is None else f"{job.id}_{task}", mark)
        case Stop(job, mark):
            LOG.error("job %d: %s", job.id, mark.words)
            slurm.stopped(job, mark)


def refusal(service: Service, settings: Settings, job: int, nodes: str) -> str:
    """Why a job may not start on these nodes; "" if it owns them. Raises: SlurmFailed, Refused."""
    wanted = tuple(sorted(slurm.expanded(nodes)))
    own = [each for each in service.allocations() if each.job == job]
    if any(settings.ready(each) and each.hosts == wanted for each in own):
        return ""
    shown = ", ".join(f"{each.id} ({each.state}, {each.confirmed_by})" for each in own) or "none"
    return (
        f"job {job} has no confirmed allocation of {nodes}; its allocations: {shown}; "
        "laas-slurm offers it again: see laas-slurm status if it waits for long"
    )


def prolog(conf: Any) -> int:
    """PrologSlurmctld: 0 only if the job starts on the hosts of its own allocation."""
    environ = os.environ
    if conf.partition not in environ.get("SLURM_JOB_PARTITION", conf.partition).split(","):
        return 0
    job, nodes = int(environ["SLURM_JOB_ID"]), environ["SLURM_JOB_NODELIST"]
    why = refusal(options.service(conf), options.settings(conf), job, nodes)
    if why:
        LOG.error("%s", why)
    return 1 if why else 0


def status(conf: Any, as_json: bool) -> int:
    """Print what the daemon sees and would do, and change nothing."""
    daemon = Daemon(conf)
    world = daemon.world()
    states = Counter(
        "gated" if job.gated and not job.over else job.state.lower() for job in world.jobs
    )
    due = Counter(type(each).__name__.lower() for each in decide(world, options.settings(conf)))
    shown = {
        "partition": conf.partition,
        "jobs": dict(states),
        "allocations": dict(Counter(each.state for each in world.allocations)),
        "nodes": len(world.nodes),
        "unusable": sorted(node.name for node in world.nodes if not node.usable),
        "unknown": sorted({node.name for node in world.nodes} - world.hosts),
        "due": dict(due),
    }
    if as_json:
        print(json.dumps(shown, indent=2))
    else:
        for name, value in shown.items():
            text = (
                ", ".join(f"{k} {v}" for k, v in value.items())
                if isinstance(value, dict)
                else (", ".join(value) if isinstance(value, list) else value)
            )
            print(f"{name:12} {text or '-'}")
    return 0


def serve(conf: Any, closing: bool) -> int:
    daemon = Daemon(conf, closing)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: daemon.stop.set())
    daemon.serve()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "laas-slurm", description=(__doc__ or "").partition("\n")[0].partition(": ")[2]
    )
    parser.add_argument(
        "command",
        nargs="?",
        default="serve",
        choices=["serve", "status", "off", "prolog"],
        help="serve (default): the daemon. off: let all jobs go, end when nothing is left",
    )
    parser.add_argument("--config-file", default=str(options.DEFAULT_FILE))
    parser.add_argument("--json", action="store_true", help="for status")
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--version", action=ShowVersion)
    args = parser.parse_args(argv)
    logging.basicConfig(
        level=logging.DEBUG if args.debug else logging.INFO, format="%(name)s: %(message)s"
    )
    for loud in ("keystoneauth", "urllib3"):
        logging.getLogger(loud).setLevel(logging.WARNING)
    try:
        conf = options.read(args.config_file)
        conf.partition  # noqa: B018  # raises if it is not given
    except cfg.Error as error:
        parser.error(str(error))
    try:
        match args.command:
            case "prolog":
                return prolog(conf)
            case "status":
                return status(conf, args.json)
            case command:
                return serve(conf, command == "off")
    except (SlurmFailed, Refused) as error:
        LOG.error("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
