# SPDX-License-Identifier: Apache-2.0

import json
import tracemalloc
from pathlib import Path

import pytest

from laas_service.adapters import documents, snapshot
from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.fabric_file import parse_xgft, read_fabric
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.fabric_import.recovery import Selection
from laas_service.domain.errors import InvalidFile, InvalidInput
from laas_service.domain.ledger import Ledger
from laas_service.domain.topology import LeafLink, Topology, Xgft
from tests.managers import EIGHT_RAILS
from tests.shared import REPO, SHARED, needs_shared

EXAMPLE = REPO / "etc" / "laas" / "fabric-example.json"


def test_xgft():
    assert parse_xgft("3;18,18,36;1,18,18") == Xgft((18, 18, 36), (1, 18, 18))
    assert parse_xgft(" 2; 18,36 ;1,18") == Xgft((18, 36, 1), (1, 18, 0))
    assert parse_xgft("2;4,2;1,4", (2, 1)).l2_per_pod == 2


@pytest.mark.parametrize(
    "text",
    [
        "", "3", "3;1,1,1", "3;1,1;1,1", "4;1,1,1,1;1,1,1,1", "3;a,1,1;1,1,1", "3;0,1,1;1,1,1",
        "3;1,1,1;2,1,1", "3;1,1,1;1,-1,1", "3;99999999,1,1;1,1,1", "3;9999,9999,9999;1,1,1",
        "3;2,2,2;1,2,0", "²;1,1;1,1", "3;1,1,1;1,1,1;1",
    ],
)  # fmt: skip
def test_what_is_no_xgft(text):
    with pytest.raises(InvalidInput):
        parse_xgft(text)


@pytest.mark.parametrize(
    "spec",
    ["3;32,32,64;1,32,32", "2;256,256;1,256", "3;1,1,65536;1,1,1", "3;64,64,16;1,32,64"],
)
def test_largest_fabrics_of_any_shape(spec):
    tracemalloc.start()
    topology = read_fabric(spec).topology
    fabric = Ledger(topology)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert topology.hosts == 65536
    assert fabric.free_host_count == 65536
    assert peak < 200e6


def test_bare_description_has_an_inventory_without_asking():
    fabric = read_fabric("3;2,2,2;1,2,2")
    assert fabric.topology == Topology(Xgft((2, 2, 2), (1, 2, 2)))
    assert fabric.report is None
    assert len(fabric.inventory.endpoints) == 8
    assert len(fabric.inventory.host_numbers) == 8
    assert fabric.inventory.lids


def test_example_description(tmp_path):
    fabric = read_fabric(EXAMPLE)
    again = tmp_path / "dump.txt"
    again.write_text(ibnetdiscover.render(fabric.inventory))
    read = read_fabric(again, Selection(exclude=("storage*",), managers=("sm*",)))
    assert read.topology == fabric.topology
    assert read.inventory == fabric.inventory
    assert read.report is not None
    assert read.report.source == "dump.txt"
    assert read.report.irregularities


@pytest.mark.parametrize("name", ["utf-8", "utf-8-sig", "utf-16"])
def test_dump_in_any_encoding(tmp_path, name):
    path = tmp_path / "dump"
    fabric = generate(Description(xgft="2;2,2;1,2"))
    path.write_text(ibnetdiscover.render(fabric.inventory), encoding=name)
    assert read_fabric(path).inventory == fabric.inventory


def test_snapshot_with_faults_and_text_of_it():
    topology = generate(Description(xgft="3;4,4,3;1,4,4", rails=2, missing_cables=2)).topology
    link = LeafLink(0, 0, 1)
    document = {
        "topology": snapshot.snapshot_topology(topology, {3}, {link}),
        "allocations": [],
    }
    fabric = read_fabric(json.dumps(document))
    assert fabric.topology == topology
    assert fabric.failed_hosts == {3}
    assert fabric.failed_links == {link}
    assert len(fabric.inventory.cables) == 48 + 48 - 2
    assert fabric.inventory.endpoint_of_port.keys() == {
        (host, rail) for host in range(24) for rail in range(2)
    }


def test_snapshot_may_carry_its_inventory():
    made = generate(Description(xgft="2;2,2;1,2", shuffled=True))
    document = {
        "topology": snapshot.snapshot_topology(made.topology),
        "inventory": documents.inventory_document(made.inventory),
    }
    assert read_fabric(json.dumps(document)).inventory == made.inventory


def test_names_in_the_inventory_of_a_snapshot_are_checked():
    made = generate(Description(xgft="2;2,2;1,2"))
    document = {
        "topology": snapshot.snapshot_topology(made.topology),
        "inventory": documents.inventory_document(made.inventory),
    }
    document["inventory"]["switches"][0][1] = "\x1b[2Jleaf"
    assert read_fabric(json.dumps(document)).inventory.switches[0].name == r"\x1b[2Jleaf"
    document["inventory"]["host_names"][2] = "--property"
    with pytest.raises(InvalidInput, match="--property") as refused:
        read_fabric(json.dumps(document))
    assert refused.value.field == "inventory.host_names.2"


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("{", 1, "truncated, or no JSON"),
        ('{"topology":\n {"m": [1,1', 2, "truncated, or no JSON"),
        ("{}", 1, "a description an"),
        ("a,b,c\n1,2,3\n4,5,6\n", 1, "neither cables nor GUIDs"),
        ("# x\nSwitchName=s0 Nodes=n[1-4]\n", 2, "neither cables nor GUIDs"),
        ("hello\nworld\n", 1, "give the output of ibnetdiscover"),
        ('{"a":' * 100000, 1, "truncated, or no JSON"),
    ],
)
def test_what_is_no_fabric(text, line, why):
    with pytest.raises(InvalidFile, match=why) as refused:
        read_fabric(text + "\n")
    assert refused.value.line == line


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"xgft": "3;2,2"}, "xgft"),
        ({"xgft": 7}, "xgft"),
        ({"xgft": "2;2,2;1,2", "rail": 2}, "rail"),
        ({"xgft": "2;2,2;1,2", "rails": 0}, "rails"),
        ({"xgft": "2;2,3;1,2", "rails": 2}, "rails"),
        ({"xgft": "3;2,2,3;1,2,2", "rails": 2, "wiring": "plane"}, "rails"),
        ({"xgft": "2;2,2;1,2", "missing_hosts": 99}, "missing_hosts"),
        ({"xgft": "2;2,2;1,2", "missing_cables": 99}, "missing_cables"),
        ({"xgft": "2;2,2;1,3", "cables": [2, 1]}, "cables"),
        ({"m": [1000, 1000, 1000], "w": [1, 1, 1]}, "xgft"),
        ({"topology": {"m": [2, 2, 1], "w": [1, 2, 0], "rails": 2}}, "topology.host_ports"),
        ({"m": [2, 2, 1], "w": [1, 2, 0], "rails": 0}, "topology.rails"),
        ({"topology": []}, "topology"),
    ],
)
def test_wrong_fields_are_named(document, field):
    with pytest.raises(InvalidInput) as refused:
        _ = read_fabric(json.dumps(document)).topology
    assert refused.value.field == field


@pytest.mark.parametrize("path", ["/nonexistent/file", "/", "nul\0byte"])
def test_file_that_cannot_be_read(path):
    with pytest.raises(InvalidInput, match="can be read"):
        read_fabric(Path(path))


@needs_shared
@pytest.mark.parametrize(
    "name",
    ["iitk-hpc2010.topology.conf", "circe.topology.conf", "tara.topology.conf",
     "alibaba-lingjun-2023-topo.csv"],
)  # fmt: skip
def test_real_files_without_cables(name):
    with pytest.raises(InvalidFile, match="neither cables nor GUIDs"):
        read_fabric(SHARED / "fabrics" / name)


def test_hosts_are_withheld_beside_a_manager_only_where_rails_are_apart():
    def withheld(**changes):
        return read_fabric(EIGHT_RAILS.model_copy(update=changes).model_dump_json()).withheld_hosts

    assert withheld() == {0, 1, 2, 3}
    assert withheld(subnet_managers=0) == set()
    assert withheld(rails=3, wiring="pod") == set()
