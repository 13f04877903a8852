# SPDX-License-Identifier: Apache-2.0

"""Incremental rendering gives, byte for byte, the files of a rendering from scratch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.adapters.fabric_import import generator
from laas_service.adapters.fabric_import.generator import Description
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Topology
from laas_service.messages import FabricState, TenantRoute
from opensm_writer import fileset, parse, publish, render
from opensm_writer.desired import subnet_configuration
from opensm_writer.render import Settings
from opensm_writer.set_reader import SetReader
from tests.unit.opensm_writer.states import ONE, POD, SETTINGS, WIDE, state

FABRICS = [
    generator.generate(described)
    for described in (
        Description(xgft="3;3,3,3;1,3,3", missing_cables=2, extra_cables=1, subnet_managers=1),
        Description(xgft="3;2,4,2;1,2,4", rails=2, wiring="plane", subnet_managers=1),
        Description(xgft="3;4,2,3;1,2,2", cables=(2, 1), storage_hosts=1, shuffled=True),
    )
]


def change(fabric: Ledger, rng: Random, name: str) -> None:
    """One or several tenants come or go, or a link fails or is repaired."""
    tree = fabric.topology.tree
    for part in range(rng.choice((1, 1, 1, 3))):
        if rng.random() < 0.25:
            number = rng.randrange(tree.leaf_links + tree.spine_links)
            link = tree.link_at(number)
            if link in fabric.failed_links:
                fabric.repair_link(link)
            elif link not in fabric.topology.absent_links:
                fabric.fail_link(link)
        elif fabric.allocations and rng.random() < 0.4:
            fabric.release(rng.choice(sorted(fabric.allocations)))
        else:
            size = rng.randint(1, fabric.topology.hosts // 2)
            admit(POLICIES["jigsaw"](), fabric, Request(f"{name}-{part}", size))


def states(topology: Topology, inventory, seed: int, count: int) -> Iterator[FabricState]:
    """Generations of a fabric; a tenant keeps its partition key, and free keys are reused."""
    rng, fabric = Random(seed), Ledger(topology)
    keys: dict[str, int] = {}
    for generation in range(1, count + 1):
        change(fabric, rng, f"t{generation}")
        keys = {name: key for name, key in keys.items() if name in fabric.allocations}
        for name in fabric.allocations.keys() - keys.keys():
            keys[name] = next(key for key in range(1, 1000) if key not in keys.values())
        routes = tuple(TenantRoute(fabric.allocations[n], keys[n]) for n in sorted(keys))
        failed = tuple(sorted(fabric.failed_links, key=topology.tree.link_id))
        yield FabricState("f", generation, topology, inventory, routes, failed)


@settings(max_examples=30)
@given(st.sampled_from(FABRICS), st.integers(0, 1 << 30), st.integers(1, 6))
def test_incremental_rendering_gives_the_same_bytes(made, seed, count):
    with TemporaryDirectory() as name, mock.patch("os.fsync"):  # fsync is slow and not tested here
        root = Path(name)
        chosen = Settings(f"{root}/f/current")
        last = None
        for each in states(made.topology, made.inventory, seed, count):
            configuration = subnet_configuration(each, last.configuration if last else None)
            last = publish.publish_set(configuration, chosen, root, previous=last)
            alone = subnet_configuration(each)
            assert configuration.tables == alone.tables
            for file, pieces in render.set_files(alone, chosen).items():
                assert (root / "f/current" / file).read_text() == "".join(pieces)
            assert last.manifest == publish.publish_set(alone, chosen, root / "alone").manifest


def test_only_changed_tables_are_rendered_and_parsed(tmp_path, monkeypatch):
    last = publish.publish_set(subnet_configuration(state([POD, WIDE], 1)), SETTINGS, tmp_path)
    rendered, parsed = mock.Mock(), mock.Mock(wraps=parse._ports)
    good = render.Renderer.table

    def counted(renderer, guid):
        rendered()
        return good(renderer, guid)

    monkeypatch.setattr(render.Renderer, "table", counted)
    monkeypatch.setattr(parse, "_ports", parsed)
    configuration = subnet_configuration(state([POD, ONE, WIDE], 2), last.configuration)
    same = sum(
        row is last.configuration.tables.rows[guid]
        for guid, row in configuration.tables.rows.items()
    )
    assert same == len(configuration.tables.rows)  # a tenant under one leaf needs no link
    last = publish.publish_set(configuration, SETTINGS, tmp_path, previous=last)
    assert rendered.call_count == parsed.call_count == 0
    configuration = subnet_configuration(state([POD, ONE], 3), last.configuration)
    changed = {
        g
        for g, row in configuration.tables.rows.items()
        if row != last.configuration.tables.rows[g]
    }
    assert 0 < len(changed) < len(configuration.tables.rows)
    publish.publish_set(configuration, SETTINGS, tmp_path, previous=last)
    assert rendered.call_count == parsed.call_count == len(changed)


@pytest.mark.parametrize("damage", ["byte", "gone"])
def test_nothing_is_copied_from_a_damaged_set(tmp_path, damage):
    last = publish.publish_set(subnet_configuration(state([POD], 1)), SETTINGS, tmp_path)
    lfts = tmp_path / "tiny" / "current" / "lfts"
    if damage == "byte":
        lfts.write_text(lfts.read_text().replace(" 002 #", " 003 #", 1))
    else:
        lfts.unlink()
    configuration = subnet_configuration(state([POD, WIDE], 2), last.configuration)
    published = publish.publish_set(configuration, SETTINGS, tmp_path, previous=last)
    assert lfts.read_text() == "".join(render.lfts(subnet_configuration(state([POD, WIDE], 2))))
    assert fileset.damaged(published.directory, published.manifest) == []


def test_the_own_set_is_read_only_if_somebody_touched_its_tables(tmp_path):
    last = publish.publish_set(subnet_configuration(state([POD], 1)), SETTINGS, tmp_path)
    reader = SetReader(tmp_path / "tiny")
    reader.remember(last)
    with mock.patch.object(fileset, "checked_tables", wraps=fileset.checked_tables) as read:
        current = reader.current()
    assert current is not None
    assert current.tables == last.tables
    assert read.call_count == 0
    lfts = tmp_path / "tiny" / "current" / "lfts"
    lfts.write_text(lfts.read_text().replace(" 002 #", " 003 #", 1))
    current = reader.current()
    assert current is not None
    assert "lfts" in str(current.damage)


@given(st.integers(1, 3000))
def test_tables_are_read_in_pieces_of_any_size(size):
    configuration = subnet_configuration(state())
    data = "".join(render.lfts(configuration)).encode()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [t.guid for t in parse.switch_tables(pieces, "lfts")] == sorted(
        configuration.tables.rows
    )


def test_known_tables_share_one_mapping_of_guids(tmp_path):
    last = publish.publish_set(subnet_configuration(state([POD], 1)), SETTINGS, tmp_path)
    for number in range(2, 9):
        configuration = subnet_configuration(
            state([POD] if number % 2 else [POD, WIDE], number), last.configuration
        )
        last = publish.publish_set(configuration, SETTINGS, tmp_path, previous=last)
    assert len({id(table.guids) for table in last.tables}) == 1
