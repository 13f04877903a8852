# SPDX-License-Identifier: Apache-2.0

"""Carries out what decisions ask for: the only holder of compute, subnet manager and lease.

Every effect outside has a name, begins with a check of the lease, and is taken for the user who
asked for it. Answers and errors go back to the decision.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from laas_service.app.ports.allocations import Allocations
from laas_service.app.ports.components import Components
from laas_service.app.ports.compute import Compute, ComputeReader
from laas_service.app.ports.faults import Faults
from laas_service.app.ports.observations import Observations
from laas_service.app.ports.placement_changes import PlacementChanges
from laas_service.app.ports.rate_limits import RateLimits
from laas_service.app.ports.store import Store
from laas_service.app.ports.subnet_manager import SubnetManager, SubnetManagerReader
from laas_service.app.records import AllocationRecord
from laas_service.app.worker.fabric_store import FabricStore
from laas_service.app.worker.hooks import Hooks
from laas_service.app.worker.instructions import ActFor, Call, Kind, Log, Steps
from laas_service.app.worker.round import Outside
from laas_service.app.worker.route_publisher import RoutePublisher
from laas_service.domain.errors import LeaseLost
from laas_service.messages import Initiator

LOG = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ports:
    """What a worker acts on, outside of the database."""

    compute: Compute
    subnet_manager: SubnetManager
    rate_limits: RateLimits | None = None
    """What keeps servers of class ``shared`` to what they may send; None: nothing does."""

    @property
    def constant(self) -> Outside:
        """What is always true of them."""
        by = None if self.rate_limits is None else self.rate_limits.name
        scripted, claims = self.compute.scripted, self.compute.claims_slots
        return Outside(scripted=scripted, claims_slots=claims, limited_by=by)


class Performer:
    """Carries out the decisions of one fabric, one instruction at a time."""

    def __init__(
        self,
        store: Store,
        ports: Ports,
        hooks: Hooks,
        fabric_store: FabricStore,
        routes: RoutePublisher,
    ) -> None:
        self._hooks, self._routes = hooks, routes
        objects: Mapping[type, Any] = {
            ComputeReader: ports.compute,
            Compute: ports.compute,
            SubnetManagerReader: ports.subnet_manager,
            SubnetManager: ports.subnet_manager,
            RateLimits: ports.rate_limits,
            Allocations: store.allocations,
            Components: store.components,
            Faults: store.faults,
            Observations: store.observations,
            PlacementChanges: store.placement_changes,
            FabricStore: fabric_store,
            RoutePublisher: routes,
        }
        self._objects = {kind.__name__: object for kind, object in objects.items()}
        self.recorded = False
        """Something was recorded since the round was read that a round has."""

    def run(self, decision: Steps[T]) -> T:
        """Carry out a decision; returns its result.

        Errors of instructions are raised in the decision. Raises: LeaseLost, and what the decision
        does not deal with.
        """
        initiator: Initiator | None = None
        try:
            instruction = next(decision)
            while True:
                answer = None
                try:
                    if isinstance(instruction, ActFor):
                        initiator = instruction.initiator
                    elif initiator is None:
                        answer = self.answer(instruction)
                    else:
                        with self._hooks.acting_for(initiator):
                            answer = self.answer(instruction)
                except LeaseLost:
                    decision.close()
                    raise
                except Exception as error:
                    instruction = decision.throw(error)
                else:
                    instruction = decision.send(answer)
        except StopIteration as ended:
            result: T = ended.value
            return result

    def answer(self, instruction: Call | Log) -> Any:
        """Carry out one instruction; an error of it is raised. Raises: LaasError."""
        if isinstance(instruction, Log):
            return LOG.log(instruction.level, "%s", instruction.text, exc_info=instruction.error)
        verb = instruction.verb
        method = getattr(self._objects[verb.owner], verb.name)
        act = partial(method, *instruction.arguments, **instruction.named)
        if verb.kind is Kind.EFFECT:
            return self._hooks.effect(verb.name.replace("_", " "), act)
        self.recorded = self.recorded or verb.kind in (Kind.RECORD, Kind.ROUTES)
        if verb.kind is not Kind.ROUTES:
            return act()
        changed = None
        try:
            answer = act()
            if isinstance(answer, AllocationRecord):
                changed = answer.generation
        finally:
            self._routes.changed_since(changed)
        return answer
