# SPDX-License-Identifier: Apache-2.0

"""Site settings: what OpenSM is told, who may read it, and where the keys do not get."""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from laas_service.conf import opensm_site
from laas_service.conf.opensm import opensm as opensm_of
from laas_service.domain.errors import InvalidInput, Unavailable
from laas_service.domain.inventory import PortRef
from laas_service.messages import Condition
from opensm_writer import health, keys, render
from opensm_writer.driver import OpenSmDriver
from opensm_writer.key_reader import read
from opensm_writer.keys import Enforcement, KeyReading, Manager, PortKeys
from opensm_writer.opensm import OpenSm
from opensm_writer.site import SiteSettings
from opensm_writer.smp import NODE_INFO, PKEY_TABLE, PORT_INFO, SM_INFO, SWITCH_INFO, SmpPort
from opensm_writer.tools import Tools
from tests.options import options_from
from tests.scripts import executable
from tests.unit.opensm_writer.states import SETTINGS, state

M_KEY, SM_KEY, SA_KEY = 0x1BADCAFE12345678, 0x99, 0x77


def key_file(directory: Path, name: str, text: str, mode: int = 0o600) -> Path:
    path = directory / name
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def everything(tmp_path):
    """Every option."""
    return SiteSettings(
        tmp_path,
        m_key_file=key_file(tmp_path, "m", f"{M_KEY:#x}\n"),
        m_key_protection_level=2,
        m_key_lease_period=60,
        m_key_lookup=False,
        sm_key_file=key_file(tmp_path, "sm", f"{SM_KEY:#x}"),
        sa_key_file=key_file(tmp_path, "sa", f"{SA_KEY:#x}", 0o400),
        sm_priority=15,
        sminfo_polling_timeout=2000,
        polling_retry_number=3,
        m_key_per_port=True,
        allowed_sm_guids=(0x1B, 0x2C90300000001),
        sa_enhanced_trust_model=True,
        sa_etm_max_num_mcgs=128,
        sa_etm_max_num_srvcs=32,
        sa_etm_max_num_event_subs=16,
        virt_enabled=2,
    )


def test_every_setting_follows_the_fragment_by_the_name_that_opensm_has(everything):
    text = "".join(everything.configuration("routing_engine file,no_fallback\n"))
    assert text == (
        "routing_engine file,no_fallback\n"
        "# Of this site: [opensm_site]\n"
        "allowed_sm_guids 0x000000000000001b,0x0002c90300000001\n"
        "m_key 0x1badcafe12345678\n"
        "m_key_lease_period 60\n"
        "m_key_lookup FALSE\n"
        "m_key_per_port TRUE\n"
        "m_key_protection_level 2\n"
        "polling_retry_number 3\n"
        "sa_enhanced_trust_model TRUE\n"
        "sa_etm_max_num_event_subs 16\n"
        "sa_etm_max_num_mcgs 128\n"
        "sa_etm_max_num_srvcs 32\n"
        "sa_key 0x0000000000000077\n"
        "sm_key 0x0000000000000099\n"
        "sm_priority 15\n"
        "sminfo_polling_timeout 2000\n"
        "virt_enabled 2\n"
    )


WRONG = {
    "m_key_protection_level": 4,
    "m_key_lease_period": -1,
    "sm_priority": 16,
    "sminfo_polling_timeout": 0,
    "polling_retry_number": 0,
    "sa_etm_max_num_mcgs": 1 << 16,
    "sa_etm_max_num_srvcs": -1,
    "sa_etm_max_num_event_subs": 1 << 16,
    "virt_enabled": 3,
    "allowed_sm_guids": (1 << 64,),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_out_of_range_is_named(everything, name):
    with pytest.raises(InvalidInput, match=rf"\[opensm_site\] {name}"):
        replace(everything, **{name: WRONG[name]})


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"m_key_protection_level": 2}, "m_key_file"),
        ({"m_key_lease_period": 60}, "m_key_file"),
        ({"m_key_per_port": True}, "m_key_file"),
        ({"sa_etm_max_num_mcgs": 5}, "sa_enhanced_trust_model"),
    ],
)
def test_an_option_that_means_nothing_without_another_one_is_refused(tmp_path, values, missing):
    with pytest.raises(InvalidInput, match=f"set {missing} too"):
        SiteSettings(tmp_path, **values)


@pytest.mark.parametrize("managers", [17, 1000])
def test_a_line_is_no_longer_than_opensm_reads(tmp_path, managers):
    with pytest.raises(InvalidInput, match="at most 16"):
        SiteSettings(tmp_path, allowed_sm_guids=tuple(range(1, managers + 1)))
    lines = SiteSettings(tmp_path, allowed_sm_guids=tuple(range(1, 17))).configuration("")
    assert max(map(len, lines)) < 1000


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_may_read_is_refused(everything, mode):
    everything.m_key_file.chmod(mode)
    with pytest.raises(InvalidInput, match="chmod 600") as refused:
        list(everything.configuration(""))
    assert "1badcafe" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["", "0x0", "-1", "1badcafe", "0x1badcafe123456789", "0xffffffffffffffff", "0x1badcafe\nx y"],
)
def test_what_is_no_key_is_refused_and_not_shown(everything, text):
    everything.m_key_file.write_text(text)
    with pytest.raises(InvalidInput, match="m_key_file") as refused:
        list(everything.configuration(""))
    assert "badcafe" not in str(refused.value)
    everything.m_key_file.unlink()
    with pytest.raises(InvalidInput, match="no such file"):
        list(everything.configuration(""))


def test_only_its_owner_can_read_what_is_written_and_it_survives_publication(everything, tmp_path):
    previous = os.umask(0)
    try:
        driver = OpenSmDriver(tmp_path / "sets", "tiny", site=everything)
        driver.publish(state(generation=7), SETTINGS)
        driver.reload()
        path = tmp_path / "sets" / "tiny" / "opensm.conf"
        before = path.read_text()
        driver.publish(state(generation=8), SETTINGS)
        driver.reload()
    finally:
        os.umask(previous)
    fragment = (path.parent / "current" / "opensm.conf").read_text()
    assert path.read_text() == before == "".join(everything.configuration(fragment))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    everything.for_tools()
    assert stat.S_IMODE((tmp_path / "diags.conf").stat().st_mode) == 0o600
    path.chmod(0o644)
    driver.reload()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    published = [p for p in (path.parent / "current").resolve().rglob("*") if p.is_file()]
    assert not any(f"{M_KEY:x}".encode() in file.read_bytes() for file in published)


def test_a_changed_key_is_told_and_leaves_the_configuration_as_it_was(everything, tmp_path):
    driver = OpenSmDriver(tmp_path / "sets", "tiny", site=everything)
    driver.publish(state(), SETTINGS)
    driver.reload()
    path = tmp_path / "sets" / "tiny" / "opensm.conf"
    before = path.read_text()
    everything.m_key_file.chmod(0o644)
    with pytest.raises(Unavailable, match="chmod 600"):
        driver.reload()
    assert path.read_text() == before


def test_tools_get_the_key_in_a_file_and_no_log_has_it(everything, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    said = tmp_path / "said"
    script = executable(tmp_path / "tool", f'#!/bin/sh\nprintf "%s\\n" "$*" >>{said}\n')
    opensm = OpenSm(
        dump_command=(str(script), "-n"),
        links_command=(str(script), "-l"),
        counters_command=(str(script), "-t", "200"),
        keys_command=(str(script), "--limit", "9"),
        site=everything,
    )
    opensm.tables()
    opensm.counters(4, [1])
    for reads in (opensm.links, lambda: opensm.keys(tmp_path)):
        with pytest.raises(Unavailable) as failed:  # it prints nothing
            reads()
        assert "badcafe" not in str(failed.value)
    lines = said.read_text().splitlines()
    given = f"-z {tmp_path}/diags.conf"
    assert lines[0] == f"-n {given}"
    assert f"-l {given}" in lines
    assert f"-t 200 {given} -l 4 1" in lines
    assert f"--limit 9 --mkey-file {everything.m_key_file} {tmp_path}" in lines
    assert (tmp_path / "diags.conf").read_text() == f"m_key={M_KEY:#x}\n"
    assert "badcafe" not in said.read_text() + caplog.text + repr(everything) + repr(opensm)


def test_without_an_m_key_tools_are_run_as_configured(tmp_path):
    site = SiteSettings(tmp_path, sm_priority=3)
    assert site.for_tools() == site.for_readers() == ()
    assert not (tmp_path / "diags.conf").exists()


class FakePort(SmpPort):
    """A subnet of one switch and one adapter behind its port 1; ``guards`` by LID."""

    silent: list[int] = []

    def __init__(self, mkey, guards):
        self.mkey, self.guards = mkey, guards

    def all_answers(self, queries):
        return {query: self.answer(*query) for query in queries}

    def answer(self, lid, attribute, modifier):
        data = bytearray(64)
        if attribute == NODE_INFO:
            guid = 0xA0 if lid == 65 else 0x1
            data[12:20] = data[20:28] = guid.to_bytes(8, "big")
            data[28:30] = (32).to_bytes(2, "big")
        elif attribute == PORT_INFO:
            key, level = self.guards.get(lid, (0, 0))
            data[:8] = (key if key == self.mkey or not level else 0).to_bytes(8, "big")
            data[18:20], data[32], data[34] = (65).to_bytes(2, "big"), 4, level << 6
        elif attribute == SWITCH_INFO:
            data[14:16] = (32).to_bytes(2, "big")
        elif attribute == PKEY_TABLE:
            data[:2] = (0x7FFF).to_bytes(2, "big")
        elif attribute == SM_INFO:
            data[:8], data[20] = (1).to_bytes(8, "big"), 9 << 4 | 3
        return bytes(data)


@pytest.mark.parametrize(
    ("mkey", "guards", "seen"),
    [
        (M_KEY, {1: (M_KEY, 2), 65: (M_KEY, 2)}, (2, 2)),
        (M_KEY, {1: (M_KEY, 0), 65: (M_KEY, 3)}, (0, 3)),
        (M_KEY, {1: (0, 0), 65: (M_KEY + 1, 1)}, (-1, -1)),
        (0, {1: (0, 0), 65: (0, 0)}, (None, None)),
    ],
)
def test_the_reader_says_which_ports_have_the_m_key(tmp_path, mkey, guards, seen):
    lids = {0x1: 1, 0xA0: 65}
    (tmp_path / "guid2lid").write_text("".join(render.guid2lid(lids)))
    cable = (PortRef(0xA0, 1), PortRef(0x1, 0))
    (tmp_path / "cabling").write_text("".join(render.cabling([cable])))
    found = read(FakePort(mkey, guards), tmp_path)
    levels = {port: entry.protection for port, entry in found.ports.items()}
    expected = (seen[0], seen[1], None)
    assert levels == dict(zip((cable[1], PortRef(0xA0, 0), cable[0]), expected, strict=True))


def reading_with(protection: int | None, priority: int = 9, master: int = 1) -> KeyReading:
    port = PortKeys(PortRef(5, 0), Enforcement.NONE, (0x7FFF,), protection)
    return KeyReading(1, Manager(master, 9, priority, keys.MASTER), {port.port: port})


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (reading_with(2), None),
        (reading_with(1), "1 ports are not protected by the M_Key at level 2: 0x0000000000000005"),
        (reading_with(-1), "1 ports are not protected"),
        (reading_with(2, priority=8), "sm_priority 8, not 9"),
        (reading_with(2, priority=8, master=2), None),  # a standby of ours, with its own priority
    ],
)
def test_settings_that_are_not_in_force_are_told(everything, seen, told):
    opensm = OpenSm(site=replace(everything, sm_priority=9))
    found = opensm.wrong_settings(seen)
    assert told in (found or "") if told else found is None
    report = health.report(
        health.OpenSMState(published=7, matches=7, current=True, wrong_settings=found), 60
    )
    assert report.condition is (Condition.WRONG_SETTINGS if told else Condition.APPLIED)


@pytest.fixture
def conf(tmp_path):
    conf = options_from()
    conf.set_override("state_dir", str(tmp_path))
    return conf


def test_the_configuration_gives_the_settings(conf, tmp_path):
    assert opensm_site.site(conf) is None
    key = key_file(tmp_path, "m", f"{M_KEY:#x}")
    conf.set_override("m_key_file", str(key), "opensm_site")
    lines = [
        *("m_key_protection_level 2", "m_key_lease_period 60", "m_key_lookup FALSE"),
        *("sm_priority  15", "sminfo_polling_timeout 2000", "polling_retry_number 3"),
        *("allowed_sm_guids 0x1b,0x2c90300000001", "sa_enhanced_trust_model true"),
        *("sa_etm_max_num_mcgs 128", "sa_etm_max_num_srvcs 32", "sa_etm_max_num_event_subs 16"),
        "virt_enabled 2",
    ]
    conf.set_override("option", lines, "opensm_site")
    site = opensm_site.site(conf)
    assert site is not None
    configured = "".join(site.configuration("")).splitlines()
    lines[6] = "allowed_sm_guids 0x000000000000001b,0x0002c90300000001"
    expected = [" ".join(line.upper().split()) for line in [f"m_key {M_KEY:#018x}", *lines]]
    assert sorted(line.upper() for line in configured[1:]) == sorted(expected)
    conf.set_override("dump_command", ["dump_lfts", "-n"], "opensm")
    opensm = opensm_of(conf, Tools())
    assert opensm is not None
    assert opensm.site == site
    conf.set_override("option", ["m_key_per_port TRUE"], "opensm_site")
    with pytest.raises(InvalidInput, match=r"\[opensm\] dump_command"):
        opensm_of(conf, Tools())
    conf.clear_override("option", "opensm_site")
    key.chmod(0o640)
    with pytest.raises(InvalidInput, match="chmod 600"):
        opensm_of(conf, Tools())


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["sm_prio 3"], "begin with one of allowed_sm_guids"),
        (["routing_engine minhop"], "begin with one of"),
        (["sm_priority high"], "give a number"),
        (["sm_priority"], "give a number"),
        (["sm_priority 3", "sm_priority 4"], "given twice"),
        (["m_key_lookup no"], "TRUE or FALSE"),
        (["allowed_sm_guids host1"], "GUIDs such as"),
        (["virt_enabled 3"], "use 0 to 2"),
        (["sm_priority 3\nm_key 0x1"], "give a number"),
    ],
)
def test_a_wrong_option_of_opensm_is_refused(conf, lines, told):
    conf.set_override("option", lines, "opensm_site")
    with pytest.raises(InvalidInput, match=told) as refused:
        opensm_site.site(conf)
    assert "opensm_site" in str(refused.value)


def test_a_setting_that_protects_the_fabric_is_never_dropped_silently(tmp_path):
    """An option that has gone stops the start: without it, ports would be open."""
    path = tmp_path / "laas.conf"
    path.write_text("[opensm_site]\nsm_priority = 15\n")
    conf = options_from(path)
    with pytest.raises(InvalidInput, match=r"option = sm_priority VALUE"):
        opensm_site.site(conf)
