# SPDX-License-Identifier: Apache-2.0

"""Virtual machines onto few servers, without needless migrations: Adaptive Fit.

Tsai and Liao, StarCube (Springer 2016), chapter 2 and Table A.5. Between two epochs
demands change; a packing from scratch (first fit decreasing) needs few servers and moves
nearly everybody, leaving everybody in place needs many servers. Adaptive Fit packs from
scratch too, but as long as the servers in use are *saturated* it would rather switch a
server on than give the room of somebody's last server to another.
"""

from __future__ import annotations

import enum
from bisect import insort
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from laas_service.domain.errors import InvalidInput

Amounts = tuple[int, ...]
"""An amount of each resource (cores, MiB, ...), in units small enough to be whole."""

VM = TypeVar("VM", bound=Hashable)


class Why(enum.Enum):
    """Why a server was chosen; the letters of Table 2.2."""

    LAST = "L"
    """It hosted the machine before."""
    SATURATED = "X"
    """Another server was switched on because those in use are saturated."""
    NO_ROOM = "N"
    """Another server was switched on because none in use has room."""
    WORST_FIT = "A"
    """Of the servers in use it has most room left."""


class Choice(NamedTuple):
    """Where a virtual machine goes, and why."""

    server: int
    why: Why


@dataclass(frozen=True, slots=True)
class Epoch(Generic[VM]):
    """What is to be placed at one time.

    ``demands`` by machine, each 0..``capacity``. ``last`` says where machines were
    before; who is not in it is new. ``servers`` are alike and numbered from 0.

    Raises:
        InvalidInput: a demand is larger than a server, or has other resources.
    """

    servers: int
    capacity: Amounts
    demands: Mapping[VM, Amounts]
    last: Mapping[VM, int]

    def __post_init__(self) -> None:
        if not self.capacity or min(self.capacity) < 1:
            raise InvalidInput("capacity", self.capacity, "give at least 1 of each resource")
        for vm, demand in self.demands.items():
            if len(demand) != len(self.capacity):
                raise InvalidInput(
                    f"demand of {vm}", demand, f"give {len(self.capacity)} amounts, as the capacity"
                )
            if any(not 0 <= d <= c for d, c in zip(demand, self.capacity, strict=True)):
                raise InvalidInput(
                    f"demand of {vm}", demand, f"a server has {self.capacity}, 0 is the least"
                )
        for vm, server in self.last.items():
            if not 0 <= server < self.servers:
                raise InvalidInput(f"last of {vm}", server, f"servers are 0..{self.servers - 1}")

    def largest_first(self) -> list[VM]:
        """Machines by their dominant share of a server, largest first; equals as given."""
        return sorted(self.demands, key=lambda vm: -self.share(self.demands[vm]))

    def share(self, amounts: Amounts) -> float:
        """The resource of which ``amounts`` is most, in servers."""
        return max(a / c for a, c in zip(amounts, self.capacity, strict=True))

    def demanded(self) -> float:
        """What all machines demand of the resource demanded most, in servers."""
        if not self.demands:
            return 0.0
        return self.share(tuple(map(sum, zip(*self.demands.values(), strict=True))))


class _Servers:
    """Room left while an epoch is packed."""

    def __init__(self, epoch: Epoch[Any]) -> None:
        self._epoch = epoch
        self._room: dict[int, Amounts] = {}
        self._by_room: list[tuple[float, int]] = []
        self._first_off = 0

    @property
    def on(self) -> int:
        return len(self._room)

    def is_on(self, server: int) -> bool:
        return server in self._room

    def fits(self, server: int, demand: Amounts) -> bool:
        room = self._room.get(server, self._epoch.capacity)
        return all(d <= r for d, r in zip(demand, room, strict=True))

    def roomiest(self, demand: Amounts) -> int | None:
        """Worst fit: of the servers that are on and have room, one that has most."""
        return next((s for _, s in self._by_room if self.fits(s, demand)), None)

    def first_fit(self, demand: Amounts) -> int | None:
        return next((s for s in self._room if self.fits(s, demand)), None)

    def first_off(self) -> int:
        """Raises: InvalidInput: all are on."""
        while self._first_off in self._room:
            self._first_off += 1
        if self._first_off >= self._epoch.servers:
            raise InvalidInput("servers", self._epoch.servers, "give more: these are too few")
        return self._first_off

    def put(self, server: int, demand: Amounts) -> None:
        room = self._room.get(server)
        if room is not None:
            self._by_room.remove(self._entry(server, room))
        else:
            room = self._epoch.capacity
        self._room[server] = tuple(r - d for r, d in zip(room, demand, strict=True))
        insort(self._by_room, self._entry(server, self._room[server]))

    def _entry(self, server: int, room: Amounts) -> tuple[float, int]:
        """Most room first: what is left of the scarcest resource."""
        left = min(r / c for r, c in zip(room, self._epoch.capacity, strict=True))
        return (-left, server)


def adaptive_fit(epoch: Epoch[VM], saturation: float) -> dict[VM, Choice]:
    """Place every machine, in the order of ``largest_first``.

    ``saturation`` is the threshold u, 0..1: the lower it is, the sooner a server is
    switched on rather than a machine moved. The saturation degree is what is demanded in
    all over the capacity of the servers in use and one more, for the resource of which
    most is demanded (the book has one resource).

    Raises:
        InvalidInput: ``saturation`` is out of range, or the servers are too few.
    """
    if not 0 <= saturation <= 1:
        raise InvalidInput("saturation", saturation, "give a threshold of 0 to 1")
    servers, chosen = _Servers(epoch), dict[VM, Choice]()
    demanded = epoch.demanded()
    for vm in epoch.largest_first():
        demand, last = epoch.demands[vm], epoch.last.get(vm)
        saturated = demanded > saturation * (servers.on + 1)
        roomy = servers.roomiest(demand)
        if last is not None and (
            servers.fits(last, demand) if servers.is_on(last) else saturated or roomy is None
        ):
            choice = Choice(last, Why.LAST)
        elif roomy is None:
            choice = Choice(servers.first_off(), Why.NO_ROOM)
        elif saturated:
            choice = Choice(servers.first_off(), Why.SATURATED)
        else:
            choice = Choice(roomy, Why.WORST_FIT)
        servers.put(choice.server, demand)
        chosen[vm] = choice
    return chosen


def first_fit_decreasing(epoch: Epoch[VM]) -> dict[VM, int]:
    """The baseline: largest first, each onto the first server with room; nobody's past counts.

    Raises:
        InvalidInput: the servers are too few.
    """
    servers, chosen = _Servers(epoch), dict[VM, int]()
    for vm in epoch.largest_first():
        found = servers.first_fit(epoch.demands[vm])
        chosen[vm] = servers.first_off() if found is None else found
        servers.put(chosen[vm], epoch.demands[vm])
    return chosen
