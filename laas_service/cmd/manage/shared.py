# SPDX-License-Identifier: Apache-2.0

"""What the commands share: the service's parts, the fabric that is meant, writing a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from oslo_config import cfg
from oslo_log import log as logging

from laas_service import conf as options
from laas_service.app.records import FabricRecord
from laas_service.domain.errors import InvalidInput
from laas_service.wiring import Parts


def parts_of(args: argparse.Namespace) -> Parts:
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    given = [f"--config-file={path}" for path in args.config_file or ()]
    given += [f"--config-dir={path}" for path in args.config_dir or ()]
    try:
        conf(given, project="laas", prog="laas-manage")
    except cfg.Error as error:
        raise InvalidInput("configuration", " ".join(given), str(error)) from error
    logging.setup(conf, "laas-manage")
    return Parts(conf)


def fabric_of(parts: Parts, id: str | None) -> FabricRecord:
    """The named fabric, or the only one."""
    if id is not None:
        return parts.store.fabric(id)
    found = parts.store.fabrics()
    if len(found) != 1:
        raise InvalidInput("id", "", f"name one of {', '.join(x.id for x in found) or 'none'}")
    return found[0]


def write(text: str, output: str | None) -> int:
    if output is None:
        sys.stdout.write(text)
        return 0
    try:
        Path(output).write_text(text)
    except OSError as error:
        why = f"give a file that can be written ({(error.strerror or str(error)).lower()})"
        raise InvalidInput("output", output, why) from error
    return 0
