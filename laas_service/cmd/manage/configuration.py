# SPDX-License-Identifier: Apache-2.0

"""The configuration that the arguments of a laas-manage command name."""

import argparse

from oslo_config import cfg

from laas_service.cmd.process import configured
from laas_service.domain.errors import InvalidInput


def configuration(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Read the configuration.

    Raises:
        InvalidInput: it cannot be read.
    """
    words = [f"--config-file={path}" for path in args.config_file or ()]
    words += [f"--config-dir={path}" for path in args.config_dir or ()]
    try:
        return configured("laas-manage", words)
    except cfg.Error as error:
        raise InvalidInput("configuration", " ".join(words), str(error)) from error
