# SPDX-License-Identifier: Apache-2.0


"""laas-worker: drives Nova and the subnet manager towards what is recorded."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from types import FrameType

from oslo_config import cfg
from oslo_log import log as logging

from laas_service import conf as options
from laas_service.cmd import heaps
from laas_service.cmd.reloading import on_hangup
from laas_service.domain.errors import LaasError
from laas_service.wiring import Parts


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; the step at hand is finished first, unless asked twice."""
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    logging.register_options(conf)
    args = sys.argv[1:] if argv is None else argv
    conf(args, project="laas", prog="laas-worker")
    logging.setup(conf, "laas-worker")
    heaps.share()
    signal.signal(signal.SIGTERM, _interrupt)
    parts = Parts(conf)
    on_hangup(conf, args, parts.adopt)
    try:
        work(parts)
    except LaasError as error:
        print(f"laas-worker: {error}", file=sys.stderr)
        return 1
    return 0


def work(parts: Parts) -> None:
    """Converge until a signal comes. Raises: InvalidInput."""
    with parts.working() as worker, suppress(KeyboardInterrupt):
        worker.wait()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the waiting as SIGINT does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
