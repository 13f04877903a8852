# SPDX-License-Identifier: Apache-2.0

"""A worker that was told the directory of the files alone watches the real fabric beside OpenSM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from laas_service.app.lifecycle import State
from laas_service.domain.topology import SpineLink
from laas_service.messages import ConfirmedBy
from tests.faults.fabrics import FABRICS
from tests.faults.scenarios import victim
from tests.faults.site import FOUND, ID, Site
from tests.functional.test_opensm_keys import raw_keys, write_keys
from tests.marks import needs_ibsim
from tests.waiting import eventually

pytestmark = needs_ibsim


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    options = {"drift_interval": 1, "retry_last": 2}
    with Site(FABRICS["128"](), faults={"hold_down": 1}, worker=options, opensm=FOUND) as made:
        yield made


def until(site: Site, look, what: str):
    return eventually(look, lambda: f"{what}: {site.describe()}", patience=site.patience)


def test_nothing_but_the_directory_is_configured(site):
    text = site.config.read_text()
    section = text.partition("[opensm]\n")[2].partition("[")[0].split()
    assert section == ["directory", "=", f"{site.state}/opensm"]
    assert site.store.observations.holding(ID).applied_by is ConfirmedBy.SWITCHES


def test_keys_are_read_and_repaired(site):
    """``smpquery`` reads the keys here, not the code that the worker has."""
    placed = site.records()[0].placed
    assert placed is not None
    host = placed.hosts(site.topology)[0]
    lid = site.inventory.lids[site.inventory.endpoint_of_port[host, 0].guid]
    before = raw_keys(site, lid)
    write_keys(site, lid, 1, 0x7FFF, 0x8999)
    assert raw_keys(site, lid) != before
    until(site, lambda: raw_keys(site, lid) == before, "the keys are as published")


def test_counters_of_every_switch_are_read(site):
    switches = {switch.guid for switch in site.inventory.switches}

    def counted():
        return {found.guid for found in site.store.faults.counter_findings(ID)}

    until(site, lambda: counted() == switches, "counters are recorded")


def test_a_cut_cable_is_seen_and_its_tenant_gets_another_one(site):
    link = victim(site, SpineLink)
    port = site.inventory.cable_of_link[link].upper
    site.cut([port])
    until(site, lambda: link in site.failed, "the link has failed")

    def replaced():
        return site.is_confirmed() and not any(link in links for _, links in site.tenants())

    until(site, replaced, "its tenant has another link, and the switches have its routes")
    site.mend([port])
    until(site, site.is_sound, "all is as before")


def test_a_dead_spine_blocks_no_confirmation(site):
    spine = site.inventory.spine_guids[0]
    site.kill(spine)
    until(site, lambda: spine in site.seen.memory.switches, "the spine is dead")
    assert site.admit("new", 2)

    def active():
        record = site.store.allocations.get("new")
        return record.state is State.ACTIVE and site.is_confirmed()

    until(site, active, "a new tenant is active")
    site.revive(spine)
    until(site, site.is_sound, "all is as before")
