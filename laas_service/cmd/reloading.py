# SPDX-License-Identifier: Apache-2.0

"""SIGHUP: reads the configuration files again and applies the mutable options."""

import os
import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from laas_service import background
from laas_service.cmd.log_lines import make_printable
from laas_service.cmd.process import reason, registered
from laas_service.conf import review

LOG = logging.getLogger(__name__)


def on_hangup(
    conf: cfg.ConfigOpts,
    args: Sequence[str] | None,
    apply: Callable[[], None],
    switches: Sequence[Any] = (),
) -> None:
    """Make SIGHUP read the configuration files again and call ``apply`` with them in force.

    ``conf`` was made of ``args``, with the ``switches`` of the command. A thread of its own
    reads the files, so requests and steps go on. Call this in the main thread.
    """
    read_end, write_end = os.pipe()

    def hangup(number: int, frame: FrameType | None) -> None:
        os.write(write_end, b"!")  # takes no lock, so a second signal cannot block

    def listen() -> None:
        while os.read(read_end, 1):
            try:
                _reload(conf, args, apply, switches)
            except Exception:
                LOG.exception("The configuration was not read again")

    background.start("laas-reload", listen)
    signal.signal(signal.SIGHUP, hangup)


def _reload(
    conf: cfg.ConfigOpts,
    args: Sequence[str] | None,
    apply: Callable[[], None],
    switches: Sequence[Any],
) -> None:
    """Apply all changes; apply none if a file cannot be read or has a wrong value."""
    errors = _errors(args, switches)
    if errors:
        for error in errors:
            LOG.error("The configuration stays as it was: %s", error)
        return
    changed = conf.mutate_config_files()
    make_printable()  # of handlers that log_config_append names now
    apply()
    LOG.info("The configuration was read again, %d options have changed", len(changed))


def _errors(args: Sequence[str] | None, switches: Sequence[Any]) -> list[str]:
    """A sentence for each error in the files, read into a configuration of its own."""
    fresh = registered(switches)
    try:
        fresh(args, project="laas")
    except (cfg.Error, SystemExit, UnicodeDecodeError) as error:
        return [reason(error) if isinstance(error, Exception) else str(error)]
    return review.wrong_values(fresh)
