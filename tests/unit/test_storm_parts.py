# SPDX-License-Identifier: Apache-2.0

"""The parts of the storm that judge and hold back, each on a case made by hand."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress

import pytest

from tests.storm import judge, linear
from tests.storm.gate import ANSWERS, REQUESTS, Gates
from tests.storm.journal import Complaints


def publish(home, generation, text=""):
    current = home / "opensm" / "f" / "current"
    current.mkdir(parents=True, exist_ok=True)
    document = json.dumps({"generation": generation, "text": text})
    (current / "manifest.json").write_text(document)


def test_a_generation_that_is_published_after_a_later_one_is_a_problem(tmp_path):
    known: dict[int, bytes] = {}
    assert judge.published_problems(tmp_path, "f", known) == []
    for generation in (3, 7, 7):
        publish(tmp_path, generation)
        assert judge.published_problems(tmp_path, "f", known) == []
    publish(tmp_path, 5)
    (said,) = judge.published_problems(tmp_path, "f", known)
    assert said == "f: generation 5 was published after 7"


def test_a_generation_that_is_published_twice_and_differs_is_a_problem(tmp_path):
    known: dict[int, bytes] = {}
    for text in ("one past", "another"):
        publish(tmp_path, 7, text)
        said = judge.published_problems(tmp_path, "f", known)
    assert said == ["f: generation 7 was published twice, and differs"]


def test_after_a_failover_only_what_the_database_has_was_acknowledged():
    history = linear.History()
    history.add("kept", "create", "kept", "kept", 0.0)
    history.add("kept", "rename", "lost", "lost", 0.0)
    history.add("over", "create", "over", "over", 0.0)
    history.forget({"kept": "kept", "over": "gone"})
    assert history.judged == 3
    now = history.operations[0].answered
    history.add("kept", "show", "", "kept", now)
    history.add("over", "show", "", "gone", now)
    assert linear.problems(history.operations) == []
    history.add("kept", "show", "", "lost name", now)
    assert len(linear.problems(history.operations)) == 1


def test_an_answer_after_the_failover_is_taken_for_lost():
    history = linear.History()
    history.add("a", "create", "a", "a", 0.0)
    moment = history.operations[0].answered
    history.operations.append(linear.Operation("a", "rename", "b", "b", moment, moment + 9))
    history.operations.append(linear.Operation("a", "show", "", "b", moment + 5, moment + 9))
    assert [one.answer for one in history.before(moment)] == ["a", linear.LOST]


def test_what_clients_find_while_the_database_goes_back_is_excused():
    complaints = Complaints()
    complaints.excused = True
    complaints.add_found("404")
    assert list(complaints) == []
    complaints.add("two owners")
    complaints.excused = False
    complaints.add_found("404")
    assert list(complaints) == ["two owners", "404"]
    assert complaints.first is not None


@pytest.fixture
def echo(tmp_path):
    """A gate in front of a server that answers what it gets; the client's end and the gate."""
    inner, gates = socket.socket(socket.AF_UNIX), Gates()
    inner.bind(str(tmp_path / "inner"))
    inner.listen()
    heard: list[bytes] = []

    def serve() -> None:
        connection, _ = inner.accept()
        while data := connection.recv(100):
            heard.append(data)
            connection.sendall(data)
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    gate = gates.add(tmp_path / "outer", tmp_path / "inner")
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(tmp_path / "outer"))
    client.settimeout(300)
    client.sendall(b"hello")
    assert client.recv(100) == b"hello"
    yield client, gate, heard
    client.close()
    thread.join()
    inner.close()
    gates.close()


def test_held_back_answers_arrive_later_and_their_requests_at_once(echo):
    client, gate, heard = echo
    gate.hold(ANSWERS)
    client.sendall(b"again")
    while heard != [b"hello", b"again"]:
        pass
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(100)
    client.setblocking(True)
    gate.let_go(cut=False)
    assert client.recv(100) == b"again"


@pytest.mark.parametrize("way", [REQUESTS, ANSWERS])
def test_connections_may_be_cut_instead(echo, way):
    client, gate, _ = echo
    gate.hold(way)
    client.sendall(b"again")
    gate.let_go(cut=True)
    with suppress(ConnectionResetError):  # depends on what has arrived by then
        assert client.recv(100) == b""
