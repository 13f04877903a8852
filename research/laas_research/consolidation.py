# SPDX-License-Identifier: Apache-2.0

"""Adaptive Fit: packs virtual machines onto few servers with few migrations.

Source: Tsai and Liao, StarCube (Springer 2016), chapter 2 and Table A.5. Demands change
between two epochs. Packing from scratch (first fit decreasing) needs few servers but moves
most machines; leaving all machines in place needs many servers. Adaptive Fit packs from
scratch too, but while the servers in use are *saturated* it switches another server on
instead of using room on a server that other machines ran on before.
"""

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
    """The reason for the choice of a server; values are the letters of Table 2.2."""

    LAST = "L"
    """The machine ran on it in the last epoch."""
    SATURATED = "X"
    """Another server was switched on because those in use are saturated."""
    NO_ROOM = "N"
    """Another server was switched on because none in use has room."""
    WORST_FIT = "A"
    """It has the most room left of the servers in use."""


class Choice(NamedTuple):
    """The server for a virtual machine, and the reason."""

    server: int
    why: Why


@dataclass(frozen=True, slots=True)
class Epoch(Generic[VM]):
    """The machines to place in one epoch, and the servers.

    Raises:
        InvalidInput: the capacity is empty or below 1, a demand exceeds it or has other
            resources, or a server of ``last`` does not exist.
    """

    servers: int
    """Number of servers, which are equal and numbered from 0."""
    capacity: Amounts
    """Of one server, at least 1 of each resource."""
    demands: Mapping[VM, Amounts]
    """Machine -> demand, 0..``capacity`` of each resource."""
    last: Mapping[VM, int]
    """Machine -> server in the last epoch; machines that are not in it are new."""

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
        """Machines by ``share`` of their demand, largest first; equal ones in the given order."""
        return sorted(self.demands, key=lambda vm: -self.share(self.demands[vm]))

    def share(self, amounts: Amounts) -> float:
        """The largest of the amounts, each as a part of a server's capacity."""
        return max(a / c for a, c in zip(amounts, self.capacity, strict=True))

    def demanded(self) -> float:
        """The sum of all demands for the resource that is demanded most, in servers."""
        if not self.demands:
            return 0.0
        return self.share(tuple(map(sum, zip(*self.demands.values(), strict=True))))


class _Servers:
    """The room left on each server while an epoch is packed."""

    def __init__(self, epoch: Epoch[Any]) -> None:
        self._epoch = epoch
        self.room: dict[int, Amounts] = {}
        """Of the servers that are on."""
        self._by_room: list[tuple[float, int]] = []
        self._first_off = 0

    def fits(self, server: int, demand: Amounts) -> bool:
        room = self.room.get(server, self._epoch.capacity)
        return all(d <= r for d, r in zip(demand, room, strict=True))

    def roomiest(self, demand: Amounts) -> int | None:
        """Worst fit: the server with the most room of those that are on and fit the demand."""
        return next((s for _, s in self._by_room if self.fits(s, demand)), None)

    def first_fit(self, demand: Amounts) -> int | None:
        return next((s for s in self.room if self.fits(s, demand)), None)

    def first_off(self) -> int:
        """The first server that is off.

        Raises:
            InvalidInput: all servers are on.
        """
        while self._first_off in self.room:
            self._first_off += 1
        if self._first_off >= self._epoch.servers:
            raise InvalidInput("servers", self._epoch.servers, "give more: these are too few")
        return self._first_off

    def put(self, server: int, demand: Amounts) -> None:
        room = self.room.get(server, self._epoch.capacity)
        if server in self.room:
            self._by_room.remove(self._entry(server, room))
        self.room[server] = tuple(r - d for r, d in zip(room, demand, strict=True))
        insort(self._by_room, self._entry(server, self.room[server]))

    def _entry(self, server: int, room: Amounts) -> tuple[float, int]:
        """Sort key of a server: most room first, by the resource of which least is left."""
        left = min(r / c for r, c in zip(room, self._epoch.capacity, strict=True))
        return (-left, server)


def adaptive_fit(epoch: Epoch[VM], saturation: float) -> dict[VM, Choice]:
    """Place every machine, in the order of ``Epoch.largest_first``.

    ``saturation`` is the threshold u, 0..1: the lower it is, the sooner a server is switched
    on instead of a machine being moved. The saturation degree is the sum of all demands over
    the capacity of the servers in use and one more, for the resource that is demanded most
    (the book has one resource).

    Raises:
        InvalidInput: ``saturation`` is out of range, or there are too few servers.
    """
    if not 0 <= saturation <= 1:
        raise InvalidInput("saturation", saturation, "give a threshold of 0 to 1")
    servers, chosen = _Servers(epoch), dict[VM, Choice]()
    demanded = epoch.demanded()
    for vm in epoch.largest_first():
        demand, last = epoch.demands[vm], epoch.last.get(vm)
        saturated = demanded > saturation * (len(servers.room) + 1)
        roomiest = servers.roomiest(demand)
        if last is not None and (
            servers.fits(last, demand) if last in servers.room else saturated or roomiest is None
        ):
            choice = Choice(last, Why.LAST)
        elif roomiest is None:
            choice = Choice(servers.first_off(), Why.NO_ROOM)
        elif saturated:
            choice = Choice(servers.first_off(), Why.SATURATED)
        else:
            choice = Choice(roomiest, Why.WORST_FIT)
        servers.put(choice.server, demand)
        chosen[vm] = choice
    return chosen


def first_fit_decreasing(epoch: Epoch[VM]) -> dict[VM, int]:
    """The baseline: place the largest first, each on the first server with room.

    The servers of the last epoch do not matter.

    Raises:
        InvalidInput: there are too few servers.
    """
    servers, chosen = _Servers(epoch), dict[VM, int]()
    for vm in epoch.largest_first():
        server = servers.first_fit(epoch.demands[vm])
        chosen[vm] = servers.first_off() if server is None else server
        servers.put(chosen[vm], epoch.demands[vm])
    return chosen
