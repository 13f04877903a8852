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
