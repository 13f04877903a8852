# SPDX-License-Identifier: Apache-2.0

"""What the daemon read in one round: jobs and nodes of Slurm, allocations of the service."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

GATE = "laas_gate"
"""The licence of Slurm that keeps a job pending; a reservation holds all there are of it."""

OVER = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    ]
)
"""States of jobs that have ended; such a job runs nowhere."""

PASSING = ("COMPLETING", "CONFIGURING")
"""States between two others; while a job is configured, the prolog decides."""

_NAME = re.compile(r"job-([1-9][0-9]{0,9})")
_MARK = re.compile(
    r"laas (new|waits|open|returned|refused|ended) (\S+) ([0-9]{1,12}): (.*)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Mark:
    """The admin comment of a job: what the plug-in last did with it, for users and the daemon.

    ``new``: submitted. ``waits``: offered. ``open``: may start on the hosts of ``allocation``.
    ``returned``: did not start, and ``allocation`` is given back. ``refused``: by the service.
    ``ended``: it ran off its allocation.
    """

    verb: str
    allocation: str = "-"
    at: int = 0
    """Seconds since the epoch."""
    words: str = ""

    def __str__(self) -> str:
        return f"laas {self.verb} {self.allocation} {self.at}: {self.words}"

    @classmethod
    def of(cls, comment: str) -> Self | None:
        """None: the plug-in did not write the comment."""
        found = _MARK.fullmatch(comment)
        return cls(found[1], found[2], int(found[3]), found[4]) if found else None


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the partition; a task of an array is one once it has an id of its own."""

    id: int
    state: str
    reason: str = "None"
    priority: int = 1
    """0: held, by the user or the administrator."""
    nodes: int = 1
    seconds: int | None = None
    """Its time limit; None: none."""
    licenses: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    features: str = ""
    allocated: tuple[str, ...] = ()
    """Nodes that it runs on."""
    left: tuple[str, ...] = ()
    """Of a job that is over: nodes that it ran on, all of which told Slurm that it has left."""
    ended: int = 0
    """Of a job that is over: when, in seconds since the epoch."""
    mark: Mark | None = None
    tasks: tuple[int, ...] = ()
    """First tasks of an array that Slurm keeps in one record; the others follow."""
    batch: bool = True
    task: int | None = None
    """Of the array's job that has the id of the array: its number in the array."""

    @property
    def address(self) -> str:
        """As commands of Slurm take it; the id alone would mean all tasks of the array."""
        return str(self.id) if self.task is None else f"{self.id}_{self.task}"

    @property
    def gated(self) -> bool:
        return any(word.partition(":")[0] == GATE for word in self.licenses)

    @property
    def own_licenses(self) -> tuple[str, ...]:
        return tuple(word for word in self.licenses if word.partition(":")[0] != GATE)

    @property
    def over(self) -> bool:
        return self.state in OVER


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the partition."""

    name: str
    usable: bool = True
    """Whether Slurm would start a job there once it is idle."""
    features: frozenset[str] = frozenset()
    down: bool = False
    """Slurm has given up the node and all jobs there."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """An allocation of a job, by its name ``job-ID``."""

    id: str
    job: int
    state: str
    hosts: tuple[str, ...] = ()
    """By name, sorted."""
    requested: int = 0
    duration: float | None = None
    avoided: frozenset[str] = frozenset()
    confirmed_by: str | None = None
    changing: bool = False
    words: str = ""
    """What it waits for, what has failed, or its shape."""
    priority: int = 0
    """In the service's queue."""
    created: float = 0.0
    """Seconds since the epoch."""

    @classmethod
    def of(cls, shown: Any) -> Self | None:
        """From REST, which leaves out what has no value; None: the name is not one of a job."""
        found = _NAME.fullmatch(shown["name"])
        if found is None:
            return None
        waits_for = shown.get("waits_for")
        free = "yes" if shown.get("contention_free") else "no"
        placed = f"{shown['policy']}, {len(shown.get('hosts', ()))} hosts, contention_free: {free}"
        words = shown.get("error") or (waits_for["detail"] if waits_for else placed)
        return cls(
            id=shown["id"],
            job=int(found[1]),
            state=shown["state"],
            hosts=tuple(sorted(host["name"] for host in shown.get("hosts", ()))),
            requested=shown["requested"],
            duration=shown.get("duration"),
            avoided=frozenset((shown.get("constraints") or {}).get("avoid_hosts") or ()),
            confirmed_by=shown.get("confirmed_by"),
            changing=shown.get("changing") is not None,
            words=words,
            priority=shown.get("priority") or 0,
            created=datetime.fromisoformat(shown["created_at"]).timestamp(),
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """How the daemon decides; times are in seconds."""

    confirmed_by: frozenset[str] = frozenset({"switches", "agent"})
    """Confirmations of routes that let a job start."""
    start_timeout: float = 60.0
    retry: float = 60.0
    window: int = 50
    """Jobs that wait in the service's queue at one time."""
    closing: bool = False
    """The partition is switched off: no job waits for links any more."""

    def ready(self, allocation: Allocation) -> bool:
        """Whether the routes of an allocation are confirmed and stay as they are."""
        return (
            allocation.state == "active"
            and not allocation.changing
            and allocation.confirmed_by in self.confirmed_by
        )


@dataclass(frozen=True, slots=True)
class World:
    """One round. The allocations were read before the jobs."""

    jobs: Sequence[Job]
    nodes: Sequence[Node]
    hosts: frozenset[str]
    """All hosts of the fabric, by name."""
    allocations: Sequence[Allocation]
    """In order of creation."""
    foreign: frozenset[str] = frozenset()
    """Nodes on which jobs of other partitions run."""
    now: int = 0
