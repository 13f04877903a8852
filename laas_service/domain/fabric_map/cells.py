# SPDX-License-Identifier: Apache-2.0

"""Matrices of a fabric's cables by level: one row a switch, one column a port, one cell a cable.

A fat-tree is shown as adjacency matrices by level, as TreeScope does (EuroVis 2018), because a
drawing of nodes and lines cannot be read beyond some hundred switches. Three matrices make a
map: hosts on leaves (row: leaf, column: position), leaf links (row: leaf, column: uplink) and spine
links (row: L2 switch, column: uplink). Rows and columns are in the order of the snapshot's
indices, so a cell's row and column are the index of its link.

Cells are byte strings in base64, row by row: ``owner`` has two bytes a cell (little-endian),
``state`` and ``load`` have one.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from laas_service.domain.allocation import WHOLE, Allocation
from laas_service.domain.fabric_map.drawing import tree_drawing
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import Link, Xgft

FORM = 1
"""The form of the document; grows if a field changes its meaning."""

ABSENT, FREE, OTHERS, WITHHELD, FIRST_TENANT = range(5)
"""Values of ``owner``: no cable; free; not the viewer's; of the common plane; from
``FIRST_TENANT`` on, tenants in the order of ``tenants``."""

NOTHING, UP, DRAINED, FAILED = range(4)
"""Values of ``state``."""

UNKNOWN = 255
"""The value of ``load`` for a cable whose load the viewer may not see."""

MOST_TENANTS = (1 << 16) - FIRST_TENANT
"""The most tenants that a map shows; the cells of further ones look like those of others."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks at the map: ``owned`` are the ids whose cells are shown; None shows everything.

    To a viewer that does not see everything, all other cells look the same: neither owner, nor
    state, nor whether they are free or exist, and no names of hosts and switches there.
    """

    owned: frozenset[str] | None = None

    def sees(self, owner: str | None) -> bool:
        return self.owned is None or owner in self.owned


@dataclass(slots=True)
class _Matrix:
    """One matrix while it is filled; ``first`` is the number of the cable in its first cell."""

    rows: int
    columns: int
    owner: array[int] = field(init=False)
    state: bytearray = field(init=False)
    load: bytearray = field(init=False)

    def __post_init__(self) -> None:
        cells = self.rows * self.columns
        self.owner = array("H", [ABSENT]) * cells
        self.state, self.load = bytearray(cells), bytearray(cells)

    def hide(self, hidden: Iterable[int]) -> None:
        for cell in hidden:
            self.owner[cell], self.state[cell], self.load[cell] = OTHERS, UP, UNKNOWN

    def document(self) -> dict[str, Any]:
        owner = self.owner
        if sys.byteorder == "big":
            owner = array("H", owner)
            owner.byteswap()
        return {
            "rows": self.rows,
            "columns": self.columns,
            "owner": _text(owner.tobytes()),
            "state": _text(bytes(self.state)),
            "load": _text(bytes(self.load)),
        }


def _text(cells: bytes) -> str:
    return b64encode(cells).decode()


def fabric_map(
    ledger: LedgerView,
    inventory: Inventory,
    tenants: Sequence[Mapping[str, Any]],
    viewer: Viewer = Viewer(),
) -> dict[str, Any]:
    """The map as a JSON object: ``tree``, ``matrices``, ``tenants``, names of rows and hosts.

    ``tenants`` are JSON objects with at least ``id``, in the order of their colours; those that
    the viewer does not see are left out, and so are those without an allocation in ``ledger``.
    Each gets ``hosts``, ``leaf_links``, ``spine_links`` (numbers of them) and ``drawing``, its own
    tree in SVG. ``shared`` lists the cells with more than one owner.
    """
    topology = ledger.topology
    tree = topology.tree
    placed = {allocation.id: allocation for allocation in ledger.everybody()}
    shown = [tenant for tenant in tenants if viewer.sees(tenant["id"]) and tenant["id"] in placed]
    shown = shown[:MOST_TENANTS]
    number = {tenant["id"]: FIRST_TENANT + place for place, tenant in enumerate(shown)}
    matrices = (
        _Matrix(tree.leaves, tree.m[0]),
        _Matrix(tree.leaves, tree.w[1]),
        _Matrix(tree.m[2] * tree.l2_per_pod, tree.w[2]),
    )
    hosts, leaves, spines = matrices
    shared = _owners(ledger, number, matrices)
    _states(ledger, inventory, matrices)
    if viewer.owned is not None:
        for matrix in matrices:
            matrix.hide(cell for cell, owner in enumerate(matrix.owner) if owner < FIRST_TENANT)
        shared = {"leaf": {}, "spine": {}}
    names = _Names(ledger, inventory, viewer, hosts, leaves, spines)
    return {
        "form": FORM,
        "tree": {
            "m": list(tree.m),
            "w": list(tree.w),
            "cables": list(tree.cables),
            "rails": topology.rails,
        },
        "everything": viewer.owned is None,
        "matrices": {
            "hosts": hosts.document(),
            "leaf": leaves.document() | names.ports(leaves, 0),
            "spine": spines.document() | names.ports(spines, tree.leaf_links),
        },
        "shared": shared,
        "switches": names.switches(),
        "hosts": names.hosts(),
        "tenants": [_tenant(tenant, placed[tenant["id"]], ledger, inventory) for tenant in shown],
    }


def _owners(
    ledger: LedgerView, number: Mapping[str, int], matrices: Sequence[_Matrix]
) -> dict[str, dict[int, list[int]]]:
    """Fill in owners and loads of everybody; returns the cells with several owners.

    An allocation inside a container comes after the container, so the innermost owner stays.
    """
    topology, tree = ledger.topology, ledger.topology.tree
    hosts, leaves, spines = matrices
    reserved: dict[int, int] = defaultdict(int)
    sharing: dict[int, list[int]] = defaultdict(list)
    for allocation in ledger.everybody():
        colour = number.get(allocation.id, OTHERS)
        for host in allocation.hosts(topology):
            for cell in host_cells(ledger, host):
                hosts.owner[cell], hosts.load[cell] = colour, 100
        for link in allocation.links(topology):
            at = tree.link_id(link)
            matrix, cell = (leaves, at) if at < tree.leaf_links else (spines, at - tree.leaf_links)
            if allocation.parent is None:
                reserved[at] += allocation.bandwidth
            matrix.owner[cell] = colour
            matrix.load[cell] = min(100 * reserved[at] // WHOLE, UNKNOWN - 1)
            if allocation.bandwidth < WHOLE:
                sharing[at].append(colour - FIRST_TENANT)
    several = {at: owners for at, owners in sharing.items() if len(owners) > 1}
    return {
        "leaf": {at: owners for at, owners in several.items() if at < tree.leaf_links},
        "spine": {
            at - tree.leaf_links: owners for at, owners in several.items() if at >= tree.leaf_links
        },
    }


def host_cells(ledger: LedgerView, host: int) -> Iterable[int]:
    """The cells of a host's ports in the matrix of hosts, in rail order."""
    tree = ledger.topology.tree
    for port in ledger.topology.ports_of(host):
        yield tree.leaf_id(port.pod, port.leaf) * tree.m[0] + port.k


def _states(ledger: LedgerView, inventory: Inventory, matrices: Sequence[_Matrix]) -> None:
    """Fill in states; free cells get their owner ``FREE`` or ``WITHHELD``."""
    topology, tree = ledger.topology, ledger.topology.tree
    hosts, leaves, spines = matrices
    for host, name in enumerate(inventory.host_names):
        if not name or host in topology.absent_hosts:
            continue
        state = FAILED if host in ledger.failed_hosts else UP
        if state is UP and host in ledger.drained_hosts:
            state = DRAINED
        for cell in host_cells(ledger, host):
            hosts.state[cell] = state
            hosts.owner[cell] = hosts.owner[cell] or FREE
    withheld = set(map(tree.link_id, ledger.shared_plane.links(tree)))
    down = dict.fromkeys(map(tree.link_id, ledger.drained_links), DRAINED)
    down |= dict.fromkeys(map(tree.link_id, ledger.failed_links), FAILED)
    absent = set(map(tree.link_id, topology.absent_links))
    for matrix, first in ((leaves, 0), (spines, tree.leaf_links)):
        for cell in range(matrix.rows * matrix.columns):
            at = first + cell
            if at in absent:
                continue
            matrix.state[cell] = down.get(at, UP)
            if not matrix.owner[cell]:
                matrix.owner[cell] = WITHHELD if at in withheld else FREE


class _Names:
    """Names of hosts, switches and ports, as far as the viewer may see them."""

    def __init__(
        self,
        ledger: LedgerView,
        inventory: Inventory,
        viewer: Viewer,
        hosts: _Matrix,
        leaves: _Matrix,
        spines: _Matrix,
    ) -> None:
        self._ledger, self._inventory = ledger, inventory
        self._tree: Xgft = ledger.topology.tree
        self._all = viewer.owned is None
        self._hosts = hosts
        self._own_leaves = self._rows(hosts, leaves)
        self._own_l2 = self._rows(spines) | {
            self._l2_above(cell) for cell, owner in enumerate(leaves.owner) if owner >= FIRST_TENANT
        }
        self._own_spines = {
            self._spine_above(cell)
            for cell, owner in enumerate(spines.owner)
            if owner >= FIRST_TENANT
        }

    @staticmethod
    def _rows(*matrices: _Matrix) -> set[int]:
        return {
            cell // matrix.columns
            for matrix in matrices
            for cell, owner in enumerate(matrix.owner)
            if owner >= FIRST_TENANT
        }

    def _l2_above(self, cell: int) -> int:
        leaf, up = divmod(cell, self._tree.w[1])
        return self._tree.l2_id(leaf // self._tree.m[1], up // self._tree.cables[0])

    def _spine_above(self, cell: int) -> int:
        l2, up = divmod(cell, self._tree.w[2])
        group = l2 % self._tree.l2_per_pod
        return group * self._tree.spines_per_group + up // self._tree.cables[1]

    def switches(self) -> dict[str, list[list[str]]]:
        """By level, name and GUID of the switch in each row; empty texts for one not shown."""
        inventory = self._inventory
        known = inventory.switch_of_guid

        def row(guid: int, seen: bool) -> list[str]:
            if guid not in known or not seen:
                return ["", ""]
            return [known[guid].name, f"{guid:#018x}"]

        return {
            level: [row(guid, self._all or at in own) for at, guid in enumerate(guids)]
            for level, guids, own in (
                ("leaf", inventory.leaf_guids, self._own_leaves),
                ("l2", inventory.l2_guids, self._own_l2),
                ("spine", inventory.spine_guids, self._own_spines),
            )
        }

    def hosts(self) -> list[list[Any]]:
        """Name, cell of each rail, and port GUIDs of each host that is shown."""
        shown = []
        for host, name in enumerate(self._inventory.host_names):
            cells = list(host_cells(self._ledger, host))
            if not name or not self._hosts.state[cells[0]]:
                continue
            if self._all or self._hosts.owner[cells[0]] >= FIRST_TENANT:
                ends = (
                    self._inventory.endpoint_of_port.get((host, rail)) for rail in range(len(cells))
                )
                shown.append([name, cells, [f"{end.guid:#018x}" for end in ends if end]])
        return shown

    def ports(self, matrix: _Matrix, first: int) -> dict[str, str]:
        """Port numbers at the lower and the upper end of each cell's cable; 0: not known."""
        ends: tuple[array[int], array[int]] = (
            array("H", bytes(2 * len(matrix.state))),
            array("H", bytes(2 * len(matrix.state))),
        )
        tree = self._tree
        for link, cable in self._inventory.cable_of_link.items():
            cell = tree.link_id(link) - first
            if 0 <= cell < len(matrix.state) and (self._all or matrix.owner[cell] >= FIRST_TENANT):
                ends[0][cell], ends[1][cell] = cable.lower.port, cable.upper.port
        if sys.byteorder == "big":
            for ports in ends:
                ports.byteswap()
        return {"lower": _text(ends[0].tobytes()), "upper": _text(ends[1].tobytes())}


def _tenant(
    tenant: Mapping[str, Any], allocation: Allocation, ledger: LedgerView, inventory: Inventory
) -> dict[str, Any]:
    topology = ledger.topology
    failed: Callable[[Link], bool] = ledger.failed_links.__contains__
    return {
        **tenant,
        "hosts": allocation.size,
        "leaf_links": sum(1 for _ in allocation.leaf_links(topology)),
        "spine_links": sum(1 for _ in allocation.spine_links(topology)),
        "drawing": tree_drawing(
            str(tenant.get("name") or allocation.id),
            allocation,
            topology,
            inventory.host_names,
            failed,
        ),
    }


def cells_of(ledger: LedgerView, allocation: Allocation) -> dict[str, list[int]]:
    """The cells of an allocation in each matrix; marks where a request would lie."""
    topology, tree = ledger.topology, ledger.topology.tree
    return {
        "hosts": [c for h in allocation.hosts(topology) for c in host_cells(ledger, h)],
        "leaf": [tree.link_id(link) for link in allocation.leaf_links(topology)],
        "spine": [
            tree.link_id(link) - tree.leaf_links for link in allocation.spine_links(topology)
        ],
    }
