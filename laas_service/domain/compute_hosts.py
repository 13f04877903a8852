# SPDX-License-Identifier: Apache-2.0

"""Which hosts are withheld from new owners for what compute shows of them; pure.

A host that compute does not know, or that is disabled or down or not free there, or runs a server
that may not be on it, is withheld once that has lasted for a hold-down, and given back as soon as
it is over. One that compute has not known since its import is withheld at once. A server that
vanishes from a host whose compute service is not up may still run there, and so may one that
nobody has seen on a host that its owner leaves meanwhile: such a host is quarantined until
somebody says that it is empty.
"""

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

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

    ``unfit``: why no new owner may get an Ironic node in its state; empty if one may. ``name`` is
    its own name there, empty if it has none.
    """

    up: bool = True
    enabled: bool = True
    reason: str = ""
    servers: frozenset[str] = frozenset()
    strangers: str = ""
    unfit: str = ""
    name: str = ""

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


OUTAGE = ", so none of them is withheld"
"""What the alarm about hosts that seem to be away together says of them."""

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


class Trouble(NamedTuple):
    """A problem of a host, since when (seconds since the epoch), and whether it is withheld."""

    problem: str
    since: float
    withheld: bool = False


class Quarantine(NamedTuple):
    """Why a host is in quarantine, since when, and since when its compute service is up again."""

    why: str
    since: float
    returned: float | None = None


@dataclass(frozen=True, slots=True)
class HostMemory:
    """What is remembered of the hosts of a fabric, by name.

    ``servers`` are those that were there at the last look, shortened; ``not_up`` the hosts whose
    compute service was not up then. ``alarm``: so many hosts seem away that none is withheld, or so
    many were never known. ``strange`` are the hosts that compute has not known since their import,
    None before the first look. ``names`` has the other names of hosts in compute.
    """

    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    quarantine: Mapping[str, Quarantine] = field(default_factory=dict)
    servers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    not_up: frozenset[str] = frozenset()
    alarm: str | None = None
    strange: frozenset[str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    def name(self, host: str) -> str:
        """The last name of a host in compute; empty if compute never knew it."""
        return "" if self.strange is None or host in self.strange else self.names.get(host, host)

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

    def only(self, hosts: Collection[str]) -> "HostMemory":
        """What is remembered of these hosts alone; the alarm stays."""
        return replace(
            self,
            troubles={name: self.troubles[name] for name in self.troubles if name in hosts},
            quarantine={name: self.quarantine[name] for name in self.quarantine if name in hosts},
        )

    def withheld_by_cause(self) -> dict[Cause, list[str]]:
        """The names of the hosts that no new owner gets, ascending, by each cause there is."""
        found: dict[Cause, list[str]] = {cause: [] for cause in Cause}
        for name, (_, why) in sorted(self.withheld().items()):
            found[_cause(why)].append(name)
        return found


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
    near: Mapping[str, str] = MappingProxyType({}),
) -> HostMemory:
    """What is remembered after a look at the hosts ``names``, of which compute knows ``seen``.

    The owners of the hosts ``left`` are leaving them: they are taken back, and not free yet.
    ``near`` names what nearly matches hosts that compute does not know.
    """
    servers = {
        name: frozenset(id[:SHORT] for id in seen[name].servers)
        for name in names
        if name in seen and seen[name].servers
    }
    not_up = frozenset(name for name in names if name not in seen or not seen[name].up)
    strange = frozenset(name for name in names if not memory.name(name)) - seen.keys()
    known = set(names) - strange
    differing = {name: memory.names[name] for name in known if name in memory.names}
    differing |= {name: seen[name].name or name for name in known if name in seen}
    differing = {name: other for name, other in differing.items() if other != name}
    problems = {
        name: seen[name].problem if name in seen else _unknown(name, rules, near)
        for name in names
        if name not in seen or seen[name].problem
    }
    gone = {name for name in known if name not in seen or not seen[name].up}
    away = [name for name in problems if name in gone and not _is_withheld(memory, name)]
    outage = bool(away) and len(away) > rules.outage_share * len(known)
    troubles = {}
    for name, problem in problems.items():
        before = memory.troubles.get(name)
        since = before.since if before else now
        due = name in strange or now - since >= rules.hold_down
        due = due and not (outage and name in gone)
        troubles[name] = Trouble(problem, since, due or _is_withheld(memory, name))
    alarm = None
    if outage:
        begun = memory.alarm if memory.alarm and OUTAGE in memory.alarm else None
        alarm = begun or (
            f"{len(away)} of {len(names)} hosts are down or {rules.unknown}{OUTAGE}: "
            f"{listed(sorted(away))}"
        )
    elif len(strange) > rules.outage_share * len(names):
        alarm = _never_known(names, strange, rules, near)
    quarantine = _quarantine(memory, servers, not_up, now, rules)
    for name in not_up.intersection(left) - quarantine.keys():
        quarantine[name] = Quarantine(f"its owner left while {rules.away}", now)
    return HostMemory(troubles, quarantine, servers, not_up, alarm, strange, differing)


def _unknown(name: str, rules: HostRules, near: Mapping[str, str]) -> str:
    return f"{rules.unknown}; {near[name]!r} nearly matches" if name in near else rules.unknown


def _never_known(
    names: Collection[str], strange: Collection[str], rules: HostRules, near: Mapping[str, str]
) -> str:
    text = f"{len(strange)} of {len(names)} hosts have been {rules.unknown} since their import"
    pair = next((name for name in sorted(strange) if name in near), None)
    like = f"; host {pair!r} nearly matches {near[pair]!r} there" if pair else ""
    return f"{text}, so no new owner gets them{like}"


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
    return replace(memory, quarantine=kept)
