# SPDX-License-Identifier: Apache-2.0

"""Which adapters make a machine: descriptions as sites have them, and GUIDs that contradict."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest

from laas_service.adapters.fabric_import.fabric_file import FabricFile, parse_fabric, read_fabric
from laas_service.adapters.fabric_import.recovery import Selection
from laas_service.adapters.fabric_import.recovery.report import ImportReport
from laas_service.domain.errors import InvalidFile
from tests.machines import DEFAULTS, Machines, Plugged
from tests.shared import SHARED, needs_shared


def imported(made: Plugged, selection: Selection | None = None) -> tuple[FabricFile, ImportReport]:
    fabric = parse_fabric(made.dump(), "dump", selection)
    assert fabric.report is not None
    return fabric, fabric.report


def kept(report: ImportReport) -> dict[str, tuple[str, ...]]:
    return {entry.kind.value: entry.names for entry in report.kept_out}


def with_named(*names: str, leaves: int = 2) -> Plugged:
    """Four sound hosts on each leaf, and adapters of these descriptions on leaf 0."""
    made = Plugged(leaves=leaves)
    for leaf in range(leaves):
        for n in range(4):
            made.add(f"cn{leaf}{n} mlx5_0", leaf)
    for name in names:
        made.add(name, 0)
    return made


def hosts_beside(*names: str) -> set[str]:
    """Hosts for tenants that adapters of these descriptions add."""
    fabric, _ = imported(with_named(*names))
    return {n for n in fabric.inventory.host_names if n and not n.startswith("cn")}


class TestNames:
    @pytest.mark.parametrize("name", DEFAULTS)
    def test_defaults_name_no_machine(self, name):
        _, report = imported(with_named(name, name))
        assert report.hosts == report.named_hosts == 8
        assert kept(report) == {"nameless": (name,)}
        assert [len(entry.guids) for entry in report.kept_out] == [2]

    @pytest.mark.parametrize(
        "name",
        [
            "gpu7 mlx5_0", "mlx5_0 gpu7", "gpu7_mlx5_0", "gpu7-mlx5_0", "gpu7.mlx5_0",
            "gpu7:mlx5_0", "gpu7(mlx5_0)", "mlx5_0@gpu7", "gpu7 HCA-1", "HCA-1 gpu7", "gpu7",
            "gpu7 hfi1_0", "gpu7 MT4129 ConnectX7 Mellanox Technologies",
            "MT4129 ConnectX7 Mellanox Technologies gpu7", "QLogic Infiniband HCA gpu7",
            "gpu7 QLogic Infiniband HCA", "NVIDIA ConnectX-8 gpu7", "gpu7 ConnectX-6 Dx",
            "gpu7 ibp65s0", "gpu7 mlx5_bond_0", "mlx5_0_gpu7", "gpu7;mlx5_0", "gpu7,mlx5_0",
            "MT4123 ConnectX6 Mellanox Technologies gpu7 HCA-1",
        ],
    )  # fmt: skip
    def test_a_host_is_named_first_or_last_or_glued_to_its_device(self, name):
        assert hosts_beside(name) == {"gpu7"}

    @pytest.mark.parametrize("name", ["ib01", "sun", "mlx-gw01", "linux01", "hca-lab", "bmc01"])
    def test_hosts_may_be_called_like_things(self, name):
        assert hosts_beside(f"{name} mlx5_0") == {name}

    def test_nobody_has_a_name(self):
        made = Plugged()
        for n in range(8):
            made.add(" mlx5_0", n % 4)
        with pytest.raises(InvalidFile, match=r"8 adapters name no machine.*'mlx5_0'.*rdma-ndd"):
            imported(made)

    def test_exclude_still_takes_a_name_that_is_none(self):
        selection = Selection(exclude=("localhost",))
        _, report = imported(with_named("localhost mlx5_0"), selection)
        assert kept(report) == {"nameless": ("localhost mlx5_0",)}

    def test_exclude_takes_the_name_of_the_machine(self):
        _, report = imported(with_named("gpu7_mlx5_0"), Selection(exclude=("gpu?",)))
        assert kept(report) == {"excluded": ("gpu7",)}


def rails(*machines: tuple[str, str]) -> Plugged:
    """Six sound hosts on two leaves, and adapters of these descriptions, one on each leaf."""
    made = Plugged(leaves=2)
    for n in range(6):
        for rail in range(2):
            made.add(f"cn{n} mlx5_{rail}", rail)
    for pair in machines:
        for leaf, name in enumerate(pair):
            made.add(name, leaf)
    return made


class TestJoining:
    @pytest.mark.parametrize(
        ("pair", "host"),
        [
            (("GPU7 mlx5_0", "gpu7 mlx5_1"), "gpu7"),
            (("GPU7 mlx5_0", "GPU7 mlx5_1"), "GPU7"),
            (("gpu7 mlx5_0", "gpu7.hpc.example.org mlx5_1"), "gpu7"),
            (("gpu7.example.org mlx5_0", "gpu7.example.org mlx5_1"), "gpu7.example.org"),
            (("gpu7_mlx5_0", "gpu7 mlx5_1"), "gpu7"),
        ],
    )  # fmt: skip
    def test_spellings_of_one_name_are_one_machine(self, pair, host):
        fabric, report = imported(rails(pair))
        assert report.kept_out == ()
        assert host in fabric.inventory.host_names
        assert report.hosts == 7

    def test_a_short_name_with_two_domains_is_undecided(self):
        made = rails(
            ("gpu7.a.org mlx5_0", "gpu7.a.org mlx5_1"), ("gpu7.b.org mlx5_0", "gpu7.b.org mlx5_1")
        )
        made.add("gpu7 mlx5_2", 0)
        _, report = imported(made)
        assert kept(report) == {"ambiguous": ("gpu7",)}
        assert report.hosts == 8

    def test_cloned_machines_are_kept_out_with_both_guids(self):
        made = rails(("img mlx5_0", "img mlx5_1"), ("img mlx5_0", "img mlx5_1"))
        fabric, report = imported(made)
        cloned = [node.guid for node in made.nodes if node.name.startswith("img")]
        assert [(e.kind, e.guids, e.names) for e in report.kept_out] == [
            ("ambiguous", tuple(sorted(cloned)), ("img",))
        ]
        assert "img" not in fabric.inventory.host_names
        assert report.hosts == 6
        (told,) = [i for i in report.irregularities if i.kind == "one name for several machines"]
        assert all(f"{guid:#018x}" in str(told) for guid in (cloned[0], cloned[2]))

    def test_ports_of_one_card_are_one_machine_though_devices_have_one_name(self):
        made = rails()
        first = made.add("gpu7 mlx5_0", 0)
        made.add("gpu7 mlx5_0", 1, system=first.system)
        _, report = imported(made)
        assert report.kept_out == ()
        assert report.hosts == 7

    def test_one_card_in_several_machines_joins_none(self):
        made = with_named()
        first = made.add("gpu7 mlx5_0", 0)
        made.add("gpu8 mlx5_0", 0, system=first.system)
        _, report = imported(made)
        assert report.hosts == 10
        assert report.kept_out == ()

    def test_names_alone_join_two_rails_where_most_machines_have_two(self):
        made = Plugged(leaves=2)
        for n in range(6):
            made.add(f"cn{n}", 0)
            made.add(f"cn{n}", 1)
        for leaf in (0, 1, 0, 1):
            made.add("img", leaf)
        _, report = imported(made)
        assert report.hosts == 6
        assert kept(report) == {"ambiguous": ("img",)}

    def test_names_alone_are_undecided_where_most_machines_have_one_adapter(self):
        made = Plugged(leaves=2)
        for n in range(6):
            made.add(f"cn{n}", n % 2)
        for leaf in (0, 0):
            made.add("img", leaf)
        _, report = imported(made)
        assert report.hosts == 6
        assert kept(report) == {"ambiguous": ("img",)}


class TestParts:
    def test_each_kind_is_told_in_a_line_of_its_own(self):
        made = with_named("node7-bmc mlx5_0", "cn99 BMC")
        for unit in range(1, 5):
            made.add(f"MF0;gw1:MGA100-HS2/U{unit}", 2)
        for spine in (2, 3):
            made.add("Mellanox Technologies Aggregation Node", spine)
            made.add(f"MF0;sw{spine}:Q3400_RA/U1/RT", spine).kind = "Rt"
        made.add("cn77 mlx5_0")
        _, report = imported(made)
        assert {entry.kind.value: entry.count for entry in report.kept_out} == {
            "service_processor": 2,
            "gateway": 4,
            "aggregation": 2,
            "router": 2,
            "unwired": 1,
        }
        assert report.hosts == 8
        assert report.switches == (2, 2)

    def test_a_machine_with_an_adapter_without_a_cable_is_told_once(self):
        made = with_named()
        made.add("cn00 mlx5_1")
        made.add("cn77 mlx5_0")
        _, report = imported(made)
        assert kept(report) == {"unwired": ("cn00 mlx5_1", "cn77")}
        assert report.hosts == 8

    def test_several_lids_are_told(self):
        made = with_named()
        made.nodes[3].lmc = 2
        _, report = imported(made)
        (told,) = [str(i) for i in report.irregularities if i.kind == "several LIDs"]
        assert f"{made.nodes[3].guid:#018x}" in told
        assert "lmc 0" in told


class TestNewerHardware:
    def test_144_ports_in_twin_cages_with_hosts_at_half_width(self):
        made = Plugged(leaves=2, spines=2, ports=146, parallel=36)
        for n in range(144):
            made.add(f"gb{n:03d} mlx5_0", n % 2).speed = "2xNDR"
        fabric, report = imported(made)
        assert report.hosts == 144
        assert (report.kept_out, report.irregularities) == ((), ())
        assert max(end.at.port for end in fabric.inventory.endpoints) == 144

    def test_lines_of_switches_that_count_cages_of_two_ports(self):
        made = Plugged(leaves=2, spines=2, ports=73, parallel=36)
        for n in range(144):
            made.add(f"gb{n:03d} mlx5_0", n % 2)
        fabric, report = imported(made)
        assert report.hosts == 144
        assert {i.kind for i in report.irregularities} == {"ports above the count"}
        assert max(switch.ports for switch in fabric.inventory.switches) == 144

    def test_hosts_at_ports_that_no_split_explains_are_kept_out_by_name(self):
        made = with_named("near mlx5_0", "far mlx5_0")
        made.ports = 10
        text = made.dump()
        for place, number in ((7, 21), (8, 22)):
            text = text.replace(f'[{place}]\t"H-', f'[{number}]\t"H-')
            text = text.replace(f"[{place}]\t\t# lid 9", f"[{number}]\t\t# lid 9")
        report = parse_fabric(text, "dump").report
        assert report is not None
        assert kept(report) == {"unwired": ("far",)}
        assert report.hosts == 9
        told = {i.kind: str(i) for i in report.irregularities}
        assert told.keys() == {"ports above the count", "cable at an impossible port"}
        assert "port 22" in told["cable at an impossible port"]

    def test_a_few_ports_at_half_width_are_told_and_allocated(self):
        made = with_named("split1 mlx5_0", "split2 mlx5_0")
        for node in made.nodes[-2:]:
            node.speed = "2xNDR"
        _, report = imported(made)
        assert report.hosts == 10
        assert [i.kind for i in report.irregularities] == ["slow cable"] * 2

    def test_an_adapter_with_a_port_in_each_of_four_planes(self):
        made = Plugged(leaves=8, spines=4, ports=150, planes=4)
        for n in range(12):
            group = n % 2
            node = made.add(f"xdr{n:02d} mlx5_0", *(4 * group + plane for plane in range(4)))
            node.speed = "1xXDR"
        for leaf in range(8):
            made.add(f"MF0;q{leaf}:Q3400_RA/U{leaf % 4 + 1}/RT", leaf).kind = "Rt"
        _, report = imported(made)
        assert (report.hosts, report.topology.rails, report.topology.planes) == (12, 4, 4)
        assert kept(report).keys() == {"router"}


def unaccounted(made: Machines) -> list[str]:
    """What the import loses, tells twice, or joins wrongly."""
    fabric, report = imported(made)
    names, wrong = fabric.inventory.host_names, []
    offered = {e.guid: names[e.host] for e in fabric.inventory.endpoints if e.host is not None}
    machines = defaultdict(set)
    for node in made.nodes:
        for port in range(1, len(node.at) + 1):
            if host := offered.get(node.port_guid(port)):
                machines[host].add(node.machine)
    wrong += [f"{host} is {found}" for host, found in machines.items() if len(found) > 1]
    wrong += [f"{host} is kept out" for host in made.named - machines.keys()]
    told = Counter(guid for entry in report.kept_out for guid in entry.guids)
    for node in made.nodes:
        times = told[node.guid] + (node.guid in offered)
        if times != 1:
            wrong.append(f"{node.name} {node.guid:#x} is told {times} times")
    if report.hosts != len(machines):
        wrong.append(f"{report.hosts} hosts for tenants, where {len(machines)} have adapters")
    parts = [node.guid for node in made.nodes if node.machine is None]
    kinds = {"router", "gateway", "aggregation"}
    in_parts = [g for e in report.kept_out if e.kind.value in kinds for g in e.guids]
    if sorted(parts) != sorted(in_parts):
        wrong.append("routers, gateways and aggregation nodes are not told as such")
    return wrong


@pytest.mark.parametrize("shard", range(4))
def test_every_adapter_is_in_one_machine_or_told_once(shard):
    wrong = {}
    for seed in range(50 * shard, 50 * (shard + 1)):
        if found := unaccounted(Machines.at_random(seed)):
            wrong[seed] = found
    assert wrong == {}


CASES = SHARED / "cases" / "dumps"
TRUTH = json.loads((CASES / "truth.json").read_text()) if (CASES / "truth.json").exists() else {}


@needs_shared
@pytest.mark.parametrize("name", TRUTH)
def test_dumps_as_sites_have_them(name):
    truth = TRUTH[name]
    if not truth["imports"]:
        with pytest.raises(InvalidFile, match=truth["report_names"]):
            read_fabric(str(CASES / f"{name}.txt"))
        return
    fabric = read_fabric(str(CASES / f"{name}.txt"), accept_no_fat_tree=True)
    report, hosts = fabric.report, {n for n in fabric.inventory.host_names if n}
    assert report is not None
    assert report.hosts == len(hosts) == truth["hosts_for_tenants"]
    assert report.named_hosts == truth.get("named", report.named_hosts)
    assert truth.get("report_names", "") in "\n".join(report.page())
    never = filter(None, truth.get("never_allocated", "").split(", "))
    assert not [host for host in hosts for word in never if host.startswith(word)]
