# SPDX-License-Identifier: Apache-2.0

"""SIGHUP: reads the configuration files again and applies the mutable options."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from laas_service import conf as options
from laas_service.conf import review

LOG = logging.getLogger(__name__)


def on_hangup(
    conf: cfg.ConfigOpts,
    args: Sequence[str],
    apply: Callable[[], None],
    switches: Sequence[Any] = (),
) -> None:
    """From now on SIGHUP reads the files again and calls ``apply``, which takes over changes.

    ``conf`` was made of ``args``, with the ``switches`` of the command. The files are read in a
    thread of their own, beside requests and steps. To be called in the main thread.
    """
    rung, bell = os.pipe()

    def hangup(number: int, frame: FrameType | None) -> None:
        os.write(bell, b"!")  # takes no lock, so that a second signal does no harm

    def listen() -> None:
        while os.read(rung, 1):
            try:
                _reload(conf, args, apply, switches)
            except Exception:
                LOG.exception("The configuration was not read again")

    threading.Thread(target=listen, name="laas-reload", daemon=True).start()
    signal.signal(signal.SIGHUP, hangup)


def _reload(
    conf: cfg.ConfigOpts,
    args: Sequence[str],
    apply: Callable[[], None],
    switches: Sequence[Any],
) -> None:
    """Apply all changes; none, if a file cannot be read or has a wrong value."""
    wrong = _wrong(args, switches)
    if wrong:
        for text in wrong:
            LOG.error("The configuration stays as it was: %s", text)
        return
    changed = conf.mutate_config_files()
    apply()
    LOG.info("The configuration was read again, %d options have changed", len(changed))


def _wrong(args: Sequence[str], switches: Sequence[Any]) -> list[str]:
    fresh = cfg.ConfigOpts()
    options.register_opts(fresh)
    fresh.register_cli_opts(switches)
    try:
        fresh(list(args), project="laas")
    except (cfg.Error, SystemExit) as error:
        return [str(error)]
    return review.wrong_values(fresh)
