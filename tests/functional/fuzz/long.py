# SPDX-License-Identifier: Apache-2.0

"""The number of examples of each kind: ``LAAS_FUZZ``, or 300 that are the same in every run.

A long run prints its counts from time to time (``pytest -s``), so that they are known even
if the run is interrupted.
"""

from __future__ import annotations

import os
from collections import Counter

LONG = int(os.environ.get("LAAS_FUZZ", "0"))
EXAMPLES = LONG or 300

SAID_EVERY = 5_000


class Tally:
    """Counts examples by outcome; a long run prints the counts every ``SAID_EVERY`` examples."""

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
