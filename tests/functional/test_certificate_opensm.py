# SPDX-License-Identifier: Apache-2.0

"""Certificates of isolation under the real OpenSM, also while a switch is attacked."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

import laas_verify_certificate as verifier
from laas_service.adapters.db.leases import SqlLeases
from laas_service.cmd import manage
from tests.convergers import Convergers
from tests.fakes import FakeCompute
from tests.functional.api.conftest import Deployment
from tests.functional.test_opensm_keys import converged, small_site, write_entries
from tests.marks import needs_ibsim

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
