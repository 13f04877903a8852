# SPDX-License-Identifier: Apache-2.0

"""Quotas of projects and their use."""

from collections.abc import Collection, Mapping
from typing import Protocol

from laas_service.app.records import Limits, ProjectUsage
from laas_service.app.requests import AllocationRequest


class Quotas(Protocol):
    """Quotas of projects and their use."""

    def usage(self, project_id: str, limits: Limits) -> ProjectUsage:
        """What a project may have, by its own quota or else by ``limits``, and what it has."""

    def within_limits(self, request: AllocationRequest) -> None:
        """Return if the project would stay within its quota now, else ``QuotaExceeded``."""

    def may_grow(self, project_id: str, more: int, limits: Limits) -> None:
        """Return if the project may have so many hosts more now, else ``QuotaExceeded``."""

    def may_have_slots(self, project_id: str, more: int, limits: Limits) -> None:
        """Return if the project may have so many slots more now, else ``QuotaExceeded``."""

    def moves_left(self, project_ids: Collection[str], limits: Limits) -> Mapping[str, int]:
        """How many moves to other hosts each of the projects may still have now.

        Those that are announced, or began within ``MOVES_PERIOD``, count. Projects without a
        limit are left out.
        """
