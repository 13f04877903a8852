# SPDX-License-Identifier: Apache-2.0

"""Plays one scenario on a site, and measures what the service does and what tenants lose."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field

from opensm_writer.fileset import published_generation
from tests.faults.scenarios import Expected, Scenario
from tests.faults.site import ID, Site
from tests.faults.wiring import Pairs, Rows


@dataclass
class Outcome:
    """Seconds from the fault; None: it was not so. Pairs are at their worst, and at the end."""

    scenario: str
    held: float = 0.0
    """Seconds of hold-down in the following times."""
    noticed: float | None = None
    """The record of the observation changes."""
    marked: float | None = None
    """All links that have to be are recorded as failed or withheld."""
    published: float | None = None
    """The first set of files after that is current; None if no routes changed."""
    restored: float | None = None
    """Tables were read over which no pair is lost that is not lost at the end."""
    confirmed: float | None = None
    """The first routes published after that, or newer ones, were read back from the switches."""
    replaced: float | None = None
    """The newest routes were read back, and nobody waits for other links; None if no routes
    changed."""
    generations: int = 0
    walked: int = 0
    lost: int = 0
    lost_at_end: int = 0
    foreign: int = 0
    degraded: int = 0
    """Tenants for which there are no other links."""
    looks: int = 0
    """How often all tables were read and walked before the end."""
    load: float = 0.0
    processor: float | None = None
    """Seconds of processor time until ``confirmed`` in the simulator, OpenSM, the worker and its
    tools: on a machine without other work about the time that passes, as they mostly take turns."""
    complaints: list[str] = field(default_factory=list)


class Sampler:
    """Reads the tables of the switches again and again, and walks all pairs.

    It rests ``pause`` seconds before each reading, because a reading of a large fabric delays the
    subnet manager that shares the simulator with it.
    """

    def __init__(self, site: Site, begun: float, known: Rows, pause: float) -> None:
        self._site, self._begun, self._known, self._pause = site, begun, known, pause
        self.samples: list[tuple[float, Pairs]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: BaseException | None = None

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._pause):
                pairs = self._site.pairs(self._known)
                self.samples.append((time.monotonic() - self._begun, pairs))
        except BaseException as error:
            self.error = error


def play(site: Site, scenario: Scenario, *, pause: float = 0.0) -> Outcome:
    """Play a scenario on a sound site. The site is not repaired afterwards.

    ``pause``: seconds between two walks over all tables.

    Raises:
        NotHere: the fabric has nothing to break.
        AssertionError: the service did not come to an end in time.
    """
    scenario.prepare(site)
    outcome = Outcome(scenario.name)
    known, tenants = site.rows(), site.tenants()
    site.rest()
    quiet = _noticed(site)
    generation = published_generation(site.state / "opensm", ID)
    begun = time.monotonic()
    with Sampler(site, begun, known, pause) as sampler:
        expected = scenario.act(site)
        _watch(site, expected, outcome, begun, quiet)
    if sampler.error is not None:
        raise sampler.error
    at_first = site.judge.pairs(known, site.wiring, tenants)  # nobody has reacted yet
    pairs = site.pairs(known)
    sampler.samples = [(0.0, at_first), *sampler.samples, (time.monotonic() - begun, pairs)]
    outcome.looks = len(sampler.samples)
    outcome.walked, outcome.lost_at_end = pairs.walked, pairs.lost
    outcome.lost = max(pairs.lost for _, pairs in sampler.samples)
    outcome.foreign = max(pairs.foreign for _, pairs in sampler.samples)
    worst = [at for at, pairs in sampler.samples if pairs.lost > outcome.lost_at_end]
    after = [at for at, _ in sampler.samples if not worst or at > worst[-1]]
    outcome.restored = after[0] if worst else None
    outcome.complaints += [x for _, pairs in sampler.samples for x in pairs.examples]
    outcome.generations = published_generation(site.state / "opensm", ID) - generation
    if not outcome.generations:
        outcome.replaced = None
    outcome.degraded = sum(bool(record.faults) for record in site.records())
    outcome.load = os.getloadavg()[0]
    return outcome


PAUSE = 0.05
"""Seconds between two looks at the record."""


def _watch(site: Site, expected: Expected, outcome: Outcome, begun: float, quiet: object) -> None:
    """Note when things happen, until the service has come to an end."""
    until, used = begun + site.patience, site.processor_seconds()
    first = published_generation(site.state / "opensm", ID)
    first_new = first + 1
    while outcome.replaced is None:
        now = time.monotonic() - begun
        if outcome.noticed is None and _noticed(site) != quiet:
            outcome.noticed = now
        if outcome.marked is None and expected.holds(site):
            outcome.marked = now
            outcome.noticed = now if outcome.noticed is None else outcome.noticed
        generation = published_generation(site.state / "opensm", ID)
        if outcome.published is None and generation > first:
            outcome.published, first_new = now, generation
        if (
            outcome.confirmed is None
            and (site.store.observations.holding(ID).applied or 0) >= first_new
        ):
            outcome.confirmed = now
            outcome.processor = site.processor_seconds() - used
        if outcome.marked is not None and site.is_settled() and expected.holds(site):
            outcome.replaced = now
        assert begun + now < until, f"{outcome}: {expected}: {site.describe()}"
        time.sleep(PAUSE)


def _noticed(site: Site) -> object:
    """What changes as soon as the service notices something."""
    memory = site.seen.memory
    return (
        {link: (entry.condition, entry.downs) for link, entry in memory.links.items()},
        {guid: entry.state for guid, entry in memory.switches.items()},
        frozenset(memory.hosts),
    )
