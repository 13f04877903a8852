# SPDX-License-Identifier: Apache-2.0

"""Readings of partition keys: their text, and what differs from a set of files."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import pytest

from laas_service.domain.errors import InvalidFile
from laas_service.domain.inventory import PortRef
from opensm_writer.desired import Partition
from opensm_writer.keys import (
    DesiredKeys,
    Enforcement,
    KeyReading,
    Manager,
    PortKeys,
    lines,
    members_of,
    reading_of,
)
from opensm_writer.parse import PartitionFile

SWITCH, SPINE = 0xA0, 0xA1
HOST, OTHER, FREE, STORAGE, SM = 0x1, 0x2, 0x3, 0x4, 0x5
ADAPTERS = (HOST, OTHER, FREE, STORAGE, SM)
CABLES = (
    *((PortRef(SWITCH, number), PortRef(guid, 0)) for number, guid in enumerate(ADAPTERS, 1)),
    (PortRef(SWITCH, 9), PortRef(SPINE, 1)),
)
FILE = PartitionFile(
    (STORAGE,), False, (Partition("t", 0x11, (HOST,)), Partition("u", 0x12, (OTHER,)))
)
DESIRED = DesiredKeys(FILE, CABLES)
KEYS = {
    HOST: (0x8011, 0x7FFF),
    OTHER: (0x8012, 0x7FFF),
    FREE: (0x7FFF,),
    STORAGE: (0xFFFF,),
    SM: (0xFFFF,),
}


def reading(enforcement: Enforcement = Enforcement.ON) -> KeyReading:
    """As published."""
    ports = [
        *(PortKeys(PortRef(guid, 0), Enforcement.NONE, KEYS[guid]) for guid in ADAPTERS),
        *(
            PortKeys(PortRef(SWITCH, number), enforcement, KEYS[guid])
            for number, guid in enumerate(ADAPTERS, 1)
        ),
        *(PortKeys(PortRef(guid, 0), Enforcement.NONE, (0xFFFF,)) for guid in (SWITCH, SPINE)),
    ]
    return KeyReading(SM, Manager(SM, 9, 14, 3), {port.port: port for port in ports})


def changed(port: PortRef, *keys: int, enforcement: Enforcement | None = None) -> KeyReading:
    seen = reading()
    entry = replace(seen.ports[port], keys=keys)
    entry = replace(entry, enforcement=enforcement) if enforcement else entry
    return replace(seen, ports={**seen.ports, port: entry})


def without(*ports: PortRef, enforcement: Enforcement = Enforcement.ON) -> KeyReading:
    seen = reading(enforcement)
    left = {port: keys for port, keys in seen.ports.items() if port not in ports}
    return replace(seen, ports=left)


def test_a_reading_is_read_from_its_own_text():
    guarded = {
        port: replace(entry, protection=level)
        for (port, entry), level in zip(reading().ports.items(), cycle((-1, 0, 2, 3, None)))
    }
    for seen in (
        reading(),
        replace(reading(), master=None, ports={}),
        replace(reading(), ports=guarded),
        replace(reading(), lmc=2),
    ):
        assert reading_of("".join(lines(seen)), "keys") == seen


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 0),
        ("self 0x0000000000000005\n", 1),
        ("port 0x0000000000000005 0 - 7fff\n", 1),
        ("port 0x0000000000000005 0 - 7fff\nports 2\n", 2),
        ("port 0x0000000000000005 0 - 7fff\nport 0x0000000000000005 0 - ffff\nports 2\n", 2),
        ("port 0x0000000000000005 0 - 7f\nports 1\n", 1),
        ("Usage: smpquery\n", 1),
    ],
)
def test_cut_and_foreign_text_is_refused(text, line):
    with pytest.raises(InvalidFile) as refused:
        reading_of(text, "keys")
    assert refused.value.line == line


def test_what_was_published_is_not_wrong():
    for enforcement in (Enforcement.ON, Enforcement.NONE):
        assert DESIRED.wrong(reading(enforcement)) is None


@pytest.mark.parametrize(
    ("seen", "port", "text"),
    [
        (changed(PortRef(HOST, 0), 0x7FFF, 0x8011), (HOST, 0), "0x7fff at index 0, not 0x8011"),
        (changed(PortRef(HOST, 0), 0x7FFF), (HOST, 0), "has 0x7fff, not 0x7fff, 0x8011"),
        (changed(PortRef(HOST, 0), 0x8011, 0xFFFF), (HOST, 0), "has 0x8011, 0xffff"),
        (changed(PortRef(HOST, 0), 0x0011, 0x7FFF), (HOST, 0), "has 0x0011"),
        (changed(PortRef(HOST, 0)), (HOST, 0), "has none"),
        (changed(PortRef(FREE, 0), 0x7FFF, 0x8011), (FREE, 0), "0x8011, not 0x7fff"),
        (changed(PortRef(FREE, 0), 0x7FFF, *[0] * 40, 0x0011), (FREE, 0), "0x0011, 0x7fff, not"),
        (changed(PortRef(FREE, 0), 0x7FFF, 0x8099), (FREE, 0), "0x8099"),
        (changed(PortRef(STORAGE, 0), 0x7FFF), (STORAGE, 0), "has 0x7fff, not 0xffff"),
        (changed(PortRef(SM, 0), 0xFFFF, 0x8012), (SM, 0), "0x8012"),
        (changed(PortRef(SPINE, 0), 0xFFFF, 0x8012), (SPINE, 0), "0x8012"),
        (changed(PortRef(SWITCH, 1), 0x8011, 0x8012, 0x7FFF), (SWITCH, 1), "port 1 of switch"),
        (
            changed(PortRef(SWITCH, 1), 0x8011, 0x7FFF, enforcement=Enforcement.OFF),
            (SWITCH, 1),
            "does not drop packets",
        ),
        (without(PortRef(SPINE, 0)), (SPINE, 0), "was not read"),
        (without(PortRef(FREE, 0), enforcement=Enforcement.NONE), (FREE, 0), "does not answer"),
    ],
)
def test_each_single_wrong_key_is_found(seen, port, text):
    wrong = DESIRED.wrong(seen)
    assert wrong is not None
    assert wrong.ports == (PortRef(*port),)
    assert text in wrong.detail


def test_what_need_not_be_read():
    """A dead switch, a host that is off, a silent adapter behind a port that drops packets."""
    assert DESIRED.wrong(without(PortRef(SPINE, 0)), {SPINE}) is None
    assert DESIRED.wrong(without(PortRef(HOST, 0), PortRef(SWITCH, 1))) is None
    assert DESIRED.wrong(without(PortRef(HOST, 0))) is None


def test_the_order_in_a_switch_port_and_files_without_index_0_do_not_matter():
    assert DESIRED.wrong(changed(PortRef(SWITCH, 1), 0x7FFF, 0x8011)) is None
    earlier = replace(DESIRED, partitions=replace(FILE, at_index_0=False))
    assert earlier.wrong(changed(PortRef(HOST, 0), 0x7FFF, 0x8011)) is None


def test_keys_outside_of_the_range_are_passed_over():
    narrow = replace(DESIRED, pkeys=range(0x40, 0x80))
    assert narrow.wrong(changed(PortRef(FREE, 0), 0x7FFF, 0x8099)) is None
    assert narrow.wrong(changed(PortRef(FREE, 0), 0x7FFF, 0x8041)) is not None
    assert narrow.wrong(changed(PortRef(FREE, 0), 0x7FFF, 0x8011)) is not None


def test_an_adapter_in_the_place_of_a_recorded_one_has_no_tenant():
    seen = without(PortRef(HOST, 0))
    stranger = PortKeys(PortRef(0x77, 0), Enforcement.NONE, KEYS[HOST])
    wrong = DESIRED.wrong(replace(seen, ports={**seen.ports, stranger.port: stranger}))
    assert wrong is not None
    assert wrong.ports == (stranger.port,)


def test_members_are_adapters_and_switches():
    assert members_of([PortRef(SWITCH, 2), PortRef(OTHER, 0), PortRef(SPINE, 0)], CABLES) == (
        OTHER,
        SPINE,
    )


def test_only_the_first_block_of_keys_can_be_written_again():
    beyond = (*KEYS[FREE], *[0] * 40, 0x8011)
    wrong = DESIRED.wrong(changed(PortRef(FREE, 0), *beyond))
    assert wrong is not None
    assert (wrong.ports, wrong.in_first_block) == ((PortRef(FREE, 0),), ())
    wrong = DESIRED.wrong(changed(PortRef(FREE, 0), 0x7FFF, 0x8011))
    assert wrong is not None
    assert wrong.in_first_block == (PortRef(FREE, 0),)
