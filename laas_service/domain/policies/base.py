# SPDX-License-Identifier: Apache-2.0

"""What every policy is: a name and one pure method; and a policy on a budget."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import ClassVar, Protocol

from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.ledger import LedgerView

SEARCH = 200
"""What every search costs, beside its work: a refusal at first sight is not for nothing."""

CUT_OFF = NoFit(
    Refusal.BUDGET,
    "the searches for this answer stopped at the request's budget, a placement may exist",
)


class Policy(Protocol):
    """Looks at the fabric and answers; takes nothing, changes nothing.

    The answer depends on the fabric's state and the request alone, so the
    planner, the simulator and the service always agree.
    """

    name: ClassVar[str]
    isolating: ClassVar[bool]
    """Whether allocations own their links (and so have the full-bandwidth promise)."""

    monotone: ClassVar[bool]
    """Whether a refusal of N hosts implies a refusal of every larger number."""

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit: ...


class _Budgeted:
    isolating: ClassVar[bool]
    monotone: ClassVar[bool]
    name: ClassVar[str]

    def __init__(self, policy: Policy, meter: RequestBudget) -> None:
        self._policy = policy
        self._meter = meter

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        if not self._meter.spend(SEARCH):
            return CUT_OFF
        return self._policy.propose(fabric, replace(request, meter=self._meter))


def budgeted(policy: Policy, meter: RequestBudget) -> Policy:
    """The same policy, whose searches all draw on one meter; at its end it refuses."""
    return _metered_kind(type(policy))(policy, meter)


@cache
def _metered_kind(kind: type[Policy]) -> type[_Budgeted]:
    """One class for each kind of policy: a class for each request would be slow garbage."""
    kept = {"name": kind.name, "isolating": kind.isolating, "monotone": kind.monotone}
    return type("Metered", (_Budgeted,), kept)
