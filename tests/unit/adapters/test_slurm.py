# SPDX-License-Identifier: Apache-2.0

"""Host lists and ``topology.conf``, parsed by a simple reader of their grammar."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.adapters.fabric_import.fabric_file import read_fabric
from laas_service.adapters.slurm import host_list, topology_conf, usable

EXAMPLE = Path(__file__).parents[3] / "etc" / "laas" / "fabric-example.json"

NAMES = st.builds(
    "{}{}".format,
    st.sampled_from(["n", "node", "rack1-n", "a9b", "login.x"]),
    st.one_of(st.just(""), st.integers(0, 130), st.integers(0, 130).map("{:03d}".format)),
)


def expanded(expression: str) -> list[str]:
    """The names in a host list expression."""
    names = []
    for prefix, ranges in re.findall(r"([^,\[]+)(?:\[([^\]]+)\])?(?:,|$)", expression):
        if not ranges:
            names.append(prefix)
        for one in filter(None, ranges.split(",")):
            first, _, last = one.partition("-")
            for number in range(int(first), int(last or first) + 1):
                names.append(f"{prefix}{number:0{len(first)}d}")
    return names


@given(st.sets(NAMES, min_size=1, max_size=60))
def test_host_list_is_the_same_names_each_once(names):
    found = expanded(host_list(names))
    assert set(found) == names
    assert len(found) == len(names)


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        (["node000", "node001", "node002", "node004"], "node[000-002,004]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n099", "n100"], "n[099-100]"),
        (["n09", "n9", "n10"], "n[9,09-10]"),
        (["b", "a7"], "a7,b"),
        ([], ""),
    ],
)
def test_host_list_is_short(names, expression):
    assert host_list(names) == expression


def switches(text: str) -> dict[str, set[str]]:
    """Name of each switch -> names of the switches or hosts below it."""
    found = re.findall(r"^SwitchName=(\S+) (?:Nodes|Switches)=(\S+)$", text, re.MULTILINE)
    return {name: set(expanded(below)) for name, below in found}


@pytest.mark.parametrize("source", ["3;4,4,8;1,4,4", "2;4,4;1,4", EXAMPLE])
def test_every_host_is_below_one_leaf_and_every_switch_below_one(source):
    fabric = read_fabric(source)
    found = switches(topology_conf(fabric.topology, fabric.inventory))
    names = {name for name in fabric.inventory.host_names if name}
    below = [name for names in found.values() for name in names]
    assert len(below) == len(set(below))
    assert names < set(below)
    assert len(found.keys() - set(below)) == 1  # only the top switch is below no other
    for switch, hosts in found.items():
        if switch.startswith("leaf-"):
            numbers = {fabric.inventory.host_numbers[host] for host in hosts}
            groups = {fabric.topology.place_of(number)[0] for number in numbers}
            pod, leaf = map(int, switch.split("-")[1:])
            assert groups == {pod * fabric.topology.groups_per_pod + leaf}


@pytest.mark.parametrize(
    "name", ["a b", "a;b", "a,b", "[1-2]", "-a", "a-", "", "ä", "a\n", "a#", "a=b"]
)
def test_names_that_slurm_would_trip_over(name):
    assert not usable(name)
