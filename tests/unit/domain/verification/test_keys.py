# SPDX-License-Identifier: Apache-2.0

"""Partition keys that were read, judged against the record."""

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.domain.allocation import Allocation, GroupShare
from laas_service.domain.inventory import PortRef
from laas_service.domain.verification import ReadKeys, key_violations


def test_keys_are_judged_by_rail():
    """One host on two rails with a key each; then with the keys of other rails."""
    made = generate(Description(xgft="3;1,1,2;1,1,1", rails=2, wiring="plane"))
    first, second = sorted(made.inventory.endpoints, key=lambda end: end.rail)
    one = Allocation("a", 1, "jigsaw", (GroupShare(0, 1, 0),))

    def judged(*keys: int) -> list[str]:
        held = zip((first, second), keys, strict=True)
        ports = {at: (key, 0x7FFF) for end, key in held for at in (PortRef(end.guid, 0), end.at)}
        read = ReadKeys(
            ports | {PortRef(switch.guid, 0): (0xFFFF,) for switch in made.inventory.switches},
            open_ports=(),
            master=None,
        )
        return key_violations(
            made.topology, made.inventory, [((1, 2), one)], read, pkeys=range(1, 9)
        )

    assert judged(0x8001, 0x8002) == []
    wrong = judged(0x8001, 0x8001)
    assert len(wrong) == 5
    assert all(f"{second.guid:#018x}" in text for text in wrong)
    assert any("has key 0x8001 at index 0, not 0x8002" in text for text in wrong)
    assert len(judged(0x8002, 0x8001)) == 10
