# SPDX-License-Identifier: Apache-2.0

"""Which hosts are withheld from new owners for what compute shows of them; pure.

A host that compute does not know, or that is disabled or down or not free there, or runs a server
that may not be on it, is withheld once that has lasted for a hold-down, and given back as soon as
it is over. A server that vanishes from a host whose compute service is not up may still run there,
and so may one that nobody has seen on a host that its owner leaves meanwhile: such a host is
quarantined until somebody says that it is empty.
"""

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from laas_service.domain.wording import listed

SHORT = 8
"""Characters of a server's id that are remembered."""


@dataclass(frozen=True, slots=True)
class HostRules:
    """Seconds that a problem lasts before its host is withheld; the share (0 to 1) of hosts that
    may newly be down or unknown at once, beyond which none is; and the longest time in seconds
    after which a returned compute service has removed deleted servers, 0 if it does not.

    ``unknown`` is what is told of a host that compute does not know, ``away`` what is told of the
    time in which a host was down or unknown.
    """

    hold_down: float = 120.0
    outage_share: float = 0.5
    reap_interval: float = 0.0
    unknown: str = "unknown in Nova"
    away: str = "nova-compute was not up"


@dataclass(frozen=True, slots=True)
class HostView:
    """What compute shows of a host; ``strangers`` names servers that may not be on it.

    ``unfit``: why no new owner may get an Ironic node in its state; empty if one may.
    """

    up: bool = True
    enabled: bool = True
    reason: str = ""
    servers: frozenset[str] = frozenset()
    strangers: str = ""
    unfit: str = ""

    @property
    def problem(self) -> str:
        """Why no new owner should get the host; empty if there is no reason."""
        if not self.up:
            return "down in Nova"
        if not self.enabled:
            return f"{DISABLED}{': ' if self.reason else ''}{self.reason}"
        if self.unfit:
            return f"{UNFIT}: {self.unfit}"
        return self.strangers


UNKNOWN = "unknown in Nova"
DOWN = "down in Nova"
DISABLED = "disabled in Nova"
MISSING = "unknown in Ironic"
UNFIT = "not free in Ironic"


class Cause(enum.Enum):
    """Why a host is withheld, as the beginning of the reason that is told."""

    UNKNOWN = UNKNOWN
    DOWN = DOWN
    DISABLED = DISABLED
    MISSING = MISSING
    UNFIT = UNFIT
    QUARANTINED = "quarantined"
    OCCUPIED = "occupied"
    """A server runs there that may not; the reason names it."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem of a host, since when (seconds since the epoch), and whether it is withheld."""

    problem: str
    since: float
    withheld: bool = False


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a host is in quarantine, since when, and since when its compute service is up again."""

    why: str
    since: float
    returned: float | None = None


@dataclass(frozen=True, slots=True)
class HostMemory:
    """What is remembered of the hosts of a fabric, by name.

    ``servers`` are those that were there at the last look, shortened; ``not_up`` the hosts whose
    compute service was not up then. ``alarm``: so many hosts seem away that none is withheld.
    """

    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    quarantine: Mapping[str, Quarantine] = field(default_factory=dict)
    servers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    not_up: frozenset[str] = frozenset()
    alarm: str | None = None

    def withheld(self) -> dict[str, tuple[float, str]]:
        """The hosts that no new owner gets: since when, and why."""
        found = {
            name: (trouble.since, trouble.problem)
            for name, trouble in self.troubles.items()
            if trouble.withheld
        }
        found |= {
            name: (entry.since, f"quarantined: {entry.why}")
            for name, entry in self.quarantine.items()
        }
        return found

    def withheld_by_cause(self) -> dict[Cause, list[str]]:
        """The names of the hosts that no new owner gets, ascending, by each cause there is."""
        found: dict[Cause, list[str]] = {cause: [] for cause in Cause}
        for name, (_, why) in sorted(self.withheld().items()):
            found[_cause(why)].append(name)
        return found

    @property
    def has_problems(self) -> bool:
        """Whether some host should not be handed over now."""
        return bool(self.quarantine or self.troubles)

    def problem(self, name: str) -> str | None:
        """Why a host should not be handed over now, withheld or not yet."""
        if name in self.quarantine:
            return f"quarantined: {self.quarantine[name].why}"
        trouble = self.troubles.get(name)
        return trouble.problem if trouble else None


def _cause(why: str) -> Cause:
    """The cause that a reason of ``HostMemory.withheld`` tells."""
    return next((cause for cause in Cause if why.startswith(cause.value)), Cause.OCCUPIED)


def judge(
    memory: HostMemory,
    names: Collection[str],
    seen: Mapping[str, HostView],
    now: float,
    rules: HostRules,
    left: Collection[str] = (),
) -> HostMemory:
    """What is remembered after a look at the hosts ``names``, of which compute knows ``seen``.

    The owners of the hosts ``left`` are leaving them: they are taken back, and not free yet.
    """
    servers = {
        name: frozenset(id[:SHORT] for id in seen[name].servers)
        for name in names
        if name in seen and seen[name].servers
    }
    not_up = frozenset(name for name in names if name not in seen or not seen[name].up)
    problems = {
        name: seen[name].problem if name in seen else rules.unknown
        for name in names
        if name not in seen or seen[name].problem
    }
    away = [
        name
        for name, problem in problems.items()
        if problem in (rules.unknown, DOWN) and not _is_withheld(memory, name)
    ]
    outage = len(away) > rules.outage_share * len(names)
    troubles = {}
    for name, problem in problems.items():
        before = memory.troubles.get(name)
        since = before.since if before else now
        due = now - since >= rules.hold_down and not (outage and problem in (rules.unknown, DOWN))
        troubles[name] = Trouble(problem, since, due or _is_withheld(memory, name))
    alarm = memory.alarm
    if outage:
        alarm = alarm or (
            f"{len(away)} of {len(names)} hosts are down or {rules.unknown}, so none of them is "
            f"withheld: {listed(sorted(away))}"
        )
    else:
        alarm = None
    quarantine = _quarantine(memory, servers, not_up, now, rules)
    for name in not_up.intersection(left) - quarantine.keys():
        quarantine[name] = Quarantine(f"its owner left while {rules.away}", now)
    return HostMemory(troubles, quarantine, servers, not_up, alarm)


def _is_withheld(memory: HostMemory, name: str) -> bool:
    return name in memory.troubles and memory.troubles[name].withheld


def _quarantine(
    memory: HostMemory,
    servers: Mapping[str, frozenset[str]],
    not_up: Collection[str],
    now: float,
    rules: HostRules,
) -> dict[str, Quarantine]:
    found = {}
    for name, entry in memory.quarantine.items():
        returned = None if name in not_up else entry.returned or now
        reaped = rules.reap_interval > 0 and returned is not None
        if reaped and returned is not None and now - returned >= 2 * rules.reap_interval:
            continue
        found[name] = Quarantine(entry.why, entry.since, returned)
    for name, before in memory.servers.items():
        vanished = before - servers.get(name, frozenset())
        if vanished and (name in not_up or name in memory.not_up):
            why = f"server {listed(sorted(vanished))} vanished while {rules.away}"
            returned = None if name in not_up else now
            found[name] = Quarantine(why, now, returned)
    return found


def released(memory: HostMemory, name: str) -> HostMemory:
    """The memory once somebody has said that a host in quarantine is empty."""
    kept = {host: entry for host, entry in memory.quarantine.items() if host != name}
    return HostMemory(memory.troubles, kept, memory.servers, memory.not_up, memory.alarm)


def memory_document(memory: HostMemory) -> dict[str, Any]:
    """As JSON has it."""
    return {
        "troubles": {n: [t.problem, t.since, t.withheld] for n, t in memory.troubles.items()},
        "quarantine": {n: [q.why, q.since, q.returned] for n, q in memory.quarantine.items()},
        "servers": {n: sorted(ids) for n, ids in sorted(memory.servers.items())},
        "not_up": sorted(memory.not_up),
        "alarm": memory.alarm,
    }


def memory_from(document: Mapping[str, Any]) -> HostMemory:
    """The inverse of ``memory_document``."""
    return HostMemory(
        {n: Trouble(*entry) for n, entry in document["troubles"].items()},
        {n: Quarantine(*entry) for n, entry in document["quarantine"].items()},
        {n: frozenset(ids) for n, ids in document["servers"].items()},
        frozenset(document["not_up"]),
        document["alarm"],
    )
