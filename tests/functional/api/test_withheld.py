# SPDX-License-Identifier: Apache-2.0

"""Every refusal that withheld hosts cause names them, whatever its reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from laas_service.domain.allocation import Ground, Refusal, RefusalFacts
from laas_service.domain.compute_hosts import HostMemory, Trouble

ROOT = Path(__file__).parents[3]
NODES = [f"node{number:02}" for number in range(32)]
NEW = "/v1/allocations"
DOWN = "down in Nova"


@dataclass(frozen=True)
class Case:
    """A request that fits unless the hosts are withheld, from after ``prepare`` on."""

    withheld: Sequence[str]
    body: dict[str, Any]
    prepare: Callable[..., Any] | None = None
    at_first: bool = False
    """The hosts are withheld before ``prepare``."""
    path: str = NEW
    budget: int = 4_000_000


def posted(body):
    return lambda client: client.post(f"{NEW}?wait=5", json=body)


def shared(client):
    sharing = {"slots": 2, "bandwidth": 10.0}
    return posted({"name": "part", "hosts": 4, "sharing": sharing})(client)


def queue(client):
    posted({"name": "blue", "hosts": 8})(client)
    return posted({"name": "first", "hosts": 22, "wait": True})(client)


def narrow(client):
    """One uplink is left to the three free hosts beside the last one of "blue"."""
    body = {"name": "blue", "hosts": 5, "constraints": {"undisturbed": "require"}}
    blue = posted(body)(client)
    uplinks = [f"leaf-0-1-{number}" for number in range(4)]
    for link in [link for link in uplinks if link not in blue.json["links"]][:2]:
        client.patch(f"/v1/fabrics/main/links/{link}", json={"state": "failed"})
    return blue


CASES = {
    Refusal.FAULT: Case(["node31"], {"hosts": 32}),
    Refusal.TOO_FEW_HOSTS: Case(
        NODES[5:], {"hosts": 8}, posted({"name": "blue", "hosts": 4}), path=f"{NEW}/allocation-1"
    ),
    Refusal.NO_LEGAL_SHAPE: Case(["node00", "node05"], {"hosts": 30}),
    Refusal.CONSTRAINT: Case(["node31"], {"hosts": 4, "constraints": {"avoid_hosts": NODES[:28]}}),
    Refusal.BUDGET: Case(["node00", "node05"], {"hosts": 19}, budget=1),
    Refusal.DISTURBS: Case(NODES[12:], {"hosts": 5}, narrow),
    Refusal.OTHERS_WAIT: Case(NODES[28:], {"hosts": 2}, queue, at_first=True),
    Refusal.TOO_FEW_SLOTS: Case(
        ["node00"], {"class": "shared", "slots": 8, "bandwidth": 1.0}, shared
    ),
    Refusal.BANDWIDTH: Case(
        ["node00", "node01"], {"class": "shared", "slots": 4, "bandwidth": 10.0}, shared
    ),
}
"""A request for each reason that withheld hosts can cause."""


def withhold(deployment, hosts):
    memory = HostMemory({name: Trouble(DOWN, 0.0, withheld=True) for name in hosts})
    deployment.store.faults.judge_hosts("main", lambda before: memory)


def asked(client, case):
    method = client.post if case.path == NEW else client.patch
    name = {"name": "new"} if case.path == NEW else {}
    return method(case.path, json={**name, **case.body, "dry_run": True})


@pytest.mark.parametrize("reason", CASES, ids=lambda reason: reason.value)
@pytest.mark.parametrize("withheld", [True, False], ids=["withheld", "not withheld"])
def test_a_refusal_that_withheld_hosts_cause_names_them(deployment, reason, withheld):
    case = CASES[reason]
    client = deployment.client(search_budget=case.budget)
    if case.at_first and withheld:
        withhold(deployment, case.withheld)
    if case.prepare is not None:
        assert case.prepare(client).status_code == 202
    if withheld:
        withhold(deployment, case.withheld)
    answer = asked(client, case)
    if not withheld and reason.unproven:
        assert "withheld" not in answer.json.get(
            "detail", ""
        )  # they may have caused it, nobody knows
        return
    if not withheld:
        assert answer.status_code == 200, answer.text
        return
    assert (answer.status_code, answer.json["code"]) == (409, reason.value)
    assert "; withheld hosts: " in answer.json["detail"]
    assert f"{case.withheld[0]} ({DOWN})" in answer.json["detail"]


def test_every_reason_but_a_quota_names_withheld_hosts():
    naming = {reason for reason in Refusal if reason.facts.names_withheld}
    assert naming == {*CASES}
    rest = {reason for reason in Refusal if reason.facts.ground is not Ground.PROJECT}
    assert naming == rest


def test_a_quota_names_no_withheld_hosts(deployment, client):
    withhold(deployment, NODES[28:])
    deployment.compute.limits["project"] = 10
    body = {"name": "a", "hosts": 11, "project_id": "project"}
    refused = client.post(NEW, json=body).json
    assert (refused["code"], "withheld" in refused["detail"]) == ("quota", False)
    assert refused["largest_fit"] == 10


def test_hosts_outside_the_parent_are_not_named(deployment, client):
    shared(client)
    withhold(deployment, ("node00", "node31"))
    body = {"name": "new", "class": "shared", "slots": 8, "bandwidth": 1.0}
    for answer in (client.post(NEW, json=body), client.post(NEW, json={**body, "dry_run": True})):
        assert answer.json["detail"].endswith(f"; withheld hosts: node00 ({DOWN})")


def test_a_change_of_slots_names_them_too(deployment, client):
    shared(client)
    body = {"name": "red", "class": "shared", "slots": 6, "bandwidth": 1.0}
    id = client.post(f"{NEW}?wait=5", json=body).json["id"]
    free = {"node00", "node01", "node02", "node03"}
    withhold(deployment, free)
    for dry_run in (False, True):
        refused = client.patch(f"{NEW}/{id}", json={"slots": 8, "dry_run": dry_run})
        assert refused.status_code == 409
        assert "; withheld hosts: node00" in refused.json["detail"]


# -- reasons are values --------------------------------------------------------------


def test_a_reason_says_what_it_is_about_or_is_not_accepted():
    with pytest.raises(TypeError, match="names_withheld"):
        RefusalFacts(code="new", words="new", ground=Ground.FABRIC, room_helps=True)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="code"):
        vars(Refusal)["__new_member__"](Refusal, "new")


def test_nothing_picks_reasons_by_name():
    """A comparison with one reason would leave out the next one; its facts say what it is."""
    picked = [
        f"{path.name}:{node.lineno}"
        for path in sorted((ROOT / "laas_service").rglob("*.py"))
        if "fabric_import" not in path.parts  # refusals of files are another enumeration
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        and "Refusal" in {getattr(part, "id", "") for part in ast.walk(node)}
    ]
    assert picked == []


@pytest.mark.parametrize("reason", Refusal, ids=lambda reason: reason.value)
def test_the_users_guide_has_the_words_of_each_reason(reason):
    text = re.sub(r"\s+", " ", (ROOT / "doc/source/user/rest.rst").read_text())
    assert f"* ``{reason.value}``: {reason.facts.words}" in text
