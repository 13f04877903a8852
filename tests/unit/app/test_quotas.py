# SPDX-License-Identifier: Apache-2.0

"""Quotas of a project: its usage, its allocations, and its servers in Nova."""

import pytest

from laas_service.app.lifecycle import State
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.quotas import ProjectLimits, too_few_servers
from laas_service.app.records import Caller, Limits
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import Refusal
from laas_service.domain.errors import Forbidden, InvalidInput, Unavailable
from tests.fakes import FakeCompute
from tests.unit.app.memory import Memory

ADMIN = Caller("admin", "root", admin=True, request_id="r")
MEMBER = Caller("blue", "user", admin=False, request_id="r")


@pytest.fixture
def memory():
    return Memory("f")


@pytest.fixture
def compute():
    return FakeCompute()


def quotas(memory, compute, **options):
    return ProjectLimits(memory, compute, limits=Limits(hosts=8), **options)


def request(hosts=4, **values):
    return AllocationRequest(**{"name": "a", "hosts": hosts, "project_id": "blue", **values})


def test_a_project_sees_its_own_usage_alone(memory, compute):
    memory.add("a", "blue", hosts=3)
    made = quotas(memory, compute)
    assert (made.usage(MEMBER).hosts, made.usage(ADMIN, "blue").hosts) == (3, 3)
    with pytest.raises(Forbidden):
        made.usage(MEMBER, "red")
    with pytest.raises(InvalidInput):
        made.usage(Caller("", "user", admin=True, request_id="r"))


def test_new_limits_hold_after_a_reload(memory, compute):
    made = quotas(memory, compute)
    made.limits = Limits(hosts=2)
    assert made.usage(MEMBER).limits == made.limits == Limits(hosts=2)


def test_a_second_allocation_is_refused_where_a_project_may_have_one(memory, compute):
    for number in range(4):
        memory.add(f"gone{number}", "blue", state=State.RELEASED)
        memory.add(f"container{number}", "blue", container=True)
    made = quotas(memory, compute, one_per_project=True)
    assert made.second_allocation(request()) is None
    memory.add("live", "blue", state=State.QUEUED)
    refusal = made.second_allocation(request())
    assert refusal is not None
    assert (refusal.reason, refusal.largest_fit) == (Refusal.QUOTA, 0)
    assert "has allocation live already" in refusal.detail
    assert made.second_allocation(request(container=True)) is None
    assert made.second_allocation(request(project_id="red")) is None
    assert quotas(memory, compute).second_allocation(request()) is None


def test_no_more_hosts_than_servers(memory, compute):
    compute.limits["blue"] = 3
    made = quotas(memory, compute)
    assert made.server_limit(request()) == 3
    assert made.server_limit(request(container=True)) is None
    refusal = too_few_servers(request(4), 3)
    assert refusal is not None
    assert refusal.reason is Refusal.QUOTA
    assert too_few_servers(request(3), 3) is None
    assert too_few_servers(request(4), None) is None


def test_an_unknown_server_limit_skips_the_check(memory, compute):
    compute.faults.before["server_limit"] = Unavailable("Nova is away")
    assert quotas(memory, compute).server_limit(request()) is None


def test_every_allocation_is_read_page_by_page(memory):
    ids = [memory.add(f"a{number}", "blue").id for number in range(5)]
    memory.add("other", "red")
    assert [record.id for record in every_allocation(memory.allocations, project_id="blue")] == ids


@pytest.mark.parametrize("undone", [["a1"], ["a0", "a1"], ["a1", "a2", "a3", "a4"]])
def test_reading_goes_on_although_a_failover_undid_the_end_of_a_page(memory, undone):
    ids = [memory.add(f"a{number}", "blue").id for number in range(5)]
    pages = every_allocation(memory.allocations, project_id="blue")
    read = [next(pages).id, next(pages).id]
    for id in undone:
        memory.undo(id)
    read += [record.id for record in pages]
    assert read == ids[:2] + [id for id in ids[2:] if id not in undone]
