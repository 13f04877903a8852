# SPDX-License-Identifier: Apache-2.0

"""The Ironic adapter against the real Ironic, with users of the real Keystone."""

from __future__ import annotations

import pytest

from laas_service.adapters import ironic as adapter
from laas_service.adapters import openstack_calls
from laas_service.adapters.ironic_nodes import FREE, IronicCalls, Nodes
from laas_service.app.ports.compute import Handover, ServerMoves
from laas_service.domain.errors import (
    Conflict,
    Forbidden,
    HostsBusy,
    InvalidInput,
    NotFound,
    Unavailable,
)
from tests import crashes
from tests.ironic.conftest import HOSTS
from tests.servers.ironic import BAD
from tests.waiting import eventually

NOBODY = "laas-nobody"


def refusals(call):
    """Repeat a call until it succeeds; the texts of ``HostsBusy`` meanwhile."""
    texts = []

    def tried():
        try:
            call()
        except HostsBusy as error:
            texts.append(str(error))
            return False
        return True

    eventually(tried, lambda: f"no success: {texts[-1:]}")
    return texts


def with_nodes(compute, *guids, **more):
    """The adapter with other settings of its nodes."""
    cloud = compute._cloud
    return adapter.IronicCompute(cloud, Nodes(cloud, *guids, **more), sentinel=NOBODY)


def leased(ironic, *names):
    return [ironic.node(name)["lessee"] for name in names]


def test_life_of_an_allocation(ironic, compute, red, blue):
    ironic.enroll("n1", "n2", "n3")
    hosts = ["n1", "n2", "n3"]
    compute.pool(hosts)
    assert compute.observed().pooled == {*hosts}
    handover = Handover("a1", red.id, ("n1", "n2"))
    compute.hand_over(handover)
    compute.hand_over(handover)  # changes nothing
    assert leased(ironic, *hosts) == [red.id, red.id, NOBODY]
    assert compute.handed_over() == {"a1": handover}
    assert compute.observed().pooled == {*hosts}
    assert not compute.occupants(hosts)

    assert ironic.provision(blue.manager, "n1", "active") in (403, 404)
    assert ironic.provision(red.member, "n1", "active") == 403
    ironic.deploy(red.manager, "n1")
    assert [(o.host, o.project_id) for o in compute.occupants(hosts)] == [("n1", red.id)]
    seen = compute.look(hosts)
    assert [o.project_id for o in seen["n1"].servers] == [red.id]
    assert {seen[host].unfit for host in hosts} == {""}

    compute.fence("a1")
    assert leased(ironic, "n1", "n2") == [red.id, NOBODY]
    assert compute.observed().fenced == {"a1"}
    assert compute.handed_over()["a1"].project_id == NOBODY
    assert ironic.provision(red.manager, "n2", "active") in (403, 404)
    with pytest.raises(HostsBusy, match=f"n1 is active for project {red.id}"):
        compute.take_back(handover)

    assert ironic.provision(red.manager, "n1", "deleted") == 202
    texts = refusals(lambda: compute.take_back(handover))
    assert all("n1 is " in text for text in texts)
    assert ironic.node("n1")["provision_state"] == "available"
    assert compute.handed_over() == {}
    assert leased(ironic, *hosts) == [NOBODY] * 3

    compute.hand_over(Handover("a2", blue.id, ("n1", "n3")))
    ironic.deploy(blue.manager, "n1")
    assert ironic.provision(red.manager, "n1", "deleted") in (403, 404)


def test_nobody_gets_a_free_node(ironic, compute, red):
    ironic.enroll("n1")
    compute.pool(["n1"])
    assert red.manager.get("/v1/nodes").json()["nodes"] == []
    assert ironic.provision(red.manager, "n1", "active") in (403, 404)
    made = red.manager.post("/v1/allocations", json={"resource_class": "baremetal"}).json()
    path = f"/v1/allocations/{made['uuid']}"
    ended = eventually(
        lambda: (a := red.manager.get(path).json())["state"] == "error" and a, "it fails"
    )
    assert "no available nodes" in ended["last_error"]
    red.manager.delete(path)
    assert ironic.node("n1")["instance_uuid"] is None


def test_the_owner_of_a_lease_allocates_by_the_api(ironic, compute, red):
    ironic.enroll("n1", "n2")
    compute.pool(["n1", "n2"])
    compute.hand_over(Handover("a1", red.id, ("n2",)))
    made = red.member.post("/v1/allocations", json={"resource_class": "baremetal"}).json()
    eventually(lambda: ironic.node("n2")["instance_uuid"] == made["uuid"], "n2 is reserved")
    assert [o.consumer for o in compute.occupants(["n1", "n2"])] == [made["uuid"]]
    with pytest.raises(HostsBusy, match="n2 is reserved for instance"):
        compute.take_back(Handover("a1", red.id, ("n2",)))
    red.member.delete(f"/v1/allocations/{made['uuid']}")
    refusals(lambda: compute.take_back(Handover("a1", red.id, ("n2",))))


def test_only_clean_nodes_in_order_are_handed_over(ironic, compute, red):
    ironic.enroll(*HOSTS)
    compute.pool(HOSTS)
    ironic.admin.put("/v1/nodes/n1/maintenance", json={"reason": "bad DIMM"})
    ironic.patch("n2", automated_clean=False)
    ironic.provision(ironic.admin, "n3", "manage")
    ironic.wait("n3", "manageable")
    ironic.patch("n4", instance_uuid="11111111-2222-3333-4444-555555555555")
    expected = {
        "n1": "in maintenance: bad DIMM",
        "n2": "not cleaned automatically (automated_clean is False)",
        "n3": "manageable",
        "n4": "",
    }
    assert {host: seen.unfit for host, seen in compute.look(HOSTS).items()} == expected
    for host, why in {**expected, "n4": "reserved for instance 1111"}.items():
        with pytest.raises(HostsBusy) as refused:
            compute.hand_over(Handover("a1", red.id, (host,)))
        assert f"{host} is {why}" in str(refused.value)
    assert leased(ironic, *HOSTS) == [NOBODY] * 4
    ironic.admin.delete("/v1/nodes/n1/maintenance")
    assert compute.look(["n1"])["n1"].unfit == ""
    compute.hand_over(Handover("a1", red.id, ("n1",)))


def test_a_node_whose_cleaning_failed_is_taken_back_and_withheld(ironic, compute, red, blue):
    ironic.enroll("n1")
    compute.pool(["n1"])
    handover = Handover("a1", red.id, ("n1",))
    compute.hand_over(handover)
    ironic.deploy(red.manager, "n1")
    ironic.patch("n1", **{"driver_info": {"cleaning_runbook": BAD}})
    ironic.undeploy(red.manager, "n1", "clean failed")
    assert not compute.occupants(["n1"])
    compute.take_back(handover)
    assert compute.look(["n1"])["n1"].unfit.startswith("clean failed: Cannot clean node")
    with pytest.raises(HostsBusy, match="n1 is clean failed"):
        compute.hand_over(Handover("a2", blue.id, ("n1",)))
    assert ironic.provision(red.manager, "n1", "provide") in (403, 404)
    ironic.patch("n1", driver_info={})
    ironic.provision(ironic.admin, "n1", "manage")
    ironic.wait("n1", "manageable")
    ironic.provision(ironic.admin, "n1", "provide")
    ironic.wait("n1", "available")
    compute.hand_over(Handover("a2", blue.id, ("n1",)))


def test_force_deletes_instances_and_waits_until_the_nodes_are_clean(ironic, compute, red):
    ironic.enroll("n1", "n2")
    compute.pool(["n1", "n2"])
    handover = Handover("a1", red.id, ("n1", "n2"))
    compute.hand_over(handover)
    ironic.deploy(red.manager, "n1")
    assert ironic.patch("n1", red.member, protected=True) == 200
    compute.fence("a1")
    texts = refusals(lambda: compute.take_back(handover, force=True))
    assert "n1 is being undeployed and cleaned" in texts[0]
    assert all("n1 is " in text for text in texts)
    assert ironic.node("n1")["provision_state"] == "available"
    assert leased(ironic, "n1", "n2") == [NOBODY] * 2
    assert compute.handed_over() == {}


def test_force_leaves_nodes_of_others_alone(ironic, compute, red, blue):
    """The node that was never handed over has an instance of somebody else."""
    ironic.enroll("n1")
    ironic.patch("n1", lessee=blue.id)
    ironic.deploy(blue.manager, "n1")
    compute.take_back(Handover("a1", red.id, ("n1",)), force=True)
    assert ironic.node("n1")["provision_state"] == "active"
    assert leased(ironic, "n1") == [blue.id]


def test_changes_by_hand_are_found_and_repaired(ironic, compute, red, blue):
    ironic.enroll("n1", "n2", "n3")
    hosts = ["n1", "n2", "n3"]
    compute.pool(hosts)
    handover = Handover("a1", red.id, ("n1", "n2"))
    compute.hand_over(handover)
    ironic.patch("n1", lessee=blue.id)
    ironic.patch("n2", lessee=None)
    ironic.patch("n3", lessee=blue.id)
    observed = compute.observed()
    assert observed.handed_over == {"a1": Handover("a1", f",{blue.id}", handover.hosts)}
    assert observed.pooled == {"n1", "n2"}
    compute.hand_over(handover)
    compute.pool(hosts)
    assert leased(ironic, *hosts) == [red.id, red.id, NOBODY]
    ironic.patch("n1", properties={})
    assert compute.handed_over() == {"a1": Handover("a1", red.id, ("n2",))}
    with pytest.raises(Conflict, match=f"n1 is leased to project {red.id}"):
        compute.pool(hosts)
    ironic.patch("n1", lessee=None)
    compute.hand_over(handover)
    assert compute.handed_over() == {"a1": handover}


def test_a_strangers_instance_is_told(ironic, compute, red, blue):
    ironic.enroll("n1")
    compute.pool(["n1"])
    compute.hand_over(Handover("a1", red.id, ("n1",)))
    ironic.patch("n1", lessee=blue.id)
    ironic.deploy(blue.manager, "n1")
    (occupant,) = compute.look(["n1"])["n1"].servers
    assert occupant.project_id == blue.id
    compute.stop(occupant.consumer)
    eventually(lambda: ironic.node("n1")["power_state"] == "power off", "n1 is off")


def test_a_lessee_cannot_change_whose_the_node_is(ironic, compute, red):
    ironic.enroll("n1")
    compute.pool(["n1"])
    compute.hand_over(Handover("a1", red.id, ("n1",)))
    for user in (red.manager, red.member):
        assert ironic.patch("n1", user, properties={}) == 403
        assert ironic.patch("n1", user, lessee=None) == 403
        assert ironic.patch("n1", user, automated_clean=False) == 403
        assert ironic.patch("n1", user, instance_uuid="1" * 32) == 403


def test_a_node_that_an_allocation_leaves_stays_its_lessees_until_it_is_clean(ironic, compute, red):
    ironic.enroll("n1", "n2")
    compute.pool(["n1", "n2"])
    compute.hand_over(Handover("a1", red.id, ("n1",)))
    ironic.deploy(red.manager, "n1")
    moved = Handover("a1", red.id, ("n2",))
    compute.hand_over(Handover("a1", red.id, ("n1", "n2")))
    compute.hand_over(moved)
    assert compute.handed_over() == {"a1": moved}
    assert [o.host for o in compute.occupants(["n1"])] == ["n1"]
    with pytest.raises(Forbidden, match="do not move"):
        compute.move_servers(ServerMoves("a1", red.id, {"n1": "n2"}))
    assert ironic.provision(red.manager, "n1", "deleted") == 202
    texts = refusals(lambda: compute.hand_over(moved))
    assert all("n1 is " in text for text in texts)
    assert leased(ironic, "n1", "n2") == [NOBODY, red.id]
    assert not compute.occupants(["n1"])


def test_a_node_may_return_to_the_allocation_that_it_was_leaving(ironic, compute, red):
    ironic.enroll("n1")
    compute.pool(["n1"])
    handover = Handover("a1", red.id, ("n1",))
    compute.hand_over(handover)
    ironic.deploy(red.manager, "n1")
    compute.fence("a1")
    compute.hand_over(handover)
    assert compute.handed_over() == {"a1": handover}
    assert compute.observed().fenced == frozenset()


def test_nodes_in_use_stay_out_of_the_pool(ironic, compute, red, blue):
    ironic.enroll("n1", "n2", "n3")
    ironic.patch("n1", lessee=red.id)
    ironic.deploy(red.manager, "n1")
    with pytest.raises(HostsBusy, match=f"n1 is active for project {red.id}"):
        compute.pool(["n1", "n2"])
    ironic.patch("n3", lessee=blue.id)
    with pytest.raises(Conflict, match=f"n3 is leased to project {blue.id}"):
        compute.pool(["n3"])
    assert leased(ironic, "n1", "n2", "n3") == [red.id, NOBODY, blue.id]
    with pytest.raises(Conflict, match=f"n3 is leased to project {blue.id}"):
        compute.hand_over(Handover("a1", red.id, ("n3",)))
    compute.hand_over(Handover("a1", red.id, ("n2",)))
    with pytest.raises(Conflict, match="n2 belongs to allocation a1"):
        compute.hand_over(Handover("a2", blue.id, ("n2",)))


def test_a_node_that_vanishes(ironic, compute, red):
    ironic.enroll("n1", "n2")
    compute.pool(["n1", "n2"])
    handover = Handover("a1", red.id, ("n1", "n2"))
    compute.hand_over(handover)
    ironic.admin.put("/v1/nodes/n1/maintenance", json={})
    ironic.admin.delete("/v1/nodes/n1")
    assert compute.look(["n1", "n2"]).keys() == {"n2"}
    with pytest.raises(NotFound, match="no bare-metal node 'n1'; enroll it"):
        compute.hand_over(handover)
    with pytest.raises(NotFound, match="no bare-metal node 'n1'"):
        compute.pool(["n1", "n2"])
    compute.take_back(handover)
    assert leased(ironic, "n2") == [NOBODY]


def test_a_host_is_the_node_with_its_guid(ironic, compute, configured, red):
    guid = 0x7CFE900300292652
    ironic.enroll("rack1-node7", guids=[guid, guid + 1])
    ironic.enroll("n2")
    by_guid = with_nodes(compute, lambda: {"n1": {guid}, "n2": {5}, "n3": {6}})
    assert by_guid.look(["n1", "n2", "n3"]).keys() == {"n1", "n2"}
    by_guid.pool(["n1", "n2"])
    by_guid.hand_over(Handover("a1", red.id, ("n1",)))
    assert leased(ironic, "rack1-node7") == [red.id]
    assert by_guid.handed_over() == {"a1": Handover("a1", red.id, ("n1",))}


def test_nodes_are_listed_by_page_and_once_a_comparison(ironic, configured, red):
    ironic.enroll(*HOSTS)
    calls: list[str] = []
    made = configured.parts().compute
    cloud = IronicCalls(made._cloud._ironic, calls.append, page=3)
    compute = adapter.IronicCompute(cloud, Nodes(cloud), sentinel=NOBODY)
    assert [node.name for node in cloud.nodes()] == HOSTS
    calls.clear()
    with compute.comparison():
        compute.pool(HOSTS)
        compute.hand_over(Handover("a1", red.id, ("n1",)))
        compute.hand_over(Handover("a1", red.id, ("n1",)))
        assert compute.handed_over().keys() == {"a1"}
    assert [call for call in calls if call.startswith("list")] == ["list nodes", "list ports"]
    assert len(calls) == 1 + 4 + 3  # the pool's writes; ports, firmware and lease of n1


def test_a_user_without_rights(ironic, configured, keystone, red):
    ironic.enroll("n1")
    service = keystone.project("service")
    keystone.user("weak", {service: ["member"]})
    weak = configured.parts("weak").compute
    with pytest.raises(NotFound, match="role service in Ironic's service project"):
        weak.pool(["n1"])
    ironic.patch("n1", lessee=service)
    with pytest.raises(Forbidden, match="not allowed to set the lessee of node n1"):
        weak._cloud.change(weak._listed.now()["n1"], red.id, FREE)


def test_a_project_that_cannot_be_a_lessee(ironic, compute):
    for project in ("", NOBODY, "a,b", "x" * 256):
        with pytest.raises(InvalidInput):
            compute.hand_over(Handover("a1", project, ()))


def test_ironic_that_does_not_answer(ironic, compute, red, monkeypatch):
    monkeypatch.setattr(openstack_calls, "READ_PAUSE", 0.0)
    ironic.enroll("n1")
    compute.pool(["n1"])
    ironic.stop()
    try:
        with pytest.raises(Unavailable, match="cannot list nodes"):
            compute.hand_over(Handover("a1", red.id, ("n1",)))
    finally:
        ironic.start()
    refused = []

    def handed():
        try:
            compute.hand_over(Handover("a1", red.id, ("n1",)))
        except Unavailable as error:  # the API answers before its conductor does
            refused.append(error)
            return False
        return True

    eventually(handed, lambda: f"handed over: {refused[-1:]}")
    assert leased(ironic, "n1") == [red.id]


def test_nodes_are_powered_off_before_they_are_free(ironic, compute, red):
    """A lessee may power on a node that it never deployed."""
    ironic.enroll("n1")
    compute.pool(["n1"])
    handover = Handover("a1", red.id, ("n1",))
    compute.hand_over(handover)
    path = "/v1/nodes/n1/states/power"
    assert red.manager.put(path, json={"target": "power on"}).status_code == 202
    eventually(lambda: ironic.node("n1")["power_state"] == "power on", "n1 is on")
    careful = with_nodes(compute, power_off=True)
    texts = refusals(lambda: careful.take_back(handover))
    assert texts[0].endswith("n1 is being powered off")
    assert ironic.node("n1")["power_state"] == "power off"
    assert leased(ironic, "n1") == [NOBODY]


def test_a_node_with_other_firmware_or_guids_gets_no_new_owner(ironic, compute, red):
    guid = 0x7CFE900300292652
    ironic.enroll("n1", guids=[guid])
    compute.pool(["n1"])
    handover = Handover("a1", red.id, ("n1",))
    ironic.set_firmware("n1", "bios", "2.0", "2.0")
    compute.hand_over(handover)
    compute.take_back(handover)
    ironic.set_firmware("n1", "bios", "2.0", "2.1")
    ironic.set_firmware("n1", "bmc", "7", "7")
    assert compute.look(["n1"])["n1"].unfit == "", "it is compared when it gets an owner"
    why = "with bios firmware 2.1 instead of 2.0"
    with pytest.raises(HostsBusy, match=f"hosts cannot be handed over: n1 is {why}"):
        compute.hand_over(handover)
    assert compute.look(["n1"])["n1"].unfit == why
    assert leased(ironic, "n1") == [NOBODY]
    approving = with_nodes(compute, lambda: {"n1": {guid}}, firmware=[("bios", "2.1")])
    approving.hand_over(handover)
    approving.take_back(handover)
    other = with_nodes(compute, lambda: {"n1": {guid + 1}}, firmware=[("bios", "2.1")])
    why = "without port GUID 0x7cfe900300292653"
    with pytest.raises(HostsBusy, match=f"n1 is {why}"):
        other.hand_over(handover)
    assert other.look(["n1"])["n1"].unfit == why
    ironic.set_firmware("n1", "bios", "2.0", "2.0")
    compute.hand_over(handover)
    compute.take_back(handover)
    assert compute.look(["n1"])["n1"].unfit == ""


class TestCleaningSteps:
    """The steps that the operator configures; the fake BIOS shows which were run."""

    STEPS = [
        {
            "interface": "bios",
            "step": "apply_configuration",
            "args": {"settings": [{"name": "sriov", "value": "off"}]},
        }
    ]

    @pytest.fixture
    def careful(self, ironic, compute, red):
        ironic.enroll("n1")
        made = with_nodes(compute, steps=self.STEPS)
        made.pool(["n1"])
        return made

    @pytest.fixture
    def handover(self, careful, red):
        made = Handover("a1", red.id, ("n1",))
        careful.hand_over(made)
        return made

    def settings(self, ironic):
        listed = ironic.admin.get("/v1/nodes/n1/bios").json()["bios"]
        return {setting["name"]: setting["value"] for setting in listed}

    def test_a_node_runs_them_before_it_is_free(self, ironic, careful, handover, red):
        """Also a node that its lessee never deployed, and at each release."""
        for earlier in ("", "on"):
            if earlier:
                careful.hand_over(handover)
                ironic.set_bios("n1", "sriov", earlier)
                ironic.deploy(red.manager, "n1")
                ironic.undeploy(red.manager, "n1")
            careful.fence(handover.allocation_id)
            texts = refusals(lambda: careful.take_back(handover))
            assert {text.partition(": ")[2] for text in texts} >= {"n1 runs its cleaning steps"}
            assert self.settings(ironic) == {"sriov": "off"}
            assert ironic.node("n1")["provision_state"] == "available"
            assert leased(ironic, "n1") == [NOBODY]
            assert careful.look(["n1"])["n1"].unfit == ""

    def test_a_node_whose_steps_failed_is_taken_back_and_withheld(
        self, ironic, compute, handover, red
    ):
        wrong = with_nodes(compute, steps=[{"interface": "bios", "step": "no_such_step"}])
        wrong.fence(handover.allocation_id)
        refusals(lambda: wrong.take_back(handover))
        assert leased(ironic, "n1") == [NOBODY]
        assert wrong.look(["n1"])["n1"].unfit.startswith("clean failed: ")
        ironic.provision(ironic.admin, "n1", "manage")
        ironic.wait("n1", "manageable")
        ironic.provision(ironic.admin, "n1", "provide")
        ironic.wait("n1", "available")
        careful = with_nodes(compute, steps=self.STEPS)
        self.is_withheld_until_it_is_clean(ironic, careful, red)

    def test_a_node_in_maintenance_runs_them_afterwards(self, ironic, careful, handover, red):
        ironic.admin.put("/v1/nodes/n1/maintenance", json={"reason": "bad DIMM"})
        careful.fence(handover.allocation_id)
        careful.take_back(handover)
        assert careful.look(["n1"])["n1"].unfit == "in maintenance: bad DIMM"
        careful.pool(["n1"])
        ironic.admin.delete("/v1/nodes/n1/maintenance")
        self.is_withheld_until_it_is_clean(ironic, careful, red)

    def is_withheld_until_it_is_clean(self, ironic, careful, red):
        assert careful.look(["n1"])["n1"].unfit == "still to run its cleaning steps"
        with pytest.raises(HostsBusy, match="n1 is still to run its cleaning steps"):
            careful.hand_over(Handover("a2", red.id, ("n1",)))

        def settled():
            careful.pool(["n1"])
            return careful.look(["n1"])["n1"].unfit == ""

        eventually(settled, lambda: str(ironic.node("n1")))
        assert self.settings(ironic) == {"sriov": "off"}
        careful.hand_over(Handover("a2", red.id, ("n1",)))

    def test_nobody_deploys_a_node_that_leaves_by_a_move(self, ironic, careful, handover, red):
        ironic.enroll("n2")
        careful.pool(["n2"])
        moved = Handover("a1", red.id, ("n2",))
        refusals(lambda: self.moves(ironic, careful, moved, red))
        assert self.settings(ironic) == {"sriov": "off"}
        assert leased(ironic, "n1", "n2") == [NOBODY, red.id]

    def moves(self, ironic, careful, moved, red):
        try:
            careful.hand_over(moved)
        finally:
            assert leased(ironic, "n1") == [NOBODY]
            assert ironic.provision(red.manager, "n1", "active") in (403, 404)

    def test_killed_after_each_change(self, ironic, compute, handover, monkeypatch):
        """Every change is followed by a crash; nothing is run twice, and nothing is left out."""
        calls: list[tuple[str, str]] = []
        compute.fence(handover.allocation_id)
        write = IronicCalls._write

        def mortal(self, action, *more):
            answer = write(self, action, *more)
            if isinstance(answer, str):
                return answer
            node = ironic.node("n1")
            owes = node["properties"].get("laas_cleaning", {}).get("paid") is False
            leased = "nobody" if node["lessee"] == NOBODY else "the project"
            calls.append((action, f"leased to {leased}; {'owes' if owes else 'paid'}"))
            raise Killed

        def ended():
            try:
                with monkeypatch.context() as patch:
                    patch.setattr(IronicCalls, "_write", mortal)
                    with_nodes(compute, steps=self.STEPS).take_back(handover)
            except (HostsBusy, Killed):
                return False
            return True

        eventually(ended, lambda: str(calls))
        assert self.settings(ironic) == {"sriov": "off"}
        assert leased(ironic, "n1") == [NOBODY]
        told = [[crashes.change(call), left, crashes.DONE] for call, left in calls]
        crashes.tell("Without Nova: cleaning steps of a node that leaves", told)


class Killed(BaseException):
    """The process is killed."""
