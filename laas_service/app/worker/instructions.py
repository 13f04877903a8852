# SPDX-License-Identifier: Apache-2.0

"""What decisions ask for: questions, effects outside, records; frozen values, a closed union.

A decision is a generator. It yields one instruction at a time, gets the answer, and returns its
result. An error of an instruction is raised in the decision, at its ``yield``. Nothing of
``decide`` touches a port: ``perform`` carries the instructions out.
"""

import logging
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeVar

from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import Handover, ServerMoves, SlotMoves
from laas_service.app.ports.port_counters import Account
from laas_service.app.records import AllocationRecord, Drift, Observation
from laas_service.domain.compute_hosts import HostMemory
from laas_service.domain.faults.counters import SwitchCounters
from laas_service.domain.faults.observation import ReadingOutcome
from laas_service.domain.faults.reading import FabricReading
from laas_service.domain.inventory import PortRef
from laas_service.messages import Applied, ConfirmedBy, Initiator, Span

T = TypeVar("T")


# -- questions: they change nothing anywhere ------------------------------------------------


class Ask(Enum):
    """A question without arguments."""

    TIME = auto()
    """The time now."""
    SECONDS = auto()
    """Seconds of a clock that only runs forward."""
    OTHER_HOSTS = auto()
    """The names of the hosts of all other fabrics."""
    LEDGER = auto()
    """The ledger of the fabric."""
    APPLIED = auto()
    """What the switches run (``Applied``), read once a round and after each publication."""
    HOST_MEMORY = auto()
    """What is remembered of the compute hosts (``HostMemory``)."""
    ROUTES = auto()
    """What became of the newest routes (``RoutesSeen``)."""
    READING = auto()
    """The last reading of the ports of the fabric; None if there is none."""
    COUNTERS = auto()
    """Port counters that were read since the last question."""
    EXCESSES = auto()
    """What the counters of switches with errors show (``Findings``)."""
    HANDED_OVER = auto()
    """All handovers, by allocation id."""
    AGGREGATES = auto()
    """``Observed``: all aggregates at one moment."""


@dataclass(frozen=True, slots=True)
class AskAllocation:
    """One allocation with its newest events; None if there is none."""

    id: str


@dataclass(frozen=True, slots=True)
class AskAllocations:
    """Every allocation of the fabric in one of these states, without history."""

    states: Collection[State]


@dataclass(frozen=True, slots=True)
class AskPublished:
    """False if routes of this generation were certainly never published.

    The switches need not be read then: that is slow on a large fabric.
    """

    generation: int


@dataclass(frozen=True, slots=True)
class AskSpent:
    """Seconds, by span, of the publication that brought routes of this generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class AskMarks:
    """Whether the manager's last reading shows other marks than ``wanted``."""

    wanted: frozenset[PortRef]


@dataclass(frozen=True, slots=True)
class AskHosts:
    """The hosts as compute knows them; None if it cannot tell."""

    hosts: frozenset[str]


@dataclass(frozen=True, slots=True)
class AskNearest:
    """Names in compute that nearly match these hosts."""

    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskOccupants:
    """All servers and migrations on these hosts."""

    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskSlotHolders:
    """The servers in the slots of an allocation of class ``shared``."""

    handover: Handover


@dataclass(frozen=True, slots=True)
class AskRunning:
    """The servers that run on the hosts that ``moves`` empties, as ``ComputeReader.running``."""

    moves: ServerMoves


Question = (
    Ask
    | AskAllocation
    | AskAllocations
    | AskPublished
    | AskSpent
    | AskMarks
    | AskHosts
    | AskNearest
    | AskOccupants
    | AskSlotHolders
    | AskRunning
)


# -- effects outside: each begins with a check of the lease -----------------------------------


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish the newest routes of the fabric; the answer is what went wrong, None if nothing."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Make the aggregate of an allocation hold exactly its hosts; ``ready`` must be able to
    start servers now."""

    handover: Handover
    ready: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Dissolve the aggregate of an allocation."""

    handover: Handover
    force: bool = False


@dataclass(frozen=True, slots=True)
class Fence:
    """Make the hosts of an allocation accept no new server."""

    allocation_id: str


@dataclass(frozen=True, slots=True)
class Pool:
    """Put hosts into the pool."""

    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Close:
    """Of ``hosts`` make exactly ``closed`` accept no new server of any project."""

    hosts: frozenset[str]
    closed: frozenset[str]


@dataclass(frozen=True, slots=True)
class StopServer:
    """Ask for a server of any project to be stopped."""

    server: str


@dataclass(frozen=True, slots=True)
class MoveServers:
    """Take the next step of each server of a move; the answer is its ``MoveProgress``."""

    moves: ServerMoves


@dataclass(frozen=True, slots=True)
class Settle:
    """Have servers beyond the slots of a host go; the answer is its ``MoveProgress``."""

    moves: SlotMoves


@dataclass(frozen=True, slots=True)
class Limit:
    """Limit what servers of an allocation send, in Gb/s; the answer is what was ``Limited``."""

    allocation_id: str
    project_id: str
    bandwidth: float
    servers: frozenset[str]


@dataclass(frozen=True, slots=True)
class ForgetLimits:
    """Take back the limits of an allocation."""

    allocation_id: str


@dataclass(frozen=True, slots=True)
class MarkPorts:
    """Have the subnet manager isolate exactly these ports for the service."""

    wanted: frozenset[PortRef]


Effect = (
    Publish
    | HandOver
    | TakeBack
    | Fence
    | Pool
    | Close
    | StopServer
    | MoveServers
    | Settle
    | Limit
    | ForgetLimits
    | MarkPorts
)


# -- records: each is one transaction, which checks the lease too -----------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """A new state of an allocation, or the same again, and its reason; answers with the record."""

    record: AllocationRecord
    state: State
    reason: str
    error: str | None = None
    confirmed_by: ConfirmedBy | None = None
    seconds: Mapping[Span, float] | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Record why the next step of an allocation waits, and when to try again."""

    record: AllocationRecord
    why: str


@dataclass(frozen=True, slots=True)
class HandBack:
    """Record that the tenant's routes must be withdrawn now; answers with the record."""

    record: AllocationRecord
    reason: str = ""
    seconds: Mapping[Span, float] | None = None


@dataclass(frozen=True, slots=True)
class Free:
    """Free the claims of an allocation, which is released then; answers with the record."""

    record: AllocationRecord
    reason: str
    confirmed_by: ConfirmedBy
    seconds: Mapping[Span, float]


@dataclass(frozen=True, slots=True)
class Requeue:
    """Free the claims of an allocation, which is queued again; answers with the record."""

    record: AllocationRecord
    reason: str
    confirmed_by: ConfirmedBy


@dataclass(frozen=True, slots=True)
class Proceed:
    """The next phase of a change of placement, or its end; answers with the record."""

    record: AllocationRecord
    reason: str
    confirmed_by: ConfirmedBy


@dataclass(frozen=True, slots=True)
class TurnBack:
    """Turn a change of placement back; answers with the record."""

    record: AllocationRecord
    reason: str


@dataclass(frozen=True, slots=True)
class RepairLinks:
    """Begin to replace failed links; answers as ``placement_changes.begin_link_repair``."""

    record: AllocationRecord


@dataclass(frozen=True, slots=True)
class BeginMove:
    """Begin the move that was announced, or call it off; answers with the record."""

    record: AllocationRecord


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Record what limits what the servers of an allocation send; answers with the record."""

    record: AllocationRecord
    by: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """From now on changes of the fabric's routes are published."""


@dataclass(frozen=True, slots=True)
class RecordLoss:
    """Record what the switches run instead of the newest routes."""

    applied: Applied


@dataclass(frozen=True, slots=True)
class RecordFaults:
    """Record which failed hosts and links allocations hold."""


@dataclass(frozen=True, slots=True)
class RecordComparison:
    """Record that all that is recorded was compared with all that is observed."""


@dataclass(frozen=True, slots=True)
class RecordCounters:
    """Keep readings of port counters until they are accounted."""

    readings: tuple[SwitchCounters, ...]


@dataclass(frozen=True, slots=True)
class AccountCounters:
    """Account some readings of port counters; the answer is whether there may be more."""

    account: Account


@dataclass(frozen=True, slots=True)
class JudgeReading:
    """Judge a reading of the ports, and record the judgement; ``judge`` may be called twice."""

    reading: FabricReading
    judge: Callable[[Observation], ReadingOutcome]
    seconds: float
    known: Observation


@dataclass(frozen=True, slots=True)
class JudgeHosts:
    """Judge and record a look at the compute hosts; answers with the memory before and after."""

    judge: Callable[[HostMemory], HostMemory]


RecordKind = (
    Record
    | Wait
    | HandBack
    | Free
    | Requeue
    | Proceed
    | TurnBack
    | RepairLinks
    | BeginMove
    | RecordLimits
    | TakeOver
    | RecordLoss
    | RecordFaults
    | RecordComparison
    | RecordCounters
    | AccountCounters
    | JudgeReading
    | JudgeHosts
)


QUIET = (Wait, RecordLimits, TakeOver, RecordComparison, RecordCounters, AccountCounters)
"""Records that change nothing of what a round has."""


ROUTED = (HandBack, Free, Requeue, Proceed, TurnBack, RepairLinks, BeginMove, JudgeReading)
"""Records that may begin a new generation of routes."""


# -- telling --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tell:
    """Count drift that was found (or, if ``repaired``, that is over), and notify."""

    kind: Drift
    text: str
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Log:
    """Write a log line."""

    text: str
    level: int = logging.WARNING
    error: Exception | None = None
    """With its traceback."""


@dataclass(frozen=True, slots=True)
class ActFor:
    """From now on log lines name this initiator; None names nobody."""

    initiator: Initiator | None


Instruction = Question | Effect | RecordKind | Tell | Log | ActFor

Steps = Generator[Instruction, Any, T]
"""A decision: instructions with their answers, and the result of type ``T``."""
