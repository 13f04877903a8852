# SPDX-License-Identifier: Apache-2.0

"""Process start-up, shared by all commands: configuration, log, signals, exit status."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from laas_service import conf as options
from laas_service.cmd import heaps
from laas_service.domain.errors import LaasError


def registered(switches: Sequence[Any] = ()) -> cfg.ConfigOpts:
    """A configuration that knows the service's options and the command's own ``switches``.

    It has read no file yet.
    """
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf.register_cli_opts(switches)
    return conf


def configured(
    prog: str, args: Sequence[str], switches: Sequence[Any] = (), **files: Any
) -> cfg.ConfigOpts:
    """Read the configuration that ``args`` name, and set up the log.

    ``switches`` are the command's own options. ``files`` are ``default_config_files`` and
    ``default_config_dirs``, to be read where ``args`` name none.

    Raises:
        cfg.Error: a file or an option cannot be read.
    """
    conf = registered(switches)
    conf(list(args), project="laas", prog=prog, **files)
    logging.setup(conf, prog)
    return conf


def daemon_configured(
    prog: str, args: Sequence[str], switches: Sequence[Any] = ()
) -> cfg.ConfigOpts:
    """As ``configured``, for a process that runs for months with many threads."""
    conf = configured(prog, args, switches)
    heaps.limit_heaps()
    return conf


def exit_status(
    prog: str, run: Callable[[], None], errors: tuple[type[Exception], ...] = (LaasError,)
) -> int:
    """Run a process; 0, or 1 after one of ``errors``, which is printed to standard error."""
    try:
        run()
    except errors as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    return 0


def interrupt_on_sigterm() -> None:
    """Make SIGTERM raise ``KeyboardInterrupt`` in the main thread, as SIGINT does."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
