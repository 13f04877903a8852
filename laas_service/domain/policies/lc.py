# SPDX-License-Identifier: Apache-2.0

"""Least constrained: exactly N hosts, in any shape that meets the formal conditions."""

from __future__ import annotations

from typing import ClassVar

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.min_cost import search_for
from laas_service.domain.search.one_pod import WORK


class Lc:
    """Smith and Lowenthal (HPDC'21), section 3.2, conditions (1) to (6) and no more.

    Across pods leaves hold any equal number of hosts, which Jigsaw (section 4)
    forbids: it finds places where Jigsaw finds none and, as the paper warns, leaves
    the fabric more fragmented, and its search is larger. Within a leaf or a pod both
    are the same. Few levels come first, then full leaves, then ever thinner ones.
    """

    name: ClassVar[str] = "lc"
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
            or search.across_pods(*divmod(hosts, search.slots))
            or search.across_pods_on_thin_leaves(hosts)
        )
