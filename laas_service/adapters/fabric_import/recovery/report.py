# SPDX-License-Identifier: Apache-2.0

"""Import report: counts of what was recognised, and every irregularity."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from laas_service.domain.grouping import grouped
from laas_service.domain.topology import Topology


@dataclass(frozen=True, slots=True)
class Irregularity:
    """One irregularity of an imported fabric."""

    kind: str
    detail: str
    """A sentence for operators."""

    cables: tuple[tuple[str, str], ...] = ()
    """The two ends of each cable concerned, as ``name[guid] port N``; without ports if the
    cable is missing."""

    @property
    def example(self) -> str:
        """The detail with the first cable alone."""
        more = f" and {len(self.cables) - 1} more" if len(self.cables) > 1 else ""
        return self.detail + "".join(f" ({a} - {b}{more})" for a, b in self.cables[:1])

    def __str__(self) -> str:
        cables = "; ".join(f"{a} - {b}" for a, b in self.cables)
        return f"{self.kind}: {self.detail}" + (f" ({cables})" if cables else "")


class Reason(StrEnum):
    """Why a machine or an adapter is kept out of allocation; programs read the values."""

    SERVICE = "service"
    """Plugged in above the leaves, or outside the rail pattern of the tenants' hosts."""

    EXCLUDED = "excluded"
    """Named by ``--exclude``."""

    SUBNET_MANAGER = "subnet_manager"
    """Named by ``--subnet-manager``, or beside such a manager."""

    NAMELESS = "nameless"
    """The description names no machine."""

    AMBIGUOUS = "ambiguous"
    """One name, several machines."""

    ROUTER = "router"
    GATEWAY = "gateway"
    AGGREGATION = "aggregation"
    SERVICE_PROCESSOR = "service_processor"

    UNWIRED = "unwired"
    """No cable leads to a switch of the tree."""

    UNREACHABLE = "unreachable"
    """No path over working cables."""


@dataclass(frozen=True, slots=True)
class KeptOut:
    """Machines or adapters that allocation does not use, of one kind and for one reason."""

    kind: Reason
    reason: str
    """A sentence for operators, with the way to get them in."""

    guids: tuple[int, ...]
    """Port GUIDs, ascending."""

    names: tuple[str, ...]
    """Host names, or descriptions where there is no name; in natural order, each once."""

    @property
    def count(self) -> int:
        """Machines if they have names, else adapter ports."""
        return len(self.guids) if self.kind in _PARTS else len(self.names)

    def document(self) -> dict[str, Any]:
        """What programs read of it."""
        return {
            "kind": self.kind.value,
            "reason": self.reason,
            "count": self.count,
            "guids": [f"{guid:#018x}" for guid in self.guids],
            "names": list(self.names),
        }


_PARTS = frozenset(
    {
        Reason.NAMELESS,
        Reason.AMBIGUOUS,
        Reason.AGGREGATION,
        Reason.ROUTER,
        Reason.GATEWAY,
        Reason.UNWIRED,
    }
)
"""Kinds whose names tell no machines apart."""


@dataclass(frozen=True)
class ImportReport:
    """Counts of what an import recognised, and its irregularities."""

    source: str
    switches: tuple[int, ...]
    """Number of switches of each level, from the leaves up."""

    pods: tuple[tuple[int, int], ...]
    """(leaves, L2 switches) of each pod."""

    topology: Topology
    leaf_groups: tuple[int, ...]
    """Number of hosts of each leaf group."""

    other_groups: tuple[tuple[int, int], ...]
    """(leaves, hosts) of groups with another number of leaves; their hosts are kept out."""

    hosts: int
    """Number of hosts for tenants."""

    named_hosts: int
    """Number of different host names in descriptions of adapters."""

    host_ports: int
    """Number of adapter ports, without those of aggregation nodes."""

    aggregation_nodes: int
    excluded_ports: int
    cables: int
    irregular_cables: int
    absent_cables: int
    irregularities: tuple[Irregularity, ...] = ()
    kept_out: tuple[KeptOut, ...] = ()
    skipped: tuple[tuple[int, str], ...] = field(default=(), repr=False)
    """Number and text of the lines that do not belong to a dump."""

    def counts(self) -> Iterator[str]:
        """What was recognised, in numbers."""
        tree, rails = self.topology.tree, self.topology.rails
        levels = " / ".join(map(str, self.switches))
        yield f"{self.source}: {sum(self.switches)} switches on levels of {levels}"
        yield (
            f"tree XGFT(3; {','.join(map(str, tree.m))}; {','.join(map(str, tree.w))}), "
            f"{tree.cables[0]} and {tree.cables[1]} parallel cables, "
            f"taper {tree.taper[0]}:1 at leaves and {tree.taper[1]}:1 at L2 switches"
        )
        pods = Counter(self.pods)
        shapes = ", ".join(f"{n} of {a} leaves and {b} L2" for (a, b), n in pods.items())
        yield f"{len(self.pods)} pods: {shapes}"
        yield (
            f"{self.hosts} hosts for tenants of {self.named_hosts} named, "
            f"{rails} rail(s) in {self.topology.planes} plane(s), {self.host_ports} host ports, "
            f"{self.aggregation_nodes} aggregation nodes, {self.excluded_ports} ports excluded"
        )
        yield f"{len(self.leaf_groups)} leaf groups of {rails} leaves: {_sizes(self.leaf_groups)}"
        for leaves, hosts in self.other_groups:
            yield f"a leaf group of {leaves} leaves with {hosts} hosts, kept out"
        yield (
            f"{self.cables} switch-to-switch cables, {self.irregular_cables} of them outside the "
            f"regular tree; {self.absent_cables} places of cables between present switches empty"
        )

    def page(self) -> Iterator[str]:
        """The report with one line for each kind of finding: its number, and one example.

        What an operator has to act on comes first, then the counts, and what is kept out.
        """
        first, *counts = self.counts()
        yield first
        kinds = grouped((each.kind, each) for each in self.irregularities)
        shown_kinds = [kind for kind in kinds if not (self.kept_out and kind in _MACHINES)]
        actions = [kind for kind in ACTIONS if kind in shown_kinds]
        for title, here, following in (
            ("to act on", actions, counts),
            ("for information", sorted(set(shown_kinds) - set(actions)), ()),
        ):
            if here:
                yield f"{title}:"
            for kind in here:
                yield f"  {len(kinds[kind])} {kind}: {kinds[kind][0].example}"
            yield from following
        if self.skipped:
            number, text = self.skipped[0]
            yield f"  {len(self.skipped)} lines passed over: line {number}, {text[:60]}"
        if self.kept_out:
            yield "kept out of allocation:"
        for kept in self.kept_out:
            yield f"  {kept.count} {kept.kind}: {kept.names[0]}; {kept.reason}"
        if self.irregularities:
            yield f"{len(self.irregularities)} irregularities; --all lists every one"

    def lines(self) -> Iterator[str]:
        """The report as text, one finding a line."""
        yield from self.counts()
        yield f"{len(self.irregularities)} irregularities"
        ordered = sorted(self.irregularities, key=lambda each: _rank(each.kind))
        yield from (f"  {irregularity}" for irregularity in ordered)
        for kept in self.kept_out:
            yield f"  kept out, {kept.count} {kept.kind}: {kept.reason}: {', '.join(kept.names)}"
        yield from (f"  line {n} passed over: {text}" for n, text in self.skipped)


ACTIONS = (
    "no fat-tree",
    "no route to a subnet manager",
    "host name that compute refuses",
    "one name for several machines",
    "several LIDs",
    "cable inside a level",
    "cable past a level",
    "cable between pods",
    "cable to a foreign spine",
    "cable between adapters",
    "cable at an impossible port",
    "missing cable",
    "slow cable",
    "leaf without hosts",
    "adapters without a host name",
    "adapter on another rail",
)
"""Kinds of irregularities that an operator can mend, the most urgent first."""

_MACHINES = frozenset(
    {
        "host breaks the rail pattern",
        "host above the leaves",
        "host name that compute refuses",
        "adapters without a host name",
    }
)
"""Kinds of irregularities that ``ImportReport.kept_out`` tells."""


def _rank(kind: str) -> int:
    return ACTIONS.index(kind) if kind in ACTIONS else len(ACTIONS)


def _sizes(groups: tuple[int, ...]) -> str:
    sizes = sorted(Counter(groups).items(), reverse=True)
    return ", ".join(f"{count} with {size} hosts" for size, count in sizes)
