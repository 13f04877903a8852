# SPDX-License-Identifier: Apache-2.0

"""Recorded fabrics, their ledgers, and what their switches should route."""

from datetime import timedelta
from typing import Protocol

from laas_service.app.records import FabricRecord, Stamped, ToPublish
from laas_service.domain.ledger import LedgerView
from laas_service.messages import FabricState


class Fabrics(Protocol):
    """Fabrics as recorded."""

    def ids(self) -> list[str]:
        """The ids of all fabrics, ascending."""

    def generations(self) -> dict[str, int]:
        """The newest generation of each fabric, by its id, ascending."""

    def all(self) -> list[FabricRecord]:
        """All fabrics by id."""

    def get(self, id: str) -> FabricRecord:
        """One fabric at its newest generation. ``NotFound``."""

    def ledger(self, fabric_id: str) -> tuple[LedgerView, int]:
        """The fabric's ledger, brought up to date by the recorded deltas, and its generation.

        All threads of this process share the object: read it, do not write it. ``NotFound``.
        """

    def with_ledger(self, fabric_id: str) -> tuple[FabricRecord, LedgerView]:
        """The fabric and its ledger at the same generation. ``NotFound``."""

    def revision(self, fabric_id: str) -> str:
        """A text that changes with everything that a map of the fabric shows. ``NotFound``.

        It changes with errors, names and evidence too, which the generation does not count.
        """

    def in_past(self, fabric_id: str, generation: int, stamp: str) -> bool:
        """Whether a generation of routes is one that the database has, or had before.

        It is known by its number alone if ``stamp`` is empty, or no longer recorded.
        """

    def go_forward(self, fabric_id: str, generation: int, stamp: str, where: str) -> bool:
        """Move a fabric on above a generation of routes of another past, seen ``where``.

        The database is the truth, and went back. Its generations go on above that one, and every
        allocation waits until routes are confirmed again. Returns whether it did; False if the
        generation is ``in_past``. ``LimitExceeded``.
        """

    def went_forward(self, fabric_id: str, since: timedelta) -> int:
        """How often the fabric went forward in this time until now, up to 100."""

    def routed(self, fabric_id: str) -> FabricState:
        """The state at the fabric's ``routes_generation``. ``NotFound``.

        Tenants are the allocations with claims that are not handed back.
        """

    def to_publish(self, fabric_id: str, published: Stamped | None) -> ToPublish:
        """As ``routed``, without the state if the routes are still those ``published``."""

    def delete(self, id: str) -> FabricRecord:
        """Forget a fabric and all that is recorded of it; returns it as it was.

        ``NotFound``. ``Conflict`` while an allocation holds hosts or waits for some.
        """
