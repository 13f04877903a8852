# SPDX-License-Identifier: Apache-2.0

"""Compute: hosts that accept the servers of one project only."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol


class HostPart(Enum):
    """What an allocation has of each of its hosts, where that is no number of slots."""

    WHOLE = "whole hosts"
    """The hosts are its own: no server of another allocation may be there."""
    UNREAD = "slots"
    """Slots of hosts that others share; how many was not read."""


HostShare = Mapping[str, int] | HostPart
"""What an allocation has of its hosts: by host how many servers of it may be there beside those of
other allocations of class ``shared`` (empty: none), or a ``HostPart``."""


@dataclass(frozen=True, slots=True)
class Handover:
    """One allocation as compute knows it: a project and the Nova names of its hosts."""

    allocation_id: str
    project_id: str
    hosts: tuple[str, ...]
    share: HostShare = HostPart.WHOLE

    @property
    def shared(self) -> bool:
        """Whether it has slots of hosts that other allocations share."""
        return self.share is not HostPart.WHOLE

    @property
    def kind(self) -> str:
        """What is handed over, as a part of a sentence."""
        kind = HostPart.UNREAD if self.shared else HostPart.WHOLE
        return str(kind.value)

    def slots_on(self, host: str) -> int:
        """How many servers of it may be on a host. Raises: ValueError, if that is no number."""
        if isinstance(self.share, HostPart):
            raise ValueError(f"allocation {self.allocation_id} has {self.share.value}")
        return self.share.get(host, 0)


@dataclass(frozen=True, slots=True)
class ObservedAggregates:
    """The state of all aggregates at one moment."""

    handed_over: Mapping[str, Handover]
    """By allocation id; slots of shared hosts may be ``HostPart.UNREAD``."""
    pooled: frozenset[str]
    """Hosts in the pool; empty if the pool itself admits projects."""
    opened: Mapping[str, str]
    """By host, the foreign aggregate that admits projects to it."""
    closed: frozenset[str] = frozenset()
    """Hosts that accept no new server of any project, see ``Compute.close``."""
    fenced: frozenset[str] = frozenset()
    """Allocations whose hosts accept no new server, see ``Compute.fence``."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A server (or migration) on a host, and its project; None if nobody may tell.

    ``deleted_at``: when a server was deleted that can still be restored, as ISO 8601 has it; empty
    for all others, and where nobody may tell.
    """

    host: str
    consumer: str
    project_id: str | None
    deleted_at: str = ""

    @property
    def text(self) -> str:
        """What it is, as a part of a sentence that begins with its host."""
        what = f"{self.consumer} of project {self.project_id or '(unknown)'}"
        if not self.deleted_at:
            return f"runs {what}"
        return f"keeps {what}, deleted at {self.deleted_at}"


KEPT = (
    "Nova keeps a deleted server for its reclaim_instance_interval from then on; an administrator "
    "ends it at once (openstack server delete --force), and it can be restored until then"
)
"""What ends the occupancy of servers with ``deleted_at``."""


@dataclass(frozen=True, slots=True)
class ComputeHost:
    """A host as compute knows it.

    ``up``: its compute service reports. ``enabled``: it may get servers; ``reason`` is why an
    administrator disabled it, empty if nobody said. ``unfit``: why no new owner may get a host
    that has no compute service, as the state of an Ironic node; empty if one may. ``name`` is its
    own name there, empty if it has none.
    """

    up: bool = True
    enabled: bool = True
    reason: str = ""
    servers: tuple[Occupant, ...] = ()
    unfit: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """The servers of some hosts, and the GB of their local disks, which a cold move copies."""

    servers: int = 0
    disk_gb: int = 0


class MoveStage(Enum):
    """What to do with the servers of ``ServerMoves``.

    ``MOVE`` and ``START`` follow ``STOP`` where servers stop before they move.
    """

    STOP = "stop"
    """Stop those that run; see ``ServerMoves.locks``."""
    MOVE = "move"
    START = "start"
    """Start those that ``STOP`` has stopped, wherever they are, and unlock them."""
    UNLOCK = "unlock"
    """Unlock those that ``STOP`` has locked, wherever they are; none is started."""


@dataclass(frozen=True, slots=True)
class ServerMoves:
    """The servers of one allocation that have to go to other hosts of it.

    ``targets`` names for each host that is to be emptied the host that its servers go to; both
    belong to the allocation, and only the latter accept its project's servers. With ``live``
    servers that run need not stop. With ``locks`` those that ``STOP`` stops are locked: their owner
    cannot start them before ``START``; without, the owner can start them, and delete them.
    """

    allocation_id: str
    project_id: str
    targets: Mapping[str, str]
    live: bool = False
    stage: MoveStage = MoveStage.MOVE
    locks: bool = True


@dataclass(frozen=True, slots=True)
class SlotMoves:
    """The servers of an allocation of class ``shared`` that are beyond its slots on a host.

    ``kept`` are the slots that remain, for each host that has or had some. ``planned`` are the
    moves (from, to; one server each, in order) that lead there. With ``consents`` the service makes
    them, with ``live`` while servers run; without the owner has to.
    """

    handover: Handover
    kept: Mapping[str, int]
    planned: tuple[tuple[str, str], ...] = ()
    consents: bool = False
    live: bool = False


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """How far the servers of ``ServerMoves`` are; each text names a server or a script.

    ``arrived``: those whose migration this call confirmed. ``under_way``: those that change hosts
    now, for or against this move. ``stuck``: those that cannot be moved, and why.
    """

    arrived: tuple[str, ...] = ()
    under_way: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()


NOTHING_MOVED = MoveProgress()


class ComputeReader(Protocol):
    """Questions to compute about hosts, aggregates and servers; none of them changes anything.

    Errors of all methods: as those of ``Compute``.
    """

    scripted: ClassVar[bool]
    """A step counts as done when a script for an operator is written, whether it is run or not."""

    claims_slots: ClassVar[bool]
    """Whether it keeps the servers of class ``shared`` to their slots; else they are only counted,
    and every handover has ``HostPart.WHOLE``."""

    def comparison(self) -> AbstractContextManager[None]:
        """For a comparison of everything that is recorded: what is read is shared meanwhile.

        Until the end, this thread's ``pool``, ``handed_over`` and ``hand_over`` of what is handed
        over already rely on one list of the aggregates, and on what an earlier ``look`` saw of
        the servers; a host that then seems to have strangers is looked at again.
        """

    def occupants(self, hosts: Collection[str]) -> Sequence[Occupant]:
        """Everything that placement or Nova shows on these hosts.

        Without servers that were evacuated from a host that is down: their room is left there until
        it is up again. ``hand_over`` refuses such a host.
        """

    def look(self, hosts: Collection[str]) -> Mapping[str, ComputeHost] | None:
        """State and servers of those of these hosts that it knows; None if it cannot tell.

        Servers are those that compute itself has on the host, whether placement knows them or not.
        """

    def nearest(self, hosts: Collection[str]) -> Mapping[str, str]:
        """For those of these hosts that it does not know, the name there that nearly matches.

        Hosts without such a name are missing. ``look`` learns the names.
        """

    def load(self, hosts: Collection[str]) -> ServerLoad | None:
        """The servers that compute itself has on these hosts; None if it cannot tell."""

    def slot_holders(self, handover: Handover) -> Sequence[Occupant]:
        """The servers (and migrations) that hold slots of an allocation of class ``shared``."""

    def handed_over(self) -> Mapping[str, Handover]:
        """Allocations handed over now, by allocation id, as observed, with all slots."""

    def observed(self) -> ObservedAggregates:
        """State from one list-aggregates call; neither servers nor slots are read."""

    def running(self, moves: ServerMoves) -> MoveProgress:
        """The servers that run on the hosts that ``moves`` empties, as ``stuck``.

        ``under_way`` are those that stop, or change hosts, now. A server of a host that is forced
        down counts as stopped. ``Forbidden`` unless an administrator.
        """

    def server_limit(self, project_id: str) -> int | None:
        """How many servers the project may run; None if unlimited or unknown."""


class Compute(ComputeReader, Protocol):
    """Makes hosts accept one project's servers only. Every method is safe to repeat.

    Errors of all methods: ``Unavailable`` when Nova or placement does not answer or its answer
    makes no sense (the outcome is unknown); ``NotFound`` for a host it does not know;
    ``LimitExceeded``; ``Forbidden`` if the service's own user lacks a right; ``Conflict`` if
    others changed an aggregate of the service; ``HostsBusy`` where stated.
    """

    def pool(self, hosts: Collection[str]) -> None:
        """Take hosts under management: a free host in the pool accepts nobody.

        ``HostsBusy`` names the hosts that run servers; all other hosts are in the pool then.
        """

    def close(self, hosts: Collection[str], closed: Collection[str]) -> None:
        """Of these hosts make exactly ``closed`` accept no new server of any project.

        Servers on them run on.
        """

    def stop(self, server: str) -> None:
        """Ask for a server of any project to be stopped; ``Forbidden`` unless an administrator."""

    def hand_over(self, handover: Handover, ready: Collection[str] = ()) -> None:
        """Make the allocation's aggregate hold exactly these hosts for its project; verified.

        ``Unavailable`` if one of ``ready`` could start no server now, and nothing is changed then.

        ``HostsBusy`` if another project's servers are on one of them. With slots: if a server is
        there that holds no slot of any allocation. Servers beyond the slots stay.
        """

    def move_servers(self, moves: ServerMoves) -> MoveProgress:
        """Confirm the migrations that are finished, and ask for those that are missing.

        Servers of a host that an administrator has forced down are evacuated instead. Does not
        wait for them: call it again until no server is left, under way or stuck. What was
        asked for before is read from compute. Other stages likewise: a server of a host that is
        forced down counts as stopped. What ``UNLOCK`` returns as under way is done. ``Forbidden``
        unless an administrator.
        """

    def settle_slots(self, moves: SlotMoves) -> MoveProgress:
        """Have the servers beyond the slots of a host go; over when nothing is left to do.

        They are moved one at a time, in the order of the moves, and as ``move_servers`` does. What
        the owner has to do is ``stuck``.
        """

    def fence(self, allocation_id: str) -> None:
        """From now on the hosts of the allocation accept no new server.

        Nothing happens if the allocation is not handed over.
        """

    def take_back(self, handover: Handover, *, force: bool = False) -> None:
        """Delete the aggregate; returns when nothing of the allocation is left (``occupants``).

        The allocation may be handed over in part, or not at all. ``HostsBusy`` if servers
        still run there. With ``force`` an adapter that can asks for their end first.
        """
