# SPDX-License-Identifier: Apache-2.0

"""The cleaning steps of the operator that a node owes when it leaves an allocation; pure.

Ironic runs such steps (manual cleaning) on a node that is ``manageable``, and does not tell
afterwards that it did. So a property of the node records what is owed, and the moment since which
the node was manageable before the steps were asked for: a node that is manageable since another
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
"""The property with the debt."""

OPTION = "[compute] clean_steps"

DUE = "still to run its cleaning steps"

Steps = list[dict[str, Any]]
"""As Ironic's API takes them."""


@dataclass(frozen=True, slots=True)
class Debt:
    """The steps that a node owes since it left ``allocation``; none if ``paid``.

    ``seen``: since when the node was manageable when they were asked for, or paid, as Ironic
    writes it (``provision_updated_at``); None before they are asked for.
    """

    allocation: str
    seen: str | None = None
    paid: bool = False

    def document(self) -> dict[str, Any]:
        """As it stands among the properties."""
        return {"allocation": self.allocation, "seen": self.seen, "paid": self.paid}


class Deed(enum.Enum):
    """What Ironic is asked for."""

    MANAGE = "manage"
    RUN = "clean"
    PROVIDE = "provide"


@dataclass(frozen=True, slots=True)
class Next:
    """The debt to record, and what to ask Ironic for after that (None: nothing)."""

    debt: Debt
    deed: Deed | None = None


def next_of(debt: Debt, state: str, since: str, last_error: str = "", inspected: str = "") -> Next:
    """The next step for a node that has been in this state ``since`` then.

    ``last_error`` is empty unless its last transition failed, ``inspected`` when it was last. Both
    tell that it may have become manageable anew without the steps. A node whose steps failed is
    left to an operator, as is one in another state. It owes the steps still.
    """
    unasked = replace(debt, seen=None)
    if state == "available":
        return Next(debt) if debt.paid else Next(unasked, Deed.MANAGE)
    if state != "manageable":
        return Next(debt if debt.paid else unasked)
    if debt.paid:
        return Next(debt, Deed.PROVIDE if debt.seen == since else None)
    if debt.seen is None or debt.seen == since or last_error or inspected >= debt.seen:
        return Next(replace(debt, seen=since), Deed.RUN)
    return Next(replace(debt, seen=since, paid=True), Deed.PROVIDE)


def debt_from(document: object) -> Debt | None:
    """The debt in a property; None if it is not one of ours."""
    if not isinstance(document, Mapping) or "allocation" not in document:
        return None
    seen = document.get("seen")
    paid = document.get("paid") is True
    return Debt(str(document["allocation"]), None if seen is None else str(seen), paid)


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
