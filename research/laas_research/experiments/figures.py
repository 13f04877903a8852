# SPDX-License-Identifier: Apache-2.0

"""Figures of an experiment beside the published values, as text, reStructuredText, HTML, JSON."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple, Protocol

from laas_service.simulator import plots
from laas_service.simulator.checkpoints import Results

Result = Mapping[str, Any]
"""JSON data of one trial; its keys are the experiment's own."""


class Trial(Protocol):
    """One simulation: plain data that any process can run."""

    def run(self) -> Result:
        """Simulate; equal trials give equal results."""
        ...


def kept_run(trial: Trial, results: Results | None) -> Result:
    """The result of a trial, from the directory of ``results`` if that has it."""
    if results is None:
        return trial.run()
    kept: Result = results.result({"trial": repr(trial)}, lambda checkpoint: trial.run())
    return kept


class Point(NamedTuple):
    """A point of a curve: the value of this implementation and that of the paper."""

    x: float | str
    ours: float
    paper: float | None = None
    """The value that the paper states or draws; None if it gives none."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or table of a paper with the values of this implementation."""

    name: str
    title: str
    across: str
    """What ``x`` of the points is."""
    unit: str
    curves: Mapping[str, Sequence[Point]]
    digits: int = 1
    """Decimals shown."""
    reason: str = ""
    """Why the values differ from the paper's, if they do."""


class Experiment(NamedTuple):
    """A paper's evaluation: the trials to run, and the figures to draw from their results."""

    source: str
    """The paper and its section."""
    runs: int
    """Repetitions of each point in the paper, and by default here."""
    trials: Callable[[int, int, float], Sequence[Trial]]
    """(seed, runs, size) -> trials; size 1.0 is the paper's, smaller sizes run faster."""
    figures: Callable[[Sequence[Result]], Sequence[Figure]]


def text(figures: Sequence[Figure]) -> str:
    """The figures as tables for a terminal."""
    parts = []
    for figure in figures:
        rows = list(_rows(figure))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        parts.append(f"{figure.name}: {figure.title}, {figure.unit}\n")
        parts += [
            "  ".join(x.ljust(w) for x, w in zip(row, widths, strict=True)).rstrip() + "\n"
            for row in rows
        ]
        parts.append(f"{figure.reason}\n\n" if figure.reason else "\n")
    return "".join(parts)


def rst(figures: Sequence[Figure]) -> str:
    """The figures as reStructuredText tables for the documentation."""
    parts = [".. Made by laas-simulate --format rst; do not edit.\n"]
    for figure in figures:
        parts.append(f"\n.. list-table:: {figure.name}: {figure.title}, {figure.unit}\n")
        parts.append("   :header-rows: 1\n\n")
        for row in _rows(figure):
            parts += [
                f"   {'* -' if i == 0 else '  -'} {cell}".rstrip() + "\n"
                for i, cell in enumerate(row)
            ]
        parts.append(f"\n{figure.reason}\n" if figure.reason else "")
    return "".join(parts)


def html(title: str, figures: Sequence[Figure]) -> str:
    """The figures as one self-contained HTML page."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{escape(title)}</title></head><body style='font: 15px sans-serif'>",
        f"<h1>{escape(title)}</h1>",
    ]
    for figure in figures:
        rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in _rows(figure)]
        parts += [
            f"<h2>{escape(figure.name)}: {escape(figure.title)}</h2>",
            plots.compared(_curves(figure), figure.unit, figure.across),
            "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>",
            f"<p>{escape(figure.reason)}</p>" if figure.reason else "",
        ]
    return "\n".join([*parts, "</body></html>\n"])


def data(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """The figures as data for JSON."""
    return [
        {
            "name": figure.name,
            "title": figure.title,
            "across": figure.across,
            "unit": figure.unit,
            "curves": {n: [p._asdict() for p in points] for n, points in figure.curves.items()},
            "reason": figure.reason,
        }
        for figure in figures
    ]


def _curves(figure: Figure) -> dict[str, list[plots.Value]]:
    return {
        name: [
            plots.Value(x, ours, None if paper is None else (paper, paper))
            for x, ours, paper in points
        ]
        for name, points in figure.curves.items()
    }


def _rows(figure: Figure) -> Iterator[tuple[str, ...]]:
    yield (figure.across, "curve", "paper", "ours", "difference")
    for name, points in figure.curves.items():
        for x, ours, paper in points:
            number = f"{ours:.{figure.digits}f}"
            if paper is None:
                yield (str(x), name, "", number, "")
            else:
                difference = f"{ours - paper:+.{figure.digits}f}"
                yield (str(x), name, f"{paper:.{figure.digits}f}", number, difference)
