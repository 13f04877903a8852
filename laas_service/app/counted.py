# SPDX-License-Identifier: Apache-2.0

"""A policy that counts how often its search stopped at its budget."""

from __future__ import annotations

import threading
from typing import ClassVar

from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.policies.base import Policy


class Counted:
    """Answers as ``policy`` does, under its name and promises; safe to share between threads.

    ``exhausted`` counts all searches that stopped at the budget: for requests, and for
    the questions asked on their behalf (the largest fit, how to make room).
    """

    isolating: ClassVar[bool]
    monotone: ClassVar[bool]
    name: ClassVar[str]

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self.exhausted = 0

    @classmethod
    def around(cls, policy: Policy) -> Counted:
        kept = {"name": policy.name, "isolating": policy.isolating, "monotone": policy.monotone}
        counted: type[Counted] = type("Counted", (cls,), kept)
        return counted(policy)

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        answer = self._policy.propose(fabric, request)
        if isinstance(answer, NoFit) and answer.reason is Refusal.BUDGET:
            with self._lock:
                self.exhausted += 1
        return answer
