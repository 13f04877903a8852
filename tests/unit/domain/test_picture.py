# SPDX-License-Identifier: Apache-2.0

"""The hosts of a fabric as text."""

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Request
from laas_service.domain.fabric_map.picture import marks, picture
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.topology import Topology, Xgft


def drawn(ledger, width=80):
    return list(picture(ledger, marks(ledger), width))


def test_each_host_shows_its_owner_or_its_state():
    ledger = Ledger(Topology(Xgft((4, 2, 2), (1, 2, 2))))
    for id, hosts in (("blue", 6), ("red", 2)):
        admit(Jigsaw(), ledger, Request(id, hosts))
    ledger.fail_host(15)
    ledger.drain_host(14)
    ledger.fail_host(0)
    of = marks(ledger)
    assert of == {"blue": "A", "red": "B"}
    expected = [
        "".join(
            {"blue": "A", "red": "B"}.get(ledger.owners_of_hosts().get(h, ""), ".")
            for h in range(leaf * 4, leaf * 4 + 4)
        )
        for leaf in range(4)
    ]
    expected[0] = "!" + expected[0][1:]
    expected[3] = expected[3][:2] + "~!"
    assert drawn(ledger) == [f"pod 0  {' '.join(expected[:2])}", f"pod 1  {' '.join(expected[2:])}"]


def test_marks_follow_the_places_of_hosts_and_not_the_order_of_claims():
    ledger = Ledger(Topology(Xgft((4, 2, 2), (1, 2, 2))))
    for id in ("first", "blue", "red"):
        admit(Jigsaw(), ledger, Request(id, 4))
    ledger.release("first")
    admit(Jigsaw(), ledger, Request("last", 4))
    assert marks(ledger) == {"last": "A", "blue": "B", "red": "C"}
    assert drawn(ledger) == ["pod 0  AAAA BBBB", "pod 1  CCCC ...."]


def test_lines_are_no_wider_than_asked_and_owners_beyond_the_marks_are_alike():
    ledger = Ledger(Topology(Xgft((4, 20, 1), (1, 4, 0))))
    for number in range(70):
        admit(Jigsaw(), ledger, Request(f"t{number}", 1))
    lines = drawn(ledger, 40)
    assert all(len(line) <= 40 for line in lines)
    text = "".join(line[7:] for line in lines).replace(" ", "")
    assert len(text) == 80
    assert text.count("#") == 70 - 62
    assert text.count(".") == 10
