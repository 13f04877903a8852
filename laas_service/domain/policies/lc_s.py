# SPDX-License-Identifier: Apache-2.0

"""Least constrained with link-sharing: legal shapes on links with enough bandwidth left."""

from dataclasses import replace
from typing import ClassVar

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.errors import InvalidInput
from laas_service.domain.ledger import LedgerView
from laas_service.domain.ledger.shared_links import SharedLedger
from laas_service.domain.search.budget import WORK
from laas_service.domain.search.multi_pod import in_several_pods
from laas_service.domain.search.one_leaf import in_one_leaf_group
from laas_service.domain.search.one_pod import in_one_pod
from laas_service.domain.search.partial_leaves import on_partial_leaves
from laas_service.domain.search.search import Search


class LcS:
    """Smith and Lowenthal (HPDC'21), section 5.2.3, "LC+S": ``lc`` on shares of links.

    ``Request.bandwidth`` is the part of each link that the tenant's flows need, in parts per
    million; the default is the fabric's cap. The tenant gets that much of every link of a
    legal shape. The policy isolates nobody: tenants share links, up to the cap. It is meant
    for simulation and planning. It is monotone among requests of equal bandwidth.

    Raises:
        InvalidInput: the fabric is no ``SharedLedger``, or the bandwidth is not within 1 ppm
            and the cap.
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
        search = Search(fabric.with_room(bandwidth), self.name, request, self._work)
        hosts = request.hosts
        answer = search.answer(
            in_one_leaf_group(search, hosts),
            in_one_pod(search, hosts),
            in_several_pods(search, *divmod(hosts, fabric.topology.hosts_per_group)),
            on_partial_leaves(search, hosts),
        )
        if isinstance(answer, NoFit):
            return answer
        return replace(answer, bandwidth=bandwidth)
