# SPDX-License-Identifier: Apache-2.0

"""Limits of a project: its quota here, one allocation, and its servers in Nova."""

import logging
from collections.abc import Collection, Mapping

from laas_service.app.lifecycle import LIVE
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.compute import Compute
from laas_service.app.ports.store import Store
from laas_service.app.records import Caller, Limits, ProjectUsage
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import NoFit, Refusal
from laas_service.domain.errors import Forbidden, InvalidInput, LaasError

LOG = logging.getLogger(__name__)


class ProjectLimits:
    """The limits of projects; ``limits`` are those of projects without a quota of their own.

    With ``one_per_project`` a project holds one allocation at a time, beside containers. The
    allocations of the projects in ``unmoved`` are never moved for others.
    """

    def __init__(
        self,
        store: Store,
        compute: Compute,
        *,
        limits: Limits,
        one_per_project: bool = False,
        unmoved: Collection[str] = (),
    ) -> None:
        self._store = store
        self._compute = compute
        self.one_per_project = one_per_project
        self.limits = limits
        self.unmoved = unmoved

    def usage(self, caller: Caller, project_id: str | None = None) -> ProjectUsage:
        """What a project may have and has: the caller's own, or for an admin any.

        Raises:
            Forbidden: another project is named and the caller is no admin.
            InvalidInput: no project is known.
        """
        project = project_id or caller.project_id
        if project != caller.project_id and not caller.admin:
            raise Forbidden(f"project {project!r} is another one; only administrators see it")
        if not project:
            raise InvalidInput("project_id", project_id, "name a project")
        return self._store.quotas.usage(project, self.limits)

    def check(self, request: AllocationRequest) -> None:
        """Return if the project would stay within its quota. Raises: QuotaExceeded."""
        self._store.quotas.within_limits(request)

    def check_growth(self, project_id: str, more: int) -> None:
        """Return if the project may have so many hosts more. Raises: QuotaExceeded."""
        self._store.quotas.may_grow(project_id, more, self.limits)

    def check_slots(self, project_id: str, more: int) -> None:
        """Return if the project may have so many slots more. Raises: QuotaExceeded."""
        self._store.quotas.may_have_slots(project_id, more, self.limits)

    def moves_left(self, project_ids: Collection[str]) -> Mapping[str, int]:
        """The moves to other hosts that projects may still have now, of those with a limit."""
        return self._store.quotas.moves_left(project_ids, self.limits)

    def second_allocation(self, request: AllocationRequest) -> NoFit | None:
        """The refusal of a further allocation, where a project may have one only.

        Containers do not count, because Nova has no aggregate of them.
        """
        if not self.one_per_project or request.kind.encloses:
            return None
        live = every_allocation(self._store.allocations, project_id=request.project_id, states=LIVE)
        held = next((record for record in live if not record.kind.encloses), None)
        if held is None:
            return None
        return NoFit(
            Refusal.QUOTA,
            f"project {request.project_id} has allocation {held.id} already; without the service's "
            "own Nova filter a project can hold one at a time: release it first",
            largest_fit=0,
        )

    def server_limit(self, request: AllocationRequest) -> int | None:
        """How many servers Nova lets the project run; None if unlimited or unknown.

        None for a kind whose hosts are not handed over, too. If Nova cannot be reached, the limit
        is unknown and the check is skipped.
        """
        if not request.kind.handed_over:
            return None
        try:
            return self._compute.server_limit(request.project_id)
        except LaasError as error:
            LOG.warning("Nova's quota of project %s is unknown: %s", request.project_id, error)
            return None


def too_few_servers(request: AllocationRequest, limit: int | None) -> NoFit | None:
    """The refusal of more hosts than the project may run servers."""
    if limit is None or request.hosts <= limit:
        return None
    return NoFit(
        Refusal.QUOTA,
        f"project {request.project_id} may run {limit} servers in Nova, fewer than "
        f"{request.hosts} hosts: have its quota of instances raised, or ask for fewer hosts",
    )
