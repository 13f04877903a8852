# SPDX-License-Identifier: Apache-2.0

"""Placement: consumers of a host, members of an aggregate, candidates for a scheduler."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1.adapter import Adapter

from laas_service.adapters.nova.aggregates import Aggregate
from laas_service.adapters.openstack_calls import Calls

PLACEMENT_VERSION = "1.28"
"""First version that shows the project of a consumer, and the generation of a provider."""

CANDIDATES_VERSION = "1.36"
"""The version with which the scheduler asks placement for candidates."""

CANDIDATES = 1000
"""Most candidates that the scheduler asks for ([scheduler] max_placement_results)."""

MEMBERSHIP = "placement:resource_providers:aggregates:list and :update"

TRIES = 5
"""How often a membership is written; nova-compute changes the provider's generation meanwhile."""

T = TypeVar("T")


class PlacementCalls(Calls):
    """Calls to placement about hosts and servers; slots have their own (``sharing``)."""

    service: ClassVar[str] = "placement"
    grant: ClassVar[str] = "a role with"

    def __init__(self, placement: Adapter, beat: Callable[[str], None]) -> None:
        super().__init__(beat)
        self._placement = placement

    def members(self, aggregate: Aggregate) -> set[str]:
        """The providers in the aggregate according to placement."""
        rule = "placement:resource_providers:list"
        path = f"/resource_providers?member_of={aggregate.uuid}"
        return self._get(
            path, rule, lambda answer: {str(item["uuid"]) for item in answer["resource_providers"]}
        )

    def memberships(self, provider: str) -> dict[str, Any] | None:
        """Placement's document of a provider's aggregates; None if it has no such provider."""
        path = f"/resource_providers/{provider}/aggregates"

        def read() -> dict[str, Any] | None:
            try:
                answer = self._placement.get(path, microversion=PLACEMENT_VERSION)
                return dict(answer.json())
            except keystone_errors.NotFound:
                return None

        return self._read(f"read {path} of placement", MEMBERSHIP, read)

    def candidates(self, aggregates: str) -> tuple[set[str], int]:
        """The providers that placement offers to the scheduler, and the bytes of the request.

        ``aggregates`` restricts them as ``member_of`` of placement does.
        """
        path = (
            f"/allocation_candidates?limit={CANDIDATES}&member_of={quote(aggregates, safe='')}"
            "&resources=MEMORY_MB%3A1%2CVCPU%3A1&root_required=%21COMPUTE_STATUS_DISABLED"
        )

        def read() -> set[str]:
            answer = self._placement.get(path, microversion=CANDIDATES_VERSION)
            return set(answer.json()["provider_summaries"])

        action = f"ask placement for candidates with a request of {len(path):,} bytes"
        return self._read(action, "placement:allocation_candidates:list", read), len(path)

    def empty_members(self, aggregate: Aggregate, resource: str) -> set[str]:
        """Providers in the aggregate that placement shows without any consumer; not all of them.

        Those without a free unit of the resource are missing, and those beyond ``CANDIDATES``.
        """
        path = (
            f"/allocation_candidates?limit={CANDIDATES}&member_of={aggregate.uuid}"
            f"&resources={resource}%3A1"
        )

        def read() -> set[str]:
            answer = self._placement.get(path, microversion=CANDIDATES_VERSION)
            return {
                str(provider)
                for provider, summary in answer.json()["provider_summaries"].items()
                if not any(amount["used"] for amount in summary["resources"].values())
            }

        action = f"ask placement for the empty hosts of aggregate {aggregate.name}"
        return self._read(action, "placement:allocation_candidates:list", read)

    def consumers(self, provider: str) -> dict[str, str]:
        """The consumers (servers and migrations) of a provider, with their projects."""
        rule = "placement:resource_providers:allocations:list"
        path = f"/resource_providers/{provider}/allocations"
        consumers = self._get(path, rule, lambda answer: list(answer["allocations"].keys()))
        owners = {str(consumer): self.owner(str(consumer)) for consumer in consumers}
        return {consumer: project for consumer, project in owners.items() if project}

    def owner(self, consumer: str) -> str | None:
        """The project of a consumer; None if placement has no such consumer."""
        return self._get(
            f"/allocations/{consumer}",
            "placement:allocations:list",
            lambda answer: str(answer["project_id"]) if answer["allocations"] else None,
        )

    def _get(self, path: str, rule: str, parse: Callable[[dict[str, Any]], T]) -> T:
        def read() -> T:
            answer = self._placement.get(path, microversion=PLACEMENT_VERSION)
            return parse(answer.json())

        return self._read(f"read {path} of placement", rule, read)

    # -- changes ------------------------------------------------------------------

    def set_member(self, aggregate: Aggregate, provider: str, *, member: bool) -> str | None:
        """Put a provider into an aggregate in placement, or out of it; why that is refused.

        A provider that placement does not have is in none. The provider's other aggregates stay.
        """
        path = f"/resource_providers/{provider}/aggregates"
        refusal = None
        for _ in range(TRIES):
            document = self.memberships(provider)
            if document is None:
                return "placement has no such provider" if member else None
            aggregates = set(document["aggregates"])
            if (aggregate.uuid in aggregates) is member:
                return None
            aggregates ^= {aggregate.uuid}
            refusal = self._put(path, {**document, "aggregates": sorted(aggregates)})
            if refusal is None:
                return None
        return refusal

    def _put(self, path: str, document: Mapping[str, Any]) -> str | None:
        return self._write(
            f"write {path} of placement",
            MEMBERSHIP,
            lambda: self._placement.put(path, json=document, microversion=PLACEMENT_VERSION),
            lambda _: None,
        )
