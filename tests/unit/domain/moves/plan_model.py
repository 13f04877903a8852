# SPDX-License-Identifier: Apache-2.0

"""The least cost of moves that make room, by CP-SAT, on trees that are too large to try all plans.

A model of the conditions of the papers (Jigsaw, section 3.2 and section 4; LaaS, Theorem 2 and
section 3) for fabrics with one plane and one cable between two switches. It shares no code with
the planner. At most two tenants move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from ortools.sat.python import cp_model

from laas_service.domain.ledger import Ledger
from tests.unit.domain.moves.naive import Free, Leaf, Naive, divided_up


@dataclass(frozen=True)
class Form:
    """Numbers of hosts: ``pods`` alike with ``leaves`` of ``hosts``, and what remains."""

    pods: int
    leaves: int
    hosts: int
    more_leaves: int = 0
    """Full leaves of the smaller pod."""
    more_hosts: int = 0
    """Hosts of the leaf that is not full; in the only pod if there is one."""

    one_pod: bool = True

    @property
    def smaller_pod(self) -> bool:
        """Whether what remains is in a pod of its own."""
        return not self.one_pod and bool(self.more_leaves or self.more_hosts)

    @property
    def linked(self) -> bool:
        """Whether it has more than one leaf."""
        return self.leaves > 1 or self.pods > 1 or bool(self.more_leaves or self.more_hosts)


def forms(policy: str, n: int, naive: Naive) -> Iterator[Form]:
    """The legal numbers of hosts for ``n``."""
    for full in range(1, naive.m1 + 1):
        leaves, rest = divmod(n, full)
        if leaves >= 1 and leaves + bool(rest) <= naive.m2:
            yield Form(1, leaves, full, 0, rest)
    size = divided_up(n, naive.m1) * naive.m1 if policy == "laas" else n
    for full in [naive.m1] if policy in ("laas", "jigsaw") else range(1, naive.m1 + 1):
        for leaves in range(1, naive.m2 + 1):
            pods, rest = divmod(size, full * leaves)
            more = (rest // full, rest % full)
            if not pods or pods + bool(rest) > naive.m3 or pods + bool(rest) < 2:
                continue
            if more[0] + bool(more[1]) <= naive.m2:
                yield Form(pods, leaves, full, *more, one_pod=False)


@dataclass
class Place:
    """Variables of one placement."""

    hosts: dict[Leaf, Any] = field(default_factory=dict)
    up: dict[tuple[Leaf, int], Any] = field(default_factory=dict)
    spine: dict[tuple[int, int, int], Any] = field(default_factory=dict)


class PlanModel:
    def __init__(self, fabric: Ledger, policy: str, hosts: int) -> None:
        self.naive = naive = Naive(fabric.topology)
        assert len(naive.planes) == 1 == naive.cables
        self.model = cp_model.CpModel()
        self.free: Free = naive.free(fabric)
        self.spines_of_l2 = fabric.topology.tree.w[2]
        tenants = [a for a in fabric.allocations.values() if a.id != "noise"]
        self.old = {a.id: naive.held(a) for a in tenants}
        self.moved = {a.id: self.model.new_bool_var(f"{a.id} moves") for a in tenants}
        self.places = {a.id: self._place(a.id, a.policy, a.requested) for a in tenants}
        self.new = self._place(None, policy, hosts)
        self._nothing_twice()

    def least(self, most_moves: int, seconds: float = 120.0) -> tuple[int, int] | None:
        """(new hosts, tenants moved); None if there is no plan. Raises if undecided."""
        assert most_moves <= 2
        model, moved = self.model, self.moved
        model.add(sum(moved.values()) <= most_moves)
        new = []
        for id, place in self.places.items():
            counts = self.old[id][0]
            for leaf, hosts in place.hosts.items():
                more = model.new_int_var(0, self.naive.m1, "")
                model.add(more >= hosts - counts.get(leaf, 0))
                new.append(more)
        for a, b in combinations(self.places, 2):
            first = model.new_bool_var(f"{a} before {b}")
            self._in_turn(a, b, first)
            self._in_turn(b, a, first.negated())
        model.minimize(sum(new) * 100 + sum(moved.values()))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = seconds
        status = solver.solve(model)
        if status == cp_model.INFEASIBLE:
            return None
        if status != cp_model.OPTIMAL:
            raise TimeoutError(solver.status_name(status))
        return divmod(round(solver.objective_value), 100)

    def _in_turn(self, first: str, second: str, when: Any) -> None:
        """The first to move avoids what the second still has."""
        both = [when, self.moved[first], self.moved[second]]
        counts, links = self.old[second]
        own, _ = self.old[first]
        for leaf, hosts in self.places[first].hosts.items():
            if counts.get(leaf):
                room = self.free.hosts[leaf] + own.get(leaf, 0)
                self.model.add(hosts <= room).only_enforce_if(both)
        for (leaf, up), used in self.places[first].up.items():
            if leaf in links.up and up in links.up[leaf][0]:
                self.model.add(used == 0).only_enforce_if(both)
        for (pod, l2, spine), used in self.places[first].spine.items():
            if spine in links.spines.get((pod, 0, l2), ()):
                self.model.add(used == 0).only_enforce_if(both)

    def _nothing_twice(self) -> None:
        """In the end nothing has two owners and nothing is used that failed."""
        everybody = [self.new, *self.places.values()]
        model, naive, free = self.model, self.naive, self.free
        for leaf in naive.leaves:
            held: list[Any] = [
                counts[leaf] * (1 - self.moved[id])
                for id, (counts, _) in self.old.items()
                if leaf in counts
            ]
            room = free.hosts[leaf] + sum(c.get(leaf, 0) for c, _ in self.old.values())
            model.add(sum(p.hosts[leaf] for p in everybody) + sum(held) <= room)
            for up in range(naive.l2):
                owner = [
                    id for id, (_, ls) in self.old.items() if up in ls.up.get(leaf, [set()])[0]
                ]
                used = [p.up[leaf, up] for p in everybody]
                self._at_most_one(used, owner, up in free.up[leaf][0])
        for pod in range(naive.m3):
            for l2 in range(naive.l2):
                for spine in range(self.spines_of_l2):
                    at = pod, 0, l2
                    owner = [
                        id for id, (_, ls) in self.old.items() if spine in ls.spines.get(at, ())
                    ]
                    used = [p.spine[pod, l2, spine] for p in everybody]
                    self._at_most_one(used, owner, spine in free.spines[at])

    def _at_most_one(self, used: list[Any], owner: list[str], free: bool) -> None:
        held = [1 - self.moved[id] for id in owner]
        self.model.add(sum(used) + sum(held) <= int(free or bool(owner)))

    def _place(self, id: str | None, policy: str, hosts: int) -> Place:
        """A placement of so many hosts; an empty one for a tenant that stays."""
        model, naive = self.model, self.naive
        l2s, pods = range(naive.l2), range(naive.m3)
        legal = list(forms(policy, hosts, naive))
        takes = [model.new_bool_var(f"{id} {form}") for form in legal]
        model.add(sum(takes) == (1 if id is None else self.moved[id]))

        def total(value: Callable[[Form], int]) -> Any:
            return sum(
                take * value(form) for form, take in zip(legal, takes, strict=True) if value(form)
            )

        alike = [model.new_bool_var("") for _ in pods]
        smaller = [model.new_bool_var("") for _ in pods]
        model.add(sum(alike) == total(lambda f: f.pods))
        model.add(sum(smaller) == total(lambda f: int(f.smaller_pod)))
        full = {leaf: model.new_bool_var("") for leaf in naive.leaves}
        rest = {leaf: model.new_bool_var("") for leaf in naive.leaves}
        place = Place()
        for pod in pods:
            model.add(alike[pod] + smaller[pod] <= 1)
            here = [leaf for leaf in naive.leaves if leaf[0] == pod]
            for form, take in zip(legal, takes, strict=True):
                for kind, leaves in ((alike, form.leaves), (smaller, form.more_leaves)):
                    model.add(sum(full[leaf] for leaf in here) == leaves).only_enforce_if(
                        take, kind[pod]
                    )
                kind = smaller if form.smaller_pod else alike
                model.add(
                    sum(rest[leaf] for leaf in here) == int(form.more_hosts > 0)
                ).only_enforce_if(take, kind[pod])
                if form.smaller_pod:
                    model.add(sum(rest[leaf] for leaf in here) == 0).only_enforce_if(
                        take, alike[pod]
                    )
            for leaf in here:
                model.add(full[leaf] + rest[leaf] <= alike[pod] + smaller[pod])
        some = [model.new_bool_var("") for _ in l2s]
        fewer = [model.new_bool_var("") for _ in l2s]
        model.add(
            sum(some) == total(lambda f: divided_up(f.hosts, naive.leaf_taper) if f.linked else 0)
        )
        model.add(sum(fewer) == total(lambda f: divided_up(f.more_hosts, naive.leaf_taper)))
        for l2 in l2s:
            model.add(fewer[l2] <= some[l2])
        for leaf in naive.leaves:
            count = model.new_int_var(0, naive.m1, "")
            for form, take in zip(legal, takes, strict=True):
                model.add(
                    count == form.hosts * full[leaf] + form.more_hosts * rest[leaf]
                ).only_enforce_if(take)
            place.hosts[leaf] = count
            for l2 in l2s:
                up = model.new_bool_var("")
                model.add(up >= full[leaf] + some[l2] - 1)
                model.add(up >= rest[leaf] + fewer[l2] - 1)
                place.up[leaf, l2] = up
        self._spines(place, legal, takes, alike, smaller, some, fewer)
        if id is not None:
            for variable in (*place.hosts.values(), *place.up.values(), *place.spine.values()):
                model.add(variable == 0).only_enforce_if(self.moved[id].negated())
        return place

    def _spines(
        self,
        place: Place,
        legal: list[Form],
        takes: list[Any],
        alike: list[Any],
        smaller: list[Any],
        some: list[Any],
        fewer: list[Any],
    ) -> None:
        model, naive = self.model, self.naive
        spines, taper = range(self.spines_of_l2), naive.spine_taper
        for l2 in range(naive.l2):
            most = [model.new_bool_var("") for _ in spines]
            part = [model.new_bool_var("") for _ in spines]
            for form, take in zip(legal, takes, strict=True):
                between = not form.one_pod
                for on in (0, 1):
                    chosen = some[l2] if on else some[l2].negated()
                    need = divided_up(form.leaves * on, taper) if between else 0
                    model.add(sum(most) == need).only_enforce_if(take, chosen)
                    for less in (0, 1):
                        also = fewer[l2] if less else fewer[l2].negated()
                        need = divided_up(form.more_leaves * on + less, taper) if between else 0
                        model.add(sum(part) == need).only_enforce_if(take, chosen, also)
            for spine in spines:
                model.add(part[spine] <= most[spine])
                for pod in range(naive.m3):
                    used = model.new_bool_var("")
                    model.add(used >= alike[pod] + most[spine] - 1)
                    model.add(used >= smaller[pod] + part[spine] - 1)
                    place.spine[pod, l2, spine] = used
