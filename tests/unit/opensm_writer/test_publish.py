# SPDX-License-Identifier: Apache-2.0

"""Published sets are complete, one is current, and unchanged tenants are not disturbed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from laas_service.domain.errors import Conflict, InvalidFile
from opensm_writer import fileset, publish, render
from opensm_writer.desired import SubnetConfiguration, subnet_configuration
from tests.unit.opensm_writer.states import ONE, POD, SETTINGS, WIDE, state


def published(root, configuration, **settings):
    return publish.publish_set(configuration, replace(SETTINGS, **settings), root)


def test_current_is_the_newest_and_old_sets_are_pruned(tmp_path):
    for generation in range(1, 8):
        published(tmp_path, subnet_configuration(state(generation=generation)))
    current = fileset.current(tmp_path, "tiny")
    assert current is not None
    assert current.generation == 7
    home = tmp_path / "tiny"
    assert (home / "current").readlink().name == "gen-7"
    assert {p.name for p in home.glob("gen-*")} == {"gen-4", "gen-5", "gen-6", "gen-7"}
    assert fileset.damaged(home / "current", current) == []


def test_publishing_an_equal_set_changes_nothing(tmp_path):
    published(tmp_path, subnet_configuration(state()))
    before = (tmp_path / "tiny" / "current").resolve()
    published(tmp_path, subnet_configuration(state()))
    assert (tmp_path / "tiny" / "current").resolve() == before
    assert [p.name for p in (tmp_path / "tiny").glob("gen-*")] == ["gen-7"]


def test_other_settings_or_damage_make_a_new_set_of_the_same_generation(tmp_path):
    published(tmp_path, subnet_configuration(state()))
    published(tmp_path, subnet_configuration(state()), multicast=True)
    current = tmp_path / "tiny" / "current"
    assert "disable_multicast FALSE" in (current / "opensm.conf").read_text()
    (current / "partitions.conf").unlink()
    manifest = fileset.read_manifest(current)
    assert fileset.damaged(current, manifest) == ["partitions.conf"]
    published(tmp_path, subnet_configuration(state()), multicast=True)
    assert fileset.damaged(current, manifest) == []
    (current / "manifest.json").write_text("{")
    published(tmp_path, subnet_configuration(state()), multicast=True)
    assert fileset.read_manifest(current) == manifest


def test_an_older_generation_does_not_replace_a_newer_one(tmp_path):
    published(tmp_path, subnet_configuration(state(generation=8)))
    with pytest.raises(Conflict, match="generation 8 of tiny is published, 7 is older"):
        published(tmp_path, subnet_configuration(state(generation=7)))


def test_a_file_that_does_not_parse_back_is_not_published(tmp_path, monkeypatch):
    published(tmp_path, subnet_configuration(state(generation=1)))

    def torn(configuration: SubnetConfiguration, *more):
        pieces = list(good(configuration, *more))
        yield from [*pieces[:-1], pieces[-1].rsplit("\n", 2)[0] + "\n"]

    good = render.lfts
    monkeypatch.setattr(render, "lfts", torn)
    with pytest.raises(InvalidFile, match="ends without the count"):
        published(tmp_path, subnet_configuration(state(generation=2)))
    current = fileset.current(tmp_path, "tiny")
    assert current is not None
    assert current.generation == 1


def tampered(configuration: SubnetConfiguration, switch: int, guid: int) -> SubnetConfiguration:
    """The configuration with one entry towards a GUID changed on one switch."""
    row = bytearray(configuration.tables.rows[switch])
    row[configuration.tables.index[guid]] ^= 1
    rows = configuration.tables.rows | {switch: bytes(row)}
    return replace(configuration, tables=replace(configuration.tables, rows=rows))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_set_that_disturbs_an_unchanged_tenant_is_refused(tmp_path, restarted):
    """After a restart, too, while nobody comes or goes whom the default entries keep off."""
    first = published(tmp_path, subnet_configuration(state([POD, WIDE], 1)))
    last = None if restarted else first
    configuration = subnet_configuration(state([POD, ONE, WIDE], 2))
    inventory, topology = configuration.state.inventory, configuration.state.topology

    def tampered_for(tenant):
        first, *_, last = (inventory.endpoint_of_port[h, 0] for h in tenant.hosts(topology))
        return tampered(configuration, first.at.guid, last.guid)

    for tenant in (POD, WIDE):
        with pytest.raises(Conflict, match=f"tenant {tenant.id} would change"):
            publish.publish_set(tampered_for(tenant), SETTINGS, tmp_path, previous=last)
    publish.publish_set(tampered_for(ONE), SETTINGS, tmp_path, previous=last)


def test_a_neighbour_may_change_the_default_entries_towards_a_tenant(tmp_path):
    last = published(tmp_path, subnet_configuration(state([POD], 1)))
    configuration = subnet_configuration(state([POD, WIDE], 2), last.configuration)
    before, after = (
        json.loads(
            (publish.publish_set(each, SETTINGS, tmp_path).directory / "manifest.json").read_text()
        )["tenants"][POD.id]
        for each in (last.configuration, configuration)
    )
    assert before["entries"] != after["entries"]
    topology, inventory = configuration.state.topology, configuration.state.inventory
    leaf, far = (inventory.endpoint_of_port[host, 0] for host in POD.hosts(topology))
    victim = tampered(configuration, leaf.at.guid, far.guid)
    with pytest.raises(Conflict, match=f"tenant {POD.id} would change"):
        publish.publish_set(victim, SETTINGS, tmp_path, previous=last)


def test_a_fault_or_a_new_placement_may_change_entries(tmp_path):
    published(tmp_path, subnet_configuration(state([WIDE], 1)))
    fault = next(WIDE.leaf_links(state().topology))
    published(tmp_path, subnet_configuration(replace(state([WIDE], 2), failed_links=(fault,))))
    smaller = replace(POD, id=WIDE.id)
    published(tmp_path, subnet_configuration(state([smaller], 3)))
    manifest = json.loads((tmp_path / "tiny" / "current" / "manifest.json").read_text())
    assert list(manifest["tenants"]) == [WIDE.id]


def test_a_fabric_name_cannot_be_a_path(tmp_path):
    with pytest.raises(Exception, match="use letters, digits"):
        subnet_configuration(replace(state(), fabric="../elsewhere"))


def test_a_long_file_is_synced_part_by_part(tmp_path, monkeypatch):
    path, sizes = tmp_path / "lfts", [0]

    def synced(number):
        sizes.append(path.stat().st_size)

    monkeypatch.setattr("opensm_writer.fileset.os.fdatasync", synced)
    monkeypatch.setattr("opensm_writer.fileset.os.fsync", synced)
    piece = bytes(1 << 20)
    fileset.write(path, [piece] * 10)
    parts = [size - before for before, size in pairwise(sizes)]
    assert sum(parts) == 10 << 20
    assert max(parts) <= fileset.SYNCED
