# SPDX-License-Identifier: Apache-2.0

"""Port counters: links with too many errors, and data on a tenant's links that is not its own.

Counters have the names that ``perfquery`` prints. Data counters count words of 4 bytes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from laas_service.domain.allocation import Allocation
from laas_service.domain.faults.interpretation import Cabling
from laas_service.domain.inventory import PortRef
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology

WRAPPING = frozenset(
    {
        "PortXmitData",
        "PortRcvData",
        "PortXmitPkts",
        "PortRcvPkts",
        "PortUnicastXmitPkts",
        "PortUnicastRcvPkts",
        "PortMulticastXmitPkts",
        "PortMulticastRcvPkts",
    }
)
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
}
"""The value at which a counter stops (IBA volume 1, PortCounters). Ports that count these with
64 bits do not stop there."""

SYMBOL_ERRORS = "SymbolErrorCounter"


@dataclass(frozen=True, slots=True)
class PortCounters:
    """The counters of one port at a time."""

    at: float
    """Seconds since the epoch, by the clock of the service."""
    values: Mapping[str, int]
    bit_error_rate: float | None = None
    """The effective bit error rate, after error correction; None if the port does not tell."""


class Increase(NamedTuple):
    """By how much a counter grew."""

    amount: int
    exact: bool = True
    """False if it grew by ``amount`` or more: it was reset, or stands at its limit."""


def increase(name: str, older: PortCounters, newer: PortCounters) -> Increase | None:
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


# -- errors -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Threshold:
    """More than ``count`` within ``seconds`` is too much."""

    counter: str
    count: int
    seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class CounterRules:
    """Which links are proposed. The counts are those of ``ibqueryerrors``, for an hour.

    ``PortXmitWait`` counts ticks that data waited: congestion, no fault; so it has no threshold
    unless one is configured.
    """

    thresholds: tuple[Threshold, ...] = (
        Threshold(SYMBOL_ERRORS, 10),
        Threshold("LinkErrorRecoveryCounter", 10),
        Threshold("LinkDownedCounter", 10),
        Threshold("LocalLinkIntegrityErrors", 10),
        Threshold("ExcessiveBufferOverrunErrors", 10),
        Threshold("PortRcvErrors", 10),
        Threshold("PortXmitDiscards", 100),
    )
    bit_error_rate: float = 1e-12
    """The largest effective bit error rate; the objective of the InfiniBand architecture."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A link to be taken out of use because of a port's errors."""

    end: PortRef
    link: Link | None
    """None for a port towards a channel adapter, and for a cable outside the tree."""
    counter: str
    text: str


def proposals(
    cabling: Cabling,
    older: Mapping[PortRef, PortCounters],
    newer: Mapping[PortRef, PortCounters],
    rules: CounterRules,
) -> list[Proposal]:
    """The recorded switch ports beyond a threshold, each counter once, by port.

    Symbol errors do not count at a port that tells its bit error rate: with error correction
    they are normal.
    """
    answer = []
    for end in sorted(newer):
        cable = cabling.cable_at.get(end)
        if cable is None and end not in cabling.endpoint_at:
            continue
        link = None if cable is None else cable.link
        for counter, text in _excesses(older.get(end), newer[end], rules):
            answer.append(Proposal(end, link, counter, f"{cabling.port_name(end)}: {text}"))
    return answer


def _excesses(
    older: PortCounters | None, newer: PortCounters, rules: CounterRules
) -> Iterator[tuple[str, str]]:
    """The counters of a port that grew too much, and by how much."""
    rate = newer.bit_error_rate
    if rate is not None and rate > rules.bit_error_rate:
        yield "bit error rate", f"bit error rate {rate:.1e}, allowed are {rules.bit_error_rate:.1e}"
    if older is None or newer.at <= older.at:
        return
    seconds = newer.at - older.at
    for threshold in rules.thresholds:
        if threshold.counter == SYMBOL_ERRORS and rate is not None:
            continue
        grown = increase(threshold.counter, older, newer)
        allowed = threshold.count * max(1.0, seconds / threshold.seconds)
        if grown is not None and grown.amount > allowed:
            least = "" if grown.exact else "at least "
            yield (
                threshold.counter,
                f"{threshold.counter} grew by {least}{grown.amount} in {seconds:.0f} s, "
                f"allowed are {threshold.count} in {threshold.seconds:.0f} s",
            )


# -- the audit --------------------------------------------------------------------


class Carried(NamedTuple):
    """Words that crossed a link in a period: towards the upper switch, and towards the lower."""

    up: int
    down: int


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Words on a tenant's links that others may send legitimately.

    Management packets, such as path queries to the subnet administrator and their answers,
    cross the links of tenants. The counters of two ports are also read at different moments.
    """

    words: int = 0
    """On each link and in each direction; in proportion to the period."""
    share: float = 0.01
    """Of what the tenant's ports injected."""


@dataclass(frozen=True, slots=True)
class Excess:
    """More data on a tenant's links than its ports injected."""

    place: str
    """Which links, as ``leaf 0/1, upwards``."""
    carried: int
    """Words on these links."""
    injected: int
    """Words that the tenant's ports injected and that may cross these links."""


def audit(
    topology: Topology,
    allocation: Allocation,
    carried: Mapping[Link, Carried],
    injected: Mapping[tuple[int, int], int],
    tolerance: Tolerance,
) -> list[Excess]:
    """Where the links of an allocation carried more than its own ports can have caused.

    ``carried`` are words by link, ``injected`` words by (host, rail) over the same period. Links
    that are missing count as idle. Without the words of every port of the tenant there is no
    verdict: the list is empty.

    Counters do not name a source, so only an excess shows anything: upwards, a leaf cannot pass
    on more than its hosts sent, and a pod not more than its hosts sent; downwards, they cannot
    receive more than the hosts elsewhere sent.
    """
    ports = [(h, rail) for h in allocation.hosts(topology) for rail in range(topology.rails)]
    if not all(port in injected for port in ports):
        return []
    sent_by_leaf: dict[tuple[int, int], int] = defaultdict(int)
    sent_by_pod: dict[int, int] = defaultdict(int)
    for host, rail in ports:
        place = topology.ports_of(host)[rail]
        sent_by_leaf[place.pod, place.leaf] += injected[host, rail]
        sent_by_pod[place.pod] += injected[host, rail]
    total = sum(sent_by_pod.values())
    leaf_links: dict[tuple[int, int], list[LeafLink]] = defaultdict(list)
    spine_links: dict[int, list[SpineLink]] = defaultdict(list)
    for leaf_link in allocation.leaf_links(topology):
        leaf_links[leaf_link.pod, leaf_link.leaf].append(leaf_link)
    for spine_link in allocation.spine_links(topology):
        spine_links[spine_link.pod].append(spine_link)
    answer: list[Excess] = []
    for (pod, leaf), links in sorted(leaf_links.items()):
        sent = sent_by_leaf[pod, leaf]
        answer += _excess(f"leaf {pod}/{leaf}", links, carried, sent, total, tolerance)
    for pod, of_pod in sorted(spine_links.items()):
        sent = sent_by_pod[pod]
        answer += _excess(f"spine links of pod {pod}", of_pod, carried, sent, total, tolerance)
    return answer


def _excess(
    place: str,
    links: Iterable[Link],
    carried: Mapping[Link, Carried],
    sent: int,
    total: int,
    tolerance: Tolerance,
) -> Iterator[Excess]:
    """The excess on the links above a part of the tree whose hosts injected ``sent`` words."""
    words = [carried.get(link, Carried(0, 0)) for link in links]
    for direction, here, injected in (
        ("upwards", sum(x.up for x in words), sent),
        ("downwards", sum(x.down for x in words), total - sent),
    ):
        allowed = injected + int(tolerance.share * injected) + tolerance.words * len(words)
        if here > allowed:
            yield Excess(f"{place}, {direction}", here, injected)
