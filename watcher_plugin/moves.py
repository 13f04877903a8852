# SPDX-License-Identifier: Apache-2.0

"""A planned move of an allocation, and how far the service is with it; imports no Watcher."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

TURNS_BACK_UNTIL = ("prepare", "switch", "enter", "leave")
"""Values of ``changing`` in which the service still turns a change of placement back."""

EMPTIES = "leave"
"""The value of ``changing`` in which the old hosts are closed and are being emptied."""


class Stage(enum.Enum):
    """How far a move is."""

    NOT_BEGUN = "not begun"
    """The allocation has its old placement, and nothing is announced: also after a way back."""
    ANNOUNCED = "announced"
    HOLDING = "taking its new place"
    """The allocation gets its new hosts and links beside the old ones."""
    EMPTYING = "emptying its old hosts"
    """Both placements are held, and servers go from the old hosts to the new ones."""
    WITHDRAWING = "giving up its old place"
    """No server is on an old host; the move no longer turns back."""
    DONE = "done"
    TURNING_BACK = "turning back"
    OTHER = "another placement"
    """The allocation is released, or got a placement that is not the one of the move."""


@dataclass(frozen=True, slots=True)
class Move:
    """A move as a plan of the service has it."""

    allocation: str
    old: str
    """``placement`` of the allocation when the move was planned."""
    joining: tuple[str, ...]
    leaving: tuple[str, ...]

    def stage(self, shown: Mapping[str, Any]) -> Stage:
        """How far the move is, from the allocation as the service shows it."""
        changing = shown.get("changing")
        if placement(shown) == self.old:
            if changing is not None:
                return Stage.TURNING_BACK
            return Stage.ANNOUNCED if self.matches(shown.get("announced")) else Stage.NOT_BEGUN
        hosts = {host["name"] for host in shown["hosts"]}
        if not hosts.issuperset(self.joining) or not hosts.isdisjoint(self.leaving):
            return Stage.OTHER
        if changing is None:
            return Stage.DONE if shown["state"] == "active" else Stage.OTHER
        if changing == EMPTIES:
            return Stage.EMPTYING
        return Stage.HOLDING if changing in TURNS_BACK_UNTIL else Stage.WITHDRAWING

    def matches(self, move: Mapping[str, Any] | None) -> bool:
        """Whether a planned or announced move exchanges the hosts of this one."""
        return move is not None and (
            (self.allocation, set(self.joining), set(self.leaving))
            == (move.get("allocation", self.allocation), set(move["joining"]), set(move["leaving"]))
        )


@dataclass(frozen=True, slots=True)
class SlotMove:
    """Virtual machines of one allocation that move to other shared hosts, as a plan has them."""

    old: str
    """``slots_digest`` of the allocation when the move was planned."""
    new: str
    """``slots_digest`` once the move is over."""
    joining: tuple[str, ...]
    leaving: tuple[str, ...]

    def stage(self, shown: Mapping[str, Any]) -> Stage:
        """How far the move is, from the allocation as the service shows it."""
        at = slots_digest(units_of(shown))
        if at == self.new:
            if shown.get("changing") is not None:
                return Stage.EMPTYING
            return Stage.DONE if shown["state"] == "active" else Stage.OTHER
        if at != self.old or shown.get("changing") is not None or shown["state"] != "active":
            return Stage.OTHER
        return Stage.ANNOUNCED if self.matches(shown.get("announced")) else Stage.NOT_BEGUN

    def matches(self, move: Mapping[str, Any] | None) -> bool:
        """Whether an announced move exchanges the hosts of this one."""
        return move is not None and (set(self.joining), set(self.leaving)) == (
            set(move["joining"]),
            set(move["leaving"]),
        )


def units_of(shown: Mapping[str, Any]) -> dict[int, str]:
    """Number of each virtual machine -> name of its host."""
    return {unit: host["name"] for host in shown["units"] for unit in host["units"]}


def moved(units: Mapping[int, str], moves: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """The hosts of the virtual machines after ``unit_moves``."""
    return {**units, **{move["unit"]: move["joins"] for move in moves}}


def slots_digest(units: Mapping[int, str]) -> str:
    """A digest of the hosts of virtual machines."""
    return hashlib.sha256(json.dumps(sorted(units.items())).encode()).hexdigest()


def placement(shown: Mapping[str, Any]) -> str:
    """A digest of the hosts and links of an allocation as the service shows it."""
    hosts = sorted(host["name"] for host in shown["hosts"])
    text = json.dumps([hosts, sorted(shown["links"])])
    return hashlib.sha256(text.encode()).hexdigest()
