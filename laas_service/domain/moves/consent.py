# SPDX-License-Identifier: Apache-2.0

"""What the owner of an allocation lets the service do to make room for others."""

import enum
from dataclasses import dataclass


class Movable(enum.Enum):
    """Whether an allocation may move to other hosts."""

    NEVER = "never"
    RESTART = "restart"
    LIVE = "live"


LONGEST_NOTICE = 30 * 24 * 3600
"""The longest notice in seconds."""

DEAREST_MOVE = 1_000_000
"""The highest cost of a moved host."""


@dataclass(frozen=True, slots=True)
class Consent:
    """Consent to moves; by default none."""

    movable: Movable = Movable.NEVER
    """``RESTART``: servers may stop for a move. ``LIVE``: only if they need not stop."""
    notice: float = 0.0
    """Seconds between the announcement of a move and its beginning."""
    move_cost: float = 1.0
    """What a host costs that it gets by a move, in any unit; plans may be limited by it."""

    def lets_servers_go(self, *, live: bool) -> bool:
        """Whether the service may move its servers; ``live``: they need not stop for that."""
        return self.movable is Movable.RESTART or (live and self.movable is Movable.LIVE)


NO_CONSENT = Consent()
