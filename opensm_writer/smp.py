# SPDX-License-Identifier: Apache-2.0

"""Subnet management packets through ``libibumad``: several Get requests are under way at once.

The layouts are those of the InfiniBand Architecture Specification, volume 1, chapter 14.
"""

import ctypes
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from laas_service.domain.errors import Unavailable

GET = 0x01
GET_RESP = 0x81
SMP_CLASS = 0x01
DIRECTED_CLASS = 0x81
PERMISSIVE_LID = 0xFFFF

NODE_INFO = 0x0011
SWITCH_INFO = 0x0012
PORT_INFO = 0x0015
PKEY_TABLE = 0x0016
SM_INFO = 0x0020

_MAD_SIZE = 256
_DATA = slice(64, 128)


class Query(NamedTuple):
    """A Get request; LID 0 asks the port of this machine itself."""

    lid: int
    attribute: int
    modifier: int = 0


@dataclass
class _Pending:
    query: Query
    tries: int
    deadline: float = 0.0


@dataclass
class SmpPort:
    """One port of this machine, which sends SMPs.

    ``adapter`` and ``port`` as ``libibumad`` names them; empty and 0 take the first active port.
    ``mkey`` goes into each request. A request without an answer is sent ``tries`` times,
    ``timeout`` seconds apart.

    Raises:
        Unavailable: there is no ``libibumad``, or no port, or it may not be used.
    """

    adapter: str = ""
    port: int = 0
    mkey: int = 0
    outstanding: int = 2  # times tries, below the 10 packets that ibsim can queue
    timeout: float = 1.0
    tries: int = 3
    _agents: dict[int, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        try:
            self._umad = ctypes.CDLL("libibumad.so.3")
        except OSError as error:
            raise Unavailable(f"libibumad is not installed: {error}") from error
        self._umad.umad_get_mad.restype = ctypes.c_void_p
        self._umad.umad_get_mad.argtypes = [ctypes.c_void_p]
        for name in ("umad_send", "umad_recv", "umad_set_addr", "umad_status"):
            getattr(self._umad, name).restype = ctypes.c_int
        self._head: int = self._umad.umad_size()
        self._umad.umad_init()
        self._fd: int = self._umad.umad_open_port(self.adapter.encode() or None, self.port)
        if self._fd < 0:
            raise Unavailable(f"no InfiniBand port can be opened: {self._fd}")
        for kind in (SMP_CLASS, DIRECTED_CLASS):
            agent = self._umad.umad_register(self._fd, kind, 1, 0, None)
            if agent < 0:
                raise Unavailable(f"no SMPs can be sent through the port: {agent}")
            self._agents[kind] = agent

    def close(self) -> None:
        """Close the port."""
        self._umad.umad_close_port(self._fd)

    def answers(self, queries: Iterable[Query]) -> Iterator[tuple[Query, bytes]]:
        """The 64 bytes of data of each request that is answered without error, as they arrive."""
        waiting = iter(queries)
        pending: dict[int, _Pending] = {}
        number = int(time.monotonic() * 1000) & 0x7FFF << 16
        while True:
            while len(pending) < self.outstanding:
                query = next(waiting, None)
                if query is None:
                    break
                number = number + 1 & 0x7FFFFFFF
                pending[number] = _Pending(query, self.tries)
                self._send(number, pending[number])
            if not pending:
                return
            answer = self._received()
            if answer is not None:
                entry = pending.pop(answer[0], None)
                if entry is not None and answer[1] is not None:
                    yield entry.query, answer[1]
            now = time.monotonic()
            for late in [n for n, entry in pending.items() if entry.deadline <= now]:
                entry = pending.pop(late)
                if entry.tries:
                    number = number + 1 & 0x7FFFFFFF
                    pending[number] = entry
                    self._send(number, entry)

    def all_answers(self, queries: Iterable[Query]) -> Mapping[Query, bytes]:
        """The answers by request; requests without an answer are left out."""
        return dict(self.answers(queries))

    def _send(self, number: int, entry: _Pending) -> None:
        entry.tries -= 1
        entry.deadline = time.monotonic() + self.timeout
        lid, attribute, modifier = entry.query
        mad = bytearray(_MAD_SIZE)
        kind = SMP_CLASS if lid else DIRECTED_CLASS
        mad[0:4] = bytes([1, kind, 1, GET])
        mad[8:16] = number.to_bytes(8, "big")
        mad[16:18] = attribute.to_bytes(2, "big")
        mad[20:24] = modifier.to_bytes(4, "big")
        mad[24:32] = self.mkey.to_bytes(8, "big")
        if not lid:
            mad[32:36] = b"\xff" * 4
        buffer = ctypes.create_string_buffer(self._head + _MAD_SIZE)
        self._umad.umad_set_addr(buffer, lid or PERMISSIVE_LID, 0, 0, 0)
        ctypes.memmove(self._umad.umad_get_mad(buffer), bytes(mad), _MAD_SIZE)
        milliseconds = max(1, int(self.timeout * 1000))
        self._umad.umad_send(self._fd, self._agents[kind], buffer, _MAD_SIZE, milliseconds, 0)

    def _received(self) -> tuple[int, bytes | None] | None:
        """Number of the answered request and its data, None if it failed; None without answer."""
        buffer = ctypes.create_string_buffer(self._head + _MAD_SIZE)
        length = ctypes.c_int(_MAD_SIZE)
        agent = self._umad.umad_recv(
            self._fd, buffer, ctypes.byref(length), max(1, int(self.timeout * 1000))
        )
        if agent < 0:
            return None
        mad = ctypes.string_at(self._umad.umad_get_mad(buffer), _MAD_SIZE)
        number = int.from_bytes(mad[12:16], "big")  # the kernel uses the upper half
        if self._umad.umad_status(buffer):
            return None  # it was sent in vain; the deadline passes next
        failed = mad[3] != GET_RESP or int.from_bytes(mad[4:6], "big") & 0x7FFF
        return number, None if failed else mad[_DATA]
