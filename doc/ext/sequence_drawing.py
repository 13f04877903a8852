# SPDX-License-Identifier: Apache-2.0

"""``.. sequence:: TITLE``: who calls whom, and in which order, drawn from lines of text.

The first line names the parts from left to right, with ``|`` between them. Every other line is one
step: ``A -> B: what`` is a call, ``A <- B: what`` its answer, ``A: what`` something that A does
alone. A build fails if a step names no part. Builders other than HTML show the lines.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from html import escape
from typing import ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

LANE, HEAD, LINE, GAP = 172, 44, 15, 16
"""Units of the drawing: width of a part, height of the names, of a line of text, between steps."""

CHARACTERS = 24
"""Characters of a line of text that fit in the width of one part."""

_STEP = re.compile(r"(?P<left>[^:<>|]+?)(?: (?P<way>->|<-) (?P<right>[^:<>|]+?))?: (?P<what>.+)")


@dataclass(frozen=True)
class Step:
    """One line: ``what`` happens at the part ``first``, or goes from there to ``last``."""

    first: int
    last: int
    what: str
    answer: bool = False


def parsed(lines: list[str]) -> tuple[list[str], list[Step]]:
    """The names of the parts, and the steps. Raises: ValueError."""
    names = [name.strip() for name in lines[0].split("|")]
    steps = []
    for line in lines[1:]:
        found = _STEP.fullmatch(line.strip())
        if found is None:
            raise ValueError(f"{line!r} is not 'A -> B: what', 'A <- B: what' or 'A: what'")
        ends = (found["left"], found["right"] or found["left"])
        if wrong := [end for end in ends if end not in names]:
            raise ValueError(f"{wrong[0]!r} is not among {', '.join(names)}")
        first, last = map(names.index, ends)
        if found["way"] == "<-":
            steps.append(Step(last, first, found["what"], answer=True))
        else:
            steps.append(Step(first, last, found["what"]))
    return names, steps


def drawing(title: str, names: list[str], steps: list[Step]) -> str:
    """The drawing as SVG, in the colours of the text around it."""
    parts, top = list[str](), HEAD + GAP
    for number, step in enumerate(steps, 1):
        wide = max(1, abs(step.first - step.last))
        lines = textwrap.wrap(f"{number}. {step.what}", CHARACTERS * wide)
        start, end = _middle(step.first), _middle(step.last)
        alone = start == end
        x = start + 8 if alone else (start + end) / 2
        parts += [
            f'<text x="{x:g}" y="{top + LINE * row:g}" '
            f'text-anchor="{"start" if alone else "middle"}">{escape(text)}</text>'
            for row, text in enumerate(lines, 1)
        ]
        top += LINE * len(lines)
        if alone:
            parts.append(
                f'<rect x="{start - 4:g}" y="{top - LINE * len(lines) + 3:g}" width="8" '
                f'height="{LINE * len(lines):g}" fill="currentColor"/>'
            )
            top += GAP / 2
        else:
            top += 6
            tip = end - (8 if end > start else -8)
            dashes = ' stroke-dasharray="5 3"' if step.answer else ""
            parts.append(
                f'<path d="M{start:g} {top:g}H{end:g}" stroke="currentColor" fill="none"{dashes}/>'
                f'<path d="M{tip:g} {top - 4:g}L{end:g} {top:g}L{tip:g} {top + 4:g}z" '
                'fill="currentColor"/>'
            )
        top += GAP
    width, height = LANE * len(names), top + GAP
    for number, name in enumerate(names):
        x = _middle(number)
        parts.append(
            f'<rect x="{x - LANE / 2 + 6:g}" y="8" width="{LANE - 12}" height="{HEAD - 14}" '
            'fill="none" stroke="currentColor" rx="3"/>'
            f'<text x="{x:g}" y="{HEAD / 2 + 6:g}" text-anchor="middle" font-weight="bold">'
            f"{escape(name)}</text>"
            f'<path d="M{x:g} {HEAD}V{height:g}" stroke="currentColor" stroke-opacity="0.3"/>'
        )
    return (
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {width} {height:g}" '
        f'style="max-width:{width}px;width:100%;font:12px sans-serif" fill="currentColor" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>{"".join(parts)}</svg>'
    )


def _middle(part: int) -> float:
    return LANE * (part + 0.5)


class Sequence(SphinxDirective):
    """The directive."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, object]] = {}  # type: ignore[misc]

    def run(self) -> list[nodes.Node]:
        lines = [line for line in self.content if line.strip()]
        try:
            svg = drawing(self.arguments[0], *parsed(lines))
        except (IndexError, ValueError) as error:
            raise self.error(f"sequence: {error}") from error
        text = "\n".join(lines)
        if self.env.app.builder.format == "html":
            return [nodes.raw("", svg, format="html")]
        return [nodes.literal_block(text, text)]


def setup(app: Sphinx) -> dict[str, object]:
    app.add_directive("sequence", Sequence)
    return {"parallel_read_safe": True}
