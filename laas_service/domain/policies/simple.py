# SPDX-License-Identifier: Apache-2.0

"""Simple: complete subtrees only; the heuristic that LaaS is compared with."""

from typing import ClassVar

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.budget import WORK
from laas_service.domain.search.multi_pod import on_whole_pods
from laas_service.domain.search.one_leaf import in_one_leaf_group
from laas_service.domain.search.one_pod import on_whole_leaves
from laas_service.domain.search.search import Search


class Simple:
    """LaaS (ANCS'16), section 3, "Simple heuristic", on three levels.

    A tenant gets as many empty subtrees of one level as hold N hosts: up to m1 hosts inside a
    leaf, up to m1 * m2 on whole leaves of one pod, and more on whole pods. The paper defines
    R_0 = 0 where a subtree of level 0 is one host; 1 is meant. If a fabric has more uplinks
    than hosts, the tenant gets only as many as it has hosts.
    """

    name: ClassVar[str] = "simple"
    isolating: ClassVar[bool] = True
    monotone: ClassVar[bool] = True

    def __init__(self, work: int = WORK) -> None:
        self._work = work

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        search = Search(fabric, self.name, request, self._work)
        hosts, leaf = request.hosts, fabric.topology.hosts_per_group
        pod = leaf * fabric.topology.groups_per_pod
        if hosts <= leaf:
            return search.answer(in_one_leaf_group(search, hosts))
        if hosts <= pod:
            return search.answer(on_whole_leaves(search, -(-hosts // leaf)))
        return search.answer(on_whole_pods(search, -(-hosts // pod)))
