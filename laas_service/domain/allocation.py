# SPDX-License-Identifier: Apache-2.0

"""The vocabulary of asking and answering: Request, Allocation, NoFit."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import or_
from typing import NamedTuple

from laas_service.domain.budget import RequestBudget
from laas_service.domain.constraints import Constraints
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, bits

WHOLE = 1_000_000
"""All of a link, in parts per million of its bandwidth."""


@dataclass(frozen=True, slots=True)
class Packing:
    """A wish: share a leaf group with tenants that end at about the same time.

    Then whole leaves become free together. ``closing[g]`` is when the last tenant of
    group g is expected to end, ``until`` when this one is; ``per_host`` is the
    difference in time that one host left free beside it outweighs. Never more than
    a choice among legal places.
    """

    closing: Sequence[float]
    until: float
    per_host: float

    def cost(self, group: int, spare: int) -> float:
        """How little a group suits that would keep ``spare`` free hosts."""
        return abs(self.closing[group] - self.until) + self.per_host * spare


@dataclass(frozen=True, slots=True)
class Request:
    """N hosts for one tenant. ``id`` becomes the id of the allocation.

    ``constraints`` are honoured by ``constrained.propose``, which shows a policy only
    the hosts that meet them; the policy looks after those that are of its shapes.
    ``parent`` and ``container`` as in ``Allocation``; they are nothing to a policy.
    ``bandwidth``, parts per million of each link, matters where links can be shared. What
    searching costs is paid from ``meter``, where there is one.
    """

    id: str
    hosts: int
    packing: Packing | None = field(default=None, compare=False, repr=False)
    constraints: Constraints | None = None
    parent: str | None = None
    container: bool = False
    bandwidth: int | None = None
    meter: RequestBudget | None = field(default=None, compare=False, repr=False)


class GroupShare(NamedTuple):
    """Part of one leaf group: slots of hosts, and uplinks (one field of w2 bits a plane)."""

    group: int
    hosts: int
    uplinks: int


class ColumnShare(NamedTuple):
    """Uplinks of the L2 switch at one column of a grouped pod, a mask of w3 bits."""

    pod: int
    column: int
    uplinks: int


@dataclass(frozen=True, slots=True)
class Shape:
    """N = pods * (leaves * hosts) + (remainder_leaves * hosts + remainder_hosts).

    Jigsaw (HPDC'21) section 3.2, condition (3): T, L_T, n_L, L_T^r, n_L^r. With
    one pod the remainder leaf lies in that pod. ``leaves`` counts leaf groups.
    Policies that promise no shape (baseline, ta) answer None instead.
    """

    pods: int
    leaves: int
    hosts: int
    remainder_leaves: int = 0
    remainder_hosts: int = 0

    @property
    def size(self) -> int:
        full = self.pods * self.leaves * self.hosts
        return full + self.remainder_leaves * self.hosts + self.remainder_hosts

    def __str__(self) -> str:
        text = f"{self.pods}x({self.leaves}x{self.hosts})"
        if self.remainder_leaves or self.remainder_hosts:
            text += f"+({self.remainder_leaves}x{self.hosts}+{self.remainder_hosts})"
        return text


@dataclass(frozen=True, slots=True)
class Allocation:
    """Hosts and links with one owner, kept as masks; names appear only at the edges.

    ``requested`` is what was asked; the hosts may be more where a policy rounds
    up (laas across pods). Groups and columns ascend; no share is empty. ``bandwidth`` is
    how much of each link it holds, parts per million; less than all only in ledgers
    that share links out (``shares``).

    A ``container`` is a virtual tenant: what it holds is for further allocations, whose
    ``parent`` is its id. They lie within it and are to each other what allocations on a
    fabric are; each may be a container again (LaaS, ANCS'16, section 5).
    """

    id: str
    requested: int
    policy: str
    groups: tuple[GroupShare, ...]
    columns: tuple[ColumnShare, ...] = ()
    shape: Shape | None = None
    parent: str | None = None
    container: bool = False
    bandwidth: int = WHOLE

    @property
    def size(self) -> int:
        """Hosts held."""
        return sum(share.hosts.bit_count() for share in self.groups)

    def hosts(self, topology: Topology) -> tuple[int, ...]:
        """Host numbers, ascending."""
        found = (topology.host_at(g, slot) for g, mask, _ in self.groups for slot in bits(mask))
        return tuple(sorted(host for host in found if host is not None))

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
        yield from self.leaf_links(topology)
        yield from self.spine_links(topology)

    def over(self, container: Allocation) -> Allocation:
        """The same hosts over a container's links: how a child without links is routed."""
        hosts = {share.group: share.hosts for share in self.groups}
        links = {share.group: share.uplinks for share in container.groups}
        shares = (
            GroupShare(group, hosts.get(group, 0), links.get(group, 0))
            for group in sorted(hosts.keys() | links.keys())
        )
        return replace(self, groups=tuple(shares), columns=container.columns)

    def joined(self, other: Allocation) -> Allocation:
        """Both holdings in one: what an owner holds while it changes its place."""
        return self._combined(other, or_)

    def beyond(self, other: Allocation) -> Allocation:
        """What this holds and ``other`` does not."""
        return self._combined(other, lambda a, b: a & ~b)

    def _combined(self, other: Allocation, masks: Callable[[int, int], int]) -> Allocation:
        groups: dict[int, list[GroupShare]] = {}
        columns: dict[tuple[int, int], list[int]] = {}
        for side, allocation in enumerate((self, other)):
            for share in allocation.groups:
                nothing = GroupShare(share.group, 0, 0)
                groups.setdefault(share.group, [nothing, nothing])[side] = share
            for pod, column, uplinks in allocation.columns:
                columns.setdefault((pod, column), [0, 0])[side] = uplinks
        shares = (
            GroupShare(group, masks(a.hosts, b.hosts), masks(a.uplinks, b.uplinks))
            for group, (a, b) in sorted(groups.items())
        )
        spines = (ColumnShare(*at, masks(a, b)) for at, (a, b) in sorted(columns.items()))
        return replace(
            self,
            groups=tuple(share for share in shares if share.hosts or share.uplinks),
            columns=tuple(share for share in spines if share.uplinks),
            shape=self.shape if self.shape == other.shape else None,
        )


class Refusal(enum.Enum):
    """Which limit was hit; the value is the stable code that callers see."""

    TOO_FEW_HOSTS = "too_few_hosts"
    NO_LEGAL_SHAPE = "no_legal_shape"
    FAULT = "fault"
    CONSTRAINT = "constraint"
    QUOTA = "quota"
    OTHERS_WAIT = "others_wait"
    BUDGET = "search_budget"


@dataclass(frozen=True, slots=True)
class Room:
    """A way to make room: allocations to release, or hosts whose drain to undo.

    Ids and host numbers ascend. ``hosts`` is how many hosts the releases take from tenants.
    """

    releases: tuple[str, ...] = ()
    undrain: tuple[int, ...] = ()
    hosts: int = 0


@dataclass(frozen=True, slots=True)
class NoFit:
    """A refusal: the limit that was hit, a sentence, and the largest size that would fit now.

    ``largest_fit`` is None until somebody asks for it (``allocator.explain``),
    because finding it costs a few more searches; policies to which it costs
    nothing say it at once. So it is with ``fits_when_empty``, whether it would fit were
    all others gone and no host drained, and with ``room``, the cheapest way found to
    make it fit (``room.make_room``). With ``cut_off`` the searches for these stopped at the
    budget of the request: more may fit, and less may have to go.
    """

    reason: Refusal
    detail: str
    largest_fit: int | None = None
    fits_when_empty: bool | None = None
    room: Room | None = None
    cut_off: bool = False
