# SPDX-License-Identifier: Apache-2.0

"""Helpers of all laas-manage commands: configuration, choice of a fabric, output."""

import argparse
import sys
from pathlib import Path

from oslo_config import cfg

from laas_service.app.records import FabricRecord
from laas_service.cmd.process import configured
from laas_service.domain.errors import InvalidInput
from laas_service.wiring import Parts


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
    """The fabric of this id, or the only one if none is given.

    Raises:
        InvalidInput: no id is given, and the service manages none or several.
    """
    if id is not None:
        return parts.store.fabric(id)
    fabrics = parts.store.fabrics()
    if len(fabrics) != 1:
        ids = ", ".join(fabric.id for fabric in fabrics)
        raise InvalidInput("id", "", f"name one of {ids or 'none'}")
    return fabrics[0]


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
