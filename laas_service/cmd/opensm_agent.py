# SPDX-License-Identifier: Apache-2.0

"""laas-opensm-agent: fetches sets of files for the OpenSM of this machine, and supervises it."""

from __future__ import annotations

import sys
from contextlib import suppress

from oslo_config import cfg

from laas_service.cmd.process import daemon_configured, exit_status, interrupt_on_sigterm
from laas_service.garbage import Collector

CLI = [
    cfg.BoolOpt(
        "once", default=False, help="Run one round, print the condition of OpenSM, and exit."
    )
]


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; a second signal also interrupts the present step."""
    conf = daemon_configured("laas-opensm-agent", argv, CLI)
    interrupt_on_sigterm()
    return exit_status("laas-opensm-agent", lambda: run(conf))


def run(conf: cfg.ConfigOpts) -> None:
    """Supervise OpenSM until a signal arrives, or for one round. Raises: LaasError."""
    from laas_service.wiring import agent

    if conf.once:
        report = agent.agent(conf).once()
        print(f"{report.condition}{f': {report.detail}' if report.detail else ''}")
        return
    collector = Collector()
    with agent.running(conf, collector) as running, suppress(KeyboardInterrupt):
        collector.settle()
        running.wait()


if __name__ == "__main__":
    sys.exit(main())
