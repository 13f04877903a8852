# SPDX-License-Identifier: Apache-2.0

"""Backup and restore of a lost database: commands, a worker and the files that OpenSM reads."""

import pytest

from laas_service.adapters.db.engine import connect
from laas_service.app.lifecycle import State
from laas_service.app.records import Caller
from laas_service.app.requests import AllocationRequest
from laas_service.domain.errors import Conflict
from laas_service.wiring.composition import Composition
from opensm_writer import fileset
from opensm_writer.local import LocalSubnetManager
from tests.functional.test_manage import Tool
from tests.options import options_from

OPERATOR = Caller("blue", "operator", admin=True, request_id="test")
FABRIC = '{"xgft": "3;4,4,2;1,4,4"}'


class Site(Tool):
    """A state directory with a fabric of 32 hosts; ``parts`` are those of a new process."""

    def parts(self):
        return Composition(options_from(self._config))

    def lose(self):
        """Delete the database; files, aggregates and switches stay."""
        for path in self.path.glob("laas.sqlite*"):
            path.unlink()

    def published(self):
        manifest = fileset.current(self.path / "opensm", "fabric")
        assert manifest is not None
        return manifest


@pytest.fixture
def site(tmp_path, capsys):
    site = Site(tmp_path, capsys)
    site("db", "upgrade")
    (tmp_path / "fabric.json").write_text(FABRIC)
    site("fabric", "import", tmp_path / "fabric.json")
    return site


def ask(parts, name, hosts):
    made = parts.use_cases(wake=lambda: None).allocations.allocate(
        OPERATOR, AllocationRequest(name=name, hosts=hosts)
    )
    converge(parts)
    return parts.store.allocations.get(made.record.id)


def converge(parts):
    """Take all due steps, then reconcile; return the drift found."""
    while parts.fabric_leases.run_once():
        pass
    return parts.fabric_leases.reconcile()


def ended(parts):
    parts.fabric_leases.leave()
    parts.database.engine.dispose()


def test_what_was_allocated_after_the_backup_is_reported_and_not_handed_over_twice(site):
    """As admin/day2.rst promises. Generations newer than the backup have been published."""
    parts = site.parts()
    kept = ask(parts, "kept", 4)
    assert kept.state is State.ACTIVE
    printed = site("db", "backup", site.path / "laas.gz")
    assert "rows" in printed
    lost = ask(parts, "lost", 4)
    again = ask(parts, "more", 8)
    parts.use_cases(wake=lambda: None).allocations.release(OPERATOR, again.id)
    converge(parts)
    ended(parts)
    seen = site.published()
    assert {kept.id, lost.id} <= seen.tenants.keys()

    site.lose()
    assert "no findings" in site("db", "restore", site.path / "laas.gz")
    assert "no findings" in site("db", "check")
    assert "no violations" in site("fabric", "verify")
    parts = site.parts()
    said = f"hosts are handed over to allocation {lost.id}, which is not recorded"
    assert said in converge(parts)
    now = site.published()
    assert now.generation == parts.store.fabrics.get("fabric").routes_generation > seen.generation
    assert now.tenants.keys() == {kept.id}, "who is not recorded has no routes"
    assert now.tenants[kept.id] == seen.tenants[kept.id], "nobody who is recorded is disturbed"
    assert parts.store.allocations.get(kept.id).placed == kept.placed

    other = ask(parts, "other", 28)  # all hosts that the restored database counts as free
    assert other.state is State.ALLOCATING, "some of its hosts are lost's"
    assert f"is handed over to allocation {lost.id}" in (other.error or "")
    handed = parts.compute.handed_over()
    assert handed.keys() == {kept.id, lost.id}
    ended(parts)


def test_what_is_unfinished_waits_for_the_routes_of_the_restored_state(site):
    """A later generation without its routes is published; it must not confirm the allocation."""
    parts = site.parts()
    first = parts.use_cases(wake=lambda: None).allocations.allocate(
        OPERATOR, AllocationRequest(name="first", hosts=4)
    )
    site("db", "backup", site.path / "laas.gz")
    converge(parts)
    parts.use_cases(wake=lambda: None).allocations.release(OPERATOR, first.record.id)
    converge(parts)
    assert parts.store.allocations.get(first.record.id).state is State.RELEASED
    ended(parts)
    seen = site.published()
    assert first.record.id not in seen.tenants

    site.lose()
    site("db", "restore", site.path / "laas.gz")
    parts = site.parts()
    record = parts.store.allocations.get(first.record.id)
    assert record.state is State.ALLOCATING
    assert record.generation > seen.generation
    converge(parts)
    assert parts.store.allocations.get(first.record.id).state is State.ACTIVE
    assert first.record.id in site.published().tenants
    ended(parts)


def test_without_moved_generations_publishing_would_be_refused(site):
    """Publishing refuses an older generation, so a restore has to raise the generations."""
    parts = site.parts()
    ask(parts, "kept", 4)
    state = parts.store.fabrics.routed("fabric")
    ask(parts, "lost", 4)
    with pytest.raises(Conflict, match="is older"):
        LocalSubnetManager(site.path / "opensm").publish(state)
    ended(parts)


def test_generations_seen_elsewhere_are_named(site):
    site("db", "backup", site.path / "laas.gz")
    site.lose()
    site("db", "restore", site.path / "laas.gz", "--above", 7_000_000)
    assert site.store().fabrics.get("fabric").generation > 7_000_000
    with pytest.raises(SystemExit):
        site("db", "restore", site.path / "laas.gz", "--above", "-1")


def test_the_exit_status_of_a_check(site):
    assert "no findings" in site("db", "check")
    with connect(f"sqlite:///{site.path}/laas.sqlite").begin() as connection:
        connection.exec_driver_sql("UPDATE fabric SET routes_generation = 9")
    assert "its routes are of generation 9, it is at 1" in site("db", "check", rc=1)
    site.lose()
    assert "run laas-manage db upgrade" in site("db", "check", rc=2)
    site._config.write_text("[database]\nconnection = postgresql+psycopg://x@127.0.0.1:9/x\n")
    assert "the database failed" in site("db", "check", rc=2)


def test_what_cannot_be_restored_is_said(site):
    file = site.path / "laas.gz"
    assert "can be read" in site("db", "restore", file, rc=1)
    site("db", "backup", file)
    assert "is not empty" in site("db", "restore", file, rc=1)
    file.write_bytes(file.read_bytes()[:-9])
    site.lose()
    assert "torn" in site("db", "restore", file, rc=1)
    assert "none" in site("db", "version", rc=1)
