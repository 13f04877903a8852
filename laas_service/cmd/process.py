# SPDX-License-Identifier: Apache-2.0

"""The start of a long-running process: its configuration, log and signals."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from types import FrameType
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from laas_service import conf as options
from laas_service.cmd import heaps


def configured(prog: str, args: Sequence[str], switches: Sequence[Any] = ()) -> cfg.ConfigOpts:
    """The configuration that ``args`` name; the log is set up by it.

    ``switches`` are the command's own options.
    """
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf.register_cli_opts(switches)
    conf(list(args), project="laas", prog=prog)
    logging.setup(conf, prog)
    heaps.share()
    return conf


def interrupt_on_sigterm() -> None:
    """From now on SIGTERM raises ``KeyboardInterrupt`` in the main thread, as SIGINT does."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
