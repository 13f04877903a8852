# SPDX-License-Identifier: Apache-2.0

"""Documents that travel between processes: plain values, and how they are read.

On the bus a document carries the ``version`` of its schema, MAJOR.MINOR. A new field is a
new minor version, which older readers accept and leave out; whatever would mislead them is
a new major version, which they refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from enum import StrEnum
from typing import Any, TypeVar

from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import InvalidInput
from laas_service.domain.inventory import Inventory
from laas_service.domain.shared_plane import NO_PLANE, SharedPlane
from laas_service.domain.topology import Link, Topology


@dataclass(frozen=True, slots=True)
class TenantRoute:
    """One allocation whose traffic the subnet manager has to keep on its own links.

    ``pkey`` is the tenant's partition key, 0x0001..0x7FFE, unique in the fabric.

    While the placement changes, ``beside`` is another one that the tenant holds: its
    entries stand wherever ``allocation`` has none, so that a packet which meets tables
    of before and after the next change never leaves the tenant's links.
    """

    allocation: Allocation
    pkey: int
    beside: Allocation | None = None

    @property
    def held(self) -> Allocation:
        """All hosts and links that the tenant may be on."""
        return self.allocation if self.beside is None else self.allocation.joined(self.beside)


@dataclass(frozen=True, slots=True)
class FabricState:
    """All that a subnet manager's files are made from, at one generation.

    ``tenants`` ascend by allocation id, ``failed_links`` by link id. Equal states
    render to equal bytes. What is no tenant's keeps to ``shared_plane``.
    """

    fabric: str
    generation: int
    topology: Topology
    inventory: Inventory
    tenants: tuple[TenantRoute, ...]
    failed_links: tuple[Link, ...] = ()
    shared_plane: SharedPlane = NO_PLANE


@dataclass(frozen=True, slots=True)
class Applied:
    """What the subnet manager is seen to run: a generation, or why none is confirmed."""

    generation: int | None
    problem: str | None = None


class Condition(StrEnum):
    """What an agent sees of its OpenSM and of the switches.

    ``doc/source/install/opensm-agent.rst`` explains each value.
    """

    STARTING = "starting"  # it has not looked yet
    APPLIED = "applied"  # the switches have a set's tables, bit for bit
    SWEEPING = "sweeping"  # OpenSM was told, its sweep has not ended
    OTHER_GENERATION = "other_generation"  # those of an earlier set
    DIFFERS = "differs"  # those of no set that is known
    DEAD = "dead"  # there is no OpenSM
    WEDGED = "wedged"  # it is there, and does not sweep, or is stopped
    NOT_MASTER = "not_master"  # another subnet manager is the master of the subnet
    RESTARTED = "restarted"  # another process than the one that was told
    REFUSED = "refused"  # the wanted set is not fit to be published
    BLIND = "blind"  # tables cannot be read back

    @property
    def able(self) -> bool:
        """Whether an agent in this condition can bring a set into the switches."""
        return self not in (self.DEAD, self.WEDGED, self.NOT_MASTER, self.REFUSED, self.BLIND)


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What an agent reports. ``generation`` is that of the set whose tables are in the switches,
    ``published`` that of the set that is current on its disk."""

    condition: Condition
    detail: str | None = None
    generation: int | None = None
    published: int | None = None


@dataclass(frozen=True, slots=True)
class FileSet:
    """A set of files as agents learn of it before they fetch any.

    ``manifest`` is the document of its ``manifest.json``; ``sizes`` are bytes by file.
    ``parts`` are the size and sha256 (hex) of each piece, in order, of files that can be
    fetched piece by piece: of ``lfts`` the tables of the switches.
    """

    manifest: Mapping[str, Any]
    sizes: Mapping[str, int]
    parts: Mapping[str, tuple[tuple[int, str], ...]]


@dataclass(frozen=True, slots=True)
class Wake:
    """There may be something to do."""

    version: str = "1.0"


@dataclass(frozen=True, slots=True)
class Initiator:
    """Who asked, as authentication established it, and with which request."""

    request_id: str
    user_id: str
    project_id: str


@dataclass(frozen=True, slots=True)
class NotedAllocation:
    """The allocation that changed. ``project_id`` is its owner; ``hosts`` how many it is for."""

    id: str
    name: str
    project_id: str
    policy: str
    hosts: int


@dataclass(frozen=True, slots=True)
class Notification:
    """Something changed: one of ``allocation``, ``host`` and ``link`` says what, or none of
    them, where the ``fabric`` itself did; ``drift`` is then the kind of drift, if it is about that.

    A notification that is sent twice has the same ``id``. ``at`` is ISO 8601, UTC.
    ``initiator`` is None where the service acted by itself, and where a worker carries out
    a request, it is who made that request. ``old_state`` is None where there was nothing
    before. ``error`` is why the next step failed or has to wait, None when all is well.
    """

    id: str
    event_type: str
    at: str
    fabric: str
    initiator: Initiator | None
    allocation: NotedAllocation | None
    host: str | None
    link: str | None
    old_state: str | None
    new_state: str
    reason: str
    error: str | None
    version: str = "1.1"
    drift: str | None = None


Message = TypeVar("Message", bound=Wake | Notification)

_PARTS: dict[str, type[Initiator | NotedAllocation]] = {
    "initiator": Initiator,
    "allocation": NotedAllocation,
}


def document(message: Wake | Notification) -> dict[str, Any]:
    """What travels."""
    return asdict(message)


def read(kind: type[Message], document: Mapping[str, Any]) -> Message:
    """The message in a document. What a newer minor version adds is left out.

    Raises:
        InvalidInput: another major version, or a field is missing.
    """
    ours = next(field.default for field in fields(kind) if field.name == "version")
    values = _known(kind, document)
    check_version(values["version"], str(ours))
    for name in _PARTS.keys() & values.keys():
        if values[name] is not None:
            values[name] = _PARTS[name](**_known(_PARTS[name], values[name]))
    return kind(**values)


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """What we know of a document; a field that an older minor version lacks has a default."""
    for field in fields(kind):
        added = field.default is not MISSING and field.name != "version"
        if field.name not in document and not added:
            raise InvalidInput(field.name, None, f"every {kind.__name__} has it")
    return {field.name: document[field.name] for field in fields(kind) if field.name in document}


def check_version(version: object, ours: str) -> None:
    """Return if a reader of version ``ours`` understands ``version``. Raises: InvalidInput."""
    major, _, minor = str(version).partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise InvalidInput("version", version, "give MAJOR.MINOR")
    if major != ours.partition(".")[0]:
        raise InvalidInput("version", version, f"this release reads {ours} and what agrees with it")
