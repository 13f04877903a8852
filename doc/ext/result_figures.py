# SPDX-License-Identifier: Apache-2.0

"""Tables of published and measured results as figures, with the table behind each.

A table is one of results if its columns are those that ``laas-simulate`` writes: a value across,
the curve or policy, the paper's value, ours, and the difference. A table of costs begins with
hosts, policy, and the mean, median, 99th percentile and maximum of a request that is placed. The
title of both ends with the unit. The figure is drawn at every build and not stored, so it cannot
differ from the table. Builders other than HTML show the table. The build warns of a table that has
the paper's values in other columns.
"""

from __future__ import annotations

import re
from html import escape

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

from laas_service.simulator.plots import Value, compared

LOG = logging.getLogger(__name__)

Row = tuple[str, ...]


class ResultFigures(SphinxTransform):
    """Puts a figure before every table of results, and folds the table."""

    default_priority = 900

    def apply(self, **_: object) -> None:
        for table in list(self.document.findall(nodes.table)):
            heading, *rows = [
                tuple(entry.astext().strip() for entry in row.findall(nodes.entry))
                for row in table.findall(nodes.row)
            ]
            if len(heading) == 5 and heading[2:] == ("paper", "ours", "difference"):
                curves = result_curves(rows)
            elif heading[:3] == ("hosts", "policy", "placing"):
                curves = cost_curves(rows)
            else:
                if "paper" in heading:
                    LOG.warning("no figure for the columns %s", heading, location=table)
                continue
            (title,) = (one.astext() for one in table.findall(nodes.title))
            unit = title.rpartition(", ")[2]
            _replace(table, title, compared(curves, unit, heading[0]))


def cost_curves(rows: list[Row]) -> dict[str, list[Value]]:
    """Mean and 99th percentile of rows (hosts, policy, "mean / median / 99th / maximum", ...)."""
    curves: dict[str, list[Value]] = {}
    for hosts, policy, placing, *_ in rows:
        mean, _, tail, _ = (float(part.replace(",", "")) for part in placing.split(" / "))
        for curve, value in ((policy, mean), (f"{policy}, 99th percentile", tail)):
            curves.setdefault(curve, []).append(Value(float(hosts.replace(",", "")), value))
    return curves


def result_curves(rows: list[Row]) -> dict[str, list[Value]]:
    """The curves of rows (x, curve, paper, ours, difference)."""
    curves: dict[str, list[Value]] = {}
    numeric = all(_number(row[0]) is not None for row in rows)
    for x, curve, paper, ours, _ in rows:
        value = _number(ours)
        if value is not None:
            place = float(x) if numeric else x
            curves.setdefault(curve, []).append(Value(place, value, _range(paper)))
    return curves


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _range(text: str) -> tuple[float, float] | None:
    """``90.0`` or ``90.0 to 91.0``; None for nothing."""
    numbers = [float(part) for part in re.split(r"\s+to\s+", text) if part]
    return (numbers[0], numbers[-1]) if numbers else None


def _replace(table: nodes.table, title: str, svg: str) -> None:
    def html(text: str) -> nodes.raw:
        return nodes.raw("", text, format="html")

    name = escape(title, quote=True)
    shown = svg.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
    before = html(
        f'<figure class="result"><figcaption>{name}</figcaption>{shown}</figure>'
        "<details><summary>The table behind this figure</summary>"
    )
    table.replace_self([before, table.deepcopy(), html("</details>")])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(ResultFigures)
    app.add_css_file("figures.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
