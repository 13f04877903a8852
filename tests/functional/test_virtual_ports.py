# SPDX-License-Identifier: Apache-2.0

"""Virtual ports: recorded from a file, a rule and a snapshot, listed in partitions, verified."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from laas_service.domain.errors import Conflict, InvalidFile, InvalidInput
from opensm_writer import functions, parse, publish, render, validate
from opensm_writer.desired import subnet_configuration
from tests.functional.test_manage import Tool, elsewhere, tenants
from tests.functional.test_opensm_keys import (
    ALICE,
    BOB,
    KEY_OF_ALICE,
    LIMITED,
    hosts_of,
    node_of,
    raw_keys,
    small_site,
)
from tests.marks import needs_ibsim
from tests.offers import Offer
from tests.unit.opensm_writer.states import state

DESCRIPTION = '{"xgft": "3;4,4,2;1,4,4", "rails": 2}'


@pytest.fixture
def fabric(tmp_path, capsys):
    """``laas-manage`` on a fabric of two rails, with two tenants."""
    tool = Tool(tmp_path, capsys)
    tool("db", "upgrade")
    source = tmp_path / "fabric.json"
    source.write_text(DESCRIPTION)
    tool("fabric", "import", source)
    tenants(tool.store(), "fabric", 5, 3)
    return tool


def ports_of(store, name):
    inventory = store.fabrics.get("fabric").inventory
    number = inventory.host_numbers[name]
    return [inventory.endpoint_of_port[number, rail].guid for rail in (0, 1)]


def published(fabric, **settings):
    """The partition file that the service publishes for the recorded state."""
    routed = fabric.store().fabrics.routed("fabric")
    chosen = render.Settings(str(fabric.path / "sets" / "fabric" / "current"), **settings)
    made = publish.publish_set(subnet_configuration(routed), chosen, fabric.path / "sets")
    return made.directory / "partitions.conf"


def test_a_rule_a_file_and_a_snapshot_give_the_same(fabric, tmp_path):
    store = fabric.store()
    before = store.fabrics.get("fabric").routes_generation
    said = fabric("host", "virtual-ports", "node0[01]", "--rule", "0x100000000:3")
    assert said == "fabric: 12 virtual ports of 4 ports recorded\n"
    recorded = store.components.virtual_ports("fabric")
    assert len(recorded) == 4
    for port in ports_of(store, "node00"):
        assert recorded[port] == tuple(port + 0x100000000 * number for number in (1, 2, 3))
    assert store.fabrics.get("fabric").routes_generation == before + 1  # the subnet manager is told
    fabric("host", "virtual-ports", "node0[01]", "--rule", "0x100000000:3")
    assert store.fabrics.get("fabric").routes_generation == before + 1
    snapshot = tmp_path / "snapshot.json"
    fabric("fabric", "export", "fabric", "--output", snapshot)
    listed = tmp_path / "ports"
    lines = [" ".join(map(hex, (port, *guids))) for port, guids in recorded.items()]
    listed.write_text("# port, virtual ports\n\n" + "\n".join(lines) + "  # the last\n")
    fabric("host", "virtual-ports", "*", "--none")
    assert store.components.virtual_ports("fabric") == {}
    fabric("host", "virtual-ports", "--file", listed)
    assert store.components.virtual_ports("fabric") == recorded
    snapshot.write_text(elsewhere(snapshot.read_text()))
    fabric("fabric", "import", snapshot, "--id", "copy")
    assert len(store.components.virtual_ports("copy")) == len(recorded)


def test_a_guid_names_one_port(fabric, tmp_path):
    store = fabric.store()
    first, second = ports_of(store, "node00")
    store.components.set_virtual_ports("fabric", {first: [0x1B]})
    for ports, error, words in (
        ({second: [0x1B]}, Conflict, "0x000000000000001b belongs to port"),
        ({first: [0x2B], second: [0x2B]}, Conflict, "0x000000000000002b belongs to port"),
        ({second: [first]}, InvalidInput, "GUID of a port"),
        ({second: [0]}, InvalidInput, "virtual_guids"),
        ({second: [0x3B, 0x3B]}, InvalidInput, "each GUID once"),
    ):
        with pytest.raises(error, match=words):
            store.components.set_virtual_ports("fabric", ports)
    store.components.set_virtual_ports("fabric", {first: [], second: [0x1B]})  # it moves
    assert store.components.virtual_ports("fabric") == {second: (0x1B,)}
    listed = tmp_path / "ports"
    for text, words in (
        ("0x1 x", "a line has GUIDs"),
        ("0x1 0x2\n0x1 0x3", "has a line already"),
        ("0x1 0x2", "port of a host"),
    ):
        listed.write_text(text)
        assert words in fabric("host", "virtual-ports", "--file", listed, rc=1)
    assert store.components.virtual_ports("fabric") == {second: (0x1B,)}


NO_GUIDS = {
    "0x0000000000000000": "not set",
    "0xffffffffffffffff": "not set",
    "0x000000fffe000000": "not set",
    "0x020000fffe000000": "not set",
    "0xff12401bffff0000": "multicast",
    "0xff00000000000001": "multicast",
    "0xfe80000000000000": "prefix of a subnet",
}
"""Numbers that are no port's GUID, and a word of the reason."""


@pytest.mark.parametrize("guid", NO_GUIDS)
def test_what_is_no_guid_is_no_virtual_port(fabric, tmp_path, guid):
    store = fabric.store()
    first, second = ports_of(store, "node00")
    store.components.set_virtual_ports("fabric", {first: [0x1B]})
    listed, snapshot = tmp_path / "ports", tmp_path / "snapshot.json"
    listed.write_text(f"{second:#018x} {guid}\n")
    said = fabric("host", "virtual-ports", "--file", listed, rc=1)
    assert guid in said
    assert NO_GUIDS[guid] in said
    fabric("fabric", "export", "fabric", "--output", snapshot)
    snapshot.write_text(snapshot.read_text().replace("0x000000000000001b", guid))
    said = fabric("fabric", "import", snapshot, "--id", "copy", rc=1)
    assert f"virtual_guids: '{guid}'" in said
    assert NO_GUIDS[guid] in said
    assert store.fabrics.ids() == ["fabric"]
    assert store.components.virtual_ports("fabric") == {first: (0x1B,)}


def test_partitions_list_virtual_ports_only_where_the_option_says_so(fabric, tmp_path):
    fabric("host", "virtual-ports", "*", "--rule", "0x100000000:2")
    with (tmp_path / "laas.conf").open("a") as config:
        config.write("[opensm]\nvirtual_ports = true\n")
    plain, listed = published(fabric).read_text(), published(fabric, virtual_ports=True)
    partition = parse.partitions(listed.read_text(), "x").partitions
    assert sum(len(p.members) for p in partition) == 3 * 2 * (5 + 3)
    assert sum(len(p.members) for p in parse.partitions(plain, "x").partitions) == 2 * (5 + 3)
    fabric("fabric", "verify", "--partitions", listed)
    copy = tmp_path / "partitions.conf"
    copy.write_text(plain)
    said = fabric("fabric", "verify", "--partitions", copy, rc=1)
    assert said.count(" lacks port ") == 2 * 2 * (5 + 3)
    (own, first), (other, second) = ((p.pkey, p.members[1]) for p in (partition[0], partition[-1]))
    assert own != other
    text = listed.read_text()
    for wrong, words in (
        (text.replace(f"  {first:#018x},\n", ""), f"{own:#06x} lacks port {first:#018x}"),
        (
            text.replace(f"  {first:#018x},\n", f"  {first:#018x},\n  {second:#018x},\n"),
            f"{own:#06x} lists port {second:#018x} of others",
        ),
    ):
        copy.write_text(wrong)
        assert words in fabric("fabric", "verify", "--partitions", copy, rc=1)


def test_an_agent_takes_a_set_with_virtual_ports_each_in_one_partition(tmp_path):
    routed = state()
    ports = [e.guid for e in routed.inventory.endpoints if e.host is not None]
    routed = replace(routed, virtual_guids={port: (port + (1 << 32),) for port in ports})
    home = tmp_path / "here"
    offer = Offer(routed, tmp_path / "there", home, virtual_ports=True)
    text = offer.files["partitions.conf"].decode()
    assert text.count("0x") > 2 * len(parse.partitions(text, "x").partitions[0].members)

    def check():
        directory = tmp_path / "fetched"
        for name, data in offer.files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(data)
        validate.check(directory, validate.manifest(offer.manifest, "tiny"), home / "current")

    check()
    first, second = parse.partitions(text, "x").partitions[:2]
    members = tuple(sorted({*second.members, first.members[-1]}))
    both = (first, replace(second, members=members), *parse.partitions(text, "x").partitions[2:])
    settings = render.Settings("/x", services=parse.partitions(text, "x").services)
    offer.rewrite("partitions.conf", "".join(render.partitions(both, settings)).encode())
    with pytest.raises(InvalidFile, match="a GUID is in two partitions"):
        check()


def shown(guid, *keys):
    """What ``grep`` shows of one function of a host."""
    gid = ":".join(f"{0xFE80 << 112 | guid:032x}"[at : at + 4] for at in range(0, 32, 4))
    port = f"node: /sys/class/infiniband/mlx5_{guid:x}/ports/1"
    lines = [f"{port}/pkeys/{index}:{key:#06x}" for index, key in enumerate(keys)]
    return "\n".join([f"{port}/gids/0:{gid}", *lines]) + "\n"


def test_verify_says_of_how_many_virtual_ports_it_has_read_the_keys(fabric, tmp_path):
    (first, *others) = fabric.store().fabrics.routed("fabric").tenants
    inventory = fabric.store().fabrics.get("fabric").inventory
    host = first.allocation.hosts(fabric.store().fabrics.get("fabric").topology)[0]
    port, own = inventory.endpoint_of_port[host, 1].guid, 0x8000 | first.key(1)
    assert "virtual ports" not in fabric("fabric", "verify")
    fabric("host", "virtual-ports", "*", "--rule", "0x100000000:2")
    recorded = sum(map(len, fabric.store().components.virtual_ports("fabric").values()))
    told = f"of {recorded} recorded virtual ports the own keys of"
    assert f"{told} none were read" in fabric("fabric", "verify")
    path = tmp_path / "functions"
    words = ("fabric", "verify", "--functions", path)
    one, other = (port + (number << 32) for number in (1, 2))
    path.write_text(shown(port, own, LIMITED) + shown(one, own, LIMITED) + shown(other, own))
    assert f"{told} 2 were read" in fabric(*words)
    (verdict,) = json.loads(fabric(*words, "--json"))["fabrics"]
    assert verdict["virtual_ports"] == {"recorded": recorded, "read": 2}
    foreign = 0x8000 | others[0].key(1)
    for wrong, words_told in (
        ((LIMITED, own), f"{other:#018x} of "),
        ((own, foreign), f"has key {foreign:#06x}, which is not its own"),
        ((own, 0xFFFF), "has key 0xffff, which is not its own"),
    ):
        path.write_text(shown(one, own, LIMITED) + shown(other, *wrong))
        assert words_told in fabric(*words, rc=1)
    path.write_text(shown(1, LIMITED, own))
    assert "0x0000000000000001, which is not recorded" in fabric(*words, rc=1)
    path.write_text("nothing of the kind\n")
    assert "is no line of 'grep -H" in fabric(*words, rc=2)
    path.unlink()
    assert "can be read" in fabric(*words, rc=2)
    source = tmp_path / "second.json"
    fabric("fabric", "export", "--output", source)
    source.write_text(elsewhere(source.read_text()))
    fabric("fabric", "import", source, "--id", "second")
    assert "name the fabric that --functions is of" in fabric(*words, rc=2)


@needs_ibsim
def test_a_host_sees_the_keys_that_the_real_opensm_wrote():
    """``libumad2sim`` shows them as Linux does, in ``/sys/class/infiniband``."""
    with small_site() as here:
        here.boot([ALICE, BOB])
        end = hosts_of(here, ALICE)[0]
        port = "/sys/class/infiniband/ibsim0/ports/1"
        script = 'for file; do printf "%s:" "$file"; cat "$file"; done'
        files = (f"{port}/{name}" for name in ("gids/0", "pkeys/0", "pkeys/1", "pkeys/2"))
        printed = here.sim.read("sh", "-c", script, "sh", *files, host=node_of(here, end))
        assert functions.tables_of(printed.splitlines(), "x") == {
            end.guid: (KEY_OF_ALICE, LIMITED, 0)
        }


@needs_ibsim
def test_the_real_opensm_reads_partitions_with_virtual_ports():
    with small_site() as here:
        here.boot([ALICE, BOB])
        ports = [end.guid for end in hosts_of(here, ALICE)]
        virtual = {port: tuple(port + (number << 32) for number in range(1, 9)) for port in ports}
        here.manager._settings = replace(here.manager._settings, virtual_ports=True)
        here.manager.publish(replace(here.state([ALICE, BOB]), virtual_guids=virtual))
        here.confirm()  # with the keys of all ports
        text = (here.current / "partitions.conf").read_text()
        assert all(f"{guid:#018x}" in text for guids in virtual.values() for guid in guids)
        for end in hosts_of(here, ALICE):
            keys = raw_keys(here, here.inventory.lids[end.guid])
            assert [key for key in keys if key] == [KEY_OF_ALICE, LIMITED]
        assert "PARSE" not in (here.sim.directory / "osm.log").read_text()
