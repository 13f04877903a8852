# SPDX-License-Identifier: Apache-2.0

"""Tables of a tenant that holds two placements: no packet leaves its links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.topology import Topology, Xgft
from laas_service.domain.verification import physical_tables, walk_violations
from tests.unit.domain.verification.sound import inventory_of
from tests.walks import Mixed, Walks

TREE = Topology(Xgft((3, 3, 3), (1, 3, 3)))
INVENTORY = inventory_of(TREE)


def placed(ledger: Ledger, hosts: int) -> Allocation:
    """An allocation of the id "a" that is free beside everything on the ledger."""
    answer = POLICIES["jigsaw"]().propose(ledger, Request("a", hosts))
    assert isinstance(answer, Allocation)
    return answer


@pytest.fixture(params=[(2, 2), (4, 4), (5, 9), (3, 7)])
def placements(request):
    """Two placements of one tenant without a common host, away from the manager's leaf."""
    ledger = Ledger(TREE)
    old_size, new_size = request.param
    admit(POLICIES["jigsaw"](), ledger, Request("neighbour", 3))
    old = placed(ledger, old_size)
    ledger.claim(old)
    new = POLICIES["jigsaw"]().propose(ledger, Request("b", new_size))
    assert isinstance(new, Allocation)
    return old, replace(new, id="a")


@pytest.mark.parametrize("reverse", [False, True])
def test_no_packet_between_old_and_new_hosts_uses_links_of_others(placements, reverse):
    old, new = placements
    order = (new, old) if reverse else (old, new)
    tables = forwarding_tables(TREE, INVENTORY, order)
    walks = Walks.over(INVENTORY, tables)
    held = new.joined(old)
    assert set(old.hosts(TREE)).isdisjoint(new.hosts(TREE))
    assert Mixed(TREE, [walks], held).foreign == set()
    for part in placements:
        mixed = Mixed(TREE, [walks], part.over(held))
        assert (mixed.foreign, mixed.lost) == (set(), set())


def test_the_judge_wants_no_path_between_placements_and_forbids_foreign_links(placements):
    old, new = placements
    held = new.joined(old)
    rows = forwarding_tables(TREE, INVENTORY, (old, new))
    tables = physical_tables(rows.rows, rows.index)
    both = {"a": (old, new)}
    judged = walk_violations(TREE, INVENTORY, tables, [held], placements=both)
    assert judged.violations == []
    assert walk_violations(TREE, INVENTORY, tables, [held]).violations != []
    apart = [forwarding_tables(TREE, INVENTORY, [one]) for one in (old, new)]
    merged = {guid: bytearray(apart[0].rows[guid]) for guid in apart[0].rows}
    for host in new.hosts(TREE):
        at = apart[1].index[INVENTORY.endpoint_of_port[host, 0].guid]
        for guid, row in merged.items():
            row[at] = apart[1].rows[guid][at]
    naive = physical_tables({guid: bytes(row) for guid, row in merged.items()}, rows.index)
    found = walk_violations(TREE, INVENTORY, naive, [held], placements=both).violations
    assert any("it uses link" in text for text in found)
