# SPDX-License-Identifier: Apache-2.0

"""The HTTP server of laas-api: waitress, with time-outs that no client can extend.

The server's main loop moves all bytes, and threads run requests only. So a client costs a thread
only while its request is decided, whatever it sends or leaves unread.
"""

from __future__ import annotations

import fcntl
import functools
import socket
import struct
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import BaseWSGIServer, create_server

if TYPE_CHECKING:
    from flask import Flask
    from oslo_config import cfg

REFUSED_UNREAD = 16 * 2**20
"""Bytes of a body up to which the application itself refuses it, with a problem document. The
HTTP server cuts longer bodies off."""

CLOSING = 5
"""Seconds between two looks for connections that have timed out."""

SEND_BUFFER = 2**18
"""Bytes of answers that the system may hold for a client (SO_SNDBUF, which Linux doubles)."""

DISCARD = struct.pack("ii", 1, 0)
"""Value of SO_LINGER that makes the system forget unsent bytes when the socket closes."""


class RequestParser(HTTPRequestParser):  # type: ignore[misc]
    """Reads one request; gives the bytes after its end to ``keep``.

    Waitress itself would read all requests of a packet, and answer one after the other whether or
    not the client reads the answers.
    """

    def __init__(self, adj: Any, keep: Callable[[bytes], None]) -> None:
        super().__init__(adj)
        self._keep = keep

    def received(self, data: bytes) -> int:
        taken = int(super().received(data))
        if not self.completed or taken >= len(data):
            return taken
        self._keep(data[taken:])
        return len(data)


class RequestChannel(HTTPChannel):  # type: ignore[misc]
    """A connection on which no byte of a request or of an answer waits longer than the time-out.

    The server ends a connection whose ``last_activity`` is too long ago: when the request under
    way began, or when the peer last took bytes of an answer. Waitress alone differs in three ways.
    Each received byte counts as activity, so half a header could hold a connection for ever. A
    connection that timed out ends only once the peer takes bytes. Further requests are answered
    although earlier answers are unread, until the thread has to wait for the peer.
    """

    last_activity: float

    _later = b""
    """Received after the end of the present request."""

    _given = 0
    """Bytes that the system got for the peer."""

    _taken = 0
    """How many of them the peer's system had taken at the last look."""

    def __init__(self, server: BaseWSGIServer, sock: socket.socket, *args: Any, **kw: Any) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        super().__init__(server, sock, *args, **kw)

    def parser_class(self, adj: Any) -> RequestParser:
        """The parser of the next request."""
        return RequestParser(adj, self._keep)

    def _keep(self, data: bytes) -> None:
        self._later = data

    def handle_read(self) -> None:
        unfinished, since = self.request, self.last_activity
        super().handle_read()
        if unfinished is not None and self.request is unfinished:
            self.last_activity = since

    def readable(self) -> bool:
        return bool(not self._later and super().readable())

    def writable(self) -> bool:
        if self.will_close:
            self._end()
        return bool(self._next_is_due or super().writable())

    def handle_write(self) -> None:
        super().handle_write()
        if self._next_is_due:
            data, self._later = self._later, b""
            self.received(data)

    @property
    def _next_is_due(self) -> bool:
        """Whether all requests so far are answered, all answers sent, and further bytes here."""
        return bool(
            self._later
            and self.connected
            and not (self.requests or self.total_outbufs_len)
            and not (self.will_close or self.close_when_flushed)
        )

    def send(self, data: bytes, do_close: bool = True) -> int:
        sent = int(super().send(data, do_close))
        self._given += sent
        return sent

    def look(self, now: float) -> None:
        """Count it as activity if the peer took bytes since the last look."""
        before, self._taken = self._taken, self._given - untaken(self.socket)
        if self._taken > before and self.request is None:
            self.last_activity = now

    def _end(self) -> None:
        """Make the main loop close the connection now, although the peer takes no bytes."""
        with suppress(OSError):  # the connection has ended already
            if self.total_outbufs_len or untaken(self.socket):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, DISCARD)
            self.socket.shutdown(socket.SHUT_RDWR)


def untaken(connection: socket.socket) -> int:
    """Bytes that the system holds until the peer's system takes them (SIOCOUTQ of tcp(7))."""
    held = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(held, sys.byteorder)


def end_idle(listener: BaseWSGIServer, now: float) -> None:
    """End the connections of a listener on which nothing moved for the time-out."""
    for channel in listener.active_channels.values():
        channel.look(now)
    BaseWSGIServer.maintenance(listener, now)


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
        outbuf_high_watermark=sys.maxsize,  # above it a thread would wait for the client
        max_request_body_size=REFUSED_UNREAD,
        ident="laas",
        log_socket_errors=False,  # clients end connections as they like
        clear_untrusted_proxy_headers=False,  # oslo.middleware and auth.Loopback judge them
    )
    for listener in [server, *server._map.values()]:  # several, for a name with several addresses
        listener.channel_class = RequestChannel
        listener.maintenance = functools.partial(end_idle, listener)
    return server
