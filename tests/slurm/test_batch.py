# SPDX-License-Identifier: Apache-2.0

"""Batch jobs start on the hosts of their own allocations, whatever is killed, and leave nothing."""

from __future__ import annotations

import random
import time

import pytest

from tests.slurm.cluster import AVAILABLE, Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="needs slurmctld, slurmd, and root")


JOBS, KILLS = 30, 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("site"), retry=1, start_timeout=20) as cluster:
        cluster.start_daemon()
        yield cluster


def test_a_job_runs_on_its_own_allocation(cluster):
    job = cluster.submit("-N", "5", seconds=3)
    cluster.wait([job], "RUNNING")
    (own,) = cluster.allocations()
    assert own["name"] == f"job-{job}"
    nodes = {n["nodename"] for n in cluster.jobs()[job]["job_resources"]["allocated_nodes"]}
    assert {host["name"] for host in own["hosts"]} == nodes
    assert cluster.jobs()[job]["admin_comment"].startswith(f"laas open {own['id']} ")
    cluster.wait([job])
    cluster.wait_until_free()
    assert not cluster.violations([job])


def test_many_jobs_while_the_daemon_is_killed_again_and_again(cluster):
    rng = random.Random(7)
    sizes = [min(32, 1 + int(rng.expovariate(1 / 6))) for _ in range(JOBS)]
    jobs = [cluster.submit("-N", str(size), seconds=rng.uniform(0.5, 2)) for size in sizes]
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.5, 3))
        cluster.kill_daemon()
        cluster.start_daemon()
    cluster.wait(jobs)
    cluster.wait_until_free()
    assert not cluster.violations(jobs)


def test_a_controller_that_restarts_loses_no_job(cluster):
    jobs = [cluster.submit("-N", "6", seconds=8) for _ in range(8)]
    cluster.wait_until_saved()
    cluster.wait_for_start(jobs[0])
    for _ in range(2):  # each time it may have forgotten that jobs run
        cluster.kill_controller()
        time.sleep(1)  # between two looks
    cluster.wait(jobs)
    cluster.wait_until_free()
    assert not cluster.violations(jobs)


def test_a_job_that_the_controller_forgot_keeps_its_allocation_while_it_runs(cluster):
    """slurmctld is killed before it saved the job, and the nodes cannot tell it for a while."""
    saved = cluster.saved_state()
    job = cluster.submit("-N", "3", seconds=600)
    cluster.wait_for_start(job)
    (own,) = cluster.allocations()
    with cluster.silent_nodes():
        cluster.kill_controller(saved)
        assert job not in cluster.jobs()
        said = f"allocation {own['id']} of job {job} is kept"
        eventually(lambda: said in cluster.said(), cluster.told)
        assert cluster.allocations()
    cluster.wait_until_free()  # the nodes register, slurmctld ends the job, and they say so
    runs = [seen for seen in cluster.witnessed() if seen["job"] == job]
    assert all([hosts for *_, hosts in seen["owned"]] == [seen["nodes"]] for seen in runs)
