# SPDX-License-Identifier: Apache-2.0

"""How long to look: ``LAAS_FUZZ`` examples of each kind, or 300, the same every time.

A long look says what it has tried as it goes on (``pytest -s``), so that one that is cut
short has its figures too.
"""

from __future__ import annotations

import os
from collections import Counter

LONG = int(os.environ.get("LAAS_FUZZ", "0"))
EXAMPLES = LONG or 300

SAID_EVERY = 5_000


class Tally:
    """What was tried, by what came of it; printed every now and then, and at the end."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._outcomes: Counter[str] = Counter()

    def count(self, outcome: str) -> None:
        self._outcomes[outcome] += 1
        if LONG and self._outcomes.total() % SAID_EVERY == 0:
            self.say()

    def say(self) -> None:
        each = ", ".join(f"{number:,} {what}" for what, number in sorted(self._outcomes.items()))
        print(f"\n{self._kind}: {self._outcomes.total():,} tried: {each}", flush=True)
