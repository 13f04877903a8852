# SPDX-License-Identifier: Apache-2.0

"""Reports of simulation results: lines of text, reStructuredText tables, one HTML page."""

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
    if result["unplaceable"]:
        lines.insert(
            3, ("unplaceable", f"{result['unplaceable']} jobs do not fit the empty fabric")
        )
    lines += _moves_text(result)
    return "".join(f"{name:<18}{value}\n" for name, value in lines)


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
    parts += ["<h2>Every run</h2>", _overview(results)]
    moving = [result for result in results if "moves" in result]
    if moving:
        parts += ["<h2>Moves of running jobs</h2>", _moves_table(moving)]
    for workload, group in grouped((_workload(result), result) for result in results).items():
        parts += _workload_section(workload, group)
    return "\n".join([*parts, "</body></html>\n"])


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
