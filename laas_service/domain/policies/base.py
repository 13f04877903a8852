# SPDX-License-Identifier: Apache-2.0

"""The interface of a policy, and a policy that searches within the budget of a request."""

import threading
from dataclasses import replace
from typing import Protocol

from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.ledger import LedgerView

SEARCH = 200
"""Fixed cost of a search, beside its work; immediate refusals are charged too."""

CUT_OFF = NoFit(
    Refusal.BUDGET,
    "the searches for this answer stopped at the request's budget, a placement may exist",
)


class Traits(Protocol):
    """What is known of a policy without asking it; its class has these, too."""

    @property
    def name(self) -> str: ...

    @property
    def isolating(self) -> bool:
        """Whether allocations own their links (and so have the full-bandwidth promise)."""

    @property
    def monotone(self) -> bool:
        """Whether a refusal of N hosts implies a refusal of every larger number."""


class Policy(Traits, Protocol):
    """Looks at the fabric and answers; takes nothing, changes nothing.

    The answer depends on the fabric's state and the request alone, so the
    planner, the simulator and the service always agree.
    """

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        """A placement on what is free, or why there is none; ``fabric`` stays as it is.

        The placement meets the constraints of shape (``Constraints.of_shape``). Hosts that the
        other constraints forbid are not free in ``fabric``. In an empty fabric without such
        constraints, any number of hosts fits, up to all of them.
        """
        ...


class PolicyFactory(Traits, Protocol):
    """The class of a policy: makes one with its default settings."""

    def __call__(self) -> Policy: ...


class BudgetedPolicy:
    """Answers as ``policy`` does, under its name and traits, and counts exhausted searches.

    With ``budget`` all its searches draw on that, and at its end every request is refused
    (``CUT_OFF``). Safe to share between threads, as far as the budget is.
    """

    def __init__(self, policy: Policy, budget: RequestBudget | None = None) -> None:
        self.name = policy.name
        self.isolating = policy.isolating
        self.monotone = policy.monotone

        self.exhausted = 0
        """How many searches stopped at a budget: for requests, and for the questions asked
        on their behalf (the largest fit, how to make room)."""

        self._policy = policy
        self._budget = budget
        self._lock = threading.Lock()

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        answer = self._answer(fabric, request)
        if isinstance(answer, NoFit) and answer.reason.unproven:
            with self._lock:
                self.exhausted += 1
        return answer

    def _answer(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        if self._budget is None:
            return self._policy.propose(fabric, request)
        if not self._budget.spend(SEARCH):
            return CUT_OFF
        return self._policy.propose(fabric, replace(request, budget=self._budget))
