# SPDX-License-Identifier: Apache-2.0

"""Requests and their answers: ``Request``, ``Allocation``, ``NoFit``; and shapes."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import or_
from typing import Any, NamedTuple, overload

from laas_service.domain.budget import RequestBudget
from laas_service.domain.constraints import Constraints
from laas_service.domain.errors import InvalidInput
from laas_service.domain.lanes import apart
from laas_service.domain.tenancy import Kind, kind_of
from laas_service.domain.tenancy.slots import LEAST_RISK as LEAST_RISK
from laas_service.domain.tenancy.slots import MOST_RISK as MOST_RISK
from laas_service.domain.tenancy.slots import MOST_SLOTS as MOST_SLOTS
from laas_service.domain.tenancy.slots import Amounts as Amounts
from laas_service.domain.tenancy.slots import HeldSlots as HeldSlots
from laas_service.domain.tenancy.slots import Promise as Promise
from laas_service.domain.tenancy.slots import Sharing as Sharing
from laas_service.domain.tenancy.slots import SlotDemand as SlotDemand
from laas_service.domain.tenancy.slots import listed_amounts as listed_amounts
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, bits
from laas_service.domain.values import value

WHOLE = 1_000_000
"""The whole bandwidth of a link, in parts per million."""

HOSTS_ONLY = frozenset({"baseline", "ta"})
"""The policies whose allocations hold hosts and no links, by name."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Prefer leaf groups whose tenants end at about the same time as this one.

    Whole leaves then become free together. The preference only chooses among legal
    placements in one leaf group. The caller chooses the unit and the origin of all times.
    """

    closing: Sequence[float]
    """By leaf group, when its last tenant is expected to end."""
    until: float
    """When the requested allocation is expected to end."""
    per_host: float
    """The difference in time that weighs as much as one host left free in the group."""

    def cost(self, group: int, spare: int) -> float:
        """The cost of a group that would keep ``spare`` free hosts; lower is better."""
        return abs(self.closing[group] - self.until) + self.per_host * spare


class Grain(NamedTuple):
    """Domains of which each gives ``hosts`` hosts on each of ``leaves`` leaf groups of one pod.

    A placement on whole numbers of them has exactly the hosts asked for, a multiple of ``hosts``
    on each leaf group, and with several leaf groups a domain neither a remainder leaf nor leaves
    of a pod that are no multiple.
    """

    hosts: int
    leaves: int

    def allows(self, shape: Shape, size: int, one_pod: bool) -> bool:
        """Whether placements of a shape for ``size`` hosts may be made of such domains."""
        if shape.size != size or shape.hosts % self.hosts or shape.remainder_hosts % self.hosts:
            return False
        if self.leaves == 1:
            return True
        return not (
            shape.remainder_hosts
            or shape.leaves % self.leaves
            or shape.remainder_leaves % self.leaves
        )


class Reach(NamedTuple):
    """Hosts of at least ``least`` domains: what that means for a shape."""

    least: int
    in_leaf: int
    """The most domains of which a leaf group has free hosts."""
    in_pod: int
    """The same of a pod."""

    def allows(self, shape: Shape, size: int, one_pod: bool) -> bool:
        """Whether placements of a shape may have hosts of so many domains."""
        in_leaf, in_pod = self.in_leaf, self.in_pod
        full = shape.leaves * min(in_leaf, shape.hosts)
        rest = shape.remainder_leaves * min(in_leaf, shape.hosts)
        rest += min(in_leaf, shape.remainder_hosts)
        if one_pod:
            return min(in_pod, full + rest) >= self.least
        return shape.pods * min(in_pod, full) + min(in_pod, rest) >= self.least


@value
class Request:
    """A request for hosts for one tenant."""

    id: str
    """Becomes the id of the allocation."""
    hosts: int
    """The number of hosts, at least 1."""
    packing: Packing | None = field(default=None, compare=False, repr=False)
    constraints: Constraints | None = None
    """``constrained.propose`` shows a policy only the hosts that meet them. The policy itself
    meets those that concern shapes (``Constraints.of_shape``)."""
    parent: str | None = None
    """As in ``Allocation``; policies ignore it."""
    container: bool = False
    """As in ``Allocation``; policies ignore it."""
    sharing: Sharing | None = None
    """As in ``Allocation``; policies ignore it."""
    slots: SlotDemand | None = None
    """What is asked for in place of hosts by class ``shared``; ``hosts`` is 1 then."""
    bandwidth: int | None = None
    """Parts per million of each link; only used in fabrics whose links are shared."""
    grain: Grain | Reach | None = None
    """Only placements in shapes that it allows are wanted."""
    budget: RequestBudget | None = field(default=None, compare=False, repr=False)
    """Searches for this request pay their work from it as well, if there is one."""

    @property
    def kind(self) -> Kind:
        """The kind of the allocation that is asked for."""
        return kind_of(self.container, self.sharing, self.slots)

    @property
    def demand(self) -> SlotDemand:
        """What a request of kind ``Slots`` asks for."""
        assert self.slots is not None, f"request {self.id!r} is for hosts"
        return self.slots


class GroupShare(NamedTuple):
    """Part of one leaf group: masks of its slots (``hosts``) and uplinks (w2 bits a plane)."""

    group: int
    hosts: int
    uplinks: int


def group_shares(shares: Iterable[tuple[int, int, int]]) -> list[GroupShare]:
    """The shares with these fields, each made in half the time of ``GroupShare``."""
    new = tuple.__new__
    return [new(GroupShare, share) for share in shares]


class ColumnShare(NamedTuple):
    """A mask of w3 bits: spine uplinks of the L2 switch at one column of a grouped pod."""

    pod: int
    column: int
    uplinks: int


class PodLanes(NamedTuple):
    """The masks of all columns of a grouped pod side by side, as ``lanes``; not 0."""

    pod: int
    lanes: int


class PackedColumns(Sequence[ColumnShare]):
    """Column shares, kept as one integer a pod until somebody reads them one by one.

    Equal to the tuple of the same shares.
    """

    __slots__ = ("lane", "pods")

    def __init__(self, pods: tuple[PodLanes, ...], lane: int) -> None:
        self.pods = pods
        """Ascending by pod."""
        self.lane = lane
        """The width of a lane: ``Topology.lane``."""

    def _shares(self) -> tuple[ColumnShare, ...]:
        return tuple(
            ColumnShare(pod, column, uplinks)
            for pod, lanes in self.pods
            for column, uplinks in enumerate(
                apart(lanes, -(-lanes.bit_length() // self.lane), self.lane)
            )
            if uplinks
        )

    def __iter__(self) -> Iterator[ColumnShare]:
        return iter(self._shares())

    def __len__(self) -> int:
        return len(self._shares())

    def __bool__(self) -> bool:
        return bool(self.pods)

    @overload
    def __getitem__(self, index: int) -> ColumnShare: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ColumnShare, ...]: ...

    def __getitem__(self, index: int | slice) -> ColumnShare | tuple[ColumnShare, ...]:
        return self._shares()[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedColumns) and other.lane == self.lane:
            return self.pods == other.pods
        return self._shares() == (tuple(other) if isinstance(other, PackedColumns) else other)

    def __hash__(self) -> int:
        return hash(self._shares())

    def __repr__(self) -> str:
        return repr(self._shares())


@dataclass(frozen=True, slots=True)
class Shape:
    """N = pods * (leaves * hosts) + (remainder_leaves * hosts + remainder_hosts).

    Jigsaw (HPDC'21), section 3.2, condition (3): T, L_T, n_L, L_T^r, n_L^r. ``leaves``
    counts leaf groups. In a shape of one pod the remainder leaf lies in that pod. Allocations
    of policies that promise no shape (baseline, ta) have none.
    """

    pods: int
    leaves: int
    hosts: int
    remainder_leaves: int = 0
    remainder_hosts: int = 0

    @property
    def size(self) -> int:
        """Hosts in all."""
        full = self.pods * self.leaves * self.hosts
        return full + self.remainder_leaves * self.hosts + self.remainder_hosts

    @property
    def extended(self) -> bool:
        """Whether its remainder pod is no smaller than its full pod (``Jigsaw.two_pods``)."""
        return self.remainder_leaves >= self.leaves

    def __str__(self) -> str:
        text = f"{self.pods}x({self.leaves}x{self.hosts})"
        if self.remainder_leaves or self.remainder_hosts:
            text += f"+({self.remainder_leaves}x{self.hosts}+{self.remainder_hosts})"
        return text


@value
class Allocation:
    """The hosts and links of one owner, as masks. Names of hosts and switches are elsewhere.

    A ``container`` is a virtual tenant: its hosts and links serve further allocations, whose
    ``parent`` is its id. These lie within the container and have no host or link in common.
    Each of them may be a container again (LaaS, ANCS'16, section 5).
    """

    id: str
    requested: int
    """The number of hosts asked for; a policy may round up (laas across pods)."""
    policy: str
    groups: tuple[GroupShare, ...]
    """Ascending by group; no share is empty."""
    columns: Sequence[ColumnShare] = ()
    """A tuple or ``PackedColumns``. Ascending by pod and column; no share is empty."""
    shape: Shape | None = None
    parent: str | None = None
    """The id of the container that this allocation lies within."""
    container: bool = False
    bandwidth: int = WHOLE
    """Parts per million of each link held; below ``WHOLE`` only if links are shared."""
    sharing: Sharing | None = None
    """How its hosts are shared by further allocations, whose ``parent`` is its id; None: not."""
    slots: HeldSlots | None = None
    """The slots and promises that it has in its parent, which shares its hosts. It holds no host
    and no link for itself then."""
    alone: tuple[GroupShare, ...] = ()
    """Further hosts of its domains, without uplinks, that nobody else gets while it exists.
    Ascending by group; failed hosts are among them."""

    @property
    def kind(self) -> Kind:
        """What kind of tenancy it is; callers ask it, and not the fields."""
        demand = None if self.slots is None else self.slots.demand
        return kind_of(self.container, self.sharing, demand)

    @property
    def held_slots(self) -> HeldSlots:
        """The slots of an allocation of kind ``Slots``."""
        assert self.slots is not None, f"allocation {self.id!r} has hosts"
        return self.slots

    @property
    def terms(self) -> Sharing:
        """How an allocation of kind ``SharedHosts`` shares its hosts."""
        assert self.sharing is not None, f"allocation {self.id!r} shares no hosts"
        return self.sharing

    @property
    def unit_moves(self) -> tuple[tuple[int, int, int], ...]:
        """Moves of virtual machines that lead to its slots; () without any, and of whole hosts."""
        return () if self.slots is None else self.slots.moves

    @property
    def isolated(self) -> bool:
        """Whether its hosts may use no links but its own, which follows from its policy."""
        return self.policy not in HOSTS_ONLY

    @property
    def size(self) -> int:
        """Hosts held."""
        return sum([hosts.bit_count() for _, hosts, _ in self.groups])

    def hosts(self, topology: Topology) -> tuple[int, ...]:
        """Host numbers, ascending."""
        hosts = (
            topology.host_at(g, position) for g, mask, _ in self.groups for position in bits(mask)
        )
        return tuple(sorted(host for host in hosts if host is not None))

    def places(self, topology: Topology) -> tuple[int, ...]:
        """Numbers of the hosts that it holds, or on which it has slots, ascending."""
        return self.hosts(topology) if self.slots is None else tuple(self.slots.counts)

    def spines_by_pod(self, topology: Topology) -> Sequence[PodLanes]:
        """The spine uplinks held, as one integer for each pod that has some.

        Raises:
            InvalidInput: a mask of ``columns`` has more bits than a lane.
        """
        columns = self.columns
        if not columns:
            return ()
        lane = topology.lane
        if isinstance(columns, PackedColumns) and columns.lane == lane:
            return columns.pods
        pods: dict[int, int] = {}
        for pod, column, uplinks in columns:
            if uplinks >> lane:
                raise InvalidInput("columns", hex(uplinks), f"a mask has {topology.tree.w[2]} bits")
            pods[pod] = pods.get(pod, 0) | uplinks << column * lane
        return list(map(PodLanes._make, pods.items()))

    def leaf_links(self, topology: Topology) -> Iterator[LeafLink]:
        """Every leaf link held, on every rail."""
        tree = topology.tree
        field = (1 << tree.w[1]) - 1
        for group, _, uplinks in self.groups:
            if not uplinks:
                continue
            for rail, leaf in enumerate(topology.leaves_of_group(group)):
                pod, local = divmod(leaf, tree.m[1])
                mask = uplinks >> topology.plane_of_rail[rail] * tree.w[1] & field
                for up in bits(mask):
                    yield LeafLink(pod, local, up)

    def spine_links(self, topology: Topology) -> Iterator[SpineLink]:
        """Every spine link held, in every plane."""
        for pod, column, uplinks in self.columns:
            physical_pod, l2 = topology.l2_of_column(pod, column)
            for up in bits(uplinks):
                yield SpineLink(physical_pod, l2, up)

    def links(self, topology: Topology) -> Iterator[Link]:
        """Every link held: leaf links, then spine links."""
        yield from self.leaf_links(topology)
        yield from self.spine_links(topology)

    def over(self, container: Allocation) -> Allocation:
        """These hosts with a container's links, over which a child without links is routed."""
        hosts = {share.group: share.hosts for share in self.groups}
        links = {share.group: share.uplinks for share in container.groups}
        shares = (
            GroupShare(group, hosts.get(group, 0), links.get(group, 0))
            for group in sorted(hosts.keys() | links.keys())
        )
        return replace(self, groups=tuple(shares), columns=container.columns)

    def joined(self, other: Allocation) -> Allocation:
        """The hosts and links of both; an owner holds both while its placement changes."""
        joined = self._combined(other, or_)
        if self.kind.whole_hosts or other.kind.whole_hosts:
            return joined
        return replace(joined, slots=self.held_slots.joined(other.held_slots))

    def beyond(self, other: Allocation) -> Allocation:
        """The hosts and links of this allocation that ``other`` does not hold."""
        return replace(self._combined(other, lambda a, b: a & ~b), slots=None)

    def _combined(self, other: Allocation, masks: Callable[[int, int], int]) -> Allocation:
        mine, others = (
            {group: (hosts, ups) for group, hosts, ups in side.groups} for side in (self, other)
        )
        shares = (
            GroupShare(group, *map(masks, mine.get(group, (0, 0)), others.get(group, (0, 0))))
            for group in sorted(mine.keys() | others.keys())
        )
        spines, more = ({s[:2]: s.uplinks for s in side.columns} for side in (self, other))
        columns = (
            ColumnShare(*at, masks(spines.get(at, 0), more.get(at, 0)))
            for at in sorted(spines.keys() | more.keys())
        )
        kept, further = ({g: hosts for g, hosts, _ in side.alone} for side in (self, other))
        alone = (
            GroupShare(group, masks(kept.get(group, 0), further.get(group, 0)), 0)
            for group in sorted(kept.keys() | further.keys())
        )
        return replace(
            self,
            alone=tuple(share for share in alone if share.hosts),
            groups=tuple(share for share in shares if share.hosts or share.uplinks),
            columns=tuple(share for share in columns if share.uplinks),
            shape=self.shape if self.shape == other.shape else None,
        )


class Ground(enum.Enum):
    """Where the limit lies that a refusal hit."""

    FABRIC = "fabric"
    """No place was found: hosts, links or slots are lacking. This is proven."""
    SEARCH = "search"
    """The search stopped before it knew: a place may exist."""
    QUEUE = "queue"
    """There is a place, and queued requests have precedence."""
    PROJECT = "project"
    """The project may have no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalFacts:
    """What the service knows of a reason to refuse; nothing else tells reasons apart."""

    code: str
    """The stable code that callers see."""
    words: str
    """What the code means, as in the users' guide."""
    ground: Ground
    room_helps: bool
    """Whether the service looks for releases and drained hosts that would make room."""
    names_withheld: bool
    """Whether hosts that are withheld can cause it; the refusal names them then."""
    by_count: bool = False
    """Whether too few hosts are free wherever they are: moves of tenants do not help."""


class Refusal(enum.Enum):
    """The reason of a refusal; the value is the stable code that callers see."""

    _value_: str
    facts: RefusalFacts

    def __new__(cls, facts: Any) -> Refusal:
        made = object.__new__(cls)
        made._value_ = facts.code
        made.facts = facts
        return made

    TOO_FEW_HOSTS = RefusalFacts(
        code="too_few_hosts",
        words="not enough hosts are free",
        ground=Ground.FABRIC,
        room_helps=True,
        names_withheld=True,
        by_count=True,
    )
    NO_LEGAL_SHAPE = RefusalFacts(
        code="no_legal_shape",
        words="enough hosts are free, but not in a legal shape",
        ground=Ground.FABRIC,
        room_helps=True,
        names_withheld=True,
    )
    FAULT = RefusalFacts(
        code="fault",
        words="the request would fit if some hosts or links were not failed or drained",
        ground=Ground.FABRIC,
        room_helps=True,
        names_withheld=True,
    )
    CONSTRAINT = RefusalFacts(
        code="constraint",
        words="the request would fit without its constraints",
        ground=Ground.FABRIC,
        room_helps=True,
        names_withheld=True,
    )
    DISTURBS = RefusalFacts(
        code="disturbs",
        words="packets of others would have to cross links of an allocation that forbids it",
        ground=Ground.SEARCH,
        room_helps=True,
        names_withheld=True,
    )
    QUOTA = RefusalFacts(
        code="quota",
        words="the project may not run that many servers",
        ground=Ground.PROJECT,
        room_helps=False,
        names_withheld=False,
    )
    OTHERS_WAIT = RefusalFacts(
        code="others_wait",
        words="queued requests have precedence",
        ground=Ground.QUEUE,
        room_helps=False,
        names_withheld=True,
    )
    BUDGET = RefusalFacts(
        code="search_budget",
        words="the search reached its budget",
        ground=Ground.SEARCH,
        room_helps=True,
        names_withheld=True,
    )
    TOO_FEW_SLOTS = RefusalFacts(
        code="too_few_slots",
        words="not enough slots of the shared hosts are free",
        ground=Ground.FABRIC,
        room_helps=False,
        names_withheld=True,
    )
    BANDWIDTH = RefusalFacts(
        code="bandwidth",
        words="slots are free, but a link has not enough bandwidth for them",
        ground=Ground.FABRIC,
        room_helps=False,
        names_withheld=True,
    )

    @property
    def unproven(self) -> bool:
        """Whether a place may exist, because the search stopped before it knew."""
        return self.facts.ground is Ground.SEARCH


@dataclass(frozen=True, slots=True)
class Room:
    """A way to make room for a request: release allocations, or stop draining hosts."""

    releases: tuple[str, ...] = ()
    """Ids of allocations to release, ascending."""
    undrain: tuple[int, ...] = ()
    """Numbers of drained hosts to use again, ascending."""
    hosts: int = 0
    """The number of hosts that the releases take from tenants."""


@dataclass(frozen=True, slots=True)
class ByMoving:
    """A way to give an allocation the size that was refused in place."""

    moves: tuple[int, ...]
    """Numbers of its own hosts that it would leave for others, ascending."""
    new_hosts: int
    """How many hosts it would newly get."""


@value
class NoFit:
    """A refusal: its reason, a sentence, and what would fit instead.

    The fields after the sentence take further searches, which ``admit.explain`` and ``make_room``
    make on demand. They are None until then, unless a policy knows one of them anyway.
    """

    reason: Refusal
    detail: str
    largest_fit: int | None = None
    """The largest number of hosts (of class ``shared``: slots) that fits now."""
    fits_when_empty: bool | None = None
    """Whether the request fits without all other allocations and with no host drained."""
    room: Room | None = None
    """The cheapest way found to make the request fit."""
    cut_off: bool = False
    """Whether the searches for these stopped at the request's budget. Then a larger size may
    fit, and a cheaper way to make room may exist."""
    by_moving: ByMoving | None = None
    """How a new size would fit if hosts of the allocation moved; None if no way was found."""
