# SPDX-License-Identifier: Apache-2.0

"""Host aggregates of Nova: their state, the calls that read and write them, what was read last."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from laas_service.adapters.nova.calls import NovaCalls
from laas_service.adapters.nova.hypervisors import HypervisorCalls
from laas_service.adapters.nova.keys import ALLOCATION, NODE, OWNER, SLOTS, aggregate_name
from laas_service.adapters.nova.names import HostNames


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``hosts`` are its compute hosts and those of its ``nodes``: hosts by UUID of their node."""

    id: int
    uuid: str
    name: str
    hosts: frozenset[str]
    metadata: Mapping[str, str]
    nodes: Mapping[str, str]

    def isolates_as(self, desired: Mapping[str, str]) -> bool:
        """Whether the keys are as desired, and no other key admits projects."""
        return not self.corrections(desired)

    @property
    def admitted(self) -> str:
        """The projects that the keys admit, by commas; one, unless somebody added some."""
        keys = sorted(key for key in self.metadata if key.startswith(OWNER))
        return ",".join(self.metadata[key] for key in keys)

    def corrections(self, desired: Mapping[str, str]) -> dict[str, str | None]:
        """The keys to set (None: delete) so that the aggregate isolates as desired."""
        owners = (key for key in self.metadata if key.startswith(OWNER))
        stray = {key: None for key in owners if key not in desired}
        return stray | {k: v for k, v in desired.items() if self.metadata.get(k) != v}

    @property
    def is_ours(self) -> bool:
        """Whether it is of an allocation of the service."""
        id = self.metadata.get(ALLOCATION)
        return id is not None and self.name == aggregate_name(id)

    @property
    def is_shared(self) -> bool:
        """Whether it is of an allocation of class ``shared``."""
        return self.is_ours and SLOTS in self.metadata


class AggregateCalls(NovaCalls):
    """Calls to Nova about aggregates."""

    def __init__(
        self,
        nova: Any,
        names: HostNames,
        hypervisors: HypervisorCalls,
        beat: Callable[[str], None],
    ) -> None:
        super().__init__(nova, names, beat)
        self._hypervisors = hypervisors

    def all(self) -> dict[str, Aggregate]:
        """All aggregates of the cloud by name."""
        if self.names.unsure:
            self._hypervisors.learn_names()

        def read() -> dict[str, Aggregate]:
            aggregates = [self._answered(item) for item in self._nova.aggregates.list()]
            return {aggregate.name: aggregate for aggregate in aggregates}

        return self._read("list aggregates", "os_compute_api:os-aggregates:index", read)

    def create(self, name: str) -> Aggregate | str:
        """Create an aggregate outside availability zones, in which Nova refuses busy hosts."""
        return self._write(
            f"create aggregate {name}",
            "os_compute_api:os-aggregates:create",
            lambda: self._nova.aggregates.create(name, None),
            lambda made: self._aggregate(made.to_dict() | {"hosts": [], "metadata": {}}),
        )

    def set_metadata(
        self, aggregate: Aggregate, metadata: Mapping[str, str | None]
    ) -> Aggregate | str:
        """Merge keys into the metadata; None deletes a key."""
        return self._write(
            f"set metadata of aggregate {aggregate.name}",
            "os_compute_api:os-aggregates:set_metadata",
            lambda: self._nova.aggregates.set_metadata(aggregate.id, dict(metadata)),
            self._answered,
        )

    def add_host(self, aggregate: Aggregate, host: str) -> Aggregate | str:
        return self._write(
            f"add host {host} to aggregate {aggregate.name}",
            "os_compute_api:os-aggregates:add_host",
            lambda: self._nova.aggregates.add_host(aggregate.id, self.names.nova(host)),
            self._answered,
        )

    def remove_host(self, aggregate: Aggregate, host: str) -> Aggregate | str:
        return self._write(
            f"remove host {host} from aggregate {aggregate.name}",
            "os_compute_api:os-aggregates:remove_host",
            lambda: self._nova.aggregates.remove_host(aggregate.id, self.names.nova(host)),
            self._answered,
        )

    def delete(self, aggregate: Aggregate) -> str | None:
        return self._write(
            f"delete aggregate {aggregate.name}",
            "os_compute_api:os-aggregates:delete",
            lambda: self._nova.aggregates.delete(aggregate.id),
            lambda _: None,
        )

    def _aggregate(self, document: Mapping[str, Any]) -> Aggregate:
        """The aggregate in a document. Raises: KeyError, TypeError, ValueError."""
        metadata = {str(key): str(value) for key, value in dict(document["metadata"]).items()}
        nodes = {key.removeprefix(NODE): metadata[key] for key in metadata if key.startswith(NODE)}
        return Aggregate(
            int(document["id"]),
            str(document["uuid"]),
            str(document["name"]),
            frozenset(self.names.ours(str(host)) for host in document["hosts"]) | {*nodes.values()},
            metadata,
            nodes,
        )

    def _answered(self, item: Any) -> Aggregate:
        """The aggregate in an answer to a write."""
        return self._aggregate(item.to_dict())


class _AggregatesRead(threading.local):
    """The aggregates as one thread read them.

    ``aggregates``: as last read, with what this thread wrote since; None if they have to be read.
    ``comparing``: whether the methods of the port share them.
    """

    aggregates: dict[str, Aggregate] | None = None
    comparing = False


class Aggregates:
    """All aggregates of the cloud by name, as this thread has read and written them."""

    def __init__(self, calls: AggregateCalls) -> None:
        self._calls = calls
        self._reading = _AggregatesRead()

    @contextmanager
    def comparison(self) -> Iterator[None]:
        """Until the end one list serves this thread: its calls of ``begin`` do nothing."""
        self._reading.aggregates, self._reading.comparing = None, True
        try:
            yield
        finally:
            self._reading.comparing = False

    @property
    def comparing(self) -> bool:
        """Whether this thread is in a ``comparison``."""
        return self._reading.comparing

    def begin(self) -> None:
        """Read the aggregates anew where they are needed, unless this is a comparison."""
        if not self._reading.comparing:
            self.forget()

    def forget(self) -> None:
        """Read the aggregates anew where they are needed."""
        self._reading.aggregates = None

    def note(self, written: Aggregate) -> None:
        """Remember an aggregate as a write has left it."""
        if self._reading.aggregates is not None:
            self._reading.aggregates[written.name] = written

    @property
    def present(self) -> Mapping[str, Aggregate]:
        """All of them by name; read if necessary."""
        if self._reading.aggregates is None:
            self._reading.aggregates = self._calls.all()
        return self._reading.aggregates

    def get(self, name: str) -> Aggregate | None:
        """The aggregate of this name, if there is one."""
        return self.present.get(name)

    def owners(self) -> dict[str, str]:
        """The projects of the hosts that belong to allocations."""
        ours = (aggregate for aggregate in self.present.values() if aggregate.is_ours)
        return {host: each.metadata.get(OWNER, "") for each in ours for host in each.hosts}
