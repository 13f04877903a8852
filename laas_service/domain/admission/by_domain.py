# SPDX-License-Identifier: Apache-2.0

"""Placements on domains: whole ones, so many hosts of each, all in one, or spread over some.

The hosts of a leaf group are alike for a policy, so a placement is judged by how many it takes of
each. Three ways lead from domains to such numbers:

* Hosts outside of the domains in question are hidden (``within``, ``exclusive``, domains of which
  a host is taken).
* Where all domains give equally many hosts on equally many leaf groups of a pod, the policy looks
  only at shapes that are made of whole domains (``Grain``). Then its refusal is the answer.
* Other domains are added up in every way, and the policy is asked for each sum. For ``spread`` it
  is asked again without a host of a leaf group, until a placement has enough domains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import and_
from typing import NamedTuple

from laas_service.domain.admission.alike_domains import Found, on_alike_domains
from laas_service.domain.admission.broken_domains import chosen_hosts, free_hosts
from laas_service.domain.allocation import (
    HOSTS_ONLY,
    Allocation,
    Grain,
    GroupShare,
    NoFit,
    Reach,
    Refusal,
    Request,
)
from laas_service.domain.constraints import Constraints, Spread
from laas_service.domain.features import Domain, Features
from laas_service.domain.ledger import LedgerView, Masks
from laas_service.domain.policies.base import Policy
from laas_service.domain.search.bicliques import lowest_bits
from laas_service.domain.topology import Topology

QUESTIONS = 3000
"""The most questions to the policy for one request."""

FEW_QUESTIONS = 300
"""The most of them before domains are added up."""

STEPS = 200_000
"""The most choices of domains for the leaf groups of placements, for one request."""

SUMS = 20_000
"""The most sums of domains that are compared for one request."""

ROUNDING = frozenset({"laas", "simple"})
"""The policies that may give more hosts than are asked for, by name."""

WHOLE_AND_FREE = "are whole and free"
STOPPED = "the search among domains stopped at its budget, a placement may exist"

Hosts = tuple[int, ...]
"""Masks of positions, by leaf group."""

Counts = dict[int, int]
"""Numbers of hosts, by leaf group; none is 0."""


class Unit(NamedTuple):
    """What one domain may give."""

    cells: tuple[tuple[int, int], ...]
    """(Leaf group, mask of positions) of the hosts that it may give."""
    ways: tuple[tuple[tuple[int, int], ...], ...]
    """(Leaf group, number of hosts), for each way in which it may give them."""


def propose_by_domain(
    policy: Policy, fabric: LedgerView, permitted: Callable[[], Hosts], request: Request
) -> Allocation | NoFit:
    """The policy's answer under constraints on domains; others permit only some hosts.

    The search among domains that are not alike is bounded (``QUESTIONS``, ``SUMS``): a refusal
    beyond that says that a placement may exist.
    """
    constraints = request.constraints
    assert constraints is not None, "there is nothing to meet"
    features, topology = fabric.features, fabric.topology
    if found := on_alike_domains(policy, fabric, request):
        return found.answer or _not_on_alike_domains(fabric, request, constraints, found)
    hosts: Hosts = tuple(map(and_, fabric.free_hosts, permitted()))
    if kind := constraints.exclusive_kind:
        hosts = _cut(hosts, used_by_others(fabric, kind), keep=False)
    refusals = []
    for region in _regions(features.domains(topology, constraints.within_kind or ""), hosts):
        if sum(map(int.bit_count, region)) < request.hosts:
            continue
        answer = _Question(policy, fabric, request, region).answer()
        if isinstance(answer, Allocation):
            return _alone(answer, features, topology, kind)
        refusals.append(answer)
    return _refusal(request, constraints, refusals, sum(map(int.bit_count, hosts)))


def _not_on_alike_domains(
    fabric: LedgerView, request: Request, constraints: Constraints, found: Found
) -> NoFit:
    if fabric.free_host_count < request.hosts:
        return _refusal(request, constraints, (), fabric.free_host_count)
    free = f"{fabric.free_host_count} hosts free, {request.hosts} asked; "
    if found.unproven:
        return NoFit(Refusal.BUDGET, free + STOPPED)
    if found.possible < (constraints.domains or 0):
        why = f"{found.possible} domains of kind {constraints.kind} {WHOLE_AND_FREE}"
        return NoFit(Refusal.NO_LEGAL_SHAPE, free + why)
    why = _no_links(request, constraints, constraints.domains or 0, found.possible, WHOLE_AND_FREE)
    return NoFit(Refusal.NO_LEGAL_SHAPE, free + why)


def _no_links(
    request: Request, constraints: Constraints, count: int, possible: int, what: str
) -> str:
    return (
        f"{possible} domains of kind {constraints.kind} {what}, but no {count} of them"
        f" make {request.hosts} hosts with enough free links in common"
    )


def used_by_others(fabric: LedgerView, kind: str) -> list[Domain]:
    """The domains of a kind with a host that somebody has, or that is not in this ledger."""
    topology = fabric.topology
    nobody = list(fabric.free_hosts)
    out = fabric.failed_hosts | fabric.drained_hosts
    for group, mask in enumerate(topology.positions_of(out)) if out else ():
        nobody[group] |= mask
    if out:
        for allocation in fabric.allocations.values():
            for group, mask, _ in chain(allocation.groups, allocation.alone):
                nobody[group] &= ~mask
    domains = fabric.features.domains(topology, kind)
    return [d for d in domains if any(mask & ~nobody[group] for group, mask in d.cells)]


def whole_domains(fabric: LedgerView, kind: str) -> list[Domain]:
    """The domains of a kind all of whose hosts are free."""
    domains = fabric.features.domains(fabric.topology, kind)
    return [domain for domain in domains if free_hosts(fabric, domain) == domain.size]


def unmet(
    features: Features, topology: Topology, constraints: Constraints, hosts: Iterable[int]
) -> str | None:
    """The field name of a constraint on domains that a set of hosts does not meet, if any."""
    of = {host: dict(features.of(host).domains) for host in hosts}
    if kind := constraints.within_kind:
        names = {domains.get(kind) for domains in of.values()}
        if len(names) > 1 or None in names:
            return "within"
    if isinstance(constraints.spread, Spread):
        kind, least = constraints.spread
        if len({domains[kind] for domains in of.values() if kind in domains}) < least:
            return "spread"
    if kind := constraints.counted:
        used: dict[str | None, int] = {}
        for domains in of.values():
            used[domains.get(kind)] = used.get(domains.get(kind), 0) + 1
        if constraints.per_domain is not None:
            right = None not in used and set(used.values()) == {constraints.per_domain}
            return None if right else "per_domain"
        sizes = {domain.name: domain.size for domain in features.domains(topology, kind)}
        whole = all(name is not None and sizes[name] == count for name, count in used.items())
        return None if whole and len(used) == constraints.domains else "domains"
    return None


def sums_of_domains(sizes: Iterable[int], count: int) -> set[int]:
    """The numbers of hosts that ``count`` domains of these sizes may have together."""
    sums: list[set[int]] = [{0}, *(set[int]() for _ in range(count))]
    by_size: dict[int, int] = {}
    for size in sizes:
        by_size[size] = by_size.get(size, 0) + 1
    for size, number in by_size.items():
        for taken in range(count, 0, -1):
            for many in range(1, min(taken, number) + 1):
                sums[taken] |= {before + many * size for before in sums[taken - many]}
    return sums[count]


def _regions(domains: Sequence[Domain], hosts: Hosts) -> Iterator[Hosts]:
    """The hosts of each domain, those with few free ones first; all hosts without domains."""
    if not domains:
        yield hosts
        return
    for domain in sorted(
        domains, key=lambda d: sum((hosts[g] & m).bit_count() for g, m in d.cells)
    ):
        yield _cut(hosts, [domain], keep=True)


def _cut(hosts: Hosts, domains: Iterable[Domain], *, keep: bool) -> Hosts:
    """The hosts that are in the domains, or those that are not."""
    inside = [0] * len(hosts)
    for domain in domains:
        for group, mask in domain.cells:
            inside[group] |= mask
    return tuple(m & i if keep else m & ~i for m, i in zip(hosts, inside, strict=True))


def _alone(
    answer: Allocation, features: Features, topology: Topology, kind: str | None
) -> Allocation:
    """The allocation with the other hosts of its domains, if nobody else may have these."""
    if kind is None:
        return answer
    mine = {group: hosts for group, hosts, _ in answer.groups}
    others: dict[int, int] = {}
    for domain in features.domains(topology, kind):
        if any(mine.get(group, 0) & mask for group, mask in domain.cells):
            for group, mask in domain.cells:
                if rest := mask & ~mine.get(group, 0):
                    others[group] = others.get(group, 0) | rest
    return replace(answer, alone=tuple(GroupShare(g, m, 0) for g, m in sorted(others.items())))


def _refusal(
    request: Request, constraints: Constraints, refusals: Sequence[NoFit], hosts: int
) -> NoFit:
    """One refusal for all regions."""
    for refusal in refusals:
        if refusal.reason.unproven:
            return refusal
    wanted = " and ".join(
        constraints.described(name) for name in constraints.by_domain if name != "exclusive"
    )
    if len(refusals) == 1 and not constraints.within_kind:
        return refusals[0]
    kind = constraints.exclusive_kind
    usable = f"{hosts} hosts free" + f" in domains of kind {kind} that nobody uses" * bool(kind)
    text = f"{usable}, {request.hosts} asked"
    return NoFit(Refusal.NO_LEGAL_SHAPE, text + f", but not with {wanted}" * bool(wanted))


class _Question:
    """One request on some hosts of a fabric."""

    def __init__(self, policy: Policy, fabric: LedgerView, request: Request, hosts: Hosts) -> None:
        constraints = request.constraints
        assert constraints is not None, "there is nothing to meet"
        self._policy = policy
        self._fabric = fabric
        self._hosts = hosts
        self._constraints = constraints
        self._topology = topology = fabric.topology
        self._request = replace(request, constraints=constraints.of_tree)
        self._spread: Sequence[Domain] = ()
        self._least = 0
        if isinstance(constraints.spread, Spread):
            self._spread = fabric.features.domains(topology, constraints.spread.kind)
            self._least = constraints.spread.least
        self._reach: Reach | None = None
        self._whole = Masks.whole(topology)
        self._left = QUESTIONS
        self._steps = STEPS
        self._proven = True

    def answer(self) -> Allocation | NoFit:
        """A placement, or why there is none."""
        possible = [d for d in self._spread if any(self._hosts[g] & m for g, m in d.cells)]
        if len(possible) < self._least:
            kind = self._constraints.kind_of_spread
            return self._none(f"{len(possible)} domains of kind {kind} have free hosts")
        rounds = (
            self._policy.name in ROUNDING and self._request.hosts > self._topology.hosts_per_group
        )
        if self._request.hosts < self._least and not rounds:
            return self._none(f"they cannot lie in {self._least} domains")
        if self._constraints.counted is None:
            return self._spread_out()
        return self._counted()

    def _none(self, why: str) -> NoFit:
        free = sum(map(int.bit_count, self._hosts))
        if not self._proven:
            text = f"{free} hosts free, {self._request.hosts} asked; {STOPPED}"
            return NoFit(Refusal.BUDGET, text)
        return NoFit(
            Refusal.NO_LEGAL_SHAPE, f"{free} hosts free, {self._request.hosts} asked; {why}"
        )

    def _ask(
        self, hosts: Hosts, grain: Grain | Reach | None = None, uplinks: Hosts | None = None
    ) -> Allocation | NoFit:
        """What the policy answers if these are all hosts."""
        self._left -= 1
        extent = replace(self._whole, hosts=hosts, uplinks=uplinks or self._whole.uplinks)
        view = self._fabric.within(extent)
        answer = self._policy.propose(view, replace(self._request, grain=grain))
        if isinstance(answer, NoFit) and answer.reason.unproven:
            self._proven = False
        return answer

    # -- hosts of spread domains ------------------------------------------------

    def _spread_out(self) -> Allocation | NoFit:
        """A placement on any hosts in enough domains of ``spread``.

        A placement that is one, and is not the policy's answer, takes fewer hosts than it of some
        leaf group. So the policy is asked again with one host less of each in turn.
        """
        self._reach = self._most_reached()
        answer, found = self._tried(self._hosts)
        if found is not None or isinstance(answer, NoFit):
            return answer if found is None else found
        tries = [self._with_at_most(most) for most in self._shares_of_domains()]
        if self._policy.name in HOSTS_ONLY:
            tries.append(self._any_hosts())
        for hosts in tries:
            _, found = self._tried(hosts)
            if found is not None:
                return found
        found = self._branched(answer, self._hosts, self._on_spread, QUESTIONS)
        if found is not None:
            return found
        self._proven = self._proven and self._left > 0
        return self._none(f"no placement lies in {self._least} domains of the kind")

    def _branched(
        self,
        answer: Allocation,
        hosts: Hosts,
        realize: Callable[[Allocation], Allocation | None],
        questions: int,
    ) -> Allocation | None:
        """A placement that ``realize`` finds hosts for, of so many that the policy is asked for.

        ``answer`` is what it says of these hosts, and not one. ``_left`` is 0 if the search ended
        before all were seen.
        """
        last = max(0, self._left - questions)
        stack = [self._fewer(answer, hosts, {})]
        while stack:
            branch = next(stack[-1], None)
            if branch is None:
                stack.pop()
                continue
            if self._left <= last:
                self._left = 0
                return None
            fewer = self._ask(branch[0], self._reach)
            if isinstance(fewer, Allocation):
                if found := realize(fewer):
                    return found
                stack.append(self._fewer(fewer, *branch))
        return None

    def _tried(self, hosts: Hosts) -> tuple[Allocation | NoFit, Allocation | None]:
        """The policy's answer, and the same with hosts in enough domains, if there are such."""
        answer = self._ask(hosts, self._reach)
        if isinstance(answer, NoFit):
            return answer, None
        return answer, self._on_spread(answer)

    def _on_spread(self, answer: Allocation) -> Allocation | None:
        """The same placement on hosts in enough domains of ``spread``, if there are such."""
        cells = [(group, self._hosts[group], mask.bit_count()) for group, mask, _ in answer.groups]
        chosen = self._chosen(cells)
        return None if chosen is None else _with_hosts(answer, chosen)

    def _most_reached(self) -> Reach | None:
        """Which shapes may have hosts of enough domains."""
        if self._least < 2:
            return None
        by_group: dict[int, set[str]] = {}
        for domain in self._spread:
            for group, mask in domain.cells:
                if mask & self._hosts[group]:
                    by_group.setdefault(group, set()).add(domain.name)
        by_pod: dict[int, set[str]] = {}
        for group, names in by_group.items():
            by_pod.setdefault(group // self._topology.groups_per_pod, set()).update(names)
        most_in_leaf, most_in_pod = (max(map(len, of.values())) for of in (by_group, by_pod))
        return Reach(self._least, most_in_leaf, most_in_pod)

    def _any_hosts(self) -> Hosts:
        """One host of each of enough domains, and any others."""
        kept = [0] * len(self._hosts)
        reached = 0
        for domain in self._spread:
            cells = [(g, m & self._hosts[g] & ~kept[g]) for g, m in domain.cells]
            group, mask = max(cells, key=lambda cell: cell[1].bit_count())
            if mask and reached < self._least:
                kept[group] |= lowest_bits(mask, 1)
                reached += 1
        left = self._request.hosts - reached
        for group, mask in enumerate(self._hosts):
            more = mask & ~kept[group]
            taken = lowest_bits(more, min(left, more.bit_count()))
            kept[group] |= taken
            left -= taken.bit_count()
        return tuple(kept)

    def _fewer(
        self, answer: Allocation, hosts: Hosts, least: Counts
    ) -> Iterator[tuple[Hosts, Counts]]:
        """The hosts without one of a leaf group of the answer, for each of them in turn.

        A placement that has at least as many hosts of the leaf groups before is not looked for
        again: ``least`` says how many it has of each, of all that the policy may give.
        """
        most = self._most_hosts()
        least = dict(least)
        for group, mask, _ in answer.groups:
            count = mask.bit_count()
            if least.get(group, 0) < count:
                if sum(least.values()) > most:
                    return
                fewer = lowest_bits(hosts[group], count - 1)
                yield (*hosts[:group], fewer, *hosts[group + 1 :]), dict(least)
                least[group] = count

    def _most_hosts(self) -> int:
        """The most hosts of a placement."""
        hosts, slots = self._request.hosts, self._topology.hosts_per_group
        if self._policy.name not in ROUNDING or self._constraints.counted:
            return hosts
        pod = slots * self._topology.groups_per_pod
        unit = pod if self._policy.name == "simple" and hosts > pod else slots
        return -(-hosts // unit) * unit

    def _shares_of_domains(self) -> Iterator[int]:
        """Numbers of hosts such that no placement with at most so many of each has too few."""
        hosts, least = self._request.hosts, self._least
        if least > 1:
            yield -(-hosts // (least - 1)) - 1
            yield -(-hosts // least)

    def _with_at_most(self, most: int) -> Hosts:
        """The hosts, without some of each domain of ``spread`` that has more."""
        kept = [0] * len(self._hosts)
        for domain in self._spread:
            left = most
            cells = [(self._hosts[group] & mask, group) for group, mask in domain.cells]
            for mask, group in sorted(cells, key=lambda cell: -cell[0].bit_count()):
                taken = lowest_bits(mask, left)
                kept[group] |= taken
                left -= taken.bit_count()
        return tuple(kept)

    # -- hosts of counted domains -----------------------------------------------

    def _counted(self) -> Allocation | NoFit:
        """A placement on whole domains, or on so many hosts of each."""
        constraints, hosts = self._constraints, self._request.hosts
        units = self._units()
        if constraints.domains is not None:
            count, what = constraints.domains, WHOLE_AND_FREE
        else:
            assert constraints.per_domain is not None, "domains are counted"
            count, rest = divmod(hosts, constraints.per_domain)
            what = f"have {constraints.per_domain} free hosts"
            if rest:
                return self._none(f"they are no multiple of per_domain {constraints.per_domain}")
        if len(units) < count:
            return self._none(f"{len(units)} domains of kind {constraints.kind} {what}")
        for grain, alike in _classes(units, self._topology).items():
            if grain.hosts * grain.leaves * count != hosts or len(alike) < count:
                continue
            if self._policy.name in HOSTS_ONLY:
                break  # these policies know no shapes, so none that is made of domains
            answer = self._of_grain(grain, alike)
            if answer is not None:
                return answer
            if len(alike) == len(units) and not self._least:
                return self._none(self._no_links(count, len(units), what))
        found = self._of_any(units, count)
        return found or self._none(self._no_links(count, len(units), what))

    def _no_links(self, count: int, possible: int, what: str) -> str:
        return _no_links(self._request, self._constraints, count, possible, what)

    def _units(self) -> list[Unit]:
        """What each domain of the counted kind can give; those with few free hosts first."""
        units = []
        least = self._constraints.per_domain
        kind = self._constraints.counted or ""
        for domain in self._fabric.features.domains(self._topology, kind):
            cells = tuple((g, m) for g, mask in domain.cells if (m := mask & self._hosts[g]))
            free = sum(mask.bit_count() for _, mask in cells)
            if least is None:
                if free == domain.size:
                    units.append((free, Unit(cells, (_counts_of(cells),))))
            elif free >= least:
                units.append((free, Unit(cells, tuple(_ways(_counts_of(cells), least)))))
        units.sort(key=lambda unit: unit[0])
        return [unit for _, unit in units]

    def _of_grain(self, grain: Grain, units: Sequence[Unit]) -> Allocation | None:
        """A placement on some of these domains, which are all alike."""
        hosts, uplinks = [0] * len(self._hosts), list(self._whole.uplinks)
        by_group: dict[int, list[Unit]] = {}
        blocks: dict[int, tuple[int, ...]] = {}
        for unit in units:
            groups = tuple(group for group, _ in unit.ways[0])
            for group, mask in unit.cells:
                hosts[group] |= lowest_bits(mask, grain.hosts)
                by_group.setdefault(group, []).append(unit)
                blocks[group] = groups
        if grain.leaves > 1:
            for groups in set(blocks.values()):
                common = -1
                for group in groups:
                    common &= self._fabric.free_uplinks[group]
                for group in groups:
                    uplinks[group] = common
        answer = self._ask(tuple(hosts), grain, tuple(uplinks))
        if isinstance(answer, NoFit):
            return None
        if grain.leaves > 1:
            answer = self._in_blocks(answer, blocks, hosts, uplinks)
        if not self._least:
            chosen: dict[int, int] = {}
            for group, mask, _ in answer.groups:
                for unit in by_group[group][: mask.bit_count() // grain.hosts]:
                    cell = dict(unit.cells)[group]
                    chosen[group] = chosen.get(group, 0) | lowest_bits(cell, grain.hosts)
            return _with_hosts(answer, chosen)
        return self._selected(answer, units, answer.size // (grain.hosts * grain.leaves))

    def _in_blocks(
        self,
        answer: Allocation,
        blocks: Mapping[int, tuple[int, ...]],
        hosts: Sequence[int],
        uplinks: Sequence[int],
    ) -> Allocation:
        """The placement on leaf groups of as many whole blocks of each pod.

        The leaf groups of a block have equally many free hosts and the same uplinks, so those
        that could serve make whole blocks.
        """
        by_pod: dict[int, list[GroupShare]] = {}
        for share in answer.groups:
            by_pod.setdefault(share.group // self._topology.groups_per_pod, []).append(share)
        placed = []
        for pod, shares in by_pod.items():
            _, mask, ups = shares[0]
            count = mask.bit_count()
            free = (
                groups
                for groups in sorted(set(blocks.values()))
                if groups[0] // self._topology.groups_per_pod == pod
                and hosts[groups[0]].bit_count() >= count
                and not ups & ~(uplinks[groups[0]] & self._fabric.free_uplinks[groups[0]])
            )
            groups = [group for block in free for group in block][: len(shares)]
            placed += [GroupShare(g, lowest_bits(hosts[g], count), ups) for g in groups]
        return replace(answer, groups=tuple(sorted(placed)))

    def _of_any(self, units: Sequence[Unit], count: int) -> Allocation | None:
        """A placement on any ``count`` of these domains, found in one of two ways.

        Either the policy is asked for other placements until one is on whole units, or for the
        sums that units make.
        """
        hosts = [0] * len(self._hosts)
        for group, mask in (cell for unit in units for cell in unit.cells):
            hosts[group] |= mask

        def realize(answer: Allocation) -> Allocation | None:
            exact = answer.size == self._request.hosts
            return self._selected(answer, units, count) if exact else None

        answer = self._ask(tuple(hosts))
        if isinstance(answer, NoFit):
            return None
        if found := (
            realize(answer) or self._branched(answer, tuple(hosts), realize, FEW_QUESTIONS)
        ):
            return found
        if self._left > 0 and self._steps > 0:
            return None
        self._left = QUESTIONS
        return self._of_sums(units, count)

    def _of_sums(self, units: Sequence[Unit], count: int) -> Allocation | None:
        """A placement on any ``count`` of these domains: every sum of what they give is tried."""
        size, seen = self._request.hosts, set[tuple[tuple[int, int], ...]]()
        sums: list[set[tuple[tuple[int, int], ...]]] = [{()}, *(set() for _ in range(count))]
        total = 0
        for unit in units:
            for taken in range(count, 0, -1):
                for before in sums[taken - 1]:
                    for way in unit.ways:
                        added = _added(before, way)
                        if sum(number for _, number in added) <= size:
                            sums[taken].add(added)
            total = sum(map(len, sums))
            if total > SUMS:
                self._proven = False
                break
        for counts in sorted(sums[count]):
            if sum(number for _, number in counts) != size or counts in seen:
                continue
            seen.add(counts)
            if not self._may_be_shape([number for _, number in counts]):
                continue
            if self._left <= 0:
                self._proven = False
                return None
            hosts = [0] * len(self._hosts)
            for group, number in counts:
                hosts[group] = lowest_bits(self._hosts[group], number)
            answer = self._ask(tuple(hosts))
            if isinstance(answer, Allocation) and (found := self._selected(answer, units, count)):
                return found
        return None

    def _may_be_shape(self, numbers: Sequence[int]) -> bool:
        """Whether leaf groups with so many hosts each may have a legal shape."""
        if self._policy.name in HOSTS_ONLY:
            return True
        return sum(number != max(numbers) for number in numbers) <= 1

    def _selected(self, answer: Allocation, units: Sequence[Unit], count: int) -> Allocation | None:
        """The placement on hosts of ``count`` of these domains, as many of each leaf group."""
        counts = {group: mask.bit_count() for group, mask, _ in answer.groups}
        for cells in self._selections(units, counts, count):
            chosen = self._chosen(cells)
            if chosen is not None:
                return _with_hosts(answer, chosen)
        return None

    def _selections(
        self,
        units: Sequence[Unit],
        counts: Counts,
        count: int,
        taken: frozenset[int] = frozenset(),
        first: int = 0,
    ) -> Iterator[list[tuple[int, int, int]]]:
        """Cells of the ways of ``count`` units that add up to so many hosts of each leaf group.

        Units that are ``taken`` are out. Those of the lowest leaf group are taken in ascending
        order, from ``first`` on. The search ends with ``_steps``.
        """
        if not counts or not count:
            if not counts and not count:
                yield []
            return
        lowest = min(counts)
        for number in range(first, len(units)):
            masks = dict(units[number].cells)
            if number in taken or lowest not in masks:
                continue
            for way in units[number].ways:
                numbers = dict(way)
                if lowest not in numbers or any(n > counts.get(g, 0) for g, n in way):
                    continue
                if self._steps <= 0:
                    self._proven = False
                    return
                self._steps -= 1
                left = {
                    g: n - numbers.get(g, 0) for g, n in counts.items() if n > numbers.get(g, 0)
                }
                cells = [(group, masks[group], hosts) for group, hosts in way]
                following = number + 1 if lowest in left else 0
                for more in self._selections(units, left, count - 1, taken | {number}, following):
                    yield cells + more

    # -- hosts of leaf groups ---------------------------------------------------

    def _chosen(self, cells: Sequence[tuple[int, int, int]]) -> dict[int, int] | None:
        """Hosts of these cells, by leaf group, in enough domains of ``spread``; None without.

        A cell is a leaf group, a mask of its positions, and how many of them are taken.
        """
        first: dict[int, list[Domain]] = {number: [] for number in range(len(cells))}
        if self._least:
            reached = 0
            for domain in self._spread:
                reached += _matched(domain, cells, first, set())
                if reached == self._least:
                    break
            else:
                return None
        chosen: dict[int, int] = {}
        for number, (group, mask, count) in enumerate(cells):
            taken = 0
            for domain in first[number]:
                taken |= lowest_bits(mask & dict(domain.cells)[group], 1)
            taken |= chosen_hosts(self._fabric, group, mask & ~taken, count - len(first[number]))
            chosen[group] = chosen.get(group, 0) | taken
        return chosen


def _matched(
    domain: Domain,
    cells: Sequence[tuple[int, int, int]],
    first: dict[int, list[Domain]],
    tried: set[int],
) -> bool:
    """Find a cell for a host of the domain, beside those found for others; change ``first``."""
    masks = dict(domain.cells)
    for number, (group, mask, count) in enumerate(cells):
        if number in tried or not masks.get(group, 0) & mask:
            continue
        tried.add(number)
        if len(first[number]) < count:
            first[number].append(domain)
            return True
        for place, other in enumerate(first[number]):
            if _matched(other, cells, first, tried):
                first[number][place] = domain
                return True
    return False


def _with_hosts(answer: Allocation, chosen: Mapping[int, int]) -> Allocation:
    groups = tuple(GroupShare(group, chosen[group], ups) for group, _, ups in answer.groups)
    return replace(answer, groups=groups)


def _counts_of(cells: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple((group, mask.bit_count()) for group, mask in cells)


def _ways(counts: Sequence[tuple[int, int]], hosts: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every way to take so many hosts of leaf groups with these numbers of them."""
    if not hosts:
        yield ()
        return
    if sum(number for _, number in counts) < hosts:
        return
    (group, number), *others = counts
    for taken in range(min(number, hosts), -1, -1):
        for way in _ways(others, hosts - taken):
            yield ((group, taken), *way) if taken else way


def _added(
    one: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...]
) -> tuple[tuple[int, int], ...]:
    counts = dict(one)
    for group, number in other:
        counts[group] = counts.get(group, 0) + number
    return tuple(sorted(counts.items()))


def _classes(units: Sequence[Unit], topology: Topology) -> dict[Grain, list[Unit]]:
    """The domains that give equally many hosts on equally many leaf groups of one pod, by that.

    Of several leaf groups, either all are those of another such domain or none is.
    """
    classes: dict[Grain, list[Unit]] = {}
    for unit in units:
        numbers = {number for _, number in unit.ways[0]}
        pods = {group // topology.groups_per_pod for group, _ in unit.ways[0]}
        if len(unit.ways) == len(numbers) == len(pods) == 1:
            classes.setdefault(Grain(numbers.pop(), len(unit.ways[0])), []).append(unit)
    for grain, alike in list(classes.items()):
        blocks: dict[int, tuple[int, ...]] = {}
        for unit in alike:
            groups = tuple(group for group, _ in unit.ways[0])
            if any(blocks.setdefault(group, groups) != groups for group in groups):
                del classes[grain]
                break
    return classes
