# SPDX-License-Identifier: Apache-2.0

"""Least constrained: exactly N hosts, in any shape that meets the formal conditions."""

from typing import ClassVar

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.budget import WORK
from laas_service.domain.search.multi_pod import in_several_pods
from laas_service.domain.search.one_leaf import in_one_leaf_group
from laas_service.domain.search.one_pod import in_one_pod
from laas_service.domain.search.partial_leaves import on_partial_leaves
from laas_service.domain.search.search import Search


class Lc:
    """Smith and Lowenthal (HPDC'21), section 3.2, conditions (1) to (6) and no others.

    Across pods the leaves hold any equal number of hosts. Jigsaw (section 4) allows only full
    leaves there, and is the same within a leaf or a pod. So this policy finds placements where
    Jigsaw finds none. As the paper warns, it leaves the fabric more fragmented, and its search
    is larger. Placements on few levels come first, then full leaves, then leaves with fewer
    and fewer hosts.
    """

    name: ClassVar[str] = "lc"
    isolating: ClassVar[bool] = True
    monotone: ClassVar[bool] = True

    def __init__(self, work: int = WORK) -> None:
        self._work = work

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        search = Search(fabric, self.name, request, self._work)
        hosts = request.hosts
        return search.answer(
            in_one_leaf_group(search, hosts),
            in_one_pod(search, hosts),
            in_several_pods(search, *divmod(hosts, fabric.topology.hosts_per_group)),
            on_partial_leaves(search, hosts),
        )
