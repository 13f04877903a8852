# SPDX-License-Identifier: Apache-2.0

"""An SVG drawing, part by part: boxes, lines, arrows, texts, in the colours of the page around it.

Lines and texts have the page's own text colour. Colours of owners are middle tones that can be read
on a light and on a dark ground. Lengths are user units; a line of text is 13 of them high.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from html import escape

BLUE, ORANGE, GREEN, PURPLE, RED = "#3579c4", "#d07a1e", "#2f9a5f", "#9560c4", "#d83a3a"
"""Owners, in the order in which a drawing needs them; red is a fault."""

LINE = 16
"""Height of a line of text."""

STANDALONE = (
    "<style>svg{color:#1b1f24;background:#ffffff}@media(prefers-color-scheme:dark)"
    "{svg{color:#e6edf3;background:#0d1117}}</style>"
)
"""Colours of a drawing that no page styles."""


class Canvas:
    """Collects the parts of one drawing of a size."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        at: str = "middle",
        bold: bool = False,
        size: float = 13,
        colour: str = "currentColor",
    ) -> None:
        """Words with their base line at y; ``at`` is start, middle or end."""
        weight = ' font-weight="bold"' if bold else ""
        fill = "" if colour == "currentColor" else f' fill="{colour}"'
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{at}" font-size="{size:g}"{weight}{fill}>'
            f"{escape(words)}</text>"
        )

    def note(self, x: float, y: float, words: str) -> None:
        """A sentence that begins at x, smaller than a title."""
        self.text(x, y, words, at="start", size=12)

    def lines(self, x: float, y: float, words: Iterable[str], *, at: str = "middle") -> None:
        """Lines of text, the first at y; smaller than a title."""
        for number, line in enumerate(words):
            self.text(x, y + number * (LINE - 1), line, at=at, size=12)

    def wrapped(self, x: float, y: float, words: str, letters: int, *, at: str = "middle") -> None:
        """Words in lines of at most so many letters."""
        self.lines(x, y, textwrap.wrap(words, letters), at=at)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        colour: str = "currentColor",
        fill: float = 0,
        dashed: bool = False,
        heavy: bool = False,
        round: float = 4,
    ) -> None:
        """A rectangle; ``fill`` is the part of its colour that covers it, 0 to 1."""
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round:g}" '
            f'fill="{colour}" fill-opacity="{fill:g}" stroke="{colour}" '
            f'stroke-width="{2.5 if heavy else 1.2}"{dashes}/>'
        )

    def card(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        title: str,
        words: Iterable[str] = (),
        *,
        colour: str = "currentColor",
        fill: float = 0.06,
        dashed: bool = False,
    ) -> None:
        """A box with a title and lines of text in its middle."""
        lines = list(words)
        self.box(x, y, width, height, colour=colour, fill=fill, dashed=dashed)
        top = y + height / 2 - len(lines) * (LINE - 1) / 2 + 4
        self.text(x + width / 2, top, title, bold=True)
        self.lines(x + width / 2, top + LINE, lines)

    def line(
        self,
        *points: tuple[float, float],
        colour: str = "currentColor",
        wide: float = 1.2,
        faint: float = 1,
        dashed: bool = False,
        arrow: bool = False,
    ) -> None:
        """A line from point to point; with ``arrow`` its end has a tip."""
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{wide:g}" '
            f'stroke-opacity="{faint:g}" stroke-linejoin="round"{dashes}/>'
        )
        if arrow:
            (x0, y0), (x1, y1) = points[-2:]
            long = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1)
            dx, dy = (x1 - x0) / long, (y1 - y0) / long
            back, aside = 5 + 2 * wide, 2.5 + wide
            corners = [
                (x1, y1),
                (x1 - back * dx - aside * dy, y1 - back * dy + aside * dx),
                (x1 - back * dx + aside * dy, y1 - back * dy - aside * dx),
            ]
            tip = "L".join(f"{x:.4g} {y:.4g}" for x, y in corners)
            self._parts.append(f'<path d="M{tip}z" fill="{colour}"/>')

    def dot(self, x: float, y: float, *, colour: str = "currentColor", size: float = 5) -> None:
        """A filled circle."""
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{size:g}" fill="{colour}"/>')

    def ring(self, x: float, y: float, *, colour: str = "currentColor", size: float = 5) -> None:
        """A circle that is not filled."""
        self._parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{size:g}" fill="none" stroke="{colour}" '
            'stroke-width="1.3"/>'
        )

    def cross(self, x: float, y: float, *, colour: str = RED, size: float = 6) -> None:
        """A cross: broken, or not allowed."""
        for way in (1, -1):
            self.line((x - size, y - way * size), (x + size, y + way * size), colour=colour, wide=3)

    def svg(self, title: str, *, alone: bool = False) -> str:
        """The drawing; ``alone`` as a file, else as a part of a page. ``title`` is read aloud."""
        name = escape(title, quote=True)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{name}" '
            f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" '
            f'height="{self.height:g}" font-family="sans-serif" fill="currentColor">'
            f"{STANDALONE if alone else ''}<title>{name}</title>{''.join(self._parts)}</svg>"
        )
