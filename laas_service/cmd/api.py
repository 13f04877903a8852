# SPDX-License-Identifier: Apache-2.0

"""laas-api: serve the REST interface; with --all-in-one, run the worker in the same process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from types import FrameType

from flask import Flask
from oslo_config import cfg
from oslo_log import log as logging
from waitress.server import create_server

from laas_service.api.app import RELOAD, Settings, create_app
from laas_service.api.auth import middleware
from laas_service.app.use_cases import UseCases
from laas_service.cmd.process import daemon_configured, exit_status
from laas_service.cmd.reloading import on_hangup
from laas_service.domain.errors import LaasError
from laas_service.wiring import Parts

LOG = logging.getLogger(__name__)

REFUSED_UNREAD = 16 * 2**20
"""Bytes of a body up to which the application itself refuses it, with a problem document. The
HTTP server cuts longer bodies off."""

CLI = [
    cfg.BoolOpt(
        "all-in-one",
        default=False,
        help="Upgrade the database schema, and run the worker in the same process.",
    ),
]


def application(conf: cfg.ConfigOpts, use_cases: UseCases) -> Flask:
    """The WSGI application that a configuration describes.

    Raises:
        InvalidInput: authentication is off, and the address is not loopback.
    """
    return create_app(
        use_cases,
        conf,
        middleware(conf.api.auth_strategy, conf.api.bind_host, conf),
        settings(conf),
    )


def settings(conf: cfg.ConfigOpts) -> Settings:
    """The settings of the REST interface that a configuration gives."""
    return Settings(
        max_body=conf.api.max_body,
        max_wait=conf.api.max_wait,
        rate=conf.limits.rate,
        burst=conf.limits.burst,
        audit=conf.api.audit,
    )


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; requests in progress are finished first."""
    args = sys.argv[1:] if argv is None else argv
    conf = daemon_configured("laas-api", args, CLI)
    return exit_status("laas-api", lambda: serve(conf, Parts(conf), args), (LaasError, OSError))


def serve(conf: cfg.ConfigOpts, parts: Parts, args: Sequence[str] = ()) -> None:
    """Listen until a signal arrives; with --all-in-one, run the worker too.

    ``conf`` was made of ``args``. SIGHUP reads its files again.

    Raises:
        InvalidInput: an option has a wrong value.
        Unavailable: the database does not answer.
        OSError: the process cannot listen on the address.
    """
    if conf.all_in_one:
        parts.upgrade_database()
    wake = parts.worker.wake if conf.all_in_one else parts.waker
    app = application(conf, parts.use_cases(wake))
    parts.store.check()
    for fabric in parts.store.fabrics():  # slow for a large fabric, so before the first request
        parts.store.ledger(fabric.id)
    server = create_server(
        app,
        host=conf.api.bind_host,
        port=conf.api.bind_port,
        threads=conf.api.threads,
        max_request_body_size=max(conf.api.max_body, REFUSED_UNREAD),
        ident="laas",
        clear_untrusted_proxy_headers=False,  # oslo.middleware and auth.Loopback judge them
    )
    signal.signal(signal.SIGTERM, _stop)

    def reload() -> None:
        parts.reload()
        app.extensions[RELOAD](settings(conf))

    on_hangup(conf, args, reload, CLI)
    with parts.working(patience=10) if conf.all_in_one else nullcontext():
        LOG.info("Listening on http://%s:%s", server.effective_host, server.effective_port)
        try:
            server.run()
        finally:
            server.close()


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
