# SPDX-License-Identifier: Apache-2.0

"""Containers: nested allocations stay within their container and apart from siblings."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit, largest_fit
from laas_service.domain.admission.make_room import make_room
from laas_service.domain.allocation import Allocation, GroupShare, NoFit, Request, Shape
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.errors import Conflict, DoubleClaim, NotFound
from laas_service.domain.idle_links import idle_components
from laas_service.domain.ledger import Ledger, Masks
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.routing.tenant_tables import routed_allocations
from laas_service.domain.topology import LeafLink
from laas_service.domain.verification import (
    credit_loop,
    isolation_violations,
    physical_tables,
    violations,
    walk_violations,
)
from tests.unit.domain.verification.sound import FULL, TOPOLOGIES, build, inventory_of

SM = 0xFF0000
STEP = st.tuples(
    st.sampled_from(["allocate", "allocate", "allocate", "container", "release", "host", "link"]),
    st.integers(0, 1 << 20),
)


def take_step(fabric: Ledger, step: tuple[str, int], number: int) -> None:
    """One random event: an admission, a release, or a changed state of a host or link."""
    kind, choice = step
    everybody, topology = list(fabric.everybody()), fabric.topology
    if kind in ("allocate", "container"):
        scopes = [None, *(a.id for a in everybody if a.container)]
        scope = scopes[choice % len(scopes)]
        names = ["jigsaw", "lc"] if kind == "container" else sorted(POLICIES)
        policy = POLICIES[names[choice // 7 % len(names)]]()
        size = 1 + choice // 64 % max(1, fabric.ledger(scope).free_host_count)
        request = Request(f"t{number}", size, parent=scope, container=kind == "container")
        admit(policy, fabric, request)
    elif kind == "release" and everybody:
        owner = everybody[choice % len(everybody)]
        if owner.container and fabric.ledger(owner.id).allocations:
            initial_state = fabric.state()
            with pytest.raises(Conflict, match="release them first"):
                fabric.release(owner.id)
            assert fabric.state() == initial_state
        else:
            fabric.release(owner.id)
    elif kind == "host":
        host = choice // 2 % topology.hosts
        if host not in topology.absent_hosts:
            (fabric.repair_host if choice & 1 else fabric.fail_host)(host)
    elif kind == "link":
        tree = topology.tree
        link = tree.link_at(choice // 2 % (tree.leaf_links + tree.spine_links))
        if link not in topology.absent_links:
            (fabric.repair_link if choice & 1 else fabric.fail_link)(link)


def rebuilt(fabric: Ledger) -> Ledger:
    """A new ledger with the owners claimed first and the faults second, as after a load."""
    anew = Ledger(fabric.topology)
    anew.withhold(fabric.shared_plane)
    for allocation in fabric.everybody():
        anew.claim(allocation)
    for host in fabric.failed_hosts:
        anew.fail_host(host)
    for link in fabric.failed_links:
        anew.fail_link(link)
    return anew


@pytest.mark.parametrize("name", TOPOLOGIES)
@settings(max_examples=15)
@given(steps=st.lists(STEP, min_size=8, max_size=30), random=st.randoms(use_true_random=False))
def test_no_history_with_containers_breaks_a_promise(name, steps, random):
    topology = TOPOLOGIES[name]
    fabric, inventory = Ledger(topology), inventory_of(topology)
    empty = fabric.state()
    for number, step in enumerate(steps):
        take_step(fabric, step, number)
    everybody = list(fabric.everybody())
    assert violations(topology, everybody, random, permutations=1) == []
    assert rebuilt(fabric).state() == fabric.state() == fabric.copy().state()
    for ledger in fabric.ledgers():
        assert set(ledger.owners_of_links()) <= (
            set(fabric.holder(ledger.scope).allocations[ledger.scope].links(topology))
            if ledger.scope
            else set(ledger.owners_of_links())
        )
    sound = forwarding_tables(topology, inventory, routed_allocations(everybody))
    tables = physical_tables(sound.rows, sound.index)
    if name != "planes":
        assert walk_violations(topology, inventory, tables, everybody, [SM]).violations == []
    assert credit_loop(inventory, tables) == []
    for allocation in reversed(everybody):
        fabric.release(allocation.id)
    for host in tuple(fabric.failed_hosts):
        fabric.repair_host(host)
    for link in tuple(fabric.failed_links):
        fabric.repair_link(link)
    assert fabric.state() == empty


@pytest.fixture
def nested() -> Ledger:
    """A container in a container, with a tenant in each, and an allocation outside both."""
    fabric = Ledger(FULL)
    lc = POLICIES["lc"]()
    for request in (
        Request("outer", 12, container=True),
        Request("inner", 6, parent="outer", container=True),
        Request("deep", 3, parent="inner"),
        Request("beside", 2, parent="outer"),
        Request("free", 6),
    ):
        assert isinstance(admit(lc, fabric, request), Allocation)
    return fabric


def test_a_child_looks_no_further_than_its_container(nested):
    inner = nested.ledger("inner")
    assert inner.free_host_count == 3
    assert largest_fit(POLICIES["jigsaw"](), inner, 99) == 3
    refused = admit(POLICIES["lc"](), nested, Request("more", 4, parent="inner"))
    assert isinstance(refused, NoFit)
    assert nested.free_host_count == 27 - 18
    assert [a.id for a in nested.everybody()] == ["outer", "free", "inner", "beside", "deep"]


def test_who_is_no_container_has_nobody_inside(nested):
    with pytest.raises(NotFound, match="container 'free'"):
        admit(POLICIES["lc"](), nested, Request("x", 1, parent="free"))
    with pytest.raises(NotFound):
        nested.claim(replace(build(FULL, Shape(1, 1, 1), "x"), parent="nowhere"))


def test_an_id_is_taken_at_every_depth(nested):
    (group, position), size = divmod(nested.topology.hosts - 1, 3), 1
    with pytest.raises(DoubleClaim):
        nested.claim(Allocation("deep", size, "test", (GroupShare(group, 1 << position, 0),)))


def test_faults_are_known_inside(nested):
    deep = nested.holder("deep").allocations["deep"]
    spare = next(
        h
        for h in nested.holder("inner").allocations["inner"].hosts(FULL)
        if h not in deep.hosts(FULL)
    )
    nested.fail_host(spare)
    assert nested.ledger("inner").free_host_count == 2
    assert nested.ledger("inner").lost_host_count == 1
    nested.release("deep")
    assert nested.ledger("inner").free_host_count == 5
    nested.repair_host(spare)
    assert nested.ledger("inner").free_host_count == 6
    outside = next(h for h in range(27) if h not in nested.owners_of_hosts())
    nested.fail_host(outside)
    nested.repair_host(outside)
    assert nested.ledger("inner").free_host_count == 6


def test_a_link_outside_that_is_repaired_is_not_inside(nested):
    initial_state = nested.state()
    for up in range(3):
        for leaf in range(9):
            nested.fail_link(LeafLink(*divmod(leaf, 3), up))
    for up in range(3):
        for leaf in range(9):
            nested.repair_link(LeafLink(*divmod(leaf, 3), up))
    assert nested.state() == initial_state


def test_the_innermost_owner_is_named(nested):
    owners = nested.owners_of_hosts()
    assert sorted(owners.values()).count("deep") == 3
    assert sorted(owners.values()).count("inner") == 3
    assert sorted(owners.values()).count("outer") == 12 - 6 - 2


def test_a_container_does_not_change_under_who_is_inside(nested):
    outer = nested.allocations["outer"]
    with pytest.raises(Conflict):
        nested.change(outer)
    for id in ("deep", "inner", "beside"):
        nested.release(id)
    nested.change(replace(outer, groups=outer.groups[:1]))
    assert nested.ledger("outer").free_host_count == outer.groups[0].hosts.bit_count()


def test_what_ifs_see_containers_as_owners(nested):
    room = make_room(POLICIES["lc"](), nested.flattened(), Request("x", 27))
    assert room is not None
    assert room.releases == ("free", "outer")
    view = nested.within(Masks.whole(FULL))
    view.release("outer")
    assert view.free_host_count == 27 - 6
    assert nested.ledger("outer").allocations


# -- routing ------------------------------------------------------------------------


def judged(fabric: Ledger, allocations=None) -> list[str]:
    """Violations of the tables for these allocations, by default for all."""
    topology, inventory = fabric.topology, inventory_of(fabric.topology)
    everybody = list(fabric.everybody())
    routed = routed_allocations(everybody) if allocations is None else allocations
    tables = forwarding_tables(topology, inventory, routed, plane=fabric.shared_plane)
    rows = physical_tables(tables.rows, tables.index)
    walks = walk_violations(topology, inventory, rows, everybody, [SM], fabric.shared_plane)
    return walks.violations


def shared() -> Ledger:
    """A container across pods whose tenants share its links, and a tenant outside it."""
    fabric = Ledger(FULL)
    for policy, request in (
        ("jigsaw", Request("shared", 18, container=True)),
        ("baseline", Request("a", 7, parent="shared")),
        ("baseline", Request("b", 8, parent="shared")),
        ("jigsaw", Request("own", 9)),
    ):
        assert isinstance(admit(POLICIES[policy](), fabric, request), Allocation)
    return fabric


def test_who_shares_a_container_stays_on_its_links():
    fabric = shared()
    assert judged(fabric) == []
    assert [allocation.id for allocation in routed_allocations(fabric.everybody())] == [
        "a",
        "b",
        "own",
    ]


def test_a_child_that_is_not_kept_on_its_containers_links_is_found():
    fabric = Ledger(FULL)
    low = build(FULL, Shape(2, 2, 2), "shared")  # default routes take the lowest uplinks
    high = replace(
        low,
        container=True,
        groups=tuple(share._replace(uplinks=share.uplinks << 1) for share in low.groups),
        columns=tuple(share._replace(column=share.column + 1) for share in low.columns),
    )
    fabric.claim(high)
    child = admit(POLICIES["baseline"](), fabric, Request("a", 8, parent="shared"))
    assert isinstance(child, Allocation)
    assert judged(fabric) == []
    assert any("a: " in line and "leaves its container" in line for line in judged(fabric, [child]))


def test_hosts_that_nobody_inside_has_are_idle():
    """Such hosts have the same entries as hosts without an owner."""
    fabric, inventory = shared(), inventory_of(FULL)
    fabric.release("a")
    fabric.release("b")
    container = fabric.allocations["shared"]
    with_it = forwarding_tables(FULL, inventory, routed_allocations(fabric.everybody()))
    without = forwarding_tables(FULL, inventory, [fabric.allocations["own"]])
    assert with_it.rows == without.rows
    assert container.size == 18


def test_a_containers_idle_hosts_keep_to_the_plane():
    fabric = Ledger(FULL)
    fabric.withhold(CommonPlane.of(FULL.tree, (0,)))
    lc = POLICIES["lc"]()
    admit(lc, fabric, Request("outer", 12, container=True))
    admit(lc, fabric, Request("deep", 5, parent="outer"))
    admit(POLICIES["baseline"](), fabric, Request("loose", 4, parent="outer"))
    assert judged(fabric) == []


def test_the_cables_of_a_container_are_not_turned_down():
    fabric = shared()
    unused = idle_components(fabric, inventory_of(FULL))
    assert set(unused.links).isdisjoint(fabric.owners_of_links())


# -- the judge ------------------------------------------------------------------------


def test_the_judge_finds_who_leaves_the_container_or_meets_a_sibling(nested):
    everybody = {a.id: a for a in nested.everybody()}
    assert isolation_violations(FULL, everybody.values()) == []
    outsider = everybody | {"free": replace(everybody["free"], parent="outer")}
    lines = isolation_violations(FULL, outsider.values())
    assert any("free holds host" in line and "its container lacks" in line for line in lines)
    double = replace(everybody["deep"], id="double")
    lines = isolation_violations(FULL, [*everybody.values(), double])
    assert any("owned by deep and by double" in line for line in lines)
    orphan = replace(everybody["deep"], parent="beside")
    lines = isolation_violations(FULL, (everybody | {"deep": orphan}).values())
    assert "isolation: deep is inside beside, which is no container" in lines


def test_a_seeded_history_reaches_any_depth():
    fabric, rng = Ledger(FULL), Random(2)
    parent: str | None = None
    for depth, size in enumerate((18, 12, 9, 6, 3)):
        request = Request(f"c{depth}", size, parent=parent, container=True)
        assert isinstance(admit(POLICIES["lc"](), fabric, request), Allocation)
        parent = request.id
    admit(POLICIES["jigsaw"](), fabric, Request("last", 3, parent=parent))
    assert violations(FULL, list(fabric.everybody()), rng) == []
    assert judged(fabric) == []
