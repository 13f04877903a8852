# SPDX-License-Identifier: Apache-2.0

"""Hosts, rails and leaf groups, recovered from the adapters' ports.

``machines`` says which adapters a host has. The number of rails R is the number of
leaves that most hosts are on. Hosts that share one leaf must share all R, and all groups must
spread their rails over pods in the same way. Other hosts are kept out of allocation, by name, and
so are hosts whose name compute would refuse. If
a host has two adapters on one leaf, the first is the rail's port.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from laas_service.adapters.fabric_import.ibnetdiscover import Kind
from laas_service.adapters.fabric_import.recovery.levels import natural
from laas_service.adapters.fabric_import.recovery.machines import Identity
from laas_service.adapters.fabric_import.recovery.report import Irregularity, Reason
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import HOST_NAME, HOST_NAME_RULE, PortRef
from laas_service.domain.wording import listed

Leaf = tuple[int, int]
"""(pod, leaf) of a leaf switch."""
Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter port: GUID, number, description, the switch port it is plugged into, and the
    line of the file that describes its adapter."""

    guid: int
    port: int
    kind: Kind
    name: str
    at: PortRef
    line: int
    identity: Identity

    @property
    def aggregation(self) -> bool:
        """Whether this is the aggregation node of a switch, and no host."""
        return self.identity.kept is Reason.AGGREGATION

    @property
    def of_a_machine(self) -> bool:
        """Whether a machine has it, named or not; no router, gateway or part of a switch."""
        return self.identity.kept in (None, Reason.NAMELESS, Reason.AMBIGUOUS)

    @property
    def host(self) -> str:
        """The host's name; "" if the description has none."""
        return self.identity.host

    @property
    def order(self) -> tuple[object, ...]:
        """Order of the adapters of a host: by the HCA's name, then by port."""
        return natural(self.identity.device), self.port, self.guid


@dataclass(frozen=True, slots=True)
class Selection:
    """Which hosts are for tenants, as shell patterns of host names."""

    exclude: tuple[str, ...] = ()
    """Hosts that are not for tenants."""

    include: tuple[str, ...] = ()
    """Hosts that are for tenants although ``exclude`` matches them."""

    managers: tuple[str, ...] = ()
    """Hosts that run a subnet manager: not for tenants, with the highest LIDs."""

    def manages(self, host: str) -> bool:
        return any(fnmatchcase(host, glob) for glob in self.managers)

    def includes(self, host: str) -> bool:
        return any(fnmatchcase(host, glob) for glob in self.include)

    def excludes(self, host: str) -> bool:
        excluded = any(fnmatchcase(host, glob) for glob in self.exclude)
        return self.manages(host) or (excluded and not self.includes(host))


@dataclass(frozen=True)
class TenantHosts:
    """The hosts for tenants, grouped by leaves."""

    rails: int
    """Number of rails R."""

    groups: tuple[tuple[Leaf, ...], ...]
    """The R leaves of each leaf group, in rail order."""

    hosts: tuple[tuple[Adapter, ...], ...]
    """The adapters of each host in rail order; hosts in order of their numbers."""

    other_groups: tuple[tuple[int, int], ...]
    """(leaves, hosts) of groups with another number of leaves; their hosts are kept out."""

    irregularities: tuple[Irregularity, ...]
    """Hosts that are kept out, and adapters plugged in unusually."""


@dataclass
class _Hosts:
    """State of the recovery: adapters of each host by leaf, in order of the adapters."""

    on: dict[str, dict[Leaf, list[Adapter]]]
    describe: Mapping[int, tuple[str, str]]
    odd: list[Irregularity] = field(default_factory=list)
    other_groups: list[tuple[int, int]] = field(default_factory=list)

    def report(self, kind: str, detail: str, adapters: Iterable[Adapter] = ()) -> None:
        cables = tuple(self.describe[adapter.guid] for adapter in adapters)
        self.odd.append(Irregularity(kind, detail, cables))

    def keep_out(self, hosts: Iterable[str], detail: str) -> None:
        for host in sorted(hosts, key=natural):
            adapters = [adapter for ports in self.on.pop(host).values() for adapter in ports]
            self.report("host breaks the rail pattern", f"{host} {detail}; kept out", adapters)

    def select_rails(self) -> int:
        """Determine R, and keep out the hosts on another number of leaves."""
        counts = Counter(len(leaves) for leaves in self.on.values())
        rails = max(counts, key=lambda n: (counts[n], n))
        others = grouped((frozenset(on), host) for host, on in self.on.items() if len(on) != rails)
        for leaf_set, hosts in sorted(others.items(), key=lambda item: sorted(item[0])):
            if len(hosts) > 1:
                self.other_groups.append((len(leaf_set), len(hosts)))
            self.keep_out(hosts, f"is on {len(leaf_set)} leaves where most hosts are on {rails}")
        return rails

    def members(self) -> dict[frozenset[Leaf], list[str]]:
        """Hosts by leaf set; of overlapping leaf sets the one with most hosts stays."""
        members = grouped((frozenset(on), host) for host, on in self.on.items())
        taken: set[Leaf] = set()
        for leaves in sorted(
            members, key=lambda leaf_set: (-len(members[leaf_set]), sorted(leaf_set))
        ):
            if leaves & taken:
                detail = "shares some, not all, of its leaves with a larger leaf group"
                self.keep_out(members.pop(leaves), detail)
            taken |= leaves
        return {leaves: hosts for leaves, hosts in members.items() if hosts}

    def rail_order(self, leaves: frozenset[Leaf], hosts: Sequence[str]) -> tuple[Leaf, ...]:
        """The leaves of a group in the order in which most hosts number their adapters."""
        ports = [self.on[host] for host in hosts]
        orders = [sorted(on, key=lambda leaf: on[leaf][0].order) for on in ports]
        return tuple(
            sorted(leaves, key=lambda leaf: (sum(order.index(leaf) for order in orders), leaf))
        )

    def in_port_order(self, hosts: Iterable[str], leaf: Leaf) -> list[str]:
        return sorted(hosts, key=lambda host: self.on[host][leaf][0].at)

    def report_order(self, leaves: tuple[Leaf, ...], hosts: Iterable[str]) -> None:
        """Report hosts whose adapters are plugged in another order than those of their group."""
        hca_of = {h: {leaf: self.on[h][leaf][0].order[0] for leaf in leaves} for h in hosts}
        for rail, leaf in enumerate(leaves):
            names = Counter(hca[leaf] for hca in hca_of.values())
            usual = max(names, key=lambda name: (names[name], name))
            for host in sorted(hca_of, key=natural):
                others = [hca_of[host][x] for x in leaves if x != leaf]
                if hca_of[host][leaf] != usual and usual in others:
                    adapter = self.on[host][leaf][0]
                    self.report(
                        "adapter on another rail",
                        f"{adapter.name} is on rail {rail}, where its leaf group has another "
                        "adapter; allocated as it is plugged in",
                        [adapter],
                    )

    def report_extra(self) -> None:
        """Report second adapters of a host on one leaf, unless most hosts have them."""
        sizes = Counter(len(ports) for on in self.on.values() for ports in on.values())
        usual = max(sizes, key=lambda size: (sizes[size], -size))
        if usual > 1:
            detail = f"{usual} adapters of a host on one leaf; only the first is a rail"
            self.report("several adapters on a leaf", detail)
        extra = [a for on in self.on.values() for ports in on.values() for a in ports[usual:]]
        for adapter in sorted(extra, key=lambda a: a.at):
            detail = "is an additional adapter of its host on this leaf; not allocated"
            self.report("extra adapter", f"{adapter.name} {detail}", [adapter])


def tenant_hosts(
    adapters: Iterable[Adapter],
    leaf_of: Mapping[int, Leaf],
    describe: Mapping[int, tuple[str, str]],
    selection: Selection,
) -> TenantHosts | None:
    """Recover the hosts for tenants; None if no leaf has a named host.

    ``leaf_of`` places the leaf switches, ``describe`` names the two ends of the cable
    of each adapter port.
    """
    work = _Hosts(defaultdict(lambda: defaultdict(list)), describe)
    misplaced: dict[str, list[Adapter]] = defaultdict(list)
    nameless: dict[str, list[Adapter]] = defaultdict(list)
    misnamed: dict[str, list[Adapter]] = defaultdict(list)
    for adapter in sorted(adapters, key=lambda a: a.order):
        host = adapter.host
        ambiguous = adapter.identity.kept is Reason.AMBIGUOUS
        if ambiguous or not adapter.of_a_machine or (host and selection.excludes(host)):
            continue
        if host and not HOST_NAME.fullmatch(host):
            misnamed[host].append(adapter)
        elif adapter.at.guid not in leaf_of:
            misplaced[host].append(adapter)
        elif host:
            work.on[host][leaf_of[adapter.at.guid]].append(adapter)
        else:
            nameless[adapter.name].append(adapter)
    for name, ports in sorted(nameless.items()):
        detail = f"{len(ports)} ports are described only as {name!r}; kept out"
        work.report("adapters without a host name", detail, ports)
    for host, ports in sorted(misnamed.items()):
        lines = listed(sorted({f"line {adapter.line}" for adapter in ports}))
        detail = f"{host} ({lines}) kept out; {HOST_NAME_RULE}"
        work.report("host name that compute refuses", detail, ports)
    for host, ports in sorted(misplaced.items()):
        work.report("host above the leaves", f"{host or 'a nameless host'} kept out", ports)
        work.on.pop(host, None)
    work.on = dict(work.on)
    if not work.on:
        return None
    rails = work.select_rails()
    members = work.members()
    groups = {work.rail_order(leaves, hosts): hosts for leaves, hosts in members.items()}
    groups = _paired_pods(work, groups)
    if not groups:
        return None
    for leaves, hosts in groups.items():
        work.report_order(leaves, hosts)
    work.report_extra()
    order = sorted(groups)
    numbered = [
        tuple(work.on[host][leaf][0] for leaf in leaves)
        for leaves in order
        for host in work.in_port_order(groups[leaves], leaves[0])
    ]
    return TenantHosts(
        rails, tuple(order), tuple(numbered), tuple(work.other_groups), tuple(work.odd)
    )


def _paired_pods(
    work: _Hosts, groups: dict[tuple[Leaf, ...], list[str]]
) -> dict[tuple[Leaf, ...], list[str]]:
    """Select the groups that follow the common pattern, with rails in the order of planes.

    A group's *planes* are the pods of its leaves. All groups must spread their leaves over
    planes in the same proportions, and two groups that share one pod must share all. The
    majority of hosts decides; hosts of other groups are kept out.
    """
    spread, patterns, orders = Counter[Numbers](), Counter[Numbers](), Counter[Numbers]()
    for leaves, hosts in groups.items():
        spread[_sizes(leaves)] += len(hosts)
    usual = max(spread, key=lambda sizes: (spread[sizes], sizes))
    alike = [leaves for leaves in groups if _sizes(leaves) == usual]
    for leaves in alike:
        patterns[_pattern(leaves)] += len(groups[leaves])
    pattern = patterns.most_common(1)[0][0]
    for leaves in alike:
        orders[_planes(leaves, pattern)] += len(groups[leaves])
    accepted: dict[frozenset[int], tuple[int, ...]] = {}
    taken: set[int] = set()
    for planes in sorted(orders, key=lambda p: (-orders[p], p)):
        if not taken.intersection(planes):
            accepted[frozenset(planes)] = planes
            taken.update(planes)
    kept: dict[tuple[Leaf, ...], list[str]] = {}
    for leaves, hosts in groups.items():
        planes = accepted.get(frozenset(pod for pod, _ in leaves), ())
        ordered = _in_planes(leaves, pattern, planes)
        if ordered:
            kept[ordered] = hosts
        else:
            work.keep_out(hosts, "has its leaves in other pods than most hosts")
    return kept


def _pods(leaves: tuple[Leaf, ...]) -> list[int]:
    return [pod for pod, _ in leaves]


def _sizes(leaves: tuple[Leaf, ...]) -> tuple[int, ...]:
    return tuple(sorted(Counter(_pods(leaves)).values()))


def _pattern(leaves: tuple[Leaf, ...]) -> tuple[int, ...]:
    """The plane of each rail, planes numbered as they occur."""
    distinct = list(dict.fromkeys(_pods(leaves)))
    return tuple(distinct.index(pod) for pod in _pods(leaves))


def _planes(leaves: tuple[Leaf, ...], pattern: tuple[int, ...]) -> tuple[int, ...]:
    """The pods of a group in an order that fits the pattern's proportions."""
    size = Counter(_pods(leaves))
    left = list(size)
    planes = []
    for plane in range(max(pattern) + 1):
        pod = next(pod for pod in left if size[pod] == pattern.count(plane))
        left.remove(pod)
        planes.append(pod)
    return tuple(planes)


def _in_planes(
    leaves: tuple[Leaf, ...], pattern: tuple[int, ...], planes: tuple[int, ...]
) -> tuple[Leaf, ...]:
    """The leaves so ordered that rail r is in pod ``planes[pattern[r]]``; () if impossible."""
    waiting = {pod: [leaf for leaf in leaves if leaf[0] == pod] for pod in planes}
    if any(len(waiting[pod]) != pattern.count(plane) for plane, pod in enumerate(planes)):
        return ()
    return tuple(waiting[planes[plane]].pop(0) for plane in pattern) if planes else ()
