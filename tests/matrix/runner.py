# SPDX-License-Identifier: Apache-2.0

"""All cells, run by run, in one world."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from tests.matrix.cell import Cell, Failed, Outcome
from tests.matrix.faults import FAULTS, Fault
from tests.matrix.scenarios import SCENARIOS, Scenario
from tests.matrix.site import Ground, Site, World

CLIENTS = 5
"""How often OpenSM is killed in one run: the simulator never forgets a client."""


class Matrix:
    """Cells in one world; what a scenario starts from is made once."""

    def __init__(self, world: World, verified: bool = True) -> None:
        """``verified``: let ``laas-manage fabric verify`` judge every cell, too."""
        self._world = world
        self._verified = verified

    def clean(self, name: str) -> list[str]:
        """The steps of a scenario, in the order in which a run without faults takes them."""
        return self._run(SCENARIOS[name], None, ()).steps

    @staticmethod
    def runs(name: str, steps: Sequence[str], fault: str) -> list[list[str]]:
        """The steps of a column, run by run: alone if they meet the fault, else together."""
        met = [step for step in steps if FAULTS[fault].meets(name, step)]
        rest = [step for step in steps if step not in met]
        most = CLIENTS if FAULTS[fault].ground.opensm else len(steps)
        together = [rest[first : first + most] for first in range(0, len(rest), most)]
        return [*([step] for step in met), *together]

    def cell(self, name: str, steps: Sequence[str], fault: str) -> str:
        """What became of it; with several steps it strikes at each.

        Raises: Failed, also if a step that is said to meet the fault does not notice it, or
        the other way round.
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
