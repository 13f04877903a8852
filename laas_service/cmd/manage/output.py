# SPDX-License-Identifier: Apache-2.0

"""Output of laas-manage commands: tables, lines that fit a terminal, files."""

import shutil
import sys
import textwrap
from pathlib import Path

from rich.console import Console
from rich.table import Table

from laas_service.domain.errors import InvalidInput

PIPE_WIDTH = 240
"""Characters of a line in a pipe or a file; the longest row of a table has fewer."""

REPORT_WIDTH = 100
"""Characters of a line of a report in a pipe or a file."""


def fitted(line: str) -> str:
    """A line of a report as lines that fit the terminal; further ones are indented."""
    width = shutil.get_terminal_size((REPORT_WIDTH, 24)).columns if sys.stdout.isatty() else 0
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(
        line,
        max(width, 40) if width else REPORT_WIDTH,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def print_table(table: Table) -> None:
    """Print a table that fits the terminal, without cutting anything; elsewhere rows are lines."""
    for column in table.columns:
        column.overflow = "fold"
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def write(text: str, output: str | None) -> int:
    """Write to a file, or to standard output if ``output`` is None; the exit status 0.

    Raises:
        InvalidInput: the file cannot be written.
    """
    if output is None:
        sys.stdout.write(text)
        return 0
    try:
        Path(output).write_text(text)
    except OSError as error:
        fix = f"give a file that can be written ({(error.strerror or str(error)).lower()})"
        raise InvalidInput("output", output, fix) from error
    return 0
