# SPDX-License-Identifier: Apache-2.0

"""What to do with jobs and allocations: a pure function of what was read.

Each instruction may be lost or repeated: the next round reads the world and decides again. An
allocation is given back only when its job was read with the gate, or ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from slurm_plugin.world import PASSING, Allocation, Job, Mark, Settings, World

LATER = frozenset(
    [
        "BeginTime",
        "Dependency",
        "DependencyNeverSatisfied",
        "JobArrayTaskLimit",
        "JobHeldAdmin",
        "JobHeldUser",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "InvalidAccount",
        "InvalidQOS",
        "Reservation",
    ]
)
"""Reasons of Slurm for which a job would not start even with hosts of its own."""


LAUNCH_FAILED = ("launch failed requeued held", "launch_failed_requeued_held")
"""Reasons of a job that Slurm requeued and holds since a node refused to launch it: a controller
that was killed may launch a job twice."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Ask the service for hosts and links of a job, in a queue by priority."""

    job: Job
    avoid: frozenset[str]


@dataclass(frozen=True, slots=True)
class Rank:
    """Give a queued allocation the priority that its job has now."""

    allocation: Allocation
    priority: int


@dataclass(frozen=True, slots=True)
class Release:
    """Give an allocation back; unless ``certain``, only once the job has left its nodes."""

    allocation: Allocation
    why: str
    certain: bool = False


@dataclass(frozen=True, slots=True)
class Open:
    """Lift the gate of a job, for the hosts of its allocation alone."""

    job: Job
    hosts: tuple[str, ...]
    mark: Mark


@dataclass(frozen=True, slots=True)
class Gate:
    """Put the gate before a pending job, and free it from the hosts it was to start on."""

    job: Job
    mark: Mark


@dataclass(frozen=True, slots=True)
class Unhold:
    """End the hold that Slurm puts on a job whose launch failed, as after a crash of slurmctld."""

    job: Job


@dataclass(frozen=True, slots=True)
class Free:
    """Lift the gate of a job and let Slurm choose its hosts: the partition is switched off."""

    job: Job


@dataclass(frozen=True, slots=True)
class Tell:
    """Write in a job's comment why it waits; splits the task off its array."""

    job: Job
    mark: Mark
    task: int | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run of a job that does not own its hosts; a batch job is requeued."""

    job: Job
    mark: Mark


Instruction = Offer | Rank | Release | Open | Gate | Unhold | Free | Tell | Stop


def decide(world: World, settings: Settings) -> list[Instruction]:
    """The instructions of a round, in the order in which to carry them out."""
    by_job: dict[int, list[Allocation]] = defaultdict(list)
    for allocation in world.allocations:
        if allocation.state not in ("releasing", "released"):
            by_job[allocation.job].append(allocation)
    done: list[Instruction] = []
    waiting: list[tuple[Job, Allocation | None]] = []
    for job in world.jobs:
        given = by_job.pop(job.id, [])
        if job.over:
            done += [Release(each, f"job {job.id} has ended", _left(job, each)) for each in given]
            continue
        own = _kept(job, given, settings)
        done += [Release(each, f"job {job.id} has another") for each in given if each is not own]
        if job.state != "PENDING":
            done += _running(job, own, world)
        elif job.mark is not None and job.priority == 0 and job.reason in LAUNCH_FAILED:
            done.append(Unhold(job))
        elif settings.closing:
            done += _closing(job, own)
        elif not job.gated:
            done += _opened(job, own, world, settings)
        elif own is not None and own.state != "queued":
            done += _admitted(job, own, world, settings)
        else:
            waiting.append((job, own))
    for given in by_job.values():
        done += [Release(each, f"Slurm knows no job {each.job}") for each in given]
    return done + list(_queue(waiting, world, settings))


def avoided(job: Job, world: World) -> frozenset[str]:
    """Hosts of the fabric that the job may not get."""
    owned = {node for other in world.jobs if other.mark for node in other.allocated}
    busy = {node for other in world.jobs if not other.mark for node in other.allocated}
    busy = (busy | world.foreign) - owned
    good = {
        node.name
        for node in world.nodes
        if node.usable
        and node.name not in busy
        and node.name not in job.excluded
        and has_features(node.features, job.features)
    }
    return world.hosts - good


def has_features(features: frozenset[str], wanted: str) -> bool:
    """Whether a node with these features meets ``a&b`` or ``a|b``, a constraint of Slurm."""
    if not wanted:
        return True
    return any(features.issuperset(all_of.split("&")) for all_of in wanted.split("|"))


def _kept(job: Job, given: list[Allocation], settings: Settings) -> Allocation | None:
    """The allocation of a job: the one that it runs on or may start on, or else the first."""
    current = job.allocated or (() if job.gated else job.required)
    ranked = sorted(
        given,
        key=lambda each: (
            each.hosts != tuple(sorted(current)),
            not settings.ready(each),
            each.state == "error",
        ),
    )
    return ranked[0] if ranked else None


def _left(job: Job, own: Allocation) -> bool:
    """Whether Slurm itself knows that a job that is over ran on these hosts and has left them.

    It may have forgotten a start: of a job that was cancelled while it seemed to wait, say.
    """
    return own.hosts == tuple(sorted(job.left)) and own.created <= job.ended


def _running(job: Job, own: Allocation | None, world: World) -> Iterator[Instruction]:
    if job.mark is None or not job.allocated or job.state in PASSING:
        return
    if own is None or not set(job.allocated) <= set(own.hosts):
        why = "it ran on hosts that are not its own"
        yield Stop(job, Mark("ended", own.id if own else "-", world.now, why))


def _closing(job: Job, own: Allocation | None) -> Iterator[Instruction]:
    if job.gated or (job.mark and job.required):
        yield Free(job)
    if own is not None:
        yield Release(own, f"job {job.id} needs no links any more")


def _opened(
    job: Job, own: Allocation | None, world: World, settings: Settings
) -> Iterator[Instruction]:
    """The job may start: only on its own hosts, and not for ever."""
    why = ""
    opened = job.mark.at if job.mark and job.mark.verb == "open" else 0
    if own is None:
        why = "it has no allocation"
    elif not settings.ready(own):
        why = f"its allocation is {own.state}, routes confirmed by {own.confirmed_by}"
    elif own.hosts != tuple(sorted(job.required)):
        why = "it was to start on other hosts than its own"
    elif job.priority == 0:
        why = "it is held"
    elif lost := _unusable(own, world):
        why = f"Slurm starts no job on {lost}"
    elif world.now - opened > settings.start_timeout:
        why = f"Slurm did not start it: {job.reason}"
    if why:
        yield Gate(job, Mark("returned", own.id if own else "-", world.now, why))


def _admitted(job: Job, own: Allocation, world: World, settings: Settings) -> Iterator[Instruction]:
    returned = (
        job.mark is not None and job.mark.verb == "returned" and job.mark.allocation == own.id
    )
    if own.state == "error":
        yield Tell(job, Mark("refused", own.id, world.now, own.words))
        yield Release(own, own.words)
    elif returned or not _eligible(job) or own.requested != job.nodes:
        yield Release(own, f"job {job.id} cannot start on it")
    elif lost := _unusable(own, world):
        yield Release(own, f"Slurm starts no job on {lost}")
    elif settings.ready(own):
        yield Open(job, own.hosts, Mark("open", own.id, world.now, own.words))


def _unusable(own: Allocation, world: World) -> str:
    """The first host of an allocation that Slurm would not use; "" if there is none."""
    usable = {node.name for node in world.nodes if node.usable}
    return next((host for host in own.hosts if host not in usable), "")


def _eligible(job: Job) -> bool:
    limits = job.reason.startswith(("QOS", "Assoc", "Max"))
    return job.priority > 0 and job.reason not in LATER and not limits


def _queue(
    waiting: list[tuple[Job, Allocation | None]], world: World, settings: Settings
) -> Iterator[Instruction]:
    """Make the service's queue the first jobs in Slurm's order, by their priorities there.

    All waiting jobs age alike, so the priorities are told again only if the order would be wrong.
    """
    room = settings.window
    queue: list[tuple[Job, Allocation | None]] = []
    for job, own in sorted(waiting, key=lambda each: (-each[0].priority, each[0].id)):
        if room <= 0 or not _eligible(job) or _resting(job, world, settings):
            if own is not None:
                yield Release(own, f"job {job.id} is not one of the first")
            continue
        if job.tasks:
            for task in job.tasks[:room]:
                yield Tell(job, Mark("new", at=world.now, words="a task of an array"), task)
            room -= len(job.tasks[:room])
            continue
        room -= 1
        if own is not None and not _same(job, own, avoided(job, world)):
            yield Release(own, f"job {job.id} is offered again, as it asks for something else")
        else:
            queue.append((job, own))
    made = {id(each): place for place, each in enumerate(world.allocations)}
    turns = [
        (-job.priority, len(made)) if own is None else (-own.priority, made[id(own)])
        for job, own in queue
    ]
    if any(later < earlier for earlier, later in pairwise(turns)):
        for job, own in queue:
            if own is not None and own.priority != job.priority:
                yield Rank(own, job.priority)
    for job, own in queue:
        if own is None:
            yield Offer(job, avoided(job, world))
        elif job.mark is None or (job.mark.verb, job.mark.words) != ("waits", own.words):
            yield Tell(job, Mark("waits", own.id, world.now, own.words))


def _resting(job: Job, world: World, settings: Settings) -> bool:
    mark = job.mark
    tried = mark is not None and mark.verb in ("returned", "refused", "ended")
    return mark is not None and tried and world.now - mark.at < settings.retry


def _same(job: Job, own: Allocation, avoid: frozenset[str]) -> bool:
    return (own.requested, own.duration, own.avoided) == (job.nodes, job.seconds, avoid)
