# SPDX-License-Identifier: Apache-2.0

"""laas-api: serve the REST interface; with --all-in-one, run the worker in the same process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING
from wsgiref.types import StartResponse, WSGIEnvironment

from oslo_config import cfg
from oslo_log import log as logging

from laas_service.cmd.http_server import http_server
from laas_service.cmd.process import daemon_configured, exit_status
from laas_service.cmd.reloading import on_hangup
from laas_service.domain.errors import InvalidInput, LaasError
from laas_service.garbage import Collector

if TYPE_CHECKING:
    from flask import Flask

    from laas_service.app.use_cases import UseCases
    from laas_service.wiring.composition import Composition

LOG = logging.getLogger(__name__)

SWITCH = 0.001
"""Seconds for which a thread computes while others wait. A request waits so long after each answer
of the database; Python's 5 ms add up to more than its own computing."""

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
    from laas_service.api.app import create_app
    from laas_service.api.auth import middleware

    authenticate = middleware(conf.api.auth_strategy, conf.api.bind_host, conf)
    return create_app(use_cases, conf, authenticate)


def unread_switches(conf: cfg.ConfigOpts, parts: Composition) -> str | None:
    """Why nobody reads the switches back; None if somebody does.

    A worker elsewhere may have other options of OpenSM; what it last recorded counts.
    """
    if "all_in_one" not in conf or not conf.all_in_one:
        fabrics = parts.store.fabrics.all()
        recorded = [parts.store.observations.holding(fabric.id).applied_by for fabric in fabrics]
        if any(by is not None and by.was_read for by in recorded):
            return None
    return parts.subnet_managers.unread_switches()


def warn(conf: cfg.ConfigOpts, parts: Composition) -> None:
    """Log that the database may lose requests, or that nobody reads the switches back.

    Raises:
        Unavailable: the database does not answer.
    """
    for weak in parts.database.weak_settings():
        LOG.warning(weak)
    if unread := unread_switches(conf, parts):
        LOG.warning(unread)


def collect_between_requests(app: Flask, collector: Collector) -> None:
    """Tell the collector of each request of the application."""
    wsgi_app = app.wsgi_app

    def busy(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with collector.busy():
            return wsgi_app(environ, start_response)

    app.wsgi_app = busy  # type: ignore[method-assign]


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; requests in progress are finished first."""
    conf = daemon_configured("laas-api", argv, CLI)
    from laas_service.wiring.composition import Composition

    return exit_status(
        "laas-api", lambda: serve(conf, Composition(conf), argv), (LaasError, OSError)
    )


def serve(conf: cfg.ConfigOpts, parts: Composition, args: Sequence[str] | None = None) -> None:
    """Listen until a signal arrives; with --all-in-one, run the worker too.

    ``conf`` was made of ``args``. SIGHUP reads its files again.

    Raises:
        InvalidInput: an option has a wrong value, or the address cannot be listened on.
        Unavailable: the database does not answer.
    """
    if conf.all_in_one:
        parts.database.upgrade()
    wake = parts.worker.wake if conf.all_in_one else parts.waker
    use_cases = parts.use_cases(wake)
    app = application(conf, use_cases)
    collect_between_requests(app, parts.collector)
    parts.store.check()
    warn(conf, parts)
    use_cases.prepare()  # slow for a large fabric, so before the first request
    parts.collector.settle()
    sys.setswitchinterval(SWITCH)
    try:
        server = http_server(app, conf)
    except OSError as error:
        raise InvalidInput(
            "[api] bind_host, bind_port",
            f"{conf.api.bind_host}:{conf.api.bind_port}",
            f"choose another address, or end the process that has it ({error.strerror})",
        ) from error
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    on_hangup(conf, args, parts.reload, CLI)
    with parts.working(patience=10) if conf.all_in_one else nullcontext():
        LOG.info("Listening on http://%s:%s", server.effective_host, server.effective_port)
        try:
            server.run()
        finally:
            server.close()


if __name__ == "__main__":
    sys.exit(main())
