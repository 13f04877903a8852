# SPDX-License-Identifier: Apache-2.0

"""A gate between two processes: what is sent in one direction can be held back.

A gate listens in the place of a server and passes everything on. While a direction is closed, what
comes from there waits; then it goes on, or the connections are cut. Requests that arrive while
their answers do not are an asymmetric partition.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

REQUESTS, ANSWERS = "requests", "answers"

Address = Path | int
"""A Unix socket, or a port of loopback."""


class Gates:
    """All gates, in a thread of their own; safe to use from others."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gates", daemon=True)
        self._thread.start()

    def add(self, listen: Address, to: Address) -> Gate:
        gate = Gate(self._loop, to)
        self._call(gate.serve(listen))
        return gate

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Gate:
    """One gate; ``to`` may be given another address."""

    def __init__(self, loop: asyncio.AbstractEventLoop, to: Address) -> None:
        self._loop = loop
        self.to = to
        self._open = {way: asyncio.Event() for way in (REQUESTS, ANSWERS)}
        for event in self._open.values():
            event.set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, listen: Address) -> None:
        if isinstance(listen, Path):
            await asyncio.start_unix_server(self._serve, str(listen))
        else:
            await asyncio.start_server(self._serve, "127.0.0.1", listen, reuse_address=True)

    def hold(self, way: str) -> None:
        """Hold back the requests, or the answers, until ``let_go``."""
        self._loop.call_soon_threadsafe(self._open[way].clear)

    def let_go(self, *, cut: bool) -> None:
        """Pass on what was held back, or cut all connections instead."""
        self._loop.call_soon_threadsafe(self._let_go, cut)

    def _let_go(self, cut: bool) -> None:
        if cut:
            for writer in self._writers:
                writer.transport.abort()
        for event in self._open.values():
            event.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):  # asyncio would print it
            await self._connect(reader, writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if isinstance(self.to, Path):
                inner, outer = await asyncio.open_unix_connection(str(self.to))
            else:
                inner, outer = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:  # as if nobody listened
            writer.transport.abort()
            return
        both = {writer, outer}
        self._writers |= both
        ways = (self._pass(reader, outer, REQUESTS), self._pass(inner, writer, ANSWERS))
        await asyncio.gather(*ways)
        self._writers -= both
        for each in both:
            each.close()

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, way: str
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                await self._open[way].wait()
                target.write(data)
                await target.drain()
        await self._open[way].wait()
        with suppress(OSError):
            target.write_eof()
