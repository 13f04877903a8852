# SPDX-License-Identifier: Apache-2.0

"""SIGHUP: the configuration files are read again, and what may change in a process does."""

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
    """From now on SIGHUP has the files read again; ``apply`` then takes over what has changed.

    ``conf`` was made of ``args``, with the ``switches`` of the command. It happens in a thread
    of its own: requests and steps go on. To be called in the main thread.
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
    """All of it, or nothing: a file that cannot be read or has a wrong value changes nothing."""
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
