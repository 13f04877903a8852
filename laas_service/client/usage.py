# SPDX-License-Identifier: Apache-2.0

"""Wrong command lines in two lines with a fix, and values with units: ``2h``, ``10G``."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable
from typing import Any, NoReturn

SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
"""Seconds by unit."""

GIGABITS = {"": 1.0, "g": 1.0, "m": 1e-3, "k": 1e-6, "t": 1e3}
"""Gb/s by unit; ``bit/s``, ``b/s`` and ``bps`` may follow."""

KINDS = {"int": "give a whole number", "float": "give a number", "Path": "give a path"}
"""What to give in place of what argparse calls an invalid value of a type."""


def duration(text: str) -> float:
    """Seconds, or a number with a unit such as ``30m`` or ``2h``. Raises: ArgumentTypeError."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+) ?([a-z]*)", text.strip().lower())
    if found is None or found[2] not in SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r}: give seconds, or a time such as 30m, 2h or 1d")
    return float(found[1]) * SECONDS[found[2]]


def bandwidth(text: str) -> float:
    """Gb/s, or a number with a unit such as ``10G``, ``400Mb/s``. Raises: ArgumentTypeError."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+) ?([gmkt]?)(?:b|bit)?(?:/s|ps)?", text.lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: give Gb/s, or a rate such as 10G or 400M")
    return float(found[1]) * GIGABITS[found[2]]


def amounts(text: str) -> float | list[float]:
    """A bandwidth, or some with commas between them. Raises: ArgumentTypeError."""
    numbers = [bandwidth(number) for number in text.split(",")]
    return numbers[0] if len(numbers) == 1 else numbers


def count(text: str) -> int:
    """A whole number of at least 1. Raises: ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number of at least 1")
    return int(text)


def spread(text: str) -> int | dict[str, Any]:
    """Pods, or a kind of domains with how many of them: ``power:2``. Raises: ArgumentTypeError."""
    kind, colon, least = text.rpartition(":")
    if colon and kind:
        return {"kind": kind, "least": count(least)}
    return count(text)


def domain(text: str) -> tuple[str, str]:
    """Kind and name of a domain: ``nvlink=rack7``. Raises: ArgumentTypeError."""
    kind, _, name = text.partition("=")
    if not (kind and name):
        raise argparse.ArgumentTypeError(f"{text!r}: give a kind and a name, as nvlink=rack7")
    return kind, name


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean ...?`` if some of the known words are like this one, else nothing."""
    near = difflib.get_close_matches(word.lower(), list(known), 3, 0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def advice(parser: argparse.ArgumentParser, message: str) -> str:
    """What is wrong with a command line, by argparse, in two lines: with a fix, and where to read.

    An unknown option or choice is answered with those that are like it.
    """
    if found := re.fullmatch(r"(.*: )invalid (\w+) value: (.*)", message, re.DOTALL):
        message = f"{found[1]}{found[3]}: {KINDS.get(found[2], f'give a {found[2]}')}"
    elif found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message, re.DOTALL):
        choices = re.findall(r"[^\s,']+", found[2])
        message += did_you_mean(found[1], choices)
    elif found := re.match(r"unrecognized arguments: (-[^\s=]+)", message):
        message += did_you_mean(found[1], _options(parser))
    elif found := re.fullmatch(r"one of the arguments (.*) is required", message):
        names = found[1].split()
        message = f"give {' or '.join(name for name in names if f'--{name}' not in names)}"
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)
    return f"{parser.prog}: {line}\nSee '{parser.prog} --help'.\n"


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """The options of a parser and of its commands."""
    found = dict.fromkeys(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                found |= dict.fromkeys(_options(one))
    return list(found)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are two lines, in place of all its usage; status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, advice(self, message))
