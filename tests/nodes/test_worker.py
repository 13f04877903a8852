# SPDX-License-Identifier: Apache-2.0

"""The service on hypervisors and nodes: killed after any write, the whole life, withheld nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.ironic_nodes import IronicCalls as IronicCloud
from laas_service.adapters.ironic_nodes import Nodes
from laas_service.adapters.nova import NovaCompute
from laas_service.adapters.nova.cloud import Cloud
from laas_service.adapters.nova.keys import NODE, OWNER
from laas_service.adapters.openstack_calls import Calls
from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import Handover
from laas_service.app.records import AllocationRecord, Caller
from laas_service.app.requests import ReplaceRequest
from laas_service.domain.allocation import NoFit
from laas_service.domain.errors import HostsBusy
from laas_service.domain.verification import violations
from laas_service.wiring.composition import Composition
from tests import crashes
from tests.nodes.conftest import HYPERVISORS, NODES
from tests.nodes.test_nodes import BLUE, RED, on_hypervisor
from tests.nova.cloud import NOBODY, POOL
from tests.nova.test_holes import Service
from tests.options import options_from
from tests.waiting import eventually

HOSTS = [*HYPERVISORS, *NODES]


class Killed(BaseException):
    """The process is killed; its text is the last change that it made."""


def mortal(nova, writes):
    """An adapter that is killed after so many writes to Nova and placement."""
    made = Cloud(nova.admin, nova.placement)
    left = iter(range(writes - 1, -1, -1))

    def killing(write):
        def killed(action, *more):
            answer = write(action, *more)
            if not isinstance(answer, str) and next(left) == 0:  # a refusal changes nothing
                raise Killed(crashes.change(action))
            return answer

        return killed

    for calls in (made.aggregates, made.servers, made.placement):
        calls._write = killing(calls._write)  # type: ignore[method-assign]
    nodes = Nodes(IronicCloud(nova.ironic.admin))
    return NovaCompute(made, pool=POOL, sentinel=NOBODY, nodes=nodes)


def test_killed_after_any_write(nova, compute):
    """Neither kind of host ever accepts a stranger, and the next attempt completes the step."""
    compute.pool(HOSTS)
    both = Handover("a1", RED, ("h1", "n1"))
    steps = {"hand over": True, "take back": True}
    rows: dict[str, crashes.Rows] = {step: [] for step in steps}
    writes = 0
    while any(steps.values()):
        writes += 1
        for step, begins in steps.items():
            act = NovaCompute.hand_over if step == "hand over" else NovaCompute.take_back
            if begins:
                last = dies(mortal(nova, writes), act, both)
                steps[step] = last is not None
                rows[step] += [[last, left(nova), crashes.DONE]] if last else []
                nova.scheduler_knows()
                assert nova.boot(BLUE) is None, (step, writes)
                assert on_hypervisor(nova, BLUE) is None, (step, writes)
            act(nova.node_compute(), both)
            nova.scheduler_knows()
            handed = {"a1": both} if step == "hand over" else {}
            assert nova.node_compute().handed_over() == handed
            members = {POOL, "laas-a1"} if handed else {POOL}
            assert nova.memberships("n1", "n2") == [members, {POOL}]
    assert writes > 6, "aggregate, metadata, keys, member, host and touch are writes"
    for step, told in rows.items():
        crashes.tell(f"With Nova: {step} a hypervisor and a node", told)


TIMES = {"record the cleaning steps of a node": 3}
"""How often a release makes a change that it makes more than once."""


def test_killed_after_each_change_of_a_release_by_force(nova, compute, monkeypatch):
    """Servers are deleted, a node runs cleaning steps, and everything leaves the aggregate."""
    settings = [{"name": "sriov", "value": "off"}]
    step = {"interface": "bios", "step": "apply_configuration", "args": {"settings": settings}}
    compute.pool(HOSTS)
    both = Handover("a1", RED, ("h1", "n1"))
    compute.hand_over(both)
    nova.scheduler_knows()
    assert nova.boot(RED) == "n1"
    compute.fence("a1")
    write = Calls._write
    killed: Counter[str] = Counter()
    rows: crashes.Rows = []

    def mortal(self, action, *more):
        answer = write(self, action, *more)
        change = crashes.change(action)
        if isinstance(answer, str) or killed[change] == TIMES.get(change, 1):
            return answer
        killed[change] += 1
        raise Killed(change)

    def ended():
        try:
            with monkeypatch.context() as patch:
                patch.setattr(Calls, "_write", mortal)
                nova.node_compute(delete_servers=True, steps=[step]).take_back(both, force=True)
        except HostsBusy:
            return False
        except Killed as last:
            rows.append([str(last), left(nova), crashes.DONE])
            nova.scheduler_knows()
            assert nova.boot(BLUE) is None, rows
            return False
        return True

    eventually(ended, lambda: str(rows))
    assert nova.memberships(*NODES) == [{POOL}] * 4
    assert nova.ironic.admin.get("/v1/nodes/n1/bios").json()["bios"], "the steps were run"
    assert nova.admin.servers.list(search_opts={"all_tenants": 1}) == []
    crashes.tell("With Nova: release by force, a server, cleaning steps", rows)


def dies(compute, act, handover):
    """The last change if the process was killed."""
    try:
        act(compute, handover)
    except Killed as killed:
        return str(killed)
    return None


def left(nova):
    """The aggregate of the allocation, as Nova and placement have it."""
    found = [a for a in nova.admin.aggregates.list() if a.name == "laas-a1"]
    if not found:
        return "no aggregate"
    hosts, keys = found[0].hosts, found[0].metadata
    hosts = [*hosts, *(value for key, value in keys.items() if key.startswith(NODE))]
    members = [name for name in NODES if "laas-a1" in nova.memberships(name)[0]]
    projects = {RED: "open to the project", NOBODY: "open to nobody", None: "names no project"}
    return (
        f"{projects[keys.get(OWNER)]}; in Nova: {' '.join(hosts) or 'nothing'}; in "
        f"placement: {' '.join(members) or 'no node'}"
    )


def test_killed_while_nodes_join_the_pool(nova):
    writes, died = 0, True
    rows: crashes.Rows = []
    while died:
        nova.forget_nodes()
        writes += 1
        try:
            mortal(nova, writes).pool(NODES)
            died = False
        except Killed as killed:
            rows.append([str(killed), pooled(nova), crashes.DONE])
            nova.node_compute().pool(NODES)
        assert nova.memberships(*NODES) == [{POOL}] * 4
        assert nova.node_compute().observed().pooled == {*NODES}
    assert writes > 6, "aggregate, metadata, keys, four members, and touch are writes"
    crashes.tell("With Nova: four nodes join the pool", rows)


def pooled(nova):
    """The pool, as Nova and placement have it."""
    in_nova = len(nova.node_compute().observed().pooled)
    members = sum(POOL in found for found in nova.memberships(*NODES))
    return f"nodes in Nova: {in_nova}, in placement: {members}"


@pytest.fixture
def service(nova, tmp_path):
    """The service with a fabric of two hypervisors and four nodes; all are in the pool."""
    conf = options_from()
    conf.set_override("state_dir", str(tmp_path))
    conf.set_override("state_interval", 1.0, "compute")
    conf.set_override("hold_down", 0.0, "compute")
    for name in ("retry_last", "reconcile_interval", "drift_interval"):
        conf.set_override(name, 1.0, "worker")
    parts = Composition(conf)
    parts.compute = nova.node_compute()
    parts.database.upgrade()
    made = generate(Description(xgft="2;3,2;1,3"))
    parts.store.fabrics.add("f", made.topology, replace(made.inventory, host_names=tuple(HOSTS)))
    running = Site(parts)
    running.rounds(lambda: parts.compute.observed().pooled == {*HOSTS}, "the pool is complete")
    return running


class Site(Service):
    """The service, which also compares on demand."""

    def __init__(self, parts):
        super().__init__(parts)
        self.reconcile = parts.fabric_leases.reconcile

    def replace(self, record, host):
        """Ask for another host in place of one."""
        caller = Caller(record.project_id, "somebody", admin=True, request_id="request")
        answer = self._changes.replace_hosts(caller, record.id, ReplaceRequest(hosts=(host,)))
        assert isinstance(answer, AllocationRecord), answer

    def change(self, record):
        return self.store.allocations.get(record.id).change

    def violations(self, record):
        placed, fabric = self.store.allocations.get(record.id).placed, self.store.fabrics.get("f")
        return violations(fabric.topology, [placed], Random(0), permutations=10)


def allocated(service, project, hosts):
    record = service.ask(project, hosts)
    assert isinstance(record, AllocationRecord), record
    service.rounds(lambda: service.state(record) is State.ACTIVE, lambda: service.error(record))
    return record


def test_the_life_of_an_allocation_on_both_kinds(nova, service):
    record = allocated(service, RED, 6)
    assert service.hosts(record) == {*HOSTS}
    nova.scheduler_knows()
    assert nova.boot(RED) in NODES
    assert on_hypervisor(nova, RED) in HYPERVISORS
    assert nova.boot(BLUE) is None
    with pytest.raises(Exception, match="servers still run on"):
        service.release(record, force=False)
    nova.delete_servers({})
    service.release(record, force=False)
    service.rounds(lambda: service.state(record) is State.RELEASED, lambda: service.error(record))
    assert {nova.ironic.node(name)["provision_state"] for name in NODES} == {"available"}
    assert nova.memberships(*NODES) == [{POOL}] * 4
    nova.cleaned(NODES)
    allocated(service, BLUE, 6)
    nova.scheduler_knows()
    assert nova.boot(RED) is None
    assert nova.boot(BLUE) in NODES


def test_a_tenant_moves_itself_off_a_node_by_redeployment(nova, service):
    """It keeps both nodes until it has deleted the old server and the old node is clean."""
    record = allocated(service, RED, 5)
    (new,) = {*HOSTS} - service.hosts(record)
    nova.scheduler_knows()
    old = nova.boot(RED)
    service.replace(record, old)
    name = f"laas-{record.id}"
    both = {*HOSTS}
    service.rounds(lambda: hosts_of(nova, name) == both, lambda: service.error(record))
    nova.scheduler_knows()
    assert nova.boot(RED) in {*NODES} - {old}
    assert nova.boot(BLUE) is None
    old_server = nova.ironic.node(old)["instance_uuid"]
    waits = f"{old} is active"
    service.rounds(lambda: waits in service.error(record), lambda: service.error(record))
    nova.delete_servers({"uuid": old_server})
    service.rounds(lambda: service.change(record) is None, lambda: service.error(record))
    assert service.hosts(record) == both - {old}
    assert hosts_of(nova, name) == both - {old}
    assert nova.memberships(old) == [{POOL}]
    assert nova.ironic.node(old)["provision_state"] == "available"
    assert service.violations(record) == []
    nova.cleaned([old])
    assert nova.boot(BLUE) is None
    if new in NODES:
        assert name in nova.memberships(new)[0]


def hosts_of(nova, name):
    """The hosts and nodes of an aggregate."""
    aggregate = nova.aggregate(name)
    keys = aggregate.metadata.items()
    return {*aggregate.hosts, *(host for key, host in keys if key.startswith(NODE))}


def test_a_node_that_is_not_free_is_withheld_with_its_reason(nova, service):
    nova.ironic.admin.put("/v1/nodes/n1/maintenance", json={"reason": "bad DIMM"})
    try:
        why = {"n1": "not free in Ironic: in maintenance: bad DIMM"}
        service.rounds(lambda: service.withheld() == why, lambda: str(service.withheld()))
        refusal = service.ask(RED, 6)
        assert isinstance(refusal, NoFit)
    finally:
        nova.ironic.admin.delete("/v1/nodes/n1/maintenance")
    service.rounds(lambda: service.withheld() == {}, lambda: str(service.withheld()))
    allocated(service, RED, 6)


def test_aggregates_keys_and_memberships_that_are_deleted_by_hand_come_back(nova, service):
    record = allocated(service, RED, 6)
    nova.scheduler_knows()
    used = nova.boot(RED)
    name = f"laas-{record.id}"
    aggregate = nova.aggregate(name)
    for host in aggregate.hosts:
        nova.admin.aggregates.remove_host(aggregate, host)
    nova.admin.aggregates.delete(aggregate)
    for node in NODES:
        nova.set_memberships(node, [])
    expected = [{POOL, name}] * 4

    def repaired():
        service.reconcile()
        try:
            return nova.memberships(*NODES) == expected
        except ValueError:
            return False

    service.rounds(repaired, lambda: f"{nova.memberships(*NODES)}; {service.error(record)}")
    assert nova.ironic.node(used)["provision_state"] == "active"
    assert nova.boot(BLUE) is None
    assert nova.boot(RED) in NODES
