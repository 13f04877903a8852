# SPDX-License-Identifier: Apache-2.0

import pytest

from laas_service.domain.allocation import Allocation
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Topology, Xgft
from laas_service.simulator.workload import Job
from tests.bench import streams

TREE = Xgft((4, 4, 1), (1, 4, 0))
"""16 hosts."""

HEAD_WAITS = [
    Job("half", 0, 8, 100),
    Job("all", 0, 16, 10),
    Job("short", 0, 4, 50),
    Job("long", 0, 4, 500),
]
"""``all`` waits for ``half``; ``short`` ends before that, ``long`` does not."""


class RecordingLedger(Ledger):
    """Records the starts; a copy, which the queue uses for later times, records none."""

    def __init__(self):
        super().__init__(Topology(TREE))
        self.starts = []

    def copy(self):
        twin = super().copy()
        twin.starts = []
        return twin

    def claim(self, allocation: Allocation) -> None:
        super().claim(allocation)
        self.starts.append(allocation.id)


def starts(discipline, jobs):
    ledger, calls = RecordingLedger(), streams.Calls()
    streams.DISCIPLINES[discipline](POLICIES["laas"](), ledger, jobs, calls)
    assert len(calls.admitted) >= len(ledger.starts)
    return ledger.starts, len(calls.refused)


def test_fifo_tries_the_head_until_it_fits():
    order, refused = starts("fifo", HEAD_WAITS)
    assert order == ["half", "all", "short", "long"]
    assert refused == 2  # all waits for half, short for all


def test_easy_keeps_the_reservation_of_the_head():
    order, _ = starts("easy", HEAD_WAITS)
    assert order == ["half", "short", "all", "long"]


def test_random_departures_give_the_refused_job_up():
    order, refused = starts("random", HEAD_WAITS)
    assert order == ["half", "short", "long"]
    assert refused == 1


@pytest.mark.parametrize("discipline", streams.DISCIPLINES)
def test_streams_are_deterministic(discipline):
    jobs = streams.Row(8, mean=8).jobs(200, seed=3)
    assert jobs == streams.Row(8, mean=8).jobs(200, seed=3)
    assert starts(discipline, [job for job in jobs if job.hosts <= 16]) == starts(
        discipline, [job for job in jobs if job.hosts <= 16]
    )


def test_each_call_counts_with_its_least_time():
    jobs = streams.Row(8, mean=8).jobs(50, seed=1)
    calls = streams.run("laas", "fifo", Xgft((4, 4, 8), (1, 4, 4)), jobs, rounds=2)
    assert len(calls.admitted) == 50
    first, second = streams.Calls([3.0, 1.0], [5.0]), streams.Calls([2.0, 4.0], [6.0])
    assert first.least(second) == streams.Calls([2.0, 1.0], [5.0])


def line(row, policy, answer, mean):
    names = {"row": row, "discipline": "fifo", "policy": policy, "answer": answer}
    return {**names, "mean": mean}


def test_means_are_scaled_by_the_first_row():
    before = [
        line(streams.FIRST_ROW, policy, answer, 2 * mean)
        for policy, means in streams.BESIDE_ORIGINAL.items()
        for answer, mean in zip(streams.ANSWERS, means, strict=True)
    ]
    scale = streams.Scale(before)
    laas = scale.ratios(line(streams.FIRST_ROW, "laas", "refused", 53))
    assert laas == pytest.approx({"scaled": 26.5, "to_original": 0.265, "to_before": 0.25})
    assert scale.ratios(line("exp64-65536", "lc", "refused", 10)) == pytest.approx({"scaled": 5})


def test_a_missing_trace_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("LAAS_SHARED", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="LLNL-Thunder"):
        streams.ROWS["thunder-11664"].jobs(1, seed=1)
