# SPDX-License-Identifier: Apache-2.0

"""Constraints of a request on its hosts, on where they lie, and on its shape."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

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


class Spread(NamedTuple):
    """Hosts of at least ``least`` domains of a kind."""

    kind: str
    least: int


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints on traits, cost, place, shape and domains.

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
    within: Within | str | None = None
    """All hosts lie in one leaf group, in one pod, or in one domain of the kind of this name."""
    spread: int | Spread = 1
    """The hosts lie in at least this many pods, 1 or more, or domains of a kind."""
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
    domains: int | None = None
    """The hosts are those of so many whole domains of ``kind``, 1 or more."""
    per_domain: int | None = None
    """Exactly so many of the hosts lie in each domain of ``kind`` that has any; 1 or more."""
    kind: str | None = None
    """The kind of domains of ``domains``, ``per_domain`` and ``exclusive``."""
    exclusive: bool = False
    """Nobody else has hosts in the domains used. They are those of ``kind``; without it, of the
    kind of ``within`` or of ``spread``."""

    def __post_init__(self) -> None:
        if self.least_pods < 1:
            raise InvalidInput("constraints.spread", self.spread, "give 1 pod or more")
        if self.least_pods > 1 and self.place is not None:
            raise InvalidInput(
                "constraints.spread",
                self.spread,
                f"leave it out, or leave out within: hosts within a {self.place.value} are "
                "in one pod",
            )
        if self.max_host_cost is not None and self.max_host_cost < 0:
            raise InvalidInput("constraints.max_host_cost", self.max_host_cost, "give 0 or more")
        self._check_domains()

    def _check_domains(self) -> None:
        for name in ("domains", "per_domain"):
            wanted = getattr(self, name)
            if wanted is None:
                continue
            if wanted < 1:
                raise InvalidInput(f"constraints.{name}", wanted, "give 1 or more")
            if self.kind is None:
                raise InvalidInput("constraints.kind", None, f"name the kind of domains of {name}")
        if self.domains is not None and self.per_domain is not None:
            fix = "leave it out, or leave out domains: whole domains give all their hosts"
            raise InvalidInput("constraints.per_domain", self.per_domain, fix)
        if isinstance(self.spread, Spread):
            if self.spread.least < 1:
                fix = "give 1 domain or more"
                raise InvalidInput("constraints.spread.least", self.spread.least, fix)
            if self.spread.kind == self.within and self.spread.least > 1:
                fix = f"leave it out, or leave out within: that is one domain of {self.within}"
                raise InvalidInput("constraints.spread.least", self.spread.least, fix)
        for name, kind in (("kind", self.kind), ("spread.kind", self.kind_of_spread)):
            if kind in ("leaf", "pod"):
                fix = "name a kind of domains; leaves and pods are none"
                raise InvalidInput(f"constraints.{name}", kind, fix)
        if self.exclusive and self.exclusive_kind is None:
            fix = "name the kind of the domains"
            raise InvalidInput("constraints.kind", None, fix)
        if self.kind is not None and self.counted is None and not self.exclusive:
            fix = "leave it out, or give domains, per_domain or exclusive"
            raise InvalidInput("constraints.kind", self.kind, fix)
        if self.cheapest and self.by_domain:
            fix = f"leave it out, or leave out {self.by_domain[0]}: of domains no cost is compared"
            raise InvalidInput("constraints.cheapest", True, fix)

    @property
    def place(self) -> Within | None:
        """The part of the tree that has to hold all hosts."""
        return self.within if isinstance(self.within, Within) else None

    @property
    def within_kind(self) -> str | None:
        """The kind of domains of which one has to hold all hosts."""
        return self.within if isinstance(self.within, str) else None

    @property
    def least_pods(self) -> int:
        """The least pods that the hosts lie in."""
        return self.spread if isinstance(self.spread, int) else 1

    @property
    def kind_of_spread(self) -> str | None:
        """The kind of the domains of ``spread``."""
        return self.spread.kind if isinstance(self.spread, Spread) else None

    @property
    def counted(self) -> str | None:
        """The kind whose domains are taken whole, or with ``per_domain`` hosts of each."""
        return self.kind if self.domains is not None or self.per_domain is not None else None

    @property
    def exclusive_kind(self) -> str | None:
        """The kind of domains that nobody else may use."""
        return (self.kind or self.within_kind or self.kind_of_spread) if self.exclusive else None

    @property
    def by_domain(self) -> tuple[str, ...]:
        """The field names of the constraints on domains that are set."""
        names = {
            "domains": self.domains is not None,
            "per_domain": self.per_domain is not None,
            "within": self.within_kind is not None,
            "spread": self.kind_of_spread is not None,
            "exclusive": self.exclusive,
        }
        return tuple(name for name, given in names.items() if given)

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        """(Field, kind) of each kind of domains that is named."""
        named = {
            "kind": self.kind,
            "within": self.within_kind,
            "spread.kind": self.kind_of_spread,
        }
        return tuple((name, kind) for name, kind in named.items() if kind is not None)

    @property
    def of_tree(self) -> Constraints | None:
        """The constraints that a policy reads itself (``of_shape``), on leaves and pods."""
        if not self.of_shape:
            return None
        return Constraints(
            within=self.place,
            spread=self.least_pods,
            cheapest=self.cheapest,
            contention_free=self.contention_free,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The field names of the constraints that are set, also of those that are no musts.

        Without ``kind``, which says what others mean.
        """
        return tuple(
            f.name for f in fields(self) if f.name != "kind" and getattr(self, f.name) != f.default
        )

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
        return self.cheapest or self.least_pods > 1 or self.place is not None or required

    def without(self, name: str) -> Constraints:
        """The constraints without the one of that field name, and what only speaks of it."""
        default: Any = next(f.default for f in fields(self) if f.name == name)
        changed: dict[str, Any] = {name: default}
        others = {"domains", "per_domain", "exclusive"} - {name}
        if all(getattr(self, other) in (None, False) for other in others):
            changed["kind"] = None
        if self.exclusive and not (self.kind if "kind" not in changed else None):
            kept = {"within": self.within_kind, "spread": self.kind_of_spread} | {name: None}
            changed["exclusive"] = any(kept.values())
        return replace(self, **changed)

    def described(self, name: str) -> str:
        """The constraint of that field name in words, without host or pod numbers."""
        value = getattr(self, name)
        if name in ("domains", "per_domain"):
            return f"{name} ({value} of kind {self.kind})"
        if name == "exclusive":
            return f"exclusive (kind {self.exclusive_kind})"
        if isinstance(value, Spread):
            return f"spread ({value.least} of kind {value.kind})"
        if name == "traits":
            return f"traits ({', '.join(sorted(value))})"
        if name in ("avoid_hosts", "avoid_pods"):
            return f"{name} ({len(value)})"
        return f"{name} ({value.value if isinstance(value, enum.Enum) else value})"
