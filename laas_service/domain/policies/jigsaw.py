# SPDX-License-Identifier: Apache-2.0

"""Jigsaw: exactly N hosts; any shape in a pod, full leaves and one remainder across pods."""

from __future__ import annotations

from typing import ClassVar

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.min_cost import search_for
from laas_service.domain.search.one_pod import WORK


class Jigsaw:
    """Smith and Lowenthal (HPDC'21), Algorithm 1, with the search made complete.

    A request takes exactly its hosts, as few levels as it can, and the links of
    section 3.2, conditions (1) to (6); across pods every leaf but the remainder
    leaf is full (section 4). Algorithm 1 leaves unsaid that the remainder pod is
    smaller than the others and that there is at least one full pod.

    ``two_pods`` goes beyond the paper: with one full pod (T = 1) conditions (1) and
    (3) are not necessary, and the pod with the remainder leaf may be as large as the
    other or larger. Only as many flows cross as the smaller pod has hosts, each L2
    index carries an equal part of them, and the smaller pod's spines are the
    larger's too, so any permutation still has a link for each flow.
    """

    name: ClassVar[str] = "jigsaw"
    isolating: ClassVar[bool] = True
    monotone: ClassVar[bool] = True

    def __init__(self, work: int = WORK, two_pods: bool = False) -> None:
        self._work = work
        self._two_pods = two_pods

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        variant = "two pods" if self._two_pods else ""
        search = search_for(fabric, self.name, request, self._work, variant)
        if refusal := search.hopeless():
            return refusal
        hosts = request.hosts
        placement = (
            search.in_one_group(hosts)
            or search.in_one_pod(hosts)
            or search.across_pods(*divmod(hosts, search.slots))
        )
        if placement is None and self._two_pods:
            placement = search.across_two_pods(*divmod(hosts, search.slots))
        return search.answer(placement)
