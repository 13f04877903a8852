# SPDX-License-Identifier: Apache-2.0

"""Requests by the kind of allocation that they ask for: a table, and the kinds with whole hosts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from laas_service.app.lookup import Lookup, check_hosts, hosts_wanted
from laas_service.app.ports.snapshots import Snapshot
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord, Caller
from laas_service.app.refusals import explained, with_room
from laas_service.app.requests import AllocationRequest, Fit
from laas_service.domain.admission.admit import largest_fit
from laas_service.domain.admission.constrained import explain_constraints, propose
from laas_service.domain.admission.undisturbed import disturbance
from laas_service.domain.allocation import NoFit, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.policies.base import BudgetedPolicy
from laas_service.domain.routing.contention import contention
from laas_service.domain.tenancy import Kind


class Destination(NamedTuple):
    """Where a request is to be placed, and by which policy."""

    fabric: str
    parent: str | None
    policy: str


class RequestsOfKind(Protocol):
    """Answers for requests that ask for one kind of allocation."""

    def check(self, asked: AllocationRequest) -> None:
        """Return if the request itself is right. Raises: InvalidInput, NotSupported."""

    def target(self, caller: Caller, snapshot: Snapshot, asked: AllocationRequest) -> Destination:
        """The place with all defaults. Raises: NotFound, InvalidInput."""

    def admitted(self, record: AllocationRecord) -> None:
        """Make ready what requests inside a new allocation need."""

    def explained(
        self,
        caller: Caller,
        request: AllocationRequest,
        refusal: NoFit,
        budget: RequestBudget,
        effort: RequestBudget,
        server_limit: int | None,
    ) -> NoFit:
        """The refusal with what would fit, as far as the budget allows to search for it.

        ``effort`` is for how to make room.
        """

    def fit(
        self,
        caller: Caller,
        asked: AllocationRequest,
        risks: Sequence[float],
        budget: RequestBudget,
    ) -> Fit:
        """Whether the request would fit now, and the largest size that would.

        With ``risks`` also how many such tenants on shared hosts fit at each of them.

        Raises: NotFound, InvalidInput.
        """


@dataclass(frozen=True, slots=True)
class Kinds:
    """What requests mean: ``lookup`` finds what they name, ``answers`` are by their kind."""

    lookup: Lookup
    answers: Mapping[type[Kind], RequestsOfKind]

    def of(self, kind: Kind) -> RequestsOfKind:
        return self.answers[type(kind)]


class WholeHosts:
    """Answers for requests for whole hosts: owned ones, and those of containers."""

    def __init__(self, store: Store, lookup: Lookup) -> None:
        self._store = store
        self._lookup = lookup

    def check(self, asked: AllocationRequest) -> None:
        self._lookup.policy(asked.policy)
        check_hosts(asked)

    def target(self, caller: Caller, snapshot: Snapshot, asked: AllocationRequest) -> Destination:
        policy = self._lookup.policy(asked.policy)
        if asked.parent is not None:
            fabric = self._lookup.container(caller, snapshot, asked).fabric
        else:
            fabric = self._lookup.fabric(snapshot, asked.fabric)
        return Destination(fabric, asked.parent, policy.name)

    def admitted(self, record: AllocationRecord) -> None:
        pass

    def explained(
        self,
        caller: Caller,
        request: AllocationRequest,
        refusal: NoFit,
        budget: RequestBudget,
        effort: RequestBudget,
        server_limit: int | None,
    ) -> NoFit:
        policy = BudgetedPolicy(self._lookup.policy(request.policy), budget)
        ledger = self._store.fabrics.ledger(request.fabric)[0].ledger(request.parent)
        words = self._store.components.words(request.fabric)
        admin = caller.admin
        answer = explained(refusal, request, policy, ledger, admin, words, effort, server_limit)
        return replace(answer, cut_off=budget.cut or effort.cut)

    def fit(
        self,
        caller: Caller,
        asked: AllocationRequest,
        risks: Sequence[float],
        budget: RequestBudget,
    ) -> Fit:
        self.check(asked)
        policy = BudgetedPolicy(self._lookup.policy(asked.policy), budget)
        snapshot = self._lookup.read(asked)
        if asked.parent is not None:
            self._lookup.container(caller, snapshot, asked)
        here = snapshot.possible[self._lookup.fabric(snapshot, asked.fabric)]
        ledger = here.ledger.ledger(asked.parent)
        constraints = self._lookup.constraints(here, asked)
        hosts = hosts_wanted(asked, policy, ledger, constraints)
        request = Request("", hosts, constraints=constraints)
        answer = propose(policy, ledger, request)
        if isinstance(answer, NoFit):
            answer = explain_constraints(policy, ledger, request, answer)
            words = self._store.components.words(asked.fabric)
            answer = with_room(policy, ledger, request, answer, caller.admin, words, budget)
        if constraints is not None and constraints.kind and constraints.domains is not None:
            number = len(ledger.features.domains(ledger.topology, constraints.kind))
            constraints = replace(constraints, domains=number)
        largest = largest_fit(policy, ledger, ledger.free_host_count + 1, constraints)
        reached = None if isinstance(answer, NoFit) else contention(ledger.topology, answer)
        routes = disturbance(ledger, request, answer)
        return Fit(answer, largest, budget.cut, reached, disturbance=routes, hosts=hosts)
