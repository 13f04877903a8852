# SPDX-License-Identifier: Apache-2.0

"""The ledger of a fabric, and the read-only view of it that policies and searches get.

``ledger`` has the verbs. Its concerns stand apart: ``state`` (all fields, copies), ``free``
(what searches read), ``ownership``, ``containers``, ``faults``, ``trial``.
"""

from laas_service.domain.ledger.ledger import Ledger
from laas_service.domain.ledger.masks import Masks
from laas_service.domain.ledger.view import LedgerView

__all__ = ("Ledger", "LedgerView", "Masks")
