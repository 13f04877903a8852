# SPDX-License-Identifier: Apache-2.0

"""The record of all decisions: its parts by name."""

from datetime import datetime, timedelta
from typing import Protocol, Self

from laas_service.app.ports.admissions import Admissions
from laas_service.app.ports.allocations import Allocations
from laas_service.app.ports.components import Components
from laas_service.app.ports.fabrics import Fabrics
from laas_service.app.ports.faults import Faults
from laas_service.app.ports.observations import Observations
from laas_service.app.ports.placement_changes import PlacementChanges
from laas_service.app.ports.quotas import Quotas
from laas_service.app.ports.snapshots import Snapshot
from laas_service.app.records import Lease, Limits, Recorded
from laas_service.app.requests import AllocationRequest


class Store(Protocol):
    """All that is recorded, by its parts; ``adapters.db.store.SqlStore``.

    A part, its module in ``app.ports`` and its module in ``adapters.db`` have the same name.
    """

    @property
    def admissions(self) -> Admissions: ...

    @property
    def allocations(self) -> Allocations: ...

    @property
    def components(self) -> Components: ...

    @property
    def fabrics(self) -> Fabrics: ...

    @property
    def faults(self) -> Faults: ...

    @property
    def observations(self) -> Observations: ...

    @property
    def placement_changes(self) -> PlacementChanges: ...

    @property
    def quotas(self) -> Quotas: ...

    def snapshot(
        self, asked: AllocationRequest, project_id: str, default: str | None, limits: Limits
    ) -> Snapshot:
        """What a request for an allocation depends on: one transaction.

        ``default`` is the fabric of a request that names none; None: the only one. ``limits`` are
        those of a project without a quota.
        """

    def check(self) -> None:
        """Return if the database answers and its schema is current, else ``Unavailable``."""

    def check_writes(self) -> None:
        """Return if the database takes writes now or did some seconds ago, else ``Unavailable``."""

    def round(self, fabric_id: str, now: datetime, *, longest: timedelta, faulty: bool) -> Recorded:
        """A fabric, and its allocations that are due as in ``Allocations.due``: one transaction.

        ``NotFound``.
        """

    def under(self, lease: Lease) -> Self:
        """This store for the holder of a lease.

        ``LeaseLost`` from every method of it that writes, in the same transaction, once another
        worker has taken the lease.
        """
