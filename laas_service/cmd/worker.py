# SPDX-License-Identifier: Apache-2.0

"""laas-worker: reconcile Nova and the subnet manager with the recorded allocations."""

from __future__ import annotations

import sys
from contextlib import suppress

from laas_service.cmd.process import daemon_configured, exit_status, interrupt_on_sigterm
from laas_service.cmd.reloading import on_hangup
from laas_service.wiring import Parts


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. The first finishes the current step; a second aborts it."""
    args = sys.argv[1:] if argv is None else argv
    conf = daemon_configured("laas-worker", args)
    interrupt_on_sigterm()
    parts = Parts(conf)
    on_hangup(conf, args, parts.reload)
    return exit_status("laas-worker", lambda: work(parts))


def work(parts: Parts) -> None:
    """Run the worker until a signal arrives. Raises: InvalidInput."""
    with parts.working() as worker, suppress(KeyboardInterrupt):
        worker.wait()


if __name__ == "__main__":
    sys.exit(main())
