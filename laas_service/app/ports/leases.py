# SPDX-License-Identifier: Apache-2.0

"""Leases: which worker converges which fabric."""

from typing import Protocol

from laas_service.app.records import Lease


class Leases(Protocol):
    """Leases of fabrics; times are those of the database's clock alone.

    Errors of all methods: ``Unavailable``.
    """

    def enrol(self, owner: str, seconds: float) -> int:
        """Count ``owner`` as a live worker for ``seconds``; returns the number of live workers."""

    def withdraw(self, owner: str) -> None:
        """Stop counting ``owner``; safe to repeat."""

    def free(self) -> list[str]:
        """Ids of the fabrics without a lease, or whose lease has expired."""

    def take(self, fabric: str, owner: str, seconds: float) -> Lease | None:
        """Lease a free fabric for ``seconds``, with a higher token; None if it is not free."""

    def renew(self, lease: Lease, seconds: float, waits_for: str | None = None) -> None:
        """Extend to ``seconds`` from now; record what the holder waits for, None for nothing.

        ``LeaseLost`` if another worker has taken it.
        """

    def give_back(self, lease: Lease) -> None:
        """Other workers may take it at once; nothing happens if it was lost."""

    def give_up(self, lease: Lease) -> None:
        """As ``give_back``, and count that its holder was stuck."""
