# SPDX-License-Identifier: Apache-2.0

"""LaaS: exactly N hosts within a pod; across pods whole leaves, N rounded up to them."""

from typing import ClassVar

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.budget import WORK
from laas_service.domain.search.multi_pod import in_several_pods
from laas_service.domain.search.one_leaf import fullest_leaf_group, in_one_leaf_group
from laas_service.domain.search.one_pod import in_one_pod
from laas_service.domain.search.search import Search
from laas_service.domain.search.without_search import answer_without_search


class Laas:
    """Zahavi et al. (ANCS'16), Algorithm 2, with a complete search.

    Read Algorithm 2 with these corrections. Line 5 calls FLAP for D hosts. Lines 11 and 23
    start at the smaller of the two sizes. Line 22 rounds up (N' = m1 * ceil(N / m1), as the
    text says). There are at most m2 leaves and m3 pods, the remainder included. A single pod
    without remainder is no three-level shape.
    """

    name: ClassVar[str] = "laas"
    isolating: ClassVar[bool] = True
    monotone: ClassVar[bool] = True

    def __init__(self, work: int = WORK) -> None:
        self._work = work

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        if small := fullest_leaf_group(fabric, self.name, request):
            return small
        hosts = request.hosts
        leaves = -(-hosts // fabric.topology.hosts_per_group)
        if known := answer_without_search(fabric, self.name, request, leaves, 0):
            return known
        search = Search(fabric, self.name, request, self._work)
        return search.answer(
            in_one_leaf_group(search, hosts),
            in_one_pod(search, hosts),
            in_several_pods(search, leaves, 0),
        )
