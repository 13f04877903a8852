# SPDX-License-Identifier: Apache-2.0

"""Certificates of isolation under the real OpenSM, also while a switch is attacked."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from random import Random

import pytest

import laas_verify_certificate as verifier
from laas_service.adapters.db.leases import SqlLeases
from laas_service.app.lifecycle import Phase
from laas_service.app.records import Caller
from laas_service.app.requests import ReplaceRequest
from laas_service.cmd import manage
from laas_service.domain.inventory import PortRef
from tests.convergers import Convergers
from tests.fakes import FakeCompute
from tests.faults.fabrics import tree
from tests.faults.site import Site
from tests.functional.api.conftest import Deployment
from tests.functional.test_opensm_keys import ROOT, converged, small_site, write_entries
from tests.marks import needs_ibsim
from tests.waiting import eventually

pytestmark = needs_ibsim


AFTER_CONVERGENCE = 70_000_000
"""Seconds by which the clock is set forward: ``converged`` works by a later one."""


class Tenant:
    """A tenant of the allocation ``id``, with the certificates that it gets and the verifier."""

    def __init__(self, deployment: Deployment, id: str, directory: Path) -> None:
        self.client, self.directory = deployment.client(), directory
        self.path, self.id = f"/v1/allocations/{id}", id

    def violations(self, capsys: pytest.CaptureFixture[str]) -> list[str]:
        """What the verifier says of a new certificate."""
        answer = self.client.get(f"{self.path}/certificate", query_string={"nonce": "n"})
        assert answer.status_code == 200, answer.text
        self.told = json.loads(verifier.decoded(answer.json["payload"]))
        (self.directory / "certificate").write_text(answer.text)
        words = (str(self.directory / "certificate"), "--allocation", self.id, "--nonce", "n")
        public = str(self.directory / "certificate-keys" / "public.json")
        capsys.readouterr()
        status = verifier.main([*words, "--key", public])
        found = capsys.readouterr().out.splitlines()
        assert status == bool(found)
        return found


def test_a_certificate_holds_under_the_real_opensm_and_not_under_attack(tmp_path, capsys):
    config = tmp_path / "laas.conf"
    config.write_text(f"[DEFAULT]\nstate_dir = {tmp_path}\n")
    assert manage.main([f"--config-file={config}", "db", "upgrade"]) == 0
    deployment = Deployment(tmp_path / "laas.sqlite")
    store = deployment.store
    with small_site() as here:
        store.fabrics.add("site", here.topology, here.inventory)
        SqlLeases(deployment.engine).take("site", "worker/1", 1e6)
        converged(here, store, 9, 5)
        deployment.slept = AFTER_CONVERGENCE
        worker = Convergers(
            store, FakeCompute(), here.manager, now=deployment.clock, chance=Random(2)
        )
        tenant = Tenant(deployment, "t0", tmp_path)
        assert tenant.violations(capsys) == []

        # a foreign entry: another tenant's port behind one of ours, in our leaf
        leaf = int(tenant.told["hosts"][0]["ports"][0]["switch"], 16)
        row = bytearray(here.rows()[leaf][:64].ljust(64, b"\xff"))
        others = {port.guid for port in here.inventory.endpoints if port.host is not None}
        ours = {int(p["guid"], 16) for host in tenant.told["hosts"] for p in host["ports"]}
        foreign = here.inventory.lids[min(others - ours)]
        row[foreign] = tenant.told["hosts"][0]["ports"][0]["port"]
        write_entries(here, here.inventory.lids[leaf], bytes(row))
        for _ in range(2):  # lost routes are believed if two checks in a row see them
            worker.check_drift()
        found = tenant.violations(capsys)
        assert any(line.startswith("generation: ") for line in found), found
        assert not any(switch["entries"] for switch in tenant.told["switches"])


SPARE_UPLINKS = tree("64", "3;4,4,4;1,8,8", (6, 5, 9))
"""Leaves have twice as many uplinks as hosts, so that failed links can be replaced."""


class Witness:
    """Gets certificates of one tenant from a service that runs, and verifies them."""

    def __init__(self, here: Site, id: str, directory: Path) -> None:
        self.here, self.id, self.file = here, id, directory / "certificate"
        self.public = here.state / "certificate-keys" / "public.json"
        self.held_in: set[Phase | None] = set()
        """The phases of changes in which a certificate held."""

    @property
    def phase(self) -> Phase | None:
        return self.here.store.allocations.get(self.id).phase

    def holds(self, capsys: pytest.CaptureFixture[str]) -> bool:
        """Whether a new certificate holds. It may only fail because nobody has read the routes."""
        before = self.phase
        operator = Caller("p", "u", True, "request")
        envelope = self.here.operator.certificates.certificate(operator, self.id, "n")
        self.file.write_text(json.dumps(asdict(envelope)))
        self.told = json.loads(verifier.decoded(envelope.payload))
        words = (str(self.file), "--allocation", self.id, "--nonce", "n", "--key", str(self.public))
        capsys.readouterr()
        status = verifier.main([*words])
        found = capsys.readouterr().out.splitlines()
        if status == 0:
            self.held_in.add(before)
            return True
        assert any(line.startswith("generation: ") for line in found), found
        assert not any(switch["entries"] for switch in self.told["switches"]), found
        return False

    def entries(self) -> dict[int, dict[int, int]]:
        """The certified port by switch and LID."""
        return {
            int(switch["guid"], 16): {
                lid: port
                for lid, port in enumerate(verifier.decoded(switch["entries"]))
                if port != verifier.NONE
            }
            for switch in self.told["switches"]
        }

    def reads_the_same(self) -> bool:
        """Whether OpenFabrics' own tool reads each certified entry in the switches."""
        rows = self.here.rows()
        return all(
            rows[switch][lid] == port
            for switch, entries in self.entries().items()
            for lid, port in entries.items()
        )

    def ports(self) -> set[tuple[str, int]]:
        ends = [end for cable in self.told["cables"] for end in cable.values()]
        return {(end["switch"], end["port"]) for end in ends}


def test_certificates_during_a_move_a_fault_and_an_attack(tmp_path, capsys):
    """Each one holds, or says that nobody has read the routes; it never certifies what is not."""
    with Site(SPARE_UPLINKS, faults={"hold_down": 1}, worker={"drift_interval": 2}) as here:
        tenant = Witness(here, "t0", tmp_path)

        def confirmed() -> bool:
            return tenant.holds(capsys) and tenant.phase is None and here.is_settled()

        eventually(confirmed, here.describe)
        assert tenant.reads_the_same()
        left, old = tenant.told["hosts"][0]["name"], tenant.ports()
        asked = ReplaceRequest(hosts=(left,))
        here.operator.changes.replace_hosts(Caller("p", "u", True, "request"), "t0", asked)
        eventually(lambda: tenant.holds(capsys) and tenant.phase, here.describe, pause=0.0)
        cut = min(tenant.ports() - old)  # one of its new cables
        here.cut([PortRef(int(cut[0], 16), cut[1])])
        eventually(lambda: here.failed and confirmed() and cut not in tenant.ports(), here.describe)
        assert left not in {host["name"] for host in tenant.told["hosts"]}
        assert tenant.held_in > {None}
        assert tenant.reads_the_same()

        # somebody writes a foreign entry: another tenant's port behind one of ours
        sent = tenant.told["hosts"][0]["ports"][0]
        leaf = int(sent["switch"], 16)
        lids, row = here.inventory.lids, bytearray(here.rows()[leaf][:64].ljust(64, b"\xff"))
        own = {port["lid"] for host in tenant.told["hosts"] for port in host["ports"]}
        hosts = [lids[end.guid] for end in here.inventory.endpoints if end.host is not None]
        foreign = min(lid for lid in hosts if lid < 64 and lid not in own)
        row[foreign] = sent["port"]
        tool = ("env", "-C", str(ROOT), sys.executable, "-m", "tests.ibsim_keys")
        here.sim.run(*tool, str(lids[leaf]), "table", "0", bytes(row).hex())
        assert here.rows()[leaf][foreign] == sent["port"]
        eventually(lambda: not tenant.holds(capsys), here.describe, pause=0.0)
        eventually(confirmed, here.describe)
        assert here.rows()[leaf][foreign] != sent["port"]
        assert tenant.reads_the_same()
