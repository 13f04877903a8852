# SPDX-License-Identifier: Apache-2.0

"""Port counters: ports with too many errors, data by allocation, and the audit of its links.

Counters have the names that ``perfquery`` prints. Data counters count words of 4 bytes. All
figures are made of increases between two readings of a switch. A lost reading is made up for by
the next one, and a reading that comes twice adds nothing.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from laas_service.domain.errors import InvalidInput
from laas_service.domain.faults.interpretation import Cabling
from laas_service.domain.inventory import PortRef
from laas_service.domain.topology import Link

SENT, RECEIVED, MULTICAST = "PortXmitData", "PortRcvData", "PortMulticastXmitPkts"
WRAPPING = frozenset({SENT, RECEIVED, MULTICAST})
"""Counters of 64 bits that start at 0 again after the largest value (``perfquery -x``)."""

LIMITS = {
    "LocalLinkIntegrityErrors": 0xF,
    "ExcessiveBufferOverrunErrors": 0xF,
    "LinkErrorRecoveryCounter": 0xFF,
    "LinkDownedCounter": 0xFF,
    "PortXmitConstraintErrors": 0xFF,
    "PortRcvConstraintErrors": 0xFF,
    "SymbolErrorCounter": 0xFFFF,
    "PortRcvErrors": 0xFFFF,
    "PortRcvRemotePhysicalErrors": 0xFFFF,
    "PortRcvSwitchRelayErrors": 0xFFFF,
    "PortXmitDiscards": 0xFFFF,
    "VL15Dropped": 0xFFFF,
    "PortXmitWait": 0xFFFFFFFF,
    "PortFECUncorrectableBlockCtr": 0xFFFFFFFF,
}
"""The value at which a counter stops (IBA volume 1, PortCounters). Ports that count these with
64 bits do not stop there."""

SYMBOL_ERRORS, FEC_MODE = "SymbolErrorCounter", "FECModeActive"

BAD_KEYS = "BadKeyTraps"
"""Traps of a bad P_Key or Q_Key that OpenSM's log attributes to the port since the reader
started; not a counter of the port."""

KEY_ERRORS = ("PortXmitConstraintErrors", "PortRcvConstraintErrors", BAD_KEYS)
"""Counters of packets with a foreign key. They tell of a tenant, not of a cable."""

NAMES = frozenset({*WRAPPING, *LIMITS, FEC_MODE, BAD_KEYS})
"""The counters that are read."""

BIT_ERROR_RATE = "bit error rate"

SOONEST = 1.0
"""Seconds: a reading that is not this much newer than the last is the same one, reported twice."""

DAY = 86400.0


class PortReading(NamedTuple):
    """The counters of one port."""

    values: Mapping[str, int]
    bit_error_rate: float | None = None
    """The effective bit error rate, after error correction; None if the port does not tell."""

    @property
    def corrects_errors(self) -> bool:
        """Whether forward error correction is known to be active; symbol errors are normal then."""
        return self.bit_error_rate is not None or bool(self.values.get(FEC_MODE))


@dataclass(frozen=True, slots=True)
class SwitchCounters:
    """The counters of a switch's ports, by port number, read within moments."""

    guid: int
    at: float
    """Seconds since the epoch, by the clock of the service."""
    ports: Mapping[int, PortReading]


class Increase(NamedTuple):
    """By how much a counter grew."""

    amount: int
    exact: bool = True
    """False if it grew by ``amount`` or more: it was reset, or stands at its limit."""


def increase(name: str, older: PortReading, newer: PortReading) -> Increase | None:
    """By how much a counter grew between two readings; None if one of them lacks it.

    A smaller value than before means that somebody reset the counter, or that the switch was
    restarted; a counter of 64 bits in the upper half of its range has wrapped.
    """
    if name not in older.values or name not in newer.values:
        return None
    before, after = older.values[name], newer.values[name]
    if after >= before:
        return Increase(after - before, exact=after != LIMITS.get(name))
    if name in WRAPPING and before >> 63 and not after >> 63:
        return Increase(after - before + (1 << 64))
    return Increase(after, exact=False)


# -- rules ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Threshold:
    """More than ``count`` within ``seconds`` is too much."""

    counter: str
    count: float
    seconds: float = 3600.0

    @property
    def text(self) -> str:
        return f"{self.count:g} in {self.seconds:g} s"


PERIODS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": DAY}

DEFAULT_THRESHOLDS = {
    SYMBOL_ERRORS: "10/hour",
    "LinkErrorRecoveryCounter": "10/hour",
    "LinkDownedCounter": "10/day",
    "LocalLinkIntegrityErrors": "10/hour",
    "ExcessiveBufferOverrunErrors": "10/hour",
    "PortRcvErrors": "10/hour",
    "PortXmitDiscards": "100/hour",
    "PortFECUncorrectableBlockCtr": "1/hour",
}
"""The counts are those of ``ibqueryerrors``, for an hour."""

_THRESHOLD = re.compile(r"(\d+)/(second|minute|hour|day)", re.ASCII)


def thresholds_from(configured: Mapping[str, str]) -> tuple[Threshold, ...]:
    """The thresholds in a configuration such as ``{"PortRcvErrors": "10/hour"}``.

    Raises:
        InvalidInput: a counter is unknown, or a threshold has another form.
    """
    answer = []
    for counter, text in configured.items():
        name = f"[faults] error_thresholds {counter}"
        if counter not in LIMITS or counter in KEY_ERRORS:
            known = ", ".join(sorted(LIMITS.keys() - set(KEY_ERRORS)))
            raise InvalidInput(name, text, f"choose among {known}")
        if match := _THRESHOLD.fullmatch(text):
            answer.append(Threshold(counter, int(match[1]), PERIODS[match[2]]))
        else:
            raise InvalidInput(name, text, "give N/second, N/minute, N/hour or N/day")
    return tuple(answer)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Data on a tenant's links that others may send legitimately.

    Management packets, such as path queries to the subnet administrator and their answers,
    cross the links of tenants.
    """

    bytes_per_second: float = 1e6
    """On each link and in each direction."""
    share: float = 0.01
    """Of what the tenant's own ports brought in."""
    packet_words: int = 1056
    """The largest packet: a switch sends a multicast packet more often than it received it."""


@dataclass(frozen=True, slots=True)
class CounterRules:
    """Which ports have too many errors, and what the audit allows.

    ``PortXmitWait`` counts ticks that data waited: congestion, no fault; so it has no threshold
    unless one is configured.
    """

    thresholds: tuple[Threshold, ...] = thresholds_from(DEFAULT_THRESHOLDS)
    bit_error_rate: float = 1e-12
    """The largest effective bit error rate; the objective of the InfiniBand architecture."""
    tolerance: Tolerance = Tolerance()
    audit_seconds: float = DAY
    """The audit adds up data for this long, then begins again."""

    @property
    def watched(self) -> tuple[Threshold, ...]:
        """The thresholds, and those of packets with a foreign key: one is too many."""
        return (*self.thresholds, *(Threshold(name, 0, DAY) for name in KEY_ERRORS))


# -- what is remembered -----------------------------------------------------------


class Growth(NamedTuple):
    """By how much a counter of a port grew since a time; windows begin with an increase."""

    since: float
    amount: int
    exact: bool


class Excess(NamedTuple):
    """A port beyond a threshold."""

    since: float
    """When it was first found beyond it."""
    at: float
    """When it was last found beyond it."""
    until: float
    """When it is forgotten unless it is found again; 0 if a reading decides."""
    text: str


class PortUse(NamedTuple):
    """What a port is for; increases count only between two readings with the same use."""

    peer: str
    """The recorded other end."""
    owner: str = ""
    """The allocation that owns the port's link or host; "" if none does."""


class WordCounts(NamedTuple):
    """Words that crossed the ports of an owner at a switch, since it was first read with them."""

    at: float
    below: int = 0
    """Received from hosts and lower switches."""
    above: int = 0
    """Received from upper switches."""
    up: int = 0
    """Sent to upper switches."""
    down: int = 0
    """Sent to lower switches."""
    delivered: int = 0
    """Sent to hosts."""
    copies: int = 0
    """Multicast packets sent to switches."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The words of an owner at a switch: now, and at the readings that the audit compares."""

    total: WordCounts
    links: int = 0
    """The owner's ports towards other switches; 0 if it has no port at the switch any more."""
    base: WordCounts | None = None
    """At the reading with which the audit's period began; None until then."""
    second: WordCounts | None = None
    """At the reading after that."""
    previous: WordCounts | None = None
    """At the reading before the last."""


class Rate(NamedTuple):
    """The data that crossed a port, as a mean between the last two readings."""

    seconds: float
    """Time between these readings."""
    sent: float
    """Bytes a second that the switch sent."""
    received: float
    """Bytes a second that it received."""


@dataclass(frozen=True, slots=True)
class CounterMemory:
    """What is remembered of a switch between two readings. Ports are numbers."""

    last: SwitchCounters
    uses: Mapping[int, PortUse] = field(default_factory=dict)
    growth: Mapping[int, Mapping[str, Growth]] = field(default_factory=dict)
    """By port and counter, where a counter grew within its threshold's period."""
    excesses: Mapping[int, Mapping[str, Excess]] = field(default_factory=dict)
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    """By owner."""
    rates: Mapping[int, Rate] = field(default_factory=dict)
    """By port, of links and hosts of allocations that share their hosts."""


@dataclass(frozen=True)
class Owners:
    """Who owns links and hosts now: ids of allocations."""

    links: Mapping[Link, str]
    hosts: Mapping[int, str]
    sharing: frozenset[str] = frozenset()
    """Those that share their hosts."""

    @cached_property
    def ids(self) -> frozenset[str]:
        return frozenset((*self.links.values(), *self.hosts.values()))


# -- accounting -------------------------------------------------------------------


def accounted(
    memory: CounterMemory | None,
    reading: SwitchCounters,
    cabling: Cabling,
    owners: Owners,
    rules: CounterRules,
) -> CounterMemory:
    """The memory after a reading of a switch.

    A reading that is not newer than the last changes nothing. Ports without a recorded cable do
    not count, and neither does data between two readings with different owners.
    """
    if memory is not None and reading.at < memory.last.at + SOONEST:
        return memory
    return _CounterAccount(memory, reading, cabling, owners, rules).memory()


def _uses(
    reading: SwitchCounters, cabling: Cabling, owners: Owners
) -> Iterator[tuple[int, PortUse]]:
    """What the recorded ports of a switch are for. Port 0 is the switch itself."""
    for number in sorted(reading.ports):
        end = PortRef(reading.guid, number)
        cable, endpoint = cabling.cable_at.get(end), cabling.endpoint_at.get(end)
        if cable is not None:
            peer = cable.upper if cable.lower == end else cable.lower
            owner = owners.links.get(cable.link, "") if cable.link is not None else ""
            yield number, PortUse(f"{peer.guid:#018x} {peer.port}", owner)
        elif endpoint is not None:
            owner = owners.hosts.get(endpoint.host, "") if endpoint.host is not None else ""
            yield number, PortUse(f"{endpoint.guid:#018x}", owner)
        elif number == 0 and reading.guid in cabling.switch_names:
            yield number, PortUse("")


class _CounterAccount:
    """One reading of a switch against the memory."""

    def __init__(
        self,
        memory: CounterMemory | None,
        reading: SwitchCounters,
        cabling: Cabling,
        owners: Owners,
        rules: CounterRules,
    ) -> None:
        self._old, self._new = memory, reading
        self._uses = dict(_uses(reading, cabling, owners))
        self._owners = owners
        self._cabling, self._rules = cabling, rules

    def memory(self) -> CounterMemory:
        growth: dict[int, Mapping[str, Growth]] = {}
        excesses: dict[int, Mapping[str, Excess]] = {}
        for number in self._uses:
            if grown := dict(self._growth(number)):
                growth[number] = grown
            if beyond := dict(self._excesses(number, grown)):
                excesses[number] = beyond
        traffic, rates = dict(self._traffic()), dict(self._rates())
        return CounterMemory(self._new, self._uses, growth, excesses, traffic, rates)

    def _before(self, number: int) -> PortReading | None:
        """The last counters of a port that led to the same other end then."""
        if self._old is None or number not in self._old.last.ports:
            return None
        use = self._old.uses.get(number)
        same = use is not None and use.peer == self._uses[number].peer
        return self._old.last.ports[number] if same else None

    # -- errors -----------------------------------------------------------------

    def _growth(self, number: int) -> Iterator[tuple[str, Growth]]:
        old, new, at = self._before(number), self._new.ports[number], self._new.at
        if self._old is None or old is None:
            return
        remembered = self._old.growth.get(number, {})
        corrects = old.corrects_errors or new.corrects_errors
        for threshold in self._rules.watched:
            name = threshold.counter
            if name == SYMBOL_ERRORS and corrects:
                continue
            grown, present = increase(name, old, new), remembered.get(name)
            if present is not None and at - present.since > threshold.seconds:
                present = None
            if grown is not None and grown.amount:
                since, amount, exact = present or Growth(self._old.last.at, 0, True)
                present = Growth(since, amount + grown.amount, exact and grown.exact)
            if present is not None:
                yield name, present

    def _excesses(self, number: int, growth: Mapping[str, Growth]) -> Iterator[tuple[str, Excess]]:
        new, at = self._new.ports[number], self._new.at
        old = self._before(number)
        standing = self._old.excesses.get(number, {}) if self._old and old else {}
        remembered = self._old.growth.get(number, {}) if self._old and old else {}
        for threshold in self._rules.watched:
            name = threshold.counter
            excess, grown = standing.get(name), growth.get(name)
            if grown is not None and grown != remembered.get(name):
                seconds = at - grown.since
                if grown.amount > threshold.count * max(1.0, seconds / threshold.seconds):
                    least = "" if grown.exact else "at least "
                    text = f"{name} grew by {least}{grown.amount} in {seconds:.0f} s"
                    if name not in KEY_ERRORS:
                        text += f", allowed are {threshold.text}"
                    since = at if excess is None else excess.since
                    yield name, Excess(since, at, at + threshold.seconds, text)
                    continue
            if excess is not None and at < excess.until:
                yield name, excess
        rate, limit = new.bit_error_rate, self._rules.bit_error_rate
        if rate is not None and rate > limit:
            excess = standing.get(BIT_ERROR_RATE)
            text = f"bit error rate {rate:.1e}, allowed are {limit:.1e}"
            yield BIT_ERROR_RATE, Excess(at if excess is None else excess.since, at, 0.0, text)

    # -- data -------------------------------------------------------------------

    def _rates(self) -> Iterator[tuple[int, Rate]]:
        """Of ports that count with 64 bits and were not reset since the last reading."""
        for number, use in self._uses.items():
            old = self._before(number)
            if self._old is None or old is None or use.owner not in self._owners.sharing:
                continue
            sent, received = (increase(n, old, self._new.ports[number]) for n in (SENT, RECEIVED))
            if sent is not None and received is not None and sent.exact and received.exact:
                seconds = self._new.at - self._old.last.at
                yield (
                    number,
                    Rate(seconds, 4 * sent.amount / seconds, 4 * received.amount / seconds),
                )

    def _traffic(self) -> Iterator[tuple[str, Traffic]]:
        ports: dict[str, list[int]] = defaultdict(list)
        for number, use in self._uses.items():
            if use.owner:
                ports[use.owner].append(number)
        for owner, numbers in sorted(ports.items()):
            yield owner, self._traffic_of(owner, numbers)
        for owner, known in self._old.traffic.items() if self._old is not None else ():
            if owner not in ports and owner in self._owners.ids:
                yield owner, Traffic(known.total)  # so that the sum over switches never falls

    def _traffic_of(self, owner: str, numbers: list[int]) -> Traffic:
        known = self._old.traffic.get(owner) if self._old is not None else None
        links = sum(PortRef(self._new.guid, n) in self._cabling.cable_at for n in numbers)
        if known is None:
            start = WordCounts(self._new.at)
            return Traffic(start, links, base=start)
        total, whole = known.total._replace(at=self._new.at), True
        for number in numbers:
            crossed = self._crossed(number)
            whole &= crossed is not None
            if crossed is not None:
                total = WordCounts(
                    total.at, *(a + b for a, b in zip(total[1:], crossed, strict=True))
                )
        before = self._old.uses if self._old is not None else {}
        whole &= numbers == [n for n, use in before.items() if use.owner == owner]
        if not whole or known.base is None:
            return Traffic(total, links, base=total)
        if total.at - known.base.at > self._rules.audit_seconds:
            return Traffic(total, links, base=known.total, second=total, previous=total)
        second = total if known.second is None else known.second
        previous = total if known.second is None else known.total
        return Traffic(total, links, known.base, second, previous)

    def _crossed(self, number: int) -> tuple[int, ...] | None:
        """The words of a port since the last reading, as ``WordCounts`` without ``at``.

        None if they are not known exactly: the port was reset, lacks counters of 64 bits, or had
        another owner.
        """
        old, new = self._before(number), self._new.ports[number]
        if self._old is None or old is None or self._old.uses[number] != self._uses[number]:
            return None
        sent, received = increase(SENT, old, new), increase(RECEIVED, old, new)
        copies = increase(MULTICAST, old, new) or Increase(0)
        if sent is None or received is None or not (sent.exact and received.exact):
            return None
        end = PortRef(self._new.guid, number)
        cable = self._cabling.cable_at.get(end)
        if cable is None:
            return received.amount, 0, 0, 0, sent.amount, 0
        if cable.lower == end:
            return 0, received.amount, sent.amount, 0, 0, copies.amount
        return received.amount, 0, 0, sent.amount, 0, copies.amount


# -- the audit --------------------------------------------------------------------


class Foreign(NamedTuple):
    """More data on a tenant's links at a switch than the tenant's own ports brought there."""

    owner: str
    direction: str
    """``up`` or ``down``."""
    sent: int
    """Bytes that the switch sent on the tenant's links, in this direction."""
    received: int
    """Bytes that it received on the tenant's ports and may have sent there."""
    allowed: int
    """Bytes that others may have sent."""
    seconds: float

    @property
    def sentence(self) -> str:
        return (
            f"{self.sent} bytes went {self.direction} on links of allocation {self.owner} in "
            f"{self.seconds:.0f} s; its ports brought {self.received}, others may send "
            f"{self.allowed}"
        )


def audit(memory: CounterMemory, rules: CounterRules) -> list[Foreign]:
    """Where a switch sent more on a tenant's links than it received from the tenant.

    Counters do not name a source, so only an excess shows anything. On the way up a switch can
    pass on what came from below, on the way down what came from anywhere. At a leaf, what comes
    from below is what the tenant's ports injected; so if there is no excess at any switch, no
    link carries more than they injected.

    The data received covers one reading more at each end than the data sent. So the ports of a
    switch need not be read at the same moment, however fast data flows.
    """
    return [
        foreign
        for owner, traffic in sorted(memory.traffic.items())
        for foreign in _foreign(owner, traffic, rules.tolerance)
    ]


def _foreign(owner: str, traffic: Traffic, tolerance: Tolerance) -> Iterator[Foreign]:
    base, second, previous, total = traffic.base, traffic.second, traffic.previous, traffic.total
    if base is None or second is None or previous is None:
        return
    below, above = total.below - base.below, total.above - base.above
    seconds = total.at - base.at
    copies = (total.copies - base.copies) * tolerance.packet_words
    others = int(tolerance.bytes_per_second * seconds * traffic.links)
    for direction, sent, received in (
        ("up", previous.up - second.up, below),
        ("down", previous.down - second.down, below + above),
    ):
        allowed = int(tolerance.share * 4 * received) + 4 * copies + others
        if 4 * (sent - received) > allowed:
            yield Foreign(owner, direction, 4 * sent, 4 * received, allowed, seconds)


def dismissed(memory: CounterMemory, port: int) -> CounterMemory:
    """The memory after an operator called the link at a port repaired: its errors are forgotten."""
    growth = {number: grown for number, grown in memory.growth.items() if number != port}
    excesses = {number: beyond for number, beyond in memory.excesses.items() if number != port}
    return replace(memory, growth=growth, excesses=excesses)


# -- findings ---------------------------------------------------------------------


class PortErrors(NamedTuple):
    """A port beyond a threshold."""

    end: PortRef
    counter: str
    """The counter, or ``bit error rate``."""
    since: float
    """Seconds since the epoch."""
    text: str
    owner: str
    """The allocation that owns the link or the host; "" if none does."""

    @property
    def sentence(self) -> str:
        return f"{self.end.guid:#018x} port {self.end.port}: {self.text}"

    @property
    def tells_of_a_cable(self) -> bool:
        """Whether the cable is to blame; packets with a foreign key come from a host."""
        return self.counter not in KEY_ERRORS


class Data(NamedTuple):
    """Bytes of an owner at a switch, since the switch was first read with that owner."""

    injected: int
    """Received from the owner's hosts."""
    delivered: int
    """Sent to them."""
    up: int
    """Sent on the owner's links to upper switches."""
    down: int
    """Received from them."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What the counters of a switch show."""

    guid: int
    at: float
    """The time of the last reading, seconds since the epoch."""
    leaf: bool
    """Whether hosts are connected to the switch."""
    errors: tuple[PortErrors, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    data: Mapping[str, Data] = field(default_factory=dict)
    """By owner."""
    rates: Mapping[int, Rate] = field(default_factory=dict)
    """By port, as in ``CounterMemory``."""


def account(
    cabling: Cabling,
    rules: CounterRules,
    memory: CounterMemory | None,
    reading: SwitchCounters,
    owners: Owners,
) -> tuple[CounterMemory, Findings]:
    """The memory after a reading of a switch, and what it shows then."""
    after = accounted(memory, reading, cabling, owners, rules)
    return after, findings(after, cabling, rules)


def findings(memory: CounterMemory, cabling: Cabling, rules: CounterRules) -> Findings:
    """What the counters of a switch show. Errors are by port and counter, ascending."""
    guid = memory.last.guid
    errors = [
        PortErrors(
            PortRef(guid, number), counter, excess.since, excess.text, memory.uses[number].owner
        )
        for number, beyond in sorted(memory.excesses.items())
        for counter, excess in sorted(beyond.items())
    ]
    leaf = guid in cabling.hosts_of_switch
    data = {
        owner: Data(
            4 * traffic.total.below if leaf else 0,
            4 * traffic.total.delivered,
            4 * traffic.total.up,
            4 * traffic.total.above,
        )
        for owner, traffic in memory.traffic.items()
    }
    foreign = tuple(audit(memory, rules))
    return Findings(guid, memory.last.at, leaf, tuple(errors), foreign, data, memory.rates)


def excessive(errors: Iterable[PortErrors], cabling: Cabling) -> dict[Link, str]:
    """The links with too many errors, and the evidence: the ports and what grew."""
    texts: dict[Link, list[str]] = defaultdict(list)
    for error in errors:
        cable = cabling.cable_at.get(error.end)
        if cable is not None and cable.link is not None and error.tells_of_a_cable:
            texts[cable.link].append(f"{cabling.port_name(error.end)}: {error.text}")
    return {link: "; ".join(sorted(evidence)) for link, evidence in texts.items()}
