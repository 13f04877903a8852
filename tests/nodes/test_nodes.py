# SPDX-License-Identifier: Apache-2.0

"""Nova's nodes as hosts: the life of an allocation, strangers, forged requests, edits by hand."""

from __future__ import annotations

import pytest

from laas_service.app.ports.compute import Handover, ServerMoves
from laas_service.domain.errors import Conflict, Forbidden, HostsBusy, NotFound
from tests.nodes.conftest import GUIDS, HYPERVISORS, NODES
from tests.nova import cloud
from tests.nova.cloud import POOL
from tests.servers.ironic import BAD
from tests.story import site
from tests.waiting import eventually

RED, BLUE, GREEN = "1" * 32, "2" * 32, "3" * 32
A1 = Handover("a1", RED, ("n1", "n2"))
FORGED = {"_nova_check_type": "rebuild"}


def test_life_of_an_allocation(nova, compute):
    compute.pool(NODES)
    nova.scheduler_knows()
    assert nova.memberships(*NODES) == [{POOL}] * 4
    assert nova.boot(RED) is None
    compute.hand_over(A1)
    compute.hand_over(A1)  # changes nothing
    nova.scheduler_knows()
    assert nova.memberships(*NODES) == [{POOL, "laas-a1"}] * 2 + [{POOL}] * 2
    assert compute.handed_over() == {"a1": A1}
    assert compute.observed().pooled == {*NODES}

    assert nova.boot(BLUE) is None
    assert {nova.boot(RED), nova.boot(RED)} == {"n1", "n2"}
    assert nova.boot(RED) is None
    assert [(o.host, o.project_id) for o in compute.occupants(NODES)] == [
        ("n1", RED),
        ("n2", RED),
    ]
    seen = compute.look([*NODES, *HYPERVISORS])
    assert [o.project_id for o in seen["n1"].servers] == [RED]
    assert {view.unfit for view in seen.values()} == {""}

    compute.fence("a1")
    assert compute.observed().fenced == {"a1"}
    with pytest.raises(HostsBusy, match="hosts cannot be taken back: n1 runs"):
        compute.take_back(A1)
    nova.delete_servers({})
    taken_back(compute, A1)
    assert {nova.ironic.node(name)["provision_state"] for name in A1.hosts} == {"available"}
    nova.cleaned(NODES)
    assert nova.memberships(*NODES) == [{POOL}] * 4
    assert compute.handed_over() == {}

    compute.hand_over(Handover("a2", BLUE, ("n1", "n3")))
    nova.scheduler_knows()
    assert nova.boot(RED) is None
    assert nova.boot(BLUE) in ("n1", "n3")


def test_a_node_has_one_owner_and_no_slots(nova, compute):
    compute.pool(NODES)
    nova.scheduler_knows()
    shared = Handover("a1", RED, ("n1",), share={"n1": 2})
    with pytest.raises(Conflict, match="n1 is a bare-metal node, which has one owner and no slots"):
        compute.hand_over(shared)
    assert compute.handed_over() == {}
    nova.scheduler_knows()
    assert nova.boot(RED) is None


def taken_back(compute, handover):
    """Take back until that succeeds; the texts of ``HostsBusy`` meanwhile."""
    texts = []

    def tried():
        try:
            compute.take_back(handover)
        except HostsBusy as error:
            texts.append(str(error))
            return False
        return True

    eventually(tried, lambda: f"taken back: {texts[-1:]}")
    return texts


def test_a_tenant_on_hypervisors_and_nodes(nova, compute):
    """One aggregate holds both kinds; each flavor finds its kind, and strangers find neither."""
    compute.pool([*NODES, *HYPERVISORS])
    both = Handover("a1", RED, ("h1", "n1"))
    compute.hand_over(both)
    nova.scheduler_knows()
    assert compute.handed_over() == {"a1": both}
    assert nova.boot(RED) == "n1"
    assert on_hypervisor(nova, RED) == "h1"
    for project in (BLUE, GREEN):
        assert nova.boot(project) is None
        assert on_hypervisor(nova, project) is None
    assert {o.host: o.project_id for o in compute.occupants(both.hosts)} == {"h1": RED, "n1": RED}
    views = compute.look([*NODES, *HYPERVISORS])
    assert {host for host, view in views.items() if view.servers} == {"h1", "n1"}
    with pytest.raises(Forbidden, match="bare metal do not move"):
        compute.move_servers(ServerMoves("a1", RED, {"n1": "n2"}))
    nova.delete_servers({})
    taken_back(compute, both)
    assert nova.memberships("n1") == [{POOL}]
    assert nova.aggregate(POOL).hosts == HYPERVISORS


def on_hypervisor(nova, project):
    made = nova.client(project).servers.create("server", cloud.IMAGE, flavor="1", nics="none")
    return site.landed(nova.admin, made.id)


def test_a_dirty_node_is_neither_handed_over_nor_out_of_its_aggregate(nova, compute):
    ironic = nova.ironic
    compute.pool(NODES)
    compute.hand_over(A1)
    nova.scheduler_knows()
    node = nova.boot(RED)
    ironic.patch(node, driver_info={"cleaning_runbook": BAD})
    nova.delete_servers({})
    eventually(lambda: ironic.node(node)["provision_state"] == "clean failed", f"{node} failed")
    taken_back(compute, A1)
    assert compute.look(NODES)[node].unfit.startswith("clean failed: ")
    with pytest.raises(HostsBusy, match=f"cannot be handed over: {node} is clean failed"):
        compute.hand_over(Handover("a2", BLUE, (node,)))
    assert nova.memberships(node) == [{POOL}]
    ironic.patch(node, driver_info={})
    ironic.provision(ironic.admin, node, "manage")
    ironic.wait(node, "manageable")
    with pytest.raises(HostsBusy, match=f"{node} is manageable"):
        compute.hand_over(Handover("a2", BLUE, (node,)))
    ironic.provision(ironic.admin, node, "provide")
    nova.cleaned([node])
    compute.hand_over(Handover("a2", BLUE, (node,)))
    nova.scheduler_knows()
    assert nova.boot(BLUE) == node


def test_what_else_withholds_a_node(nova, compute):
    ironic = nova.ironic
    compute.pool(NODES)
    ironic.admin.put("/v1/nodes/n1/maintenance", json={"reason": "bad DIMM"})
    ironic.patch("n2", automated_clean=False)
    ironic.patch("n3", lessee=BLUE)
    expected = {
        "n1": "in maintenance: bad DIMM",
        "n2": "not cleaned automatically (automated_clean is False)",
        "n3": f"leased to project {BLUE}, which could deploy it past Nova; clear it "
        "(openstack baremetal node unset n3 --lessee)",
        "n4": "",
    }
    assert {host: view.unfit for host, view in compute.look(NODES).items()} == expected
    for host in ("n1", "n2", "n3"):
        with pytest.raises(HostsBusy, match=f"{host} is ") as refused:
            compute.hand_over(Handover("a1", RED, (host,)))
        assert expected[host] in str(refused.value)
    ironic.admin.delete("/v1/nodes/n1/maintenance")
    ironic.patch("n2", automated_clean=None)


def test_a_node_leaves_its_allocation_only_when_it_is_clean(nova, compute):
    compute.pool(NODES)
    compute.hand_over(A1)
    nova.scheduler_knows()
    used = {nova.boot(RED), nova.boot(RED)}
    assert used == {"n1", "n2"}
    compute.hand_over(Handover("a1", RED, ("n1", "n2", "n3")))
    moved = Handover("a1", RED, ("n2", "n3"))
    with pytest.raises(HostsBusy, match="hosts cannot be taken back: n1 is active"):
        compute.hand_over(moved)
    assert nova.memberships("n1") == [{POOL, "laas-a1"}]
    nova.delete_servers({})
    eventually(lambda: handed_over(compute, moved), "n1 left")
    assert nova.memberships("n1", "n2") == [{POOL}, {POOL, "laas-a1"}]
    assert nova.ironic.node("n1")["provision_state"] == "available"


def handed_over(compute, handover):
    try:
        compute.hand_over(handover)
    except HostsBusy:
        return False
    return True


class TestStrangers:
    """Who may not use a node, however the request is made."""

    @pytest.fixture
    def owned(self, nova, compute):
        compute.pool(NODES)
        compute.hand_over(A1)
        nova.scheduler_knows()
        return nova

    def test_with_novas_own_filters(self, owned):
        """They see no nodes: a stranger gets one although the pre-filter is on."""
        owned.filter_with(cloud.STOCK)
        try:
            assert owned.boot(BLUE) in NODES
        finally:
            owned.filter_with(cloud.OURS)

    def test_without_the_request_filter(self, owned):
        """Placement offers the nodes, as for an image with a trait; the filter judges by itself."""
        hidden = owned.request_filters_without("hide_pool")
        with hidden:
            assert owned.boot(BLUE) is None
            assert owned.boot(RED) in A1.hosts

    def test_with_a_forged_hint(self, owned):
        with owned.request_filters_without("hide_pool"):
            assert owned.boot(BLUE, scheduler_hints=FORGED) is None
            assert owned.boot(BLUE, scheduler_hints={"laas:allocation": "a1"}) is None

    def test_an_administrator_who_forces_a_node(self, owned):
        """Nova skips the filters, and the request filter still keeps the pool out."""
        uuid = owned.ironic.node("n1")["uuid"]
        zone = f"nova:bm:{uuid}"
        assert owned.boot(BLUE, admin=True, availability_zone=zone) is None
        assert owned.boot(RED, admin=True, availability_zone=zone) == "n1"

    def test_a_membership_by_hand(self, owned):
        """A node that placement has in the aggregate of another allocation accepts nobody there."""
        compute = owned.node_compute()
        compute.hand_over(Handover("a2", BLUE, ("n3",)))
        owned.scheduler_knows()
        assert owned.boot(BLUE) == "n3"
        both = [owned.aggregate(name).uuid for name in (POOL, "laas-a1", "laas-a2")]
        owned.set_memberships("n1", both)
        owned.set_memberships("n4", [both[0], both[2]])
        assert owned.boot(BLUE) is None
        compute.hand_over(Handover("a2", BLUE, ("n3",)))
        assert owned.memberships("n1", "n4") == [{POOL, "laas-a1"}, {POOL}]

    def test_a_node_without_memberships(self, owned):
        """The filter judges by Nova's database, so placement alone opens no node."""
        for name in NODES:
            owned.set_memberships(name, [])
        assert owned.boot(BLUE) is None
        assert owned.boot(RED) is None, "the pre-filter asks placement"
        compute = owned.node_compute()
        with compute.comparison():
            compute.pool(NODES)
            compute.hand_over(A1)
        assert owned.memberships(*NODES) == [{POOL, "laas-a1"}] * 2 + [{POOL}] * 2
        assert owned.boot(RED) in A1.hosts

    def test_keys_by_hand(self, owned):
        """What is edited in the aggregates is corrected in the next comparison."""
        compute = owned.node_compute()
        key = f"laas:node:{owned.ironic.node('n1')['uuid']}"
        for name in (POOL, "laas-a1"):
            owned.admin.aggregates.set_metadata(owned.aggregate(name), {key: None})
        assert compute.handed_over()["a1"].hosts == ("n2",)
        assert compute.observed().pooled == {"n2", "n3", "n4"}
        stranger = f"laas:node:{owned.ironic.node('n3')['uuid']}"
        owned.admin.aggregates.set_metadata(owned.aggregate("laas-a1"), {stranger: "n3"})
        owned.scheduler_knows()
        with compute.comparison():
            compute.pool(NODES)
            compute.hand_over(A1)
        assert compute.handed_over() == {"a1": A1}
        assert compute.observed().pooled == {*NODES}
        assert owned.memberships("n1", "n3") == [{POOL, "laas-a1"}, {POOL}]

    def test_a_closed_node_accepts_nobody(self, owned):
        """The adapter is a new one, which has listed no node before."""
        compute = owned.node_compute()
        compute.close(NODES, ["n1"])
        assert compute.observed().closed == {"n1"}
        owned.scheduler_knows()
        assert owned.boot(RED) == "n2"
        assert owned.boot(RED) is None
        compute.close(NODES, [])
        owned.scheduler_knows()
        assert owned.boot(RED) == "n1"

    def test_a_strangers_instance_is_told(self, owned):
        """Somebody deployed a node past Nova."""
        owned.ironic.patch("n3", instance_uuid="c" * 8 + "-0000-4000-8000-" + "c" * 12)
        compute = owned.node_compute()
        (told,) = compute.look(NODES)["n3"].servers
        assert (told.consumer, told.project_id) == ("c" * 8 + "-0000-4000-8000-" + "c" * 12, None)
        with pytest.raises(HostsBusy, match="n3 runs c"):
            compute.pool(NODES)
        with pytest.raises(HostsBusy, match="n3 runs c"):
            compute.hand_over(Handover("a2", BLUE, ("n3",)))


def test_nodes_nobody_names_are_closed_where_their_compute_host_is_in_the_pool(nova, compute):
    """n4 is not of the service: it is open, unless the operator pools nova-compute itself."""
    compute.pool(["n1", "n2", "n3"])
    nova.scheduler_knows()
    assert nova.boot(BLUE) == "n4"
    nova.delete_servers({})
    nova.cleaned(["n4"])
    closed = nova.admin.aggregates.create("bare-metal", None)
    nova.admin.aggregates.add_host(closed, "bm")
    nova.admin.aggregates.set_metadata(closed, {"laas:pool": "true"})
    nova.scheduler_knows()
    assert nova.boot(BLUE) is None
    compute.hand_over(Handover("a1", RED, ("n1",)))
    nova.scheduler_knows()
    assert nova.boot(RED) == "n1"


def test_a_host_is_the_node_with_its_guid(nova):
    guids = {"rack1": {GUIDS["n1"]}, "rack2": {GUIDS["n2"], 5}, "rack3": {6}}
    by_guid = nova.node_compute(lambda: guids)
    assert by_guid.look([*guids, "n3"]).keys() == {"rack1", "rack2", "n3"}
    by_guid.pool(["rack1", "rack2"])
    handover = Handover("a1", RED, ("rack1",))
    by_guid.hand_over(handover)
    assert by_guid.handed_over() == {"a1": handover}
    nova.scheduler_knows()
    assert nova.boot(RED) == "n1"
    with pytest.raises(NotFound, match="rack3"):
        by_guid.pool(["rack3"])


def test_a_node_that_vanishes_and_its_successor(nova, compute):
    """The successor has the name and another UUID: it takes the place of the old one."""
    ironic = nova.ironic
    ironic.enroll("n9")
    nova.refresh()
    compute.pool(["n1", "n9"])
    handover = Handover("a1", RED, ("n1", "n9"))
    compute.hand_over(handover)
    old = ironic.node("n9")["uuid"]
    ironic.delete("n9")
    nova.refresh()
    assert compute.look(["n1", "n9"]).keys() == {"n1"}
    with pytest.raises(NotFound, match="n9"):
        compute.hand_over(handover)
    ironic.enroll("n9")
    nova.refresh()
    assert compute.look(["n1", "n9"]).keys() == {"n1", "n9"}
    with compute.comparison():
        compute.pool(["n1", "n9"])
        compute.hand_over(handover)
    assert nova.memberships("n9") == [{POOL, "laas-a1"}]
    for name in (POOL, "laas-a1"):
        assert f"laas:node:{old}" not in nova.aggregate(name).metadata
    nova.scheduler_knows()
    assert {nova.boot(RED), nova.boot(RED)} == {"n1", "n9"}
    nova.delete_servers({})
    taken_back(compute, handover)
    ironic.delete("n9")
    nova.refresh()


def test_nodes_are_powered_off_and_compared_with_the_record(nova):
    ironic = nova.ironic
    careful = nova.node_compute(lambda: {"n2": {GUIDS["n2"] + 64}}, power_off=True)
    careful.pool(NODES)
    with pytest.raises(HostsBusy, match=f"n2 is without port GUID {GUIDS['n2'] + 64:#018x}"):
        careful.hand_over(A1)
    assert careful.look(NODES)["n2"].unfit.startswith("without port GUID")
    handover = Handover("a1", RED, ("n1",))
    careful.hand_over(handover)
    ironic.admin.put("/v1/nodes/n1/states/power", json={"target": "power on"})
    eventually(lambda: ironic.node("n1")["power_state"] == "power on", "n1 is on")
    assert taken_back(careful, handover)[0].endswith("n1 is being powered off")
    assert ironic.node("n1")["power_state"] == "power off"
    ironic.set_firmware("n1", "bios", "2.0", "2.1")
    with pytest.raises(HostsBusy, match=r"n1 is with bios firmware 2.1 instead of 2.0"):
        careful.hand_over(handover)
    nova.node_compute(firmware=[("bios", "2.1")]).hand_over(handover)
    ironic.set_firmware("n1", "bios", "2.0", "2.0")


def test_nodes_run_cleaning_steps_before_they_leave_their_aggregate(nova):
    """Also a node without a server; while it runs them, its owner starts none there."""
    settings = [{"name": "sriov", "value": "off"}]
    step = {"interface": "bios", "step": "apply_configuration", "args": {"settings": settings}}
    careful = nova.node_compute(steps=[step])
    careful.pool(NODES)
    for allocation in ("a1", "a1", "a2"):
        handover = Handover(allocation, RED, ("n1",))
        careful.hand_over(handover)
        assert "laas_cleaning" not in nova.ironic.node("n1")["properties"]
        texts = taken_back(careful, handover)
        assert texts[0].endswith(": n1 runs its cleaning steps")
        assert [s["name"] for s in nova.ironic.admin.get("/v1/nodes/n1/bios").json()["bios"]]
        assert nova.memberships("n1") == [{POOL}]
        assert nova.ironic.node("n1")["provision_state"] == "available"
    nova.refresh(["n1"])


def test_a_release_by_force_deletes_servers_where_that_is_configured(nova, compute):
    """Those of the allocation's project, on nodes and hypervisors; others are waited for."""
    compute.pool([*NODES, *HYPERVISORS])
    both = Handover("a1", RED, ("h1", "n1"))
    compute.hand_over(both)
    nova.scheduler_knows()
    assert nova.boot(RED) == "n1"
    assert on_hypervisor(nova, RED) == "h1"
    compute.fence("a1")
    with pytest.raises(HostsBusy, match=r"h1 runs .*n1 runs"):
        compute.take_back(both, force=True)
    deleting = nova.node_compute(delete_servers=True)
    with pytest.raises(HostsBusy, match=r"h1 runs .*n1 runs"):
        deleting.take_back(both)
    assert len(nova.admin.servers.list(search_opts={"all_tenants": 1})) == 2

    def gone():
        try:
            deleting.take_back(both, force=True)
        except HostsBusy:
            return False
        return True

    eventually(gone, "all servers are deleted")
    assert nova.admin.servers.list(search_opts={"all_tenants": 1}) == []
    assert nova.ironic.node("n1")["provision_state"] == "available"
    assert nova.memberships("n1") == [{POOL}]


def test_a_foreign_lessee_is_cleared_where_that_is_configured(nova, compute):
    """Of free nodes and those of allocations, unless the lessee has deployed the node."""
    compute.pool(NODES)
    compute.hand_over(Handover("a1", RED, ("n1", "n2")))
    nova.ironic.patch("n1", lessee=BLUE)
    nova.ironic.patch("n2", lessee=RED)
    nova.ironic.patch("n3", lessee=BLUE)
    lessees = {name: nova.ironic.node(name)["lessee"] for name in NODES}
    assert compute.look(NODES)["n1"].unfit.startswith(f"leased to project {BLUE}")
    with compute.comparison():
        compute.pool(NODES)
    assert {name: nova.ironic.node(name)["lessee"] for name in NODES} == lessees
    clearing = nova.node_compute(clear_lessees=True)
    with clearing.comparison():
        clearing.pool(NODES)
    expected = {"n1": None, "n2": RED, "n3": None, "n4": None}
    assert {name: nova.ironic.node(name)["lessee"] for name in NODES} == expected
    assert {view.unfit for view in clearing.look(NODES).values()} == {""}


def test_the_calls_of_a_hand_over_and_of_a_release(nova):
    """By node: GUIDs, firmware and consumers, and two for its aggregates in placement."""
    calls: list[str] = []
    compute = nova.node_compute(beat=calls.append)
    compute.pool(NODES)
    spent = []
    for hosts in (("n1",), ("n1", "n2", "n3", "n4")):
        handover = Handover("a1", RED, hosts)
        for act in (compute.hand_over, compute.take_back):
            calls.clear()
            act(handover)
            spent.append(len(calls))
    assert [after - before for before, after in zip(spent[:2], spent[2:], strict=True)] == [15, 9]


def test_what_the_upgrade_check_asks(nova, compute):
    problems, well = compute.nodes.findings(["n1", "n2", "h1"])
    assert problems == []
    assert well.startswith("Ironic shows 4 nodes, of which 2 are hosts of fabrics")
    assert compute.checks.unread_memberships() is None


def test_without_a_login_for_ironic_the_hosts_are_unknown(nova):
    with pytest.raises(NotFound, match="no compute host 'n1'"):
        nova.compute().pool(["n1"])
    with pytest.raises(Conflict, match=r"bm has 4 nodes .*login in .ironic."):
        nova.compute().pool(["bm"])


def test_nodes_are_read_by_page_and_once_a_comparison(nova):
    calls: list[str] = []
    compute = nova.node_compute(beat=calls.append, page=3)
    compute.pool([*NODES, *HYPERVISORS])
    compute.hand_over(A1)
    compute.look([*NODES, *HYPERVISORS])
    calls.clear()
    with compute.comparison():
        compute.pool([*NODES, *HYPERVISORS])
        compute.hand_over(A1)
        assert compute.handed_over().keys() == {"a1"}
    assert not [call for call in calls if call.startswith("list nodes")]
    assert [call for call in calls if call.startswith("list aggregates")] == ["list aggregates"]
    assert [call.split("?")[1][:10] for call in calls if "member_of" in call] == ["member_of="] * 3
