# SPDX-License-Identifier: Apache-2.0

"""Reports of simulation results: lines of text, reStructuredText tables, one HTML page."""

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from laas_service.domain.grouping import grouped
from laas_service.simulator import plots
from laas_service.simulator.sections import Cell, ResultTable, Section

Result = Mapping[str, Any]


def text(result: Result) -> str:
    """The metrics of one run, one a line."""
    call = result["call_us"]
    queue, scenario = result["queue"], result["scenario"]
    lines = [
        ("policy", result["policy"]),
        ("hosts", result["hosts"]),
        ("jobs", f"{result['jobs']} ({result['left_out']} records left out)"),
        ("queue", f"{scenario['queue']}, window {scenario['window']}, {scenario['shadow']}"),
        ("utilization", f"{_number(result['utilization'], 2)} % of hosts, as requested"),
        ("  as allocated", f"{_number(result['utilization_allocated'], 2)} %"),
        ("makespan", f"{_number(result['makespan'], 0)} s"),
        ("turnaround", f"{_number(result['turnaround_mean'], 0)} s"),
        ("  over 100 hosts", f"{_number(result['turnaround_mean_large'], 0)} s"),
        ("wait", f"{_number(result['wait_mean'], 0)} s"),
        ("waiting", f"{_number(queue['mean'], 1)} jobs on average, {queue['max']} at most"),
        ("free, unusable", f"{_number(result['fragmentation']['unusable'], 2)} % of hosts"),
        ("calls", f"{result['calls']}, {result['budget_hits']} out of search budget"),
        ("  time per call", f"{call['mean']} us, p99 {call['p99']} us, max {call['max']} us"),
        ("took", f"{result['wall_s']} s, {result['cpu_s']} s of processor time"),
    ]
    lines[3:3] = [
        *_per_host_text(scenario),
        *(("  left out", f"{count}: {why}") for why, count in _reasons(result).items()),
        *_unplaceable_text(result["unplaceable"]),
    ]
    lines += _moves_text(result)
    return "".join(f"{name:<18}{value}\n" for name, value in lines)


def _reasons(result: Result) -> Mapping[str, int]:
    """Reason -> records left out; empty for results of a release that did not tell."""
    reasons: Mapping[str, int] = result.get("left_out_reasons", {})
    return reasons


def _per_host_text(scenario: Mapping[str, Any]) -> list[tuple[str, str]]:
    source = scenario.get("procs_per_node_from")
    return [("  processors", f"{scenario['procs_per_node']} a host ({source})")] if source else []


def _unplaceable_text(count: int) -> list[tuple[str, str]]:
    return [("unplaceable", f"{count} jobs do not fit the empty fabric")] if count else []


def _moves_text(result: Result) -> list[tuple[str, str]]:
    """What a run with moves says of them, as (name, value); nothing of a run without."""
    if "moves" not in result:
        return []
    plan, slowdown = result["plan_us"], _number(result["moved_slowdown"], 2)
    return [
        ("moves", f"{result['moves']}, {result['moves_of_links_only']} of links alone"),
        ("  hosts moved", f"{result['hosts_moved_per_host_placed']} for each host placed"),
        ("  jobs moved", f"{result['moved_jobs']}, they took {slowdown} times as long"),
        ("  net of losses", f"{_number(result['utilization_net'], 2)} % of hosts"),
        ("plans", f"{result['plans']}, {result['plans_cut_off']} out of search budget"),
        ("  time per plan", f"{plan['mean']} us, p99 {plan['p99']} us, max {plan['max']} us"),
    ]


def drawing(result: Result, width: int, height: int = 6) -> str:
    """Utilization over time, drawn with block characters, at most ``width`` of them a line."""
    points = [(time, utilization) for time, utilization, _ in result["series"]["points"]]
    if len(points) < 2:
        return ""
    (first, _), (last, _) = points[0], points[-1]
    columns = max(10, width - len("100 % |"))
    means = _means(points, [first + (last - first) * i / columns for i in range(columns + 1)])
    lines = []
    for row in reversed(range(height)):
        label = {height - 1: "100 % |", 0: "  0 % |"}.get(row, "      |")
        eighths = (min(8, max(0, round(8 * (mean / 100 * height - row)))) for mean in means)
        lines.append(label + "".join(_BLOCKS[eighth] for eighth in eighths).rstrip())
    unit, name = plots.time_unit(last - first)
    end = f"{(last - first) / unit:.1f} {name}"
    axis = f"{'':6}0{end:>{columns}}"
    return "\n".join(["", "utilization over time", *lines, axis, ""])


_BLOCKS = " ▁▂▃▄▅▆▇█"


def _means(points: Sequence[tuple[float, float]], edges: Sequence[float]) -> list[float]:
    """The mean over time between each edge and the next; a value holds until the next point."""
    ends = [time for time, _ in points[1:]] + [edges[-1]]
    areas = [0.0] * (len(edges) - 1)
    column = 0
    for (time, value), end in zip(points, ends, strict=True):
        while time < end:
            until = min(end, edges[column + 1]) if column < len(areas) - 1 else end
            areas[column] += value * (until - time)
            time = until
            if column < len(areas) - 1 and time >= edges[column + 1]:
                column += 1
    return [
        area / (end - begin) if end > begin else 0.0
        for area, begin, end in zip(areas, edges, edges[1:], strict=False)
    ]


# -- policies beside the baseline ----------------------------------------------

COMPARED = (
    ("utilization %", "utilization", 2),
    ("turnaround s", "turnaround_mean", 0),
    ("wait s", "wait_mean", 0),
    ("makespan s", "makespan", 0),
)
"""(heading, metric, digits) of the columns of ``comparison``."""

_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045,
)  # fmt: skip
"""0.975 quantiles of Student's t distribution for 1, 2, ... degrees of freedom."""
_NORMAL = 1.96


class Compared(NamedTuple):
    """A metric of one policy under one setting, over its seeds."""

    mean: float | None
    interval: float | None
    """Half the 95 percent confidence interval of the mean; None for a single seed."""
    difference: float | None
    """Mean difference to the baseline with the same seed; None without such a run."""
    difference_interval: float | None

    @classmethod
    def of(cls, values: Mapping[int, float], base: Mapping[int, float] | None) -> "Compared":
        """Seed -> value, of a policy and of the baseline; None for the baseline itself."""
        pairs = (
            [value - base[seed] for seed, value in values.items() if seed in base] if base else []
        )
        return cls(*_mean_and_interval(list(values.values())), *_mean_and_interval(pairs))


def _mean_and_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    if len(values) == 1:
        return values[0], None
    freedom = len(values) - 1
    quantile = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL
    return statistics.mean(values), quantile * statistics.stdev(values) / math.sqrt(len(values))


def comparison(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Heading and rows: each policy and setting over its seeds, beside the baseline.

    A cell is the mean, its 95 percent confidence interval over the seeds, and the mean difference
    to the baseline's runs with the same setting and seed.
    """
    settings = {_setting(result): result for result in results}
    names = _differing([result["scenario"] for result in settings.values()])
    by_setting = grouped((_setting(result), result) for result in results)
    rows: list[tuple[str, ...]] = []
    for setting, runs in by_setting.items():
        policies = grouped((run["policy"], run) for run in runs)
        for policy, own in policies.items():
            base = policies.get("baseline") if policy != "baseline" else None
            cells = [_compared(own, base, metric, digits) for _, metric, digits in COMPARED]
            first = own[0]
            chosen = [str(first["scenario"].get(name, "")) for name in names]
            rows.append((_workload(settings[setting]), policy, *chosen, str(len(own)), *cells))
    headings = [heading for heading, _, _ in COMPARED]
    return [("workload", "policy", *names, "seeds", *headings), *rows]


def _setting(result: Result) -> str:
    """A run's inputs apart from policy and seed; runs with the same ones are compared."""
    scenario = {k: v for k, v in result["scenario"].items() if k not in ("two_pods", "measured")}
    return json.dumps(scenario, sort_keys=True)


def _differing(scenarios: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings in which runs of the same workload differ."""
    return [
        name
        for name in ("xgft", "queue", "window", "shadow", "order", "packing", "speedup")
        if len({str(scenario.get(name)) for scenario in scenarios}) > 1
    ]


def _compared(
    own: Sequence[Result], base: Sequence[Result] | None, metric: str, digits: int
) -> str:
    of_seed, of_base = (
        {run["seed"]: run[metric] for run in runs or () if run[metric] is not None}
        for runs in (own, base)
    )
    value = Compared.of(of_seed, of_base)
    text = _number(value.mean, digits)
    if value.interval is not None:
        text += f" ±{value.interval:.{digits}f}"
    if value.difference is not None:
        text += f" ({value.difference:+.{digits}f}"
        if value.difference_interval is not None:
            text += f" ±{value.difference_interval:.{digits}f}"
        text += ")"
    return text


def comparison_text(results: Sequence[Result]) -> str:
    """``comparison`` as lines of aligned columns, and how to read it."""
    table = comparison(results)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    return "\n".join([*lines, *(f"# {note}" for note in _notes(results)), ""])


def _notes(results: Sequence[Result]) -> list[str]:
    policies = {result["policy"] for result in results}
    notes = []
    if "baseline" not in policies:
        notes.append("Add --policy baseline to see the differences to it.")
    elif len(policies) > 1:
        notes.append("In parentheses: the difference to the baseline's runs with the same seeds.")
    if len({result["seed"] for result in results}) > 1:
        notes.append("±: 95 percent confidence interval of the mean over the seeds.")
    else:
        notes.append("One seed has no interval: give several with --seed 1 2 3.")
    return notes


# -- tables -------------------------------------------------------------------


class Line(NamedTuple):
    """A row of a comparison: measured value, published range, difference."""

    row: str
    policy: str
    published: tuple[float, float] | None
    ours: float
    difference: float | None
    """To the nearer end of the published range: 0 inside it; None without a published range."""


def _lines_of(section: Section, table: ResultTable, results: Sequence[Result]) -> Iterator[Line]:
    """The lines of a table that have results; values are means over the seeds."""
    for row, cell in table.rows.items():
        for policy in section.policies:
            ours = _measured(section, cell, policy, results)
            if ours is None or (cell.base and policy == "baseline"):
                continue
            published = table.published.get((row, policy))
            yield Line(row, policy, published, ours, _difference(ours, published))


def _measured(section: Section, cell: Cell, policy: str, results: Sequence[Result]) -> float | None:
    mean = _mean(section, cell.workload, policy, cell, results)
    if mean is None or cell.base is None:
        return mean
    base_mean = _mean(section, cell.base, "baseline", cell, results)
    return mean / base_mean if base_mean else None


def _mean(
    section: Section, workload: str, policy: str, cell: Cell, results: Sequence[Result]
) -> float | None:
    label = f"{section.name}: {workload}"
    values = [
        value
        for result in results
        if result["scenario"]["label"] == label and result["policy"] == policy
        if (value := cell.measure(result)) is not None
    ]
    return sum(values) / len(values) if values else None


def _difference(ours: float, published: tuple[float, float] | None) -> float | None:
    if published is None:
        return None
    low, high = published
    return ours - min(max(ours, low), high)


def _tables(
    results: Sequence[Result], sections: Iterable[Section]
) -> Iterator[tuple[Section, ResultTable, list[Line]]]:
    for section in sections:
        for table in section.tables:
            lines = list(_lines_of(section, table, results))
            if lines:
                yield section, table, lines


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _range(published: tuple[float, float] | None, digits: int) -> str:
    if published is None:
        return ""
    low, high = (_number(x, digits) for x in published)
    return low if low == high else f"{low} to {high}"


def _cells(line: Line, digits: int) -> tuple[str, str, str, str, str]:
    difference = "" if line.difference is None else f"{line.difference:+.{digits}f}"
    return (
        line.row,
        line.policy,
        _range(line.published, digits),
        _number(line.ours, digits),
        difference,
    )


HEADING = ("workload", "policy", "paper", "ours", "difference")


def rst(results: Sequence[Result], sections: Iterable[Section] = ()) -> str:
    """The tables of ``sections`` as reStructuredText."""
    parts = [".. Made by laas-simulate report --format rst; do not edit.\n"]
    for _, table, lines in _tables(results, sections):
        parts.append(f"\n.. list-table:: {table.title}, {table.unit}\n   :header-rows: 1\n\n")
        for cells in (HEADING, *(_cells(line, table.digits) for line in lines)):
            parts += [
                f"   {'* -' if i == 0 else '  -'} {x}".rstrip() + "\n" for i, x in enumerate(cells)
            ]
    return "".join(parts)


# -- one page of HTML ---------------------------------------------------------

_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0 }
td, th { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left }
svg { width: 100%; height: auto }
"""


def html(results: Sequence[Result], sections: Iterable[Section] = ()) -> str:
    """A self-contained HTML page: comparisons, every run, utilization over time."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>laas-simulate</title><style>{_STYLE}</style></head><body>",
        "<h1>Simulations</h1>",
    ]
    for _, table, lines in _tables(results, sections):
        curves: dict[str, list[plots.Value]] = {}
        for line in lines:
            point = plots.Value(line.row, line.ours, line.published)
            curves.setdefault(line.policy, []).append(point)
        parts += [
            f"<h2>{escape(table.title)}</h2>",
            plots.compared(curves, table.unit),
            _html_table(HEADING, [_cells(line, table.digits) for line in lines]),
        ]
    if len(results) > 1:
        heading, *rows = comparison(results)
        parts += ["<h2>Policies beside the baseline</h2>", _html_table(heading, rows)]
        parts += [f"<p>{escape(note)}</p>" for note in _notes(results)]
    parts += ["<h2>Every run</h2>", _overview(results)]
    parts += _left_out_section(results)
    moving = [result for result in results if "moves" in result]
    if moving:
        parts += ["<h2>Moves of running jobs</h2>", _moves_table(moving)]
    for workload, group in grouped((_workload(result), result) for result in results).items():
        parts += _workload_section(workload, group)
    parts += ["<h2>Words</h2><dl>"]
    parts += [f"<dt>{escape(word)}</dt><dd>{escape(said)}</dd>" for word, said in WORDS.items()]
    return "\n".join([*parts, "</dl></body></html>\n"])


WORDS = {
    "workload": "The trace or the synthetic jobs that were simulated.",
    "policy": "The rule that chooses hosts and links for a job. The baseline takes any free hosts"
    " and isolates nobody: its difference to a policy is the price of isolation.",
    "hosts": "Hosts of the simulated fabric.",
    "jobs": "Jobs that were simulated. Each holds its hosts for its run time.",
    "seed": "Start of the random draws. The same seed gives the same jobs to every policy.",
    "utilization": "Percent of the hosts that running jobs asked for, as a mean over the steady"
    " state: from the first moment a job waits until the last job starts.",
    "instantaneous utilization": "Share of the starts and ends in the steady state at which"
    " utilization was in each band.",
    "makespan": "Seconds from the first arrival to the last end.",
    "turnaround": "Mean seconds from a job's arrival to its end.",
    "wait": "Mean seconds from a job's arrival to its start.",
    "call": "Mean processor time of one question to the policy, in microseconds; p99: 99 percent"
    " of the calls took at most this.",
    "±": "Half of the 95 percent confidence interval of the mean over the seeds: with other seeds,"
    " the mean is expected to lie this near.",
    "left out": "Records of the trace that are no usable job, or that an option excludes.",
    "unplaceable": "Jobs that no placement of the policy fits, even on the empty fabric.",
    "processors a host": "A trace counts processors. Each job gets as many hosts as its processors"
    " need; the header's MaxProcs / MaxNodes or --procs-per-node says how many a host has.",
    "window": "Waiting jobs behind the first one that may start before it.",
    "shadow": "The earliest time at which the first waiting job fits; no other job delays it.",
    "xgft": "Shape of the fabric: levels; children of each switch; parents of each switch.",
}
"""Words of the report, and what they mean."""


def _left_out_section(results: Sequence[Result]) -> list[str]:
    """Records left out by reason, and processors of a host, a row for each workload."""
    rows = dict.fromkeys(
        (_workload(result), str(count), why)
        for result in results
        for why, count in (
            *_reasons(result).items(),
            *(
                (f"do not fit the empty fabric ({result['policy']})", n)
                for n in [result["unplaceable"]]
                if n
            ),
        )
    )
    processors = dict.fromkeys(
        f"{_workload(result)}: {text}"
        for result in results
        for _, text in _per_host_text(result["scenario"])
    )
    parts = [f"<p>Processors: {escape(text)}</p>" for text in processors]
    if rows:
        parts += [
            "<h2>Records left out</h2>",
            _html_table(("workload", "records", "why"), list(rows)),
        ]
    return parts


def _overview(results: Sequence[Result]) -> str:
    heading = (
        "workload",
        "policy",
        "hosts",
        "jobs",
        "seed",
        "utilization %",
        "makespan s",
        "turnaround s",
        "wait s",
        "call us",
        "p99 us",
    )
    rows = [
        (
            _workload(result),
            result["policy"],
            str(result["hosts"]),
            str(result["jobs"]),
            str(result["seed"]),
            _number(result["utilization"], 2),
            _number(result["makespan"], 0),
            _number(result["turnaround_mean"], 0),
            _number(result["wait_mean"], 0),
            _number(result["call_us"]["mean"], 1),
            _number(result["call_us"]["p99"], 1),
        )
        for result in results
    ]
    return _html_table(heading, rows)


def _moves_table(results: Sequence[Result]) -> str:
    """What was moved in runs with moves, and what the moved jobs paid."""
    heading = (
        "workload",
        "policy",
        "moves a start",
        "movable",
        "cost s",
        "utilization %",
        "net %",
        "moves",
        "links alone",
        "hosts moved per host placed",
        "jobs moved",
        "slowdown",
        "plan us",
        "p99 us",
    )
    rows = []
    for result in results:
        settings = result["scenario"]["moves"]
        rows.append(
            (
                _workload(result),
                result["policy"],
                _moves_of_a_start(settings),
                str(settings["movable"]),
                str(settings["cost"]),
                _number(result["utilization"], 2),
                _number(result["utilization_net"], 2),
                str(result["moves"]),
                str(result["moves_of_links_only"]),
                _number(result["hosts_moved_per_host_placed"], 2),
                str(result["moved_jobs"]),
                _number(result["moved_slowdown"], 2),
                _number(result["plan_us"]["mean"], 0),
                _number(result["plan_us"]["p99"], 0),
            )
        )
    return _html_table(heading, rows)


def _moves_of_a_start(settings: Mapping[str, Any]) -> str:
    most = "all" if settings["most"] is None else str(settings["most"])
    return f"{most}, links alone" if settings["links_only"] else most


def _workload_section(workload: str, results: Sequence[Result]) -> Iterator[str]:
    """All runs of a workload in the same charts, under what they have in common."""
    names = _names(results)
    settings = [result["scenario"] for result in results]
    common = ", ".join(
        f"{name} {value}"
        for name, value in settings[0].items()
        if value not in (None, "") and all(other.get(name) == value for other in settings)
    )
    points = {name: result["series"]["points"] for name, result in zip(names, results, strict=True)}
    bands = {
        name: [plots.Value(band, 100 * x) for band, x in result["instantaneous"].items()]
        for name, result in zip(names, results, strict=True)
    }
    yield f"<h2>{escape(workload)}</h2>"
    yield f"<p>{escape(common)}</p>"
    yield plots.steps(
        {name: [(t, u) for t, u, _ in line] for name, line in points.items()},
        "utilization, percent of hosts",
        100,
    )
    yield plots.steps(
        {name: [(t, w) for t, _, w in line] for name, line in points.items()}, "jobs that wait"
    )
    yield plots.compared(bands, "percent of samples", "instantaneous utilization, percent")


def _names(results: Sequence[Result]) -> list[str]:
    """A name for each run of a workload: its policy, and the settings that differ."""
    settings = [result["scenario"] | {"seed": result["seed"]} for result in results]
    differing = [
        name
        for name in settings[0]
        if name != "policy" and len({str(other.get(name)) for other in settings}) > 1
    ]
    return [
        ", ".join([result["policy"], *(f"{name} {setting[name]}" for name in differing)])
        for result, setting in zip(results, settings, strict=True)
    ]


def _workload(result: Result) -> str:
    scenario = result["scenario"]
    return str(scenario["label"] or scenario.get("trace") or scenario["synthetic"])


def _html_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    parts = ["<table><tr>", *(f"<th>{escape(x)}</th>" for x in heading), "</tr>"]
    for row in rows:
        parts += ["<tr>", *(f"<td>{escape(x)}</td>" for x in row), "</tr>"]
    return "".join([*parts, "</table>"])
