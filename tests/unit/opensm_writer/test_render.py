# SPDX-License-Identifier: Apache-2.0

"""Rendered files equal the golden ones byte for byte and parse back to their values.

python -m tests.unit.opensm_writer.test_render    writes tests/golden again
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.adapters.fabric_import import generator
from laas_service.adapters.fabric_import.fabric_file import parse_fabric
from laas_service.domain.errors import InvalidFile, InvalidInput, LimitExceeded, NotFound
from laas_service.domain.topology import Topology, Xgft
from laas_service.messages import FabricState, TenantRoute
from opensm_writer import parse, publish, render
from opensm_writer.desired import PortGroup, SubnetConfiguration, subnet_configuration
from opensm_writer.local import LocalSubnetManager
from opensm_writer.render import Settings
from tests.cablings import NO_TREES
from tests.partitions import partitions, tenant
from tests.unit.opensm_writer.states import GOLDEN, SETTINGS, TINY, WIDE, state

TREE = Xgft((3, 3, 3), (1, 3, 3))
SMALL = Topology(TREE)


def text(configuration: SubnetConfiguration, name: str, settings: Settings = SETTINGS) -> str:
    return "".join(render.set_files(configuration, settings)[name])


def test_whatever_an_import_accepts_is_published(tmp_path):
    torus = parse_fabric(NO_TREES["torus 4x4"].dump(), "dump", accept_no_fat_tree=True)
    assert torus.report is not None
    told = [odd.detail for odd in torus.report.irregularities if odd.kind == "pairs without a path"]
    assert told
    assert re.match(r"24 pair\(s\) of a host for tenants and a service, .* switch-4\[0x", told[0])
    manager = LocalSubnetManager(tmp_path)
    desired = FabricState("f", 1, torus.topology, torus.inventory, ())
    manager.rehearse(desired)
    manager.publish(desired)
    assert (tmp_path / "f" / "current" / "lfts").exists()


def write_golden() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    root = GOLDEN.parent / ".root"
    publish.publish_set(subnet_configuration(state()), SETTINGS, root)
    shutil.copytree(root / "tiny" / "current", GOLDEN)
    shutil.rmtree(root)


def test_the_files_equal_the_golden_files(tmp_path):
    publish.publish_set(subnet_configuration(state()), SETTINGS, tmp_path)
    current = tmp_path / "tiny" / "current"
    names = {p.relative_to(current) for p in current.rglob("*") if p.is_file()}
    assert names == {p.relative_to(GOLDEN) for p in GOLDEN.rglob("*") if p.is_file()}
    for name in names:
        assert (current / name).read_bytes() == (GOLDEN / name).read_bytes(), name


def test_port_guids_are_taken_from_tables_and_given_back():
    configuration = subnet_configuration(state())
    names = render.GuidNames(configuration.lids)
    bare, named = (render.Renderer(configuration, bare=bare) for bare in (True, False))
    for guid in configuration.tables.rows:
        with_guids, without = (each.table(guid).encode() for each in (named, bare))
        assert render.without_guids(with_guids) == without
        assert names.named(without) == with_guids


@given(
    partition=partitions(TREE),
    pkey=st.integers(1, 0x7FFE),
    multicast=st.booleans(),
    services=st.lists(st.integers(1, 2**64 - 1), unique=True, max_size=3),
    bare=st.booleans(),
)
def test_rendered_files_parse_back_to_their_values(partition, pkey, multicast, services, bare):
    inventory = generator.inventory(SMALL, generator.Description(xgft="3;3,3,3;1,3,3"))
    given_state = FabricState("f", 1, SMALL, inventory, (TenantRoute(partition, pkey),))
    configuration = subnet_configuration(given_state)
    settings = Settings("/srv/sm", multicast=multicast, services=tuple(services), bare=bare)
    lines = text(configuration, "lfts", settings).splitlines(keepends=True)
    tables = list(parse.switch_tables([line.encode() for line in lines], "lfts"))
    assert {t.guid: t.row for t in tables} == {
        guid: configuration.row_by_lid(guid) for guid in configuration.tables.rows
    }
    guid_of_lid = {lid: guid for guid, lid in inventory.lids.items()}
    for table in tables:
        assert table.bare == bare
        for lid, guid in table.guids.items():
            assert guid == (None if bare else guid_of_lid[lid])
            assert table.row[lid] == configuration.tables.port(table.guid, guid_of_lid[lid])
    assert parse.dumped_tables(lines) == {t.guid: t.row for t in tables}
    assert parse.guid2lid(text(configuration, "guid2lid", settings), "guid2lid") == inventory.lids
    read = parse.partitions(text(configuration, "partitions.conf", settings), "partitions.conf")
    assert read == parse.PartitionFile(tuple(sorted(services)), multicast, configuration.partitions)
    assert read.partitions[0].pkey == pkey
    assert len(read.partitions[0].members) == partition.size
    chains = configuration.chains
    assert chains is not None
    assert parse.port_groups(text(configuration, "port_groups.conf"), "") == chains.groups
    assert parse.topologies(text(configuration, "topologies.conf"), "") == chains.topologies
    assert parse.chain(text(configuration, "chains.conf"), "", SETTINGS.directory) == chains.steps


def test_equal_states_give_equal_bytes_and_port_255_is_never_written():
    first, again = subnet_configuration(state()), subnet_configuration(state())
    names = render.set_files(first, SETTINGS).keys()
    assert all(text(first, name) == text(again, name) for name in names)
    assert " 255 " not in text(first, "lfts")


def test_a_group_lists_both_ends_of_every_cable_and_the_host_ports():
    chains = subnet_configuration(state()).chains
    assert chains is not None
    inventory, links = TINY.inventory, list(WIDE.links(TINY.topology))
    ends = [e for x in links for c in [inventory.cable_of_link[x]] for e in (c.lower, c.upper)]
    ends += [inventory.endpoint_of_port[host, 0].at for host in WIDE.hosts(TINY.topology)]
    group = next(g for g in chains.groups if g.name == "laas-wide_0-sw")
    assert {(guid, port) for guid, ports in group.ports for port in ports} == set(ends)


def test_rules_stay_below_250_bytes_and_are_complete():
    switches = PortGroup("laas-x-sw", tuple((guid, tuple(range(1, 201))) for guid in (1, 2)))
    adapters = PortGroup("laas-x-hca", tuple((guid, ()) for guid in range(1, 100)))
    rendered = render.port_group(switches) + render.port_group(adapters)
    assert max(map(len, rendered.splitlines())) < 250
    assert parse.port_groups(rendered, "port_groups.conf") == (switches, adapters)


@pytest.mark.parametrize("count", [1, 12, 13, 30, 100])
def test_groups_of_one_rule_each_are_joined_to_the_same_group(count):
    groups = tuple(
        PortGroup(f"laas-{name}-hca", tuple((guid, ()) for guid in range(1, count + 1)))
        for name in "ab"
    )
    rendered = "".join(render.port_group(group, one_rule=True) for group in groups)
    assert rendered.count("-rule: ") + rendered.count("-guid: ") == rendered.count("name: ")
    assert max(map(len, rendered.splitlines())) < 250
    assert parse.port_groups(rendered, "port_groups.conf") == groups


def test_old_releases_get_one_rule_per_group(tmp_path):
    chosen = replace(SETTINGS, one_rule_per_group=True)
    everybody = tenant("all", [(group, 0b111, 0b111) for group in range(4)])
    publish.publish_set(subnet_configuration(state([everybody])), chosen, tmp_path)
    groups = (tmp_path / "tiny/current/port_groups.conf").read_text()
    assert groups.count("name: ") == groups.count("-guid: ") + groups.count("union-rule: ") > 2


def test_partition_lines_stay_short_however_many_hosts():
    made = generator.generate(generator.Description(xgft="2;18,18;1,18", subnet_managers=1))
    everybody = tenant("all", [(group, (1 << 18) - 1, (1 << 18) - 1) for group in range(18)])
    big = FabricState("f", 1, made.topology, made.inventory, (TenantRoute(everybody, 1),))
    rendered = text(subnet_configuration(big), "partitions.conf")
    assert max(map(len, rendered.splitlines())) < 100
    assert len(parse.partitions(rendered, "").partitions[0].members) == 324


def test_more_tenants_than_chains_hold(tmp_path):
    made = generator.generate(generator.Description(xgft="2;50,4;1,50", subnet_managers=1))
    pairs = [tenant(f"t{n:02d}", [(0, 1 << n, 1 << n), (1, 1 << n, 1 << n)]) for n in range(50)] + [
        tenant(f"u{n:02d}", [(2, 1 << n, 0)]) for n in range(50)
    ]  # one leaf: no topology

    def crowded(count: int) -> FabricState:
        chosen = pairs[50 - count :]
        routes = tuple(TenantRoute(t, n) for n, t in enumerate(chosen, 1))
        return FabricState("f", 1, made.topology, made.inventory, routes)

    assert subnet_configuration(crowded(49)).chains is not None
    configuration = subnet_configuration(crowded(50))
    manifest = publish.publish_set(configuration, SETTINGS, tmp_path).manifest
    assert "omitted: routing chains hold 49 tenants with links, there are 50" in manifest.chains
    assert "lfts" in manifest.files
    assert "chains.conf" not in manifest.files
    comment = "# No routing chains: manifest.json says why\n"
    assert comment in (tmp_path / "f/current/opensm.conf").read_text()
    chains_only = replace(SETTINGS, enforcement="chains")
    with pytest.raises(LimitExceeded, match="49 tenants"):
        publish.publish_set(configuration, chains_only, tmp_path)


def test_the_configuration_switches_one_enforcement_on():
    configuration = subnet_configuration(state())
    for_tables = text(configuration, "opensm.conf").splitlines()
    assert "routing_engine file,no_fallback" in for_tables
    assert "disable_multicast TRUE" in for_tables
    assert f"# rch_policy_file {SETTINGS.directory}/chains.conf" in for_tables
    for_chains = text(
        configuration, "opensm.conf", replace(SETTINGS, enforcement="chains")
    ).splitlines()
    assert f"rch_policy_file {SETTINGS.directory}/chains.conf" in for_chains
    assert not [line for line in for_chains if line.startswith(("routing_engine", "lfts_file"))]


def test_multicast_left_on_gives_capped_groups():
    settings = replace(SETTINGS, multicast=True)
    configuration = subnet_configuration(state())
    assert "disable_multicast FALSE\n" in text(configuration, "opensm.conf", settings)
    assert (
        text(configuration, "partitions.conf", settings).count(
            ", indx0, ipoib, rate=2, defmember=full"
        )
        == 3
    )


def test_the_index_names_every_switch_and_host():
    index = json.loads(text(subnet_configuration(state()), "guid_index.json"))
    assert set(index["hosts"]) == {str(host) for host in range(12)}
    assert index["leaf:1:0"]["guid"] == f"{TINY.inventory.leaf_guids[2]:#018x}"
    assert index["l2:0:2"]["lid"] == TINY.inventory.lids[TINY.inventory.l2_guids[2]]
    assert len(index) == 1 + 4 + 6 + 6


@pytest.mark.parametrize("directory", ["relative/path", "/with blank", "/with:colon", "/with#hash"])
def test_directories_that_opensm_would_misread_are_refused(directory):
    with pytest.raises(InvalidInput, match="absolute path"):
        Settings(directory)


@pytest.mark.parametrize("id", ["../../etc/passwd", "a/b", ".hidden", "a b", "a:b", "", "x" * 101])
def test_ids_that_are_not_file_names_are_refused(id):
    bad = tenant(id, [(1, 0b110, 0)])
    with pytest.raises(InvalidInput, match="allocation"):
        subnet_configuration(state([bad]))


def test_wrong_partition_keys_are_refused():
    good = state()
    for pkeys, fix in (((0, 1, 2), "0x0001..0x7ffe"), ((5, 5, 6), "a.pod has it")):
        tenants = tuple(replace(t, pkey=k) for t, k in zip(good.tenants, pkeys, strict=True))
        with pytest.raises(InvalidInput, match=fix):
            subnet_configuration(replace(good, tenants=tenants))


def test_lids_that_would_break_opensm_are_refused():
    good = state()
    inventory = good.inventory
    top = max(inventory.lids.values())
    manager = next(guid for guid, lid in inventory.lids.items() if lid == top)
    host = inventory.endpoint_of_port[0, 0].guid

    def with_lids(**changed: int) -> FabricState:
        new = {manager if name == "manager" else host: lid for name, lid in changed.items()}
        return replace(good, inventory=replace(inventory, lids=inventory.lids | new))

    for broken, fix in (
        (with_lids(manager=128), "multiple of 64"),
        (with_lids(host=top), "unique"),
        (with_lids(host=0), "unique and lie in"),
        (with_lids(manager=0xC001), "0xbfff"),
        (with_lids(host=top + 2), "topmost block"),
    ):
        with pytest.raises(InvalidInput, match=fix):
            subnet_configuration(broken)
    lids = {guid: lid for guid, lid in inventory.lids.items() if guid != host}
    with pytest.raises(NotFound, match=f"{host:#018x}"):
        subnet_configuration(replace(good, inventory=replace(inventory, lids=lids)))


DAMAGEABLE = [
    "lfts",
    "guid2lid",
    "cabling",
    "partitions.conf",
    "port_groups.conf",
    "topologies.conf",
    "chains.conf",
    "engines/wide_0.roots",
]


@given(name=st.sampled_from(DAMAGEABLE), data=st.data())
def test_any_damaged_file_is_refused(tmp_path_factory, name, data):
    """A line is lost or doubled, the end is cut off, or a digit changes."""
    configuration = subnet_configuration(state())
    directory: Path = tmp_path_factory.mktemp("set", numbered=True)
    for other, pieces in render.set_files(configuration, SETTINGS).items():
        (directory / other).parent.mkdir(exist_ok=True)
        (directory / other).write_text("".join(pieces))
    check(configuration, directory)
    good = (directory / name).read_text()
    lines = good.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    match data.draw(st.sampled_from(["lose", "double", "cut", "digit"])):
        case "lose":
            bad = "".join(lines[:at] + lines[at + 1 :])
        case "double":
            bad = "".join(lines[: at + 1] + lines[at:])
        case "cut":
            bad = good[: data.draw(st.integers(0, len(good) - 1))]
        case _:
            spots = [
                n
                for n, c in enumerate(good)
                if c.isdigit() and not good[: n + 1].rsplit("\n", 1)[-1].startswith("Unicast")
            ]
            spot = data.draw(st.sampled_from(spots))
            bad = good[:spot] + str((int(good[spot]) + 1) % 10) + good[spot + 1 :]
    (directory / name).write_text(bad)
    with pytest.raises(InvalidFile):
        check(configuration, directory)


def check(configuration, directory):
    publish.check(configuration, SETTINGS, directory)
    tables = parse.switch_tables(parse.file_pieces(directory / "lfts"), "lfts")
    publish.check_tables(configuration, tables)


if __name__ == "__main__":
    write_golden()
