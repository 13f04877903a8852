# SPDX-License-Identifier: Apache-2.0

"""Dead and silent switches in the tables that are read back, with files in place of tools."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from laas_service.domain.topology import LeafLink
from laas_service.domain.verification import physical_tables
from laas_service.messages import Condition
from opensm_writer import fileset, health, parse
from opensm_writer.driver import OpenSmDriver
from opensm_writer.opensm import OpenSm
from opensm_writer.reload import reload_set
from tests.crossings import Judge
from tests.unit.opensm_writer.iblinkinfo import output
from tests.unit.opensm_writer.states import ONE, POD, SETTINGS, TINY, WIDE, state
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
        self.links.write_text(output(CABLES, OBSERVER))
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


BLOCKS = """
import sys
from pathlib import Path
from opensm_writer import parse
dump, asked = map(Path, sys.argv[1:3])
tables = list(parse.switch_tables(parse.file_pieces(dump), "dump"))
lines = sys.stdin.readlines()
asked.write_text("".join(lines))
for line in lines:
    lid, number = map(int, line.split())
    for table in tables:
        if table.lid == lid:
            row = table.row.ljust(64 * number + 64, b"\\xff")[64 * number : 64 * number + 64]
            print(f"{table.guid:#018x} {lid} {number} {row.hex()}")
"""
"""Answers from the file of all tables, and notes what it was asked."""


def test_tables_without_port_guids_need_the_lids_that_they_were_made_for(site, tmp_path):
    """At first all ports have the same LID."""
    appeared = 'log_notice: Reporting Informational Notice "GID in service"\n'
    pinned = INVENTORY.lids
    site.fabric(lids=pinned)
    site.driver.publish(state(generation=8), SETTINGS)
    assert not site.driver.current.bare  # a restarted OpenSM may give other LIDs
    opensm = replace(site.opensm, cache_directory=tmp_path)
    site.driver = OpenSmDriver(tmp_path, "tiny", opensm)
    site.fabric()
    site.driver.publish(state(generation=8), SETTINGS)
    assert not site.driver.current.bare
    site.fabric(lids=pinned)
    site.log.write_text(site.log.read_text() + appeared)
    site.driver.publish(state(generation=9), SETTINGS)
    assert site.driver.current.bare
    site.fabric(lids=pinned)
    site.driver.reload()
    assert site.observed().condition is Condition.APPLIED

    one, other = INVENTORY.endpoints[0].guid, INVENTORY.endpoints[1].guid
    swapped = {**pinned, one: pinned[other], other: pinned[one]}
    site.fabric(lids=swapped)
    site.log.write_text(site.log.read_text() + appeared)
    seen = site.observed()
    assert seen.condition is Condition.DIFFERS
    assert f"{min(one, other):#018x} has {swapped[min(one, other)]:#06x}, not" in seen.detail
    bare = site.driver.current
    site.driver.reload()
    named = site.driver.current
    assert (bare.bare, named.bare, named.generation) == (True, False, 9)
    assert (named.name, site.driver.note.set) == ("gen-9.1", "gen-9.1")
    assert named.rows == bare.rows
    site.driver.publish(state(generation=10), SETTINGS)
    assert not site.driver.current.bare
    site.links.write_text("")
    site.log.write_text(site.log.read_text() + appeared)
    site.driver.publish(state(generation=11), SETTINGS)
    assert not site.driver.current.bare


@pytest.fixture
def by_blocks(site, tmp_path, monkeypatch):
    """``site`` with generation 7 confirmed, and changed blocks to be read from now on."""
    monkeypatch.setattr("opensm_writer.driver.SLOW", 0)
    site.asked, site.reads = tmp_path / "asked", tmp_path / "reads"
    opensm = replace(
        site.opensm,
        dump_command=("sh", "-c", f"echo >>{site.reads}; cat {site.dump}"),
        blocks_command=(sys.executable, "-c", BLOCKS, str(site.dump), str(site.asked)),
    )
    site.driver = OpenSmDriver(tmp_path, "tiny", opensm)
    assert site.observed().condition is Condition.APPLIED
    return site


def full_reads(site):
    return len(site.reads.read_text())


def publish(site, generation):
    """Routes without one tenant, or with all."""
    changed = state([ONE, POD] if generation % 2 == 0 else [ONE, POD, WIDE], generation)
    site.driver.publish(changed, SETTINGS)
    site.fabric()
    return {table.lid: table for table in site.driver.current.tables}


def test_only_changed_blocks_of_a_new_generation_are_read(by_blocks):
    site = by_blocks
    before = {table.lid: table.row for table in site.driver.current.tables}
    after = publish(site, 8)
    seen = site.observed()
    assert (seen.condition, seen.generation, full_reads(site)) == (Condition.APPLIED, 8, 1)
    changed = {
        (lid, place // 64)
        for lid, table in after.items()
        for place in range(len(table.row))
        if table.row[place] != before[lid][place]
    }
    asked = [tuple(map(int, line.split())) for line in site.asked.read_text().splitlines()]
    assert 0 < len(asked) == len(changed)
    assert set(asked) == changed
    assert site.observed().condition is Condition.APPLIED
    assert full_reads(site) == 2  # nothing differs: a check for drift reads everything


@pytest.fixture
def slow(site, tmp_path, monkeypatch):
    """``site`` with generation 7 confirmed; a reading of all tables now ends when ``go`` exists."""
    monkeypatch.setattr("opensm_writer.driver.SLOW", 0)
    site.go, site.reads = tmp_path / "go", tmp_path / "reads"
    script = f"echo >>{site.reads}; while [ ! -e {site.go} ]; do sleep 0.01; done; cat {site.dump}"
    site.driver = OpenSmDriver(
        tmp_path, "tiny", replace(site.opensm, dump_command=("sh", "-c", script))
    )
    site.go.touch()
    assert site.observed().condition is Condition.APPLIED
    site.go.unlink()
    return site


def test_all_tables_are_read_beside_the_caller(slow):
    site = slow
    assert not site.driver.prepared()
    assert site.driver.look() is not None  # ports are read meanwhile
    assert not site.driver.prepared()
    site.fabric(other_rows={SPINE})
    site.go.touch()
    eventually(site.driver.prepared, "all tables are read")
    seen = site.observed()
    assert seen.condition is Condition.DIFFERS
    assert f"{SPINE:#018x}" in str(seen.detail)
    assert full_reads(site) == 2
    site.fabric()
    assert site.observed().condition is Condition.APPLIED  # a reading is used once
    assert full_reads(site) == 3


@pytest.mark.parametrize("asked_again", [True, False])
def test_tables_that_were_read_before_a_reload_are_not_used(slow, asked_again):
    site = slow
    site.fabric(other_rows={SPINE})
    site.go.touch()
    eventually(site.driver.prepared, "all tables are read")
    site.driver.publish(state([ONE, POD], 8), SETTINGS)
    reload_set(site.home, replace(site.opensm, reload_command=("true",)))
    site.fabric()
    if asked_again:
        eventually(site.driver.prepared, "they are read once more")
    assert site.observed().condition is Condition.APPLIED
    assert full_reads(site) == 3


def test_a_reading_that_failed_is_told_by_the_comparison(slow):
    site = slow
    assert not site.driver.prepared()
    site.dump.unlink()
    site.go.touch()
    eventually(site.driver.prepared, "all tables are read")
    assert "failed with" in site.observed().detail


def test_a_changed_block_that_is_wrong_in_a_switch_is_not_confirmed(by_blocks):
    site = by_blocks
    publish(site, 8)
    site.fabric(other_rows=site.tables().keys())
    assert site.observed().condition is not Condition.APPLIED
    assert full_reads(site) == 1
    site.fabric()
    assert site.observed().condition is Condition.APPLIED


def test_everything_is_read_after_two_generations(by_blocks):
    """A block that both changed, back and forth, does not differ from what was read before."""
    site = by_blocks
    publish(site, 8)
    publish(site, 9)
    site.fabric()
    assert site.observed().generation == 9
    assert full_reads(site) == 2
    assert not site.asked.exists()


def test_everything_is_read_if_a_switch_does_not_answer(by_blocks):
    site = by_blocks
    before = site.driver.current.rows
    publish(site, 8)
    changed = [guid for guid, row in site.driver.current.rows.items() if row != before[guid]]
    site.fabric(missing=changed[:1], dead=changed[:1])
    assert site.observed(reuse_ports=True).without == (changed[0],)
    assert full_reads(site) > 1


@pytest.mark.parametrize("failures", [2, 3])
def test_blocks_are_read_again_before_everything_is(by_blocks, tmp_path, failures):
    """A busy fabric may answer late. Everything is read only if blocks fail again and again."""
    site = by_blocks
    publish(site, 8)
    count = tmp_path / "count"
    script = f'echo >>{count}; [ $(wc -l <{count}) -gt {failures} ] || exit 2; exec "$0" "$@"'
    site.driver._opensm = replace(
        site.driver._opensm,
        blocks_command=("sh", "-c", script, *site.driver._opensm.blocks_command),
    )
    for _ in range(2):
        seen = site.observed()
        assert seen.condition is Condition.BLIND
        assert "failed with 2" in seen.detail
    assert site.observed().generation == 8
    assert full_reads(site) == (1 if failures == 2 else 2)


def test_everything_is_read_if_the_last_time_is_long_ago(by_blocks, monkeypatch):
    monkeypatch.setattr("opensm_writer.driver.ALL_READ", 0)
    publish(by_blocks, 8)
    assert by_blocks.observed().generation == 8
    assert full_reads(by_blocks) == 2


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


def test_tables_are_written_again_only_if_opensm_has_swept_for_them(site, tmp_path):
    """A signal may be lost; the switches then differ because OpenSM has not read the set."""
    signals, hears = tmp_path / "signals", tmp_path / "hears"
    reload = f"readlink {site.home}/current >>{signals}; [ ! -e {hears} ] || echo SUBNET UP"
    command = ("sh", "-c", f"({reload}) >>{site.log}")
    site.driver = OpenSmDriver(tmp_path, "tiny", replace(site.opensm, reload_command=command))
    site.fabric(other_rows=[SPINE])
    assert site.observed().condition is Condition.DIFFERS
    name = (site.home / "current").readlink().name
    site.driver.reload()
    site.driver.reload()
    assert signals.read_text().split() == [name, name]
    hears.touch()
    site.driver.reload()
    site.driver.reload()
    assert site.observed().condition is Condition.DIFFERS
    site.driver.reload()
    assert signals.read_text().split() == [name, name, name, ".rewriting", name]


def test_writing_tables_again_waits_for_no_sweep(site, tmp_path):
    """Meanwhile OpenSM counts as sweeping, and the set stays the current one for everybody else."""
    signals = tmp_path / "signals"
    command = ("sh", "-c", f"readlink {site.home}/current >>{signals}")
    opensm = replace(site.opensm, reload_command=command, timeout=3600)
    site.driver = OpenSmDriver(tmp_path, "tiny", opensm)
    name = (site.home / "current").readlink().name

    def swept() -> None:
        with site.log.open("a") as log:
            log.write("SUBNET UP\n")

    def observed() -> Condition:
        observation = site.driver.observe(site.driver.note.mark)
        return health.report(observation, 120).condition

    site.driver.reload()
    swept()
    site.fabric(other_rows=[SPINE])
    assert observed() is Condition.DIFFERS
    site.driver.reload()
    for _ in range(2):  # nor is OpenSM signalled again
        site.driver.reload()
        assert observed() is Condition.SWEEPING
        assert signals.read_text().split() == [name, ".rewriting"]
        assert site.driver.current.generation == site.generation
    again = OpenSmDriver(tmp_path, "tiny", opensm)  # of another process
    again.publish(state(), SETTINGS)
    assert (site.home / "current").readlink().name == ".rewriting"
    swept()
    assert observed() is Condition.DIFFERS
    assert site.driver.is_to_follow
    site.driver.reload()
    assert signals.read_text().split() == [name, ".rewriting", name]
    assert not site.driver.is_to_follow
    swept()
    site.fabric()
    assert observed() is Condition.APPLIED


def test_a_fault_that_turns_entries_round_takes_two_sweeps_and_a_tenant_one(site, tmp_path):
    """Between them the entries are missing that would send packets in a circle."""
    signals, written = tmp_path / "signals", tmp_path / "written"
    command = f"readlink {site.home}/current >>{signals}; cp {site.home}/current/lfts {written}"
    opensm = replace(site.opensm, reload_command=("sh", "-c", command), timeout=3600)
    site.driver = OpenSmDriver(tmp_path, "tiny", opensm)

    def settle() -> list[str]:
        """Signals until the current set is in the switches."""
        signals.write_text("")
        site.driver.reload()
        for _ in range(3):
            site.dump.write_text(written.read_text())
            with site.log.open("a") as log:
                log.write("SUBNET UP\n")
            observed = health.report(site.driver.observe(site.driver.note.mark), 120)
            if observed.condition is Condition.APPLIED:
                break
            site.driver.reload()
        told: str = signals.read_text()
        return told.split()

    def rows() -> dict[int, bytes]:
        return {t.guid: t.row for t in parse.switch_tables(parse.file_pieces(written), "lfts")}

    def loops(*several: dict[int, bytes]) -> list[int]:
        judge = Judge(TINY.topology, INVENTORY, [])
        return judge.loops(*(physical_tables(each, INVENTORY.lids) for each in several))

    assert settle() == ["gen-7"]
    site.driver.publish(state([POD, WIDE], 8), SETTINGS)
    assert settle() == ["gen-8"]
    before, fault = rows(), (LeafLink(0, 0, 0),)
    site.driver.publish(replace(state([POD, WIDE], 9), failed_links=fault), SETTINGS)
    signals.write_text("")
    site.driver.reload()
    between = rows()
    assert signals.read_text().split() == [".rewriting"]
    assert settle() == ["gen-9"]
    assert loops(before, rows())
    assert loops(before, between) == loops(between, rows()) == []
    site.driver.publish(state([POD, WIDE], 10), SETTINGS)
    assert settle() == [".rewriting", "gen-10"]


def test_a_new_generation_ends_the_writing_of_old_tables(site, tmp_path):
    command = ("sh", "-c", f"echo SUBNET UP >>{site.log}")
    opensm = replace(site.opensm, reload_command=command)
    site.driver = OpenSmDriver(tmp_path, "tiny", opensm)
    site.driver.reload()
    site.fabric(other_rows=[SPINE])
    assert site.observed().condition is Condition.DIFFERS
    site.driver.reload()
    assert (site.home / "current").readlink().name == ".rewriting"
    site.driver.publish(state([], site.generation + 1), SETTINGS)
    site.driver.reload()
    assert (site.home / "current").readlink().name == f"gen-{site.generation + 1}"
    assert not site.driver.rewriting
    assert not site.driver.is_to_follow


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
