# SPDX-License-Identifier: Apache-2.0

"""The use cases of fabrics: utilization, fit, routing, observation, common plane."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from laas_service.app import lifecycle, safeguards
from laas_service.app.components import what_is_said
from laas_service.app.kinds import Kinds
from laas_service.app.lifecycle import LIVE
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.store import Store
from laas_service.app.ports.subnet_manager import ReadBack
from laas_service.app.records import Caller, FabricRecord
from laas_service.app.requests import (
    AllocationRequest,
    FabricObservation,
    Fit,
    Routing,
    Runtime,
    ServicePolicy,
    Watched,
)
from laas_service.app.views.traffic import TenantTraffic, tenant_traffic
from laas_service.app.views.utilization import Utilization, utilization
from laas_service.domain import common_plane_cost
from laas_service.domain.budget import RequestBudget
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.crossed_links import CrossedLinks, crossed_links, why_crossed
from laas_service.domain.errors import Unavailable
from laas_service.domain.faults.counters import Findings
from laas_service.domain.faults.observation import Mode
from laas_service.domain.idle_links import IdleComponents, idle_components
from laas_service.domain.topology import Link
from laas_service.messages import Applied


class FabricUseCases:
    """The use cases of fabrics.

    ``subnet_managers`` read back what switches run, by name.
    """

    def __init__(
        self,
        store: Store,
        subnet_managers: Mapping[str, ReadBack],
        kinds: Kinds,
        offer: ServicePolicy,
        runtime: Runtime,
    ) -> None:
        self._store = store
        self._subnet_managers = subnet_managers
        self._kinds, self._lookup = kinds, kinds.lookup
        self._policies = list(offer.policies.values())
        self._search_budget = offer.search_budget
        self._fault_mode = offer.fault_mode
        self._move_window = offer.move_window
        self._clock, self._wake = runtime.clock, runtime.wake

    def ready(self) -> None:
        """Return if the database answers and has this release's tables. Raises: Unavailable."""
        self._store.check()

    def healthy(self) -> None:
        """Return if the database is ready and takes writes. Raises: Unavailable."""
        self._store.check()
        self._store.check_writes()

    def fabrics(self) -> list[FabricRecord]:
        """All fabrics by id."""
        return self._store.fabrics.all()

    def default(self) -> str | None:
        """The id of the fabric that is meant if none is named; see ``Lookup.default_fabric``."""
        return self._lookup.default_fabric(self._store.fabrics.ids())

    def fabric(self, id: str) -> FabricRecord:
        """Raises: NotFound."""
        return self._store.fabrics.get(id)

    def delete(self, id: str) -> FabricRecord:
        """Forget a fabric and all that is recorded of it; returns it as it was.

        What OpenSM and Nova have of it stays as it is.

        Raises:
            NotFound: there is no such fabric.
            Conflict: an allocation holds hosts or waits for some.
        """
        return self._store.fabrics.delete(id)

    def idle(self, fabric_id: str) -> tuple[FabricRecord, IdleComponents]:
        """The fabric, and its links and switches that carry nothing and may be turned down.

        Raises: NotFound.
        """
        fabric, ledger = self._store.fabrics.with_ledger(fabric_id)
        return fabric, idle_components(ledger, fabric.inventory)

    def crossed(self, fabric_id: str) -> tuple[FabricRecord, CrossedLinks, dict[Link, str]]:
        """The fabric, the owned links that packets of others have to cross, and why they have to.

        Raises: NotFound.
        """
        fabric, ledger = self._store.fabrics.with_ledger(fabric_id)
        found = crossed_links(ledger, fabric.inventory)
        return fabric, found, why_crossed(ledger, fabric.inventory, found.links)

    def shared_plane(self, fabric_id: str) -> tuple[FabricRecord, common_plane_cost.Reach]:
        """The fabric, and what its common plane reaches. Raises: NotFound."""
        fabric, ledger = self._store.fabrics.with_ledger(fabric_id)
        return fabric, common_plane_cost.reach(ledger, fabric.inventory, ledger.shared_plane)

    def set_shared_plane(
        self, fabric_id: str, l2: tuple[int, ...], spines: tuple[int, ...]
    ) -> None:
        """Withhold these links instead of those before; empty tuples withhold none.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: there is no such index, or nothing would be left for tenants.
            Conflict: a tenant has one of the links.
        """
        tree = self._store.fabrics.get(fabric_id).topology.tree
        self._store.components.set_shared_plane(fabric_id, CommonPlane.of(tree, l2, spines))
        self._wake()

    def plane_cost(
        self, fabric_id: str, l2: tuple[int, ...], spines: tuple[int, ...]
    ) -> tuple[
        FabricRecord,
        common_plane_cost.Reach,
        list[tuple[common_plane_cost.Cost, common_plane_cost.Cost]],
    ]:
        """What a plane would reach, and the cost to each policy without and with it.

        Raises:
            NotFound, InvalidInput: as ``set_shared_plane``.
        """
        fabric, ledger = self._store.fabrics.with_ledger(fabric_id)
        plane = CommonPlane.of(fabric.topology.tree, l2, spines)
        costs = common_plane_cost.costs(ledger, plane, self._policies, self._search_budget)
        return fabric, common_plane_cost.reach(ledger, fabric.inventory, plane), costs

    def observation(self, fabric_id: str) -> FabricObservation:
        """What is observed of a fabric's links, hosts and switches. Raises: NotFound."""
        fabric, seen = self._store.fabrics.get(fabric_id), self._store.faults.observation(fabric_id)
        counters = self._counters(fabric)
        return FabricObservation(fabric, seen, seen.mode or self._fault_mode, counters)

    def set_observation(
        self,
        caller: Caller,
        fabric_id: str,
        *,
        mode: Mode | None,
        configured: bool,
        acknowledge: bool,
    ) -> FabricObservation:
        """Choose the mode of observation (``configured``: the configured one), or accept an alarm.

        Raises:
            NotFound: there is no such fabric.
        """
        self._store.fabrics.get(fabric_id)
        if mode is not None or configured:
            self._store.faults.set_mode(fabric_id, mode, by=caller.initiator)
        if acknowledge:
            self._store.faults.acknowledge_alarm(fabric_id, by=caller.initiator)
        self._wake()
        return self.observation(fabric_id)

    def hosts_alarm(self, fabric_id: str) -> str | None:
        """Why so many hosts seem away that none is withheld, or how many were never known."""
        return self._store.faults.host_memory(fabric_id).alarm

    def utilization(self, fabric_id: str) -> Utilization:
        """Raises: NotFound."""
        fabric, ledger = self._store.fabrics.with_ledger(fabric_id)
        records = list(every_allocation(self._store.allocations, fabric=fabric_id, states=LIVE))
        return replace(
            utilization(fabric, ledger, Counter(record.state for record in records)),
            degraded=sum(lifecycle.is_degraded(record) for record in records),
            changing=sum(record.change is not None for record in records),
            overdue=sum(
                safeguards.is_overdue(
                    record, self._clock(), record.consent.notice, self._move_window
                )
                for record in records
            ),
            confirmed=Counter(record.confirmed_by for record in records if record.confirmed_by),
            evidence=Counter(
                (part, evidence.by)
                for record in records
                for part, evidence in (
                    ("routes", record.routes_confirmed),
                    ("keys", record.keys_confirmed),
                )
                if evidence is not None
            ),
        )

    def fit(
        self,
        caller: Caller,
        fabric_id: str,
        asked: AllocationRequest,
        risks: Sequence[float] = (),
    ) -> Fit:
        """Whether ``asked.hosts`` would fit now, the largest size that would, how to make room.

        With ``parent``, inside that container. With ``slots``, whether these fit on shared hosts,
        and with ``risks`` how many such tenants would fit at these risks.

        Raises:
            NotFound: there is no such fabric, or no container that the caller may see.
            InvalidInput: the policy is not offered, ``hosts`` is below 1, the fabric has nothing
                of what the constraints say, or as ``app.sharing.fit``.
        """
        asked = replace(asked, fabric=fabric_id)
        budget = RequestBudget(self._search_budget)
        return self._kinds.of(asked.kind).fit(caller, asked, risks, budget)

    def routing(self, fabric_id: str) -> Routing:
        """Raises: NotFound."""
        wanted = self._store.fabrics.get(fabric_id).routes_generation
        return Routing(
            wanted,
            {name: _applied(sm, fabric_id) for name, sm in sorted(self._subnet_managers.items())},
            self._store.observations.holding(fabric_id),
        )

    def watched(self, fabric_id: str) -> Watched:
        """What the worker that converges the fabric saw last. Raises: NotFound."""
        fabric = self._store.fabrics.get(fabric_id)
        wanted = fabric.routes_generation
        holding = self._store.observations.holding(fabric_id)
        drift, repaired = (
            self._store.observations.drift(fabric_id),
            self._store.observations.repaired(fabric_id),
        )
        said = what_is_said(self._store, fabric_id)
        links = Counter((word.state, word.source) for word, *_ in said.words.links.values())
        current = holding.applied == wanted
        counters = self._counters(fabric)
        memory = self._store.faults.host_memory(fabric_id)
        withheld = {cause: len(names) for cause, names in memory.withheld_by_cause().items()}
        return Watched(
            current, drift, repaired, holding, links, said.observation, counters, withheld
        )

    def _counters(self, fabric: FabricRecord) -> tuple[Findings, ...]:
        """What the counters of the fabric's switches show."""
        known = fabric.inventory.switch_of_guid
        found = self._store.faults.counter_findings(fabric.id)
        return tuple(findings for findings in found if findings.guid in known)

    def traffic(self, fabric_id: str) -> list[TenantTraffic]:
        """The data of live allocations, in order of creation. Raises: NotFound."""
        found = self._store.faults.counter_findings(fabric_id)
        records = every_allocation(self._store.allocations, fabric=fabric_id, states=LIVE)
        return tenant_traffic(found, records)


def _applied(read_back: ReadBack, fabric_id: str) -> Applied:
    try:
        return read_back(fabric_id)
    except Unavailable as error:
        return Applied(None, str(error))
