# SPDX-License-Identifier: Apache-2.0

"""The experiments of both papers, and of this project, as sets of scenarios.

A section is a table: rows are workloads, columns are policies. What the papers
print in words or tables stands beside it as a range; figures of theirs that are
only drawn are not guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from laas_service.domain.admission.queue import Discipline, Order
from laas_service.domain.errors import InvalidInput
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Xgft
from laas_service.simulator.metrics import BANDS
from laas_service.simulator.scenario import Scenario, Trace
from laas_service.simulator.workload import SPEEDUPS, Exponential

RUNTIME = (20, 3000)
"""Run times of synthetic jobs, seconds. LaaS (ANCS'16) 4.1 says 20 and 10; Jigsaw 20."""

Result = Mapping[str, Any]
Measure = Callable[[Result], float | None]
Range = tuple[float, float]


def full_tree(radix: int) -> Xgft:
    """The full three-level tree of switches with this many ports: radix^3 / 4 hosts.

    Raises:
        InvalidInput: the radix is odd or too small.
    """
    if radix < 2 or radix % 2 or radix > 128:
        raise InvalidInput("radix", radix, "give an even number of ports, 2 to 128")
    half = radix // 2
    return Xgft((half, half, radix), (1, half, half))


@dataclass(frozen=True)
class Cell:
    """What stands in a row: a measure of one workload's runs, relative to ``base`` if named.

    ``base`` is the workload whose baseline run is the unit.
    """

    workload: str
    measure: Measure
    base: str | None = None


@dataclass(frozen=True)
class Table:
    """Rows by name, policies across; ``published`` by (row, policy), a range."""

    title: str
    unit: str
    rows: Mapping[str, Cell]
    published: Mapping[tuple[str, str], Range] = field(default_factory=dict)
    digits: int = 1


@dataclass(frozen=True)
class Section:
    """One experiment: workloads (scenarios that lack a policy), policies, tables."""

    name: str
    workloads: Mapping[str, Scenario]
    policies: tuple[str, ...]
    tables: tuple[Table, ...]

    def scenarios(self) -> list[Scenario]:
        """Every run; one speed-up is enough for the baseline, which nobody isolates."""
        return [
            replace(scenario, policy=policy, label=f"{self.name}: {workload}")
            for workload, scenario in self.workloads.items()
            for policy in self.policies
            if policy in POLICIES and (policy != "baseline" or scenario.speedup == "none")
        ]


def utilization(result: Result) -> float | None:
    value: float | None = result["utilization"]
    return value


def makespan(result: Result) -> float | None:
    value: float | None = result["makespan"]
    return value


def turnaround(result: Result) -> float | None:
    value: float | None = result["turnaround_mean"]
    return value


def turnaround_large(result: Result) -> float | None:
    value: float | None = result["turnaround_mean_large"]
    return value


def milliseconds_per_job(result: Result) -> float | None:
    """Time inside the policy for one job, every call on its account."""
    value: float = result["call_us"]["mean"] * result["calls"] / result["jobs"] / 1000
    return value


def milliseconds_per_call(result: Result) -> float | None:
    value: float = result["call_us"]["mean"] / 1000
    return value


def share_in(band: str) -> Measure:
    """Percent of the samples of instantaneous utilization in a band."""
    return lambda result: 100 * result["instantaneous"][band]


def _each(workloads: Mapping[str, Scenario], measure: Measure) -> dict[str, Cell]:
    return {name: Cell(name, measure) for name in workloads}


def _against_baseline(workloads: Mapping[str, Scenario], measure: Measure) -> dict[str, Cell]:
    """``NAME, SPEEDUP`` rows, in units of NAME's baseline."""
    return {
        name: Cell(name, measure, base=f"{name.rpartition(', ')[0]}, none") for name in workloads
    }


def _synthetic(radix: int, mean: float, rules: Discipline | None = None) -> Scenario:
    return Scenario(
        policy="",
        tree=full_tree(radix),
        source=Exponential(mean, 10_000),
        runtime=RUNTIME,
        rules=rules or Discipline(),
    )


def _replayed(trace: Trace, radix: int) -> Scenario:
    return Scenario(policy="", tree=full_tree(radix), source=trace, scale_arrivals=0)


def _public(traces: Path) -> dict[str, Scenario]:
    """The two public traces of the Jigsaw paper, on its tree of 1,458 hosts."""
    thunder = Trace(str(traces / "LLNL-Thunder-2007-1.1-cln.swf.gz"), "swf", 4, clean=True)
    atlas = Trace(str(traces / "LLNL-Atlas-2006-2.1-cln.swf.gz"), "swf", 8, clean=True)
    return {
        "Thunder": _replayed(thunder, 18),
        "Atlas": replace(_replayed(atlas, 18), max_hosts=1024),
    }


def _with_speedups(workloads: Mapping[str, Scenario]) -> dict[str, Scenario]:
    return {
        f"{name}, {speedup}": replace(scenario, speedup=speedup)
        for name, scenario in workloads.items()
        for speedup in SPEEDUPS
    }


SYNTHETIC = {f"Synth-{radix}": _synthetic(radix, radix) for radix in (16, 22, 28)}


def figure_6(traces: Path) -> Section:
    """Jigsaw (HPDC'21) Figure 6, Tables 2 and 3; the Cab traces are not public."""
    workloads = {**SYNTHETIC, **_public(traces)}
    printed: dict[tuple[str, str], Range] = {}
    for name in workloads:
        printed[name, "baseline"] = (97, 100)
        printed[name, "ta"] = (85, 88)
        printed[name, "laas"] = (90, 91)
        printed[name, "jigsaw"] = (95, 96) if name != "Atlas" else (92, 92)
    bands = {
        "laas": (4133, 53720, 78072, 52546, 21261, 1717),
        "jigsaw": (54186, 51789, 50299, 36586, 17086, 1503),
        "ta": (20443, 27134, 46923, 68262, 42923, 5764),
    }
    shares = {
        (band, policy): (100 * count / sum(counts),) * 2
        for policy, counts in bands.items()
        for band, count in zip(reversed(BANDS), counts, strict=True)
    }
    times: dict[tuple[str, str], Range] = {
        ("Synth-16", "ta"): (2.83, 2.83),
        ("Synth-16", "laas"): (2.94, 2.94),
        ("Synth-16", "jigsaw"): (3.05, 3.05),
        ("Thunder", "ta"): (1.28, 1.28),
        ("Thunder", "laas"): (1.06, 1.06),
        ("Thunder", "jigsaw"): (1.04, 1.04),
        ("Synth-28", "ta"): (7.09, 7.09),
        ("Synth-28", "laas"): (9.47, 9.47),
        ("Synth-28", "jigsaw"): (9.98, 9.98),
    }
    return Section(
        "Figure 6",
        workloads,
        ISOLATING,
        (
            Table(
                "Utilization (Jigsaw, Figure 6)",
                "percent of hosts",
                _each(workloads, utilization),
                printed,
            ),
            Table(
                "Instantaneous utilization on Thunder (Jigsaw, Table 2)",
                "percent of samples",
                {band: Cell("Thunder", share_in(band)) for band in reversed(BANDS)},
                shares,
            ),
            Table(
                "Scheduling time of a job (Jigsaw, Table 3)",
                "milliseconds",
                _each(workloads, milliseconds_per_job),
                times,
                digits=2,
            ),
        ),
    )


def figure_7(traces: Path) -> Section:
    """After Jigsaw's Figure 7: the Cab traces are not public, so Thunder with its arrivals.

    On 1,024 hosts, about as many as the real machine had, and arrivals scaled by 0.5,
    as the paper did where the load was low.
    """
    thunder = replace(_public(traces)["Thunder"], tree=full_tree(16), scale_arrivals=0.5)
    workloads = _with_speedups({"Thunder": thunder})
    return Section(
        "Figure 7",
        workloads,
        ISOLATING,
        (
            Table(
                "Turnaround of all jobs (after Jigsaw, Figure 7)",
                "of baseline's",
                _against_baseline(workloads, turnaround),
                digits=2,
            ),
            Table(
                "Turnaround of jobs over 100 hosts (after Jigsaw, Figure 7)",
                "of baseline's",
                _against_baseline(workloads, turnaround_large),
                digits=2,
            ),
        ),
    )


def figure_8(traces: Path) -> Section:
    """Jigsaw's Figure 8: makespans in every speed-up scenario."""
    workloads = _with_speedups(_public(traces))
    worst = {"jigsaw": 1.06, "laas": 1.08, "ta": 1.14}
    return Section(
        "Figure 8",
        workloads,
        ISOLATING,
        (
            Table(
                "Makespan (Jigsaw, Figure 8)",
                "of baseline's",
                _against_baseline(workloads, makespan),
                {
                    (f"{name}, none", policy): (1.0, most)
                    for name in ("Thunder", "Atlas")
                    for policy, most in worst.items()
                },
                digits=2,
            ),
        ),
    )


def figure_9(traces: Path) -> Section:
    """LaaS (ANCS'16) Figures 9 and 10: FIFO on 11,664 hosts.

    "About 90 percent" is what the text says of all its sizes. The sizes of Figure 8b
    (JUROPA) are not public.
    """
    fifo = Discipline("fifo")
    workloads = {f"mean {mean}": _synthetic(36, mean, fifo) for mean in (20, 100, 324, 1000)}
    return Section(
        "Figure 9",
        workloads,
        ("baseline", "simple", "laas", "jigsaw"),
        (
            Table(
                "Utilization, FIFO, 11,664 hosts (LaaS, Figure 9)",
                "percent of hosts",
                _each(workloads, utilization),
                {(name, "laas"): (90, 90) for name in workloads},
            ),
            Table(
                "Time of one call, 11,664 hosts (LaaS, Figure 10)",
                "milliseconds",
                _each(workloads, milliseconds_per_call),
                {("mean 324", "laas"): (5.0, 5.0)},
                digits=3,
            ),
        ),
    )


def better(traces: Path) -> Section:
    """The same promises with the options that raise utilization; nothing is moved."""
    rules = Discipline(window=200, order=Order.BIG_FIRST, packing=True)
    plain = {**SYNTHETIC, "Synth-36": _synthetic(36, 36), **_public(traces)}
    workloads = {name: replace(scenario, rules=rules) for name, scenario in plain.items()}
    return Section(
        "Better",
        workloads,
        ("baseline", "laas", "jigsaw"),
        (
            Table(
                "Utilization with --order big-first --window 200 --packing ends",
                "percent of hosts",
                _each(workloads, utilization),
            ),
        ),
    )


def hard(traces: Path) -> Section:
    """Three traces chosen because they are hard, each for another reason.

    LANL CM-5: only powers of two from 32 up, on leaves of 9. Sandia Ross: half the
    jobs take 16 hosts or more, up to 1,524. RICC: 85 percent one-host jobs, more load
    than the machine, arrivals kept.
    """
    cm5 = Trace(str(traces / "LANL-CM5-1994-4.1-cln.swf.gz"))
    ross = Trace(str(traces / "Sandia-Ross-2001-1.1-cln.swf.gz"))
    ricc = Trace(str(traces / "RICC-2010-2.swf.gz"), "swf", 8)
    workloads = {
        "LANL CM-5, 1,458 hosts": _replayed(cm5, 18),
        "Sandia Ross, 2,662 hosts": _replayed(ross, 22),
        "RICC, 1,024 hosts, arrivals kept": replace(_replayed(ricc, 16), scale_arrivals=1),
    }
    return Section(
        "Hard",
        workloads,
        ISOLATING,
        (Table("Three hard traces", "percent of hosts", _each(workloads, utilization)),),
    )


ISOLATING = ("baseline", "ta", "laas", "jigsaw")
SECTIONS: Mapping[str, Callable[[Path], Section]] = {
    "figure-6": figure_6,
    "figure-7": figure_7,
    "figure-8": figure_8,
    "figure-9": figure_9,
    "better": better,
    "hard": hard,
}
SUITES: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in SECTIONS},
    "papers": tuple(SECTIONS),
}
"""Names of ready-made sets; ``papers`` is everything the documentation shows."""


def suite(name: str, traces: Path) -> list[Section]:
    """The experiments of a suite, the trace files being in ``traces``."""
    return [SECTIONS[section](traces) for section in SUITES[name]]
