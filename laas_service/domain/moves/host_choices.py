# SPDX-License-Identifier: Apache-2.0

"""All choices of hosts for a legal shape, whether or not there are links for them."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from laas_service.domain.allocation import Shape
from laas_service.domain.moves.host_roles import HostRoles, Roles
from laas_service.domain.moves.legal_shapes import LegalShape, Level


class HostChoices(HostRoles):
    """Gives a shape's roles to leaf groups in every way; of equal leaf groups only the first."""

    def of_shape(self, legal: LegalShape) -> Iterator[Roles]:
        """The choices; leaf groups that cost little come first."""
        shape = legal.shape
        if legal.level is Level.LEAF:
            for group in self.candidates(range(len(self.most)), shape.hosts):
                yield ((group, shape.hosts),)
        elif legal.level is Level.POD:
            for pod in range(self.topology.pods):
                yield from self._in_pod(pod, shape.leaves, shape.hosts, shape.remainder_hosts)
        else:
            yield from self._in_several_pods(shape)

    def _groups(self, pod: int) -> range:
        return range(pod * self.width, (pod + 1) * self.width)

    def _kind(self, group: int) -> tuple[int, int, int]:
        """Leaf groups of a pod of one kind are interchangeable."""
        return self.at_no_cost[group], self.most[group], self.view.free_uplinks[group]

    def _in_pod(self, pod: int, leaves: int, hosts: int, rest: int) -> Iterator[Roles]:
        """So many full leaves, and a remainder leaf if there is a rest."""
        full = self.candidates(self._groups(pod), hosts)
        smaller: Sequence[int | None] = (None,)
        if rest:
            smaller = self.candidates(self._groups(pod), rest)
        seen = set[object]()
        for leaf in smaller:
            among = [group for group in full if group != leaf]
            for groups in combinations(among, leaves):
                kinds = tuple(sorted(map(self._kind, groups)))
                key = kinds, None if leaf is None else self._kind(leaf)
                if key not in seen:
                    seen.add(key)
                    roles = tuple((group, hosts) for group in groups)
                    yield roles if leaf is None else (*roles, (leaf, rest))

    def _in_several_pods(self, shape: Shape) -> Iterator[Roles]:
        rest, pods = shape.remainder_hosts, range(self.topology.pods)
        has_remainder = shape.remainder_leaves > 0 or rest > 0
        for full in combinations(pods, shape.pods):
            parts = [self._in_pod(pod, shape.leaves, shape.hosts, 0) for pod in full]
            for chosen in product(*parts):
                roles = tuple(role for part in chosen for role in part)
                if not has_remainder:
                    yield roles
                    continue
                for pod in pods:
                    if pod not in full:
                        last = self._in_pod(pod, shape.remainder_leaves, shape.hosts, rest)
                        for part in last:
                            yield (*roles, *part)
