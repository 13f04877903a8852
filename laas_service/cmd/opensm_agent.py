# SPDX-License-Identifier: Apache-2.0

"""laas-opensm-agent: takes the subnet manager's files to where OpenSM is, and looks after it."""

from __future__ import annotations

import sys
from contextlib import suppress

from oslo_config import cfg

from laas_service.cmd.process import configured, interrupt_on_sigterm
from laas_service.domain.errors import LaasError
from laas_service.wiring import Parts

CLI = [cfg.BoolOpt("once", default=False, help="One round, and a report of what came of it.")]


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; the step at hand is finished first, unless asked twice."""
    conf = configured("laas-opensm-agent", sys.argv[1:] if argv is None else argv, CLI)
    interrupt_on_sigterm()
    try:
        run(Parts(conf), conf.once)
    except LaasError as error:
        print(f"laas-opensm-agent: {error}", file=sys.stderr)
        return 1
    return 0


def run(parts: Parts, once: bool) -> None:
    """Look after OpenSM until a signal comes, or for one round. Raises: LaasError."""
    if once:
        seen = parts.opensm_agent.once()
        print(f"{seen.condition}{f': {seen.detail}' if seen.detail else ''}")
        return
    with parts.running_agent() as agent, suppress(KeyboardInterrupt):
        agent.wait()


if __name__ == "__main__":
    sys.exit(main())
