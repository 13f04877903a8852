# SPDX-License-Identifier: Apache-2.0

"""laas-opensm-agent: fetches sets of files for the OpenSM of this machine, and supervises it."""

from __future__ import annotations

import sys
from contextlib import suppress

from oslo_config import cfg

from laas_service.cmd.process import configured, interrupt_on_sigterm
from laas_service.domain.errors import LaasError
from laas_service.wiring import Parts

CLI = [
    cfg.BoolOpt(
        "once", default=False, help="Run one round, print the condition of OpenSM, and exit."
    )
]


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; a second signal also interrupts the present step."""
    conf = configured("laas-opensm-agent", sys.argv[1:] if argv is None else argv, CLI)
    interrupt_on_sigterm()
    try:
        run(Parts(conf), conf.once)
    except LaasError as error:
        print(f"laas-opensm-agent: {error}", file=sys.stderr)
        return 1
    return 0


def run(parts: Parts, once: bool) -> None:
    """Supervise OpenSM until a signal arrives, or for one round. Raises: LaasError."""
    if once:
        report = parts.opensm_agent.once()
        print(f"{report.condition}{f': {report.detail}' if report.detail else ''}")
        return
    with parts.running_agent() as agent, suppress(KeyboardInterrupt):
        agent.wait()


if __name__ == "__main__":
    sys.exit(main())
