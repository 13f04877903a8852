# SPDX-License-Identifier: Apache-2.0

"""Commands about many hosts at once: lists, globs and leaves."""

from __future__ import annotations

import pytest

from tests.functional.api.test_mistakes import laas

__all__ = ["laas"]


@pytest.fixture
def drained(client):
    """The names of the hosts that are drained."""

    def listed():
        hosts = client.get("/v1/fabrics/main/hosts?state=drained").json["hosts"]
        return [host["name"] for host in hosts]

    return listed


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("node[08-10]", ["node08", "node09", "node10"]),
        ("node08,node1[0-1] node12", ["node08", "node10", "node11", "node12"]),
        ("'node3*'", ["node30", "node31"]),
        ("'node3?' node30", ["node30", "node31"]),
        ("leaf-1-3", ["node28", "node29", "node30", "node31"]),
        ("node00 leaf-1-3", ["node00", "node28", "node29", "node30", "node31"]),
        ("node08", ["node08"]),
    ],
)
def test_many_hosts_are_drained_and_repaired_at_once(laas, drained, words, names):
    status, out, err = laas(f"--json host drain {words} --yes")
    assert status == 0, err
    assert drained() == names
    status, out, _ = laas(f"host repair {words}")
    assert status == 0
    assert drained() == []
    if len(names) > 1:
        assert [line.split()[1] for line in out.splitlines()[3:-1]] == names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("node[08-40]", "has no host or leaf 'node32'"),
        ("node08 nod09", "did you mean node09"),
        ("'x*'", "has no host or leaf 'x*'"),
        ("node[8-", "write it such as node[001-064]"),
        ("nobody", "nobody"),
    ],
)
def test_a_list_with_an_unknown_host_changes_nothing(laas, drained, words, said):
    status, _, err = laas(f"host drain {words} --yes")
    assert status != 0
    assert said in err
    assert drained() == []


def test_several_hosts_want_consent_and_one_does_not(laas, drained):
    status, _, err = laas("host fail node[08-09]")
    assert status == 2
    assert "fail 2 hosts: node08, node09" in err
    assert "--yes" in err
    assert drained() == []
    assert laas("host drain node08")[0] == 0
    assert drained() == ["node08"]
