# SPDX-License-Identifier: Apache-2.0

"""All choices of hosts for a legal shape, whether or not there are links for them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice, product

from laas_service.domain.allocation import Allocation, Shape
from laas_service.domain.grouping import grouped
from laas_service.domain.ledger import LedgerView
from laas_service.domain.moves.host_roles import HostRoles, HostSupply, Roles
from laas_service.domain.moves.legal_shapes import GroupLevel, LegalShape

MOST_IN_A_POD = 1024
"""Choices of leaf groups in one pod that are looked at."""


class HostChoices(HostRoles):
    """Gives a shape's roles to leaf groups in every way; of equal leaf groups only the first."""

    def __init__(self, view: LedgerView, tenant: Allocation, supply: HostSupply) -> None:
        super().__init__(view, tenant, supply)
        self._known: dict[tuple[int, int, int, int], Sequence[Roles]] = {}

    def of_shape(self, legal: LegalShape) -> Iterator[Roles]:
        """The choices; leaf groups that cost little come first."""
        shape = legal.shape
        if legal.level is GroupLevel.LEAF:
            for group in self.candidates(range(len(self.most)), shape.hosts):
                yield ((group, shape.hosts),)
        elif legal.level is GroupLevel.POD:
            for pod in range(self.topology.pods):
                yield from self._in_pod(pod, shape.leaves, shape.hosts, shape.remainder_hosts)
        else:
            yield from self._in_several_pods(shape)

    def _in_pod(self, pod: int, leaves: int, hosts: int, rest: int) -> Sequence[Roles]:
        """So many full leaves, and a remainder leaf if there is a rest."""
        asked = pod, leaves, hosts, rest
        if asked not in self._known:
            self._known[asked] = list(islice(self._choices_in_pod(*asked), MOST_IN_A_POD))
        return self._known[asked]

    def _choices_in_pod(self, pod: int, leaves: int, hosts: int, rest: int) -> Iterator[Roles]:
        groups = range(pod * self.width, (pod + 1) * self.width)
        full = self.candidates(groups, hosts)
        smaller: Iterable[int | None] = (None,)
        if rest:
            smaller = [alike[0] for alike in self._by_kind(self.candidates(groups, rest))]
        for leaf in smaller:
            kinds = self._by_kind(group for group in full if group != leaf)
            for chosen in _some_of_each(kinds, leaves):
                roles = tuple((group, hosts) for group in chosen)
                yield roles if leaf is None else (*roles, (leaf, rest))

    def _by_kind(self, groups: Iterable[int]) -> Sequence[Sequence[int]]:
        """Leaf groups of a pod; those of one kind are interchangeable."""
        uplinks = self.view.free_uplinks
        kinds = grouped(
            ((self.at_no_cost[group], self.most[group], uplinks[group]), group) for group in groups
        )
        return tuple(kinds.values())

    def _in_several_pods(self, shape: Shape) -> Iterator[Roles]:
        rest, pods = shape.remainder_hosts, range(self.topology.pods)
        alike = [self._in_pod(pod, shape.leaves, shape.hosts, 0) for pod in pods]
        smaller: list[Sequence[Roles]] = []
        if shape.remainder_leaves or rest:
            smaller = [self._in_pod(pod, shape.remainder_leaves, shape.hosts, rest) for pod in pods]
        for full in combinations([pod for pod in pods if alike[pod]], shape.pods):
            for chosen in product(*(alike[pod] for pod in full)):
                roles = tuple(role for part in chosen for role in part)
                if not smaller:
                    yield roles
                    continue
                for pod in pods:
                    if pod not in full:
                        yield from ((*roles, *part) for part in smaller[pod])


def _some_of_each(kinds: Sequence[Sequence[int]], count: int) -> Iterator[tuple[int, ...]]:
    """``count`` leaf groups in every way: the first ones of each kind, more of the first kinds."""
    if sum(map(len, kinds)) < count:
        return
    if not count:
        yield ()
        return
    for taken in range(min(count, len(kinds[0])), -1, -1):
        for others in _some_of_each(kinds[1:], count - taken):
            yield (*kinds[0][:taken], *others)
