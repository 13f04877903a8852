# SPDX-License-Identifier: Apache-2.0

"""The cache of sizes that do not fit, and its invalidation."""

from __future__ import annotations

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, GroupShare, NoFit, Request
from laas_service.domain.ledger import Ledger, LedgerView, Masks
from laas_service.domain.policies import POLICIES
from laas_service.domain.search.misfits import NEVER, Misfits
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft

TREE = Topology(Xgft((2, 3, 3), (1, 3, 3)))  # 3 pods of 3 leaves of 2 hosts
JIGSAW = POLICIES["jigsaw"]()


def anywhere(view: LedgerView) -> int:
    return view.reader_cache(Misfits).smallest("jigsaw", view.freed)


def in_pods(view: LedgerView) -> list[int]:
    misfits = view.reader_cache(Misfits)
    return [misfits.smallest(pod, freed) for pod, freed in enumerate(view.pod_freed)]


@pytest.fixture
def fabric() -> Ledger:
    """A tenant on one host of every leaf; all leaf links of pod 0 and all spine links are down.

    So 3 hosts do not fit into pod 0, and 4 do not fit anywhere.
    """
    ledger = Ledger(TREE)
    shares = tuple(GroupShare(group, 1, 0) for group in range(9))
    ledger.claim(Allocation("everywhere", 9, "baseline", shares))
    ledger.claim(Allocation("alone", 1, "baseline", (GroupShare(8, 2, 0),)))
    for leaf in range(3):
        for up in range(3):
            ledger.fail_link(LeafLink(0, leaf, up))
    for pod in range(3):
        for l2 in range(3):
            for up in range(3):
                ledger.fail_link(SpineLink(pod, l2, up))
    for size in (4, 3):
        JIGSAW.propose(ledger, Request("x", size))
    assert anywhere(ledger) == 4
    assert in_pods(ledger) == [3, NEVER, NEVER]
    return ledger


def test_claims_and_faults_make_no_room(fabric):
    freed = fabric.freed, list(fabric.pod_freed)
    fabric.fail_host(17)
    fabric.drain_host(3)
    fabric.fail_link(LeafLink(1, 0, 0))
    assert isinstance(admit(JIGSAW, fabric, Request("small", 1)), Allocation)
    assert (fabric.freed, fabric.pod_freed) == freed
    assert anywhere(fabric) == 4


@pytest.mark.parametrize(
    ("free", "pod"),
    [
        (lambda fabric: fabric.release("alone"), 2),
        (lambda fabric: fabric.repair_link(LeafLink(0, 1, 1)), 0),
        (lambda fabric: fabric.repair_link(SpineLink(1, 1, 1)), None),
    ],
)
def test_what_becomes_free_is_looked_at_again(fabric, free, pod):
    before = in_pods(fabric)
    free(fabric)
    assert anywhere(fabric) == NEVER
    assert in_pods(fabric) == [NEVER if n == pod else size for n, size in enumerate(before)]


def test_a_repaired_host_is_looked_at_again(fabric):
    fabric.fail_host(1)
    JIGSAW.propose(fabric, Request("x", 4))
    known = in_pods(fabric)
    fabric.repair_host(1)
    assert anywhere(fabric) == NEVER
    assert in_pods(fabric) == [NEVER, *known[1:]]


def test_a_copy_knows_the_same_and_learns_for_itself(fabric):
    copy = fabric.copy()
    assert (anywhere(copy), in_pods(copy)) == (4, in_pods(fabric))
    known = in_pods(fabric)
    copy.release("everywhere")
    assert (anywhere(fabric), in_pods(fabric)) == (4, known)
    fabric.release("everywhere")
    assert isinstance(JIGSAW.propose(copy, Request("x", 7)), NoFit)
    assert anywhere(copy) == 7
    assert anywhere(fabric) == NEVER  # another ledger of the same generation


def test_a_view_of_a_part_begins_with_nothing(fabric):
    view = fabric.within(Masks.whole(TREE))
    assert anywhere(view) == NEVER
    assert in_pods(view) == [NEVER] * 3


def test_a_trial_puts_back_what_was_known(fabric):
    known = in_pods(fabric)
    with fabric.trial():
        assert anywhere(fabric) == 4
        fabric.release("everywhere")
        assert anywhere(fabric) == NEVER
        assert isinstance(JIGSAW.propose(fabric, Request("x", 7)), NoFit)
        fabric.claim(Allocation("all", 2, "baseline", (GroupShare(3, 3, 0),)))
        assert isinstance(JIGSAW.propose(fabric, Request("x", 6)), NoFit)
        assert anywhere(fabric) == 6
    assert (anywhere(fabric), in_pods(fabric)) == (4, known)
    fabric.release("everywhere")  # the generation at which the trial cached a misfit
    assert anywhere(fabric) == NEVER
    assert in_pods(fabric) == [NEVER] * 3
