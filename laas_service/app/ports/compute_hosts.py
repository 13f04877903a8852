# SPDX-License-Identifier: Apache-2.0

"""The record of compute hosts: what looks at them lead to."""

from collections.abc import Callable
from typing import Protocol

from laas_service.domain.compute_hosts import HostMemory
from laas_service.messages import Initiator


class ComputeHosts(Protocol):
    """The record of looks at compute hosts. ``NotFound`` from every method that writes."""

    def memory(self, fabric_id: str) -> HostMemory:
        """What is remembered now; empty if nothing was seen yet."""

    def judged(self, fabric_id: str, judge: Callable[[HostMemory], HostMemory]) -> HostMemory:
        """Judge a look, and record the memory and the states of hosts: one transaction.

        An alarm that begins or ends is announced.
        """

    def release_quarantine(self, fabric_id: str, host: str, *, by: Initiator | None = None) -> None:
        """Record that a host (by Nova's name) is empty. ``Conflict`` unless in quarantine."""
