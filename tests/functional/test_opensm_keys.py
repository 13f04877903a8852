# SPDX-License-Identifier: Apache-2.0

"""Partition keys and the master, read back from the real OpenSM's fabric; drift made by hand."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from laas_service.adapters.fabric_import import generator
from laas_service.domain.allocation import Allocation
from laas_service.domain.inventory import Endpoint
from laas_service.messages import Applied, Condition
from opensm_writer.local import LocalSubnetManager
from tests.functional.test_opensm import Site, site, top_guid
from tests.marks import needs_ibsim
from tests.partitions import tenant

pytestmark = needs_ibsim

EVERYTHING = os.environ.get("LAAS_KEYS") == "full"
"""Whether every kind of drift is tried, as ``tox -e keys`` does, or a sample."""

ROOT = Path(__file__).resolve().parents[2]
ALICE = tenant("a", [(0, 0b0011, 0b0011), (1, 0b0011, 0b0011)])
BOB = tenant("b", [(2, 0b0011, 0b0011), (3, 0b0001, 0b0001)])
KEY_OF_ALICE, KEY_OF_BOB = 0x8100 + ord("a"), 0x8100 + ord("b")
LIMITED, FULL = 0x7FFF, 0xFFFF


@contextmanager
def small_site() -> Iterator[Site]:
    """XGFT(3; 4,4,2; 1,4,4): 32 hosts; the process beside OpenSM reads keys, too."""
    made = generator.generate(generator.Description(xgft="3;4,4,2;1,4,4", subnet_managers=2))
    with site(made.topology, made.inventory, top_guid(made.inventory)) as here:
        command = (*here.dump[:-2], f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1")
        keys = (*command, sys.executable, "-m", "opensm_writer.key_reader")
        here.opensm = replace(here.opensm, keys_command=keys)
        here.manager = LocalSubnetManager(here.sim.directory / "files", here.opensm, patience=300)
        yield here


def hosts_of(here: Site, allocation: Allocation) -> list[Endpoint]:
    hosts = allocation.hosts(here.topology)
    return [here.inventory.endpoint_of_port[host, 0] for host in hosts]


def raw_keys(here: Site, lid: int, port: int = 0) -> list[int]:
    """Keys by index, as ``smpquery`` reads them: not by the code that is tested."""
    where = [str(lid), *([str(port)] if port else [])]
    text = here.sim.read("smpquery", "pkeys", *where)
    words = [w for line in text.splitlines() if ":" in line for w in line.split(":")[1].split()]
    return [int(word, 16) for word in words if word.startswith("0x")]


def at(here: Site, endpoint: Endpoint) -> tuple[int, int]:
    """LID and number of the switch port of an adapter."""
    return here.inventory.lids[endpoint.at.guid], endpoint.at.port


def write_keys(here: Site, lid: int, port: int, *keys: int) -> None:
    """Set the keys of a port past OpenSM."""
    command = ("env", "-C", str(ROOT), sys.executable, "-m", "tests.ibsim_keys")
    here.sim.run(*command, str(lid), str(port), *(f"{key:#06x}" for key in keys))


def repaired(here: Site, tenants: list[Allocation]) -> None:
    """Publish the same state again, as the drift check does, until it is confirmed."""
    state = replace(here.state(tenants), generation=here.generation - 1)
    here.generation -= 1
    here.manager.publish(state)
    here.confirm()


def unconfirmed(here: Site) -> Applied:
    applied = here.manager.applied("site")
    assert applied.generation is None
    return applied


def test_the_tenant_s_key_is_at_index_0_and_each_single_wrong_key_is_found_and_repaired():
    with small_site() as here:
        lids = here.inventory.lids
        here.boot([ALICE, BOB])
        a, b = hosts_of(here, ALICE)[0], hosts_of(here, BOB)[0]
        held = {*ALICE.hosts(here.topology), *BOB.hosts(here.topology)}
        free = next(
            e for e in here.inventory.endpoints if e.host is not None and e.host not in held
        )
        assert raw_keys(here, lids[a.guid])[:3] == [KEY_OF_ALICE, LIMITED, 0]
        assert raw_keys(here, *at(here, a))[:3] == [KEY_OF_ALICE, LIMITED, 0]
        assert raw_keys(here, lids[b.guid])[:3] == [KEY_OF_BOB, LIMITED, 0]
        assert raw_keys(here, lids[free.guid])[:2] == [LIMITED, 0]
        drift = (
            (lids[b.guid], 0, [KEY_OF_BOB, LIMITED, KEY_OF_ALICE], f"{KEY_OF_ALICE:#06x}"),
            (lids[free.guid], 0, [LIMITED, KEY_OF_ALICE & 0x7FFF], "0x0161"),
            (lids[a.guid], 0, [LIMITED, KEY_OF_ALICE], "at index 0"),
            (lids[a.guid], 0, [LIMITED], f"{a.guid:#018x} has 0x7fff, not"),
            (lids[a.guid], 0, [KEY_OF_ALICE, FULL], "has 0x8161, 0xffff, not"),
            (*at(here, a), [FULL, KEY_OF_ALICE], f"port {a.at.port} of switch {a.at.guid:#018x}"),
            (lids[a.at.guid], 0, [FULL, KEY_OF_BOB], f"port {a.at.guid:#018x} has"),
            (lids[here.sm], 0, [FULL, KEY_OF_BOB], f"port {here.sm:#018x} has"),
        )
        for lid, port, keys, told in drift if EVERYTHING else drift[:1] + drift[5:6]:
            before = raw_keys(here, lid, port)
            write_keys(here, lid, port, *keys)
            applied = unconfirmed(here)
            assert applied.condition is Condition.WRONG_KEYS
            assert told in str(applied.problem)
            repaired(here, [ALICE, BOB])
            assert raw_keys(here, lid, port) == before, told


def test_keys_outside_of_the_range_belong_to_others():
    with small_site() as here:
        here.opensm = replace(here.opensm, pkeys=range(0x1, 0x4000))
        here.manager = LocalSubnetManager(here.sim.directory / "files", here.opensm, patience=300)
        here.boot([ALICE])
        free = hosts_of(here, BOB)[0]
        write_keys(here, here.inventory.lids[free.guid], 0, LIMITED, 0xC001)
        here.confirm()
        write_keys(here, here.inventory.lids[free.guid], 0, LIMITED, 0xBFFF)
        assert unconfirmed(here).condition is Condition.WRONG_KEYS
