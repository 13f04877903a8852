# SPDX-License-Identifier: Apache-2.0

"""A fabric imported again: the new cables in the old places, what changed, whom it concerns."""

from __future__ import annotations

from laas_service.domain.recabling.changes import Change, changes
from laas_service.domain.recabling.effects import Effect, effects
from laas_service.domain.recabling.kept import with_failed
from laas_service.domain.recabling.layout import Layout
from laas_service.domain.recabling.places import laid_over
from laas_service.domain.recabling.renumbering import Renumbering

__all__ = [
    "Change",
    "Effect",
    "Layout",
    "Renumbering",
    "changes",
    "effects",
    "laid_over",
    "with_failed",
]
