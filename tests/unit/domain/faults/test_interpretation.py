# SPDX-License-Identifier: Apache-2.0

"""What readings say of links, switches and hosts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from laas_service.adapters.memories import READING
from laas_service.domain.errors import InvalidInput
from laas_service.domain.faults.interpretation import (
    Cabling,
    Interpretation,
    UnreadSwitch,
    interpret,
)
from laas_service.domain.faults.reading import (
    EndReading,
    FabricReading,
    PortState,
    UnknownCable,
    UnknownSwitch,
)
from laas_service.domain.inventory import PortRef
from laas_service.domain.topology import LeafLink, SpineLink
from tests.unit.domain.faults.model import FaultyFabric

DOWN, OTHER, SILENT, UNREAD = (
    PortState.DOWN,
    PortState.OTHER,
    PortState.SILENT,
    PortState.UNREAD,
)
LINK = LeafLink(1, 0, 1)
SPINE_LINK = SpineLink(1, 1, 0)


def small() -> FaultyFabric:
    """16 hosts in 2 pods of 2 leaves and 2 L2 switches, 4 spines; the observer on leaf 0/0."""
    return FaultyFabric.of(xgft="3;4,2,2;1,2,2")


def seen(fabric: FaultyFabric, *ends: EndReading) -> Interpretation:
    """What a reading of the fabric says; ``ends`` are added to it."""
    reading = fabric.read(1.0)
    cabling = Cabling(fabric.generated.inventory)
    return interpret(cabling, replace(reading, ends=(*reading.ends, *ends)))


def leaf(fabric: FaultyFabric, number: int) -> int:
    return fabric.generated.inventory.leaf_guids[number]


def test_a_sound_fabric_tells_nothing():
    seen_now = seen(small())
    assert not seen_now.observer_problem
    assert not seen_now.down
    assert not seen_now.unsure
    assert not seen_now.switches
    assert not seen_now.news


@pytest.mark.parametrize("link", [LINK, SPINE_LINK])
def test_a_link_is_down_if_both_ends_say_so(link):
    fabric = small()
    fabric.cut.add(fabric.cable(link))
    assert seen(fabric).down == {link: "both ends are down"}


@pytest.mark.parametrize("end", ["lower", "upper"])
@pytest.mark.parametrize("state", [DOWN, SILENT, UNREAD])
def test_one_end_alone_proves_nothing(end, state):
    fabric = small()
    seen_now = seen(fabric, EndReading(getattr(fabric.cable(LINK), end), state))
    assert not seen_now.down
    assert set(seen_now.unsure) == {LINK}
    assert state in seen_now.unsure[LINK]
    assert not seen_now.switches


@pytest.mark.parametrize("level", ["leaf_guids", "l2_guids", "spine_guids"])
def test_the_links_of_a_dead_switch_are_down(level):
    fabric = small()
    dead = getattr(fabric.generated.inventory, level)[-1]
    fabric.dead.add(dead)
    seen_now = seen(fabric)
    links = {
        link
        for link, cable in fabric.generated.inventory.cable_of_link.items()
        if dead in (cable.lower.guid, cable.upper.guid)
    }
    assert seen_now.switches == {dead: UnreadSwitch.DEAD}
    assert seen_now.down.keys() == links
    assert seen_now.down_by_switch == dict.fromkeys(links, dead)
    assert all("is dead" in evidence for evidence in seen_now.down.values())
    assert not seen_now.absent_hosts
    assert len(seen_now.unread_hosts) == (4 if level == "leaf_guids" else 0)


def test_a_silent_switch_keeps_its_links():
    fabric = small()
    silent = fabric.generated.inventory.l2_guids[3]
    fabric.silent.add(silent)
    fabric.cut.add(fabric.cable(SpineLink(1, 1, 1)))  # one neighbour sees its port down
    seen_now = seen(fabric)
    assert seen_now.switches == {silent: UnreadSwitch.SILENT}
    assert not seen_now.down
    assert len(seen_now.unsure) == 4


def test_a_switch_without_a_neighbour_that_was_read_is_unread():
    """All uplinks of the observer's leaf are cut: beyond its L2 switches nobody tells."""
    fabric = small()
    fabric.cut |= {fabric.cable(LeafLink(0, 0, 0)), fabric.cable(LeafLink(0, 0, 1))}
    seen_now = seen(fabric)
    inventory = fabric.generated.inventory
    dead = {g for g, state in seen_now.switches.items() if state is UnreadSwitch.DEAD}
    assert dead == set(inventory.l2_guids[:2])
    assert len(seen_now.switches) == len(inventory.switches) - 1
    assert seen_now.down.keys() == {LeafLink(0, 0, 0), LeafLink(0, 0, 1)}


def test_a_link_between_two_dead_switches_is_unsure():
    fabric = small()
    fabric.dead |= {leaf(fabric, 3), fabric.generated.inventory.l2_guids[3]}
    seen_now = seen(fabric)
    assert LeafLink(1, 1, 1) in seen_now.unsure
    assert set(seen_now.switches.values()) == {UnreadSwitch.DEAD}


def test_the_ends_that_a_reading_names_are_enough_to_know_a_dead_leaf():
    """An observer may leave out ports towards channel adapters."""
    fabric = FaultyFabric.of(xgft="3;4,2,2;1,2,2", aggregation_nodes=True)
    fabric.dead.add(leaf(fabric, 3))
    reading, cabling = fabric.read(1.0), Cabling(fabric.generated.inventory)
    some = tuple(end for end in reading.ends if end.end in cabling.cable_at)
    assert interpret(cabling, replace(reading, ends=some)).switches == {
        leaf(fabric, 3): UnreadSwitch.DEAD
    }


def test_a_host_with_all_ports_down_is_absent():
    fabric = FaultyFabric.of(xgft="3;4,4,2;1,2,2", rails=2)
    first, second = fabric.generated.topology.ports_of(5), fabric.generated.inventory.endpoints
    assert len(first) == 2
    one_port = next(endpoint for endpoint in second if endpoint.host == 6)
    fabric.hosts_off.add(5)
    seen_now = seen(fabric, EndReading(one_port.at, DOWN))
    assert seen_now.absent_hosts == {5}
    assert [endpoint.host for endpoint in seen_now.absent_ports].count(5) == 2
    assert one_port in seen_now.absent_ports
    assert not seen_now.down


def test_an_observer_without_a_way_to_the_fabric_is_told():
    fabric = small()
    assert not seen(fabric).observer_problem
    fabric.observer_cut = True
    assert seen(fabric).reads_nothing
    assert seen(fabric).observer_problem
    way = fabric.generated.inventory.endpoints[0]
    for end in (way.at, PortRef(way.guid, 1)):
        for state in (DOWN, UNREAD):
            assert state in seen(small(), EndReading(end, state)).observer_problem
    nobody = replace(fabric.read(1.0), observer=None, switches_read=3)
    assert not interpret(Cabling(fabric.generated.inventory), nobody).observer_problem


def test_a_reading_that_leaves_links_out_is_not_believed():
    """The links that it does not list are not up."""
    fabric = small()
    fabric.cut.add(fabric.cable(LINK))
    cabling, whole = Cabling(fabric.generated.inventory), fabric.read(1.0)
    cut = interpret(cabling, replace(whole, ends_left_out=7))
    assert cut.reads_nothing
    assert "leaves out 7 ends" in cut.observer_problem
    port = next(e.at for e in fabric.generated.inventory.endpoints[1:])
    hosts_left_out = replace(whole, ends=(*whole.ends, EndReading(port, DOWN)), ends_left_out=7)
    assert not interpret(cabling, hosts_left_out).reads_nothing
    assert interpret(cabling, hosts_left_out).down == {LINK: "both ends are down"}


def test_moved_cables_are_news_and_their_links_are_down():
    """Two cables between working switches are exchanged at one side."""
    fabric = small()
    links = LeafLink(1, 0, 0), LeafLink(1, 0, 1)
    fabric.exchange(*links)
    seen_now = seen(fabric)
    assert seen_now.down.keys() == seen_now.moved == set(links)
    assert not seen_now.unsure
    assert seen_now.down[links[0]] == (
        "leaf-1-0 port 5 is linked to l2-1-1 port 1 and l2-1-0 port 1 is linked to leaf-1-0 port 6"
    )
    assert (
        seen_now.news[0] == "leaf-1-0 port 5 is linked to l2-1-1 port 1; recorded is l2-1-0 port 1"
    )


def test_a_cable_that_one_end_has_lost_to_another_is_down():
    fabric = small()
    cable, spare = fabric.cable(LINK), PortRef(fabric.cable(LINK).upper.guid, 20)
    seen_now = seen(
        fabric,
        EndReading(cable.lower, OTHER, spare),
        EndReading(cable.upper, DOWN),
    )
    assert seen_now.down == {
        LINK: "leaf-1-0 port 6 is linked to l2-1-1 port 20",
    }
    assert seen_now.moved == {LINK}
    assert len(seen_now.news) == 1


@pytest.mark.parametrize("other", [PortState.UP, *(DOWN, SILENT, UNREAD)])
def test_one_end_that_is_linked_elsewhere_is_enough(other):
    fabric = small()
    cable = fabric.cable(LINK)
    ends = [EndReading(cable.lower, OTHER, PortRef(cable.upper.guid, 20))]
    ends += [EndReading(cable.upper, other)] if other is not PortState.UP else []
    assert seen(fabric, *ends).moved == {LINK}


def test_a_port_that_is_linked_elsewhere_does_not_lead_to_a_dead_switch():
    fabric = small()
    dead = fabric.generated.inventory.spine_guids[0]
    fabric.dead.add(dead)
    reading, cabling = fabric.read(1.0), Cabling(fabric.generated.inventory)
    moved = next(end for end in reading.ends if end.state is DOWN)
    ends = [end for end in reading.ends if end != moved]
    ends.append(EndReading(moved.end, OTHER, PortRef(moved.end.guid, 20)))
    assert interpret(cabling, replace(reading, ends=tuple(ends))).switches == {
        dead: UnreadSwitch.DEAD
    }


def test_hosts_with_another_adapter_at_their_port_are_named():
    fabric = small()
    first, second = fabric.generated.inventory.endpoints[4:6]
    seen_now = seen(fabric, EndReading(first.at, OTHER, PortRef(second.guid, 1)))
    assert seen_now.moved_hosts == {4: f"leaf-0-1 port 1 is linked to {second.name} port 1"}


def test_news():
    fabric = small()
    inventory = fabric.generated.inventory
    first, second = inventory.endpoints[4], inventory.endpoints[5]
    reading = replace(
        fabric.read(1.0),
        ends=(
            EndReading(first.at, OTHER, PortRef(second.guid, 1)),
            EndReading(second.at, OTHER, PortRef(0x99, 1)),
            EndReading(PortRef(first.guid, 1), OTHER, PortRef(leaf(fabric, 0), 30)),
            EndReading(PortRef(0x77, 7), DOWN),
        ),
        unknown_switches=(UnknownSwitch(0x1234, "new"),),
        unknown_cables=(UnknownCable(PortRef(leaf(fabric, 0), 30), PortRef(0x1234, 1)),),
    )
    seen_now = interpret(Cabling(inventory), reading)
    assert seen_now.news == (
        "switch 0x0000000000001234 'new' is not recorded",
        "the cable from leaf-0-0 port 30 to 0x0000000000001234 port 1 is not recorded",
        f"{second.name} is connected to leaf-0-1 port 1; recorded is leaf-0-1 port 2",
        f"leaf-0-1 port 2 is linked to 0x0000000000000099 port 1; recorded is {second.name}",
        f"{first.name} port 1 is linked to leaf-0-0 port 30; recorded is leaf-0-1 port 1",
        "the observer reports ports without a recorded cable: 0x0000000000000077 port 7",
    )
    assert not seen_now.down
    assert not seen_now.unsure
    assert not seen_now.absent_hosts


@pytest.mark.parametrize(
    "values",
    [
        {"xgft": "3;4,4,2;1,2,2", "rails": 2, "wiring": "pod"},
        {"xgft": "3;4,2,4;1,2,2", "rails": 2, "wiring": "plane"},
        {"xgft": "3;4,4,2;1,4,4", "cables": (2, 2), "extra_cables": 3},
        {"xgft": "3;4,2,2;1,2,2", "missing_cables": 2, "storage_hosts": 3},
        {"xgft": "3;4,2,2;1,2,2", "shuffled": True, "odd_names": True},
        {"xgft": "2;4,4;1,2", "aggregation_nodes": True, "subnet_managers": 2},
    ],
    ids=lambda values: str(values),
)
def test_every_kind_of_fabric(values):
    """Each switch but the observer's dies, each cable is cut: its own links are down."""
    fabric = FaultyFabric.of(**values)
    inventory = fabric.generated.inventory
    start = inventory.endpoints[0].at.guid
    for switch in inventory.switches:
        if switch.guid != start:
            fabric.dead = {switch.guid}
            seen_now = seen(fabric)
            assert seen_now.switches[switch.guid] is UnreadSwitch.DEAD
            broken = {link for link in inventory.cable_of_link if not fabric.works(link)}
            if len(seen_now.switches) == 1:
                assert seen_now.down.keys() == broken
    fabric.dead = set()
    for cable in inventory.cables:
        fabric.cut = {cable}
        seen_now = seen(fabric)
        if not seen_now.switches:
            assert seen_now.down.keys() == ({cable.link} if cable.link else set())


def test_readings_have_documents():
    fabric = small()
    fabric.dead.add(leaf(fabric, 2))
    reading = replace(
        fabric.read(7.5),
        unknown_switches=(UnknownSwitch(5, "x"),),
        unknown_cables=(UnknownCable(PortRef(1, 2), PortRef(3, 4)),),
    )
    moved = EndReading(PortRef(8, 9), OTHER, PortRef(10, 11))
    reading = replace(reading, ends=(*reading.ends, moved))
    assert READING.read(json.loads(json.dumps(READING.write(reading)))) == reading
    assert READING.read(READING.write(FabricReading(1.0))) == FabricReading(1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"ends": [[1, 2, "broken"]]},
        {"ends": [[1]]},
        {"ends": 3},
        {"at": "soon"},
        {"observer": [1]},
        {"unknown_cables": [[1, 2, 3]]},
    ],
)
def test_other_documents_are_refused(change):
    document = READING.write(FabricReading(1.0)) | change
    with pytest.raises(InvalidInput, match="reading"):
        READING.read(document)
