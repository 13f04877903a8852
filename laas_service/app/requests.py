# SPDX-License-Identifier: Apache-2.0

"""Requests for allocations, what a deployment offers, and the answers of the use cases."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from laas_service.app.lifecycle import Change
from laas_service.app.records import (
    NO_LIMITS,
    AllocationRecord,
    Drift,
    FabricRecord,
    Holding,
    Limits,
    Observation,
    QueueRoom,
    Source,
)
from laas_service.domain.admission.queue import Discipline
from laas_service.domain.admission.undisturbed import Disturbance
from laas_service.domain.allocation import (
    Allocation,
    NoFit,
    Sharing,
    SlotDemand,
)
from laas_service.domain.compute_hosts import Cause
from laas_service.domain.constraints import Constraints, ContentionFree
from laas_service.domain.errors import Conflict
from laas_service.domain.faults.counters import Findings
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.faults.observation import Mode
from laas_service.domain.moves.consent import NO_CONSENT, Consent
from laas_service.domain.policies.base import Policy
from laas_service.domain.routing.contention import Contention
from laas_service.domain.routing.tenant_tables import joined_rails
from laas_service.domain.tenancy import Kind, kind_of
from laas_service.messages import Applied, Initiator


@dataclass(frozen=True, slots=True)
class ServicePolicy:
    """What this deployment offers."""

    policies: Mapping[str, Policy]
    """By name."""
    default_policy: str
    contention_free: ContentionFree | None = None
    """Of requests that say nothing of it."""
    foreign_default_routes: bool = False
    """Whether a subnet manager chooses the default routes, as with routing chains and UFM. Then
    nobody can ask to be undisturbed."""
    default_fabric: str | None = None
    """Needed only if there are several fabrics."""
    one_per_project: bool = False
    """A project may have one live allocation only: Nova's stock filter alone cannot tell the
    hosts of two allocations of one project apart."""
    waiters: int = 8
    """How many callers may wait for outcomes at one time."""
    queue: Discipline = field(default_factory=Discipline)
    limits: Limits = NO_LIMITS
    """Of projects without a quota of their own."""
    search_budget: int = 4_000_000
    """Bounds all searches for one request together; unit as ``domain.budget``."""
    unshared: str = ""
    """Why allocations of class ``shared`` are not offered; empty if they are."""
    unmoved: frozenset[str] = frozenset()
    """Projects whose allocations are never moved for others."""
    repair_links: bool = True
    """The workers replace links that have failed."""
    fault_mode: Mode = Mode.ACT
    """What observation may change where no administrator chose a mode."""
    live_ports: bool = False
    """The ports of servers can migrate live."""
    move_window: float = 3600.0
    """As that of ``worker.round.WorkerRules``."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A signed statement: a JWS in flattened JSON (RFC 7515, section 7.2.2), by its parts."""

    payload: str
    protected: str
    signature: str


def unsigned(statement: Mapping[str, Any]) -> Envelope:
    """Raises: Conflict, because this process has no keys."""
    raise Conflict("this process has no keys for certificates")


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a process gives its use cases."""

    clock: Callable[[], datetime]
    sleep: Callable[[float], None]
    wake: Callable[[], None]
    """Wakes a worker; if it is lost, the worker acts one poll interval later."""
    new_id: Callable[[], str]
    """Gives a fresh allocation id."""
    sign: Callable[[Mapping[str, Any]], Envelope] = unsigned
    """Signs a certificate. Raises: Unavailable, if a key cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRequest:
    """A request for hosts, or with ``slots`` for slots of shared hosts (``hosts`` is 0 then).

    ``Allocations`` fills in what the caller left empty, and the fields of the second group,
    before anything is searched or recorded.
    """

    name: str
    unique_name: bool = False
    """No other live allocation of the project may have the name."""
    hosts: int
    fabric: str = ""
    """Empty: the default."""
    policy: str = ""
    """Empty: the default."""
    project_id: str = ""
    """Empty: the caller's own."""
    idempotency_key: str | None = None
    wait: bool = False
    """Queue the request if there is no room."""
    duration: float | None = None
    """Seconds it is expected to hold its hosts; None if unknown."""
    constraints: Constraints | None = None
    avoid: tuple[str, ...] = ()
    """Names of hosts to avoid, beside those that the constraints give by number."""
    parent: str | None = None
    """The container to be inside."""
    container: bool = False
    """It is for further allocations, which name it as ``parent``."""
    sharing: Sharing | None = None
    """Its hosts are shared by further allocations, which name it as ``parent``."""
    slots: SlotDemand | None = None
    risk: float | None = None
    """The highest probability that is accepted of demands that exceed a link."""
    consent: Consent = NO_CONSENT
    priority: int | None = None
    """In the queue a higher one goes first; None counts as 0. Equal ones: by creation."""

    id: str = ""
    by: Initiator | None = None
    limits: Limits = NO_LIMITS
    """Of a project without a quota of its own."""
    alone: bool = False
    """Its project may hold no other allocation; containers do not count."""
    as_asked: "AllocationRequest | None" = None
    """The request as the caller made it."""
    project_checked: bool = True
    """False: an administrator named the project, and nobody could tell whether it exists."""

    @property
    def kind(self) -> Kind:
        """The kind of the allocation that is asked for."""
        return kind_of(self.container, self.sharing, self.slots)

    @property
    def named(self) -> str:
        """What is asked for."""
        return self.kind.named(self.hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeRequest:
    """A request for another size of an allocation, where it is."""

    hosts: int
    give_back: tuple[str, ...] = ()
    """Names of its hosts that a smaller allocation may lose; empty: those without servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceRequest:
    """A request for other hosts in place of some of an allocation."""

    hosts: tuple[str, ...] = ()
    """Names of its hosts to leave; empty: those that have failed."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a queued request stands (1 is the head) and what it waits for.

    ``refusal`` is None if it fits and is about to be admitted. ``expected_start``
    is the head's reservation, None if it has none.
    """

    position: int
    refusal: NoFit | None
    expected_start: datetime | None = None
    room: QueueRoom | None = None
    """The plan that makes room for it; None if there is none."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The answer to a dry run, with the cost of its hosts; nothing is reserved."""

    fabric: FabricRecord
    project_id: str
    allocation: Allocation
    cost: int = 0
    change: Change | None = None
    """The change of an allocation that there is; None for a new one."""
    disturbance: Disturbance | None = None
    """As in ``Fit``."""


MOST_RISKS = 8
"""Risks that one question may name."""


@dataclass(frozen=True, slots=True)
class RiskFit:
    """How many further tenants with the demand asked for fit on shared hosts at a risk."""

    risk: float
    """The highest probability that demands exceed a link."""
    tenants: int
    more: bool
    """No further ones were tried."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a size would fit now, and the largest size that would.

    With ``cut_off`` the searches stopped at the budget of the request: more may fit. Of slots,
    ``risks`` has what other risks would give, ascending.
    """

    answer: Allocation | NoFit
    largest: int
    cut_off: bool = False
    contention: Contention | None = None
    """What the placement reaches; None if it does not fit."""
    risks: tuple[RiskFit, ...] = ()
    disturbance: Disturbance | None = None
    """What default routes would do to it; None unless it or another owner asks about that."""
    hosts: int = 0
    """What was asked for, also where the request named domains; 0: slots."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The generation of the desired routes, and the generation that the switches run.

    ``applied`` is by subnet manager; ``holding`` is what the worker that converges the fabric
    saw last.
    """

    wanted: int
    applied: Mapping[str, Applied]
    holding: Holding


@dataclass(frozen=True, slots=True)
class Watched:
    """Whether the switches run the desired routes, how often drift was found and repaired, and
    which worker converges the fabric.

    ``links`` counts the links that are not up, by state and source. ``withheld`` counts the hosts
    that no new owner gets for what compute shows of them.
    """

    current: bool
    drift: Mapping[Drift, int]
    repaired: Mapping[Drift, int]
    holding: Holding
    links: Mapping[tuple[str, Source], int]
    observation: Observation
    counters: tuple[Findings, ...]
    withheld: Mapping[Cause, int]


@dataclass(frozen=True, slots=True)
class FabricObservation:
    """What is observed of a fabric, and the mode that is valid: chosen, else configured.

    ``counters`` are the findings of each switch whose port counters were read, by GUID.
    """

    fabric: FabricRecord
    observation: Observation
    mode: Mode
    counters: tuple[Findings, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far convergence is with an allocation.

    The next step (None: there is none), how often it failed in a row, when it is tried again,
    and the generation of its routes: wanted, and seen in the switches. ``synced`` says that the
    wanted one, or a later one, is confirmed by somebody who looked.
    """

    next_step: str | None
    failures: int
    next_try: datetime | None
    generation_wanted: int | None
    generation_seen: int | None
    synced: bool = False


@dataclass(frozen=True, slots=True)
class AllocationView:
    """An allocation and what follows from it now."""

    record: AllocationRecord
    fabric: FabricRecord
    place: Place | None
    """None unless it is queued."""
    degraded: Degraded | None
    """None if nothing that it uses has failed."""
    delay: str | None = None
    """What has kept its worker for long, if it has a step to take now."""
    progress: Progress | None = None
    """None in lists."""
    crossed_by: int | None = None
    """Ordered pairs of ports of others that have to cross its links; None unless it asked to be
    undisturbed and holds links."""

    @property
    def rails_joined(self) -> bool | None:
        """Whether the rails have one partition key, and the links that carry traffic join them.

        None before admission. The rails of one host without links are not joined.
        """
        traffic = self.record.traffic
        if traffic is None or not self.record.pkey:
            return None
        topology = self.fabric.topology
        joined = not any(joined_rails(topology, self.fabric.inventory, traffic))
        linked = (
            topology.rails == 1 or not traffic.isolated or any(g.uplinks for g in traffic.groups)
        )
        return joined and linked and not self.record.pkeys
