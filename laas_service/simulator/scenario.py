# SPDX-License-Identifier: Apache-2.0

"""Scenario of a simulation, and ``run``, which simulates it and returns its results as JSON."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

from laas_service import garbage
from laas_service.domain.admission.admit import largest_fit
from laas_service.domain.admission.constrained import ConstrainedPolicy, propose
from laas_service.domain.admission.queue import Discipline, Queue, make_queue
from laas_service.domain.allocation import Allocation
from laas_service.domain.constraints import ContentionFree
from laas_service.domain.errors import InvalidInput
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from laas_service.domain.ledger.shared_links import SharedLedger
from laas_service.domain.moves.moving_queue import MovingQueue
from laas_service.domain.moves.nearest import Nearest
from laas_service.domain.policies import PLANNING
from laas_service.domain.policies.base import Policy
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.policies.lc_s import LcS
from laas_service.domain.topology import Port, Topology, Xgft
from laas_service.simulator import workload
from laas_service.simulator.checkpoints import Checkpoint, Results, file_digest
from laas_service.simulator.engine import Simulation, request_of
from laas_service.simulator.metrics import Metrics, TimedPolicy
from laas_service.simulator.moves import MovePlanner, MoveSettings
from laas_service.simulator.workload import (
    Exponential,
    Job,
    Jobs,
    Malformed,
    WholeDomains,
    Workload,
)

MALFORMED_SHOWN = 20
"""Malformed trace lines that a result names; it counts all."""


def full_tree(radix: int) -> Xgft:
    """The full three-level tree of switches with this many ports: radix^3 / 4 hosts.

    Raises:
        InvalidInput: the radix is odd or too small.
    """
    if radix < 2 or radix % 2 or radix > 128:
        raise InvalidInput("radix", radix, "give an even number of ports, 2 to 128")
    half = radix // 2
    return Xgft((half, half, radix), (1, half, half))


def in_planes(tree: Xgft, rails: int) -> Topology:
    """Hosts with ``rails`` ports: on the same leaf of as many pods, each pod a plane.

    Raises:
        InvalidInput: the pods are no multiple of ``rails``.
    """
    if rails < 1 or tree.m[2] % rails:
        raise InvalidInput("rails", rails, f"give a divisor of the {tree.m[2]} pods of the tree")
    ports = tuple(
        tuple(Port(pod + rail, leaf, position) for rail in range(rails))
        for pod in range(0, tree.m[2], rails)
        for leaf in range(tree.m[1])
        for position in range(tree.m[0])
    )
    return Topology(tree, rails, ports)


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace file and how to read it; see ``workload.read_trace``."""

    path: str
    form: str = "swf"
    """"swf" or "csv"."""
    procs_per_node: int | None = None
    """Processors of a host; None takes MaxProcs / MaxNodes of an SWF header, or else 1."""
    clean: bool = False
    """Leave out jobs whose status is cancelled."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """All inputs of a run; equal scenarios give equal results, apart from ``TIMES``."""

    policy: str
    tree: Xgft
    source: Trace | Exponential
    max_hosts: int | None = None
    """Leave out jobs of more hosts; None keeps all that the fabric can hold."""
    runtime: tuple[int, int] | None = None
    """(low, high) seconds: draw all run times uniformly. Required for synthetic jobs."""
    scale_arrivals: float = 1
    """Factor of the arrival times; 0 makes all jobs arrive at once."""
    discipline: Discipline = field(default_factory=Discipline)
    speedup: str = "none"
    """A key of ``workload.SPEEDUPS``; not applied to the baseline."""
    seed: int = 1
    label: str = ""
    """Name of the workload in reports."""
    two_pods: bool = False
    """Jigsaw only: a shape on two pods may have its remainder leaf in the larger one."""
    moves: MoveSettings = field(default_factory=MoveSettings)
    contention_free: ContentionFree | None = None
    """What every job wants of its shape, where its policy owns links."""
    rails: int = 1
    """Ports of each host, each in a plane of its own; the pods of ``tree`` are those of all."""
    domains: WholeDomains | None = None
    """Domains of the hosts, of which some jobs ask for whole ones."""
    measured: tuple[tuple[int, float], ...] = ()
    """Tenants whose times the jobs have; see ``workload.with_interference``. Empty: run times are
    as they are."""

    def policy_object(self) -> Policy:
        """A new object of the policy.

        Raises:
            InvalidInput: there is no such policy, or it has no option ``two_pods``.
        """
        if self.policy not in PLANNING:
            raise InvalidInput("policy", self.policy, f"use one of {', '.join(sorted(PLANNING))}")
        if self.two_pods:
            if self.policy != Jigsaw.name:
                raise InvalidInput("policy", self.policy, "two pods is an option of jigsaw")
            policy: Policy = Jigsaw(two_pods=True)
        else:
            policy = PLANNING[self.policy]()
        wish = self.contention_free
        return policy if wish is None else ConstrainedPolicy(policy, wish)

    def ledger(self) -> Ledger:
        """A ledger of the empty fabric; its links can be shared if the policy shares links."""
        topology = self.topology
        fabric = SharedLedger(topology) if self.policy == LcS.name else Ledger(topology)
        if self.domains is not None:
            hosts = range(topology.hosts - topology.hosts % self.domains.size)
            width = len(str(topology.hosts))
            fabric.describe_hosts(
                {
                    host: HostFeatures(
                        domains=((workload.KIND, f"{host // self.domains.size:0{width}}"),)
                    )
                    for host in hosts
                }
            )
        return fabric

    @property
    def topology(self) -> Topology:
        """The tree with its rails. Raises: InvalidInput."""
        return Topology(self.tree) if self.rails == 1 else in_planes(self.tree, self.rails)

    def load(self) -> Workload:
        """The jobs of the source with all changes of the scenario, sorted by arrival.

        Raises:
            InvalidInput: the trace cannot be read, or a job has no run time.
            InvalidFile: the trace holds no job.
        """
        hosts = self.topology.hosts
        limit = min(hosts, self.max_hosts or hosts)
        if isinstance(self.source, Exponential):
            loaded = self.source.draw(limit, self._rng("sizes"))
        else:
            source = self.source
            loaded = workload.read_trace(
                source.path, source.form, procs_per_node=source.procs_per_node, clean=source.clean
            )
        jobs = loaded.jobs.of_sizes({hosts for hosts in set(loaded.jobs.hosts) if hosts <= limit})
        if larger := len(loaded.jobs) - len(jobs):
            limited = f"--max-hosts {limit}" if limit < hosts else f"the fabric's {hosts}"
            loaded.reasons[f"more hosts than {limited}"] = larger
        if self.runtime is not None:
            jobs = workload.with_random_run(jobs, *self.runtime, self._rng("run"))
        if None in jobs.runs:
            raise InvalidInput("runtime", None, "the jobs have no run time; give LOW:HIGH seconds")
        if self.domains is not None:
            jobs = self.domains.changed(jobs, hosts, self._rng("domains"))
        jobs = workload.with_arrivals(jobs, self.scale_arrivals)
        if self.measured:
            if self.speedup != "none":
                fix = "give none, or leave out what interference was measured"
                raise InvalidInput("speedup", self.speedup, fix)
            jobs = workload.with_interference(jobs, self.measured, self._rng("interference"))
        if self.policy != "baseline":
            jobs = workload.with_speedup(jobs, self.speedup, self._rng("speedup"))
        if self.policy == LcS.name:
            jobs = workload.with_bandwidth(jobs, self._rng("bandwidth"))
        loaded.jobs = jobs
        return loaded

    def identity(self) -> dict[str, Any]:
        """All inputs as JSON data, a trace's content included.

        Raises:
            InvalidInput: the trace cannot be read.
        """
        source, content = self.source, None
        if isinstance(source, Trace):
            content = file_digest(source.path)
            source = replace(source, path=source.path.rpartition("/")[2])
        return {
            "policy": self.policy,
            "seed": self.seed,
            "source": repr(source),
            "trace_sha256": content,
            "scenario": describe(self),
        }

    def _rng(self, purpose: str) -> Random:
        """A random stream for one purpose, so that no option changes the draws of another."""
        return Random(f"{purpose}/{self.seed}")  # noqa: S311 - a simulation, not a secret


Progress = Callable[[int, int], None]
Watcher = Callable[[int, Ledger], None]


def run(
    scenario: Scenario,
    *,
    progress: Progress | None = None,
    watch: Watcher | None = None,
    fabric: Ledger | None = None,
    checkpoint: Checkpoint | None = None,
) -> dict[str, Any]:
    """Simulate a scenario and return its results as JSON data.

    ``fabric`` is an empty ledger on the scenario's tree, for example one with failed links;
    the default is a fabric without faults. ``progress(finished jobs, all jobs)`` is called
    after each simulated time, ``watch(started jobs, ledger)`` after each start.

    The simulation goes on from ``checkpoint`` if that has a file, and saves its state there from
    time to time. The results are those of an uninterrupted run, apart from ``TIMES``; the
    caller removes the file. It does not say what faults ``fabric`` has.

    Raises:
        InvalidInput, InvalidFile: as ``Scenario.policy_object``, ``Scenario.load`` and
            ``Checkpoint``.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    policy = scenario.policy_object()
    loaded = scenario.load()
    fabric = scenario.ledger() if fabric is None else fabric
    jobs, unplaceable = _placeable(policy, fabric, loaded.jobs)
    observer = _Fanout(len(jobs), progress, watch)
    clock = time.thread_time_ns
    outside = {"topology": fabric.topology, "jobs": jobs, "observer": observer, "clock": clock}
    identity = {} if checkpoint is None else scenario.identity()
    state = None if checkpoint is None else checkpoint.load(identity, _State, outside)
    if state is None:
        timed = TimedPolicy(policy, clock)
        metrics = Metrics(fabric.topology.hosts, len(jobs), LargestFit(policy, fabric))
        queue: Queue = make_queue(fabric, timed, scenario.discipline)
        planner = None
        if scenario.moves.most != 0:
            planner = MovePlanner(policy, scenario.moves, scenario.seed, clock)
            cost = scenario.moves.cost
            queue = MovingQueue(fabric, timed, scenario.discipline, planner, cost)
        simulation = Simulation(queue, jobs, observer, scenario.moves.cost)
        state = _State(simulation, fabric, timed, metrics, planner)
    else:
        wall, cpu = wall - state.wall, cpu - state.cpu
    observer.resume(state.simulation, state.metrics, state.fabric)
    with garbage.settled():
        while state.simulation.step():
            if checkpoint is not None and checkpoint.due():
                state.wall = time.perf_counter() - wall
                state.cpu = time.process_time() - cpu
                checkpoint.save(identity, state, outside)
    return {
        "policy": scenario.policy,
        "hosts": fabric.topology.hosts,
        "jobs": len(jobs),
        "seed": scenario.seed,
        **state.metrics.summary(),
        **_moves(state),
        "calls": state.timed.calls,
        "call_us": state.timed.call_us(),
        "budget_hits": state.timed.budget_hits,
        "left_out": loaded.left_out,
        "left_out_reasons": dict(sorted(loaded.reasons.items())),
        "unplaceable": unplaceable,
        "malformed": _malformed(loaded.malformed),
        "scenario": describe(scenario) | _resolved(loaded),
        "wall_s": round(time.perf_counter() - wall, 3),
        "cpu_s": round(time.process_time() - cpu, 3),
    }


@dataclass(slots=True)
class _State:
    """What a checkpoint holds: all that changes in a run, and the time that it has taken."""

    simulation: Simulation
    fabric: Ledger
    timed: TimedPolicy
    metrics: Metrics
    planner: MovePlanner | None
    wall: float = 0
    """Seconds."""
    cpu: float = 0
    """Seconds of processor time."""


def _moves(state: _State) -> dict[str, Any]:
    """What a run with moves reports of them; nothing of a run without."""
    if state.planner is None:
        return {}
    planner = state.planner
    return {
        **state.metrics.summary_of_moves(),
        "plans": planner.calls,
        "plans_cut_off": planner.cut_off,
        "plan_us": planner.plan_us(),
    }


@dataclass(frozen=True, slots=True)
class LargestFit:
    """Returns the size in hosts of the largest request that would fit now."""

    policy: Policy
    fabric: Ledger

    def __call__(self) -> int:
        return largest_fit(self.policy, self.fabric, self.fabric.free_host_count + 1)


def kept_run(scenario: Scenario, results: Results) -> dict[str, Any]:
    """The result of ``run``, from the directory of ``results`` if that has it."""
    result: dict[str, Any] = results.result(
        scenario.identity(), lambda checkpoint: run(scenario, checkpoint=checkpoint)
    )
    return result


TIMES = ("call_us", "plan_us", "wall_s", "cpu_s")
"""Keys of a result that differ between runs of the same scenario."""


def describe(scenario: Scenario) -> dict[str, Any]:
    """A scenario as JSON data, complete enough to run it again."""
    source: dict[str, Any]
    if isinstance(scenario.source, Exponential):
        source = {"synthetic": f"exp:{scenario.source.mean:g}:{scenario.source.jobs}"}
    else:
        source = {
            "trace": scenario.source.path.rpartition("/")[2],
            "procs_per_node": scenario.source.procs_per_node,
            "clean": scenario.source.clean,
        }
    tree, discipline = scenario.tree, scenario.discipline
    return {
        "label": scenario.label,
        "xgft": f"3;{','.join(map(str, tree.m))};{','.join(map(str, tree.w))}",
        **source,
        "max_hosts": scenario.max_hosts,
        "runtime": list(scenario.runtime) if scenario.runtime else None,
        "scale_arrivals": scenario.scale_arrivals,
        "queue": discipline.kind,
        "window": discipline.window,
        "shadow": discipline.shadow.value,
        "order": discipline.order.value,
        "packing": "ends" if discipline.packing else "none",
        "two_pods": scenario.two_pods,
        "speedup": scenario.speedup,
        **({"moves": asdict(scenario.moves)} if scenario.moves.most != 0 else {}),
        **({"contention_free": scenario.contention_free.value} if scenario.contention_free else {}),
        **({"rails": scenario.rails} if scenario.rails > 1 else {}),
        **({"domains": scenario.domains._asdict()} if scenario.domains else {}),
        **(
            {"measured": [list(tenant) for tenant in scenario.measured]}
            if scenario.measured
            else {}
        ),
    }


def _resolved(loaded: Workload) -> dict[str, Any]:
    """Settings of a scenario that its trace decides; nothing for jobs without a trace."""
    if loaded.per_host is None:
        return {}
    processors, source = loaded.per_host
    return {"procs_per_node": processors, "procs_per_node_from": source}


def _placeable(policy: Policy, empty: Ledger, jobs: Jobs) -> tuple[Jobs, int]:
    """The jobs that fit the empty fabric, and the number of others, which would wait for ever."""
    asked = [(job.hosts, job.domains) for job in jobs]
    fitting = {
        wish
        for wish in set(asked)
        if isinstance(
            propose(policy, empty, request_of(Job("", 0, wish[0], 0, None, wish[1]))), Allocation
        )
    }
    kept = jobs.at([index for index, wish in enumerate(asked) if wish in fitting])
    return kept, len(jobs) - len(kept)


def _malformed(lines: Sequence[Malformed]) -> dict[str, Any]:
    shown = [{"line": line, "why": why} for line, why in lines[:MALFORMED_SHOWN]]
    return {"count": len(lines), "first": shown}


class _Fanout:
    """Passes events on to the metrics, the progress callback and the watcher."""

    _simulation: Simulation
    _metrics: Metrics
    _fabric: Ledger

    def __init__(self, jobs: int, progress: Progress | None, watch: Watcher | None) -> None:
        self._jobs = jobs
        self._progress = progress
        self._watch = watch

    def resume(self, simulation: Simulation, metrics: Metrics, fabric: Ledger) -> None:
        """Observe this simulation from now on."""
        self._simulation, self._metrics, self._fabric = simulation, metrics, fabric

    def started(self, now: float, job: Job, allocation: Allocation) -> None:
        self._metrics.started(now, job, allocation)
        if self._watch is not None:
            self._watch(self._simulation.started, self._fabric)

    def finished(self, now: float, job: Job, allocation: Allocation) -> None:
        self._metrics.finished(now, job, allocation)

    def moved(self, now: float, move: Nearest, seconds_lost: float) -> None:
        self._metrics.moved(now, move, seconds_lost)

    def settled(self, now: float, waiting: int) -> None:
        self._metrics.settled(now, waiting)
        garbage.collect_if_due()
        if self._progress is not None:
            self._progress(self._simulation.finished, self._jobs)
