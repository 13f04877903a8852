# SPDX-License-Identifier: Apache-2.0

"""What the subnet-manager port on UFM remembers between its rounds, and after a crash."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from laas_service.domain.inventory import PortRef


class Membership(NamedTuple):
    """A port, by its GUID, as a member of the partition with a key."""

    pkey: int
    guid: int


class PartitionRequest(NamedTuple):
    """A request to add ports to a partition or to remove them, made for a generation."""

    fabric: str
    pkey: int
    adds: bool
    guids: frozenset[int]
    generation: int


class UnderWay(NamedTuple):
    """A request that began ``age`` seconds ago; ``job`` is UFM's, None if it told none."""

    id: int
    request: PartitionRequest
    job: str | None
    age: float


class PartitionMemory(Protocol):
    """Keeps what it was told across a crash. Each method raises ``Unavailable``."""

    def begin(self, request: PartitionRequest) -> int:
        """Note a request that is about to be sent; returns its id.

        What it removes counts as withdrawn by its generation, what it adds no longer does.
        Raises: Conflict, if it adds what a newer generation withdrew.
        """

    def note_job(self, id: int, job: str) -> None:
        """UFM carries out the request as this job."""

    def end(self, ids: Collection[int]) -> None:
        """UFM will not carry out these requests any more."""

    def under_way(self, fabric: str) -> list[UnderWay]:
        """The requests that have not ended, in the order in which they began."""

    def withdrawn(self, fabric: str, pkeys: Collection[int]) -> Mapping[Membership, int]:
        """The withdrawn memberships in partitions with these keys, and by which generation."""

    def marked(self, fabric: str) -> frozenset[PortRef]:
        """The switch ports that the service marked unhealthy in UFM."""

    def mark(self, fabric: str, ports: Collection[PortRef]) -> None:
        """Note ports that are about to be marked, and are not noted yet."""

    def unmark(self, fabric: str, ports: Collection[PortRef]) -> None:
        """Forget ports that are not marked any more."""
