# SPDX-License-Identifier: Apache-2.0

"""Whole domains that are all alike: racks of equally many hosts, each on one leaf group.

This is the usual case, and the answer of ``by_domain``: the policy is asked for a placement on the
hosts of domains that are free as a whole, in shapes that are made of domains. Here the ledger with
those hosts alone is kept from one request to the next, and only leaf groups that changed are
looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from laas_service.domain.allocation import Allocation, Grain, GroupShare, NoFit, Request
from laas_service.domain.constraints import Constraints
from laas_service.domain.features import Features
from laas_service.domain.ledger import Ledger, LedgerView, Masks
from laas_service.domain.policies.base import Policy
from laas_service.domain.search.carried_uplinks import CarriedUplinks
from laas_service.domain.search.pod_view import NeedsOfLeaves
from laas_service.domain.topology import Topology

OF_TOPOLOGY = (CarriedUplinks, NeedsOfLeaves)
"""What readers keep that holds whatever is free."""

BY_MASKS = frozenset({"jigsaw", "laas", "lc", "simple"})
"""The policies that read of a ledger what is free, and nothing else."""


class Alike(NamedTuple):
    """The domains of a kind, if they are alike."""

    size: int
    """Hosts of each."""
    masks: Mapping[int, tuple[int, ...]]
    """By leaf group the positions of each domain, in the order of their names."""

    @classmethod
    def of(cls, features: Features, topology: Topology, kind: str) -> Alike | None:
        """None if a domain has hosts of several leaf groups, or sizes differ."""
        domains = features.domains(topology, kind)
        if len({d.size for d in domains}) != 1 or any(len(d.cells) != 1 for d in domains):
            return None
        masks: dict[int, list[int]] = {}
        for domain in domains:
            group, mask = domain.cells[0]
            masks.setdefault(group, []).append(mask)
        return cls(domains[0].size, {group: tuple(of) for group, of in masks.items()})


@dataclass(slots=True)
class _Seen:
    """The hosts of whole domains of one kind, as they were when they were last asked for."""

    features: Features
    alike: Alike | None
    view: Ledger
    """Only the hosts of domains all of which are free."""
    free_hosts: list[int]
    """What was free in the fabric."""
    count: int = 0
    """How many domains are whole."""


@dataclass(slots=True)
class WholeDomainsSeen:
    """By kind of domains, what was seen of them last; kept with a ledger.

    Ledgers of one fabric may share the object: every use compares it with what is free. One thread
    at a time has an entry, as it takes it out; another makes one of its own meanwhile.
    """

    by_kind: dict[str, _Seen] = field(default_factory=dict, compare=False)

    def copy(self) -> WholeDomainsSeen:
        return self

    def __reduce__(self) -> tuple[type[WholeDomainsSeen], tuple[()]]:
        return WholeDomainsSeen, ()

    def now(self, fabric: LedgerView, kind: str) -> _Seen:
        """Take out what is known of a kind, up to date; ``by_kind`` gets it back after use."""
        seen = self.by_kind.pop(kind, None)
        if seen is None or seen.features is not fabric.features:
            alike = Alike.of(fabric.features, fabric.topology, kind)
            nothing = replace(Masks.whole(fabric.topology), hosts=(0,) * fabric.topology.groups)
            seen = _Seen(fabric.features, alike, fabric.within(nothing), [0] * len(nothing.hosts))
        if seen.alike is not None:
            _refresh(seen, seen.alike, fabric)
        return seen


def _refresh(seen: _Seen, alike: Alike, fabric: LedgerView) -> None:
    view, before, now = seen.view, seen.free_hosts, fabric.free_hosts
    if before != now:
        for group, masks in alike.masks.items():
            if before[group] == (free := now[group]):
                continue
            whole = 0
            for mask in masks:
                if mask & free == mask:
                    whole |= mask
            was = view.free_hosts[group]
            if was != whole:
                seen.count += (whole.bit_count() - was.bit_count()) // alike.size
                view.set_free_hosts(group, whole)
        seen.free_hosts = list(now)
    view.free_uplinks[:] = fabric.free_uplinks
    view.free_lanes[:] = fabric.free_lanes
    view.odd_groups[:] = fabric.odd_groups
    caches = view.reader_caches
    for kind in [kind for kind in caches if kind not in OF_TOPOLOGY]:
        del caches[kind]


class Found(NamedTuple):
    """The answer to a request for whole domains that are alike."""

    answer: Allocation | None
    possible: int
    """How many domains are whole."""
    unproven: bool
    """Whether a placement may exist, because the search stopped before it knew."""


def on_alike_domains(policy: Policy, fabric: LedgerView, request: Request) -> Found | None:
    """The policy's answer to a request for whole domains and nothing else.

    None if the request asks for more, or if domains are not alike: then others have to answer.
    """
    constraints = request.constraints
    assert constraints is not None, "there is nothing to meet"
    kind, count = constraints.kind, constraints.domains
    if kind is None or count is None or policy.name not in BY_MASKS:
        return None
    if constraints != Constraints(domains=count, kind=kind):
        return None
    cache = fabric.reader_cache(WholeDomainsSeen)
    seen = cache.now(fabric, kind)
    try:
        return _asked(policy, seen, request, count)
    finally:
        cache.by_kind[kind] = seen


def _asked(policy: Policy, seen: _Seen, request: Request, count: int) -> Found | None:
    alike = seen.alike
    if alike is None or alike.size * count != request.hosts:
        return None
    if seen.count < count:
        return Found(None, seen.count, unproven=False)
    asked = replace(request, constraints=None, grain=Grain(alike.size, 1))
    answer = policy.propose(seen.view, asked)
    if isinstance(answer, NoFit):
        return Found(None, seen.count, unproven=answer.reason.unproven)
    groups = []
    for group, hosts, uplinks in answer.groups:
        chosen, left = 0, hosts.bit_count() // alike.size
        for mask in alike.masks[group]:
            if left and mask & seen.view.free_hosts[group]:
                chosen |= mask
                left -= 1
        groups.append(GroupShare(group, chosen, uplinks))
    return Found(replace(answer, groups=tuple(groups)), seen.count, unproven=False)
