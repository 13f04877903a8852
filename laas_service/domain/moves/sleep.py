# SPDX-License-Identifier: Apache-2.0

"""Moves of tenants after which more leaves, L2 switches and spines are unused and can sleep.

A leaf is emptied by the search that replaces hosts (``replacement``). LaaS (ANCS'16, section 5)
follows the use of the cloud with the network's power; here tenants move for it as well.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from laas_service.domain.allocation import Allocation
from laas_service.domain.budget import RequestBudget
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.moves.nearest import Nearest
from laas_service.domain.moves.plan_moves import MOVES_WORK, can_move
from laas_service.domain.moves.replacement import replacement
from laas_service.domain.topology import LeafLink, Link, Topology, Xgft, bits


@dataclass(frozen=True, slots=True)
class UnusedSwitches:
    """Switches that no tenant uses. Those that the subnet manager or storage needs are included."""

    leaves: tuple[tuple[int, int], ...]
    """Pod and number of each leaf (on several rails: leaf group) without a host of a tenant."""
    l2: tuple[tuple[int, int], ...]
    """Pod and L2 index."""
    spines: tuple[tuple[int, int], ...]
    """L2 index and number in the spine group."""


@dataclass(frozen=True, slots=True)
class SleepMoves:
    """Moves in order; each new placement is free of everybody else's when it is made."""

    moves: tuple[Nearest, ...]
    now: UnusedSwitches
    after: UnusedSwitches
    cut_off: bool
    """Whether the search stopped at its budget: more switches could perhaps sleep."""

    @property
    def new_hosts(self) -> int:
        """The hosts that tenants newly get, in all."""
        return sum(move.new_hosts for move in self.moves)


def plan_sleep(
    fabric: LedgerView,
    most_moves: int,
    movable: Callable[[Allocation], bool] | None = None,
    work: int = MOVES_WORK,
) -> SleepMoves:
    """Moves of at most ``most_moves`` tenants that empty leaves, those with fewest hosts first.

    Greedy: a leaf is emptied if each tenant on it can leave it for leaves in use, and has not
    moved for another leaf. No tenant moves onto an unused leaf. ``movable`` says which tenants may
    move; by default all may. Containers stay. The fabric is not changed.
    """
    now, draft, budget = unused_switches(fabric), fabric.copy(), RequestBudget(work)
    used = _used_hosts(draft)
    for group in range(draft.topology.groups):
        if not used[group]:
            _close(draft, group)
    moves: list[Nearest] = []
    for group in sorted(range(len(used)), key=lambda group: used[group].bit_count()):
        moved = {move.allocation.id for move in moves}
        tenants = _on_leaf(draft, group)
        if not tenants or len(moved) + len(tenants) > most_moves:
            continue
        free_to_go = movable is None or all(map(movable, tenants))
        if free_to_go and all(can_move(one) and one.id not in moved for one in tenants):
            moves += _emptied(draft, group, tenants, budget)
    return SleepMoves(tuple(moves), now, unused_switches(draft), budget.cut)


def unused_switches(fabric: LedgerView) -> UnusedSwitches:
    """The switches that no tenant uses now.

    A tenant on several leaves that owns no links may use every L2 switch and spine.
    """
    topology, everybody = fabric.topology, list(fabric.everybody())
    used = _used_hosts(fabric)
    leaves = tuple(
        divmod(group, topology.groups_per_pod)
        for group in range(topology.groups)
        if not used[group] and _hosts(topology, group)
    )
    tree, absent = topology.tree, topology.absent_links
    all_l2, all_spines = _ends(tree, (link for link in tree.links() if link not in absent))
    busy_l2, busy_spines = _ends(tree, (link for one in everybody for link in one.links(topology)))
    if any(len(one.groups) > 1 and not _owns_links(one, topology) for one in everybody):
        busy_l2, busy_spines = all_l2, all_spines
    return UnusedSwitches(
        leaves, tuple(sorted(all_l2 - busy_l2)), tuple(sorted(all_spines - busy_spines))
    )


def _ends(tree: Xgft, links: Iterable[Link]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """The L2 switches and the spines of links, as in ``UnusedSwitches``."""
    l2, spines = set[tuple[int, int]](), set[tuple[int, int]]()
    for link in links:
        if isinstance(link, LeafLink):
            l2.add((link.pod, link.up // tree.cables[0]))
        else:
            l2.add((link.pod, link.l2))
            spines.add((link.l2, link.up // tree.cables[1]))
    return l2, spines


def _emptied(
    draft: Ledger, group: int, tenants: Sequence[Allocation], budget: RequestBudget
) -> list[Nearest]:
    """The moves of all tenants off a leaf, made in the draft; none if one of them cannot leave."""
    leave, moves = _hosts(draft.topology, group), list[Nearest]()
    trial = draft.copy()
    _close(trial, group)
    for tenant in tenants:
        move = replacement(trial, tenant, tenant.requested, leave, budget)
        if move is None:
            return []
        trial.change(move.allocation)
        moves.append(move)
    _close(draft, group)
    for move in moves:
        draft.change(move.allocation)
    return moves


def _on_leaf(fabric: LedgerView, group: int) -> list[Allocation]:
    return [
        tenant
        for _, tenant in sorted(fabric.allocations.items())
        if any(share.group == group for share in tenant.groups)
    ]


def _used_hosts(fabric: LedgerView) -> list[int]:
    """By leaf group, the mask of the hosts that tenants have."""
    used = [0] * fabric.topology.groups
    for tenant in fabric.allocations.values():
        for group, hosts, _ in tenant.groups:
            used[group] |= hosts
    return used


def _hosts(topology: Topology, group: int) -> list[int]:
    numbers = (
        topology.host_at(group, position) for position in bits((1 << topology.hosts_per_group) - 1)
    )
    return [host for host in numbers if host is not None]


def _close(fabric: Ledger, group: int) -> None:
    """Let nobody have a host of a leaf newly."""
    for host in _hosts(fabric.topology, group):
        fabric.drain_host(host)


def _owns_links(allocation: Allocation, topology: Topology) -> bool:
    return next(iter(allocation.links(topology)), None) is not None
