# SPDX-License-Identifier: Apache-2.0

"""Searches that need nothing but the ledger, for ``store.admissions.admit``."""

from collections.abc import Callable
from typing import TypeVar

from laas_service.app.ports.snapshots import Draft
from laas_service.domain.ledger import Ledger

T = TypeVar("T")


def on_ledger(search: Callable[[Ledger], T]) -> Callable[[Draft], T]:
    """The search, which gets the ledger of a draft."""
    return lambda draft: search(draft.ledger)
