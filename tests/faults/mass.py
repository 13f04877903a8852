# SPDX-License-Identifier: Apache-2.0

"""Many parts are lost at once: what is recorded, and what is published."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from laas_service.domain.inventory import PortRef
from opensm_writer.fileset import published_generation
from tests.faults.scenarios import host, leaf, links_of, ports_of
from tests.faults.site import ID, Site
from tests.waiting import eventually


@dataclass(frozen=True)
class Mass:
    """An event. ``act`` breaks something and returns the number of links that may be recorded."""

    name: str
    title: str
    act: Callable[[Site], int]
    alarm: bool
    sees: Callable[[Site], bool]
    """Whether the service has seen all of it."""


@dataclass
class Result:
    """What an event led to, and what was left after all was plugged in again."""

    name: str
    alarms: int = 0
    marked: int = 0
    """Links that were recorded as failed."""
    generations: int = 0
    absent: int = 0
    """Hosts that were recorded as absent."""
    foreign: int = 0
    marked_after: int = 0
    generations_after: int = 0
    lost_after: int = 0


def _leaf(site: Site) -> int:
    switch = leaf(site)
    site.kill(switch)
    return len(links_of(site, switch))


def _spines(site: Site) -> int:
    spines = sorted(set(site.inventory.spine_guids))
    for switch in spines[: len(spines) // 3]:
        site.kill(switch)
    return 0


def _observer(site: Site) -> int:
    site.cut([site.fabric.manager.at])
    return 0


POWER_CUT = 40


def _hosts(site: Site) -> int:
    first = host(site)
    site.cut(end.at for end in ports_of(site, range(first, first + POWER_CUT)))
    return 0


MASS = (
    Mass("leaf", "a leaf", _leaf, False, lambda site: bool(site.failed)),
    Mass("spines", "a third of all spines", _spines, True, lambda site: _alarms(site) > 0),
    Mass("observer", "the observer's cable", _observer, True, lambda site: _alarms(site) > 0),
    Mass(
        "hosts",
        f"the power of {POWER_CUT} hosts",
        _hosts,
        False,
        lambda site: len(site.seen.memory.hosts) >= POWER_CUT,
    ),
)


def _alarms(site: Site) -> int:
    return int(site.seen.memory.alarm is not None)


def play(site: Site, event: Mass, *, quiet: float = 20.0) -> Result:
    """Play an event, watch for ``quiet`` seconds, and plug everything in again.

    Raises:
        AssertionError: the service did not see it, or did not come to rest after the recovery.
    """
    result, known = Result(event.name), site.rows()
    root = site.state / "opensm"
    before = published_generation(root, ID)
    allowed = event.act(site)
    eventually(lambda: event.sees(site), site.describe, patience=site.patience)
    until, alarm = time.monotonic() + quiet, None
    while time.monotonic() < until:
        memory = site.seen.memory
        result.alarms += memory.alarm is not None and memory.alarm != alarm
        alarm = memory.alarm
        result.marked = max(result.marked, len(site.failed))
        result.absent = max(result.absent, len(memory.hosts))
        result.foreign = max(result.foreign, site.pairs(known).foreign)
        time.sleep(0.5)  # between two samples
    assert result.marked <= allowed, f"{result}: {site.describe()}"
    result.generations = published_generation(root, ID) - before
    _recover(site)
    eventually(site.is_sound, site.describe, patience=site.patience)
    result.marked_after = len(site.failed)
    result.generations_after = published_generation(root, ID) - before - result.generations
    result.lost_after = site.pairs().lost
    return result


def _recover(site: Site) -> None:
    missing: Iterable[PortRef] = sorted(set(site.wiring.recorded) - set(site.wiring.far))
    site.mend(port for port in missing if port.guid in site.inventory.switch_of_guid)
