# SPDX-License-Identifier: Apache-2.0

"""Sections of a report: workloads that run under policies, and the tables of their results.

``laas-simulate report`` shows the sections of an installed extension, such as ``laas-research``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from laas_service.domain.policies import POLICIES
from laas_service.simulator.scenario import Scenario

Result = Mapping[str, Any]
"""JSON data of one run, as ``scenario.run`` returns it."""
Measure = Callable[[Result], float | None]
Range = tuple[float, float]
"""(lowest, highest) published value."""


@dataclass(frozen=True)
class Cell:
    """The value of a table row: a measure of the runs of one workload."""

    workload: str
    measure: Measure
    base: str | None = None
    """The workload whose baseline run is the unit of the value; None for an absolute value."""


@dataclass(frozen=True)
class ResultTable:
    """A table of results: a row for each workload, a column for each policy."""

    title: str
    unit: str
    rows: Mapping[str, Cell]
    published: Mapping[tuple[str, str], Range] = field(default_factory=dict)
    """(row, policy) -> the range that the paper states."""
    digits: int = 1
    """Decimals shown."""


@dataclass(frozen=True)
class Section:
    """One experiment: every workload runs under every policy, and tables show the results."""

    name: str
    workloads: Mapping[str, Scenario]
    """Scenarios by name; their policy is empty, ``scenarios`` fills it in."""
    policies: tuple[str, ...]
    tables: tuple[ResultTable, ...]

    def scenarios(self) -> list[Scenario]:
        """The scenario of every run; the baseline runs once, as speed-ups do not apply to it."""
        return [
            replace(scenario, policy=policy, label=f"{self.name}: {workload}")
            for workload, scenario in self.workloads.items()
            for policy in self.policies
            if policy in POLICIES and (policy != "baseline" or scenario.speedup == "none")
        ]
