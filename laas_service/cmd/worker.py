# SPDX-License-Identifier: Apache-2.0


"""laas-worker: drives Nova and the subnet manager towards what is recorded."""

from __future__ import annotations

import sys
from contextlib import suppress

from laas_service.cmd.process import configured, interrupt_on_sigterm
from laas_service.cmd.reloading import on_hangup
from laas_service.domain.errors import LaasError
from laas_service.wiring import Parts


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; the step at hand is finished first, unless asked twice."""
    args = sys.argv[1:] if argv is None else argv
    conf = configured("laas-worker", args)
    interrupt_on_sigterm()
    parts = Parts(conf)
    on_hangup(conf, args, parts.reload)
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


if __name__ == "__main__":
    sys.exit(main())
