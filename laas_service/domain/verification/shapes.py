# SPDX-License-Identifier: Apache-2.0

"""Shape (promise 2): the formal conditions that a partition of full bandwidth meets.

Numbers in parentheses are the conditions of Jigsaw (HPDC'21) section 3.2.2. On a tree of
taper O, D flows from below need ceil(D / O) uplinks (LaaS, ANCS'16, section 3,
over-subscription). With several rails each condition holds on every rail, and the rails of
a plane share the spine uplinks of their L2 switches.
"""

from collections.abc import Collection, Iterator
from random import Random

from laas_service.domain.allocation import Allocation, Shape
from laas_service.domain.topology import Topology, link_name
from laas_service.domain.verification.bandwidth import (
    adversarial_permutations,
    permutation_violations,
    random_permutation,
)
from laas_service.domain.verification.isolation import addressable
from laas_service.domain.verification.partition import WHOLE_LINKS, L2Place, Rail, TenantTree
from laas_service.domain.verification.stars import star_violations


def shape_violations(topology: Topology, allocation: Allocation) -> list[str]:
    """Violations of the formal conditions of the allocation's policy.

    Policies whose allocations own no links promise no shape, so the result is empty.
    """
    if allocation.policy not in WHOLE_LINKS:
        return []
    allocation = addressable(topology, allocation)
    if not allocation.size:
        return [f"shape: {allocation.id}: it holds no host"]
    if allocation.policy == "starcube":
        return [f"shape: {allocation.id}: {text}" for text in star_violations(topology, allocation)]
    partition = TenantTree(topology, allocation)
    problems = [*_size(topology, allocation, partition), *_hosts(topology, allocation, partition)]
    problems += [
        f"link {link_name(link)} is in a place without a host of its own"
        for link in partition.strangers
    ]
    for rails in partition.planes(topology):
        problems += _links(topology, allocation, partition, rails)
    return [f"shape: {allocation.id}: {text}" for text in problems]


def _up(flows: int, taper: int) -> int:
    """Uplinks needed for ``flows`` from below if each uplink carries up to ``taper``."""
    return -(-flows // taper)


def _size(topology: Topology, allocation: Allocation, partition: TenantTree) -> Iterator[str]:
    """The number of hosts: as requested, rounded up only as the policy rounds."""
    held, requested = allocation.size, allocation.requested
    rail = partition.rails[0]
    pods = len(rail.leaves_by_pod())
    unit = 1
    if allocation.policy == "laas" and pods > 1:
        unit = topology.hosts_per_group
    elif allocation.policy == "simple" and len(rail.hosts) > 1:
        unit = topology.hosts_per_group * (topology.groups_per_pod if pods > 1 else 1)
    if held != _up(requested, unit) * unit:
        yield f"{requested} hosts were requested and {held} are held, in units of {unit}"
    if unit > 1:
        for place, hosts in sorted(rail.hosts.items()):
            if len(hosts) != (most := topology.hosts_per_group):
                yield f"{_leaf(0, place)} has {len(hosts)} of {most} hosts, not all"


def _hosts(topology: Topology, allocation: Allocation, partition: TenantTree) -> Iterator[str]:
    """Conditions (1) to (3), and the recorded shape.

    All rails have the same hosts and leaf groups, so checking one rail is enough.
    """
    rail = partition.rails[0]
    pods = rail.leaves_by_pod()
    counts = {pod: [len(rail.hosts[leaf]) for leaf in leaves] for pod, leaves in pods.items()}
    full = max((count for pod in counts.values() for count in pod), default=0)
    small = [count for pod in counts.values() for count in pod if count < full]
    shape = _shape(allocation, counts, full)
    if allocation.shape is not None and allocation.shape != shape:
        yield f"its shape is recorded as {allocation.shape}, but its hosts form {shape}"
    if _extended(allocation, counts, full):
        yield from _blocked(topology, allocation)
        return
    if len(small) > 1:
        yield f"(2) leaves of {full} hosts, and {len(small)} smaller ones; at most one may be"
    sizes = sorted((sum(pod) for pod in counts.values()), reverse=True)
    if len(set(sizes)) > 2 or (len(set(sizes)) == 2 and sizes[-2] != sizes[0]):
        yield f"(1) pods of {sizes} hosts; all but one must be equal and that one smaller"
    if len(sizes) > 1 and any(small) and min(counts[_smallest(counts)]) == full:
        yield "(3) the smaller leaf is not in the smaller pod"
    if len(sizes) > 1 and sizes[-1] == sizes[0] and small:
        yield "(3) there is a smaller leaf but no smaller pod"


def _extended(allocation: Allocation, counts: dict[int, list[int]], full: int) -> bool:
    """Whether there are two pods, and the larger one is Jigsaw's remainder pod.

    It has more leaves and the smaller leaf, or its recorded shape says so where all leaves are
    equal. Conditions (1) and (3) are not necessary then, and (6) holds for the flows that cross;
    ``_blocked`` checks the bandwidth itself.
    """
    if len(counts) != 2 or allocation.policy != "jigsaw":
        return False
    fewer, more = sorted(counts.values(), key=len)
    smaller = sum(count < full for count in more)
    if min(fewer) < full or len(fewer) == len(more) or smaller > 1:
        return False
    return smaller == 1 or allocation.shape == _extended_shape(fewer, more, full)


def _extended_shape(fewer: list[int], more: list[int], full: int) -> Shape:
    rest = sum(count for count in more if count < full)
    return Shape(1, len(fewer), full, more.count(full), rest)


def _blocked(topology: Topology, allocation: Allocation) -> Iterator[str]:
    """Violations by permutations that an extended shape cannot carry."""
    tested = adversarial_permutations(topology, allocation)
    random, hosts = Random(0), allocation.hosts(topology)  # noqa: S311 - no secret
    tested.update((f"random {n}", random_permutation(hosts, random)) for n in range(5))
    for text in permutation_violations(topology, allocation, tested):
        yield f"(1, 3) the remainder pod is not smaller, and {text}"


def _smallest(counts: dict[int, list[int]]) -> int:
    return min(counts, key=lambda pod: sum(counts[pod]))


def _shape(allocation: Allocation, counts: dict[int, list[int]], full: int) -> Shape:
    """The shape that the hosts form; meaningful only if they meet conditions (1) to (3)."""
    leaves = {pod: pod_counts.count(full) for pod, pod_counts in counts.items()}
    most = max(leaves.values(), default=0)
    remainder = sum(count for pod in counts.values() for count in pod if count < full)
    if len(counts) == 1:
        return Shape(1, most, full, 0, remainder)
    if _extended(allocation, counts, full):
        fewer, more = sorted(counts.values(), key=len)
        return _extended_shape(fewer, more, full)
    last = _smallest(counts)
    whole = [pod for pod in counts if leaves[pod] == most and sum(counts[pod]) == most * full]
    partial = leaves[last] if last not in whole else 0
    return Shape(len(whole), most, full, partial, remainder)


def _links(
    topology: Topology, allocation: Allocation, partition: TenantTree, rails: list[int]
) -> Iterator[str]:
    """Conditions (4) to (6) for the rails of one plane."""
    first = partition.rails[rails[0]]
    if len(first.hosts) == 1:
        yield from _joined(partition, rails)
        yield from _spineless(partition, set(first.leaves_by_pod()), "in one leaf group")
        return
    full = max(len(hosts) for hosts in first.hosts.values())
    common = next(
        first.uplinks[leaf]
        for leaves in first.leaves_by_pod().values()
        for leaf in leaves
        if len(first.hosts[leaf]) == full
    )
    for number in rails:
        yield from _uplinks(topology, number, partition.rails[number], full, common)
    if len(first.leaves_by_pod()) == 1:
        yield from _spineless(partition, set(first.leaves_by_pod()), "in one pod")
    else:
        pods = first.leaves_by_pod()
        counts = {pod: [len(first.hosts[leaf]) for leaf in pods[pod]] for pod in pods}
        extended = _extended(allocation, counts, full)
        yield from _spines(topology, partition, rails, extended=extended)


def _leaf(rail: int, place: tuple[int, int]) -> str:
    return f"leaf {place[0]}/{place[1]} on rail {rail}"


def _joined(partition: TenantTree, rails: list[int]) -> Iterator[str]:
    """Uplinks of a partition in one leaf group.

    It needs none, except with several hosts and several rails of a plane: then the leaves of
    the rails need one common uplink, which joins them.
    """
    held = [
        (number, place, partition.rails[number].uplinks[place])
        for number in rails
        for place in partition.rails[number].hosts
    ]
    hosts = max(len(x) for x in partition.rails[rails[0]].hosts.values())
    needed = 1 if len(rails) > 1 and hosts > 1 else 0
    for number, place, uplinks in held:
        if len(uplinks) != needed:
            yield f"{_leaf(number, place)} has {len(uplinks)} uplinks, needs {needed}"
        if uplinks != held[0][2]:
            yield f"{_leaf(number, place)} does not share the uplink of rail {held[0][0]}"


def _uplinks(
    topology: Topology,
    number: int,
    rail: Rail,
    full: int,
    common: set[int],
) -> Iterator[str]:
    """Conditions (4) and (5): leaves use one set of L2 switches, the remainder leaf a subset."""
    taper = topology.tree.taper[0]
    for place, hosts in sorted(rail.hosts.items()):
        uplinks = rail.uplinks[place]
        needed = _up(len(hosts), taper)
        if len(uplinks) != needed:
            yield (
                f"(4) {_leaf(number, place)} has {len(uplinks)} uplinks for {len(hosts)} hosts, "
                f"needs {needed}"
            )
        if len(hosts) == full and uplinks != common:
            yield f"(4, 5) {_leaf(number, place)} has uplinks {_set(uplinks)}, not {_set(common)}"
        elif not uplinks <= common:
            yield f"(4, 5) {_leaf(number, place)} has uplinks {_set(uplinks - common)} alone"


def _spineless(partition: TenantTree, pods: Collection[int], where: str) -> Iterator[str]:
    """A partition in one pod holds no spine uplinks."""
    for place, spines in sorted(partition.spines.items()):
        if place.pod in pods and spines:
            yield f"{_l2(place)} holds uplinks {_set(spines)}, but the job is {where}"


def _l2(place: L2Place) -> str:
    return f"L2 switch {place.pod}/{place.l2}"


def _set(uplinks: Collection[int]) -> str:
    return "{" + ", ".join(map(str, sorted(uplinks))) + "}"


def _spines(
    topology: Topology, partition: TenantTree, rails: list[int], *, extended: bool
) -> Iterator[str]:
    """Condition (6): pods use one set of spines for each L2 index, the remainder pod a subset.

    In an extended shape both pods use one set, for the flows of the smaller pod.
    """
    tree = topology.tree
    pods = partition.rails[rails[0]].leaves_by_pod()
    sizes = {
        pod: sum(len(partition.rails[rails[0]].hosts[leaf]) for leaf in leaves)
        for pod, leaves in pods.items()
    }
    largest = max(sizes, key=lambda pod: (sizes[pod], -pod))
    for l2 in range(tree.l2_per_pod):
        common = partition.spines.get(L2Place(largest, l2), set())
        below = {
            pod: sum(
                sum(up // tree.cables[0] == l2 for up in partition.rails[rail].uplinks[leaf])
                for rail in rails
                for leaf in partition.rails[rail].hosts
                if leaf.pod == pod
            )
            for pod in sorted(pods)
        }
        for pod, flows in below.items():
            place = L2Place(pod, l2)
            spines = partition.spines.get(place, set())
            needed = _up(min(below.values()) if extended else flows, tree.taper[1])
            if len(spines) != needed:
                yield (
                    f"(6) {_l2(place)} has {len(spines)} uplinks for {flows} from below, "
                    f"needs {needed}"
                )
            if (extended or sizes[pod] == sizes[largest]) and spines != common:
                yield f"(6) {_l2(place)} has uplinks {_set(spines)}, not {_set(common)}"
            elif not spines <= common:
                yield f"(6) {_l2(place)} has uplinks {_set(spines - common)} alone"
