# SPDX-License-Identifier: Apache-2.0

"""A single host or link has the same view as in the list of all."""

from datetime import UTC, datetime

import pytest

from laas_service.adapters.fabric_import.generator import inventory
from laas_service.app.records import FabricRecord
from laas_service.app.views import inventory as view
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.topology import Topology, Xgft, parse_link

TOPOLOGY = Topology(Xgft((4, 4, 2), (1, 4, 4)))
FABRIC = FabricRecord("f", TOPOLOGY, inventory(TOPOLOGY), 1, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def ledger():
    ledger = Ledger(TOPOLOGY)
    answer = Jigsaw().propose(ledger, Request("blue", 6))
    assert isinstance(answer, Allocation)
    ledger.claim(answer)
    ledger.fail_host(30)
    ledger.fail_link(parse_link("leaf-1-3-0"))
    return ledger


def test_one_host(ledger):
    listed = {entry.index: entry for entry in view.hosts(FABRIC, ledger)}
    assert {view.host(FABRIC, ledger, number) for number in listed} == {*listed.values()}
    assert [entry.index for entry in view.hosts(FABRIC, ledger, numbers=(30, 0))] == [0, 30]


def test_one_link(ledger):
    for entry in view.links(FABRIC, ledger):
        assert view.link(FABRIC, ledger, entry.link) == entry
