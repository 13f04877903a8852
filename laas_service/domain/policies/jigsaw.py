# SPDX-License-Identifier: Apache-2.0

"""Jigsaw: exactly N hosts; any shape in a pod, full leaves and one remainder across pods."""

from typing import ClassVar

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.budget import WORK
from laas_service.domain.search.multi_pod import in_several_pods, in_two_pods
from laas_service.domain.search.one_leaf import fullest_leaf_group, in_one_leaf_group
from laas_service.domain.search.one_pod import in_one_pod
from laas_service.domain.search.search import Search
from laas_service.domain.search.without_search import answer_without_search


class Jigsaw:
    """Smith and Lowenthal (HPDC'21), Algorithm 1, with a complete search.

    A tenant gets exactly its hosts on as few levels as possible, and the links of section
    3.2, conditions (1) to (6). Across pods every leaf but the remainder leaf is full (section
    4). Algorithm 1 does not say that the remainder pod is smaller than the other pods and
    that there is at least one full pod.

    ``two_pods`` goes beyond the paper. With one full pod (T = 1) conditions (1) and (3) are
    not necessary: the remainder pod may be the larger one, with or without a remainder leaf.
    Only as many flows cross as the smaller pod has hosts, and each L2 index carries an equal
    part of them. So both pods take the spine uplinks that the smaller pod needs, and every
    permutation still has a link for each flow.
    """

    name: ClassVar[str] = "jigsaw"
    isolating: ClassVar[bool] = True
    monotone: ClassVar[bool] = True

    def __init__(self, work: int = WORK, two_pods: bool = False) -> None:
        self._work = work
        self._two_pods = two_pods

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        if small := fullest_leaf_group(fabric, self.name, request):
            return small
        hosts = request.hosts
        leaves, rest = divmod(hosts, fabric.topology.hosts_per_group)
        if not self._two_pods and (
            known := answer_without_search(fabric, self.name, request, leaves, rest)
        ):
            return known
        variant = "two pods" if self._two_pods else ""
        search = Search(fabric, self.name, request, self._work, variant)
        steps = [
            in_one_leaf_group(search, hosts),
            in_one_pod(search, hosts),
            in_several_pods(search, leaves, rest),
        ]
        if self._two_pods:
            steps.append(in_two_pods(search, leaves, rest))
        return search.answer(*steps)
