# SPDX-License-Identifier: Apache-2.0

"""Subnet management packets through ``libibumad``: several Get requests are under way at once.

The layouts are those of the InfiniBand Architecture Specification, volume 1, chapter 14.
"""

import ctypes
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
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
FORWARDING_TABLE = 0x0019
SM_INFO = 0x0020

GIVE_UP = 2
"""Requests in a row without an answer after which a node is not asked again."""

_MAD_SIZE = 256
_DATA = slice(64, 128)


class Query(NamedTuple):
    """A Get request; LID 0 asks the port of this machine itself."""

    lid: int
    attribute: int
    modifier: int = 0


@dataclass(eq=False)
class _Pending:
    query: Query
    tries: int
    deadline: float = 0.0


class _Returned(NamedTuple):
    """A packet that came back: ``data`` if it is an answer without error."""

    entry: _Pending
    answered: bool
    data: bytes | None


@dataclass
class SmpPort:
    """One port of this machine, which sends SMPs.

    ``adapter`` and ``port`` as ``libibumad`` names them; empty and 0 take the first active port.
    ``mkey`` goes into each request. A request without an answer is sent ``tries`` times,
    ``timeout`` seconds apart, or a tenth of that if it comes back as undelivered. A node that left
    ``GIVE_UP`` requests in a row unanswered is not asked again. ``limit`` seconds after the port
    was opened it asks nothing more. A node whose LID is in ``paths`` is asked by a
    directed route: a 0, then the ports by which a packet leaves this machine and each switch.

    Raises:
        Unavailable: there is no ``libibumad``, or no port, or it may not be used.
    """

    adapter: str = ""
    port: int = 0
    mkey: int = 0
    outstanding: int = 2  # times tries, below the 10 packets that ibsim can queue
    timeout: float = 1.0
    tries: int = 3
    limit: float = 50.0
    paths: dict[int, bytes] = field(default_factory=lambda: {0: b"\0"}, init=False)
    _agents: dict[int, int] = field(default_factory=dict, init=False)
    _under_way: dict[int, _Pending] = field(default_factory=dict, init=False)
    _unanswered: Counter[int] = field(default_factory=Counter, init=False)

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
        self._end = time.monotonic() + self.limit
        self._number = int.from_bytes(os.urandom(4), "big")
        self._fd: int = self._umad.umad_open_port(self.adapter.encode() or None, self.port)
        if self._fd < 0:
            raise Unavailable(f"no InfiniBand port can be opened: {self._fd}")
        for kind in (SMP_CLASS, DIRECTED_CLASS):
            agent = self._umad.umad_register(self._fd, kind, 1, 0, None)
            if agent < 0:
                self.close()
                raise Unavailable(f"no SMPs can be sent through the port: {agent}")
            self._agents[kind] = agent

    def close(self) -> None:
        """Close the port once all packets have come back, or after ``tries`` times ``timeout``.

        A process under ibsim hangs at its end if a packet comes back just then: the exit handler
        of ``libumad2sim`` 0.10 joins a thread that waits for a lock of the handler.
        """
        end = time.monotonic() + self.tries * self.timeout
        while self._under_way and time.monotonic() < end:
            self._received(end)
        self._umad.umad_close_port(self._fd)

    def ask_by(self, lid: int, path: bytes) -> None:
        """Ask this LID by a directed route from now on; what it left unanswered is forgotten."""
        self.paths[lid] = path
        self._unanswered.pop(lid, None)

    @property
    def silent(self) -> list[int]:
        """LIDs, ascending, that left their last request unanswered."""
        return sorted(self._unanswered)

    def answers(self, queries: Iterable[Query]) -> Iterator[tuple[Query, bytes]]:
        """The 64 bytes of data of each request that is answered without error, as they arrive.

        Raises:
            Unavailable: not all were answered within the limit.
        """
        waiting = (query for query in queries if self._unanswered[query.lid] < GIVE_UP)
        pending: list[_Pending] = []
        while True:
            for query in islice(waiting, self.outstanding - len(pending)):
                pending.append(_Pending(query, self.tries))
                self._send(pending[-1])
            if not pending:
                return
            if time.monotonic() >= self._end:
                raise Unavailable(self._too_late(pending))
            returned = self._received(min(self._end, *(entry.deadline for entry in pending)))
            if returned is not None and returned.entry in pending:
                entry = returned.entry
                if returned.answered:
                    pending.remove(entry)
                    self._unanswered.pop(entry.query.lid, None)
                    if returned.data is not None:
                        yield entry.query, returned.data
                else:
                    again = time.monotonic() + self.timeout / 10
                    entry.deadline = min(entry.deadline, again)
            pending = [entry for entry in pending if self._goes_on(entry)]

    def all_answers(self, queries: Iterable[Query]) -> Mapping[Query, bytes]:
        """The answers by request; requests without an answer are left out.

        Raises:
            Unavailable: not all were answered within the limit.
        """
        return dict(self.answers(queries))

    def _goes_on(self, entry: _Pending) -> bool:
        """Whether an answer may still come; sends the request again if its time has passed."""
        if entry.deadline > time.monotonic():
            return True
        if entry.tries:
            self._send(entry)
            return True
        self._unanswered[entry.query.lid] += 1
        return False

    def _too_late(self, pending: Iterable[_Pending]) -> str:
        asked = {entry.query.lid for entry in pending if entry.tries < self.tries - 1}
        silent = sorted({*self._unanswered, *asked})
        why = f"{unanswered(silent)}" if silent else "the nodes answer too slowly; raise the limit"
        return f"the ports were not read within {self.limit:g} seconds: {why}"

    def _send(self, entry: _Pending) -> None:
        self._number = number = self._number + 1 & 0x7FFFFFFF
        entry.tries -= 1
        entry.deadline = time.monotonic() + self.timeout
        lid, attribute, modifier = entry.query
        mad = bytearray(_MAD_SIZE)
        path = self.paths.get(lid)
        kind = SMP_CLASS if path is None else DIRECTED_CLASS
        mad[0:4] = bytes([1, kind, 1, GET])
        mad[8:16] = number.to_bytes(8, "big")
        mad[16:18] = attribute.to_bytes(2, "big")
        mad[20:24] = modifier.to_bytes(4, "big")
        mad[24:32] = self.mkey.to_bytes(8, "big")
        if path is not None:
            mad[7] = len(path) - 1
            mad[32:36] = b"\xff" * 4
            mad[128 : 128 + len(path)] = path
        buffer = ctypes.create_string_buffer(self._head + _MAD_SIZE)
        self._umad.umad_set_addr(buffer, lid if path is None else PERMISSIVE_LID, 0, 0, 0)
        ctypes.memmove(self._umad.umad_get_mad(buffer), bytes(mad), _MAD_SIZE)
        milliseconds = max(1, int(self.timeout * 1000))
        sent = self._umad.umad_send(
            self._fd, self._agents[kind], buffer, _MAD_SIZE, milliseconds, 0
        )
        if not sent:
            self._under_way[number] = entry

    def _received(self, until: float) -> _Returned | None:
        """The next packet that comes back; None if none does until that time, or a foreign one.

        An answer counts for its request also if the request has been sent again meanwhile.
        """
        buffer = ctypes.create_string_buffer(self._head + _MAD_SIZE)
        length = ctypes.c_int(_MAD_SIZE)
        milliseconds = max(1, int((until - time.monotonic()) * 1000))
        if self._umad.umad_recv(self._fd, buffer, ctypes.byref(length), milliseconds) < 0:
            return None
        mad = ctypes.string_at(self._umad.umad_get_mad(buffer), _MAD_SIZE)
        number = int.from_bytes(mad[12:16], "big")  # the kernel uses the upper half
        entry = self._under_way.pop(number, None)
        if entry is None:
            return None
        if self._umad.umad_status(buffer):
            return _Returned(entry, answered=False, data=None)
        failed = mad[3] != GET_RESP or int.from_bytes(mad[4:6], "big") & 0x7FFF
        return _Returned(entry, answered=True, data=None if failed else mad[_DATA])


def unanswered(silent: list[int]) -> str:
    """The first LIDs that do not answer, in words."""
    more = f" and {len(silent) - 5} more" if len(silent) > 5 else ""
    lids = ", ".join(map(str, silent[:5]))
    return f"no answer from LID {lids}{more}"
