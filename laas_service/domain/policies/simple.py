# SPDX-License-Identifier: Apache-2.0

"""Simple: complete subtrees only; the heuristic LaaS is compared with."""

from __future__ import annotations

from typing import ClassVar

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.min_cost import search_for
from laas_service.domain.search.one_pod import WORK


class Simple:
    """LaaS (ANCS'16), section 3, "Simple heuristic", on three levels.

    As many empty subtrees of one level as hold N hosts: up to m1 hosts inside a
    leaf; up to m1 * m2 on whole leaves of one pod; more on whole pods. The paper
    defines R_0 = 0 where a subtree of level 0 is one host, so 1 is meant. Where a
    fabric has more uplinks than hosts, only as many as hosts are taken.
    """

    name: ClassVar[str] = "simple"
    isolating: ClassVar[bool] = True
    monotone: ClassVar[bool] = True

    def __init__(self, work: int = WORK) -> None:
        self._work = work

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        search = search_for(fabric, self.name, request, self._work)
        if refusal := search.hopeless():
            return refusal
        hosts, leaf, pod = request.hosts, search.slots, search.slots * search.groups
        if hosts <= leaf:
            return search.answer(search.in_one_group(hosts))
        if hosts <= pod:
            return search.answer(search.whole_groups(-(-hosts // leaf)))
        return search.answer(search.whole_pods(-(-hosts // pod)))
