# SPDX-License-Identifier: Apache-2.0

"""``laas-manage fabric reimport``: review, apply, and refusal of losses."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import pytest

from laas_service.adapters.fabric_import import generator, ibnetdiscover
from laas_service.adapters.fabric_import.netlist import netlist
from laas_service.adapters.fabric_import.recovery import Selection
from laas_service.app.records import HostState
from laas_service.domain.inventory import Inventory, PortRef
from laas_service.domain.topology import LeafLink
from opensm_writer.local import LocalSubnetManager
from opensm_writer.opensm import OpenSm
from tests import recabling
from tests.functional.test_manage import Tool, tenants
from tests.ibsim import Simulator
from tests.marks import needs_ibsim
from tests.recabling import Site, dumped
from tests.waiting import eventually

MANAGERS = ["--subnet-manager", "sm*"]
DESCRIPTION = generator.Description(
    xgft="3;4,4,2;1,4,2", subnet_managers=1, missing_cables=2, missing_hosts=2
)


@pytest.fixture
def site():
    """A fabric as it was imported, with spare switch ports for changes."""
    made = generator.generate(DESCRIPTION).inventory
    made = replace(made, switches=tuple(replace(s, ports=16) for s in made.switches))
    return Site(dumped(made, Selection(managers=("sm*",))).inventory, Random(3))


@pytest.fixture
def run(tmp_path, capsys, site):
    tool = Tool(tmp_path, capsys)
    tool("db", "upgrade")
    tool("fabric", "import", dump(tool, site.inventory), *MANAGERS)
    return tool


def dump(tool: Tool, inventory: Inventory):
    path = tool.path / "fabric.txt"
    path.write_text(ibnetdiscover.render(inventory))
    return path


def token(printed: str) -> str:
    match = re.search(r"--apply (\S+)", printed)
    assert match, printed
    return match[1]


def free_cable(store, inventory: Inventory):
    """A leaf cable whose link is not allocated."""
    owned = store.fabrics.ledger("fabric")[0].owners_of_links()
    known = store.fabrics.get("fabric").inventory.cable_of_link
    return next(c for x, c in known.items() if isinstance(x, LeafLink) and x not in owned)


def test_a_reviewed_re_import_is_applied_and_verified(run, site):
    tenants(run.store(), "fabric", 3, 6)
    run.store().components.set_host_state("fabric", 28, HostState.DRAINED)
    before = {record.id: record.placed for record in run.store().allocations.page()}
    recabling.add_leaves(site)
    recabling.rename_a_switch(site)
    file = dump(run, site.inventory)
    review = run("fabric", "reimport", file, *MANAGERS)
    assert "host added: new" in review
    assert "switch added: " in review
    assert "allocation t0: unaffected" in review
    assert run.store().fabrics.get("fabric").generation == 4
    done = run("fabric", "reimport", file, *MANAGERS, "--apply", token(review))
    assert done.endswith("fabric: recorded as generation 5\n")
    assert "2 allocations, no violations" in run("fabric", "verify")
    fabric, (ledger, _) = run.store().fabrics.get("fabric"), run.store().fabrics.ledger("fabric")
    assert [fabric.inventory.host_names[h] for h in ledger.drained_hosts] == ["node28"]
    assert {record.id: record.placed.size for record in run.store().allocations.page()} == {
        id: placed.size for id, placed in before.items()
    }
    assert "nothing changed" in run("fabric", "reimport", file, *MANAGERS)


def test_a_re_import_with_a_loss_is_refused_and_changes_nothing(run, site):
    tenants(run.store(), "fabric", 6)
    kept = run.store().fabrics.get("fabric")
    link = next(iter(run.store().fabrics.ledger("fabric")[0].owners_of_links()))
    cable = kept.inventory.cable_of_link[link]
    site.change(tuple(c for c in site.inventory.cables if c.lower != cable.lower))
    file = dump(run, site.inventory)
    refused = run("fabric", "reimport", file, *MANAGERS, rc=1)
    assert "allocation t0: refused: takes link leaf-" in refused
    assert "--apply" not in refused
    forced = run("fabric", "reimport", file, *MANAGERS, "--apply", "2-0000", rc=1)
    assert "refused: takes link" in forced
    assert run.store().fabrics.get("fabric") == kept


def test_a_token_is_valid_only_for_the_reviewed_file_and_generation(run, site):
    gone = free_cable(run.store(), site.inventory)
    site.change(tuple(c for c in site.inventory.cables if c.lower != gone.lower))
    file = dump(run, site.inventory)
    good = token(run("fabric", "reimport", file, *MANAGERS))
    tenants(run.store(), "fabric", 3)
    late = run("fabric", "reimport", file, *MANAGERS, "--apply", good, rc=1)
    assert "the fabric was at generation 1 and is at 2" in late
    fresh = token(late)
    recabling.add_a_host(site)
    changed = run(
        "fabric", "reimport", dump(run, site.inventory), *MANAGERS, "--apply", fresh, rc=1
    )
    assert "FILE or its options differ" in changed
    assert run.store().fabrics.get("fabric").generation == 2


def test_files_that_cannot_be_read_or_are_of_another_fabric_are_refused(run):
    run("fabric", "generate", "3;4,4,2;1,4,4", "--output", run.path / "other.txt")
    (run.path / "torn.txt").write_text("Switch 36")
    assert "torn.txt" in run("fabric", "reimport", run.path / "torn.txt", rc=1)
    assert "can be read" in run("fabric", "reimport", run.path / "nothing.txt", rc=1)
    assert "no fabric 'x'" in run("fabric", "reimport", run.path / "other.txt", "--id", "x", rc=1)


@needs_ibsim
def test_a_cable_is_moved_under_the_real_opensm(tmp_path, capsys, site):
    """The tables of the simulated switches are checked before and after the re-import."""
    run = Tool(tmp_path, capsys)
    run("db", "upgrade")
    with Simulator(netlist(site.inventory), "sm00 mlx5_0") as sim:
        file = run.path / "fabric.txt"
        file.write_text(sim.read("ibnetdiscover"))
        run("fabric", "import", file, *MANAGERS)
        store = run.store()
        tenants(store, "fabric", 3, 6)
        files = sim.directory / "files"
        opensm = OpenSm(
            pid_file=sim.directory / "opensm.pid",
            dump_command=_dump_command(sim),
            log_file=sim.directory / "osm.log",
            cache_directory=sim.directory,
        )
        LocalSubnetManager(files).publish(store.fabrics.routed("fabric"))
        manager = LocalSubnetManager(files, opensm, patience=300)
        with pytest.raises(Exception, match="does not run"):
            manager.publish(store.fabrics.routed("fabric"))
        start = ("-f", "osm.log", "-s", "0", "-D", "0x43", "--dump_files_dir", ".")
        process = sim.start("opensm", "-F", str(files / "fabric/current/opensm.conf"), *start)
        (sim.directory / "opensm.pid").write_text(f"{process.pid}\n")
        manager.publish(store.fabrics.routed("fabric"))
        applied = manager.applied("fabric")
        assert applied.generation == store.fabrics.get("fabric").routes_generation, applied.problem

        old = free_cable(store, store.fabrics.get("fabric").inventory)
        spare = _spare(store.fabrics.get("fabric").inventory, old.upper.guid)
        sim.console(f'Unlink "{_node(old.lower)}"[{old.lower.port}]')
        sim.console(
            f'Link "{_node(old.lower)}"[{old.lower.port}] "{_node(old.upper)}"[{spare.port}]'
        )
        file.write_text(_until_moved(sim, old.lower, spare))
        review = run("fabric", "reimport", file, *MANAGERS)
        assert review.count("  cable moved: ") == 1, review
        assert "allocation t1: unaffected" in review
        run("fabric", "reimport", file, *MANAGERS, "--apply", token(review))
        manager.publish(store.fabrics.routed("fabric"))
        applied = manager.applied("fabric")
        assert applied.generation == store.fabrics.get("fabric").routes_generation, applied.problem
        tables = run.path / "lfts.txt"
        tables.write_text(sim.read(*_dump_command(sim)))
    sm = next(
        e.guid for e in store.fabrics.get("fabric").inventory.endpoints if e.name.startswith("sm")
    )
    printed = run("fabric", "verify", "--lfts", tables, "--subnet-manager", hex(sm))
    assert "2 allocations, no violations" in printed
    assert "walks inside tenants" in printed


def _dump_command(sim: Simulator) -> tuple[str, ...]:
    environment = sim.environment()
    settings = [f"{key}={environment[key]}" for key in ("IBSIM_SOCKNAME", "LD_PRELOAD")]
    here = str(sim.directory)
    return ("env", "-C", here, *settings, f"SIM_HOST={sim.host}", "dump_lfts", "-n")


def _node(end: PortRef) -> str:
    return f"S-{end.guid:016x}"


def _spare(inventory: Inventory, guid: int) -> PortRef:
    used = {end.port for c in inventory.cables for end in (c.lower, c.upper) if end.guid == guid}
    ports = range(1, inventory.switch_of_guid[guid].ports + 1)
    return PortRef(guid, next(port for port in ports if port not in used))


def _until_moved(sim: Simulator, lower: PortRef, upper: PortRef) -> str:
    """Wait until the simulator has moved the cable; return the output of ``ibnetdiscover``."""

    def moved() -> str | None:
        text = sim.read("ibnetdiscover")
        wires = ibnetdiscover.parse(text, "dump").wires
        ends = ({(w.a.guid, w.a.port), (w.b.guid, w.b.port)} for w in wires)
        return text if any(pair == {lower, upper} for pair in ends) else None

    text = eventually(moved, f"the simulator moves the cable at port {lower.port}")
    assert text is not None
    return text
