# SPDX-License-Identifier: Apache-2.0

"""The real OpenSM on a tenants' leaf, another leaf, an L2 switch and a spine, read back.

``fabric verify`` judges tables and keys, and ``ibdmchk`` looks for credit loops. Where the rails of
tenants are not joined ``ibdmchk`` finds pairs without a path, and then looks for no loops. It is
therefore asked again about tables in which the default entries stand at each missing one: they
have all dependencies of the tables in the switches, and more. In a fabric with two director
switches some aggregation nodes have no path to each other even so; ``ibdmchk`` then leaves all of
them out.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.fabric_import.fabric_file import FabricFile
from laas_service.cmd import manage
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.messages import TenantRoute
from tests.functional.test_opensm import Site
from tests.functional.test_opensm_keys import converged, printed_keys, reading_site
from tests.managers import DUMPS, MANAGERS, PLACES, dumped, eight_rails
from tests.marks import needs_ibsim
from tests.shared import needs_shared

pytestmark = needs_ibsim

EVERYTHING = os.environ.get("LAAS_KEYS") == "full"
"""Whether all places and fabrics are tried, as ``tox -e keys`` does, or a sample."""

DGX, LASSEN = "dgx-ndr-2025", "lassen-edr-2019"
"""The one of ``DUMPS`` with a leaf without hosts, and the one with three levels."""

TENANTS = (3, 8, 2, 4, 1)


def published(
    fabric: FabricFile, manager: int, sizes: tuple[int, ...], tmp_path: Path, capsys: Any
) -> dict[str, Any]:
    """Publish the tenants, have OpenSM load and the service confirm them; the verdict of verify.

    OpenSM runs on the port with GUID ``manager``. Asserts that ``ibdmchk`` finds no credit loop,
    and that paths exist inside partitions alone. Prints: LIDs, pairs of ports inside tenants,
    violations, pairs over links of others beside the manager, LIDs of hosts and of other nodes
    without a route to or from the manager.
    """
    config = tmp_path / "laas.conf"
    config.write_text(f"[DEFAULT]\nstate_dir = {tmp_path}\n")
    assert manage.main([f"--config-file={config}", "db", "upgrade"]) == 0
    store = SqlStore(connect(f"sqlite:///{tmp_path}/laas.sqlite"))
    with reading_site(fabric.topology, fabric.inventory, manager) as here:
        store.fabrics.add("site", fabric.topology, fabric.inventory)
        converged(here, store, *sizes)
        (tmp_path / "keys").write_text(printed_keys(here, here.current)[0])
        (tmp_path / "lfts").write_text(here.sim.read(*here.dump))
        options = {
            "--keys": tmp_path / "keys",
            "--lfts": tmp_path / "lfts",
            "--partitions": here.current / "partitions.conf",
            "--subnet-manager": f"{manager:#x}",
        }
        words = [str(word) for option in options.items() for word in option]
        capsys.readouterr()
        code = manage.main([f"--config-file={config}", "fabric", "verify", "--json", *words])
        (verdict,) = json.loads(capsys.readouterr().out)["fabrics"]
        assert code == bool(verdict["violations"])
        tenants = store.fabrics.routed("site").tenants
        assert len(tenants) >= len(sizes) - 1
        assert_no_credit_loops(here)
        assert_paths_inside_partitions(here, max(tenants, key=lambda t: len(t.pkeys)))
    walks, cut, hosts = verdict["walks"], without_route(verdict), guids_of_hosts(fabric)
    walked = walks["tenants"], len(verdict["violations"]), walks["beside_managers"]
    figures = len(fabric.inventory.lids), *walked, len(cut & hosts), len(cut - hosts)
    print(" ".join(f"{figure:>9,}" for figure in figures))
    return dict(verdict)


def without_route(verdict: dict[str, Any]) -> set[int]:
    """GUIDs of the nodes without a route to or from the manager, as the verdict names them."""
    return {int(text.split()[-1].strip("()"), 16) for text in verdict["unmanaged"]}


def guids_of_hosts(fabric: FabricFile) -> set[int]:
    return {end.guid for end in fabric.inventory.endpoints if end.host is not None}


def assert_no_credit_loops(here: Site) -> None:
    """Complete the dump of OpenSM's last sweep with default entries, and ask ``ibdmchk``."""
    default = forwarding_tables(here.topology, here.inventory, [])
    lids = [here.inventory.lids[guid] for guid in default.destinations]
    usual = {guid: dict(zip(lids, row, strict=True)) for guid, row in default.rows.items()}
    lines, row = [], dict[int, int]()
    for line in (here.sim.directory / "opensm.fdbs").read_text().splitlines(keepends=True):
        if "Switch 0x" in line:
            row = usual[int(line.split()[2], 16)]
        elif "UNREACHABLE" in line:
            port = row.get(int(line.split()[0], 16), NO_ROUTE)
            if port != NO_ROUTE:
                line = f"{line.split()[0]} : {port:03d}  : 01   : yes\n"
        lines.append(line)
    (here.sim.directory / "completed.fdbs").write_text("".join(lines))
    subnet = (here.sim.directory / "opensm-subnet.lst").read_text().splitlines(keepends=True)
    for left_out in ("", "Aggregation Node"):
        kept = [line for line in subnet if not left_out or left_out not in line]
        (here.sim.directory / "subnet.lst").write_text("".join(kept))
        dumps = ("-s", "subnet.lst", "-f", "completed.fdbs", "-m", "opensm.mcfdbs")
        done = here.sim.run("ibdmchk", *dumps, check=False)
        if "missing paths" not in done.stdout:
            break
    assert "no credit loops found" in done.stdout, done.stdout[-2000:]
    assert not [line for line in done.stdout.splitlines() if line.startswith("-E-")]


def assert_paths_inside_partitions(here: Site, tenant: TenantRoute) -> None:
    """Ask OpenSM for paths between the first and the last host of a tenant, on each rail.

    It gives one on each rail with the key of the rail, and none between rails with other keys.
    """
    first, *others = tenant.allocation.hosts(here.topology)
    ends = here.inventory.endpoint_of_port
    last = others[-1] if others else first

    def key(one: int, other: int) -> list[str]:
        guids = ends[first, one].guid, ends[last, other].guid
        pair = ":".join(str(here.inventory.lids[guid]) for guid in guids)
        done = here.sim.run("saquery", "-p", "--src-to-dst", pair, check=False)
        return re.findall(r"^\s*pkey\.+(0x[0-9A-Fa-f]+)$", done.stdout, re.MULTILINE)

    rails = range(here.topology.rails)
    for rail in rails if others else ():
        assert [int(found, 16) & 0x7FFF for found in key(rail, rail)] == [tenant.key(rail)]
    apart = [rail for rail in rails if tenant.key(rail) != tenant.key(0)]
    assert [key(0, rail) for rail in apart] == [[] for _ in apart]


@pytest.mark.parametrize("place", PLACES if EVERYTHING else PLACES[2:3])
def test_on_eight_rails_the_manager_may_be_anywhere(place, tmp_path, capsys):
    fabric = eight_rails(place)
    (manager,) = fabric.inventory.managers
    verdict = published(fabric, manager.guid, TENANTS, tmp_path, capsys)
    assert (verdict["violations"], verdict["unmanaged"]) == ([], [])
    assert verdict["walks"]["beside_managers"] == 0
    assert verdict["walks"]["tenants"] > 200


if EVERYTHING:

    def test_pairs_of_hosts_that_are_offered_beside_a_manager_are_counted(tmp_path, capsys):
        fabric = eight_rails(PLACES[0], replace(MANAGERS, include=("node*",)))
        (manager,) = fabric.inventory.managers
        verdict = published(fabric, manager.guid, (3, 16), tmp_path, capsys)
        assert (verdict["violations"], verdict["unmanaged"]) == ([], [])
        assert verdict["walks"]["beside_managers"] > 0

    @needs_shared
    @pytest.mark.parametrize(
        ("name", "level"), [*product(DUMPS, (None, 2)), (DGX, 1), (LASSEN, 3)], ids=str
    )
    def test_on_real_fabrics_the_manager_may_be_anywhere(name, level, tmp_path, capsys):
        """``level`` is that of the switch to which the last manager was moved; None: to none."""
        manager = dumped(name).inventory.managers[-1].guid
        fabric = dumped(name, level)
        (at,) = (end.at.guid for end in fabric.inventory.managers if end.guid == manager)
        assert fabric.inventory.switch_of_guid[at].level == (level or 1)
        sizes = {"lab": (1,), "dgx": (7, 30, 5, 1), "las": (90, 41, 200, 7, 1)}[name[:3]]
        verdict = published(fabric, manager, sizes, tmp_path, capsys)
        assert verdict["violations"] == []
        assert not guids_of_hosts(fabric) & without_route(verdict)
        assert bool(verdict["unmanaged"]) == (level == 3)
