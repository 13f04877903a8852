# SPDX-License-Identifier: Apache-2.0

"""A fabric imported again: the new cables in the old places, what changed, whom it concerns."""

from __future__ import annotations

from laas_service.domain.reimport.changes import Change, changes
from laas_service.domain.reimport.effects import Effect, effects
from laas_service.domain.reimport.kept import with_failed
from laas_service.domain.reimport.layout import Layout
from laas_service.domain.reimport.places import laid_over
from laas_service.domain.reimport.renumbering import Renumbering

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
