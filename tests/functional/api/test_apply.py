# SPDX-License-Identifier: Apache-2.0

"""``laas apply``: the lines of ``laas-plan`` carried out on the service."""

from __future__ import annotations

import json

import pytest

from laas_service.client.rest import Unreachable
from tests.functional.api.test_mistakes import Direct, laas

__all__ = ["laas"]


@pytest.fixture
def apply(laas, tmp_path):
    """Apply lines; the exit status, the answers, and what was said of mistakes."""

    def run(*lines, options="--yes"):
        file = tmp_path / "lines"
        file.write_text(
            "\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines)
        )
        status, out, err = laas(f"apply {file} {options}")
        return status, [json.loads(line) for line in out.splitlines()], err

    return run


def names(client):
    listed = client.get("/v1/allocations").json["allocations"]
    own = {"sky", "sea", "all"}
    return {
        one["name"]: one["requested"]
        for one in listed
        if one["name"] in own and one["state"] != "releasing"
    }


def test_what_was_planned_is_done_in_order(apply, client):
    status, answers, err = apply(
        {"op": "allocate", "id": "sky", "hosts": 3, "constraints": {"within": "pod"}},
        {"op": "probe", "hosts": 4, "note": "kept"},
        {"op": "fail", "host": "node31"},
        {"op": "repair", "host": "node31"},
    )
    assert (status, err) == (0, ""), answers
    assert [answer["outcome"] for answer in answers] == ["allocated", "fits", "ok", "ok"]
    assert answers[0]["n"] == 3 == len(answers[0]["hosts"])
    assert answers[1]["note"] == "kept"
    assert names(client) == {"sky": 3}
    states = {
        host["name"]: host["state"] for host in client.get("/v1/fabrics/main/hosts").json["hosts"]
    }
    assert states["node31"] == "up"


def test_a_refusal_does_not_stop_the_others(apply, client):
    status, answers, _ = apply(
        {"op": "allocate", "id": "all", "hosts": 99},
        {"op": "release", "id": "nobody"},
        {"op": "allocate", "id": "sea", "hosts": 2},
    )
    assert status == 3, "the first refusal's"
    assert [answer["outcome"] for answer in answers] == ["refused", "refused", "allocated"]
    assert answers[0]["reason"] == "too_few_hosts"
    assert names(client) == {"sea": 2}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: give one JSON object a line"),
        ("[]", "line 2: give one JSON object a line"),
        ({"op": "probes", "hosts": 1}, "did you mean probe"),
        ({"op": "release"}, "id: None is not valid; give a name"),
        (
            {"op": "resize", "id": "sky", "hosts": "4"},
            "hosts: '4' is not valid; give a whole number",
        ),
        ({"op": "fail", "host": 7}, "host: 7 is not valid; give a name"),
        ({"op": "withhold", "l2": [0]}, "op: 'withhold' is not known here"),
    ],
)
def test_a_line_that_cannot_be_read_changes_nothing(apply, client, line, said):
    status, answers, err = apply({"op": "allocate", "id": "sky", "hosts": 3}, line)
    assert (status, answers) == (2, [])
    assert said in err
    assert names(client) == {}


def test_the_line_is_named_at_which_the_service_is_lost(apply, client, monkeypatch):
    """With what it answered, or did not; the lines after it are not done."""

    def lost(self, path, method, *args, **kwargs):
        if method == "POST" and kwargs["json"]["name"] == "sea":
            raise Unreachable("cannot reach the service: Connection refused")
        return direct(self, path, method, *args, **kwargs)

    direct = Direct.request
    monkeypatch.setattr(Direct, "request", lost)
    status, answers, err = apply(
        {"op": "allocate", "id": "sky", "hosts": 3},
        "",
        {"op": "allocate", "id": "sea", "hosts": 2},
        {"op": "allocate", "id": "all", "hosts": 1},
    )
    assert (status, len(answers)) == (6, 1)
    assert "line 3: cannot reach the service: Connection refused" in err
    assert "the lines after it are not done" in err
    assert names(client) == {"sky": 3}


def test_giving_hosts_back_wants_consent(apply, client):
    assert apply({"op": "allocate", "id": "sky", "hosts": 3})[0] == 0
    status, _, err = apply({"op": "release", "id": "sky"}, options="")
    assert (status, "give --yes" in err) == (2, True), err
    assert names(client) == {"sky": 3}
    status, (answer,), _ = apply({"op": "release", "id": "sky"})
    assert (status, answer["outcome"]) == (0, "released")
    assert names(client) == {}


def test_a_file_that_is_not_there(laas):
    status, _, err = laas("apply nowhere.jsonl")
    assert (status, "nowhere.jsonl cannot be read" in err) == (2, True), err
