# SPDX-License-Identifier: Apache-2.0

"""Dumps of real machines, compared with their documented sizes."""

from collections import Counter

import pytest

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.recovery import Selection, recover
from laas_service.domain.topology import LeafLink
from tests.shared import SHARED, needs_shared

pytestmark = needs_shared


def read(name, **selection):
    path = SHARED / "fabrics" / f"{name}.ibnetdiscover.txt"
    return recover(ibnetdiscover.parse(path.read_text(), path.name), Selection(**selection))


def kinds(report):
    return Counter(odd.kind for odd in report.irregularities)


def test_lassen():
    lassen = read("lassen-edr-2019")
    report, tree = lassen.report, lassen.topology.tree
    assert report.switches == (84, 54, 36)
    assert Counter(report.pods) == {(18, 9): 4, (8, 9): 1, (4, 9): 1}
    assert (tree.m, tree.w, tree.cables) == ((18, 18, 6), (1, 9, 18), (1, 1))
    assert tree.taper[0] == 2
    assert report.host_ports == 1470
    assert report.aggregation_nodes == 174
    assert (report.named_hosts, report.hosts, report.topology.rails) == (721, 719, 2)
    assert Counter(report.leaf_groups) == {18: 38, 12: 1, 8: 2, 7: 1}
    assert kinds(report) == {
        "extra parallel cable": 72,  # the second cables of the pod of eight leaves
        "extra adapter": 30,  # third and fourth adapters of its hosts
        "host breaks the rail pattern": 2,  # one adapter each
        "missing cable": 1,
    }
    out = [x for x in report.irregularities if x.kind == "host breaks the rail pattern"]
    assert {x.detail.split()[0] for x in out} == {"lassenufm1", "lassenufm2"}
    (missing,) = [x for x in report.irregularities if x.kind == "missing cable"]
    assert missing.cables == (
        (
            "SwitchIB Mellanox Technologies[0xec0d9a030025cc20]",
            "MF0;lassen-ibcore1-mgt1:CS7500/L05/U2[0xec0d9a030057ac60]",
        ),
    )


def test_lassen_has_two_directors_as_spines():
    inventory = read("lassen-edr-2019").inventory
    groups = [inventory.spine_guids[i * 18 : i * 18 + 18] for i in range(9)]
    assert Counter(Counter(groups).values()) == {5: 1, 4: 1}
    # an L2 index stands for the same director in every pod
    director_of = {s.guid: s.name.split(":")[0] for s in inventory.switches}
    for i in range(9):
        assert len({director_of[inventory.l2_guids[pod * 9 + i]] for pod in range(6)}) == 1


def test_dgx():
    dgx = read("dgx-ndr-2025")
    report = dgx.report
    assert report.switches == (31, 9)
    assert report.pods == ((31, 9),)
    assert (report.topology.tree.w, report.topology.tree.cables) == ((1, 18, 0), (2, 1))
    assert report.host_ports == 542
    assert report.aggregation_nodes == 40
    assert (report.named_hosts, report.topology.rails) == (121, 4)
    assert Counter(report.leaf_groups) == {18: 2, 17: 1, 16: 1, 15: 1, 14: 1, 11: 1}
    assert (3, 10) in report.other_groups  # and localhost, which is the name of no machine
    assert report.hosts + 10 == 119
    assert report.absent_cables == 31 * 18 - report.cables
    assert kinds(report)["adapter on another rail"] == 2
    swapped = [x for x in report.irregularities if x.kind == "adapter on another rail"]
    assert all("b08-p1-dgx-08-c01" in x.detail for x in swapped)


def test_dgx_rails_of_a_group_agree():
    dgx = read("dgx-ndr-2025")
    leaf_of_rail: dict[tuple[int, int], tuple[int, int]] = {}
    for host, ports in enumerate(dgx.topology.host_ports):
        group, _ = dgx.topology.place_of(host)
        for rail, port in enumerate(ports):
            assert leaf_of_rail.setdefault((group, rail), port[:2]) == port[:2]
            endpoint = dgx.inventory.endpoint_of_port[host, rail]
            leaf = dgx.topology.tree.leaf_id(port.pod, port.leaf)
            assert endpoint.at.guid == dgx.inventory.leaf_guids[leaf]


def test_lab_of_four_switches():
    lab = read("lab4sw-2023")
    assert lab.report.switches == (2, 2)
    assert (lab.topology.tree.m, lab.topology.tree.w) == ((3, 2, 1), (1, 2, 0))
    assert (lab.report.hosts, lab.report.aggregation_nodes) == (4, 4)
    assert lab.report.irregularities == ()
    assert sorted(filter(None, lab.inventory.host_names)) == [
        "Host2_1", "Host2_2", "Host2_3", "l-csi-r750-05",
    ]  # fmt: skip


def test_hosts_are_configured_out_and_in():
    report = read("dgx-ndr-2025", exclude=("b08-*",), include=("b08-p1-dgx-08-c0*",)).report
    assert report.excluded_ports > 0
    everything = read("dgx-ndr-2025").report
    names = read("dgx-ndr-2025", exclude=("b08-*",)).inventory.host_names
    assert not any(name.startswith("b08-") for name in names)
    assert report.hosts > len(names)
    assert report.hosts < everything.hosts


@pytest.mark.parametrize("name", ["lassen-edr-2019", "dgx-ndr-2025", "lab4sw-2023"])
def test_inventory_is_whole_and_lids_are_safe(name):
    imported = read(name)
    inventory, tree = imported.inventory, imported.topology.tree
    guids = [e.guid for e in inventory.endpoints] + [s.guid for s in inventory.switches]
    assert sorted(inventory.lids) == sorted(guids)
    assert len(set(inventory.lids.values())) == len(guids)
    highest = max(inventory.lids.values())
    assert highest % 64
    switches = {s.guid for s in inventory.switches}
    assert {g for g, lid in inventory.lids.items() if lid // 64 == highest // 64} <= switches
    regular = set(inventory.cable_of_link)
    assert not regular & imported.topology.absent_links
    assert len(regular) + len(imported.topology.absent_links) == tree.leaf_links + tree.spine_links
    for link, cable in inventory.cable_of_link.items():
        if isinstance(link, LeafLink):
            leaf = tree.leaf_id(link.pod, link.leaf)
            l2 = tree.l2_id(link.pod, link.up // tree.cables[0])
            assert cable.lower.guid == inventory.leaf_guids[leaf]
            assert cable.upper.guid == inventory.l2_guids[l2]
        else:
            spine = link.l2 * tree.spines_per_group + link.up // tree.cables[1]
            assert cable.lower.guid == inventory.l2_guids[tree.l2_id(link.pod, link.l2)]
            assert cable.upper.guid == inventory.spine_guids[spine]


@pytest.mark.parametrize("name", ["lassen-edr-2019", "dgx-ndr-2025", "lab4sw-2023"])
def test_what_is_written_reads_the_same(name):
    imported = read(name)
    again = recover(ibnetdiscover.parse(ibnetdiscover.render(imported.inventory)))
    assert again.topology == imported.topology
    assert again.inventory == imported.inventory
