# SPDX-License-Identifier: Apache-2.0

"""The simulator loads a fabric as a netlist; ``ibnetdiscover`` and recovery give it back."""

import dataclasses
import re

import pytest

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.fabric_file import read_fabric
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.fabric_import.netlist import netlist
from laas_service.adapters.fabric_import.recovery import Selection, recover
from laas_service.domain.errors import LimitExceeded
from tests.ibsim import Simulator
from tests.marks import needs_ibsim
from tests.shared import REPO, SHARED, needs_shared

pytestmark = needs_ibsim

SERVICES = Selection(exclude=("storage*",), managers=("sm*",))
REAL = ["dgx-ndr-2025", "lab4sw-2023", "lassen-edr-2019"]


def discovered(inventory, host=None):
    with Simulator(netlist(inventory), host) as simulator:
        return simulator.read("ibnetdiscover")


@pytest.mark.parametrize(
    "words",
    [
        {"xgft": "3;4,4,4;1,4,4", "odd_names": True, "aggregation_nodes": True},
        {"xgft": "3;4,8,2;1,8,8", "cables": (2, 2), "rails": 4, "missing_cables": 5, "seed": 1},
        {"xgft": "2;6,4;1,3", "shuffled": True, "seed": 2},
    ],
    ids=lambda words: words["xgft"],
)
def test_generated_fabric(words):
    fabric = generate(Description(**words))
    first = recover(ibnetdiscover.parse(ibnetdiscover.render(fabric.inventory)))
    result = recover(ibnetdiscover.parse(discovered(first.inventory)))
    assert result.topology == first.topology
    assert result.inventory == first.inventory
    if not words.get("shuffled"):
        assert result.topology == fabric.topology
        assert result.inventory == fabric.inventory


def test_example_fabric_with_all_its_services():
    fabric = read_fabric(REPO / "etc" / "laas" / "fabric-example.json")
    result = recover(ibnetdiscover.parse(discovered(fabric.inventory)), SERVICES)
    assert result.topology == fabric.topology
    assert result.inventory == fabric.inventory


@needs_shared
@pytest.mark.parametrize("name", REAL)
def test_real_fabric(name):
    fabric = read_fabric(SHARED / "fabrics" / f"{name}.ibnetdiscover.txt")
    result = recover(ibnetdiscover.parse(discovered(fabric.inventory)))
    assert result.topology == fabric.topology
    assert result.inventory == fabric.inventory


def test_adapter_next_to_another_guid_keeps_its_port_guid():
    """A node GUID is the port GUID minus the port number; if it is taken, a later port is used."""
    fabric = generate(Description(xgft="2;3,1;1,0"))
    first, *rest = fabric.inventory.endpoints
    switch = fabric.inventory.switches[0].guid
    inventory = dataclasses.replace(
        fabric.inventory, endpoints=(dataclasses.replace(first, guid=switch + 1), *rest), lids={}
    )
    result = recover(ibnetdiscover.parse(discovered(inventory, "node1 mlx5_0")))
    assert {e.guid for e in result.inventory.endpoints} == {e.guid for e in inventory.endpoints}


def test_opensm_keeps_the_pinned_lids():
    inventory = read_fabric(REPO / "etc" / "laas" / "fabric-example.json").inventory
    with Simulator(netlist(inventory)) as simulator:
        simulator.run("opensm", "-o", "-F", "/dev/null", "-f", "osm.log", "-e")
        text = simulator.read("ibnetdiscover")
    lids = {
        int(guid, 16): int(lid)
        for guid, lid in re.findall(r"^\[1\]\((\w+)\).*?# lid (\d+) lmc", text, re.MULTILINE)
    }
    lids |= {
        int(guid, 16): int(lid)
        for guid, lid in re.findall(r'^Switch.*?"S-(\w+)".* port 0 lid (\d+)', text, re.MULTILINE)
    }
    assert lids == inventory.lids


def test_switch_wider_than_infiniband_is_refused():
    with pytest.raises(LimitExceeded, match="at most 254"):
        netlist(read_fabric("2;300,2;1,1").inventory)
