# SPDX-License-Identifier: Apache-2.0

"""What decisions ask for: a method with its arguments, as a frozen value.

A decision is a generator. It yields one instruction at a time, gets the answer, and returns its
result. An error of an instruction is raised in the decision, at its ``yield``. Nothing of
``decide`` has an object with one of these methods: ``perform`` alone has, and calls them.

The names at the end are all that a decision can ask for: ``yield from fence(id)`` asks for
``Compute.fence``, whose docstring says what it does. The types of its arguments and of its answer
hold here, too.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from laas_service.app.ports.allocations import Allocations
from laas_service.app.ports.components import Components
from laas_service.app.ports.compute import Compute, ComputeReader
from laas_service.app.ports.faults import Faults
from laas_service.app.ports.observations import Observations
from laas_service.app.ports.placement_changes import PlacementChanges
from laas_service.app.ports.rate_limits import RateLimits
from laas_service.app.ports.subnet_manager import SubnetManager, SubnetManagerReader
from laas_service.app.worker.fabric_store import FabricStore
from laas_service.app.worker.route_publisher import RoutePublisher
from laas_service.messages import Initiator

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Kind(Enum):
    """What an instruction may change, and what that means for a round."""

    QUESTION = auto()
    """Nothing anywhere."""
    EFFECT = auto()
    """Something outside. It has a name, and begins with a check of the lease."""
    NOTE = auto()
    """Records what a round does not have. Each record is one transaction, and checks the lease."""
    RECORD = auto()
    """Records what a round has: it is read again."""
    ROUTES = auto()
    """Records what a round has, and may begin a new generation of routes."""


@dataclass(frozen=True, slots=True)
class Call:
    """One method to call, with its arguments."""

    verb: "Verb[..., Any]"
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]


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


Instruction = Call | Log | ActFor

Steps = Generator[Instruction, Any, T]
"""A decision: instructions with their answers, and the result of type ``T``."""


@dataclass(frozen=True, slots=True)
class Verb(Generic[P, R]):
    """A method that decisions may ask for; ``R`` is its answer."""

    kind: Kind
    method: Callable[Concatenate[Any, P], R]

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> Steps[R]:
        """A decision that asks for it, and returns the answer."""
        answer: R = yield self.asked(*arguments, **named)
        return answer

    @property
    def owner(self) -> str:
        """The class that has the method."""
        return self.method.__qualname__.partition(".")[0]

    @property
    def name(self) -> str:
        return self.method.__name__

    def asked(self, *arguments: P.args, **named: P.kwargs) -> Call:
        """The instruction."""
        return Call(self, arguments, named)


Readable = TypeVar("Readable", ComputeReader, SubnetManagerReader, FabricStore, RoutePublisher)


def question(method: Callable[Concatenate[Readable, P], R]) -> Verb[P, R]:
    """The type checker refuses a method of ``Compute`` or ``SubnetManager``, which acts."""
    return Verb(Kind.QUESTION, method)


time = question(FabricStore.time)
seconds = question(FabricStore.seconds)
allocation = question(FabricStore.allocation)
allocations = question(FabricStore.allocations)
other_hosts = question(FabricStore.other_hosts)
ledger = question(FabricStore.ledger)
excesses = question(FabricStore.excesses)
host_memory = question(FabricStore.host_memory)
applied = question(RoutePublisher.applied)
standing = question(RoutePublisher.standing)
routes_seen = question(RoutePublisher.seen)
runs_newest = question(RoutePublisher.runs_newest)
can_be_confirmed = question(RoutePublisher.can_be_confirmed)
spent = question(RoutePublisher.spent)
reading = question(SubnetManagerReader.reading)
counters = question(SubnetManagerReader.counters)
marks_differ = question(SubnetManagerReader.marks_differ)
handed_over = question(ComputeReader.handed_over)
aggregates = question(ComputeReader.observed)
look = question(ComputeReader.look)
nearest = question(ComputeReader.nearest)
occupants = question(ComputeReader.occupants)
slot_holders = question(ComputeReader.slot_holders)
running = question(ComputeReader.running)

hand_over = Verb(Kind.EFFECT, Compute.hand_over)
take_back = Verb(Kind.EFFECT, Compute.take_back)
fence = Verb(Kind.EFFECT, Compute.fence)
pool = Verb(Kind.EFFECT, Compute.pool)
close = Verb(Kind.EFFECT, Compute.close)
stop = Verb(Kind.EFFECT, Compute.stop)
move_servers = Verb(Kind.EFFECT, Compute.move_servers)
settle_slots = Verb(Kind.EFFECT, Compute.settle_slots)
limit = Verb(Kind.EFFECT, RateLimits.limit)
forget_limits = Verb(Kind.EFFECT, RateLimits.forget_limits)
mark_ports = Verb(Kind.EFFECT, SubnetManager.mark_ports)

publish = Verb(Kind.NOTE, RoutePublisher.publish)  # an effect, if there is something to publish
take_over = Verb(Kind.NOTE, RoutePublisher.take_over)
wait = Verb(Kind.NOTE, FabricStore.wait)
note_limits = Verb(Kind.NOTE, Allocations.note_limits)
note_drift = Verb(Kind.NOTE, Observations.note_drift)
note_repaired = Verb(Kind.NOTE, Observations.note_repaired)
note_compared = Verb(Kind.NOTE, Observations.note_compared)
record_counters = Verb(Kind.NOTE, Faults.record_counters)
account_counters = Verb(Kind.NOTE, Faults.account_counters)

transition = Verb(Kind.RECORD, Allocations.transition)
return_switches = Verb(Kind.ROUTES, Components.return_switches)
note_faults = Verb(Kind.RECORD, Components.note_faults)
judge_hosts = Verb(Kind.RECORD, FabricStore.judge_hosts)
record_loss = Verb(Kind.RECORD, RoutePublisher.record_loss)

hand_back = Verb(Kind.ROUTES, Allocations.hand_back)
free = Verb(Kind.ROUTES, Allocations.free)
requeue = Verb(Kind.ROUTES, Allocations.requeue)
proceed = Verb(Kind.ROUTES, PlacementChanges.proceed)
turn_back = Verb(Kind.ROUTES, PlacementChanges.turn_back)
repair_links = Verb(Kind.ROUTES, FabricStore.repair_links)
begin_move = Verb(Kind.ROUTES, FabricStore.begin_move)
judge_reading = Verb(Kind.ROUTES, Faults.judged)
