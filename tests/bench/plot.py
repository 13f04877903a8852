# SPDX-License-Identifier: Apache-2.0

"""Cost against size: ``python -m tests.bench.plot FIGURES.json PLOT.svg``.

``python -m tests.bench.policies --json FIGURES.json`` writes the figures. Both axes are
logarithmic. A solid line is the mean of a policy, a dashed line its 99th percentile.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from laas_service.simulator.plots import COLOURS

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 70, 20, 50, 50


class _Axis:
    """A logarithmic axis from ``low`` to ``high``, drawn from pixel ``start`` to ``end``."""

    def __init__(self, low: float, high: float, start: int, end: int) -> None:
        self._low, self._span = math.log10(low), math.log10(high) - math.log10(low)
        self._start, self._length = start, end - start

    def at(self, value: float) -> float:
        return self._start + (math.log10(value) - self._low) / self._span * self._length


def plot(rows: list[dict[str, Any]]) -> str:
    """SVG text of the rows with the times of all requests of a fabric."""
    rows = [row for row in rows if row["what"] == "all"]
    sizes = sorted({row["hosts"] for row in rows})
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    costs = [row[key] for row in rows for key in ("mean", "p99")]
    powers = range(math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs))) + 1)
    across = _Axis(sizes[0], sizes[-1], LEFT, WIDTH - RIGHT)
    up = _Axis(10 ** powers[0], 10 ** powers[-1], HEIGHT - BOTTOM, TOP)
    parts = [_text(LEFT, 16, "microseconds a request: mean, and 99th percentile (dashed)")]
    parts += [_text(across.at(size), HEIGHT - BOTTOM + 18, f"{size:,}", "middle") for size in sizes]
    for power in powers:
        y = up.at(10**power)
        parts.append(_line([(LEFT, y), (WIDTH - RIGHT, y)], "#ddd"))
        parts.append(_text(LEFT - 6, y + 4, f"{10**power:,}", "end"))
    parts.append(_text(WIDTH - RIGHT, HEIGHT - 10, "hosts of the fabric", "end"))
    for number, policy in enumerate(policies):
        colour = COLOURS[number]
        parts.append(_text(LEFT + 90 * number, 36, policy, colour=colour))
        mine = sorted((row for row in rows if row["policy"] == policy), key=lambda r: r["hosts"])
        for key, dashes in (("mean", ""), ("p99", "6 4")):
            points = [(across.at(row["hosts"]), up.at(row[key])) for row in mine]
            parts.append(_line(points, colour, dashes))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
    )


def _line(points: list[tuple[float, float]], colour: str, dashes: str = "") -> str:
    at = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline fill="none" stroke="{colour}"{dashed} points="{at}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path)
    parser.add_argument("plot", type=Path)
    options = parser.parse_args()
    options.plot.write_text(plot(json.loads(options.figures.read_text())))


if __name__ == "__main__":
    main()
