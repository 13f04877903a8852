# SPDX-License-Identifier: Apache-2.0

"""The links that packets cross between the hosts of an allocation, by its forwarding tables.

The tables are those of ``tenant_tables`` for the whole allocation, a container or a part of the
fabric that is set aside: by destination and static. Its hosts are the machines of a tree, so the
engines for trees work on them. A link has one number for each direction.

While links have failed, packets take others until all are up again. What is admitted then has to
fit both the tables of today and those without faults. So each link between switches has two
numbers for each direction, one as either tables use it, and every path has the links of both.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import InvalidInput
from laas_service.domain.routing.tenant_tables import CompactedTree, NamedLink, tenant_ports
from laas_service.domain.sharing.cluster import Whole
from laas_service.domain.sharing.tree import SlotTree
from laas_service.domain.topology import LeafLink, Link, Topology, link_name

NO_LINK, NO_ROUTE = 0, 1
"""Numbers of no link: the packet has arrived; the tables have no entry."""

STEPS = 4
"""Most links between two leaves: two up, two down."""


class Cut(NamedTuple):
    """The links between switches above the vertices of a level."""

    vertices: Whole
    """Those with a link, ascending."""
    links: Whole
    """Places in ``Routes.links``, in order of the vertices."""
    starts: Whole
    """Where in ``links`` those of each vertex begin."""


class Routes:
    """The directed links of an allocation, and the link that each switch takes to each machine.

    Machine ``group * hosts_per_group + position`` of the tree is the host at that position of a
    leaf group. Links are numbered: ``NO_LINK``, ``NO_ROUTE``, up and down of each link between
    switches, as today's tables use it and, where links have ``failed``, as the tables without
    faults (``whole``) do; then from each machine to its leaf, then from the leaf to each machine.

    ``names`` are those of the hosts of the fabric, for operators. Safe to share between threads.

    Raises:
        InvalidInput: hosts have more than one rail.
    """

    def __init__(
        self,
        topology: Topology,
        allocation: Allocation,
        failed: Collection[Link] = (),
        names: Sequence[str] = (),
        whole: Routes | None = None,
    ) -> None:
        if topology.rails > 1:
            raise InvalidInput("rails", topology.rails, "shared hosts have one rail")
        self.topology, self.hosts = topology, allocation.hosts(topology)
        self._names = names
        pods = (topology.pods,) if topology.pods > 1 else ()
        children = (topology.hosts_per_group, topology.groups_per_pod, *pods)
        self.tree = SlotTree(children, 1, (1.0,) * len(children))
        """Its slots and capacities are not used: a site has its own for each machine and link."""
        self._tree = topology.tree
        own: list[Link] = [
            *sorted(allocation.leaf_links(topology)),
            *sorted(allocation.spine_links(topology)),
        ]
        self.numbers = {link: number for number, link in enumerate(own)}
        """The place of each link in ``links``, as today's tables use it."""
        self.failed = frozenset(failed).intersection(self.numbers)
        """Its links that are down."""
        self.whole = (whole or Routes(topology, allocation, (), names)) if self.failed else None
        """The routes without faults; None if these are they."""
        self.links = own if self.whole is None else own * 2
        """By number: as today's tables use them, then as those without faults do."""
        self.of_hosts = 2 + 2 * len(self.links)
        """Number of the link from machine 0 to its leaf."""
        self.count = self.of_hosts + 2 * self.tree.machines
        """Numbers of links in all, ``NO_LINK`` and ``NO_ROUTE`` included."""
        self.machines = np.array([self.machine_of(host) for host in self.hosts], dtype=np.int64)
        leaves = [(topology.leaves_of_group(g) or (-1,))[0] for g in range(topology.groups)]
        self.leaf_of = np.repeat(np.array(leaves, dtype=np.int64), topology.hosts_per_group)
        """By machine: the id of its leaf."""
        self.vertex_of, self.level_of = self._ends()
        l2 = self._tree.l2_id(self._tree.m[2], 0)
        spines = self._tree.l2_per_pod * self._tree.spines_per_group
        self._switches = self._tree.leaves + l2 + spines
        self._head = np.full(2 + 2 * len(own), -1, dtype=np.int64)
        self._out = np.zeros((self.tree.machines, self._switches), dtype=np.int32)
        """By machine and switch: the number of the link taken, less ``NO_ROUTE``."""
        self._partition = CompactedTree(topology, allocation, self._named, self.failed)
        self._machines_of = {
            leaf: np.array([self.machine_of(host) for host in hosts], dtype=np.int64)
            for leaf, _, hosts in tenant_ports(topology, allocation)
        }
        self._missing = np.zeros(int(self.leaf_of.max()) + 1, dtype=bool)
        """By leaf: whether the entries towards its machines are still to be filled in."""
        self._missing[list(self._machines_of)] = True
        self._filling = threading.Lock()
        """Held while the entries towards one leaf are filled in."""
        for link in own:
            x = self._named(link)
            self._head[x.up], self._head[x.down] = x.upper, x.lower

    def machine_of(self, host: int) -> int:
        """The machine that a host is."""
        group, position = self.topology.place_of(host)
        return group * self.topology.hosts_per_group + position

    def host_of(self, machine: int) -> int:
        """The host that a machine of the allocation is."""
        host = self.topology.host_at(*divmod(machine, self.topology.hosts_per_group))
        assert host is not None
        return host

    def name(self, link: int) -> str:
        """A directed link, for operators."""
        if link < 2:
            return "no route"
        if link < self.of_hosts:
            number, down = divmod(link - 2, 2)
            return f"link {link_name(self.links[number])} {'down' if down else 'up'}"
        down, machine = divmod(link - self.of_hosts, self.tree.machines)
        host = self.host_of(machine)
        return f"link {'to' if down else 'from'} host {self._names[host] if self._names else host}"

    @property
    def without_faults(self) -> int:
        """The first number of a link as the tables without faults use it."""
        return 2 if self.whole is None else 2 + 2 * len(self.numbers)

    @cached_property
    def lost(self) -> Whole:
        """Numbers, as today's tables use them, of the links that are down."""
        up = [2 + 2 * self.numbers[link] for link in sorted(self.failed)]
        return np.array([number + down for number in up for down in (0, 1)], dtype=np.int64)

    @cached_property
    def cuts(self) -> dict[int, list[Cut]]:
        """By level of the tree: the links above its vertices by which either tables lead."""
        found = {}
        places = np.arange(len(self.links))
        here = ~np.isin(2 + 2 * places, self.lost)
        today = places < len(self.numbers)
        for level in range(1, self.tree.top):
            found[level] = [
                self._cut(np.nonzero(here & of_tables & (self.level_of == level))[0])
                for of_tables in ([today] if self.whole is None else [today, ~today])
            ]
        return found

    def _cut(self, links: Whole) -> Cut:
        links = links[np.argsort(self.vertex_of[links], kind="stable")]
        vertices, starts = np.unique(self.vertex_of[links], return_index=True)
        return Cut(vertices, links, starts)

    @cached_property
    def physical(self) -> NDArray[np.int64]:
        """By number of link: that of the link and direction in the fabric (``Promise.link``).

        -1 for ``NO_LINK`` and ``NO_ROUTE``.
        """
        tree = self._tree
        cables = np.array([tree.link_id(link) for link in self.links], dtype=np.int64)
        between = np.stack([2 * cables, 2 * cables + 1], axis=1).ravel()
        numbers = np.full(self.tree.machines, -1, dtype=np.int64)
        numbers[self.machines] = tree.leaf_links + tree.spine_links + np.array(self.hosts)
        ends = np.concatenate([2 * numbers, 2 * numbers + 1])
        return np.concatenate([np.array([-1, -1]), between, ends])

    @cached_property
    def number_of(self) -> dict[int, int]:
        """``physical`` the other way round; links as the tables without faults use them."""
        return {number: at for at, number in enumerate(self.physical.tolist()) if number >= 0}

    def walk(self, leaves: Whole, machines: Whole) -> NDArray[np.int32]:
        """Numbers of the links from each leaf to each machine, shape (leaves, machines, steps).

        Links of hosts are left out. ``STEPS`` for either tables: after the last link follows
        ``NO_LINK``; where the tables lead nowhere, ``NO_ROUTE``.
        """
        goals = self.leaf_of[machines]
        if self._missing[goals].any():
            self._fill(np.unique(goals))
        at = np.broadcast_to(leaves[:, None], (len(leaves), len(machines))).copy()
        goal, steps = goals[None, :], []
        for _ in range(STEPS):
            link = np.where(at == goal, NO_LINK, NO_ROUTE + self._out[machines[None, :], at])
            steps.append(link)
            at = np.where(link > NO_ROUTE, self._head[link], np.where(link == NO_ROUTE, goal, at))
        today = np.stack(steps, axis=2).astype(np.int32)
        if self.whole is None:
            return today
        others = self.whole.walk(leaves, machines)
        others[others > NO_ROUTE] += self.without_faults - 2
        return np.concatenate([today, others], axis=2)

    def redirected(self, uplinks: Mapping[tuple[int, int], int]) -> Routes:
        """Copy these routes; leaves reach machines of their pod over other uplinks.

        ``uplinks`` are by (leaf id, machine) and count cables; the machine's leaf has each, too.
        """
        self._fill(np.array(list(self._machines_of)))
        routes = copy(self)
        routes._out = self._out.copy()
        leaves = self._tree.m[1]
        for (leaf, machine), uplink in uplinks.items():
            ends = leaf, int(self.leaf_of[machine])
            up, down = (self.numbers[LeafLink(*divmod(end, leaves), uplink)] for end in ends)
            above = self._head[2 + 2 * up]
            routes._out[machine, leaf] = 2 + 2 * up - NO_ROUTE
            routes._out[machine, above] = 3 + 2 * down - NO_ROUTE
        return routes

    def _l2(self, pod: int, up: int) -> int:
        return self._tree.leaves + self._tree.l2_id(pod, up // self._tree.cables[0])

    def _spine(self, l2: int, up: int) -> int:
        spine = l2 * self._tree.spines_per_group + up // max(1, self._tree.cables[1])
        return self._tree.leaves + self._tree.l2_id(self._tree.m[2], 0) + spine

    def _named(self, link: Link) -> NamedLink[int]:
        number = self.numbers[link]
        up, down = 2 + 2 * number, 3 + 2 * number
        pod, lower, port = link
        if isinstance(link, LeafLink):
            return NamedLink(link, self._tree.leaf_id(pod, lower), self._l2(pod, port), up, down)
        l2 = self._tree.leaves + self._tree.l2_id(pod, lower)
        return NamedLink(link, l2, self._spine(lower, port), up, down)

    def _ends(self) -> tuple[Whole, Whole]:
        """By link between switches: the vertex of the tree below it, and the vertex's level."""
        group = {leaf[0]: g for leaf, g in self._groups()}
        pod_of = {leaf[0] // self._tree.m[1]: g for leaf, g in self._groups()}
        vertices, levels = [], []
        for link in self.links:
            if isinstance(link, LeafLink):
                vertices.append(group[self._tree.leaf_id(link.pod, link.leaf)])
                levels.append(1)
            else:
                vertices.append(pod_of[link.pod] // self.topology.groups_per_pod)
                levels.append(2)
        return np.array(vertices, dtype=np.int64), np.array(levels, dtype=np.int64)

    def _groups(self) -> list[tuple[tuple[int, ...], int]]:
        groups = ((self.topology.leaves_of_group(g), g) for g in range(self.topology.groups))
        return [(leaves, g) for leaves, g in groups if leaves]

    def read_ahead(self) -> Iterator[None]:
        """Fill in all entries, one leaf at each step."""
        for leaf in self._machines_of:
            self._fill(np.array([leaf]))
            yield
        if self.whole is not None:
            yield from self.whole.read_ahead()

    def _fill(self, leaves: Whole) -> None:
        """Fill in the entries towards the machines of leaves, where they are missing.

        Those of a whole fabric of 11,664 hosts take seconds, and most are never asked for.
        """
        for leaf in leaves[self._missing[leaves]].tolist():
            with self._filling:
                if not self._missing[leaf]:
                    continue
                machines = self._machines_of[leaf]
                entries = self._partition.entries(leaf, len(machines))
                working = [(switch, out) for switch, out, reached in entries if reached]
                if working:
                    switches, ports = zip(*working, strict=True)
                    self._out[np.ix_(machines, switches)] = np.array(ports).T - NO_ROUTE
                self._missing[leaf] = False
