# SPDX-License-Identifier: Apache-2.0

"""Tables that fit the terminal: cliff's, with what does not fit shortened, wrapped or left out."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from cliff.formatters.table import TableFormatter
from cliff.utils import terminal_width

from laas_service.client.formatting import KEPT, LEFT_OUT_FIRST, MARK, SHORTENED, brief, shortened

PIPE_WIDTH = 160
"""Characters of a line in a pipe, if no word is longer; nothing is left out or cut there."""

UNBROKEN = 36
"""The longest word that is not broken: an id."""


class Table(TableFormatter):
    """Formats values as short texts. On a terminal, or with ``--fit-width`` or ``--max-width``, no
    line is longer than the width."""

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        rows = [[_cell(value) for value in row] for row in data]
        if width := _width(parsed_args):
            piped = not (sys.stdout.isatty() or parsed_args.fit_width or parsed_args.max_width)
            every = bool(parsed_args.columns)
            column_names, rows, left_out = fitted(list(column_names), rows, width, every, piped)
            if left_out:
                names = ", ".join(left_out)
                print(f"columns left out: {names} (show them with -c, or -f json)", file=sys.stderr)
        super().emit_list(column_names, rows, _Coloured(stdout), parsed_args)

    def emit_one(
        self,
        column_names: Sequence[str],
        data: Sequence[Any],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        cells = [_cell(value) for value in data]
        if width := _width(parsed_args):
            room = width - max(map(len, ("Field", *column_names))) - _frame(2)
            cells = [_wrapped(cell, room) for cell in cells]
        super().emit_one(column_names, cells, _Coloured(stdout), parsed_args)


class _Coloured(io.StringIO):
    """Colours what is marked, if it goes to a terminal."""

    def __init__(self, stdout: TextIO) -> None:
        super().__init__()
        self._to = stdout

    def write(self, text: str) -> int:
        if self._to.isatty() and "NO_COLOR" not in os.environ:
            text = re.sub(rf"(?<=\| ){MARK}\w+", "\x1b[1;31m\\g<0>\x1b[0m", text)
        return self._to.write(text)


def fitted(
    names: list[str], rows: list[list[Any]], width: int, every: bool = False, whole: bool = False
) -> tuple[list[str], list[list[Any]], list[str]]:
    """The columns and rows of a table of at most ``width`` characters, and the columns left out.

    In this order, until the table fits: columns without any value go, ids become short, long
    texts are wrapped between words, and columns go that ``LEFT_OUT_FIRST`` names, then those on the
    right, but for ``KEPT``. With ``every`` no column goes, so the table may be wider; with
    ``whole`` only those without any value go, and no id becomes short.
    """
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    left_out: list[str] = []
    if not every:
        for name in names:
            if _needs(columns, _longest_line) > width and not any(
                cell != "-" for cell in columns[name]
            ):
                del columns[name]
    for name in () if whole else columns:
        if _needs(columns, _longest_line) > width:
            if _field(name) in SHORTENED:
                columns[name] = shortened(columns[name])
            columns[name] = [_minute(cell) for cell in columns[name]]
    while (
        not (every or whole)
        and not columns.keys() <= _kept(columns)
        and _needs(columns, _longest_word) > width
    ):
        left_out.append(_least(columns))
        del columns[left_out[-1]]
    spare = width - _needs(columns, _longest_word)
    for name, cells in columns.items():
        least = _longest_word(name, cells)
        wide = min(_longest_line(name, cells), least + max(spare, 0))
        spare -= wide - least
        columns[name] = [_wrapped(cell, wide) for cell in cells]
    shown = [[cells[place] for cells in columns.values()] for place in range(len(rows))]
    return list(columns), shown, left_out


def _width(args: argparse.Namespace) -> int:
    """The width that a table has to fit, 0 for any."""
    if args.max_width > 0:
        return int(args.max_width)
    on_terminal = sys.stdout.isatty() or args.fit_width
    return 0 if args.wide else (terminal_width() or 0) if on_terminal else PIPE_WIDTH


def _cell(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number else brief(value)


def _frame(columns: int) -> int:
    """Characters of a line that cliff's table needs beside the texts."""
    return 3 * columns + 1


def _needs(columns: dict[str, list[Any]], measure: Callable[[str, list[Any]], int]) -> int:
    return _frame(len(columns)) + sum(measure(name, cells) for name, cells in columns.items())


def _longest_line(name: str, cells: list[Any]) -> int:
    return max(len(line) for cell in (name, *cells) for line in (str(cell).splitlines() or [""]))


def _longest_word(name: str, cells: list[Any]) -> int:
    """What a column needs if its texts are wrapped between words; its name is not wrapped."""
    words = (word for cell in cells for word in str(cell).split())
    return max(len(name), min(UNBROKEN, max(map(len, words), default=0)))


def _kept(columns: Iterable[str]) -> set[str]:
    """The columns that stay; the first one does, whatever it is."""
    return {name for place, name in enumerate(columns) if not place or _field(name) in KEPT}


def _least(columns: dict[str, list[Any]]) -> str:
    """The column that is missed least."""
    by_field = {_field(name): name for name in columns if name not in _kept(columns)}
    found = next((by_field[field] for field in LEFT_OUT_FIRST if field in by_field), None)
    return found or list(by_field.values())[-1]


def _minute(cell: Any) -> Any:
    """A time without its seconds; another cell as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d(\.\d+)?(Z|\+00:00)", str(cell))
    return f"{found[1]}T{found[2]}" if found else cell


def _field(name: str) -> str:
    """The name in REST of a column."""
    return name.lower().replace(" ", "_")


def _wrapped(cell: Any, width: int) -> Any:
    """The text in lines of at most ``width`` characters, broken between words if it can be."""
    if not isinstance(cell, str) or len(cell) <= width:
        return cell
    lines = cell.split("\n")
    wrap = textwrap.TextWrapper(width, break_on_hyphens=False)
    return "\n".join(part for line in lines for part in (wrap.wrap(line) or [""]))
