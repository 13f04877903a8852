# SPDX-License-Identifier: Apache-2.0

"""LaaS: exactly N hosts within a pod; across pods whole leaves, N rounded up to them."""

from __future__ import annotations

from typing import ClassVar

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.min_cost import search_for
from laas_service.domain.search.one_pod import WORK


class Laas:
    """Zahavi et al. (ANCS'16), Algorithm 2, with the search made complete.

    Read with these corrections: line 5 calls FLAP for D hosts, lines 11 and 23
    start at the smaller of the two sizes, line 22 rounds up (N' = m1 * ceil(N / m1),
    as the text says), there are at most m2 leaves and m3 pods with the remainder
    included, and a single pod without remainder is no three-level shape.
    """

    name: ClassVar[str] = "laas"
    isolating: ClassVar[bool] = True
    monotone: ClassVar[bool] = True

    def __init__(self, work: int = WORK) -> None:
        self._work = work

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        search = search_for(fabric, self.name, request, self._work)
        if refusal := search.hopeless():
            return refusal
        hosts = request.hosts
        return search.answer(
            search.in_one_group(hosts)
            or search.in_one_pod(hosts)
            or search.across_pods(-(-hosts // search.slots), 0)
        )
