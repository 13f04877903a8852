# SPDX-License-Identifier: Apache-2.0

"""Names in a request are resolved, and an error quotes an unknown one."""

import pytest

from laas_service.app.lifecycle import State
from laas_service.app.lookup import Lookup
from laas_service.app.ports.projects import Projects
from laas_service.app.records import Caller
from laas_service.app.requests import AllocationRequest
from laas_service.domain.constraints import Constraints
from laas_service.domain.errors import Forbidden, InvalidInput, NotFound
from laas_service.domain.policies.base import Policy
from laas_service.domain.policies.baseline import Baseline
from laas_service.domain.policies.jigsaw import Jigsaw
from tests.unit.app.memory import Memory

ADMIN = Caller("admin", "root", admin=True, request_id="r")
MEMBER = Caller("blue", "user", admin=False, request_id="r")
POLICIES: dict[str, Policy] = {"jigsaw": Jigsaw(), "baseline": Baseline()}


def lookup(memory, **options):
    return Lookup(memory, POLICIES, Projects(), **{"default_policy": "jigsaw", **options})


def test_the_default_policy_must_be_offered():
    with pytest.raises(InvalidInput, match="baseline, jigsaw"):
        lookup(Memory("f"), default_policy="laas")


def test_policies():
    made = lookup(Memory("f"))
    assert (made.policy("").name, made.policy("baseline").name) == ("jigsaw", "baseline")
    with pytest.raises(InvalidInput, match="policy"):
        made.policy("laas")


def fabric(memory, id, **options):
    made = lookup(memory, **options)
    return made.fabric(made.read(AllocationRequest(name="a", hosts=1)), id)


def test_fabrics():
    assert fabric(Memory("f"), "") == "f"
    assert fabric(Memory("f", "g"), "g") == "g"
    assert fabric(Memory("f", "g"), "", default_fabric="g") == "g"
    with pytest.raises(InvalidInput, match="name a fabric out of: f, g"):
        fabric(Memory("f", "g"), "")
    with pytest.raises(NotFound):
        fabric(Memory(), "")
    with pytest.raises(NotFound):
        fabric(Memory("f"), "h")
    with pytest.raises(NotFound):
        fabric(Memory("f"), "", default_fabric="h")


def test_projects():
    made = lookup(Memory("f"))
    assert (made.project(MEMBER, ""), made.project(ADMIN, "red")) == ("blue", "red")
    with pytest.raises(Forbidden):
        made.project(MEMBER, "red")
    with pytest.raises(InvalidInput):
        made.project(Caller("", "user", admin=True, request_id="r"), "")


def test_tenants_find_their_own_allocations_alone():
    memory = Memory("f")
    memory.add("a", "red")
    made = lookup(memory)
    assert made.allocation(ADMIN, "a").id == "a"
    with pytest.raises(NotFound):
        made.allocation(MEMBER, "a")


def test_containers():
    memory = Memory("f", "g")
    memory.add("c", "blue", container=True)
    memory.add("plain", "blue")
    memory.add("leaving", "blue", container=True, state=State.RELEASING)
    memory.add("red", "red", container=True)
    made = lookup(memory)

    def container(caller, id, fabric=""):
        asked = AllocationRequest(name="a", hosts=1, fabric=fabric, parent=id)
        return made.container(caller, made.read(asked), asked).id

    assert container(MEMBER, "c") == container(MEMBER, "c", "f") == "c"
    assert container(ADMIN, "red") == "red"
    for hidden in ("red", "nobody"):
        with pytest.raises(NotFound, match=hidden):
            container(MEMBER, hidden)
    for id, fabric, field in (
        ("plain", "", "parent"),
        ("leaving", "", "parent"),
        ("c", "g", "fabric"),
    ):
        with pytest.raises(InvalidInput) as refused:
            container(MEMBER, id, fabric)
        assert refused.value.field == field


def test_hosts_to_avoid_become_numbers():
    memory = Memory("f")
    names = memory.fabrics.get("f").inventory.host_names
    made = lookup(memory)
    wish = AllocationRequest(name="a", hosts=1)
    here = made.read(wish).possible["f"]
    assert made.constraints(here, wish) is None
    asked = AllocationRequest(
        name="a", hosts=1, avoid=(names[3],), constraints=Constraints(avoid_hosts=frozenset({5}))
    )
    found = made.constraints(here, asked)
    assert found is not None
    assert found.avoid_hosts == {3, 5}
    with pytest.raises(InvalidInput, match="no host of this name"):
        made.constraints(here, AllocationRequest(name="a", hosts=1, avoid=("nobody",)))
