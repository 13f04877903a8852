# SPDX-License-Identifier: Apache-2.0

"""A real shell runs the written scripts in order, with a stand-in for ``openstack``."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading

import pytest

from laas_service.adapters.compute_directory import DirectoryCompute
from laas_service.app.ports.compute import Handover
from laas_service.domain.errors import InvalidFile, InvalidInput, Unavailable

BLUE = Handover("blue-1", "p" * 32, ("n2", "n1"))
SMALLER = Handover("blue-1", "p" * 32, ("n1", "n3"))
ODD = "rack;1/node:7 'x' $(touch pwned)"


class Openstack:
    """A stand-in for ``openstack`` that logs its arguments; the log gives the aggregates."""

    def __init__(self, home):
        self.home = home
        (home / "openstack").write_text(
            '#!/bin/sh\n{ printf "%s\\037" "$@"; printf "\\036"; } >> "$LOG"\n'
        )
        (home / "openstack").chmod(0o755)

    def aggregates(self, directory):
        """Run all scripts in the order of their numbers and return the aggregates that remain."""
        log = self.home / "log"
        log.write_text("")
        env = {"PATH": f"{self.home}:{os.environ['PATH']}", "LOG": str(log)}
        for script in sorted((directory / "commands").glob("*.sh")):
            subprocess.run(["sh", script], env=env, check=True, cwd=self.home)
        found: dict[str, tuple[dict[str, str], set[str]]] = {}
        for line in log.read_text().split("\036")[:-1]:
            self._apply(found, line.split("\037")[:-1])
        return found

    def _apply(self, aggregates, words):
        match words:
            case ["aggregate", "create", name]:
                assert name not in aggregates
                aggregates[name] = ({}, set())
            case ["aggregate", "set", *options, name]:
                assert options[::2] == ["--property"] * (len(options) // 2)
                aggregates[name][0].update(option.split("=", 1) for option in options[1::2])
            case ["aggregate", "add", "host", name, host]:
                assert aggregates[name][0], "hosts before metadata"
                assert host not in aggregates[name][1]
                aggregates[name][1].add(host)
            case ["aggregate", "remove", "host", name, host]:
                aggregates[name][1].remove(host)
            case ["aggregate", "delete", name]:
                assert not aggregates.pop(name)[1], "Nova refuses this with 400"
            case _:
                raise AssertionError(words)


@pytest.fixture
def openstack(tmp_path):
    home = tmp_path / "bin"
    home.mkdir()
    return Openstack(home)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "compute"


def owned(project, *hosts):
    return ({"filter_tenant_id": project, "laas:allocation": "blue-1"}, set(hosts))


def pool(*hosts):
    return ({"filter_tenant_id": "laas-nobody", "laas:pool": "true"}, set(hosts))


def texts(path):
    return {file.name: file.read_text() for file in (path / "commands").iterdir()}


def lists(path):
    return {file.name: file.read_text() for file in (path / "nodes").iterdir()}


def test_life_of_an_allocation(path, openstack):
    compute = DirectoryCompute(path)
    compute.pool(["n1", "n2"])
    compute.pool(["n1", "n2", "n3"])
    assert openstack.aggregates(path) == {"laas-pool": pool("n1", "n2", "n3")}

    compute.hand_over(BLUE)
    assert openstack.aggregates(path)["laas-blue-1"] == owned(BLUE.project_id, "n1", "n2")
    assert compute.handed_over() == {"blue-1": Handover("blue-1", "p" * 32, ("n1", "n2"))}
    assert lists(path) == {"blue-1": "n1\nn2\n"}

    compute.hand_over(SMALLER)
    assert lists(path) == {"blue-1": "n1\nn3\n"}
    assert openstack.aggregates(path)["laas-blue-1"] == owned(BLUE.project_id, "n1", "n3")

    compute.fence("blue-1")
    assert lists(path) == {}
    assert openstack.aggregates(path)["laas-blue-1"] == owned("laas-nobody", "n1", "n3")
    assert compute.handed_over()["blue-1"].project_id == "laas-nobody"

    compute.take_back(SMALLER)
    assert openstack.aggregates(path) == {"laas-pool": pool("n1", "n2", "n3")}
    assert compute.handed_over() == {}


def test_the_last_command_of_a_hand_over_sets_the_metadata_again(path):
    DirectoryCompute(path).hand_over(BLUE)
    (script,) = texts(path).values()
    assert script.splitlines()[-1].startswith("openstack aggregate set ")


def test_taking_back_fences_first(path, openstack):
    compute = DirectoryCompute(path)
    compute.hand_over(BLUE)
    compute.take_back(BLUE)
    names = sorted(texts(path))
    assert names == [
        "000001-hand-over-blue-1.sh",
        "000002-fence-blue-1.sh",
        "000003-take-back-blue-1.sh",
    ]
    assert openstack.aggregates(path) == {}


def test_repeating_writes_nothing_new(path):
    compute = DirectoryCompute(path)
    for verb, argument in [
        ("pool", ["n1", "n2"]),
        ("hand_over", BLUE),
        ("fence", "blue-1"),
        ("take_back", BLUE),
    ]:
        getattr(compute, verb)(argument)
        before = texts(path)
        getattr(compute, verb)(argument)
        getattr(DirectoryCompute(path), verb)(argument)
        assert texts(path) == before


def test_what_was_never_handed_over_needs_no_command(path):
    compute = DirectoryCompute(path)
    compute.fence("blue-1")
    compute.take_back(BLUE)
    assert texts(path) == {}


def test_handing_over_again_after_a_fence_opens_the_hosts(path, openstack):
    compute = DirectoryCompute(path)
    compute.hand_over(BLUE)
    compute.fence("blue-1")
    compute.hand_over(BLUE)
    assert openstack.aggregates(path)["laas-blue-1"] == owned(BLUE.project_id, "n1", "n2")


def test_names_are_arguments_and_never_shell(path, openstack):
    compute = DirectoryCompute(path)
    project = 'p `id` "q" \\ $HOME #'
    compute.pool([ODD])
    compute.hand_over(Handover("blue-1", project, (ODD,)))
    assert openstack.aggregates(path) == {
        "laas-pool": pool(ODD),
        "laas-blue-1": owned(project, ODD),
    }
    assert not (openstack.home / "pwned").exists()
    assert lists(path) == {}  # a Slurm node cannot have this name


def test_a_host_with_a_bad_name_does_not_keep_the_others_out_of_the_pool(path, openstack):
    with pytest.raises(InvalidInput, match="hosts: '--property'"):
        DirectoryCompute(path).pool(["n1", "--property", "n2"])
    assert openstack.aggregates(path) == {"laas-pool": pool("n1", "n2")}


@pytest.mark.parametrize("id", ["", "../x", "a/b", ".hidden", "-rf", "a b", "a\n", "x" * 129])
def test_ids_that_are_no_file_names_are_refused(path, id):
    compute = DirectoryCompute(path)
    for verb in (compute.hand_over, compute.take_back):
        with pytest.raises(InvalidInput, match="allocation_id"):
            verb(Handover(id, "p", ("n1",)))
    with pytest.raises(InvalidInput, match="allocation_id"):
        compute.fence(id)


@pytest.mark.parametrize("name", ["", "--all", "a\nrm -rf b", "a\x00", "\udcff"])
def test_hosts_that_cannot_be_arguments_are_refused(path, name):
    compute = DirectoryCompute(path)
    with pytest.raises(InvalidInput, match="hosts"):
        compute.pool(["n1", name])
    with pytest.raises(InvalidInput, match="hosts"):
        compute.hand_over(Handover("blue-1", "p", (name,)))
    assert compute.handed_over() == {}


VERBS = {
    "pool": (lambda c: None, lambda c: c.pool(["n1", "n2"])),
    "hand_over": (lambda c: c.pool(["n1", "n2"]), lambda c: c.hand_over(BLUE)),
    "resize": (lambda c: c.hand_over(BLUE), lambda c: c.hand_over(SMALLER)),
    "fence": (lambda c: c.hand_over(BLUE), lambda c: c.fence("blue-1")),
    "take_back": (lambda c: c.hand_over(BLUE), lambda c: c.take_back(BLUE)),
}


class Killed(BaseException):
    """The process is killed; no ``Exception``, so that no handler cleans up on the way."""


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
@pytest.mark.parametrize("verb", VERBS)
def test_killed_between_any_two_steps_then_repeated(tmp_path, openstack, monkeypatch, verb, call):
    before, act = VERBS[verb]
    unharmed = DirectoryCompute(tmp_path / "unharmed")
    before(unharmed)
    act(unharmed)

    kills = 0
    while True:
        path = tmp_path / f"killed-{kills}"
        before(DirectoryCompute(path))
        with monkeypatch.context() as patch:
            countdown = _kill_at(patch, call, kills)
            with contextlib.suppress(Killed):
                act(DirectoryCompute(path))
        if countdown[0] >= 0:
            break
        kills += 1
        act(DirectoryCompute(path))
        assert texts(path) == texts(tmp_path / "unharmed")
        assert lists(path) == lists(tmp_path / "unharmed")
        assert DirectoryCompute(path).handed_over() == unharmed.handed_over()
        assert openstack.aggregates(path) == openstack.aggregates(tmp_path / "unharmed")
    assert kills


def _kill_at(patch, call, number):
    """From the ``number``-th call on, ``os.<call>`` raises ``Killed``."""
    countdown = [number]
    real = getattr(os, call)

    def killer(*args, **kwargs):
        countdown[0] -= 1
        if countdown[0] < 0:
            raise Killed
        return real(*args, **kwargs)

    patch.setattr(os, call, killer)
    return countdown


def test_a_full_disk_is_unavailable_and_loses_nothing(path, monkeypatch):
    compute = DirectoryCompute(path)
    compute.hand_over(BLUE)

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match="No space left"):
            compute.take_back(BLUE)
    assert set(compute.handed_over()) == {"blue-1"}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"next": "x"}', "\u0000"])
def test_a_damaged_state_is_named_not_overwritten(path, text):
    compute = DirectoryCompute(path)
    compute.hand_over(BLUE)
    (path / "state.json").write_text(text)
    with pytest.raises(InvalidFile, match=r"state\.json"):
        compute.hand_over(SMALLER)
    assert (path / "state.json").read_text() == text


def test_callers_at_the_same_time_lose_nothing(path, openstack):
    threads = [
        threading.Thread(
            target=DirectoryCompute(path).hand_over, args=(Handover(f"t{i}", "p", (f"n{i}",)),)
        )
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(DirectoryCompute(path).handed_over()) == {f"t{i}" for i in range(8)}
    assert set(openstack.aggregates(path)) == {f"laas-t{i}" for i in range(8)}
