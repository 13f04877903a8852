# SPDX-License-Identifier: Apache-2.0

"""A TCP proxy in front of a server, to cut connections at the worst moment.

In front of PostgreSQL, the proxy recognizes a COMMIT. It can drop the COMMIT on its way to
the server, or the answer on its way back.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
"""COMMIT as the driver sends it: one simple query message of PostgreSQL's protocol."""


class Proxy:
    """Forwards from ``port`` of loopback to the server that ``connect`` reaches.

    If ``cut`` is ``before``, the proxy drops the next COMMIT; if ``after``, its answer. In
    both cases the proxy then closes the connection. ``cuts`` counts the connections that the
    proxy has closed so.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._open: set[_Pair] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.accepts = True
        self.cut: str | None = None
        self.cuts = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def down(self) -> None:
        """Close all open connections and refuse new ones."""
        with self._lock:
            self.accepts = False
            pairs = list(self._open)
        for pair in pairs:
            pair.close()

    def up(self) -> None:
        self.accepts = True

    def close(self) -> None:
        self.down()
        _shut(self._listener)

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            try:
                pair = _Pair(client, self._connect()) if self.accepts else None
            except OSError:
                pair = None
            if pair is None:
                client.close()
                return
            self._open.add(pair)
        pair.run(self._cut_now)
        with self._lock:
            self._open.discard(pair)

    def _cut_now(self) -> str | None:
        """``before`` or ``after`` if the present COMMIT is to be cut, else None."""
        with self._lock:
            how, self.cut = self.cut, None
            self.cuts += how is not None
        return how


class _Pair:
    """A connection through the proxy; it lasts until either side closes it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._client = client
        self._server = server
        self._mute = False

    def run(self, cut: Callable[[], str | None]) -> None:
        back = threading.Thread(target=self._backwards, daemon=True)
        back.start()
        with contextlib.suppress(OSError):
            while data := self._client.recv(65536):
                how = cut() if data.endswith(COMMIT) else None
                if how == "before":
                    break
                self._mute = how == "after"
                self._server.sendall(data)
        if self._mute:
            back.join()  # the dropped answer shows that the server has committed
        self.close()
        back.join()
        self._client.close()
        self._server.close()

    def _backwards(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(65536):
                if self._mute:
                    break
                self._client.sendall(data)
        self.close()

    def close(self) -> None:
        _shut(self._client)
        _shut(self._server)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
