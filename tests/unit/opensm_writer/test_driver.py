# SPDX-License-Identifier: Apache-2.0

"""Dead and silent switches in the tables that are read back, with files in place of tools."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laas_service.messages import Condition
from opensm_writer import fileset, health, parse
from opensm_writer.driver import OpenSmDriver
from opensm_writer.opensm import OpenSm
from tests.unit.opensm_writer.iblinkinfo import output
from tests.unit.opensm_writer.states import SETTINGS, state
from tests.waiting import eventually

INVENTORY = state().inventory
CABLES = INVENTORY.cable_ends
OBSERVER = INVENTORY.endpoints[-1].guid
SPINE, OTHER_SPINE = INVENTORY.spine_guids[:2]


class Site:
    def __init__(self, directory):
        self.links, self.dump = directory / "links", directory / "dump"
        self.log = directory / "log"
        self.log.write_text("")
        self.opensm = OpenSm(
            dump_command=("cat", str(self.dump)),
            links_command=("cat", str(self.links)),
            links_patience=600,
            log_file=self.log,
        )
        self.home = directory / "tiny"
        self.driver = OpenSmDriver(directory, "tiny", self.opensm)
        self.driver.publish(state(), SETTINGS)
        current = self.driver.current
        assert current is not None
        self.generation = current.generation
        self.fabric()

    def fabric(self, missing=(), other_rows=(), **links):
        """What the tools print; ``missing`` and ``other_rows`` are GUIDs of switches."""
        text = "".join(
            block.replace(" 001 #", " 002 #") if guid in other_rows else block
            for guid, block in self.tables().items()
            if guid not in missing
        )
        self.dump.write_text(text)
        self.links.write_text(output(CABLES, OBSERVER, **links))
        with self.log.open("a") as log:
            log.write("SUBNET UP\n")

    def tables(self):
        text = (self.home / "current" / "lfts").read_text()
        tables = parse.switch_tables(parse.file_pieces(self.home / "current" / "lfts"), "lfts")
        at, blocks = 0, {}
        for table in tables:
            blocks[table.guid] = text[at : at + table.size]
            at += table.size
        return blocks

    def observed(self, **options):
        return health.report(self.driver.observe(None, **options), timeout=60)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setattr("opensm_writer.observer.REST", 0)
    return Site(tmp_path)


def test_a_sound_fabric(site):
    seen = site.observed()
    assert (seen.condition, seen.without, seen.unconfirmed) == (Condition.APPLIED, (), ())
    assert seen.reading.ends == ()
    assert site.driver.look().ends == ()


def test_a_dead_switch_is_left_out_and_named(site):
    site.fabric(missing=[SPINE], dead=[SPINE])
    seen = site.observed()
    assert (seen.condition, seen.generation) == (Condition.APPLIED, site.generation)
    assert (seen.without, seen.unconfirmed) == ((SPINE,), ())
    assert seen.reading.ends


def test_a_silent_switch_is_unconfirmed(site):
    site.fabric(missing=[SPINE, OTHER_SPINE], dead=[OTHER_SPINE], silent=[SPINE])
    seen = site.observed()
    assert (seen.condition, seen.generation) == (Condition.APPLIED, site.generation)
    assert (seen.without, seen.unconfirmed) == ((OTHER_SPINE,), (SPINE,))


def test_a_switch_that_is_missing_for_no_stated_reason_blocks(site):
    site.fabric(missing=[SPINE])
    seen = site.observed()
    assert (seen.condition, seen.generation) == (Condition.DIFFERS, None)
    assert f"{SPINE:#018x} was not seen" in seen.detail
    assert (seen.without, seen.unconfirmed) == ((), ())


def test_a_switch_that_dies_before_the_ports_are_read_again(site):
    """The log tells of nothing, but a switch is missing: the ports are read at once."""
    site.observed()
    site.fabric(missing=[SPINE], dead=[SPINE])
    site.log.write_text("")
    site.driver.observe(None)
    assert site.observed().without == (SPINE,)


def test_a_table_that_is_missing_waits_for_slow_ports_and_delays_no_round(site, tmp_path):
    assert site.observed().condition is Condition.APPLIED
    gate, script = tmp_path / "gate", 'until [ -e "$1" ]; do sleep 0.02; done; cat "$0"'
    command = ("sh", "-c", script, str(site.links), str(gate))
    slow = replace(site.opensm, links_patience=0, links_command=command)
    site.driver._opensm = site.driver._observer._opensm = slow
    site.fabric(missing=[SPINE], dead=[SPINE])
    seen = site.observed()
    assert (seen.condition, seen.without) == (Condition.APPLIED, ())
    gate.touch()
    eventually(lambda: site.observed().without == (SPINE,), "the ports tell that it is dead")


def test_the_other_switches_are_compared(site):
    site.fabric(missing=[SPINE], dead=[SPINE], other_rows=[OTHER_SPINE])
    seen = site.observed()
    assert seen.condition is Condition.DIFFERS
    assert f"{OTHER_SPINE:#018x} sends" in seen.detail


def test_an_earlier_generation_without_a_dead_switch(site):
    site.fabric(missing=[SPINE], dead=[SPINE])
    site.driver.publish(state([], site.generation + 1), SETTINGS)
    seen = site.observed()
    assert (seen.condition, seen.generation) == (Condition.OTHER_GENERATION, site.generation)
    assert seen.without == (SPINE,)


def test_a_returning_switch_is_compared_although_the_tables_would_be_reused(site):
    site.fabric(missing=[SPINE], dead=[SPINE])
    assert site.observed().without == (SPINE,)
    site.fabric(other_rows=[SPINE])
    seen = site.observed(reuse_tables=True)
    assert seen.condition is Condition.DIFFERS
    assert f"{SPINE:#018x} sends" in seen.detail
    site.fabric()
    assert site.observed().condition is Condition.APPLIED


def test_a_dead_switch_whose_table_is_read_all_the_same_is_compared(site):
    site.fabric(dead=[SPINE], other_rows=[SPINE])
    assert site.observed().condition is Condition.DIFFERS


def test_a_set_without_the_cabling_is_confirmed_as_before(site):
    current = (site.home / "current").resolve()
    manifest = fileset.read_manifest(current)
    files = {name: digest for name, digest in manifest.files.items() if name != "cabling"}
    manifest = replace(manifest, files=files)
    (current / "cabling").unlink()
    (current / fileset.MANIFEST).write_text(fileset.text(manifest))
    seen = site.observed()
    assert (seen.condition, seen.reading) == (Condition.APPLIED, None)
    site.fabric(missing=[SPINE], dead=[SPINE])
    assert site.observed().condition is Condition.DIFFERS
    assert site.driver.look() is None
