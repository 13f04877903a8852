# SPDX-License-Identifier: Apache-2.0

"""The real OpenSM reads the published files on a simulated fabric; the switches are checked."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import permutations
from pathlib import Path
from random import Random

import pytest

from laas_service.adapters.fabric_import import generator, ibnetdiscover
from laas_service.adapters.fabric_import.netlist import netlist
from laas_service.adapters.fabric_import.recovery import Selection, recover
from laas_service.app.lifecycle import State
from laas_service.app.records import LinkState
from laas_service.app.requests import AllocationRequest
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request, Sharing
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.constraints import Constraints, ContentionFree
from laas_service.domain.errors import Unavailable
from laas_service.domain.inventory import Inventory, PortRef
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.bridge import bridge
from laas_service.domain.policies.base import Policy
from laas_service.domain.policies.baseline import Baseline
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.policies.lc import Lc
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.domain.routing.tenant_tables import routed_allocations
from laas_service.domain.topology import Topology
from laas_service.domain.verification import credit_loop, physical_tables, walk_violations
from laas_service.messages import FabricState, TenantRoute
from opensm_writer import parse, publish, render
from opensm_writer.desired import RoutingStep, subnet_configuration
from opensm_writer.local import LocalSubnetManager
from opensm_writer.opensm import OpenSm
from opensm_writer.render import Settings
from tests.convergers import Convergers
from tests.crossings import Judge
from tests.drafts import on_ledger
from tests.fakes import FakeCompute
from tests.ibsim import Simulator
from tests.marks import needs_ibsim
from tests.partitions import tenant
from tests.shared import SHARED, needs_shared
from tests.waiting import eventually
from tests.walks import Hop, Mixed, Walks

pytestmark = [needs_ibsim, pytest.mark.road]

ROOT = Path(__file__).parents[2]


class Site:
    """A simulated fabric, a directory of files, and one OpenSM that reads them."""

    def __init__(self, topology: Topology, inventory: Inventory, sim: Simulator, sm: int) -> None:
        self.topology, self.inventory, self.sim, self.sm = topology, inventory, sim, sm
        here = sim.directory
        environment = sim.environment()
        settings = [f"{key}={environment[key]}" for key in ("IBSIM_SOCKNAME", "LD_PRELOAD")]
        self.dump = ("env", "-C", str(here), *settings, f"SIM_HOST={sim.host}", "dump_lfts", "-n")
        self.opensm = OpenSm(
            pid_file=here / "opensm.pid",
            dump_command=self.dump,
            log_file=here / "osm.log",
            cache_directory=here,
        )
        self.manager = LocalSubnetManager(here / "files", self.opensm, patience=300)
        self.current = here / "files" / "site" / "current"
        self.generation = 0
        self.start: tuple[str, ...] = SWEEP_ON_SIGNAL
        self.plane = NO_PLANE

    def state(self, tenants: Iterable[Allocation]) -> FabricState:
        self.generation += 1
        routes = [TenantRoute(tenant, 0x100 + ord(tenant.id[0])) for tenant in tenants]
        return FabricState(
            "site",
            self.generation,
            self.topology,
            self.inventory,
            tuple(routes),
            shared_plane=self.plane,
        )

    def boot(self, tenants: Iterable[Allocation]) -> None:
        """Publish, then start OpenSM on the published files."""
        with pytest.raises(Unavailable, match="OpenSM does not run"):
            self.manager.publish(self.state(tenants))
        assert "does not run" in str(self.manager.applied("site").problem)
        process = self.sim.start("opensm", "-F", str(self.current / "opensm.conf"), *self.start)
        (self.sim.directory / "opensm.pid").write_text(f"{process.pid}\n")
        self.manager.publish(replace(self.state(tenants), generation=self.generation))
        self.confirm()

    def change(self, tenants: Iterable[Allocation]) -> None:
        self.manager.publish(self.state(tenants))
        self.confirm()

    def confirm(self) -> None:
        applied = self.manager.applied("site")
        assert applied.generation == self.generation, applied.problem

    def until_problem(self, words: str) -> None:
        """Wait until the manager reports the problem; this can take OpenSM a sweep."""
        eventually(lambda: words in str(self.manager.applied("site").problem), words)

    def rows(self) -> dict[int, bytes]:
        """The forwarding tables in the switches, by GUID."""
        return parse.dumped_tables(self.sim.read(*self.dump).splitlines())

    def keys(self, endpoint: int, port: str = "") -> set[int]:
        """Partition keys of an adapter's port, or of the given port of a switch."""
        lid = str(self.inventory.lids[endpoint])
        lines = self.sim.read("smpquery", "pkeys", lid, *port.split()).splitlines()
        words = [word for line in lines if ":" in line for word in line.split(":")[1].split()]
        return {int(word, 16) for word in words if word != "0x0000"}

    def assert_no_credit_loops(self, apart: int = 0) -> None:
        """Run ``ibdmchk``, an independent checker, on the dumps of the last sweep.

        It does not look for loops where pairs of ports have no path, of which there are ``apart``.
        """
        done = self.sim.run(
            *("ibdmchk", "-s", "opensm-subnet.lst", "-f", "opensm.fdbs", "-m", "opensm.mcfdbs"),
            check=False,
        )
        if apart:
            assert f"Found {apart} missing paths out of" in done.stdout, done.stdout[-2000:]
            return
        assert "no credit loops found" in done.stdout, done.stdout[-2000:]
        assert not [line for line in done.stdout.splitlines() if line.startswith("-E-")]


SWEEP_ON_SIGNAL = ("-f", "osm.log", "-s", "0", "-D", "0x43", "--dump_files_dir", ".")


@contextmanager
def site(topology: Topology, inventory: Inventory, sm: int) -> Iterator[Site]:
    """A site whose OpenSM runs on the port with GUID ``sm``."""
    text = netlist(inventory)
    endpoint = next(e for e in inventory.endpoints if e.guid == sm)
    leaf = f'"S-{endpoint.at.guid:016x}"[{endpoint.at.port}]'
    blocks = [block for block in text.split("caguid=")[1:] if leaf in block]
    host = blocks[0].split('"')[1]
    with Simulator(text, host=host) as sim:
        yield Site(topology, inventory, sim, sm)


def tree_site(aggregation_nodes: bool = True) -> tuple[Topology, Inventory, int]:
    """XGFT(3; 4,4,8; 1,4,4): 128 hosts, 80 switches, and a subnet manager."""
    made = generator.generate(
        generator.Description(
            xgft="3;4,4,8;1,4,4", subnet_managers=1, aggregation_nodes=aggregation_nodes
        )
    )
    return made.topology, made.inventory, top_guid(made.inventory)


def top_guid(inventory: Inventory) -> int:
    """The GUID with the highest LID, which is the subnet manager's port."""
    return max(inventory.lids, key=lambda guid: inventory.lids[guid])


# Interleaved on the leaves of pods 0 to 3 and on the spines above them.
TENANTS = [
    # Some hosts of one leaf.
    tenant("a", [(1, 0b1100, 0)]),
    # Several leaves of a pod, the last one with fewer hosts.
    tenant("b", [(0, 0b0011, 0b0011), (1, 0b0011, 0b0011), (2, 0b0001, 0b0001)]),
    # Several pods; the last leaf of the remainder pod has fewer hosts.
    tenant(
        "c",
        [(0, 12, 12), (3, 3, 12), (4, 6, 12), (5, 3, 12), (8, 3, 12), (11, 4, 8)],
        [(0, 2, 3), (0, 3, 6), (1, 2, 3), (1, 3, 6), (2, 2, 1), (2, 3, 6)],
    ),
    # One host a leaf over three pods, on the same leaves and spine groups as "c".
    tenant(
        "d",
        [(3, 0b0100, 0b0010), (4, 0b0001, 0b0010), (10, 0b1000, 0b0010)],
        [(0, 1, 0b1000), (1, 1, 0b1000), (2, 1, 0b1000)],
    ),
    # Whole pods.
    tenant(
        "e",
        [(group, 0b1111, 0b1111) for group in range(12, 24)],
        [(pod, column, 0b1111) for pod in (3, 4, 5) for column in range(4)],
    ),
]


PLANE = CommonPlane((3,))


def tenants_beside(plane: CommonPlane, topology: Topology) -> list[Allocation]:
    """Allocations inside a leaf, inside a pod and across pods that use no link of the plane."""
    ledger = Ledger(topology)
    ledger.withhold(plane)
    policies: list[Policy] = [Jigsaw(), Lc(), Jigsaw(), Lc(), Jigsaw()]
    for id, policy, hosts in zip("abcde", policies, (12, 30, 9, 19, 3), strict=True):
        assert isinstance(admit(policy, ledger, Request(id, hosts)), Allocation)
    return list(ledger.allocations.values())


def assert_sound(here: Site, tenants: Iterable[Allocation], apart: int = 0) -> int:
    """Check the tables in the switches; return the number of tenant pairs walked.

    ``apart`` ordered pairs of ports have no path.
    """
    tables = physical_tables(here.rows(), here.inventory.lids)
    managers = [here.sm]
    walks = walk_violations(here.topology, here.inventory, tables, tenants, managers, here.plane)
    assert walks.violations == []
    assert bool(walks.shared_pairs) == bool(here.plane)
    assert walks.manager_pairs > 2 * len(here.inventory.switches)
    assert credit_loop(here.inventory, tables) == []
    here.assert_no_credit_loops(apart)
    return walks.tenant_pairs


def paths_inside(tenant: Allocation, here: Site, rows: Mapping[int, bytes]) -> list[list[Hop]]:
    """The paths of all packets between hosts of a tenant, with one port each."""
    walks = Walks.over_rows(here.inventory, rows)
    ends = [here.inventory.endpoint_of_port[host, 0] for host in tenant.hosts(here.topology)]
    return [walks.path(one.at.guid, other.guid) for one, other in permutations(ends, 2)]


def test_interleaved_tenants_on_a_three_level_tree():
    topology, inventory, sm = tree_site()
    ledger = Ledger(topology)
    for each in TENANTS:
        ledger.claim(each)
    with site(topology, inventory, sm) as here:
        here.boot(TENANTS[:3])
        before = here.rows()
        assert_sound(here, TENANTS[:3])
        here.change(TENANTS)
        assert assert_sound(here, TENANTS) > 2000
        after = here.rows()
        for kept in TENANTS[:3]:
            old, new = (paths_inside(kept, here, rows) for rows in (before, after))
            assert old == new
        found = Judge(topology, inventory, TENANTS).found(physical_tables(after, inventory.lids))
        assert (found.wrong, found.lost, found.above) == ([], 0, 0)
        for each in TENANTS[1:4]:
            end = inventory.endpoint_of_port[each.hosts(topology)[0], 0]
            keys = {0x7FFF, 0x8000 | 0x100 + ord(each.id)}
            assert here.keys(end.guid) == keys
            assert here.keys(end.at.guid, str(end.at.port)) == keys
        here.change([each for each in TENANTS if each.id != "c"])
        assert_sound(here, [each for each in TENANTS if each.id != "c"])
        end = inventory.endpoint_of_port[TENANTS[2].hosts(topology)[0], 0]
        assert here.keys(end.guid) == {0x7FFF}


def test_no_shift_of_a_tenant_meets_itself_in_the_programmed_tables():
    """Tenants with remainders, in a pod and across pods; each shift walked over what was read."""
    topology, inventory, sm = tree_site()
    ledger, wish = Ledger(topology), Constraints(contention_free=ContentionFree.REQUIRE)
    for id, hosts in {"a": 14, "b": 11, "c": 37}.items():
        answer = admit(Jigsaw(), ledger, Request(id, hosts, constraints=wish))
        assert isinstance(answer, Allocation)
        assert answer.shape is not None
        assert answer.shape.remainder_hosts
    tenants = list(ledger.allocations.values())
    with site(topology, inventory, sm) as here:
        here.boot(tenants)
        walks = Walks.over_rows(inventory, here.rows())
    for tenant_of_three in tenants:
        ends = [inventory.endpoint_of_port[h, 0] for h in tenant_of_three.hosts(topology)]
        paths = {(a, b): walks.path(a.at.guid, b.guid) for a in ends for b in ends if a != b}
        for shift in range(1, len(ends)):
            taken = Counter(
                hop
                for number, end in enumerate(ends)
                for hop in paths[end, ends[(number + shift) % len(ends)]]
            )
            assert set(taken.values()) == {1}, (tenant_of_three.id, shift)


def test_shared_traffic_keeps_to_the_plane():
    """Storage, idle hosts and the manager on 128 hosts; the plane is set and removed meanwhile."""
    made = generator.generate(
        generator.Description(xgft="3;4,4,8;1,4,4", subnet_managers=1, storage_hosts=3)
    )
    topology, inventory = made.topology, made.inventory
    tenants = tenants_beside(PLANE, topology)
    with site(topology, inventory, top_guid(inventory)) as here:
        here.boot(tenants[:3])
        assert_sound(here, tenants[:3])
        tables = physical_tables(here.rows(), inventory.lids)
        found = walk_violations(topology, inventory, tables, tenants[:3], [here.sm], PLANE)
        assert any("carries packets that are not" in line for line in found.violations)
        here.plane = PLANE
        here.change(tenants[:3])
        assert_sound(here, tenants[:3])
        here.change(tenants)
        assert assert_sound(here, tenants) > 1000
        here.change(tenants[1:])
        assert_sound(here, tenants[1:])
        here.plane = NO_PLANE
        here.change(tenants[1:])
        assert_sound(here, tenants[1:])


def test_allocations_inside_allocations():
    """Isolated children use their own links, the others those of their container."""
    topology, inventory, sm = tree_site()
    ledger, lc, baseline = Ledger(topology), Lc(), Baseline()
    wanted: list[tuple[Policy, Request]] = [
        (lc, Request("a", 48, container=True)),
        (lc, Request("b", 24, parent="a", container=True)),
        (lc, Request("c", 9, parent="b")),
        (lc, Request("d", 7, parent="b")),
        (lc, Request("e", 11, parent="a")),
        (lc, Request("f", 24, container=True)),
        (baseline, Request("g", 10, parent="f")),
        (baseline, Request("h", 12, parent="f")),
        (lc, Request("i", 20)),
    ]
    for policy, request in wanted:
        assert isinstance(admit(policy, ledger, request), Allocation)
    everybody = list(ledger.everybody())
    with site(topology, inventory, sm) as here:
        here.boot(routed_allocations(everybody))
        assert assert_sound(here, everybody) > 500
        before = here.rows()
        ledger.release("c")
        here.change(routed_allocations(ledger.everybody()))
        assert_sound(here, ledger.everybody())
        after = here.rows()
        for kept in ("d", "e", "g", "h", "i"):
            allocation = ledger.holder(kept).allocations[kept]
            old, new = (paths_inside(allocation, here, rows) for rows in (before, after))
            assert old == new


def test_a_generation_is_confirmed_by_the_blocks_that_it_changes(monkeypatch):
    """``laas-opensm-tables`` reads them from the switches, and ``dump_command`` is not run."""
    monkeypatch.setattr("opensm_writer.driver.SLOW", 0)
    topology, inventory, sm = tree_site()
    with site(topology, inventory, sm) as here:
        command = (*here.dump[:-2], f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1")
        reads, reader = here.sim.directory / "reads", "opensm_writer.table_reader"
        here.opensm = replace(
            here.opensm,
            dump_command=("sh", "-c", f'echo >>{reads}; exec "$@"', "sh", *here.dump),
            blocks_command=(*command, sys.executable, "-m", reader),
        )
        files = here.sim.directory / "files"
        here.manager = LocalSubnetManager(files, here.opensm, patience=300)
        here.boot(TENANTS[:2])
        before, rows = reads.read_text(), here.rows()
        here.change(TENANTS)
        assert reads.read_text() == before
        assert here.rows() != rows
        assert_sound(here, TENANTS)


def test_tables_without_port_guids_are_never_loaded_for_other_lids():
    """A restarted OpenSM gives two hosts each other's LIDs: such tables would mix them up."""
    made = generator.generate(generator.Description(xgft="3;2,2,2;1,2,2", subnet_managers=1))
    topology, inventory, sm = made.topology, made.inventory, top_guid(made.inventory)
    ledger = Ledger(topology)
    admitted = [admit(Jigsaw(), ledger, Request(id, 3)) for id in "ab"]
    tenants = [tenant for tenant in admitted if isinstance(tenant, Allocation)]
    assert len(tenants) == 2
    with site(topology, inventory, sm) as here:
        here.opensm = replace(here.opensm, links_command=(*here.dump[:-2], "iblinkinfo", "-l"))
        files, cache = here.sim.directory / "files", here.sim.directory / "guid2lid"
        here.manager = LocalSubnetManager(files, here.opensm, patience=300)
        here.boot(tenants[:1])
        here.change(tenants)
        lfts = here.current / "lfts"
        assert "portguid" not in lfts.read_text()
        assert_sound(here, tenants)

        one, other = (tenant.hosts(topology)[0] for tenant in tenants)
        guids = [inventory.endpoint_of_port[host, 0].guid for host in (one, other)]
        lids = [inventory.lids[guid] for guid in guids]
        swapped = {**inventory.lids, guids[0]: lids[1], guids[1]: lids[0]}
        opensm = int((here.sim.directory / "opensm.pid").read_text())
        os.kill(opensm, signal.SIGKILL)
        here.until_problem("OpenSM does not run")
        cache.write_text("".join(render.guid2lid(swapped)))
        process = here.sim.start("opensm", "-F", str(here.current / "opensm.conf"), *here.start)
        (here.sim.directory / "opensm.pid").write_text(f"{process.pid}\n")
        here.until_problem("2 of 21 ports have other LIDs than their tables")

        # With the GUIDs of ports, the same routes lead to the LIDs that the ports have. They are
        # never confirmed, so this manager waits for that no longer than it has to.
        here.manager = LocalSubnetManager(files, here.opensm, patience=1)
        here.manager.publish(here.state(tenants))
        assert "portguid" in lfts.read_text()
        here.until_problem("switches differ")
        tables = physical_tables(here.rows(), swapped)
        assert walk_violations(topology, inventory, tables, tenants, [sm]).violations == []


def test_with_an_lmc_above_0_no_generation_is_confirmed():
    made = generator.generate(generator.Description(xgft="3;2,2,1;1,2,0", subnet_managers=1))
    with site(made.topology, made.inventory, top_guid(made.inventory)) as here:
        here.manager = LocalSubnetManager(here.sim.directory / "files", here.opensm, patience=10)
        here.start = (*SWEEP_ON_SIGNAL, "-l", "1")
        with pytest.raises(AssertionError, match="switches differ"):
            here.boot([])
        dump = ibnetdiscover.parse(here.sim.read("ibnetdiscover"))
        assert set(dump.lmc.values()) == {1}


def test_what_opensm_does_not_run_is_not_applied():
    topology, inventory, sm = tree_site()
    with site(topology, inventory, sm) as here:
        here.boot(TENANTS[:2])
        lfts, log = here.current / "lfts", here.sim.directory / "osm.log"
        before, ours = here.rows(), lfts.read_text()

        # With a torn file OpenSM keeps its tables and does not fall back to minhop.
        lfts.write_text(ours.replace(" 001 #", " 999 #", 1))
        here.opensm.reload()
        eventually(lambda: "No routing engine able" in log.read_text(), "the tables are refused")
        assert here.rows() == before
        assert "differ from the manifest: lfts" in str(here.manager.applied("site").problem)
        lfts.write_text(ours)
        here.until_problem("could not use the tables")

        # Publishing again repairs the set, and OpenSM applies it.
        here.change(TENANTS[:3])

        # OpenSM runs tables that the service did not publish.
        before, ours = here.rows(), lfts.read_text()
        lfts.write_text(ours.replace(" 002 #", " 003 #", 1))
        here.opensm.reload()
        eventually(lambda: here.rows() != before, "other tables are in the switches")
        lfts.write_text(ours)
        here.until_problem("to port 3, not to port 2")

        # OpenSM has ended; that is a problem even while the switches hold the right tables.
        here.change(TENANTS[:2])
        os.kill(int((here.sim.directory / "opensm.pid").read_text()), signal.SIGKILL)
        here.until_problem("OpenSM does not run")
        with pytest.raises(Unavailable, match="OpenSM does not run"):
            here.manager.publish(here.state(TENANTS))


@pytest.mark.parametrize("plane", [NO_PLANE, PLANE], ids=["no plane", "plane"])
def test_routing_chains_acted_out_by_the_stock_engines(plane):
    """Run each step of the chain alone on its part of the fabric and overlay it on the base.

    The vendor's OpenSM, which supports chains, combines the steps in this way.
    """
    topology, inventory, sm = tree_site(aggregation_nodes=False)
    tenants = tenants_beside(plane, topology) if plane else TENANTS
    with site(topology, inventory, sm) as here:
        here.plane = plane
        engines = act_out_chains(here, here.state(tenants))
        # The base is step 0. A tenant inside one leaf has no step; a plane has one of its own.
        assert engines == ["updn"] * (1 + bool(plane)) + ["ftree"] * (len(tenants) - 1)
        assert_chains_sound(here, tenants)


def test_routing_chains_join_old_and_new_hosts_of_tenants_that_move():
    """Acted out likewise; tenants move inside a pod, to another pod and over several pods."""
    topology, inventory, sm = tree_site(aggregation_nodes=False)
    ledger, routes = Ledger(topology), []
    for each in TENANTS:
        ledger.claim(each)
    targets = [
        tenant("a", [(2, 0b1100, 0)]),
        tenant("b", [(24, 0b0011, 0b0101), (25, 0b0011, 0b0101), (26, 0b0001, 0b0001)]),
        tenant(
            "d",
            [(3, 0b0100, 0b0010), (4, 0b0001, 0b0010), (28, 0b1000, 0b0010)],
            [(0, 1, 0b1000), (1, 1, 0b1000), (7, 1, 0b1000)],
        ),
    ]
    pkeys = {each.id: 0x100 + number for number, each in enumerate(TENANTS)}
    for new in targets:
        old = ledger.allocations[new.id]
        joins = bridge(ledger, old, new)
        assert joins is not None
        ledger.change(old.joined(new).joined(joins))
        assert any(joins.links(topology)) == (new.id != "d")
        routes.append(TenantRoute(new, pkeys[new.id], old, bridge=joins))
    moving = {route.allocation.id for route in routes}
    routes += [TenantRoute(e, pkeys[e.id]) for e in TENANTS if e.id not in moving]
    routes.sort(key=lambda route: route.allocation.id)
    with site(topology, inventory, sm) as here:
        engines = act_out_chains(here, replace(here.state(()), tenants=tuple(routes)))
        assert engines == ["updn", "minhop", "minhop", "ftree", "minhop", "ftree"]
        assert_chains_sound(here, [route.held for route in routes])


def act_out_chains(here: Site, state: FabricState) -> list[str]:
    """Load what the chains of a state amount to into the switches; returns the steps' engines."""
    inventory = here.inventory
    chained = render.Settings(str(here.current), enforcement="chains")
    directory = here.sim.directory / "files"
    configuration = subnet_configuration(state, enforcement="chains")
    publish.publish_set(configuration, chained, directory, keep=1)

    def text(name: str) -> str:
        return (here.current / name).read_text()

    steps = parse.chain(text("chains.conf"), "chains", str(here.current))
    parts = {t.id: t for t in parse.topologies(text("topologies.conf"), "topologies")}
    groups = {g.name: dict(g.ports) for g in parse.port_groups(text("port_groups.conf"), "")}
    assert [step.topology for step in steps] == list(range(len(steps)))
    rows: dict[int, bytearray] = {}
    for step in steps:
        part = parts.get(step.topology)
        if part is None:
            routed = stock(here.sim, step, here.current)
        else:
            hosts, ports = groups[part.adapters], groups[part.switches]
            cut = cut_out(inventory, ports, hosts)
            with Simulator(netlist(cut)) as sim:
                routed = stock(sim, step, here.current)
            lids_of_part = [inventory.lids[guid] for guid in hosts]
            routed = {g: only(row, lids_of_part) for g, row in routed.items()}
        for guid, row in routed.items():
            lay_over(rows.setdefault(guid, bytearray()), row)
    merged = here.sim.directory / "merged"
    merged.write_text("".join(table_text(guid, row) for guid, row in rows.items()))
    here.sim.run(*OPENSM_ONCE, "-R", "file,no_fallback", "-U", str(merged))
    return [step.engine for step in steps]


def assert_chains_sound(here: Site, tenants: Iterable[Allocation]) -> None:
    """Check the tables that the switches have now, as chains make them."""
    topology, inventory, held = here.topology, here.inventory, list(tenants)
    walks = Walks.over_rows(inventory, here.rows())
    tables = physical_tables(here.rows(), inventory.lids)
    judged = walk_violations(topology, inventory, tables, held, [here.sm], here.plane)
    assert judged.violations == []
    for each in held:
        walks.assert_isolated(topology, each)
    walks.assert_reaches(e.at.guid for e in inventory.endpoints if e.guid == here.sm)
    here.assert_no_credit_loops()


OPENSM_ONCE = ("opensm", "-o", "-f", "once.log", "-D", "0x43", "--dump_files_dir", ".")


def stock(sim: Simulator, step: RoutingStep, directory: Path) -> dict[int, bytes]:
    """The tables of a stock engine on the simulated fabric with the step's configuration."""
    shutil.copy(directory / "guid2lid", sim.directory)
    engine = f"{step.engine},no_fallback"
    sim.run(*OPENSM_ONCE, "-F", str(directory / step.config), "-R", engine)
    return parse.dumped_tables(sim.read("dump_lfts", "-n").splitlines())


def cut_out(
    inventory: Inventory, switches: Mapping[int, tuple[int, ...]], adapters: Collection[int]
) -> Inventory:
    """The part of a fabric that two port groups define."""

    def inside(end: PortRef) -> bool:
        return end.port in switches.get(end.guid, ())

    endpoints = tuple(e for e in inventory.endpoints if e.guid in adapters)
    assert all(inside(e.at) for e in endpoints)
    return replace(
        inventory,
        switches=tuple(s for s in inventory.switches if s.guid in switches),
        cables=tuple(c for c in inventory.cables if inside(c.lower) and inside(c.upper)),
        endpoints=endpoints,
    )


def only(row: bytes, wanted: Iterable[int]) -> bytes:
    kept = {lid: row[lid] for lid in wanted if lid < len(row)}
    return parse.row_by_lid(kept)


def lay_over(row: bytearray, above: bytes) -> None:
    row.extend([NO_ROUTE] * (len(above) - len(row)))
    for lid, port in enumerate(above):
        if port != NO_ROUTE:
            row[lid] = port


def table_text(guid: int, row: bytes | bytearray) -> str:
    entries = (f"{lid:#06x} {port:03d}\n" for lid, port in enumerate(row) if port != NO_ROUTE)
    return f"Unicast lids of switch guid {guid:#018x} :\n{''.join(entries)}"


@needs_shared
def test_multi_rail_tenants_on_an_imported_fabric():
    text = (SHARED / "fabrics" / "dgx-ndr-2025.ibnetdiscover.txt").read_text()
    imported = recover(ibnetdiscover.parse(text, "dgx"), Selection(managers=("*CUFM*",)))
    topology, inventory = imported.topology, imported.inventory
    assert topology.rails == 4
    ledger, policy = Ledger(topology), Jigsaw()
    sizes = {"a": 7, "b": 1, "c": 30, "d": 5, "e": 21, "f": 3}
    tenants = [admit(policy, ledger, Request(id, hosts)) for id, hosts in sizes.items()]
    assert all(isinstance(each, Allocation) for each in tenants)
    allocated = [ledger.allocations[id] for id in sizes]
    with site(topology, inventory, top_guid(inventory)) as here:
        here.boot(allocated)
        assert assert_sound(here, allocated, rails_apart(inventory, topology, allocated)) > 15_000
        here.change(allocated[1:])
        assert_sound(here, allocated[1:], rails_apart(inventory, topology, allocated[1:]))


def rails_apart(inventory: Inventory, topology: Topology, tenants: Iterable[Allocation]) -> int:
    """Ordered pairs of ports that have no path, because a tenant of one host owns no links.

    The leaf of each of its ports has no entry for its ports on other rails.
    """
    ports = Counter(end.at.guid for end in inventory.endpoints)
    alone = {host for each in tenants if each.size == 1 for host in each.hosts(topology)}
    leaves = [end.at.guid for end in inventory.endpoints if end.host in alone]
    return sum(ports[leaf] for leaf in leaves) * (topology.rails - 1)


def test_a_failed_cable_is_replaced_under_the_real_opensm(store):
    """The worker repairs while OpenSM sweeps; no phase sends packets over links of others."""
    topology, inventory, sm = tree_site()
    with site(topology, inventory, sm) as here:
        seen: dict[str, Walks] = {}

        def at(step: str) -> None:
            """Read the tables of a phase just before the next one is recorded."""
            if step in PHASES:
                seen[step] = Walks.over_rows(inventory, here.rows())

        store._transactions.at = at
        store.fabrics.add("site", topology, inventory)
        clock = [datetime(2026, 1, 1, tzinfo=UTC)]
        worker = Convergers(
            store, FakeCompute(), here.manager, now=lambda: clock[0], chance=Random(1)
        )

        def converged() -> bool:
            clock[0] += timedelta(minutes=5)
            worker.run_once()
            return not store.allocations.due(clock[0] + timedelta(days=1), faulty=True)

        for id, hosts in (("b", 9), ("a", 18), ("c", 5)):
            new = AllocationRequest(
                id=id, fabric="site", name=id, project_id="blue", policy="jigsaw", hosts=hosts
            )
            store.admissions.admit(
                new, on_ledger(partial(admit, Jigsaw(), request=Request(id, hosts)))
            )
        with pytest.raises(Unavailable, match="OpenSM does not run"):
            here.manager.publish(store.fabrics.routed("site"))
        process = here.sim.start("opensm", "-F", str(here.current / "opensm.conf"), *here.start)
        (here.sim.directory / "opensm.pid").write_text(f"{process.pid}\n")
        eventually(converged, "all are active")
        old = store.allocations.get("a").placed
        failed = next(old.spine_links(topology))
        end = inventory.cable_of_link[failed].lower
        here.sim.console(f'Unlink "S-{end.guid:016x}"[{end.port}]')
        store.components.set_link_state("site", failed, LinkState.FAILED)
        eventually(converged, "the cable is replaced")
        record = store.allocations.get("a")
        assert (record.state, record.faults, record.phase) == (State.ACTIVE, None, None)
        new = record.placed
        assert failed not in set(new.links(topology))
        assert set(seen) == set(PHASES)
        prepared, switched, withdrawn = (seen[step] for step in PHASES)
        for before, after in ((prepared, switched), (switched, withdrawn)):
            mixed = Mixed(topology, [before, after], old.joined(new), [failed])
            assert mixed.foreign == set()
        for tables in (switched, withdrawn):
            mixed = Mixed(topology, [tables], new, [failed])
            assert (mixed.foreign, mixed.lost) == (set(), set())
        ledger, _ = store.fabrics.ledger("site")
        assert assert_sound(here, ledger.allocations.values()) > 300


PHASES = ("before commit: switch", "before commit: withdraw", "before commit: settle")


def test_shared_hosts_have_a_virtual_lane_of_their_own():
    """OpenSM gives their paths the service level, and every port the lane of that level."""
    made = generator.generate(generator.Description(xgft="2;4,4;1,4", subnet_managers=1))
    owned, other = tenant("a", [(0, 0b1100, 0)]), tenant("b", [(1, 0b0011, 0b0011)])
    shared = replace(
        tenant("c", [(2, 0b0011, 0b0011), (3, 0b0011, 0b0011)]), sharing=Sharing(4, 100.0)
    )
    with site(made.topology, made.inventory, top_guid(made.inventory)) as here:
        files = here.sim.directory / "files"
        here.manager = LocalSubnetManager(Settings(str(files), level=3), here.opensm, patience=300)
        here.boot([owned, shared])
        assert levels(here, owned) == {0}
        assert levels(here, shared) == {3}
        here.change([owned, shared, other])
        assert levels(here, other) == {0}
        assert levels(here, shared) == {3}
        lanes = [3 if level == 3 else 0 for level in range(16)]
        for switch in made.inventory.switches:
            ports = here.sim.read("smpquery", "sl2vl", str(made.inventory.lids[switch.guid]), "1")
            rows = [line.partition(": |")[2] for line in ports.splitlines() if "out" in line]
            assert rows
            for row in rows:
                assert [int(lane) for lane in row.split("|") if lane.strip()] == lanes
            weights = here.sim.read("smpquery", "vlarb", str(made.inventory.lids[switch.guid]), "1")
            low = weights.partition("High priority")[0]
            assert "VL    : |0x0 |0x3 |" in low
            assert "WEIGHT: |0x40|0x40|0x0 |" in low


def levels(here: Site, tenant: Allocation) -> set[int]:
    """Service levels of the paths between the hosts of an allocation, as OpenSM answers."""
    ports = [
        here.inventory.lids[here.inventory.endpoint_of_port[host, 0].guid]
        for host in tenant.hosts(here.topology)
    ]
    found = set()
    for source, target in permutations(ports, 2):
        answer = here.sim.read("saquery", "-p", "--src-to-dst", f"{source}:{target}")
        (line,) = [line for line in answer.splitlines() if line.strip().startswith("sl.")]
        found.add(int(line.rpartition(".")[2], 16))
    return found
