# SPDX-License-Identifier: Apache-2.0

"""Partition keys and the master, read back from the real OpenSM's fabric; drift made by hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.fabric_import import generator
from laas_service.adapters.fabric_import.fabric_file import read_fabric
from laas_service.app.requests import AllocationRequest
from laas_service.cmd import manage
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.errors import Unavailable
from laas_service.domain.inventory import Endpoint, Inventory
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.topology import Topology
from laas_service.messages import Applied, Condition, Master, Running
from opensm_writer import blocks, directed, keys, parse, render
from opensm_writer.blocks import Block
from opensm_writer.local import LocalSubnetManager
from opensm_writer.render import Settings
from opensm_writer.site import SiteSettings
from tests import demo
from tests.convergers import Convergers
from tests.drafts import on_ledger
from tests.fakes import FakeCompute
from tests.functional.test_opensm import SWEEP_ON_SIGNAL, Site, site, top_guid
from tests.marks import needs_ibsim
from tests.partitions import tenant
from tests.waiting import eventually

pytestmark = needs_ibsim

EVERYTHING = os.environ.get("LAAS_KEYS") == "full"
"""Whether every kind of drift is tried, as ``tox -e keys`` does, or a sample."""

ROOT = Path(__file__).resolve().parents[2]
ALICE = tenant("a", [(0, 0b0011, 0b0011), (1, 0b0011, 0b0011)])
BOB = tenant("b", [(2, 0b0011, 0b0011), (3, 0b0001, 0b0001)])
KEY_OF_ALICE, KEY_OF_BOB = 0x8100 + ord("a"), 0x8100 + ord("b")
LIMITED, FULL = 0x7FFF, 0xFFFF

STARTS = 10
"""Of two managers on a subnet before a test fails, when one in two starts may stand still."""

SWEPT = "SUBNET UP"


@contextmanager
def small_site() -> Iterator[Site]:
    """XGFT(3; 4,4,2; 1,4,4): 32 hosts; the process beside OpenSM reads keys, too."""
    made = generator.generate(generator.Description(xgft="3;4,4,2;1,4,4", subnet_managers=2))
    with reading_site(made.topology, made.inventory, top_guid(made.inventory)) as here:
        yield here


@contextmanager
def example_site() -> Iterator[Site]:
    """The fabric of the example description: 882 ports on two rails."""
    made = read_fabric(demo.EXAMPLE)
    manager = demo.management_port(made)
    with reading_site(made.topology, made.inventory, manager.guid) as here:
        yield here


@contextmanager
def reading_site(topology: Topology, inventory: Inventory, sm: int) -> Iterator[Site]:
    with site(topology, inventory, sm) as here:
        command = (*here.dump[:-2], f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1")
        keys = (*command, sys.executable, "-m", "opensm_writer.key_reader", "--limit", "250")
        here.opensm = replace(here.opensm, keys_command=keys, timeout=300)
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


def write_keys(here: Site, lid: int, port: int, *keys: int, block: int = 0) -> None:
    """Set the keys of a port past OpenSM, from index 32 times ``block`` on."""
    command = ("env", "-C", str(ROOT), sys.executable, "-m", "tests.ibsim_keys")
    here.sim.run(*command, str(lid), f"{port}:{block}", *(f"{key:#06x}" for key in keys))


def write_entries(here: Site, lid: int, ports: bytes, block: int = 0) -> None:
    """Set 64 entries of the table of a switch past OpenSM."""
    command = ("env", "-C", str(ROOT), sys.executable, "-m", "tests.ibsim_keys")
    here.sim.run(*command, str(lid), "table", str(block), ports.hex())


def repaired(here: Site, tenants: list[Allocation]) -> None:
    """Publish the same state again, as the drift check does, until it is confirmed."""
    state = replace(here.state(tenants), generation=here.generation - 1)
    here.generation -= 1
    here.manager.publish(state)
    here.confirm()


def swept(here: Site) -> None:
    """Have OpenSM read its files again, and wait until the sweep has ended."""
    log = here.sim.directory / "osm.log"
    ups = log.read_text().count("SUBNET UP")
    here.opensm.reload()
    eventually(lambda: log.read_text().count("SUBNET UP") > ups, "OpenSM's sweep ends")


def unconfirmed(here: Site) -> Applied:
    applied = here.manager.applied("site")
    assert applied.generation is None
    return applied


def master_of(here: Site) -> Master | None:
    """What the service shows as the master."""
    return here.manager.applied("site").running.master


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


@pytest.mark.parametrize("side", ["adapter", *(["switch"] if EVERYTHING else [])])
def test_a_wrong_key_beyond_the_first_block_is_found(side):
    """OpenSM 3.3.23 writes a second block only if it needs one: this stays until somebody acts."""
    with small_site() as here:
        here.boot([ALICE, BOB])
        end = hosts_of(here, BOB)[0]
        lid, port = at(here, end) if side == "switch" else (here.inventory.lids[end.guid], 0)
        assert len(raw_keys(here, lid, port)) == 64
        write_keys(here, lid, port, 0, 0, 0, 0, 0, KEY_OF_ALICE, block=1)
        assert raw_keys(here, lid, port)[37] == KEY_OF_ALICE
        applied = unconfirmed(here)
        assert applied.condition is Condition.WRONG_KEYS
        assert f"{KEY_OF_ALICE:#06x}" in str(applied.problem)
        write_keys(here, lid, port, block=1)
        assert is_confirmed(here)


def test_an_entry_that_somebody_changed_in_a_table_is_found_and_written_again():
    with small_site() as here:
        here.boot([ALICE, BOB])
        before, end = here.rows(), hosts_of(here, ALICE)[0]
        block = bytearray(before[end.at.guid].ljust(64, b"\xff")[:64])
        block[here.inventory.lids[end.guid]] = 8  # an uplink
        write_entries(here, here.inventory.lids[end.at.guid], bytes(block))
        foreign = here.rows()
        assert foreign != before
        swept(here)  # OpenSM takes what it sent last for what the switch has
        assert here.rows() == foreign
        applied = unconfirmed(here)
        assert applied.condition is Condition.DIFFERS
        assert f"1 of 32 switches differ: {end.at.guid:#018x}" in str(applied.problem)
        repaired(here, [ALICE, BOB])
        assert here.rows() == before


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


def printed_keys(here: Site, directory: Path, *options: str, code: int = 0) -> tuple[str, str]:
    """What the reader prints and says about the set in the directory."""
    done = here.sim.run(*here.opensm.keys_command, *options, str(directory), check=False)
    assert done.returncode == code, done
    return done.stdout, done.stderr


def converged(here: Site, store: SqlStore, *sizes: int) -> None:
    """Admit tenants; publish, start OpenSM, and wait until all are active."""
    clock = [datetime(2026, 1, 1, tzinfo=UTC)]
    worker = Convergers(store, FakeCompute(), here.manager, now=lambda: clock[0], chance=Random(1))

    def done() -> bool:
        clock[0] += timedelta(minutes=5)
        worker.run_once()
        return not store.allocations.due(clock[0] + timedelta(days=1), faulty=True)

    for number, hosts in enumerate(sizes):
        id = f"t{number}"
        new = AllocationRequest(
            id=id, fabric="site", name=id, project_id="p", policy="jigsaw", hosts=hosts
        )
        store.admissions.admit(new, on_ledger(partial(admit, Jigsaw(), request=Request(id, hosts))))
    with pytest.raises(Unavailable, match="OpenSM does not run"):
        here.manager.publish(store.fabrics.routed("site"))
    process = here.sim.start("opensm", "-F", str(here.current / "opensm.conf"), *here.start)
    (here.sim.directory / "opensm.pid").write_text(f"{process.pid}\n")
    eventually(done, "all are active", patience=900)


@pytest.mark.parametrize("fabric", [small_site, *([example_site] if EVERYTHING else [])])
def test_verify_judges_the_keys_of_what_the_service_published(fabric, tmp_path, capsys):
    config = tmp_path / "laas.conf"
    config.write_text(f"[DEFAULT]\nstate_dir = {tmp_path}\n")
    assert manage.main([f"--config-file={config}", "db", "upgrade"]) == 0
    store = SqlStore(connect(f"sqlite:///{tmp_path}/laas.sqlite"))

    def verified(code: int) -> dict[str, Any]:
        (tmp_path / "keys").write_text(printed_keys(here, here.current)[0])
        words = ("fabric", "verify", "--json", "--keys", f"{tmp_path}/keys")
        ours = ("--subnet-manager", f"{here.sm:#x}")
        capsys.readouterr()
        assert manage.main([f"--config-file={config}", *words, *ours]) == code
        (found,) = json.loads(capsys.readouterr().out)["fabrics"]
        return dict(found)

    with fabric() as here:
        store.fabrics.add("site", here.topology, here.inventory)
        converged(here, store, 9, 5)
        found = verified(0)
        assert found["violations"] == []
        ends = here.inventory.endpoints
        assert found["ports"] == 2 * len(ends) + len(here.inventory.switches)
        tenants = store.fabrics.routed("site").tenants
        hosts = [tenant.allocation.hosts(here.topology) for tenant in tenants]
        for end in [end for end in ends if end.host == hosts[0][0]]:
            lid = here.inventory.lids[end.guid]
            before = raw_keys(here, lid)
            write_keys(here, lid, 0, *before[:2], 0x8000 | tenants[1].pkey)
            (violation,) = verified(1)["violations"]
            assert f"{end.guid:#018x}" in violation
            assert f"{0x8000 | tenants[1].pkey:#06x}" in violation
            write_keys(here, lid, 0, *before)
        assert verified(0)["violations"] == []


LATE = """
import os, signal, sys
from contextlib import closing
from opensm_writer import smp
simulator, lid = map(int, sys.argv[1:])
with closing(smp.SmpPort(timeout=0.2)) as port:
    os.kill(simulator, signal.SIGSTOP)
    unanswered = port.all_answers([smp.Query(0, smp.PORT_INFO)])
    os.kill(simulator, signal.SIGCONT)
    (data,) = port.all_answers([smp.Query(lid, smp.NODE_INFO)]).values()
    print(len(unanswered), hex(int.from_bytes(data[20:28], "big")), port.silent)
"""
"""Leaves a request unanswered, asks another node, and prints the port GUID in its answer."""


def test_an_answer_that_comes_late_is_not_taken_for_that_of_another_request():
    with small_site() as here:
        here.boot([])
        end = here.inventory.endpoints[0]
        simulator = here.sim._server.pid
        reader = here.opensm.keys_command
        command = (*reader[: reader.index("-m")], "-c", LATE)
        done = here.sim.run(*command, str(simulator), str(here.inventory.lids[end.guid]))
        assert done.stdout.split() == ["0", hex(end.guid), "[0]"]


def record_lids(here: Site, directory: Path, *guids: int) -> None:
    """Copy what the reader reads of the current set, with LIDs for ``guids`` that no port has."""
    shutil.copy(here.current / "cabling", directory)
    lids = parse.guid2lid((here.current / "guid2lid").read_text(), "guid2lid")
    unused = max(lids.values()) + 1
    lids |= {guid: unused + number for number, guid in enumerate(guids)}
    (directory / "guid2lid").write_text("".join(render.guid2lid(lids)))


def test_nodes_that_do_not_answer_are_named_and_cost_no_more_than_the_limit():
    with small_site() as here:
        here.boot([])
        leaf = here.inventory.endpoints[0].at.guid
        behind = sum(end.at.guid == leaf for end in here.inventory.endpoints)
        everything = len(keys.reading_of(printed_keys(here, here.current)[0], "keys").ports)

        def logged(words: str) -> int:
            return (here.sim.directory / "ibsim.log").read_text().count(words)

        def verbose(level: int) -> None:
            here.sim.console(f"Verbose {level}")
            eventually(lambda: logged(f"verbose level is {level}"), "ibsim has read the commands")

        here.sim.console(f'Error "S-{leaf:016x}" 100')
        verbose(1)
        out, said = printed_keys(here, here.current)
        verbose(0)
        assert said == f"laas-opensm-keys: no answer from LID {here.inventory.lids[leaf]}\n"
        # two requests by its LID, two by directed routes, and how often each was sent
        assert logged("drop pkt due error rate") == 4 * 3
        assert len(keys.reading_of(out, "keys").ports) == everything - 2 * behind - 1
        for switch in here.inventory.switches:
            here.sim.console(f'Error "S-{switch.guid:016x}" 100')
        verbose(1)
        out, said = printed_keys(here, here.current, "--limit", "0.3", code=2)
        assert out == ""
        assert "the ports were not read within 0.3 seconds" in said


def read_tables(here: Site, lids: list[int], directory: Path) -> str:
    """What ``laas-opensm-tables`` prints of the first block of the switches with these LIDs."""
    (directory / "wanted").write_bytes(blocks.question(Block(lid, 0) for lid in lids))
    reader = [*here.opensm.keys_command]
    reader[reader.index("opensm_writer.key_reader")] = "opensm_writer.table_reader"
    question = ("sh", "-c", f'"$@" <{directory}/wanted', "sh")
    done = here.sim.run(*question, *reader, str(directory))
    assert done.stderr == ""
    return done.stdout


def test_nodes_without_a_route_are_read_past_a_dead_cable(tmp_path):
    """The LIDs recorded for a spine, and for a leaf and its adapters, are in no table."""
    with small_site() as here:
        here.boot([])
        own = next(end.at.guid for end in here.inventory.endpoints if end.guid == here.sm)
        leaf = next(guid for guid in here.inventory.leaf_guids if guid != own)
        adapters = [end.guid for end in here.inventory.endpoints if end.at.guid == leaf]
        record_lids(here, tmp_path, leaf, here.inventory.spine_guids[0], *adapters)
        everything = keys.reading_of(printed_keys(here, here.current)[0], "keys")
        recorded = parse.guid2lid((tmp_path / "guid2lid").read_text(), "guid2lid")
        first_blocks = {
            guid: {Block(recorded[guid], 0): row.ljust(64, b"\xff")[:64]}
            for guid, row in here.rows().items()
        }

        def all_are_read() -> None:
            out, said = printed_keys(here, tmp_path)
            assert said == ""
            assert keys.reading_of(out, "keys") == everything
            printed = read_tables(here, [recorded[guid] for guid in first_blocks], tmp_path)
            assert blocks.answer(printed, "tables") == first_blocks

        all_are_read()
        way = directed.ways(here.inventory.cable_ends, own, [leaf])[leaf]
        _, ends = way[-1]
        at_leaf = next(end for end in ends if end.guid == leaf)
        here.sim.console(f'Unlink "S-{leaf:016x}"[{at_leaf.port}]')
        log = here.sim.directory / "osm.log"
        eventually(lambda: '"Link state change"' in log.read_text(), "the cable is dead")
        all_are_read()


def settings_of(here: Site, polling: int | None = 1000) -> SiteSettings:
    """Site settings; ``polling`` is in milliseconds."""
    retries = 2 if polling else None
    return SiteSettings(
        here.sim.directory / "files",
        sm_priority=9,
        sminfo_polling_timeout=polling,
        polling_retry_number=retries,
    )


def configure(here: Site, settings: SiteSettings) -> None:
    """Change the settings, as a restart of the process beside OpenSM does."""
    here.opensm = replace(here.opensm, site=settings)
    here.manager = LocalSubnetManager(here.sim.directory / "files", here.opensm, patience=30)


def configuration(here: Site) -> Path:
    """What OpenSM is to be started on."""
    return here.current.parent / "opensm.conf"


def restart(here: Site) -> None:
    """Write OpenSM's own configuration, and start OpenSM on it in place of the running one."""
    here.manager.publish(replace(here.state([ALICE, BOB]), generation=here.generation))
    pid_file = here.sim.directory / "opensm.pid"
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    process = here.sim.start("opensm", "-F", str(configuration(here)), *here.start)
    pid_file.write_text(f"{process.pid}\n")


def rogue(here: Site, key: str | None, polling: int | None) -> subprocess.Popen[bytes]:
    """A subnet manager with a higher priority on a host of a tenant."""
    directory = here.sim.directory / "rogue"
    directory.mkdir(exist_ok=True)
    (directory / "osm.log").unlink(missing_ok=True)
    text = "sm_priority 14\n" + (f"sm_key {key}\n" if key else "")
    text += f"sminfo_polling_timeout {polling}\npolling_retry_number 2\n" if polling else ""
    (directory / "opensm.conf").write_text(text)
    node = node_of(here, hosts_of(here, ALICE)[0])
    places = [f"{name}={directory}" for name in ("OSM_CACHE_DIR", "OSM_TMP_DIR")]
    command = ("opensm", "-F", str(directory / "opensm.conf"), "-f", str(directory / "osm.log"))
    return here.sim.start("env", *places, *command, "-s", "0", host=node)


def rogue_that_sweeps(
    here: Site, key: str | None, polling: int | None
) -> tuple[subprocess.Popen[bytes], float]:
    """Start the rogue manager until it sweeps; the process, and when it was started.

    It asks ours at once, and waits for ever if the answer is lost: the simulator's library times
    out no request, as the kernel does.
    """
    log = here.sim.directory / "rogue" / "osm.log"
    for _ in range(STARTS):
        begun = time.monotonic()
        intruder = rogue(here, key, polling)
        with suppress(AssertionError):
            eventually(
                lambda: (log.exists() and SWEPT in log.read_text()) or not is_confirmed(here),
                "it sweeps",
                patience=60.0,
            )
            return intruder, begun
        end(intruder)
    raise AssertionError(f"the rogue manager stood still {STARTS} times")


def end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_broadcast_group_is_seen_by_the_members_of_its_partition_alone():
    def groups(end: Endpoint | None) -> list[str]:
        """Keys of the multicast groups that a port is told of; None is OpenSM's own port."""
        text = here.sim.read("saquery", "-g", host=node_of(here, end) if end else None)
        return re.findall(r"^\s*pkey\.+(0x[0-9a-f]+)$", text, re.MULTILINE)

    with small_site() as here:
        here.boot([ALICE, BOB])
        alice, bob = hosts_of(here, ALICE), hosts_of(here, BOB)
        assert groups(alice[0]) == []  # multicast is off
    with small_site() as here:
        files = here.sim.directory / "files"
        here.manager = LocalSubnetManager(
            Settings(str(files), multicast=True), here.opensm, patience=300
        )
        here.boot([ALICE, BOB])
        assert groups(alice[0]) == groups(alice[-1]) == [f"{KEY_OF_ALICE:#x}"]
        assert groups(bob[0]) == [f"{KEY_OF_BOB:#x}"]
        held = {*ALICE.hosts(here.topology), *BOB.hosts(here.topology)}
        free = next(e for e in here.inventory.endpoints if e.host not in (None, *held))
        assert groups(free) == groups(None) == []


def node_of(here: Site, end: Endpoint) -> str:
    """The simulator's name of the node with a port."""
    place = f'"S-{end.at.guid:016x}"[{end.at.port}]'
    blocks = here.sim.netlist.read_text().split("caguid=")[1:]
    return next(block for block in blocks if place in block).split('"')[1]


def is_confirmed(here: Site) -> bool:
    return here.manager.applied("site").generation == here.generation


def test_site_settings_reach_opensm_and_are_checked():
    with small_site() as here:
        here.boot([ALICE, BOB])  # on the published fragment alone
        configure(here, settings := settings_of(here))
        applied = unconfirmed(here)
        assert applied.condition is Condition.WRONG_SETTINGS
        assert applied.problem == "OpenSM runs with sm_priority 0, not 9"
        restart(here)
        repaired(here, [ALICE, BOB])
        assert configuration(here).stat().st_mode & 0o777 == 0o600
        assert "priority 9 " in here.sim.read("sminfo")
        running = here.manager.applied("site").running
        assert running == Running("file", Master(here.sm, here.inventory.lids[here.sm], 9))
        configure(here, replace(settings, sm_priority=11))
        assert unconfirmed(here).condition is Condition.WRONG_SETTINGS
        repaired(here, [ALICE, BOB])  # OpenSM reads it again at the signal
        assert "priority 11 " in here.sim.read("sminfo")
        key = here.sim.directory / "m_key"
        key.write_text("0x1badcafe12345678\n")
        key.chmod(0o600)
        configure(here, replace(settings, m_key_file=key, m_key_protection_level=2))
        here.manager.publish(here.state([ALICE, BOB]))
        assert "m_key 0x1badcafe12345678\n" in configuration(here).read_text()
        configure(here, here.opensm.site or settings)  # which asks without patience
        # ibsim keeps no M_Key, and the reading says so.
        ports = len(here.inventory.endpoints) + len(here.inventory.switches)
        here.until_problem(f"{ports} ports are not protected by the M_Key at level 2")
        log = (here.sim.directory / "osm.log").read_text()
        assert "1badcafe" not in log


@pytest.mark.parametrize(
    ("key", "polling", "minute"),
    [
        (None, 1000, 0),
        *([("0x99", 1000, 0), (None, None, 60), ("0x99", None, 60)] if EVERYTHING else []),
    ],
    ids=str,
)
def test_a_rogue_manager_is_told_and_its_work_is_undone(key, polling, minute):
    """It has a higher priority, knows neither tables nor keys, and ends after ``minute`` s."""
    tenants = [ALICE, BOB]
    with small_site() as here:
        here.boot(tenants)
        configure(here, settings_of(here, polling))
        restart(here)
        repaired(here, tenants)
        before = here.rows()
        intruder, begun = rogue_that_sweeps(here, key, polling)
        eventually(lambda: not is_confirmed(here), "something is told")
        told = time.monotonic() - begun
        here.until_problem("another subnet manager is the master: 0x")
        named = time.monotonic() - begun
        eventually(lambda: here.rows() != before, "it has written its tables")
        lost = here.keys(hosts_of(here, ALICE)[0].guid)
        eventually(lambda: (master := master_of(here)) and master.guid != here.sm, "it is shown")
        # Managers with different SM keys are masters both, and either may answer.
        alarms = (
            {Condition.NOT_MASTER} if key is None else {Condition.NOT_MASTER, Condition.DIFFERS}
        )
        while time.monotonic() < begun + minute:
            assert unconfirmed(here).condition in alarms
            time.sleep(1)  # between two looks: the alarm has to stay for a minute
        end(intruder)
        ended = time.monotonic()

        def undone() -> bool:
            """Publish again whenever something is wrong, as the drift check does."""
            if is_confirmed(here):
                return True
            here.manager.publish(replace(here.state(tenants), generation=here.generation - 1))
            here.generation -= 1
            return False

        eventually(
            undone,
            lambda: f"what was published is in force again: {here.manager.applied('site')}",
            patience=600,
        )
        again = time.monotonic() - ended
        assert here.rows() == before
        for own, allocation in ((KEY_OF_ALICE, ALICE), (KEY_OF_BOB, BOB)):
            for host in hosts_of(here, allocation):
                assert raw_keys(here, here.inventory.lids[host.guid])[:3] == [own, LIMITED, 0]
        seconds = (
            f"told after {told:.1f} s, by name {named:.1f} s, undone {again:.1f} s after its end"
        )
        print(f"SM key {key}, polling {polling} ms: {seconds}; meanwhile {sorted(map(hex, lost))}")


def test_an_lmc_above_0_is_named():
    with small_site() as here:
        here.start = (*SWEEP_ON_SIGNAL, "-l", "1")
        here.manager = LocalSubnetManager(here.sim.directory / "files", here.opensm, patience=60)
        with pytest.raises(AssertionError, match=r"OpenSM runs with lmc 1.*set lmc 0"):
            here.boot([])
