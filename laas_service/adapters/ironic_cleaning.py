# SPDX-License-Identifier: Apache-2.0

"""The operator's cleaning steps that a node still has to run after an allocation; pure.

Ironic runs such steps (manual cleaning) on a node that is ``manageable``, and does not tell
afterwards that it did. So a property of the node records the pending steps, and the moment since
which the node was manageable before they were asked for: a node that is manageable since another
moment has run them.
"""

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from laas_service.domain.errors import InvalidInput

PROPERTY = "laas_cleaning"
"""The property that records them."""

OPTION = "[compute] clean_steps"

DUE = "still to run its cleaning steps"

Steps = list[dict[str, Any]]
"""As Ironic's API takes them."""


@dataclass(frozen=True, slots=True)
class PendingCleaning:
    """The steps that a node has to run since it left ``allocation``; none if ``paid``.

    ``seen``: since when the node was manageable when they were asked for, or paid, as Ironic
    writes it (``provision_updated_at``); None before they are asked for.
    """

    allocation: str
    seen: str | None = None
    paid: bool = False

    def document(self) -> dict[str, Any]:
        """As it stands among the properties."""
        return {"allocation": self.allocation, "seen": self.seen, "paid": self.paid}


class CleaningAction(enum.Enum):
    """What Ironic is asked for."""

    MANAGE = "manage"
    RUN = "clean"
    PROVIDE = "provide"


@dataclass(frozen=True, slots=True)
class Next:
    """The pending to record, and what to ask Ironic for after that (None: nothing)."""

    pending: PendingCleaning
    action: CleaningAction | None = None


def next_of(
    pending: PendingCleaning, state: str, since: str, last_error: str = "", inspected: str = ""
) -> Next:
    """The next step for a node that has been in this state ``since`` then.

    ``last_error`` is empty unless its last transition failed, ``inspected`` when it was last. Both
    tell that it may have become manageable anew without the steps. A node whose steps failed is
    left to an operator, as is one in another state. Its steps stay pending.
    """
    unasked = replace(pending, seen=None)
    if state == "available":
        return Next(pending) if pending.paid else Next(unasked, CleaningAction.MANAGE)
    if state != "manageable":
        return Next(pending if pending.paid else unasked)
    if pending.paid:
        return Next(pending, CleaningAction.PROVIDE if pending.seen == since else None)
    if pending.seen is None or pending.seen == since or last_error or inspected >= pending.seen:
        return Next(replace(pending, seen=since), CleaningAction.RUN)
    return Next(replace(pending, seen=since, paid=True), CleaningAction.PROVIDE)


def cleaning_from(document: object) -> PendingCleaning | None:
    """The pending in a property; None if it is not one of ours."""
    if not isinstance(document, Mapping) or "allocation" not in document:
        return None
    seen = document.get("seen")
    paid = document.get("paid") is True
    return PendingCleaning(str(document["allocation"]), None if seen is None else str(seen), paid)


def read_steps(path: str | None) -> Steps:
    """The steps in a JSON file; none without a path. Raises: InvalidInput."""
    if not path:
        return []
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput(OPTION, path, f"give a JSON file that can be read: {error}") from error
    fix = 'give a list of steps, such as [{"interface": "deploy", "step": "erase_devices"}]'
    if not isinstance(found, list) or not found:
        raise InvalidInput(OPTION, path, fix)
    for step in found:
        if not isinstance(step, dict) or not {"interface", "step"} <= step.keys():
            raise InvalidInput(OPTION, step, fix)
        if unknown := sorted(step.keys() - {"interface", "step", "args"}):
            raise InvalidInput(OPTION, unknown[0], "a step has interface, step and args")
    return found
