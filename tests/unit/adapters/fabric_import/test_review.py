# SPDX-License-Identifier: Apache-2.0

"""Re-import: remaining hosts and links keep their place; allocations lose none of theirs.

The tests compare with the real cabling after the changes (``tests.recabling``), by GUID and port,
not with the numbers that the import chose.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laas_service.adapters.db import models, schema
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.fabric_import import generator, lids
from laas_service.adapters.fabric_import.fabric_file import read_fabric
from laas_service.adapters.fabric_import.recovery import Selection
from laas_service.adapters.fabric_import.review import Review, review
from laas_service.app.lifecycle import State
from laas_service.app.records import (
    AllocationRecord,
    FabricRecord,
    HostState,
    LinkState,
    NewPlacement,
)
from laas_service.app.requests import AllocationRequest
from laas_service.domain import verification
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.constraints import Constraints
from laas_service.domain.errors import (
    ConcurrentUpdate,
    InvalidFile,
    InvalidInput,
    LimitExceeded,
)
from laas_service.domain.features import HostChange
from laas_service.domain.inventory import Inventory, PortRef
from laas_service.domain.ledger import Ledger, LedgerView, Masks
from laas_service.domain.policies import POLICIES
from laas_service.domain.reimport import Layout, aligned, changes
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.routing.tenant_tables import routed_allocations
from laas_service.domain.topology import LeafLink, Link, Topology, link_name
from opensm_writer.desired import subnet_configuration
from tests import recabling
from tests.drafts import on_ledger
from tests.recabling import WORKS, Site, dumped
from tests.shared import SHARED, needs_shared
from tests.walks import Hop, Walks

SITES = (
    generator.Description(xgft="3;3,3,3;1,3,3"),
    generator.Description(xgft="3;4,4,1;1,4,0"),
    generator.Description(
        xgft="3;3,4,2;1,4,3",
        rails=2,
        missing_hosts=3,
        missing_cables=3,
        subnet_managers=1,
        shuffled=True,
    ),
    generator.Description(
        xgft="3;2,3,4;1,4,4",
        cables=(2, 2),
        rails=2,
        wiring="plane",
        missing_cables=6,
        storage_hosts=2,
        shuffled=True,
    ),
)
MANAGERS = Selection(managers=("sm*",), exclude=("storage*",))
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def generated(description: generator.Description) -> Layout:
    return dumped(generator.generate(description).inventory, MANAGERS)


def record(layout: Layout) -> FabricRecord:
    return FabricRecord("f", layout.topology, layout.inventory, 1, EPOCH)


def reviewed(before: Layout, inventory: Inventory, ledger: Ledger | None = None) -> Review:
    ledger = Ledger(before.topology) if ledger is None else ledger
    return review(record(before), ledger, 1, dumped(inventory, MANAGERS))


# -- compared by GUIDs and ports ---------------------------------------------------------


Ends = tuple[PortRef, PortRef]


def cables_of(layout: Layout, held: Allocation, ledger: LedgerView) -> set[Ends]:
    return cables(layout, held.links(layout.topology), ledger)


def cables(layout: Layout, links: Iterable[Link], ledger: LedgerView) -> set[Ends]:
    """The cables of working links: a failed one may come back on other ports."""
    known = layout.inventory.cable_of_link
    up = [known[x] for x in links if x in known and x not in ledger.failed_links]
    return {(cable.lower, cable.upper) for cable in up}


def hosts_of(layout: Layout, held: Allocation, ledger: LedgerView) -> dict[str, list[int]]:
    """Name -> the GUIDs of its leaves by rail; [] for a failed host."""
    names, ends = layout.inventory.host_names, layout.host_endpoints
    return {
        names[h]: [e.at.guid for e in ends[h] if h not in ledger.failed_hosts]
        for h in held.hosts(layout.topology)
    }


def physical(inventory: Inventory) -> tuple[set[Ends], dict[str, set[int]]]:
    """All cables, and name -> GUIDs of the switches that the host is attached to."""
    switches_of: dict[str, set[int]] = {}
    for endpoint in inventory.endpoints:
        switches_of.setdefault(endpoint.name.split()[0], set()).add(endpoint.at.guid)
    return {(cable.lower, cable.upper) for cable in inventory.cables}, switches_of


def assert_kept(result: Review, site: Inventory, before: LedgerView, after: LedgerView) -> None:
    """All allocations hold the same hosts and cables, and all of these still exist."""
    existing, switches_of = physical(site)
    new = {held.id: held for held in after.everybody()}
    assert new.keys() == {held.id for held in before.everybody()}
    for old in before.everybody():
        hosts = hosts_of(result.before, old, before)
        assert hosts_of(result.after, new[old.id], after) == hosts
        assert all(set(leaves) <= switches_of.get(name, set()) for name, leaves in hosts.items())
        held = cables_of(result.before, old, before)
        assert cables_of(result.after, new[old.id], after) == held
        assert held <= existing
        assert set(old.links(result.before.topology)) == set(
            new[old.id].links(result.after.topology)
        )


def assert_routed_alike(result: Review, before: LedgerView, after: LedgerView) -> None:
    """Packets take the same cables as before, from a tenant's leaves to its remaining ports.

    Compared rail by rail, for paths over working links of the tenant.
    """
    walks = [
        Walks.over(
            layout.inventory,
            forwarding_tables(
                layout.topology, layout.inventory, routed_allocations(ledger.everybody())
            ),
        )
        for layout, ledger in ((result.before, before), (result.after, after))
    ]
    stays = result.after.inventory.lids.keys() & result.before.inventory.lids.keys()
    ends = result.before.host_endpoints
    for routed in routed_allocations(before.everybody()):
        own = set(routed.links(result.before.topology))
        for source, target in permutations(routed.hosts(result.before.topology), 2):
            for a, b in zip(ends[source], ends[target], strict=True):
                if not {a.at.guid, b.guid} <= stays:
                    continue
                was = walks[0].path(a.at.guid, b.guid)
                if all(cable.link in own - before.failed_links for cable, _ in was):
                    assert _ends(was) == _ends(walks[1].path(a.at.guid, b.guid))


def _ends(path: list[Hop]) -> list[tuple[PortRef, PortRef, bool]]:
    return [(cable.lower, cable.upper, down) for cable, down in path]


def assert_pinned(result: Review) -> None:
    """Remaining ports keep their LIDs."""
    was, now = result.before.inventory.lids, result.after.inventory.lids
    assert {guid: now[guid] for guid in now.keys() & was.keys()} == {
        guid: was[guid] for guid in now.keys() & was.keys()
    }


# -- random work under live tenants ------------------------------------------------


def allocate(
    store: SqlStore,
    id: str,
    hosts: int,
    policy: str,
    parent: str | None = None,
    container: bool = False,
) -> AllocationRecord | NoFit:
    new = AllocationRequest(
        id=id,
        fabric="f",
        name=id,
        project_id="blue",
        policy=policy,
        hosts=hosts,
        parent=parent,
        container=container,
    )

    def propose(fabric: Ledger) -> Allocation | NoFit:
        request = Request(id, hosts, parent=parent, container=new.container)
        return admit(POLICIES[policy](), fabric.ledger(parent), request)

    return store.admissions.admit(new, on_ledger(propose))


class Deployment:
    """One database with the stores of three processes."""

    def __init__(self, layout: Layout) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.engine = connect(f"sqlite:///{self.directory}/laas.sqlite")
        schema.upgrade(self.engine)
        self.stores = [SqlStore(self.engine) for _ in range(3)]
        self.stores[0].fabrics.add("f", layout.topology, layout.inventory)

    def close(self) -> None:
        self.engine.dispose()
        shutil.rmtree(self.directory)

    def claims(self) -> dict[str, set[tuple[str, int]]]:
        with self.engine.connect() as connection:
            return {
                what: {
                    tuple(row)
                    for row in connection.execute(
                        sa.text(f"select allocation, {what} from {what}_claim")
                    )
                }
                for what in ("host", "link")
            }

    def everything(self) -> dict[str, list[str]]:
        with self.engine.connect() as connection:
            tables = ("fabric", "allocation", "host_claim", "link_claim", "host_state", "delta")
            return {
                table: sorted(
                    str(row) for row in connection.execute(sa.text(f"select * from {table}"))
                )
                for table in tables
            }


def settled(deployment: Deployment, chance: Random, layout: Layout) -> None:
    """Makes tenants, a container with a child, and hosts and links in all states."""
    for number in range(chance.randrange(5)):
        policy = chance.choice(["jigsaw", "lc", "baseline"])
        allocate(deployment.stores[0], f"t{number}", chance.randrange(1, 9), policy)
    if chance.random() < 0.4:
        outer = allocate(deployment.stores[0], "box", 4, "lc", container=True)
        if not isinstance(outer, NoFit):
            allocate(deployment.stores[0], "inside", 2, "lc", parent="box")
    store = deployment.stores[1]
    hosts = list(layout.hosts())
    for state in (HostState.DRAINED, HostState.FAILED):
        store.components.set_host_state("f", chance.choice(hosts), state)
    store.components.describe_hosts("f", {chance.choice(hosts): HostChange(frozenset({"gpu"}), 3)})
    links = [cable.link for cable in layout.inventory.cables if cable.link is not None]
    store.components.set_link_state("f", chance.choice(links), LinkState.FAILED)


def states(layout: Layout, ledger: LedgerView) -> dict[str, dict[object, object]]:
    """The recorded states of hosts and links, by name."""
    names = layout.inventory.host_names
    return {
        "failed": {names[h]: True for h in ledger.failed_hosts},
        "drained": {names[h]: True for h in ledger.drained_hosts},
        "like": {names[h]: ledger.features.of(h) for h in ledger.features.hosts},
        "links": dict.fromkeys(ledger.failed_links, True),
    }


def assert_states_kept(result: Review, before: LedgerView, after: LedgerView) -> None:
    was, now = states(result.before, before), states(result.after, after)
    here = set(result.after.inventory.host_names)
    renamed = {h for h in result.before.inventory.host_names if h not in here}
    for kind in ("failed", "drained", "like"):
        assert {h: x for h, x in was[kind].items() if h not in renamed} == {
            h: x for h, x in now[kind].items() if h in was[kind]
        }
    gone = result.after.topology.absent_links
    assert now["links"].keys() == {link for link in was["links"] if link not in gone}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    description=st.sampled_from(SITES),
    works=st.lists(st.sampled_from(WORKS), min_size=1, max_size=4),
    seed=st.integers(0, 1 << 32),
)
def test_after_any_recabling_no_allocation_loses_anything(description, works, seed):
    chance = Random(seed)
    layout = generated(description)
    deployment = Deployment(layout)
    try:
        settled(deployment, chance, layout)
        site = Site(layout.inventory, chance)
        for work in works:
            work(site)
        first, second, third = deployment.stores
        third.fabrics.ledger("f")
        ledger, generation = second.fabrics.ledger("f")
        kept = deployment.everything()
        try:
            read = dumped(site.inventory, MANAGERS)
            result = review(second.fabrics.get("f"), ledger, generation, read)
        except (InvalidFile, InvalidInput, LimitExceeded):
            return
        if result.refused:
            assert deployment.everything() == kept
            return
        second.fabrics.reimport("f", generation, result.before, result.after)
        after, advanced = first.fabrics.ledger("f")
        assert advanced == generation + 1 == first.fabrics.get("f").routes_generation
        assert (
            third.fabrics.ledger("f")[0].state()
            == after.state()
            == second.fabrics.ledger("f")[0].state()
        )
        assert SqlStore(deployment.engine).fabrics.ledger("f")[0].state() == after.state()
        assert_kept(result, site.inventory, ledger, after)
        assert_states_kept(result, ledger, after)
        assert_routed_alike(result, ledger, after)
        assert_pinned(result)
        subnet_configuration(third.fabrics.routed("f"))  # raises if OpenSM would refuse it
        held = list(after.everybody())
        known = verification.violations(layout.topology, list(ledger.everybody()), Random(0))
        broken = verification.violations(result.after.topology, held, Random(0))
        assert set(broken) <= set(known)
        tree = result.after.topology.tree
        claims = deployment.claims()
        assert claims["host"] == {(a.id, h) for a in held for h in a.hosts(result.after.topology)}
        assert claims["link"] == {
            (a.id, tree.link_id(x)) for a in held for x in a.links(result.after.topology)
        }
        again = review(first.fabrics.get("f"), after, advanced, read)
        assert not again.changes
    finally:
        deployment.close()


# -- single changes --------------------------------------------------------------


SMALL = generator.Description(xgft="3;4,4,2;1,4,2")


def tenants(layout: Layout, *sizes: int) -> Ledger:
    ledger = Ledger(layout.topology)
    for number, hosts in enumerate(sizes):
        assert isinstance(
            admit(POLICIES["jigsaw"](), ledger, Request(f"t{number}", hosts)), Allocation
        )
    return ledger


def on(layout: Layout, name: str) -> int:
    return next(s.guid for s in layout.inventory.switches if s.name == name)


def without_host(layout: Layout, name: str) -> Inventory:
    ends = tuple(e for e in layout.inventory.endpoints if e.name.split()[0] != name)
    return replace(layout.inventory, endpoints=ends)


@pytest.mark.parametrize("description", SITES)
def test_the_re_import_of_the_same_fabric_changes_nothing(description):
    layout = generated(description)
    result = reviewed(layout, layout.inventory)
    assert (result.after.topology, result.after.inventory) == (layout.topology, layout.inventory)
    assert result.changes == ()


def test_a_shuffled_dump_is_aligned_to_the_recorded_places():
    """The import numbers switches by name; the record has another order."""
    made = generator.generate(replace_seed(SITES[2], 3))
    recorded = Layout(made.topology, made.inventory)
    read = dumped(made.inventory, MANAGERS)
    assert read.inventory.leaf_guids != recorded.inventory.leaf_guids
    assert aligned(recorded, read).inventory.leaf_guids == recorded.inventory.leaf_guids


def replace_seed(description: generator.Description, seed: int) -> generator.Description:
    return description.model_copy(update={"seed": seed})


def test_a_host_that_is_gone_is_listed_and_no_other_host_gets_its_number():
    layout = generated(SMALL)
    result = reviewed(layout, without_host(layout, "node05"))
    assert [change.kind for change in result.changes] == ["host gone"]
    assert result.after.topology.absent_hosts == {5}
    names = list(layout.inventory.host_names)
    assert result.after.inventory.host_names == tuple("" if n == "node05" else n for n in names)


def test_the_loss_of_a_tenants_host_is_refused():
    layout = generated(SMALL)
    result = reviewed(layout, without_host(layout, "node01"), tenants(layout, 3))
    assert result.refused
    assert result.effects[0].refused == ("takes host node01: it is gone",)
    assert not reviewed(layout, without_host(layout, "node05"), tenants(layout, 3)).refused


def pulled(layout: Layout, link: Link) -> Inventory:
    gone = layout.inventory.cable_of_link[link]
    cables = tuple(cable for cable in layout.inventory.cables if cable != gone)
    return replace(layout.inventory, cables=cables)


def test_the_loss_of_a_tenants_link_is_refused():
    layout = generated(SMALL)
    ledger = tenants(layout, 6)
    (used, *_), owned = (
        ledger.allocations["t0"].leaf_links(layout.topology),
        ledger.owners_of_links(),
    )
    spare = next(x for x in layout.inventory.cable_of_link if x not in owned)
    result = reviewed(layout, pulled(layout, used), ledger)
    assert [effect.allocation for effect in result.effects if effect.refused] == ["t0"]
    assert "takes link leaf-0-0-0: its cable is gone" in result.effects[0].refused
    assert not reviewed(layout, pulled(layout, spare), ledger).refused


def test_a_tenants_cable_on_other_ports_is_refused_unless_its_link_has_failed():
    layout = generated(SMALL)
    ledger = tenants(layout, 6)
    link = next(ledger.allocations["t0"].leaf_links(layout.topology))
    site = Site(layout.inventory, Random(0))
    old = layout.inventory.cable_of_link[link]
    new = replace(old, upper=site.spare(old.upper.guid))
    site.change(tuple(new if cable == old else cable for cable in site.inventory.cables))
    result = reviewed(layout, site.inventory, ledger)
    assert [change.kind for change in result.changes] == ["cable moved"]
    assert "on other ports" in result.effects[0].refused[0]
    ledger.fail_link(link)
    assert not reviewed(layout, site.inventory, ledger).refused


def test_failed_hosts_and_cables_of_a_tenant_stay_recorded_although_the_dump_lacks_them():
    layout = generated(SMALL)
    ledger = tenants(layout, 6)
    link = next(ledger.allocations["t0"].leaf_links(layout.topology))
    ledger.fail_host(1)
    ledger.fail_link(link)
    gone = layout.inventory.cable_of_link[link]
    off = without_host(layout, "node01")
    off = replace(off, cables=tuple(cable for cable in off.cables if cable != gone))
    result = reviewed(layout, off, ledger)
    assert (result.refused, result.changes) == (False, ())
    assert result.kept == ("host node01", f"link {link_name(link)}")
    assert (result.after.topology, result.after.inventory) == (layout.topology, layout.inventory)
    site = Site(off, Random(0))
    site.change(  # another host is attached to the same switch port
        endpoints=(
            *off.endpoints,
            replace(layout.inventory.endpoint_of_port[1, 0], guid=0xAA01, name="other mlx5_0"),
        )
    )
    taken = reviewed(layout, site.inventory, ledger)
    assert "takes host node01: it is gone" in taken.effects[0].refused


def test_a_new_adapter_is_announced_to_its_tenant_and_gets_a_lid_of_its_own():
    layout = generated(SMALL)
    old = layout.inventory.endpoint_of_port[1, 0]
    new = replace(old, guid=0xAA01)
    ends = tuple(new if e == old else e for e in layout.inventory.endpoints)
    result = reviewed(layout, replace(layout.inventory, endpoints=ends), tenants(layout, 3))
    assert not result.refused
    assert [change.kind for change in result.changes] == ["adapter replaced"]
    assert result.effects[0].news == ("host node01 rail 0 has another adapter, 0x000000000000aa01",)
    lids_of = result.after.inventory.lids
    assert {g: x for g, x in lids_of.items() if g != new.guid} == {
        g: x for g, x in layout.inventory.lids.items() if g != old.guid
    }


def test_a_replaced_leaf_takes_the_old_place_unless_a_tenant_uses_it():
    layout = generated(SMALL)
    ledger = tenants(layout, 3)
    site = Site(layout.inventory, Random(0))
    recabling.replace_the_switch(site, site.inventory.switch_of_guid[on(layout, "leaf-0-0")])
    result = reviewed(layout, site.inventory, ledger)
    assert next(change.kind for change in result.changes) == "switch replaced"
    assert result.after.leaves[0][1:] == layout.leaves[0][1:]
    assert "one of its leaves was replaced" in result.effects[0].refused[0]
    for host in range(3):
        ledger.fail_host(host)
    assert not reviewed(layout, site.inventory, ledger).refused
    assert not reviewed(layout, site.inventory).refused


def test_an_added_pod_changes_no_number():
    layout = generated(SMALL)
    grown = generated(generator.Description(xgft="3;4,4,3;1,4,2"))
    ledger = tenants(layout, 6, 20)
    result = reviewed(layout, grown.inventory, ledger)
    assert not result.refused
    assert result.after.topology.tree.m == (4, 4, 3)
    assert result.after.inventory.host_names[:32] == layout.inventory.host_names
    kinds = {change.kind for change in result.changes}
    assert kinds == {"tree", "switch added", "cable added", "host added"}
    roomy = Ledger(result.after.topology)
    assert isinstance(admit(POLICIES["jigsaw"](), roomy, Request("all", 48)), Allocation)


def test_added_leaves_change_numbers_but_no_allocation(tmp_path):
    """On one rail a host's number is its place, so later hosts get higher numbers; names stay."""
    layout = generated(SMALL)
    deployment = Deployment(layout)
    try:
        for number, hosts in enumerate((6, 20)):
            allocate(deployment.stores[0], f"t{number}", hosts, "jigsaw")
        store = deployment.stores[0]
        deployment.stores[1].fabrics.ledger("f")  # this store has the ledger in its cache
        store.components.set_host_state("f", 31, HostState.DRAINED)
        store.components.set_link_state("f", LeafLink(1, 3, 3), LinkState.FAILED)
        ledger, generation = store.fabrics.ledger("f")
        grown = generated(generator.Description(xgft="3;4,5,2;1,4,2"))
        # generated GUIDs follow the numbers; those of added leaves do not
        site = Site(layout.inventory, Random(1))
        recabling.add_leaves(site)
        result = review(store.fabrics.get("f"), ledger, generation, dumped(site.inventory))
        assert not result.refused
        assert result.after.topology.tree.m == grown.topology.tree.m
        store.fabrics.reimport("f", generation, result.before, result.after)
        after = deployment.stores[1].fabrics.ledger("f")[0]
        assert_kept(result, site.inventory, ledger, after)
        names = result.after.inventory.host_names
        assert [names[host] for host in after.drained_hosts] == ["node31"]
        assert after.failed_links == {LeafLink(1, 3, 3)}
        record = store.allocations.transition(store.allocations.get("t1"), State.RELEASING, "asked")
        store.allocations.free(store.allocations.hand_back(record), "gone")
        assert set(deployment.stores[2].fabrics.ledger("f")[0].allocations) == {"t0"}
        assert {id for id, _ in deployment.claims()["host"]} == {"t0"}
    finally:
        deployment.close()


def test_everything_that_is_recorded_by_number_is_renumbered(store):
    """With a container and its child, an unfinished change of placement and a drained leaf."""
    layout = generated(SMALL)
    store.fabrics.add("f", layout.topology, layout.inventory)
    allocate(store, "box", 8, "lc", container=True)
    allocate(store, "inside", 5, "lc", parent="box")
    moving = allocate(store, "moving", 6, "lc")
    assert isinstance(moving, AllocationRecord)
    moving = store.allocations.transition(moving, State.ACTIVE, "handed over")

    def elsewhere(ledger: Ledger) -> NewPlacement:
        ledger.release("moving")
        (held,) = [a for a in ledger.allocations.values() if a.id == "box"]
        topology = ledger.topology
        places = {host: topology.place_of(host)[0] for host in range(topology.hosts)}
        second_pod = [h for h, group in places.items() if group // topology.groups_per_pod == 1]
        taken = ledger.within(
            replace(Masks.whole(topology), hosts=topology.positions_of(second_pod))
        )
        assert held.size == 8
        answer = POLICIES["lc"]().propose(taken, Request("moving", 6))
        assert isinstance(answer, Allocation)
        return NewPlacement(answer, "elsewhere")

    moving = store.placement_changes.begin(moving, elsewhere)
    store.components.set_leaf_state("f", on(layout, "leaf-1-3"), HostState.DRAINED)
    ledger, generation = store.fabrics.ledger("f")
    site = Site(layout.inventory, Random(1))
    recabling.add_leaves(site)
    result = review(store.fabrics.get("f"), ledger, generation, dumped(site.inventory))
    assert not result.refused
    assert "host's index" in {change.kind for change in result.changes}
    store.fabrics.reimport("f", generation, result.before, result.after)
    after = store.fabrics.ledger("f")[0]
    assert SqlStore(store._engine).fabrics.ledger("f")[0].state() == after.state()
    assert_kept(result, site.inventory, ledger, after)
    assert {result.after.inventory.host_names[h] for h in after.drained_hosts} == {
        layout.inventory.host_names[h] for h in ledger.drained_hosts
    }
    with pytest.raises(ConcurrentUpdate):  # the re-import changed the record
        store.placement_changes.proceed(moving, "on")
    moving = store.allocations.get("moving")
    while moving.phase is not None:
        moving = store.placement_changes.proceed(moving, "on")
    store.components.set_leaf_state("f", on(layout, "leaf-1-3"), HostState.UP)
    for id in ("inside", "box", "moving"):
        releasing = store.allocations.transition(
            store.allocations.get(id), State.RELEASING, "asked"
        )
        store.allocations.free(store.allocations.hand_back(releasing), "gone")
    assert store.fabrics.ledger("f")[0].state() == Ledger(result.after.topology).state()
    with store._engine.connect() as connection:
        for table in ("host_claim", "link_claim", "host_state"):
            assert not connection.execute(sa.text(f"select * from {table}")).all()


def test_a_recorded_re_import_is_announced_once():
    layout = generated(SMALL)
    deployment = Deployment(layout)
    try:
        store = SqlStore(deployment.engine, announce=True)
        site = Site(layout.inventory, Random(1))
        recabling.add_leaves(site)
        ledger, generation = store.fabrics.ledger("f")
        result = review(store.fabrics.get("f"), ledger, generation, dumped(site.inventory))
        with pytest.raises(ConcurrentUpdate):
            store.fabrics.reimport("f", generation + 1, result.before, result.after)
        store.fabrics.reimport("f", generation, result.before, result.after)
        with deployment.engine.connect() as connection:
            (told,) = connection.scalars(sa.select(models.NotificationRow.document)).all()
    finally:
        deployment.close()
    assert told["event_type"] == "isolated_network.fabric.reimported"
    assert f"now {result.after.topology.hosts} hosts" in told["reason"]


def test_constraints_of_queued_requests_are_renumbered():
    layout = generated(SMALL)
    deployment = Deployment(layout)
    try:
        store = deployment.stores[0]
        wish = Constraints(avoid_hosts=frozenset({5, 31}))
        store.admissions.admit(
            AllocationRequest(
                id="q",
                fabric="f",
                name="q",
                project_id="blue",
                policy="jigsaw",
                hosts=2,
                constraints=wish,
            ),
            lambda draft: admit(POLICIES["jigsaw"](), draft.ledger, Request("q", 2)),
        )
        ledger, generation = store.fabrics.ledger("f")
        site = Site(layout.inventory, Random(1))
        recabling.add_leaves(site)
        result = review(store.fabrics.get("f"), ledger, generation, dumped(site.inventory))
        store.fabrics.reimport("f", generation, result.before, result.after)
        avoided = (store.allocations.get("q").constraints or Constraints()).avoid_hosts
        assert sorted(result.after.inventory.host_names[h] for h in avoided) == ["node05", "node31"]
    finally:
        deployment.close()


def test_a_review_of_an_older_generation_is_not_recorded():
    layout = generated(SMALL)
    deployment = Deployment(layout)
    try:
        store = deployment.stores[0]
        ledger, generation = store.fabrics.ledger("f")
        read = dumped(without_host(layout, "node00"))
        result = review(store.fabrics.get("f"), ledger, generation, read)
        allocate(deployment.stores[0], "t", 2, "jigsaw")
        kept = deployment.everything()
        with pytest.raises(ConcurrentUpdate, match="generation"):
            store.fabrics.reimport("f", generation, result.before, result.after)
        assert deployment.everything() == kept
        assert store.fabrics.get("f").topology == layout.topology
        now, advanced = store.fabrics.ledger("f")
        assert review(store.fabrics.get("f"), now, advanced, read).token != result.token
    finally:
        deployment.close()


def test_a_shared_plane_stays_withheld():
    layout = generated(SMALL)
    deployment = Deployment(layout)
    try:
        store = deployment.stores[0]
        store.components.set_shared_plane("f", CommonPlane((1,)))
        ledger, generation = store.fabrics.ledger("f")
        result = review(
            store.fabrics.get("f"),
            ledger,
            generation,
            generated(generator.Description(xgft="3;4,4,3;1,4,2")),
        )
        store.fabrics.reimport("f", generation, result.before, result.after)
        assert store.fabrics.ledger("f")[0].shared_plane == CommonPlane((1,))
        assert deployment.stores[1].fabrics.routed("f").shared_plane == CommonPlane((1,))
    finally:
        deployment.close()


def test_another_number_of_rails_is_refused():
    layout = generated(SMALL)
    other = generated(generator.Description(xgft="3;4,4,2;1,4,2", rails=2))
    with pytest.raises(InvalidInput, match="rails"):
        reviewed(layout, other.inventory)


# -- LIDs ------------------------------------------------------------------------------


def test_lids_of_new_hosts_fill_gaps_and_are_below_those_of_new_switches():
    before = {guid: guid for guid in range(1, 61)} | {1000: 64, 1001: 65}
    after = {guid: guid for guid in range(1, 101)} | {1000: 128, 1001: 129, 1002: 130}
    assigned = lids.repinned(before, after, range(1, 101), {1000, 1001, 1002})
    assert {guid: assigned[guid] for guid in before} == before
    assert [assigned[guid] for guid in (61, 62, 63)] == [61, 62, 63]
    assert assigned[64] == 128
    top = max(assigned.values())
    assert assigned[1002] == top
    assert top % 64
    assert all(assigned[guid] // 64 < top // 64 for guid in range(1, 101))


def test_without_a_new_switch_the_lids_of_hosts_may_run_out():
    before = {guid: guid for guid in range(1, 61)} | {1000: 64, 1001: 65}
    after = {guid: guid for guid in range(1, 101)} | {1000: 128, 1001: 129}
    with pytest.raises(LimitExceeded, match="40 new ports"):
        lids.repinned(before, after, range(1, 101), {1000, 1001})


# -- real fabrics ------------------------------------------------------------------------


@needs_shared
@pytest.mark.parametrize(
    "file", ["lab4sw-2023", "dgx-ndr-2025", "lassen-edr-2019"], ids=lambda name: name.split("-")[0]
)
def test_real_fabrics_are_re_imported_after_changes(file):
    read = read_fabric(SHARED / "fabrics" / f"{file}.ibnetdiscover.txt")
    layout = Layout(read.topology, read.inventory)
    assert aligned(layout, layout).inventory == layout.inventory
    chance = Random(7)
    ledger = Ledger(layout.topology)
    for number, hosts in enumerate((2, 5, 40, 100)):
        admit(POLICIES["lc"](), ledger, Request(f"t{number}", hosts))
    owned = ledger.owners_of_links()
    site = Site(layout.inventory, chance)
    free = [c for c in layout.inventory.cables if c.link is not None and c.link not in owned]
    if free:
        site.change(tuple(c for c in site.inventory.cables if c != free[-1]))
    held = {layout.inventory.host_names[h] for h in ledger.owners_of_hosts()}
    idle = next(
        (
            layout.inventory.host_names[h]
            for h in layout.hosts()
            if layout.inventory.host_names[h] not in held
        ),
        None,
    )
    if idle:
        ends = site.inventory.endpoints
        site.change(endpoints=tuple(e for e in ends if e.name.split()[0] != idle))
    again = dumped(site.inventory)
    result = review(record(layout), ledger, 1, again)
    assert not result.refused, result.effects
    kinds = {change.kind for change in result.changes}
    assert kinds <= {"cable gone", "host gone", "cable's link", "adapter not for tenants gone"}
    assert [c for c in result.changes if c.kind == "host gone"] or not idle
    tenant = next(iter(ledger.allocations.values()))
    name = layout.inventory.host_names[tenant.hosts(layout.topology)[0]]
    ends = tuple(e for e in site.inventory.endpoints if e.name.split()[0] != name)
    taken = review(record(layout), ledger, 1, dumped(replace(site.inventory, endpoints=ends)))
    assert taken.refused
    assert any(name in line for effect in taken.effects for line in effect.refused)


def test_the_number_of_a_removed_host_with_several_ports_stays_vacant():
    layout = generated(generator.Description(xgft="3;3,4,2;1,4,3", rails=2))
    result = reviewed(layout, without_host(layout, "node01"))
    topology: Topology = result.after.topology
    assert topology.absent_hosts == {1}
    assert result.after.inventory.host_names[2] == layout.inventory.host_names[2]
    assert changes(layout, result.after)[0].kind == "host gone"
