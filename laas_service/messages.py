# SPDX-License-Identifier: Apache-2.0

"""Values that processes exchange, and how documents on the bus are read.

A document on the bus carries the ``version`` of its schema, MAJOR.MINOR. A new field makes a
new minor version, whose new fields older readers ignore; any change that would mislead them
makes a new major version, which they refuse.
"""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from laas_service.domain.allocation import Allocation
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.errors import InvalidInput
from laas_service.domain.faults.counters import SwitchCounters
from laas_service.domain.faults.reading import FabricReading
from laas_service.domain.inventory import Inventory
from laas_service.domain.topology import Link, Topology

PKEYS = range(0x0001, 0x7FFF)
"""All partition keys that a tenant can have, without the membership bit; 0x7fff is the default
partition's."""


SET_FORM = 6
"""Form of a set of files; increased by a release that renders equal values to other bytes.

An agent names the newest form that it knows when it fetches, and gets that one or an older one.
"""


@dataclass(frozen=True, slots=True)
class TenantRoute:
    """One allocation whose traffic the subnet manager has to keep on its own links.

    ``pkey`` is the tenant's partition key, one of ``PKEYS``, unique in the fabric. ``pkeys`` are
    the keys by rail if they differ, because the tenant's links do not join its rails; then
    ``pkey`` is the first of them.

    While the placement changes, the tenant holds a second placement, ``beside``. Its entries are
    in the forwarding tables wherever ``allocation`` has none, so that a packet which meets old
    tables in one switch and new ones in the next never leaves the tenant's links. ``bridge`` has
    further links, for packets between hosts of the one and of the other placement.

    While failed links of such a change are replaced, it has the routes over other links for the
    same hosts as well, ``beneath``: wherever its own routes have no entry.
    """

    allocation: Allocation
    pkey: int
    beside: Allocation | None = None
    pkeys: tuple[int, ...] = ()
    bridge: Allocation | None = None
    beneath: "TenantRoute | None" = None

    def key(self, rail: int) -> int:
        """The partition key of the tenant's ports on a rail."""
        return self.pkeys[rail] if self.pkeys else self.pkey

    @property
    def held(self) -> Allocation:
        """All hosts and links that the tenant may be on."""
        own = self._own_held
        return own if self.beneath is None else own.joined(self.beneath.held)

    @property
    def _own_held(self) -> Allocation:
        held = self.allocation
        for other in (self.beside, self.bridge):
            held = held if other is None else held.joined(other)
        return held

    @property
    def placements(self) -> tuple[Allocation, ...]:
        """As ``forwarding_tables`` wants them; all that is held only if hosts change."""
        if self.beside is None:
            return (self.allocation,)
        both = self.beside, self.allocation
        own = (self._own_held, *both) if self._changes_hosts else both
        return own if self.beneath is None else (*self.beneath.placements, *own)

    @property
    def chained(self) -> Allocation:
        """The placement whose hosts and links are in the topology of the tenant's routing chain.

        All that is held while hosts change and links join them: packets go between all of them.
        """
        joined = self.bridge is not None or not self._exchanges_hosts
        return self.held if self._changes_hosts and joined else self.allocation

    @property
    def _changes_hosts(self) -> bool:
        return self.beside is not None and bool(
            self.beside.beyond(self.allocation).size or self.allocation.beyond(self.beside).size
        )

    @property
    def _exchanges_hosts(self) -> bool:
        return self.beside is not None and bool(
            self.beside.beyond(self.allocation).size and self.allocation.beyond(self.beside).size
        )


@dataclass(frozen=True, slots=True)
class FabricState:
    """The input of a subnet manager's files at one generation.

    ``tenants`` ascend by allocation id, ``failed_links`` by link id. Equal states
    render to equal bytes. Traffic of hosts without a tenant uses ``shared_plane``.
    ``moved_links`` are those of the failed links with an end that is linked to another port than
    the recorded one: no table leads over them. ``reserved_links`` are those of containers, which
    the traffic of others keeps off, too. ``stamp`` is the generation's, empty if it has none.
    ``virtual_guids`` has the virtual ports of ports of hosts, both by GUID, ascending.
    """

    fabric: str
    generation: int
    topology: Topology
    inventory: Inventory
    tenants: tuple[TenantRoute, ...]
    failed_links: tuple[Link, ...] = ()
    shared_plane: CommonPlane = NO_PLANE
    moved_links: tuple[Link, ...] = ()
    reserved_links: tuple[Link, ...] = ()
    stamp: str = ""
    virtual_guids: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


class ConfirmedBy(StrEnum):
    """What a generation, or an allocation's routes, are confirmed by; the strongest first."""

    SWITCHES = "switches"  # the worker read the tables back from the switches
    AGENT = "agent"  # an agent beside OpenSM reported it
    UFM = "ufm"  # UFM lists exactly the tenants' ports in their partitions; no tables were read
    FILES = "files"  # the files are written, nobody read the switches
    NOBODY = "nobody"  # the files are written, no subnet manager is configured to read them

    @property
    def was_read(self) -> bool:
        """Whether anybody looked into the switches, or asked the manager what it has."""
        return self in (self.SWITCHES, self.AGENT, self.UFM)


class Span(StrEnum):
    """What the time of an allocation goes to.

    ``doc/source/admin/day2.rst`` explains each value.
    """

    WAIT = "wait"  # for others, in a queue or for the worker: all that no other span counts
    SEARCH = "search"  # for hosts and links, all tries
    COMMIT = "commit"  # the claims: the locks and statements of the transaction
    RENDER = "render"  # the files, also writing them
    FETCH = "fetch"  # by an agent beside OpenSM, also checking and writing them
    RELOAD = "reload"  # OpenSM is told to read them
    READ_BACK = "read_back"  # until the tables are confirmed
    NOVA = "nova"  # handing hosts over, or taking them back


def seconds_by_span(document: Mapping[str, float] | None) -> dict[Span, float]:
    """The seconds in a document; spans of a newer release are left out."""
    known = document or {}
    return {span: known[span.value] for span in Span if span.value in known}


class Condition(StrEnum):
    """The state of an agent's OpenSM and of the switches.

    ``doc/source/admin/troubleshooting.rst`` explains each value.
    """

    STARTING = "starting"  # the agent has not looked yet
    APPLIED = "applied"  # the switches run the tables of a set, bit for bit
    SWEEPING = "sweeping"  # OpenSM was signalled, its sweep has not ended
    OTHER_GENERATION = "other_generation"  # the switches run the tables of an earlier set
    DIFFERS = "differs"  # the switches run the tables of no known set
    OTHER_ENGINE = "other_engine"  # OpenSM routed with another engine than the file's
    WRONG_KEYS = "wrong_keys"  # the tables are right, partition keys of ports are not
    WRONG_SETTINGS = "wrong_settings"  # OpenSM runs with other settings than the site's
    DEAD = "dead"  # OpenSM does not run
    WEDGED = "wedged"  # OpenSM runs, but does not sweep, or is stopped
    NOT_MASTER = "not_master"  # another subnet manager is the master of the subnet
    RESTARTED = "restarted"  # another OpenSM process than the one that was signalled
    REFUSED = "refused"  # the wanted set is invalid
    BLIND = "blind"  # tables cannot be read back

    @property
    def able(self) -> bool:
        """Whether an agent in this condition can bring a set into the switches."""
        return self not in (self.DEAD, self.WEDGED, self.NOT_MASTER, self.REFUSED, self.BLIND)


@dataclass(frozen=True, slots=True)
class Master:
    """The master of a subnet, as it describes itself; ``priority`` is 0..15."""

    guid: int  # of its port
    lid: int
    priority: int


@dataclass(frozen=True, slots=True)
class Running:
    """What routes the fabric; None where it is not known.

    ``engine`` is the routing engine that OpenSM used last, by its log.
    """

    engine: str | None = None
    master: Master | None = None


NOTHING_KNOWN = Running()


@dataclass(frozen=True, slots=True)
class Applied:
    """The generation that is confirmed, and by what (``by``), or why none is confirmed.

    Switches by GUID, ascending: it is confirmed without those in ``without``, which are dead;
    those in ``unconfirmed`` do not answer and may still forward by other tables. ``condition`` is
    that of OpenSM, if it is known. ``stamp`` is the generation's, empty if it is not known.
    ``spent`` is where an agent's time for its newest set went, in seconds. ``standbys`` are the
    known managers that are not active and could become the master, by name, with the generation
    of the set that each would route by; None: it has none. ``loaded`` is the generation that an
    operator says the switches run.
    """

    generation: int | None
    problem: str | None = None
    without: tuple[int, ...] = ()
    unconfirmed: tuple[int, ...] = ()
    by: ConfirmedBy = ConfirmedBy.NOBODY
    condition: Condition | None = field(default=None, compare=False)
    stamp: str = ""
    running: Running = NOTHING_KNOWN
    spent: Mapping[Span, float] = field(default_factory=dict, compare=False)
    standbys: Mapping[str, int | None] = field(default_factory=dict, compare=False)
    loaded: int | None = field(default=None, compare=False)

    @property
    def routes_by(self) -> ConfirmedBy:
        """What confirms the tables: UFM, asked itself, shows none."""
        return ConfirmedBy.FILES if self.by is ConfirmedBy.UFM else self.by

    @property
    def keys_by(self) -> ConfirmedBy:
        """What confirms the partition keys: the master is known only where ports were read."""
        reads = self.by in (ConfirmedBy.SWITCHES, ConfirmedBy.AGENT)
        return ConfirmedBy.FILES if reads and self.running.master is None else self.by


@dataclass(frozen=True, slots=True)
class Standing:
    """Partition keys whose routes the switches have already, before a sweep with their set ended.

    ``generation`` is that of the set, ``by`` who read the switches.
    """

    generation: int
    keys: frozenset[int]
    by: ConfirmedBy


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What an agent reports.

    ``generation`` is that of the set whose tables are in the switches, ``published`` that of the
    set that is current on the agent's disk. ``without`` and ``unconfirmed`` are described at
    ``Applied``. ``reading`` is the last look at the ports; None if there was none. ``counters``
    are port counters that were not reported before; they may be reported twice, or not at all.
    ``stamp`` is that of ``generation``, ``published_stamp`` that of ``published``; empty if it is
    not known. ``spent`` is where the agent's time for ``published`` went, in seconds.
    """

    condition: Condition
    detail: str | None = None
    generation: int | None = None
    published: int | None = None
    without: tuple[int, ...] = ()
    unconfirmed: tuple[int, ...] = ()
    reading: FabricReading | None = None
    counters: tuple[SwitchCounters, ...] = ()
    stamp: str = ""
    published_stamp: str = ""
    running: Running = NOTHING_KNOWN
    spent: Mapping[Span, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Orders:
    """The service's answer to an agent's report."""

    leads: bool
    """Whether the reporting agent is the active one."""
    active: str
    """The name of the active agent."""
    wanted: int
    """The generation wanted in the switches."""
    lease_seconds: float
    """How long the active agent remains active without a further report."""
    stamp: str = ""
    """The stamp of the wanted generation; empty if the service knows none."""


@dataclass(frozen=True, slots=True)
class FileSet:
    """The description of a file set, which agents read before they fetch its files.

    ``manifest`` is the document of its ``manifest.json``; ``sizes`` are bytes by file.
    ``parts`` lists, for files that can be fetched in pieces, the size and sha256 (hex) of each
    piece in order: for ``lfts`` a piece is the table of a switch.
    """

    manifest: Mapping[str, Any]
    sizes: Mapping[str, int]
    parts: Mapping[str, tuple[tuple[int, str], ...]]


@dataclass(frozen=True, slots=True)
class Wake:
    """Wakes workers: there may be something to do."""

    version: str = "1.0"


@dataclass(frozen=True, slots=True)
class Initiator:
    """The user, project and request that caused a change, as authentication established them."""

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
    """A change of an ``allocation``, a ``host`` or a ``link``; of the fabric if all are None.

    ``drift`` is the kind of drift, if the notification is about drift. ``source`` is who says
    that a host or link has failed, is drained or is up: ``operator``, ``observed`` or
    ``nova``. A
    notification that is sent twice has the same ``id``. ``at`` is ISO 8601, UTC. ``initiator``
    is whoever made the request that a worker carries out; None if the service acts without a
    request. ``old_state`` is None for a new object. ``error`` is why the next step failed or
    waits, None otherwise. ``confirmed_by`` (``ConfirmedBy``) is that of the allocation, or of a
    generation that is confirmed for the first time; None otherwise.
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
    version: str = "1.3"
    drift: str | None = None
    source: str | None = None
    confirmed_by: str | None = None


Message = TypeVar("Message", bound=Wake | Notification)

_PARTS: dict[str, type[Initiator | NotedAllocation]] = {
    "initiator": Initiator,
    "allocation": NotedAllocation,
}


def document(message: Wake | Notification) -> dict[str, Any]:
    """The document that is sent."""
    return asdict(message)


def read(kind: type[Message], document: Mapping[str, Any]) -> Message:
    """The message in a document; fields that a newer minor version adds are ignored.

    Raises:
        InvalidInput: another major version, or a field is missing.
    """
    ours = next(entry.default for entry in fields(kind) if entry.name == "version")
    values = _known(kind, document)
    check_version(values["version"], str(ours))
    for name in _PARTS.keys() & values.keys():
        if values[name] is not None:
            values[name] = _PARTS[name](**_known(_PARTS[name], values[name]))
    return kind(**values)


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The known fields of a document; a field that an older minor version lacks has a default."""
    for entry in fields(kind):
        added = entry.default is not MISSING and entry.name != "version"
        if entry.name not in document and not added:
            raise InvalidInput(entry.name, None, f"every {kind.__name__} has it")
    return {entry.name: document[entry.name] for entry in fields(kind) if entry.name in document}


def check_version(version: object, ours: str) -> None:
    """Return if a reader of version ``ours`` understands ``version``. Raises: InvalidInput."""
    major, _, minor = str(version).partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise InvalidInput("version", version, "give MAJOR.MINOR")
    if major != ours.partition(".")[0]:
        raise InvalidInput("version", version, f"this release reads {ours} and what agrees with it")
