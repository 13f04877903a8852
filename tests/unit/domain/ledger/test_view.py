# SPDX-License-Identifier: Apache-2.0

"""A reader of the ledger cannot write to it: the type checker refuses.

The functions below are never called. Each ``type: ignore`` stands where mypy has to find an
error. If a write through ``LedgerView`` were allowed, mypy would report the comment as unused.
"""

from __future__ import annotations

import inspect

from laas_service.domain.allocation import Allocation
from laas_service.domain.common_plane import NO_PLANE
from laas_service.domain.features import PLAIN_HOSTS
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.topology import LeafLink
from tests.unit.domain.policies.test_brute_force import TREES

VERBS = {
    *("claim", "release", "change", "withhold", "trial", "describe_hosts"),
    *("fail_host", "drain_host", "repair_host", "fail_link", "repair_link"),
}


def read(view: LedgerView) -> tuple[object, ...]:
    copy: Ledger = view.flattened()
    copy.release("x")
    return view.free_hosts[0], view.allocations["x"], view.ledger("x").free_spines[0]


def assign(view: LedgerView) -> None:
    view.free_hosts = []  # type: ignore[misc]
    view.free_host_count = 0  # type: ignore[misc]
    view.pod_freed = []  # type: ignore[misc]
    view.features = PLAIN_HOSTS  # type: ignore[misc]
    view.shared_plane = NO_PLANE  # type: ignore[misc]


def change_in_place(view: LedgerView, allocation: Allocation) -> None:
    view.free_hosts[0] = 0  # type: ignore[index]
    view.free_uplinks[0] |= 1  # type: ignore[index]
    view.free_spines.append(1)  # type: ignore[attr-defined]
    view.groups_by_free[0] = 0  # type: ignore[index]
    view.pod_groups_by_free[0][0] = 0  # type: ignore[index]
    view.pod_free_hosts[0] = 0  # type: ignore[index]
    view.odd_groups[0] = 0  # type: ignore[index]
    view.pod_freed[0] += 1  # type: ignore[index]
    view.allocations["x"] = allocation  # type: ignore[index]
    view.failed_hosts.add(0)  # type: ignore[attr-defined]
    view.drained_hosts.discard(0)  # type: ignore[attr-defined]
    view.failed_links.clear()  # type: ignore[attr-defined]
    view.inside["x"] = Ledger(view.topology)  # type: ignore[index]


def call_a_verb(view: LedgerView, allocation: Allocation) -> None:
    view.claim(allocation)  # type: ignore[attr-defined]
    view.release("x")  # type: ignore[attr-defined]
    view.change(allocation)  # type: ignore[attr-defined]
    view.withhold(NO_PLANE)  # type: ignore[attr-defined]
    view.trial()  # type: ignore[attr-defined]
    view.describe_hosts({})  # type: ignore[attr-defined]
    view.fail_host(0)  # type: ignore[attr-defined]
    view.drain_host(0)  # type: ignore[attr-defined]
    view.repair_host(0)  # type: ignore[attr-defined]
    view.fail_link(LeafLink(0, 0, 0))  # type: ignore[attr-defined]
    view.repair_link(LeafLink(0, 0, 0))  # type: ignore[attr-defined]
    view.ledger("x").release("y")  # type: ignore[attr-defined]
    view.holder("x").release("x")  # type: ignore[attr-defined]
    next(view.ledgers()).release("x")  # type: ignore[attr-defined]


def test_the_view_has_no_verb_and_no_property_that_can_be_set():
    members = {name: value for name, value in vars(LedgerView).items() if name[0] != "_"}
    assert members.keys().isdisjoint(VERBS)
    assert all(
        value.fset is None if isinstance(value, property) else inspect.isfunction(value)
        for value in members.values()
    )


def test_a_ledger_has_all_that_its_view_shows():
    ledger = Ledger(TREES["three levels"])
    view: LedgerView = ledger
    assert set(dir(ledger)) >= VERBS
    assert {name for name in vars(LedgerView) if name[0] != "_"} <= set(dir(view))
