# SPDX-License-Identifier: Apache-2.0

"""Re-import of a fabric: its new cables in the old places, the differences, their effects."""

from laas_service.domain.reimport.alignment import aligned
from laas_service.domain.reimport.changes import ReimportChange, changes
from laas_service.domain.reimport.effects import Effect, effects
from laas_service.domain.reimport.failed_components import with_failed_components
from laas_service.domain.reimport.layout import Layout
from laas_service.domain.reimport.renumbering import Renumbering

__all__ = [
    "Effect",
    "Layout",
    "ReimportChange",
    "Renumbering",
    "aligned",
    "changes",
    "effects",
    "with_failed_components",
]
