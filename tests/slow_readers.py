# SPDX-License-Identifier: Apache-2.0

"""A client that pipelines requests and does not read the answers, for tests and the storm."""

from __future__ import annotations

import select
import socket
from types import TracebackType

PATH = "/v1/openapi.json"
"""A path whose answer is large, and that needs no token."""

WINDOW = 4096
"""Bytes that the client's system takes of the answers, before a reader exists (SO_RCVBUF)."""


class SlowReader:
    """A connection with many requests whose answers stay unread.

    ``sent`` is the number of bytes that the system took so far. All methods return at once.

    Raises:
        OSError: nobody listens on the port.
    """

    def __init__(
        self,
        port: int,
        path: str = PATH,
        requests: int = 126,
        headers: str = "",
        address: str = "127.0.0.1",
    ) -> None:
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"
        self._text = request.encode("latin-1") * requests
        self.sent = 0
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW)
        self._socket.settimeout(60)
        try:
            self._socket.connect((address, port))
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self.push()

    def push(self) -> None:
        """Send as many of the requests as the connection takes."""
        try:
            while self.sent < len(self._text):
                self.sent += self._socket.send(self._text[self.sent :])
        except OSError:  # full, or ended
            return

    def read(self, most: int = WINDOW) -> bytes:
        """Up to ``most`` bytes of the answers; empty if none are there, or the connection ended."""
        try:
            return self._socket.recv(most)
        except OSError:
            return b""

    def ended(self) -> bool:
        """Whether the server ended the connection; reads nothing.

        A server that closes it tells a client with a full window only once it sends more.
        """
        try:
            self._socket.send(b"G" if self.sent == len(self._text) else self._text[self.sent :][:1])
        except BlockingIOError:
            pass
        except OSError:
            return True
        else:
            self.sent = min(self.sent + 1, len(self._text))
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        return any(
            what & (select.POLLHUP | select.POLLRDHUP | select.POLLERR) for _, what in poll.poll(0)
        )

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> SlowReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
