# SPDX-License-Identifier: Apache-2.0

"""All use cases of one process, and how they are composed."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from laas_service import background
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.agent_registry import AgentRegistry
from laas_service.app.allocation_views import AllocationViews
from laas_service.app.allocations import AllocationUseCases
from laas_service.app.certificates import Certificates
from laas_service.app.changes import ChangeUseCases
from laas_service.app.components import ComponentUseCases
from laas_service.app.fabric_maps import FabricMaps
from laas_service.app.fabrics import FabricUseCases
from laas_service.app.kinds import Kinds, WholeHosts
from laas_service.app.lookup import Lookup
from laas_service.app.moves import Moves
from laas_service.app.ports.compute import Compute
from laas_service.app.ports.projects import Projects
from laas_service.app.ports.store import Store
from laas_service.app.ports.subnet_manager import ReadBack
from laas_service.app.quotas import ProjectLimits
from laas_service.app.records import Limits
from laas_service.app.requests import Runtime, ServicePolicy
from laas_service.app.sharing.map import MapSections
from laas_service.app.sharing.promises import lacking
from laas_service.app.sharing.requests import sharing_kinds
from laas_service.app.sharing.use_cases import SharingUseCases
from laas_service.domain.admission.queue import Discipline
from laas_service.domain.errors import Conflict
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.base import BudgetedPolicy, Policy
from laas_service.domain.sharing.policy import Ahead, SharedSlots
from laas_service.domain.tenancy import Container, Owned, Slots

NOBODY_TELLS = Projects()

PAUSE = 0.01
"""Seconds after each step in the background, for requests."""


READ_AHEAD = "laas-read-ahead"
"""Name of threads that read ahead."""


def in_background(steps: Callable[[], Iterator[None]]) -> None:
    """Take the steps in a thread of its own; all of them again after an error."""

    def run() -> None:
        for _ in steps():
            time.sleep(PAUSE)

    background.start(READ_AHEAD, run, again=background.AGAIN)


def every_policy(slots: SharedSlots) -> dict[str, Policy]:
    """All policies that a request may have been recorded with, by name."""
    return {slots.name: slots} | {name: policy() for name, policy in POLICIES.items()}


class UseCases:
    """The use cases side by side.

    ``subnet_managers`` are by name. ``registry`` is None where no agents reach OpenSM. ``projects``
    looks up the projects that administrators name. ``ahead`` takes the steps of what is read ahead
    of requests; by default nothing is.

    Raises:
        InvalidInput: the default policy is not offered.
    """

    def __init__(
        self,
        store: Store,
        compute: Compute,
        subnet_managers: Mapping[str, ReadBack],
        offer: ServicePolicy,
        runtime: Runtime,
        *,
        registry: AgentRegistry | None = None,
        projects: Projects = NOBODY_TELLS,
        ahead: Ahead = lambda steps: None,
    ) -> None:
        self._policies = {name: BudgetedPolicy(p) for name, p in offer.policies.items()}
        self._registry, self._store = registry, store
        clock, wake = runtime.clock, runtime.wake
        slots = SharedSlots(ahead)
        lookup = Lookup(
            store,
            self._policies,
            projects,
            default_policy=offer.default_policy,
            default_fabric=offer.default_fabric,
            contention_free=offer.contention_free,
            foreign_default_routes=offer.foreign_default_routes,
        )
        sharing, hosts = (
            sharing_kinds(store, lookup, slots, offer.unshared),
            WholeHosts(store, lookup),
        )
        kinds = Kinds(lookup, {Owned: hosts, Container: hosts, **sharing})
        self._queue = AdmissionQueue(
            store, {**every_policy(slots), **self._policies}, offer.queue, clock=clock
        )
        self.quotas = ProjectLimits(
            store,
            compute,
            limits=offer.limits,
            one_per_project=offer.one_per_project,
            unmoved=offer.unmoved,
        )
        self.views = AllocationViews(
            store,
            self._queue,
            search_budget=offer.search_budget,
            repair_links=offer.repair_links,
            lacking=partial(lacking, store, slots),
        )
        self.allocations = AllocationUseCases(
            store, compute, kinds, self._queue, self.quotas, self.views, offer, runtime
        )
        self.changes = ChangeUseCases(
            store, compute, lookup, self.quotas, search_budget=offer.search_budget, wake=wake
        )
        self.moves = Moves(
            store,
            compute,
            lookup,
            self.quotas,
            clock=clock,
            wake=wake,
            live_ports=offer.live_ports,
        )
        self.certificates = Certificates(store, lookup, runtime)
        self.components = ComponentUseCases(store, wake=wake)
        self.fabrics = FabricUseCases(
            store,
            subnet_managers,
            kinds,
            offer,
            runtime,
        )
        sections = MapSections(store, sharing[Slots], slots)
        self.maps = FabricMaps(
            store,
            lookup,
            self._queue,
            sections.promises,
            sections.answer,
            search_budget=offer.search_budget,
            clock=clock,
        )
        self.sharing = SharingUseCases(
            store,
            compute,
            lookup,
            self.quotas,
            self.moves,
            slots,
            search_budget=offer.search_budget,
            wake=wake,
        )

    @property
    def agents(self) -> AgentRegistry:
        """The use cases of agents. Raises: Conflict, where agents are not used."""
        if self._registry is None:
            raise Conflict(
                "agents are not used here; set [opensm] reached_by = agent, or [ufm] agent"
            )
        return self._registry

    def prepare(self) -> None:
        """Read the ledgers ahead of requests, and what those for slots of shared hosts need."""
        for fabric in self._store.fabrics.ids():
            self._store.fabrics.ledger(fabric)
        self.sharing.prepare()

    def reload(
        self, discipline: Discipline, limits: Limits, unmoved: frozenset[str] = frozenset()
    ) -> None:
        """Serve queues by this discipline, hold projects to these limits, and move none of the
        projects in ``unmoved``, from now on."""
        self._queue.reload(discipline)
        self.quotas.limits, self.quotas.unmoved = limits, unmoved

    def exhausted(self) -> dict[str, int]:
        """By policy, how many searches of this process stopped at their budget."""
        return {name: policy.exhausted for name, policy in self._policies.items()}
