# SPDX-License-Identifier: Apache-2.0

"""Runs the cells of the matrix on shared servers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from tests.matrix.cell import Cell, Failed, Outcome
from tests.matrix.faults import FAULTS, Fault
from tests.matrix.scenarios import SCENARIOS, Scenario
from tests.matrix.site import Ground, Site, World

CLIENTS = 5
"""Kills of OpenSM in one run, limited because the simulator keeps dead clients."""


class Matrix:
    """Runs cells on shared servers; the initial state of each scenario is made once."""

    def __init__(self, world: World, verified: bool = True) -> None:
        """``verified``: run ``laas-manage fabric verify`` at the end of every cell, too."""
        self._world = world
        self._verified = verified

    def clean(self, name: str) -> list[str]:
        """Steps of a scenario, in the order of a run without faults."""
        return self._run(SCENARIOS[name], None, ()).steps

    @staticmethod
    def runs(name: str, steps: Sequence[str], fault: str) -> list[list[str]]:
        """Steps of a column by run: a step that meets the fault runs alone, the others together."""
        met = [step for step in steps if FAULTS[fault].meets(name, step)]
        rest = [step for step in steps if step not in met]
        most = CLIENTS if FAULTS[fault].ground.opensm else len(steps)
        together = [rest[first : first + most] for first in range(0, len(rest), most)]
        return [*([step] for step in met), *together]

    def cell(self, name: str, steps: Sequence[str], fault: str) -> str:
        """Text of a cell in the table; the fault strikes at each of ``steps``.

        Raises: Failed, also if a step notices the fault although ``meets`` denies it, or the
        other way round.
        """
        outcome = self._run(SCENARIOS[name], FAULTS[fault], steps).text()
        met = FAULTS[fault].meets(name, steps[0])
        if met != bool(outcome) and not FAULTS[fault].lasts:
            said = "meets" if met else "does not meet"
            raise Failed(f"{name}, {steps}: it is said that it {said} {fault}: {outcome!r}")
        return outcome or FAULTS[fault].unmet

    def _run(self, scenario: Scenario, fault: Fault | None, steps: Collection[str]) -> Outcome:
        ground = fault.ground if fault else Ground()
        with self._site(scenario.base, ground) as site:
            verified = self._verified or fault is None
            return Cell(self._world, scenario, fault, steps, verified).run(site)

    @contextmanager
    def _site(self, base: str | None, ground: Ground) -> Iterator[Site]:
        with Site(self._world, ground) as site:
            if base is None:
                site.make_empty()
            else:
                if not site.has(base):
                    self._make(base, Ground(sqlite=ground.sqlite))
                site.take(base)
            yield site

    def _make(self, name: str, ground: Ground) -> None:
        scenario = SCENARIOS[name]
        with self._site(scenario.base, ground) as site:
            Cell(self._world, scenario).run(site)
            site.keep(name)
