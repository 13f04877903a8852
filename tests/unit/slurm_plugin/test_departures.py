# SPDX-License-Identifier: Apache-2.0

"""Whether jobs have left their nodes: what nodes say, and what their silence means."""

from __future__ import annotations

import threading

import pytest

from slurm_plugin.departures import Departures
from slurm_plugin.slurm import SlurmFailed
from slurm_plugin.world import Allocation
from tests.waiting import eventually

OWN = Allocation("a", 7, "active", ("n0", "n1"))


class Nodes:
    """What each node answers, one answer a question; the last one stays."""

    def __init__(self, **answers):
        self.answers = {node: list(given) for node, given in answers.items()}
        self.asked = 0

    def steps(self, node):
        self.asked += 1
        given = self.answers[node]
        answer = given.pop(0) if len(given) > 1 else given[0]
        if answer is None:
            raise SlurmFailed("no answer")
        return frozenset(answer)


@pytest.fixture
def departures():
    stop = threading.Event()

    def make(nodes, quiet=0.0):
        return Departures(stop, nodes.steps, quiet)

    yield make
    stop.set()


def settled(departures, given_up=()):
    """The answer, once the nodes have been asked; ``has_left`` itself never waits."""
    assert not departures.has_left(OWN, given_up)
    eventually(lambda: departures._asked["a"].done(), "answers of nodes", 30, 0.001)
    return departures.has_left(OWN, given_up)


def test_a_job_has_left_once_each_node_said_so_twice(departures):
    nodes = Nodes(n0=[{3}], n1=[{}])
    assert settled(departures(nodes))
    assert nodes.asked == 4


def test_a_start_on_its_way_is_seen_by_the_second_question(departures):
    asked = departures(Nodes(n0=[{}], n1=[{}, {7}, {}]))
    assert not settled(asked)
    assert settled(asked)


def test_silence_counts_only_where_slurm_has_given_the_node_up(departures):
    asked = departures(Nodes(n0=[{}], n1=[None]))
    assert not settled(asked)
    assert settled(asked, {"n1"})


def test_a_node_given_up_that_answers_is_believed(departures):
    assert not settled(departures(Nodes(n0=[{}], n1=[{7}])), {"n1"})


def test_the_end_of_the_daemon_is_no_answer():
    stop = threading.Event()
    asked = Departures(stop, Nodes(n0=[{}], n1=[{}]).steps, 3600)
    assert not asked.has_left(OWN, ())
    stop.set()
    eventually(lambda: asked._asked["a"].done(), "the end of the questions", 30, 0.001)
    assert not asked.has_left(OWN, ())
