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
from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer, create_server

from laas_service.cmd.process import daemon_configured, exit_status
from laas_service.cmd.reloading import on_hangup
from laas_service.domain.errors import LaasError
from laas_service.garbage import Collector

if TYPE_CHECKING:
    from flask import Flask

    from laas_service.app.use_cases import UseCases
    from laas_service.wiring import Parts

LOG = logging.getLogger(__name__)

REFUSED_UNREAD = 16 * 2**20
"""Bytes of a body up to which the application itself refuses it, with a problem document. The
HTTP server cuts longer bodies off."""

CLOSING = 5
"""Seconds between two looks for connections that have timed out."""

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


class RequestChannel(HTTPChannel):  # type: ignore[misc]
    """A connection on which the time-out counts from the first byte of a request.

    The server closes a connection whose ``last_activity`` is too long ago. Of waitress itself each
    byte counts as activity, so half a header could hold a connection for ever.
    """

    last_activity: float

    def handle_read(self) -> None:
        unfinished, since = self.request, self.last_activity
        super().handle_read()
        if unfinished is not None and self.request is unfinished:
            self.last_activity = since


def http_server(app: Flask, conf: cfg.ConfigOpts) -> BaseWSGIServer:
    """The server on the configured address, with the configured limits.

    Raises:
        OSError: the process cannot listen there.
    """
    server = create_server(
        app,
        host=conf.api.bind_host,
        port=conf.api.bind_port,
        threads=conf.api.threads,
        connection_limit=conf.api.connections,
        channel_timeout=conf.api.request_timeout,
        cleanup_interval=min(CLOSING, conf.api.request_timeout),
        asyncore_use_poll=True,  # select() knows 1024 descriptors only
        max_request_body_size=max(conf.api.max_body, REFUSED_UNREAD),
        ident="laas",
        clear_untrusted_proxy_headers=False,  # oslo.middleware and auth.Loopback judge them
    )
    for listener in [server, *server._map.values()]:  # several, for a name with several addresses
        listener.channel_class = RequestChannel
    return server


def application(conf: cfg.ConfigOpts, use_cases: UseCases) -> Flask:
    """The WSGI application that a configuration describes.

    Raises:
        InvalidInput: authentication is off, and the address is not loopback.
    """
    from laas_service.api.app import create_app
    from laas_service.api.auth import middleware

    authenticate = middleware(conf.api.auth_strategy, conf.api.bind_host, conf)
    return create_app(use_cases, conf, authenticate)


def unread_switches(conf: cfg.ConfigOpts, parts: Parts) -> str | None:
    """Why nobody reads the switches back; None if somebody does.

    A worker elsewhere may have other options of OpenSM; what it last recorded counts.
    """
    if "all_in_one" not in conf or not conf.all_in_one:
        fabrics = parts.store.fabrics()
        recorded = [parts.store.holding(fabric.id).applied_by for fabric in fabrics]
        if any(by is not None and by.was_read for by in recorded):
            return None
    return parts.unread_switches()


def warn(conf: cfg.ConfigOpts, parts: Parts) -> None:
    """Log that the database may lose requests, or that nobody reads the switches back.

    Raises:
        Unavailable: the database does not answer.
    """
    for weak in parts.weak_database():
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
    from laas_service.wiring import Parts

    return exit_status("laas-api", lambda: serve(conf, Parts(conf), argv), (LaasError, OSError))


def serve(conf: cfg.ConfigOpts, parts: Parts, args: Sequence[str] | None = None) -> None:
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
    use_cases = parts.use_cases(wake)
    app = application(conf, use_cases)
    collect_between_requests(app, parts.collector)
    parts.store.check()
    warn(conf, parts)
    for fabric in parts.store.fabrics():  # slow for a large fabric, so before the first request
        parts.store.ledger(fabric.id)
    use_cases.prepare()
    parts.collector.settle()
    sys.setswitchinterval(SWITCH)
    server = http_server(app, conf)
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
