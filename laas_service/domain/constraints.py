# SPDX-License-Identifier: Apache-2.0

"""What a request may ask of its hosts and of its place, beyond their number."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields, replace
from typing import Any

from laas_service.domain.errors import InvalidInput


class Within(enum.Enum):
    """The part of the tree that an allocation may not leave."""

    LEAF = "leaf"
    POD = "pod"


@dataclass(frozen=True, slots=True)
class Constraints:
    """LaaS (ANCS'16) section 5, "Heterogeneous LaaS", and where a tenant may be.

    * ``traits``: every host has all of these;
    * ``avoid_hosts``, ``avoid_pods``: no host of these, by number; pods as in links,
      and a host is in the pods of all its rails;
    * ``within``: all hosts in one leaf group, or in one pod;
    * ``spread``: hosts in at least this many pods;
    * ``max_host_cost``: no host is dearer;
    * ``cheapest``: of the placements that are legal for the policy the one whose hosts
      cost least together (``policies.cheapest`` says what exactly is promised).

    All but ``cheapest`` are musts: an answer meets them, or there is none.

    Raises:
        InvalidInput: a number is out of range, or two of them contradict each other.
    """

    traits: frozenset[str] = frozenset()
    avoid_hosts: frozenset[int] = frozenset()
    avoid_pods: frozenset[int] = frozenset()
    within: Within | None = None
    spread: int = 1
    max_host_cost: int | None = None
    cheapest: bool = False

    def __post_init__(self) -> None:
        if self.spread < 1:
            raise InvalidInput("constraints.spread", self.spread, "give 1 pod or more")
        if self.spread > 1 and self.within is not None:
            raise InvalidInput(
                "constraints.spread",
                self.spread,
                f"leave it out, or leave out within: hosts within a {self.within.value} are "
                "in one pod",
            )
        if self.max_host_cost is not None and self.max_host_cost < 0:
            raise InvalidInput("constraints.max_host_cost", self.max_host_cost, "give 0 or more")

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are set, by field name, ``cheapest`` included."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) != f.default)

    @property
    def musts(self) -> Constraints:
        """The same without the wish for the cheapest: what decides whether something fits."""
        return replace(self, cheapest=False) if self.cheapest else self

    @property
    def of_shape(self) -> bool:
        """Whether a policy has to know them; all others only take hosts away."""
        return self.cheapest or self.spread > 1 or self.within is not None

    def without(self, name: str) -> Constraints:
        """The same without one of them."""
        default: Any = next(f.default for f in fields(self) if f.name == name)
        return replace(self, **{name: default})

    def told(self, name: str) -> str:
        """One of them in words that name nobody's hosts."""
        value = getattr(self, name)
        if name == "traits":
            return f"traits ({', '.join(sorted(value))})"
        if name in ("avoid_hosts", "avoid_pods"):
            return f"{name} ({len(value)})"
        return f"{name} ({value.value if isinstance(value, Within) else value})"
