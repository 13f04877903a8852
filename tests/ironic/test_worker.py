# SPDX-License-Identifier: Apache-2.0

"""The worker with the real Ironic: killed after every change of a node, drift, withheld nodes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.ironic_nodes import IronicCalls
from laas_service.app.lifecycle import State
from laas_service.app.records import AllocationRecord, Caller
from laas_service.app.requests import AllocationRequest
from laas_service.cmd import status
from laas_service.domain.allocation import NoFit
from tests import crashes
from tests.functional.test_crash import converge
from tests.ironic.conftest import parts_of
from tests.waiting import eventually

NOBODY = "laas-nobody"
OPERATOR = Caller("ops", "operator", admin=True, request_id="test")


class Site:
    """A fabric of four hosts, each an Ironic node of its name."""

    def __init__(self, configured, ironic, project):
        self.configured = configured
        self.ironic = ironic
        self.project = project
        made = generate(Description(xgft="2;2,2;1,2"))
        self.hosts = sorted(made.inventory.host_names)
        ironic.enroll(*self.hosts)
        self.last = configured.directory / "last-change"
        self.parts = configured.parts()
        self.parts.store.fabrics.add("f", made.topology, made.inventory)

    def allocate(self, hosts=2):
        request = AllocationRequest(name="a", hosts=hosts, project_id=self.project)
        answer = self.parts.use_cases(wake=lambda: None).allocations.allocate(OPERATOR, request)
        return answer if isinstance(answer, NoFit) else answer.record

    def release(self, id, *, force=False):
        self.parts.use_cases(wake=lambda: None).allocations.release(OPERATOR, id, force=force)

    def becomes(self, id, state):
        """Converge, each time as after a start, until an allocation is in a state."""

        def look():
            self.converge()
            return self.parts.store.allocations.get(id).state is state

        eventually(look, lambda: str(self.parts.store.allocations.get(id)))

    def active(self, hosts=2):
        record = self.allocate(hosts)
        assert isinstance(record, AllocationRecord), record
        self.becomes(record.id, State.ACTIVE)
        return record.id

    def mine(self, id):
        fabric, record = self.parts.store.fabrics.get("f"), self.parts.store.allocations.get(id)
        assert record.placed is not None
        names = fabric.inventory.host_names
        return sorted(names[host] for host in record.placed.hosts(fabric.topology))

    def leases(self):
        return {host: self.ironic.node(host)["lessee"] for host in self.hosts}

    def row(self):
        """What is told of the crash that just was: a row of its table."""
        leased = sum(lessee == self.project for lessee in self.leases().values())
        left = f"{leased} of 2 nodes leased to the project"
        return [[crashes.change(self.last.read_text()), left, crashes.DONE]]

    def expected(self, mine=()):
        return {host: self.project if host in mine else NOBODY for host in self.hosts}

    def converge(self):
        """Converge in a process of its own, whose lease ends with it."""
        assert not self.converges_until_killed(0)

    def converges_until_killed(self, change):
        """Converge in a process that kills itself after this change of a node; if it did."""
        # Nova's threads may run in this process: a fork of it could wait for their locks forever.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        arguments = (self.configured.file(), self.last, change)
        process = context.Process(target=_converge, args=arguments)
        process.start()
        process.join(600)
        assert process.exitcode in (0, -signal.SIGKILL)
        return process.exitcode != 0


def _converge(file: Path, last: Path, dies_at: int) -> None:
    """Converge, and be killed after so many changes; write into ``last`` what the last one is."""
    count = 0
    write = IronicCalls._write

    def counted(*args):
        nonlocal count
        answer = write(*args)
        if isinstance(answer, str):
            return answer  # a refusal changes nothing
        count += 1
        if count == dies_at:
            last.write_text(args[1])
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    IronicCalls._write = counted  # type: ignore[method-assign]
    converge(parts_of(file))


@pytest.fixture
def site(configured, ironic, red):
    return prepared(configured, ironic, red)


def prepared(configured, ironic, red):
    made = Site(configured, ironic, red.id)
    made.converge()
    assert made.leases() == made.expected()
    return made


STEPS = [
    {
        "interface": "bios",
        "step": "apply_configuration",
        "args": {"settings": [{"name": "sriov", "value": "off"}]},
    }
]


@pytest.mark.parametrize("steps", [[], STEPS] if crashes.FULL else [[]])
def test_a_worker_that_is_killed_after_any_change_of_a_node(
    configured, ironic, red, tmp_path, steps
):
    if steps:
        (tmp_path / "steps.json").write_text(json.dumps(steps))
        configured = replace(configured, compute=(f"clean_steps = {tmp_path}/steps.json",))
    site = prepared(configured, ironic, red)
    rows: dict[str, crashes.Rows] = {"allocate": [], "release": []}
    changes = 0
    died = dict.fromkeys(rows, True)
    while any(died.values()):
        changes += 1
        record = site.allocate()
        if died["allocate"]:
            died["allocate"] = site.converges_until_killed(changes)
            rows["allocate"] += site.row() if died["allocate"] else []
        site.becomes(record.id, State.ACTIVE)
        mine = site.mine(record.id)
        assert site.leases() == site.expected(mine)
        site.ironic.deploy(red.manager, mine[0])
        site.release(record.id, force=True)
        died["release"] = site.converges_until_killed(changes)
        rows["release"] += site.row() if died["release"] else []
        site.becomes(record.id, State.RELEASED)
        assert site.leases() == site.expected()
        assert {site.ironic.node(host)["provision_state"] for host in mine} == {"available"}
    assert changes > 5, "fence, lease, undeploy and two nodes taken back are changes"
    with_steps = ", cleaning steps" if steps else ""
    crashes.tell(f"Without Nova: allocate two nodes{with_steps}", rows["allocate"])
    crashes.tell(f"Without Nova: release by force, one deployed{with_steps}", rows["release"])


def test_a_release_waits_for_its_owner(site, red):
    id = site.active()
    mine = site.mine(id)
    site.ironic.deploy(red.manager, mine[0])
    with pytest.raises(Exception, match=f"servers still run on {mine[0]}"):
        site.release(id)
    site.ironic.undeploy(red.manager, mine[0])
    site.release(id)
    site.becomes(id, State.RELEASED)
    assert site.leases() == site.expected()


def test_leases_changed_by_hand_are_repaired_and_told(site, blue):
    id = site.active()
    mine = site.mine(id)
    (free, *_) = sorted(set(site.hosts) - set(mine))
    converger = site.configured.parts()._converger(site.parts.store, "f", lambda: None)
    assert converger.check_drift() == []
    site.ironic.patch(mine[0], lessee=blue.id)
    site.ironic.patch(free, lessee=blue.id)
    findings = converger.check_drift()
    assert [text for text in findings if "repaired" in text and blue.id in text]
    assert [text for text in findings if "no longer in the pool" in text and free in text]
    assert site.leases() == site.expected(mine)
    assert converger.check_drift() == []


def test_a_node_in_maintenance_is_withheld_with_its_reason(site):
    host = site.hosts[0]
    site.ironic.admin.put(f"/v1/nodes/{host}/maintenance", json={"reason": "bad DIMM"})
    site.converge()
    withheld = site.parts.store.faults.host_memory("f").withheld()
    assert {name: why for name, (_, why) in withheld.items()} == {
        host: "not free in Ironic: in maintenance: bad DIMM"
    }
    refusal = site.allocate(hosts=4)
    assert isinstance(refusal, NoFit)
    assert f"withheld hosts: {host} (not free in Ironic: in maintenance: bad DIMM)" in str(
        refusal.detail
    )
    assert host not in site.mine(site.active(hosts=2))
    site.ironic.admin.delete(f"/v1/nodes/{host}/maintenance")
    site.converge()
    assert site.parts.store.faults.host_memory("f").withheld() == {}


def test_the_upgrade_check_looks_at_nodes(site, keystone, capsys):
    def row(user="laas"):
        file = site.configured.file(user)
        status.main([f"--config-file={file}", "upgrade", "check", "--json"])
        rows = json.loads(capsys.readouterr().out)["checks"]
        (found,) = [row for row in rows if row["check"] == "Ironic"]
        return found["result"], found["details"]

    code, said = row()
    assert (code, said.partition(".")[0]) == (
        0,
        "Ironic shows 4 nodes, of which 4 are hosts of fabrics",
    )
    site.ironic.patch(site.hosts[0], automated_clean=False)
    code, said = row()
    assert code == 1
    assert f"nodes are not cleaned automatically, and get no owner: {site.hosts[0]}" in said
    keystone.user("blind", {keystone.project("service"): ["member"]})
    code, said = row("blind")
    assert code == 1
    assert "Ironic shows no node: give the service's user a role to see all nodes" in said
