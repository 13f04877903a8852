# SPDX-License-Identifier: Apache-2.0

"""Time, chance, and what is called around each effect of a worker outside of the database."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TypeVar

from laas_service.messages import Initiator

T = TypeVar("T")

ActingFor = Callable[[Initiator | None], AbstractContextManager[None]]
"""A context in which every log line names this initiator; None names nobody."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Time, chance, and what is called around each effect outside."""

    now: Callable[[], datetime]
    chance: Random
    clock: Callable[[], float]
    """Measures seconds."""
    at: Callable[[str], None] = lambda step: None
    """Called with a step's name before and after each effect (for fault injection)."""
    before_effect: Callable[[], None] = lambda: None
    """Called before each effect; raises ``LeaseLost`` if the effect must not happen."""
    acting_for: ActingFor = lambda initiator: nullcontext()
    again: Callable[[float], None] = lambda seconds: None
    """Called with the seconds after which a hold-down ends: the next round should begin then."""

    def effect(self, name: str, act: Callable[[], T]) -> T:
        """Take an effect outside, with its name; raises ``LeaseLost`` if it must not happen."""
        self.before_effect()
        self.at(f"before {name}")
        answer = act()
        self.at(f"after {name}")
        return answer
