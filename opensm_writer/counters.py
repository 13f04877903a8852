# SPDX-License-Identifier: Apache-2.0

"""Reads the port counters of a fabric's switches at a bounded rate, with ``perfquery``."""

import logging
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from laas_service import background
from laas_service.domain.errors import Unavailable
from laas_service.domain.faults.counters import (
    BAD_KEYS,
    NAMES,
    WRAPPING,
    PortReading,
    SwitchCounters,
)
from laas_service.domain.inventory import ADAPTER_PORT, CableEnds, PortRef
from opensm_writer import parse
from opensm_writer.opensm import OpenSm

LOG = logging.getLogger(__name__)

IDLE = 60.0
"""Seconds after which reading ends if nobody asks for counters."""

ROUND_PAUSE = 1.0
"""Seconds between two rounds over all switches, at least."""

STOPPING = NAMES - WRAPPING
"""Data counters of 32 bits stop at their limit; they are not read."""

_LINE = re.compile(
    r"^(?:# Port (?P<extended>extended )?(?P<header>.*?)"
    r"|PortSelect:\.*(?P<port>\d+)"
    r"|(?P<name>[A-Za-z][A-Za-z0-9]*):\.+(?P<value>0x[0-9a-fA-F]+|\d+)"
    r"|Effective Physical BER[ :.]+(?P<rate>\d+(?:\.\d+)?[eE][+-]?\d+|0))[ \t\r]*$",
    re.MULTILINE | re.ASCII,
)


def parsed(text: str) -> dict[int, PortReading]:
    """The counters by port in the output of ``perfquery``, ``perfquery -x`` and ``-T``.

    Data counters count only where they have 64 bits (``-x``); the others stop at 32. A later
    value of a counter replaces an earlier one. ``Effective Physical BER``, as ``mlxlink``
    prints it, belongs to the port before it.
    """
    values: dict[int, dict[str, int]] = defaultdict(dict)
    rates: dict[int, float] = {}
    extended, port = False, None
    for match in _LINE.finditer(text):
        if match["header"] is not None:
            extended, port = match["extended"] is not None, None
        elif match["port"] is not None:
            port = int(match["port"])
        elif port is not None and match["rate"] is not None:
            rates[port] = float(match["rate"])
        elif port is not None and match["name"] in (NAMES if extended else STOPPING):
            values[port][match["name"]] = int(match["value"], 0)
    return {
        port: PortReading(values.get(port, {}), rates.get(port))
        for port in values.keys() | rates.keys()
    }


@dataclass(frozen=True, slots=True)
class Target:
    """A switch to read."""

    guid: int
    lid: int
    ports: tuple[int, ...]


def targets(tables: Iterable[parse.SwitchTable], cables: Iterable[CableEnds]) -> list[Target]:
    """The switches of a set that have a LID, and their ports with a recorded cable, by GUID."""
    ports: dict[int, set[int]] = defaultdict(set)
    for first, second in cables:
        ports[first.guid].add(first.port)
        if second.port != ADAPTER_PORT:
            ports[second.guid].add(second.port)
    return [
        Target(table.guid, table.lid, tuple(sorted(ports[table.guid])))
        for table in sorted(tables, key=lambda table: table.guid)
        if ports[table.guid]
    ]


def ports_of_lids(
    tables: Iterable[parse.SwitchTable], cables: Iterable[CableEnds]
) -> dict[int, PortRef]:
    """The port of each LID: the switch port of an adapter, port 0 of a switch."""
    tables = tuple(tables)
    ports = {table.guid: PortRef(table.guid, 0) for table in tables}
    ports |= {second.guid: first for first, second in cables if second.port == ADAPTER_PORT}
    guids = {lid: guid for table in tables for lid, guid in table.guids.items()}
    return {lid: ports[guid] for lid, guid in guids.items() if guid in ports}


class CounterReader:
    """The counters of all switches of a set, one switch after the other, in a thread.

    The thread begins with the first ``take`` and ends if nobody takes for a minute. It reads at
    most ``opensm.counters_rate`` ports a second. Without ``opensm.counters_command`` nothing is
    read. ``now`` is seconds since the epoch, ``opensm.now`` if None is given.
    """

    def __init__(
        self,
        opensm: OpenSm,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._opensm, self._clock, self._now = opensm, clock, now or opensm.now
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._taken_at = clock()
        self._tables: tuple[parse.SwitchTable, ...] = ()
        self._cables: tuple[CableEnds, ...] = ()
        self._targets: list[Target] = []
        self._read: dict[int, SwitchCounters] = {}
        self._mark = opensm.mark() if opensm.counters_command else ""
        self._bad_keys: Counter[PortRef] = Counter()
        self._failed: set[int] = set()

    def take(
        self,
        tables: tuple[parse.SwitchTable, ...],
        cables: tuple[CableEnds, ...],
        limit: int | None = None,
    ) -> tuple[SwitchCounters, ...]:
        """What was read and not taken: of each switch the newest, the oldest first.

        ``limit``: take only so many ports; the first switch comes whole in any case.
        """
        if not self._opensm.counters_command or not cables:
            return ()
        with self._lock:
            self._taken_at = self._clock()
            if self._tables is not tables:
                self._tables, self._cables = tables, cables
                self._targets = targets(tables, cables)
            answer: list[SwitchCounters] = []
            ports = 0
            for guid in list(self._read):
                ports += len(self._read[guid].ports)
                if answer and limit is not None and ports > limit:
                    break
                answer.append(self._read.pop(guid))
            if self._thread is None or not self._thread.is_alive():
                self._thread = background.start("laas-counters", self._run)
        return tuple(answer)

    def _run(self) -> None:
        while not self._abandoned():
            begun = self._clock()
            self._read_round()
            time.sleep(max(0.0, begun + ROUND_PAUSE - self._clock()))

    def _abandoned(self) -> bool:
        """Whether nobody takes any more; then the thread ends."""
        with self._lock:
            if self._clock() - self._taken_at < IDLE:
                return False
            self._thread = None
            return True

    def _read_round(self) -> None:
        """Read every switch once, within the rate."""
        with self._lock:
            round_targets = self._targets
        for target in round_targets:
            if self._clock() - self._taken_at >= IDLE:
                return
            begun = self._clock()
            self.read(target)
            pause = len(target.ports) / self._opensm.counters_rate
            time.sleep(max(0.0, begun + pause - self._clock()))

    def read(self, target: Target) -> None:
        """Read one switch; it is left out of this round if that fails."""
        self._count_traps()
        at = self._now()
        try:
            ports = parsed(self._opensm.counters(target.lid, target.ports))
        except Unavailable as error:
            if target.guid not in self._failed:
                LOG.warning("counters of %#018x cannot be read: %s", target.guid, error)
            self._failed.add(target.guid)
            return
        self._failed.discard(target.guid)
        if self._opensm.log is not None:
            ports = {
                number: PortReading(
                    {**port.values, BAD_KEYS: self._bad_keys[PortRef(target.guid, number)]},
                    port.bit_error_rate,
                )
                for number, port in {0: PortReading({}), **ports}.items()
            }
        reading = SwitchCounters(target.guid, at, ports)
        with self._lock:
            self._read.pop(target.guid, None)
            self._read[target.guid] = reading

    def _count_traps(self) -> None:
        """Count the traps of bad keys that OpenSM's log has since the last look."""
        lids, self._mark = self._opensm.bad_key_traps(self._mark)
        if lids:
            with self._lock:
                tables, cables = self._tables, self._cables
            ports = ports_of_lids(tables, cables)
            self._bad_keys.update(ports[lid] for lid in lids if lid in ports)
