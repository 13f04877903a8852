# SPDX-License-Identifier: Apache-2.0

"""Charts as SVG text, drawn by matplotlib, without scripts or embedded fonts.

Matplotlib is an extra of the package (``laas-service[report]``): only charts need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from io import StringIO
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

from laas_service.domain.errors import NotSupported

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999933")
"""Colours that people with any colour vision can tell apart (Okabe and Ito, 2008)."""
MARKERS = "os^DvPX*"
SIZE = (9.0, 3.6)
"""Width and height of a chart in inches of 72 points."""

_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "laas",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#dddddd",
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "figure.figsize": SIZE,
}
_UNITS = ((172800, 86400, "days"), (7200, 3600, "hours"), (120, 60, "minutes"), (0, 1, "seconds"))
"""Time axes: the shortest span, the seconds of the unit, and its name."""
_NARROW = 0.6
"""An axis of values begins at 0 unless the lowest is above this share of the highest."""
_WIDE = 50
"""An axis is logarithmic if all values are above 0 and span at least this factor."""
_TICKS = 9
"""The most points across that are marked each."""


class Value(NamedTuple):
    """A point of a curve, and the range that a paper states for it."""

    x: float | str
    value: float
    published: tuple[float, float] | None = None
    """(lowest, highest); equal for a single value."""


def require_matplotlib() -> None:
    """Fail before hours of simulation where charts could not be drawn.

    Raises:
        NotSupported: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise NotSupported(
            "charts need matplotlib: pip install 'laas-service[report]'; without it, use --json"
            " FILE and report --format rst"
        )


def compared(curves: Mapping[str, Sequence[Value]], unit: str, across: str = "") -> str:
    """A chart of curves over ``across``, beside what a paper states; empty without a point.

    Curves are lines if ``x`` are three numbers or more, and dots beside each other otherwise.
    """
    places = list(dict.fromkeys(point.x for points in curves.values() for point in points))
    if not places:
        return ""
    with _figure() as (figure, axes, svg):
        over_numbers = len(places) > 2 and all(isinstance(place, int | float) for place in places)
        draw = _lines if over_numbers else _dots
        draw(axes, curves, places)
        values = [
            number
            for points in curves.values()
            for point in points
            for number in (point.value, *(point.published or ()))
        ]
        _value_axis(axes, values, unit)
        axes.set_xlabel(across)
        if any(point.published for points in curves.values() for point in points):
            axes.plot([], [], color="#777777", linewidth=6, alpha=0.35, label="paper")
        _legend(figure, axes)
        return svg()


def steps(
    series: Mapping[str, Sequence[tuple[float, float]]], unit: str, most: float | None = None
) -> str:
    """Curves of (seconds, value) over time; each value holds until the next time.

    The axis ends at ``most``, or above the largest value. Empty without a point.
    """
    ends = [time for points in series.values() for time, _ in points]
    if not ends:
        return ""
    first, span = min(ends), max(ends) - min(ends)
    seconds, name = time_unit(span)
    with _figure() as (figure, axes, svg):
        for (label, points), colour in zip(series.items(), cycle(COLOURS), strict=False):
            times = [(time - first) / seconds for time, _ in points]
            values = [value for _, value in points]
            axes.step(times, values, where="post", color=colour, label=label, alpha=0.85)
        axes.set_xlim(0, max(span / seconds, 1e-9))
        axes.set_ylim(0, most)
        axes.set_xlabel(f"{name} since the start")
        axes.set_ylabel(unit)
        _legend(figure, axes)
        return svg()


def time_unit(span: float) -> tuple[int, str]:
    """The unit for this many seconds: its length in seconds, and its name."""
    return next((size, name) for least, size, name in _UNITS if span >= least)


def _lines(
    axes: Axes, curves: Mapping[str, Sequence[Value]], places: Sequence[float | str]
) -> None:
    """Lines over numbers; each point of a paper is a bar behind the line, of the same colour."""
    numbers = sorted(float(place) for place in places)
    if numbers[0] > 0 and numbers[-1] / numbers[0] >= _WIDE:
        axes.set_xscale("log")
        axes.minorticks_off()
    if len(numbers) <= _TICKS:
        axes.set_xticks(numbers, [f"{number:,g}" for number in numbers])
    for (label, points), colour, marker in _styled(curves):
        points = sorted(points, key=lambda point: float(point.x))
        across = [float(point.x) for point in points]
        axes.plot(across, [p.value for p in points], color=colour, marker=marker, label=label)
        _published(axes, list(zip(across, points, strict=True)), colour)


def _dots(axes: Axes, curves: Mapping[str, Sequence[Value]], places: Sequence[float | str]) -> None:
    """Dots of all curves beside each other at each place."""
    step = 0.7 / max(1, len(curves))
    for number, ((label, points), colour, marker) in enumerate(_styled(curves)):
        shift = (number - (len(curves) - 1) / 2) * step
        across = [places.index(point.x) + shift for point in points]
        values = [point.value for point in points]
        axes.plot(across, values, color=colour, marker=marker, linestyle="", label=label)
        _published(axes, list(zip(across, points, strict=True)), colour)
    names = [str(place) for place in places]
    crowded = sum(map(len, names)) > 100
    axes.set_xticks(
        range(len(places)),
        names,
        rotation=20 if crowded else 0,
        horizontalalignment="right" if crowded else "center",
    )
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.grid(False, axis="x")


def _published(axes: Axes, points: Sequence[tuple[float, Value]], colour: str) -> None:
    for across, point in points:
        if point.published is None:
            continue
        low, high = point.published
        if low == high:
            axes.plot(
                [across], [low], color=colour, marker="_", markersize=13, alpha=0.45,
                markeredgewidth=4,
            )  # fmt: skip
        else:
            axes.vlines(across, low, high, color=colour, linewidth=6, alpha=0.35)


def _styled(
    curves: Mapping[str, Sequence[Value]],
) -> Iterator[tuple[tuple[str, Sequence[Value]], str, str]]:
    return zip(curves.items(), cycle(COLOURS), cycle(MARKERS), strict=False)


def _value_axis(axes: Axes, values: Sequence[float], unit: str) -> None:
    low, high = min(values), max(values)
    axes.set_ylabel(unit)
    if low > 0 and high / low >= _WIDE:
        axes.set_yscale("log")
    elif 0 <= low <= _NARROW * high:
        axes.set_ylim(bottom=0)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside right upper", frameon=False)
    elif labels:
        axes.set_title(labels[0], fontsize=9, loc="left")


@contextmanager
def _figure() -> Iterator[tuple[Figure, Axes, Callable[[], str]]]:
    """An empty figure, its axes, and the function that returns it as SVG.

    Raises:
        NotSupported: matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(layout="constrained")
        axes = figure.add_subplot()

        def svg() -> str:
            text = StringIO()
            figure.savefig(text, format="svg", transparent=True)
            drawn = text.getvalue()
            drawn = drawn[drawn.index("<svg") :]
            return re.sub(r"\s*<metadata>.*?</metadata>", "", drawn, count=1, flags=re.DOTALL)

        yield figure, axes, svg
