# SPDX-License-Identifier: Apache-2.0

"""Constraints of a request on its hosts, on where they lie, and on its shape."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields, replace
from typing import Any

from laas_service.domain.errors import InvalidInput


class Within(enum.Enum):
    """The part of the tree that has to hold all hosts of an allocation."""

    LEAF = "leaf"
    POD = "pod"


class ContentionFree(enum.Enum):
    """How much a request wants that no shift of its hosts puts two flows on a link."""

    REQUIRE = "require"
    PREFER = "prefer"


class Undisturbed(enum.Enum):
    """How much a request wants that no packet of others has to cross its links."""

    REQUIRE = "require"
    PREFER = "prefer"


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints on traits, cost, place and shape.

    All but ``cheapest`` and what is preferred are musts: an allocation meets them, or the request
    is refused. Those on hosts and places follow LaaS (ANCS'16), section 5,
    "Heterogeneous LaaS".

    Raises:
        InvalidInput: a number is out of range, or two constraints contradict each other.
    """

    traits: frozenset[str] = frozenset()
    """Every host has all of these traits."""
    avoid_hosts: frozenset[int] = frozenset()
    """Numbers of hosts that are not used."""
    avoid_pods: frozenset[int] = frozenset()
    """Numbers of pods that are not used, as in links; a host is in the pods of all its rails."""
    within: Within | None = None
    """All hosts lie in one leaf group or in one pod."""
    spread: int = 1
    """The hosts lie in at least this many pods, 1 or more."""
    max_host_cost: int | None = None
    """No host costs more than this, 0 or more."""
    cheapest: bool = False
    """Take the placement whose hosts cost least together, of those that are legal for the
    policy (``search.min_cost`` says what exactly is promised)."""
    contention_free: ContentionFree | None = None
    """Take a shape whose forwarding tables are free of contention (``routing.contention``). If it
    is preferred, one that costs no more and lies in no more pods, if there is one."""
    undisturbed: Undisturbed | None = None
    """No default route crosses links of the allocation (``admission.undisturbed``). If it is
    preferred, as few pairs cross them as in any placement that is tried."""

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
        """The field names of the constraints that are set, also of those that are no musts."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) != f.default)

    @property
    def musts(self) -> Constraints:
        """The constraints that decide whether a placement is accepted."""
        contention_free, undisturbed = self.contention_free, self.undisturbed
        if contention_free is ContentionFree.PREFER:
            contention_free = None
        if undisturbed is Undisturbed.PREFER:
            undisturbed = None
        musts = replace(
            self, cheapest=False, contention_free=contention_free, undisturbed=undisturbed
        )
        return self if musts == self else musts

    @property
    def of_shape(self) -> bool:
        """Whether some constraint concerns shapes. A policy has to meet it while it searches; the
        other constraints only take hosts away."""
        required = self.contention_free is ContentionFree.REQUIRE
        return self.cheapest or self.spread > 1 or self.within is not None or required

    def without(self, name: str) -> Constraints:
        """The constraints without the one of that field name."""
        default: Any = next(f.default for f in fields(self) if f.name == name)
        return replace(self, **{name: default})

    def described(self, name: str) -> str:
        """The constraint of that field name in words, without host or pod numbers."""
        value = getattr(self, name)
        if name == "traits":
            return f"traits ({', '.join(sorted(value))})"
        if name in ("avoid_hosts", "avoid_pods"):
            return f"{name} ({len(value)})"
        return f"{name} ({value.value if isinstance(value, enum.Enum) else value})"
