# SPDX-License-Identifier: Apache-2.0

"""A real shell runs the written scripts in order, with a stand-in for ``openstack``."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
from dataclasses import replace
from functools import partial

import pytest

from laas_service.adapters import compute_journal
from laas_service.adapters.compute_directory import DirectoryCompute
from laas_service.app.ports.compute import Handover, MoveProgress, MoveStage, ServerMoves
from laas_service.domain.errors import Conflict, HostsBusy, InvalidFile, InvalidInput, Unavailable
from tests.scripts import executable
from tests.waiting import at_once, eventually

BLUE = Handover("blue-1", "p" * 32, ("n2", "n1"))
SMALLER = Handover("blue-1", "p" * 32, ("n1", "n3"))
ODD = "rack;1/node:7 'x' $(touch pwned)"


class Openstack:
    """A stand-in for ``openstack`` that logs its arguments; the log gives the aggregates."""

    def __init__(self, home):
        self.home = home
        executable(
            home / "openstack", '#!/bin/sh\n{ printf "%s\\037" "$@"; printf "\\036"; } >> "$LOG"\n'
        )

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


MOVES = ServerMoves("blue-1", "p" * 32, {"n2": "n3"})
FLEET = """\
case "$*" in
*"server list"*--host*) [ ! -e "$LOG.fails" ] && cat "$LOG.servers" ;;
*"server migrate --host n3 --wait s1") : > "$LOG.servers"; echo migrated >> "$LOG" ;;
*"server migrate confirm s1") echo confirmed >> "$LOG" ;;
*) exit 1 ;;
esac
"""
"""A stand-in for ``openstack`` with one server, s1, on a host that is to be emptied."""


def test_servers_move_by_a_script_that_answers(path, tmp_path):
    def run(script):
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log)}
        return subprocess.run(["sh", script], env=env, check=False, cwd=tmp_path).returncode

    log = tmp_path / "log"
    log.touch()
    executable(tmp_path / "openstack", f"#!/bin/sh\n{FLEET}")
    (tmp_path / "log.servers").write_text("s1\n")
    compute = DirectoryCompute(path)
    compute.hand_over(SMALLER)
    for _ in range(2):
        waits = DirectoryCompute(path).move_servers(MOVES)
        assert waits.under_way == ("script 000002-move-blue-1.sh has not answered",)
    script = path / "commands" / "000002-move-blue-1.sh"
    (tmp_path / "log.fails").touch()
    assert run(script) != 0
    assert compute.move_servers(MOVES).under_way, "a list that failed is no proof"
    (tmp_path / "log.fails").unlink()
    assert run(script) == 0
    assert log.read_text().split() == ["migrated", "confirmed"]
    assert DirectoryCompute(path).move_servers(MOVES) == MoveProgress()
    assert len(texts(path)) == 2

    compute.hand_over(BLUE)
    back = ServerMoves("blue-1", "p" * 32, {"n3": "n2"}, live=True)
    assert compute.move_servers(back).under_way
    assert "--live-migration --host n2 --wait" in texts(path)["000004-move-blue-1.sh"]
    compute.hand_over(SMALLER)
    assert compute.move_servers(MOVES).under_way, "an old answer counts for a new move"


CITY = """\
case "$*" in
*"server list"*"--status ACTIVE"*) grep -qs s1 "$LOG.stopped" || echo s1 ;;
*"server list"*--host*) cat "$LOG.servers" ;;
*"2.73 server lock --reason "*" s1") echo locked >> "$LOG" ;;
*"server stop s1") echo s1 > "$LOG.stopped"; echo stopped >> "$LOG" ;;
*"server migrate --host n3 --wait s1") : > "$LOG.servers"; echo migrated >> "$LOG" ;;
*"server migrate confirm s1") echo confirmed >> "$LOG" ;;
*"server unlock s1") echo unlocked >> "$LOG" ;;
*"server show "*s1) echo SHUTOFF ;;
*"server start s1") echo started >> "$LOG" ;;
*) exit 1 ;;
esac
"""
"""A stand-in for ``openstack`` with one server, s1, that runs until it is stopped."""


def test_servers_stop_before_they_move_and_start_afterwards(path, tmp_path):
    log = tmp_path / "log"
    (tmp_path / "log.servers").write_text("s1\n")
    executable(tmp_path / "openstack", f"#!/bin/sh\n{CITY}")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log)}
    stages = {stage: replace(MOVES, stage=stage) for stage in MoveStage}
    assert DirectoryCompute(path).running(MOVES) == MoveProgress()
    done: list[MoveStage] = []
    for stage in (MoveStage.STOP, MoveStage.MOVE, MoveStage.START):
        DirectoryCompute(path).hand_over(BLUE if stage is MoveStage.STOP else SMALLER)
        for earlier in done:
            assert DirectoryCompute(path).move_servers(stages[earlier]) == MoveProgress()
        (waits,) = DirectoryCompute(path).move_servers(stages[stage]).under_way
        script = path / "commands" / waits.split()[1]
        assert f"-{stage.value}-" in script.name
        subprocess.run(["sh", script], env=env, check=True, cwd=tmp_path)
        assert DirectoryCompute(path).move_servers(stages[stage]) == MoveProgress()
        done.append(stage)
    wanted = ["locked", "stopped", "migrated", "confirmed", "unlocked", "started"]
    assert log.read_text().split() == wanted
    assert not list((path / "answers").glob("stopped-*"))


def test_a_release_unlocks_what_stopped_for_a_move(path, tmp_path):
    """Nothing waits for the script, and it is written once."""
    log = tmp_path / "log"
    (tmp_path / "log.servers").write_text("s1\n")
    executable(tmp_path / "openstack", f"#!/bin/sh\n{CITY}")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log)}
    stop, unlock = (replace(MOVES, stage=stage) for stage in (MoveStage.STOP, MoveStage.UNLOCK))
    halt = replace(stop, locks=False)
    compute = DirectoryCompute(path)
    assert compute.move_servers(unlock) == MoveProgress()
    assert texts(path) == {}
    compute.hand_over(BLUE)
    (waits,) = compute.move_servers(stop).under_way
    subprocess.run(["sh", path / "commands" / waits.split()[1]], env=env, check=True, cwd=tmp_path)
    written = texts(path)
    assert compute.move_servers(halt) == MoveProgress()
    assert texts(path) == written
    compute.fence("blue-1")
    for _ in range(2):
        assert DirectoryCompute(path).move_servers(unlock) == MoveProgress()
    (script,) = (path / "commands").glob("*-unlock-*")
    for _ in range(2):
        subprocess.run(["sh", script], env=env, check=True, cwd=tmp_path)
    assert log.read_text().split() == ["locked", "stopped", "unlocked"]
    compute.take_back(BLUE)
    assert compute.move_servers(unlock) == MoveProgress()
    assert len(list((path / "commands").glob("*-unlock-*"))) == 1


def test_hosts_that_are_left_are_busy_until_their_script_answers(path, tmp_path):
    waiting = DirectoryCompute(path, waits=True)
    waiting.hand_over(BLUE)
    waiting.hand_over(SMALLER)
    assert [one.host for one in waiting.occupants(["n1", "n2"])] == ["n2"]
    assert waiting.occupants(["n1"]) == ()
    with pytest.raises(HostsBusy, match="take-back-blue-1"):
        waiting.take_back(SMALLER)
    assert [one.host for one in waiting.occupants(["n1", "n2", "n3"])] == ["n1", "n2", "n3"]
    with pytest.raises(HostsBusy, match="has not answered"):
        waiting.take_back(SMALLER)
    executable(
        tmp_path / "openstack", '#!/bin/sh\ncase "$*" in *" list "*"n2"*) cat "$LEFT";; esac'
    )
    left = tmp_path / "left"
    left.write_text("server-1\n")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LEFT": str(left)}
    script = max((path / "commands").glob("*-take-back-*.sh"))
    said = subprocess.run(["sh", script], env=env, check=True, capture_output=True, text=True)
    assert "Once they are gone: touch answers/" in said.stderr
    with pytest.raises(HostsBusy):
        waiting.take_back(SMALLER)
    left.write_text("")
    subprocess.run(["sh", script], env=env, check=True)
    waiting.take_back(SMALLER)
    assert waiting.occupants(["n1", "n2", "n3"]) == ()
    assert "blue-1" not in DirectoryCompute(path, waits=True).handed_over()
    waiting.take_back(SMALLER)


def test_a_move_by_the_service_answers_for_the_hosts_that_are_left(path):
    waiting = DirectoryCompute(path, waits=True)
    waiting.hand_over(BLUE)
    waiting.hand_over(SMALLER)
    moves = ServerMoves("blue-1", BLUE.project_id, {"n2": "n3"}, live=False)
    assert waiting.move_servers(moves).under_way
    assert waiting.occupants(["n2"]) == ()
    (path / "answers" / next((path / "commands").glob("*-move-*.sh")).stem).touch()
    assert waiting.move_servers(moves) == MoveProgress()
    waiting.hand_over(SMALLER)
    assert waiting.occupants(["n2"]) == ()


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


@pytest.mark.parametrize("text", ["", "{", "[]\n", "{}\n", '{"next": "x"}\n', "\u0000\n"])
def test_a_damaged_journal_is_named_not_overwritten(path, text):
    compute = DirectoryCompute(path)
    compute.hand_over(BLUE)
    journal = path / "journal"
    for content in (text, journal.read_text() + text if text.endswith("\n") else text):
        journal.unlink()
        journal.write_text(content)
        with pytest.raises(InvalidFile, match="journal"):
            compute.hand_over(SMALLER)
        with pytest.raises(InvalidFile, match="journal"):
            DirectoryCompute(path).handed_over()
        assert journal.read_text() == content
        journal.write_text('{"next": 1}\n')


@pytest.mark.parametrize("cut", range(1, 200, 9))
def test_a_line_that_is_cut_off_was_not_acknowledged_and_goes(path, openstack, cut):
    other = DirectoryCompute(path)
    other.pool(["n1", "n2"])
    with open(path / "journal", "ab") as journal:
        line = {"number": 2, "name": "000002-hand-over-blue-1.sh", "script": "x" * 200}
        journal.write(json.dumps(line).encode()[:cut])
    compute = other if cut % 2 else DirectoryCompute(path)
    assert compute.handed_over() == {}
    compute.hand_over(BLUE)
    assert set(DirectoryCompute(path).handed_over()) == {"blue-1"}
    assert openstack.aggregates(path)["laas-blue-1"] == owned(BLUE.project_id, "n1", "n2")


def test_a_step_costs_one_line_whatever_has_been_handed_over(path):
    compute, grown = DirectoryCompute(path), []
    for number in range(40):
        before = (path / "journal").stat().st_size if number else 0
        compute.hand_over(Handover(f"t{number:02}", "p", (f"n{number:02}",)))
        grown.append((path / "journal").stat().st_size - before)
    assert max(grown[10:]) <= grown[1] + 10


def test_a_long_journal_is_written_anew_and_others_follow(path, openstack, monkeypatch):
    monkeypatch.setattr("laas_service.adapters.compute_journal.SPARE_LINES", 4)
    one, other = DirectoryCompute(path), DirectoryCompute(path)
    one.pool(["n1", "n2", "n3"])
    for number in range(20):
        one.hand_over(BLUE if number % 2 else SMALLER)
        other.fence("blue-1")
        assert len((path / "journal").read_text().splitlines()) <= 16
    one.hand_over(BLUE)
    for compute in (one, other, DirectoryCompute(path)):
        assert compute.handed_over() == {"blue-1": Handover("blue-1", "p" * 32, ("n1", "n2"))}
    assert len(texts(path)) == 42
    assert openstack.aggregates(path)["laas-blue-1"] == owned(BLUE.project_id, "n1", "n2")


def test_a_script_that_the_operator_has_moved_away_does_not_come_back(path):
    DirectoryCompute(path).hand_over(BLUE)
    (path / "commands" / "000001-hand-over-blue-1.sh").unlink()
    compute = DirectoryCompute(path)
    compute.fence("blue-1")
    assert list(texts(path)) == ["000002-fence-blue-1.sh"]


def test_without_the_lines_of_an_allocation_it_is_forgotten(path):
    compute = DirectoryCompute(path)
    green = Handover("green", "p", ("n7",))
    for handover in (BLUE, green):
        compute.hand_over(handover)
    taken = Handover("red", "p", ("n7",))
    with pytest.raises(Conflict, match="n7 is handed over to allocation green, which keeps it"):
        compute.hand_over(taken)
    edited = path / "edited"
    lines = (path / "journal").read_text().splitlines(keepends=True)
    edited.write_text("".join(line for line in lines if '"id": "green"' not in line))
    edited.replace(path / "journal")
    assert set(compute.handed_over()) == {"blue-1"}
    assert set(lists(path)) == {"blue-1"}
    compute.hand_over(taken)
    assert max(texts(path)) == "000003-hand-over-red.sh"


EARLIER = {
    "next": 8,
    "pool": ["n1", "n2", "n3"],
    "tenants": {
        "blue-1": {"project_id": "p" * 32, "hosts": ["n1", "n2"], "fenced": False},
        "green": {"project_id": "q", "hosts": ["n3"], "fenced": True},
    },
    "moves": {"blue-1": {"targets": {"n2": "n3"}, "live": False, "answer": "000006-move-blue-1"}},
    "scripts": {"000007-fence-green.sh": "#!/bin/sh\n"},
}
"""The ``state.json`` of a release without a journal, killed before it wrote its last script."""


@pytest.mark.parametrize("kills", range(8))
def test_the_state_of_an_earlier_release_is_taken_over_once(path, monkeypatch, kills):
    path.mkdir()
    (path / "state.json").write_text(json.dumps(EARLIER))
    (path / "commands").mkdir()
    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        _kill_at(patch, "fsync", kills)
        DirectoryCompute(path).handed_over()
    for _ in range(2):
        compute = DirectoryCompute(path)
        assert compute.observed().pooled == {"n1", "n2", "n3"}
        assert compute.handed_over() == {
            "blue-1": Handover("blue-1", "p" * 32, ("n1", "n2")),
            "green": Handover("green", "laas-nobody", ("n3",)),
        }
        waits = compute.move_servers(MOVES).under_way
        assert waits == ("script 000006-move-blue-1.sh has not answered",)
    assert texts(path) == {"000007-fence-green.sh": "#!/bin/sh\n"}
    assert lists(path) == {"blue-1": "n1\nn2\n"}
    assert "tenants" not in json.loads((path / "state.json").read_text())
    compute.take_back(BLUE)
    assert min(texts(path).keys() - {"000007-fence-green.sh"}) == "000008-fence-blue-1.sh"
    assert set(DirectoryCompute(path).handed_over()) == {"green"}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"next": "x"}', "\u0000"])
def test_a_damaged_state_of_an_earlier_release_is_named_not_overwritten(path, text):
    path.mkdir()
    (path / "state.json").write_text(text)
    with pytest.raises(InvalidFile, match=r"state\.json"):
        DirectoryCompute(path).hand_over(SMALLER)
    assert (path / "state.json").read_text() == text
    assert not (path / "journal").exists()


def test_callers_at_the_same_time_lose_nothing(path, openstack):
    asked = [Handover(f"t{i}", "p", (f"n{i}",)) for i in range(8)]
    at_once(*(partial(DirectoryCompute(path).hand_over, one) for one in asked))
    assert set(DirectoryCompute(path).handed_over()) == {f"t{i}" for i in range(8)}
    assert set(openstack.aggregates(path)) == {f"laas-t{i}" for i in range(8)}


def test_a_process_that_keeps_the_lock_is_told_and_blocks_nobody_for_ever(tmp_path, monkeypatch):
    """It may be stopped; once it goes on, or has ended, the same step is taken."""
    monkeypatch.setattr(compute_journal, "PATIENCE", 0.05)
    compute = DirectoryCompute(tmp_path)
    compute.hand_over(BLUE)
    stopped = subprocess.Popen(["flock", str(tmp_path / ".lock"), "cat"], stdin=subprocess.PIPE)
    try:
        eventually(lambda: held(tmp_path / ".lock"), "another process has the lock")
        with pytest.raises(Unavailable, match=r"another process has held \S*/\.lock .* lslocks"):
            compute.hand_over(SMALLER)
    finally:
        stopped.communicate()
    compute.hand_over(SMALLER)
    assert compute.handed_over()["blue-1"] == SMALLER


def held(path):
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize("released", ["blue-1", "red-1"])
def test_the_advice_about_two_fabrics_with_the_same_hosts_gives_none_two_owners(
    path, openstack, released
):
    """The operator follows it literally: release the allocations of one of the fabrics."""
    red = Handover("red-1", "q" * 32, ("n2", "n3"))
    compute = DirectoryCompute(path)
    compute.pool(["n1", "n2", "n3"])
    compute.hand_over(BLUE)
    with pytest.raises(Conflict) as told:
        compute.hand_over(red)
    advice = str(told.value)
    assert "n2 is handed over to allocation blue-1, which keeps it" in advice
    assert "release the allocations of one of them, then delete that fabric" in advice
    assert "aggregate" not in advice
    assert "journal" not in advice
    compute.take_back({"blue-1": BLUE, "red-1": red}[released])
    if released == "blue-1":
        compute.hand_over(red)
    owners = [name for name, (_, hosts) in openstack.aggregates(path).items() if "n2" in hosts]
    left = "red-1" if released == "blue-1" else "blue-1"
    assert set(owners) == {f"laas-{left}", "laas-pool"}
