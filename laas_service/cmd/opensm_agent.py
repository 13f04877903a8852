# SPDX-License-Identifier: Apache-2.0

"""laas-opensm-agent: takes the subnet manager's files to where OpenSM is, and looks after it."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from types import FrameType

from oslo_config import cfg
from oslo_log import log as logging

from laas_service import conf as options
from laas_service.cmd import heaps
from laas_service.domain.errors import LaasError
from laas_service.wiring import Parts

LOG = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; the step at hand is finished first, unless asked twice."""
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    logging.register_options(conf)
    conf.register_cli_opt(
        cfg.BoolOpt("once", default=False, help="One round, and a report of what came of it.")
    )
    conf(sys.argv[1:] if argv is None else argv, project="laas", prog="laas-opensm-agent")
    logging.setup(conf, "laas-opensm-agent")
    heaps.share()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        run(Parts(conf), conf.once)
    except LaasError as error:
        print(f"laas-opensm-agent: {error}", file=sys.stderr)
        return 1
    return 0


def run(parts: Parts, once: bool) -> None:
    """Look after OpenSM until a signal comes, or for one round. Raises: LaasError."""
    if once:
        seen = parts.agent.once()
        print(f"{seen.condition}{f': {seen.detail}' if seen.detail else ''}")
        return
    with parts.attending() as agent, suppress(KeyboardInterrupt):
        agent.wait()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the waiting as SIGINT does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
