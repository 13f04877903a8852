# SPDX-License-Identifier: Apache-2.0

"""Scenarios of the published figures of LaaS and Jigsaw, and further ones of this project.

A section runs workloads (rows) under policies (columns). Values that a paper prints in its
text or tables are given as ranges. Values that a paper only draws are not estimated.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from laas_service.domain.admission.queue import Discipline, Order
from laas_service.simulator.metrics import BANDS
from laas_service.simulator.scenario import Scenario, Trace, full_tree
from laas_service.simulator.sections import Cell, Measure, Range, Result, ResultTable, Section
from laas_service.simulator.workload import RUNTIME, SPEEDUPS, Exponential


def _metric(name: str) -> Measure:
    return lambda result: result[name]


utilization = _metric("utilization")
makespan = _metric("makespan")
turnaround = _metric("turnaround_mean")
turnaround_large = _metric("turnaround_mean_large")


def milliseconds_per_job(result: Result) -> float | None:
    """Time in the policy per job: all calls, also those that ended in a refusal."""
    return float(result["call_us"]["mean"] * result["calls"] / result["jobs"] / 1000)


def milliseconds_per_call(result: Result) -> float | None:
    return float(result["call_us"]["mean"] / 1000)


def share_in(band: str) -> Measure:
    """A measure: percent of the samples of instantaneous utilization that lie in ``band``."""
    return lambda result: 100 * result["instantaneous"][band]


def _each(workloads: Mapping[str, Scenario], measure: Measure) -> dict[str, Cell]:
    return {name: Cell(name, measure) for name in workloads}


def _against_baseline(workloads: Mapping[str, Scenario], measure: Measure) -> dict[str, Cell]:
    """A row for each ``NAME, SPEEDUP`` workload, in units of NAME's baseline run."""
    return {
        name: Cell(name, measure, base=f"{name.rpartition(', ')[0]}, none") for name in workloads
    }


def _synthetic(radix: int, mean: float, discipline: Discipline | None = None) -> Scenario:
    return Scenario(
        policy="",
        tree=full_tree(radix),
        source=Exponential(mean, 10_000),
        runtime=RUNTIME,
        discipline=discipline or Discipline(),
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
    """Jigsaw (HPDC'21) Figure 6, Tables 2 and 3, without the Cab traces, which are not public."""
    workloads = {**SYNTHETIC, **_public(traces)}
    published: dict[tuple[str, str], Range] = {}
    for name in workloads:
        published[name, "baseline"] = (97, 100)
        published[name, "ta"] = (85, 88)
        published[name, "laas"] = (90, 91)
        published[name, "jigsaw"] = (95, 96) if name != "Atlas" else (92, 92)
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
            ResultTable(
                "Utilization (Jigsaw, Figure 6)",
                "percent of hosts",
                _each(workloads, utilization),
                published,
            ),
            ResultTable(
                "Instantaneous utilization on Thunder (Jigsaw, Table 2)",
                "percent of samples",
                {band: Cell("Thunder", share_in(band)) for band in reversed(BANDS)},
                shares,
            ),
            ResultTable(
                "Scheduling time of a job (Jigsaw, Table 3)",
                "milliseconds",
                _each(workloads, milliseconds_per_job),
                times,
                digits=2,
            ),
        ),
    )


def figure_7(traces: Path) -> Section:
    """Jigsaw (HPDC'21) Figure 7 with the Thunder trace, as the Cab traces are not public.

    Thunder runs on 1,024 hosts, about as many as the real machine had. Arrivals are scaled
    by 0.5, as in the paper where the load was low.
    """
    thunder = replace(_public(traces)["Thunder"], tree=full_tree(16), scale_arrivals=0.5)
    workloads = _with_speedups({"Thunder": thunder})
    return Section(
        "Figure 7",
        workloads,
        ISOLATING,
        (
            ResultTable(
                "Turnaround of all jobs (after Jigsaw, Figure 7)",
                "of baseline's",
                _against_baseline(workloads, turnaround),
                digits=2,
            ),
            ResultTable(
                "Turnaround of jobs over 100 hosts (after Jigsaw, Figure 7)",
                "of baseline's",
                _against_baseline(workloads, turnaround_large),
                digits=2,
            ),
        ),
    )


def figure_8(traces: Path) -> Section:
    """Jigsaw (HPDC'21) Figure 8: makespans in every speed-up scenario."""
    workloads = _with_speedups(_public(traces))
    worst = {"jigsaw": 1.06, "laas": 1.08, "ta": 1.14}
    return Section(
        "Figure 8",
        workloads,
        ISOLATING,
        (
            ResultTable(
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

    The paper states "about 90 percent" for all its job sizes. The job sizes of Figure 8b
    (JUROPA) are not public.
    """
    fifo = Discipline("fifo")
    workloads = {f"mean {mean}": _synthetic(36, mean, fifo) for mean in (20, 100, 324, 1000)}
    return Section(
        "Figure 9",
        workloads,
        ("baseline", "simple", "laas", "jigsaw"),
        (
            ResultTable(
                "Utilization, FIFO, 11,664 hosts (LaaS, Figure 9)",
                "percent of hosts",
                _each(workloads, utilization),
                {(name, "laas"): (90, 90) for name in workloads},
            ),
            ResultTable(
                "Time of one call, 11,664 hosts (LaaS, Figure 10)",
                "milliseconds",
                _each(workloads, milliseconds_per_call),
                {("mean 324", "laas"): (5.0, 5.0)},
                digits=3,
            ),
        ),
    )


def better(traces: Path) -> Section:
    """The queue options that raise utilization; isolation is the same, and no job is moved."""
    discipline = Discipline(window=200, order=Order.BIG_FIRST, packing=True)
    plain = {**SYNTHETIC, "Synth-36": _synthetic(36, 36), **_public(traces)}
    workloads = {name: replace(scenario, discipline=discipline) for name, scenario in plain.items()}
    return Section(
        "Better",
        workloads,
        ("baseline", "laas", "jigsaw"),
        (
            ResultTable(
                "Utilization with --order big-first --window 200 --packing ends",
                "percent of hosts",
                _each(workloads, utilization),
            ),
        ),
    )


def hard(traces: Path) -> Section:
    """Three traces that are hard to place, each for a different reason.

    LANL CM-5: job sizes are powers of two from 32 up, on leaves of 9 hosts. Sandia Ross:
    half of the jobs take 16 hosts or more, up to 1,524. RICC: 85 percent of the jobs take
    one host, the load exceeds the machine, and the arrivals of the trace are kept.
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
        (ResultTable("Three hard traces", "percent of hosts", _each(workloads, utilization)),),
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
"""Suite -> names of its sections; ``papers`` has every section that the documentation shows."""


def suite(name: str, traces: Path) -> list[Section]:
    """The sections of a suite; ``traces`` is the directory of the trace files."""
    return [SECTIONS[section](traces) for section in SUITES[name]]
