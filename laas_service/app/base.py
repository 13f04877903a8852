# SPDX-License-Identifier: Apache-2.0

"""What all use cases share: the ports, and looking up what is named in a request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.agent_registry import Agency
from laas_service.app.ports.allocations import (
    Admissions,
    AllocationReader,
    PlacementChanges,
    Transitions,
)
from laas_service.app.ports.compute import Compute
from laas_service.app.ports.fabrics import ComponentStates, FabricReader, FabricRegistry
from laas_service.app.ports.observations import Observations
from laas_service.app.ports.subnet_manager import Switches
from laas_service.app.records import AllocationRecord, Caller, FabricRecord, Limits, State
from laas_service.app.requests import LIVE, AllocationRequest, ServicePolicy
from laas_service.domain.admission.constrained import check
from laas_service.domain.admission.make_room import fits_when_empty, make_room
from laas_service.domain.admission.queue import QueueSettings as Discipline
from laas_service.domain.allocation import NoFit, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.constraints import Constraints
from laas_service.domain.errors import Conflict, InvalidInput, NotFound
from laas_service.domain.ledger import LedgerView
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.base import BudgetedPolicy, Policy

PAGE = 1000
"""Records fetched at once where all are wanted."""


class UseCaseStore(
    AllocationReader,
    Admissions,
    Transitions,
    PlacementChanges,
    FabricReader,
    FabricRegistry,
    ComponentStates,
    Observations,
    Protocol,
):
    """The recorded decisions, as the use cases need them."""


class Base:
    """The ports, the rules, and what the names in a request mean.

    ``subnet_managers`` by name. ``wake`` nudges a worker; losing a nudge costs a
    poll interval, never work. ``new_id`` gives a fresh allocation id. ``agency`` is there
    where agents reach OpenSM.
    """

    def __init__(
        self,
        store: UseCaseStore,
        compute: Compute,
        subnet_managers: Mapping[str, Switches],
        rules: ServicePolicy,
        *,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None],
        wake: Callable[[], None],
        new_id: Callable[[], str],
        agency: Agency | None = None,
    ) -> None:
        if rules.default_policy not in rules.policies:
            raise InvalidInput(
                "default_policy", rules.default_policy, choose(rules.policies, "policy")
            )
        self._store = store
        self._compute = compute
        self._subnet_managers = subnet_managers
        self._policies = {name: BudgetedPolicy(policy) for name, policy in rules.policies.items()}
        self._rules = rules
        self._clock = clock
        self._sleep = sleep
        self._wake = wake
        self._new_id = new_id
        self._agency = agency
        everything: dict[str, Policy] = {name: policy() for name, policy in POLICIES.items()}
        self._line = AdmissionQueue(
            store, {**everything, **self._policies}, rules.queue, clock=clock
        )
        self._waiters = threading.BoundedSemaphore(rules.waiters)

    def adopt(self, queue: Discipline, limits: Limits) -> None:
        """Serve who waits by this discipline, and hold projects to these limits, from now on."""
        self._rules = replace(self._rules, queue=queue, limits=limits)
        self._line.adopt(queue)

    @property
    def agency(self) -> Agency:
        """The use cases of agents. Raises: Conflict, where there are none."""
        if self._agency is None:
            raise Conflict("agents are not used here; set [opensm] reached_by = agent")
        return self._agency

    def exhausted(self) -> dict[str, int]:
        """By policy, how many searches of this process stopped at their budget."""
        return {name: policy.exhausted for name, policy in self._policies.items()}

    def _meter(self, parts: int = 1) -> RequestBudget:
        """The budget of one request for searching, or one of so many equal parts of it."""
        return RequestBudget(self._rules.search_budget // parts)

    def allocation(self, caller: Caller, id: str) -> AllocationRecord:
        """One allocation with its history.

        Raises:
            NotFound: there is none of that id that the caller may see.
        """
        record = self._store.allocation(id)
        if not caller.admin and record.project_id != caller.project_id:
            raise NotFound("allocation", id)
        return record

    def _with_ledger(self, fabric_id: str) -> tuple[FabricRecord, LedgerView]:
        """The fabric and its ledger, of the same generation."""
        fabric = self._store.fabric(fabric_id)
        ledger, generation = self._store.ledger(fabric_id)
        while ledger.topology is not fabric.topology:  # it was imported anew in between
            fabric = self._store.fabric(fabric_id)
            ledger, generation = self._store.ledger(fabric_id)
        return replace(fabric, generation=generation), ledger

    def _policy(self, name: str | None) -> Policy:
        name = self._rules.default_policy if name is None else name
        if name not in self._policies:
            raise InvalidInput("policy", name, choose(self._policies, "policy"))
        return self._policies[name]

    def _choose_fabric(self, id: str | None) -> str:
        """The fabric asked for, the configured one, or the only one there is."""
        id = id or self._rules.default_fabric
        if id is not None:
            return self._store.fabric(id).id
        known = [fabric.id for fabric in self._store.fabrics()]
        if not known:
            raise NotFound("fabric", "default")
        if len(known) > 1:
            raise InvalidInput("fabric", None, choose(known, "fabric"))
        return known[0]

    def _container(self, caller: Caller, id: str, fabric_id: str | None) -> AllocationRecord:
        """The container that somebody wants to be inside; it must be theirs, or they an admin.

        Raises:
            NotFound: there is no such allocation that the caller may see.
            InvalidInput: it is no container, of another fabric, or does not hold hosts (yet).
        """
        record = self.allocation(caller, id)
        if not record.container:
            raise InvalidInput("parent", id, "name an allocation made with container: true")
        if fabric_id is not None and fabric_id != record.fabric:
            raise InvalidInput("fabric", fabric_id, f"the container is on {record.fabric}")
        if record.state not in (State.ALLOCATING, State.ACTIVE):
            raise InvalidInput("parent", id, f"it is {record.state.value}; name one that is active")
        return record

    def _constraints(self, fabric_id: str, ask: AllocationRequest) -> Constraints | None:
        """What was asked of hosts and place, the hosts to avoid by number; None if nothing.

        Raises:
            InvalidInput: the fabric has no such host, pod or trait.
        """
        numbers = self._store.fabric(fabric_id).inventory.host_numbers
        wish = ask.constraints or Constraints()
        if unknown := sorted(set(ask.avoid) - numbers.keys()):
            fix = f"fabric {fabric_id} has no host of this name"
            raise InvalidInput("constraints.avoid_hosts", ", ".join(unknown), fix)
        if ask.avoid:
            avoid = wish.avoid_hosts.union(numbers[name] for name in ask.avoid)
            wish = replace(wish, avoid_hosts=avoid)
        if not wish.names:
            return None
        check(self._store.ledger(fabric_id)[0], wish)
        return wish

    def _all_live(
        self, *, fabric: str | None = None, project_id: str | None = None
    ) -> Iterator[AllocationRecord]:
        marker = None
        while page := self._store.allocations(
            fabric=fabric, project_id=project_id, states=LIVE, limit=PAGE, marker=marker
        ):
            yield from page
            marker = page[-1].id


def choose(names: Collection[str], kind: str) -> str:
    return f"name a {kind} out of: {', '.join(sorted(names))}"


def with_room(
    policy: Policy, ledger: LedgerView, request: Request, refusal: NoFit, admin: bool
) -> NoFit:
    """Whether others are in the way, and for administrators who: tenants see no other's id."""
    ledger = ledger.surface()
    possible = fits_when_empty(policy, ledger, request)
    room = make_room(policy, ledger, request) if possible and admin else None
    return replace(refusal, fits_when_empty=possible, room=room)
