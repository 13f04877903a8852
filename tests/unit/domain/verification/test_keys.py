# SPDX-License-Identifier: Apache-2.0

"""Partition keys that were read, judged against the record."""

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.domain.allocation import Allocation, GroupShare
from laas_service.domain.inventory import PortRef
from laas_service.domain.verification import ReadKeys, function_violations, key_violations


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


def test_functions_have_the_keys_of_the_host_on_whose_rail_they_are():
    """A host of tenants 1 and 2 (by rail), and a free one; each wrong key is told once."""
    made = generate(Description(xgft="3;1,2,2;1,1,1", rails=2, wiring="plane", subnet_managers=1))
    end = {(e.host, e.rail): e.guid for e in made.inventory.endpoints if e.host is not None}
    one = Allocation("a", 1, "jigsaw", (GroupShare(0, 1, 0),))
    (held,) = one.hosts(made.topology)
    free = next(host for host, _ in end if host != held)
    virtual = {guid: (guid | 1 << 40, guid | 2 << 40) for guid in end.values()}

    def judged(guid: int, *keys: int) -> list[str]:
        return function_violations(
            *(made.topology, made.inventory, [((1, 2), one)], virtual, {guid: keys}),
            pkeys=range(1, 9),
        )

    for rail, key in enumerate((0x8001, 0x8002)):
        for guid in (end[held, rail], *virtual[end[held, rail]]):
            assert judged(guid, key, 0x7FFF) == judged(guid, key) == judged(guid, key, 0x9000) == []
            (text,) = judged(guid, 0x7FFF, key)
            assert f"{guid:#018x} of" in text
            assert f"has key 0x7fff at index 0, not {key:#06x}" in text
            assert "has key 0x8003, which is not its own" in judged(guid, key, 0, 0x8003)[0]
            assert "has key 0x0004, which is not its own" in judged(guid, key, 0x0004)[0]
            assert "has key 0xffff, which is not its own" in judged(guid, key, 0xFFFF)[0]
            (text,) = judged(guid, key & 0x7FFF, 0x7FFF)  # a limited member
            assert "at index 0" in text
            assert len(judged(guid, 0x8003 - (key & 3))) == 2  # the key of the other rail
    for guid in (end[free, 0], *virtual[end[free, 0]]):
        assert judged(guid, 0x7FFF) == judged(guid, 0) == []
        assert len(judged(guid, 0x7FFF, 0x8001)) == len(judged(guid, 0xFFFF)) == 1
    (text,) = judged(0x77, 0xFFFF, 0x8001)
    assert text == (
        "function 0x0000000000000077, which is not recorded, has key 0x8001, which is not its own"
    )
    assert judged(0x77, 0xFFFF) == []  # such as an Ethernet port
    service = next(e.guid for e in made.inventory.endpoints if e.host is None)
    assert judged(service, 0xFFFF) == []
