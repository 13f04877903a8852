# SPDX-License-Identifier: Apache-2.0

"""laas-opensm-agent: fetches sets of files for the OpenSM of this machine, and supervises it."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from oslo_config import cfg

from laas_service.cmd.process import daemon_configured, exit_status, interrupt_on_sigterm

if TYPE_CHECKING:
    from laas_service.wiring import Parts

CLI = [
    cfg.BoolOpt(
        "once", default=False, help="Run one round, print the condition of OpenSM, and exit."
    )
]


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; a second signal also interrupts the present step."""
    conf = daemon_configured("laas-opensm-agent", argv, CLI)
    from laas_service.wiring import Parts

    interrupt_on_sigterm()
    return exit_status("laas-opensm-agent", lambda: run(Parts(conf), conf.once))


def run(parts: Parts, once: bool) -> None:
    """Supervise OpenSM until a signal arrives, or for one round. Raises: LaasError."""
    if once:
        report = parts.subnet_managers.agent.once()
        print(f"{report.condition}{f': {report.detail}' if report.detail else ''}")
        return
    with parts.running_agent() as agent, suppress(KeyboardInterrupt):
        parts.collector.settle()
        agent.wait()


if __name__ == "__main__":
    sys.exit(main())
