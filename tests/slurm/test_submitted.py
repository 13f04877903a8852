# SPDX-License-Identifier: Apache-2.0

"""What people submit: words for what is refused, and what happens to the rest."""

from __future__ import annotations

import pytest

from tests.slurm.cluster import AVAILABLE, Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="needs slurmctld, slurmd, and root")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("site"), retry=1, start_timeout=4) as cluster:
        cluster.start_daemon()
        yield cluster


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-N1", "-p", "links,plain"), "name one partition"),
        (("-N1", "-w", "node03"), "leave out --nodelist"),
        (("-N1", "-C", "[even|odd]"), "use only & or |"),
        (("-N1", "--oversubscribe"), "leave out --oversubscribe"),
        (("-N1", "-L", "laas_gate:1"), "is not for jobs"),
        (("-N1", "--reservation=laas_gate"), "leave out --reservation"),
        (("-N1", "-p", "plain", "-L", "laas_gate:1"), "is not for jobs"),
    ],
    ids=lambda words: words if isinstance(words, str) else "",
)
def test_refused_in_words(cluster, words, said):
    with pytest.raises(RuntimeError, match=f"laas: .*{said.replace('|', '[|]')}"):
        cluster.submit(*words)


def test_other_partitions_notice_nothing(cluster):
    job = cluster.submit("-N2", "-p", "plain", "-L", "other:1", seconds=0)
    assert cluster.jobs()[job]["licenses"] == "other:1"
    eventually(lambda: cluster.state(job) == "COMPLETED", cluster.told)


def test_shapes_of_jobs(cluster):
    """Ranges, tasks, features, excluded nodes, licences of their own, arrays, and srun."""
    jobs = [
        cluster.submit("-N", "2-4"),
        cluster.submit("--ntasks=9"),
        cluster.submit("-N3", "-C", "even"),
        cluster.submit("-N3", "-x", "node[00-15]"),
        cluster.submit("-N1", "-L", "other:2"),
    ]
    array = cluster.submit("-N2", "--array=1-5%2", seconds=0)
    interactive = ("srun", "-t5", "-N3", "-p", "links", "sh", "-c", "echo $SLURM_JOB_NODELIST")
    assert cluster.run(*interactive)
    cluster.wait(jobs)
    tasks = [id for id, job in cluster.jobs().items() if job["array_job_id"] == array]
    assert len(tasks) == 5
    cluster.wait(tasks)
    cluster.wait_until_free()
    assert not cluster.violations([*jobs, *tasks])
    ran = {seen["job"]: seen["nodes"] for seen in cluster.witnessed()}
    assert [len(ran[job]) for job in jobs] == [2, 3, 3, 3, 1]
    assert all(int(node[4:]) % 2 == 0 for node in ran[jobs[2]])
    assert all(int(node[4:]) > 15 for node in ran[jobs[3]])
