# SPDX-License-Identifier: Apache-2.0

"""Helpers of all laas-manage commands: configuration, choice of a fabric, output."""

import argparse
import sys
from pathlib import Path

from oslo_config import cfg
from rich.console import Console
from rich.table import Table

from laas_service.app.records import FabricRecord
from laas_service.cmd.process import configured
from laas_service.domain.errors import InvalidInput
from laas_service.wiring import Parts

PIPE_WIDTH = 240
"""Characters of a line in a pipe or a file; the longest row of a table has fewer."""


def parts_of(args: argparse.Namespace) -> Parts:
    """The service's parts, from the configuration that the arguments name.

    Raises:
        InvalidInput: the configuration cannot be read.
    """
    words = [f"--config-file={path}" for path in args.config_file or ()]
    words += [f"--config-dir={path}" for path in args.config_dir or ()]
    try:
        conf = configured("laas-manage", words)
    except cfg.Error as error:
        raise InvalidInput("configuration", " ".join(words), str(error)) from error
    return Parts(conf)


def fabric_of(parts: Parts, id: str | None) -> FabricRecord:
    """The fabric of this id, of ``[api] default_fabric`` if none is given, or else the only one.

    Raises:
        NotFound: there is no such fabric.
        InvalidInput: no id is given or configured, and the service manages none or several.
    """
    if id := id or parts.default_fabric:
        return parts.store.fabric(id)
    fabrics = parts.store.fabrics()
    if len(fabrics) != 1:
        ids = ", ".join(fabric.id for fabric in fabrics)
        raise InvalidInput("--fabric", "", f"name one of {ids or 'none'}")
    return fabrics[0]


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
