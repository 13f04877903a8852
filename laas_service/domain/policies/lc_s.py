# SPDX-License-Identifier: Apache-2.0

"""Least constrained with link-sharing: legal shapes on links that have enough left."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.errors import InvalidInput
from laas_service.domain.ledger import LedgerView
from laas_service.domain.ledger.shared_links import SharedLedger
from laas_service.domain.search.min_cost import search_for
from laas_service.domain.search.one_pod import WORK


class LcS:
    """Smith and Lowenthal (HPDC'21), 5.2.3, "LC+S": ``lc`` on shares of links.

    Each request says how much of a link its flows need (``Request.bandwidth``; all that may
    be shared out of a link if it does not), and gets that much of every link of a legal
    shape. Not isolating: tenants share links, up to the cap. For simulation and planning.

    Monotone for requests of equal bandwidth.

    Raises:
        InvalidInput: the bandwidth is not within 1 ppm and the fabric's cap.
    """

    name: ClassVar[str] = "lc-s"
    isolating: ClassVar[bool] = False
    monotone: ClassVar[bool] = True

    def __init__(self, work: int = WORK) -> None:
        self._work = work

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        if not isinstance(fabric, SharedLedger):
            raise InvalidInput("policy", self.name, "it needs a fabric whose links are shared")
        cap = fabric.shares.cap
        bandwidth = cap if request.bandwidth is None else request.bandwidth
        if not 1 <= bandwidth <= cap:
            raise InvalidInput("bandwidth", bandwidth, f"give 1 to {cap} ppm of a link")
        search = search_for(fabric.with_room(bandwidth), self.name, request, self._work)
        if refusal := search.hopeless():
            return refusal
        hosts = request.hosts
        answer = search.answer(
            search.in_one_group(hosts)
            or search.in_one_pod(hosts)
            or search.across_pods(*divmod(hosts, search.slots))
            or search.across_pods_on_thin_leaves(hosts)
        )
        if isinstance(answer, NoFit):
            return answer
        return replace(answer, bandwidth=bandwidth)
