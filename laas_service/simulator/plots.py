# SPDX-License-Identifier: Apache-2.0

"""SVG bar charts and line charts as text, without scripts or embedded fonts."""

from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860", "#da8bc3")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 900, 260, 60, 40, 24
"""Size of a plot and its margins, in SVG user units."""


def bars(groups: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """A bar chart of group -> series -> value; the axis starts near the smallest value."""
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    values = [value for group in groups.values() for value in group.values()]
    if not values:
        return ""
    low = _floor(min(values), max(values))
    scale = _Scale(low, max(values))
    slot = (WIDTH - LEFT) / len(groups)
    width = slot * 0.8 / len(series)
    parts = [scale.axis(unit), _legend(series)]
    for i, (group, members) in enumerate(groups.items()):
        x = LEFT + i * slot + slot * 0.1
        for name, value in members.items():
            k = series.index(name)
            y = scale.y(value)
            parts.append(
                f'<rect x="{x + k * width:.1f}" y="{y:.1f}" width="{width * 0.9:.1f}" '
                f'height="{HEIGHT - BOTTOM - y:.1f}" fill="{COLOURS[k % len(COLOURS)]}">'
                f"<title>{escape(group)}, {escape(name)}: {value:.2f}</title></rect>"
            )
        parts.append(_text(x + slot * 0.4, HEIGHT - BOTTOM + 16, group, "middle"))
    return _svg(parts)


def lines(series: Mapping[str, Sequence[tuple[float, float]]], unit: str, across: str) -> str:
    """A step chart of name -> (time, value); each value holds until the next time."""
    points = [point for line in series.values() for point in line]
    if not points:
        return ""
    scale = _Scale(0, max(1.0, *(value for _, value in points)))
    first = min(time for time, _ in points)
    span = max(time for time, _ in points) - first or 1
    parts = [scale.axis(unit), _legend(list(series))]
    for k, line in enumerate(series.values()):
        path, last = [], None
        for time, value in line:
            x = LEFT + (time - first) / span * (WIDTH - LEFT - 10)
            if last is not None:
                path.append(f"{x:.1f},{last:.1f}")
            last = scale.y(value)
            path.append(f"{x:.1f},{last:.1f}")
        parts.append(
            f'<polyline fill="none" stroke="{COLOURS[k % len(COLOURS)]}" '
            f'points="{" ".join(path)}"/>'
        )
    parts.append(_text(WIDTH - 10, HEIGHT - BOTTOM + 30, across, "end"))
    return _svg(parts)


class _Scale:
    """Maps values to heights, and draws an axis with six marks."""

    def __init__(self, low: float, high: float) -> None:
        self.low = low
        self.high = high if high > low else low + 1

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)

    def axis(self, unit: str) -> str:
        marks = [self.low + (self.high - self.low) * i / 5 for i in range(6)]
        parts = [_text(LEFT, 12, unit, "start")]
        for mark in marks:
            y = self.y(mark)
            parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                + _text(LEFT - 6, y + 4, f"{mark:.4g}", "end")
            )
        return "".join(parts)


def _floor(low: float, high: float) -> float:
    """The value at which the axis starts: 0, unless the differences would then be hard to see."""
    return low - (high - low) if low > 0.7 * high else 0.0


def _legend(names: Sequence[str]) -> str:
    parts = []
    for k, name in enumerate(names):
        x = LEFT + 160 + k * 110
        parts.append(
            f'<rect x="{x}" y="3" width="10" height="10" fill="{COLOURS[k % len(COLOURS)]}"/>'
            + _text(x + 14, 12, name, "start")
        )
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="11">{"".join(parts)}</svg>'
    )
