# SPDX-License-Identifier: Apache-2.0

"""Lists of names in sentences: the first few, and how many more there are."""

from collections.abc import Iterable

SHOWN = 5
"""Names that a sentence gives before it counts the rest."""


def listed(names: Iterable[object], shown: int = SHOWN) -> str:
    """The names in the order given, as ``a, b and 3 more``; empty if there are none.

    At most ``shown`` (at least 1) of them are named; the others are counted.
    """
    texts = [str(name) for name in names]
    rest = len(texts) - shown
    return ", ".join(texts[:shown]) + (f" and {rest} more" if rest > 0 else "")
