# SPDX-License-Identifier: Apache-2.0

"""Kinds of tenancy: each answers every question, and they nest as the ledger allows."""

from contextlib import nullcontext
from itertools import product
from typing import get_args

import pytest

from laas_service.domain.allocation import (
    Allocation,
    GroupShare,
    HeldSlots,
    Request,
    Sharing,
    SlotDemand,
)
from laas_service.domain.errors import Conflict, NotFound
from laas_service.domain.ledger import Ledger
from laas_service.domain.tenancy import (
    CONTAINER,
    OWNED,
    Container,
    Kind,
    Owned,
    SharedHosts,
    Slots,
    Uses,
)
from laas_service.domain.topology import Topology, Xgft

SHARING, DEMAND = Sharing(4, 10.0), SlotDemand(3, 1.0)
KINDS: list[Kind] = [OWNED, CONTAINER, SharedHosts(SHARING), Slots(DEMAND)]
FIELDS = [{}, {"container": True}, {"sharing": SHARING}, {"slots": DEMAND}]

NESTED = {
    (Container, Owned),
    (Container, Container),
    (Container, SharedHosts),
    (SharedHosts, Slots),
}
"""The kinds of a parent and of an allocation inside."""


def names(kinds=KINDS):
    return [type(kind).__name__ for kind in kinds]


def placed(kind: Kind, id: str, hosts: int, parent: str | None = None) -> Allocation:
    """An allocation of this kind on hosts of the first leaf, or with slots of the first host."""
    if isinstance(kind, Slots):
        slots = HeldSlots(kind.demand, ((0, tuple(range(kind.demand.slots))),), ())
        return Allocation(id, 0, "shared-slots", (), parent=parent, slots=slots)
    return Allocation(
        id,
        hosts.bit_count(),
        "laas",
        (GroupShare(0, hosts, 0),),
        parent=parent,
        container=isinstance(kind, Container),
        sharing=kind.sharing if isinstance(kind, SharedHosts) else None,
    )


def test_the_union_is_closed():
    assert [type(kind) for kind in KINDS] == list(get_args(Kind))


@pytest.mark.parametrize(("fields", "kind"), list(zip(FIELDS, KINDS, strict=True)), ids=names())
def test_request_and_placement_are_of_the_kind_that_was_asked_for(fields, kind):
    assert Request("blue", 2, **fields).kind == kind
    assert placed(kind, "blue", 0b11).kind == kind


@pytest.mark.parametrize(("outer", "inner"), list(product(KINDS, KINDS)))
def test_the_ledger_lets_in_what_the_kind_accepts(outer, inner):
    ledger = Ledger(Topology(Xgft((4, 8, 1), (1, 4, 1))))
    if not isinstance(outer, Slots):
        ledger.claim(placed(outer, "outer", 0b11))
    allowed = (type(outer), type(inner)) in NESTED
    assert outer.accepts(inner) == allowed
    with nullcontext() if allowed else pytest.raises((Conflict, NotFound)):
        ledger.claim(placed(inner, "inner", 0b1, parent="outer"))


def test_what_counts_for_the_quota():
    outside = [kind.uses(2, inside=False) for kind in KINDS]
    assert outside == [Uses(2, 0), Uses(2, 0), Uses(2, 0), Uses(0, 3)]
    inside = [kind.uses(2, inside=True) for kind in KINDS]
    assert inside == [Uses(0, 0), Uses(0, 0), Uses(0, 0), Uses(0, 3)]


def test_only_owned_hosts_are_handed_over_and_may_change():
    assert [kind.handed_over for kind in KINDS] == [True, False, False, False]
    assert [kind.keeps_hosts is None for kind in KINDS] == [True, False, False, False]
    assert [kind.keeps_links is None for kind in KINDS] == [True, False, False, True]


def test_what_is_asked_for_is_named():
    assert [kind.named(2) for kind in KINDS] == ["2 hosts", "2 hosts", "2 hosts", "3 slots"]


def test_kinds_are_values():
    assert (Owned(), SharedHosts(SHARING)) == (OWNED, SharedHosts(Sharing(4, 10.0)))
