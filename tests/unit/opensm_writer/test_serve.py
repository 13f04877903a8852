# SPDX-License-Identifier: Apache-2.0

"""Served sets are complete, rendered once, and rendered again after a change or damage."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import replace
from functools import partial

import pytest

from laas_service.domain.errors import Conflict, LimitExceeded, NotFound, Unavailable
from opensm_writer import desired, fileset, publish, render
from opensm_writer.serve import INDEX, ServedSets
from tests.unit.opensm_writer.states import ONE, POD, SETTINGS, WIDE, state
from tests.waiting import at_once


class Site:
    """A fabric's desired state, and machines that serve its set."""

    def __init__(self, directory, monkeypatch):
        self.directory = directory
        self.state = state()
        self.settings = SETTINGS
        self.rendered = 0
        good = render.lfts

        def counted(*arguments):
            self.rendered += 1
            return good(*arguments)

        monkeypatch.setattr(render, "lfts", counted)

    def process(self, machine="api1", **more):
        return ServedSets(
            self.directory / machine,
            lambda fabric: self.state,
            lambda fabric: self.settings,
            **more,
        )


@pytest.fixture
def site(tmp_path, monkeypatch):
    return Site(tmp_path, monkeypatch)


def whole(served, found):
    """Check every file of a set against manifest, sizes and parts."""
    generation, form = str(found.manifest["generation"]), found.manifest.get("form", 4)
    assert found.sizes.keys() == found.manifest["files"].keys()
    for name, digest in found.manifest["files"].items():
        path = served.file("tiny", generation, name, form)
        data = path.read_bytes()
        bare = name == "lfts" and form == fileset.BARE
        assert (fileset.digest_of_table_file if bare else fileset.digest_of)(path) == digest, name
        assert len(data) == found.sizes[name]
        if name in found.parts:
            for size, part in found.parts[name]:
                assert hashlib.sha256(data[:size]).hexdigest() == part
                data = data[size:]
            assert data == b""
    return True


def test_a_set_on_disk_is_not_rendered_again(site):
    first = site.process()
    found = first.wanted("tiny")
    assert whole(first, found)
    assert site.rendered == 1
    assert first.wanted("tiny") == found
    second = site.process()
    assert second.wanted("tiny") == found
    assert whole(second, found)
    assert site.rendered == 1


def test_any_machine_serves_the_same_bytes(site):
    found = site.process("api1").wanted("tiny")
    other = site.process("api2")
    assert other.file("tiny", "7", "lfts").read_bytes()
    assert other.wanted("tiny") == found
    assert site.rendered == 2


def test_each_state_has_a_set_and_old_sets_are_pruned(site):
    served = site.process(keep=2)
    for generation in range(7, 12):
        site.state = state([POD, ONE, WIDE][: generation % 3 + 1], generation)
        assert whole(served, served.wanted("tiny"))
    for generation in (9, 10, 11):
        assert served.file("tiny", str(generation), "lfts").is_file()
    for generation in (7, 8, 12):
        with pytest.raises(NotFound, match="generation 11 is wanted now"):
            served.file("tiny", str(generation), "lfts")


def test_another_state_of_the_same_generation_is_another_set(site):
    """A restored database uses numbers of generations again."""
    served = site.process()
    before = served.wanted("tiny")
    site.state = state([POD, ONE])
    after = served.wanted("tiny")
    assert after.manifest["generation"] == before.manifest["generation"]
    assert after.manifest["files"]["partitions.conf"] != before.manifest["files"]["partitions.conf"]
    assert whole(served, after)


def test_a_restored_database_with_a_lower_generation_is_served(site):
    served = site.process()
    served.wanted("tiny")
    site.state = state([POD], 5)
    for process in (served, site.process()):
        assert process.wanted("tiny").manifest["generation"] == 5
        assert whole(process, process.wanted("tiny"))
        with pytest.raises(NotFound):
            process.file("tiny", "7", "lfts")


def test_other_settings_make_another_set(site):
    before = site.process().wanted("tiny")
    site.settings = replace(SETTINGS, directory="/elsewhere/tiny/current")
    served = site.process()
    after = served.wanted("tiny")
    assert after.manifest["files"] != before.manifest["files"]
    assert b"/elsewhere" in served.file("tiny", "7", "opensm.conf").read_bytes()
    assert whole(served, after)


def test_a_release_with_another_form_renders_again(site, monkeypatch):
    site.process().wanted("tiny")
    before = site.process().file("tiny", "7", "opensm.conf").read_text()
    fragment = render.fragment

    def other(settings, *, chains):
        yield "# Another form\n"
        yield from fragment(settings, chains=chains)

    monkeypatch.setattr(render, "fragment", other)
    monkeypatch.setattr(fileset, "FORM", fileset.FORM + 1)
    served = site.process()
    assert whole(served, served.wanted("tiny"))
    assert served.file("tiny", "7", "opensm.conf").read_text() == "# Another form\n" + before


def test_a_release_with_other_routing_replaces_all_sets(site, monkeypatch):
    """Agents compare a set with their own current one and refuse it if it would disturb."""
    site.process().wanted("tiny")
    good = fileset.check_follows

    def disturbed(before, *more):
        if before is not None:
            raise Conflict("the entries of tenant one-leaf would change")
        good(before, *more)

    monkeypatch.setattr(fileset, "check_follows", disturbed)
    site.state = state(generation=8)
    served = site.process()
    assert whole(served, served.wanted("tiny"))


@pytest.mark.parametrize("name", ["lfts", "partitions.conf", "manifest.json", INDEX])
def test_a_damaged_or_missing_file_is_rendered_again(site, name):
    found = site.process().wanted("tiny")
    file = site.directory / "api1" / "tiny" / "current" / name
    for damage in (file.unlink, lambda: file.write_text("{}")):
        damage()
        served = site.process()
        assert served.wanted("tiny") == found
        assert whole(served, found)


def test_a_killed_process_leaves_no_incomplete_set(site, monkeypatch):
    """Killed before the set is current, or before its index is written."""

    class Killed(BaseException):
        pass

    def killed(*arguments):
        raise Killed

    for step in (("replace_file",), ("make_current",)):
        site.state = replace(site.state, generation=site.state.generation + 1)
        with monkeypatch.context() as patched:
            patched.setattr(fileset, *step, killed)
            with pytest.raises(Killed):
                site.process().wanted("tiny")
        served = site.process()
        assert whole(served, served.wanted("tiny"))


def test_simultaneous_requests_wait_for_one_rendering(site):
    """Threads of two processes; each finds the set that the first one rendered."""
    served, start, found = [site.process(), site.process()], threading.Barrier(6), []

    def ask(number):
        start.wait()
        found.append(served[number % 2].wanted("tiny"))

    at_once(*(partial(ask, number) for number in range(6)))
    assert len(found) == 6
    assert all(one == found[0] for one in found)
    assert site.rendered == 1


@pytest.mark.parametrize(
    "name", ["manifest.json", INDEX, "../gen-7/lfts", "/etc/passwd", "", ".", "engines", "LFTS"]
)
def test_only_files_that_the_manifest_names_are_served(site, name):
    served = site.process()
    assert served.file("tiny", "7", "lfts").is_file()
    with pytest.raises(NotFound, match="file of this set"):
        served.file("tiny", "7", name)


def test_only_the_exact_generation_is_served(site):
    served = site.process()
    for generation in ("07", "7.0", " 7", "-7", "", "current", "9" * 9999, "\u0667"):
        with pytest.raises(NotFound, match="generation 7 is wanted now"):
            served.file("tiny", generation, "lfts")


def test_a_set_that_cannot_be_rendered_leaves_the_others(site, monkeypatch):
    served = site.process()
    found = served.wanted("tiny")
    site.state = state(generation=8)

    def refuse(*arguments):
        raise LimitExceeded("chains hold 49 tenants, there are 50")

    with monkeypatch.context() as patched:
        patched.setattr(render, "set_files", refuse)
        with pytest.raises(LimitExceeded, match="there are 50"):
            served.wanted("tiny")
    assert served.file("tiny", "7", "lfts").is_file()
    site.state = state()
    assert served.wanted("tiny") == found
    assert site.rendered == 1


def test_a_directory_that_cannot_be_written_is_unavailable(site):
    (site.directory / "api1").write_text("a file")
    with pytest.raises(Unavailable, match="api1"):
        site.process().wanted("tiny")


def test_a_served_set_equals_the_set_of_a_worker(site, tmp_path):
    served = site.process()
    found = served.wanted("tiny")
    published = publish.publish_set(
        desired.subnet_configuration(site.state), replace(SETTINGS, bare=True), tmp_path / "worker"
    )
    text = (published.directory / "manifest.json").read_text()
    assert json.loads(text) == found.manifest
    assert list(json.loads(text)) == list(found.manifest)


def test_an_agent_gets_the_newest_form_that_it_knows(site):
    site.state = replace(site.state, stamp="1" * 16)
    served = site.process()
    old = served.wanted("tiny", 4)
    assert [*old.manifest] == ["fabric", "generation", "files", "chains", "tenants"]
    new = served.wanted("tiny", 5)
    assert (new.manifest["form"], new.manifest["stamp"]) == (5, "1" * 16)
    assert {**old.manifest, "form": 5, "stamp": "1" * 16} == new.manifest
    whole(served, old)
    assert site.rendered == 1
    newest = served.wanted("tiny", 9)
    assert newest.manifest["form"] == 6
    assert newest.sizes["lfts"] < new.sizes["lfts"] / 3
    for found in (old, new, newest):  # agents of several releases fetch side by side
        whole(served, found)
    assert site.rendered == 2
    assert served.wanted("tiny", 5) == new


def test_another_past_is_another_set(site):
    site.state = replace(site.state, stamp="1" * 16)
    served = site.process()
    served.wanted("tiny")
    site.state = replace(site.state, stamp="2" * 16)
    assert served.wanted("tiny").manifest["stamp"] == "2" * 16
