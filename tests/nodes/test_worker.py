# SPDX-License-Identifier: Apache-2.0

"""The service on hypervisors and nodes: killed after any write, the whole life, withheld nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oslo_config import cfg

from laas_service import conf as options
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.ironic_nodes import Cloud as IronicCloud
from laas_service.adapters.ironic_nodes import Nodes
from laas_service.adapters.nova import Cloud, NovaCompute
from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import Handover
from laas_service.app.records import AllocationRecord
from laas_service.domain.allocation import NoFit
from laas_service.wiring import Parts
from tests.nodes.conftest import HYPERVISORS, NODES
from tests.nodes.test_nodes import BLUE, RED, on_hypervisor
from tests.nova.cloud import NOBODY, POOL
from tests.nova.test_holes import Service

HOSTS = [*HYPERVISORS, *NODES]


class Killed(BaseException):
    """The process is killed."""


class Mortal(Cloud):
    """Is killed after so many writes."""

    def __init__(self, nova, writes):
        super().__init__(nova.admin, nova.placement)
        self.left = writes

    def _write(self, *args):
        answer = super()._write(*args)
        self.left -= 1
        if self.left == 0:
            raise Killed
        return answer


def mortal(nova, writes):
    nodes = Nodes(IronicCloud(nova.ironic.admin))
    return NovaCompute(Mortal(nova, writes), pool=POOL, sentinel=NOBODY, nodes=nodes)


def test_killed_after_any_write(nova, compute):
    """Neither kind of host ever accepts a stranger, and the next attempt completes the step."""
    compute.pool(HOSTS)
    both = Handover("a1", RED, ("h1", "n1"))
    steps = {"hand over": True, "take back": True}
    writes = 0
    while any(steps.values()):
        writes += 1
        for step, begins in steps.items():
            act = NovaCompute.hand_over if step == "hand over" else NovaCompute.take_back
            if begins:
                steps[step] = dies(mortal(nova, writes), act, both)
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


def dies(compute, act, handover):
    try:
        act(compute, handover)
    except Killed:
        return True
    return False


def test_killed_while_nodes_join_the_pool(nova):
    writes, died = 0, True
    while died:
        nova.forget_nodes()
        writes += 1
        try:
            mortal(nova, writes).pool(NODES)
            died = False
        except Killed:
            nova.node_compute().pool(NODES)
        assert nova.memberships(*NODES) == [{POOL}] * 4
        assert nova.node_compute().observed().pooled == {*NODES}
    assert writes > 6, "aggregate, metadata, keys, four members, and touch are writes"


@pytest.fixture
def service(nova, tmp_path):
    """The service with a fabric of two hypervisors and four nodes; all are in the pool."""
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf([], project="laas", default_config_files=[], default_config_dirs=[])
    conf.set_override("state_dir", str(tmp_path))
    conf.set_override("state_interval", 1.0, "compute")
    conf.set_override("hold_down", 0.0, "compute")
    for name in ("retry_last", "reconcile_interval", "drift_interval"):
        conf.set_override(name, 1.0, "worker")
    parts = Parts(conf)
    parts.compute = nova.node_compute()
    parts.upgrade_database()
    made = generate(Description(xgft="2;3,2;1,3"))
    parts.store.add_fabric("f", made.topology, replace(made.inventory, host_names=tuple(HOSTS)))
    running = Site(parts)
    running.rounds(lambda: parts.compute.observed().pooled == {*HOSTS}, "the pool is complete")
    return running


class Site(Service):
    """The service, which also compares on demand."""

    def __init__(self, parts):
        super().__init__(parts)
        self.reconcile = parts.fabric_leases.reconcile


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
