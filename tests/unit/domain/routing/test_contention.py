# SPDX-License-Identifier: Apache-2.0

"""Tables without contention: every shift walked, and a constraint search for what cannot be.

With LAAS_CONTENTION=full every shape of the trees of 2- to 12-port switches is walked
(``tox -e contention``); otherwise a sample.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare, Request, Shape
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import PLANNING
from laas_service.domain.routing.contention import (
    Contention,
    contention_of,
    rank_order,
    shape_of,
)
from laas_service.domain.routing.tenant_tables import tenant_tables
from laas_service.domain.topology import LeafLink, Port, Topology, Xgft
from tests.shift_loads import shift_loads
from tests.unit.domain.routing.contention_model import has_free_table

FULL = os.environ.get("LAAS_CONTENTION") == "full"


def walked(topology: Topology, allocation: Allocation, failed=()) -> int:
    """The worst load of any shift, over the tables of the allocation."""
    tables = tenant_tables(topology, allocation, failed)
    return int(shift_loads(topology, tables, rank_order(topology, allocation)).max())


def placed(shape: Shape, seed: int = 0) -> tuple[Topology, Allocation]:
    """An allocation of the shape, at random leaves and links of a full tree with room for it."""
    random = Random(seed)
    within = shape.pods == 1 and not shape.remainder_leaves
    rest = shape.remainder_hosts > 0
    leaves = max(shape.leaves + (rest and within), shape.remainder_leaves + rest) + seed % 2
    width = shape.hosts + seed % 2
    pods = 1 if within else shape.pods + (rest or shape.remainder_leaves > 0)
    tree = Xgft((width, leaves, pods), (1, width, 0 if within else leaves))
    uplinks = random.sample(range(width), shape.hosts)
    below = random.sample(uplinks, shape.remainder_hosts)
    last = random.randrange(pods)
    groups: list[GroupShare] = []
    columns: list[ColumnShare] = []
    for pod in range(pods):
        count = shape.leaves
        if pod == last and not within and pods > shape.pods:
            count = shape.remainder_leaves
        has_rest = rest and pod == last
        chosen = random.sample(range(leaves), count + has_rest)
        small = chosen[0] if has_rest else None
        for leaf in sorted(chosen):
            links = below if leaf == small else uplinks
            hosts = random.sample(range(width), len(links))
            groups.append(GroupShare(pod * leaves + leaf, mask(hosts), mask(links)))
    if not within:
        spines = {x: random.sample(range(leaves), leaves) for x in uplinks}
        for pod in range(pods):
            for x in sorted(uplinks):
                count = shape.leaves
                if pod == last and pods > shape.pods:
                    count = shape.remainder_leaves + (x in below)
                if count:
                    columns.append(ColumnShare(pod, x, mask(spines[x][:count])))
    policy = "jigsaw"
    return Topology(tree), Allocation("t", shape.size, policy, tuple(groups), tuple(columns))


def mask(numbers) -> int:
    return sum(1 << number for number in numbers)


def shapes_of_trees(radix: int) -> Iterator[Shape]:
    """Every shape on two or more leaves of the full tree of switches of ``radix`` ports."""
    half = radix // 2
    for hosts in range(1, half + 1):
        for leaves in range(1, half + 1):
            for rest in range(hosts):
                if leaves + (rest > 0) in range(2, half + 1):
                    yield Shape(1, leaves, hosts, 0, rest)
                for pods in range(1, radix + 1):
                    for more in range(leaves):
                        remainder = more > 0 or rest > 0
                        if 2 <= pods + remainder <= radix and (pods > 1 or more):
                            yield Shape(pods, leaves, hosts, more, rest)


def sampled(shapes: list[Shape], count: int) -> list[Shape]:
    return shapes if FULL else Random(19).sample(shapes, min(count, len(shapes)))


ALL_SHAPES = sorted(
    {str(s): s for k in range(2, 13, 2) for s in shapes_of_trees(k)}.values(), key=str
)


@pytest.mark.parametrize("shard", range(4))
def test_a_shape_is_free_of_contention_exactly_if_it_is_said_to_be(shard):
    shapes = sampled([s for s in ALL_SHAPES if FULL or s.size <= 80], 120)[shard::4]
    for number, shape in enumerate(shapes):
        topology, allocation = placed(shape, number)
        assert shape_of(topology, allocation) == shape
        claim = contention_of(topology, shape)
        load = walked(topology, allocation)
        assert claim.free == (load == 1), shape
        assert load == claim.worst_load or (load, claim.worst_load) == (2, 3), shape


@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 2, 17, 0, 11),
        Shape(1, 9, 18, 0, 9),
        Shape(1, 3, 16, 0, 6),
        Shape(2, 9, 4, 7, 2),
        Shape(5, 10, 3, 4, 1),
        Shape(4, 12, 4, 3, 2),
        Shape(1, 3, 4, 5, 2),
    ],
    ids=str,
)
def test_larger_shapes_too(shape):
    topology, allocation = placed(shape, 3)
    assert contention_of(topology, shape).free == (walked(topology, allocation) == 1)


def test_with_the_remainder_leaf_in_the_larger_of_two_pods():
    for few, more, rest in [(1, 1, 2), (1, 2, 1), (2, 3, 2), (2, 2, 3)]:
        shape = Shape(1, few, 4, more, rest)
        topology, allocation = placed(shape, few)
        assert shape_of(topology, allocation) == shape
        assert contention_of(topology, shape).free == (walked(topology, allocation) == 1)


def test_how_many_shapes_of_a_pod_are_free():
    """Of 462 with a remainder leaf, 2 to 8 full leaves and up to 12 hosts on a leaf."""
    tree = Topology(Xgft((12, 9, 1), (1, 12, 0)))
    shapes = [
        Shape(1, leaves, hosts, 0, rest)
        for hosts in range(1, 13)
        for leaves in range(2, 9)
        for rest in range(1, hosts)
    ]
    free = [shape for shape in shapes if contention_of(tree, shape).free]
    assert len(shapes) == 462
    assert len([s for s in free if s.hosts % s.remainder_hosts == 0]) == 161
    assert len(free) == 204


def small_shapes() -> Iterator[Shape]:
    for hosts in range(1, 7):
        for leaves in range(1, 5):
            yield from (Shape(1, leaves, hosts, 0, rest) for rest in range(1, hosts))
    for hosts in range(1, 4):
        for leaves in range(1, 5):
            for pods in range(1, 5):
                for more in range(leaves):
                    for rest in range(hosts):
                        shape = Shape(pods, leaves, hosts, more, rest)
                        if (more or (rest and pods > 1)) and shape.size <= 30:
                            yield shape


@pytest.mark.parametrize("shard", range(2))
def test_a_constraint_search_finds_a_table_exactly_where_we_have_one(shard):
    topology = Topology(Xgft((8, 8, 8), (1, 8, 8)))
    for shape in sampled(list(small_shapes()), 40)[shard::2]:
        assert has_free_table(shape) == contention_of(topology, shape).free, shape


TREES = {
    "full": Xgft((4, 4, 4), (1, 4, 4)),
    "more links than hosts": Xgft((3, 4, 3), (1, 6, 8)),
    "tapered": Xgft((6, 4, 4), (1, 3, 2)),
    "tapered unevenly": Xgft((5, 4, 3), (1, 3, 2)),
    "cables": Xgft((4, 4, 4), (1, 4, 4), (2, 2)),
    "cables of spines": Xgft((4, 4, 4), (1, 4, 4), (1, 2)),
}


def fabrics() -> dict[str, Topology]:
    rails = tuple(
        tuple(Port(host // 12, (host // 3 % 4) * 2 + rail, host % 3) for rail in range(2))
        for host in range(36)
    )
    planes = tuple(
        tuple(Port(host // 12 * 2 + rail, host // 3 % 4, host % 3) for rail in range(2))
        for host in range(36)
    )
    return {name: Topology(tree) for name, tree in TREES.items()} | {
        "two rails in a pod": Topology(Xgft((3, 8, 3), (1, 3, 8)), 2, rails),
        "two planes": Topology(Xgft((3, 4, 6), (1, 3, 4)), 2, planes),
    }


@pytest.mark.parametrize("name", fabrics())
@pytest.mark.parametrize("policy", ["laas", "jigsaw", "lc"])
def test_no_placement_of_a_policy_carries_more_than_is_said(name, policy):
    topology = fabrics()[name]
    random, ledger, live = Random(f"{name} {policy}"), Ledger(topology), []
    free = 0
    for number in range(24):
        request = Request(f"t{number}", random.randint(2, random.choice((8, 30))))
        answer = admit(PLANNING[policy](), ledger, request)
        if isinstance(answer, Allocation):
            live.append(answer)
            assert answer.shape is not None
            assert shape_of(topology, answer) == answer.shape
            claim = contention_of(topology, answer.shape)
            assert claim.worst_load is not None
            assert walked(topology, answer) <= claim.worst_load, answer
            free += claim.free
        elif live:
            ledger.release(live.pop(random.randrange(len(live))).id)
    assert free


def test_hosts_rank_by_leaf_whatever_their_numbers():
    topology, allocation = placed(Shape(2, 2, 2, 1, 1), 5)
    assert rank_order(topology, allocation) == list(allocation.hosts(topology))
    ports = ((Port(0, 1, 0),), (Port(0, 0, 0),), (Port(0, 1, 1),), (Port(0, 0, 1),))
    odd = Topology(Xgft((2, 2, 1), (1, 2, 0)), 1, ports)
    both = Allocation("t", 4, "jigsaw", (GroupShare(0, 3, 3), GroupShare(1, 3, 3)))
    assert rank_order(odd, both) == [1, 3, 0, 2]
    assert walked(odd, both) == 1


def test_a_failed_link_changes_no_entry_that_avoids_it():
    topology, allocation = placed(Shape(1, 3, 4, 0, 2), 0)
    link = next(allocation.leaf_links(topology))
    before, after = (tenant_tables(topology, allocation, failed) for failed in ((), [link]))
    assert before.keys() == after.keys()
    changed = {
        (switch, host)
        for switch, entries in before.items()
        for host, out in entries.items()
        if after[switch][host] != out
    }
    assert changed
    lost = f"leaf:{link.pod}:{link.leaf}", f"l2:{link.pod}:{link.up}"
    down = {str(h) for h in allocation.hosts(topology) if topology.place_of(h)[0] == link.leaf}
    for switch, host in changed:
        assert before[switch][host] == f"up:{link.up}" or switch in lost, (switch, host)
        assert switch == lost[0] or host in down, (switch, host)


def test_links_beside_the_shape_leave_d_mod_k():
    """While a placement changes its owner holds the links of both; no form is promised then."""
    topology, allocation = placed(Shape(1, 2, 3, 0, 2), 1)
    more = [share._replace(uplinks=0b1111) for share in allocation.groups]
    assert shape_of(topology, replace(allocation, groups=tuple(more))) is None
    shares = replace(allocation, policy="baseline")
    assert shape_of(topology, shares) is None


def test_the_judge_sees_one_wrong_entry():
    topology, allocation = placed(Shape(1, 3, 4, 0, 2), 0)
    tables = tenant_tables(topology, allocation)
    order = rank_order(topology, allocation)
    assert shift_loads(topology, tables, order).max() == 1
    leaf = f"leaf:0:{allocation.groups[0].group}"
    hosts = [h for h, out in tables[leaf].items() if out.startswith("up:")]
    tables[leaf][hosts[0]] = tables[leaf][hosts[1]]
    assert shift_loads(topology, tables, order).max() == 2
    del tables[leaf][hosts[0]]
    with pytest.raises(ValueError, match=f"{leaf} has no entry for {hosts[0]}"):
        shift_loads(topology, tables, order)


def test_one_leaf_has_no_contention():
    topology = Topology(Xgft((4, 2, 1), (1, 4, 0)))
    assert contention_of(topology, Shape(1, 1, 3)) == Contention(True, 1)
    allocation = Allocation("t", 3, "jigsaw", (GroupShare(0, 0b111, 0),))
    assert shape_of(topology, allocation) == Shape(1, 1, 3)
    assert walked(topology, allocation) == 0
    assert LeafLink(0, 0, 0) not in set(allocation.links(topology))
