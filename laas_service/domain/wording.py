# SPDX-License-Identifier: Apache-2.0

"""Names in sentences: lists that give the first few, and names without control characters."""

import difflib
from collections.abc import Iterable

SHOWN = 5
"""Names that a sentence gives before it counts the rest."""

CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Characters that no name has, as the inside of a class of a regular expression: the control
characters C0 and C1, line and paragraph separators, and those that change the direction of text."""


def printable(text: str) -> str:
    """The text with each character that is not printable as an escape such as ``\\x1b``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def alike(name: object, known: Iterable[str], where: str) -> str:
    """The fix of a name that does not exist: the names like it, or else some that exist there."""
    names = list(known)
    if near := difflib.get_close_matches(str(name), names):
        return f"did you mean {' or '.join(near)}?"
    return f"{where} has {listed(names) or 'none'}"


def listed(names: Iterable[object], shown: int = SHOWN) -> str:
    """The names in the order given, as ``a, b and 3 more``; empty if there are none.

    At most ``shown`` (at least 1) of them are named; the others are counted.
    """
    texts = [str(name) for name in names]
    rest = len(texts) - shown
    return ", ".join(texts[:shown]) + (f" and {rest} more" if rest > 0 else "")
