# SPDX-License-Identifier: Apache-2.0

"""laas-worker: reconcile Nova and the subnet manager with the recorded allocations."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from oslo_log import log as logging

from laas_service.cmd.process import daemon_configured, exit_status, interrupt_on_sigterm
from laas_service.cmd.reloading import on_hangup

if TYPE_CHECKING:
    from laas_service.wiring.composition import Composition

LOG = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. The first finishes the current step; a second aborts it."""
    conf = daemon_configured("laas-worker", argv)
    from laas_service.wiring.composition import Composition

    interrupt_on_sigterm()
    parts = Composition(conf)
    on_hangup(conf, argv, parts.reload)
    return exit_status("laas-worker", lambda: work(parts))


def work(parts: Composition) -> None:
    """Run the worker until a signal arrives. Raises: InvalidInput, Unavailable."""
    for weak in parts.database.weak_settings():
        LOG.warning(weak)
    if unread := parts.subnet_managers.unread_switches():
        LOG.warning(unread)
    with parts.working() as worker, suppress(KeyboardInterrupt):
        parts.collector.settle()
        worker.wait()


if __name__ == "__main__":
    sys.exit(main())
