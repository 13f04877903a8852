# SPDX-License-Identifier: Apache-2.0

"""What people submit: words for what is refused, and what happens to the rest."""

from __future__ import annotations

import pytest

from tests.slurm.cluster import AVAILABLE, Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="needs slurmctld, slurmd, and root")


NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
"""Runs a command as a user without rights; auth/none believes the number."""


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
        (("-N1", "--exclusive=user"), "leave out --oversubscribe"),
        (("-N1", ":", "-N2"), "submit its parts as jobs of their own"),
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


def test_the_queue_is_in_slurms_order_with_its_time_limits(cluster):
    """A priority and a time limit that change while the jobs wait are those of the queue."""
    first = cluster.submit("-N32", seconds=600)
    cluster.wait_for_start(first)
    jobs = [cluster.submit("-N32", seconds=0) for _ in range(3)]

    def queue():
        waiting = [own for own in cluster.allocations() if own["state"] == "queued"]
        return [
            (own["name"], own["duration"])
            for own in sorted(waiting, key=lambda own: own.get("position", 0))
        ]

    names = [f"job-{job}" for job in jobs]
    eventually(lambda: [name for name, _ in queue()] == names, cluster.told)
    cluster.run("scontrol", "update", f"JobId={jobs[2]}", "Priority=100000")
    cluster.run("scontrol", "update", f"JobId={jobs[1]}", "TimeLimit=7")
    wanted = [(f"job-{jobs[2]}", 600), (f"job-{jobs[0]}", 600), (f"job-{jobs[1]}", 420)]
    eventually(lambda: queue() == wanted, cluster.told)
    cluster.run("scancel", str(first))
    cluster.wait(jobs)
    cluster.wait_until_free()
    assert not cluster.violations(jobs)
    starts = [s["job"] for s in cluster.witnessed() if s["moment"] == "start" and s["job"] in jobs]
    assert starts == [jobs[2], jobs[0], jobs[1]]


def test_a_job_waits_for_another_without_holding_hosts(cluster):
    first = cluster.submit("-N2", seconds=600)
    cluster.wait_for_start(first)
    second = cluster.submit("-N2", f"--dependency=afterany:{first}", seconds=0)
    third = cluster.submit("-N2", seconds=0)  # the rounds go on
    cluster.wait([third])
    assert f"job-{second}" not in {own["name"] for own in cluster.allocations()}
    cluster.run("scancel", str(first))
    cluster.wait([second])
    cluster.wait_until_free()
    assert not cluster.violations([second, third])


def test_jobs_that_are_cancelled_leave_nothing(cluster):
    """While one runs, another is queued, and before a third is offered."""
    running = cluster.submit("-N30", seconds=600)
    cluster.wait_for_start(running)
    queued = cluster.submit("-N3", seconds=0)
    eventually(lambda: len(cluster.allocations()) == 2, cluster.told)
    new = cluster.submit("-N1", seconds=0)
    cluster.run("scancel", str(new), str(queued), str(running))
    cluster.wait_until_free()
    assert {cluster.state(job) for job in (running, queued, new)} == {"CANCELLED"}


def test_salloc_runs_its_steps_on_its_own_hosts(cluster):
    steps = "srun --overlap sh -c 'echo $SLURM_JOB_ID $SLURMD_NODENAME'"
    told = cluster.run("salloc", "-N3", "-t5", "-p", "links", "sh", "-c", f"{steps}; {steps}")
    seen = [line.split() for line in told.splitlines()]
    assert len(seen) == 6
    assert len({node for _, node in seen}) == 3
    cluster.wait_until_free()


def test_hosts_of_others_are_avoided(cluster):
    """Nodes that are reserved, and those on which a job of another partition runs: one pod."""
    other = cluster.submit("-N8", "-p", "plain", "-w", "node[00-07]", seconds=600)
    cluster.wait_for_start(other)
    what = ("Users=root", "StartTime=now", "Duration=10", "Nodes=node[08-15]", "Flags=MAINT")
    cluster.run("scontrol", "create", "reservation", "ReservationName=theirs", *what)
    try:
        job = cluster.submit("-N16", "-t1", seconds=0)
        cluster.wait([job])
    finally:
        cluster.run("scontrol", "delete", "ReservationName=theirs")
        cluster.run("scancel", str(other))
    cluster.wait_until_free()
    assert not cluster.violations([job])
    ran = next(seen for seen in cluster.witnessed() if seen["job"] == job)
    assert ran["nodes"] == [f"node{n}" for n in range(16, 32)]


def test_users_cannot_lift_the_gate(cluster):
    cluster.run("scontrol", "update", "PartitionName=links", "State=DOWN")
    job = int(
        cluster.run(*NOBODY, "sbatch", "--parsable", "-D/tmp", "-N1", "-t5", "--wrap=sleep 0")
    )
    for change in ("Partition=plain", "ReqNodeList=node00", "Features=odd", "Licenses="):
        with pytest.raises(RuntimeError, match=r"owns its links stay|denied"):
            cluster.run(*NOBODY, "scontrol", "update", f"JobId={job}", change)
    cluster.run(*NOBODY, "scontrol", "hold", str(job))
    eventually(lambda: not cluster.allocations(), cluster.told)
    cluster.run("scontrol", "update", "PartitionName=links", "State=UP")
    cluster.run(*NOBODY, "scontrol", "release", str(job))
    cluster.wait([job])
    cluster.wait_until_free()


def test_the_prolog_lets_no_job_start_elsewhere(cluster):
    """root lifts the gate for hosts that are not the job's: it waits again, and runs on its own."""
    cluster.kill_daemon()
    job = cluster.submit("-N2")
    cluster.run("scontrol", "update", f"JobId={job}", "Licenses=", "ReqNodeList=node07,node08")
    prolog = cluster.controller.directory / "prolog.log"
    eventually(
        lambda: prolog.exists() and f"job {job} has no confirmed" in prolog.read_text(),
        cluster.told,
    )
    cluster.start_daemon()
    cluster.wait([job])
    cluster.wait_until_free()
    assert not cluster.violations([job])


def test_a_drained_node_is_avoided(cluster):
    cluster.run("scontrol", "update", "NodeName=node00", "State=DRAIN", "Reason=test")
    job = cluster.submit("-N31")
    cluster.wait([job])
    cluster.run("scontrol", "update", "NodeName=node00", "State=RESUME")
    cluster.wait_until_free()
    assert not cluster.violations([job])
    ran = next(seen for seen in cluster.witnessed() if seen["job"] == job)
    assert "node00" not in ran["nodes"]


def test_a_requeued_job_and_a_node_that_fails(cluster):
    job = cluster.submit("-N4", "--requeue", seconds=4)
    eventually(lambda: any(s["job"] == job for s in cluster.witnessed()), cluster.told)
    cluster.run("scontrol", "requeue", str(job))
    eventually(
        lambda: sum(s["job"] == job and s["moment"] == "start" for s in cluster.witnessed()) == 2,
        cluster.told,
    )
    lost = next(s for s in reversed(cluster.witnessed()) if s["job"] == job)["nodes"][-1]
    cluster.stop_node(lost)
    cluster.run("scontrol", "update", f"NodeName={lost}", "State=DOWN", "Reason=test")
    cluster.wait([job])
    cluster.start_node(lost)
    cluster.run("scontrol", "update", f"NodeName={lost}", "State=RESUME")
    cluster.wait_until_free()
    last = [s for s in cluster.witnessed() if s["job"] == job][-1]
    assert lost not in last["nodes"]
    assert [hosts for _, state, hosts in last["owned"] if state == "active"] == [last["nodes"]]


def test_status_and_off(cluster):
    jobs = [cluster.submit("-N20", seconds=3) for _ in range(2)]
    cluster.wait_for_start(jobs[0])
    assert '"gated": 1' in cluster.laas_slurm("status", "--json")
    cluster.kill_daemon()
    cluster.laas_slurm("off")
    assert not cluster.allocations()
    shown = cluster.jobs()
    assert not any("laas_gate" in shown[job]["licenses"] for job in jobs)
