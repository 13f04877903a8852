# SPDX-License-Identifier: Apache-2.0

"""Readers of traces: accepted lines, named errors, and random input."""

from __future__ import annotations

import gzip
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.domain.errors import InvalidFile, InvalidInput
from laas_service.simulator.workload import (
    SPEEDUPS,
    Exponential,
    Job,
    Jobs,
    read_csv,
    read_swf,
    read_trace,
    with_arrivals,
    with_interference,
    with_random_run,
    with_speedup,
)


def record(job=1, submit=0, run=100, allocated=8, requested=8, status=1):
    rest = f"-1 -1 {requested} -1 -1 {status} 1 1 1 1 1 -1 -1"
    return f"{job} {submit} -1 {run} {allocated} {rest}\n"


def test_swf_gives_whole_hosts_rounded_up():
    jobs = read_swf([record(allocated=9)], procs_per_node=4).jobs
    assert jobs == [Job("1", 0, 3, 100)]


@pytest.mark.parametrize("unknown", [-1, 0])
def test_swf_takes_the_request_where_the_allocation_is_unknown(unknown):
    assert read_swf([record(allocated=unknown, requested=6)]).jobs[0].hosts == 6


def test_swf_leaves_out_what_is_no_usable_job_and_counts_it():
    workload = read_swf(
        ["; a comment\n", "\n", record(run=0), record(allocated=-1, requested=-1), record(run=-1)]
    )
    assert (len(workload.jobs), workload.malformed, workload.left_out) == (0, [], 3)


HEADERS = [
    ("; MaxNodes: 4\n;MaxProcs: 32\n", 8, "MaxProcs 32 / MaxNodes 4 of the header"),
    ("; MaxNodes: 4 (batch; 6 total)\n; MaxProcs: 4\n", 1, "MaxProcs 4 / MaxNodes 4"),
    ("; MaxNodes: 4\n; MaxProcs: 30\n", 1, "MaxProcs 30 / MaxNodes 4 of the header is not whole"),
    ("; MaxProcs: 30\n", 1, "the header has no MaxNodes"),
    ("; MaxNodes: N/A\n; MaxProcs: 1.5\n", 1, "the header has no MaxProcs and no MaxNodes"),
    ("; MaxNodes: 0\n; MaxProcs: 32\n", 1, "the header has no MaxNodes"),
    ("", 1, "the header has no MaxProcs and no MaxNodes"),
]


@pytest.mark.parametrize(("header", "processors", "source"), HEADERS)
def test_the_header_says_how_many_processors_a_host_has(header, processors, source):
    workload = read_swf([*header.splitlines(keepends=True), record(allocated=16)])
    assert workload.per_host is not None
    assert (workload.per_host.processors, workload.jobs[0].hosts) == (processors, 16 // processors)
    assert source in workload.per_host.source


def test_a_comment_among_the_records_changes_no_size():
    late = ["; MaxNodes: 4\n", record(1), "; MaxProcs: 32\n", record(2)]
    assert [job.hosts for job in read_swf(late).jobs] == [8, 8]


def test_the_option_counts_before_the_header():
    workload = read_swf(["; MaxNodes: 4\n", "; MaxProcs: 32\n", record()], procs_per_node=2)
    assert workload.per_host == (2, "--procs-per-node")
    assert workload.jobs[0].hosts == 4


def test_records_that_are_left_out_are_counted_by_reason():
    lines = [record(run=0), record(run=-1), record(allocated=0, requested=-1), record(submit=-5),
             record(status=5), record(status=5, run=0)]  # fmt: skip
    assert read_swf(lines, clean=True).reasons == {
        "no run time": 2, "no size": 1, "arrival below 0": 1, "cancelled (status 5)": 2,
    }  # fmt: skip
    assert read_csv(["1,0,0,9\n", "2,4,-1,9\n", "3,4,0,9\n"]).reasons == {
        "no size": 1, "arrival below 0": 1,
    }  # fmt: skip


def test_clean_leaves_out_the_cancelled():
    lines = [record(1, status=5), record(2, status=0), record(3, status=1)]
    assert [job.id for job in read_swf(lines).jobs] == ["1", "2", "3"]
    assert [job.id for job in read_swf(lines, clean=True).jobs] == ["2", "3"]


def test_swf_names_malformed_lines_and_goes_on():
    workload = read_swf(["; header\n", "1 2 3\n", record(2), record(3).replace("100", "ten")])
    assert [job.id for job in workload.jobs] == ["2"]
    assert [line for line, _ in workload.malformed] == [2, 4]
    assert workload.malformed[0].why == "3 fields, 18 expected"
    assert "ten" in workload.malformed[1].why


def test_a_job_number_used_twice_stays_two_jobs():
    assert [job.id for job in read_swf([record(7), record(7)]).jobs] == ["7", "7.2"]


def test_a_suffix_does_not_give_two_jobs_the_same_id():
    jobs = read_csv(["7,1,0,9\n", "7,1,0,9\n", "7.2,1,0,9\n", "7,1,0,9\n"]).jobs
    assert len({job.id for job in jobs}) == 4


@pytest.mark.parametrize("mixed", [False, True])
def test_columns_keep_every_number_as_it_was(mixed):
    numbers = [0, 7, 2.5, 3.0, 10**30] if mixed else [0.0, 1.5, 3.0, 4.0, 5.0]
    jobs = [Job(str(x), x, 2, x, 5) for x in numbers]
    kept = Jobs.of(jobs)
    assert kept == jobs
    assert list(map(repr, kept)) == list(map(repr, jobs))


def test_csv_is_id_hosts_arrival_run_time():
    workload = read_csv(["id,hosts,arrival,length\n", "7,4,10,300\n", "8 5 20 400\n", "x,y\n"])
    assert workload.jobs == [Job("7", 10, 4, 300), Job("8", 20, 5, 400)]
    assert [line for line, _ in workload.malformed] == [4]


def test_csv_may_leave_run_times_to_chance():
    jobs = read_csv(["7,4,10\n"]).jobs
    assert jobs[0].run is None
    assert with_random_run(jobs, 20, 30, Random(1))[0].run in range(20, 31)


TEXT = st.text(alphabet="0123456789-+.,;: \tnaif1e\n\x00é", max_size=80)


@given(st.lists(st.one_of(TEXT, st.text(max_size=40), st.builds(record, st.integers()))))
def test_no_text_breaks_a_reader(lines):
    for workload in (read_swf(lines), read_csv(lines)):
        assert all(job.hosts > 0 for job in workload.jobs)
        assert len({job.id for job in workload.jobs}) == len(workload.jobs)
        known = len(workload.jobs) + len(workload.malformed) + workload.left_out
        assert known <= len(lines)


@given(st.binary(max_size=60))
def test_no_bytes_break_reading_a_file(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("trace") / "bad.swf"
    for content in (data, b"\x1f\x8b" + data, gzip.compress(record().encode())[:20] + data):
        path.write_bytes(content)
        with pytest.raises((InvalidInput, InvalidFile)):
            read_trace(str(path))


def test_files_may_be_packed(tmp_path):
    plain, packed = tmp_path / "t.swf", tmp_path / "t.swf.gz"
    plain.write_text(record())
    packed.write_bytes(gzip.compress(record().encode()))
    assert read_trace(str(plain)).jobs == read_trace(str(packed)).jobs


def test_a_missing_file_is_named():
    with pytest.raises(InvalidInput, match=r"nowhere\.swf"):
        read_trace("nowhere.swf")


def test_exponential_sizes_have_about_the_mean_and_stay_within_the_limit():
    sizes = [job.hosts for job in Exponential(16, 4000).draw(1024, Random(3)).jobs]
    assert len(sizes) == 4000
    assert 15.5 < sum(sizes) / len(sizes) < 17.5
    cut = [job.hosts for job in Exponential(16, 4000).draw(20, Random(3)).jobs]
    assert len(cut) == 4000
    assert (min(cut), max(cut)) == (1, 20)


@pytest.mark.parametrize(
    "text", ["exp", "exp:16", "exp:x:5", "exp:0:5", "exp:nan:5", "exp:1:0", ""]
)
def test_other_synthetic_workloads_are_refused_with_an_example(text):
    with pytest.raises(InvalidInput, match="exp:16:10000"):
        Exponential.parse(text)


def test_arrivals_count_from_the_first_and_scale():
    jobs = Jobs.of([Job("b", 110, 1, 1), Job("a", 100, 1, 1)])
    assert [(job.id, job.arrival) for job in with_arrivals(jobs, 0.5)] == [("a", 0), ("b", 5)]
    assert {job.arrival for job in with_arrivals(jobs, 0)} == {0}


def test_jobs_run_like_measured_tenants_of_about_their_size():
    jobs = Jobs.of(Job(str(n), 0, n, 1000) for n in (1, 4, 100) for _ in range(50))
    measured = [(hosts, 1 + hosts / 1000) for hosts in (2, 3, 4, 5, 6, 50, 80, 100, 120, 200)]
    slower = with_interference(jobs, measured, Random(1))
    seen: dict[int, set[float]] = {}
    for job in slower:
        assert job.run is not None
        seen.setdefault(job.hosts, set()).add(round(job.run))
    assert seen == {
        1: {1000},
        4: {1002, 1003, 1004, 1005, 1006},
        100: {1050, 1080, 1100, 1120, 1200},
    }


def test_speedups_are_those_of_the_paper():
    jobs = Jobs.of(Job(str(n), 0, n, 1000) for n in (1, 4, 5, 64, 65, 128) for _ in range(50))

    def saved(scenario):
        faster = with_speedup(jobs, scenario, Random(1))
        gains: dict[int, set[float]] = {}
        for before, after in zip(jobs, faster, strict=True):
            assert before.run is not None
            assert after.run is not None
            gains.setdefault(before.hosts, set()).add(round(1 - after.run / before.run, 6))
        return gains

    assert saved("none") == {n: {0} for n in (1, 4, 5, 64, 65, 128)}
    assert saved("10") == {1: {0}, 4: {0}, 5: {0.1}, 64: {0.1}, 65: {0.1}, 128: {0.1}}
    assert saved("random")[64] == {0}
    assert saved("random")[65] == {0, 0.05, 0.15, 0.3}
    assert saved("v2")[4] == {0}
    assert saved("v2")[128] == {0, 0.1, 0.2, 0.3}
    assert max(saved("v2")[64]) < max(saved("v2")[65])
    assert set(SPEEDUPS) == {"none", "5", "10", "20", "v2", "random"}
